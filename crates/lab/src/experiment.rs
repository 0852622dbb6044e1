//! `schedlab experiment`: the documents' experiments with the real programs, on this machine and in the simulator.
//!
//! Each configuration is one *row*. Rows take turns, in a random order of its own in every round. What was published
//! stands beside what this machine does (median of the rounds with a bootstrap interval) and what the simulator says of a
//! machine of this shape under this kernel. Whatever was started or changed goes at the end, whatever ends us.

mod client;
mod figures;
mod model;
mod page;
mod reader_threads;
mod redis;
mod rounds;
mod sleeper;
mod stage;
mod two_hogs;
mod waits;
mod watching;

pub use client::{ARTICLE_CONNECTIONS, ClientKind, READY};
pub use figures::{Against, Figure, Line, Sheet, Unit};
pub use page::of_experiments;
pub use sleeper::{Asleep, StreamLine};

use crate::record::RecordError;
use schedlab_live::restore::Report;
use schedlab_live::{LiveError, RunDir};
use schedlab_measure::LoadError;
use schedlab_model::Ns;
use schedlab_study::StudyError;
use schedlab_trace::TraceError;
use serde::Serialize;
use stage::Stage;
use std::io;
use std::path::PathBuf;

/// Which experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Which {
    /// Two `yes` on one CPU.
    TwoHogs,
    /// `nc -l` beside `yes`.
    Sleeper,
    /// A Redis server and `sysbench cpu` on one CPU.
    RedisBatch,
    /// Threads that read memory, on all CPUs.
    Smp,
}

impl Which {
    /// All of them.
    pub const ALL: [Which; 4] = [Which::TwoHogs, Which::Sleeper, Which::RedisBatch, Which::Smp];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Which::TwoHogs => "two-hogs",
            Which::Sleeper => "sleeper",
            Which::RedisBatch => "redis-batch",
            Which::Smp => "smp",
        }
    }

    /// The programs that it runs, with the Debian packages that have them.
    pub const fn programs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Which::TwoHogs => &[("yes", "coreutils")],
            Which::Sleeper => &[("yes", "coreutils"), ("nc", "netcat-openbsd")],
            Which::RedisBatch => &[
                ("redis-server", "redis-server"),
                ("redis-benchmark", "redis-tools"),
                ("sysbench", "sysbench"),
                ("ip", "iproute2"),
                ("sleep", "coreutils"),
            ],
            Which::Smp => &[],
        }
    }
}

/// Over which network client and server talk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// Two network namespaces and a pair of virtual Ethernet devices between them: two hosts.
    Veth,
    /// One network namespace of their own.
    Loopback,
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rounds of every row.
    pub rounds: usize,
    /// Length of each measurement, after its warm-up.
    pub time: Ns,
    /// Order of the rows, and of whatever else is random.
    pub seed: u64,
    /// Only these rows; empty: all.
    pub only: Vec<String>,
    /// Who sends requests to Redis.
    pub clients: Vec<ClientKind>,
    /// Over so many connections, all the time.
    pub connections: usize,
    /// How they reach it.
    pub network: Network,
    /// Numbers of threads of the SMP program.
    pub tasks: Vec<u32>,
    /// Cost preset of the simulated column; `None`: this machine's calibration if one is kept.
    pub costs: Option<String>,
    /// Put what runs into a control group with a weight that foreign work hardly counts against.
    pub shield: bool,
    /// Where journals go.
    pub run_dir: RunDir,
    /// `schedlab` itself: the guardian, and the client.
    pub program: PathBuf,
}

/// Why there is no result. Nothing is left changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// Programs are not installed.
    #[error("not installed: {programs}. On Debian: apt-get install --no-install-recommends {packages}")]
    Missing {
        /// Their names.
        programs: String,
        /// Where they are.
        packages: String,
    },
    /// Something that was given does not fit, or cannot be had here.
    #[error("{0}")]
    Input(String),
    /// A program cannot be started.
    #[error(
        "cannot start {what}: {source}. Real-time policies and namespaces need root; `schedlab doctor` looks"
    )]
    Start {
        /// Its command.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program ended too early, or said something else than expected.
    #[error("{what} {happened}")]
    Program {
        /// Its command.
        what: String,
        /// What it did.
        happened: String,
    },
    /// Something cannot be kept or given back.
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

/// Hears how it goes.
pub trait Watch {
    /// So many measurements come; they take about so long together, without the simulator.
    fn plan(&mut self, _which: Which, _measurements: usize, _about: Ns) {}
    /// Measurement `done` of `all` begins.
    fn step(&mut self, _what: &str, _done: usize, _all: usize) {}
}

impl Watch for () {}

/// What came out.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Experiment {
    /// Which.
    pub name: Which,
    /// One line.
    pub title: String,
    /// Machine, kernel, and how it was measured.
    pub conditions: Vec<String>,
    /// The tables: article, this machine, simulated.
    pub sheets: Vec<Sheet>,
    /// The scheduled / descheduled stream of the sleeper.
    pub stream: Vec<StreamLine>,
    /// In which system calls the sleeper waits.
    pub asleep: Vec<Asleep>,
    /// What it teaches, in words.
    pub findings: Vec<String>,
    /// Why numbers differ between the columns.
    pub reasons: Vec<String>,
    /// Why the numbers should not be trusted.
    pub doubts: Vec<String>,
    /// What was given back.
    pub given_back: Report,
}

/// Runs one experiment. Call it from the first thread of the process: the programs die with the thread that started
/// them. `stop` is asked every 20 ms.
///
/// # Errors
/// See [`ExperimentError`].
pub fn run(
    which: Which,
    options: &Options,
    watch: &mut dyn Watch,
    stop: &dyn Fn() -> bool,
) -> Result<Experiment, ExperimentError> {
    installed(which)?;
    let mut stage = Stage::open(which, options, stop)?;
    let result = match which {
        Which::TwoHogs => two_hogs::run(&mut stage, options, watch),
        Which::Sleeper => sleeper::run(&mut stage, options, watch),
        Which::RedisBatch => redis::run(&mut stage, options, watch),
        Which::Smp => reader_threads::run(&mut stage, options, watch),
    };
    let doubt = stage.prices.doubt.clone();
    let (notes, given_back) = stage.close()?;
    let mut result = result?;
    result.conditions.extend(notes);
    result.doubts.extend(doubt);
    if !given_back.complete() {
        result.doubts.push("not everything could be given back: see `schedlab status`".to_owned());
    }
    result.given_back = given_back;
    Ok(result)
}

/// Refuses by name what is missing.
fn installed(which: Which) -> Result<(), ExperimentError> {
    let programs = which.programs().iter();
    let missing: Vec<_> = programs.filter(|(name, _)| schedlab_host::program::find(name).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = |of: fn(&&(&'static str, &'static str)) -> &'static str, between: &str| {
        missing.iter().map(of).collect::<Vec<_>>().join(between)
    };
    Err(ExperimentError::Missing {
        programs: list(|(name, _)| name, ", "),
        packages: list(|(_, package)| package, " "),
    })
}

/// Which of `rows` were asked for.
fn chosen<'a, T>(
    rows: &'a [T],
    name: impl Fn(&T) -> &'static str,
    options: &Options,
) -> Result<Vec<&'a T>, ExperimentError> {
    let known: Vec<&str> = rows.iter().map(&name).collect();
    if let Some(odd) = options.only.iter().find(|asked| !known.contains(&asked.as_str())) {
        return Err(ExperimentError::Input(format!(
            "--only '{odd}': there is no such row; there are: {}",
            known.join(", ")
        )));
    }
    let asked = |row: &&T| options.only.is_empty() || options.only.iter().any(|only| only == name(row));
    Ok(rows.iter().filter(asked).collect())
}
