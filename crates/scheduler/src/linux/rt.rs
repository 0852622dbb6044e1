//! The RT class: FIFO and RR, and its throttling.
//!
//! # Worked example
//! One FIFO hog and one fair hog, HZ=250, 6.1. RT tasks may use 950 ms of each period of 1 s. At
//! the tick of 952 ms (the first at which the time used is *more* than 950 ms) RT is throttled and
//! the fair hog runs until the period ends at 1000 ms. 952 − 950 = 2 ms are carried over, so the
//! next throttling is due after 948 ms; there the time used is 950 ms to the nanosecond or a little
//! less, so it is 952 again when nothing costs anything, and from then on 948 and 952 alternate
//! (measured: 947.7 and 951.7). Test: `rt_throttling_alternates`.
//!
//! # Fidelity
//! | rule | real place (6.1, `kernel/sched/rt.c`) | here | test |
//! |---|---|---|---|
//! | lists by priority, first in first out; the running task stays in its list | `rt_prio_array` | modelled | `the_best_rt_tasks_run` |
//! | RR slice in ticks, tail when it is used up and others wait | `task_tick_rt` | modelled | `round_robin_takes_turns_of_100_ms` |
//! | yield to the tail; a lowered priority to the head | `yield_task_rt`, `__sched_setscheduler` | modelled | `no_task_is_lost_in_6_1` |
//! | throttling: noticed at ticks and switches, overrun carried over | `sched_rt_runtime_exceeded`, `do_sched_rt_period_timer` | modelled | `rt_throttling_alternates` |
//! | period grid: from the first RT task after a quiet period | `start_rt_bandwidth` | modelled | `golden_values_of_real_time` |
//! | RT_RUNTIME_SHARE | `do_balance_runtime` | modelled; a CPU that goes offline does not give back | `rt_time_is_borrowed_from_other_cpus` |
//! | a wakeup while throttled still asks for `schedule` | `check_preempt_curr` | modelled | oracle replay (`rt_mix`) |
//! | several CPUs | push and pull | see [`balance`] | |
//! | RT_GROUP_SCHED | `rt_bandwidth` of groups | omitted: RT tasks are not limited by their group | |

pub(super) mod balance;
pub(super) mod period;

use crate::Cmd;
use crate::linux::Env;
use crate::linux::core::rq::{Class, EntityId, Rq};
use crate::linux::version::Feature;
use schedlab_model::{Policy, TaskId};
use std::collections::VecDeque;

/// RT tasks of one CPU: a list for each priority 1 … 99 and a bitmap. The running task stays in its
/// list.
pub(super) struct RtQueue {
    lists: Vec<VecDeque<EntityId>>,
    /// Bit by priority: its list has tasks. (Not a `u128`, whose alignment would move the run queue
    /// behind its lock.)
    occupied: [u64; 2],
    /// RT run time in the present period, ns; overruns are carried over.
    pub(super) time: u64,
    /// No RT task may run.
    pub(super) throttled: bool,
}

/// What [`period_step`] left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PeriodStep {
    /// Nothing to watch on this CPU.
    pub(super) idle: bool,
}

impl RtQueue {
    pub(super) fn new() -> RtQueue {
        RtQueue {
            lists: (0..100).map(|_| VecDeque::new()).collect(),
            occupied: [0; 2],
            time: 0,
            throttled: false,
        }
    }
    /// Best priority queued, 0 = none.
    #[inline]
    pub(super) fn best(&self) -> u8 {
        highest(self.occupied)
    }
    fn push(&mut self, priority: u8, entity: EntityId, head: bool) {
        let list = &mut self.lists[usize::from(priority)];
        if head {
            list.push_front(entity)
        } else {
            list.push_back(entity)
        }
        self.occupied[usize::from(priority / 64)] |= 1 << (priority % 64);
    }
    fn remove(&mut self, priority: u8, entity: EntityId) {
        let list = &mut self.lists[usize::from(priority)];
        if let Some(at) = list.iter().position(|&e| e == entity) {
            list.remove(at);
        }
        if list.is_empty() {
            self.occupied[usize::from(priority / 64)] &= !(1 << (priority % 64));
        }
    }
    /// All entities, best priority first, within a priority first to run first. Empty lists are
    /// not looked at: this is asked at every change of a CPU with RT tasks.
    pub(super) fn waiting(&self) -> impl Iterator<Item = EntityId> {
        let mut left = self.occupied;
        let priorities = std::iter::from_fn(move || {
            let best = (left != [0; 2]).then(|| highest(left))?;
            left[usize::from(best / 64)] &= !(1 << (best % 64));
            Some(best)
        });
        priorities.flat_map(|priority| self.list(priority).iter().copied())
    }
    /// Entities of one priority, first to run first.
    pub(super) fn list(&self, priority: u8) -> &VecDeque<EntityId> {
        &self.lists[usize::from(priority)]
    }
}

/// The highest of these priorities, 0 = none.
#[inline]
fn highest(priorities: [u64; 2]) -> u8 {
    match priorities {
        [0, 0] => 0,
        [low, 0] => low.ilog2() as u8,
        [_, high] => 64 + high.ilog2() as u8,
    }
}

/// Whether an RT task may run.
#[inline]
pub(super) fn runnable(rq: &Rq) -> bool {
    rq.rt_nr > 0 && !rq.rt.throttled
}

/// Enqueues at the tail of its priority's list (`head`: at the head).
pub(super) fn enqueue(env: Env<'_>, rq: &mut Rq, id: EntityId, head: bool) {
    let entity = rq.entity_mut(id);
    entity.on_rq = true;
    let (priority, task) = (entity.rt_priority, TaskId(entity.task));
    rq.rt.push(priority, id, head);
    rq.rt_nr += 1;
    if rq.rt.throttled {
        env.cx.push(Cmd::Throttled(task));
    } else {
        rq.nr_running += 1;
    }
}

/// Dequeues.
pub(super) fn dequeue(env: Env<'_>, rq: &mut Rq, id: EntityId) {
    update_curr(env, rq);
    let entity = rq.entity_mut(id);
    entity.on_rq = false;
    let (priority, task) = (entity.rt_priority, TaskId(entity.task));
    rq.rt.remove(priority, id);
    rq.rt_nr -= 1;
    if rq.rt.throttled {
        env.cx.push(Cmd::Unthrottled(task));
    } else {
        rq.nr_running -= 1;
    }
}

/// The RT task to run; the caller has checked [`runnable`].
pub(super) fn pick(rq: &Rq) -> Option<EntityId> {
    rq.rt.list(rq.rt.best()).front().copied()
}

/// An RT task starts to run.
pub(super) fn set_next(rq: &mut Rq, id: EntityId) {
    let now = rq.clock;
    rq.entity_mut(id).exec_start = now;
}

/// Charges the running RT task, and throttles when the CPU's RT time is used up.
pub(super) fn update_curr(env: Env<'_>, rq: &mut Rq) {
    let Some(curr) = rq.curr_of(Class::Rt) else { return };
    let now = rq.clock;
    let entity = rq.entity_mut(curr);
    let delta = now.saturating_sub(entity.exec_start);
    if delta == 0 {
        return;
    }
    entity.exec_start = now;
    if env.t.rt_runtime == u64::MAX || !env.t.version.rt_throttling {
        return;
    }
    rq.rt.time += delta;
    let budget = &env.budgets[rq.cpu.index()];
    budget.set_time(rq.rt.time);
    if !rq.rt.throttled && budget.runtime() < env.t.rt_period && rq.rt.time > budget.runtime() {
        if env.t.has(Feature::RT_RUNTIME_SHARE) {
            period::borrow(env, rq.cpu);
        }
        if rq.rt.time > budget.runtime() {
            throttle(env, rq);
        }
    }
    if rq.rt.throttled {
        rq.resched(env);
    }
}

/// Deadline tasks use up RT run time too (until 6.11), but are not throttled by it.
pub(super) fn charge_deadline(env: Env<'_>, rq: &mut Rq, delta: u64) {
    if env.t.rt_runtime == u64::MAX || !env.t.version.rt_throttling {
        return;
    }
    let budget = &env.budgets[rq.cpu.index()];
    if rq.rt_nr > 0 || rq.rt.time < budget.runtime() {
        rq.rt.time += delta;
        budget.set_time(rq.rt.time);
    }
}

fn throttle(env: Env<'_>, rq: &mut Rq) {
    rq.rt.throttled = true;
    rq.nr_running -= rq.rt_nr;
    tell(env, rq, Cmd::Throttled);
}

/// Tells the driver about every RT task of this CPU.
fn tell(env: Env<'_>, rq: &Rq, what: fn(TaskId) -> Cmd) {
    for list in &rq.rt.lists {
        list.iter().for_each(|&id| env.cx.push(what(TaskId(rq.entity(id).task))));
    }
}

/// The period timer, after `periods` periods: pays back, and unthrottles.
pub(super) fn period_step(env: Env<'_>, rq: &mut Rq, periods: u64) -> PeriodStep {
    let mut kick = false;
    let budget = &env.budgets[rq.cpu.index()];
    if rq.rt.time > 0 {
        if rq.rt.throttled && env.t.has(Feature::RT_RUNTIME_SHARE) && rq.rt.time > budget.runtime()
        {
            period::borrow(env, rq.cpu);
        }
        rq.rt.time = rq.rt.time.saturating_sub(budget.runtime().saturating_mul(periods));
        budget.set_time(rq.rt.time);
        if rq.rt.throttled && rq.rt.time < budget.runtime() {
            rq.rt.throttled = false;
            rq.nr_running += rq.rt_nr;
            tell(env, rq, Cmd::Unthrottled);
            kick = rq.rt_nr > 0;
        }
    }
    let better = match rq.curr_of(Class::Rt) {
        Some(curr) => rq.rt.best() > rq.entity(curr).rt_priority,
        None => true,
    };
    if kick && better {
        rq.resched(env);
    }
    PeriodStep { idle: rq.rt.time == 0 && rq.rt_nr == 0 }
}

/// A tick while `curr` runs: charges it; RR counts its slice down and goes to the tail when it is
/// used up.
pub(super) fn tick(env: Env<'_>, rq: &mut Rq, curr: EntityId) {
    update_curr(env, rq);
    let counted = counted_now(env, rq);
    rq.counted_early = false;
    let entity = rq.entity_mut(curr);
    if !matches!(entity.policy, Policy::Rr(_)) {
        return;
    }
    // An edge that was counted as left out has been taken off already (and, if it was the last one,
    // a new slice given): what is left to do is what happens at the end of a slice.
    let ended = if counted { entity.rr_ticks == slice_ticks(env) } else { entity.rr_ticks <= 1 };
    if !counted {
        entity.rr_ticks = entity.rr_ticks.saturating_sub(1);
    }
    if !ended {
        return;
    }
    entity.rr_ticks = slice_ticks(env);
    let priority = entity.rt_priority;
    if rq.rt.list(priority).len() > 1 {
        requeue(rq, curr, false);
        rq.resched(env);
    }
}

/// The edge of this very instant was accounted for as left out.
#[inline]
fn counted_now(env: Env<'_>, rq: &Rq) -> bool {
    rq.counted_early && env.cx.world.tick_edge(rq.cpu, rq.ticks_done) == env.cx.now
}

/// Accounts for `ticks` edges that were left out, the last one at `last`.
pub(super) fn charge_ticks(env: Env<'_>, rq: &mut Rq, curr: EntityId, ticks: u64, last: u64) {
    let full = u64::from(slice_ticks(env));
    let entity = rq.entity_mut(curr);
    if matches!(entity.policy, Policy::Rr(_)) {
        let left = u64::from(entity.rr_ticks.max(1));
        let left = if ticks < left { left - ticks } else { full - (ticks - left) % full };
        entity.rr_ticks = left as u32;
    }
    let now = std::mem::replace(&mut rq.clock, last);
    update_curr(env, rq);
    rq.clock = now;
}

/// In how many ticks a tick could matter to the running `curr`.
pub(super) fn tick_due(env: Env<'_>, rq: &Rq, curr: EntityId) -> u64 {
    let entity = rq.entity(curr);
    let mut due = u64::MAX;
    let others = rq.rt.list(entity.rt_priority).len() > 1;
    if matches!(entity.policy, Policy::Rr(_))
        && others
        && counted_now(env, rq)
        && entity.rr_ticks == slice_ticks(env)
    {
        // Its slice ended in this instant, and the other came since: the tick that is still to come
        // matters.
        return 1;
    }
    if matches!(entity.policy, Policy::Rr(_)) && rq.rt.list(entity.rt_priority).len() > 1 {
        due = u64::from(entity.rr_ticks).saturating_sub(rq.ticks_missed(env)).max(1);
    }
    let runtime = env.budgets[rq.cpu.index()].runtime();
    if env.t.version.rt_throttling
        && env.t.rt_runtime < env.t.rt_period
        && env.t.has(Feature::RT_RUNTIME_SHARE)
    {
        // Others read how much is used here, and may take from it at any time, also when it is a
        // whole period by now.
        return 1;
    }
    if env.t.version.rt_throttling && runtime < env.t.rt_period {
        let left = (runtime + 1).saturating_sub(rq.rt.time);
        due = due.min(rq.ticks_to(env, entity.exec_start + left));
    }
    due
}

/// Length of an RR slice in ticks, at least 1.
pub(super) fn slice_ticks(env: Env<'_>) -> u32 {
    (env.t.rr_slice_ms * u64::from(env.cx.world.hz)).div_ceil(1_000).max(1) as u32
}

/// To the tail (or head) of its list.
pub(super) fn requeue(rq: &mut Rq, id: EntityId, head: bool) {
    let priority = rq.entity(id).rt_priority;
    rq.rt.remove(priority, id);
    rq.rt.push(priority, id, head);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_priority_waits_first_and_within_it_the_head() {
        let mut queue = RtQueue::new();
        assert_eq!((queue.best(), queue.waiting().count()), (0, 0));
        for (entity, priority) in [(0, 1), (1, 99), (2, 64), (3, 63), (4, 64), (5, 50)] {
            queue.push(priority, entity, false);
        }
        queue.push(63, 6, true);
        assert_eq!(queue.best(), 99);
        assert_eq!(queue.waiting().collect::<Vec<_>>(), [1, 2, 4, 6, 3, 5, 0]);
        for (entity, priority) in [(1, 99), (2, 64), (4, 64), (0, 1)] {
            queue.remove(priority, entity);
        }
        assert_eq!(queue.best(), 63);
        assert_eq!(queue.waiting().collect::<Vec<_>>(), [6, 3, 5]);
    }
}
