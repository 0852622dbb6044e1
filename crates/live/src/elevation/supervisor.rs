//! The supervisor: everything around the agents that may touch files. It brings threads under
//! management, keeps the guardian informed, and ends the run.

mod agent_threads;
mod lineage;

use super::agent::{Birth, Notice, Order, Shared};
use super::event_threads;
use super::hearing::Hearing;
use super::threads::Thread;
use super::{AGENT, Counts, DriverOptions, DriverReport, HEARTBEAT, PARKED, RUNNING, ThreadReport};
use crate::driver::{
    CpuClaim, Heartbeat, Looks, PATIENCE, RtLimit, become_fifo, check_cpus, check_scheduler,
    cpu_time, longest_stall, monotonic, silence,
};
use crate::journal::{Confined, Setting};
use crate::logged_core::CoreOptions;
use crate::status_file::StatusThread;
use crate::{Keeper, LiveError, detach, restore};
use agent_threads::{AgentThreads, Done};
use lineage::Lineage;
use schedlab_host::NoHugePages;
use schedlab_host::follow::{Adder, least_duty};
use schedlab_host::privileges::{Duty, keep_only};
use schedlab_host::threads::{self as host, Identity, Scheduling};
use schedlab_model::{CpuId, CpuSet, Ns, OwnThread, Policy};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// So often it is tried to pin a thread that changes its affinity at the same time.
const PINS: usize = 8;
/// So many generations are looked back for the CPU on which a thread was made.
const GENERATIONS: usize = 8;
/// Births that are remembered; beyond that, those of threads that have ended are forgotten.
const BIRTHS: usize = 4096;

/// Runs the threads of `processes`, and those that they make, under the scheduler of `options`
/// until `done` says so or all are gone; then everything is restored. `begin` is called once, when
/// all are managed.
///
/// # Errors
/// When the scheduler cannot run live or breaks its contract, a thread cannot be managed, or the
/// kernel refuses real-time priorities. Everything is restored then.
pub fn manage(
    options: &DriverOptions,
    processes: &[u32],
    begin: impl FnOnce() + Send,
    mut done: impl FnMut() -> bool + Send,
) -> Result<DriverReport, LiveError> {
    let work = move || {
        // A process that is named must exist now. If it ends while it is taken on, that is no
        // error.
        processes.iter().try_for_each(|process| Keeper::target(*process).map(drop))?;
        let mut supervisor = Supervisor::start(options)?;
        for process in processes {
            supervisor.take_family_member(*process)?;
        }
        begin();
        while !done() && supervisor.tend()? {
            std::thread::sleep(HEARTBEAT);
        }
        supervisor.end()
    };
    // In a thread of its own: it takes a real-time priority and gives up capabilities for good.
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name(OwnThread::Supervisor.name().to_owned());
        let supervisor = builder
            .spawn_scoped(scope, work)
            .map_err(LiveError::io("starting the supervisor's thread"))?;
        supervisor.join().unwrap_or_else(|panic| Err(LiveError::died(&*panic)))
    })
}

struct Supervisor<'a> {
    options: &'a DriverOptions,
    core: CoreOptions,
    keeper: Keeper,
    shared: Arc<Shared>,
    notices: Receiver<Notice>,
    sent: u64,
    looks: Looks,
    /// In the order in which they were taken on.
    threads: Vec<KnownThread>,
    agents: AgentThreads,
    /// The managed CPUs, in order.
    cpus: Vec<CpuId>,
    start: Ns,
    taken: BTreeSet<Identity>,
    processes: BTreeSet<u32>,
    /// By process: how its threads were scheduled before, and where they could run.
    origins: BTreeMap<u32, (Scheduling, CpuSet)>,
    /// When management began, in the unit of `Identity::started`.
    began: u64,
    /// By thread: the CPU on which a followed thread made it, and to which that one was pinned.
    born_on: BTreeMap<u32, CpuId>,
    /// Which of the threads that are born belong to the managed processes.
    lineage: Lineage,
    /// What the agents told, and was not served yet.
    noticed: BTreeSet<Notice>,
    /// Processes that were given back while others stay managed; their children are not taken on
    /// again.
    released: BTreeSet<u32>,
    /// By CPU slot: adds threads to those that its agent follows.
    adders: Vec<Adder>,
    /// The threads of this process: never followed.
    own: BTreeSet<u32>,
    hearing: Hearing,
    /// See [`DriverReport`].
    silence: Duration,
    stall: Ns,
    _small_pages: NoHugePages,
    _heartbeat: Heartbeat,
    _limit: RtLimit,
    _claims: Vec<CpuClaim>,
}

/// What the supervisor remembers of a thread.
struct KnownThread {
    taken: StatusThread,
    /// The thread's own policy.
    own: Policy,
}

/// Returns when this thread began, and with it this management, for which it was made.
fn began() -> u64 {
    let own_thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    host::identity(own_thread).map_or(u64::MAX, |own| own.started)
}

impl<'a> Supervisor<'a> {
    fn start(options: &'a DriverOptions) -> Result<Supervisor<'a>, LiveError> {
        let others = check_cpus(&options.cpus)?;
        let cpus: Vec<CpuId> = options.cpus.iter().collect();
        let (scheduler, tasks, hz) =
            (options.scheduler.clone(), options.capacity, schedlab_host::machine().hz);
        let core = CoreOptions { scheduler, cpus: cpus.len(), tasks, hz, seed: 1 };
        check_scheduler(&core, &options.declared)?;
        // Agents open events before anything is given up; this thread opens more for each thread
        // that it takes on.
        let follow = least_duty(cpus[0])
            .map_err(|error| LiveError::NoEvents { reason: error.to_string() })?;
        let small_pages = NoHugePages::hold();
        let stall = longest_stall(&options.cpus)?;
        let silence = silence(stall);
        let claims =
            cpus.iter().map(|cpu| CpuClaim::take(*cpu, PATIENCE)).collect::<Result<_, _>>()?;
        let start = monotonic();
        let (agents, adders, notices) = AgentThreads::start(options, &core, &others, start)?;
        let shared = agents.shared.clone();
        // Before there is a guardian that counts the silence: on a busy machine an ordinary thread
        // may wait that long.
        become_fifo("the supervisor", AGENT, &others)?;
        // Locking the memory takes its time: the guardian, which waits for heartbeats, is started
        // after that.
        let mut keeper = Keeper::start(&options.keeper("", silence))?;
        options.command.iter().try_for_each(|mark| keeper.ends_with(mark))?;
        if agents.post().is_some() {
            event_threads::raise(&mut keeper, &cpus)?;
        }
        let limit = RtLimit::set();
        // What is left to do: set policies, follow more threads, end the command.
        keep_only(&[Duty::Schedule, follow, Duty::LockMemory, Duty::Kill, Duty::See])
            .map_err(LiveError::io("giving up capabilities"))?;
        let heartbeat = Heartbeat::start(shared.clone(), keeper.heartbeat_pipe()?, others)?;
        let own = host::of_process(std::process::id()).into_iter().collect();
        let hearing = Hearing::start(&shared)?;
        let supervisor = Supervisor {
            options,
            core,
            keeper,
            shared,
            notices,
            sent: 0,
            looks: Looks::default(),
            threads: Vec::new(),
            agents,
            cpus,
            start,
            taken: BTreeSet::new(),
            processes: BTreeSet::new(),
            origins: BTreeMap::new(),
            began: began(),
            born_on: BTreeMap::new(),
            lineage: Lineage::default(),
            noticed: BTreeSet::new(),
            released: BTreeSet::new(),
            adders,
            own,
            hearing,
            silence,
            stall,
            _small_pages: small_pages,
            _heartbeat: heartbeat,
            _limit: limit,
            _claims: claims,
        };
        supervisor.hears()
    }

    /// Shows that events come, before a thread is taken on.
    fn hears(mut self) -> Result<Self, LiveError> {
        let probe = self.hearing.tid();
        self.follow(probe)?;
        let Supervisor { hearing, shared, keeper, .. } = &mut self;
        hearing.first(shared, || keeper.beat())?;
        Ok(self)
    }

    /// Gives an order that is not about one CPU: the first agent carries it out.
    fn order(&mut self, order: Order) {
        self.order_to(0, order);
    }

    fn order_to(&mut self, slot: usize, order: Order) {
        // That an agent is gone is noticed elsewhere.
        self.sent += u64::from(self.agents.tell(slot, order));
    }

    /// Takes on every thread of a process, and journals that those to come are managed, too.
    fn take_process(&mut self, process: u32) -> Result<(), LiveError> {
        let first = Keeper::target(process)?;
        let band = Setting::FifoBand(PARKED, RUNNING);
        if self.processes.insert(process) {
            let Some(origin) = self.origin(&first, first.parent) else {
                return Err(LiveError::NoThread { tid: process });
            };
            self.origins.insert(process, origin);
            self.keeper.adopt_from(&first, origin, band, Some(self.confined()))?;
        }
        // Threads that are made meanwhile are found in the next round.
        loop {
            let mut new = 0;
            for tid in host::of_process(process) {
                new += usize::from(self.take_thread(tid)?);
            }
            for child in host::children(process) {
                if !self.processes.contains(&child) && !self.released.contains(&child) {
                    self.take_family_member(child)?;
                    new += 1;
                }
            }
            if new == 0 {
                return Ok(());
            }
        }
    }

    /// Takes on a process that a managed one made; it may be gone already.
    fn take_family_member(&mut self, process: u32) -> Result<(), LiveError> {
        if self.released.contains(&process) {
            return Ok(());
        }
        match self.take_process(process) {
            Err(LiveError::NoThread { .. } | LiveError::KernelThread { .. }) => {
                self.processes.insert(process);
                Ok(())
            }
            other => other,
        }
    }

    /// Returns how a thread was scheduled before, and where it could run. A thread that was born
    /// under management inherited what was made of its `parent` (a process): it gets what that one
    /// had, and keeps an affinity that it gave itself meanwhile. `None`: it is gone.
    fn origin(&self, thread: &Identity, parent: u32) -> Option<(Scheduling, CpuSet)> {
        let inherited = self.origins.get(&parent).or_else(|| self.origins.values().next());
        match inherited {
            Some(&(scheduling, cpus)) if thread.started >= self.began => {
                let now = host::affinity(thread.tid).ok()?;
                let own = now != cpus
                    && self.birthplace(thread).is_none_or(|cpu| now != CpuSet::single(cpu));
                Some((scheduling, if own { now } else { cpus }))
            }
            _ => Some((host::scheduling(thread.tid).ok()?, host::affinity(thread.tid).ok()?)),
        }
    }

    /// Returns the CPU to which the maker of a thread was pinned; that of its nearest forebear that
    /// a followed thread made, if its own maker was not followed yet. `None`: it was made before
    /// anything was pinned.
    fn birthplace(&self, thread: &Identity) -> Option<CpuId> {
        let mut forebear = thread.clone();
        for _ in 0..GENERATIONS {
            let known =
                self.born_on.get(&forebear.tid).or_else(|| self.born_on.get(&forebear.process));
            if known.is_some() || forebear.started < self.began {
                return known.copied();
            }
            forebear = host::identity(forebear.parent)?;
        }
        None
    }

    /// Takes what the agents told.
    fn take_notices(&mut self) {
        for notice in self.notices.try_iter() {
            match notice {
                Notice::Born(birth) => self.lineage.heard(birth),
                other => drop(self.noticed.insert(other)),
            }
        }
        for birth in self.lineage.ours() {
            self.born_on.insert(birth.child, birth.cpu);
            self.noticed.insert(Notice::Born(birth));
        }
        if self.born_on.len() > BIRTHS {
            self.born_on.retain(|tid, _| host::identity(*tid).is_some());
        }
    }

    /// Waits until each agent has read what happened before this call: a thread that was found in
    /// /proc is as a rule seen before its birth is heard of.
    fn hear_of_births(&mut self) -> Result<(), LiveError> {
        let rounds = |shared: &Shared| -> Vec<u64> {
            shared.agents.iter().map(|agent| agent.rounds.load(Ordering::Relaxed)).collect()
        };
        let before = rounds(&self.shared);
        // The round after the next has begun: the next one is over.
        while rounds(&self.shared).iter().zip(&before).any(|(now, before)| *now < before + 2)
            && !self.agents.is_dead()
        {
            self.shared.wake_all();
            self.keeper.beat()?;
            std::thread::sleep(HEARTBEAT / 20);
        }
        self.take_notices();
        Ok(())
    }

    /// Takes on a thread. True: it is managed now, and was not before.
    fn take_thread(&mut self, tid: u32) -> Result<bool, LiveError> {
        // Taking on hundreds takes long, and nothing more may be changed without a guardian.
        if self.shared.unguarded.load(Ordering::Relaxed) {
            return Err(self.keeper.unguarded()?);
        }
        let Some(identity) = host::identity(tid).filter(|identity| !self.taken.contains(identity))
        else {
            return Ok(false);
        };
        if identity.started >= self.began && !self.born_on.contains_key(&tid) {
            self.hear_of_births()?;
        }
        let Some((before, _)) = self.origin(&identity, identity.process) else { return Ok(false) };
        self.taken.insert(identity.clone());
        self.lineage.joined(&identity);
        if !before.policy.is_fair() && !matches!(before.policy, Policy::Fifo(PARKED..=RUNNING)) {
            // A real-time or deadline policy of its own goes before the bands: it is left alone.
            return Ok(false);
        }
        // Before it is in a band: opening an event may wait for an RCU grace period, and
        // PREEMPT_RT's rcuc threads (SCHED_FIFO 1) come to none behind an endless loop in a band
        // that no agent takes the CPU from yet.
        self.follow(tid)?;
        for _ in 0..PINS {
            match self.pin(&identity) {
                Err(LiveError::NoThread { .. }) => return Ok(false),
                Ok(None) => {}
                Ok(Some(thread)) => {
                    let taken =
                        StatusThread { thread: identity.clone(), before: host::served(tid) };
                    self.threads.push(KnownThread { taken, own: thread.before.policy });
                    self.order(Order::Join(Box::new(thread)));
                    // It may have become another program before its events were followed.
                    host::identity(tid).into_iter().for_each(|now| self.renamed(now));
                    return Ok(true);
                }
                Err(other) => return Err(other),
            }
        }
        Ok(false)
    }

    /// Journals, pins and parks a thread that is followed. `None`: it, or another process, changed
    /// its affinity meanwhile.
    fn pin(&mut self, identity: &Identity) -> Result<Option<Thread>, LiveError> {
        let gone = || LiveError::NoThread { tid: identity.tid };
        let present = host::affinity(identity.tid).map_err(|_| gone())?;
        let (before, affinity) = self.origin(identity, identity.process).ok_or_else(gone)?;
        let taken_for = self.options.policy_of(&identity.comm, before.policy);
        let cpu = self.next_cpu(&affinity);
        let thread = Thread::open(identity.clone(), before, affinity, taken_for, cpu)
            .ok_or_else(gone)?
            .by(self.agents.post());
        self.keeper.declare_from(identity, before, Setting::FifoBand(PARKED, RUNNING))?;
        let (within, to) = (self.confined(), CpuSet::single(cpu));
        if !self.keeper.confine_within(identity, (affinity, present), within, &to)? {
            self.keeper.let_go(identity)?;
            return Ok(None);
        }
        self.keeper.apply(identity, &thread.band(PARKED))?;
        Ok(Some(thread))
    }

    /// Returns where a managed thread is confined to: one of the managed CPUs at a time.
    fn confined(&self) -> Confined {
        Confined { cpus: self.options.cpus, one_of: self.cpus.len() > 1 }
    }

    /// Returns the managed CPUs in turn, of those where the thread may run, if there are any.
    fn next_cpu(&self, affinity: &CpuSet) -> CpuId {
        let allowed: Vec<CpuId> =
            self.cpus.iter().copied().filter(|cpu| affinity.contains(*cpu)).collect();
        let among = if allowed.is_empty() { &self.cpus } else { &allowed };
        among[self.threads.len() % among.len()]
    }

    /// Makes the agents follow a thread.
    fn follow(&mut self, tid: u32) -> Result<(), LiveError> {
        let mut told = 0;
        for slot in 0..self.adders.len() {
            let no_events =
                |error: schedlab_host::HostError| LiveError::NoEvents { reason: error.to_string() };
            let added = match self.adders[slot].add(&BTreeSet::from([tid]), &self.own) {
                // An agent that ends takes its rings along, and the kernel refuses them (EINVAL):
                // why it ended is the error, not this.
                Err(_) if self.shared.stop.load(Ordering::Relaxed) || self.agents.is_dead() => {
                    return Ok(());
                }
                other => other.map_err(no_events)?,
            };
            if let Some(batch) = added {
                self.order_to(slot, Order::Follow(batch));
                told += 1;
            }
        }
        // One agent takes its orders one after the other. Several must have begun to listen before
        // the thread joins.
        if told > 1 { self.wait_until_done() } else { Ok(()) }
    }

    /// Does what is due now and then. False: nothing is left to manage.
    fn tend(&mut self) -> Result<bool, LiveError> {
        self.take_notices();
        self.lineage.forget();
        for notice in std::mem::take(&mut self.noticed) {
            let (Notice::Born(Birth { child: tid, .. }) | Notice::Execed(tid) | Notice::LetGo(tid)) =
                notice;
            let Some(identity) = host::identity(tid) else { continue };
            match notice {
                Notice::LetGo(_) => self.keeper.let_go(&identity)?,
                Notice::Born(..) => self.take_family_member(identity.process)?,
                Notice::Execed(_) => self.renamed(identity),
            }
        }
        if self.shared.unguarded.load(Ordering::Relaxed) {
            return Err(self.keeper.unguarded()?);
        }
        if self.agents.is_dead() {
            return Ok(false);
        }
        let Supervisor { hearing, shared, keeper, .. } = self;
        hearing.tend(shared, || keeper.beat())?;
        let now = monotonic();
        if self.looks.is_due(now) {
            let used = cpu_time();
            self.give_back_requested()?;
            self.rename();
            self.publish(now);
            self.looks.looked(now, Ns(cpu_time().saturating_sub(used)));
        }
        Ok(self.processes.iter().any(|process| host::has_living_thread(*process)))
    }

    /// Looks at every name: a thread that gives itself another (`prctl(PR_SET_NAME)`) makes no
    /// event that is followed.
    fn rename(&mut self) {
        let anew = |kept: &KnownThread| {
            let was = &kept.taken.thread;
            host::identity(was.tid).filter(|now| now.comm != was.comm)
        };
        let now: Vec<Identity> = self.threads.iter().filter_map(anew).collect();
        now.into_iter().for_each(|identity| self.renamed(identity));
    }

    /// A thread may run another program: its name, and what is declared for that, may be another.
    fn renamed(&mut self, identity: Identity) {
        let Some(kept) = self.threads.iter_mut().find(|kept| kept.taken.thread == identity) else {
            return;
        };
        let was = std::mem::replace(&mut kept.taken.thread.comm, identity.comm.clone());
        let own = kept.own;
        let now = self.options.policy_of(&identity.comm, own);
        if self.options.policy_of(&was, own) != now {
            self.order(Order::Policy(identity.tid, now));
        }
    }

    /// Gives back what `schedlab detach --pid` asked for.
    fn give_back_requested(&mut self) -> Result<(), LiveError> {
        let Some(journal) = self.keeper.journal().map(Path::to_owned) else { return Ok(()) };
        for process in detach::requested(&journal) {
            let family = match host::identity(process) {
                Some(first) => restore::family(&first),
                None => vec![process],
            };
            for member in family {
                if !self.processes.remove(&member) {
                    continue;
                }
                self.released.insert(member);
                for tid in host::of_process(member) {
                    self.order(Order::Release(tid));
                }
                self.wait_until_done()?;
                self.keeper.released(member)?;
                self.threads.retain(|kept| kept.taken.thread.process != member);
            }
            detach::answer(&journal, process);
        }
        Ok(())
    }

    fn wait_until_done(&mut self) -> Result<(), LiveError> {
        while self.shared.orders_done.load(Ordering::Acquire) < self.sent && !self.agents.is_dead()
        {
            self.keeper.beat()?;
            std::thread::sleep(HEARTBEAT / 10);
        }
        Ok(())
    }

    /// Writes the status file.
    fn publish(&self, now: Ns) {
        let Some(journal) = self.keeper.journal() else { return };
        let counts =
            self.shared.counts.lock().map_or_else(|_| Counts::default(), |counts| counts.clone());
        let living =
            self.threads.iter().map(|kept| &kept.taken).filter(|taken| taken.thread.lives());
        let elapsed = now.saturating_sub(self.start);
        self.options.publish(journal, elapsed, counts, living.cloned().collect());
    }

    fn end(mut self) -> Result<DriverReport, LiveError> {
        self.rename();
        self.agents.stop();
        // Closing tracepoints takes the kernel a tenth of a second: the guardian must not take that
        // for silence.
        while !self.agents.has_ended() {
            self.keeper.beat()?;
            std::thread::sleep(HEARTBEAT / 2);
        }
        let done = self.agents.end();
        let elapsed = monotonic().saturating_sub(self.start);
        let restored = self.keeper.finish()?;
        let Done { threads, counts, log, breach } = done?;
        if let Some(breach) = breach {
            return Err(LiveError::Contract { scheduler: self.core.scheduler, breach });
        }
        let name = |thread: &Thread| {
            let kept = self.threads.iter().find(|kept| kept.taken.thread == thread.identity);
            kept.map_or(&thread.identity.comm, |kept| &kept.taken.thread.comm).clone()
        };
        let report = |(thread, chosen): (&Thread, &Ns)| ThreadReport {
            tid: thread.identity.tid,
            comm: name(thread),
            chosen_ns: chosen.0,
        };
        let threads = threads.iter().map(|(thread, chosen)| report((thread, chosen))).collect();
        let (silence, stall) = (self.silence, self.stall);
        Ok(DriverReport {
            elapsed,
            counts,
            threads,
            core: self.core,
            log,
            restored,
            silence,
            stall,
        })
    }
}
