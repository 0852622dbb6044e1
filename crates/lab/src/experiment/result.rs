//! What `experiment` answers.

use super::figures::Sheet;
use super::plan::ExperimentKind;
use schedlab_live::restore::Report;
use schemars::JsonSchema;
use serde::Serialize;

/// Version of the JSON: docs/experiment-schema.md.
pub const SCHEMA: &str = "schedlab-experiment/1";

/// The JSON of `experiment`: real programs on this machine, the published figures and the
/// simulator, side by side.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct ExperimentOutput<'a> {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// The experiments that were asked for, in the order in which they ran.
    pub experiments: &'a [ExperimentResult],
}

/// The result of an experiment.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct ExperimentResult {
    /// The experiment.
    pub name: ExperimentKind,
    /// What it is, in one line.
    pub title: String,
    /// Machine, kernel, and how it was measured.
    pub conditions: Vec<String>,
    /// The tables: published, this machine, simulated.
    pub sheets: Vec<Sheet>,
    /// When the task of `sleeper` was scheduled and descheduled, from the connection on; empty in
    /// other experiments.
    pub stream: Vec<StreamLine>,
    /// In which system calls the task of `sleeper` waits; empty in other experiments.
    pub asleep: Vec<Asleep>,
    /// What the numbers show, in sentences.
    pub findings: Vec<String>,
    /// Why the columns differ.
    pub reasons: Vec<String>,
    /// Why the numbers should not be trusted.
    pub doubts: Vec<String>,
    /// What became of each change to the machine at the end.
    pub given_back: Report,
}

/// A sleeping task, and what it waits in.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Asleep {
    /// When it was looked at: before the connection, or between two lines.
    pub when: &'static str,
    /// `/proc/PID/stat`: S is asleep.
    pub state: String,
    /// The kernel function that it waits in (`/proc/PID/wchan`).
    pub wchan: String,
    /// The system call (`/proc/PID/syscall`).
    pub call: String,
}

/// One line of the stream.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct StreamLine {
    /// Time since the start of the recording.
    pub at_ns: u64,
    /// The CPU.
    pub cpu: u32,
    /// What happened.
    pub what: String,
}
