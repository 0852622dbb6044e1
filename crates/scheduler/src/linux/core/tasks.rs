//! The life of a task on the run queues: created, described, woken, moved.

use super::plain;
use crate::linux::core::rq;
use crate::linux::core::rq::{Class, Entity, EntityId, NONE, Rq};
use crate::linux::core::smp;
use crate::linux::core::smp::Smp;
use crate::linux::dl::{self, cbs::Cbs};
use crate::linux::fair::bandwidth;
use crate::linux::fair::groups;
use crate::linux::fair::weights::Load;
use crate::linux::fair::{Dequeue, Enqueue, FairRules};
use crate::linux::{Env, Linux, fair, rt};
use crate::{Cmd, Cx, Lock, Locks, Wake, WakeKind};
use schedlab_model::{CpuId, CpuSet, Policy, TaskId};

impl<L: Locks, F: FairRules> Linux<L, F> {
    /// Makes the entity of a task. It belongs to its parent's CPU, or to the first one where it may
    /// run.
    pub(in crate::linux) fn create(&self, cx: &Cx<'_>, task: TaskId, parent: Option<TaskId>) {
        if self.index.get(task).is_some() {
            return;
        }
        let view = cx.task(task);
        let fallback = || {
            let last = view.last_cpu();
            let fits = last.index() < self.rqs.len() && view.affinity.contains(last);
            if fits { last } else { view.affinity.lowest().unwrap_or(CpuId(0)) }
        };
        let parent = parent.and_then(|p| self.index.get(p));
        let cpu = parent.map_or_else(fallback, |(cpu, _)| cpu);
        let env = &self.env(cx);
        self.locked(cpu, |rq| {
            rq.touch::<F>(env, false);
            let id = rq.store(Entity::new(task.0, rq::ROOT, 0));
            self.index.set(task, cpu, id);
            describe::<F>(env, rq, id);
            let inherited = parent.map(|(_, parent)| rq.entity(parent).partners);
            let entity = rq.entity_mut(id);
            if let Some(partners) = inherited {
                entity.partners = partners.of_child(cpu);
            }
            if view.old_sleeper {
                entity.fresh = false;
                entity.relative = false;
                entity.vruntime = rq::LONG_AGO;
            } else if entity.class == Class::Fair {
                F::fork(env, rq, id, parent.map(|(_, parent)| parent));
                if self.smp.get().is_some() {
                    smp::start(rq, id, self.t.version.starts_by_weight());
                    smp::attach(rq, id);
                }
            }
        });
    }

    /// Policy, nice value or group of a task changed: off the queue, new description, on again.
    pub(in crate::linux) fn redescribe(&self, cx: &Cx<'_>, task: TaskId) {
        let Some((cpu, id)) = self.index.get(task) else { return };
        let env = &self.env(cx);
        let less_urgent = self.locked(cpu, |rq| {
            rq.touch::<F>(env, false);
            bandwidth::out_of_limbo::<F>(env, rq, id);
            if rq.entity(id).delayed {
                fair::dequeue_delayed::<F>(env, rq, id);
            }
            let view = cx.task(task);
            let (queued, running) = (rq.entity(id).on_rq, rq.curr == id);
            let (class, priority) = (rq.entity(id).class, rq.entity(id).rt_priority);
            let weight = rq.entity(id).load.weight();
            if class != Class::Fair && rq.entity(id).policy == view.policy {
                // A nice value means nothing to an RT or deadline task, and its group only matters
                // when it is fair again.
                return false;
            }
            let stays =
                class == class_of(view.policy) && rq.queue(rq.entity(id).queue).group == view.group;
            if queued {
                self.dequeue(env, rq, id, Dequeue::Save);
                if running && class == Class::Fair {
                    fair::put_prev::<F>(env, rq, id);
                }
            } else if class == Class::Fair && !stays {
                F::depart(env, rq, id);
            }
            describe::<F>(env, rq, id);
            if !queued {
                return false;
            }
            self.enqueue(env, rq, id, Enqueue::Restore);
            if rq.entity(id).class == Class::Rt && rq.entity(id).rt_priority < priority {
                rt::requeue(rq, id, true);
            }
            if !running {
                self.check_preempt(env, rq, id, false);
                return false;
            }
            if rq.entity(id).class == Class::Fair {
                fair::set_next::<F>(env, rq, id);
            }
            rq.entity_mut(id).exec_start = rq.clock;
            let worse = match (class, rq.entity(id).class) {
                (Class::Fair, Class::Fair) => rq.entity(id).load.weight() < weight,
                (Class::Rt, Class::Rt) => rq.rt.best() > rq.entity(id).rt_priority,
                (Class::Deadline, Class::Deadline) => {
                    rq.dl.first().is_none_or(|first| first.1 != id)
                }
                (before, now) => now < before,
            };
            if worse {
                rq.resched(env);
            }
            class != Class::Fair && rq.entity(id).rt_priority < priority
        });
        cx.push(Cmd::TickDue(cpu));
        if less_urgent {
            self.pull_dl(cx, cpu);
            self.pull_rt(cx, cpu);
        }
        self.push_dl(cx, cpu);
        self.push_rt(cx, cpu);
    }

    /// A wakeup, wherever the task is.
    #[inline(always)]
    pub(in crate::linux) fn woken(&self, cx: &Cx<'_>, smp: Option<&Smp>, task: TaskId, wake: Wake) {
        // Two tests: of one, the place would be put together in memory.
        let (from, id) = match self.index.get(task) {
            Some(home) => home,
            None => match self.comes_to_be(cx, task) {
                Some(home) => home,
                None => return,
            },
        };
        let env = &self.env(cx);
        let push_to = {
            let mut guard = self.rqs[from.index()].lock();
            let rq = &mut *guard;
            let push_to = rq.take_pushed(task.0);
            let entity = rq.entity(id);
            let queued = entity.on_rq;
            if queued && !entity.delayed {
                return;
            }
            if queued || (push_to.is_none() && self.stays_home(cx, smp, entity, from, wake)) {
                return if self.is_plain(env, rq) {
                    self.wake_plain(env, smp, rq, id, queued);
                } else if queued {
                    self.wake_delayed(env, rq, id);
                } else {
                    self.wake_at_home(env, rq, id, wake);
                };
            }
            // Nothing has changed, so nothing is published.
            push_to
        };
        self.wake_somewhere(cx, task, (from, id), wake, push_to);
    }

    /// Where a task is that was not known yet.
    #[inline(never)]
    fn comes_to_be(&self, cx: &Cx<'_>, task: TaskId) -> Option<(CpuId, rq::EntityId)> {
        self.create(cx, task, None);
        self.index.get(task)
    }

    /// A wakeup of a task that sleeps: choose the CPU (`push_to` if it was pushed there), move the
    /// task there, enqueue it, ask for preemption. Not in [`woken`](Self::woken), whose common case
    /// it would burden.
    #[inline(never)]
    fn wake_somewhere(
        &self,
        cx: &Cx<'_>,
        task: TaskId,
        (from, id): (CpuId, rq::EntityId),
        wake: Wake,
        push_to: Option<CpuId>,
    ) {
        let env = &self.env(cx);
        let to = push_to.filter(|&to| self.usable(cx, task, to));
        let to = to.unwrap_or_else(|| self.select(cx, task, from, wake));
        let moving = self.locked(from, |rq| {
            if to == from {
                rq.touch::<F>(env, false);
                self.activate(env, rq, id, wake);
                return None;
            }
            rq.settle::<F>(env, false);
            smp::detach(rq, id);
            if wake.kind == WakeKind::Migrated {
                self.share_out(env, rq, id);
            }
            F::depart(env, rq, id);
            Some(rq.take(id))
        });
        if let Some(entity) = moving {
            self.locked(to, |rq| {
                rq.touch::<F>(env, false);
                let id = self.rehome(env, rq, entity);
                self.activate(env, rq, id, wake);
            });
        }
        self.push_woken(cx, to, task);
        if matches!(cx.task(task).policy, Policy::Deadline { .. }) {
            self.push_woken_dl(cx, to);
        }
    }

    /// Wakes a task that is still queued.
    #[inline(never)]
    fn wake_delayed(&self, env: Env<'_>, rq: &mut Rq, id: EntityId) {
        rq.touch::<F>(env, false);
        fair::wake_delayed::<F>(env, rq, id);
        self.track(rq, id);
        self.check_preempt(env, rq, id, false);
        if rq.cpu != env.cx.cpu {
            env.cx.push(Cmd::TickDue(rq.cpu));
        }
        self.publish(rq);
    }

    /// Whether there is nothing to choose from: a fair task, which may stay, is woken on the CPU
    /// where it ran last while every CPU is busy.
    #[inline]
    fn stays_home(
        &self,
        cx: &Cx<'_>,
        smp: Option<&Smp>,
        entity: &Entity,
        from: CpuId,
        wake: Wake,
    ) -> bool {
        wake.kind == WakeKind::Wake
            && cx.cpu == from
            && entity.class == Class::Fair
            && smp.is_some_and(|smp| smp.summary.takers(true).none() && !smp.domains.has_smt)
            && cx.cpu(from).online
            && (entity.anywhere || cx.task(TaskId(entity.task)).affinity.contains(from))
    }

    /// A wakeup for which [`stays_home`](Self::stays_home) holds.
    #[inline(never)]
    fn wake_at_home(&self, env: Env<'_>, rq: &mut Rq, id: EntityId, wake: Wake) {
        plain::note_partners(env, rq, id);
        rq.touch::<F>(env, false);
        self.activate(env, rq, id, wake);
        self.publish(rq);
    }

    /// The second half of a wakeup: on the CPU that was chosen.
    pub(in crate::linux) fn activate(&self, env: Env<'_>, rq: &mut Rq, id: EntityId, wake: Wake) {
        let why = match wake.kind {
            WakeKind::New => Enqueue::New,
            WakeKind::Wake => Enqueue::Wake,
            WakeKind::Migrated => Enqueue::Restore,
        };
        if why == Enqueue::New && rq.entity(id).class == Class::Fair && self.smp.get().is_some() {
            smp::begin(rq, id, self.t.version.starts_by_weight());
        }
        if self.is_plain(env, rq) && rq.entity(id).class == Class::Fair {
            return self.activate_plain(env, rq, id, why);
        }
        self.enqueue(env, rq, id, why);
        self.check_preempt(env, rq, id, wake.kind == WakeKind::New);
        if rq.cpu != env.cx.cpu && !rq.need_resched {
            env.cx.push(Cmd::TickDue(rq.cpu));
        }
    }

    /// Moves a task's entity, not queued, from one CPU's store to another's.
    pub(in crate::linux) fn rehome(
        &self,
        env: Env<'_>,
        rq: &mut Rq,
        mut entity: Entity,
    ) -> EntityId {
        let task = TaskId(entity.task);
        entity.exec_start = 0;
        entity.queue = groups::queue_of(env, rq, env.cx.task(task).group);
        entity.depth = depth_in(rq, entity.queue);
        let id = rq.store(entity);
        self.index.set(task, rq.cpu, id);
        smp::attach(rq, id);
        dl::arrived(env, rq, id);
        id
    }

    /// Affinity of a task changed, or its CPU goes away.
    pub(in crate::linux) fn evict(&self, cx: &Cx<'_>, task: TaskId) {
        let Some((cpu, id)) = self.index.get(task) else { return };
        let affinity = &cx.task(task).affinity;
        self.locked(cpu, |rq| restrict(cx, rq.entity_mut(id), affinity));
        if affinity.contains(cpu) && cx.cpu(cpu).online {
            return;
        }
        let env = &self.env(cx);
        let moving = self.locked(cpu, |rq| {
            rq.touch::<F>(env, false);
            bandwidth::out_of_limbo::<F>(env, rq, id);
            if rq.entity(id).delayed {
                fair::dequeue_delayed::<F>(env, rq, id);
            }
            if !rq.entity(id).on_rq {
                return None;
            }
            if rq.curr == id {
                cx.push(Cmd::Displace(task));
                return None;
            }
            self.leave(env, rq, id);
            F::depart(env, rq, id);
            Some(rq.take(id))
        });
        let Some(entity) = moving else { return };
        cx.push(Cmd::TickDue(cpu));
        let wake =
            Wake { kind: WakeKind::Migrated, sync: false, waker: schedlab_model::Waker::Unknown };
        let to = self.select(cx, task, cpu, wake);
        self.locked(to, |rq| {
            rq.touch::<F>(env, false);
            let id = self.rehome(env, rq, entity);
            self.activate(env, rq, id, wake);
        });
        cx.push(Cmd::Moved(task, to));
    }
}

/// The class that serves a policy.
fn class_of(policy: Policy) -> Class {
    match policy {
        Policy::Deadline { .. } => Class::Deadline,
        policy if policy.is_fair() => Class::Fair,
        _ => Class::Rt,
    }
}

/// Levels below the root queue of an entity in `queue`.
pub(in crate::linux) fn depth_in(rq: &Rq, queue: rq::QueueId) -> u32 {
    match rq.queue(queue).owner {
        NONE => 0,
        owner => rq.entity(owner).depth + 1,
    }
}

/// Copies policy, weight and group of a task from its view. The entity is not queued.
pub(in crate::linux) fn describe<F: FairRules>(env: Env<'_>, rq: &mut Rq, id: EntityId) {
    let view = env.cx.task(TaskId(rq.entity(id).task));
    let queue = groups::queue_of(env, rq, view.group);
    let depth = depth_in(rq, queue);
    let ticks = rt::slice_ticks(env);
    if rq.entity(id).policy != view.policy || rq.entity(id).fresh {
        describe_deadline(rq, id, view.policy);
    }
    let entity = rq.entity_mut(id);
    if entity.policy != view.policy || entity.rr_ticks == 0 {
        entity.rr_ticks = ticks;
    }
    entity.queue = queue;
    entity.depth = depth;
    restrict(env.cx, entity, &view.affinity);
    entity.policy = view.policy;
    entity.normal = view.policy == Policy::Other;
    let version = &env.t.version;
    // Before, SCHED_IDLE is a weight and no more.
    entity.idle = view.policy == Policy::Idle && version.has_idle_groups();
    let slice = view.slice.filter(|_| version.has_custom_slices());
    entity.custom_slice = slice.is_some();
    entity.slice =
        slice.map_or(env.t.base_slice, |slice| slice.0.clamp(100_000, 100_000_000) as u32);
    entity.class = class_of(view.policy);
    entity.rt_priority = match view.policy {
        Policy::Deadline { .. } => 100,
        policy => policy.rt_priority(),
    };
    let load = match view.policy {
        Policy::Idle if version.idle_weight() == Load::IDLE.weight() => Load::IDLE,
        Policy::Idle => Load::from_weight(version.idle_weight()),
        _ => Load::nice(view.nice),
    };
    F::reweight(env, rq, id, load);
}

/// Where the task may run is now this.
fn restrict(cx: &Cx<'_>, entity: &mut Entity, affinity: &CpuSet) {
    let all = cx.world.all_cpus();
    (entity.pinned, entity.anywhere) = (affinity.count() == 1, affinity.and(&all) == all);
}

/// The server of a task whose policy becomes `policy`; none when that is no deadline policy.
fn describe_deadline(rq: &mut Rq, id: EntityId, policy: Policy) {
    dl::reclaim::detach(rq, id);
    match (rq.entity_mut(id).dl.as_deref_mut(), Cbs::for_policy(policy)) {
        (Some(server), Some(_)) => server.becomes(policy),
        (None, server) => rq.entity_mut(id).dl = server.map(Box::new),
        (Some(_), None) => {
            rq.entity_mut(id).dl = None;
            rq.dl.forget(id);
        }
    }
    dl::reclaim::attach(rq, id);
}
