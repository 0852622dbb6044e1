//! The steward: everything around the agent that may touch files. It takes threads on, keeps the guardian informed, and
//! ends the whole.

use super::agent::{Agent, Order, Shared, Work, monotonic};
use super::sentinel::{Sentinel, become_fifo};
use super::threads::Thread;
use super::{
    AGENT, ElevationOptions, ElevationReport, GUARDIAN, HEARTBEAT, LogLine, PARKED, RUNNING, SILENCE,
    ThreadReport,
};
use crate::desk::{Desk, DeskOptions};
use crate::journal::Setting;
use crate::{Keeper, KeeperOptions, LiveError};
use rustix::event::{EventfdFlags, eventfd};
use schedlab_host::follow::{Adder, Follower};
use schedlab_host::threads::{self as host, Identity};
use schedlab_model::{CpuSet, Ns, Policy};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Runs the threads of `processes`, and those that they make, under the scheduler of `options` until `done` says so or
/// all are gone; then everything is as before. `begin` is called once, when all are managed.
///
/// # Errors
/// When the scheduler cannot run live, a thread cannot be taken, or the kernel refuses real-time priorities. Everything
/// is as before then.
pub fn manage(
    options: &ElevationOptions,
    processes: &[u32],
    begin: impl FnOnce(),
    mut done: impl FnMut() -> bool,
) -> Result<ElevationReport, LiveError> {
    let mut steward = Steward::start(options)?;
    for process in processes {
        steward.take_process(*process)?;
    }
    begin();
    while !done() && steward.tend()? {
        std::thread::sleep(HEARTBEAT);
    }
    steward.end()
}

struct Steward<'a> {
    options: &'a ElevationOptions,
    desk: DeskOptions,
    keeper: Keeper,
    shared: Arc<Shared>,
    orders: Sender<Order>,
    born: Receiver<u32>,
    agent: AgentThread,
    start: Ns,
    taken: BTreeSet<Identity>,
    processes: BTreeSet<u32>,
    adder: Adder,
    /// The threads of this process: never followed.
    own: BTreeSet<u32>,
}

/// The agent's thread: whatever happens here, it ends with this value.
struct AgentThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Option<Done>>>,
}

impl AgentThread {
    fn is_dead(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.ring();
    }

    fn end(&mut self) -> Option<Done> {
        self.stop();
        self.thread.take().and_then(|thread| thread.join().ok().flatten())
    }
}

impl Drop for AgentThread {
    fn drop(&mut self) {
        self.end();
    }
}

/// What an agent leaves.
struct Done {
    work: Work,
    log: Vec<LogLine>,
    chosen: Vec<Ns>,
    sentinel_ns: u64,
}

impl Shared {
    /// Wakes the agent.
    fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

impl<'a> Steward<'a> {
    fn start(options: &'a ElevationOptions) -> Result<Steward<'a>, LiveError> {
        let managed = CpuSet::single(options.cpu);
        let others = check_cpus(options)?;
        let desk = DeskOptions {
            scheduler: options.scheduler.clone(),
            cpus: 1,
            tasks: options.capacity,
            hz: schedlab_host::machine().hz,
            seed: 1,
        };
        check_scheduler(&desk)?;
        let follower = Follower::open(&host::affinity(0).map_or(others, |all| all.or(&managed)));
        let no_events = |error: schedlab_host::HostError| LiveError::NoEvents { reason: error.to_string() };
        let follower = follower.map_err(no_events)?;
        let adder = follower.adder().map_err(no_events)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let shared = Arc::new(Shared {
            bell: bell.map_err(|error| LiveError::io("eventfd")(error.into()))?,
            stop: AtomicBool::new(false),
            unguarded: AtomicBool::new(false),
        });
        let (orders, inbox) = channel();
        let (births, born) = channel();
        let start = monotonic();
        let parts =
            Parts { desk: desk.clone(), follower, shared: shared.clone(), inbox, births, start, managed };
        let agent = AgentThread { shared: shared.clone(), thread: Some(parts.spawn(options)?) };
        // Locking the memory takes its time: the guardian, which wants to hear from us, comes after that.
        let keeper = Keeper::start(&KeeperOptions {
            room: options.room.clone(),
            purpose: format!("run under {} on CPU {}", options.scheduler, options.cpu.0),
            program: options.program.clone(),
            silence: Some(SILENCE),
            priority: Some(GUARDIAN),
        })?;
        // The steward must get its CPU in time to tell the guardian that all is well.
        become_fifo(AGENT, &others).map_err(LiveError::io("giving the steward a real-time priority"))?;
        let _ = orders.send(Order::Heart(keeper.heart()?));
        let own = host::of_process(std::process::id()).into_iter().collect();
        let (taken, processes) = (BTreeSet::new(), BTreeSet::new());
        Ok(Steward {
            options,
            desk,
            keeper,
            shared,
            orders,
            born,
            agent,
            start,
            taken,
            processes,
            adder,
            own,
        })
    }

    /// Takes on every thread that a process has, and writes down that those to come are ours.
    fn take_process(&mut self, process: u32) -> Result<(), LiveError> {
        let first = Keeper::target(process)?;
        let band = Setting::FifoBand(PARKED, RUNNING);
        if self.processes.insert(process) {
            self.keeper.adopt_process(&first, band, Some(CpuSet::single(self.options.cpu)))?;
        }
        // Threads that are made while we go through them are found in the next round.
        loop {
            let mut new = 0;
            for tid in host::of_process(process) {
                new += usize::from(self.take_thread(tid)?);
            }
            for child in host::children(process) {
                if !self.processes.contains(&child) {
                    self.take_family_member(child)?;
                    new += 1;
                }
            }
            if new == 0 {
                return Ok(());
            }
        }
    }

    /// A process that one of ours made; it may be gone before we look.
    fn take_family_member(&mut self, process: u32) -> Result<(), LiveError> {
        match self.take_process(process) {
            Err(LiveError::NoThread { .. } | LiveError::KernelThread { .. }) => {
                self.processes.insert(process);
                Ok(())
            }
            other => other,
        }
    }

    /// True: it is managed now, and was not before.
    fn take_thread(&mut self, tid: u32) -> Result<bool, LiveError> {
        let Some(identity) = host::identity(tid).filter(|identity| !self.taken.contains(identity)) else {
            return Ok(false);
        };
        let (Ok(before), Ok(affinity)) = (host::scheduling(tid), host::affinity(tid)) else {
            return Ok(false);
        };
        self.taken.insert(identity.clone());
        if !before.policy.is_fair() && !matches!(before.policy, Policy::Fifo(PARKED..=RUNNING)) {
            // It has a real-time or deadline policy of its own: above ours, none of our business.
            return Ok(false);
        }
        let declared = self.options.declared.iter().find(|(name, _)| *name == identity.comm);
        let taken_for = declared.map_or(before.policy, |(_, policy)| *policy);
        let Some(thread) = Thread::open(identity, before, affinity, taken_for) else { return Ok(false) };
        let taken = self.put_into_band(&thread);
        match taken {
            Err(LiveError::NoThread { .. }) => return Ok(false),
            other => other?,
        }
        // Where the kernel refuses to follow one more, its wakeups are found by looking.
        if let Ok(Some(batch)) = self.adder.add(&BTreeSet::from([tid]), &self.own) {
            let _ = self.orders.send(Order::Follow(batch));
        }
        let _ = self.orders.send(Order::Join(Box::new(thread)));
        self.shared.ring();
        Ok(true)
    }

    fn put_into_band(&mut self, thread: &Thread) -> Result<(), LiveError> {
        self.keeper.declare(&thread.identity, Setting::FifoBand(PARKED, RUNNING))?;
        self.keeper.confine(&thread.identity, &CpuSet::single(self.options.cpu))?;
        self.keeper.apply(&thread.identity, &thread.band(PARKED))
    }

    /// What is to do now and then. False: nothing is left to manage.
    fn tend(&mut self) -> Result<bool, LiveError> {
        let mut born: Vec<u32> = self.born.try_iter().collect();
        born.sort_unstable();
        born.dedup();
        for tid in born {
            if let Some(identity) = host::identity(tid) {
                self.take_family_member(identity.process)?;
            }
        }
        if self.shared.unguarded.load(Ordering::Relaxed) {
            return Err(LiveError::Unguarded);
        }
        if self.agent.is_dead() {
            return Ok(false);
        }
        Ok(self.processes.iter().any(|process| !host::of_process(*process).is_empty()))
    }

    fn end(mut self) -> Result<ElevationReport, LiveError> {
        self.agent.stop();
        // Closing tracepoints takes the kernel a tenth of a second: the guardian must not take that for silence.
        while !self.agent.is_dead() {
            self.keeper.beat()?;
            std::thread::sleep(HEARTBEAT / 2);
        }
        let done = self.agent.end();
        let elapsed = monotonic().saturating_sub(self.start);
        let restored = self.keeper.finish()?;
        let Done { work, log, chosen, sentinel_ns } = done.ok_or(LiveError::AgentDied)?;
        let mut counts = work.counts;
        counts.agent_cpu_ns += sentinel_ns;
        let report = |(thread, chosen): (&Thread, &Ns)| ThreadReport {
            tid: thread.identity.tid,
            comm: thread.identity.comm.clone(),
            chosen_ns: chosen.0,
        };
        let threads = work.threads.iter().zip(&chosen).map(report).collect();
        Ok(ElevationReport { elapsed, counts, threads, desk: self.desk, log, restored })
    }
}

/// What the agent's thread is made of.
struct Parts {
    desk: DeskOptions,
    follower: Follower,
    shared: Arc<Shared>,
    inbox: Receiver<Order>,
    births: Sender<u32>,
    start: Ns,
    managed: CpuSet,
}

impl Parts {
    fn spawn(self, options: &ElevationOptions) -> Result<JoinHandle<Option<Done>>, LiveError> {
        let (ready, started) = channel();
        let (starve_after, steps) = (options.starve_after, options.log_steps);
        let thread = std::thread::Builder::new().name("sched-agent".to_owned()).spawn(move || {
            let mut agent = match self.agent(starve_after, steps) {
                Ok(agent) => agent,
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return None;
                }
            };
            let _ = ready.send(Ok(()));
            agent.run();
            let now = monotonic().saturating_sub(agent.start);
            let chosen = (0..agent.work.threads.len() as u32).map(|task| agent.desk.ran(task, now)).collect();
            let Agent { sentinel, work, log, .. } = agent;
            Some(Done { work, log, chosen, sentinel_ns: sentinel.end() })
        });
        let thread = thread.map_err(LiveError::io("starting the agent"))?;
        started.recv().unwrap_or(Err(LiveError::AgentDied))?;
        Ok(thread)
    }

    fn agent(self, starve_after: Ns, steps: usize) -> Result<Agent, LiveError> {
        let desk = Desk::new(&self.desk)?;
        // From here on no page of ours waits for a disk.
        let all = rustix::mm::MlockAllFlags::CURRENT | rustix::mm::MlockAllFlags::FUTURE;
        rustix::mm::mlockall(all)
            .map_err(|error| LiveError::io("locking memory (mlockall)")(error.into()))?;
        let sentinel = Sentinel::start(self.managed)?;
        become_fifo(AGENT, &self.managed).map_err(LiveError::io("giving the agent a real-time priority"))?;
        Ok(Agent {
            desk,
            follower: self.follower,
            heart: None,
            beaten: Ns::ZERO,
            sentinel,
            shared: self.shared,
            orders: self.inbox,
            born: self.births,
            starve_after,
            start: self.start,
            hz: self.desk.hz,
            log: Vec::with_capacity(steps),
            work: Work::default(),
        })
    }
}

/// The CPUs that stay unmanaged.
fn check_cpus(options: &ElevationOptions) -> Result<CpuSet, LiveError> {
    let allowed = host::affinity(0).map_err(LiveError::io("reading the CPUs of this process"))?;
    let mut others = allowed;
    others.remove(options.cpu);
    if !allowed.contains(options.cpu) {
        return Err(LiveError::Cpu { cpu: options.cpu.0, allowed: allowed.to_string() });
    }
    if others.iter().next().is_none() {
        return Err(LiveError::OneCpu);
    }
    Ok(others)
}

/// Whether the driver can give this scheduler what it needs.
fn check_scheduler(desk: &DeskOptions) -> Result<(), LiveError> {
    match super::missing(Desk::new(desk)?.scheduler().needs()) {
        None => Ok(()),
        Some(what) => Err(LiveError::Needs { scheduler: desk.scheduler.clone(), what }),
    }
}
