//! The fast path: decisions on a machine without costs. As in [`dispatch`](super::dispatch), but
//! the decision and the switch are one moment, so each record is looked up once. What happens
//! rarely (nothing changes, the decision gave commands that set no timer) goes the plain way.
//! `tests/it/paths.rs` holds both to the same events.

use super::ops::Ops;
use super::program::length;
use super::slots::OfCpu;
use super::state::{Bucket, Cause, Cpu, Since, Task, TaskState, Waits};
use super::{Engine, Step};
use crate::metrics::{Kind, Waited};
use schedlab_model::{Amount, CpuId, EventKind, EventSink, Ns, Op, PrevState, TaskId, Waker};
use schedlab_scheduler::{Pick, Prev, Runnable, Wake, WakeKind};

impl Cpu {
    /// Brings the account of the CPU and of its current task up to `now`: nothing but the program
    /// takes time.
    #[inline(always)]
    pub(super) fn charge(&mut self, task: &mut Task, now: u64) {
        let elapsed = now - std::mem::replace(&mut self.accounted, now);
        debug_assert!(elapsed <= task.left, "a task without work gives the CPU up");
        task.left -= task.left.min(elapsed);
        self.counted.busy_ns += Ns(elapsed);
    }

    /// The same while it is idle.
    #[inline(always)]
    fn charge_idle(&mut self, now: u64) {
        self.counted.idle_ns += Ns(now - std::mem::replace(&mut self.accounted, now));
    }
}

/// With what a task comes onto a CPU.
#[derive(Clone, Copy)]
struct Onset {
    /// Work that its present operation still needs.
    left: u64,
    /// Its program goes on when the instant is decided, and not at once.
    starts: bool,
}

impl Task {
    /// What follows a wakeup is mostly a run: it is made the present operation when the task
    /// blocks, while the program is at hand. Until it runs the activation stays fresh.
    #[inline(always)]
    fn prepare(&mut self, ops: &Ops) {
        let ended = self.pc == self.ops.count() && self.repeat_from != u32::MAX;
        let pc = if ended { self.repeat_from } else { self.pc };
        if let Some(Op::Run(Amount::Fixed(Ns(left)))) = ops.get(self.ops, pc)
            && left > 0
        {
            (self.left, self.pc) = (left, pc + 1);
        }
    }
}

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// As [`decide`](Engine::decide), where nothing costs time.
    #[inline(always)]
    pub(super) fn decide_fast(&mut self, cpu: usize) -> Step {
        let now = self.clock.now;
        let c = &mut self.cpus[cpu];
        c.queued = false;
        let (prev, displace) = (c.current, std::mem::take(&mut c.displace));
        let why = match prev {
            None => {
                c.charge_idle(now);
                Prev::Idle
            }
            Some(task) => {
                let task = &mut self.tasks[task.index()];
                // A task that blocks has just been charged.
                if c.accounted != now {
                    c.charge(task, now);
                }
                match task.state {
                    TaskState::Blocking => Prev::Blocked,
                    TaskState::Exiting => Prev::Exited,
                    _ if displace => Prev::Migrating,
                    _ => Prev::Runnable,
                }
            }
        };
        self.count_step(prev.map(TaskId::index))?;
        self.out.set_alone(self.queues.resched.is_empty());
        let pick = self.input.scheduler.schedule(&self.cx(cpu), CpuId(cpu as u32), prev, why);
        if prev == pick.task {
            return self.stays(cpu, why, pick);
        }
        if self.out.has_cmds() && !self.out.only_timers() {
            return self.apply(cpu, prev, why, pick, 0);
        }
        self.switch(cpu, prev, why, pick)
    }

    /// As `apply` and `record_switch` when the decision gave no commands but for timers, which know
    /// nothing of the switch.
    #[inline(always)]
    fn switch(&mut self, cpu: usize, prev: Option<TaskId>, why: Prev, pick: Pick) -> Step {
        let (now, next) = (self.clock.now, pick.task);
        let on = match next {
            Some(next) => {
                self.check_pick(cpu, next)?;
                self.comes(cpu, next)
            }
            None => Onset { left: 0, starts: false },
        };
        let c = &mut self.cpus[cpu];
        (c.stopped, c.starting) = (false, false);
        let yielded = std::mem::take(&mut c.yielded);
        let had_slice = std::mem::replace(&mut c.slice_armed, pick.slice_ns.is_some());
        let ran = now - std::mem::replace(&mut c.decided_at, now);
        c.recorded_at = now;
        (c.current, c.occupant) = (next, next);
        c.counted.switches += 1;
        match pick.slice_ns {
            // Its work is armed below.
            Some(ns) if next.is_some() && !on.starts => {
                let at = self.slice_end(ns);
                self.due.slots.arm_cpu_first(cpu, OfCpu::Slice, at);
            }
            Some(ns) => self.due.slots.arm_cpu(cpu, OfCpu::Slice, self.slice_end(ns)),
            None if had_slice => self.due.slots.disarm_cpu(cpu, OfCpu::Slice),
            None => {}
        }
        if self.out.has_cmds() {
            self.carry_out(cpu, Cause::Other)?;
        }
        let prev_state = match why {
            Prev::Blocked => PrevState::Sleeping,
            Prev::Exited => PrevState::Dead,
            _ => PrevState::Runnable,
        };
        self.output.events.note(now, cpu, EventKind::Switch { prev, prev_state, next });
        self.world.cpus[cpu].set_current(next);
        if prev.is_none() || next.is_none() {
            self.output.conservation.set_idle(cpu, next.is_none());
        }
        let waits = prev.filter(|task| self.goes(cpu, task.index(), why, yielded, ran));
        self.output.conservation.take_turns(waits, next);
        if let Some(task) = prev
            && (self.told.saved || why == Prev::Migrating)
        {
            self.has_gone(cpu, task, why)?;
        }
        self.begins(cpu, why, next, on)
    }

    /// What more is to be done when `task` has left `cpu`.
    #[inline(never)]
    fn has_gone(&mut self, cpu: usize, task: TaskId, why: Prev) -> Step {
        if self.told.saved {
            self.input.scheduler.saved(&self.cx(cpu), CpuId(cpu as u32), task);
            if self.out.has_cmds() {
                self.carry_out(cpu, Cause::Other)?;
            }
        }
        if why == Prev::Migrating { self.moved_off(cpu, task) } else { Ok(()) }
    }

    /// The work of `next`, which has just come onto `cpu`, is armed, or its program started.
    #[inline(always)]
    fn begins(&mut self, cpu: usize, why: Prev, next: Option<TaskId>, on: Onset) -> Step {
        if !on.starts && next.is_some() {
            self.due.slots.arm_cpu(cpu, OfCpu::Work, self.clock.now.saturating_add(on.left));
        } else if matches!(why, Prev::Runnable | Prev::Migrating) {
            // A task that left by itself had no work any more.
            self.due.slots.disarm_cpu(cpu, OfCpu::Work);
        }
        if self.ticks.followed {
            self.ask_tick(cpu);
        }
        match next {
            Some(next) if on.starts && !self.instant_is_over() => {
                self.cpus[cpu].starting = true;
                self.queues.starts.push(cpu as u32);
                debug_assert_eq!(self.cpus[cpu].current, Some(next));
                Ok(())
            }
            Some(next) if on.starts && on.left > 0 => {
                self.tasks[next.index()].fresh = false;
                self.due.slots.arm_cpu(cpu, OfCpu::Work, self.clock.now.saturating_add(on.left));
                Ok(())
            }
            Some(next) if on.starts => self.starts(cpu, next.index()),
            _ => Ok(()),
        }
    }

    /// `t` goes off `cpu`, on which it `ran` so long. Gives whether it waits now.
    #[inline(always)]
    fn goes(&mut self, cpu: usize, t: usize, why: Prev, yielded: bool, ran: u64) -> bool {
        let now = self.clock.now;
        if self.told.views {
            self.world.tasks[t].switched_out(Ns(now), Ns(ran));
        }
        let task = &mut self.tasks[t];
        task.last_ran_on = cpu as u32;
        task.leaves(Bucket::Run, now);
        let waits = match why {
            Prev::Blocked => {
                task.state = TaskState::Blocked;
                task.bucket = Bucket::Sleep;
                false
            }
            Prev::Exited => {
                task.state = TaskState::Dead;
                task.bucket = Bucket::Out;
                let extra = &mut self.extras[t];
                extra.lived += now - extra.born;
                self.world.tasks[t].alive = false;
                false
            }
            _ => {
                task.state =
                    if why == Prev::Migrating { TaskState::Moving } else { TaskState::Ready };
                if yielded {
                    self.extras[t].yields += 1;
                } else {
                    task.counts.preemptions += 1;
                }
                task.since = if yielded { Since::Yield } else { Since::Preemption };
                task.waits(t, &mut self.output.conservation)
            }
        };
        self.output.values.record_run(
            &mut self.output.metrics.tasks,
            t,
            &mut task.waited,
            ran,
            &mut task.counts,
        );
        if why == Prev::Exited {
            self.ends_with_last();
        }
        waits
    }

    /// `next` comes onto `cpu`. That it waits no more is counted together with what the one before
    /// it does.
    #[inline(always)]
    fn comes(&mut self, cpu: usize, next: TaskId) -> Onset {
        let (t, now) = (next.index(), self.clock.now);
        if self.told.views {
            self.world.tasks[t].switched_in(CpuId(cpu as u32), Ns(now));
        }
        let task = &mut self.tasks[t];
        let home = std::mem::replace(&mut task.home, cpu as u32);
        task.state = TaskState::Running;
        task.cpu = cpu as u32;
        let waited = task.leaves(Bucket::Wait, now);
        task.bucket = Bucket::Run;
        let last = task.last_ran_on;
        task.counts.migrations += u32::from(last != cpu as u32 && last != u32::MAX);
        let since = task.since;
        let on = Onset { left: task.left, starts: task.left == 0 || task.fresh };
        if home != cpu as u32 {
            let (from, to) = (CpuId(home), CpuId(cpu as u32));
            self.output.events.note(now, cpu, EventKind::Migrate { task: next, from, to });
        }
        match since.recorded_as() {
            Some(kind) => {
                let (values, tasks) = (&self.output.values, &mut self.output.metrics.tasks);
                let wait = (kind, waited);
                task.waited = Waited::after(wait, values, tasks, t, &mut task.counts);
            }
            None => self.comes_unrecorded(t, waited),
        }
        on
    }

    /// As `work_done`, where nothing costs time. Gives whether `cpu` is still to be asked for a
    /// decision, because its task blocks.
    #[inline(always)]
    pub(super) fn work_done_fast(&mut self, cpu: usize) -> Step<bool> {
        let c = &mut self.cpus[cpu];
        let Some(current) = c.current else {
            return self.internal(format!("work on idle cpu{cpu}"));
        };
        let task = &mut self.tasks[current.index()];
        c.charge(task, self.clock.now);
        let rest = task.left;
        if rest != 0 {
            let name = self.name(current);
            return self.internal(format!("{current} `{name}` finished {rest} ns too early"));
        }
        self.advance_fast(cpu, current.index())
    }

    /// The program of `t` goes on when other things may have to be done first.
    #[inline]
    pub(super) fn starts(&mut self, cpu: usize, t: usize) -> Step {
        if self.advance_fast(cpu, t)? {
            self.enqueue(cpu);
        }
        Ok(())
    }

    /// As [`advance`](Engine::advance): what programs mostly do, runs and sleeps, without a detour.
    /// Gives whether the task blocks and its CPU is still to be asked for a decision.
    #[inline]
    fn advance_fast(&mut self, cpu: usize, t: usize) -> Step<bool> {
        let now = self.clock.now;
        let task = &mut self.tasks[t];
        if task.left > 0 {
            // Prepared when it blocked.
            task.fresh = false;
            let at = now.saturating_add(task.left);
            self.due.slots.arm_cpu(cpu, OfCpu::Work, at);
            return Ok(false);
        }
        let mut steps = self.clock.steps;
        let (until, released) = loop {
            if steps >= self.clock.steps_max {
                self.clock.steps = steps;
                return self.count_step(Some(t)).map(|()| false);
            }
            steps += 1;
            match self.ops.get(task.ops, task.pc) {
                Some(Op::Run(amount)) => {
                    let left = match amount {
                        Amount::Fixed(ns) => ns.0,
                        Amount::Draw(_) => length(&mut self.extras[t], amount),
                    };
                    task.left = left;
                    task.pc += 1;
                    task.fresh = false;
                    if left > 0 {
                        self.clock.steps = steps;
                        self.due.slots.arm_cpu(cpu, OfCpu::Work, now.saturating_add(left));
                        return Ok(false);
                    }
                }
                Some(Op::Sleep(amount)) => {
                    task.pc += 1;
                    let length = match amount {
                        Amount::Fixed(ns) => ns.0,
                        Amount::Draw(_) => length(&mut self.extras[t], amount),
                    };
                    break (now.saturating_add(length), task.next_release(Waits::Timer, &self.ops));
                }
                Some(Op::NextPeriod { period, offset }) => {
                    let due = task.job.saturating_mul(period.0).saturating_add(offset.0);
                    if due > now {
                        // The operation is done when the task wakes.
                        task.job += 1;
                        task.pc += 1;
                        break (due, due);
                    }
                    if !task.fresh {
                        self.clock.steps = steps - 1;
                        return self.advance(cpu, t).map(|()| false);
                    }
                    task.begin_job(due);
                    if self.told.views {
                        self.world.tasks[t].released.set(Ns(due));
                    }
                }
                None if task.repeat_from != u32::MAX => task.pc = task.repeat_from,
                _ => {
                    self.clock.steps = steps - 1;
                    return self.advance(cpu, t).map(|()| false);
                }
            }
        };
        self.clock.steps = steps;
        self.sleeps(t, until, released);
        Ok(true)
    }

    /// The current task blocks on its own timer; the activation that follows is `released` at that
    /// time (or when it is woken).
    #[inline(always)]
    fn sleeps(&mut self, t: usize, until: u64, released: u64) {
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
        (task.state, task.waits, task.released) = (TaskState::Blocking, Waits::Timer, released);
        task.prepare(&self.ops);
        if self.told.views {
            self.world.tasks[t].set_runnable(Runnable::No);
        }
        self.due.slots.arm(self.due.layout.task(t), until);
    }

    /// As `wake_from_outside` of a task whose own timer fired.
    #[inline(always)]
    pub(super) fn wake_fast(&mut self, t: usize) -> Step {
        let now = self.clock.now;
        let task = &mut self.tasks[t];
        // A task that waits for something else set a device to work, and that is done.
        if task.state != TaskState::Blocked || task.waits != Waits::Timer {
            return self.task_timer(t);
        }
        let cpu = task.home as usize;
        let (waker, released) = (Waker::HardIrq, task.release_time(now));
        task.gets_ready(released);
        task.leaves(Bucket::Sleep, now);
        if task.waits(t, &mut self.output.conservation) {
            self.output.conservation.waits(t);
        }
        if self.told.views {
            let view = &self.world.tasks[t];
            view.released.set(Ns(released));
            view.set_runnable(Runnable::Yes);
        }
        self.output.events.note(now, cpu, EventKind::Wake { task: t.into(), waker });
        let wake = Wake { kind: WakeKind::Wake, sync: false, waker };
        self.input.scheduler.wake(&self.cx(cpu), t.into(), wake);
        self.after_call(cpu, Cause::Wakeup)
    }
}
