//! A scheduler behind agents: the calls, the views and the commands that every driver has in common
//! whose agents decide beside the kernel. The simulated agents and both live drivers use it.
//!
//! [`DecisionCore`] has no clock and makes no system call. A driver says what happened and when;
//! the core brings the [`World`] up to date, calls the scheduler, and turns each [`Cmd`] into one
//! call of [`AgentDriver`]. The answers follow from the calls alone, so a log of the calls, played
//! into a new core, gives the same decisions.
//!
//! | command | here |
//! |---|---|
//! | [`Cmd::Resched`] | [`AgentDriver::decide`] |
//! | [`Cmd::Displace`] | [`AgentDriver::decide`]; that decision has [`Prev::Migrating`], `saved` and `wake(Migrated)` follow |
//! | [`Cmd::Arm`], [`Cmd::Disarm`] | [`AgentDriver::arm`], [`AgentDriver::disarm`] |
//! | [`Cmd::Call`] | kept until [`DecisionCore::take_call`] or [`DecisionCore::finish_calls`] |
//! | [`Cmd::Throttled`], [`Cmd::Unthrottled`] | [`AgentDriver::throttle`] |
//! | [`Cmd::TickDue`], [`Cmd::Moved`] | `tick_due` is asked again for the CPUs concerned ([`Ticks::Asked`]); agents have no event stream |
//!
//! A command that names what does not exist, and a scheduler that never comes to rest, is a
//! [`Breach`].

use crate::{
    Change, Cmd, Cx, Needs, Out, Pick, Prev, Runnable, Scheduler, Timer, Wake, WakeKind, Work,
    World,
};
use schedlab_model::{CpuId, CpuSet, Ns, TaskId, Waker};
use std::collections::VecDeque;
use std::ops::Deref;

/// Function calls ([`Cmd::Call`]) that may follow each other in one instant: several for each CPU
/// of a large machine. (No scheduler of the registry asks for any today.)
pub const CALLS_MAX: u32 = 1024;
/// Decisions for one CPU that may follow each other in one instant.
pub const DECISIONS_MAX: u32 = 64;

/// How a scheduler broke its contract.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Breach {
    /// A command names a CPU outside of the machine.
    #[error("a command names {0}, which the machine does not have")]
    NoSuchCpu(CpuId),
    /// A command names a task outside of the world.
    #[error("a command names {0}, which does not exist")]
    NoSuchTask(TaskId),
    /// A command names a timer that [`Needs`] does not declare.
    #[error("timer {0:?} was not declared in `needs`")]
    UndeclaredTimer(Timer),
    /// [`Cmd::Displace`] of a task that does not run.
    #[error("it displaces {0}, which does not run")]
    NotRunning(TaskId),
    /// The picked task is not in the world.
    #[error("it picked {0}, which does not exist")]
    PickedUnknown(TaskId),
    /// The picked task has just blocked, ended or been displaced.
    #[error("it picked {task:?}, which has just left ({why:?})")]
    PickedLeaver {
        /// The task.
        task: Option<TaskId>,
        /// Why it left.
        why: Prev,
    },
    /// The picked task cannot run on this CPU now, as far as its agents know.
    #[error(
        "behind its agents it picked {task} (runnable {runnable:?}, on {on:?}, may run on \
         {affinity})"
    )]
    PickedUnfit {
        /// The task.
        task: TaskId,
        /// Whether it wants a CPU.
        runnable: Runnable,
        /// The CPU on which it runs already.
        on: Option<CpuId>,
        /// Where it may run.
        affinity: CpuSet,
    },
    /// The scheduler cannot go on ([`Cmd::GiveUp`]).
    #[error("it gave up")]
    GaveUp,
    /// Function calls asked for function calls, again and again.
    #[error("it asked for more than {limit} function calls in one instant")]
    EndlessCalls {
        /// [`CALLS_MAX`].
        limit: u32,
    },
    /// Each decision asked for another one of the same CPU.
    #[error("it asked for yet another decision of {cpu} after {limit} in one instant")]
    EndlessDecisions {
        /// The CPU.
        cpu: CpuId,
        /// [`DECISIONS_MAX`].
        limit: u32,
    },
}

/// What a driver does for a scheduler: one method for each thing that a scheduler can ask for. None
/// has a default, so a driver that leaves one out does not compile.
pub trait AgentDriver {
    /// Asks for a decision of `cpu` ([`DecisionCore::decide`]) soon.
    fn decide(&mut self, cpu: CpuId);
    /// Fires `timer` at `at`, which is not in the past, instead of any earlier time.
    fn arm(&mut self, timer: Timer, at: Ns);
    /// Does not fire `timer`.
    fn disarm(&mut self, timer: Timer);
    /// Notes that `task` is runnable but may not run, or that it may run again.
    fn throttle(&mut self, task: TaskId, throttled: bool);
    /// Delivers the tick edge of `cpu` at this time next, and none before; `None`: no edge matters.
    /// Not called with [`Ticks::Every`].
    fn next_tick(&mut self, cpu: CpuId, at: Option<Ns>);
}

/// Which tick edges a driver delivers to a scheduler that needs ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ticks {
    /// Every edge of a CPU on which a task runs; `tick_due` is never asked.
    Every,
    /// Those that `tick_due` asks for.
    Asked,
}

/// One decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decided {
    /// The task that ran until now.
    pub prev: Option<TaskId>,
    /// What became of it.
    pub why: Prev,
    /// The scheduler's answer.
    pub pick: Pick,
}

/// What the next decision of a CPU has to know.
#[derive(Clone, Copy, Default, Debug)]
struct CpuFlags {
    displace: bool,
    yielded: bool,
}

/// A scheduler with the world as its agents know it; see the module. `S` owns or borrows the
/// scheduler.
pub struct DecisionCore<S> {
    scheduler: S,
    needs: Needs,
    asks_ticks: bool,
    world: World,
    out: Out,
    /// Takes what a question that changes nothing counts.
    aside: Out,
    cmds: Vec<Cmd>,
    flags: Vec<CpuFlags>,
    calls: VecDeque<(CpuId, u64)>,
    /// By global timer: the CPU that armed it last.
    armed_on: Vec<CpuId>,
    /// Calls of the scheduler since [`DecisionCore::take_work`].
    calls_made: u64,
    /// Units of work at the last [`DecisionCore::take_work`].
    counted: u64,
}

impl<S: Deref<Target: Scheduler>> DecisionCore<S> {
    /// Returns a core whose scheduler has not been called yet: [`DecisionCore::init`] comes first.
    /// `seed`: of the scheduler's random numbers.
    pub fn new(scheduler: S, world: World, seed: u64, ticks: Ticks) -> DecisionCore<S> {
        let needs = scheduler.needs();
        DecisionCore {
            scheduler,
            needs,
            asks_ticks: needs.ticks && ticks == Ticks::Asked,
            flags: vec![CpuFlags::default(); world.cpus.len()],
            world,
            out: Out::new(seed),
            aside: Out::new(seed),
            cmds: Vec::with_capacity(64),
            calls: VecDeque::new(),
            armed_on: vec![CpuId(0); usize::from(needs.global_timers)],
            calls_made: 0,
            counted: 0,
        }
    }

    /// Returns the scheduler, for its needs and refusals.
    pub fn scheduler(&self) -> &S::Target {
        &self.scheduler
    }

    /// Returns the world as the agents know it.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Returns the world, for attributes that the driver learns of; [`DecisionCore::changed`] tells
    /// the scheduler.
    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// Returns the CPU on which a timer fires: its own, that of its task, or the one that armed it
    /// last.
    pub fn timer_cpu(&self, timer: Timer) -> CpuId {
        match timer {
            Timer::Cpu(cpu, _) => cpu,
            Timer::Task(task) => self.world.tasks[task.index()].last_cpu(),
            Timer::Global(n) => self.armed_on.get(usize::from(n)).copied().unwrap_or(CpuId(0)),
        }
    }

    /// Returns whether the scheduler declared a timer, for a CPU and a task that exist.
    pub fn is_declared(&self, timer: Timer) -> bool {
        match timer {
            Timer::Cpu(cpu, n) => n < self.needs.cpu_timers && cpu.index() < self.world.cpus.len(),
            Timer::Task(task) => self.needs.task_timers && task.index() < self.world.tasks.len(),
            Timer::Global(n) => n < self.needs.global_timers,
        }
    }

    /// Returns one line about the state of the run queue of `cpu`.
    pub fn explain(&self, now: Ns, cpu: CpuId) -> String {
        self.scheduler.explain(&self.cx(now, cpu), cpu)
    }

    /// Returns the scheduler's answer to [`Scheduler::ahead`]; nothing changes.
    pub fn ahead(&self, now: Ns, cpu: CpuId) -> Option<TaskId> {
        self.scheduler.ahead(&Cx { now, cpu, world: &self.world, out: &self.aside }, cpu)
    }

    /// Returns how often the scheduler was called, and how many units of work it counted, since the
    /// last time.
    pub fn take_work(&mut self) -> (u64, u64) {
        let all = Work::ALL.iter().map(|work| self.out.work(*work)).sum();
        (std::mem::take(&mut self.calls_made), all - std::mem::replace(&mut self.counted, all))
    }

    fn cx(&self, now: Ns, cpu: CpuId) -> Cx<'_> {
        Cx { now, cpu, world: &self.world, out: &self.out }
    }
}

/// What happened. Each may ask the driver for something; `cpu` is where the call runs.
impl<S: Deref<Target: Scheduler>> DecisionCore<S> {
    /// Lets the scheduler place the tasks that are alive.
    ///
    /// # Errors
    /// When a command breaks the contract, as in all that follow.
    pub fn init(&mut self, driver: &mut impl AgentDriver) -> Result<(), Breach> {
        self.call(Ns::ZERO, CpuId(0), driver, |scheduler, cx| scheduler.init(cx))?;
        (0..self.world.cpus.len()).for_each(|cpu| self.ask_tick(Ns::ZERO, cpu.into(), driver));
        Ok(())
    }

    /// Tells the scheduler what [`DecisionCore::world_mut`] already shows.
    ///
    /// # Errors
    /// See [`DecisionCore::init`].
    pub fn changed(
        &mut self,
        now: Ns,
        cpu: CpuId,
        change: Change,
        driver: &mut impl AgentDriver,
    ) -> Result<(), Breach> {
        self.call(now, cpu, driver, |scheduler, cx| scheduler.changed(cx, change))
    }

    /// Makes a task runnable; its activation was due at `released`.
    ///
    /// # Errors
    /// See [`DecisionCore::init`].
    pub fn wake(
        &mut self,
        now: Ns,
        cpu: CpuId,
        (task, released): (TaskId, Ns),
        wake: Wake,
        driver: &mut impl AgentDriver,
    ) -> Result<(), Breach> {
        let view = &self.world.tasks[task.index()];
        view.set_runnable(Runnable::Yes);
        view.released.set(released);
        self.call(now, cpu, driver, |scheduler, cx| scheduler.wake(cx, task, wake))
    }

    /// Takes a task that does not run out of the queues.
    ///
    /// # Errors
    /// See [`DecisionCore::init`].
    pub fn leave(
        &mut self,
        now: Ns,
        cpu: CpuId,
        task: TaskId,
        driver: &mut impl AgentDriver,
    ) -> Result<(), Breach> {
        self.world.tasks[task.index()].set_runnable(Runnable::No);
        self.call(now, cpu, driver, |scheduler, cx| scheduler.leave(cx, task))
    }

    /// Delivers a tick edge.
    ///
    /// # Errors
    /// See [`DecisionCore::init`].
    pub fn tick(
        &mut self,
        now: Ns,
        cpu: CpuId,
        driver: &mut impl AgentDriver,
    ) -> Result<(), Breach> {
        self.call(now, cpu, driver, |scheduler, cx| scheduler.tick(cx, cpu))
    }

    /// Fires a timer, on [`DecisionCore::timer_cpu`].
    ///
    /// # Errors
    /// See [`DecisionCore::init`].
    pub fn timer(
        &mut self,
        now: Ns,
        timer: Timer,
        driver: &mut impl AgentDriver,
    ) -> Result<(), Breach> {
        let cpu = self.timer_cpu(timer);
        self.call(now, cpu, driver, |scheduler, cx| scheduler.timer(cx, timer))
    }

    /// Notes that the task on `cpu` called `sched_yield`: the next decision of that CPU tells the
    /// scheduler.
    pub fn note_yield(&mut self, cpu: CpuId) {
        self.flags[cpu.index()].yielded = true;
    }

    /// Takes the oldest function call that the scheduler asked for, of `cpu` only if one is given.
    pub fn take_call(&mut self, cpu: Option<CpuId>) -> Option<(CpuId, u64)> {
        let at = self.calls.iter().position(|(on, _)| cpu.is_none_or(|cpu| cpu == *on))?;
        self.calls.remove(at)
    }

    /// Returns whether a function call waits.
    pub fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Makes a function call that [`DecisionCore::take_call`] gave.
    ///
    /// # Errors
    /// See [`DecisionCore::init`].
    pub fn run_call(
        &mut self,
        now: Ns,
        (cpu, cookie): (CpuId, u64),
        driver: &mut impl AgentDriver,
    ) -> Result<(), Breach> {
        self.call(now, cpu, driver, |scheduler, cx| scheduler.call(cx, cookie))
    }

    /// Makes every function call that waits, and those that they ask for: for a driver to which
    /// they cost nothing.
    ///
    /// # Errors
    /// See [`DecisionCore::init`]; [`Breach::EndlessCalls`] when they do not end.
    pub fn finish_calls(&mut self, now: Ns, driver: &mut impl AgentDriver) -> Result<(), Breach> {
        for _ in 0..CALLS_MAX {
            let Some(call) = self.take_call(None) else { return Ok(()) };
            self.run_call(now, call, driver)?;
        }
        if self.has_calls() { Err(Breach::EndlessCalls { limit: CALLS_MAX }) } else { Ok(()) }
    }

    /// Decides for `cpu`. `why`: what became of the task that runs there, as far as the driver
    /// knows (`Idle`, `Runnable`, `Blocked` or `Exited`); `ran`: the CPU time of that task since it
    /// came, asked when it goes.
    ///
    /// # Errors
    /// See [`DecisionCore::init`]; and when the picked task cannot run there.
    pub fn decide(
        &mut self,
        now: Ns,
        cpu: CpuId,
        why: Prev,
        ran: impl FnOnce(&World, TaskId) -> Ns,
        driver: &mut impl AgentDriver,
    ) -> Result<Decided, Breach> {
        let prev = self.world.cpus[cpu.index()].current();
        let CpuFlags { displace, yielded } = std::mem::take(&mut self.flags[cpu.index()]);
        let why = match (prev, why) {
            (None, _) => Prev::Idle,
            (Some(_), Prev::Runnable) if displace => Prev::Migrating,
            (Some(_), why) => why,
        };
        if let Some(task) = prev {
            if matches!(why, Prev::Blocked | Prev::Exited) {
                self.world.tasks[task.index()].set_runnable(Runnable::No);
            } else if yielded && why == Prev::Runnable {
                self.call(now, cpu, driver, |scheduler, cx| scheduler.yielded(cx, task))?;
            }
        }
        let pick =
            self.call(now, cpu, driver, |scheduler, cx| scheduler.schedule(cx, cpu, prev, why))?;
        if pick.task == prev {
            return match why {
                Prev::Idle | Prev::Runnable => Ok(Decided { prev, why, pick }),
                Prev::Blocked | Prev::Exited | Prev::Migrating => {
                    Err(Breach::PickedLeaver { task: prev, why })
                }
            };
        }
        if let Some(next) = pick.task {
            self.check_pick(cpu, next)?;
        }
        if let Some(task) = prev {
            let ran = ran(&self.world, task);
            self.world.tasks[task.index()].switched_out(now, ran);
        }
        self.world.cpus[cpu.index()].set_current(pick.task);
        if let Some(task) = pick.task {
            self.world.tasks[task.index()].switched_in(cpu, now);
        }
        if let Some(task) = prev {
            self.call(now, cpu, driver, |scheduler, cx| scheduler.saved(cx, cpu, task))?;
            self.world.tasks[task.index()].alive &= why != Prev::Exited;
            if why == Prev::Migrating {
                let wake = Wake { kind: WakeKind::Migrated, sync: false, waker: Waker::Unknown };
                self.call(now, cpu, driver, |scheduler, cx| scheduler.wake(cx, task, wake))?;
            }
        }
        Ok(Decided { prev, why, pick })
    }

    fn check_pick(&self, cpu: CpuId, task: TaskId) -> Result<(), Breach> {
        let view = self.world.tasks.get(task.index()).ok_or(Breach::PickedUnknown(task))?;
        let (runnable, on, affinity) = (view.runnable(), view.on_cpu(), view.affinity);
        if view.alive && runnable == Runnable::Yes && on.is_none() && affinity.contains(cpu) {
            return Ok(());
        }
        Err(Breach::PickedUnfit { task, runnable, on, affinity })
    }

    fn call<T>(
        &mut self,
        now: Ns,
        cpu: CpuId,
        driver: &mut impl AgentDriver,
        call: impl FnOnce(&S::Target, &Cx<'_>) -> T,
    ) -> Result<T, Breach> {
        let result = call(&self.scheduler, &self.cx(now, cpu));
        self.calls_made += 1;
        if self.out.has_cmds() {
            self.carry_out(now, cpu, driver)?;
        }
        self.ask_tick(now, cpu, driver);
        Ok(result)
    }

    /// Carries out the commands of a call that ran on `cpu`.
    fn carry_out(
        &mut self,
        now: Ns,
        cpu: CpuId,
        driver: &mut impl AgentDriver,
    ) -> Result<(), Breach> {
        let mut cmds = std::mem::take(&mut self.cmds);
        self.out.take_cmds(&mut cmds);
        for cmd in cmds.drain(..) {
            self.command(now, cpu, cmd, driver)?;
        }
        self.cmds = cmds;
        Ok(())
    }

    fn command(
        &mut self,
        now: Ns,
        cpu: CpuId,
        cmd: Cmd,
        driver: &mut impl AgentDriver,
    ) -> Result<(), Breach> {
        match cmd {
            Cmd::Resched(target) => {
                self.check_cpu(target)?;
                driver.decide(target);
                self.ask_tick(now, target, driver);
            }
            Cmd::TickDue(target) => {
                self.check_cpu(target)?;
                self.ask_tick(now, target, driver);
            }
            Cmd::GiveUp => return Err(Breach::GaveUp),
            Cmd::Arm(timer, at) => {
                self.check_timer(timer)?;
                if let Timer::Global(n) = timer {
                    self.armed_on[usize::from(n)] = cpu;
                }
                driver.arm(timer, at.max(now));
            }
            Cmd::Disarm(timer) => {
                self.check_timer(timer)?;
                driver.disarm(timer);
            }
            Cmd::Displace(task) => {
                self.check_task(task)?;
                let on = self.world.tasks[task.index()].on_cpu().ok_or(Breach::NotRunning(task))?;
                self.flags[on.index()].displace = true;
                driver.decide(on);
            }
            Cmd::Call(target, cookie) => {
                self.check_cpu(target)?;
                self.calls.push_back((target, cookie));
            }
            Cmd::Throttled(task) => {
                self.check_task(task)?;
                driver.throttle(task, true);
            }
            Cmd::Unthrottled(task) => {
                self.check_task(task)?;
                driver.throttle(task, false);
            }
            Cmd::Moved(task, to) => {
                self.check_task(task)?;
                self.check_cpu(to)?;
                let from = self.world.tasks[task.index()].last_cpu();
                self.ask_tick(now, from, driver);
                self.ask_tick(now, to, driver);
            }
        }
        Ok(())
    }

    fn check_cpu(&self, cpu: CpuId) -> Result<(), Breach> {
        if cpu.index() < self.world.cpus.len() { Ok(()) } else { Err(Breach::NoSuchCpu(cpu)) }
    }

    fn check_task(&self, task: TaskId) -> Result<(), Breach> {
        if task.index() < self.world.tasks.len() { Ok(()) } else { Err(Breach::NoSuchTask(task)) }
    }

    fn check_timer(&self, timer: Timer) -> Result<(), Breach> {
        if self.is_declared(timer) { Ok(()) } else { Err(Breach::UndeclaredTimer(timer)) }
    }

    /// Asks the scheduler which tick edge of `cpu` matters next.
    fn ask_tick(&self, now: Ns, cpu: CpuId, driver: &mut impl AgentDriver) {
        if !self.asks_ticks {
            return;
        }
        let due = self.scheduler.tick_due(&self.cx(now, cpu), cpu);
        let edge = self.world.ticks_until(cpu, now).saturating_add(due.max(1));
        let offset = self.world.tick_ns.0.checked_mul(edge - 1);
        let at = offset.and_then(|ns| ns.checked_add(self.world.cpus[cpu.index()].tick_phase.0));
        driver.next_tick(cpu, at.filter(|_| due != u64::MAX).map(Ns));
    }
}

#[cfg(test)]
mod tests;
