//! What can go wrong in a study. Every message says what to do.

use crate::scenario::ScenarioError;
use crate::variant::VariantError;
use schedlab_scheduler::KnobError;
use schedlab_sim::SimError;
use schedlab_trace::TraceError;
use std::path::PathBuf;

/// Why a command cannot be carried out. All of these are bad input, or something that is not
/// possible here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    /// A mistake in a scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A cost preset that cannot be had.
    #[error(transparent)]
    Preset(#[from] crate::preset::PresetError),
    /// A mistake in an rt-app workload.
    #[error(transparent)]
    RtApp(#[from] crate::rtapp::RtAppError),
    /// A mistake in a variant on the command line.
    #[error("--variant '{variant}': {source}")]
    Variant {
        /// As given.
        variant: String,
        /// What is wrong.
        source: VariantError,
    },
    /// A mistake in a scheduler's name or knobs.
    #[error("{0}")]
    Scheduler(#[from] KnobError),
    /// A recording that cannot be used.
    #[error("{}: {source}", .path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Box<TraceError>,
    },
    /// A file that cannot be opened; the message has its name.
    #[error(transparent)]
    File(Box<TraceError>),
    /// A recording without a single event: nothing was recorded, or the file ends before its first
    /// block.
    #[error(
        "{}: the recording holds no events{}; record again, or copy the whole file",
        .path.display(),
        if *.cut_off { ": it is cut off before its first whole block" } else { "" }
    )]
    NoEvents {
        /// The file.
        path: PathBuf,
        /// Whether the file ends too early.
        cut_off: bool,
    },
    /// A run that could not be finished.
    #[error("{scheduler}, {variant}: {source}")]
    Run {
        /// Scheduler of the row.
        scheduler: String,
        /// Variant of the row.
        variant: String,
        /// What happened.
        source: Box<SimError>,
    },
    /// The caller asked for an end.
    #[error("stopped before it was done")]
    Stopped,
    /// Neither a file nor a scenario of the gallery.
    #[error("{0}")]
    NoSuchInput(String),
    /// A path at which there is no file.
    #[error("{0}")]
    NoSuchFile(String),
    /// A directory where a file is meant.
    #[error("{0}")]
    Directory(String),
    /// Options that do not fit together, or a value out of bounds.
    #[error("{0}")]
    Option(String),
    /// A file that cannot be written.
    #[error("{}: cannot be written: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl StudyError {
    /// Whether a scheduler refused the tasks of a row, as sched_setattr(2) does with EBUSY: the
    /// other rows can be run.
    pub(crate) fn is_admission(&self) -> bool {
        matches!(self, StudyError::Run { source, .. } if matches!(**source, SimError::Admission { .. }))
    }
}

impl StudyError {
    /// What is wrong with the recording at `path`. An error of the file itself has the path in it
    /// already.
    pub(crate) fn trace(path: impl Into<PathBuf>, source: TraceError) -> StudyError {
        let source = Box::new(source);
        match *source {
            TraceError::File { .. } => StudyError::File(source),
            _ => StudyError::Trace { path: path.into(), source },
        }
    }
}
