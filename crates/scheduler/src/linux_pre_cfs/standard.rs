//! `linux-2.4`: one list, one lock, goodness.
//!
//! Every runnable task, running or not, is on one list. A decision scans it for the task with the
//! best goodness: ticks left in its slice, nice, a bonus for the CPU where it ran last and for the
//! address space that is loaded. When all runnable tasks have used up their slices, every task of
//! the system is recharged.
//!
//! # Example
//! Two CPU hogs of different processes at HZ=100 run 120 ms each in turn: at the recharge the one
//! that just ran wins by its loaded address space. Two threads of one process alternate every 60 ms
//! (test `two_processes_run_120_ms_and_two_threads_60_ms`).
//!
//! # Fidelity
//! | rule | Linux 2.4.17 | here | test |
//! |---|---|---|---|
//! | slices, goodness, recharge of all tasks | `kernel/sched.c` | modelled | `goodness.rs`, `shares_follow_nice` |
//! | wakeup at the head, search for an idle or worse CPU | `reschedule_idle` | modelled | `a_woken_task_takes_the_longest_idle_cpu` |
//! | preempted task looks for another CPU | `schedule_tail` | modelled | property tests |
//! | yield once, behind every task | `sched_yield` | modelled | `a_yielder_lets_the_other_run` |
//! | fork halves the slice, exit gives it back | `fork.c`, `exit.c` | modelled | `fork_shares_the_slice` |
//! | a recharge that changes no slice is followed by another search, for ever, if the best goodness is still 0 (a negative penalty) | yes: it hangs | the best one runs | `a_recharge_that_changes_nothing_is_the_last` |
//! | lock dropped during the recharge (a race of two CPUs) | yes | omitted: one CPU recharges at a time | |
//! | Hyper-Threading packages first | late 2.4 | omitted | |

use super::goodness::{self, NOTHING, Record, charge_ticks};
use super::records::{List, NIL};
use crate::{Change, Cmd, Cx, Knobs, Lock, Locks, Needs, Pick, Prev, Scheduler, Wake, Work};
use schedlab_model::{CpuId, Ns, Policy, TaskId};

/// What the one lock guards.
struct StandardState<L: Locks> {
    penalty: i64,
    tasks: Vec<L::Slot<Record>>,
    list: List,
    cpus: Vec<Cpu>,
}

struct Cpu {
    curr: Option<TaskId>,
    /// Address space that is loaded (idle keeps the last one).
    mm: i64,
    last_schedule: Ns,
    ticks_seen: u64,
    /// A yield that found no other task: the decision keeps the task without looking.
    idle_yield: bool,
}

/// The scheduler.
pub(super) struct Standard<L: Locks> {
    state: L::Lock<StandardState<L>>,
}

/// `linux-2.4`, which several threads may call at once if the locks are real ones.
pub fn new_2_4<L: Locks>(cpus: usize, knobs: &Knobs) -> impl Scheduler + use<L> {
    let cpu =
        |_| Cpu { curr: None, mm: NIL, last_schedule: Ns::ZERO, ticks_seen: 0, idle_yield: false };
    let state = StandardState::<L> {
        penalty: knobs.get(&goodness::PROC_CHANGE_PENALTY),
        tasks: Vec::new(),
        list: List::EMPTY,
        cpus: (0..cpus).map(cpu).collect(),
    };
    Standard::<L> { state: L::Lock::new(state) }
}

impl<L: Locks> StandardState<L> {
    fn task(&self, task: TaskId) -> &Record {
        &self.tasks[task.index()]
    }

    fn cpu_ids(&self) -> impl Iterator<Item = CpuId> + use<L> {
        (0..self.cpus.len()).map(CpuId::from)
    }

    fn create(&mut self, cx: &Cx<'_>, task: TaskId, parent: Option<TaskId>) {
        while self.tasks.len() <= task.index() {
            self.tasks.push(L::Slot::default());
        }
        let known =
            parent.filter(|parent| self.tasks.get(parent.index()).is_some_and(|p| p.alive.flag()));
        self.charge_all(cx);
        self.task(task).born(cx, task, known.map(|parent| (parent, self.task(parent))));
        if let Some(parent) = known
            && self.task(parent).counter.get() == 0
            && let Some(cpu) =
                self.cpu_ids().find(|cpu| self.cpus[cpu.index()].curr == Some(parent))
        {
            cx.push(Cmd::Resched(cpu));
        }
    }

    /// Charges tick edges to the running task; true when its slice is used up.
    fn charge(&mut self, cx: &Cx<'_>, cpu: CpuId) -> bool {
        let at = &mut self.cpus[cpu.index()];
        charge_ticks(cx, cpu, &mut at.ticks_seen, at.curr.map(|task| &*self.tasks[task.index()]))
    }

    /// Before counters of tasks that run elsewhere are read or changed: the driver leaves out
    /// ticks.
    fn charge_all(&mut self, cx: &Cx<'_>) {
        for cpu in self.cpu_ids() {
            self.charge(cx, cpu);
        }
    }

    fn enlist(&mut self, task: TaskId, front: bool) {
        let (tasks, list) = (&self.tasks, &mut self.list);
        let links = |id: i64| &tasks[id as usize].links;
        if front {
            list.push_front(links, task)
        } else {
            list.push_back(links, task)
        }
        tasks[task.index()].listed.set(1);
    }

    fn delist(&mut self, task: TaskId) {
        if self.task(task).listed.flag() {
            let tasks = &self.tasks;
            self.list.remove(|id| &tasks[id as usize].links, task);
            tasks[task.index()].listed.set(0);
        }
    }

    /// The best task for `cpu` and its goodness.
    fn best(&self, cx: &Cx<'_>, cpu: CpuId, mm: i64) -> (Option<TaskId>, i64) {
        let mut best = (None, NOTHING);
        let mut id = self.list.head;
        while id != NIL {
            let task = TaskId(id as u32);
            let record = self.task(task);
            cx.touch(task, false);
            let mine = self.cpus[cpu.index()].curr == Some(task);
            if (mine || !record.running.flag()) && record.runs_on(cx, task, cpu) {
                let goodness = record.goodness(cpu, mm, self.penalty);
                if goodness > best.1 {
                    best = (Some(task), goodness);
                }
            }
            id = record.links.next.get();
        }
        cx.did(Work::Scan, self.list.len as u32);
        best
    }

    fn schedule(&mut self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        cx.did(Work::Lock, 1);
        self.charge_all(cx);
        let idle_yield = std::mem::take(&mut self.cpus[cpu.index()].idle_yield);
        if let Some(task) = prev {
            if idle_yield && why == Prev::Runnable {
                return Pick::run(task);
            }
            self.put_prev(cx, task, why);
        }
        let mm = self.cpus[cpu.index()].mm;
        let next = loop {
            let (best, goodness) = self.best(cx, cpu, mm);
            if goodness != 0 {
                break best;
            }
            if !goodness::recharge_all(cx, self.tasks.iter().map(|task| &**task)) {
                break best;
            }
        };
        if let Some(task) = next {
            let record = self.task(task);
            record.running.set(1);
            record.processor.set(i64::from(cpu.0));
            cx.touch(task, true);
        }
        let at = &mut self.cpus[cpu.index()];
        at.curr = next;
        if next != prev {
            at.last_schedule = cx.now;
        } else if let Some(task) = next {
            self.tasks[task.index()].yields.set(0);
        }
        if let Some(task) = next {
            self.cpus[cpu.index()].mm = self.tasks[task.index()].mm.get();
        }
        Pick { task: next, ..Pick::IDLE }
    }

    fn put_prev(&mut self, cx: &Cx<'_>, task: TaskId, why: Prev) {
        let record = self.task(task);
        if record.rr.flag() && record.counter.get() == 0 {
            record.counter.set(record.slice.get());
            if record.listed.flag() {
                self.delist(task);
                self.enlist(task, false);
            }
        }
        match why {
            Prev::Blocked | Prev::Exited | Prev::Migrating => self.delist(task),
            Prev::Runnable | Prev::Idle => {}
        }
        if why == Prev::Exited {
            self.exit(cx, task);
        }
        cx.touch(task, true);
    }

    /// What is left of a slice that was shared at the fork goes back to the parent.
    fn exit(&mut self, cx: &Cx<'_>, task: TaskId) {
        let record = self.task(task);
        record.alive.set(0);
        let parent = record.parent.get();
        if parent != NIL
            && let Some(parent) = self.tasks.get(parent as usize).filter(|p| p.alive.flag())
        {
            // MAX_COUNTER: 200 ms.
            let most = i64::from(cx.world.hz) / 5;
            parent.counter.set((parent.counter.get() + record.counter.get()).min(most));
        }
    }

    /// After the switch away from `prev`: a preempted task looks for another CPU at once.
    fn saved(&mut self, cx: &Cx<'_>, prev: TaskId) {
        self.charge_all(cx);
        let record = self.task(prev);
        let yielded = record.yields.flag();
        record.yields.set(0);
        record.running.set(0);
        if record.listed.flag() && !yielded {
            cx.did(Work::Lock, 1);
            self.reschedule_idle(cx, prev);
        }
    }

    fn wake(&mut self, cx: &Cx<'_>, task: TaskId, wake: Wake) {
        cx.did(Work::Lock, 1);
        if self.task(task).listed.flag() {
            return;
        }
        self.charge_all(cx);
        self.enlist(task, true);
        cx.touch(task, true);
        if !(wake.sync && self.task(task).runs_on(cx, task, cx.cpu)) {
            self.reschedule_idle(cx, task);
        }
    }

    /// Finds a CPU that should decide again because of `task`.
    fn reschedule_idle(&mut self, cx: &Cx<'_>, task: TaskId) {
        let record = self.task(task);
        let last = CpuId(record.processor.get() as u32);
        if record.runs_on(cx, task, last) && self.cpus[last.index()].curr.is_none() {
            return cx.push(Cmd::Resched(last));
        }
        let mut idle: Option<(Ns, CpuId)> = None;
        let mut worst: (i64, Option<CpuId>) = (0, None);
        for cpu in self.cpu_ids().filter(|cpu| record.runs_on(cx, task, *cpu)) {
            let at = &self.cpus[cpu.index()];
            cx.did(Work::RemoteLine, 1);
            match at.curr {
                None if idle.is_none_or(|(oldest, _)| at.last_schedule < oldest) => {
                    idle = Some((at.last_schedule, cpu));
                }
                Some(curr) if idle.is_none() => {
                    let gain = record.goodness(cpu, at.mm, self.penalty)
                        - self.task(curr).goodness(cpu, at.mm, self.penalty);
                    if gain > worst.0 {
                        worst = (gain, Some(cpu));
                    }
                }
                _ => {}
            }
        }
        if let Some(cpu) = idle.map(|(_, cpu)| cpu).or(worst.1) {
            cx.push(Cmd::Resched(cpu));
        }
    }

    fn yielded(&mut self, cx: &Cx<'_>, task: TaskId) {
        let busy = self.cpus.iter().filter(|cpu| cpu.curr.is_some()).count();
        if self.list.len <= busy {
            let on = self.task(task).processor.get() as usize;
            self.cpus[on].idle_yield = true;
            return;
        }
        cx.did(Work::Lock, 1);
        let record = self.task(task);
        if !record.rt.flag() {
            record.yields.set(1);
        }
        self.delist(task);
        self.enlist(task, false);
    }
}

impl<L: Locks> Scheduler for Standard<L> {
    fn needs(&self) -> Needs {
        Needs {
            wakeups: true,
            ticks: true,
            saved: true,
            one_lock: true,
            own_marks: true,
            ..Needs::default()
        }
    }

    fn stands_in(&self, policy: Policy) -> Option<&'static str> {
        super::stands_in(policy, false)
    }

    fn init(&self, cx: &Cx<'_>) {
        let mut state = self.state.lock();
        state.tasks.reserve(cx.world.tasks.len());
        for (index, view) in cx.world.tasks.iter().enumerate() {
            if view.alive {
                state.create(cx, index.into(), None);
            }
        }
    }

    fn wake(&self, cx: &Cx<'_>, task: TaskId, wake: Wake) {
        self.state.lock().wake(cx, task, wake);
    }

    fn leave(&self, _cx: &Cx<'_>, task: TaskId) {
        self.state.lock().delist(task);
    }

    fn yielded(&self, cx: &Cx<'_>, task: TaskId) {
        self.state.lock().yielded(cx, task);
    }

    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        self.state.lock().schedule(cx, cpu, prev, why)
    }

    fn saved(&self, cx: &Cx<'_>, _cpu: CpuId, prev: TaskId) {
        self.state.lock().saved(cx, prev);
    }

    fn tick(&self, cx: &Cx<'_>, cpu: CpuId) {
        let mut state = self.state.lock();
        if state.charge(cx, cpu) {
            cx.push(Cmd::Resched(cpu));
        }
    }

    fn tick_due(&self, cx: &Cx<'_>, cpu: CpuId) -> u64 {
        let state = self.state.lock();
        let at = &state.cpus[cpu.index()];
        let Some(task) = at.curr else { return u64::MAX };
        // Edges that are not charged yet are behind us.
        let uncharged = cx.ticks(cpu).saturating_sub(at.ticks_seen);
        (state.task(task).counter.get() as u64).saturating_sub(uncharged).max(1)
    }

    fn changed(&self, cx: &Cx<'_>, change: Change) {
        let mut state = self.state.lock();
        match change {
            Change::Created { task, parent } => state.create(cx, task, parent),
            Change::Attributes(task) => {
                state.charge_all(cx);
                state.task(task).describe(cx, task);
                if state.task(task).listed.flag() {
                    state.delist(task);
                    state.enlist(task, true);
                }
                cx.push(Cmd::Resched(cx.cpu));
            }
            Change::Regrouped { task, .. } => state.task(task).allow(cx, task),
            Change::Affinity(task) => {
                state.charge_all(cx);
                state.task(task).allow(cx, task);
                let on = CpuId(state.task(task).processor.get() as u32);
                let runs = state.cpus[on.index()].curr == Some(task);
                if runs && !state.task(task).runs_on(cx, task, on) {
                    cx.push(Cmd::Displace(task));
                } else if state.task(task).listed.flag() && !runs {
                    state.reschedule_idle(cx, task);
                }
            }
            _ => {}
        }
    }

    fn resync(&self, cx: &Cx<'_>) {
        let mut state = self.state.lock();
        state.list = List::EMPTY;
        for cpu in state.cpu_ids() {
            let current = cx.cpu(cpu).current();
            let at = &mut state.cpus[cpu.index()];
            (at.curr, at.ticks_seen) = (current, cx.ticks(cpu));
        }
        for (index, view) in cx.world.tasks.iter().enumerate().filter(|(_, view)| view.alive) {
            let task = TaskId::from(index);
            if state.tasks.get(index).is_none_or(|record| !record.alive.flag()) {
                state.create(cx, task, None);
            }
            state.task(task).allow(cx, task);
            state.task(task).listed.set(0);
            state.task(task).running.set(i64::from(view.on_cpu().is_some()));
            if view.runnable() != crate::Runnable::No {
                state.enlist(task, false);
                cx.push(Cmd::Resched(view.last_cpu()));
            }
        }
    }

    fn explain(&self, _cx: &Cx<'_>, cpu: CpuId) -> String {
        let state = self.state.lock();
        format!(
            "linux-2.4 {cpu}: curr {:?}, {} on the list",
            state.cpus[cpu.index()].curr,
            state.list.len
        )
    }
}
