//! How a command ends, apart from errors, and its exit code.

use std::process::ExitCode;

/// The end of a command that had no error (which is exit code 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// Nothing is wrong.
    Done,
    /// An expectation, a gate or a goal failed.
    ExpectationFailed,
    /// The numbers cannot be trusted, or not everything could be given back.
    Untrusted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        match exit {
            Exit::Done => ExitCode::SUCCESS,
            Exit::ExpectationFailed => ExitCode::from(1),
            Exit::Untrusted => ExitCode::from(3),
        }
    }
}
