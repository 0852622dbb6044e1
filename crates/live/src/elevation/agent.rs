//! The agent: one thread on the managed CPU that asks the desk and sets priorities.
//!
//! It sleeps until an event, the sentinel, a timer or the steward wakes it, at the latest for a heartbeat. While it runs,
//! nothing of ours runs: it is above. It reads no file but `/proc/…/stat` that is open already, and writes none.

use super::gift::Gifts;
use super::sentinel::{Sentinel, cpu_time};
use super::threads::{Grip, State, Thread};
use super::{Counts, HEARTBEAT, LogLine};
use crate::desk::{Answer, By, Decision, Desk, Fate, Slot, Step, What};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use schedlab_host::follow::{Batch, By as Doer, Followed, Follower};
use schedlab_host::threads as host;
use schedlab_model::{CpuSet, Ns, Policy};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};

/// Descriptors that are waited for at once: the bell, the sentinel, and a ring for each CPU.
const WATCHED: usize = 66;
/// How many sleeping threads are looked at in one heartbeat at most, in case an event was missed.
const LOOKS: usize = 16;
/// Within how many heartbeats every thread is looked at, when there are not too many: a look costs some microseconds of the
/// managed CPU.
const LOOK_ROUND: usize = 10;
/// What the steward tells the agent.
pub(super) enum Order {
    /// A thread that is journalled, pinned and parked.
    Join(Box<Thread>),
    /// More threads are followed.
    Follow(Batch),
    /// The scheduler shall take a thread for something else.
    Policy(u32, Policy),
    /// Give a thread back; the others stay.
    Release(u32),
}

/// What the agent tells the steward.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Tiding {
    /// A thread of ours made this one.
    Born(u32),
    /// A thread of ours runs another program now.
    Execed(u32),
}

/// What agent and steward share.
pub(super) struct Shared {
    /// Written by the steward after an order, and to end.
    pub(super) bell: OwnedFd,
    pub(super) stop: AtomicBool,
    /// How often the agent has gone round: as long as that grows, the guardian is told that all is well.
    pub(super) rounds: AtomicU64,
    /// The guardian is gone.
    pub(super) unguarded: AtomicBool,
    /// Orders that were carried out.
    pub(super) obeyed: AtomicU64,
    /// How the agent stands, renewed with each look around.
    pub(super) counts: Mutex<Counts>,
}

pub(super) struct Agent {
    pub(super) desk: Desk,
    pub(super) follower: Follower,
    pub(super) sentinel: Sentinel,
    pub(super) shared: std::sync::Arc<Shared>,
    pub(super) orders: Receiver<Order>,
    pub(super) tidings: Sender<Tiding>,
    pub(super) starve_after: Ns,
    /// The CPU that it manages.
    pub(super) managed: CpuSet,
    pub(super) start: Ns,
    pub(super) hz: u32,
    pub(super) gifts: Gifts,
    pub(super) log: Vec<LogLine>,
    pub(super) work: Work,
}

/// What changes while it works.
#[derive(Default)]
pub(super) struct Work {
    /// By number at the desk.
    pub(super) threads: Vec<Thread>,
    pub(super) counts: Counts,
    by_tid: BTreeMap<u32, u32>,
    slice_ends: Option<Ns>,
    next_tick: Option<Ns>,
    timers: BTreeMap<Slot, Ns>,
    decide: bool,
    looked_at: usize,
    /// Heartbeats in which it looked around.
    beats: usize,
    /// When that was.
    looked: Ns,
    pub(super) period_began: Ns,
    /// Time in this period in which nobody of ours wanted the CPU.
    pub(super) idle: Ns,
    pub(super) idle_since: Option<Ns>,
    /// Until when the CPU is given away just now.
    pub(super) gift: Option<Ns>,
    events: Vec<Followed>,
}

/// CLOCK_MONOTONIC.
pub(super) fn monotonic() -> Ns {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Ns(u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0))
}

fn timespec(time: Ns) -> Timespec {
    Timespec { tv_sec: (time.0 / 1_000_000_000) as i64, tv_nsec: (time.0 % 1_000_000_000) as i64 }
}

/// What ended a sleep, besides events and time.
pub(super) struct Woke {
    /// The steward rang.
    rung: bool,
    /// The sentinel had the CPU.
    pub(super) free: bool,
}

/// Sleeps until the bell, the sentinel or an event, at most for `time`. Allocates nothing: descriptors are on the stack.
pub(super) fn wait_for(bell: Option<&OwnedFd>, sentinel: &Sentinel, follower: &Follower, time: Ns) -> Woke {
    let free = sentinel.fd();
    let bell = bell.map_or(free, AsFd::as_fd);
    let mut fds: [PollFd<'_>; WATCHED] = std::array::from_fn(|place| match place {
        0 => PollFd::from_borrowed_fd(bell, PollFlags::IN),
        1 => PollFd::from_borrowed_fd(free, PollFlags::IN),
        // Machines with more CPUs than places look around more often for it.
        _ => PollFd::from_borrowed_fd(follower.fd(place - 2).unwrap_or(free), PollFlags::IN),
    });
    let used = (2 + follower.cpus()).min(WATCHED);
    match poll(&mut fds[..used], Some(&timespec(time))) {
        Ok(_) => Woke { rung: !fds[0].revents().is_empty(), free: !fds[1].revents().is_empty() },
        // An interrupted sleep is a short one.
        Err(_) => Woke { rung: true, free: true },
    }
}

impl Agent {
    /// The loop, until the steward says stop. The threads are still confined at its end: the keeper puts that back.
    pub(super) fn run(&mut self) {
        self.work.idle_since = Some(Ns::ZERO);
        if self.desk.scheduler().needs().ticks {
            self.work.next_tick = Some(self.tick_ns());
        }
        while !self.shared.stop.load(Ordering::Relaxed) {
            let woke = self.sleep();
            self.shared.rounds.fetch_add(1, Ordering::Relaxed);
            if woke.rung {
                let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
                self.take_orders();
            }
            if woke.free {
                self.look_at_running();
            }
            self.read_events();
            self.look_at_lent();
            self.fire_timers();
            self.look_around();
            self.settle();
            self.share_the_cpu();
        }
        // Out of the real-time class at once, so that the sentinel, which is below them, can end.
        for thread in self.work.threads.iter().filter(|thread| !thread.left) {
            thread.lend();
        }
        self.work.counts.agent_cpu_ns = cpu_time();
    }

    pub(super) fn now(&self) -> Ns {
        monotonic().saturating_sub(self.start)
    }

    fn tick_ns(&self) -> Ns {
        Ns(1_000_000_000 / u64::from(self.hz.max(1)))
    }

    fn sleep(&mut self) -> Woke {
        let now = self.now();
        let mut until = now + Ns(HEARTBEAT.as_nanos() as u64);
        let due = self.work.timers.values().min().copied();
        let tick = self.work.next_tick.filter(|_| self.desk.current(0).is_some());
        for time in [self.work.slice_ends, tick, due, self.work.gift] {
            until = time.map_or(until, |time| time.min(until));
        }
        wait_for(Some(&self.shared.bell), &self.sentinel, &self.follower, until.saturating_sub(now))
    }

    /// Plays a step at the desk, keeps it for the log, and notes what is asked for.
    fn step(&mut self, at: Ns, what: What) -> Option<Decision> {
        let step = Step { at, what };
        let Answer { decision, resched, timers } = self.desk.step(&step);
        if self.log.len() < self.log.capacity() {
            self.log.push(LogLine { step, decision });
        } else {
            self.work.counts.unlogged += 1;
        }
        self.work.decide |= !resched.is_empty();
        for (slot, time) in timers {
            match time {
                Some(time) => self.work.timers.insert(slot, time),
                None => self.work.timers.remove(&slot),
            };
        }
        decision
    }

    fn take_orders(&mut self) {
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Join(thread) => self.join(*thread),
                Order::Follow(batch) => self.follower.take(batch),
                Order::Policy(tid, policy) => {
                    if let Some(task) = self.work.by_tid.get(&tid).copied() {
                        let now = self.now();
                        self.work.threads[task as usize].taken_for = policy;
                        self.step(now, What::Policy { task, policy });
                    }
                }
                Order::Release(tid) => {
                    if let Some(task) = self.work.by_tid.get(&tid).copied() {
                        self.release(task);
                    }
                }
            }
            self.shared.obeyed.fetch_add(1, Ordering::Release);
        }
    }

    fn join(&mut self, thread: Thread) {
        let Some(task) = self.desk.next_task().filter(|task| *task as usize == self.work.threads.len())
        else {
            let mut thread = thread;
            thread.give_back();
            self.work.counts.refused += 1;
            return;
        };
        let (policy, nice) = (thread.taken_for, thread.before.nice);
        let (process, affinity) = (thread.identity.process, CpuSet::first(1));
        self.work.by_tid.insert(thread.identity.tid, task);
        let runnable = thread.state() == State::Runnable;
        self.work.threads.push(thread);
        let now = self.now();
        self.step(now, What::Join { task, policy, nice, affinity, process });
        if runnable {
            self.woken(task, By::Unknown);
        }
    }

    fn woken(&mut self, task: u32, by: By) -> bool {
        if self.work.threads[task as usize].left || self.desk.runnable(task) {
            return false;
        }
        let now = self.now();
        self.work.threads[task as usize].waits_since = Some(now);
        self.step(now, What::Wake { task, by });
        self.work.decide |= self.desk.current(0).is_none();
        if self.work.gift.is_some() {
            // It slept when the gift began.
            self.place(task, false);
        }
        true
    }

    /// Takes a thread out of the desk. The caller says what becomes of the real one.
    pub(super) fn forget(&mut self, task: u32) {
        self.work.threads[task as usize].left = true;
        self.work.by_tid.remove(&self.work.threads[task as usize].identity.tid);
        if self.desk.current(0) == Some(task) {
            self.decide(Fate::Exited);
        } else {
            let now = self.now();
            self.step(now, What::Leave { task });
        }
    }

    fn release(&mut self, task: u32) {
        if !self.work.threads[task as usize].left {
            self.forget(task);
            self.work.threads[task as usize].give_back();
        }
    }

    /// The sentinel had the CPU: what became of the chosen thread?
    fn look_at_running(&mut self) {
        // In a gift nobody of ours is above the sentinel: what it says is nothing new.
        if !self.sentinel.fired() || self.work.gift.is_some() {
            return;
        }
        let Some(task) = self.desk.current(0) else { return };
        match self.work.threads[task as usize].state() {
            State::Sleeping => self.decide(Fate::Blocked),
            State::Gone => self.forget(task),
            State::Runnable => {
                // It blocked and was woken before we looked; or somebody took its priority away.
                self.work.counts.stale += 1;
                match self.work.threads[task as usize].grip(&self.managed) {
                    Grip::Firm => self.decide(Fate::Runnable),
                    loose => self.leave_alone(task, loose),
                }
            }
        }
    }

    /// Somebody changed it: what he did stays, and the rest is as before.
    pub(super) fn leave_alone(&mut self, task: u32, grip: Grip) {
        self.work.counts.changed_by_others += 1;
        self.forget(task);
        let thread = &self.work.threads[task as usize];
        if grip == Grip::Cpus {
            thread.lend();
        } else if host::affinity(thread.identity.tid).is_ok_and(|now| now == self.managed) {
            let _ = host::set_affinity(thread.identity.tid, &thread.affinity);
        }
    }

    fn read_events(&mut self) {
        let mut events = std::mem::take(&mut self.work.events);
        events.clear();
        self.follower.read(|event| events.push(event));
        for event in &events {
            match *event {
                Followed::Woken { tid, by } => {
                    if let Some(task) = self.work.by_tid.get(&tid).copied() {
                        let by = self.doer(by);
                        if self.work.gift.is_some() && self.desk.current(0) == Some(task) {
                            // In a gift nobody says that the chosen thread blocks; that it wakes does.
                            self.decide(Fate::Blocked);
                        }
                        self.work.counts.wakeups += u64::from(self.woken(task, by));
                    }
                }
                Followed::Forked { parent, child } if self.work.by_tid.contains_key(&parent) => {
                    let _ = self.tidings.send(Tiding::Born(child));
                }
                Followed::Execed { tid } if self.work.by_tid.contains_key(&tid) => {
                    let _ = self.tidings.send(Tiding::Execed(tid));
                }
                Followed::Exited { tid } => {
                    // It still runs to its end; when it is off the CPU the sentinel, or a look, finds it gone.
                    let _ = tid;
                }
                Followed::Lost => self.look_at_all(),
                Followed::Forked { .. } | Followed::Execed { .. } => {}
            }
        }
        self.work.events = events;
    }

    fn doer(&self, by: Doer) -> By {
        match by {
            Doer::Thread(tid) => self.work.by_tid.get(&tid).map_or(By::Unknown, |task| By::Task(*task)),
            Doer::SoftIrq => By::SoftIrq,
            Doer::HardIrq => By::HardIrq,
        }
    }

    fn fire_timers(&mut self) {
        let now = self.now();
        while let Some((slot, _)) = self.work.timers.iter().find(|(_, at)| **at <= now).map(|(s, a)| (*s, *a))
        {
            self.work.timers.remove(&slot);
            self.step(now, What::Timer { timer: slot });
        }
        if self.work.next_tick.is_some_and(|at| at <= now) {
            self.step(now, What::Tick { cpu: 0 });
            let tick = self.tick_ns();
            self.work.next_tick = Some(Ns((now.0 / tick.0 + 1) * tick.0));
        }
        if self.work.slice_ends.is_some_and(|at| at <= now) {
            self.work.slice_ends = None;
            self.work.decide = true;
        }
    }

    /// With each heartbeat: a few sleeping threads in turn, in case a wakeup left no event, and whoever waits too long.
    fn look_around(&mut self) {
        let now = self.now();
        // What somebody else changed is not told from what a gift changed: that waits.
        if now.saturating_sub(self.work.looked) < Ns(HEARTBEAT.as_nanos() as u64) || self.work.gift.is_some()
        {
            return;
        }
        self.work.looked = now;
        // An onlooker that reads just now gets the next ones.
        if let Ok(mut counts) = self.shared.counts.try_lock() {
            counts.clone_from(&self.work.counts);
        }
        let count = self.work.threads.len();
        // A few at once, and then none for a while, disturb fewer turns than one now and then.
        self.work.beats += 1;
        let looks = if count > LOOK_ROUND { count.div_ceil(LOOK_ROUND) } else { count };
        if count > LOOK_ROUND || self.work.beats.is_multiple_of(LOOK_ROUND) {
            for _ in 0..looks.min(LOOKS) {
                self.work.looked_at = (self.work.looked_at + 1) % count;
                self.look_at(self.work.looked_at as u32);
            }
        }
        for task in 0..count as u32 {
            let thread = &self.work.threads[task as usize];
            let waits = thread.waits_since.filter(|_| !thread.left && self.desk.runnable(task));
            if waits.is_some_and(|since| now.saturating_sub(since) > self.starve_after) {
                self.work.counts.starved += 1;
                self.release(task);
            }
        }
    }

    fn look_at_all(&mut self) {
        (0..self.work.threads.len() as u32).for_each(|task| self.look_at(task));
    }

    /// Sets the desk right about a thread that does not run.
    fn look_at(&mut self, task: u32) {
        let thread = &mut self.work.threads[task as usize];
        if thread.left {
            return;
        }
        if let Some(nice) = thread.new_nice() {
            let now = self.now();
            self.step(now, What::Nice { task, nice });
        }
        let thread = &self.work.threads[task as usize];
        let (state, runs) = (thread.state(), self.desk.current(0) == Some(task));
        let grip = thread.grip(&self.managed);
        match state {
            // The end of the one that runs is seen when it is off the CPU.
            State::Gone if runs => {}
            State::Gone => self.forget(task),
            _ if grip != Grip::Firm && self.work.gift.is_none() => self.leave_alone(task, grip),
            State::Runnable if !runs => {
                self.work.counts.wakeups_found += u64::from(self.woken(task, By::Unknown));
            }
            State::Runnable | State::Sleeping => {}
        }
    }

    /// Decides as often as the desk wants it.
    fn settle(&mut self) {
        for _ in 0..8 {
            if !std::mem::take(&mut self.work.decide) {
                break;
            }
            let fate = if self.desk.current(0).is_some() { Fate::Runnable } else { Fate::Idle };
            self.decide(fate);
        }
    }

    /// Asks who runs, and makes it so.
    pub(super) fn decide(&mut self, fate: Fate) {
        let prev = self.desk.current(0);
        let now = self.now();
        self.work.counts.decisions += 1;
        let Some(decision) = self.step(now, What::Decide { cpu: 0, prev: fate }) else { return };
        self.work.slice_ends = decision.slice.filter(|_| decision.task.is_some()).map(|slice| now + slice);
        if decision.task != prev {
            self.switch(now, prev, decision.task, fate);
        }
        if decision.task.is_some() && self.work.gift.is_none() {
            self.sentinel.arm();
        }
    }

    fn switch(&mut self, now: Ns, prev: Option<u32>, next: Option<u32>, fate: Fate) {
        self.work.counts.switches += 1;
        match next {
            Some(next) => {
                self.work.threads[next as usize].waits_since = None;
                // Raise first, lower then: never a moment in which something unmanaged gets the CPU.
                if !self.place(next, true) {
                    self.work.counts.stale += 1;
                }
                self.work.idle +=
                    self.work.idle_since.take().map_or(Ns::ZERO, |since| now.saturating_sub(since));
            }
            None => self.work.idle_since = Some(now),
        }
        if let Some(prev) = prev {
            let thread = &mut self.work.threads[prev as usize];
            thread.waits_since = (fate == Fate::Runnable).then_some(now);
            if fate != Fate::Exited && !thread.left {
                self.place(prev, false);
            }
        }
    }
}
