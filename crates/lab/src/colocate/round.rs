//! What one round measured: the values of the goals, and the figures of the table.

use super::blame::{Blamed, blame};
use super::client::ClientMeasurements;
use super::error::ColocateError;
use super::plan::Goal;
use super::samples::too_few;
use crate::process_tasks::of_processes;
use schedlab_model::EventKind;
use schedlab_study::measurements::SubjectData;
use schedlab_study::metric::{Metric, Stat};
use schedlab_trace::Recording;
use schedlab_trace::analysis::{Summary, TaskSummary};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;

/// The rows of the table of both settings, besides the goals.
pub const FIGURES: [(WorkloadRole, Metric); 6] = [
    (WorkloadRole::Server, Metric::Latency(Stat::Percentile(50_000))),
    (WorkloadRole::Server, Metric::Latency(Stat::Percentile(99_000))),
    (WorkloadRole::Server, Metric::Latency(Stat::Max)),
    (WorkloadRole::Server, Metric::Response(Stat::Percentile(99_000))),
    (WorkloadRole::Server, Metric::Share),
    (WorkloadRole::Batch, Metric::Share),
];

/// The workload that a figure is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadRole {
    /// The server, which the goals are about.
    Server,
    /// The batch work.
    Batch,
}

/// The values of one round.
#[derive(Clone, PartialEq, Debug, Default, JsonSchema, Serialize)]
pub struct Round {
    /// The value of each goal, in its metric's unit; `null`: nothing was seen of it.
    pub goals: Vec<Option<f64>>,
    /// Why the value of a goal cannot be judged.
    pub lacks: Vec<Option<String>>,
    /// The values of [`FIGURES`].
    pub figures: Vec<Option<f64>>,
    /// The part of the CPU time left by the server that the batch work got.
    pub batch_of_left: Option<f64>,
    /// The programs that the server waited for.
    pub blame: Vec<Blamed>,
    /// What schedlab's own client measured.
    pub client: Option<ClientMeasurements>,
    /// Wakeups of the server whose wait was recorded.
    pub wakeups: u64,
    /// Events that were lost.
    pub lost: u64,
}

/// The processes of server and batch work.
pub(super) struct WorkloadProcesses {
    pub(super) server: BTreeSet<u32>,
    pub(super) batch: BTreeSet<u32>,
}

impl Round {
    /// Returns the values of a recording; `cpus` is the number of managed CPUs.
    pub(super) fn from_recording(
        recording: &Recording,
        processes: &WorkloadProcesses,
        client: Option<ClientMeasurements>,
        goals: &[Goal],
        cpus: usize,
    ) -> Result<Round, ColocateError> {
        let summary = Summary::from_recording(recording)
            .map_err(|error| ColocateError::Input(error.to_string()))?;
        let tasks = &recording.header.tasks;
        let server = of_processes(recording, &processes.server);
        let batch = of_processes(recording, &processes.batch);
        let window = summary.window;
        let sum = |counts: &dyn Fn(usize) -> bool| {
            let mut sum = TaskSummary::default();
            let chosen = (0..tasks.len()).filter(|index| counts(*index));
            chosen.for_each(|index| sum.merge(&summary.tasks[index]));
            sum
        };
        let (of_server, of_batch) = (sum(&|index| server[index]), sum(&|index| batch[index]));
        let left = (window.0 * cpus as u64).saturating_sub(of_server.run.0);
        let mut round = Round {
            batch_of_left: (left > 0).then(|| of_batch.run.0 as f64 / left as f64),
            wakeups: of_server.wake_latency.count(),
            lost: lost(recording),
            blame: blame(recording, &server, &batch),
            ..Round::default()
        };
        for goal in goals {
            if let (Some("client"), Some(seen)) = (goal.0.subject.as_deref(), &client) {
                round.goals.push(seen.value(goal.0.metric));
                round.lacks.push(seen.lacks(goal.0.metric));
                continue;
            }
            let chosen = |index: usize| match goal.0.subject.as_deref() {
                None | Some("server") => server[index],
                Some("batch") => batch[index],
                Some(name) => (server[index] || batch[index]) && tasks[index].is_named(name),
            };
            if !(0..tasks.len()).any(chosen) {
                let all = (0..tasks.len()).filter(|index| server[*index] || batch[*index]);
                let names: BTreeSet<&str> = all.map(|index| tasks[index].comm.as_str()).collect();
                let names = names.into_iter().collect::<Vec<_>>().join(", ");
                return Err(ColocateError::Input(format!(
                    "--goal '{}': no thread of the server or the batch work has that name; \
                     `server`, `batch` and these names \
                     were seen: {names}",
                    goal.0
                )));
            }
            let of_goal = sum(&chosen);
            round.lacks.push(too_few(&of_goal, goal.0.metric));
            round.goals.push(SubjectData::of_tasks("", window, of_goal).value(goal.0.metric));
        }
        let subjects = [of_server, of_batch].map(|sum| SubjectData::of_tasks("", window, sum));
        let value = |(role, metric): (WorkloadRole, Metric)| {
            subjects[usize::from(role == WorkloadRole::Batch)].value(metric)
        };
        round.figures = FIGURES.map(value).to_vec();
        round.client = client;
        Ok(round)
    }

    /// Returns what schedlab's own client measured of `metric`.
    pub fn client_value(&self, metric: Metric) -> Option<f64> {
        self.client.as_ref().and_then(|seen| seen.value(metric))
    }

    /// Returns why the value of a goal cannot be judged.
    pub(super) fn lacks_of_goal(&self, goal: usize) -> Option<&str> {
        self.lacks.get(goal).and_then(Option::as_deref)
    }
}

fn lost(recording: &Recording) -> u64 {
    let count = |kind: &EventKind| if let EventKind::Lost { count } = kind { *count } else { 0 };
    recording.events.iter().map(|event| count(&event.kind)).sum()
}
