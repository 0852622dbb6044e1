//! Credit2's units, domains and run queues.

use super::super::common::{Core, Places, Table, Units, cycle, now, take};
use super::super::release::XenRelease;
use super::{Arrangement, INIT, MIN};
use crate::{Cmd, Cx};
use schedlab_model::{CpuId, CpuSet, GroupId, TaskId, Topology};

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) release: XenRelease,
    pub(super) ratelimit: i64,
    pub(super) resist: i64,
    pub(super) runqueue: Arrangement,
    pub(super) max_cpus: usize,
    pub(super) cap_period: i64,
    pub(super) precision: u32,
    pub(super) window: u32,
    pub(super) under: i64,
    pub(super) over: i64,
    pub(super) pack: bool,
}

/// A vCPU. What a decision touches comes first.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Unit {
    pub(super) credit: i64,
    pub(super) start: i64,
    pub(super) weight: i64,
    pub(super) residual: i64,
    pub(super) rq: usize,
    pub(super) avgload: i64,
    pub(super) load_last: i64,
    pub(super) domain: GroupId,
    pub(super) queued: bool,
    pub(super) scheduled: bool,
    pub(super) delayed_add: bool,
    pub(super) yielded: bool,
    // Second line.
    pub(super) tickled_cpu: Option<CpuId>,
    pub(super) parked: bool,
    /// It is being switched out and moves when its context is saved.
    pub(super) leaving: bool,
    pub(super) budget: i64,
    pub(super) core: Core,
    pub(super) quota: i64,
    /// The run queue that a balance asked for.
    pub(super) target: Option<usize>,
}

impl Unit {
    pub(super) fn runnable(&self) -> bool {
        self.core.runnable() && !self.parked
    }
}

#[derive(Clone, Debug)]
pub(super) struct Domain {
    pub(super) weight: i64,
    pub(super) cap: i64,
    pub(super) pool: i64,
    pub(super) total: i64,
    pub(super) next_repl: i64,
    pub(super) parked: Vec<TaskId>,
    pub(super) units: Vec<TaskId>,
}

#[derive(Clone, Debug)]
pub(super) struct Queue {
    /// Queued units, most credit first.
    pub(super) list: Vec<TaskId>,
    /// Every unit assigned here: queued, running, sleeping.
    pub(super) units: Vec<TaskId>,
    pub(super) active: CpuSet,
    /// The words of CPU sets in which `active` has members.
    pub(super) words: std::ops::Range<usize>,
    pub(super) idle: CpuSet,
    pub(super) tickled: CpuSet,
    pub(super) smt_idle: CpuSet,
    pub(super) pick_bias: CpuId,
    pub(super) max_weight: i64,
    pub(super) load: i64,
    pub(super) avgload: i64,
    pub(super) b_avgload: i64,
    pub(super) load_last: i64,
}

pub(in crate::xen) struct Credit2 {
    pub(super) settings: Settings,
    pub(super) pool: CpuSet,
    pub(super) units: Table<Unit>,
    pub(super) domains: Vec<Domain>,
    pub(super) queues: Vec<Queue>,
    pub(super) queue_of: Vec<usize>,
    pub(super) curr: Vec<Option<TaskId>>,
    pub(super) siblings: Vec<CpuSet>,
    /// pCPUs without siblings.
    pub(super) alone: Vec<bool>,
}

impl Credit2 {
    pub(super) fn with(settings: Settings, cpus: usize) -> Credit2 {
        Credit2 {
            settings,
            pool: CpuSet::first(cpus),
            units: Table::new(),
            domains: Vec::new(),
            queues: Vec::new(),
            queue_of: vec![0; cpus],
            curr: vec![None; cpus],
            siblings: Vec::new(),
            alone: Vec::new(),
        }
    }

    pub(super) fn unit(&self, task: TaskId) -> &Unit {
        &self.units[task]
    }

    pub(super) fn unit_mut(&mut self, task: TaskId) -> &mut Unit {
        &mut self.units[task]
    }

    /// Puts the pCPUs into run queues, in CPU order.
    pub(super) fn arrange(&mut self, places: &Places, topology: &Topology) {
        self.siblings = places.siblings.clone();
        self.alone = self.siblings.iter().map(|core| core.count() == 1).collect();
        let cpus = topology.cpus();
        let per_queue = cpus / cpus.div_ceil(self.settings.max_cpus);
        for cpu in (0..cpus).map(CpuId::from) {
            let at = self.queue_for(cpu, topology, per_queue).unwrap_or_else(|| {
                self.queues.push(Queue::new(cpu));
                self.queues.len() - 1
            });
            let queue = &mut self.queues[at];
            queue.active.insert(cpu);
            // In the order of their numbers.
            queue.words.end = cpu.index() / 64 + 1;
            queue.idle.insert(cpu);
            queue.smt_idle.insert(cpu);
            self.queue_of[cpu.index()] = at;
        }
    }

    /// An existing run queue that `cpu` may join.
    fn queue_for(&self, cpu: CpuId, topology: &Topology, per_queue: usize) -> Option<usize> {
        let arrangement = self.settings.runqueue;
        let place = &topology.places()[cpu.index()];
        let fits = |queue: &Queue| {
            let first = &topology.places()[queue.active.lowest().expect("never empty").index()];
            match arrangement {
                Arrangement::All => true,
                Arrangement::Cpu => false,
                Arrangement::Core => first.core == place.core,
                Arrangement::Node => first.node == place.node,
                Arrangement::Socket => first.socket == place.socket,
            }
        };
        let siblings = &self.siblings[cpu.index()];
        let indices = || (0..self.queues.len()).filter(|at| fits(&self.queues[*at]));
        if let Some(at) = indices().find(|at| !self.queues[*at].active.and(siblings).is_empty()) {
            return Some(at);
        }
        let roomy = |at: &usize| {
            let members = self.queues[*at].active.count();
            let whole_core = members + siblings.count() <= per_queue;
            members < per_queue
                && (whole_core || matches!(arrangement, Arrangement::Core | Arrangement::All))
        };
        indices().filter(roomy).min_by_key(|at| self.queues[*at].active.count())
    }

    pub(super) fn assign(&mut self, task: TaskId, rq: usize) {
        let unit = self.unit_mut(task);
        unit.rq = rq;
        let (weight, load) = (unit.weight, unit.avgload);
        let queue = &mut self.queues[rq];
        queue.units.push(task);
        queue.max_weight = queue.max_weight.max(weight);
        queue.b_avgload += load;
    }

    pub(super) fn unassign(&mut self, task: TaskId) {
        let unit = self.unit_mut(task);
        let (rq, load) = (std::mem::replace(&mut unit.rq, usize::MAX), unit.avgload);
        let queue = &mut self.queues[rq];
        take(&mut queue.units, task);
        queue.b_avgload = (queue.b_avgload - load).max(0);
        self.refresh_max_weight(rq);
    }

    fn refresh_max_weight(&mut self, rq: usize) {
        let heaviest = self.queues[rq].units.iter().map(|task| self.unit(*task).weight).max();
        self.queues[rq].max_weight = heaviest.unwrap_or(1);
    }

    /// Applies weights and caps, domain by domain.
    pub(super) fn read_domains(&mut self, cx: &Cx<'_>) {
        (0..cx.world.groups.len()).for_each(|index| self.read_domain(cx, index));
    }

    /// Applies weight and cap of one domain.
    pub(super) fn read_domain(&mut self, cx: &Cx<'_>, index: usize) {
        while self.domains.len() <= index {
            self.domains.push(Domain::new());
        }
        let view = &cx.world.groups[index];
        let weight = i64::from(view.weight.unwrap_or(256)).clamp(1, 65_535);
        // Units begin with the weight of their domain.
        if self.domains[index].weight != weight {
            self.domains[index].weight = weight;
            for task in self.domains[index].units.clone() {
                self.unit_mut(task).weight = weight;
                let rq = self.unit(task).rq;
                self.refresh_max_weight(rq);
            }
        }
        let cap = i64::from(view.cap_percent).min(100 * self.domains[index].units.len() as i64);
        if cap != 0 || self.domains[index].cap != 0 {
            self.set_cap(cx, index, cap);
        }
    }

    /// Puts a unit that does not run on `cpu`, moving it to that run queue.
    pub(super) fn settle(&mut self, cx: &Cx<'_>, task: TaskId, cpu: CpuId) {
        let to = self.queue_of[cpu.index()];
        if to != self.unit(task).rq {
            self.migrate(cx, task, to);
        } else {
            self.unit_mut(task).core.cpu = cpu;
            cx.push(Cmd::Moved(task, cpu));
        }
    }

    /// Moves a unit that does not run to another run queue.
    pub(super) fn migrate(&mut self, cx: &Cx<'_>, task: TaskId, to: usize) {
        let from = self.unit(task).rq;
        let queued = self.unit(task).queued;
        if queued {
            self.dequeue(task);
            self.load_change(cx, from, Some(task), -1);
        }
        self.unassign(task);
        let hard = self.unit(task).core.hard.and(&self.queues[to].active);
        let cpu = cycle(self.queues[to].pick_bias, &hard).expect("allowed there");
        self.queues[to].pick_bias = cpu;
        self.unit_mut(task).core.cpu = cpu;
        cx.push(Cmd::Moved(task, cpu));
        self.assign(task, to);
        if queued {
            self.load_change(cx, to, Some(task), 1);
            self.enqueue(cx, task);
            self.tickle(cx, task);
        }
    }
}

impl Units for Credit2 {
    /// Makes the unit of a task on the run queue with the least load; it stays blocked.
    fn create(&mut self, cx: &Cx<'_>, task: TaskId) {
        if self.has(task) {
            return;
        }
        let view = cx.task(task);
        while self.domains.len() <= view.group.index() {
            self.domains.push(Domain::new());
        }
        let domain = &mut self.domains[view.group.index()];
        domain.units.push(task);
        let core = Core::new(view, &self.pool);
        let unit = Unit {
            rq: usize::MAX,
            weight: domain.weight,
            domain: view.group,
            credit: INIT,
            residual: 0,
            start: 0,
            queued: false,
            scheduled: false,
            delayed_add: false,
            yielded: false,
            parked: false,
            // A unit that joins a capped domain has to ask for its first quota.
            budget: if domain.cap == 0 { i64::MAX } else { 0 },
            quota: 0,
            tickled_cpu: None,
            leaving: false,
            target: None,
            avgload: 1 << (self.settings.precision - 1),
            load_last: now(cx) >> 10,
            core,
        };
        self.units.add(task, unit);
        let cpu = self.place(task);
        let unit = self.unit_mut(task);
        unit.core.cpu = cpu;
        cx.push(Cmd::Moved(task, cpu));
        self.assign(task, self.queue_of[cpu.index()]);
    }

    fn has(&self, task: TaskId) -> bool {
        self.units.has(task)
    }

    fn core_mut(&mut self, task: TaskId) -> &mut Core {
        &mut self.unit_mut(task).core
    }

    fn is_runnable(&self, task: TaskId) -> bool {
        self.unit(task).runnable()
    }

    fn insert_woken(&mut self, cx: &Cx<'_>, task: TaskId) {
        self.wake(cx, task);
    }

    fn take_asleep(&mut self, cx: &Cx<'_>, task: TaskId) {
        self.sleep(cx, task);
    }
}

impl Queue {
    fn new(first: CpuId) -> Queue {
        Queue {
            list: Vec::new(),
            units: Vec::new(),
            active: CpuSet::EMPTY,
            words: first.index() / 64..first.index() / 64 + 1,
            idle: CpuSet::EMPTY,
            tickled: CpuSet::EMPTY,
            smt_idle: CpuSet::EMPTY,
            pick_bias: first,
            max_weight: 1,
            load: 0,
            avgload: 0,
            b_avgload: 0,
            load_last: 0,
        }
    }
}

impl Domain {
    fn new() -> Domain {
        Domain {
            weight: 256,
            cap: 0,
            pool: 0,
            total: 0,
            next_repl: 0,
            parked: Vec::new(),
            units: Vec::new(),
        }
    }
}

/// The credit that represents the idle unit: below every other.
pub(super) const IDLE_CREDIT: i64 = MIN - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Knobs;

    /// The run queues of a machine, as CPU lists.
    fn queues(topology: &Topology, spec: &str) -> Vec<String> {
        let spec = format!("xen-credit2:{spec}").parse().unwrap();
        let knobs = Knobs::check(&spec, &(super::super::super::CREDIT2.knobs)()).unwrap();
        let settings = super::super::settings(XenRelease::V4_20, &knobs);
        let mut state = Credit2::with(settings, topology.cpus());
        state.arrange(&Places::from_topology(topology), topology);
        state.queues.iter().map(|queue| queue.active.to_string()).collect()
    }

    /// Two sockets of four cores of two threads.
    #[test]
    fn arrangements_of_run_queues() {
        let machine = Topology::regular(2, 1, 4, 2);
        assert_eq!(queues(&machine, ""), ["0-7", "8-15"], "socket is the default");
        assert_eq!(queues(&machine, "credit2_runqueue=node"), ["0-7", "8-15"]);
        assert_eq!(queues(&machine, "credit2_runqueue=all"), ["0-15"]);
        assert_eq!(queues(&machine, "credit2_runqueue=core").len(), 8);
        assert_eq!(queues(&machine, "credit2_runqueue=cpu").len(), 16);
    }

    /// At most 16 pCPUs share a queue, evenly, and siblings stay together.
    #[test]
    fn the_limit_of_a_run_queue() {
        let machine = Topology::regular(1, 1, 20, 2);
        // 3 queues of 13 are planned; a core that would not fit whole opens another one.
        assert_eq!(queues(&machine, ""), ["0-11", "12-23", "24-35", "36-39"]);
        assert_eq!(queues(&machine, "max_cpus_runqueue=512"), ["0-39"]);
        assert_eq!(queues(&Topology::flat(6), "max_cpus_runqueue=2"), ["0-1", "2-3", "4-5"]);
    }
}
