//! What all agents share: the scheduler's core, the managed threads, and what each CPU is about to
//! do. One lock guards it, which an agent holds for one round; no other thread takes it.
//!
//! Each managed CPU has a [`CpuSlot`]: its block detector, slice, timers and yield window. An agent
//! serves its own slot. When the scheduler wants a decision on another CPU, the agent notes that in
//! the other slot and wakes its agent, which decides and changes the priorities of the threads on
//! its own CPU: a tenth of what it costs from another CPU (measured, docs/live-safety.md, 13). Only
//! where a task must leave a CPU for good (it was released, or another process changed it) the
//! agent that notices decides for that CPU, too.
//!
//! Threads are changed through [`ThreadControl`], and CPUs tell their state through [`CpuControl`]:
//! the tests put threads and CPUs there that do not exist, and check every single change
//! (`agent_state/tests.rs`).

mod timers;

use super::control::{CpuControl, Interference, ThreadActivity, ThreadControl};
use super::yield_window::{YieldWindow, YieldWindows};
use super::{Counts, HEARTBEAT, LogLine};
use crate::driver::LONGEST_PAUSE;
use crate::logged_core::{
    Answer, Decision, Fate, LoggedCore, LoggedTimer, Step, StepKind, WokenBy,
};
use schedlab_model::{CpuId, CpuSet, Nice, Ns, Policy};
use schedlab_scheduler::decision_core::{Breach, DECISIONS_MAX};
use std::collections::BTreeMap;

/// How many sleeping threads are looked at in one heartbeat at most, in case an event was missed.
const LOOKS: usize = 16;
/// Within how many heartbeats every thread is looked at, when there are not too many: a look costs
/// some microseconds of the managed CPU.
const LOOK_ROUND: usize = 10;

/// A thread that comes under management.
pub(super) struct NewThread<T> {
    pub(super) control: T,
    pub(super) process: u32,
    pub(super) taken_for: Policy,
    pub(super) nice: Nice,
    /// Where the thread could run before.
    pub(super) affinity: CpuSet,
    /// Where the thread is now.
    pub(super) cpu: CpuId,
}

/// A managed thread.
pub(super) struct Managed<T> {
    pub(super) control: T,
    /// The slot of the CPU to which it is pinned.
    pub(super) slot: usize,
    /// Since when the thread waits, if it is runnable and not chosen.
    waits_since: Option<Ns>,
    /// Managed no longer.
    pub(super) left: bool,
    pub(super) placement: Placement,
    /// When the thread woke; forgotten when it has to wait after a turn.
    pub(super) woke: Option<Ns>,
}

/// The scheduling of a managed thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Placement {
    /// A priority of the band.
    Band,
    /// Its own policy: the chosen thread in a yield window.
    OwnPolicy,
    /// SCHED_IDLE, behind the chosen thread of a yield window.
    Behind,
}

/// One managed CPU.
pub(super) struct CpuSlot<C> {
    pub(super) cpu: CpuId,
    pub(super) control: C,
    slice_ends: Option<Ns>,
    next_tick: Option<Ns>,
    timers: BTreeMap<LoggedTimer, Ns>,
    decide: bool,
    looked_at: usize,
    /// Heartbeats so far.
    beats: usize,
    /// The time of the last one.
    looked: Ns,
    pub(super) period_began: Ns,
    /// Time in this period in which no managed thread wanted the CPU.
    pub(super) idle: Ns,
    pub(super) idle_since: Option<Ns>,
    /// The yield window that is open.
    pub(super) window: Option<YieldWindow>,
    /// The chosen thread was on its way here when it was looked at last.
    pub(super) awaits: bool,
}

impl<C> CpuSlot<C> {
    fn new(cpu: CpuId, control: C, next_tick: Option<Ns>) -> CpuSlot<C> {
        CpuSlot {
            cpu,
            control,
            slice_ends: None,
            next_tick,
            timers: BTreeMap::new(),
            decide: false,
            looked_at: 0,
            beats: 0,
            looked: Ns::ZERO,
            period_began: Ns::ZERO,
            idle: Ns::ZERO,
            idle_since: Some(Ns::ZERO),
            window: None,
            awaits: false,
        }
    }
}

/// What never changes during a run.
pub(super) struct Rules {
    /// The time since the start.
    pub(super) clock: Box<dyn Fn() -> Ns + Send>,
    /// CPU time of the calling agent.
    pub(super) used: Box<dyn Fn() -> Ns + Send>,
    pub(super) hz: u32,
    pub(super) starve_after: Ns,
    pub(super) windows: YieldWindows,
}

/// See the module.
pub(super) struct AgentState<T, C> {
    pub(super) core: LoggedCore,
    pub(super) rules: Rules,
    pub(super) slots: Vec<CpuSlot<C>>,
    /// By task number of the core.
    pub(super) threads: Vec<Managed<T>>,
    pub(super) counts: Counts,
    pub(super) log: Vec<LogLine>,
    /// The scheduler broke its contract: nothing that it says counts any more, and management ends.
    pub(super) breach: Option<Breach>,
    /// Threads that were left alone since this was emptied last.
    pub(super) let_go: Vec<u32>,
    by_tid: BTreeMap<u32, u32>,
    /// The slot whose agent holds the lock: the other agents must be woken.
    pub(super) acting: usize,
    /// CPU time that this agent had used when its round began.
    used_before: Ns,
}

impl<T: ThreadControl, C: CpuControl> AgentState<T, C> {
    /// Returns a state without threads. The log holds so many steps.
    pub(super) fn new(
        core: LoggedCore,
        rules: Rules,
        controls: Vec<(CpuId, C)>,
        log_steps: usize,
    ) -> AgentState<T, C> {
        let ticks = core.scheduler().needs().ticks;
        let first_tick = ticks.then(|| Ns(1_000_000_000 / u64::from(rules.hz.max(1))));
        AgentState {
            core,
            rules,
            slots: controls
                .into_iter()
                .map(|(cpu, control)| CpuSlot::new(cpu, control, first_tick))
                .collect(),
            threads: Vec::new(),
            counts: Counts::default(),
            log: Vec::with_capacity(log_steps),
            breach: None,
            let_go: Vec::new(),
            by_tid: BTreeMap::new(),
            acting: 0,
            used_before: Ns::ZERO,
        }
    }

    /// Begins a round of the agent of `slot`.
    pub(super) fn enter(&mut self, slot: usize) {
        self.acting = slot;
        self.used_before = (self.rules.used)();
        self.count_window(slot, self.used_before, false);
    }

    /// Ends a round; returns when the agent must wake at the latest.
    ///
    /// Timers, slices and ticks let the threads have the CPU at least for as long as the round
    /// took, so that they take half of it at most; a wakeup ends the sleep at once. Otherwise a
    /// quantum below the cost of a decision would leave nothing to the threads, no yield window
    /// would ever be over, and what the kernel has below the bands would never run: under
    /// PREEMPT_RT its RCU threads (SCHED_FIFO 1), without which this driver itself cannot open or
    /// close an event.
    pub(super) fn leave(&mut self, slot: usize) -> Ns {
        let used = (self.rules.used)();
        self.count_window(slot, used, true);
        let took = used.saturating_sub(self.used_before).min(LONGEST_PAUSE);
        let (due, earliest) = (self.due(slot), self.now() + took);
        self.counts.postponed += u64::from(due < earliest);
        due.max(earliest)
    }

    pub(super) fn now(&self) -> Ns {
        (self.rules.clock)()
    }

    /// Returns the task that was decided to run on a CPU.
    pub(super) fn current(&self, slot: usize) -> Option<u32> {
        self.core.current(slot as u32)
    }

    /// Returns the slot of the CPU on which a task was decided to run.
    fn runs_on(&self, task: u32) -> Option<usize> {
        self.core.on_cpu(task).map(|cpu| cpu as usize)
    }

    /// Returns the task number of a managed thread.
    pub(super) fn task_of(&self, tid: u32) -> Option<u32> {
        self.by_tid.get(&tid).copied()
    }

    /// Returns whether a followed thread is managed, or about to be. False: it was, and is no
    /// longer.
    pub(super) fn may_join(&self, tid: u32) -> bool {
        self.task_of(tid).is_some()
            || !self.threads.iter().any(|thread| thread.control.tid() == tid)
    }

    /// Tells the agent of a slot that it has something to do.
    fn wake_agent(&self, slot: usize) {
        if slot != self.acting {
            self.slots[slot].control.wake_agent();
        }
    }

    fn ask(&mut self, slot: usize) {
        self.slots[slot].decide = true;
        self.wake_agent(slot);
    }

    /// Plays a step, keeps it for the log, and notes what is asked for. `None`: it was no decision,
    /// or the scheduler broke its contract, now or before.
    fn step(&mut self, at: Ns, what: StepKind) -> Option<Decision> {
        if self.breach.is_some() {
            return None;
        }
        let step = Step { at, what };
        let answer = self.core.step(&step);
        let Answer { decision, resched, timers } = answer.unwrap_or_else(|breach| {
            self.breach = Some(breach);
            Answer::default()
        });
        if self.log.len() < self.log.capacity() {
            self.log.push(LogLine { step, decision });
        } else if self.log.capacity() > 0 {
            // No log is asked for where it has no room at all.
            self.counts.unlogged += 1;
        }
        for cpu in resched {
            self.ask(cpu as usize);
        }
        for (timer, time) in timers {
            self.set_timer(timer, time);
        }
        decision
    }

    /// Takes on a thread that is journalled, pinned and parked. False: there is no room.
    pub(super) fn join(&mut self, new: NewThread<T>) -> bool {
        let NewThread { control, process, taken_for: policy, nice, affinity, cpu } = new;
        let Some(task) = self.core.next_task().filter(|task| *task as usize == self.threads.len())
        else {
            let mut control = control;
            control.give_back();
            self.counts.refused += 1;
            return false;
        };
        let numbered = |wanted: &dyn Fn(CpuId) -> bool| -> CpuSet {
            let slots = self.slots.iter().enumerate().filter(|(_, slot)| wanted(slot.cpu));
            slots.map(|(number, _)| CpuId(number as u32)).collect()
        };
        // A thread that may run on none of the managed CPUs runs there all the same: that is what
        // management is.
        let mine = numbered(&|cpu| affinity.contains(cpu));
        let affinity = if mine.is_empty() { numbered(&|_| true) } else { mine };
        let slot = self.slots.iter().position(|slot| slot.cpu == cpu).unwrap_or(0);
        self.by_tid.insert(control.tid(), task);
        let runnable = control.state() == ThreadActivity::Runnable;
        let placement = Placement::Band;
        self.threads.push(Managed {
            control,
            slot,
            waits_since: None,
            left: false,
            placement,
            woke: None,
        });
        let now = self.now();
        self.step(now, StepKind::Join { task, policy, nice, affinity, process });
        if runnable {
            self.woken(task, WokenBy::Unknown);
        }
        true
    }

    /// Makes the scheduler take a task for one of another policy.
    pub(super) fn take_for(&mut self, task: u32, policy: Policy) {
        let now = self.now();
        self.step(now, StepKind::Policy { task, policy });
    }

    /// Makes a task runnable. False: it was, or it is managed no longer.
    pub(super) fn woken(&mut self, task: u32, by: WokenBy) -> bool {
        if self.threads[task as usize].left || self.core.runnable(task) {
            return false;
        }
        let now = self.now();
        let thread = &mut self.threads[task as usize];
        (thread.waits_since, thread.woke) = (Some(now), Some(now));
        self.step(now, StepKind::Wake { task, by });
        let slot = self.threads[task as usize].slot;
        if self.current(slot).is_none() {
            self.ask(slot);
        }
        // It slept when the yield window opened. Where a decision is wanted, that decision places
        // it.
        if self.is_yielded(slot) && !self.slots[slot].decide {
            self.place(task, false);
        }
        true
    }

    /// An event tells that a thread woke.
    pub(super) fn heard_wake(&mut self, tid: u32, by: WokenBy) {
        let Some(task) = self.task_of(tid) else { return };
        if let Some(slot) = self.runs_on(task).filter(|slot| self.is_yielded(*slot)) {
            // In a yield window no event tells that the chosen thread blocks; its wakeup does.
            self.decide(slot, Fate::Blocked);
        }
        self.counts.wakeups += u64::from(self.woken(task, by));
    }

    /// Takes a thread away from the scheduler. The caller says what becomes of the real thread.
    pub(super) fn forget(&mut self, task: u32) {
        self.threads[task as usize].left = true;
        self.by_tid.remove(&self.threads[task as usize].control.tid());
        match self.runs_on(task) {
            Some(slot) => self.decide(slot, Fate::Exited),
            None => {
                let now = self.now();
                self.step(now, StepKind::Leave { task });
            }
        }
    }

    /// Gives a thread back; the others stay managed.
    pub(super) fn release(&mut self, task: u32) {
        if !self.threads[task as usize].left {
            self.forget(task);
            self.threads[task as usize].control.give_back();
        }
    }

    /// The block detector had the CPU: looks what became of the chosen thread.
    pub(super) fn look_at_running(&mut self, slot: usize) {
        // Where no managed thread is above the block detector, it tells nothing new.
        if !self.slots[slot].control.fired() || self.is_yielded(slot) {
            return;
        }
        let Some(task) = self.current(slot) else { return };
        if self.is_on_its_way(task) {
            // Nothing of the CPU is the thread's before it arrives.
            return;
        }
        match self.threads[task as usize].control.state() {
            ThreadActivity::Sleeping => self.decide(slot, Fate::Blocked),
            ThreadActivity::Gone => self.forget(task),
            ThreadActivity::Runnable => {
                // The thread blocked and was woken before this look; or another process took its
                // priority away.
                self.counts.stale += 1;
                match self.threads[task as usize].control.interference() {
                    Interference::None => self.decide(slot, Fate::Runnable),
                    interference => self.leave_alone(task, interference),
                }
            }
        }
    }

    /// Gives up a thread that another process changed: that change stays, the rest is as before.
    pub(super) fn leave_alone(&mut self, task: u32, interference: Interference) {
        self.counts.changed_by_others += 1;
        self.forget(task);
        let thread = &self.threads[task as usize].control;
        thread.let_go(interference);
        self.let_go.push(thread.tid());
    }

    /// Once in a heartbeat: looks at a few sleeping threads in turn, in case a wakeup left no
    /// event, and releases those that wait too long. False: it is not time yet.
    pub(super) fn look_around(&mut self, slot: usize) -> bool {
        let now = self.now();
        let one = &mut self.slots[slot];
        // A change by another process cannot be told from those of a yield window: that waits.
        if now.saturating_sub(one.looked) < Ns(HEARTBEAT.as_nanos() as u64) || one.window.is_some()
        {
            return false;
        }
        one.looked = now;
        // A few at once, and then none for a while, disturb fewer turns than one now and then.
        one.beats += 1;
        let count = self.threads.len();
        let looks = if count > LOOK_ROUND { count.div_ceil(LOOK_ROUND) } else { count };
        if count > LOOK_ROUND || one.beats.is_multiple_of(LOOK_ROUND) {
            for _ in 0..looks.min(LOOKS) {
                let next = (self.slots[slot].looked_at + 1) % count;
                self.slots[slot].looked_at = next;
                if self.threads[next].slot == slot {
                    self.look_at(next as u32);
                }
            }
        }
        for task in 0..count as u32 {
            let thread = &self.threads[task as usize];
            let may_starve = thread.slot == slot && !thread.left && self.core.runnable(task);
            let waits = thread.waits_since.filter(|_| may_starve);
            if waits.is_some_and(|since| now.saturating_sub(since) > self.rules.starve_after) {
                self.counts.starved += 1;
                self.release(task);
            }
        }
        true
    }

    /// Events were lost: looks at every thread.
    pub(super) fn look_at_all(&mut self) {
        (0..self.threads.len() as u32).for_each(|task| self.look_at(task));
    }

    /// Corrects what the scheduler knows about a thread that does not run.
    fn look_at(&mut self, task: u32) {
        let thread = &mut self.threads[task as usize];
        if thread.left {
            return;
        }
        if let Some(nice) = thread.control.new_nice() {
            let now = self.now();
            self.step(now, StepKind::Nice { task, nice });
        }
        let thread = &self.threads[task as usize];
        let (state, runs) = (thread.control.state(), self.runs_on(task).is_some());
        let interference = thread.control.interference();
        let given_away = self.slots[thread.slot].window.is_some();
        match state {
            // The end of the running thread is seen when it is off the CPU.
            ThreadActivity::Gone if runs => {}
            ThreadActivity::Gone => self.forget(task),
            _ if interference != Interference::None && !given_away => {
                self.leave_alone(task, interference)
            }
            ThreadActivity::Runnable if !runs => {
                self.counts.wakeups_found += u64::from(self.woken(task, WokenBy::Unknown));
            }
            ThreadActivity::Runnable | ThreadActivity::Sleeping => {}
        }
    }

    /// Decides as often as the scheduler wants it.
    pub(super) fn settle(&mut self, slot: usize) {
        for _ in 0..DECISIONS_MAX {
            if !std::mem::take(&mut self.slots[slot].decide) {
                return;
            }
            let fate = if self.current(slot).is_some() { Fate::Runnable } else { Fate::Idle };
            self.decide(slot, fate);
        }
        if self.slots[slot].decide {
            let endless =
                Breach::EndlessDecisions { cpu: CpuId(slot as u32), limit: DECISIONS_MAX };
            self.breach.get_or_insert(endless);
        }
    }

    /// Asks which task runs on a CPU, and makes it so.
    pub(super) fn decide(&mut self, slot: usize, fate: Fate) {
        let prev = self.current(slot);
        let now = self.now();
        self.counts.decisions += 1;
        let decided = self.step(now, StepKind::Decide { cpu: slot as u32, prev: fate });
        let Some(decision) = decided else { return };
        self.slots[slot].slice_ends =
            decision.slice.filter(|_| decision.task.is_some()).map(|slice| now + slice);
        if decision.task != prev {
            self.switch(now, slot, prev, decision.task, fate);
        }
        if self.is_yielded(slot) {
            self.arrange(slot);
        } else if decision.task.is_some() {
            self.arm(slot);
        }
        self.wake_agent(slot);
    }

    fn switch(&mut self, now: Ns, slot: usize, prev: Option<u32>, next: Option<u32>, fate: Fate) {
        self.counts.switches += 1;
        self.switch_in_window(now, slot, next);
        match next {
            Some(next) => {
                self.threads[next as usize].waits_since = None;
                // Raise first, then lower: at no moment an unmanaged thread gets the CPU.
                if !(self.move_to(next, slot) && self.place(next, true)) {
                    self.counts.stale += 1;
                }
                self.make_way(next);
                let one = &mut self.slots[slot];
                one.idle +=
                    one.idle_since.take().map_or(Ns::ZERO, |since| now.saturating_sub(since));
            }
            None => self.slots[slot].idle_since = Some(now),
        }
        let Some(prev) = prev else { return };
        let thread = &mut self.threads[prev as usize];
        let waits = fate == Fate::Runnable;
        (thread.waits_since, thread.woke) = (waits.then_some(now), thread.woke.filter(|_| !waits));
        // In a yield window the class of a thread is changed only if it wants the CPU: a sleeping
        // one is placed when it wakes, the others by `arrange`. And a thread that is in the fair
        // class already is not above the next one.
        if fate != Fate::Exited && !thread.left && thread.placement == Placement::Band {
            thread.control.park();
        }
    }

    /// Management ends: the threads on a CPU leave the real-time class.
    pub(super) fn leave_real_time(&self, slot: usize) {
        for thread in self.threads.iter().filter(|thread| thread.slot == slot && !thread.left) {
            thread.control.set_own();
        }
    }

    /// Places a real thread as the scheduler wants it: in front, or with those that wait. False:
    /// the kernel refused.
    pub(super) fn place(&mut self, task: u32, front: bool) -> bool {
        let is_yielded = self.is_yielded(self.threads[task as usize].slot);
        let thread = &mut self.threads[task as usize];
        let before = thread.placement;
        thread.placement = match (is_yielded, front) {
            (false, _) => Placement::Band,
            (true, true) => Placement::OwnPolicy,
            (true, false) => Placement::Behind,
        };
        match thread.placement {
            Placement::Band if front => thread.control.raise(),
            Placement::Band => thread.control.park(),
            Placement::OwnPolicy => before == Placement::OwnPolicy || thread.control.set_own(),
            Placement::Behind => before == Placement::Behind || thread.control.set_behind(),
        }
    }
}

#[cfg(test)]
mod tests;
