//! What a running flight recorder says: a line of JSON for each thing that happens.

use schedlab_trace::Incident;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::PathBuf;

/// Version of a line: docs/flight.md.
pub const SCHEMA: &str = "schedlab-flight/1";

/// How much a line matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Info,
    /// Something is missing or was left out.
    Warning,
    /// Something failed.
    Error,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Recording began.
    Started,
    /// A rule was met; a recording follows.
    Incident,
    /// A rule was met while the recording of another incident was under way, which has it.
    Joined,
    /// A rule was met more often than `at-most`; there is no recording of it.
    Suppressed,
    /// A recording is written.
    Written,
    /// A recording could not be written at its place, or not at all.
    NotWritten,
    /// Old recordings were removed, to keep within `max-total`.
    Removed,
    /// The program of `run` failed or took too long.
    RunFailed,
    /// The file was read again.
    Reloaded,
    /// The file was read again and is wrong; the old rules hold.
    NotReloaded,
    /// Events were lost.
    Lost,
    /// Recording ended.
    Stopped,
}

/// A line of the log.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct FlightLine {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// When, UTC.
    pub time: String,
    /// How much it matters.
    pub level: Level,
    /// What happened.
    pub event: What,
    /// The same as a sentence.
    pub message: String,
    /// The rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// What met the rule. With `incident`, its `from_ns` counts from the recorder's start; with
    /// `written`, from the beginning of the recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incident: Option<Incident>,
}

impl FlightLine {
    /// Returns a line about this moment.
    pub(super) fn new(level: Level, event: What, message: String) -> FlightLine {
        let time = schedlab_model::text::iso8601_ns(unix_ns());
        let (schema, rule, file, incident) = (SCHEMA, None, None, None);
        FlightLine { schema, time, level, event, message, rule, file, incident }
    }

    pub(super) fn of_rule(self, rule: &str) -> FlightLine {
        FlightLine { rule: Some(rule.to_owned()), ..self }
    }
}

/// Returns the time, nanoseconds since 1970.
pub(super) fn unix_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos() as u64)
}
