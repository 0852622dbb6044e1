//! Xen's null scheduler (`sched=null`): each vCPU has a pCPU of its own, and nothing is ever
//! decided.
//!
//! For hosts with no more vCPUs than pCPUs (embedded systems, a cpupool for one large guest). A
//! vCPU that finds no free pCPU waits in a queue, and does not run before one is free.
//!
//! # Example
//! Three hogs on two pCPUs: the first two have one each, the third never runs, until one of them
//! ends (test `null_gives_each_vcpu_a_pcpu_and_lets_the_rest_wait`).
//!
//! # Fidelity
//! Read in `xen/common/sched/null.c` of RELEASE-4.20.0; what is modelled is the same in 4.12
//! to 4.22.
//!
//! | rule | real place | here | test |
//! |---|---|---|---|
//! | at creation: the own pCPU if it is free, else the first free one; soft affinity first, then hard | `pick_res`, `null_unit_insert` | modelled | `null_gives_each_vcpu_a_pcpu_and_lets_the_rest_wait` |
//! | none free: the wait queue, in order of arrival | `null_unit_insert` | modelled | the same |
//! | a pCPU that is given up goes to the first that waits with soft affinity for it, then with hard | `unit_deassign` | modelled | the same |
//! | a decision: the own vCPU if it can run, else idle; no slice, no preemption, no tick | `null_schedule` | modelled | `null_never_preempts` |
//! | an affinity change places anew | `null_unit_migrate` | modelled | `null_follows_an_affinity_change` |
//! | a vCPU that goes offline leaves its pCPU | `null_unit_sleep`, 4.13 | omitted: vCPUs do not go offline here; one that ends does | |
//! | trylock failures | `null_schedule` | omitted | |

use super::common::{Core, Table, Units, minus, read_current, take};
use super::one_lock::{OneLock, XenRules};
use crate::registry::{Entry, Family, XenScheduler};
use crate::{CellLocks, Cmd, Cx, Needs, Pick, Prev};
use schedlab_model::{CpuId, CpuSet, TaskId};

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    name: "xen-null",
    summary: "Xen's null (4.12 to 4.22): a pCPU for each vCPU, no decisions; the rest waits",
    family: Family::Xen(XenScheduler::Null),
    proposed_live: false,
    knobs: Vec::new,
    build: |cpus, _| Box::new(OneLock::<CellLocks, _>::new(Null::new(cpus))),
};

#[derive(Clone, Debug)]
struct Unit {
    core: Core,
    /// It has a pCPU: `core.cpu`.
    assigned: bool,
}

/// See the module.
struct Null {
    pool: CpuSet,
    units: Table<Unit>,
    /// By pCPU: whose it is.
    owner: Vec<Option<TaskId>>,
    /// By pCPU: who runs.
    curr: Vec<Option<TaskId>>,
    /// Units without a pCPU, in order of arrival.
    waiting: Vec<TaskId>,
}

impl Null {
    fn new(cpus: usize) -> Self {
        Null {
            pool: CpuSet::first(cpus),
            units: Table::new(),
            owner: vec![None; cpus],
            curr: vec![None; cpus],
            waiting: Vec::new(),
        }
    }

    fn unit(&self, task: TaskId) -> &Unit {
        &self.units[task]
    }

    fn unit_mut(&mut self, task: TaskId) -> &mut Unit {
        &mut self.units[task]
    }

    /// The pCPU for a unit: its own if that is free or its own already, else the first free one.
    fn pick(&self, task: TaskId) -> Option<CpuId> {
        let core = &self.unit(task).core;
        let owned =
            (0..self.owner.len()).filter(|cpu| self.owner[*cpu].is_some_and(|owner| owner != task));
        let free = minus(&self.pool, &owned.map(CpuId::from).collect());
        core.steps().find_map(|(_, mask)| {
            let left = mask.and(&free);
            if left.contains(core.cpu) { Some(core.cpu) } else { left.lowest() }
        })
    }

    /// Gives the unit a free pCPU, or puts it into the wait queue.
    fn place(&mut self, cx: &Cx<'_>, task: TaskId) {
        let Some(cpu) = self.pick(task) else {
            return self.waiting.push(task);
        };
        self.assign(cx, task, cpu);
    }

    fn assign(&mut self, cx: &Cx<'_>, task: TaskId, cpu: CpuId) {
        self.owner[cpu.index()] = Some(task);
        let unit = self.unit_mut(task);
        (unit.assigned, unit.core.cpu) = (true, cpu);
        cx.push(Cmd::Moved(task, cpu));
    }

    /// Takes the pCPU (or the place in the wait queue) from a unit. Who waits for that pCPU gets
    /// it.
    fn release(&mut self, cx: &Cx<'_>, task: TaskId) {
        if !std::mem::take(&mut self.unit_mut(task).assigned) {
            take(&mut self.waiting, task);
            return;
        }
        let cpu = self.unit(task).core.cpu;
        self.owner[cpu.index()] = None;
        let soft = |task: &&TaskId| {
            let core = &self.unit(**task).core;
            core.soft_useful() && core.soft.and(&core.hard).contains(cpu)
        };
        let hard = |task: &&TaskId| self.unit(**task).core.hard.contains(cpu);
        let next =
            self.waiting.iter().find(soft).or_else(|| self.waiting.iter().find(hard)).copied();
        if let Some(next) = next {
            take(&mut self.waiting, next);
            self.assign(cx, next, cpu);
            cx.push(Cmd::Resched(cpu));
        }
    }
}

impl Units for Null {
    fn create(&mut self, cx: &Cx<'_>, task: TaskId) {
        if !self.has(task) {
            let core = Core::new(cx.task(task), &self.pool);
            self.units.add(task, Unit { core, assigned: false });
            self.place(cx, task);
        }
    }

    fn has(&self, task: TaskId) -> bool {
        self.units.has(task)
    }

    fn core_mut(&mut self, task: TaskId) -> &mut Core {
        &mut self.unit_mut(task).core
    }

    fn is_runnable(&self, task: TaskId) -> bool {
        self.unit(task).core.runnable()
    }

    fn insert_woken(&mut self, cx: &Cx<'_>, task: TaskId) {
        let unit = self.unit(task);
        if unit.assigned && self.curr[unit.core.cpu.index()] != Some(task) {
            cx.push(Cmd::Resched(unit.core.cpu));
        }
    }

    fn take_asleep(&mut self, _cx: &Cx<'_>, _task: TaskId) {}
}

impl XenRules for Null {
    fn needs() -> Needs {
        Needs { exact_slices: false, ..super::needs() }
    }

    fn schedule(&mut self, cx: &Cx<'_>, cpu: CpuId, _prev: Option<TaskId>, why: Prev) -> Pick {
        if let Some(prev) = self.curr[cpu.index()] {
            self.unit_mut(prev).core.stopped(why);
            if why == Prev::Exited {
                self.release(cx, prev);
            }
        }
        let next = self.owner[cpu.index()].filter(|task| self.is_runnable(*task));
        self.curr[cpu.index()] = next;
        next.map_or(Pick::IDLE, Pick::run)
    }

    fn saved(&mut self, cx: &Cx<'_>, prev: TaskId) {
        if std::mem::take(&mut self.unit_mut(prev).core.migrating) {
            self.release(cx, prev);
            self.place(cx, prev);
        }
    }

    /// A unit that may not be where it is, or that waits, is placed anew.
    fn affinity_changed(&mut self, cx: &Cx<'_>, task: TaskId) {
        let pool = self.pool;
        self.unit_mut(task).core.read_affinity(cx.task(task), &pool);
        let unit = self.unit(task);
        let cpu = unit.core.cpu;
        if self.curr[cpu.index()] == Some(task) {
            if !unit.core.hard.contains(cpu) {
                cx.push(Cmd::Displace(task));
            }
            return;
        }
        if unit.assigned && self.pick(task) == Some(cpu) {
            return;
        }
        self.release(cx, task);
        self.place(cx, task);
        if self.is_runnable(task) {
            self.insert_woken(cx, task);
        }
    }

    fn resync(&mut self, cx: &Cx<'_>) {
        self.create_all(cx);
        read_current(cx, &mut self.curr);
        self.wake_all(cx);
    }

    fn explain(&self, _cx: &Cx<'_>, cpu: CpuId) -> String {
        let (owner, curr) = (self.owner[cpu.index()], self.curr[cpu.index()]);
        format!("null {cpu}: of {owner:?}, runs {curr:?}, without a pCPU {:?}", self.waiting)
    }
}
