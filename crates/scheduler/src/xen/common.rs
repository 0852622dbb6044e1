//! What Xen's schedulers share: the state of a unit that Xen's core keeps, CPU-set walks, affinity
//! steps.

use super::release::XenRelease;
use crate::{Cx, FlagKnob, KnobDefault, Prev, Runnable, TaskView, TimeKnob, Times, Wake, WakeKind};
use schedlab_model::{CpuId, CpuSet, Ns, TaskId, Topology};
use std::ops::{Index, IndexMut};

/// The rate limit of Credit and Credit2. Credit's is bounded by its slice.
pub(super) const RATELIMIT: TimeKnob<XenRelease> = TimeKnob {
    name: "ratelimit",
    allowed: Times::steps_or_off(Ns::from_us(1), Ns::from_us(100), Ns::from_ms(500)),
    default: KnobDefault::Is(Ns::from_ms(1)),
    doc: "shortest run before preemption, 0 = off (xl -s -r, boot sched_ratelimit_us)",
    source: "xen/common/sched/core.c, sched_ratelimit_us, 4.4 to 4.22",
};

/// Packing instead of spreading, for both schedulers.
pub(super) const SMT_POWER_SAVINGS: FlagKnob<XenRelease> = FlagKnob {
    name: "sched_smt_power_savings",
    default: KnobDefault::Is(false),
    doc: "pack onto busy cores instead of spreading over idle ones (boot sched_smt_power_savings)",
    source: "xen/common/sched/core.c, sched_smt_power_savings",
};

/// The units of a scheduler, by task.
#[derive(Debug)]
pub(super) struct Table<U>(Vec<Option<U>>);

impl<U> Table<U> {
    pub(super) const fn new() -> Table<U> {
        Table(Vec::new())
    }

    pub(super) fn has(&self, task: TaskId) -> bool {
        self.0.get(task.index()).is_some_and(Option::is_some)
    }

    pub(super) fn add(&mut self, task: TaskId, unit: U) {
        if self.0.len() <= task.index() {
            self.0.resize_with(task.index() + 1, || None);
        }
        self.0[task.index()] = Some(unit);
    }
}

impl<U> Index<TaskId> for Table<U> {
    type Output = U;

    #[inline]
    fn index(&self, task: TaskId) -> &U {
        self.0[task.index()].as_ref().expect("a unit that was created")
    }
}

impl<U> IndexMut<TaskId> for Table<U> {
    #[inline]
    fn index_mut(&mut self, task: TaskId) -> &mut U {
        self.0[task.index()].as_mut().expect("a unit that was created")
    }
}

/// Takes who runs on each pCPU from the driver.
pub(super) fn read_current(cx: &Cx<'_>, curr: &mut [Option<TaskId>]) {
    for (curr, cpu) in curr.iter_mut().zip(&cx.world.cpus) {
        *curr = cpu.current();
    }
}

/// What Xen's core does around each scheduler.
pub(super) trait Units {
    /// Makes and places the unit of a task, unless there is one.
    fn create(&mut self, cx: &Cx<'_>, task: TaskId);
    /// Whether the unit exists.
    fn has(&self, task: TaskId) -> bool;
    /// The core's part of a unit that exists.
    fn core_mut(&mut self, task: TaskId) -> &mut Core;
    /// No reason holds the unit back.
    fn is_runnable(&self, task: TaskId) -> bool;
    /// The scheduler's own wake, of a runnable unit.
    fn insert_woken(&mut self, cx: &Cx<'_>, task: TaskId);
    /// The scheduler's own sleep.
    fn take_asleep(&mut self, cx: &Cx<'_>, task: TaskId);

    /// Every task that exists at the start.
    fn create_all(&mut self, cx: &Cx<'_>) {
        for (index, _) in cx.world.tasks.iter().enumerate().filter(|(_, view)| view.alive) {
            self.create(cx, index.into());
        }
    }

    /// Takes who is awake from the driver, and queues anew who can run.
    fn wake_all(&mut self, cx: &Cx<'_>) {
        for (index, view) in cx.world.tasks.iter().enumerate().filter(|(_, view)| view.alive) {
            let task = TaskId::from(index);
            self.core_mut(task).awake = view.runnable() != Runnable::No;
            if self.is_runnable(task) {
                self.insert_woken(cx, task);
            }
        }
    }

    /// An event, or the end of a migration, makes the unit runnable.
    fn woken(&mut self, cx: &Cx<'_>, task: TaskId, wake: Wake) {
        self.create(cx, task);
        let core = self.core_mut(task);
        core.awake = true;
        if wake.kind == WakeKind::Migrated {
            core.migrating = false;
        }
        if self.is_runnable(task) {
            self.insert_woken(cx, task);
        }
    }

    /// A unit that does not run stops being runnable.
    fn left(&mut self, cx: &Cx<'_>, task: TaskId) {
        if self.has(task) {
            self.core_mut(task).awake = false;
            self.take_asleep(cx, task);
        }
    }
}

/// The smallest member of `set` above `cpu`, else the smallest member.
#[inline]
pub(super) fn cycle(cpu: CpuId, set: &CpuSet) -> Option<CpuId> {
    set.next_from(cpu.0 + 1)
}

/// `cpu` when it is a member, else [`cycle`].
pub(super) fn test_or_cycle(cpu: CpuId, set: &CpuSet) -> Option<CpuId> {
    if set.contains(cpu) { Some(cpu) } else { cycle(cpu, set) }
}

/// `a` without the members of `b`.
#[inline]
pub(super) fn minus(a: &CpuSet, b: &CpuSet) -> CpuSet {
    a.without(b)
}

/// Whether every member of `a` is in `b`.
pub(super) fn subset(a: &CpuSet, b: &CpuSet) -> bool {
    a.and(b) == *a
}

/// What Xen's core knows of a unit, whichever scheduler is below it.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct Core {
    /// Last switch-in, or context-saved, in ns.
    pub(super) entry: i64,
    /// Where it is assigned.
    pub(super) cpu: CpuId,
    /// Not blocked.
    pub(super) awake: bool,
    /// From the moment it is chosen until its context is saved.
    pub(super) running: bool,
    /// It leaves its pCPU and is placed anew once its context is saved.
    pub(super) migrating: bool,
    /// The soft step is worth taking.
    useful: bool,
    /// It may run on one pCPU only.
    pinned: bool,
    /// Hard affinity.
    pub(super) hard: CpuSet,
    /// Soft affinity.
    pub(super) soft: CpuSet,
}

impl Core {
    pub(super) fn new(view: &TaskView, pool: &CpuSet) -> Core {
        let cpu = view.affinity.and(pool).lowest().unwrap_or(CpuId(0));
        let mut core = Core {
            entry: 0,
            cpu,
            awake: false,
            running: false,
            migrating: false,
            useful: false,
            pinned: false,
            hard: CpuSet::EMPTY,
            soft: CpuSet::EMPTY,
        };
        core.read_affinity(view, pool);
        core
    }

    /// Takes both affinities from the view.
    pub(super) fn read_affinity(&mut self, view: &TaskView, pool: &CpuSet) {
        let (hard, soft) = (view.affinity.and(pool), view.soft_affinity);
        let useful = !soft.and(&hard).is_empty() && !subset(&hard, &soft) && !subset(pool, &soft);
        (self.hard, self.soft, self.useful, self.pinned) = (hard, soft, useful, hard.count() == 1);
    }

    /// Whether the soft step is worth taking.
    #[inline]
    pub(super) fn soft_useful(&self) -> bool {
        self.useful
    }

    /// The masks to try in turn: the soft one where it is useful, then the hard one.
    #[inline]
    pub(super) fn steps(&self) -> impl Iterator<Item = (Step, CpuSet)> + use<> {
        let soft = self.soft_useful().then(|| (Step::Soft, self.soft.and(&self.hard)));
        soft.into_iter().chain([(Step::Hard, self.hard)])
    }

    /// Neither blocked nor on its way to another pCPU.
    #[inline]
    pub(super) fn runnable(&self) -> bool {
        self.awake && !self.migrating
    }

    /// What became of the unit that ran until this decision.
    pub(super) fn stopped(&mut self, why: Prev) {
        match why {
            Prev::Blocked | Prev::Exited => self.awake = false,
            Prev::Migrating => self.migrating = true,
            Prev::Runnable | Prev::Idle => {}
        }
    }

    #[inline]
    pub(super) fn pinned(&self) -> bool {
        self.pinned
    }
}

/// Which affinity is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Soft,
    Hard,
}

/// Per pCPU: SMT siblings, socket, NUMA node, and the CPUs with which it may share a Credit2 run
/// queue.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) siblings: Vec<CpuSet>,
    pub(super) sockets: Vec<CpuSet>,
    pub(super) socket: Vec<u32>,
    pub(super) node: Vec<u32>,
    pub(super) nodes: u32,
    /// The pCPUs of each node.
    pub(super) of_node: Vec<CpuSet>,
    /// One socket, and cores of one thread each: no pCPU has better neighbours than another.
    pub(super) flat: bool,
}

impl Places {
    pub(super) fn from_topology(topology: &Topology) -> Places {
        let each = || (0..topology.cpus()).map(CpuId::from);
        let node: Vec<u32> = topology.places().iter().map(|place| place.node).collect();
        let siblings: Vec<CpuSet> =
            each().map(|cpu| topology.sharing(cpu, |place| place.core)).collect();
        let nodes = node.iter().max().map_or(1, |max| max + 1);
        let members = |of: u32| each().filter(|cpu| node[cpu.index()] == of).collect();
        Places {
            of_node: (0..nodes).map(members).collect(),
            flat: siblings.iter().all(|core| core.count() == 1)
                && topology
                    .places()
                    .iter()
                    .all(|place| place.socket == topology.places()[0].socket),
            siblings,
            sockets: each().map(|cpu| topology.sharing(cpu, |place| place.socket)).collect(),
            socket: topology.places().iter().map(|place| place.socket).collect(),
            nodes,
            node,
        }
    }
}

/// `⌈a / b⌉`.
pub(super) fn div_ceil(a: i64, b: i64) -> i64 {
    (a + b - 1) / b
}

/// Nanoseconds since the start, signed as Xen's `s_time_t`.
pub(super) fn now(cx: &Cx<'_>) -> i64 {
    cx.now.0 as i64
}

/// Removes `task` from a list and says whether it was there.
pub(super) fn take(list: &mut Vec<TaskId>, task: TaskId) -> bool {
    let at = list.iter().position(|member| *member == task);
    at.map(|at| list.remove(at)).is_some()
}
