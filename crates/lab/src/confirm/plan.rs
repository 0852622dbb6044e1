//! What `confirm` is asked, and why there is no answer.

use crate::record::RecordError;
use schedlab_live::{LiveError, RunDir};
use schedlab_model::{CpuSet, Ns};
use schedlab_scheduler::SchedulerSpec;
use schedlab_study::StudyError;
use schedlab_study::compare::ReplayFrom;
use std::path::PathBuf;
use std::time::Duration;

/// How long a command has to come up before it is recorded.
pub(super) const COME_UP: Duration = Duration::from_millis(300);

/// How `schedlab run` makes threads run in a scheduler's order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LiveDriver {
    /// By SCHED_FIFO priorities.
    Elevation,
    /// In the kernel's class for schedulers.
    SchedExt,
}

impl LiveDriver {
    /// Returns the value of `schedlab run --driver`.
    pub(super) const fn word(self) -> &'static str {
        match self {
            LiveDriver::Elevation => "elevation",
            LiveDriver::SchedExt => "sched-ext",
        }
    }
}

/// What to confirm.
#[derive(Clone, Debug)]
pub struct ConfirmPlan {
    /// The recording that predictions are made from; `None`: the first round under the host's
    /// default.
    pub base: Option<PathBuf>,
    /// Schedulers, which `schedlab run` runs.
    pub schedulers: Vec<SchedulerSpec>,
    /// The drivers under which each scheduler runs.
    pub drivers: Vec<LiveDriver>,
    /// Variants as `compare` has them.
    pub variants: Vec<String>,
    /// The workload.
    pub command: Vec<String>,
    /// The CPUs of the workload in every round; with schedulers one CPU.
    pub cpus: CpuSet,
    /// Rounds of each setting.
    pub rounds: usize,
    /// Length of a round.
    pub round: Ns,
    /// The scheduler that represents this kernel in the simulator; `None`: by its version.
    pub recorded_under: Option<SchedulerSpec>,
    /// The server that the question is about, as [`schedlab_study::compare::Options::serve`].
    pub serve: Option<String>,
    /// What the base recording is replayed from.
    pub replay: ReplayFrom,
    /// The folder of the journals.
    pub run_dir: RunDir,
    /// The program that becomes the guardian, and runs `run` for schedulers.
    pub program: PathBuf,
}

impl ConfirmPlan {
    /// Returns how long the rounds of so many settings take, without what is simulated.
    pub fn takes(&self, settings: usize) -> Ns {
        Ns((self.round.0 + COME_UP.as_nanos() as u64) * (self.rounds * settings) as u64)
    }
}

/// Is told the setting of the round that begins, the rounds done, and the rounds in all.
pub type ConfirmProgress<'a> = &'a mut dyn FnMut(&str, usize, usize);

/// Why there is no answer. Nothing is left changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfirmError {
    /// A prediction cannot be made.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// The cost preset of this machine cannot be read.
    #[error(transparent)]
    Preset(#[from] schedlab_study::preset::PresetError),
    /// A thread cannot be changed.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// Nothing can be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// An option cannot be applied to running threads, or a round failed.
    #[error("{0}")]
    Input(String),
    /// `schedlab run` ended before its time.
    #[error("{said}")]
    Driver {
        /// Its message.
        said: String,
        /// Whether it got SIGKILL, from its guardian or from elsewhere.
        killed: bool,
    },
    /// The user ended it.
    #[error("ended before there was an answer; everything is as before")]
    Interrupted,
}
