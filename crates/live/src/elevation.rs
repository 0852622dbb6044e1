//! Runs real threads under a schedlab scheduler, on a stock kernel, by SCHED_FIFO priorities.
//!
//! The kernel always runs the thread of the highest real-time priority. So the thread that the scheduler chose is
//! raised above the other managed threads, and everything below it waits: the priority elevation trick of Yasukata
//! and Ishiguro (APSys 2024, doi 10.1145/3678015.3680481; their code is in yasukata/priority-elevation-trick,
//! b34af9f2).
//!
//! | priority | threads |
//! |---|---|
//! | 5 | the [guardian](crate::guardian), and the [heartbeat] that it hears, on unmanaged CPUs: sleep |
//! | 4 | the [agent](agent) on each managed CPU; the supervisor on an unmanaged one: sleep, decide, sleep |
//! | 3 | the thread that runs |
//! | 2 | the [block detector](block_detector): gets the CPU at the moment when the running thread blocks, and tells the agent |
//! | 1 | managed threads that wait their turn, or sleep |
//!
//! Every SCHED_OTHER thread of the system is below: that is why one CPU must stay unmanaged, and why each managed CPU
//! is given to the fair class now and then ([`YieldWindows`]), so that the kernel's own throttling never strikes.
//!
//! | rule | source | state |
//! |---|---|---|
//! | raise the next thread before lowering the previous one | `trick.c` of the trick's repository | done |
//! | the fact of a block comes from a thread below the running one | its dispatcher (`main.c`), which also decides there | done; here that thread only tells the agent ([block_detector]) |
//! | wakeups of threads that may not run yet | tracepoint `sched_waking` (include/trace/events/sched.h) | done |
//! | `sched_yield` | sched_yield(2): a thread that is alone at its priority goes on | not seen: the yielding thread goes on |
//! | several managed CPUs: an agent each, one scheduler, migration while parked | per-CPU agents of ghOSt (SOSP 2021, section 3) | done; tested with CPUs that do not exist ([agent_state]): the project's machine can only spare one |
//! | a waiting thread that is not served within `starve_after` is released | `runnable_timeout` of ghOSt (userspace 9ca0a1fb, docs/ghostfs.md) | done; that thread only, not the enclave |
//! | threads whose policy others changed meanwhile | | left alone from then on; another nice value is told to the scheduler |
//! | a declared policy follows the name through exec | | done |
//! | the thread that woke a task | tracepoint `sched_waking`, its current thread | told where that is a managed thread; interrupts as such |
//! | capabilities that are not needed any more | capabilities(7) | given up once the driver runs ([`schedlab_host::privileges`]) |
//!
//! Every known pitfall, and what answers it: docs/live-safety.md.

mod agent;
mod agent_state;
pub mod baseline;
mod block_detector;
mod control;
mod cpu_claim;
mod fair_lock;
mod hearing;
mod heartbeat;
mod host_stalls;
pub mod ping_pong;
mod supervisor;
mod threads;
mod yield_window;

pub use supervisor::manage;
pub use yield_window::YieldWindows;

use crate::logged_core::{CoreOptions, Decision, Step};
use schedlab_host::follow::Follower;
use schedlab_model::{CpuSet, Ns, Policy};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Priority of the guardian and of the heartbeat.
pub const GUARDIAN: u8 = 5;
/// Priority of agents and supervisor.
pub const AGENT: u8 = 4;
/// Priority of the thread that runs.
pub const RUNNING: u8 = 3;
/// Priority of the block detectors.
pub const BLOCK_DETECTOR: u8 = 2;
/// Priority of managed threads that wait.
pub const PARKED: u8 = 1;

/// The longest sleep of an agent, after which it looks for wakeups and changes that no event told of.
pub const HEARTBEAT: Duration = Duration::from_millis(10);
/// An owner whose agents are silent for longer is ended by the guardian; on a machine that stalls for long the bound is longer
/// ([`ElevationReport::silence`]).
pub const SILENCE: Duration = Duration::from_millis(100);

/// What the live driver can give a scheduler on this machine, with these permissions. Ticks, exact slices and timers
/// it always gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveSupport {
    /// Wakeups as they happen, and the thread that did them: tracepoints of all threads of the machine.
    pub events: bool,
}

impl LiveSupport {
    /// Tries whether the kernel gives the events.
    pub fn probe() -> LiveSupport {
        let none = CpuSet::EMPTY;
        LiveSupport { events: Follower::open(&schedlab_host::threads::affinity(0).unwrap_or(none)).is_ok() }
    }

    /// Returns the need of a scheduler that cannot be served; `None`: it can run live.
    pub fn missing(self, needs: schedlab_scheduler::Needs) -> Option<&'static str> {
        match self.events {
            true => None,
            false if needs.wakers => Some("to know when tasks wake and who woke them"),
            // The driver learns that a sleeping thread wants the CPU by its wakeup only.
            false => Some("to know when tasks wake"),
        }
    }
}

/// The scheduler, the CPUs, and the limits of a run under management.
#[derive(Clone, Debug)]
pub struct ElevationOptions {
    /// The scheduler with its knobs.
    pub scheduler: String,
    /// The managed CPUs. One that this process may use must stay unmanaged.
    pub cpus: CpuSet,
    /// A runnable thread that waits longer is released.
    pub starve_after: Ns,
    /// The policy that threads of a name are taken for: `("sysbench", idle)`. Other threads are taken for what they
    /// were before.
    pub declared: Vec<(String, Policy)>,
    /// Threads that can be managed over the whole run. More stay as they are, and are counted.
    pub capacity: usize,
    /// Where the journal goes.
    pub run_dir: crate::RunDir,
    /// The program that becomes the guardian.
    pub program: PathBuf,
    /// How many steps are kept for the log.
    pub log_steps: usize,
}

/// One line of a log: what happened, and what was decided.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogLine {
    /// What happened.
    pub step: Step,
    /// The decision, for a `Decide`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
}

/// What the agents did.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Decisions.
    pub decisions: u64,
    /// Decisions that put another thread on the CPU.
    pub switches: u64,
    /// Wakeups that events told of.
    pub wakeups: u64,
    /// Wakeups that no event told of, found by looking at the thread.
    pub wakeups_found: u64,
    /// Decisions whose chosen thread had blocked, ended or been changed meanwhile.
    pub stale: u64,
    /// Threads that were released because they waited longer than `starve_after`.
    pub starved: u64,
    /// Threads that were left alone because another process changed them.
    pub changed_by_others: u64,
    /// Threads that were one too many for `capacity`.
    pub refused: u64,
    /// Threads that were sent from one managed CPU to another.
    #[serde(default)]
    pub migrations: u64,
    /// Yield windows: times that a CPU was given to the fair class.
    #[serde(rename = "gifts")]
    pub yield_windows: u64,
    /// How long they were in all.
    #[serde(default, rename = "given_ns")]
    pub yielded_ns: u64,
    /// Rounds of an agent after which its timers waited, because they were due again sooner than the round had taken.
    #[serde(default)]
    pub postponed: u64,
    /// CPU time of agents and block detectors.
    pub agent_cpu_ns: u64,
    /// Steps that the log had no room for.
    pub unlogged: u64,
}

/// One thread after the run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ThreadReport {
    /// Thread id.
    pub tid: u32,
    /// The name when the thread was seen last.
    pub comm: String,
    /// The time for which it was the chosen thread of a CPU.
    pub chosen_ns: u64,
}

/// The result of a run under management.
#[derive(Clone, Debug)]
pub struct ElevationReport {
    /// Its length.
    pub elapsed: Ns,
    /// What the agents did.
    pub counts: Counts,
    /// The threads, in the order in which they joined.
    pub threads: Vec<ThreadReport>,
    /// What the scheduler's core was made of: the log's first line.
    pub core: CoreOptions,
    /// The log.
    pub log: Vec<LogLine>,
    /// What was restored at the end.
    pub restored: crate::restore::Report,
    /// For how long its agents might be silent.
    pub silence: Duration,
    /// The longest time for which this machine kept a real-time thread waiting, measured at the beginning.
    pub stall: Ns,
}
