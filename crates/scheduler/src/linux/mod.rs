//! Linux since 2.6.24, assembled by version: per-CPU run queues, each behind one lock, with private classes
//! inside (real-time before fair before idle).
//!
//! Shape:
//! * [`Linux`] implements [`Scheduler`]. It is generic over the lock family and over the rules of the fair
//!   class ([`fair::FairRules`]): [`cfs::Cfs`] here, EEVDF beside it.
//! * [`tunables::Version`] is a preset as data; [`tunables::Tunables`] are its knobs resolved for a machine.
//! * [`rq::Rq`] is everything that one CPU's lock guards: clock, entities (tasks and group shares), the fair
//!   queues, the RT lists. An entity lives in the store of the CPU on which its task is (or was last);
//!   [`homes::Homes`] says where. [`summary::Summary`] is what others may read without the lock.
//! * [`decide`] takes the running task off and chooses, class by class.
//! * [`fair`] walks the group hierarchy and calls the rules for each level; [`rt`] is the RT class.
//! * [`groups`] makes the queue of a group on a CPU; [`placement`] chooses a CPU at wakeup.
//!
//! Clock rule: a call refreshes the run-queue clock, except a `schedule` that follows a wakeup which asked
//! for it (`skip_clock`). Ticks that the driver left out are charged when the clock is refreshed, one by one
//! in effect, so that the schedule is the same as with every tick.

// Groups and bandwidth (engineer smp) will use the rest.
#![allow(dead_code)]

mod cfs;
mod decide;
mod eevdf;
mod fair;
mod fair_server;
mod groups;
mod homes;
mod placement;
mod rq;
mod rt;
mod summary;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tunables;
mod weights;

use crate::{Change, Cmd, Cx, Knob, Knobs, Lock, Locks, Needs, Pick, Prev, Scheduler, Timer, Wake, WakeKind};
use fair::{Dequeue, Enqueue, FairRules};
use homes::Homes;
use rq::{Class, Entity, EntityId, NONE, Rq};
use schedlab_model::{CpuId, GroupId, Ns, Policy, TaskId};
use std::marker::PhantomData;
use summary::Summary;
use tunables::{Tunables, Version};
use weights::Load;

/// What every function of this family needs besides its run queue.
#[derive(Clone, Copy)]
struct Env<'a> {
    cx: &'a Cx<'a>,
    t: &'a Tunables,
}

/// The knobs of `linux-6.1`.
pub fn knobs_6_1() -> Vec<Knob> {
    tunables::knobs(&tunables::V6_1)
}

/// `linux-6.1`: CFS with RT throttling, as in 5.15 … 6.5.
pub fn build_6_1<L: Locks>(cpus: usize, knobs: &Knobs) -> Box<dyn Scheduler> {
    Box::new(Linux::<L, cfs::Cfs>::new(tunables::V6_1, cpus, knobs))
}

/// The knobs of `linux-6.12`.
pub fn knobs_6_12() -> Vec<Knob> {
    tunables::knobs(&tunables::V6_12)
}

/// `linux-6.12`: EEVDF with delayed dequeue, and the fair server.
pub fn build_6_12<L: Locks>(cpus: usize, knobs: &Knobs) -> Box<dyn Scheduler> {
    Box::new(Linux::<L, eevdf::Eevdf>::new(tunables::V6_12, cpus, knobs))
}

/// The knobs of `linux-6.18`.
pub fn knobs_6_18() -> Vec<Knob> {
    tunables::knobs(&tunables::V6_18)
}

/// `linux-6.18`: EEVDF with the protection rules of 6.17 and later.
pub fn build_6_18<L: Locks>(cpus: usize, knobs: &Knobs) -> Box<dyn Scheduler> {
    Box::new(Linux::<L, eevdf::Eevdf>::new(tunables::V6_18, cpus, knobs))
}

/// Timer slot of a CPU: the fair server.
fn fair_server_timer(cpu: CpuId) -> Timer {
    Timer::Cpu(cpu, 0)
}

/// Timer slot of the machine: the period of RT throttling.
const RT_PERIOD: Timer = Timer::Global(0);

/// State of the RT period timer.
struct RtPeriod {
    active: bool,
    /// When it fires next, ns.
    next: u64,
}

/// A Linux scheduler of some version.
struct Linux<L: Locks, F> {
    t: Tunables,
    rqs: Vec<L::Lock<Rq>>,
    seen: Vec<Summary>,
    homes: Homes,
    rt_period: L::Lock<RtPeriod>,
    rules: PhantomData<F>,
}

impl<L: Locks, F: FairRules> Linux<L, F> {
    fn new(version: Version, cpus: usize, knobs: &Knobs) -> Self {
        let t = Tunables::new(version, cpus, knobs);
        Linux {
            rqs: (0..cpus).map(|cpu| L::Lock::new(Rq::new(cpu.into(), &t))).collect(),
            seen: (0..cpus).map(|_| Summary::default()).collect(),
            homes: Homes::new(),
            rt_period: L::Lock::new(RtPeriod { active: false, next: 0 }),
            rules: PhantomData,
            t,
        }
    }

    /// Runs `f` under the lock of `cpu` and publishes the summary.
    #[inline]
    fn locked<R>(&self, cpu: CpuId, f: impl FnOnce(&mut Rq) -> R) -> R {
        let mut rq = self.rqs[cpu.index()].lock();
        let result = f(&mut rq);
        self.seen[cpu.index()].publish(&rq);
        result
    }

    fn env<'a>(&'a self, cx: &'a Cx<'a>) -> Env<'a> {
        Env { cx, t: &self.t }
    }

    /// Makes the entity of a task. It belongs to its parent's CPU, or to the first one where it may run.
    fn create(&self, cx: &Cx<'_>, task: TaskId, parent: Option<TaskId>) {
        if self.homes.get(task).is_some() {
            return;
        }
        let view = cx.task(task);
        let fallback = || {
            let last = view.last_cpu();
            let fits = last.index() < self.rqs.len() && view.affinity.contains(last);
            if fits { last } else { view.affinity.lowest().unwrap_or(CpuId(0)) }
        };
        let parent = parent.and_then(|p| self.homes.get(p));
        let cpu = parent.map_or_else(fallback, |(cpu, _)| cpu);
        let env = self.env(cx);
        self.locked(cpu, |rq| {
            rq.touch::<F>(env, false);
            let id = rq.store(Entity::new(task.0, rq::ROOT, 0));
            self.homes.set(task, cpu, id);
            describe::<F>(env, rq, id);
            let entity = rq.entity_mut(id);
            if view.old_sleeper {
                entity.fresh = false;
                entity.relative = false;
                entity.vruntime = rq::LONG_AGO;
            } else if entity.class == Class::Fair {
                F::fork(env, rq, id, parent.map(|(_, parent)| parent));
            }
        });
    }

    /// Puts a runnable task on its class's queue.
    fn enqueue(&self, env: Env<'_>, rq: &mut Rq, id: EntityId, why: Enqueue) {
        rq.entity_mut(id).fresh = false;
        match rq.entity(id).class {
            Class::Fair => fair::enqueue::<F>(env, rq, id, why),
            Class::Rt => {
                self.start_rt_period(env);
                rt::enqueue(env, rq, id, false);
            }
        }
    }

    /// Takes a task off its class's queue.
    fn dequeue(&self, env: Env<'_>, rq: &mut Rq, id: EntityId, why: Dequeue) {
        match rq.entity(id).class {
            Class::Fair => {
                fair::dequeue::<F>(env, rq, id, why);
            }
            Class::Rt => rt::dequeue(env, rq, id),
        }
    }

    /// The RT period starts anew when the first RT task shows up after a quiet period.
    fn start_rt_period(&self, env: Env<'_>) {
        if !self.t.version.rt_throttling || self.t.rt_runtime == u64::MAX {
            return;
        }
        let mut period = self.rt_period.lock();
        if !period.active {
            *period = RtPeriod { active: true, next: env.cx.now.0 };
            env.cx.push(Cmd::Arm(RT_PERIOD, env.cx.now));
        }
    }

    /// The RT period timer fired.
    fn rt_period_ended(&self, cx: &Cx<'_>) {
        let env = self.env(cx);
        let periods = {
            let period = self.rt_period.lock();
            if !period.active || cx.now.0 < period.next {
                return;
            }
            (cx.now.0 - period.next) / self.t.rt_period + 1
        };
        let mut idle = true;
        for cpu in 0..self.rqs.len() {
            let step = self.locked(cpu.into(), |rq| {
                rq.touch::<F>(env, false);
                rt::period_step(env, rq, periods)
            });
            idle &= step.idle;
        }
        let mut period = self.rt_period.lock();
        period.next += periods * self.t.rt_period;
        period.active = !idle;
        if period.active {
            cx.push(Cmd::Arm(RT_PERIOD, Ns(period.next)));
        }
    }

    /// Whether `woken` takes the CPU from the running task; the clock was refreshed by this wakeup, so the
    /// `schedule` that follows will not do it again.
    fn check_preempt(&self, env: Env<'_>, rq: &mut Rq, woken: EntityId, new: bool) {
        if rq.curr == NONE {
            rq.resched(env);
        } else {
            let (curr, class) = (rq.curr, rq.entity(rq.curr).class);
            match rq.entity(woken).class.cmp(&class) {
                std::cmp::Ordering::Greater => rq.resched(env),
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal if class == Class::Fair => {
                    F::wakeup_preempt(env, rq, curr, woken, new);
                }
                std::cmp::Ordering::Equal => {
                    if rq.entity(woken).rt_priority > rq.entity(curr).rt_priority {
                        rq.resched(env);
                    }
                }
            }
        }
        if rq.need_resched && (rq.curr == NONE || rq.entity(rq.curr).on_rq) {
            rq.skip_clock = true;
        }
    }

    /// Moves a task's entity, not queued, from one CPU's store to another's.
    fn rehome(&self, env: Env<'_>, rq: &mut Rq, mut entity: Entity) -> EntityId {
        let task = TaskId(entity.task);
        entity.exec_start = 0;
        entity.queue = groups::queue_of(env, rq, env.cx.task(task).group);
        entity.depth = depth_in(rq, entity.queue);
        let id = rq.store(entity);
        self.homes.set(task, rq.cpu, id);
        id
    }

    /// The second half of a wakeup: on the CPU that was chosen.
    fn activate(&self, env: Env<'_>, rq: &mut Rq, id: EntityId, wake: Wake) {
        let why = match wake.kind {
            WakeKind::New => Enqueue::New,
            WakeKind::Wake => Enqueue::Wake,
            WakeKind::Migrated => Enqueue::Restore,
        };
        self.enqueue(env, rq, id, why);
        self.check_preempt(env, rq, id, wake.kind == WakeKind::New);
        if rq.cpu != env.cx.cpu && !rq.need_resched {
            env.cx.push(Cmd::TickDue(rq.cpu));
        }
    }

    /// Policy, nice value or group of a task changed: off the queue, new description, on again.
    fn redescribe(&self, cx: &Cx<'_>, task: TaskId) {
        let Some((cpu, id)) = self.homes.get(task) else { return };
        let env = self.env(cx);
        self.locked(cpu, |rq| {
            rq.touch::<F>(env, false);
            if rq.entity(id).delayed {
                fair::dequeue_delayed::<F>(env, rq, id);
            }
            let (queued, running) = (rq.entity(id).on_rq, rq.curr == id);
            let before = (rq.entity(id).class, rq.entity(id).rt_priority);
            if queued {
                self.dequeue(env, rq, id, Dequeue::Save);
                if running && before.0 == Class::Fair {
                    fair::put_prev::<F>(env, rq, id);
                }
            } else if before.0 == Class::Fair {
                F::depart(env, rq, id);
            }
            describe::<F>(env, rq, id);
            if queued {
                self.enqueue(env, rq, id, Enqueue::Restore);
                if running && rq.entity(id).class == Class::Fair {
                    fair::set_next::<F>(env, rq, id);
                }
                if running {
                    rq.entity_mut(id).exec_start = rq.clock;
                    rq.resched(env);
                } else {
                    self.check_preempt(env, rq, id, false);
                }
            }
        });
    }

    /// Affinity of a task changed, or its CPU goes away.
    fn evict(&self, cx: &Cx<'_>, task: TaskId) {
        let Some((cpu, id)) = self.homes.get(task) else { return };
        if cx.task(task).affinity.contains(cpu) && cx.cpu(cpu).online {
            return;
        }
        let env = self.env(cx);
        let moving = self.locked(cpu, |rq| {
            rq.touch::<F>(env, false);
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
            self.dequeue(env, rq, id, Dequeue::Save);
            F::depart(env, rq, id);
            Some(rq.take(id))
        });
        let Some(entity) = moving else { return };
        let wake = Wake { kind: WakeKind::Migrated, sync: false, waker: schedlab_model::Waker::Unknown };
        let to = placement::select(cx, &self.seen, task, cpu, wake);
        self.locked(to, |rq| {
            rq.touch::<F>(env, false);
            let id = self.rehome(env, rq, entity);
            self.activate(env, rq, id, wake);
        });
        cx.push(Cmd::Moved(task, to));
    }
}

/// Levels below the root queue of an entity in `queue`.
fn depth_in(rq: &Rq, queue: rq::QueueId) -> u32 {
    match rq.queue(queue).owner {
        NONE => 0,
        owner => rq.entity(owner).depth + 1,
    }
}

/// Copies policy, weight and group of a task from its view. The entity is not queued.
fn describe<F: FairRules>(env: Env<'_>, rq: &mut Rq, id: EntityId) {
    let view = env.cx.task(TaskId(rq.entity(id).task));
    let queue = groups::queue_of(env, rq, view.group);
    let depth = depth_in(rq, queue);
    let ticks = rt::slice_ticks(env);
    let entity = rq.entity_mut(id);
    if entity.policy != view.policy || entity.rr_ticks == 0 {
        entity.rr_ticks = ticks;
    }
    entity.queue = queue;
    entity.depth = depth;
    entity.policy = view.policy;
    entity.idle = view.policy == Policy::Idle;
    entity.custom_slice = view.slice.is_some();
    entity.slice = view.slice.map_or(env.t.base_slice, |slice| slice.0.clamp(100_000, 100_000_000));
    entity.class = if view.policy.is_fair() { Class::Fair } else { Class::Rt };
    entity.rt_priority = match view.policy {
        Policy::Deadline { .. } => 100,
        policy => policy.rt_priority(),
    };
    let load = if entity.idle { Load::IDLE } else { Load::nice(view.nice) };
    F::reweight(env, rq, id, load);
}

impl<L: Locks, F: FairRules> Scheduler for Linux<L, F> {
    fn needs(&self) -> Needs {
        Needs {
            wakeups: true,
            ticks: true,
            wakers: true,
            cpu_timers: 1,
            global_timers: 1,
            ..Needs::default()
        }
    }

    fn init(&self, cx: &Cx<'_>) {
        for (index, task) in cx.world.tasks.iter().enumerate() {
            if task.alive {
                self.create(cx, index.into(), None);
            }
        }
    }

    fn wake(&self, cx: &Cx<'_>, task: TaskId, wake: Wake) {
        if self.homes.get(task).is_none() {
            self.create(cx, task, None);
        }
        let Some((from, id)) = self.homes.get(task) else { return };
        let env = self.env(cx);
        let mut to = from;
        let moving = self.locked(from, |rq| {
            if rq.entity(id).on_rq {
                if rq.entity(id).delayed {
                    rq.touch::<F>(env, false);
                    F::wake_delayed(env, rq, id);
                    self.check_preempt(env, rq, id, false);
                }
                return None;
            }
            to = placement::select(cx, &self.seen, task, from, wake);
            if to == from {
                rq.touch::<F>(env, false);
                self.activate(env, rq, id, wake);
                return None;
            }
            rq.settle::<F>(env, false);
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
    }

    fn leave(&self, cx: &Cx<'_>, task: TaskId) {
        let Some((cpu, id)) = self.homes.get(task) else { return };
        let env = self.env(cx);
        self.locked(cpu, |rq| {
            if rq.entity(id).on_rq && rq.curr != id {
                rq.touch::<F>(env, false);
                self.dequeue(env, rq, id, Dequeue::Exit);
            }
            if !cx.task(task).alive && rq.curr != id {
                rq.take(id);
                self.homes.clear(task);
            }
        });
    }

    fn yielded(&self, cx: &Cx<'_>, task: TaskId) {
        let Some((cpu, id)) = self.homes.get(task) else { return };
        let env = self.env(cx);
        self.locked(cpu, |rq| {
            if rq.curr != id {
                return;
            }
            rq.touch::<F>(env, false);
            match rq.entity(id).class {
                Class::Fair => F::yielded(env, rq, id),
                Class::Rt => rt::requeue(rq, id, false),
            }
        });
    }

    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        self.reschedule(cx, cpu, prev, why, None)
    }

    fn schedule_forced(
        &self,
        cx: &Cx<'_>,
        cpu: CpuId,
        prev: Option<TaskId>,
        why: Prev,
        actual: Option<TaskId>,
    ) -> Option<Pick> {
        Some(self.reschedule(cx, cpu, prev, why, Some(actual)))
    }

    fn tick(&self, cx: &Cx<'_>, cpu: CpuId) {
        let env = self.env(cx);
        self.locked(cpu, |rq| {
            rq.touch::<F>(env, true);
            if rq.curr == NONE {
                return;
            }
            match rq.entity(rq.curr).class {
                Class::Fair => fair::tick::<F>(env, rq, rq.curr),
                Class::Rt => rt::tick(env, rq, rq.curr),
            }
        });
    }

    fn tick_due(&self, cx: &Cx<'_>, cpu: CpuId) -> u64 {
        let env = self.env(cx);
        let rq = self.rqs[cpu.index()].lock();
        if rq.curr == NONE {
            return u64::MAX;
        }
        if rq.need_resched {
            return 1;
        }
        match rq.entity(rq.curr).class {
            Class::Fair => fair::tick_due::<F>(env, &rq, rq.curr),
            Class::Rt => rt::tick_due(env, &rq, rq.curr),
        }
    }

    fn timer(&self, cx: &Cx<'_>, timer: Timer) {
        if let Timer::Cpu(cpu, 0) = timer {
            let env = self.env(cx);
            self.locked(cpu, |rq| {
                rq.touch::<F>(env, false);
                rq.fair_server_fired(env);
            });
        }
        if timer == RT_PERIOD {
            self.rt_period_ended(cx);
        }
    }

    fn changed(&self, cx: &Cx<'_>, change: Change) {
        match change {
            Change::Created { task, parent } => self.create(cx, task, parent),
            Change::Affinity(task) => self.evict(cx, task),
            Change::Attributes(task) | Change::Regrouped { task, .. } => self.redescribe(cx, task),
            Change::Group(group) => self.group_changed(cx, group),
            Change::Released(_) | Change::Online(_, true) => {}
            Change::Online(cpu, false) => {
                let tasks = self.locked(cpu, |rq| {
                    rq.entities.iter().filter(|e| e.on_rq && e.task != NONE).map(|e| TaskId(e.task)).collect()
                });
                let tasks: Vec<TaskId> = tasks;
                tasks.into_iter().for_each(|task| self.evict(cx, task));
            }
        }
    }

    fn resync(&self, cx: &Cx<'_>) {
        let env = self.env(cx);
        for (cpu, lock) in self.rqs.iter().enumerate() {
            *lock.lock() = Rq::new(cpu.into(), &self.t);
        }
        *self.rt_period.lock() = RtPeriod { active: false, next: 0 };
        for (index, view) in cx.world.tasks.iter().enumerate() {
            let task = TaskId::from(index);
            self.homes.clear(task);
            if !view.alive {
                continue;
            }
            self.create(cx, task, None);
            let Some((cpu, id)) = self.homes.get(task) else { continue };
            let running = view.on_cpu() == Some(cpu);
            if running || view.runnable() != crate::Runnable::No {
                self.locked(cpu, |rq| {
                    self.enqueue(env, rq, id, Enqueue::Restore);
                    if running {
                        rq.curr = id;
                        if rq.entity(id).class == Class::Fair {
                            fair::set_next::<F>(env, rq, id);
                        }
                        rq.entity_mut(id).exec_start = rq.clock;
                    }
                    rq.resched(env);
                });
            }
        }
    }

    fn standing(&self, _cx: &Cx<'_>, task: TaskId) -> Option<crate::Standing> {
        let (cpu, id) = self.homes.get(task)?;
        let rq = self.rqs[cpu.index()].lock();
        let entity = rq.entity(id);
        (entity.on_rq && entity.class == Class::Fair).then(|| F::standing(&rq, id))
    }

    fn explain(&self, _cx: &Cx<'_>, cpu: CpuId) -> String {
        let rq = self.rqs[cpu.index()].lock();
        let root = rq.queue(rq::ROOT);
        let mut text = format!(
            "{cpu}: {} running, {} rt{}, fair {} (min_vruntime {})",
            rq.nr_running,
            rq.rt.nr,
            if rq.rt.throttled { " throttled" } else { "" },
            root.h_nr,
            root.min_vruntime
        );
        for entity in rq.entities.iter().filter(|e| e.on_rq && e.task != NONE) {
            let mark = if rq.curr_task() == Some(TaskId(entity.task)) { "*" } else { "" };
            text += &format!(" {}{mark}@{}", TaskId(entity.task), entity.vruntime);
            if self.t.version.eevdf {
                let delayed = if entity.delayed { " delayed" } else { "" };
                text += &format!(" (deadline {}{delayed})", entity.deadline);
            }
        }
        text
    }
}

impl<L: Locks, F: FairRules> Linux<L, F> {
    /// Weight of a group changed.
    fn group_changed(&self, cx: &Cx<'_>, group: GroupId) {
        let env = self.env(cx);
        for cpu in 0..self.rqs.len() {
            self.locked(cpu.into(), |rq| {
                rq.touch::<F>(env, false);
                groups::reweigh::<F>(env, rq, group);
            });
        }
    }
}
