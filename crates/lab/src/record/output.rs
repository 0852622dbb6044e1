//! What `schedlab record` prints as JSON.

use super::Recorded;
use schedlab_model::Ns;
use schedlab_trace::Incident;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;

/// Version of the JSON.
pub const SCHEMA: &str = "schedlab-record/1";

/// The JSON of `record`: the summary of a recording. Times are nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct RecordOutput {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// The file that holds the recording.
    pub file: String,
    /// With a flight recorder: why the recording is not where it should be; else `None`.
    pub not_at_place: Option<String>,
    /// Events that were recorded.
    pub events: u64,
    /// Events that the kernel had no room for.
    pub lost: u64,
    /// Facts that were recorded: what tasks exchanged.
    pub facts: u64,
    /// Facts that the kernel had no room for.
    pub facts_lost: u64,
    /// Bytes that the kernel counted in its streams and no fact tells of.
    pub fact_bytes_missing: u64,
    /// Threads in the task table.
    pub threads: usize,
    /// Length of the recording.
    pub duration_ns: u64,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// How it was recorded.
    pub backend: &'static str,
    /// CPU time of the recorder itself.
    pub recorder_cpu_ns: u64,
    /// CPU time that recording adds to a switch with its wakeup; `None`: not measured.
    pub cost_ns_per_switch: Option<u64>,
    /// Time that a hypervisor took away, all CPUs together.
    pub stolen_ns: u64,
    /// Time in which the CPUs were neither idle nor stolen, all together (`/proc/stat`, grain 10 ms
    /// a CPU).
    pub busy_ns: u64,
    /// Whether it ended because the file had the size that `--max-size` allows.
    pub full: bool,
    /// With a flight recorder: how much of the end is in the file.
    pub kept_ns: Option<u64>,
    /// With a flight recorder: how many events are in the file.
    pub kept_events: Option<u64>,
    /// The stretch that met a condition of `--until`; `None`: none did.
    pub caught: Option<Incident>,
    /// Exit code of the command; `None`: none was started, or a signal ended it.
    pub command_exit: Option<i32>,
}

impl RecordOutput {
    /// Returns the summary of a recording in `file`.
    pub fn new(file: &Path, recorded: &Recorded) -> RecordOutput {
        let end = &recorded.end;
        RecordOutput {
            schema: SCHEMA,
            file: file.display().to_string(),
            not_at_place: recorded.not_at_place.clone(),
            events: end.events,
            lost: end.lost,
            facts: end.facts,
            facts_lost: end.facts_lost,
            fact_bytes_missing: recorded.fact_loss.missing,
            threads: recorded.tasks,
            duration_ns: end.duration.0,
            file_bytes: recorded.file_bytes,
            backend: recorded.backend.name(),
            recorder_cpu_ns: end.recorder_cpu.0,
            cost_ns_per_switch: recorded.cost_ns_per_switch,
            stolen_ns: end.stolen.0,
            busy_ns: end.busy.0,
            full: recorded.full,
            kept_ns: recorded.kept.map(|kept| kept.duration.0),
            kept_events: recorded.kept.map(|kept| kept.events),
            caught: recorded.caught.as_ref().map(|caught| caught.since(Ns::ZERO)),
            command_exit: end.exit.and_then(|status| status.code()),
        }
    }
}
