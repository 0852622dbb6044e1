//! Linux since 2.6.24, assembled by version: per-CPU run queues, each behind one lock, with private
//! classes inside (deadline before real-time before fair before idle).
//!
//! Shape:
//! * [`Linux`] implements [`Scheduler`]. It is generic over the lock family and over the rules of
//!   the fair class ([`fair::FairRules`]): [`fair::cfs::Cfs`] here, EEVDF beside it.
//! * [`version::Version`] is a preset as data; [`tunables::Tunables`] are its knobs resolved for a
//!   machine.
//! * [`core::rq::Rq`] is everything that one CPU's lock guards: clock, entities (tasks and group
//!   shares), the fair queues, the RT lists. An entity lives in the store of the CPU on which its
//!   task is (or was last); [`core::task_index::TaskIndex`] says where.
//!   [`core::cpu_summary::CpuSummary`] is what others may read without the lock.
//! * [`core::decide`] takes the running task off and chooses, class by class; [`core::plain`] does
//!   the same in one piece for a CPU that has fair tasks of the root group only.
//! * [`fair`] walks the group hierarchy and calls the rules for each level; [`rt`] is the RT class,
//!   [`dl`] the deadline class.
//! * [`fair::groups`] makes the queue of a group on a CPU; [`balance::placement`] chooses a CPU at
//!   wakeup; [`core::tasks`] is the life of a task on the run queues. [`core::smp`] holds what the
//!   CPUs share.
//!
//! # Fidelity of the whole
//! Each file has its own table: [`fair::cfs`], [`fair::eevdf`], [`fair::server`], [`rt`],
//! [`rt::balance`], [`dl`], [`balance::placement`], [`balance::packing`], [`balance`],
//! [`fair::groups`], [`fair::pelt`].
//!
//! | rule | real place | here | test |
//! |---|---|---|---|
//! | class order: stop, deadline, RT, fair, idle | `pick_next_task` | modelled but for stop; the fair server is an entity of the deadline class | `classes_come_in_order` |
//! | fair class alone when no other task is runnable: the running task is not put back first | `pick_next_task`, fast path | modelled | oracle replay |
//! | clock skip | `rq_clock_skip_update` | modelled | oracle replay |
//! | tick | `scheduler_tick` | modelled; ticks that cannot matter may be left out | `elided_ticks_change_nothing`, `elided_ticks_change_no_event` |
//! | a CPU of `nohz_full` has no ticks | `sched_can_stop_tick` | modelled: [`tick`] | `nohz_full_cpus_have_no_ticks_beside_one_task` |
//! | remote wakeups are queued on the target (TTWU_QUEUE) | `ttwu_queue` | simplified: the waker enqueues | |
//! | lazy preemption | 6.13+, if configured | omitted (the recorded 6.18 does not use it) | |
//! | sched_ext, core scheduling, uclamp, capacity of unequal cores | | omitted | |
//! | events lost | | queues are rebuilt from the views; fair tasks start level | `resync_finds_every_task_again` |
//!
//! Clock rule: a call refreshes the run-queue clock, except a `schedule` that follows a wakeup
//! which asked for it (`skip_clock`). Ticks that the driver left out are charged when the clock is
//! refreshed, one by one in effect, so that the schedule is the same as with every tick.

mod balance;
mod core;
mod dl;
mod fair;
mod knobs;
pub(crate) mod presets;
mod release;
mod rt;
#[cfg(test)]
mod tests;
mod tick;
mod tunables;
mod version;

pub use fair::weights::{
    IDLE as WEIGHT_OF_IDLE, NICE_0 as WEIGHT_OF_NICE_0, of_nice as weight_of_nice,
};

use self::core::rq::{Class, EntityId, NONE, Rq};
use self::core::smp::{self, Smp};
use self::core::task_index::TaskIndex;
use crate::{
    Change, Cx, Knobs, Lock, Locks, Needs, OnLine, Pick, Prev, Rejection, Scheduler, Timer, Wake,
    World,
};
use balance::Balancer;
pub(crate) use dl::cbs::Cbs;
use fair::bandwidth::{self, PoolTable, Pools};
pub(crate) use fair::server::{FairServer, Wants};
use fair::{Dequeue, Enqueue, FairRules};
use rt::period::{RT_PERIOD, RtBudget, RtPeriod};
use schedlab_model::{CpuId, GroupId, Ns, Policy, TaskId};
use std::marker::PhantomData;
use std::sync::OnceLock;
use tunables::Tunables;
use version::{Feature, Version};

pub use release::{KernelRelease, KernelReleaseError, ModelledBy, preset_of};

/// What every function of this family needs besides its run queue.
type Env<'a> = &'a Surroundings<'a>;

/// See [`Env`].
#[derive(Clone, Copy)]
struct Surroundings<'a> {
    cx: &'a Cx<'a>,
    t: &'a Tunables,
    /// RT run time of each CPU.
    budgets: &'a [RtBudget],
    /// Run time of groups; missing when no group has a limit.
    pools: Option<&'a dyn Pools>,
}

/// Timer slot of a CPU: the fair server.
fn fair_server_timer(cpu: CpuId) -> Timer {
    Timer::Cpu(cpu, 0)
}

/// A Linux scheduler of some version.
struct Linux<L: Locks, F> {
    t: Tunables,
    rqs: Vec<OnLine<L::Lock<Rq>>>,
    /// Missing on a machine with one CPU, and before `init`.
    smp: OnceLock<Smp>,
    balancers: Vec<L::Lock<Balancer>>,
    /// Missing when no group has a bandwidth limit.
    pools: OnceLock<PoolTable<L>>,
    index: TaskIndex,
    rt_period: L::Lock<RtPeriod>,
    budgets: Vec<RtBudget>,
    /// The common case has a path of its own; off in the test that compares.
    plain: bool,
    rules: PhantomData<F>,
}

impl<L: Locks, F: FairRules> Linux<L, F> {
    fn new(version: Version, cpus: usize, knobs: &Knobs) -> Self {
        let t = Tunables::new(version, cpus, knobs);
        Linux {
            rqs: (0..cpus).map(|cpu| OnLine(L::Lock::new(Rq::new(cpu.into(), &t)))).collect(),
            smp: OnceLock::new(),
            balancers: (0..cpus).map(|_| L::Lock::new(Balancer::default())).collect(),
            pools: OnceLock::new(),
            index: TaskIndex::new(),
            rt_period: L::Lock::new(RtPeriod { active: false, next: 0 }),
            budgets: (0..cpus).map(|_| RtBudget::new(t.rt_runtime)).collect(),
            plain: !t.has(Feature::HRTICK) || version.hrtick_at_switch(),
            rules: PhantomData,
            t,
        }
    }

    /// Runs `f` under the lock of `cpu` and publishes its state.
    #[inline]
    fn locked<R>(&self, cpu: CpuId, f: impl FnOnce(&mut Rq) -> R) -> R {
        let mut rq = self.rqs[cpu.index()].lock();
        let result = f(&mut rq);
        self.publish(&mut rq);
        result
    }

    /// Publishes the state of a locked run queue.
    #[inline]
    fn publish(&self, rq: &mut Rq) {
        if let Some(smp) = self.smp.get() {
            smp.publish(rq);
        }
    }

    #[inline]
    fn env<'a>(&'a self, cx: &'a Cx<'a>) -> Surroundings<'a> {
        let pools = self.pools.get().map(|table| table as &dyn Pools);
        Surroundings { cx, t: &self.t, budgets: &self.budgets, pools }
    }

    /// Whether `cpu` is one of `nohz_full` and has no ticks now.
    #[inline]
    fn tick_is_off(&self, cx: &Cx<'_>, cpu: CpuId) -> bool {
        cx.world.roles.nohz_full.contains(cpu) && self.tick_stops(cx, cpu)
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
            Class::Deadline => dl::enqueue(env, rq, id, why),
        }
        rq.stamp(id);
        self.track(rq, id);
        self.share_out(env, rq, id);
    }

    /// Takes a task off its class's queue.
    fn dequeue(&self, env: Env<'_>, rq: &mut Rq, id: EntityId, why: Dequeue) {
        self.take_off(env, rq, id, why);
        self.share_out(env, rq, id);
    }

    /// Takes a waiting task off its queue and its load off this CPU: it goes to another one.
    fn leave(&self, env: Env<'_>, rq: &mut Rq, id: EntityId) {
        self.take_off(env, rq, id, Dequeue::Save);
        smp::detach(rq, id);
        self.share_out(env, rq, id);
    }

    /// Takes a task off its class's queue; the weights of its groups stay as they are.
    fn take_off(&self, env: Env<'_>, rq: &mut Rq, id: EntityId, why: Dequeue) {
        match rq.entity(id).class {
            Class::Fair => {
                fair::dequeue::<F>(env, rq, id, why);
            }
            Class::Rt => rt::dequeue(env, rq, id),
            Class::Deadline => dl::dequeue(env, rq, id, why == Dequeue::Sleep),
        }
        self.track(rq, id);
    }

    /// Whether `woken` takes the CPU from the running task; the clock was refreshed by this wakeup,
    /// so the `schedule` that follows will not do it again.
    fn check_preempt(&self, env: Env<'_>, rq: &mut Rq, woken: EntityId, new: bool) {
        if bandwidth::keeps_back(env, rq, woken) {
            return;
        }
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
                std::cmp::Ordering::Equal if class == Class::Deadline => {
                    if rq.dl.holds(woken) {
                        dl::preempt(env, rq, woken);
                    }
                }
                std::cmp::Ordering::Equal => {
                    let (ours, theirs) =
                        (rq.entity(woken).rt_priority, rq.entity(curr).rt_priority);
                    if ours > theirs {
                        rq.resched(env);
                    } else if ours == theirs && self.equal_goes_first(env, rq, curr, woken) {
                        rt::balance::go_first(env, rq, woken);
                    }
                }
            }
        }
        // A lazy request does not let `schedule` reuse the clock.
        let fair = |id: EntityId| id != NONE && rq.entity(id).class == Class::Fair;
        let lazy = self.t.version.preempts_lazily() && fair(rq.curr) && fair(woken);
        if rq.need_resched && !lazy && (rq.curr == NONE || rq.entity(rq.curr).on_rq) {
            rq.skip_clock = true;
        }
    }
}

impl<L: Locks, F: FairRules> Scheduler for Linux<L, F> {
    fn needs(&self) -> Needs {
        Needs {
            wakeups: true,
            ticks: true,
            wakers: true,
            cpu_timers: 3,
            global_timers: 3,
            own_marks: true,
            user_returns: !self.t.version.throttles_whole_queues(),
            isolation: true,
            nohz_full: self.t.version.has_nohz_full(),
            ..Needs::default()
        }
    }

    fn refuses(&self, policy: Policy) -> Option<&'static str> {
        dl::admission::refuses(&self.t, policy)
    }

    fn remarks(&self, policies: &[Policy], cpus: usize) -> Vec<String> {
        dl::admission::remarks(&self.t, policies, cpus)
    }

    fn rejects(&self, world: &World) -> Option<Rejection> {
        dl::admission::rejects(&self.t, world)
    }

    fn init(&self, cx: &Cx<'_>) {
        if self.rqs.len() > 1 {
            self.smp.get_or_init(|| Smp::new(cx, &self.t, L::ONE_THREAD));
        }
        if cx.world.groups.iter().any(|group| group.bandwidth.is_some()) {
            self.pools.get_or_init(|| PoolTable::new(cx));
        }
        for (index, task) in cx.world.tasks.iter().enumerate() {
            if task.alive {
                self.create(cx, index.into(), None);
            }
        }
    }

    fn wake(&self, cx: &Cx<'_>, task: TaskId, wake: Wake) {
        let smp = self.smp.get();
        self.woken(cx, smp, task, wake);
        self.arm_kick(cx, smp);
    }

    fn leave(&self, cx: &Cx<'_>, task: TaskId) {
        let Some((cpu, id)) = self.index.get(task) else { return };
        let env = &self.env(cx);
        self.locked(cpu, |rq| {
            bandwidth::out_of_limbo::<F>(env, rq, id);
            if rq.entity(id).on_rq && rq.curr != id {
                rq.touch::<F>(env, false);
                self.dequeue(env, rq, id, Dequeue::Exit);
            }
            if !cx.task(task).alive && rq.curr != id {
                rq.take(id);
                self.index.clear(task);
            }
        });
    }

    fn yielded(&self, cx: &Cx<'_>, task: TaskId) {
        let Some((cpu, id)) = self.index.get(task) else { return };
        let env = &self.env(cx);
        self.locked(cpu, |rq| {
            if rq.curr != id {
                return;
            }
            rq.touch::<F>(env, false);
            match rq.entity(id).class {
                Class::Fair => F::yielded(env, rq, id),
                Class::Rt => rt::requeue(rq, id, false),
                Class::Deadline => dl::yielded(env, rq, id),
            }
        });
    }

    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        let smp = self.smp.get();
        let pick = self.reschedule(cx, smp, cpu, prev, why);
        self.arm_kick(cx, smp);
        pick
    }

    fn schedule_forced(
        &self,
        cx: &Cx<'_>,
        cpu: CpuId,
        prev: Option<TaskId>,
        why: Prev,
        actual: Option<TaskId>,
    ) -> Option<Pick> {
        Some(self.reschedule_by_class(cx, cpu, prev, why, Some(actual)))
    }

    fn tick(&self, cx: &Cx<'_>, cpu: CpuId) {
        let off = self.tick_is_off(cx, cpu);
        if off && !tick::is_remote(cx, cpu) {
            return;
        }
        let env = &self.env(cx);
        let runs = self.locked(cpu, |rq| {
            if rq.curr == NONE {
                // Not asked for, so it must not matter: a wakeup may have refreshed the clock for a
                // choice to come.
                rq.settle::<F>(env, true);
                return false;
            }
            rq.touch::<F>(env, true);
            match rq.entity(rq.curr).class {
                Class::Fair => {
                    fair::tick::<F>(env, rq, rq.curr);
                    self.share_out(env, rq, rq.curr);
                }
                Class::Rt => rt::tick(env, rq, rq.curr),
                Class::Deadline => dl::update_curr(env, rq),
            }
            true
        });
        // A CPU that has yet to leave its idle task is not asked for its ticks, so they may not
        // matter.
        if runs && !off {
            self.look_at_idle(cx, cpu);
            self.balance_at_tick(cx, cpu);
        }
    }

    fn tick_stops(&self, cx: &Cx<'_>, cpu: CpuId) -> bool {
        let rq = self.rqs[cpu.index()].lock();
        tick::may_stop(&self.env(cx), &rq)
    }

    fn tick_due(&self, cx: &Cx<'_>, cpu: CpuId) -> u64 {
        if self.tick_is_off(cx, cpu) {
            return tick::remote_due(cx, cpu);
        }
        let env = &self.env(cx);
        let rq = self.rqs[cpu.index()].lock();
        if rq.curr == NONE {
            return u64::MAX;
        }
        // Between `sched_yield` and its decision, which may take time, a tick would refresh the
        // clock that is not refreshed again.
        if rq.need_resched || rq.skip_clock {
            return 1;
        }
        let balance = self.balance_at(cpu);
        if self.is_plain(env, &rq) {
            let at = rq.to_wall(F::tick_at(env, &rq, rq.curr)).min(balance);
            return if at == u64::MAX { at } else { rq.ticks_to_wall(env, at) };
        }
        match rq.entity(rq.curr).class {
            Class::Fair if self.shares_change(&rq) => 1,
            Class::Fair => {
                let at = rq.to_wall(fair::tick_at::<F>(env, &rq, rq.curr)).min(balance);
                if at == u64::MAX { at } else { rq.ticks_to_wall(env, at) }
            }
            class => {
                let own = match class {
                    Class::Deadline => dl::tick_due(env, &rq, rq.curr),
                    _ => rt::tick_due(env, &rq, rq.curr),
                };
                if balance == u64::MAX { own } else { own.min(rq.ticks_to_wall(env, balance)) }
            }
        }
    }

    fn timer(&self, cx: &Cx<'_>, timer: Timer) {
        let Timer::Cpu(cpu, _) = timer else {
            if timer == RT_PERIOD {
                self.rt_period_ended(cx);
            } else if timer == balance::KICK {
                self.kicked(cx);
            } else if timer == fair::bandwidth::BANDWIDTH {
                self.bandwidth_due(cx);
            }
            return;
        };
        let env = &self.env(cx);
        if timer == dl::timer(cpu) {
            return self.deadline_due(cx, env, cpu);
        }
        self.locked(cpu, |rq| {
            rq.touch::<F>(env, false);
            if timer == fair_server_timer(cpu) {
                rq.fair_server_fired(env);
            } else if timer == fair::hrtick_timer(cpu) {
                fair::hrtick_fired::<F>(env, rq);
                // As at a tick: `hrtick` calls `task_tick`, which shares the weights of groups out
                // anew.
                if let Some(curr) = rq.curr_of(Class::Fair) {
                    self.share_out(env, rq, curr);
                }
            }
        });
    }

    fn changed(&self, cx: &Cx<'_>, change: Change) {
        match change {
            Change::Created { task, parent } => self.create(cx, task, parent),
            Change::Executes(task) => self.executes(cx, task),
            Change::Affinity(task) => self.evict(cx, task),
            Change::Attributes(task) | Change::Regrouped { task, .. } => self.redescribe(cx, task),
            Change::Group(group) => self.group_changed(cx, group),
            Change::Released(_) => {}
            Change::ReturnsToUser(task) => self.returns_to_user(cx, task),
            Change::Online(cpu, true) => self.set_online(cpu, true),
            Change::Online(cpu, false) => {
                self.set_online(cpu, false);
                let tasks = self.locked(cpu, |rq| {
                    rq.entities
                        .iter()
                        .filter(|e| e.on_rq && e.task != NONE)
                        .map(|e| TaskId(e.task))
                        .collect()
                });
                let tasks: Vec<TaskId> = tasks;
                tasks.into_iter().for_each(|task| self.evict(cx, task));
            }
        }
    }

    fn resync(&self, cx: &Cx<'_>) {
        let env = &self.env(cx);
        for (cpu, lock) in self.rqs.iter().enumerate() {
            *lock.lock() = Rq::new(cpu.into(), &self.t);
        }
        *self.rt_period.lock() = RtPeriod { active: false, next: 0 };
        for (cpu, view) in cx.world.cpus.iter().enumerate() {
            self.set_online(cpu.into(), view.online);
        }
        for (index, view) in cx.world.tasks.iter().enumerate() {
            let task = TaskId::from(index);
            self.index.clear(task);
            if !view.alive {
                continue;
            }
            self.create(cx, task, None);
            let Some((cpu, id)) = self.index.get(task) else { continue };
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
        (0..self.rqs.len()).for_each(|cpu| self.locked(cpu.into(), |_| ()));
    }

    fn standing(&self, _cx: &Cx<'_>, task: TaskId) -> Option<crate::Standing> {
        let (cpu, id) = self.index.get(task)?;
        let rq = self.rqs[cpu.index()].lock();
        let entity = rq.entity(id);
        (entity.on_rq && entity.class == Class::Fair).then(|| F::standing(&rq, id))
    }

    fn fitted(&self) -> Vec<String> {
        let hrtick = self.t.version.hrtick_at_switch() && self.t.has(version::Feature::HRTICK);
        let text = || {
            format!(
                "HRTICK comes {} after the end of the slice (chosen, not fitted: exact slices \
                 make ties that a kernel \
                 never sees; in the recorded 7.2.13 it is 3.4 us, of which the machine oracle-7.2 \
                 adds 2.4)",
                Ns(fair::HRTICK_LATE)
            )
        };
        hrtick.then(text).into_iter().collect()
    }

    fn explain(&self, _cx: &Cx<'_>, cpu: CpuId) -> String {
        let rq = self.rqs[cpu.index()].lock();
        let root = rq.queue(core::rq::ROOT);
        let mut text = format!(
            "{cpu}: {} running, {} deadline, {} rt{}, fair {} (min_vruntime {})",
            rq.nr_running,
            rq.dl_here,
            rq.rt_nr,
            if rq.rt.throttled { " throttled" } else { "" },
            root.h_nr,
            root.min_vruntime
        );
        for entity in rq.entities.iter().filter(|e| e.on_rq && e.task != NONE) {
            let mark = if rq.curr_task() == Some(TaskId(entity.task)) { "*" } else { "" };
            if let Some(cbs) = &entity.dl {
                let (left, until) = (cbs.left, cbs.until);
                let waits = if cbs.throttled { " throttled" } else { "" };
                text +=
                    &format!(" {}{mark} (budget {left} until {until}{waits})", TaskId(entity.task));
                continue;
            }
            text += &format!(" {}{mark}@{}", TaskId(entity.task), entity.vruntime);
            if self.t.version.release.has_eevdf() {
                let delayed = if entity.delayed { " delayed" } else { "" };
                text += &format!(" (deadline {}{delayed})", entity.deadline);
            }
        }
        text
    }
}

impl<L: Locks, F: FairRules> Linux<L, F> {
    /// A CPU came or went.
    fn set_online(&self, cpu: CpuId, online: bool) {
        if let Some(smp) = self.smp.get() {
            smp.set_online(cpu, online);
        }
    }

    /// Weight of a group changed.
    fn group_changed(&self, cx: &Cx<'_>, group: GroupId) {
        self.limit_changed(cx, group);
        let env = &self.env(cx);
        for cpu in 0..self.rqs.len() {
            self.locked(cpu.into(), |rq| {
                rq.touch::<F>(env, false);
                self.weight_changed(env, rq, group);
            });
        }
    }
}
