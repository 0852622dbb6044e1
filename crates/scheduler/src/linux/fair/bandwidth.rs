//! CPU bandwidth control (`cpu.max`): what an empty pool does to the run queues. The pool itself is
//! in `pool`.
//!
//! Until 6.17 a queue without run time is taken off its parent with everything in it. Since 6.18
//! the queue stays; each of its tasks, when it returns to user mode, is taken off alone and waits
//! in the queue's `limbo`: a task in the kernel goes on, so that what it holds there is given back.
//! A task that is picked in user code goes into limbo at once. Throttled tasks do not wait: the
//! driver is told.
//!
//! | rule | where the real system has it | here | test |
//! |---|---|---|---|
//! | run time is charged at every account; a new slice is asked for when it is used up, else a reschedule | `account_cfs_rq_runtime` | modelled: at ticks, decisions and enqueues | `a_hog_with_half_a_cpu_runs_50_on_50_off` |
//! | the queue is throttled when its task is put back | `check_cfs_rq_runtime` | modelled | same |
//! | a queue that fills without run time is throttled at once | `check_enqueue_throttle` | modelled | `sleepers_stay_below_their_quota` |
//! | an empty queue returns run time | `return_cfs_rq_runtime` | modelled | same |
//! | run time of an earlier period is void (3.2 to 3.15, 4.18 to 5.3) | `expire_cfs_rq_runtime`; 51f2176d74ac (3.16) switched it off by a fault, 512ac999d275 (4.18) on, de53fd7aedb1 (5.4) removed it | modelled | `sleepers_lose_what_they_took_before_5_4` |
//! | nested limits | `throttle_count` | modelled | `the_tighter_of_two_nested_limits_holds` |
//! | tasks one by one at return to user mode | `task_throttle_setup_work`, `throttle_cfs_rq_work`, 6.18 | modelled: return to user takes no time | `a_hog_with_half_a_cpu_runs_50_on_50_off` |
//! | a task in the kernel runs on without run time, what it runs is owed | the same, 6.18 | modelled where the program says that it is in the kernel (`kernel` steps) | `a_lock_of_the_kernel_is_given_back_first_since_6_18` |
//! | a refill gives run time to other CPUs by IPI | 6.6+ `unthrottle_cfs_rq_async` | simplified: at once | – |
//! | the load clock of a throttled queue stops | 6.1 | modelled | `pelt` |

use crate::linux::core::rq::{Class, EntityId, NONE, Queue, QueueId, ROOT, Rq};
use crate::linux::core::smp;
use crate::linux::fair::pelt::{Inputs, Moment};
use crate::linux::fair::pool::Pool;
use crate::linux::fair::{self, Dequeue, Enqueue, FairRules};
use crate::linux::{Env, Linux};
use crate::{Cmd, Cx, Lock, Locks, Timer};
use schedlab_model::{GroupId, Ns, TaskId};

/// Timer slot of the machine: the next refill or return of slack of any group.
pub(in crate::linux) const BANDWIDTH: Timer = Timer::Global(2);

/// The pools of all groups, behind their locks (each below the lock of a run queue).
pub(in crate::linux) trait Pools {
    /// Runs `f` on the pool of `group`, then sets the timer if it is due earlier than before.
    fn with(&self, cx: &Cx<'_>, group: GroupId, f: &mut dyn FnMut(&mut Pool));
}

/// See [`Pools`].
pub(in crate::linux) struct PoolTable<L: Locks> {
    pools: Vec<L::Lock<Pool>>,
    /// When the timer is set to.
    armed: L::Lock<Ns>,
}

impl<L: Locks> PoolTable<L> {
    /// The pools of the groups as they are now.
    pub(in crate::linux) fn new(cx: &Cx<'_>) -> PoolTable<L> {
        let pool = |view: &crate::GroupView| {
            let mut pool = Pool::default();
            pool.set(view.bandwidth);
            L::Lock::new(pool)
        };
        PoolTable {
            pools: cx.world.groups.iter().map(pool).collect(),
            armed: L::Lock::new(Ns::MAX),
        }
    }

    fn arm(&self, cx: &Cx<'_>, at: Ns) {
        let mut armed = self.armed.lock();
        if at < *armed {
            *armed = at;
            cx.push(Cmd::Arm(BANDWIDTH, at.max(cx.now)));
        }
    }
}

impl<L: Locks> Pools for PoolTable<L> {
    fn with(&self, cx: &Cx<'_>, group: GroupId, f: &mut dyn FnMut(&mut Pool)) {
        let Some(lock) = self.pools.get(group.index()) else { return };
        let due = {
            let mut pool = lock.lock();
            f(&mut pool);
            pool.due()
        };
        due.into_iter().for_each(|at| self.arm(cx, at));
    }
}

/// Charges a queue for what ran in it since the last time. In some versions what is left of an
/// earlier filling of the pool is void then.
fn charge(env: Env<'_>, rq: &mut Rq, queue: QueueId) {
    let total = rq.entity(rq.queue(queue).owner).sum_exec;
    let q = rq.queue_mut(queue);
    q.runtime -= (total - std::mem::replace(&mut q.charged, total)) as i64;
    if q.runtime > 0 && !is_of_this_filling(env, q) {
        q.runtime = 0;
    }
}

/// Whether the run time that a queue has may still be used, or given back.
fn is_of_this_filling(env: Env<'_>, q: &Queue) -> bool {
    let (true, Some(pools)) = (env.t.version.voids_slices_at_refill(), env.pools) else {
        return true;
    };
    let mut now = q.filling;
    pools.with(env.cx, q.group, &mut |pool| now = pool.filling());
    now == q.filling
}

/// Whether the queue may go on; it takes a slice out of the pool if it has used up what it had.
fn has_runtime(env: Env<'_>, rq: &mut Rq, queue: QueueId) -> bool {
    let q = rq.queue_mut(queue);
    if q.runtime > 0 {
        return true;
    }
    let Some(pools) = env.pools else { return true };
    let (group, slice) = (q.group, env.t.smp.bandwidth_slice);
    pools.with(env.cx, group, &mut |pool| {
        q.runtime += pool.take(env.cx.now, q.runtime, slice) as i64;
        q.filling = pool.filling();
    });
    q.runtime > 0
}

/// Whether this queue's run time is limited and it is not throttled yet.
fn counts(rq: &Rq, queue: QueueId) -> bool {
    let q = rq.queue(queue);
    q.limited && !q.throttled
}

/// The queues above (and of) a task, from near to far, without the root.
fn path(rq: &Rq, entity: EntityId) -> Vec<QueueId> {
    let mut queues = Vec::new();
    let mut queue = rq.entity(entity).queue;
    while queue != ROOT {
        queues.push(queue);
        queue = rq.entity(rq.queue(queue).owner).queue;
    }
    queues
}

/// A tick while `curr` runs, which has been charged: a queue without run time asks for a
/// reschedule.
pub(in crate::linux) fn at_tick(env: Env<'_>, rq: &mut Rq, curr: EntityId) {
    if env.pools.is_none() {
        return;
    }
    for queue in path(rq, curr) {
        if counts(rq, queue) {
            charge(env, rq, queue);
            if !has_runtime(env, rq, queue) {
                rq.resched(env);
            }
        }
    }
}

/// When a queue of the running `curr` may have used up its run time, on the run queue's clock in
/// ns.
pub(in crate::linux) fn tick_at(rq: &Rq, curr: EntityId) -> u64 {
    let due = |queue: QueueId| {
        let q = rq.queue(queue);
        let owner = rq.entity(q.owner);
        let left = q.runtime - (owner.sum_exec - q.charged) as i64;
        owner.exec_start + left.max(0) as u64
    };
    path(rq, curr).into_iter().filter(|&queue| counts(rq, queue)).map(due).min().unwrap_or(u64::MAX)
}

/// The running fair task `prev` is about to be put back: its queues without run time are throttled.
pub(in crate::linux) fn before_choice<F: FairRules>(env: Env<'_>, rq: &mut Rq, prev: EntityId) {
    if env.pools.is_none() {
        return;
    }
    let queues = path(rq, prev);
    for &queue in &queues {
        F::update_curr(env, rq, queue);
    }
    F::update_curr(env, rq, ROOT);
    for queue in queues {
        if counts(rq, queue) {
            charge(env, rq, queue);
            if !has_runtime(env, rq, queue) {
                throttle::<F>(env, rq, queue);
            }
        }
    }
}

/// The first entity came onto `queue`, whose owner is not queued yet.
pub(in crate::linux) fn filled<F: FairRules>(env: Env<'_>, rq: &mut Rq, queue: QueueId) {
    if counts(rq, queue) && rq.queue(queue).curr == NONE {
        charge(env, rq, queue);
        if !has_runtime(env, rq, queue) {
            throttle::<F>(env, rq, queue);
        }
    }
}

/// The last entity left `queue`; its owner is still queued.
pub(in crate::linux) fn emptied<F: FairRules>(env: Env<'_>, rq: &mut Rq, queue: QueueId) {
    let (Some(pools), true) = (env.pools, counts(rq, queue)) else { return };
    let above = rq.entity(rq.queue(queue).owner).queue;
    F::update_curr(env, rq, above);
    charge(env, rq, queue);
    let slice = env.t.smp.bandwidth_slice;
    let q = rq.queue_mut(queue);
    let group = q.group;
    pools.with(env.cx, group, &mut |pool| {
        q.runtime -= pool.give_back(env.cx.now, q.runtime, slice) as i64;
    });
}

/// The queues of this and the levels below, on this CPU.
fn subtree(rq: &Rq, queue: QueueId) -> Vec<QueueId> {
    let below = |&q: &QueueId| {
        let mut q = q;
        while q != queue && q != ROOT {
            q = rq.entity(rq.queue(q).owner).queue;
        }
        q == queue
    };
    (0..rq.queues()).filter(below).collect()
}

/// The tasks queued in `queue` itself, delayed ones included, in ascending order of their slots.
fn tasks(rq: &Rq, queue: QueueId) -> Vec<EntityId> {
    let here = |id: &EntityId| {
        let e = rq.entity(*id);
        e.task != NONE && e.queue == queue && e.on_rq && e.class == Class::Fair
    };
    (0..rq.entities.len() as EntityId).filter(here).collect()
}

/// Takes `queue` out of the race until its group gets run time.
fn throttle<F: FairRules>(env: Env<'_>, rq: &mut Rq, queue: QueueId) {
    let (group, cpu) = (rq.queue(queue).group, rq.cpu);
    let Some(pools) = env.pools else { return };
    pools.with(env.cx, group, &mut |pool| pool.throttle(cpu));
    rq.queue_mut(queue).throttled = true;
    let whole = env.t.version.throttles_whole_queues();
    if whole {
        detach_queue::<F>(env, rq, queue);
    }
    for below in subtree(rq, queue) {
        rq.queue_mut(below).throttle_count += 1;
        if rq.queue(below).throttle_count > 1 || !whole {
            continue;
        }
        rq.queue_mut(below).signal.set(Moment::new(env.cx.now), Inputs::default());
        for id in tasks(rq, below) {
            let entity = rq.entity(id);
            if entity.delayed {
                rq.delayed -= 1;
            } else {
                env.cx.push(Cmd::Throttled(TaskId(entity.task)));
            }
        }
    }
}

/// Takes a queue with all its tasks off the levels above.
fn detach_queue<F: FairRules>(env: Env<'_>, rq: &mut Rq, queue: QueueId) {
    let (tasks, mut idle) = (rq.queue(queue).h_nr, rq.queue(queue).idle_h_nr);
    let mut entity = rq.queue(queue).owner;
    let mut leaving = true;
    while entity != NONE {
        if !rq.entity(entity).on_rq {
            return;
        }
        if leaving {
            leaving = F::dequeue(env, rq, entity, Dequeue::Exit);
            smp::track_owner(rq, entity);
        }
        // Above an idle group all of its tasks count as idle.
        idle = if rq.entity(entity).idle { tasks } else { idle };
        let above = rq.entity(entity).queue;
        let above = rq.queue_mut(above);
        above.h_nr -= tasks;
        above.idle_h_nr -= idle;
        leaving &= above.nr == 0;
        entity = above.owner;
    }
    rq.nr_running -= tasks;
    if rq.queue(ROOT).h_nr == 0 {
        rq.stop_fair_server(env);
    }
}

/// The opposite of [`detach_queue`].
fn attach_queue<F: FairRules>(env: Env<'_>, rq: &mut Rq, queue: QueueId) {
    let (tasks, mut idle) = (rq.queue(queue).h_nr, rq.queue(queue).idle_h_nr);
    if rq.queue(queue).nr == 0 {
        return;
    }
    let mut entity = rq.queue(queue).owner;
    while entity != NONE {
        if !rq.entity(entity).on_rq {
            F::enqueue(env, rq, entity, Enqueue::Wake);
            smp::track_owner(rq, entity);
        } else if rq.entity(entity).delayed {
            F::wake_delayed(env, rq, entity);
        }
        idle = if rq.entity(entity).idle { tasks } else { idle };
        let above = rq.entity(entity).queue;
        let above = rq.queue_mut(above);
        above.h_nr += tasks;
        above.idle_h_nr += idle;
        if above.throttled {
            return;
        }
        entity = above.owner;
    }
    rq.nr_running += tasks;
    if rq.queue(ROOT).h_nr == tasks {
        rq.start_fair_server(env);
    }
}

/// The queue has run time again.
fn unthrottle<F: FairRules>(env: Env<'_>, rq: &mut Rq, queue: QueueId) {
    let (group, cpu) = (rq.queue(queue).group, rq.cpu);
    let Some(pools) = env.pools else { return };
    pools.with(env.cx, group, &mut |pool| pool.unthrottle(cpu));
    rq.queue_mut(queue).throttled = false;
    let whole = env.t.version.throttles_whole_queues();
    for below in subtree(rq, queue) {
        rq.queue_mut(below).throttle_count -= 1;
        if rq.queue(below).throttle_count > 0 {
            continue;
        }
        if !whole {
            for id in std::mem::take(&mut rq.queue_mut(below).limbo) {
                release::<F>(env, rq, id);
            }
            continue;
        }
        rq.queue_mut(below).signal.resume(env.cx.now);
        for id in tasks(rq, below) {
            let entity = rq.entity(id);
            if entity.delayed {
                rq.delayed += 1;
            } else {
                env.cx.push(Cmd::Unthrottled(TaskId(entity.task)));
            }
        }
    }
    if whole {
        attach_queue::<F>(env, rq, queue);
    }
    if rq.curr == NONE && rq.queue(ROOT).nr > 0 {
        rq.resched(env);
    } else {
        env.cx.push(Cmd::TickDue(cpu));
    }
}

/// A task that left its queue's limbo is queued again.
fn release<F: FairRules>(env: Env<'_>, rq: &mut Rq, id: EntityId) {
    rq.entity_mut(id).in_limbo = false;
    env.cx.push(Cmd::Unthrottled(TaskId(rq.entity(id).task)));
    fair::enqueue::<F>(env, rq, id, Enqueue::Wake);
}

/// 6.18: a picked task whose group has no run time goes into limbo, unless it is in the kernel.
/// Gives whether it did.
pub(in crate::linux) fn into_limbo<F: FairRules>(env: Env<'_>, rq: &mut Rq, id: EntityId) -> bool {
    let queue = rq.entity(id).queue;
    if env.pools.is_none() || env.t.version.throttles_whole_queues() || !rq.is_throttled(queue) {
        return false;
    }
    if env.cx.task(TaskId(rq.entity(id).task)).in_kernel() {
        return false;
    }
    fair::dequeue::<F>(env, rq, id, Dequeue::Exit);
    rq.entity_mut(id).in_limbo = true;
    rq.queue_mut(queue).limbo.push(id);
    env.cx.push(Cmd::Throttled(TaskId(rq.entity(id).task)));
    true
}

/// A task is to be changed or moved: out of limbo it is an ordinary queued task.
pub(in crate::linux) fn out_of_limbo<F: FairRules>(env: Env<'_>, rq: &mut Rq, id: EntityId) {
    if rq.entity(id).in_limbo {
        let queue = rq.entity(id).queue;
        rq.queue_mut(queue).limbo.retain(|&other| other != id);
        release::<F>(env, rq, id);
    }
}

/// 6.18: charges a throttled queue for a task of it that runs on in the kernel.
fn charge_kernel<F: FairRules>(env: Env<'_>, rq: &mut Rq, queue: QueueId) {
    let Some(curr) = rq.curr_of(Class::Fair) else { return };
    let queues = path(rq, curr);
    if env.t.version.throttles_whole_queues() || !queues.contains(&queue) {
        return;
    }
    queues.iter().for_each(|&queue| F::update_curr(env, rq, queue));
    F::update_curr(env, rq, ROOT);
    charge(env, rq, queue);
}

/// Whether a limit counts for a fair task: that of its group, or of one above.
pub(in crate::linux) fn is_limited(rq: &Rq, id: EntityId) -> bool {
    path(rq, id).iter().any(|&queue| rq.queue(queue).limited)
}

/// Whether a queued task cannot run for want of bandwidth and is not counted above (until 6.17).
/// Real-time and deadline tasks of a group are not limited by `cpu.max`.
pub(in crate::linux) fn keeps_back(env: Env<'_>, rq: &Rq, id: EntityId) -> bool {
    let fair = |id: EntityId| rq.entity(id).class == Class::Fair;
    let throttled = |id: EntityId| rq.is_throttled(rq.entity(id).queue);
    env.pools.is_some() && env.t.version.throttles_whole_queues() && fair(id) && throttled(id)
}

impl<L: Locks, F: FairRules> Linux<L, F> {
    /// The timer fired: refills pools, gives slack out, and lets queues run that are out of debt.
    pub(in crate::linux) fn bandwidth_due(&self, cx: &Cx<'_>) {
        let Some(table) = self.pools.get() else { return };
        *table.armed.lock() = Ns::MAX;
        let slice = self.t.smp.bandwidth_slice;
        for (group, lock) in table.pools.iter().enumerate() {
            let pay = {
                let mut pool = lock.lock();
                let slack = pool.slack(cx.now, slice);
                pool.refill(cx.now) || slack
            };
            if pay {
                self.pay(cx, GroupId::from(group), lock);
            }
        }
        let due = table.pools.iter().filter_map(|lock| lock.lock().due()).min();
        due.into_iter().for_each(|at| table.arm(cx, at));
    }

    /// Pays debts in the order in which the queues were throttled, as long as there is something to
    /// pay with.
    fn pay(&self, cx: &Cx<'_>, group: GroupId, lock: &L::Lock<Pool>) {
        let env = &self.env(cx);
        let waiting = lock.lock().waiting().to_vec();
        for cpu in waiting {
            if !lock.lock().has_runtime() {
                return;
            }
            self.locked(cpu, |rq| {
                rq.touch::<F>(env, false);
                let queue = rq.queue_of_group[group.index()];
                charge_kernel::<F>(env, rq, queue);
                let q = rq.queue_mut(queue);
                {
                    let mut pool = lock.lock();
                    q.runtime += pool.pay(q.runtime) as i64;
                    q.filling = pool.filling();
                }
                if q.runtime > 0 {
                    unthrottle::<F>(env, rq, queue);
                }
            });
        }
    }

    /// 6.18: the running task leaves the kernel; if its group has no run time, it runs no user
    /// code.
    pub(in crate::linux) fn returns_to_user(&self, cx: &Cx<'_>, task: TaskId) {
        let Some((cpu, id)) = self.index.get(task).filter(|_| self.pools.get().is_some()) else {
            return;
        };
        let held = {
            let rq = self.rqs[cpu.index()].lock();
            let entity = rq.entity(id);
            entity.class == Class::Fair && rq.is_throttled(entity.queue)
        };
        if held {
            cx.push(Cmd::Resched(cpu));
        }
    }

    /// The limit of a group changed.
    pub(in crate::linux) fn limit_changed(&self, cx: &Cx<'_>, group: GroupId) {
        let view = cx.group(group);
        if self.pools.get().is_none() && view.bandwidth.is_none() {
            return;
        }
        let table = self.pools.get_or_init(|| PoolTable::new(cx));
        if let Some(lock) = table.pools.get(group.index()) {
            lock.lock().set(view.bandwidth);
        }
        let env = &self.env(cx);
        for cpu in 0..self.rqs.len() {
            self.locked(cpu.into(), |rq| {
                rq.touch::<F>(env, false);
                let queue = rq.queue_of_group.get(group.index()).copied().unwrap_or(NONE);
                if queue == NONE || queue == ROOT {
                    return;
                }
                charge(env, rq, queue);
                let q = rq.queue_mut(queue);
                q.limited = view.bandwidth.is_some();
                q.runtime = 0;
                if q.throttled {
                    unthrottle::<F>(env, rq, queue);
                }
                env.cx.push(Cmd::TickDue(rq.cpu));
            });
        }
    }
}
