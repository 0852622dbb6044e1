//! The agent: one thread on the managed CPU that asks the desk and sets priorities.
//!
//! It sleeps until an event, the sentinel, a timer or the steward wakes it, at the latest for a heartbeat. While it runs,
//! nothing of ours runs: it is above. It reads no file but `/proc/…/stat` that is open already, and writes none.

use super::sentinel::{Sentinel, cpu_time};
use super::threads::{State, Thread};
use super::{Counts, DUTY_GIFT, DUTY_PERIOD, HEARTBEAT, LogLine};
use crate::desk::{Answer, Decision, Desk, Fate, Slot, Step, What};
use crate::guardian::beat_through;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use schedlab_host::follow::{Batch, Followed, Follower};
use schedlab_host::threads as host;
use schedlab_model::Ns;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};

/// Descriptors that are waited for at once: the bell, the sentinel, and a ring for each CPU.
const WATCHED: usize = 66;
/// How many sleeping threads are looked at in each heartbeat, in case an event was missed.
const LOOKS: usize = 16;
/// The sentinel ran this often in a row although the chosen thread is runnable: somebody changed it.
const SUSPICIONS: u32 = 20;

/// What the steward tells the agent.
pub(super) enum Order {
    /// A thread that is journalled, pinned and parked.
    Join(Box<Thread>),
    /// The agent's own line to the guardian.
    Heart(OwnedFd),
    /// More threads are followed.
    Follow(Batch),
}

/// What agent and steward share.
pub(super) struct Shared {
    /// Written by the steward after an order, and to end.
    pub(super) bell: OwnedFd,
    pub(super) stop: AtomicBool,
    /// The guardian is gone.
    pub(super) unguarded: AtomicBool,
}

pub(super) struct Agent {
    pub(super) desk: Desk,
    pub(super) follower: Follower,
    pub(super) heart: Option<OwnedFd>,
    pub(super) beaten: Ns,
    pub(super) sentinel: Sentinel,
    pub(super) shared: std::sync::Arc<Shared>,
    pub(super) orders: Receiver<Order>,
    /// Children that threads of ours made.
    pub(super) born: Sender<u32>,
    pub(super) starve_after: Ns,
    pub(super) start: Ns,
    pub(super) hz: u32,
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
    suspicions: u32,
    looked_at: usize,
    period_began: Ns,
    /// Time in this period in which nobody of ours wanted the CPU.
    idle: Ns,
    idle_since: Option<Ns>,
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

impl Agent {
    /// The loop, until the steward says stop. The threads are still confined at its end: the keeper puts that back.
    pub(super) fn run(&mut self) {
        self.work.idle_since = Some(Ns::ZERO);
        if self.desk.scheduler().needs().ticks {
            self.work.next_tick = Some(self.tick_ns());
        }
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.sleep();
            self.beat();
            let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
            self.take_orders();
            self.look_at_running();
            self.read_events();
            self.fire_timers();
            self.look_around();
            self.settle();
            self.share_the_cpu();
        }
        // Out of the real-time class at once, so that the sentinel, which is below them, can end.
        self.work.threads.iter().filter(|thread| !thread.left).for_each(Thread::lend);
        self.work.counts.agent_cpu_ns = cpu_time();
    }

    fn now(&self) -> Ns {
        monotonic().saturating_sub(self.start)
    }

    fn tick_ns(&self) -> Ns {
        Ns(1_000_000_000 / u64::from(self.hz.max(1)))
    }

    fn sleep(&mut self) {
        let now = self.now();
        let mut until = now + Ns(HEARTBEAT.as_nanos() as u64);
        let due = self.work.timers.values().min().copied();
        for time in
            [self.work.slice_ends, self.work.next_tick.filter(|_| self.desk.current(0).is_some()), due]
        {
            until = time.map_or(until, |time| time.min(until));
        }
        // On the stack: the loop allocates nothing. Machines with more CPUs than places look around more often for it.
        let mut fds: [PollFd<'_>; WATCHED] = std::array::from_fn(|place| match place {
            0 => PollFd::new(&self.shared.bell, PollFlags::IN),
            1 => PollFd::from_borrowed_fd(self.sentinel.fd(), PollFlags::IN),
            _ => match self.follower.fd(place - 2) {
                Some(fd) => PollFd::from_borrowed_fd(fd, PollFlags::IN),
                None => PollFd::new(&self.shared.bell, PollFlags::IN),
            },
        });
        let used = (2 + self.follower.cpus()).min(WATCHED);
        // An interrupted sleep is a short one.
        let _ = poll(&mut fds[..used], Some(&timespec(until.saturating_sub(now))));
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
                Order::Heart(heart) => self.heart = Some(heart),
                Order::Follow(batch) => self.follower.take(batch),
            }
        }
    }

    /// The guardian's silence is the agent's: whatever the steward waits for, and whatever hangs here, it sees.
    fn beat(&mut self) {
        let now = monotonic();
        if now.saturating_sub(self.beaten) >= Ns(HEARTBEAT.as_nanos() as u64 / 2) {
            self.beaten = now;
            if self.heart.as_ref().is_some_and(|heart| !beat_through(heart)) {
                self.shared.unguarded.store(true, Ordering::Relaxed);
                self.shared.stop.store(true, Ordering::Relaxed);
            }
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
        let (process, affinity) = (thread.identity.process, schedlab_model::CpuSet::first(1));
        self.work.by_tid.insert(thread.identity.tid, task);
        let runnable = thread.state() == State::Runnable;
        self.work.threads.push(thread);
        let now = self.now();
        self.step(now, What::Join { task, policy, nice, affinity, process });
        if runnable {
            self.woken(task);
        }
    }

    fn woken(&mut self, task: u32) -> bool {
        if self.work.threads[task as usize].left || self.desk.runnable(task) {
            return false;
        }
        let now = self.now();
        self.work.threads[task as usize].waits_since = Some(now);
        self.step(now, What::Wake { task });
        self.work.decide |= self.desk.current(0).is_none();
        true
    }

    /// Takes a thread out of the desk. The caller says what becomes of the real one.
    fn forget(&mut self, task: u32) {
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
        if !self.sentinel.fired() {
            return;
        }
        let Some(task) = self.desk.current(0) else { return };
        match self.work.threads[task as usize].state() {
            State::Sleeping => self.decide(Fate::Blocked),
            State::Gone => self.forget(task),
            State::Runnable => {
                // It blocked and was woken before we looked; or somebody took its priority away.
                self.work.suspicions += 1;
                self.work.counts.stale += 1;
                if self.work.suspicions >= SUSPICIONS && !self.work.threads[task as usize].is_ours() {
                    self.leave_alone(task);
                } else {
                    self.decide(Fate::Runnable);
                }
                return;
            }
        }
        self.work.suspicions = 0;
    }

    fn leave_alone(&mut self, task: u32) {
        self.work.counts.changed_by_others += 1;
        self.forget(task);
        let thread = &self.work.threads[task as usize];
        let _ = host::set_affinity(thread.identity.tid, &thread.affinity);
    }

    fn read_events(&mut self) {
        let mut events = std::mem::take(&mut self.work.events);
        events.clear();
        self.follower.read(|event| events.push(event));
        for event in &events {
            match *event {
                Followed::Woken { tid } => {
                    if let Some(task) = self.work.by_tid.get(&tid).copied() {
                        self.work.counts.wakeups += u64::from(self.woken(task));
                    }
                }
                Followed::Forked { parent, child } if self.work.by_tid.contains_key(&parent) => {
                    let _ = self.born.send(child);
                }
                Followed::Exited { tid } => {
                    // It still runs to its end; when it is off the CPU the sentinel, or a look, finds it gone.
                    let _ = tid;
                }
                Followed::Lost => self.look_at_all(),
                Followed::Forked { .. } => {}
            }
        }
        self.work.events = events;
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

    /// A few sleeping threads in turn, in case a wakeup left no event, and whoever waits too long.
    fn look_around(&mut self) {
        let count = self.work.threads.len();
        for _ in 0..LOOKS.min(count) {
            self.work.looked_at = (self.work.looked_at + 1) % count;
            self.look_at(self.work.looked_at as u32);
        }
        let now = self.now();
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
        let thread = &self.work.threads[task as usize];
        if thread.left || self.desk.current(0) == Some(task) {
            return;
        }
        match thread.state() {
            State::Gone => self.forget(task),
            State::Runnable => self.work.counts.wakeups_found += u64::from(self.woken(task)),
            State::Sleeping => {}
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
    fn decide(&mut self, fate: Fate) {
        let prev = self.desk.current(0);
        let now = self.now();
        self.work.counts.decisions += 1;
        let Some(decision) = self.step(now, What::Decide { cpu: 0, prev: fate }) else { return };
        self.work.slice_ends = decision.slice.filter(|_| decision.task.is_some()).map(|slice| now + slice);
        if decision.task != prev {
            self.switch(now, prev, decision.task, fate);
        }
        if decision.task.is_some() {
            self.sentinel.arm();
        }
    }

    fn switch(&mut self, now: Ns, prev: Option<u32>, next: Option<u32>, fate: Fate) {
        self.work.counts.switches += 1;
        match next {
            Some(next) => {
                self.work.threads[next as usize].waits_since = None;
                // Raise first, lower then: never a moment in which something unmanaged gets the CPU.
                if !self.work.threads[next as usize].raise() {
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
                thread.park();
            }
        }
    }

    /// Lets the rest of the system run, when it had no chance in this period.
    fn share_the_cpu(&mut self) {
        let now = self.now();
        if now.saturating_sub(self.work.period_began) < DUTY_PERIOD {
            return;
        }
        let idle = self.work.idle + self.work.idle_since.map_or(Ns::ZERO, |since| now.saturating_sub(since));
        if idle < DUTY_GIFT {
            self.gift(DUTY_GIFT.saturating_sub(idle));
        }
        let now = self.now();
        (self.work.period_began, self.work.idle) = (now, Ns::ZERO);
        self.work.idle_since = self.work.idle_since.map(|_| now);
    }

    /// Everybody is as before for a while: the kernel shares the CPU as it does without us.
    fn gift(&mut self, length: Ns) {
        self.work.counts.gifts += 1;
        let ours = |desk: &Desk, task: usize, thread: &Thread| !thread.left && desk.runnable(task as u32);
        for (task, thread) in self.work.threads.iter().enumerate() {
            if ours(&self.desk, task, thread) {
                thread.lend();
            }
        }
        let until = self.now() + length;
        loop {
            let left = until.saturating_sub(self.now());
            if left == Ns::ZERO || self.shared.stop.load(Ordering::Relaxed) {
                break;
            }
            // The bell must not ring through: orders wait.
            let _ = rustix::thread::nanosleep(&timespec(left));
        }
        let running = self.desk.current(0);
        for (task, thread) in self.work.threads.iter().enumerate() {
            if ours(&self.desk, task, thread) {
                let _ = if running == Some(task as u32) { thread.raise() } else { thread.park() };
            }
        }
        // What they did meanwhile was not seen: the waits began anew, and whoever sleeps is found by the sentinel.
        let now = self.now();
        for thread in &mut self.work.threads {
            thread.waits_since = thread.waits_since.map(|_| now);
        }
        self.sentinel.arm();
    }
}
