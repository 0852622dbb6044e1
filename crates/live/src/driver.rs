//! What every driver of real threads needs, whatever its means: options, counts and report; the
//! claim to a CPU, the heartbeat that the guardian hears, and what is asked of a machine before
//! anything is changed.

mod cpu_claim;
mod heartbeat;
mod host_stalls;
mod looks;
mod start;

pub use cpu_claim::{CpuClaim, PATIENCE};
pub use heartbeat::{Heartbeat, Rounds};
pub use host_stalls::{longest as longest_stall, silence};
pub use looks::Looks;
pub use start::{
    RtLimit, become_fifo, check_cpus, check_scheduler, cpu_time, lock_memory, monotonic,
};

use crate::KeeperOptions;
use crate::logged_core::{CoreOptions, Decision, Step};
use crate::restore::Item;
use crate::status_file::{DriverStatus, StatusThread};
use schedlab_host::threads as host;
use schedlab_model::{CpuSet, Ns, OwnThread, Policy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Priority of the guardian and of the heartbeat.
pub const GUARDIAN: u8 = 5;
/// Priority of agents and supervisor.
pub const AGENT: u8 = 4;
/// The longest sleep of an agent, after which it looks for wakeups and changes that no event told
/// of.
pub const HEARTBEAT: Duration = Duration::from_millis(10);
/// An owner whose agents are silent for longer is ended by the guardian; on a machine that stalls
/// for long the bound is longer ([`DriverReport::silence`]).
pub const SILENCE: Duration = Duration::from_millis(100);

/// An agent that finds its timers due again and again sleeps for as long as its last round took,
/// but never for longer than this. A round takes some 10 us; one of more than 1 ms was disturbed
/// and says nothing about the next.
pub const LONGEST_PAUSE: Ns = Ns::from_ms(1);
/// A thread that waits so many times longer than it may, and a while more, shows that its agent is
/// broken. (The agent gives it back at the first look; threads whose wakeups left no event are
/// found within a second and a half.)
const BROKEN: u32 = 4;
const BROKEN_MORE: Duration = Duration::from_secs(2);

/// The scheduler, the CPUs, and the limits of a run under management.
#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// The scheduler with its knobs.
    pub scheduler: String,
    /// The managed CPUs. One that this process may use must stay unmanaged.
    pub cpus: CpuSet,
    /// A runnable thread that waits longer is released.
    pub starve_after: Ns,
    /// The policy that threads of a name count as: `("sysbench", idle)`. Other threads count as
    /// what they were before.
    pub declared: Vec<(String, Policy)>,
    /// Threads that can be managed over the whole run. More stay as they are, and are counted.
    pub capacity: usize,
    /// The mark of the command that ends with the driver
    /// ([`Keeper::ends_with`](crate::Keeper::ends_with)), if there is one.
    pub command: Option<String>,
    /// Where the journal goes.
    pub run_dir: crate::RunDir,
    /// The program that becomes the guardian.
    pub program: PathBuf,
    /// How many steps are kept for the log.
    pub log_steps: usize,
}

impl DriverOptions {
    /// Returns what the keeper of such a run is told. `by`: the driver's means, in words behind the
    /// scheduler's name; may be empty.
    pub fn keeper(&self, by: &str, silence: Duration) -> KeeperOptions {
        KeeperOptions {
            run_dir: self.run_dir.clone(),
            purpose: format!("run under {}{by} on CPU {}", self.scheduler, self.cpus),
            program: self.program.clone(),
            silence: Some(silence),
            priority: Some(GUARDIAN),
            starve: Some(Duration::from_nanos(self.starve_after.0) * BROKEN + BROKEN_MORE),
        }
    }

    /// Returns the policy that a thread of this name counts as: what is declared for the name, else
    /// its own.
    pub fn policy_of(&self, name: &str, own: Policy) -> Policy {
        self.declared
            .iter()
            .find(|(declared, _)| declared == name)
            .map_or(own, |(_, policy)| *policy)
    }

    /// Writes the status file beside a journal, with the CPU time of the driver's own threads.
    pub fn publish(
        &self,
        journal: &Path,
        elapsed: Ns,
        mut counts: Counts,
        threads: Vec<StatusThread>,
    ) {
        let Some(owner) = host::identity(std::process::id()) else { return };
        let of_driver =
            |tid: &u32| host::identity(*tid).is_some_and(|one| OwnThread::is_called(&one.comm));
        let own =
            host::of_process(owner.process).into_iter().filter(of_driver).filter_map(host::served);
        counts.agent_cpu_ns = own.map(|served| served.run.0).sum();
        let (scheduler, cpus) = (self.scheduler.clone(), self.cpus);
        DriverStatus { owner, scheduler, cpus, elapsed, counts, threads }.write(journal);
    }
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
#[derive(Clone, PartialEq, Eq, Debug, Default, JsonSchema, Serialize, Deserialize)]
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
    /// Rounds of an agent after which its timers waited, because they were due again sooner than
    /// the round had taken.
    #[serde(default)]
    pub postponed: u64,
    /// Of the sched_ext driver only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sched_ext: Option<ExtCounts>,
    /// CPU time of agents and block detectors.
    pub agent_cpu_ns: u64,
    /// Steps that the log had no room for.
    pub unlogged: u64,
}

/// What only the sched_ext driver meets.
#[derive(Clone, PartialEq, Eq, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct ExtCounts {
    /// Time for which threads of other classes kept managed CPUs from the chosen threads: fair ones
    /// go before sched_ext's.
    pub kept_by_others_ns: u64,
    /// Decisions that came before the kernel had put the thread into the queue; each was repeated.
    pub early: u64,
    /// Threads that ran without a decision and were taken off the CPU again.
    pub displaced: u64,
    /// Threads that were queued ahead and that a CPU took when its own blocked, without waiting for
    /// the agent.
    pub ahead: u64,
    /// Threads that CPUs took by themselves because the agent was silent.
    pub alone: u64,
    /// Events that the ring had no room for; what became of the threads was asked then.
    pub lost: u64,
}

/// One thread after the run.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct ThreadReport {
    /// Thread id.
    pub tid: u32,
    /// The name when the thread was seen last.
    pub comm: String,
    /// The time for which it was the chosen thread of a CPU.
    pub chosen_ns: u64,
}

/// Version of the JSON: docs/live-schema.md.
pub const SCHEMA: &str = "schedlab-run/1";

/// The JSON of `run` and `attach`: what was done under a schedlab scheduler.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct RunOutput<'a> {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// The scheduler with its knobs.
    pub scheduler: &'a str,
    /// Length of the run.
    pub elapsed_ns: u64,
    /// What the agents did.
    pub counts: &'a Counts,
    /// The managed threads, in the order in which they joined.
    pub threads: &'a [ThreadReport],
    /// What became of each change to the machine at the end.
    pub items_given_back: &'a [Item],
}

impl<'a> From<&'a DriverReport> for RunOutput<'a> {
    fn from(report: &'a DriverReport) -> RunOutput<'a> {
        RunOutput {
            schema: SCHEMA,
            scheduler: &report.core.scheduler,
            elapsed_ns: report.elapsed.0,
            counts: &report.counts,
            threads: &report.threads,
            items_given_back: &report.restored.items,
        }
    }
}

/// The result of a run under management.
#[derive(Clone, Debug)]
pub struct DriverReport {
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
    /// The longest time for which this machine kept a real-time thread waiting, measured at the
    /// beginning.
    pub stall: Ns,
}
