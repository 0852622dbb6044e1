//! Why the host refused.

use crate::privileges::{RECORDING_NEEDS, RECORDING_SETCAP};
use std::io;

/// What went wrong while probing or recording. Each message says what would help.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// No way of recording works with these permissions.
    #[error(
        "this kernel lets you record {scope} by no way that schedlab knows: {reasons}. But \
         {needs}: `{setcap}` gives \
         them to the program. `schedlab doctor` shows each limit",
        needs = RECORDING_NEEDS, setcap = RECORDING_SETCAP
    )]
    NoBackend {
        /// What was asked for.
        scope: &'static str,
        /// What each way answered.
        reasons: String,
    },
    /// The way that was asked for by name does not work.
    #[error(
        "the backend `{backend}` does not work here: {reason}. `schedlab doctor` shows what would \
         help"
    )]
    Backend {
        /// Its name.
        backend: &'static str,
        /// What the kernel answered.
        reason: String,
    },
    /// A process that does not exist.
    #[error("there is no process {pid}: give the number of a running one (`ps -e` lists them)")]
    NoProcess {
        /// The number.
        pid: u32,
    },
    /// A control group that does not exist, or that this way of recording cannot choose by.
    #[error(
        "control group {path}: {detail}. Give a directory of a cgroup file system, or a path such \
         as /batch"
    )]
    NoGroup {
        /// As it was given.
        path: String,
        /// What is wrong.
        detail: String,
    },
    /// The command could not be started.
    #[error("cannot start `{program}`: {source}")]
    Spawn {
        /// Its first word.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A file of the kernel has a form that this version does not understand.
    #[error(
        "{what} has an unexpected form: {detail}. Please report it with the output of `uname -a`"
    )]
    Form {
        /// Which file.
        what: String,
        /// What is odd.
        detail: String,
    },
    /// A system call failed that should not.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The receiver of the events failed.
    #[error("cannot write the recording: {0}")]
    Sink(io::Error),
}

impl HostError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> HostError {
        let what = what.into();
        move |source| HostError::Io { what, source }
    }
}
