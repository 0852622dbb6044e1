//! The deadline class (SCHED_DEADLINE, 3.14 and later): each task has a reservation,
//! `deadline:RUNTIME/DEADLINE/PERIOD`, that it is guaranteed and cannot exceed; among those with
//! budget the earliest absolute deadline runs. It comes before RT and fair tasks, whatever their
//! priority.
//!
//! # Worked example
//! `deadline:4ms/10ms/10ms` beside a hog, HZ=1000, one CPU. The task wants 6 ms every 20 ms. It
//! wakes at 0: budget 4, deadline 10. At the tick of 4 ms the budget is used up: it is throttled
//! and the hog runs. At 10 ms (deadline − 10 + period 10) its budget is renewed, the deadline is
//! 20, and it preempts the hog; at 12 ms its job is done, 2 ms of budget are left. At 20 ms it
//! wakes: the deadline is not in the past, but 2 ms in 0 ms is more than 4 in 10, so it gets a new
//! period: budget 4, deadline 30. So it runs 0–4, 10–12, 20–24, 30–32 … and answers in 12 ms. Test:
//! `the_worked_example`.
//!
//! # Fidelity
//! | rule | real place (kernel/sched/deadline.c and core.c, 6.1 to 6.18) | here | test |
//! |---|---|---|---|
//! | parameters: runtime ≥ 1.024 us, ≤ deadline ≤ period, period within its sysctls | `__checkparam_dl` | modelled; refused by name | `impossible_reservations_are_refused` |
//! | admission: Σ runtime/period ≤ CPUs × rt_runtime/rt_period, 20 bits | `sched_dl_overflow` | modelled for all tasks of a workload at once; the kernel refuses the one that comes last | `g20_admission_at_95_percent` |
//! | the fair servers' share counts among what is reserved | 6.12+ by the rule (LKML 2024-11-29); 6.12.95 was measured to admit 95 % to tasks alone | as measured up to 7.1, by the rule in 7.2; `Scheduler::remarks` says where the two differ | `what_kernels_do_otherwise_is_said` |
//! | a task may run on all CPUs of its root domain | `__sched_setscheduler` | modelled: one root domain of the isolated CPUs, one of the others; both checks off with sched_rt_runtime_us=-1 | `a_pinned_deadline_task_is_refused` |
//! | wakeup: keep budget and deadline, new period, revised budget, wait for the period | `update_dl_entity`, `dl_check_constrained_dl` | [`cbs`] | `a_wakeup_keeps_what_the_reservation_covers`, `a_constrained_task_gets_a_revised_budget_or_waits` |
//! | budget is enforced at ticks, or by a timer (HRTICK_DL); overruns are paid back | `update_curr_dl`, `start_dl_timer` | modelled | `budgets_are_enforced_at_ticks`, `no_server_exceeds_its_budget` |
//! | earliest deadline first on a CPU; equal ones first in first out, the running one goes on | `pick_next_task_dl`, `dl_entity_preempt` | modelled | `edf_meets_every_deadline_up_to_the_bound` |
//! | yield gives the rest of the budget away | `yield_task_dl` | modelled | `yield_waits_for_the_next_period` |
//! | the fair server is an entity of this class (6.12+) | `dl_server` | modelled: the earlier deadline goes first | `the_fair_server_competes_by_deadline` |
//! | RT time includes deadline time (until 6.11) | `update_curr_dl` | modelled; whether the RT period runs is taken from the RT tasks of the CPU | `deadline_time_counts_as_rt_time` |
//! | several CPUs | push and pull, cpudl | see [`balance`] | |
//! | SCHED_FLAG_RECLAIM (GRUB) | `grub_reclaim`, 0-lag timer | modelled; the flag is a knob for all tasks, not one of each task | `grub_of_the_kernel_document` |
//! | equal deadlines, only one of the two can move | `check_preempt_equal_dl` | omitted: the woken one may be pushed | |
//! | priority inheritance, SCHED_FLAG_DL_OVERRUN, no fork, capacity and frequency | | omitted | |

pub(super) mod admission;
mod balance;
pub(super) mod cbs;
pub(super) mod reclaim;

use crate::linux::Env;
use crate::linux::core::rq::{Class, EntityId, NONE, Rq};
use crate::linux::fair::{self, Enqueue};
use crate::linux::rt;
use crate::linux::version::Feature;
use crate::{Cmd, Timer};
use cbs::Cbs;
use reclaim::Bandwidth;
use schedlab_model::{CpuId, Ns, TaskId};

/// Timer slot of a CPU: the next renewal of a budget.
pub(super) fn timer(cpu: CpuId) -> Timer {
    Timer::Cpu(cpu, 2)
}

/// Shortest HRTICK of this class, ns.
const HRTICK_LEAST: u64 = 10_000;

/// No deadline, or no timer.
pub(super) const NEVER: i64 = i64::MAX;

/// What is due at a task's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    /// Its budget is renewed.
    Renewal,
    /// It has slept so long that its bandwidth is free.
    ZeroLag,
}

/// Deadline tasks of one CPU.
#[derive(Default)]
pub(super) struct DlQueue {
    /// Those with budget, the running one included, earliest deadline first; equal ones in order of
    /// arrival.
    queue: Vec<(i64, EntityId)>,
    /// Tasks that wait for a time of their own, with or without wanting the CPU.
    timers: Vec<(u64, EntityId, Due)>,
    /// For when the CPU's timer is set, ns; 0 = it is not.
    armed: u64,
    /// What is reserved here.
    pub(super) bandwidth: Bandwidth,
}

impl DlQueue {
    /// Deadline and entity of the most urgent one.
    #[inline]
    pub(super) fn first(&self) -> Option<(i64, EntityId)> {
        self.queue.first().copied()
    }
    /// Those with budget, the running one included, most urgent first.
    pub(super) fn queued(&self) -> impl Iterator<Item = (i64, EntityId)> {
        self.queue.iter().copied()
    }
    /// Whether it has budget and is queued (or runs).
    pub(super) fn holds(&self, id: EntityId) -> bool {
        self.queue.iter().any(|entry| entry.1 == id)
    }
    /// Forgets the timers of an entity that leaves.
    pub(super) fn forget(&mut self, id: EntityId) {
        self.timers.retain(|timer| timer.1 != id);
    }
}

/// The server of a task of this class.
pub(super) fn server(rq: &Rq, id: EntityId) -> &Cbs {
    rq.entity(id).dl.as_deref().expect("a task of the deadline class has a server")
}

fn server_mut(rq: &mut Rq, id: EntityId) -> &mut Cbs {
    rq.entity_mut(id).dl.as_deref_mut().expect("a task of the deadline class has a server")
}

fn insert(rq: &mut Rq, id: EntityId) {
    let until = server(rq, id).until;
    let at = rq.dl.queue.partition_point(|entry| entry.0 <= until);
    rq.dl.queue.insert(at, (until, id));
    rq.nr_running += 1;
}

fn remove(rq: &mut Rq, id: EntityId) -> bool {
    let at = rq.dl.queue.iter().position(|entry| entry.1 == id);
    if let Some(at) = at {
        rq.dl.queue.remove(at);
        rq.nr_running -= 1;
    }
    at.is_some()
}

/// Waits until run-queue time `at` on behalf of `id`.
fn wait_until(env: Env<'_>, rq: &mut Rq, id: EntityId, at: i64, what: Due) -> u64 {
    let at = rq.to_wall(at as u64).max(1);
    rq.dl.timers.push((at, id, what));
    arm(env, rq);
    at
}

/// Sets the CPU's timer for the first of those who wait.
fn arm(env: Env<'_>, rq: &mut Rq) {
    let Some(at) = rq.dl.timers.iter().map(|timer| timer.0).min() else { return };
    if at != rq.dl.armed {
        rq.dl.armed = at;
        env.cx.push(Cmd::Arm(timer(rq.cpu), Ns(at)));
    }
}

/// An entity with timers has come from another CPU.
pub(super) fn arrived(env: Env<'_>, rq: &mut Rq, id: EntityId) {
    let Some(cbs) = rq.entity(id).dl.as_deref() else { return };
    let timers = [(cbs.timer, Due::Renewal), (cbs.zero_lag, Due::ZeroLag)];
    rq.dl.timers.extend(timers.into_iter().filter_map(|(at, what)| Some((at?, id, what))));
    reclaim::attach(rq, id);
    arm(env, rq);
}

/// A task that wants the CPU: onto the queue, or it waits for its budget.
pub(super) fn enqueue(env: Env<'_>, rq: &mut Rq, id: EntityId, why: Enqueue) {
    let now = rq.clock as i64;
    rq.dl_here += 1;
    rq.entity_mut(id).on_rq = true;
    reclaim::contends(rq, id);
    let cbs = server_mut(rq, id);
    let was = cbs.throttled;
    if why == Enqueue::Restore {
        cbs.restore(now);
    } else {
        cbs.wake(now);
    }
    if !cbs.throttled {
        return insert(rq, id);
    }
    let next = cbs.next_period();
    if !was {
        let at = wait_until(env, rq, id, next, Due::Renewal);
        server_mut(rq, id).timer = Some(at);
    }
    env.cx.push(Cmd::Throttled(TaskId(rq.entity(id).task)));
}

/// It does not want the CPU any more. `sleeps`: it will again.
pub(super) fn dequeue(env: Env<'_>, rq: &mut Rq, id: EntityId, sleeps: bool) {
    update_curr(env, rq);
    rq.entity_mut(id).on_rq = false;
    rq.dl_here -= 1;
    if !remove(rq, id) {
        env.cx.push(Cmd::Unthrottled(TaskId(rq.entity(id).task)));
    }
    if sleeps {
        reclaim::sleeps(env, rq, id);
    }
}

/// Charges the running task; one whose budget is used up waits for its next period.
pub(super) fn update_curr(env: Env<'_>, rq: &mut Rq) {
    let Some(curr) = rq.curr_of(Class::Deadline) else { return };
    let now = rq.clock;
    let entity = rq.entity_mut(curr);
    let delta = now.saturating_sub(entity.exec_start);
    let yielded = entity.dl.as_deref().is_some_and(|cbs| cbs.yielded);
    if delta == 0 && !yielded {
        return;
    }
    entity.exec_start = now;
    if !rq.dl.holds(curr) {
        return;
    }
    rt::charge_deadline(env, rq, delta);
    let cost = reclaim::cost(env, rq, curr, delta);
    if server_mut(rq, curr).spend(cost) {
        throttle(env, rq, curr);
    }
}

fn throttle(env: Env<'_>, rq: &mut Rq, id: EntityId) {
    remove(rq, id);
    let now = rq.clock as i64;
    let next = server(rq, id).next_period();
    if next < now {
        server_mut(rq, id).replenish(now);
        insert(rq, id);
    } else {
        let at = wait_until(env, rq, id, next, Due::Renewal);
        let cbs = server_mut(rq, id);
        (cbs.throttled, cbs.timer) = (true, Some(at));
        env.cx.push(Cmd::Throttled(TaskId(rq.entity(id).task)));
    }
    if rq.dl.first().is_none_or(|first| first.1 != id) {
        rq.resched(env);
    }
}

/// The CPU's timer fired: budgets are renewed, and bandwidth of sleepers is given back.
pub(super) fn fired(env: Env<'_>, rq: &mut Rq) {
    rq.dl.armed = 0;
    let now = env.cx.now.0;
    loop {
        let due = rq.dl.timers.iter().enumerate().filter(|(_, timer)| timer.0 <= now);
        let Some(index) =
            due.min_by_key(|(index, timer)| (timer.0, *index)).map(|(index, _)| index)
        else {
            break;
        };
        let (_, id, what) = rq.dl.timers.remove(index);
        match what {
            Due::Renewal => renew(env, rq, id),
            Due::ZeroLag => reclaim::lag_is_gone(rq, id),
        }
    }
    arm(env, rq);
}

/// The next period of a throttled task begins.
fn renew(env: Env<'_>, rq: &mut Rq, id: EntityId) {
    let now = rq.clock as i64;
    let cbs = server_mut(rq, id);
    cbs.timer = None;
    if !cbs.throttled {
        return;
    }
    cbs.replenish(now);
    if rq.entity(id).on_rq {
        insert(rq, id);
        env.cx.push(Cmd::Unthrottled(TaskId(rq.entity(id).task)));
        preempt(env, rq, id);
    }
}

/// Asks for a reschedule if `id` should run instead of the running task.
pub(super) fn preempt(env: Env<'_>, rq: &mut Rq, id: EntityId) {
    let goes_first = match rq.curr_of(Class::Deadline) {
        Some(curr) if curr == id => false,
        Some(curr) => server(rq, id).until < server(rq, curr).until || !rq.dl.holds(curr),
        None => true,
    };
    if goes_first {
        rq.resched(env);
    }
}

/// The running task gives the rest of its budget away.
pub(super) fn yielded(env: Env<'_>, rq: &mut Rq, id: EntityId) {
    server_mut(rq, id).yielded = true;
    update_curr(env, rq);
    rq.skip_clock = true;
}

/// It starts to run.
pub(super) fn set_next(rq: &mut Rq, id: EntityId) {
    let now = rq.clock;
    rq.entity_mut(id).exec_start = now;
}

/// With HRTICK_DL the budget of the running task ends by a timer.
pub(super) fn set_hrtick(env: Env<'_>, rq: &mut Rq) {
    if !env.t.has(Feature::HRTICK_DL) {
        return;
    }
    let Some(curr) = rq.curr_of(Class::Deadline).filter(|&curr| rq.dl.holds(curr)) else { return };
    rq.hrtick = true;
    let left = reclaim::time_left(env, rq, curr).max(HRTICK_LEAST);
    env.cx.push(Cmd::Arm(fair::hrtick_timer(rq.cpu), Ns(env.cx.now.0 + left)));
}

/// Accounts for `ticks` edges that were left out, the first one at `first`.
pub(super) fn charge_ticks(env: Env<'_>, rq: &mut Rq, first: u64, ticks: u64) {
    let now = rq.clock;
    for tick in 0..ticks {
        rq.clock = first + tick * env.cx.world.tick_ns.0;
        update_curr(env, rq);
    }
    rq.clock = rq.clock.max(now);
}

/// In how many ticks a tick could matter to the running `curr`.
pub(super) fn tick_due(env: Env<'_>, rq: &Rq, curr: EntityId) -> u64 {
    if !rq.dl.holds(curr) {
        return 1;
    }
    if env.t.version.rt_throttling && env.t.rt_runtime < env.t.rt_period {
        // Its time is taken from the RT tasks, who may want to know at any tick.
        if rq.rt_nr > 0 {
            return 1;
        }
    }
    rq.ticks_to(env, rq.entity(curr).exec_start.saturating_add(reclaim::time_left(env, rq, curr)))
}

/// Whether the most urgent task goes before the fair tasks that the fair server wants to run.
pub(super) fn before_server(rq: &Rq) -> bool {
    match rq.dl.first() {
        Some((until, _)) => !rq.fair_server.queued() || until <= rq.fair_server.deadline(),
        None => false,
    }
}

/// HRTICK_DL: the budget of the running task should be used up now.
pub(super) fn hrtick_fired(env: Env<'_>, rq: &mut Rq) {
    update_curr(env, rq);
    set_hrtick(env, rq);
}

/// What others may know of this CPU: the earliest deadline, and the earliest of those that wait and
/// may move.
pub(super) fn facts(rq: &Rq) -> (i64, i64) {
    let earliest = rq.dl.first().map_or(NEVER, |first| first.0);
    let curr = rq.curr;
    let waiting = rq.dl.queued().find(|&(_, id)| id != curr && !rq.entity(id).pinned);
    (earliest, if rq.dl.queue.len() > 1 { waiting.map_or(NEVER, |entry| entry.0) } else { NEVER })
}

/// Whether the running task belongs to this class and has left its queue (blocked, throttled).
pub(super) fn leaves(rq: &Rq) -> bool {
    rq.curr != NONE && rq.entity(rq.curr).class == Class::Deadline && !rq.dl.holds(rq.curr)
}
