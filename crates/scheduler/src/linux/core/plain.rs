//! The common case in one piece: a CPU that has fair tasks of the root group only, without groups,
//! bandwidth limits, deadline and RT tasks, or the HRTICK of before 7.1, which each `schedule` sets
//! anew.
//!
//! Nothing is decided here that [`decide`](super::decide) and [`fair`] would decide otherwise: the
//! walk over classes and levels is left out because there is one of each.
//! `plain_and_general_paths_agree` shows it.

use crate::linux::core::rq::{EntityId, NONE, ROOT, Rq};
use crate::linux::core::smp::Smp;
use crate::linux::fair::pelt::Moment;
use crate::linux::fair::{self, Dequeue, Enqueue, FairRules};
use crate::linux::version::Feature;
use crate::linux::{Env, Linux};
use crate::{Cmd, Locks, Pick, Prev};
use schedlab_model::TaskId;

impl<L: Locks, F: FairRules> Linux<L, F> {
    /// Whether `rq` is in the common case.
    #[inline(always)]
    pub(in crate::linux) fn is_plain(&self, env: Env<'_>, rq: &Rq) -> bool {
        // All at once: mostly all of them hold.
        rq.is_flat() & (rq.rt_nr == 0) & (rq.dl_here == 0) & env.pools.is_none() & self.plain
    }

    /// `schedule` of a task that goes on, waits or sleeps (`why` is not another reason).
    #[inline]
    pub(in crate::linux) fn reschedule_plain(
        &self,
        env: Env<'_>,
        smp: Option<&Smp>,
        rq: &mut Rq,
        why: Prev,
    ) -> Pick {
        rq.need_resched = true;
        rq.touch_unless_skipped::<F>(env);
        let prev = rq.curr;
        let now = Moment::new(env.cx.now);
        let next = if why == Prev::Blocked && prev != NONE {
            self.estimate(rq, prev, env.cx.now);
            F::block_plain(env, rq, prev)
        } else {
            if prev == NONE {
                rq.count_idle();
            }
            F::change_plain(env, rq)
        };
        if next == NONE {
            rq.idle_since = rq.clock;
        }
        if prev != next {
            rq.curr = next;
            self.time_slice(env, rq);
            if prev != NONE && smp.is_some() {
                // The clock that a wakeup left may be an older one.
                let wall = if rq.wall == env.cx.now { now } else { Moment::new(rq.wall) };
                self.track_plain(rq, prev, wall);
            }
        }
        rq.need_resched = false;
        rq.wall = env.cx.now;
        rq.pushed = NONE;
        let task = if next == NONE {
            None
        } else {
            let entity = rq.stamped(next);
            if smp.is_some() && (prev != next || why == Prev::Blocked) {
                self.track_entity(entity, true, now);
            }
            Some(TaskId(entity.task))
        };
        if let Some(smp) = smp {
            smp.publish_plain(rq, now);
        }
        self.publish_estimate(rq);
        Pick { task, slice_ns: None, note: 0 }
    }

    /// Another task, or none, runs: its slice ends by HRTICK, where there is one.
    #[inline(always)]
    fn time_slice(&self, env: Env<'_>, rq: &mut Rq) {
        if self.t.has(Feature::HRTICK) {
            if rq.curr == NONE {
                fair::clear_hrtick(env, rq);
            } else {
                fair::set_hrtick::<F>(env, rq);
            }
        }
    }

    /// A wakeup where the task is: `queued`, which a blocked but delayed one is, or on the CPU
    /// where it sleeps.
    #[inline(always)]
    pub(in crate::linux) fn wake_plain(
        &self,
        env: Env<'_>,
        smp: Option<&Smp>,
        rq: &mut Rq,
        id: EntityId,
        queued: bool,
    ) {
        if queued {
            rq.touch::<F>(env, false);
            F::wake_delayed(env, rq, id);
            rq.delayed -= 1;
        } else {
            note_partners(env, rq, id);
            rq.touch::<F>(env, false);
            join_plain::<F>(env, rq, id, Enqueue::Wake);
        }
        let (wall, running) = (Moment::new(rq.wall), rq.curr == id);
        let entity = if queued { rq.entity_mut(id) } else { rq.stamped(id) };
        if smp.is_some() {
            self.track_entity(entity, running, wall);
        }
        self.preempt_plain(env, rq, id, false);
        if rq.cpu != env.cx.cpu && (queued || !rq.need_resched) {
            env.cx.push(Cmd::TickDue(rq.cpu));
        }
        if let Some(smp) = smp {
            smp.publish_plain(rq, wall);
        }
    }

    /// The second half of any wakeup.
    #[inline(never)]
    pub(in crate::linux) fn activate_plain(
        &self,
        env: Env<'_>,
        rq: &mut Rq,
        id: EntityId,
        why: Enqueue,
    ) {
        join_plain::<F>(env, rq, id, why);
        rq.stamp(id);
        if self.smp.get().is_some() {
            self.track_plain(rq, id, Moment::new(rq.wall));
        }
        self.preempt_plain(env, rq, id, why == Enqueue::New);
        if rq.cpu != env.cx.cpu && !rq.need_resched {
            env.cx.push(Cmd::TickDue(rq.cpu));
        }
    }

    /// Whether `woken` takes the CPU from the running task.
    #[inline(always)]
    fn preempt_plain(&self, env: Env<'_>, rq: &mut Rq, woken: EntityId, new: bool) {
        let curr = rq.curr;
        if curr == NONE {
            rq.resched(env);
        } else {
            F::preempt_plain(env, rq, curr, woken, new);
        }
        // A lazy request does not let `schedule` reuse the clock.
        let lazy = self.t.version.preempts_lazily();
        if rq.need_resched && (curr == NONE || (!lazy && rq.entity(curr).on_rq)) {
            rq.skip_clock = true;
        }
    }
}

/// The running task, if any, wakes the one of `id`, which stays on its CPU.
#[inline(always)]
pub(in crate::linux) fn note_partners(env: Env<'_>, rq: &mut Rq, id: EntityId) {
    let (waker, task, cpu) = (rq.curr, rq.entity(id).task, rq.cpu.0);
    if waker != NONE {
        rq.entity_mut(waker).partners.woke(task, env.cx.now);
    }
    rq.entity_mut(id).partners.recent_cpu = cpu;
}

/// A task comes onto the root queue.
#[inline(always)]
fn join_plain<F: FairRules>(env: Env<'_>, rq: &mut Rq, id: EntityId, why: Enqueue) {
    let entity = rq.entity_mut(id);
    entity.fresh = false;
    let idle = u32::from(entity.idle);
    F::enqueue_plain(env, rq, id, why);
    let root = rq.queue_mut(ROOT);
    root.h_nr += 1;
    root.idle_h_nr += idle;
    let first = root.h_nr == 1;
    rq.nr_running += 1;
    if first {
        rq.start_fair_server(env);
    }
    if env.t.has(Feature::HRTICK) && !rq.hrtick {
        fair::set_hrtick::<F>(env, rq);
    }
}

/// [`FairRules::change_plain`] by the general steps.
#[inline]
pub(in crate::linux) fn change_by_steps<F: FairRules>(env: Env<'_>, rq: &mut Rq) -> EntityId {
    let prev = rq.curr;
    let next = pick_plain::<F>(env, rq);
    if prev != next {
        if prev != NONE {
            F::put_prev(env, rq, prev);
        }
        if next != NONE {
            F::set_next(env, rq, next);
        }
    }
    next
}

/// [`FairRules::block_plain`] by the general steps.
#[inline]
pub(in crate::linux) fn block_by_steps<F: FairRules>(
    env: Env<'_>,
    rq: &mut Rq,
    curr: EntityId,
) -> EntityId {
    if F::dequeue(env, rq, curr, Dequeue::Sleep) {
        left_plain(env, rq, curr);
    } else {
        rq.delayed += 1;
    }
    let next = pick_plain::<F>(env, rq);
    if next == curr {
        return next;
    }
    F::put_prev(env, rq, curr);
    if next != NONE {
        F::set_next(env, rq, next);
    }
    next
}

/// A task has left the root queue.
#[inline(always)]
fn left_plain(env: Env<'_>, rq: &mut Rq, id: EntityId) {
    let idle = u32::from(rq.entity(id).idle);
    let root = rq.queue_mut(ROOT);
    root.h_nr -= 1;
    root.idle_h_nr -= idle;
    let last = root.h_nr == 0;
    rq.nr_running -= 1;
    if last {
        rq.stop_fair_server(env);
    }
}

/// The task to run, or [`NONE`].
#[inline(always)]
pub(in crate::linux) fn pick_plain<F: FairRules>(env: Env<'_>, rq: &mut Rq) -> EntityId {
    loop {
        let root = rq.queue(ROOT);
        if root.nr == 0 {
            return NONE;
        }
        let curr = root.curr;
        if curr != NONE && rq.entity(curr).on_rq {
            F::update_curr(env, rq, ROOT);
        }
        if let Some(picked) = F::pick(env, rq, ROOT) {
            return picked;
        }
    }
}
