//! What `experiment` is asked, and why there is no result.

use super::client_kind::ClientKind;
use crate::record::RecordError;
use schedlab_live::{LiveError, RunDir};
use schedlab_measure::LoadError;
use schedlab_model::Ns;
use schedlab_study::StudyError;
use schedlab_trace::TraceError;
use schemars::JsonSchema;
use serde::Serialize;
use std::io;
use std::path::PathBuf;

/// An experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExperimentKind {
    /// Two `yes` on one CPU.
    TwoHogs,
    /// `nc -l` beside `yes`.
    Sleeper,
    /// A Redis server and `sysbench cpu` on one CPU.
    RedisBatch,
    /// Threads that read memory, on all CPUs.
    Smp,
}

impl ExperimentKind {
    /// All of them.
    pub const ALL: [ExperimentKind; 4] = [
        ExperimentKind::TwoHogs,
        ExperimentKind::Sleeper,
        ExperimentKind::RedisBatch,
        ExperimentKind::Smp,
    ];

    /// Returns its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            ExperimentKind::TwoHogs => "two-hogs",
            ExperimentKind::Sleeper => "sleeper",
            ExperimentKind::RedisBatch => "redis-batch",
            ExperimentKind::Smp => "smp",
        }
    }

    /// Returns the programs that it runs, with the Debian packages that have them.
    pub const fn programs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            ExperimentKind::TwoHogs => &[("yes", "coreutils")],
            ExperimentKind::Sleeper => &[("yes", "coreutils"), ("nc", "netcat-openbsd")],
            ExperimentKind::RedisBatch => &[
                ("redis-server", "redis-server"),
                ("redis-benchmark", "redis-tools"),
                ("sysbench", "sysbench"),
                ("ip", "iproute2"),
                ("sleep", "coreutils"),
            ],
            ExperimentKind::Smp => &[],
        }
    }
}

/// The network between client and server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// Two network namespaces and a pair of virtual Ethernet devices between them: two hosts.
    Veth,
    /// One network namespace of their own.
    Loopback,
}

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct ExperimentPlan {
    /// Rounds of every row.
    pub rounds: usize,
    /// Length of each measurement, after its warm-up.
    pub time: Ns,
    /// Seed of the order of the rows, and of all else that is random.
    pub seed: u64,
    /// Only these rows; empty: all.
    pub only: Vec<String>,
    /// Clients that send requests to Redis.
    pub clients: Vec<ClientKind>,
    /// Their connections.
    pub connections: usize,
    /// The network between them and Redis.
    pub network: Network,
    /// Numbers of threads of the SMP program.
    pub tasks: Vec<u32>,
    /// Cost preset of the simulated column; `None`: this machine's calibration if one is kept.
    pub costs: Option<String>,
    /// Put the programs into a control group whose weight leaves other work a small share.
    pub shield: bool,
    /// The folder of the journals.
    pub run_dir: RunDir,
    /// The program `schedlab`, which becomes the guardian and the helper processes.
    pub program: PathBuf,
}

/// Is told how an experiment goes.
pub trait ExperimentObserver {
    /// Called first, with the number of measurements and the time that they take together, about,
    /// without the simulator.
    fn plan(&mut self, _kind: ExperimentKind, _measurements: usize, _about: Ns) {}
    /// Called when measurement `done` of `all` begins.
    fn step(&mut self, _what: &str, _done: usize, _all: usize) {}
}

impl ExperimentObserver for () {}

/// Returns the rows that the plan asks for.
pub(super) fn chosen<'a, T>(
    rows: &'a [T],
    name: impl Fn(&T) -> &'static str,
    plan: &ExperimentPlan,
) -> Result<Vec<&'a T>, ExperimentError> {
    let known: Vec<&str> = rows.iter().map(&name).collect();
    if let Some(odd) = plan.only.iter().find(|asked| !known.contains(&asked.as_str())) {
        return Err(ExperimentError::Input(format!(
            "--only '{odd}': there is no such row; there are: {}",
            known.join(", ")
        )));
    }
    let asked = |row: &&T| plan.only.is_empty() || plan.only.iter().any(|only| only == name(row));
    Ok(rows.iter().filter(asked).collect())
}

/// Why there is no result. Nothing is left changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// Programs are not installed.
    #[error(
        "not installed: {programs}. On Debian: apt-get install --no-install-recommends {packages}"
    )]
    Missing {
        /// The names of the programs.
        programs: String,
        /// The packages that have them.
        packages: String,
    },
    /// An option does not fit, or needs what this machine does not have.
    #[error("{0}")]
    Input(String),
    /// A program cannot be started.
    #[error(
        "cannot start {what}: {source}. Real-time policies and namespaces need root; `schedlab \
         doctor` looks"
    )]
    Start {
        /// Its command.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A program ended too early, or wrote something unexpected.
    #[error("{what} {happened}")]
    Program {
        /// Its command.
        what: String,
        /// What it did.
        happened: String,
    },
    /// The journal cannot be kept, or something cannot be given back.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// Nothing can be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// What was recorded cannot be read.
    #[error("a round cannot be read back: {0}")]
    Trace(#[from] TraceError),
    /// The simulator refused.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// There is no such cost preset.
    #[error(transparent)]
    Preset(#[from] schedlab_study::preset::PresetError),
    /// The load client failed.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The user ended it.
    #[error("ended before there was a result; everything is as before")]
    Interrupted,
}
