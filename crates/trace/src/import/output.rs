//! What `schedlab import` prints as JSON.

use super::Summary;
use crate::{Recording, Repairs};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Version of the JSON.
pub const SCHEMA: &str = "schedlab-import/1";

/// The JSON of `import`: what was read, and what it became.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
#[serde(untagged)]
pub enum ImportOutput<'a> {
    /// A trace became a recording.
    Trace(ImportedTrace<'a>),
    /// A workload of rt-app became a scenario.
    Workload(ImportedWorkload<'a>),
}

/// A trace of another tool that became a recording.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct ImportedTrace<'a> {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// The file of the recording.
    pub file: String,
    /// The format that was read.
    pub format: &'a str,
    /// Events that say nothing about the schedule, and how many of them there are.
    pub left_out: &'a BTreeMap<String, u64>,
    /// Number of places where events are missing.
    pub losses: u64,
    /// Number of lines that are no events.
    pub lines_skipped: u64,
    /// Number of scheduling events whose fields could not be read; each is a loss in the recording.
    pub events_damaged: u64,
    /// What a reader of the recording should know.
    pub notes: &'a [String],
    /// The recording; missing where it went into a pipe, which cannot be read again.
    #[serde(flatten)]
    pub recording: Option<ImportedRecording<'a>>,
}

/// A recording that was made from a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct ImportedRecording<'a> {
    /// Number of events.
    pub events: usize,
    /// Number of tasks.
    pub tasks: usize,
    /// Number of CPUs.
    pub cpus: usize,
    /// Length of the recording, nanoseconds.
    pub duration_ns: u64,
    /// What was repaired.
    pub repairs: &'a Repairs,
}

/// A workload of rt-app that became a scenario.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct ImportedWorkload<'a> {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// The file of the scenario.
    pub file: String,
    /// Always `rt-app`.
    #[schemars(extend("const" = "rt-app"))]
    pub format: &'static str,
    /// Number of tasks.
    pub tasks: usize,
    /// What the scenario does in another way than rt-app.
    pub notes: &'a [String],
}

impl<'a> ImportedTrace<'a> {
    /// Returns what was read into `file`, and what it became: the recording without its events, and
    /// their number.
    pub fn new(
        file: &Path,
        summary: &'a Summary,
        recording: Option<&'a (Recording, usize)>,
    ) -> ImportedTrace<'a> {
        let recording = recording.map(|(about, events)| ImportedRecording {
            events: *events,
            tasks: about.header.tasks.len(),
            cpus: about.header.topology.cpus(),
            duration_ns: about.duration.0,
            repairs: &about.repairs,
        });
        ImportedTrace {
            schema: SCHEMA,
            file: file.display().to_string(),
            format: summary.format,
            left_out: &summary.ignored,
            losses: summary.losses_in_all,
            lines_skipped: summary.odd.count,
            events_damaged: summary.damaged.count,
            notes: &summary.notes,
            recording,
        }
    }
}
