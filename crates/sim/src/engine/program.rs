//! What a program does while its task runs.

use super::ops::Ops;
use super::slots::OfCpu;
use super::state::{Cause, Extra, Task, TaskState, Waits, Want};
use super::{Engine, Step};
use crate::metrics::Kind;
use schedlab_model::{
    Amount, ChannelId, CpuId, EventKind, EventSink, Ns, Op, Policy, Start, TaskId,
};
use schedlab_scheduler::{Change, Runnable};

/// What the program does after an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    /// The next operation follows at once.
    Next,
    /// It needs CPU time.
    Cpu,
    /// It waits.
    Block(Waits),
    /// It gives the CPU up.
    Yield,
    /// It has ended.
    Exit,
}

/// Returns the length of an operation.
#[inline]
pub(super) fn length(extra: &mut Extra<'_>, amount: Amount) -> u64 {
    match amount {
        Amount::Fixed(ns) => ns.0,
        Amount::Draw(index) => {
            extra.stream.draw(&extra.program.draws[index as usize], index as usize)
        }
    }
}

impl Task {
    /// A step that is over at once.
    fn passes(&mut self, flow: Flow) -> Flow {
        self.pc += 1;
        flow
    }

    /// Drops overdue jobs.
    fn skip_missed(&mut self, now: u64, period: u64, offset: u64) {
        self.job = self.job.max(now.saturating_sub(offset).div_ceil(period));
        self.pc += 1;
    }

    /// Begins the job that was due at `due`: `NextPeriod` is done.
    #[inline(always)]
    pub(super) fn begin_job(&mut self, due: u64) {
        self.exit_paid = false;
        self.job += 1;
        self.pc += 1;
        self.released = due;
        self.fresh = true;
    }

    /// Returns when the activation is due that begins after waiting for `waits`; `u64::MAX`: when
    /// it is woken. Worked out while the program is at hand.
    #[inline]
    pub(super) fn next_release(&self, waits: Waits, ops: &Ops) -> u64 {
        match ops.get(self.ops, self.pc) {
            Some(Op::NextPeriod { period, offset }) if waits == Waits::Timer => {
                self.job.saturating_mul(period.0).saturating_add(offset.0)
            }
            _ => u64::MAX,
        }
    }

    /// Returns when the activation was due that begins with a wakeup at `now`.
    #[inline]
    pub(super) fn release_time(&self, now: u64) -> u64 {
        self.released.min(now)
    }
}

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// Lets the program of `t`, which runs on `cpu` and owes nothing, go on until it needs time or
    /// leaves.
    pub(super) fn advance(&mut self, cpu: usize, t: usize) -> Step {
        loop {
            self.count_step(Some(t))?;
            if !FREE && self.features.preempt.is_some() && self.boundary(cpu, t)? {
                return Ok(());
            }
            match self.step(cpu, t)? {
                Flow::Next => {}
                Flow::Cpu if FREE => {
                    let at = self.clock.now.saturating_add(self.tasks[t].left);
                    self.due.slots.arm_cpu(cpu, OfCpu::Work, at);
                    return Ok(());
                }
                Flow::Cpu => {
                    self.stretch(cpu, t);
                    self.arm_work(cpu);
                    return Ok(());
                }
                Flow::Block(waits) => return self.block(cpu, t, waits),
                Flow::Yield => {
                    let c = &mut self.cpus[cpu];
                    (c.stopped, c.yielded) = (true, true);
                    self.input.scheduler.yielded(&self.cx(cpu), t.into());
                    self.after_call(cpu, Cause::Block)?;
                    self.request(cpu, Cause::Block, Some(cpu));
                    return Ok(());
                }
                Flow::Exit => {
                    self.end_activation(t);
                    self.tasks[t].state = TaskState::Exiting;
                    self.world.tasks[t].set_runnable(Runnable::No);
                    self.emit(cpu, EventKind::Exit { task: t.into() });
                    self.request(cpu, Cause::Block, Some(cpu));
                    return if !FREE && self.features.exchange.is_some() {
                        self.lets_go(cpu, t)
                    } else {
                        Ok(())
                    };
                }
            }
        }
    }

    #[inline(always)]
    pub(super) fn block(&mut self, cpu: usize, t: usize, waits: Waits) -> Step {
        let goes_on = matches!(waits, Waits::Lock(_));
        if !goes_on {
            self.end_activation(t);
        }
        let task = &mut self.tasks[t];
        task.state = TaskState::Blocking;
        task.waits = waits;
        if !goes_on {
            task.released = task.next_release(waits, &self.ops);
        }
        self.world.tasks[t].set_runnable(Runnable::No);
        self.request(cpu, Cause::Block, Some(cpu));
        if !FREE && self.features.exchange.is_some() { self.lets_go(cpu, t) } else { Ok(()) }
    }

    fn step(&mut self, cpu: usize, t: usize) -> Step<Flow> {
        let task = &mut self.tasks[t];
        let Some(op) = self.ops.get(task.ops, task.pc) else {
            if task.repeat_from == u32::MAX {
                return Ok(Flow::Exit);
            }
            task.pc = task.repeat_from;
            return Ok(Flow::Next);
        };
        match op {
            Op::Run(amount) | Op::Kernel { length: amount, .. } => {
                task.left = length(&mut self.extras[t], amount);
                task.pc += 1;
                task.fresh = false;
                Ok(if task.left > 0 { Flow::Cpu } else { Flow::Next })
            }
            Op::Sleep(amount) => Ok(self.sleep(t, amount)),
            Op::Device { length, cpu, channel, count } => {
                Ok(self.start_device(t, length, (cpu, channel, count)))
            }
            Op::NextPeriod { period, offset } => self.next_period(cpu, t, period, offset),
            Op::SkipMissed { period, offset } => {
                task.skip_missed(self.clock.now, period.0, offset.0);
                Ok(Flow::Next)
            }
            Op::SleepUntil(at) => Ok(self.sleep_until_time(t, at.0)),
            Op::Receive(channel) => self.receive(cpu, t, channel.index(), Want::Count(1)),
            Op::ReceiveAll(channel) => self.receive(cpu, t, channel.index(), Want::All),
            Op::ReceiveCount { channel, count } => {
                self.receive(cpu, t, channel.index(), Want::Count(count))
            }
            Op::Select => self.select(cpu, t),
            Op::Send { channel, count } => self.send(cpu, t, channel.index(), count),
            Op::Done(channel) => {
                task.pc += 1;
                task.fresh = false;
                self.finish_request(t, channel.index())?;
                Ok(Flow::Next)
            }
            Op::Serve { channel, per_request } => self.serve(t, channel.index(), per_request),
            Op::Lock(lock) => self.lock(cpu, t, lock.0),
            Op::Unlock(lock) => self.unlock(cpu, t, lock.0),
            Op::Interrupts(handler) => self.serve_interrupts(cpu, t, handler),
            Op::CondResched => Ok(task.passes(Flow::Next)),
            Op::Yield => Ok(task.passes(Flow::Yield)),
            Op::SetNice(nice) => self.set_nice(cpu, t, nice),
            Op::Exec => self.exec(cpu, t),
            Op::SetCpus { .. } => self.set_cpus(cpu, t, op.cpus().unwrap_or_default()),
            Op::Spawn(child) => {
                task.pc += 1;
                task.fresh = false;
                self.spawn(cpu, t, child)
            }
            Op::Repeat { to, times } => {
                let count = &mut self.extras[t].loops[task.pc as usize];
                if *count < times {
                    *count += 1;
                    task.pc = to;
                } else {
                    *count = 0;
                    task.pc += 1;
                }
                Ok(Flow::Next)
            }
            Op::Play(script) => self.play(cpu, t, script),
            Op::Attend(executor) => self.attend(cpu, t, executor),
            Op::Exit => Ok(Flow::Exit),
        }
    }

    fn sleep(&mut self, t: usize, time: Amount) -> Flow {
        if self.pay_exit(t) {
            return Flow::Cpu;
        }
        let time = length(&mut self.extras[t], time);
        self.tasks[t].pc += 1;
        // A sleep of 0 still goes through the timer: it blocks, and its timer fires at once.
        self.sleep_until(t, self.clock.now.saturating_add(time));
        Flow::Block(Waits::Timer)
    }

    /// A device works for `t`, which goes on; then it gives tokens as `what` says.
    fn start_device(&mut self, t: usize, time: Amount, what: (CpuId, ChannelId, u32)) -> Flow {
        let (task, extra) = (&mut self.tasks[t], &mut self.extras[t]);
        task.pc += 1;
        task.fresh = false;
        extra.device = Some(what);
        let time = length(extra, time);
        // No timer: it comes neither with slack nor late.
        self.due.slots.arm(self.due.layout.task(t), self.clock.now.saturating_add(time));
        Flow::Next
    }

    fn sleep_until_time(&mut self, t: usize, at: u64) -> Flow {
        if at <= self.clock.now {
            self.tasks[t].pc += 1;
            self.tasks[t].exit_paid = false;
            return Flow::Next;
        }
        if self.pay_exit(t) {
            return Flow::Cpu;
        }
        self.tasks[t].pc += 1;
        self.sleep_until(t, at);
        Flow::Block(Waits::Timer)
    }

    pub(super) fn spawn(&mut self, cpu: usize, t: usize, child: TaskId) -> Step<Flow> {
        let spawned = self.input.workload.tasks[child.index()].start == Start::Spawned;
        if spawned && matches!(self.tasks[child.index()].state, TaskState::Absent | TaskState::Dead)
        {
            if !FREE {
                self.steal(cpu, self.input.costs.wake_call_ns.0);
            }
            self.create(child.index(), Some(t.into()), cpu)?;
        }
        Ok(self.after_own_call(cpu))
    }

    /// A call that costs time was made: the program goes on when it is paid.
    pub(super) fn after_own_call(&self, cpu: usize) -> Flow {
        if self.cpus[cpu].debt > 0 { Flow::Cpu } else { Flow::Next }
    }

    /// Charges the way into a blocking call once; returns whether it has to be worked off first.
    pub(super) fn pay_exit(&mut self, t: usize) -> bool {
        if FREE {
            return false;
        }
        let task = &mut self.tasks[t];
        let cost = if self.extras[t].realtime {
            self.input.costs.rt_exit_ns
        } else {
            self.input.costs.fair_exit_ns
        };
        if task.exit_paid || cost == Ns::ZERO {
            task.exit_paid = false;
            return false;
        }
        task.exit_paid = true;
        self.extras[t].debt += cost.0;
        true
    }

    pub(super) fn sleep_until(&mut self, t: usize, at: u64) {
        let late = if FREE { 0 } else { self.timer_late(t) };
        self.due.slots.arm(self.due.layout.task(t), at.saturating_add(late));
    }

    fn timer_late(&self, t: usize) -> u64 {
        let slack = match self.input.workload.tasks[t].policy {
            Policy::Other | Policy::Batch | Policy::Idle => self.input.costs.timer_slack_ns.0,
            _ => 0,
        };
        slack + self.input.costs.timer_to_wake_ns.0
    }

    fn next_period(&mut self, cpu: usize, t: usize, period: Ns, offset: Ns) -> Step<Flow> {
        let task = &mut self.tasks[t];
        let due = task.job.saturating_mul(period.0).saturating_add(offset.0);
        if due > self.clock.now {
            if self.pay_exit(t) {
                return Ok(Flow::Cpu);
            }
            // The operation is done when the task wakes; `release_time` reads the job's number
            // then.
            self.sleep_until(t, due);
            return Ok(Flow::Block(Waits::Timer));
        }
        let fresh = task.fresh;
        if !fresh {
            self.end_activation(t);
        }
        let task = &mut self.tasks[t];
        task.begin_job(due);
        self.world.tasks[t].released.set(Ns(due));
        if fresh {
            return Ok(Flow::Next);
        }
        self.extras[t].debt += self.input.costs.late_job_ns.0;
        self.input.scheduler.changed(&self.cx(cpu), Change::Released(t.into()));
        self.after_call(cpu, Cause::Other)?;
        Ok(if self.extras[t].debt > 0 { Flow::Cpu } else { Flow::Next })
    }

    /// Ends the activation: its response time is known. One in which nothing was done does not
    /// count.
    #[inline(always)]
    fn end_activation(&mut self, t: usize) {
        let task = &mut self.tasks[t];
        if !task.fresh {
            let response = self.clock.now - task.released;
            self.output.values.record(
                &mut self.output.metrics.tasks,
                t,
                Kind::Response,
                response,
                &mut task.counts,
            );
        }
    }

    fn serve(&mut self, t: usize, channel: usize, per_request: Amount) -> Step<Flow> {
        if std::mem::take(&mut self.extras[t].serving) {
            self.finish_request(t, channel)?;
            self.extras[t].batch -= 1;
        }
        let task = &mut self.tasks[t];
        task.fresh = false;
        if self.extras[t].batch == 0 {
            task.pc += 1;
            return Ok(Flow::Next);
        }
        self.extras[t].serving = true;
        task.left = length(&mut self.extras[t], per_request);
        Ok(if task.left > 0 { Flow::Cpu } else { Flow::Next })
    }
}
