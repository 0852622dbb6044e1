//! The agent: one thread on the unmanaged CPUs for all managed ones. It sleeps until an event, an
//! order or a time, tells the [state](crate::state), and carries the decisions to the kernel.

use crate::ExtError;
use crate::kernel::{Ends, Kernel};
use crate::state::{AgentState, Described, Notice, Threads};
use crate::wire::{BATCH, Decision, Event};
use schedlab_host::threads;
use schedlab_live::driver::{
    Counts, DriverOptions, HEARTBEAT, LONGEST_PAUSE, Rounds, cpu_time, monotonic,
};
use schedlab_model::{CpuSet, Nice, Ns, Policy};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};

/// After a decision that the kernel was not ready for: the other CPU needs some microseconds.
const SOON: Ns = Ns::from_us(20);

/// What the supervisor tells the agent.
pub(crate) enum Order {
    /// A thread that is journalled is about to become SCHED_EXT. Its own policy is this.
    Take(u32, Policy),
    /// The scheduler takes a thread for one of this policy from now on.
    Policy(u32, Policy),
    /// A thread is given back.
    Release(u32),
}

/// What agent and supervisor share.
pub(crate) struct Shared {
    pub(crate) stop: AtomicBool,
    pub(crate) unguarded: AtomicBool,
    pub(crate) rounds: AtomicU64,
    pub(crate) orders_done: AtomicU64,
    /// Wakes the agent.
    pub(crate) bell: OwnedFd,
    /// Renewed at each heartbeat: the counts, and the threads that are managed.
    pub(crate) seen: Mutex<(Counts, Vec<u32>)>,
}

impl Shared {
    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

impl Rounds for Shared {
    fn read(&self, rounds: &mut Vec<u64>) {
        rounds.clear();
        rounds.push(self.rounds.load(Ordering::Relaxed));
    }

    fn unguarded(&self) {
        self.unguarded.store(true, Ordering::Relaxed);
        self.stop.store(true, Ordering::Relaxed);
        self.ring();
    }
}

/// Threads as the kernel has them.
pub(crate) struct RealThreads {
    /// The policies of threads before they were managed; those of threads that they made are their
    /// makers'.
    own: BTreeMap<u32, Policy>,
    declared: Vec<(String, Policy)>,
}

impl RealThreads {
    pub(crate) fn new(options: &DriverOptions) -> RealThreads {
        RealThreads { own: BTreeMap::new(), declared: options.declared.clone() }
    }
}

impl Threads for RealThreads {
    fn describe(&mut self, tid: u32) -> Option<Described> {
        let thread = threads::identity(tid)?;
        let declared =
            self.declared.iter().find(|(name, _)| *name == thread.comm).map(|(_, policy)| *policy);
        let own = self.own.get(&tid).copied().unwrap_or(Policy::Other);
        Some(Described {
            process: thread.process,
            policy: declared.unwrap_or(own),
            nice: threads::nice(tid).ok()?,
            affinity: threads::affinity(tid).ok()?,
            comm: thread.comm,
        })
    }

    fn born(&mut self, tid: u32, maker: u32) {
        let own = self.own.get(&maker).copied().unwrap_or(Policy::Other);
        self.own.insert(tid, own);
    }

    fn nice(&mut self, tid: u32) -> Option<Nice> {
        threads::nice(tid).ok()
    }

    fn affinity(&mut self, tid: u32) -> Option<CpuSet> {
        threads::affinity(tid).ok()
    }

    fn online(&mut self) -> CpuSet {
        schedlab_host::machine().online
    }
}

/// The state with real threads.
pub(crate) type RealState = AgentState<RealThreads>;

pub(crate) struct Agent<'s> {
    pub(crate) shared: &'s Shared,
    pub(crate) state: RealState,
    pub(crate) orders: Receiver<Order>,
    pub(crate) notices: Sender<Notice>,
    pub(crate) start: Ns,
    /// Events that the kernel had no room for, as far as they were served.
    pub(crate) lost: u64,
    pub(crate) looked: Ns,
}

/// What the agent leaves.
pub(crate) struct Done {
    pub(crate) state: RealState,
    pub(crate) cpu_ns: u64,
}

impl Agent<'_> {
    /// Runs the loop until the supervisor says stop.
    ///
    /// # Errors
    /// When the kernel unloads the scheduler, or does not take decisions.
    pub(crate) fn run(mut self, kernel: &mut Kernel) -> Result<Done, ExtError> {
        let shared = self.shared;
        // Loading took its time, too.
        let used = cpu_time();
        let result = kernel.with(|ends| {
            let (mut until, mut events) = (Ns::ZERO, Vec::with_capacity(1024));
            while !shared.stop.load(Ordering::Relaxed) {
                let now = monotonic().saturating_sub(self.start);
                ends.wait(shared.bell.as_fd(), until.saturating_sub(now));
                shared.rounds.fetch_add(1, Ordering::Relaxed);
                until = self.go_round(ends, &mut events)?;
                if self.state.breach.is_some() {
                    break;
                }
            }
            Ok::<(), ExtError>(())
        });
        self.state.ext.alone = kernel.control().alone;
        // The kernel takes a while to unload it, longer on a slow machine than the guardian waits:
        // the supervisor, which may share this CPU and has the same priority, beats meanwhile.
        if let Ok(own) = threads::scheduling(0) {
            let _ = threads::set_scheduling(0, &own.with_policy(Policy::Other));
        }
        // Before anything is restored: threads that still wait are the fair class's at once.
        kernel.detach();
        shared.stop.store(true, Ordering::Relaxed);
        result??;
        self.state.counts.sched_ext = Some(self.state.ext.clone());
        Ok(Done { state: self.state, cpu_ns: cpu_time().saturating_sub(used) })
    }

    /// Does everything that is due now; returns when something is due again.
    fn go_round(&mut self, ends: &mut Ends<'_>, events: &mut Vec<Event>) -> Result<Ns, ExtError> {
        let used = cpu_time();
        let mut orders = 0;
        // Reading clears it.
        let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
        while let Ok(order) = self.orders.try_recv() {
            self.take_order(order);
            orders += 1;
        }
        ends.events(events);
        for event in events.iter() {
            self.state.hear(event);
            // A thread that joins is read from /proc: many in one round take a slow machine longer
            // than the guardian waits.
            self.shared.rounds.fetch_add(1, Ordering::Relaxed);
        }
        let now = monotonic().saturating_sub(self.start);
        self.state.advance(now);
        if self.state.ended {
            let control = ends.control();
            let message = control.end_message;
            let message = if message.is_empty() { message } else { format!(": {message}") };
            return Err(ExtError::Ended { reason: control.end_reason, message });
        }
        if now.saturating_sub(self.looked) >= Ns(HEARTBEAT.as_nanos() as u64) {
            self.looked = now;
            self.look(ends);
        }
        self.state.fire();
        self.state.settle();
        let again = self.carry_out(ends)?;
        self.shared.orders_done.fetch_add(orders, Ordering::Release);
        for notice in self.state.notices.drain(..) {
            let _ = self.notices.send(notice);
        }
        // Else a quantum below the cost of a decision would leave the agent no sleep. An event ends
        // it at once.
        let took = Ns(cpu_time().saturating_sub(used)).min(LONGEST_PAUSE);
        let (due, earliest) = (self.state.due(), now + took);
        if again {
            return Ok(now + SOON);
        }
        self.state.counts.postponed += u64::from(due < earliest);
        Ok(due.max(earliest))
    }

    fn take_order(&mut self, order: Order) {
        match order {
            Order::Take(tid, own) => {
                self.state.threads.own.insert(tid, own);
                self.state.take(tid);
            }
            Order::Policy(tid, policy) => self.state.take_for(tid, policy),
            Order::Release(tid) => self.state.release(tid),
        }
    }

    /// Makes decisions until the state wants nothing more of the kernel. Returns whether it was not
    /// ready for one.
    fn carry_out(&mut self, ends: &mut Ends<'_>) -> Result<bool, ExtError> {
        let mut due: Vec<Decision> = self.state.due_decisions();
        // Also without any: that tells the kernel that the agent lives.
        ends.commit(&mut due)?;
        let mut again = self.state.answered(&due);
        // What an answer changed, such as a thread that has gone, asks for a decision of its CPU at
        // once.
        for _ in 0..BATCH {
            self.state.settle();
            let more = if again { Vec::new() } else { self.state.due_decisions() };
            if more.is_empty() {
                break;
            }
            due = more;
            ends.commit(&mut due)?;
            again = self.state.answered(&due);
        }
        Ok(again)
    }

    /// Once in a heartbeat: asks for lost events, and tells the supervisor.
    fn look(&mut self, ends: &Ends<'_>) {
        let control = ends.control();
        if control.lost > self.lost {
            self.state.lost(control.lost - self.lost);
            self.lost = control.lost;
        }
        self.state.ext.alone = control.alone;
        // If the supervisor reads just now, it gets the next ones.
        if let Ok(mut seen) = self.shared.seen.try_lock() {
            seen.0.clone_from(&self.state.counts);
            seen.0.sched_ext = Some(self.state.counts_so_far());
            seen.1 = self.state.managed();
        }
    }
}
