//! The fair class without its rules: the walk over the levels of the group hierarchy. What happens
//! in one queue is the business of [`FairRules`]: CFS or EEVDF.

pub(super) mod bandwidth;
pub(super) mod cfs;
pub(super) mod eevdf;
pub(super) mod groups;
pub(super) mod pelt;
pub(super) mod pool;
pub(super) mod server;
pub(super) mod weights;

use crate::linux::Env;
use crate::linux::core::plain;
use crate::linux::core::rq::{Class, EntityId, NONE, QueueId, ROOT, Rq};
use crate::linux::core::smp;
use crate::linux::dl;
use crate::linux::version::Feature;
use crate::{Cmd, Timer};
use schedlab_model::{CpuId, Ns, TaskId};

/// Timer slot of a CPU: HRTICK.
pub(super) fn hrtick_timer(cpu: CpuId) -> Timer {
    Timer::Cpu(cpu, 1)
}

/// Shortest HRTICK, ns.
const HRTICK_LEAST: u64 = 10_000;

/// 7.1+: a timer that is set this near to its new time stays as it is, ns.
const HRTICK_NEAR: u64 = 5_000;

/// 7.1+: how much run time beyond its slice a task has when the HRTICK comes, ns. It is set from
/// the time at the end of `schedule`, while run time counts from its beginning. Chosen, not fitted:
/// with 0 exact slices make ties that a kernel never sees. On the machine of the oracle 7.2.13 the
/// whole lateness was measured (`Costs::oracle_7_2`).
pub(super) const HRTICK_LATE: u64 = 1_000;

/// Why an entity comes onto a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Enqueue {
    /// A wakeup after a sleep.
    Wake,
    /// For the first time.
    New,
    /// Back after a change, or from another CPU.
    Restore,
}

/// Why an entity leaves a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dequeue {
    /// It sleeps.
    Sleep,
    /// It ends, or must leave at once although it sleeps.
    Exit,
    /// It comes back (change of attributes) or goes to another CPU.
    Save,
}

/// What CFS and EEVDF have to say about one queue of entities. All times of `rq` are up to date
/// with its clock when these are called, unless said otherwise.
pub(super) trait FairRules: Sized + Send + 'static {
    /// Charges the running entity of `queue` (if any) up to `rq.clock`.
    fn update_curr(env: Env<'_>, rq: &mut Rq, queue: QueueId);
    /// As `update_curr` at each of `ticks` edges that were left out, `tick_ns` apart, the first at
    /// `first_edge`; the result must be the same.
    fn update_curr_ticks(
        env: Env<'_>,
        rq: &mut Rq,
        queue: QueueId,
        first_edge: u64,
        ticks: u64,
        tick_ns: u64,
    );
    /// Puts `entity` onto its queue (into `waiting`, unless it is the running one), places it, and
    /// keeps `load`, `nr` and `idle_nr`.
    fn enqueue(env: Env<'_>, rq: &mut Rq, entity: EntityId, why: Enqueue);
    /// The opposite. `false`: it stays queued for now (`delayed`).
    fn dequeue(env: Env<'_>, rq: &mut Rq, entity: EntityId, why: Dequeue) -> bool;
    /// A blocked but `delayed` entity of a task is woken.
    fn wake_delayed(env: Env<'_>, rq: &mut Rq, entity: EntityId);
    /// The entity of `queue` that should run; the running one, if it is queued, competes. `None`:
    /// the queue has changed (a delayed entity left it), ask again from the root.
    fn pick(env: Env<'_>, rq: &mut Rq, queue: QueueId) -> Option<EntityId>;
    /// `entity` was picked and did not run until now: takes it out of `waiting`.
    fn set_next(env: Env<'_>, rq: &mut Rq, entity: EntityId);
    /// `entity` ran and will not run on: puts it back into `waiting` if it is still queued.
    fn put_prev(env: Env<'_>, rq: &mut Rq, entity: EntityId);
    /// A tick while `entity` runs: charges it, then checks its slice.
    fn tick(env: Env<'_>, rq: &mut Rq, entity: EntityId);
    /// The run-queue time from which on a `tick` of the running `entity` could matter, ns;
    /// `u64::MAX` = never. Too early is slow, too late is wrong.
    fn tick_at(env: Env<'_>, rq: &Rq, entity: EntityId) -> u64;
    /// The task of `woken` became runnable while the fair task of `curr` runs: asks for a
    /// reschedule if it should preempt. `new`: it was just created.
    fn wakeup_preempt(env: Env<'_>, rq: &mut Rq, curr: EntityId, woken: EntityId, new: bool);
    /// The running task of `entity` called `sched_yield`.
    fn yielded(env: Env<'_>, rq: &mut Rq, entity: EntityId);
    /// A new task, whose entity is not queued, is placed; `parent` runs on this CPU.
    fn fork(env: Env<'_>, rq: &mut Rq, entity: EntityId, parent: Option<EntityId>);
    /// Real time until the slice of the running `entity` is used up, ns; negative: it was used up
    /// before.
    fn slice_left(env: Env<'_>, rq: &Rq, entity: EntityId) -> i64;
    /// The weight of `entity`, queued or not, becomes `load`.
    fn reweight(env: Env<'_>, rq: &mut Rq, entity: EntityId, load: weights::Load);
    /// As `dequeue`, `pick`, `put_prev` and `set_next` when the running task `curr` of a [`plain`]
    /// CPU blocks, the counts of [`dequeue`] included. Gives who runs next, or [`NONE`].
    #[inline(always)]
    fn block_plain(env: Env<'_>, rq: &mut Rq, curr: EntityId) -> EntityId {
        plain::block_by_steps::<Self>(env, rq, curr)
    }
    /// As `pick`, `put_prev` and `set_next` when the running task of a plain CPU goes on or gives
    /// way, or nothing ran. Gives who runs next, or [`NONE`].
    #[inline(always)]
    fn change_plain(env: Env<'_>, rq: &mut Rq) -> EntityId {
        plain::change_by_steps::<Self>(env, rq)
    }
    /// As `enqueue` of a task that does not run, on a plain CPU.
    #[inline(always)]
    fn enqueue_plain(env: Env<'_>, rq: &mut Rq, id: EntityId, why: Enqueue) {
        Self::enqueue(env, rq, id, why);
    }
    /// As `wakeup_preempt` on a plain CPU.
    #[inline(always)]
    fn preempt_plain(env: Env<'_>, rq: &mut Rq, curr: EntityId, woken: EntityId, new: bool) {
        Self::wakeup_preempt(env, rq, curr, woken, new);
    }
    /// Where a queued entity is in its queue.
    fn standing(rq: &Rq, entity: EntityId) -> crate::Standing;
    /// Whether a waiting entity has not had more than its share.
    fn eligible(rq: &Rq, entity: EntityId) -> bool;
    /// `entity`, not queued, leaves this CPU: its times become independent of it.
    fn depart(env: Env<'_>, rq: &mut Rq, entity: EntityId);
}

/// Enqueues a task's entity and the group entities above it that were empty.
pub(super) fn enqueue<F: FairRules>(env: Env<'_>, rq: &mut Rq, task: EntityId, why: Enqueue) {
    let mut idle = u32::from(rq.entity(task).idle);
    let (mut entity, mut why) = (task, why);
    while entity != NONE {
        let id = rq.entity(entity).queue;
        if !rq.entity(entity).on_rq {
            F::enqueue(env, rq, entity, why);
            why = Enqueue::Wake;
            if rq.queue(id).nr == 1 {
                bandwidth::filled::<F>(env, rq, id);
            }
        } else if rq.entity(entity).delayed {
            F::wake_delayed(env, rq, entity);
        }
        let queue = rq.queue_mut(id);
        queue.h_nr += 1;
        queue.idle_h_nr += idle;
        entity = queue.owner;
        if queue.throttled && env.t.version.throttles_whole_queues() {
            return env.cx.push(Cmd::Throttled(TaskId(rq.entity(task).task)));
        }
        if entity != NONE && rq.entity(entity).idle {
            idle = 1;
        }
    }
    rq.nr_running += 1;
    if rq.queue(ROOT).h_nr == 1 {
        rq.start_fair_server(env);
    }
    if !rq.hrtick || !env.t.version.hrtick_at_switch() {
        set_hrtick::<F>(env, rq);
    }
}

/// Dequeues a task's entity and the group entities above it that become empty. `false`: it stays,
/// delayed.
pub(super) fn dequeue<F: FairRules>(
    env: Env<'_>,
    rq: &mut Rq,
    task: EntityId,
    why: Dequeue,
) -> bool {
    let was_delayed = rq.entity(task).delayed;
    if !F::dequeue(env, rq, task, why) {
        rq.delayed += u32::from(!was_delayed && !bandwidth::keeps_back(env, rq, task));
        return false;
    }
    rq.delayed -= u32::from(was_delayed && !bandwidth::keeps_back(env, rq, task));
    if !dequeued::<F>(env, rq, task, why, 1) {
        env.cx.push(Cmd::Unthrottled(TaskId(rq.entity(task).task)));
        return true;
    }
    rq.nr_running -= 1;
    if rq.queue(ROOT).h_nr == 0 {
        rq.stop_fair_server(env);
    }
    if !env.t.version.hrtick_at_switch() {
        set_hrtick::<F>(env, rq);
    }
    true
}

/// With HRTICK, the slice of the running fair task ends by a timer if others wait.
#[inline]
pub(super) fn set_hrtick<F: FairRules>(env: Env<'_>, rq: &mut Rq) {
    if env.t.has(Feature::HRTICK) && rq.queue(ROOT).h_nr >= 2 {
        arm_hrtick::<F>(env, rq);
    }
}

fn arm_hrtick<F: FairRules>(env: Env<'_>, rq: &mut Rq) {
    let curr = rq.curr;
    if curr == NONE {
        return;
    }
    let entity = rq.entity(curr);
    if entity.class != Class::Fair || !entity.on_rq {
        return;
    }
    match F::slice_left(env, rq, curr) {
        left if left < 0 => rq.resched(env),
        left => {
            let keeps = env.t.version.hrtick_at_switch();
            let late = if keeps { HRTICK_LATE } else { 0 };
            let at = env.cx.now.0 + (left as u64).max(HRTICK_LEAST) + late;
            if keeps && rq.hrtick && at.abs_diff(rq.hrtick_at) <= HRTICK_NEAR {
                return;
            }
            (rq.hrtick, rq.hrtick_at) = (true, at);
            env.cx.push(Cmd::Arm(hrtick_timer(rq.cpu), Ns(at)));
        }
    }
}

/// `schedule` begins: the timer is set anew afterwards.
#[inline]
pub(super) fn clear_hrtick(env: Env<'_>, rq: &mut Rq) {
    if std::mem::take(&mut rq.hrtick) {
        env.cx.push(Cmd::Disarm(hrtick_timer(rq.cpu)));
    }
}

/// The HRTICK timer fired: the slice is over.
pub(super) fn hrtick_fired<F: FairRules>(env: Env<'_>, rq: &mut Rq) {
    if !std::mem::take(&mut rq.hrtick) {
        return;
    }
    let Some(mut entity) = rq.curr_of(Class::Fair) else { return dl::hrtick_fired(env, rq) };
    while entity != NONE {
        let queue = rq.entity(entity).queue;
        F::update_curr(env, rq, queue);
        entity = rq.queue(queue).owner;
    }
    rq.resched(env);
}

/// A blocked but delayed task is woken where it is.
pub(super) fn wake_delayed<F: FairRules>(env: Env<'_>, rq: &mut Rq, task: EntityId) {
    F::wake_delayed(env, rq, task);
    if bandwidth::keeps_back(env, rq, task) {
        env.cx.push(Cmd::Throttled(TaskId(rq.entity(task).task)));
    } else {
        rq.delayed -= 1;
    }
}

/// Takes a delayed entity, of a task or of a group, off its queue.
pub(super) fn dequeue_delayed<F: FairRules>(env: Env<'_>, rq: &mut Rq, entity: EntityId) {
    if rq.entity(entity).owns == NONE {
        dequeue::<F>(env, rq, entity, Dequeue::Sleep);
    } else if F::dequeue(env, rq, entity, Dequeue::Sleep) {
        smp::track_owner(rq, entity);
        dequeued::<F>(env, rq, entity, Dequeue::Sleep, 0);
    }
}

/// The entity has left its queue: counts `tasks` tasks less on every level, and dequeues the group
/// entities above it that became empty. `false`: a level is throttled, so that those above knew
/// nothing of it.
fn dequeued<F: FairRules>(
    env: Env<'_>,
    rq: &mut Rq,
    task: EntityId,
    why: Dequeue,
    tasks: u32,
) -> bool {
    let mut idle = u32::from(rq.entity(task).idle) * tasks;
    let mut entity = task;
    let mut leaving = true;
    while entity != NONE {
        if leaving && entity != task {
            leaving = F::dequeue(
                env,
                rq,
                entity,
                if why == Dequeue::Save { Dequeue::Sleep } else { why },
            );
            smp::track_owner(rq, entity);
        }
        let id = rq.entity(entity).queue;
        let queue = rq.queue_mut(id);
        queue.h_nr -= tasks;
        queue.idle_h_nr -= idle;
        leaving &= queue.nr == 0;
        entity = queue.owner;
        if queue.throttled && env.t.version.throttles_whole_queues() {
            return false;
        }
        if leaving && entity != NONE {
            bandwidth::emptied::<F>(env, rq, id);
        }
        if entity != NONE && rq.entity(entity).idle {
            idle = tasks;
        }
    }
    true
}

/// The running fair task `prev` makes place for `next`; nothing happens to levels that both share,
/// and nothing at all when they are the same.
pub(super) fn change<F: FairRules>(
    env: Env<'_>,
    rq: &mut Rq,
    prev: Option<EntityId>,
    next: Option<EntityId>,
) {
    match (prev, next) {
        (Some(prev), Some(next)) if prev != next => switch::<F>(env, rq, prev, next),
        (Some(prev), None) => put_prev::<F>(env, rq, prev),
        (None, Some(next)) => set_next::<F>(env, rq, next),
        _ => {}
    }
}

/// The fair task to run: chosen level by level. A running fair task competes if it was not put
/// back.
pub(super) fn pick<F: FairRules>(env: Env<'_>, rq: &mut Rq) -> Option<EntityId> {
    'again: loop {
        let mut queue = ROOT;
        loop {
            if rq.queue(queue).nr == 0 {
                return None;
            }
            let curr = rq.queue(queue).curr;
            if curr != NONE && rq.entity(curr).on_rq {
                F::update_curr(env, rq, queue);
            }
            let Some(entity) = F::pick(env, rq, queue) else { continue 'again };
            match rq.entity(entity).owns {
                NONE => return Some(entity),
                below => queue = below,
            }
        }
    }
}

/// Puts `prev` back and sets `next` up on the levels on which they differ.
fn switch<F: FairRules>(env: Env<'_>, rq: &mut Rq, prev: EntityId, next: EntityId) {
    let (mut a, mut b) = (prev, next);
    while rq.entity(a).queue != rq.entity(b).queue {
        let (from, to) = (rq.entity(a).depth, rq.entity(b).depth);
        if from >= to {
            F::put_prev(env, rq, a);
            a = rq.parent(a);
        }
        if from <= to {
            F::set_next(env, rq, b);
            b = rq.parent(b);
        }
    }
    F::put_prev(env, rq, a);
    F::set_next(env, rq, b);
}

/// A fair task stops running: every level.
pub(super) fn put_prev<F: FairRules>(env: Env<'_>, rq: &mut Rq, task: EntityId) {
    let mut entity = task;
    while entity != NONE {
        F::put_prev(env, rq, entity);
        entity = rq.parent(entity);
    }
}

/// A fair task starts to run: every level.
pub(super) fn set_next<F: FairRules>(env: Env<'_>, rq: &mut Rq, task: EntityId) {
    let mut entity = task;
    while entity != NONE {
        F::set_next(env, rq, entity);
        entity = rq.parent(entity);
    }
}

/// A tick while the fair task of `curr` runs: every level, from the task up.
pub(super) fn tick<F: FairRules>(env: Env<'_>, rq: &mut Rq, curr: EntityId) {
    let mut entity = curr;
    while entity != NONE {
        F::tick(env, rq, entity);
        entity = rq.parent(entity);
    }
    bandwidth::at_tick(env, rq, curr);
}

/// Charges ticks that were left out, every level.
pub(super) fn charge_ticks<F: FairRules>(env: Env<'_>, rq: &mut Rq, first_edge: u64, ticks: u64) {
    let Some(mut entity) = rq.curr_of(Class::Fair) else { return };
    let tick_ns = env.cx.world.tick_ns.0;
    while entity != NONE {
        let queue = rq.entity(entity).queue;
        F::update_curr_ticks(env, rq, queue, first_edge, ticks, tick_ns);
        entity = rq.queue(queue).owner;
    }
}

/// The run-queue time from which on a tick could matter to the running fair task, ns; `u64::MAX` =
/// never.
#[inline]
pub(super) fn tick_at<F: FairRules>(env: Env<'_>, rq: &Rq, curr: EntityId) -> u64 {
    let (mut entity, mut at) = (curr, u64::MAX);
    while entity != NONE {
        at = at.min(F::tick_at(env, rq, entity));
        entity = rq.parent(entity);
    }
    if env.pools.is_some() { at.min(bandwidth::tick_at(rq, curr)) } else { at }
}

/// The entities above (or at) `a` and `b` that are in one queue.
#[inline]
pub(super) fn matching(rq: &Rq, mut a: EntityId, mut b: EntityId) -> (EntityId, EntityId) {
    while rq.entity(a).queue != rq.entity(b).queue {
        let (from, to) = (rq.entity(a).depth, rq.entity(b).depth);
        if from >= to {
            a = rq.parent(a);
        }
        if from <= to {
            b = rq.parent(b);
        }
    }
    (a, b)
}
