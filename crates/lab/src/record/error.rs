//! Why nothing was recorded, or not where it should be.

use schedlab_host::HostError;
use schedlab_trace::TraceError;
use std::path::PathBuf;

/// Why nothing was recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The machine does not allow recording, or the command is wrong.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The backend does not see the event to wait for.
    #[error(
        "`{condition}` needs the time of wakeups, which the backend {backend} does not see. Use \
         `wait` or `run`, or \
         a backend that sees them (`schedlab doctor` says what bpf and tracepoints lack here)"
    )]
    Unseen {
        /// The condition as it was given.
        condition: String,
        /// The backend that would record.
        backend: &'static str,
    },
    /// The file cannot be written.
    #[error("cannot write {path}: {source}. Choose another file with `-o FILE`")]
    Output {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: TraceError,
    },
    /// The file cannot be written any longer.
    #[error("cannot go on writing {}: {source}. What was recorded until then is in {}", .path.display(), .left.display())]
    Cut {
        /// The file.
        path: PathBuf,
        /// The file that has what was recorded until then.
        left: PathBuf,
        /// The error of the system.
        source: TraceError,
    },
    /// What a flight recorder had in memory fits nowhere.
    #[error(
        "the recording cannot be written to {}: {reason}. There is no room in the folder for \
         temporary files, /var/tmp or /dev/shm either, \
         so it is lost: make room, or keep less (`--ring`, `--max-size`)", .path.display()
    )]
    Nowhere {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        reason: String,
    },
    /// Nothing happened that could be recorded, and there is a recording already.
    #[error(
        "no event was recorded, and {} is as it was. Record for longer, or more tasks (`--all`)",
        .0.display()
    )]
    Empty(PathBuf),
}
