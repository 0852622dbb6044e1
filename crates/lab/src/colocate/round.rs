//! What one round measured.

use super::blame::{Blamed, blame};
use super::client::Seen;
use super::{ColocateError, Goal};
use schedlab_model::EventKind;
use schedlab_model::text::glob;
use schedlab_study::gate::Evidence;
use schedlab_study::measurements::SubjectData;
use schedlab_study::metric::{Metric, Stat};
use schedlab_trace::Recording;
use schedlab_trace::analysis::{Summary, TaskSummary};
use serde::Serialize;
use std::collections::BTreeSet;

/// The rows of the table before/after, besides the goals.
pub const FIGURES: [(Side, Metric); 6] = [
    (Side::Server, Metric::Latency(Stat::Percentile(50_000))),
    (Side::Server, Metric::Latency(Stat::Percentile(99_000))),
    (Side::Server, Metric::Latency(Stat::Max)),
    (Side::Server, Metric::Response(Stat::Percentile(99_000))),
    (Side::Server, Metric::Share),
    (Side::Batch, Metric::Share),
];

/// Whose figure it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// Who has the goal.
    Server,
    /// Who takes the rest.
    Batch,
}

/// The values of one round.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Round {
    /// The value of each goal, in its metric's unit; `null`: it was not seen.
    pub goals: Vec<Option<f64>>,
    /// Why the value of a goal cannot be judged.
    pub lacks: Vec<Option<String>>,
    /// By [`FIGURES`].
    pub figures: Vec<Option<f64>>,
    /// The part that the batch work got of the CPU time that the server left.
    pub batch_of_left: Option<f64>,
    /// Who the server waited for.
    pub blame: Vec<Blamed>,
    /// What our own client saw.
    pub client: Option<Seen>,
    /// Wakeups of the server whose wait was seen.
    pub wakeups: u64,
    /// Events that were lost.
    pub lost: u64,
}

/// The processes of both parties.
pub(super) struct Parties {
    pub(super) server: BTreeSet<u32>,
    pub(super) batch: BTreeSet<u32>,
}

impl Round {
    /// Of a recording over `cpus` managed CPUs.
    pub(super) fn of(
        recording: &Recording,
        parties: &Parties,
        client: Option<Seen>,
        goals: &[Goal],
        cpus: usize,
    ) -> Result<Round, ColocateError> {
        let summary = Summary::of(recording).map_err(|error| ColocateError::Input(error.to_string()))?;
        let tasks = &recording.header.tasks;
        let server = members(recording, &parties.server);
        let batch = members(recording, &parties.batch);
        let window = summary.window;
        let sum = |who: &dyn Fn(usize) -> bool| {
            let mut sum = TaskSummary::default();
            let chosen = (0..tasks.len()).filter(|index| who(*index));
            chosen.for_each(|index| sum.merge(&summary.tasks[index]));
            sum
        };
        let (of_server, of_batch) = (sum(&|index| server[index]), sum(&|index| batch[index]));
        let left = (window.0 * cpus as u64).saturating_sub(of_server.run.0);
        let mut round = Round {
            batch_of_left: (left > 0).then(|| of_batch.run.0 as f64 / left as f64),
            wakeups: of_server.wake_latency.count(),
            lost: lost(recording),
            blame: blame(recording, &server),
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
                Some(name) => (server[index] || batch[index]) && glob(name, &tasks[index].comm),
            };
            if !(0..tasks.len()).any(chosen) {
                let all = (0..tasks.len()).filter(|index| server[*index] || batch[*index]);
                let names: BTreeSet<&str> = all.map(|index| tasks[index].comm.as_str()).collect();
                let names = names.into_iter().collect::<Vec<_>>().join(", ");
                return Err(ColocateError::Input(format!(
                    "--goal '{}': nobody of the two parties has that name; `server`, `batch` and these have been \
                     seen: {names}",
                    goal.0
                )));
            }
            let of_goal = sum(&chosen);
            round.lacks.push(too_few(&of_goal, goal.0.metric));
            round.goals.push(SubjectData::of_tasks("", window, of_goal).value(goal.0.metric));
        }
        let subjects = [of_server, of_batch].map(|sum| SubjectData::of_tasks("", window, sum));
        let value = |(side, metric): (Side, Metric)| subjects[usize::from(side == Side::Batch)].value(metric);
        round.figures = FIGURES.map(value).to_vec();
        round.client = client;
        Ok(round)
    }

    /// What our own client says of `metric`.
    pub fn of_client(&self, metric: Metric) -> Option<f64> {
        self.client.as_ref().and_then(|seen| seen.value(metric))
    }

    /// The evidence about a goal.
    pub(super) fn evidence(&self, goal: usize, before: Option<f64>) -> Evidence<'_> {
        let lacks = self.lacks.get(goal).and_then(Option::as_deref);
        Evidence { before, after: self.goals.get(goal).copied().flatten(), told_apart: true, lacks }
    }
}

/// By task: whether it belongs to one of `processes`, or was made by one who does.
pub(crate) fn members(recording: &Recording, processes: &BTreeSet<u32>) -> Vec<bool> {
    let tasks = &recording.header.tasks;
    let mut found: Vec<bool> = tasks.iter().map(|task| processes.contains(&task.pid)).collect();
    for event in &recording.events {
        if let EventKind::New { task, parent: Some(parent) } = event.kind
            && found.get(parent.index()) == Some(&true)
            && let Some(one) = found.get_mut(task.index())
        {
            *one = true;
        }
    }
    found
}

fn lost(recording: &Recording) -> u64 {
    let count = |kind: &EventKind| if let EventKind::Lost { count } = kind { *count } else { 0 };
    recording.events.iter().map(|event| count(&event.kind)).sum()
}

/// How many values a number of a distribution needs, so that it says something.
pub(super) fn needed(stat: Stat) -> u64 {
    match stat {
        Stat::Percentile(thousandths) => u64::from(100_000_u32.div_ceil(100_000 - thousandths)),
        _ => 10,
    }
}

/// Why a number of a distribution says nothing: a percentile needs so many values that one lies beyond it.
fn too_few(sum: &TaskSummary, metric: Metric) -> Option<String> {
    let (values, stat) = match metric {
        Metric::Latency(stat) => (&sum.wake_latency, stat),
        Metric::Wait(stat) => (&sum.preempt_wait, stat),
        Metric::Response(stat) => (&sum.response, stat),
        Metric::Run(stat) => (&sum.run_length, stat),
        _ => return None,
    };
    let needed = needed(stat);
    let count = values.count();
    let text = || format!("{count} values were seen and {needed} are needed");
    (count < needed).then(text)
}
