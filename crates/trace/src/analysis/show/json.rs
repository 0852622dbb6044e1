//! What `schedlab show` prints as JSON. A listing may be larger than memory, so rows are written
//! one by one and [`ShowOutput`] is never made as a whole: it is the description of what is
//! written.

use crate::analysis::{Answer, Scope};
use crate::{Capabilities, Incident, Recording, Repairs};
use schedlab_model::SchedExt;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Version of the JSON (docs/show-schema.md); it grows when a field changes its meaning or goes
/// away.
pub const SCHEMA: &str = "schedlab-show/1";

/// The JSON of `show`: the tables of analyses. Times are nanoseconds; moments count from the start
/// of the recording, with `--absolute` on the recording's clock.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct ShowOutput<'a> {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// Version of schedlab.
    pub version: &'a str,
    /// The recording as it was named on the command line.
    pub input: &'a str,
    /// Which task waited for a CPU, and what ran meanwhile; `None`: no task waited, the recording
    /// cannot tell, or no analysis was asked for that is about waits.
    pub answer: Option<ShownAnswer<'a>>,
    /// The event for which a flight recorder kept the recording; `None`: it was not made for one,
    /// or the event is not in the part that is shown.
    pub caught: Option<Incident>,
    /// The server whose rows come first; `None`: none was named, and none is guessed.
    pub serve: Option<ServedFirst<'a>>,
    /// What the recording is.
    pub recording: ShownRecording<'a>,
    /// The part of the recording that was looked at.
    pub window: ShownWindow,
    /// The analyses that were asked for.
    pub analyses: Vec<ShownAnalysis>,
}

/// The server whose rows come first.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct ServedFirst<'a> {
    /// Its name in sentences.
    pub name: &'a str,
    /// Its programs.
    pub programs: &'a [String],
    /// Why schedlab takes it for the server; `None`: the user named it.
    pub guessed: Option<&'a str>,
}

/// Which task waited for a CPU, and what ran meanwhile.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct ShownAnswer<'a> {
    /// The answer in two sentences, which a terminal shows first.
    pub sentences: [String; 2],
    /// The task that waited longest in all: a name, a process, a control group or a thread.
    pub waiting: &'a str,
    /// How long it waited in all.
    pub waited_ns: u64,
    /// The time that was looked at.
    pub of_ns: u64,
    /// The task that was on the CPU for the largest part of that wait.
    pub running: &'a str,
    /// How long that task was on the CPU meanwhile.
    pub time_ns: u64,
    /// The longest wait; `None`: none is over.
    pub longest: Option<LongestWait<'a>>,
}

/// The longest wait of the task that waited longest in all.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct LongestWait<'a> {
    /// Length of the wait.
    pub waited_ns: u64,
    /// Its beginning.
    pub from_ns: u64,
    /// The task that ran for most of it.
    pub during: &'a str,
}

/// What a recording is.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct ShownRecording<'a> {
    /// How events were captured: `perf-tracepoints`, `perf-script`, `simulator`, and others.
    pub backend: &'a str,
    /// Release of the kernel (`uname -r`); of a simulated recording the scheduler's name.
    pub kernel: &'a str,
    /// Model of the processor, and the hypervisor.
    pub machine: &'a str,
    /// What the recording shows and how it was made, as its author wrote it.
    pub note: &'a str,
    /// Number of CPUs.
    pub cpus: usize,
    /// Number of tasks.
    pub tasks: usize,
    /// Number of events.
    pub events: usize,
    /// Length of the recording.
    pub duration_ns: u64,
    /// The clock of the events.
    pub clock: &'a str,
    /// What that clock showed at the start of the recording.
    pub clock_start_ns: u64,
    /// What the recorder was able to see.
    pub capabilities: &'a Capabilities,
    /// What was repaired when the recording was read.
    pub repairs: &'a Repairs,
    /// The sched_ext scheduler; `None`: none was loaded.
    pub sched_ext: Option<ShownSchedExt<'a>>,
}

/// The sched_ext scheduler that was loaded while a recording was made.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct ShownSchedExt<'a> {
    /// Name of the scheduler that had tasks of the recording; `None`: it had none of them.
    pub scheduler: Option<&'a str>,
    /// What /sys/kernel/sched_ext held at the beginning.
    pub begin: Option<&'a SchedExt>,
    /// What it held at the end.
    pub end: Option<&'a SchedExt>,
    /// The same in words.
    pub words: String,
}

/// The part of a recording that was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct ShownWindow {
    /// Its beginning.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
}

/// What an analysis found.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct ShownAnalysis {
    /// Its option on the command line.
    pub name: String,
    /// Its tables: each is a list of rows, a row has a field for each column.
    pub tables: BTreeMap<String, Vec<BTreeMap<String, Value>>>,
    /// What the tables say, in two sentences; `None` for listings, and where the answer to the
    /// whole speaks.
    pub answer: Option<String>,
    /// What a reader must know about the numbers.
    pub notes: Vec<String>,
}

impl<'a> ShownAnswer<'a> {
    /// Returns an answer as JSON has it; `clock` is added to moments.
    pub fn new(answer: &'a Answer, clock: u64) -> ShownAnswer<'a> {
        let longest = answer.longest.as_ref().map(|(case, during)| LongestWait {
            waited_ns: case.length().0,
            from_ns: case.from.0 + clock,
            during,
        });
        ShownAnswer {
            sentences: answer.sentences(),
            waiting: &answer.waiting,
            waited_ns: answer.waited.0,
            of_ns: answer.of.0,
            running: &answer.running,
            time_ns: answer.meanwhile.0,
            longest,
        }
    }
}

impl<'a> From<&'a Recording> for ShownRecording<'a> {
    fn from(recording: &'a Recording) -> ShownRecording<'a> {
        let header = &recording.header;
        ShownRecording {
            backend: &header.backend,
            kernel: &header.kernel,
            machine: &header.machine,
            note: &header.note,
            cpus: header.topology.cpus(),
            tasks: header.tasks.len(),
            events: recording.events.len(),
            duration_ns: recording.duration.0,
            clock: &header.clock,
            clock_start_ns: header.clock_start_ns,
            capabilities: &header.capabilities,
            repairs: &recording.repairs,
            sched_ext: header.ext_words().map(|words| ShownSchedExt {
                scheduler: header.ext_scheduler(),
                begin: header.sched_ext.as_ref(),
                end: header.sched_ext_end.as_ref(),
                words,
            }),
        }
    }
}

impl ShownWindow {
    /// Returns the part of a recording that was looked at; `clock` is added to moments.
    pub fn new(recording: &Recording, scope: &Scope, clock: u64) -> ShownWindow {
        ShownWindow { from_ns: scope.from.0 + clock, to_ns: scope.end(recording).0 + clock }
    }
}
