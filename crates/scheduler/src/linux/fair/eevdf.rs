//! EEVDF: the running task is the one with the earliest virtual deadline among those that have not
//! had more than their share (6.6 and later; the rules here are those of 6.12.y, and
//! of 6.6, 6.17/6.18 and 7.2 where they differ).
//!
//! # Words
//! `V` is the weighted mean of the vruntimes of all queued and running entities of a queue. An
//! entity is *eligible* when its vruntime is not above `V`; its *lag*, `V - vruntime`, is what it
//! is owed. It *requests* a slice and gets a virtual deadline for it; when its vruntime reaches the
//! deadline, the request is fulfilled and the next one begins. The pick is the eligible entity with
//! the earliest deadline.
//!
//! # Worked example
//! Two hogs of nice 0, slice 0.7 ms, HZ=250. A runs from 0. At the tick of 4 ms its vruntime is 4
//! ms, beyond its deadline 0.7 ms: a new deadline, 4.7 ms, and a reschedule. `V` is 2 ms, so A is
//! not eligible; B (vruntime 0, deadline 0.7 ms) is, and runs. At 8 ms B is at 4 ms like A: both
//! are eligible, their deadlines are equal, and the one that waits wins. So they alternate every 4
//! ms, with slices of 0.7 or 2.8 ms alike.
//!
//! # Fidelity
//! | rule | in the kernel (kernel/sched/fair.c, 6.6 to 7.2) | here | shown by |
//! |---|---|---|---|
//! | eligibility, pick, ties | tree by deadline, least vruntime of subtrees | exact; sorted blocks | `pick_*` tests, oracle replay |
//! | slice, deadline, request fulfilled | `update_deadline` | exact | golden G10, G12; oracle |
//! | placing with lag, half a slice for new tasks, relative deadlines | `place_entity` | exact | `placing_keeps_the_lag` |
//! | clamping of saved lag: two slices or a tick; 6.19+: longest slice of the queue and a tick | `update_entity_lag` | exact | `lags_are_bounded`, `bounds_of_the_saved_lag_by_version` |
//! | delayed dequeue; waking a delayed task does not charge the running one | `requeue_delayed_entity` | exact | oracle replay |
//! | protection until the request is fulfilled, set at switch-in only | copy of the deadline (≤ 6.16), `vprot` (6.17+) | both | oracle replay; G22 |
//! | reschedule when unprotected and not eligible | `did_preempt_short` | exact | oracle replay |
//! | short slices break protection | PREEMPT_SHORT of both generations | exact | `a_short_slice_preempts` |
//! | clock of a preempting wakeup is reused | `rq_clock_skip_update` | in the run queue | oracle replay |
//! | reweight keeps the lag in real time | `reweight_entity` | lag exact; the kernel's inflation of a running entity's lag is left out | `reweighting_keeps_the_lag` |
//! | yield forfeits the rest of the request | `yield_task_fair` (late 6.12.y) | exact | `yield_forfeits_the_request` |
//! | buddies (NEXT_BUDDY off, PICK_BUDDY) | `yield_to`, cgroups | omitted | |
//! | a delayed task's lag does not grow, and the wakeup that finds it takes it off (7.1+) | `update_entity_lag`, `wakeup_preempt_fair` | exact | `the_lag_of_a_delayed_task_does_not_grow`, `a_delayed_task_does_not_stand_before_the_one_that_wakes` |
//! | lazy preemption (7.0+ always here): `schedule` refreshes the clock after a fair wakeup | `wakeup_preempt` | exact; waiting in the kernel is the machine's part (`preempt = "lazy"`) | `replayed_choices_of_7_2_stay_as_equal_as_they_were` |
//! | HRTICK of 7.1+: set at the switch and when others come, kept over `schedule`, cleared by idle | `hrtick_start_fair`, `hrtick_schedule_exit` | exact, but an RT task that it meets loses no tick of its RR slice | the same; `slices_of_7_2_end_by_hrtick` |
//! | group entities request the least slice of their members | `cfs_rq_min_slice` | exact | `a_group_requests_the_least_slice_of_its_members` |
//! | fair server | [`server`](super::server) | exact but for deadline tasks, whose part the RT class has | G17, G18 |

mod lag;
mod plain;
mod protection;
pub(in crate::linux) mod timeline;

#[cfg(test)]
mod tests;

use crate::linux::Env;
use crate::linux::core::rq::{Entity, EntityId, NONE, QueueId, ROOT, Rq};
use crate::linux::fair::weights::{Load, NICE_0};
use crate::linux::fair::{self, Dequeue, Enqueue, FairRules, matching};
use crate::linux::tunables::Tunables;
use crate::linux::version::Feature;
use lag::{
    average, depart_from, eligibility, eligible, join, lag_to_save, pass_slice_up, place, rebase,
    save_lag,
};
use protection::{cancel_protection, holds, is_protected, protection, shrink_protection};

/// Rules of EEVDF.
pub(in crate::linux) struct Eevdf;

impl FairRules for Eevdf {
    #[inline]
    fn update_curr(env: Env<'_>, rq: &mut Rq, queue: QueueId) {
        let now = rq.clock;
        charge(env, rq, queue, now);
    }

    fn update_curr_ticks(
        env: Env<'_>,
        rq: &mut Rq,
        queue: QueueId,
        first: u64,
        ticks: u64,
        tick_ns: u64,
    ) {
        // Each tick rounds its virtual time, and may fulfil a request, by itself.
        for tick in 0..ticks {
            charge(env, rq, queue, first + tick * tick_ns);
        }
    }

    #[inline]
    fn enqueue(env: Env<'_>, rq: &mut Rq, id: EntityId, why: Enqueue) {
        let queue = rq.entity(id).queue;
        let running = rq.queue(queue).curr == id;
        if running {
            place(env.t, rq, id, why);
        }
        Eevdf::update_curr(env, rq, queue);
        if !running {
            place(env.t, rq, id, why);
        }
        let (weight, idle) = (rq.entity(id).load.weight(), rq.entity(id).idle);
        let account = rq.queue_mut(queue);
        account.load.add(weight);
        account.nr += 1;
        account.idle_nr += u32::from(idle);
        rq.entity_mut(id).on_rq = true;
        if !running {
            join(rq, id);
        }
        pass_slice_up(rq, queue);
    }

    #[inline]
    fn dequeue(env: Env<'_>, rq: &mut Rq, id: EntityId, why: Dequeue) -> bool {
        let queue = rq.entity(id).queue;
        Eevdf::update_curr(env, rq, queue);
        let was_delayed = rq.entity(id).delayed;
        let may_delay = why == Dequeue::Sleep && !was_delayed && env.t.has(Feature::DELAY_DEQUEUE);
        if may_delay && !eligible(rq, id) {
            if env.t.version.keeps_delayed_lag() {
                save_lag(env, rq, id);
            }
            rq.entity_mut(id).delayed = true;
            return false;
        }
        save_lag(env, rq, id);
        if rq.queue(queue).curr != id {
            depart_from(rq, id);
        }
        let entity = rq.entity_mut(id);
        if why == Dequeue::Save && env.t.has(Feature::PLACE_REL_DEADLINE) {
            entity.deadline -= entity.vruntime;
            entity.rel_deadline = true;
        }
        entity.on_rq = false;
        entity.delayed = false;
        if was_delayed && env.t.has(Feature::DELAY_ZERO) {
            entity.vlag = entity.vlag.min(0);
        }
        let (weight, idle) = (entity.load.weight(), entity.idle);
        let account = rq.queue_mut(queue);
        account.load.sub(weight);
        account.nr -= 1;
        account.idle_nr -= u32::from(idle);
        pass_slice_up(rq, queue);
        true
    }

    #[inline]
    fn wake_delayed(env: Env<'_>, rq: &mut Rq, id: EntityId) {
        // Up to 6.18 the running entity is not charged first: V is that of the last account.
        if env.t.version.charges_at_delayed_wake() {
            let queue = rq.entity(id).queue;
            Eevdf::update_curr(env, rq, queue);
        }
        let zero = env.t.has(Feature::DELAY_ZERO);
        let moved = if env.t.version.keeps_delayed_lag() {
            let mean = average(rq, rq.entity(id).queue);
            let lag = lag_to_save(env, rq, id, mean);
            let lag = if zero { lag.min(0) } else { lag };
            let entity = rq.entity_mut(id);
            entity.vlag = lag;
            // Whether its place in the queue tells another one.
            mean - lag != entity.vruntime
        } else if zero {
            // Whether its lag is positive, without working it out.
            let entity = rq.entity(id);
            let behind = eligibility(rq, entity.queue)(entity.vruntime + 1);
            if behind {
                rq.entity_mut(id).vlag = 0;
            }
            behind
        } else {
            false
        };
        if moved {
            place_again(env, rq, id);
        }
        rq.entity_mut(id).delayed = false;
    }

    #[inline]
    fn pick(env: Env<'_>, rq: &mut Rq, queue: QueueId) -> Option<EntityId> {
        let best = choose(env.t, rq, queue, true);
        if rq.entity(best).delayed {
            fair::dequeue_delayed::<Eevdf>(env, rq, best);
            return None;
        }
        Some(best)
    }

    #[inline]
    fn set_next(env: Env<'_>, rq: &mut Rq, id: EntityId) {
        let queue = rq.entity(id).queue;
        if rq.entity(id).on_rq && rq.queue(queue).curr != id {
            depart_from(rq, id);
            rebase(rq, queue);
        }
        let now = rq.clock;
        let until = protection(env.t, rq, id);
        let entity = rq.entity_mut(id);
        entity.protect_until(until);
        entity.exec_start = now;
        rq.queue_mut(queue).curr = id;
    }

    #[inline]
    fn put_prev(env: Env<'_>, rq: &mut Rq, id: EntityId) {
        let queue = rq.entity(id).queue;
        let queued = rq.entity(id).on_rq;
        if queued {
            Eevdf::update_curr(env, rq, queue);
        }
        rq.queue_mut(queue).curr = NONE;
        if queued {
            join(rq, id);
        }
    }

    #[inline]
    fn tick(env: Env<'_>, rq: &mut Rq, id: EntityId) {
        let queue = rq.entity(id).queue;
        Eevdf::update_curr(env, rq, queue);
    }

    #[inline(always)]
    fn tick_at(env: Env<'_>, rq: &Rq, id: EntityId) -> u64 {
        let entity = rq.entity(id);
        let q = rq.queue(entity.queue);
        let server = if entity.owns == NONE { rq.fair_server.left() } else { None };
        // Run time, from the last account on, after which an account matters.
        let mut run = server.unwrap_or(u64::MAX);
        if q.nr >= 2 {
            // The vruntime at which it asks for a reschedule.
            let mut target = entity.deadline;
            if env.t.version.eevdf_slice_protection() {
                target = target.min(entity.protected_until());
            } else if entity.protected_until() != entity.deadline && q.avg_load > 0 {
                // Not eligible beyond the mean of the others.
                target = target.min(q.min_vruntime + q.avg_vruntime.div_euclid(q.avg_load) + 1);
            }
            let gap = (target - entity.vruntime).max(0) as u64;
            let real = gap.saturating_mul(entity.load.weight()) / 1024;
            // Virtual time is rounded; a tick too early does no harm.
            run = run.min(real - (real >> 12));
        }
        entity.exec_start.saturating_add(run)
    }

    #[inline]
    fn wakeup_preempt(env: Env<'_>, rq: &mut Rq, curr: EntityId, woken: EntityId, _new: bool) {
        if curr == woken || rq.need_resched || !env.t.has(Feature::WAKEUP_PREEMPTION) {
            return;
        }
        let (se, pse) = matching(rq, curr, woken);
        match (rq.entity(se).idle, rq.entity(pse).idle) {
            (true, false) => {
                if env.t.version.idle_loses_protection() {
                    cancel_protection(env.t, rq, se);
                }
                return rq.resched(env);
            }
            (false, true) => return,
            _ => {}
        }
        if !rq.entity(woken).normal {
            return;
        }
        let queue = rq.entity(se).queue;
        Eevdf::update_curr(env, rq, queue);
        let shorter =
            env.t.has(Feature::PREEMPT_SHORT) && rq.entity(pse).slice < rq.entity(se).slice;
        if env.t.version.eevdf_slice_protection() {
            return preempt_protected(env, rq, (se, pse), shorter);
        }
        let earlier = rq.entity(pse).deadline < rq.entity(se).deadline;
        if shorter && eligible(rq, pse) && (earlier || !eligible(rq, se)) {
            cancel_protection(env.t, rq, se);
        }
        if choose(env.t, rq, queue, true) == pse {
            rq.resched(env);
        }
    }

    fn yielded(env: Env<'_>, rq: &mut Rq, id: EntityId) {
        if rq.nr_running == 1 {
            return;
        }
        let queue = rq.entity(id).queue;
        Eevdf::update_curr(env, rq, queue);
        rq.skip_clock = true;
        if !env.t.version.yield_forfeits() {
            let entity = rq.entity_mut(id);
            entity.deadline += entity.load.virt(u64::from(entity.slice)) as i64;
        } else if eligible(rq, id) {
            let entity = rq.entity_mut(id);
            entity.vruntime = entity.deadline;
            entity.deadline += entity.load.virt(u64::from(entity.slice)) as i64;
        }
    }

    fn fork(env: Env<'_>, rq: &mut Rq, id: EntityId, _parent: Option<EntityId>) {
        let queue = rq.entity(id).queue;
        if rq.queue(queue).curr != NONE {
            Eevdf::update_curr(env, rq, queue);
        }
        let entity = rq.entity_mut(id);
        entity.vlag = 0;
        entity.rel_deadline = false;
        place(env.t, rq, id, Enqueue::New);
    }

    fn slice_left(_env: Env<'_>, rq: &Rq, id: EntityId) -> i64 {
        let entity = rq.entity(id);
        let left = entity.deadline - entity.vruntime;
        match entity.load.weight() {
            // Most tasks have this weight, and the others cost a division of 128 bits.
            NICE_0 => left,
            weight => (i128::from(left) * i128::from(weight) / i128::from(NICE_0)) as i64,
        }
    }

    fn reweight(env: Env<'_>, rq: &mut Rq, id: EntityId, load: Load) {
        let queue = rq.entity(id).queue;
        let old = rq.entity(id).load.weight();
        let queued = rq.entity(id).on_rq;
        let running = rq.queue(queue).curr == id;
        if queued {
            Eevdf::update_curr(env, rq, queue);
            save_lag(env, rq, id);
            if !running {
                depart_from(rq, id);
            }
            let entity = rq.entity_mut(id);
            entity.on_rq = false;
            entity.deadline -= entity.vruntime;
            entity.rel_deadline = true;
            let account = rq.queue_mut(queue);
            account.load.sub(old);
            account.nr -= 1;
        }
        let scaled = |value: i64| {
            (i128::from(value) * i128::from(old) / i128::from(load.weight().max(1))) as i64
        };
        let entity = rq.entity_mut(id);
        entity.vlag = scaled(entity.vlag);
        if entity.rel_deadline {
            entity.deadline = scaled(entity.deadline);
        }
        entity.load = load;
        if queued {
            let protected = rq.entity(id).protected_until();
            place(env.t, rq, id, Enqueue::Restore);
            let account = rq.queue_mut(queue);
            account.load.add(load.weight());
            account.nr += 1;
            rq.entity_mut(id).on_rq = true;
            rq.entity_mut(id).protect_until(protected);
            if !running {
                join(rq, id);
            }
        }
    }

    #[inline(always)]
    fn block_plain(env: Env<'_>, rq: &mut Rq, curr: EntityId) -> EntityId {
        plain::block(env, rq, curr)
    }

    #[inline(always)]
    fn change_plain(env: Env<'_>, rq: &mut Rq) -> EntityId {
        plain::change(env, rq)
    }

    #[inline(always)]
    fn enqueue_plain(env: Env<'_>, rq: &mut Rq, id: EntityId, why: Enqueue) {
        plain::enqueue(env, rq, id, why);
    }

    #[inline(always)]
    fn preempt_plain(env: Env<'_>, rq: &mut Rq, curr: EntityId, woken: EntityId, new: bool) {
        if plain::knows(env.t) {
            plain::preempt(env, rq, curr, woken);
        } else {
            Eevdf::wakeup_preempt(env, rq, curr, woken, new);
        }
    }

    fn standing(rq: &Rq, id: EntityId) -> crate::Standing {
        let entity = rq.entity(id);
        crate::Standing {
            behind: average(rq, entity.queue) - entity.vruntime,
            to_deadline: Some(entity.deadline - entity.vruntime),
        }
    }

    fn eligible(rq: &Rq, id: EntityId) -> bool {
        eligible(rq, id)
    }

    fn depart(_env: Env<'_>, _rq: &mut Rq, _id: EntityId) {
        // What an entity keeps while it is away (lag, relative deadline) belongs to no queue.
    }
}

/// Charges the running entity of `queue` up to `now`; asks for a reschedule when its request is
/// fulfilled, or when it runs unprotected and should not.
#[inline(always)]
fn charge(env: Env<'_>, rq: &mut Rq, queue: QueueId, now: u64) {
    let curr = rq.queue(queue).curr;
    // Mostly it was charged a moment ago.
    if curr != NONE && now > rq.entity(curr).exec_start {
        account(env, rq, queue, curr, now);
    }
}

/// As [`charge`] on the root queue of `curr`, which runs there; inline.
#[inline(always)]
fn charge_here(env: Env<'_>, rq: &mut Rq, curr: EntityId) {
    let now = rq.clock;
    if now > rq.entity(curr).exec_start {
        account(env, rq, ROOT, curr, now);
    }
}

/// What [`charge`] does when time has passed.
#[inline(always)]
fn account(env: Env<'_>, rq: &mut Rq, queue: QueueId, curr: EntityId, now: u64) {
    let entity = rq.entity_mut(curr);
    let delta = now - entity.exec_start;
    entity.exec_start = now;
    entity.add_exec(delta);
    entity.vruntime += entity.load.virt(delta) as i64;
    let fulfilled = renew(env.t, entity);
    let (task, protected) = (entity.owns == NONE, is_protected(env.t, entity));
    if task {
        rq.charge_fair_server(env, delta, now);
    }
    if rq.queue(queue).nr < 2 {
        return;
    }
    let unfit = || {
        env.t.version.eevdf_slice_protection()
            || (env.t.has(Feature::PREEMPT_SHORT) && !eligible(rq, curr))
    };
    if fulfilled || (!protected && unfit()) {
        rq.resched(env);
    }
}

/// A queued entity, whose lag was changed, goes to where that belongs, with a fresh deadline.
fn place_again(env: Env<'_>, rq: &mut Rq, id: EntityId) {
    let queue = rq.entity(id).queue;
    let running = rq.queue(queue).curr == id;
    if !running {
        depart_from(rq, id);
    }
    rq.entity_mut(id).on_rq = false;
    rq.queue_mut(queue).nr -= 1;
    place(env.t, rq, id, Enqueue::Wake);
    rq.queue_mut(queue).nr += 1;
    rq.entity_mut(id).on_rq = true;
    if !running {
        join(rq, id);
    }
}

/// Asks for a reschedule if `pse`, which was woken, should run in place of `se` (rules of 6.17+).
/// `shorter`: its request is.
fn preempt_protected(env: Env<'_>, rq: &mut Rq, (se, pse): (EntityId, EntityId), shorter: bool) {
    let queue = rq.entity(se).queue;
    let mut best = choose(env.t, rq, queue, !shorter);
    while env.t.version.wakeup_takes_delayed_off() && rq.entity(best).delayed {
        fair::dequeue_delayed::<Eevdf>(env, rq, best);
        best = choose(env.t, rq, queue, !shorter);
    }
    settle_preemption(env, rq, se, shorter, best == pse);
}

/// A task that was woken takes the CPU from `curr` if it `wins`. `shorter`: its request is.
#[inline(always)]
fn settle_preemption(env: Env<'_>, rq: &mut Rq, curr: EntityId, shorter: bool, wins: bool) {
    if wins {
        if shorter {
            cancel_protection(env.t, rq, curr);
        }
        rq.resched(env);
    } else if shorter && env.t.has(Feature::RUN_TO_PARITY) {
        shrink_protection(rq, curr);
    }
}

/// Begins the next request when the present one is fulfilled.
#[inline]
fn renew(t: &Tunables, entity: &mut Entity) -> bool {
    if entity.vruntime < entity.deadline {
        return false;
    }
    if !entity.custom_slice {
        entity.slice = t.base_slice;
    }
    entity.deadline = entity.vruntime + entity.load.virt(u64::from(entity.slice)) as i64;
    true
}

/// The entity that should run: the eligible one with the earliest deadline; on a tie the one that
/// waits. With `protect`, the running one as long as it is eligible and protected.
#[inline]
fn choose(t: &Tunables, rq: &Rq, queue: QueueId, protect: bool) -> EntityId {
    let q = rq.queue(queue);
    let curr = (q.curr != NONE && rq.entity(q.curr).on_rq).then_some(q.curr);
    let first = || q.timeline.first().map(|w| w.entity);
    if q.nr == 1 {
        return curr.or_else(first).expect("the one entity of a queue runs or waits");
    }
    let mean = average(rq, queue);
    let eligible = |vruntime| vruntime <= mean;
    let curr = curr.filter(|&curr| eligible(rq.entity(curr).vruntime));
    if let Some(curr) = curr
        && protect
        && holds(t, rq.entity(curr))
    {
        return curr;
    }
    match (q.timeline.first_eligible(mean), curr) {
        (Some(best), Some(curr)) if rq.entity(curr).deadline < best.deadline => curr,
        (Some(best), _) => best.entity,
        (None, Some(curr)) => curr,
        (None, None) => first().expect("a queue that is not empty has an eligible entity"),
    }
}
