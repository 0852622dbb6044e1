//! EEVDF on the root queue in the common case (see [`crate::linux::core::plain`]): sleeping and
//! waking with each sum worked out once. The rules are those of the parent module, which is asked
//! whenever something is unusual.

use super::lag::{lag_to_save, mean, position, rebase};
use super::protection::{cancel_protection, holds, is_protected, protection_of};
use super::timeline::{TimelinePosition, Waiting};
use super::{Eevdf, FairRules, charge, charge_here, preempt_protected, settle_preemption};
use crate::linux::core::plain::{change_by_steps, pick_plain};
use crate::linux::core::rq::{Entity, EntityId, NONE, Queue, ROOT, Rq};
use crate::linux::tunables::Tunables;
use crate::linux::version::Feature;
use crate::linux::{Env, fair::Enqueue};

/// Sums over the queue as [`super::lag::sums`] gives them, and their base.
#[derive(Clone, Copy)]
struct Sums {
    base: i64,
    sum: i64,
    load: i64,
}

impl Sums {
    /// Of those that wait, and of `running` if it is queued.
    #[inline(always)]
    fn of_queue(q: &Queue, running: Option<&Entity>) -> Sums {
        let sums = Sums { base: q.min_vruntime, sum: q.avg_vruntime, load: q.avg_load };
        match running {
            Some(entity) if entity.on_rq => sums.with(entity),
            _ => sums,
        }
    }
    #[inline(always)]
    fn with(self, entity: &Entity) -> Sums {
        let weight = entity.load.weight() as i64;
        Sums {
            sum: self.sum + weight * (entity.vruntime - self.base),
            load: self.load + weight,
            ..self
        }
    }
    /// `V`, rounded down: who is not beyond it is eligible.
    #[inline(always)]
    fn mean(self) -> i64 {
        mean(self.base, self.sum, self.load)
    }
    /// Whether `vruntime` is not beyond [`mean`](Self::mean). No unpredictable branch has to wait
    /// for a division.
    #[inline(always)]
    fn reach(self, vruntime: i64) -> bool {
        i128::from(vruntime - self.base) * i128::from(self.load.max(1)) <= i128::from(self.sum)
    }
}

/// The running task `curr` blocks; switches the queue over to who runs next, and gives that or
/// [`NONE`].
#[inline]
pub(super) fn block(env: Env<'_>, rq: &mut Rq, curr: EntityId) -> EntityId {
    charge_here(env, rq, curr);
    let (entities, q) = rq.root();
    let entity = &entities[curr as usize];
    let sums = Sums::of_queue(q, Some(entity));
    let mut mean = sums.mean();
    let delays = env.t.has(Feature::DELAY_DEQUEUE) && !sums.reach(entity.vruntime);
    if delays {
        if env.t.version.keeps_delayed_lag() {
            rq.entity_mut(curr).vlag = lag_to_save(env, rq, curr, mean);
        }
        rq.entity_mut(curr).delayed = true;
        rq.delayed += 1;
    } else {
        let lag = lag_to_save(env, rq, curr, mean);
        let (entities, q) = rq.root();
        let entity = &mut entities[curr as usize];
        entity.vlag = lag;
        entity.on_rq = false;
        uncount(q, entity);
        mean = Sums::of_queue(q, None).mean();
        rq.nr_running -= 1;
    }
    let (entities, q) = rq.root();
    if q.nr == 0 {
        q.curr = NONE;
        rq.stop_fair_server(env);
        return NONE;
    }
    match q.timeline.find(mean) {
        Some((place, best)) if entities[best.entity as usize].delayed => {
            block_past_delayed(env, rq, curr, (place, best.entity), mean)
        }
        Some((place, best)) => take_over(env, rq, curr, place, best.entity),
        None => block_unusual(env, rq, curr),
    }
}

/// The rest of [`block`] when the best is delayed: it leaves the queue, and so on until the best is
/// not.
#[inline(never)]
fn block_past_delayed(
    env: Env<'_>,
    rq: &mut Rq,
    curr: EntityId,
    (mut place, mut best): (TimelinePosition, EntityId),
    mut mean: i64,
) -> EntityId {
    loop {
        leave_delayed(env, rq, place, best, mean);
        let (entities, q) = rq.root();
        if q.nr == 0 {
            q.curr = NONE;
            rq.stop_fair_server(env);
            return NONE;
        }
        let running = &entities[curr as usize];
        mean = Sums::of_queue(q, Some(running)).mean();
        if running.on_rq && running.vruntime <= mean {
            // It is delayed itself, and in the running again now that V is a later one.
            return block_unusual(env, rq, curr);
        }
        match q.timeline.find(mean) {
            None => return block_unusual(env, rq, curr),
            Some((at, next)) if entities[next.entity as usize].delayed => {
                (place, best) = (at, next.entity)
            }
            Some((at, next)) => return take_over(env, rq, curr, at, next.entity),
        }
    }
}

/// The delayed entity `id`, which waits at `place`, leaves the root queue; V is `mean`.
#[inline(always)]
fn leave_delayed(env: Env<'_>, rq: &mut Rq, place: TimelinePosition, id: EntityId, mean: i64) {
    let lag = lag_to_save(env, rq, id, mean);
    let (entities, q) = rq.root();
    let entity = &mut entities[id as usize];
    entity.vlag = if env.t.has(Feature::DELAY_ZERO) { lag.min(0) } else { lag };
    entity.on_rq = false;
    entity.delayed = false;
    q.timeline.take(place);
    take_from_sums(q, entity);
    uncount(q, entity);
    rq.nr_running -= 1;
    rq.delayed -= 1;
}

/// The running task goes on or gives way, or nothing ran; switches the queue over to who runs next,
/// and gives that or [`NONE`].
#[inline(never)]
pub(super) fn change(env: Env<'_>, rq: &mut Rq) -> EntityId {
    let curr = rq.curr;
    if curr != NONE {
        charge_here(env, rq, curr);
    }
    let (entities, q) = rq.root();
    if q.nr == 0 {
        return NONE;
    }
    let running = entities.get(curr as usize);
    let sums = Sums::of_queue(q, running);
    let rival = running.filter(|entity| entity.on_rq && sums.reach(entity.vruntime));
    if rival.is_some_and(|entity| q.nr == 1 || holds(env.t, entity)) {
        return curr;
    }
    let mean = sums.mean();
    match q.timeline.find(mean) {
        Some((_, best)) if rival.is_some_and(|rival| rival.deadline < best.deadline) => curr,
        Some((place, best)) if !entities[best.entity as usize].delayed => {
            take_over(env, rq, curr, place, best.entity)
        }
        _ => change_by_steps::<Eevdf>(env, rq),
    }
}

/// The running entity, if any, gives way to the one that waits at `place`, which is `next`.
#[inline(always)]
fn take_over(
    env: Env<'_>,
    rq: &mut Rq,
    prev: EntityId,
    place: TimelinePosition,
    next: EntityId,
) -> EntityId {
    let clock = rq.clock;
    let (entities, q) = rq.root();
    match entities.get(prev as usize) {
        Some(entity) if entity.on_rq => {
            q.timeline.exchange(place, waiting(entity, prev));
            add_to_sums(q, entity);
        }
        _ => q.timeline.take(place),
    }
    let entity = &entities[next as usize];
    take_from_sums(q, entity);
    q.curr = next;
    let until = protection_of(env.t, q, &entities[next as usize]);
    let entity = &mut entities[next as usize];
    entity.protect_until(until);
    entity.exec_start = clock;
    rebase(rq, ROOT);
    next
}

/// The rest of [`block`] when none is eligible, or the one that blocks may be the best.
#[inline(never)]
fn block_unusual(env: Env<'_>, rq: &mut Rq, curr: EntityId) -> EntityId {
    let next = pick_plain::<Eevdf>(env, rq);
    Eevdf::put_prev(env, rq, curr);
    if next != NONE {
        Eevdf::set_next(env, rq, next);
    }
    next
}

/// Adds a queued entity to those that wait in the root queue.
#[inline(always)]
fn join_root(q: &mut Queue, entity: &Entity, id: EntityId) {
    q.timeline.insert(waiting(entity, id));
    add_to_sums(q, entity);
}

/// As it is in the timeline.
#[inline(always)]
fn waiting(entity: &Entity, id: EntityId) -> Waiting {
    Waiting {
        deadline: entity.deadline,
        vruntime: entity.vruntime,
        slice: entity.slice,
        entity: id,
    }
}

/// A waiting entity counts in the sums.
#[inline(always)]
fn add_to_sums(q: &mut Queue, entity: &Entity) {
    let weight = entity.load.weight() as i64;
    q.avg_vruntime += weight * (entity.vruntime - q.min_vruntime);
    q.avg_load += weight;
}

/// It does no more.
#[inline(always)]
fn take_from_sums(q: &mut Queue, entity: &Entity) {
    let weight = entity.load.weight() as i64;
    q.avg_vruntime -= weight * (entity.vruntime - q.min_vruntime);
    q.avg_load -= weight;
}

/// A task is neither queued on the root queue nor runs there any more.
#[inline(always)]
fn uncount(q: &mut Queue, entity: &Entity) {
    let idle = u32::from(entity.idle);
    q.load.sub(entity.load.weight());
    q.nr -= 1;
    q.h_nr -= 1;
    q.idle_nr -= idle;
    q.idle_h_nr -= idle;
}

/// Puts a task that does not run onto the root queue, without counting it in `h_nr`.
#[inline(always)]
pub(super) fn enqueue(env: Env<'_>, rq: &mut Rq, id: EntityId, why: Enqueue) {
    let curr = rq.queue(ROOT).curr;
    if curr != NONE {
        charge_here(env, rq, curr);
    }
    let (entities, q) = rq.root();
    let running = if q.curr == NONE { None } else { Some(&entities[q.curr as usize]) };
    let sums = Sums::of_queue(q, running);
    let (mean, alone) = (sums.mean(), q.nr == 0);
    let entity = &mut entities[id as usize];
    position(env.t, entity, why, mean, sums.load, alone);
    entity.on_rq = true;
    let (weight, idle) = (entity.load.weight(), u32::from(entity.idle));
    q.load.add(weight);
    q.nr += 1;
    q.idle_nr += idle;
    join_root(q, &entities[id as usize], id);
}

/// `woken` became runnable while `curr` runs: asks for a reschedule if it should preempt (rules
/// of 6.17+).
#[inline(always)]
pub(super) fn preempt(env: Env<'_>, rq: &mut Rq, curr: EntityId, woken: EntityId) {
    if curr == woken || rq.need_resched || !env.t.has(Feature::WAKEUP_PREEMPTION) {
        return;
    }
    let (se, pse) = (rq.entity(curr), rq.entity(woken));
    if se.idle != pse.idle || !pse.normal {
        if se.idle && !pse.idle {
            cancel_protection(env.t, rq, curr);
            rq.resched(env);
        }
        return;
    }
    let clock = rq.clock;
    charge(env, rq, ROOT, clock);
    let (entities, q) = rq.root();
    let (se, pse) = (&entities[curr as usize], &entities[woken as usize]);
    let shorter = env.t.has(Feature::PREEMPT_SHORT) && pse.slice < se.slice;
    let sums = Sums::of_queue(q, Some(se));
    let rival = se.on_rq & sums.reach(se.vruntime);
    let protected = !shorter & is_protected(env.t, se);
    if env.t.version.wakeup_takes_delayed_off() && !(rival & protected) {
        return preempt_past_delayed(env, rq, (curr, woken), shorter);
    }
    // Before all others are looked at: the running one goes on whatever they are. One branch, since
    // none of this can be foreseen.
    let goes_on = protected | (se.deadline < pse.deadline);
    // One that is beyond V never wins: another task is not.
    let may_win = sums.reach(pse.vruntime) & !(rival & goes_on);
    let wins = may_win && {
        let mean = sums.mean();
        q.timeline.find(mean).is_some_and(|(_, best)| best.entity == woken)
    };
    settle_preemption(env, rq, curr, shorter, wins);
}

/// The rest of [`preempt`] by the rules of 7.1 and later, where the running one is not protected:
/// delayed ones that should run are taken off.
#[inline(never)]
fn preempt_past_delayed(
    env: Env<'_>,
    rq: &mut Rq,
    (curr, woken): (EntityId, EntityId),
    shorter: bool,
) {
    let (entities, q) = rq.root();
    let running = &entities[curr as usize];
    let sums = Sums::of_queue(q, Some(running));
    let mean = sums.mean();
    let rival = running.on_rq && running.vruntime <= mean;
    let best = match q.timeline.find(mean) {
        Some((_, best)) => Some(best).filter(|best| !rival || running.deadline >= best.deadline),
        None if rival => None,
        None => q.timeline.first(),
    };
    if best.is_some_and(|best| entities[best.entity as usize].delayed) {
        return preempt_protected(env, rq, (curr, woken), shorter);
    }
    let wins = best.is_some_and(|best| best.entity == woken);
    settle_preemption(env, rq, curr, shorter, wins);
}

/// Whether [`preempt`] knows these rules.
#[inline(always)]
pub(super) fn knows(t: &Tunables) -> bool {
    t.version.eevdf_slice_protection()
}
