//! `V`, eligibility and lag of one queue: joining, leaving, placing.

use super::timeline::Waiting;
use crate::linux::core::rq::{Entity, EntityId, NONE, QueueId, Rq};
use crate::linux::tunables::Tunables;
use crate::linux::version::Feature;
use crate::linux::{Env, fair::Enqueue};

/// Sum of `weight * (vruntime - base)` and sum of the weights, over all queued and running
/// entities.
#[inline]
pub(super) fn sums(rq: &Rq, queue: QueueId) -> (i64, i64) {
    let q = rq.queue(queue);
    let (mut sum, mut load) = (q.avg_vruntime, q.avg_load);
    if q.curr != NONE {
        let curr = rq.entity(q.curr);
        if curr.on_rq {
            let weight = curr.load.weight() as i64;
            sum += weight * (curr.vruntime - q.min_vruntime);
            load += weight;
        }
    }
    (sum, load)
}

/// `V` of the queue, rounded down. An entity is eligible exactly when its vruntime is not above
/// this.
#[inline]
pub(super) fn average(rq: &Rq, queue: QueueId) -> i64 {
    let (sum, load) = sums(rq, queue);
    mean(rq.queue(queue).min_vruntime, sum, load)
}

/// `base + sum / load`, rounded down; `base` when no task is there. (`load` is not negative, which
/// an ordinary division does not know.)
#[inline(always)]
pub(super) fn mean(base: i64, sum: i64, load: i64) -> i64 {
    let sign = sum >> 63;
    let quotient = (sum ^ sign) as u64 / (load as u64).max(1);
    base + (quotient as i64 ^ sign)
}

/// Tells for any vruntime whether an entity with it would be eligible, without division.
#[inline]
pub(super) fn eligibility(rq: &Rq, queue: QueueId) -> impl Fn(i64) -> bool + Copy + use<> {
    let (sum, load) = sums(rq, queue);
    let base = rq.queue(queue).min_vruntime;
    move |vruntime| i128::from(sum) >= i128::from(vruntime - base) * i128::from(load)
}

#[inline]
pub(super) fn eligible(rq: &Rq, id: EntityId) -> bool {
    let entity = rq.entity(id);
    eligibility(rq, entity.queue)(entity.vruntime)
}

/// Adds a queued entity to those that wait.
#[inline]
pub(super) fn join(rq: &mut Rq, id: EntityId) {
    let entity = rq.entity(id);
    let waiting = Waiting {
        deadline: entity.deadline,
        vruntime: entity.vruntime,
        slice: entity.slice,
        entity: id,
    };
    let (queue, weight, vruntime) = (entity.queue, entity.load.weight() as i64, entity.vruntime);
    let q = rq.queue_mut(queue);
    q.timeline.insert(waiting);
    q.avg_vruntime += weight * (vruntime - q.min_vruntime);
    q.avg_load += weight;
}

/// The opposite of [`join`].
#[inline]
pub(super) fn depart_from(rq: &mut Rq, id: EntityId) {
    let entity = rq.entity(id);
    let (queue, weight) = (entity.queue, entity.load.weight() as i64);
    let (vruntime, deadline) = (entity.vruntime, entity.deadline);
    let q = rq.queue_mut(queue);
    let found = q.timeline.remove(deadline, id);
    assert!(found, "a waiting entity is in its queue's timeline under its deadline");
    q.avg_vruntime -= weight * (vruntime - q.min_vruntime);
    q.avg_load -= weight;
}

/// Beyond this the sums get a new base: far from overflow for the largest weight (2^18), and
/// seconds of virtual time from one time to the next.
const LARGE_SUM: u64 = 1 << 44;

/// Moves the base of the sums to the mean of those that wait when they are large. `V` does not
/// change.
#[inline]
pub(super) fn rebase(rq: &mut Rq, queue: QueueId) {
    let q = rq.queue_mut(queue);
    if q.avg_vruntime.unsigned_abs() > LARGE_SUM && q.avg_load > 0 {
        let step = q.avg_vruntime.div_euclid(q.avg_load);
        q.avg_vruntime -= step * q.avg_load;
        q.min_vruntime += step;
    }
}

/// Gives an entity that joins the queue its vruntime and deadline: its lag afterwards is what it
/// was when it left.
#[inline]
pub(super) fn place(t: &Tunables, rq: &mut Rq, id: EntityId, why: Enqueue) {
    let queue = rq.entity(id).queue;
    let mean = average(rq, queue);
    let q = rq.queue(queue);
    let mut others = q.avg_load;
    if q.curr != NONE && q.curr != id && rq.entity(q.curr).on_rq {
        others += rq.entity(q.curr).load.weight() as i64;
    }
    let alone = q.nr == 0;
    position(t, rq.entity_mut(id), why, mean, others, alone);
}

/// The same when the mean, the weight of the others, and whether there are none, are known.
#[inline]
pub(super) fn position(
    t: &Tunables,
    entity: &mut Entity,
    why: Enqueue,
    mean: i64,
    others: i64,
    alone: bool,
) {
    if !entity.custom_slice {
        entity.slice = t.base_slice;
    }
    let mut request = entity.load.virt(u64::from(entity.slice)) as i64;
    let mut lag = 0;
    if t.has(Feature::PLACE_LAG) && !alone && entity.vlag != 0 {
        // Joining pulls V towards the entity; scaled up like this its lag comes out as it was.
        let all = others + entity.load.weight() as i64;
        lag = match entity.vlag.checked_mul(all) {
            Some(sum) => sum / others.max(1),
            None => (i128::from(entity.vlag) * i128::from(all) / i128::from(others.max(1))) as i64,
        };
    }
    entity.vruntime = mean - lag;
    if entity.rel_deadline && t.has(Feature::PLACE_REL_DEADLINE) {
        entity.deadline += entity.vruntime;
        entity.rel_deadline = false;
        return;
    }
    if why == Enqueue::New && t.has(Feature::PLACE_DEADLINE_INITIAL) {
        request /= 2;
    }
    entity.rel_deadline = false;
    entity.deadline = entity.vruntime + request;
}

/// A group's entity requests the least slice of its members, on every level.
#[inline]
pub(super) fn pass_slice_up(rq: &mut Rq, queue: QueueId) {
    if rq.queue(queue).owner != NONE {
        pass_slice_above(rq, queue);
    }
}

fn pass_slice_above(rq: &mut Rq, mut queue: QueueId) {
    loop {
        let q = rq.queue(queue);
        let (owner, mut least) = (q.owner, q.timeline.min_slice());
        if owner == NONE {
            return;
        }
        if q.curr != NONE && rq.entity(q.curr).on_rq {
            least = least.min(rq.entity(q.curr).slice);
        }
        let empty = least == u32::MAX;
        let entity = rq.entity_mut(owner);
        if empty || (entity.custom_slice && entity.slice == least) {
            return;
        }
        (entity.slice, entity.custom_slice) = (least, true);
        let (deadline, queued) = (entity.deadline, entity.on_rq);
        queue = entity.queue;
        let above = rq.queue_mut(queue);
        if queued && above.curr != owner {
            above.timeline.set_slice(deadline, owner, least);
        }
    }
}

/// Saves what an entity that leaves is owed, within bounds: two requests, or a tick.
#[inline]
pub(super) fn save_lag(env: Env<'_>, rq: &mut Rq, id: EntityId) {
    let mean = average(rq, rq.entity(id).queue);
    rq.entity_mut(id).vlag = lag_to_save(env, rq, id, mean);
}

/// The lag that [`save_lag`] saves when the mean is `mean`.
#[inline(always)]
pub(super) fn lag_to_save(env: Env<'_>, rq: &mut Rq, id: EntityId, mean: i64) -> i64 {
    if env.t.version.bounds_lag_by_longest() {
        bounded_by_longest(env, rq, id, mean)
    } else {
        clamped_lag(env, rq.entity_mut(id), mean)
    }
}

/// The same by the rules of 6.19 and later.
fn bounded_by_longest(env: Env<'_>, rq: &mut Rq, id: EntityId, mean: i64) -> i64 {
    let longest = longest_request(rq, rq.entity(id).queue);
    let entity = rq.entity_mut(id);
    let mut lag = if longest > 0 {
        let limit = entity.load.virt(longest + env.cx.world.tick_ns.0) as i64;
        (mean - entity.vruntime).clamp(-limit, limit)
    } else {
        clamped_lag(env, entity, mean)
    };
    if entity.delayed && env.t.version.keeps_delayed_lag() {
        lag = lag.max(entity.vlag);
    }
    lag
}

/// The longest request of those queued, ns.
fn longest_request(rq: &Rq, queue: QueueId) -> u64 {
    let q = rq.queue(queue);
    let waiting = q.timeline.max_slice();
    let running =
        if q.curr != NONE && rq.entity(q.curr).on_rq { rq.entity(q.curr).slice } else { 0 };
    u64::from(waiting.max(running))
}

/// What an entity is owed when the mean is `mean`, within the same bounds.
#[inline]
fn clamped_lag(env: Env<'_>, entity: &mut Entity, mean: i64) -> i64 {
    let tick = env.cx.world.tick_ns.0;
    let limit = entity.load.virt((2 * u64::from(entity.slice)).max(tick)) as i64;
    (mean - entity.vruntime).clamp(-limit, limit)
}
