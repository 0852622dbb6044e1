//! Why `colocate` has no answer.

use crate::record::RecordError;
use schedlab_live::LiveError;

/// Why there is no answer. Nothing is left changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ColocateError {
    /// A thread or group cannot be changed.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// Nothing can be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// An option, a process or a file does not fit.
    #[error("{0}")]
    Input(String),
    /// One actuator cannot be tried; the others can.
    #[error("cannot be tried: {0}")]
    Skip(String),
    /// The user ended it.
    #[error("ended before there was an answer; everything is as before")]
    Interrupted,
}
