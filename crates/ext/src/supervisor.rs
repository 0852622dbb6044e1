//! The supervisor: everything around the agent that may touch files. It brings threads under
//! management, keeps the guardian informed, and ends the run.

use crate::ExtError;
use crate::agent::{Agent, Done, Order, RealThreads, Shared};
use crate::kernel::Kernel;
use crate::state::{AgentState, Notice, Rules};
use crate::{fair_load, fair_watch};
use rustix::event::{EventfdFlags, eventfd};
use schedlab_host::NoHugePages;
use schedlab_host::privileges::{Duty, keep_only};
use schedlab_host::sched_ext::usable_here;
use schedlab_host::threads::{self as host, Identity, Scheduling};
use schedlab_live::driver::{
    AGENT, Counts, CpuClaim, DriverOptions, DriverReport, HEARTBEAT, Heartbeat, Looks, PATIENCE,
    RtLimit, ThreadReport, become_fifo, check_cpus, check_scheduler, cpu_time, lock_memory,
    longest_stall, monotonic, silence,
};
use schedlab_live::journal::Setting;
use schedlab_live::logged_core::{CoreOptions, LoggedCore};
use schedlab_live::status_file::StatusThread;
use schedlab_live::{Keeper, LiveError, detach, restore};
use schedlab_model::{CpuSet, Ns, OwnThread, Policy};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

/// Below the agent, which may have only this CPU: reading /proc for all threads takes a slow
/// machine longer than the guardian waits.
const SUPERVISOR: u8 = AGENT - 1;

/// Runs the threads of `processes`, and those that they make, under the scheduler of `options`
/// until `done` says so or all are gone; then everything is restored. `warn` is told what others
/// have of the managed CPUs, before the run and, of what comes up later, while it goes on; `begin`
/// is called once, when all are managed.
///
/// # Errors
/// When the kernel cannot take a scheduler, another one is active, or fair threads have a managed
/// CPU; when the scheduler breaks its contract, or a thread cannot be managed. Everything is
/// restored then.
pub fn manage(
    options: &DriverOptions,
    processes: &[u32],
    mut warn: impl FnMut(&[fair_load::FairLoad]) + Send,
    begin: impl FnOnce() + Send,
    mut done: impl FnMut() -> bool + Send,
) -> Result<DriverReport, ExtError> {
    let families: Vec<u32> = processes
        .iter()
        .filter_map(|pid| host::identity(*pid))
        .flat_map(|one| restore::family(&one))
        .collect();
    let prepared = Prepared::check(options)?;
    warn(&fair_load::measure(&options.cpus, &families)?);
    let work = move || {
        processes.iter().try_for_each(|process| Keeper::target(*process).map(drop))?;
        prepared.run(processes, warn, begin, &mut done)
    };
    // In a thread of its own: it takes a real-time priority and gives up capabilities for good.
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name(OwnThread::Supervisor.name().to_owned());
        let supervisor = builder
            .spawn_scoped(scope, work)
            .map_err(LiveError::io("starting the supervisor's thread"))?;
        supervisor.join().unwrap_or_else(|panic| Err(LiveError::died(&*panic).into()))
    })
}

/// What was asked and is ready before anything begins.
struct Prepared<'a> {
    options: &'a DriverOptions,
    core: CoreOptions,
    others: CpuSet,
    _small_pages: NoHugePages,
    _claims: Vec<CpuClaim>,
    stall: Ns,
}

impl<'a> Prepared<'a> {
    fn check(options: &'a DriverOptions) -> Result<Prepared<'a>, ExtError> {
        let others = check_cpus(&options.cpus)?;
        let (scheduler, tasks, hz) =
            (options.scheduler.clone(), options.capacity, schedlab_host::machine().hz);
        let core = CoreOptions { scheduler, cpus: options.cpus.count(), tasks, hz, seed: 1 };
        check_scheduler(&core, &options.declared)?;
        if let Some(name) = usable_here()?.scheduler() {
            return Err(ExtError::Active { name: name.to_owned() });
        }
        let small_pages = NoHugePages::hold();
        let stall = longest_stall(&options.cpus)?;
        let claims = options
            .cpus
            .iter()
            .map(|cpu| CpuClaim::take(cpu, PATIENCE))
            .collect::<Result<_, _>>()?;
        Ok(Prepared { options, core, others, _small_pages: small_pages, _claims: claims, stall })
    }

    fn run(
        self,
        processes: &[u32],
        warn: impl FnMut(&[fair_load::FairLoad]) + Send,
        begin: impl FnOnce(),
        done: &mut dyn FnMut() -> bool,
    ) -> Result<DriverReport, ExtError> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| LiveError::io("making a bell (eventfd)")(error.into()))?;
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            unguarded: AtomicBool::new(false),
            rounds: AtomicU64::new(0),
            orders_done: AtomicU64::new(0),
            bell,
            seen: Mutex::new((Counts::default(), Vec::new())),
        });
        std::thread::scope(|scope| {
            let (orders, inbox) = channel();
            let (news, notices) = channel();
            let (ready, started) = channel();
            let ours = &*shared;
            let (options, core, others) = (self.options, &self.core, self.others);
            let agent = std::thread::Builder::new()
                .name(OwnThread::Agent.name().to_owned())
                .spawn_scoped(scope, move || {
                    let (mut kernel, state, start) = match begin_agent(options, core, &others) {
                        Ok(begun) => begun,
                        Err(error) => {
                            ours.stop.store(true, Ordering::Relaxed);
                            let _ = ready.send(None);
                            return Err(error);
                        }
                    };
                    let _ = ready.send(Some(start));
                    let agent = Agent {
                        shared: ours,
                        state,
                        orders: inbox,
                        notices: news,
                        start,
                        lost: 0,
                        looked: Ns::ZERO,
                    };
                    agent.run(&mut kernel)
                });
            let agent = agent.map_err(LiveError::io("starting the agent"))?;
            let Some(start) = started.recv().ok().flatten() else {
                return Err(ended(agent).err().unwrap_or_else(|| unexpected().into()));
            };
            let watcher = std::thread::Builder::new().name(OwnThread::FairWatch.name().to_owned());
            let (cpus, others) = (&self.options.cpus, &self.others);
            watcher
                .spawn_scoped(scope, move || fair_watch::watch(ours, cpus, others, warn))
                .map_err(LiveError::io("starting the thread that looks for fair load"))
                .inspect_err(|_| shared.stop.store(true, Ordering::Relaxed))?;
            let result = self.supervise(&shared, (orders, notices), start, processes, begin, done);
            shared.stop.store(true, Ordering::Relaxed);
            shared.ring();
            match result {
                Ok(supervisor) => supervisor.end(agent),
                // Why the agent ended is the error, not what followed from that.
                Err(error) => Err(ended(agent).err().unwrap_or(error)),
            }
        })
    }

    fn supervise(
        &self,
        shared: &Arc<Shared>,
        (orders, notices): (Sender<Order>, Receiver<Notice>),
        start: Ns,
        processes: &[u32],
        begin: impl FnOnce(),
        done: &mut dyn FnMut() -> bool,
    ) -> Result<Supervisor<'a>, ExtError> {
        let mut supervisor = Supervisor::start(self, shared.clone(), orders, notices, start)?;
        for process in processes {
            supervisor.take_family_member(*process)?;
        }
        begin();
        while !done() && supervisor.tend()? {
            std::thread::sleep(HEARTBEAT);
        }
        Ok(supervisor)
    }
}

fn unexpected() -> LiveError {
    LiveError::AgentDied { why: "it ended before it began".to_owned() }
}

fn ended(agent: ScopedJoinHandle<'_, Result<Done, ExtError>>) -> Result<Done, ExtError> {
    agent.join().unwrap_or_else(|panic| Err(LiveError::died(&*panic).into()))
}

/// Loads and attaches the scheduler, and makes the calling thread its agent. No thread is managed
/// yet.
fn begin_agent(
    options: &DriverOptions,
    core: &CoreOptions,
    others: &CpuSet,
) -> Result<(Kernel, AgentState<RealThreads>, Ns), ExtError> {
    let mut kernel = Kernel::load()?;
    kernel.attach()?;
    lock_memory()?;
    become_fifo("the agent", AGENT, others)?;
    keep_only(&[Duty::Schedule, Duty::LockMemory, Duty::RunBpf, Duty::See])
        .map_err(LiveError::io("giving up capabilities (capset)"))?;
    // The run begins when the kernel has the scheduler.
    let start = monotonic();
    let rules = Rules {
        hz: core.hz,
        starve_after: options.starve_after,
        log_steps: options.log_steps,
        start,
    };
    let logged = LoggedCore::new(core).map_err(LiveError::from)?;
    let state = AgentState::new(logged, rules, &options.cpus, RealThreads::new(options));
    Ok((kernel, state, start))
}

struct Supervisor<'a> {
    options: &'a DriverOptions,
    core: CoreOptions,
    keeper: Keeper,
    shared: Arc<Shared>,
    orders: Sender<Order>,
    notices: Receiver<Notice>,
    sent: u64,
    looks: Looks,
    start: Ns,
    /// The threads that were journalled, with the scheduling that they had.
    taken: BTreeMap<u32, (Identity, Scheduling)>,
    /// Threads that keep what they have: they have a policy of their own that is not fair, or were
    /// given back.
    left: BTreeSet<Identity>,
    processes: BTreeSet<u32>,
    released: BTreeSet<u32>,
    /// When management began, in the unit of `Identity::started`.
    began: u64,
    silence: Duration,
    stall: Ns,
    _heartbeat: Heartbeat,
    _limit: RtLimit,
}

impl<'a> Supervisor<'a> {
    fn start(
        prepared: &Prepared<'a>,
        shared: Arc<Shared>,
        orders: Sender<Order>,
        notices: Receiver<Notice>,
        start: Ns,
    ) -> Result<Supervisor<'a>, ExtError> {
        let options = prepared.options;
        become_fifo("the supervisor", SUPERVISOR, &prepared.others)?;
        let silence = silence(prepared.stall);
        let mut keeper = Keeper::start(&options.keeper(" by sched_ext", silence))?;
        options.command.iter().try_for_each(|mark| keeper.ends_with(mark))?;
        let limit = RtLimit::set();
        keep_only(&[Duty::Schedule, Duty::LockMemory, Duty::Kill, Duty::See])
            .map_err(LiveError::io("giving up capabilities"))?;
        let heartbeat =
            Heartbeat::start(shared.clone(), keeper.heartbeat_pipe()?, prepared.others)?;
        // This thread was made for this management.
        let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        Ok(Supervisor {
            options,
            core: prepared.core.clone(),
            keeper,
            shared,
            orders,
            notices,
            sent: 0,
            looks: Looks::default(),
            start,
            taken: BTreeMap::new(),
            left: BTreeSet::new(),
            processes: BTreeSet::new(),
            released: BTreeSet::new(),
            began: host::identity(own).map_or(u64::MAX, |own| own.started),
            silence,
            stall: prepared.stall,
            _heartbeat: heartbeat,
            _limit: limit,
        })
    }

    fn order(&mut self, order: Order) {
        // That the agent is gone is noticed elsewhere.
        self.sent += u64::from(self.orders.send(order).is_ok());
        self.shared.ring();
    }

    fn wait_until_done(&mut self) -> Result<(), LiveError> {
        while self.shared.orders_done.load(Ordering::Acquire) < self.sent
            && !self.shared.stop.load(Ordering::Relaxed)
        {
            self.keeper.beat()?;
            std::thread::sleep(HEARTBEAT / 50);
        }
        Ok(())
    }

    /// Takes on a process and its children; each may be gone already.
    fn take_family_member(&mut self, process: u32) -> Result<(), LiveError> {
        if self.released.contains(&process) {
            return Ok(());
        }
        match self.take_process(process) {
            Err(LiveError::NoThread { .. } | LiveError::KernelThread { .. }) => Ok(()),
            other => other,
        }
    }

    fn take_process(&mut self, process: u32) -> Result<(), LiveError> {
        let first = Keeper::target(process)?;
        if self.processes.insert(process) {
            let before = self.before(&first, first.parent)?;
            let affinity =
                host::affinity(process).map_err(|_| LiveError::NoThread { tid: process })?;
            self.keeper.adopt_from(&first, (before, affinity), Setting::Ext, None)?;
        }
        // Threads that are made meanwhile are found in the next round.
        loop {
            let mut new = 0;
            for tid in host::of_process(process) {
                match self.take_thread(tid) {
                    Ok(taken) => new += usize::from(taken),
                    Err(LiveError::NoThread { .. }) => {}
                    Err(other) => return Err(other),
                }
            }
            for child in host::children(process) {
                if !self.processes.contains(&child) && !self.released.contains(&child) {
                    self.take_family_member(child)?;
                    new += usize::from(self.processes.contains(&child));
                }
            }
            if new == 0 {
                return Ok(());
            }
        }
    }

    /// Returns how a thread was scheduled before. One that was born under management inherited
    /// SCHED_EXT: it gets what its maker's process (`parent`) had.
    fn before(&self, thread: &Identity, parent: u32) -> Result<Scheduling, LiveError> {
        let now =
            host::scheduling(thread.tid).map_err(|_| LiveError::NoThread { tid: thread.tid })?;
        let of = |process: u32| {
            let kept = self
                .taken
                .get(&process)
                .or_else(|| self.taken.values().find(|one| one.0.process == process));
            kept.map(|(_, before)| *before)
        };
        let born_here = thread.started >= self.began && now.ext;
        let inherited = of(thread.process).or_else(|| of(parent)).filter(|_| born_here);
        Ok(inherited.map_or(now, |before| Scheduling { nice: now.nice, ..before }))
    }

    /// Takes on a thread. True: it is managed now, and was not before.
    fn take_thread(&mut self, tid: u32) -> Result<bool, LiveError> {
        if self.shared.unguarded.load(Ordering::Relaxed) {
            return Err(self.keeper.unguarded()?);
        }
        let Some(identity) = host::identity(tid) else { return Ok(false) };
        if self.left.contains(&identity)
            || self.taken.get(&tid).is_some_and(|(known, _)| *known == identity)
        {
            return Ok(false);
        }
        let before = self.before(&identity, identity.parent)?;
        if !before.policy.is_fair() {
            // A real-time or deadline policy goes before SCHED_EXT: it is left alone.
            self.left.insert(identity);
            return Ok(false);
        }
        self.keeper.declare_from(&identity, before, Setting::Ext)?;
        // Held from the moment on in which it is SCHED_EXT, which a thread that was born here is
        // already.
        self.order(Order::Take(tid, before.policy));
        self.wait_until_done()?;
        let wanted = Scheduling { slice: None, ext: true, ..before.with_policy(Policy::Other) };
        self.taken.insert(tid, (identity.clone(), before));
        self.keeper.apply(&identity, &wanted)?;
        Ok(true)
    }

    /// Does what is due now and then. False: nothing is left to manage.
    fn tend(&mut self) -> Result<bool, LiveError> {
        let told: BTreeSet<Notice> = self.notices.try_iter().collect();
        for notice in told {
            let (Notice::Born(tid) | Notice::Release(tid) | Notice::LetGo(tid)) = notice;
            let Some(identity) = host::identity(tid) else { continue };
            match notice {
                Notice::Born(_) => self.take_family_member(identity.process)?,
                Notice::Release(_) => self.give_back(&identity)?,
                // A scheduler that the kernel unloads (its watchdog does) leaves every thread in
                // this way, too, with SCHED_EXT: the journal needs it to the end.
                Notice::LetGo(tid) if host::scheduling(tid).is_ok_and(|now| now.ext) => {}
                Notice::LetGo(_) => {
                    self.keeper.let_go(&identity)?;
                    self.left.insert(identity);
                }
            }
        }
        if self.shared.unguarded.load(Ordering::Relaxed) {
            return Err(self.keeper.unguarded()?);
        }
        if self.shared.stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.keeper.beat()?;
        let now = monotonic();
        if self.looks.is_due(now) {
            let used = cpu_time();
            self.give_back_requested()?;
            self.rename();
            for process in self.processes.clone() {
                self.take_family_member(process)?;
            }
            self.publish(now);
            self.looks.looked(now, Ns(cpu_time().saturating_sub(used)));
        }
        Ok(self.processes.iter().any(|process| host::has_living_thread(*process)))
    }

    /// Gives a thread its own policy back; it is managed no longer.
    fn give_back(&mut self, identity: &Identity) -> Result<(), LiveError> {
        let known = self
            .taken
            .get(&identity.tid)
            .filter(|(known, _)| known == identity)
            .map(|(_, before)| *before);
        let before = match known {
            Some(before) => before,
            None => self.before(identity, identity.parent)?,
        };
        self.left.insert(identity.clone());
        let now =
            host::scheduling(identity.tid).map_err(|_| LiveError::NoThread { tid: identity.tid });
        if now.as_ref().is_ok_and(|now| now.ext) {
            let nice = now.map_or(before.nice, |now| now.nice);
            match self.keeper.apply(identity, &Scheduling { nice, ..before }) {
                Ok(()) | Err(LiveError::NoThread { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        self.keeper.let_go(identity)
    }

    /// A thread may run another program, or call itself otherwise: what is declared for its name
    /// counts.
    fn rename(&mut self) {
        let options = self.options;
        let mut changed = Vec::new();
        for (tid, (known, before)) in &mut self.taken {
            let Some(now) =
                host::identity(*tid).filter(|now| now == known && now.comm != known.comm)
            else {
                continue;
            };
            let (was, is) = (
                options.policy_of(&known.comm, before.policy),
                options.policy_of(&now.comm, before.policy),
            );
            known.comm = now.comm;
            changed.extend((was != is).then_some((*tid, is)));
        }
        changed.into_iter().for_each(|(tid, policy)| self.order(Order::Policy(tid, policy)));
    }

    /// Gives back what `schedlab detach --pid` asked for.
    fn give_back_requested(&mut self) -> Result<(), LiveError> {
        let Some(journal) = self.keeper.journal().map(Path::to_owned) else { return Ok(()) };
        for process in detach::requested(&journal) {
            let family = host::identity(process)
                .map_or_else(|| vec![process], |first| restore::family(&first));
            for member in family {
                if !self.processes.remove(&member) {
                    continue;
                }
                self.released.insert(member);
                let members: Vec<Identity> =
                    host::of_process(member).into_iter().filter_map(host::identity).collect();
                members.iter().for_each(|one| self.order(Order::Release(one.tid)));
                self.wait_until_done()?;
                members.iter().try_for_each(|one| self.give_back(one))?;
                self.keeper.released(member)?;
            }
            detach::answer(&journal, process);
        }
        Ok(())
    }

    /// Writes the status file.
    fn publish(&self, now: Ns) {
        let Some(journal) = self.keeper.journal() else { return };
        let (counts, managed) =
            self.shared.seen.lock().map_or_else(|_| Default::default(), |seen| seen.clone());
        let thread = |tid: u32| Some(StatusThread { thread: host::identity(tid)?, before: None });
        let elapsed = now.saturating_sub(self.start);
        self.options.publish(
            journal,
            elapsed,
            counts,
            managed.into_iter().filter_map(thread).collect(),
        );
    }

    fn end(
        mut self,
        agent: ScopedJoinHandle<'_, Result<Done, ExtError>>,
    ) -> Result<DriverReport, ExtError> {
        // Unloading a scheduler takes the kernel some milliseconds: the guardian must not take that
        // for silence.
        while !agent.is_finished() {
            self.keeper.beat()?;
            std::thread::sleep(HEARTBEAT / 10);
        }
        let done = ended(agent);
        let elapsed = monotonic().saturating_sub(self.start);
        let restored = self.keeper.finish()?;
        let Done { state, cpu_ns } = done?;
        if let Some(breach) = state.breach {
            return Err(LiveError::Contract { scheduler: self.core.scheduler, breach }.into());
        }
        // A thread has the name of its maker when it joins.
        let name = |tid: u32, comm: String| {
            self.taken.get(&tid).map_or(comm, |(known, _)| known.comm.clone())
        };
        let report = |(tid, comm, chosen): (u32, String, Ns)| ThreadReport {
            tid,
            comm: name(tid, comm),
            chosen_ns: chosen.0,
        };
        let threads = state.report().into_iter().map(report).collect();
        Ok(DriverReport {
            elapsed,
            counts: Counts { agent_cpu_ns: cpu_ns, ..state.counts },
            threads,
            core: self.core,
            log: state.log,
            restored,
            silence: self.silence,
            stall: self.stall,
        })
    }
}
