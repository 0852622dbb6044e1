//! Tasks that come: creation and wakeups.

use super::channels::Sender;
use super::state::{Bucket, Cause, Since, Task, TaskState, Waits};
use super::{Engine, Step};
use schedlab_model::{CpuId, EventKind, EventSink, Ns, TaskId, Waker};
use schedlab_scheduler::{Change, Runnable, Wake, WakeKind};

impl Task {
    /// Makes the task ready, to begin what was due at `released`.
    #[inline(always)]
    pub(super) fn gets_ready(&mut self, released: u64) {
        // With its mutex the task goes on with the activation in which it asked for it.
        self.fresh = !matches!(self.waits, Waits::Lock(_));
        self.waits = Waits::Nothing;
        self.counts.wakeups += 1;
        self.state = TaskState::Ready;
        self.since = Since::Wakeup;
        self.released = released;
        self.entering = true;
    }
}

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// A task's own timer: its start, or the end of a sleep.
    pub(super) fn task_timer(&mut self, t: usize) -> Step {
        if self.tasks[t].state == TaskState::Absent {
            return self.create(t, None, self.tasks[t].cpu as usize);
        }
        if self.live_again(t)? {
            return Ok(());
        }
        match self.extras[t].device.take() {
            None => self.wake_from_outside(t, Waker::HardIrq),
            Some((cpu, channel, count)) => {
                let there = self.world.cpus.get(cpu.index()).is_some_and(|cpu| cpu.online);
                let cpu = if there { cpu.index() } else { self.tasks[t].home as usize };
                self.bring(channel.index(), count, Sender::Interrupt { cpu })
            }
        }
    }

    /// Wakes the task by an interrupt, on the CPU to whose run queue it belongs: where it ran last,
    /// or was moved to.
    pub(super) fn wake_from_outside(&mut self, t: usize, waker: Waker) -> Step {
        let cpu = self.tasks[t].home as usize;
        if !FREE && self.features.preempt.is_some() && self.is_masked(cpu, t, waker, false)? {
            return Ok(());
        }
        self.wake(t, cpu, waker, false)?;
        if !FREE {
            self.interrupt_returns(cpu);
            let c = &self.cpus[cpu];
            let switches = c.queued || c.switching.is_some() || c.resched_at != super::slots::NEVER;
            if !switches {
                self.steal(cpu, self.input.costs.wake_interrupt_ns.0);
            }
        }
        Ok(())
    }

    /// Wakes the task by the interrupt of a device that `cpu` serves.
    pub(super) fn interrupt(&mut self, cpu: usize, t: usize) -> Step {
        if !FREE
            && self.features.preempt.is_some()
            && self.is_masked(cpu, t, Waker::SoftIrq, true)?
        {
            return Ok(());
        }
        if !FREE {
            self.steal(cpu, self.input.costs.wake_interrupt_ns.0);
        }
        self.wake(t, cpu, Waker::SoftIrq, false)?;
        if !FREE {
            self.interrupt_returns(cpu);
        }
        Ok(())
    }

    /// Creates a task: it is placed, then it wakes for the first time.
    pub(super) fn create(&mut self, t: usize, parent: Option<TaskId>, cpu: usize) -> Step {
        let task = TaskId::from(t);
        let allowed = self.world.tasks[t].affinity;
        let place = if allowed.contains(CpuId(cpu as u32)) {
            Some(CpuId(cpu as u32))
        } else {
            allowed.lowest()
        };
        let Some(place) = place else { return self.internal(format!("{task} may run nowhere")) };
        self.world.tasks[t].alive = true;
        self.world.tasks[t].set_last_cpu(place);
        let record = &mut self.tasks[t];
        (record.home, record.cpu) = (place.0, place.0);
        record.state = TaskState::Blocked;
        (record.pc, record.job, record.left) = (0, 0, 0);
        let extra = &mut self.extras[t];
        (extra.born, extra.batch, extra.debt) = (self.clock.now, 0, 0);
        if let Some(exchange) = &mut self.features.exchange {
            exchange.begin(t, self.clock.now);
        }
        extra.cursors = extra.program.branches.iter().map(|branch| branch.from).collect();
        self.set_bucket(t, Bucket::Sleep);
        self.emit(cpu, EventKind::New { task, parent });
        self.input.scheduler.changed(&self.cx(cpu), Change::Created { task, parent });
        self.after_call(cpu, Cause::Other)?;
        let waker = parent.map_or(Waker::Unknown, Waker::Task);
        self.make_ready(t, self.clock.now);
        self.call_wake(t, cpu, Wake { kind: WakeKind::New, sync: false, waker })
    }

    /// Wakes a blocked task; the wakeup runs on `cpu`.
    pub(super) fn wake(&mut self, t: usize, cpu: usize, waker: Waker, sync: bool) -> Step {
        let task = TaskId::from(t);
        match self.tasks[t].state {
            TaskState::Blocked => {
                self.emit(cpu, EventKind::Wake { task, waker });
                let released = self.tasks[t].release_time(self.clock.now);
                self.make_ready(t, released);
                self.call_wake(t, cpu, Wake { kind: WakeKind::Wake, sync, waker })
            }
            // It has not left its CPU yet: the decision that is under way finds it runnable.
            TaskState::Blocking => {
                self.emit(cpu, EventKind::Wake { task, waker });
                let released = self.tasks[t].release_time(self.clock.now);
                let record = &mut self.tasks[t];
                record.fresh = !matches!(record.waits, Waits::Lock(_));
                record.waits = Waits::Nothing;
                record.counts.wakeups += 1;
                record.state = TaskState::Running;
                record.released = released;
                self.world.tasks[t].released.set(Ns(released));
                self.world.tasks[t].set_runnable(Runnable::Yes);
                let on = record.cpu as usize;
                self.cpus[on].stopped = true;
                Ok(())
            }
            TaskState::Leaving => {
                self.extras[t].deferred = Some((cpu as u32, waker, sync));
                Ok(())
            }
            state => {
                self.internal(format!("{task} `{}` is woken while {state:?}", self.name(task)))
            }
        }
    }

    #[inline]
    fn make_ready(&mut self, t: usize, released: u64) {
        let task = &mut self.tasks[t];
        task.gets_ready(released);
        task.set_bucket(
            t,
            task.waiting_bucket(),
            self.clock.now,
            &mut self.output.conservation,
            &mut self.output.metrics.tasks,
        );
        let view = &self.world.tasks[t];
        view.released.set(Ns(released));
        view.set_runnable(Runnable::Yes);
    }

    #[inline]
    fn call_wake(&mut self, t: usize, cpu: usize, wake: Wake) -> Step {
        if !FREE {
            self.note_waking(t);
        }
        self.input.scheduler.wake(&self.cx(cpu), t.into(), wake);
        if !FREE && self.features.prices.is_some() {
            self.price_call(cpu, false);
        }
        if !FREE && let Some(call_cost) = self.features.call_cost {
            self.steal(cpu, call_cost.take());
        }
        self.after_call(cpu, Cause::Wakeup)
    }
}
