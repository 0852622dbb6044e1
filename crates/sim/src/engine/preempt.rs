//! Kernel sections: where a decision that was asked for may take effect. The rules and what is left
//! out are in `crate::preemption`.
//!
//! A decision that comes while the current task may not be preempted is *held*: nothing happens to
//! scheduler or task. At every boundary of the task's program it is looked at again, and taken when
//! the model allows it there.

use super::program::Flow;
use super::slots::{NEVER, OfCpu};
use super::state::{Cause, TaskState, Waits};
use super::{Engine, Step};
use crate::{PreemptModel, Preemption};
use schedlab_model::{Amount, CpuId, EventSink, Ns, Op, Section, TaskId, Waker, Workload};
use schedlab_scheduler::Change;

/// Where a task's program is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ExecutionMode {
    User,
    Kernel(Section),
}

/// Between two sections of a stay in the kernel.
const PLAIN: ExecutionMode = ExecutionMode::Kernel(Section::Preemptible);

/// An interrupt that waits until they are on again.
#[derive(Clone, Copy, Debug)]
struct Masked {
    /// The task that it wakes.
    task: u32,
    waker: Waker,
    /// This CPU serves it, wherever the task belongs: that of a device.
    here: bool,
}

#[derive(Debug)]
struct OnCpu {
    /// A decision waits, and why it was asked for.
    held: Option<Cause>,
    /// Since when it waits.
    since: u64,
    /// A task is to run that does not wait for the tick (`Lazy`).
    urgent: bool,
    /// From here on the request counts as urgent (`Lazy`): the tick after it was made.
    urgent_at: u64,
    /// Interrupts that came while they were off.
    masked: Vec<Masked>,
    /// Interrupts for the CPU's thread.
    threaded: Vec<u32>,
    /// The thread has worked off the handlers of this many of them.
    handled: usize,
}

/// The state of the preemption model of a run.
#[derive(Debug)]
pub(crate) struct Preempt {
    model: PreemptModel,
    places: Vec<ExecutionMode>,
    cpus: Vec<OnCpu>,
    threads: Vec<TaskId>,
    /// The wakeup that is being carried out is that of a task that is not fair.
    wakes_urgent: bool,
}

impl Preempt {
    /// `None` when no task can be held up and none waits for a tick.
    pub(super) fn new(
        preemption: &Preemption,
        workload: &Workload,
        cpus: usize,
    ) -> Option<Preempt> {
        let cpu = |_| OnCpu {
            held: None,
            since: 0,
            urgent: false,
            urgent_at: NEVER,
            masked: Vec::new(),
            threaded: Vec::new(),
            handled: 0,
        };
        preemption.matters(workload).then(|| Preempt {
            model: preemption.model,
            places: vec![ExecutionMode::User; workload.tasks.len()],
            cpus: (0..cpus).map(cpu).collect(),
            threads: preemption.irq_threads.clone(),
            wakes_urgent: false,
        })
    }

    /// Returns whether a task that is at `place` keeps the CPU.
    fn keeps(&self, place: ExecutionMode, urgent: bool) -> bool {
        let ExecutionMode::Kernel(section) = place else { return false };
        match section {
            Section::PreemptOff | Section::IrqsOff => true,
            Section::Spinlock => self.model != PreemptModel::Rt,
            Section::Preemptible => match self.model {
                PreemptModel::None | PreemptModel::Voluntary => true,
                PreemptModel::Full | PreemptModel::Rt => false,
                PreemptModel::Lazy => !urgent,
            },
        }
    }
}

/// Returns where the program is before `op`, coming from `old`, and during it.
fn places(
    old: ExecutionMode,
    op: Option<&Op>,
    model: PreemptModel,
) -> (ExecutionMode, ExecutionMode) {
    let between = if old == ExecutionMode::User { ExecutionMode::User } else { PLAIN };
    match op {
        None | Some(Op::Run(_) | Op::Serve { .. } | Op::Yield | Op::Exit) => {
            (ExecutionMode::User, ExecutionMode::User)
        }
        Some(Op::Repeat { .. } | Op::Done(_) | Op::SkipMissed { .. }) => (between, between),
        Some(Op::Kernel { section, .. }) => (between, ExecutionMode::Kernel(*section)),
        Some(Op::CondResched) if model == PreemptModel::Voluntary => (ExecutionMode::User, PLAIN),
        // Every other operation is a system call.
        Some(_) => (between, PLAIN),
    }
}

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// Returns whether a decision of `cpu` that is due has to wait. If so, that is noted.
    pub(super) fn is_held(&mut self, cpu: usize) -> bool {
        let (now, c) = (self.clock.now, &self.cpus[cpu]);
        let Some(p) = &mut self.features.preempt else { return false };
        let state = &mut p.cpus[cpu];
        state.urgent |= state.urgent_at <= now;
        let urgent = state.urgent;
        let keeps = c.current.is_some_and(|task| {
            let runs = self.tasks[task.index()].state == TaskState::Running && !c.stopped;
            runs && p.keeps(p.places[task.index()], urgent)
        });
        if keeps {
            self.keep_waiting(cpu, self.cpus[cpu].cause);
            // The wakeup left this question to the decision, which does not come now.
            self.ask_tick(cpu);
            return true;
        }
        let state = &mut p.cpus[cpu];
        if state.held.take().is_some() {
            self.output.metrics.held.count(now - state.since);
        }
        (state.urgent, state.urgent_at) = (false, NEVER);
        false
    }

    /// The decision waits, in the lazy model until the next tick at the latest.
    fn keep_waiting(&mut self, cpu: usize, cause: Cause) {
        let Some(p) = &self.features.preempt else { return };
        let state = &p.cpus[cpu];
        let lazy = p.model == PreemptModel::Lazy && !state.urgent;
        let new = lazy && state.urgent_at == NEVER;
        let at = if new { self.edge_in(CpuId(cpu as u32), 1) } else { state.urgent_at };
        let Some(p) = &mut self.features.preempt else { return };
        let state = &mut p.cpus[cpu];
        state.urgent_at = at;
        if state.held.is_none() {
            (state.held, state.since) = (Some(cause), self.clock.now);
        }
        let c = &mut self.cpus[cpu];
        c.cause = cause;
        if lazy && at < c.resched_at {
            c.resched_at = at;
            self.due.slots.arm_cpu(cpu, OfCpu::Resched, at);
        }
    }

    /// Returns whether a decision that is asked for waits, because the request of another CPU sends
    /// no interrupt (`Lazy`).
    pub(super) fn is_put_off(&mut self, cpu: usize, cause: Cause, from: Option<usize>) -> bool {
        let c = &self.cpus[cpu];
        let Some(p) = &mut self.features.preempt else { return false };
        let Some(current) = c.current else { return false };
        let urgent = match cause {
            Cause::Wakeup => p.wakes_urgent,
            _ => c.displace || !self.input.workload.tasks[current.index()].policy.is_fair(),
        };
        p.cpus[cpu].urgent |= urgent;
        let remote = from.is_some_and(|from| from != cpu);
        let runs = self.tasks[current.index()].state == TaskState::Running
            && !c.stopped
            && c.switching.is_none();
        if p.model != PreemptModel::Lazy || !remote || p.cpus[cpu].urgent || c.queued || !runs {
            return false;
        }
        self.keep_waiting(cpu, cause);
        true
    }

    /// Notes whether the task that is woken (or placed) is one that waits for no tick.
    pub(super) fn note_waking(&mut self, t: usize) {
        if let Some(p) = &mut self.features.preempt {
            p.wakes_urgent = !self.input.workload.tasks[t].policy.is_fair();
        }
    }

    /// The program of `t` on `cpu` comes to its next operation. Returns whether it stops there for
    /// a decision.
    pub(super) fn boundary(&mut self, cpu: usize, t: usize) -> Step<bool> {
        let task = &self.tasks[t];
        let op = self.ops.get(task.ops, task.pc);
        let Some(p) = &mut self.features.preempt else { return Ok(false) };
        let old = p.places[t];
        let (between, next) = places(old, op.as_ref(), p.model);
        let exits = matches!(op, Some(Op::Exit));
        p.places[t] = between;
        if old == ExecutionMode::User && next == ExecutionMode::User {
            return Ok(false);
        }
        self.world.tasks[t].set_in_kernel(next != ExecutionMode::User);
        if old == ExecutionMode::Kernel(Section::IrqsOff) {
            self.unmask(cpu)?;
        }
        if self.told.user_returns && next == ExecutionMode::User && !exits {
            self.input.scheduler.changed(&self.cx(cpu), Change::ReturnsToUser(t.into()));
            if self.out.has_cmds() {
                self.cpus[cpu].stopped = true;
                self.after_call(cpu, Cause::Other)?;
                return Ok(true);
            }
        }
        let Some(p) = &mut self.features.preempt else { return Ok(false) };
        let state = &mut p.cpus[cpu];
        state.urgent |= state.urgent_at <= self.clock.now;
        let state = &p.cpus[cpu];
        let queued = self.cpus[cpu].queued && old == ExecutionMode::Kernel(Section::IrqsOff);
        if (state.held.is_some() || queued) && !p.keeps(between, state.urgent) {
            if let Some(cause) = state.held {
                self.cpus[cpu].cause = cause;
            }
            self.cpus[cpu].stopped = true;
            self.enqueue(cpu);
            return Ok(true);
        }
        p.places[t] = next;
        Ok(false)
    }

    /// Interrupts are on again: those that waited are served.
    fn unmask(&mut self, cpu: usize) -> Step {
        let Some(p) = &mut self.features.preempt else { return Ok(()) };
        let mut masked = std::mem::take(&mut p.cpus[cpu].masked);
        for &Masked { task, waker, here } in &masked {
            match here {
                true => self.interrupt(cpu, task as usize)?,
                false => self.wake_from_outside(task as usize, waker)?,
            }
        }
        masked.clear();
        if let Some(p) = &mut self.features.preempt {
            p.cpus[cpu].masked = masked;
        }
        Ok(())
    }

    /// Returns whether an interrupt on `cpu` that is to wake `t` is off, or left to its thread.
    /// `here`: it is a device's, which interrupts this CPU and no other.
    pub(super) fn is_masked(
        &mut self,
        cpu: usize,
        t: usize,
        waker: Waker,
        here: bool,
    ) -> Step<bool> {
        let c = &self.cpus[cpu];
        let Some(p) = &mut self.features.preempt else { return Ok(false) };
        let off = |task: TaskId| p.places[task.index()] == ExecutionMode::Kernel(Section::IrqsOff);
        let runs = |task: TaskId| {
            self.tasks[task.index()].state == TaskState::Running && c.occupant == Some(task)
        };
        if c.current.is_some_and(|task| runs(task) && off(task)) {
            p.cpus[cpu].masked.push(Masked { task: t as u32, waker, here });
            return Ok(true);
        }
        let Some(&thread) = p.threads.get(cpu) else { return Ok(false) };
        if waker != Waker::SoftIrq || p.threads.contains(&t.into()) {
            return Ok(false);
        }
        p.cpus[cpu].threaded.push(t as u32);
        if self.tasks[thread.index()].waits == Waits::Interrupts {
            self.wake(thread.index(), cpu, Waker::HardIrq, false)?;
        }
        Ok(true)
    }

    /// An interrupt on `cpu` returns: what waits there for a way into the kernel need not wait
    /// longer.
    pub(super) fn interrupt_returns(&mut self, cpu: usize) {
        if self.features.preempt.as_ref().is_some_and(|p| p.cpus[cpu].held.is_some())
            && self.cpus[cpu].switching.is_none()
        {
            self.enqueue(cpu);
        }
    }

    /// The body of an interrupt thread.
    pub(super) fn serve_interrupts(&mut self, cpu: usize, t: usize, handler: Amount) -> Step<Flow> {
        let own = self
            .features
            .preempt
            .as_ref()
            .and_then(|p| p.threads.iter().position(|thread| thread.index() == t));
        let (Some(own), Some(p)) = (own, &mut self.features.preempt) else {
            let what = "it serves interrupts, but is the interrupt thread of no CPU".to_owned();
            let task = self.input.workload.tasks[t].name.clone();
            return Err(Box::new(crate::SimError::Program { task, at: Ns(self.clock.now), what }));
        };
        let state = &mut p.cpus[own];
        if state.threaded.is_empty() {
            return Ok(Flow::Block(Waits::Interrupts));
        }
        if state.handled == 0 {
            state.handled = state.threaded.len();
            let task = &mut self.tasks[t];
            task.left = super::program::length(&mut self.extras[t], handler);
            task.fresh = false;
            if task.left > 0 {
                return Ok(Flow::Cpu);
            }
        }
        let Some(p) = &mut self.features.preempt else { return Ok(Flow::Next) };
        let state = &mut p.cpus[own];
        let handled = std::mem::take(&mut state.handled);
        let rest = state.threaded.split_off(handled);
        let served = std::mem::replace(&mut state.threaded, rest);
        for &task in &served {
            self.wake_by(cpu, t, task as usize)?;
        }
        self.tasks[t].pc += 1;
        Ok(self.after_own_call(cpu))
    }
}
