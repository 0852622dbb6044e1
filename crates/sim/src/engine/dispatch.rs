//! From a reschedule request to the program of the next task.

use super::slots::NEVER;
use super::slots::OfCpu;
use super::state::{Bucket, Cause, PendingSwitch, Since, TaskState};
use super::{Engine, Step};
use crate::metrics::Waited;
use schedlab_model::{CpuId, EventKind, EventSink, Ns, PrevState, TaskId, Waker};
use schedlab_scheduler::decision_core::Breach;
use schedlab_scheduler::{Pick, Prev, Wake, WakeKind};

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// Calls `schedule` for `cpu` and carries the answer out.
    pub(super) fn decide(&mut self, cpu: usize) -> Step {
        if !FREE && self.features.guest.is_some() && self.is_off(cpu) {
            return Ok(());
        }
        let c = &mut self.cpus[cpu];
        c.queued = false;
        if !FREE && self.not_yet(cpu) {
            return Ok(());
        }
        let c = &mut self.cpus[cpu];
        let prev = c.current;
        let displace = std::mem::take(&mut c.displace);
        self.count_step(prev.map(TaskId::index))?;
        self.account(cpu);
        let why = match prev {
            None => Prev::Idle,
            Some(task) => match self.tasks[task.index()].state {
                TaskState::Blocking => Prev::Blocked,
                TaskState::Exiting => Prev::Exited,
                _ if displace => Prev::Migrating,
                _ => Prev::Runnable,
            },
        };
        let pick = self.input.scheduler.schedule(&self.cx(cpu), CpuId(cpu as u32), prev, why);
        let mut price =
            if !FREE && self.features.prices.is_some() { self.price_decision(cpu) } else { 0 };
        if !FREE && let Some(call_cost) = self.features.call_cost {
            price += call_cost.take();
        }
        if prev == pick.task {
            self.stays(cpu, why, pick)?;
            if !FREE {
                self.steal(cpu, price);
            }
            return Ok(());
        }
        self.apply(cpu, prev, why, pick, price)
    }

    /// Returns whether the decision has to wait because a switch is under way; else cancels other
    /// requests that are.
    fn not_yet(&mut self, cpu: usize) -> bool {
        let c = &mut self.cpus[cpu];
        if c.switching.is_some() {
            c.again = true;
            return true;
        }
        if self.features.preempt.is_some() && self.is_held(cpu) {
            return true;
        }
        let c = &mut self.cpus[cpu];
        if c.resched_at != NEVER {
            c.resched_at = NEVER;
            self.due.slots.disarm_cpu(cpu, OfCpu::Resched);
        }
        false
    }

    /// Another task (or none) runs from now on.
    pub(super) fn apply(
        &mut self,
        cpu: usize,
        prev: Option<TaskId>,
        why: Prev,
        pick: Pick,
        price: u64,
    ) -> Step {
        let next = pick.task;
        if let Some(next) = next {
            if !FREE && self.features.call_cost.is_some() {
                self.runs_all_the_same(cpu, next)?;
            }
            self.check_pick(cpu, next)?;
        }
        self.arm_slice(cpu, pick.slice_ns);
        if next.is_none() || !FREE {
            self.due.slots.disarm_cpu(cpu, OfCpu::Work);
        }
        let now = self.clock.now;
        let c = &mut self.cpus[cpu];
        c.stopped = false;
        c.starting = false;
        let yielded = std::mem::take(&mut c.yielded);
        let ran = now - std::mem::replace(&mut c.decided_at, now);
        c.current = next;
        self.world.cpus[cpu].set_current(next);
        let mut prev_state = PrevState::Runnable;
        if let Some(task) = prev {
            let record = &mut self.tasks[task.index()];
            (record.state, prev_state) = match why {
                Prev::Blocked => (TaskState::Leaving, PrevState::Sleeping),
                Prev::Exited => (TaskState::Dying, PrevState::Dead),
                Prev::Migrating => (TaskState::Moving, PrevState::Runnable),
                _ => (TaskState::Ready, PrevState::Runnable),
            };
            self.world.tasks[task.index()].switched_out(Ns(now), Ns(ran));
        }
        let mut saved_at = 0;
        if let Some(task) = next {
            let record = &mut self.tasks[task.index()];
            record.state = TaskState::Running;
            record.cpu = cpu as u32;
            saved_at = if FREE { 0 } else { self.extras[task.index()].saving_until };
            self.world.tasks[task.index()].switched_in(CpuId(cpu as u32), Ns(now));
        }
        let switch = PendingSwitch { prev, prev_state, yielded, next };
        if !FREE {
            let length = (self.switch_cost(cpu, prev) + price).max(saved_at.saturating_sub(now));
            if length > 0 {
                return self.begin_switch(cpu, switch, length);
            }
        }
        if self.out.has_cmds() {
            self.carry_out(cpu, Cause::Other)?;
        }
        self.record_switch(cpu, switch)?;
        self.ask_tick(cpu);
        Ok(())
    }

    /// The switch takes `length`.
    fn begin_switch(&mut self, cpu: usize, switch: PendingSwitch, length: u64) -> Step {
        if let Some(task) = switch.prev {
            self.extras[task.index()].saving_until = self.clock.now + length;
        }
        let c = &mut self.cpus[cpu];
        c.switching = Some(switch);
        c.debt += length;
        self.output.conservation.set_idle(cpu, false);
        self.arm_in(cpu, OfCpu::Work, length);
        self.after_call(cpu, Cause::Other)
    }

    /// The decision changed nothing.
    pub(super) fn stays(&mut self, cpu: usize, why: Prev, pick: Pick) -> Step {
        match why {
            Prev::Idle => self.output.conservation.set_idle(cpu, true),
            Prev::Runnable => {
                let c = &mut self.cpus[cpu];
                c.yielded = false;
                if std::mem::take(&mut c.stopped) {
                    self.start_program(cpu);
                }
            }
            Prev::Blocked | Prev::Exited | Prev::Migrating => {
                return self.fault(cpu, Breach::PickedLeaver { task: pick.task, why }.to_string());
            }
        }
        self.arm_slice(cpu, pick.slice_ns);
        self.after_call(cpu, Cause::Other)
    }

    /// Returns the time from the decision to the switch record.
    fn switch_cost(&self, cpu: usize, prev: Option<TaskId>) -> u64 {
        if FREE {
            return 0;
        }
        let costs = &self.input.costs;
        match self.cpus[cpu].cause {
            _ if prev.is_none() => costs.idle_switch_ns,
            Cause::Wakeup => costs.wakeup_switch_ns,
            Cause::Tick => costs.tick_switch_ns,
            Cause::Block => costs.block_switch_ns,
            Cause::Other => costs.other_switch_ns,
        }
        .0
    }

    /// The switch is done: the record is written, the old context is saved, the new program starts.
    #[inline]
    pub(super) fn record_switch(&mut self, cpu: usize, switch: PendingSwitch) -> Step {
        if !FREE {
            self.account(cpu);
            self.leaves_thread(cpu);
        }
        let PendingSwitch { prev, prev_state, yielded, next } = switch;
        if let Some(task) = next {
            self.move_home(cpu, task, CpuId(cpu as u32));
        }
        self.emit(cpu, EventKind::Switch { prev, prev_state, next });
        let c = &mut self.cpus[cpu];
        c.counted.switches += 1;
        c.occupant = next;
        if !FREE && self.features.smt.is_some() {
            self.enters_thread(cpu);
        }
        let c = &mut self.cpus[cpu];
        let ran = self.clock.now - std::mem::replace(&mut c.recorded_at, self.clock.now);
        let cause = c.cause;
        if let Some(task) = prev {
            self.switched_out(cpu, task.index(), yielded, cause);
            let record = &mut self.tasks[task.index()];
            let (waited, counts) = (&mut record.waited, &mut record.counts);
            self.output.values.record_run(
                &mut self.output.metrics.tasks,
                task.index(),
                waited,
                ran,
                counts,
            );
        }
        if let Some(task) = next {
            self.switched_in(cpu, task.index(), prev.is_some());
        }
        self.output.conservation.set_idle(cpu, next.is_none());
        if let Some(task) = prev {
            self.context_saved(cpu, task)?;
        }
        if !FREE && std::mem::take(&mut self.cpus[cpu].again) {
            self.request(cpu, Cause::Other, Some(cpu));
        }
        if next.is_some() {
            self.start_program(cpu);
        }
        Ok(())
    }

    #[inline]
    fn switched_out(&mut self, cpu: usize, t: usize, yielded: bool, cause: Cause) {
        let task = &mut self.tasks[t];
        task.last_ran_on = cpu as u32;
        let bucket = match task.state {
            TaskState::Leaving => {
                task.state = TaskState::Blocked;
                Bucket::Sleep
            }
            TaskState::Dying => {
                task.state = TaskState::Dead;
                let extra = &mut self.extras[t];
                extra.lived += self.clock.now - extra.born;
                self.world.tasks[t].alive = false;
                Bucket::Out
            }
            // It may have been picked elsewhere while its context was being saved; it waits until
            // then.
            _ => {
                if yielded {
                    self.extras[t].yields += 1;
                } else {
                    task.counts.preemptions += 1;
                }
                task.since = if yielded { Since::Yield } else { Since::Preemption };
                task.preempted_by = cause;
                task.waiting_bucket()
            }
        };
        task.set_bucket(
            t,
            bucket,
            self.clock.now,
            &mut self.output.conservation,
            &mut self.output.metrics.tasks,
        );
        if bucket == Bucket::Out {
            self.ends_with_last();
        }
        if !FREE && self.features.handoffs.is_some() {
            self.lost_its_cpu(t);
        }
    }

    #[inline]
    fn switched_in(&mut self, cpu: usize, t: usize, after_other: bool) {
        let task = &mut self.tasks[t];
        let waited = task.set_bucket(
            t,
            Bucket::Run,
            self.clock.now,
            &mut self.output.conservation,
            &mut self.output.metrics.tasks,
        );
        let last = task.last_ran_on;
        let migrated = last != cpu as u32 && last != u32::MAX;
        task.counts.migrations += u32::from(migrated);
        match task.since.recorded_as() {
            Some(kind) => {
                let (values, tasks) = (&self.output.values, &mut self.output.metrics.tasks);
                let wait = (kind, waited);
                task.waited = Waited::after(wait, values, tasks, t, &mut task.counts);
            }
            None => self.comes_unrecorded(t, waited),
        }
        if !FREE && self.features.handoffs.is_some() {
            self.has_a_cpu(t);
        }
        if !FREE {
            self.charge_entry(cpu, t, waited, migrated.then_some(last as usize), after_other);
        }
    }

    /// The costs of coming back: rest of the switch, return from the call or the interrupt, cold
    /// caches.
    fn charge_entry(
        &mut self,
        cpu: usize,
        t: usize,
        waited: u64,
        from: Option<usize>,
        after_other: bool,
    ) {
        let costs = &self.input.costs;
        let task = &mut self.tasks[t];
        let mut debt = costs.switch_enter_ns.0;
        if std::mem::take(&mut task.entering) {
            debt += if self.extras[t].realtime { costs.rt_enter_ns } else { costs.fair_enter_ns }.0;
        } else {
            debt += match task.preempted_by {
                Cause::Wakeup => costs.wakeup_resume_ns,
                Cause::Tick => costs.tick_resume_ns,
                Cause::Block => Ns::ZERO,
                Cause::Other => costs.other_resume_ns,
            }
            .0;
        }
        if let Some(from) = from {
            let places = self.input.machine.topology.places();
            let (a, b) = (places[from], places[cpu]);
            debt += costs.migration_ns.0;
            debt += if a.node != b.node {
                costs.refill_node_ns.0
            } else if a.llc != b.llc {
                costs.refill_llc_ns.0
            } else if a.core != b.core {
                costs.refill_core_ns.0
            } else {
                0
            };
        } else if after_other
            && costs.refill_wait_ns > Ns::ZERO
            && waited >= costs.refill_wait_after_ns.0
        {
            debt += costs.refill_wait_ns.0;
        }
        self.extras[t].debt += debt;
    }

    fn context_saved(&mut self, cpu: usize, task: TaskId) -> Step {
        if self.told.saved {
            self.input.scheduler.saved(&self.cx(cpu), CpuId(cpu as u32), task);
        }
        if !FREE && self.features.prices.is_some() {
            self.price_call(cpu, true);
        }
        if self.out.has_cmds() {
            self.carry_out(cpu, Cause::Other)?;
        }
        match self.tasks[task.index()].state {
            TaskState::Moving => self.moved_off(cpu, task),
            TaskState::Blocked if !FREE => match self.extras[task.index()].deferred.take() {
                Some((on, waker, sync)) => self.wake(task.index(), on as usize, waker, sync),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// A displaced task looks for another CPU.
    #[cold]
    pub(super) fn moved_off(&mut self, cpu: usize, task: TaskId) -> Step {
        self.tasks[task.index()].state = TaskState::Ready;
        self.note_waking(task.index());
        let wake = Wake { kind: WakeKind::Migrated, sync: false, waker: Waker::Unknown };
        self.input.scheduler.wake(&self.cx(cpu), task, wake);
        self.after_call(cpu, Cause::Wakeup)
    }

    /// The current task's program goes on: at once when it needs CPU time, else when the instant is
    /// decided.
    #[inline]
    fn start_program(&mut self, cpu: usize) {
        let Some(task) = self.cpus[cpu].current else { return };
        let (record, owes) = (&self.tasks[task.index()], self.owes(task.index()));
        let c = &mut self.cpus[cpu];
        // Without costs an activation in which nothing was done starts when the instant is decided
        // (`fast_path`).
        let prepared = FREE && record.fresh;
        if record.left + owes + c.debt > 0 && !prepared {
            self.arm_work(cpu);
            return;
        }
        let starting = std::mem::replace(&mut c.starting, true);
        // What the task before had to do is not due any more.
        self.due.slots.disarm_cpu(cpu, OfCpu::Work);
        if !starting {
            self.queues.starts.push(cpu as u32);
        }
    }

    /// Arms the end of what the occupant has to do.
    #[inline]
    pub(super) fn arm_work(&mut self, cpu: usize) {
        let c = &self.cpus[cpu];
        let Some(task) = c.occupant else { return };
        let left = self.tasks[task.index()].left;
        let at = if FREE {
            self.clock.now.saturating_add(left)
        } else {
            let need = c.debt + self.owes(task.index()) + left;
            // Mostly it is done before the next tick: no division.
            if c.quiet_until.checked_sub(self.clock.now).is_some_and(|quiet| need < quiet) {
                self.clock.now + need
            } else {
                let cost = self.tick_cost(cpu);
                self.input.machine.done_at(&self.world, cpu, self.clock.now, (need, cost))
            }
        };
        self.due.slots.arm_cpu(cpu, OfCpu::Work, at);
    }

    /// What a CPU worked at is finished: a switch, or an operation of the occupant.
    pub(super) fn work_done(&mut self, cpu: usize) -> Step {
        if !FREE && let Some(switch) = self.cpus[cpu].switching.take() {
            return self.record_switch(cpu, switch);
        }
        self.account(cpu);
        let Some(task) = self.cpus[cpu].current else {
            return self.internal(format!("work on idle cpu{cpu}"));
        };
        let record = &self.tasks[task.index()];
        let (rest, interrupts) = (record.left + self.owes(task.index()), self.cpus[cpu].debt);
        if rest == 0 && interrupts > 0 {
            // An interrupt of this very instant was served first.
            self.arm_work(cpu);
            return Ok(());
        }
        if rest != 0 {
            return self
                .internal(format!("{task} `{}` finished {rest} ns too early", self.name(task)));
        }
        self.advance(cpu, task.index())
    }

    /// A program goes on after the decisions of the instant.
    pub(super) fn go_on(&mut self, cpu: usize) -> Step {
        let c = &mut self.cpus[cpu];
        if !std::mem::take(&mut c.starting) || c.switching.is_some() {
            return Ok(());
        }
        match c.current {
            Some(task) if self.tasks[task.index()].state == TaskState::Running => {
                let t = task.index();
                if FREE { self.starts(cpu, t) } else { self.advance(cpu, t) }
            }
            _ => Ok(()),
        }
    }
}
