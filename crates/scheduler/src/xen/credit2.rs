//! Xen's Credit2 scheduler (`sched=credit2`, the default since 4.12).
//!
//! pCPUs share run queues that are sorted by credit. A running vCPU burns credit in inverse
//! proportion to its weight; when the best one has none left, every task of the queue gets 10 ms
//! anew. There is no boost, no periodic tick and no global accounting.
//!
//! # Example
//! One hog with a cap of 50 runs 0 … 5 ms, is parked until 10 ms, runs 10 … 15 ms, … (golden vector
//! G4, test `credit2_a_cap_of_half_a_cpu_runs_half_of_each_period`).
//!
//! # Fidelity
//! | rule | real system | here | test |
//! |---|---|---|---|
//! | burning, order, reset, slice | 4.14 … 4.22 | modelled, to the credit | decision logs of 4.20 and 4.22 |
//! | tickle with resistance and rate limit | 4.10 … 4.22 | modelled | decision logs |
//! | an idle pCPU resists too: more than 20 ms of it, and units wait beside it for their own | 4.14 … 4.22 | modelled | `credit2_an_idle_pcpu_leaves_what_does_not_lead_by_the_resistance` |
//! | caps with period, quota, parking | 4.10 … 4.22 | modelled | decision logs |
//! | load tracking, placement, balancing with their quirks | 4.14 … 4.22 | modelled | decision logs |
//! | slice looks at the unit that is switched out | from 4.21 | by release | decision logs of 4.22 |
//! | candidate falls to idle at an ineligible entry | before 4.15.1 | omitted: `version` 4.12 and 4.15 have the fix | |
//! | trylock failures | all | omitted: every lock attempt succeeds | |
//! | core scheduling, cpupools, tasklets | all | omitted | |
//! | locks | one per run queue | one lock around everything | |

mod balance;
mod budget;
mod load;
mod runqueue;
mod select;
mod state;

use super::common::{Places, RATELIMIT, SMT_POWER_SAVINGS, Units, now, read_current};
use super::one_lock::XenRules;
use super::release::XenRelease;
use crate::{Change, Cmd, Cx, Knobs, Needs, Pick, Prev, Runnable, Timer};
use crate::{KnobDefault, NumberKnob, Row, TimeKnob, Times, WordKnob, words};
use schedlab_model::{CpuId, CpuSet, Ns, TaskId};
use state::Settings;

pub(super) use state::Credit2;

/// Credit of a fresh unit, and what a reset adds, in ns of the heaviest unit.
const INIT: i64 = 10_000_000;
/// The floor.
const MIN: i64 = -10_000_000;
/// The most that may be left over a reset.
const CARRYOVER: i64 = 500_000;
/// Shortest slice.
const MIN_TIMER: i64 = 500_000;
/// Longest slice.
const MAX_TIMER: i64 = 10_000_000;
/// Bonus of a unit that changes its pCPU.
const MIGRATE_COMPENSATION: i64 = 50_000;
/// How much earlier than the rate limit a running unit may be preempted.
const TICKLE_TOLERANCE: i64 = 50_000;

words! {
    /// Which pCPUs share a run queue.
    pub(in crate::xen) enum Arrangement {
        /// None.
        Cpu = "cpu",
        /// The threads of a core.
        Core = "core",
        /// The cores of a socket.
        Socket = "socket",
        /// The sockets of a NUMA node.
        Node = "node",
        /// All.
        All = "all",
    }
}

const MIGRATE_RESIST: TimeKnob<XenRelease> = TimeKnob {
    name: "migrate_resist",
    allowed: Times::between(Ns::ZERO, Ns::from_s(1)),
    default: KnobDefault::Is(Ns::from_us(500)),
    doc: "credit by which a unit must lead to leave its pCPU (boot sched_credit2_migrate_resist)",
    source: "xen/common/sched/credit2.c, CSCHED2_MIGRATE_RESIST",
};
const RUNQUEUE: WordKnob<Arrangement, XenRelease> = WordKnob {
    name: "credit2_runqueue",
    default: KnobDefault::Is(Arrangement::Socket),
    doc: "which pCPUs share a run queue (boot credit2_runqueue)",
    source: "xen/common/sched/credit2.c, opt_runqueue",
};
const MAX_CPUS_RUNQUEUE: NumberKnob<XenRelease> = NumberKnob {
    name: "max_cpus_runqueue",
    unit: "pCPUs",
    allowed: (1, 512),
    default: KnobDefault::InWords(
        |release| if release.credit2_limits_queues() { 16 } else { 512 },
        |_| "16 (512 before 4.14)".to_owned(),
    ),
    doc: "most pCPUs of one run queue (boot sched_credit2_max_cpus_runqueue)",
    source: "xen/common/sched/credit2.c, MAX_CPUS_RUNQ, 4.14",
};
const CAP_PERIOD: TimeKnob<XenRelease> = TimeKnob {
    name: "cap_period",
    allowed: Times::between(Ns::from_ms(1), Ns::from_s(1)),
    default: KnobDefault::Is(Ns::from_ms(10)),
    doc: "period of caps (boot credit2_cap_period_ms)",
    source: "xen/common/sched/credit2.c, CSCHED2_BDGT_REPL_PERIOD, 4.10",
};
const LOAD_PRECISION_SHIFT: NumberKnob<XenRelease> = NumberKnob {
    name: "load_precision_shift",
    unit: "bits",
    allowed: (1, 30),
    default: KnobDefault::Is(18),
    doc: "bits after the point of load averages (boot credit2_load_precision_shift)",
    source: "xen/common/sched/credit2.c, opt_load_precision_shift",
};
const LOAD_WINDOW_SHIFT: NumberKnob<XenRelease> = NumberKnob {
    name: "load_window_shift",
    unit: "log2 ns",
    allowed: (11, 50),
    default: KnobDefault::Is(30),
    doc: "log2 of the load window in ns (boot credit2_load_window_shift)",
    source: "xen/common/sched/credit2.c, opt_load_window_shift",
};
const BALANCE_UNDER: NumberKnob<XenRelease> = NumberKnob {
    name: "balance_under",
    unit: "log2",
    allowed: (-16, 16),
    default: KnobDefault::Is(0),
    doc: "log2 of the load difference that is balanced with room left (boot credit2_balance_under)",
    source: "xen/common/sched/credit2.c, opt_underload_balance_tolerance",
};
const BALANCE_OVER: NumberKnob<XenRelease> = NumberKnob {
    name: "balance_over",
    unit: "log2",
    allowed: (-16, 16),
    default: KnobDefault::Is(-3),
    doc: "log2 of the load difference that is balanced when overloaded (boot credit2_balance_over)",
    source: "xen/common/sched/credit2.c, opt_overload_balance_tolerance",
};

/// The knobs, with Xen's names, bounds and defaults.
pub(super) const KNOBS: &[&dyn Row<XenRelease>] = &[
    &RATELIMIT,
    &MIGRATE_RESIST,
    &RUNQUEUE,
    &MAX_CPUS_RUNQUEUE,
    &CAP_PERIOD,
    &LOAD_PRECISION_SHIFT,
    &LOAD_WINDOW_SHIFT,
    &BALANCE_UNDER,
    &BALANCE_OVER,
    &SMT_POWER_SAVINGS,
];

fn settings(release: XenRelease, knobs: &Knobs) -> Settings {
    let time = |knob: &TimeKnob<XenRelease>| knobs.get_for(knob, &release).0 as i64;
    let number = |knob: &NumberKnob<XenRelease>| knobs.get_for(knob, &release);
    Settings {
        release,
        ratelimit: time(&RATELIMIT),
        resist: time(&MIGRATE_RESIST),
        runqueue: knobs.get_for(&RUNQUEUE, &release),
        max_cpus: number(&MAX_CPUS_RUNQUEUE) as usize,
        cap_period: time(&CAP_PERIOD),
        precision: number(&LOAD_PRECISION_SHIFT) as u32,
        window: number(&LOAD_WINDOW_SHIFT) as u32,
        under: number(&BALANCE_UNDER),
        over: number(&BALANCE_OVER),
        pack: knobs.get_for(&SMT_POWER_SAVINGS, &release),
    }
}

impl Credit2 {
    pub(super) fn new(release: XenRelease, cpus: usize, knobs: &Knobs) -> Credit2 {
        Credit2::with(settings(release, knobs), cpus)
    }
}

impl XenRules for Credit2 {
    fn needs() -> Needs {
        Needs { task_timers: true, ..super::needs() }
    }

    fn begin(&mut self, cx: &Cx<'_>) {
        self.arrange(&Places::from_topology(&cx.world.topology), &cx.world.topology);
        self.create_all(cx);
        self.read_domains(cx);
    }

    fn yielded(&mut self, task: TaskId) {
        self.unit_mut(task).yielded = true;
    }

    fn schedule(&mut self, cx: &Cx<'_>, cpu: CpuId, _prev: Option<TaskId>, why: Prev) -> Pick {
        let rq = self.queue_of[cpu.index()];
        if self.queues[rq].tickled.contains(cpu) {
            self.untickle(rq, cpu);
        }
        let current = self.curr[cpu.index()];
        if let Some(task) = current {
            self.burn(cx, task);
            let unit = self.unit_mut(task);
            unit.core.stopped(why);
            if unit.budget <= 0 && self.capped(task) {
                self.grab(cx, task);
            }
        }
        let next = self.candidate(cx, cpu, current);
        let mut requeues = false;
        if let Some(task) = current
            && next != current
            && self.unit(task).runnable()
        {
            self.unit_mut(task).delayed_add = true;
            requeues = true;
        }
        let inflight = |state: &Credit2| {
            if requeues { current.map_or(0, |t| state.unit(t).credit) } else { 0 }
        };
        match next {
            Some(task) => self.dispatch(cx, cpu, task, current),
            None => self.go_idle(cx, cpu),
        }
        let seen =
            if self.settings.release.credit2_slice_sees_previous() { inflight(self) } else { 0 };
        self.curr[cpu.index()] = next;
        if next != current
            && let Some(task) = next
        {
            let unit = self.unit_mut(task);
            unit.core.running = true;
            unit.core.entry = now(cx);
        }
        let slice_ns = next.map(|task| Ns(self.slice(cx, task, rq, next == current, seen) as u64));
        Pick { task: next, slice_ns, note: next.map_or(MIN - 1, |task| self.unit(task).credit) }
    }

    fn saved(&mut self, cx: &Cx<'_>, task: TaskId) {
        let now = now(cx);
        let rq = self.unit(task).rq;
        let unit = self.unit_mut(task);
        unit.core.running = false;
        unit.core.entry = now;
        unit.scheduled = false;
        let returned = self.return_budget(task);
        let unit = self.unit_mut(task);
        if std::mem::take(&mut unit.delayed_add) && unit.runnable() {
            self.enqueue(cx, task);
            self.tickle(cx, task);
        } else {
            self.load_change(cx, rq, Some(task), -1);
        }
        if returned {
            let index = self.unit(task).domain.index();
            self.unpark_all(cx, index);
        }
        if std::mem::take(&mut self.unit_mut(task).core.migrating) {
            let cpu = self.place(task);
            self.unit_mut(task).target = None;
            self.settle(cx, task, cpu);
            if std::mem::take(&mut self.unit_mut(task).leaving) && self.unit(task).runnable() {
                self.wake(cx, task);
            }
        }
    }

    fn timer(&mut self, cx: &Cx<'_>, timer: Timer) {
        if let Timer::Task(task) = timer {
            self.replenish(cx, task);
        }
    }

    fn affinity_changed(&mut self, cx: &Cx<'_>, task: TaskId) {
        let pool = self.pool;
        let unit = self.unit_mut(task);
        unit.core.read_affinity(cx.task(task), &pool);
        if unit.core.hard.contains(unit.core.cpu) {
            return;
        }
        if unit.scheduled {
            let cpu = unit.core.cpu;
            if self.curr[cpu.index()] == Some(task) {
                cx.push(Cmd::Displace(task));
            } else {
                // Its CPU has decided against it already: it moves when its context is saved.
                let unit = self.unit_mut(task);
                (unit.core.migrating, unit.leaving) = (true, true);
            }
            return;
        }
        let cpu = self.place(task);
        self.settle(cx, task, cpu);
    }

    fn changed(&mut self, cx: &Cx<'_>, change: Change) {
        match change {
            Change::Created { task, .. } => {
                self.create(cx, task);
                self.read_domain(cx, cx.task(task).group.index());
            }
            Change::Group(_) => self.read_domains(cx),
            Change::Affinity(task) => self.affinity_changed(cx, task),
            _ => {}
        }
    }

    fn resync(&mut self, cx: &Cx<'_>) {
        read_current(cx, &mut self.curr);
        for queue in &mut self.queues {
            queue.list.clear();
            queue.load = 0;
            queue.tickled = CpuSet::EMPTY;
            queue.idle =
                queue.active.iter().filter(|cpu| self.curr[cpu.index()].is_none()).collect();
            queue.smt_idle = CpuSet::EMPTY;
        }
        for (index, view) in cx.world.tasks.iter().enumerate().filter(|(_, view)| view.alive) {
            let task = TaskId::from(index);
            self.create(cx, task);
            let running = view.on_cpu().is_some();
            let unit = self.unit_mut(task);
            (unit.queued, unit.delayed_add, unit.scheduled) = (false, false, running);
            unit.core.awake = view.runnable() != Runnable::No;
            let rq = unit.rq;
            if running {
                self.queues[rq].load += 1;
            } else if unit.runnable() {
                self.wake(cx, task);
            }
        }
    }

    fn explain(&self, cx: &Cx<'_>, cpu: CpuId) -> String {
        let queue = &self.queues[self.queue_of[cpu.index()]];
        let at = now(cx);
        format!("credit2 {cpu}: curr {:?}, queue {:?} at {at}", self.curr[cpu.index()], queue.list)
    }
}

impl Credit2 {
    fn dispatch(&mut self, cx: &Cx<'_>, cpu: CpuId, task: TaskId, current: Option<TaskId>) {
        let rq = self.queue_of[cpu.index()];
        if current != Some(task) {
            self.dequeue(task);
            self.unit_mut(task).scheduled = true;
        } else {
            self.load_change(cx, rq, Some(task), 0);
        }
        if self.queues[rq].idle.contains(cpu) {
            self.queues[rq].idle.remove(cpu);
            self.leave_smt_idle(rq, cpu);
        }
        let first = self.queues[rq].list.first().map(|head| self.unit(*head).credit);
        let credit = self.unit(task).credit;
        if first.map_or(credit, |first| first.max(credit)) <= 0 {
            self.reset(cx, rq, task);
            self.balance(cx, rq, cpu, task);
        }
        let unit = self.unit_mut(task);
        unit.start = now(cx);
        unit.tickled_cpu = None;
        if unit.core.cpu != cpu {
            unit.credit += MIGRATE_COMPENSATION;
            unit.core.cpu = cpu;
            cx.push(Cmd::Moved(task, cpu));
        }
    }

    fn go_idle(&mut self, cx: &Cx<'_>, cpu: CpuId) {
        let rq = self.queue_of[cpu.index()];
        if !self.queues[rq].idle.contains(cpu) {
            self.queues[rq].idle.insert(cpu);
            self.join_smt_idle(rq, cpu);
        }
        self.load_change(cx, rq, None, 0);
    }
}
