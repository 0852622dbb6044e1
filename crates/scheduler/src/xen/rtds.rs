//! Xen's RTDS (`sched=rtds`): global earliest deadline first over deferrable servers.
//!
//! Each vCPU has a budget in each period, whose end is its deadline. While it runs the budget
//! burns; while it sleeps the budget is kept, until the period ends. A vCPU without budget waits
//! for its next period, or, with `extratime`, goes on with a full budget, one priority level lower.
//!
//! A task of policy `deadline:BUDGET/PERIOD/PERIOD` has these parameters
//! (`xl sched-rtds -v N -b BUDGET -p PERIOD`), all others have those of the knobs.
//!
//! # Example
//! Two hogs on one pCPU without extratime, 4 ms in 10 and 4 ms in 10: the first runs from 0 to 4,
//! the second from 4 to 8, then no task does until 10 (test `rtds_two_reservations_on_one_pcpu`).
//!
//! # Fidelity
//! Read in `xen/common/sched/rt.c` of RELEASE-4.20.0; what is modelled is the same in 4.12 to 4.22.
//!
//! | rule | real place | here | test |
//! |---|---|---|---|
//! | order: priority level, then deadline, then arrival | `compare_unit_priority`, `deadline_queue_insert` | modelled | `rtds_is_edf` |
//! | the running unit stays only if it is strictly better | `rt_schedule` | modelled | `rtds_two_reservations_on_one_pcpu` |
//! | budget burns to the nanosecond; a slice is what is left of it | `burn_budget`, `rt_schedule` | modelled | `rtds_gives_each_unit_its_budget_in_each_period` |
//! | without extratime: depleted until the deadline | `burn_budget`, `runq_insert` | modelled; the driver is told (throttled) | the same |
//! | extratime: a full budget and a level lower; level 0 with the next period | `burn_budget`, `rt_update_deadline` | modelled | `rtds_extratime_leaves_no_pcpu_idle` |
//! | replenishment at the deadline by one timer; deadlines are whole periods from the start of the host | `repl_timer_handler`, `rt_update_deadline` | modelled | the same |
//! | a replenished unit preempts if it was depleted, or if the unit that runs was replenished too. **A waiting unit with extratime does not**: it waits for the end of the running slice | `repl_timer_handler` | modelled | `rtds_extratime_does_not_preempt_at_its_replenishment` |
//! | wakeup: own pCPU first, then the next ones in a circle; an idle one, else the one with the worst unit | `runq_tickle` | modelled | `rtds_is_edf` |
//! | a unit that is being switched out is queued when its context is saved | `rt_context_saved` | modelled | property tests |
//! | no admission test, no rate limit, no soft affinity, yield does nothing | | as there | |
//! | one global lock | `rt_private.lock` | the same | |

use super::common::{Core, Table, Units, cycle, minus, now, read_current, take, test_or_cycle};
use super::one_lock::{OneLock, XenRules};
use crate::registry::{Entry, Family, XenScheduler};
use crate::{
    CellLocks, Change, Cmd, Cx, FlagKnob, KnobDefault, Knobs, Needs, Pick, Prev, Runnable,
    TimeKnob, Timer, Times, rows,
};
use schedlab_model::{CpuId, CpuSet, Ns, Policy, TaskId};

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    name: "xen-rtds",
    summary: "Xen's RTDS (4.12 to 4.22): a budget in each period for each vCPU, global EDF",
    family: Family::Xen(XenScheduler::Rtds),
    proposed_live: false,
    knobs: || rows(&[&PERIOD, &BUDGET, &EXTRATIME], &()),
    build: |cpus, knobs| Box::new(OneLock::<CellLocks, _>::new(Rtds::new(cpus, knobs))),
};

/// `RTDS_MIN_PERIOD` and `RTDS_MIN_BUDGET`.
const LEAST: Ns = Ns::from_us(10);
const PERIOD: TimeKnob = TimeKnob {
    name: "period",
    allowed: Times::steps(Ns::from_us(1), LEAST, Ns::from_s(100)),
    default: KnobDefault::Is(Ns::from_ms(10)),
    doc: "period of vCPUs that have no policy `deadline` (xl sched-rtds -p)",
    source: "xen/common/sched/rt.c, RTDS_DEFAULT_PERIOD",
};
const BUDGET: TimeKnob = TimeKnob {
    name: "budget",
    allowed: Times::steps(Ns::from_us(1), LEAST, Ns::from_s(100)).at_most(&PERIOD),
    default: KnobDefault::Is(Ns::from_ms(4)),
    doc: "CPU time of such a vCPU in each period, at most `period` (xl sched-rtds -b)",
    source: "xen/common/sched/rt.c, RTDS_DEFAULT_BUDGET",
};
const EXTRATIME: FlagKnob = FlagKnob {
    name: "extratime",
    default: KnobDefault::Is(true),
    doc: "a vCPU without budget may use time that is not reserved (xl sched-rtds -e)",
    source: "xen/common/sched/rt.c, RTDS_extratime, 4.10",
};

const REPLENISH: Timer = Timer::Global(0);

/// In which queue a unit is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Queue {
    None,
    Run,
    Depleted,
}

#[derive(Clone, Debug)]
struct Unit {
    core: Core,
    period: i64,
    budget: i64,
    /// Budget left.
    left: i64,
    /// Up to here it is charged.
    start: i64,
    deadline: i64,
    /// How often it used up its budget in this period.
    level: u32,
    queue: Queue,
    /// From its choice until its context is saved.
    scheduled: bool,
    /// It is queued when its context is saved.
    delayed_add: bool,
    depleted: bool,
}

impl Unit {
    /// Smaller is better.
    fn urgency(&self) -> (u32, i64) {
        (self.level, self.deadline)
    }
}

/// See the module.
struct Rtds {
    period: i64,
    budget: i64,
    extratime: bool,
    pool: CpuSet,
    units: Table<Unit>,
    curr: Vec<Option<TaskId>>,
    /// Units with budget, the best first.
    runq: Vec<TaskId>,
    /// Units to replenish, the nearest deadline first.
    replq: Vec<TaskId>,
    tickled: CpuSet,
}

impl Rtds {
    fn new(cpus: usize, knobs: &Knobs) -> Self {
        Rtds {
            period: knobs.get(&PERIOD).0 as i64,
            budget: knobs.get(&BUDGET).0 as i64,
            extratime: knobs.get(&EXTRATIME),
            pool: CpuSet::first(cpus),
            units: Table::new(),
            curr: vec![None; cpus],
            runq: Vec::new(),
            replq: Vec::new(),
            tickled: CpuSet::EMPTY,
        }
    }

    fn unit(&self, task: TaskId) -> &Unit {
        &self.units[task]
    }

    fn unit_mut(&mut self, task: TaskId) -> &mut Unit {
        &mut self.units[task]
    }

    /// Reads period and budget; what is left of the present budget stays.
    fn read_parameters(&mut self, cx: &Cx<'_>, task: TaskId) {
        let (period, budget) = match cx.task(task).policy {
            Policy::Deadline { runtime, period, .. } => (period.0 as i64, runtime.0 as i64),
            _ => (self.period, self.budget),
        };
        let unit = self.unit_mut(task);
        (unit.period, unit.budget) = (period, budget);
    }

    /// A new period, with a full budget: the one in which `now` is.
    fn renew(&mut self, now: i64, task: TaskId) {
        let unit = self.unit_mut(task);
        unit.deadline += ((now - unit.deadline) / unit.period + 1) * unit.period;
        (unit.start, unit.left, unit.level) = (now, unit.budget, 0);
    }

    /// Charges the unit that ran.
    fn burn(&mut self, cx: &Cx<'_>, task: TaskId) {
        cx.did(crate::Work::Account, 1);
        let (now, extratime) = (now(cx), self.extratime);
        let unit = self.unit_mut(task);
        unit.left -= now - unit.start;
        unit.start = now;
        if unit.left > 0 {
            return;
        }
        if extratime {
            unit.level = unit.level.saturating_add(1);
            unit.left = unit.budget;
        } else {
            (unit.left, unit.depleted) = (0, true);
        }
    }

    /// Before the first one of `queue` that is strictly worse.
    fn place_in(&self, queue: &[TaskId], task: TaskId) -> usize {
        let own = self.unit(task).urgency();
        queue.iter().position(|other| own < self.unit(*other).urgency()).unwrap_or(queue.len())
    }

    fn queue_unit(&mut self, cx: &Cx<'_>, task: TaskId) {
        if self.unit(task).left > 0 || self.extratime {
            let at = self.place_in(&self.runq, task);
            self.runq.insert(at, task);
            self.unit_mut(task).queue = Queue::Run;
            cx.push(Cmd::Unthrottled(task));
        } else {
            self.unit_mut(task).queue = Queue::Depleted;
            cx.push(Cmd::Throttled(task));
        }
    }

    /// Takes a unit off its queue.
    fn unqueue(&mut self, task: TaskId) {
        take(&mut self.runq, task);
        self.unit_mut(task).queue = Queue::None;
    }

    /// Announces the next replenishment of a unit.
    fn announce(&mut self, cx: &Cx<'_>, task: TaskId) {
        let at = self.place_in(&self.replq, task);
        self.replq.insert(at, task);
        if at == 0 {
            self.arm(cx);
        }
    }

    fn retract(&mut self, cx: &Cx<'_>, task: TaskId) {
        let first = self.replq.first() == Some(&task);
        if take(&mut self.replq, task) && first {
            self.arm(cx);
        }
    }

    fn arm(&self, cx: &Cx<'_>) {
        cx.push(match self.replq.first() {
            Some(first) => Cmd::Arm(REPLENISH, Ns(self.unit(*first).deadline as u64)),
            None => Cmd::Disarm(REPLENISH),
        });
    }

    /// Finds a pCPU for a queued unit: an idle one, or the one whose unit is worst.
    fn tickle(&mut self, cx: &Cx<'_>, task: TaskId) {
        let new = self.unit(task);
        let mut left = minus(&new.core.hard.and(&self.pool), &self.tickled);
        let mut worst: Option<TaskId> = None;
        let mut at = test_or_cycle(new.core.cpu, &left);
        let mut target = None;
        while let Some(cpu) = at {
            let Some(running) = self.curr[cpu.index()] else {
                target = Some(cpu);
                break;
            };
            let urgency = |task: TaskId| self.unit(task).urgency();
            if worst.is_none_or(|worst| urgency(worst) < urgency(running)) {
                worst = Some(running);
            }
            left.remove(cpu);
            at = cycle(cpu, &left);
        }
        let worse = |running: &TaskId| new.urgency() < self.unit(*running).urgency();
        let target = target.or_else(|| worst.filter(worse).map(|worst| self.unit(worst).core.cpu));
        if let Some(cpu) = target {
            self.tickled.insert(cpu);
            cx.push(Cmd::Resched(cpu));
        }
    }

    /// The unit's own pCPU if it may be there, else the next one.
    fn place(&mut self, cx: &Cx<'_>, task: TaskId) {
        let core = &mut self.unit_mut(task).core;
        if let Some(cpu) = test_or_cycle(core.cpu, &core.hard) {
            core.cpu = cpu;
            cx.push(Cmd::Moved(task, cpu));
        }
    }

    /// The timer: every unit whose deadline has come gets a new period.
    fn replenish(&mut self, cx: &Cx<'_>) {
        let now = now(cx);
        let due = self.replq.iter().take_while(|task| self.unit(**task).deadline <= now).count();
        let due: Vec<TaskId> = self.replq.drain(..due).collect();
        for &task in &due {
            self.renew(now, task);
            if self.unit(task).queue != Queue::None {
                self.unqueue(task);
                self.queue_unit(cx, task);
            }
        }
        // Xen collects them at the head of a list: the last one comes first.
        for &task in due.iter().rev() {
            self.tickle_replenished(cx, task);
            let at = self.place_in(&self.replq, task);
            self.replq.insert(at, task);
        }
        if !self.replq.is_empty() {
            self.arm(cx);
        }
    }

    fn tickle_replenished(&mut self, cx: &Cx<'_>, task: TaskId) {
        let unit = self.unit(task);
        let runs = self.curr[unit.core.cpu.index()] == Some(task);
        if let Some(&first) = self.runq.first()
            && runs
        {
            if self.unit(first).urgency() < unit.urgency() {
                self.tickle(cx, first);
            }
            return;
        }
        let unit = self.unit_mut(task);
        if std::mem::take(&mut unit.depleted) && unit.queue != Queue::None {
            self.tickle(cx, task);
        }
    }
}

impl Units for Rtds {
    fn create(&mut self, cx: &Cx<'_>, task: TaskId) {
        if self.has(task) {
            return;
        }
        let unit = Unit {
            core: Core::new(cx.task(task), &self.pool),
            period: 0,
            budget: 0,
            left: 0,
            start: 0,
            deadline: 0,
            level: 0,
            queue: Queue::None,
            scheduled: false,
            delayed_add: false,
            depleted: false,
        };
        self.units.add(task, unit);
        self.read_parameters(cx, task);
        self.renew(now(cx), task);
        self.place(cx, task);
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
        if self.curr[unit.core.cpu.index()] == Some(task) || unit.queue != Queue::None {
            return;
        }
        let (now, scheduled) = (now(cx), unit.scheduled);
        let missed = now >= unit.deadline;
        if missed {
            self.renew(now, task);
        }
        if scheduled {
            self.unit_mut(task).delayed_add = true;
            if missed {
                self.retract(cx, task);
                self.announce(cx, task);
            }
            return;
        }
        self.announce(cx, task);
        self.queue_unit(cx, task);
        self.tickle(cx, task);
    }

    fn take_asleep(&mut self, cx: &Cx<'_>, task: TaskId) {
        let unit = self.unit(task);
        let cpu = unit.core.cpu;
        if self.curr[cpu.index()] == Some(task) {
            cx.push(Cmd::Resched(cpu));
        } else if unit.queue != Queue::None {
            self.unqueue(task);
            self.retract(cx, task);
        } else {
            self.unit_mut(task).delayed_add = false;
        }
    }
}

impl XenRules for Rtds {
    fn needs() -> Needs {
        Needs { global_timers: 1, one_lock: true, ..super::needs() }
    }

    fn refuses(policy: Policy) -> Option<&'static str> {
        match policy {
            Policy::Deadline { deadline, period, .. } if deadline != period => Some(
                "a deadline of RTDS is the end of the period: write deadline:BUDGET/PERIOD/PERIOD",
            ),
            Policy::Deadline { runtime, .. } if runtime < LEAST => {
                Some("RTDS takes budgets and periods of 10 us and more")
            }
            _ => None,
        }
    }

    fn schedule(&mut self, cx: &Cx<'_>, cpu: CpuId, _prev: Option<TaskId>, why: Prev) -> Pick {
        self.tickled.remove(cpu);
        let prev = self.curr[cpu.index()];
        if let Some(task) = prev {
            self.burn(cx, task);
            self.unit_mut(task).core.stopped(why);
        }
        let best = self.runq.iter().copied().find(|task| self.unit(*task).core.hard.contains(cpu));
        let stays = |own: &TaskId| {
            self.is_runnable(*own)
                && self.unit(*own).left > 0
                && best.is_none_or(|best| self.unit(*own).urgency() < self.unit(best).urgency())
        };
        let next = prev.filter(stays).or(best);
        if next != prev {
            if let Some(task) = prev.filter(|task| self.is_runnable(*task)) {
                self.unit_mut(task).delayed_add = true;
            }
            if let Some(task) = next {
                self.unqueue(task);
                self.unit_mut(task).scheduled = true;
            }
        }
        self.curr[cpu.index()] = next;
        let Some(task) = next else { return Pick::IDLE };
        let unit = self.unit_mut(task);
        (unit.start, unit.core.cpu) = (now(cx), cpu);
        Pick { task: next, slice_ns: Some(Ns(unit.left as u64)), note: i64::from(unit.level) }
    }

    fn saved(&mut self, cx: &Cx<'_>, task: TaskId) {
        let unit = self.unit_mut(task);
        unit.scheduled = false;
        let add = std::mem::take(&mut unit.delayed_add);
        if add && self.is_runnable(task) {
            self.queue_unit(cx, task);
            self.tickle(cx, task);
        } else {
            self.retract(cx, task);
        }
        if std::mem::take(&mut self.unit_mut(task).core.migrating) {
            self.place(cx, task);
        }
    }

    fn timer(&mut self, cx: &Cx<'_>, _timer: Timer) {
        self.replenish(cx);
    }

    fn affinity_changed(&mut self, cx: &Cx<'_>, task: TaskId) {
        let pool = self.pool;
        let unit = self.unit_mut(task);
        unit.core.read_affinity(cx.task(task), &pool);
        let (cpu, queued) = (unit.core.cpu, unit.queue != Queue::None);
        if self.curr[cpu.index()] == Some(task) {
            if !self.unit(task).core.hard.contains(cpu) {
                cx.push(Cmd::Displace(task));
            }
            return;
        }
        self.place(cx, task);
        if queued {
            self.take_asleep(cx, task);
            self.insert_woken(cx, task);
        }
    }

    fn changed(&mut self, cx: &Cx<'_>, change: Change) {
        match change {
            Change::Created { task, .. } => self.create(cx, task),
            Change::Affinity(task) => self.affinity_changed(cx, task),
            Change::Attributes(task) => self.read_parameters(cx, task),
            _ => {}
        }
    }

    fn resync(&mut self, cx: &Cx<'_>) {
        self.create_all(cx);
        (self.tickled, self.runq, self.replq) = (CpuSet::EMPTY, Vec::new(), Vec::new());
        read_current(cx, &mut self.curr);
        for (index, view) in cx.world.tasks.iter().enumerate().filter(|(_, view)| view.alive) {
            let task = TaskId::from(index);
            let unit = self.unit_mut(task);
            (unit.queue, unit.delayed_add) = (Queue::None, false);
            unit.scheduled = view.on_cpu().is_some();
            unit.core.awake = view.runnable() != Runnable::No;
            if unit.scheduled {
                self.announce(cx, task);
            } else if self.is_runnable(task) {
                self.insert_woken(cx, task);
            }
        }
    }

    fn explain(&self, _cx: &Cx<'_>, cpu: CpuId) -> String {
        let about = |task: &TaskId| {
            let unit = self.unit(*task);
            format!("{task:?} level {} until {} with {} ns", unit.level, unit.deadline, unit.left)
        };
        let queue: Vec<String> = self.runq.iter().map(about).collect();
        format!(
            "rtds {cpu}: curr {:?}, queue [{}]",
            self.curr[cpu.index()].as_ref().map(about),
            queue.join("; ")
        )
    }
}
