//! What `experiment` answers.

use super::figures::Sheet;
use super::plan::ExperimentKind;
use schedlab_live::restore::Report;
use serde::Serialize;

/// The result of an experiment.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ExperimentResult {
    /// The experiment.
    pub name: ExperimentKind,
    /// One line.
    pub title: String,
    /// Machine, kernel, and how it was measured.
    pub conditions: Vec<String>,
    /// The tables: published, this machine, simulated.
    pub sheets: Vec<Sheet>,
    /// The scheduled / descheduled stream of the sleeper.
    pub stream: Vec<StreamLine>,
    /// In which system calls the sleeper waits.
    pub asleep: Vec<Asleep>,
    /// What the numbers show, in sentences.
    pub findings: Vec<String>,
    /// Why the columns differ.
    pub reasons: Vec<String>,
    /// Why the numbers should not be trusted.
    pub doubts: Vec<String>,
    /// What was given back.
    pub given_back: Report,
}

/// A sleeping task, and what it waits in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Asleep {
    /// Before the connection, or between two lines.
    pub when: &'static str,
    /// `/proc/PID/stat`: S is asleep.
    pub state: String,
    /// The kernel function that it waits in (`/proc/PID/wchan`).
    pub wchan: String,
    /// The system call (`/proc/PID/syscall`).
    pub call: String,
}

/// One line of the stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StreamLine {
    /// Since the start of the recording.
    pub at_ns: u64,
    /// The CPU.
    pub cpu: u32,
    /// What happened.
    pub what: String,
}
