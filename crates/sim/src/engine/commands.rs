//! What follows a call of the scheduler: its commands, and its timers.

use super::layout::Fires;
use super::slots::NEVER;
use super::slots::OfCpu;
use super::state::{Bucket, Cause, Since, TaskState};
use super::{Engine, Step};
use crate::SimError;
use schedlab_model::{CpuId, EventKind, EventSink, Ns, TaskId};
use schedlab_scheduler::decision_core::Breach;
use schedlab_scheduler::{Cmd, Timer};

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// Carries out the commands of a call that ran on `cpu`, then asks for its next tick.
    #[inline(always)]
    pub(super) fn after_call(&mut self, cpu: usize, cause: Cause) -> Step {
        if self.out.has_cmds() {
            self.carry_out(cpu, cause)?;
        }
        if self.ticks.followed {
            self.ask_tick(cpu);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn carry_out(&mut self, cpu: usize, cause: Cause) -> Step {
        match self.out.take_only_cmd() {
            Some(Cmd::Resched(target)) if FREE && target.index() < self.cpus.len() => {
                self.enqueue(target.index());
                self.ask_other_tick(cpu, target);
                Ok(())
            }
            Some(cmd) => self.command(cpu, cause, cmd),
            None => self.carry_out_all(cpu, cause),
        }
    }

    #[inline(never)]
    fn carry_out_all(&mut self, cpu: usize, cause: Cause) -> Step {
        let mut cmds = std::mem::take(&mut self.queues.cmds);
        self.out.take_cmds(&mut cmds);
        for &cmd in &cmds {
            self.command(cpu, cause, cmd)?;
        }
        cmds.clear();
        self.queues.cmds = cmds;
        Ok(())
    }

    fn command(&mut self, cpu: usize, cause: Cause, cmd: Cmd) -> Step {
        match cmd {
            Cmd::Resched(target) => {
                self.check_cpu(cpu, target)?;
                self.request(target.index(), cause, Some(cpu));
                self.ask_other_tick(cpu, target);
            }
            Cmd::TickDue(target) => {
                self.check_cpu(cpu, target)?;
                self.ask_other_tick(cpu, target);
            }
            Cmd::GiveUp => {
                let why = self.input.scheduler.gave_up().unwrap_or_default();
                return Err(Box::new(SimError::GaveUp { at: Ns(self.clock.now), why }));
            }
            Cmd::Arm(timer, at) => {
                let slot = self.timer_slot(cpu, timer)?;
                if let Timer::Global(n) = timer {
                    self.due.global_armed_on[usize::from(n)] = cpu as u32;
                }
                let (late, slop) =
                    (self.input.costs.timer_late_ns.0, self.input.costs.timer_slop_ns.0);
                let fires =
                    at.0.max(self.clock.now)
                        .saturating_add(late)
                        .max(self.clock.now.saturating_add(slop));
                self.due.slots.arm(slot, fires);
            }
            Cmd::Disarm(timer) => {
                let slot = self.timer_slot(cpu, timer)?;
                self.due.slots.disarm(slot);
            }
            Cmd::Displace(task) => self.displace(cpu, task)?,
            Cmd::Call(target, cookie) => {
                self.check_cpu(cpu, target)?;
                self.queues.calls.push((target, cookie));
            }
            Cmd::Throttled(task) => self.throttle(cpu, task, true)?,
            Cmd::Unthrottled(task) => self.throttle(cpu, task, false)?,
            Cmd::Moved(task, to) => {
                self.check_cpu(cpu, to)?;
                self.check_task(cpu, task)?;
                let from = CpuId(self.tasks[task.index()].home);
                self.move_home(cpu, task, to);
                self.ask_other_tick(cpu, from);
                self.ask_other_tick(cpu, to);
            }
        }
        Ok(())
    }

    #[inline]
    fn ask_other_tick(&mut self, own: usize, target: CpuId) {
        if self.ticks.followed && target.index() != own {
            self.ask_tick(target.index());
        }
    }

    fn check_cpu(&self, cpu: usize, target: CpuId) -> Step {
        if target.index() < self.cpus.len() {
            return Ok(());
        }
        self.fault(cpu, Breach::NoSuchCpu(target).to_string())
    }

    fn check_task(&self, cpu: usize, task: TaskId) -> Step {
        if task.index() < self.tasks.len() {
            return Ok(());
        }
        self.fault(cpu, Breach::NoSuchTask(task).to_string())
    }

    fn timer_slot(&self, cpu: usize, timer: Timer) -> Step<usize> {
        let slot = match timer {
            Timer::Cpu(target, n) => self.due.layout.cpu_timer(target.index(), n),
            Timer::Task(task) if task.index() < self.tasks.len() => {
                self.due.layout.task_timer(task.index())
            }
            Timer::Task(_) => None,
            Timer::Global(n) => self.due.layout.global(n),
        };
        match slot {
            Some(slot) => Ok(slot),
            None => self.fault(cpu, Breach::UndeclaredTimer(timer).to_string()),
        }
    }

    fn displace(&mut self, cpu: usize, task: TaskId) -> Step {
        self.check_task(cpu, task)?;
        if !self.tasks[task.index()].is_current() {
            return self.fault(cpu, Breach::NotRunning(task).to_string());
        }
        let target = self.tasks[task.index()].cpu as usize;
        self.cpus[target].displace = true;
        self.request(target, Cause::Other, Some(cpu));
        Ok(())
    }

    pub(super) fn throttle(&mut self, cpu: usize, task: TaskId, throttled: bool) -> Step {
        self.check_task(cpu, task)?;
        let t = task.index();
        if self.tasks[t].throttled == throttled {
            return Ok(());
        }
        self.tasks[t].throttled = throttled;
        if matches!(self.tasks[t].bucket, Bucket::Wait | Bucket::Throttled) {
            let bucket = self.tasks[t].waiting_bucket();
            let length = self.set_bucket(t, bucket);
            let since = &mut self.tasks[t].since;
            if matches!(since, Since::Wakeup | Since::LimitedWakeup) {
                *since = Since::LimitedWakeup;
                let (all, queued) = &mut self.extras[t].held_back;
                *all += length;
                *queued += if throttled { length } else { 0 };
            }
        }
        self.emit(
            cpu,
            if throttled { EventKind::Throttle { task } } else { EventKind::Unthrottle { task } },
        );
        Ok(())
    }

    /// Notes in the event stream that the task belongs to the run queue of `to` from now on.
    #[inline]
    pub(super) fn move_home(&mut self, cpu: usize, task: TaskId, to: CpuId) {
        let home = &mut self.tasks[task.index()].home;
        if *home != to.0 {
            let from = CpuId(std::mem::replace(home, to.0));
            self.emit(cpu, EventKind::Migrate { task, from, to });
        }
    }

    /// Asks for a decision of `cpu`; `from` = the CPU on which the request was made.
    #[inline]
    pub(super) fn request(&mut self, cpu: usize, cause: Cause, from: Option<usize>) {
        if FREE {
            self.enqueue(cpu);
        } else {
            self.request_at_cost(cpu, cause, from);
        }
    }

    fn request_at_cost(&mut self, cpu: usize, cause: Cause, from: Option<usize>) {
        if self.features.preempt.is_some() && self.is_put_off(cpu, cause, from) {
            return;
        }
        let c = &mut self.cpus[cpu];
        if c.switching.is_some() {
            c.again = true;
            return;
        }
        if c.queued {
            return;
        }
        let costs = &self.input.costs;
        let idle = c.current.is_none();
        let (drawn, slot, constant) = match cause {
            _ if idle => (self.input.machine.delays.idle.get(cpu), 0, costs.idle_decide_ns),
            Cause::Wakeup => (self.input.machine.delays.wakeup.get(cpu), 1, costs.wakeup_decide_ns),
            Cause::Tick => (None, 0, costs.tick_decide_ns),
            Cause::Block => (None, 0, costs.block_decide_ns),
            Cause::Other => (None, 0, costs.other_decide_ns),
        };
        let mut delay = match drawn.and_then(Option::as_ref) {
            // What is on its way does not become faster by asking again.
            Some(_) if c.resched_at != NEVER && c.cause == cause => return,
            Some(draw) => self.streams[cpu].draw(draw, slot),
            None => constant.0,
        };
        let remote = from.filter(|from| *from != cpu);
        if remote.is_some() {
            delay += costs.ipi_latency_ns.0;
        }
        let ipi = costs.ipi_send_ns.0;
        let at = self.clock.now + delay;
        if at < c.resched_at {
            c.cause = cause;
            if delay == 0 {
                self.enqueue(cpu);
            } else {
                c.resched_at = at;
                self.output.conservation.set_idle(cpu, false);
                self.due.slots.arm_cpu(cpu, OfCpu::Resched, at);
            }
        } else if cause == Cause::Block {
            c.cause = cause;
        }
        if let Some(sender) = remote {
            self.steal(sender, ipi);
        }
    }

    /// The request has arrived: `cpu` decides when the instant is drained.
    #[inline]
    pub(super) fn enqueue(&mut self, cpu: usize) {
        let c = &mut self.cpus[cpu];
        if !c.queued {
            c.queued = true;
            self.queues.resched.push(cpu as u32);
        }
    }

    /// Takes `ns` from the task on `cpu`, for an interrupt or a call.
    pub(super) fn steal(&mut self, cpu: usize, ns: u64) {
        if ns == 0 {
            return;
        }
        if !FREE && self.features.guest.is_some() && !self.is_on(cpu) {
            self.cpus[cpu].debt += ns;
            return;
        }
        self.account(cpu);
        let c = &mut self.cpus[cpu];
        c.debt += ns;
        if c.switching.is_none() && self.due.slots.cpu_at(cpu, OfCpu::Work).is_some() {
            self.arm_work(cpu);
        }
    }

    /// A timer that the scheduler armed has fired.
    pub(super) fn scheduler_timer(&mut self, what: Fires) -> Step {
        let (timer, cpu) = match what {
            Fires::CpuTimer(cpu, n) => (Timer::Cpu(CpuId(cpu as u32), n), cpu),
            Fires::TaskTimer(t) => (Timer::Task(t.into()), self.tasks[t].cpu as usize),
            Fires::Global(n) => {
                (Timer::Global(n), self.due.global_armed_on[usize::from(n)] as usize)
            }
            _ => return Ok(()),
        };
        self.count_step(None)?;
        self.input.scheduler.timer(&self.cx(cpu), timer);
        self.after_call(cpu, Cause::Other)
    }

    /// Checks whether the scheduler may run this task on `cpu` now.
    #[inline(always)]
    pub(super) fn check_pick(&self, cpu: usize, task: TaskId) -> Step {
        let Some(record) = self.tasks.get(task.index()) else {
            return self.fault(cpu, Breach::PickedUnknown(task).to_string());
        };
        let allowed = record.allowed == u32::MAX
            || cpu < 32 && record.allowed >> cpu & 1 != 0
            || self.world.tasks[task.index()].affinity.contains(CpuId(cpu as u32));
        if record.state == TaskState::Ready && !record.throttled && allowed {
            return Ok(());
        }
        self.wrong_pick(cpu, task)
    }

    /// Returns the error that says what is wrong with a pick.
    #[cold]
    #[inline(never)]
    fn wrong_pick(&self, cpu: usize, task: TaskId) -> Step {
        let record = &self.tasks[task.index()];
        let name = &self.input.workload.tasks[task.index()].name;
        match record.state {
            TaskState::Ready => {}
            TaskState::Running => {
                let what = format!("it picked {task} `{name}`, which runs on cpu{}", record.cpu);
                return self.fault(cpu, what);
            }
            state => {
                return self.fault(
                    cpu,
                    format!("it picked {task} `{name}`, which is not runnable ({state:?})"),
                );
            }
        }
        let affinity = &self.world.tasks[task.index()].affinity;
        if !affinity.contains(CpuId(cpu as u32)) {
            return self.fault(
                cpu,
                format!("it picked {task} `{name}`, which may run on CPUs {affinity} only"),
            );
        }
        // A decision may fetch the task from where it was throttled; its commands are carried out
        // before the switch.
        if self.out.unthrottles(task) {
            return Ok(());
        }
        self.fault(cpu, format!("it picked {task} `{name}`, which it throttled"))
    }

    /// Arms the slice that a decision asked for: the CPU decides again after it.
    #[inline(always)]
    pub(super) fn arm_slice(&mut self, cpu: usize, slice: Option<Ns>) {
        let c = &mut self.cpus[cpu];
        match slice {
            Some(ns) => {
                c.slice_armed = true;
                let at = self.slice_end(ns);
                self.due.slots.arm_cpu(cpu, OfCpu::Slice, at);
            }
            None if c.slice_armed => {
                c.slice_armed = false;
                self.due.slots.disarm_cpu(cpu, OfCpu::Slice);
            }
            None => {}
        }
    }

    /// Returns when a slice of `ns` that begins now ends.
    #[inline]
    pub(super) fn slice_end(&self, ns: Ns) -> u64 {
        let (late, slop) = (self.input.costs.timer_late_ns.0, self.input.costs.timer_slop_ns.0);
        self.clock.now.saturating_add(ns.0.saturating_add(late).max(slop))
    }
}
