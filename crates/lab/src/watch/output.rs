//! What `schedlab watch` prints as JSON.

use super::{LongWait, OngoingWait, TaskWaits, WatchState};
use schedlab_model::Ns;
use schedlab_study::serve::Guess;
use schedlab_trace::analysis::By;
use schemars::JsonSchema;
use serde::Serialize;

/// Version of the JSON: docs/watch-schema.md.
pub const SCHEMA: &str = "schedlab-watch/1";

/// The JSON of `watch`: what the scheduler did until now. All sums count from the start, all times
/// are nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct WatchOutput {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// Time of the last event, since the start.
    pub at_ns: u64,
    /// Time that the sums are over.
    pub window_ns: u64,
    /// How it is recorded; `None`: recording has not begun.
    pub backend: Option<&'static str>,
    /// Events that were seen.
    pub events: u64,
    /// Events that the kernel had no room for.
    pub lost: u64,
    /// CPU time of schedlab itself, as the recorder sees it.
    pub own_cpu_ns: u64,
    /// What tasks are taken together by: `name`, `process`, `cgroup`, `unit`, `container` or `pod`.
    pub by: &'static str,
    /// The program that schedlab takes for the server, which comes first on the screen; `None`:
    /// some tasks were asked for, tasks are not shown by name, or none is guessed.
    pub guess: Option<Guess>,
    /// Waits by name of the task, or by what `by` says.
    pub tasks: Vec<WatchedTask>,
    /// The longest waits that are over, the longest first.
    pub worst: Vec<WorstWait>,
    /// Waits of a millisecond and more that go on, the longest first. They are not in the sums yet.
    pub ongoing: Vec<WaitSoFar>,
    /// How long the tasks of one row ran while those of another waited.
    pub delays: Vec<Delay>,
    /// Waits that a limit caused.
    pub throttled: Vec<Throttled>,
}

/// All threads of a row: of a name, or of what `by` says.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct WatchedTask {
    /// The name, or that of the process, group, unit, container or pod; `(others)` for all beyond
    /// 2000.
    pub task: String,
    /// CPU time.
    pub cpu_ns: u64,
    /// Number of waits for a CPU that are over.
    pub waits: u64,
    /// Median of these waits.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// The two waits between which the true median lies with 95 %, by order statistics; `None` at
    /// an end: the waits are too few for it.
    pub p50_interval_ns: [Option<u64>; 2],
    /// The same of the 99th percentile.
    pub p99_interval_ns: [Option<u64>; 2],
    /// The longest wait.
    pub max_ns: u64,
    /// Sum of the waits.
    pub waited_ns: u64,
}

/// A long wait that is over.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct WorstWait {
    /// Name of the task.
    pub task: String,
    /// Its thread id.
    pub tid: u32,
    /// The row of `tasks` in which it counts.
    pub row: String,
    /// Beginning of the wait, since the start.
    pub from_ns: u64,
    /// Length of the wait.
    pub length_ns: u64,
    /// The CPU on which it ended.
    pub cpu: u32,
    /// The task that ran longest meanwhile.
    pub culprit: String,
    /// How long that task ran meanwhile.
    pub culprit_ns: u64,
    /// The limit that held the task back; `None`: no limit did.
    pub held: Option<String>,
}

/// A wait that goes on.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct WaitSoFar {
    /// Name of the task.
    pub task: String,
    /// Its thread id.
    pub tid: u32,
    /// The row of `tasks` in which it counts.
    pub row: String,
    /// Beginning of the wait, since the start.
    pub from_ns: u64,
    /// Its length until the last event.
    pub age_ns: u64,
    /// The CPU in whose run queue the task is.
    pub cpu: u32,
    /// The task that runs on that CPU; `None`: a limit holds the waiting task back.
    pub running: Option<String>,
}

/// How long the tasks of one row ran while those of another waited.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Delay {
    /// The row that waited.
    pub waited: String,
    /// The row that ran meanwhile.
    pub ran: String,
    /// How long.
    pub time_ns: u64,
}

/// How often and for how long a limit held tasks of a row back.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Throttled {
    /// The row.
    pub task: String,
    /// The limit.
    pub limit: String,
    /// Number of waits that it caused.
    pub times: u64,
    /// Their length in all.
    pub time_ns: u64,
}

/// Returns the word for how tasks are taken together.
pub fn by_word(by: Option<By>) -> &'static str {
    match by {
        None | Some(By::Thread | By::Name | By::Guest) => "name",
        Some(By::Process) => "process",
        Some(By::Cgroup) => "cgroup",
        Some(By::Unit) => "unit",
        Some(By::Container) => "container",
        Some(By::Pod) => "pod",
    }
}

impl From<&WatchState> for WatchOutput {
    fn from(state: &WatchState) -> WatchOutput {
        let delay = |((waited, ran), time): (&(String, String), &Ns)| Delay {
            waited: waited.clone(),
            ran: ran.clone(),
            time_ns: time.0,
        };
        let throttled = |((task, limit), (times, time)): (&(String, String), &(u64, Ns))| {
            Throttled { task: task.clone(), limit: limit.clone(), times: *times, time_ns: time.0 }
        };
        WatchOutput {
            schema: SCHEMA,
            at_ns: state.now.0,
            window_ns: state.window().0,
            backend: state.start.as_ref().map(|start| start.capabilities.backend.name()),
            events: state.events,
            lost: state.lost,
            own_cpu_ns: state.own.0,
            by: by_word(state.by),
            guess: state.guess.clone(),
            tasks: state.lines.iter().map(|(name, line)| WatchedTask::new(name, line)).collect(),
            worst: state.worst.iter().map(WorstWait::from).collect(),
            ongoing: state.ongoing.iter().map(WaitSoFar::from).collect(),
            delays: state.delays.iter().map(delay).collect(),
            throttled: state.throttled.iter().map(throttled).collect(),
        }
    }
}

impl WatchedTask {
    fn new(name: &str, line: &TaskWaits) -> WatchedTask {
        let waits = &line.waits;
        let interval = |per_million| {
            let (low, high) = waits.interval(per_million);
            [low, high].map(|end| end.map(|ns| ns.0))
        };
        WatchedTask {
            task: name.to_owned(),
            cpu_ns: line.run.0,
            waits: waits.count(),
            p50_ns: waits.p50().0,
            p99_ns: waits.p99().0,
            p50_interval_ns: interval(500_000),
            p99_interval_ns: interval(990_000),
            max_ns: waits.max().0,
            waited_ns: waits.sum().0,
        }
    }
}

impl From<&LongWait> for WorstWait {
    fn from(wait: &LongWait) -> WorstWait {
        WorstWait {
            task: wait.task.0.clone(),
            tid: wait.task.1,
            row: wait.row.clone(),
            from_ns: wait.from.0,
            length_ns: wait.length.0,
            cpu: wait.cpu.0,
            culprit: wait.culprit.0.clone(),
            culprit_ns: wait.culprit.1.0,
            held: wait.held.clone(),
        }
    }
}

impl From<&OngoingWait> for WaitSoFar {
    fn from(wait: &OngoingWait) -> WaitSoFar {
        WaitSoFar {
            task: wait.task.0.clone(),
            tid: wait.task.1,
            row: wait.row.clone(),
            from_ns: wait.from.0,
            age_ns: wait.age.0,
            cpu: wait.cpu.0,
            running: wait.running.clone(),
        }
    }
}
