//! Runs real threads under a scheduler of ours, on a stock kernel, by SCHED_FIFO priorities.
//!
//! The kernel always runs the thread of the highest real-time priority. So the one that the scheduler chose is raised above
//! the others, and everything below it waits (specification: the priority elevation trick, Yasukata and Ishiguro 2024):
//!
//! | priority | who |
//! |---|---|
//! | 5 | the [guardian](crate::guardian), and the [heartbeat] that it hears, elsewhere: sleep |
//! | 4 | the [agent](agent) on each managed CPU; the supervisor elsewhere: sleep, decide, sleep |
//! | 3 | the thread that runs |
//! | 2 | the [block detector](block_detector): gets the CPU at the moment when the running thread blocks, and says so |
//! | 1 | managed threads that wait their turn, or sleep |
//!
//! Everything else of the system is below: that is why one CPU must stay unmanaged, and why the agent gives the CPU away
//! now and then ([`YieldWindows`]), so that the kernel's own throttling never strikes.
//!
//! | rule | where it is from | state |
//! |---|---|---|
//! | raise the next before lowering the previous | specs/delegation.md E.2 | done |
//! | wakeups from tracepoints; blocks from the block detector | E.2, E.3 | done |
//! | `sched_yield` | E.4, 2 | not seen: the yielding thread goes on |
//! | several managed CPUs: an agent each, one scheduler, migration while parked | E.2 | done; tested with CPUs that do not exist ([agent_state]), because the project's machine can only spare one |
//! | a waiting thread that is not served within `starve_after` | E.4, 5 | released to what it was before |
//! | threads whose policy others changed meanwhile | E.4 | left alone from then on; another nice value is told to the scheduler |
//! | a declared policy follows the name through exec | | done |
//! | who woke a task | tracepoint `sched_waking`, its current thread | told where that is a managed thread; interrupts as such |
//! | capabilities that are not needed any more | E.4, 12 | given up once the driver runs ([`schedlab_host::privileges`]) |

mod agent;
mod agent_state;
pub mod baseline;
mod block_detector;
mod cpu_claim;
mod heartbeat;
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

/// Priority of the guardian.
pub const GUARDIAN: u8 = 5;
/// Priority of the agent.
pub const AGENT: u8 = 4;
/// Priority of the thread that runs.
pub const RUNNING: u8 = 3;
/// Priority of the block detector.
pub const BLOCK_DETECTOR: u8 = 2;
/// Priority of threads that wait.
pub const PARKED: u8 = 1;

/// How long the agent sleeps at most; how often it looks for what events did not tell.
pub const HEARTBEAT: Duration = Duration::from_millis(10);
/// An agent that is silent for longer is ended by the guardian.
pub const SILENCE: Duration = Duration::from_millis(100);

/// What a driver can give on this machine, with these permissions. Ticks, exact slices and timers it always has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveSupport {
    /// Wakeups as they happen, and who did them: tracepoints of other people's threads.
    pub events: bool,
}

impl LiveSupport {
    /// Tries it.
    pub fn probe() -> LiveSupport {
        let none = CpuSet::EMPTY;
        LiveSupport { events: Follower::open(&schedlab_host::threads::affinity(0).unwrap_or(none)).is_ok() }
    }

    /// What a scheduler needs and is not given; `None`: it can run live.
    pub fn missing(self, needs: schedlab_scheduler::Needs) -> Option<&'static str> {
        match self.events {
            true => None,
            false if needs.wakers => Some("to know when tasks wake and who woke them"),
            // A live driver knows of a sleeping thread that wants the CPU by its wakeup only.
            false => Some("to know when tasks wake"),
        }
    }
}

/// What to run how.
#[derive(Clone, Debug)]
pub struct ElevationOptions {
    /// The scheduler with its knobs.
    pub scheduler: String,
    /// The CPUs that are managed. One that this process may use must stay unmanaged.
    pub cpus: CpuSet,
    /// A runnable thread that waits longer is released.
    pub starve_after: Ns,
    /// What threads with these names are taken for: `("sysbench", idle)`. Others are what they were before.
    pub declared: Vec<(String, Policy)>,
    /// Threads that can be managed over the whole run; more stay as they are, and are counted.
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
    /// For a `Decide`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
}

/// What the agent did.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Times a CPU was asked to decide.
    pub decisions: u64,
    /// Decisions that put another thread on the CPU.
    pub switches: u64,
    /// Wakeups that events told of.
    pub wakeups: u64,
    /// Wakeups that events did not tell of, found by looking.
    pub wakeups_found: u64,
    /// The chosen thread had blocked, ended or been changed in the moment of the decision.
    pub stale: u64,
    /// Threads that were given back because they waited too long.
    pub starved: u64,
    /// Threads that were left alone because somebody else changed them.
    pub changed_by_others: u64,
    /// Threads that were one too many for `capacity`.
    pub refused: u64,
    /// Threads that were sent from one managed CPU to another.
    #[serde(default)]
    pub migrations: u64,
    /// Yield windows: times that the CPU was given to the fair class.
    #[serde(rename = "gifts")]
    pub yield_windows: u64,
    /// How long they were in all.
    #[serde(default, rename = "given_ns")]
    pub yielded_ns: u64,
    /// CPU time of agent and block detector.
    pub agent_cpu_ns: u64,
    /// Steps that the log had no room for.
    pub unlogged: u64,
}

/// One thread after the run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ThreadReport {
    /// Thread id.
    pub tid: u32,
    /// Its name when it was seen last.
    pub comm: String,
    /// For how long it was the chosen one.
    pub chosen_ns: u64,
}

/// How a run under management was.
#[derive(Clone, Debug)]
pub struct ElevationReport {
    /// How long it was.
    pub elapsed: Ns,
    /// What the agent did.
    pub counts: Counts,
    /// The threads, in the order in which they joined.
    pub threads: Vec<ThreadReport>,
    /// What the scheduler's core was made of: the log's first line.
    pub core: CoreOptions,
    /// The log.
    pub log: Vec<LogLine>,
    /// What was put back at the end.
    pub restored: crate::restore::Report,
}
