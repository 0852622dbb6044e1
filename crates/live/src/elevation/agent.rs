//! The agents: a thread on each managed CPU that asks the scheduler and sets priorities.
//!
//! An agent sleeps until an event, its block detector, a timer, another agent or the supervisor
//! wakes it, for [`HEARTBEAT`](super::HEARTBEAT) at most. While it runs, no managed thread runs on
//! its CPU: its priority is higher. It opens no file and writes none; it reads `/proc/…/stat`
//! through descriptors that are open already. What the agents know and decide is the
//! [state](super::agent_state), whose lock an agent holds for one round.
//!
//! The agent of a CPU hears of what happens on that CPU; the first one also of what happens on the
//! CPUs that are not managed.

use super::agent_state::{AgentState, NewThread};
use super::block_detector::BlockDetector;
use super::control::CpuControl;
use super::fair_lock::FairLock;
use super::threads::Thread;
use crate::driver::{Rounds, cpu_time, monotonic};
use crate::logged_core::WokenBy;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use schedlab_host::follow::{Batch, By as Doer, Followed, Follower};
use schedlab_model::{CpuId, Ns, Policy};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};

/// Descriptors that are waited for at once: the wake descriptor, the block detector's, and a ring
/// for each CPU.
const WATCHED: usize = 66;

/// What the supervisor tells an agent.
pub(super) enum Order {
    /// A thread that is journalled, pinned and parked comes under management.
    Join(Box<Thread>),
    /// More threads are followed.
    Follow(Batch),
    /// The scheduler takes a thread for one of this policy from now on.
    Policy(u32, Policy),
    /// A thread is given back; the others stay managed.
    Release(u32),
}

/// What the agents tell the supervisor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Notice {
    /// A thread was made. Where every thread is followed, its maker may be anybody's.
    Born(Birth),
    /// A managed thread runs another program now.
    Execed(u32),
    /// A thread is managed no longer, because it or another process changed it.
    LetGo(u32),
}

/// A new thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Birth {
    pub(super) child: u32,
    pub(super) parent: u32,
    /// Where it was made: a managed maker was pinned there.
    pub(super) cpu: CpuId,
}

/// What agents and supervisor share, without a lock.
pub(super) struct Shared {
    pub(super) stop: AtomicBool,
    /// The guardian is gone.
    pub(super) unguarded: AtomicBool,
    /// Orders that were carried out.
    pub(super) orders_done: AtomicU64,
    /// The thread whose wakeups show that events come (0: none yet), and how many of them were
    /// heard.
    pub(super) probe: AtomicU32,
    pub(super) probed: AtomicU64,
    /// The counts of all agents, renewed at each heartbeat of the first one.
    pub(super) counts: Mutex<crate::driver::Counts>,
    /// By CPU slot.
    pub(super) agents: Vec<AgentShared>,
}

/// One agent's part of [`Shared`].
pub(super) struct AgentShared {
    /// An eventfd that wakes the agent: after an order, from another agent, and to end it.
    pub(super) wake_fd: OwnedFd,
    /// Rounds that the agent has made: as long as they grow, the guardian is told that all is well.
    pub(super) rounds: AtomicU64,
}

impl Shared {
    /// Wakes the agent of a CPU slot.
    pub(super) fn wake(&self, slot: usize) {
        let _ = rustix::io::write(&self.agents[slot].wake_fd, &1_u64.to_ne_bytes());
    }

    /// Wakes all agents.
    pub(super) fn wake_all(&self) {
        (0..self.agents.len()).for_each(|slot| self.wake(slot));
    }
}

impl Rounds for Shared {
    fn read(&self, rounds: &mut Vec<u64>) {
        rounds.clear();
        rounds.extend(self.agents.iter().map(|agent| agent.rounds.load(Ordering::Relaxed)));
    }

    fn unguarded(&self) {
        self.unguarded.store(true, Ordering::Relaxed);
        self.stop.store(true, Ordering::Relaxed);
        self.wake_all();
    }
}

/// A real CPU: its block detector, and the wake descriptor of its agent.
pub(super) struct RealCpu {
    pub(super) detector: BlockDetector,
    pub(super) shared: Arc<Shared>,
    pub(super) slot: usize,
}

impl CpuControl for RealCpu {
    fn arm(&mut self) {
        self.detector.arm();
    }
    fn fired(&mut self) -> bool {
        self.detector.fired()
    }
    fn wake_agent(&self) {
        self.shared.wake(self.slot);
    }
}

/// The agent state with real threads on real CPUs.
pub(super) type RealState = AgentState<Thread, RealCpu>;

pub(super) struct Agent {
    pub(super) slot: usize,
    pub(super) state: Arc<FairLock<RealState>>,
    /// Readable when the block detector had the CPU.
    pub(super) free: OwnedFd,
    pub(super) follower: Follower,
    pub(super) shared: Arc<Shared>,
    pub(super) orders: Receiver<Order>,
    pub(super) notices: Sender<Notice>,
    pub(super) start: Ns,
    pub(super) events: Vec<Followed>,
}

fn timespec(time: Ns) -> Timespec {
    Timespec { tv_sec: (time.0 / 1_000_000_000) as i64, tv_nsec: (time.0 % 1_000_000_000) as i64 }
}

/// What ended a sleep, besides events and time.
pub(super) struct Woke {
    /// The wake descriptor was written to.
    rung: bool,
    /// The block detector had the CPU.
    pub(super) free: bool,
}

/// Sleeps until the wake descriptor, the block detector or an event, at most for `time`. Allocates
/// nothing: the descriptors are on the stack.
pub(super) fn wait_for(
    wake_fd: Option<&OwnedFd>,
    free: BorrowedFd<'_>,
    follower: &Follower,
    time: Ns,
) -> Woke {
    let wake_fd = wake_fd.map_or(free, AsFd::as_fd);
    let mut fds: [PollFd<'_>; WATCHED] = std::array::from_fn(|place| match place {
        0 => PollFd::from_borrowed_fd(wake_fd, PollFlags::IN),
        1 => PollFd::from_borrowed_fd(free, PollFlags::IN),
        // On a machine with more CPUs than places, wakeups of the last ones are found at the next
        // heartbeat.
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
    /// Runs the loop until the supervisor says stop; returns the CPU time used. The threads are
    /// still pinned at its end: the keeper restores that.
    pub(super) fn run(mut self) -> u64 {
        let shared = self.shared.clone();
        let line = &shared.agents[self.slot];
        let state = self.state.clone();
        let mut until = Ns::ZERO;
        while !shared.stop.load(Ordering::Relaxed) {
            let now = monotonic().saturating_sub(self.start);
            let woke = wait_for(
                Some(&line.wake_fd),
                self.free.as_fd(),
                &self.follower,
                until.saturating_sub(now),
            );
            line.rounds.fetch_add(1, Ordering::Relaxed);
            if woke.rung {
                let _ = rustix::io::read(&line.wake_fd, &mut [0; 8]);
            }
            // Another agent died in the middle of a change: the keeper knows what to restore.
            let Some(mut state) = state.lock() else { break };
            until = self.go_round(&mut state, &woke);
            if state.breach.is_some() {
                break;
            }
        }
        // The threads leave the real-time class at once, so that the block detector, which is below
        // them, can end.
        if let Some(state) = state.lock() {
            state.leave_real_time(self.slot);
        }
        shared.stop.store(true, Ordering::Relaxed);
        cpu_time()
    }

    /// Does everything that is due now; returns when something is due again.
    fn go_round(&mut self, state: &mut RealState, woke: &Woke) -> Ns {
        let slot = self.slot;
        state.enter(slot);
        if woke.rung {
            self.take_orders(state);
        }
        state.look_at_arrival(slot);
        if woke.free {
            state.look_at_running(slot);
        }
        self.read_events(state);
        state.look_at_chosen_in_window(slot);
        state.fire_timers(slot);
        // If the supervisor reads just now, it gets the next ones.
        if state.look_around(slot)
            && slot == 0
            && let Ok(mut counts) = self.shared.counts.try_lock()
        {
            counts.clone_from(&state.counts);
        }
        state.settle(slot);
        state.update_window(slot);
        for tid in state.let_go.drain(..) {
            let _ = self.notices.send(Notice::LetGo(tid));
        }
        state.leave(slot)
    }

    fn take_orders(&mut self, state: &mut RealState) {
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Join(thread) => {
                    let (process, taken_for) = (thread.identity.process, thread.taken_for);
                    let (nice, affinity, cpu) = (thread.before.nice, thread.affinity, thread.cpu);
                    state.join(NewThread {
                        control: *thread,
                        process,
                        taken_for,
                        nice,
                        affinity,
                        cpu,
                    });
                }
                Order::Follow(batch) => self.follower.take(batch),
                Order::Policy(tid, policy) => {
                    if let Some(task) = state.task_of(tid) {
                        state.take_for(task, policy);
                    }
                }
                Order::Release(tid) => {
                    if let Some(task) = state.task_of(tid) {
                        state.release(task);
                    }
                }
            }
            self.shared.orders_done.fetch_add(1, Ordering::Release);
        }
    }

    fn read_events(&mut self, state: &mut RealState) {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        self.follower.read(|event| events.push(event));
        for event in &events {
            match *event {
                Followed::Woken { tid, .. } if tid == self.shared.probe.load(Ordering::Relaxed) => {
                    self.shared.probed.fetch_add(1, Ordering::Release);
                }
                Followed::Woken { tid, by } => {
                    let by = match by {
                        Doer::Thread(waker) => {
                            state.task_of(waker).map_or(WokenBy::Unknown, WokenBy::Task)
                        }
                        Doer::SoftIrq => WokenBy::SoftIrq,
                        Doer::HardIrq => WokenBy::HardIrq,
                    };
                    state.heard_wake(tid, by);
                }
                // A thread is followed before it joins: what it makes meanwhile counts, too.
                Followed::Forked { parent, child } if state.may_join(parent) => {
                    let cpu = state.slots[self.slot].cpu;
                    let _ = self.notices.send(Notice::Born(Birth { child, parent, cpu }));
                }
                Followed::Execed { tid } if state.task_of(tid).is_some() => {
                    let _ = self.notices.send(Notice::Execed(tid));
                }
                Followed::Exited { tid } => {
                    // The thread still runs to its end: when it is off the CPU, the block detector
                    // or a look finds it gone.
                    let _ = tid;
                }
                Followed::Lost => state.look_at_all(),
                Followed::Forked { .. } | Followed::Execed { .. } => {}
            }
        }
        self.events = events;
    }
}
