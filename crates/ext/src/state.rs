//! What the agent knows and decides: events of the kernel in, decisions for the kernel out, every
//! step of the scheduler logged. It has no clock and makes no system call; the tests put a kernel
//! beside it that does not exist (`state/tests.rs`).
//!
//! | event of the kernel | step of the decision core |
//! |---|---|
//! | enqueue of a thread that the core takes for asleep | `Wake` |
//! | enqueue of the thread that was decided for a CPU (it yielded, or its attributes changed) | `Decide`, prev runnable |
//! | quiescent | `Decide`, prev blocked (or exited) |
//! | yield | `Yield`; the enqueue follows |
//! | exit, another policy | `Decide`, prev exited, or `Leave` |
//! | weight, cpumask, CPU on or off line | `Nice`, `Affinity` |
//! | the end of a slice, a tick, a timer | `Decide`, `Tick`, `Timer`, by the agent's clock |
//!
//! What the kernel is to do is not kept as a list of orders: each round compares what the core
//! decided with where the threads are ([`AgentState::due_decisions`]), so a decision that was
//! stale, early or refused is made again for as long as the core wants it.

mod events;
mod placing;

use crate::wire::{Ask, By, Decision, KernelState, What};
use schedlab_live::driver::{Counts, ExtCounts, HEARTBEAT, LogLine};
use schedlab_live::logged_core::{Answer, Fate, LoggedCore, LoggedTimer, Step, StepKind, WokenBy};
use schedlab_model::{CpuId, CpuSet, Nice, Ns, Policy};
use schedlab_scheduler::decision_core::{Breach, DECISIONS_MAX};
use std::collections::{BTreeMap, BTreeSet};

/// The longest time between two looks at everything.
const BEAT: Ns = Ns(HEARTBEAT.as_nanos() as u64);
/// A chosen thread that comes to its CPU later was kept from it by another class; below, it is the
/// way of a decision.
const KEPT: Ns = Ns::from_ms(1);

/// What a thread is like when it comes under management.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Described {
    pub(crate) process: u32,
    /// The policy that the scheduler takes it for.
    pub(crate) policy: Policy,
    pub(crate) nice: Nice,
    pub(crate) affinity: CpuSet,
    pub(crate) comm: String,
}

/// Asks the kernel about threads.
pub(crate) trait Threads {
    /// Returns what a thread is like; `None`: it is gone.
    fn describe(&mut self, tid: u32) -> Option<Described>;
    /// A managed thread made another one.
    fn born(&mut self, tid: u32, maker: u32);
    fn nice(&mut self, tid: u32) -> Option<Nice>;
    fn affinity(&mut self, tid: u32) -> Option<CpuSet>;
    /// Returns the CPUs that are on line.
    fn online(&mut self) -> CpuSet;
}

/// What the supervisor is told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Notice {
    /// A managed thread made this one.
    Born(u32),
    /// It is managed no longer, and is to get its own policy back: it waited too long, may run on
    /// no managed CPU, was one too many, or its release was ordered.
    Release(u32),
    /// Itself or another process gave it another policy: it keeps that.
    LetGo(u32),
}

/// Where a thread is, as the events tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    /// It sleeps.
    Out,
    /// In the queue of waiting threads.
    Held,
    /// In the queue of a managed CPU.
    Sent(usize),
    /// On a managed CPU.
    Running(usize),
    /// On, or in the queue of, another CPU.
    Elsewhere(u32),
}

/// A managed thread.
struct Task {
    tid: u32,
    comm: String,
    seq: u32,
    at: At,
    /// Since when it is runnable and not on a CPU.
    waits_since: Option<Ns>,
    /// The last decision about it was stale: an event tells why. Since when.
    unsure: Option<Ns>,
    /// The slots of the CPUs where it may run, whether they are on line or not.
    allowed: CpuSet,
    left: bool,
}

/// A managed CPU.
struct Slot {
    cpu: CpuId,
    online: bool,
    decide: bool,
    /// The slice of the last decision, and when it ends: counted anew when the thread has begun.
    slice: Option<Ns>,
    slice_ends: Option<Ns>,
    begun: bool,
    next_tick: Option<Ns>,
    /// The managed thread that the kernel runs there.
    actual: Option<u32>,
    /// A chosen thread waits for this CPU since.
    kept_since: Option<Ns>,
    /// The last decision for it was refused because another thread waits there: until an event of
    /// this CPU, or this time.
    busy_until: Ns,
    /// The thread that was asked to leave the CPU, with its number of that time.
    displaced: Option<(u32, u32)>,
    /// The thread id that the kernel was told to run there next, with its number of that time.
    ahead: Option<(u32, u32)>,
}

/// What never changes during a run.
pub(crate) struct Rules {
    pub(crate) hz: u32,
    pub(crate) starve_after: Ns,
    /// Steps that the log holds.
    pub(crate) log_steps: usize,
    /// CLOCK_MONOTONIC when the run began.
    pub(crate) start: Ns,
}

/// See the module.
pub(crate) struct AgentState<T> {
    core: LoggedCore,
    rules: Rules,
    slots: Vec<Slot>,
    tasks: Vec<Task>,
    by_tid: BTreeMap<u32, u32>,
    timers: BTreeMap<LoggedTimer, Ns>,
    pub(crate) threads: T,
    /// Since the start; never goes back.
    now: Ns,
    looked: Ns,
    /// Orders besides those that follow from the state.
    orders: Vec<Decision>,
    /// Threads that the kernel was asked to hold, or that were born held, whether they have joined
    /// yet or not.
    taken: BTreeSet<u32>,
    /// Threads that were given back: what the ring still has about them does not count.
    freed: BTreeSet<u32>,
    /// Managed threads on CPUs that are not managed, where a silent agent let them go.
    strays: Vec<u32>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) counts: Counts,
    pub(crate) ext: ExtCounts,
    pub(crate) log: Vec<LogLine>,
    /// The scheduler broke its contract: nothing that it says counts any more.
    pub(crate) breach: Option<Breach>,
    /// The kernel unloaded the scheduler.
    pub(crate) ended: bool,
}

impl<T: Threads> AgentState<T> {
    /// Returns a state without threads, for these CPUs.
    pub(crate) fn new(core: LoggedCore, rules: Rules, cpus: &CpuSet, threads: T) -> AgentState<T> {
        let ticks = core.scheduler().needs().ticks;
        let first = ticks.then(|| tick_ns(rules.hz));
        let slot = |cpu| Slot {
            cpu,
            online: true,
            decide: false,
            slice: None,
            slice_ends: None,
            begun: false,
            next_tick: first,
            actual: None,
            kept_since: None,
            busy_until: Ns::ZERO,
            displaced: None,
            ahead: None,
        };
        AgentState {
            core,
            slots: cpus.iter().map(slot).collect(),
            tasks: Vec::new(),
            by_tid: BTreeMap::new(),
            timers: BTreeMap::new(),
            threads,
            now: Ns::ZERO,
            looked: Ns::ZERO,
            orders: Vec::new(),
            taken: BTreeSet::new(),
            freed: BTreeSet::new(),
            strays: Vec::new(),
            notices: Vec::new(),
            counts: Counts::default(),
            ext: ExtCounts::default(),
            log: Vec::with_capacity(rules.log_steps),
            rules,
            breach: None,
            ended: false,
        }
    }

    /// Brings the state's time to `at`, since the start.
    pub(crate) fn advance(&mut self, at: Ns) {
        self.now = self.now.max(at);
    }

    /// Returns the slot of a CPU.
    fn slot_of(&self, cpu: u32) -> Option<usize> {
        self.slots.iter().position(|slot| slot.cpu.0 == cpu)
    }

    fn current(&self, slot: usize) -> Option<u32> {
        self.core.current(slot as u32)
    }

    fn runs_on(&self, task: u32) -> Option<usize> {
        self.core.on_cpu(task).map(|slot| slot as usize)
    }

    /// Returns the threads in the order in which they joined, with the time for which each was the
    /// chosen thread of a CPU.
    pub(crate) fn report(&self) -> Vec<(u32, String, Ns)> {
        let one = |(task, kept): (usize, &Task)| {
            (kept.tid, kept.comm.clone(), self.core.ran(task as u32, self.now))
        };
        self.tasks.iter().enumerate().map(one).collect()
    }

    /// Returns the counts, with the time for which chosen threads wait for their CPUs right now.
    pub(crate) fn counts_so_far(&self) -> ExtCounts {
        let kept = self.slots.iter().filter_map(|slot| slot.kept_since);
        let kept = kept.map(|since| self.now.saturating_sub(since)).filter(|kept| *kept >= KEPT);
        let mut counts = self.ext.clone();
        counts.kept_by_others_ns += kept.map(|kept| kept.0).sum::<u64>();
        counts
    }

    /// Returns the threads that are managed now.
    pub(crate) fn managed(&self) -> Vec<u32> {
        self.by_tid.keys().copied().collect()
    }

    /// Plays a step, keeps it for the log, and notes what is asked for. `None`: it was no decision,
    /// or the scheduler broke its contract, now or before.
    fn step(&mut self, what: StepKind) -> Option<schedlab_live::logged_core::Decision> {
        if self.breach.is_some() {
            return None;
        }
        let step = Step { at: self.now, what };
        let answer = self.core.step(&step);
        let Answer { decision, resched, timers } = answer.unwrap_or_else(|breach| {
            self.breach = Some(breach);
            Answer::default()
        });
        if self.log.len() < self.rules.log_steps {
            self.log.push(LogLine { step, decision });
        } else if self.rules.log_steps > 0 {
            self.counts.unlogged += 1;
        }
        for cpu in resched {
            self.slots[cpu as usize].decide = true;
        }
        for (timer, time) in timers {
            match time {
                Some(time) => self.timers.insert(timer, time),
                None => self.timers.remove(&timer),
            };
        }
        decision
    }

    /// Asks the kernel to hold a thread from now on, and what it does: if it waits already, it
    /// joins.
    pub(crate) fn take(&mut self, tid: u32) {
        self.freed.remove(&tid);
        self.taken.insert(tid);
        self.orders.extend([placing::order(tid, Ask::Take), placing::order(tid, Ask::Tell)]);
    }

    /// Makes the scheduler take a thread for one of another policy.
    pub(crate) fn take_for(&mut self, tid: u32, policy: Policy) {
        if let Some(&task) = self.by_tid.get(&tid) {
            self.step(StepKind::Policy { task, policy });
        }
    }

    /// Takes on a thread that woke for the first time. `None`: it cannot be, and is given back.
    fn join(&mut self, tid: u32) -> Option<u32> {
        let Described { process, policy, nice, affinity, comm } = self.threads.describe(tid)?;
        let allowed = self.numbered(&affinity);
        let task = self
            .core
            .next_task()
            .filter(|task| *task as usize == self.tasks.len() && !allowed.is_empty());
        let Some(task) = task else {
            if allowed.is_empty() {
                self.counts.changed_by_others += 1
            } else {
                self.counts.refused += 1
            }
            self.set_free(tid);
            return None;
        };
        self.by_tid.insert(tid, task);
        self.taken.insert(tid);
        let (seq, at, waits_since, unsure, left) = (0, At::Out, None, None, false);
        self.tasks.push(Task { tid, comm, seq, at, waits_since, unsure, allowed, left });
        let affinity = self.on_line(&allowed);
        self.step(StepKind::Join { task, policy, nice, affinity, process });
        Some(task)
    }

    /// Returns the slots of these CPUs.
    fn numbered(&self, cpus: &CpuSet) -> CpuSet {
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| cpus.contains(slot.cpu));
        slots.map(|(number, _)| CpuId(number as u32)).collect()
    }

    /// Returns those of these slots whose CPU is on line; all, where none is.
    fn on_line(&self, allowed: &CpuSet) -> CpuSet {
        let online =
            allowed.iter().filter(|slot| self.slots[slot.index()].online).collect::<CpuSet>();
        if online.is_empty() { *allowed } else { online }
    }

    /// The thread is managed no longer and gets its own policy back.
    fn set_free(&mut self, tid: u32) {
        self.freed.insert(tid);
        self.taken.remove(&tid);
        self.orders.push(placing::order(tid, Ask::Free));
        self.notices.push(Notice::Release(tid));
    }

    /// Gives a thread back; the others stay managed.
    pub(crate) fn release(&mut self, tid: u32) {
        if let Some(&task) = self.by_tid.get(&tid) {
            self.forget(task);
        }
        self.set_free(tid);
    }

    /// Takes a thread away from the scheduler.
    fn forget(&mut self, task: u32) {
        let kept = &mut self.tasks[task as usize];
        kept.left = true;
        let tid = kept.tid;
        self.by_tid.remove(&tid);
        self.off_cpu(task);
        match self.runs_on(task) {
            Some(slot) => self.decide(slot, Fate::Exited),
            None => drop(self.step(StepKind::Leave { task })),
        }
    }

    /// Serves what is due: timers, ticks, ends of slices, and now and then a look at everything.
    pub(crate) fn fire(&mut self) {
        let now = self.now;
        let due = |timers: &BTreeMap<LoggedTimer, Ns>| {
            timers.iter().find(|(_, at)| **at <= now).map(|(timer, _)| *timer)
        };
        while let Some(timer) = due(&self.timers) {
            self.timers.remove(&timer);
            self.step(StepKind::Timer { timer });
        }
        for slot in 0..self.slots.len() {
            if self.slots[slot].next_tick.is_some_and(|at| at <= now) {
                let tick = tick_ns(self.rules.hz);
                self.slots[slot].next_tick = Some(Ns((now.0 / tick.0 + 1) * tick.0));
                if self.current(slot).is_some() {
                    self.step(StepKind::Tick { cpu: slot as u32 });
                }
            }
            let one = &mut self.slots[slot];
            if one.slice_ends.is_some_and(|at| at <= now) {
                one.slice_ends = None;
                one.decide = true;
            }
        }
        if now.saturating_sub(self.looked) >= BEAT {
            self.looked = now;
            self.look_around();
        }
    }

    /// Releases threads that wait too long, and asks about those of which no event tells what
    /// became of them.
    fn look_around(&mut self) {
        let now = self.now;
        for task in 0..self.tasks.len() as u32 {
            let one = &mut self.tasks[task as usize];
            if one.left {
                continue;
            }
            let tid = one.tid;
            if one.unsure.is_some_and(|since| now.saturating_sub(since) > BEAT) {
                one.unsure = Some(now);
                self.orders.push(placing::order(tid, Ask::Tell));
            }
            let waits = self.tasks[task as usize].waits_since;
            if waits.is_some_and(|since| now.saturating_sub(since) > self.rules.starve_after) {
                self.counts.starved += 1;
                self.release(tid);
            }
        }
    }

    /// Events were lost: asks about every CPU and every thread.
    pub(crate) fn lost(&mut self, count: u64) {
        self.ext.lost += count;
        let online = self.threads.online();
        for slot in 0..self.slots.len() {
            let (cpu, was) = (self.slots[slot].cpu, self.slots[slot].online);
            let one = &mut self.slots[slot];
            (one.displaced, one.ahead, one.busy_until) = (None, None, Ns::ZERO);
            if online.contains(cpu) != was {
                self.set_online(cpu.0, !was);
            }
        }
        let known: Vec<u32> = self.by_tid.values().copied().collect();
        known.into_iter().for_each(|task| self.affinity_changed(task));
        self.orders.extend(self.taken.iter().map(|tid| placing::order(*tid, Ask::Tell)));
    }

    /// Decides as often as the scheduler wants it.
    pub(crate) fn settle(&mut self) {
        for slot in 0..self.slots.len() {
            for _ in 0..DECISIONS_MAX {
                if !std::mem::take(&mut self.slots[slot].decide) {
                    break;
                }
                let fate = if self.current(slot).is_some() { Fate::Runnable } else { Fate::Idle };
                self.decide(slot, fate);
            }
            // What a later CPU's decision asks of an earlier CPU is decided in the next round,
            // which is at once.
            if self.slots[slot].decide {
                let endless =
                    Breach::EndlessDecisions { cpu: CpuId(slot as u32), limit: DECISIONS_MAX };
                self.breach.get_or_insert(endless);
            }
        }
    }

    /// Returns when the agent must wake at the latest, since the start.
    pub(crate) fn due(&self) -> Ns {
        let mut until = self.looked.max(self.now) + BEAT;
        for (number, slot) in self.slots.iter().enumerate() {
            if slot.decide {
                return self.now;
            }
            let tick = slot.next_tick.filter(|_| self.current(number).is_some());
            for time in [slot.slice_ends, tick] {
                until = time.map_or(until, |time| time.min(until));
            }
        }
        self.timers.values().min().map_or(until, |time| until.min(*time))
    }
}

fn tick_ns(hz: u32) -> Ns {
    Ns(1_000_000_000 / u64::from(hz.max(1)))
}

#[cfg(test)]
mod tests;
