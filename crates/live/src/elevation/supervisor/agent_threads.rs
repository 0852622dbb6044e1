//! The agents' threads: how they begin, and what they leave.

use super::super::agent::{Agent, AgentShared, Notice, Order, RealCpu, RealState, Shared};
use super::super::agent_state::{AgentState, Rules};
use super::super::block_detector::BlockDetector;
use super::super::fair_lock::FairLock;
use super::super::senders::{Post, Senders};
use super::super::threads::Thread;
use super::super::yield_window::YieldWindows;
use crate::LiveError;
use crate::driver::{
    AGENT, Counts, DriverOptions, LogLine, become_fifo, cpu_time, lock_memory, monotonic,
};
use crate::logged_core::{CoreOptions, LoggedCore};
use rustix::event::{EventfdFlags, eventfd};
use schedlab_host::follow::{Adder, Follower};
use schedlab_host::privileges::{Duty, keep_only};
use schedlab_model::{CpuId, CpuSet, Ns, OwnThread};
use schedlab_scheduler::decision_core::Breach;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The agents, one on each managed CPU. When this value is dropped, they have ended.
pub(super) struct AgentThreads {
    pub(super) shared: Arc<Shared>,
    orders: Vec<Sender<Order>>,
    /// Each returns its CPU time.
    threads: Vec<JoinHandle<u64>>,
    state: Option<Arc<FairLock<RealState>>>,
    /// On PREEMPT_RT.
    senders: Option<Senders>,
    start: Ns,
}

/// What the agents leave together.
pub(super) struct Done {
    /// With the time for which each was the chosen thread.
    pub(super) threads: Vec<(Thread, Ns)>,
    pub(super) counts: Counts,
    pub(super) log: Vec<LogLine>,
    /// How the scheduler broke its contract.
    pub(super) breach: Option<Breach>,
}

/// What an agent's thread has made before it can be given the state.
struct Prepared {
    detector: BlockDetector,
    free: OwnedFd,
}

/// What an agent's thread is given.
struct AgentStart {
    slot: usize,
    cpu: CpuId,
    follower: Follower,
    shared: Arc<Shared>,
    orders: Receiver<Order>,
    notices: Sender<Notice>,
    start: Ns,
    state: Receiver<Arc<FairLock<RealState>>>,
}

impl AgentThreads {
    /// Starts all agents. Also returns, by CPU slot, what adds threads to those that each follows;
    /// and their notices.
    pub(super) fn start(
        options: &DriverOptions,
        core: &CoreOptions,
        others: &CpuSet,
        start: Ns,
    ) -> Result<(AgentThreads, Vec<Adder>, Receiver<Notice>), LiveError> {
        let cpus: Vec<CpuId> = options.cpus.iter().collect();
        let lines = cpus.iter().map(|_| AgentShared::new()).collect::<Result<_, _>>()?;
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            unguarded: AtomicBool::new(false),
            orders_done: AtomicU64::new(0),
            probe: AtomicU32::new(0),
            probed: AtomicU64::new(0),
            counts: Mutex::new(Counts::default()),
            agents: lines,
        });
        let (news, notices) = channel();
        let mut agents = AgentThreads {
            shared: shared.clone(),
            orders: Vec::new(),
            threads: Vec::new(),
            state: None,
            senders: None,
            start,
        };
        if schedlab_host::machine().is_realtime() {
            agents.senders = Some(senders(&cpus, core.tasks, others, &shared)?);
        }
        let (mut adders, mut controls, mut gives) = (Vec::new(), Vec::new(), Vec::new());
        for (slot, cpu) in cpus.into_iter().enumerate() {
            // The first one also listens on the unmanaged CPUs.
            let heard =
                if slot == 0 { others.or(&CpuSet::single(cpu)) } else { CpuSet::single(cpu) };
            let no_events =
                |error: schedlab_host::HostError| LiveError::NoEvents { reason: error.to_string() };
            let follower = Follower::open(&heard).map_err(no_events)?;
            adders.push(follower.adder().map_err(no_events)?);
            let ((orders, inbox), (give, state)) = (channel(), channel());
            let (shared, notices) = (shared.clone(), news.clone());
            let given = AgentStart {
                slot,
                cpu,
                follower,
                shared: shared.clone(),
                orders: inbox,
                notices,
                start,
                state,
            };
            let (thread, detector) = given.spawn()?;
            agents.threads.push(thread);
            agents.orders.push(orders);
            controls.push((cpu, RealCpu { detector, shared, slot }));
            gives.push(give);
        }
        let rules = Rules {
            clock: Box::new(move || monotonic().saturating_sub(start)),
            used: Box::new(|| Ns(cpu_time())),
            hz: core.hz,
            starve_after: options.starve_after,
            windows: YieldWindows::for_this_kernel(),
        };
        let state = AgentState::new(LoggedCore::new(core)?, rules, controls, options.log_steps);
        let state = Arc::new(FairLock::new(state));
        // An agent that is gone already is noticed elsewhere.
        gives.into_iter().for_each(|give| drop(give.send(state.clone())));
        agents.state = Some(state);
        Ok((agents, adders, notices))
    }

    /// Who sends threads to other CPUs; `None`: the agents do.
    pub(super) fn post(&self) -> Option<Post> {
        self.senders.as_ref().map(Senders::post)
    }

    /// Gives an agent an order; false: the agent is gone.
    pub(super) fn tell(&self, slot: usize, order: Order) -> bool {
        let told = self.orders[slot].send(order).is_ok();
        self.shared.wake(slot);
        told
    }

    /// Returns whether an agent is gone.
    pub(super) fn is_dead(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Returns whether all agents are gone.
    pub(super) fn has_ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    pub(super) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.wake_all();
    }

    /// Ends all agents and their block detectors.
    pub(super) fn end(&mut self) -> Result<Done, LiveError> {
        self.stop();
        // Where a start failed, they wait for a state that never comes.
        let (mut agents_ns, mut panic) = (0, None);
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(ns) => agents_ns += ns,
                Err(why) => panic = panic.or(Some(LiveError::died(&*why))),
            }
        }
        let state = self.state.take().and_then(Arc::into_inner);
        let Some(state) = state else {
            return Err(panic.unwrap_or(LiveError::AgentDied { why: "before it began".to_owned() }));
        };
        // After a panic in the middle of a change the state is still good for ending the block
        // detectors.
        let state = state.into_inner();
        // Another agent may have raised a thread here after the last look of the CPU's own.
        (0..state.slots.len()).for_each(|slot| state.leave_real_time(slot));
        // No thread is held behind a raised one any more: those that are on their way arrive.
        self.senders = None;
        let now = monotonic().saturating_sub(self.start);
        let chosen: Vec<Ns> =
            (0..state.threads.len() as u32).map(|task| state.core.ran(task, now)).collect();
        let detectors: u64 = state.slots.into_iter().map(|slot| slot.control.detector.end()).sum();
        if let Some(panic) = panic {
            return Err(panic);
        }
        let threads = state.threads.into_iter().map(|thread| thread.control).zip(chosen).collect();
        let counts = Counts { agent_cpu_ns: agents_ns + detectors, ..state.counts };
        Ok(Done { threads, counts, log: state.log, breach: state.breach })
    }
}

/// Starts the senders, which wake the agent of the CPU where a thread arrives.
fn senders(
    cpus: &[CpuId],
    tasks: usize,
    others: &CpuSet,
    shared: &Arc<Shared>,
) -> Result<Senders, LiveError> {
    let (slots, shared) = (cpus.to_vec(), shared.clone());
    let arrived = move |to: &CpuSet| {
        let slot = slots.iter().position(|cpu| *to == CpuSet::single(*cpu));
        slot.into_iter().for_each(|slot| shared.wake(slot));
    };
    Senders::start((cpus.len(), tasks), *others, Arc::new(arrived))
}

impl Drop for AgentThreads {
    fn drop(&mut self) {
        if !self.threads.is_empty() || self.state.is_some() {
            // Something else failed, and that is the error.
            let _ = self.end();
        }
    }
}

impl AgentShared {
    fn new() -> Result<AgentShared, LiveError> {
        let wake_fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake_fd = wake_fd
            .map_err(|error| LiveError::io("making a wake descriptor (eventfd)")(error.into()))?;
        Ok(AgentShared { wake_fd, rounds: AtomicU64::new(0) })
    }
}

impl AgentStart {
    /// Starts the thread and waits until it is on its CPU with its priority.
    fn spawn(self) -> Result<(JoinHandle<u64>, BlockDetector), LiveError> {
        let (ready, started) = channel();
        let thread =
            std::thread::Builder::new().name(OwnThread::Agent.name().to_owned()).spawn(move || {
                let cpu = self.cpu;
                let free = match Prepared::on(cpu) {
                    Ok(made) => {
                        let free = made.free;
                        let _ = ready.send(Ok(made.detector));
                        free
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        return 0;
                    }
                };
                // There is no state when another agent could not begin.
                let Ok(state) = self.state.recv() else { return 0 };
                let AgentStart { slot, follower, shared, orders, notices, start, .. } = self;
                let events = Vec::with_capacity(1024);
                Agent { slot, state, free, follower, shared, orders, notices, start, events }.run()
            });
        let thread = thread.map_err(LiveError::io("starting an agent"))?;
        let ended = || Err(LiveError::AgentDied { why: "it ended before it began".to_owned() });
        let detector = started.recv().unwrap_or_else(|_| ended())?;
        Ok((thread, detector))
    }
}

impl Prepared {
    fn on(cpu: CpuId) -> Result<Prepared, LiveError> {
        // A thread that is made from here on can do no more than this one.
        keep_only(&[Duty::Schedule, Duty::LockMemory])
            .map_err(LiveError::io("giving up capabilities (capset)"))?;
        lock_memory()?;
        let managed = CpuSet::single(cpu);
        let detector = BlockDetector::start(managed)?;
        let free = detector
            .fd()
            .try_clone_to_owned()
            .map_err(LiveError::io("sharing the block detector's descriptor"))?;
        become_fifo("an agent", AGENT, &managed)?;
        Ok(Prepared { detector, free })
    }
}
