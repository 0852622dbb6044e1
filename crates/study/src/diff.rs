//! `schedlab diff`: two recordings, or two results of `compare`, task by task and cgroup by cgroup.
//!
//! Of recordings every number gets an interval from a block bootstrap: the recording is cut into
//! windows of equal length, and whole windows are drawn with replacement, so that what happens
//! within a window stays together. The intervals of all numbers of a report hold together with 95 %
//! confidence (Bonferroni), so that two equal runs are called equal. They know only the variation
//! within each recording; of two folders of recordings they know how much the recordings of a
//! folder differ.

mod bootstrap;
mod recording;
pub mod study;
pub mod totals;
mod verdict;

pub use bootstrap::Alone;
pub(crate) use bootstrap::lacks as few_samples;

use crate::StudyError;
use crate::change::Judgement;
use crate::compare::Ended;
use crate::gate::{Evidence, Gate, GateOutcome};
use crate::metric::Metric;
use crate::result::Verdict;
use crate::together::Together;
use schedlab_trace::Repairs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Value of [`Diff::schema`].
pub const SCHEMA: &str = "schedlab-diff/1";

/// How to compare.
#[derive(Clone, PartialEq, Debug)]
pub struct DiffOptions {
    /// Changes smaller than this part are called equal, however sure they are.
    pub least: f64,
    /// Windows into which each recording is cut; at least 8.
    pub windows: usize,
    /// Seed of the bootstrap: equal seeds give equal intervals.
    pub seed: u64,
    /// Conditions that must not be met.
    pub gates: Vec<Gate>,
    /// How the tasks of recordings are taken together; by name their control groups are subjects,
    /// too.
    pub by: Together,
}

impl Default for DiffOptions {
    fn default() -> DiffOptions {
        DiffOptions {
            least: 0.05,
            windows: 40,
            seed: 1,
            gates: Vec::new(),
            by: Together::default(),
        }
    }
}

/// The result. `docs/exchange-formats.md` describes every field.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Diff {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// What stood first.
    pub before: Side,
    /// What stood second.
    pub after: Side,
    /// What it comes to.
    pub verdict: Verdict,
    /// Who is in both.
    pub subjects: Vec<Subject>,
    /// Names that only the first has.
    pub gone: Vec<String>,
    /// Names that only the second has.
    pub new: Vec<String>,
    /// What came of the gates, one entry for each subject that a gate covers.
    pub gates: Vec<Gated>,
    /// What a reader must know to judge the numbers.
    pub notes: Vec<String>,
}

/// One of the two inputs.
#[derive(Clone, PartialEq, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct Side {
    /// The file or folder.
    pub file: String,
    /// How many recordings; 0 for results.
    #[serde(default)]
    pub recordings: usize,
    /// Length of the recordings together, or of each run.
    pub duration_ns: u64,
    /// Length of a window of the bootstrap; 0 for results.
    pub window_ns: u64,
    /// What was repaired when it was read; recordings only.
    pub repairs: Option<Repairs>,
    /// Under which schedulers the recordings were made; empty for results.
    #[serde(default)]
    pub schedulers: Vec<Recorded>,
}

/// A scheduler under which recordings of one side were made.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Recorded {
    /// Name of the sched_ext scheduler that had their tasks; missing where the kernel's own did.
    pub sched_ext: Option<String>,
    /// How many recordings.
    pub recordings: usize,
    /// In how many of them a sched_ext scheduler came or went while they were made.
    pub changed: usize,
}

/// Tasks of one name, or one cgroup, or one subject of a result.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Subject {
    /// `task`, `cgroup`, `unit`, `container`, `pod`, `process`, or the kind of a result's subject.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// How many tasks, before and after.
    pub tasks: [usize; 2],
    /// Its numbers.
    pub cells: Vec<Cell>,
}

/// One number, before and after.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Cell {
    /// What. Shares are parts of one CPU, times nanoseconds, the rest per second.
    pub metric: Metric,
    /// Before.
    pub before: f64,
    /// After.
    pub after: f64,
    /// Samples behind it, before and after; 0 where it is not a distribution.
    pub samples: [u64; 2],
    /// Interval of the change, in the metric's unit; missing where it cannot be given.
    pub interval: Option<[f64; 2]>,
    /// What to think of it.
    pub judgement: Judgement,
    /// Why it cannot be judged, where that is so.
    pub lacks: Option<String>,
    /// What a gate thinks of it, which asked for no other; of several recordings.
    #[serde(skip)]
    pub(crate) alone: Option<Alone>,
}

/// A gate and one subject.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Gated {
    /// As given.
    pub gate: String,
    /// What it is about.
    pub subject: String,
    /// Whether it failed: the condition is met.
    pub outcome: GateOutcome,
    /// What was found, in words.
    pub got: String,
}

impl Diff {
    /// Whether a gate failed.
    pub fn failed(&self) -> bool {
        self.gates.iter().any(|gated| gated.outcome == GateOutcome::Met)
    }

    /// Whether a gate could not be judged.
    pub fn cannot_say(&self) -> bool {
        self.gates.iter().any(|gated| gated.outcome == GateOutcome::CannotSay)
    }

    /// Whether any number changed by more than chance.
    pub fn told_apart(&self) -> bool {
        let told = |cell: &Cell| !matches!(cell.judgement, Judgement::Same | Judgement::CannotTell);
        self.subjects.iter().flat_map(|subject| &subject.cells).any(told)
    }
}

/// Compares two files: both recordings (`.slt`), or both results of `compare --json`.
///
/// # Errors
/// A file that cannot be read, or two files of different kinds.
pub fn diff(before: &Path, after: &Path, options: &DiffOptions) -> Result<Diff, StudyError> {
    diff_until(before, after, options, &|| false)
}

/// As [`diff`], until `ended`: then it is [`StudyError::Stopped`].
///
/// # Errors
/// As for [`diff`].
pub fn diff_until(
    before: &Path,
    after: &Path,
    options: &DiffOptions,
    ended: Ended<'_>,
) -> Result<Diff, StudyError> {
    let is_json = |path: &Path| path.extension().is_some_and(|extension| extension == "json");
    let mut diff = match (is_json(before), is_json(after)) {
        (false, false) => recording::diff(before, after, options, ended)?,
        (true, true) => study::diff(before, after)?,
        _ => {
            return Err(StudyError::Option(format!(
                "{} and {}: give two recordings (.slt) or two results of `compare --json` (.json)",
                before.display(),
                after.display()
            )));
        }
    };
    diff.gates =
        options.gates.iter().flat_map(|gate| judge(&diff, gate, options.gates.len())).collect();
    diff.verdict = verdict::verdict(&diff);
    Ok(diff)
}

/// One entry for each subject that `gate`, one of `gates`, covers; one that says so when it covers
/// none.
fn judge(diff: &Diff, gate: &Gate, gates: usize) -> Vec<Gated> {
    let one = |subject: &str, outcome, got: String| Gated {
        gate: gate.to_string(),
        subject: subject.to_owned(),
        outcome,
        got,
    };
    let covered: Vec<&Subject> =
        diff.subjects.iter().filter(|subject| gate.covers(&subject.name)).collect();
    if covered.is_empty() {
        let name = gate.subject.as_deref().unwrap_or("*");
        let there = |names: &[String]| names.iter().any(|other| gate.covers(other));
        let why = match (there(&diff.gone), there(&diff.new)) {
            (true, _) => "is only in the first",
            (_, true) => "is only in the second",
            _ => "is in neither",
        };
        return vec![one(name, GateOutcome::CannotSay, format!("{name} {why}"))];
    }
    let judged = |subject: &&Subject| {
        let Some(cell) = subject.cells.iter().find(|cell| cell.metric == gate.metric) else {
            let got = format!(
                "{} was not measured: nothing was counted, or the input lacks it",
                gate.metric
            );
            return one(&subject.name, GateOutcome::CannotSay, got);
        };
        let evidence = Evidence {
            before: Some(cell.before),
            after: Some(cell.after),
            told_apart: match &cell.alone {
                Some(alone) => alone.is_told(gates * covered.len()),
                None => !matches!(cell.judgement, Judgement::CannotTell | Judgement::Same),
            },
            lacks: cell
                .lacks
                .as_deref()
                .filter(|_| cell.metric.to_string().split(' ').nth(1) != Some("max")),
        };
        let outcome = gate.judge(&evidence);
        let (before, after) = (cell.metric.show(cell.before), cell.metric.show(cell.after));
        let mut got = format!("{before} -> {after}");
        if outcome == GateOutcome::CannotSay {
            got += &format!(
                ": {}",
                cell.lacks.as_deref().unwrap_or("the change is not larger than chance")
            );
        }
        one(&subject.name, outcome, got)
    };
    covered.iter().map(judged).collect()
}
