//! The result of a comparison, as one versioned type. `docs/result-schema.md` describes every
//! field.

use crate::change::Change;
use crate::compare::Served;
use crate::deploy::Deployment;
use crate::deviation::Deviation;
use crate::error_parts::ErrorBar;
use crate::gate::GateOutcome;
use crate::headline::Figure;
use crate::measurements::Kind;
use crate::metric::Metric;
use crate::no_effect::NoEffect;
use crate::places::Places;
use crate::serve::Guess;
use schedlab_model::{Ns, random};
use schedlab_report::{Cdf, LaneWait, Lanes, Matrix, Series, Table};
use schedlab_stats::Estimate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Value of [`Study::schema`]. The number grows when a field changes its meaning or goes away.
pub const SCHEMA: &str = "schedlab-compare/1";

/// A comparison of schedulers and variants over one scenario or recording.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Study {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Version of schedlab that made it.
    pub version: String,
    /// What was compared.
    pub input: Input,
    /// Seeds of the runs of each row.
    pub seeds: Vec<u64>,
    /// Virtual time of each run.
    pub duration_ns: u64,
    /// The part at the beginning that is not counted.
    pub warmup_ns: u64,
    /// What it comes to, in two sentences.
    pub verdict: Verdict,
    /// The numbers that it is about, the most important first: named by the scenario, else those
    /// that changed most.
    #[serde(default)]
    pub headline: Vec<Figure>,
    /// How well the method reproduces the recording; recordings only.
    pub self_replay: Option<SelfReplay>,
    /// The server that the question is about, where one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<Served>,
    /// The program that schedlab takes for the server, where none was named: its table comes first.
    /// Nothing else follows from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guess: Option<Guess>,
    /// Predictions that were checked against a second recording.
    pub predictions: Vec<Prediction>,
    /// One for each scheduler and variant; the first is the baseline.
    pub rows: Vec<Row>,
    /// The scenario's expectations and what came of them.
    pub expectations: Vec<Checked>,
    /// What came of `--fail-if`, one entry for each row and subject that a gate covers.
    #[serde(default)]
    pub gates: Vec<Gated>,
    /// What a reader must know to judge the numbers.
    pub notes: Vec<String>,
    /// Named constants of the machine model in use, in nanoseconds; only those that are not zero.
    pub costs: Vec<(String, u64)>,
    /// Which numbers of the scenario were fitted, and to what, in its author's words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fitted: Vec<String>,
    /// The kernel sections of the scenario's programs: class, kind, distribution.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<String>,
    /// Distributions and schedules behind the numbers, when they were asked for; not part of the
    /// JSON.
    #[serde(skip)]
    pub detail: Option<Box<Detail>>,
    /// How many runs are missing because they were ended before they were finished
    /// ([`Options::keep_finished`](crate::compare::Options::keep_finished)); not part of the JSON.
    #[serde(skip)]
    pub unfinished: usize,
}

/// What was compared.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Input {
    /// `scenario` or `recording`.
    pub kind: InputKind,
    /// File, or name in the gallery.
    pub name: String,
    /// One line about it.
    pub title: String,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Ticks per second.
    pub hz: u32,
    /// Beginning and end of the part of a recording that was simulated, nanoseconds since its
    /// start; missing: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ns: Option<[u64; 2]>,
}

impl Input {
    /// Returns which part of a recording was simulated, in brackets; empty: all of it.
    pub fn part(&self) -> String {
        self.window_ns.map_or_else(String::new, |[from, to]| {
            format!(" (the recording from {} to {})", Ns(from), Ns(to))
        })
    }
}

/// What kind of input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InputKind {
    /// Written by hand.
    Scenario,
    /// Made from a real machine.
    Recording,
}

/// Two sentences.
#[derive(Clone, PartialEq, Eq, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct Verdict {
    /// Who gains what, at what cost.
    pub outcome: String,
    /// How sure that is.
    pub certainty: String,
    /// Place in `rows` of the one that the outcome is about, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<usize>,
    /// What the best bound reaches, and what the same setting gives under other schedulers of the
    /// table: sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
}

/// One scheduler with one variant.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Row {
    /// Scheduler with its knobs.
    pub scheduler: String,
    /// Variant; the unchanged workload has a name too.
    pub variant: String,
    /// Classes, sources and channels.
    pub subjects: Vec<Subject>,
    #[serde(skip)]
    /// Where each subject is.
    pub places: Places,
    /// Hash of the event stream of each seed, in hexadecimal. Equal inputs give equal hashes.
    pub event_hashes: Vec<String>,
    /// What happened that a reader must know (a knob that does not exist, tasks that wait for
    /// ever).
    pub notes: Vec<String>,
    /// Nice values and policies that the row sets although no other task of the same group
    /// competes: they change no share of CPU time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub no_effect: Vec<NoEffect>,
    /// Schedulers in BPF, with three seeds or more: numbers that change more with when ticks come
    /// and with what instructions and calls cost than with seeds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timing: Vec<TimingRange>,
    /// Why the row is no setting of the first row's machine but a bound: it has more CPUs or fewer
    /// tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    /// Why the row is about another load than the first row: it has other tasks, or they have other
    /// work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<String>,
    /// Place of the first row with the load of this one; missing: the first of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_of_load: Option<usize>,
    /// How much the setting asks of the machine's owner, from 0 (nothing) to 7 (another system).
    #[serde(default)]
    pub mildness: u8,
    /// How to make the setting without schedlab; missing where nothing is set, and for bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy: Option<Deployment>,
    /// What agents did, where the scheduler ran behind them; first seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegation: Option<crate::delegation::DelegationResult>,
}

/// A number that depends on timing.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct TimingRange {
    /// What it is of.
    pub kind: Kind,
    /// The name of that.
    pub subject: String,
    /// The number.
    pub metric: Metric,
    /// Its least median over the seeds, of those with each kind of ticks and prices.
    pub low: f64,
    /// Its greatest.
    pub high: f64,
}

/// One class of tasks, source or channel in one row.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Subject {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// How many tasks.
    pub tasks: usize,
    /// Whether the variant changes it.
    pub changed: bool,
    /// Recordings: its activations are no requests, because several share one: their number and
    /// length say nothing about work done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merges: bool,
    /// Its measurements; metrics of which nothing was counted are missing.
    pub cells: Vec<Cell>,
}

/// One measurement.
#[derive(Clone, Copy, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Cell {
    /// What. Shares are parts of one CPU, times nanoseconds, the rest per second.
    pub metric: Metric,
    /// Its value over the seeds.
    pub value: Estimate,
    /// Recordings: half width of the interval that holds what a second recording would show (95 %),
    /// before it is cut to what is possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Between which values the number lies, and what its error is made of: of a recording what a
    /// second one would show, of a scenario what the seeds say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_bar: Option<ErrorBar>,
    /// Of percentiles: where the true one lies, over the values of all runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// Against the first row; missing in the first row.
    pub change: Option<Change>,
}

/// Between which values a percentile lies with 95 %, by order statistics.
#[derive(Clone, Copy, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end in nanoseconds; missing where the values are too few for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end in nanoseconds; missing where the values are too few for one: the percentile may
    /// be larger than all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// Values of all runs together.
    pub samples: u64,
}

/// The recording against its own simulation under the scheduler it was recorded under.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct SelfReplay {
    /// Kernel of the recording.
    pub kernel: String,
    /// The preset that covers it, with its knobs.
    pub scheduler: String,
    /// Why that one.
    pub why: String,
    /// What the workload was made from: `wakeups` or `messages`.
    #[serde(default = "by_wakeups")]
    pub replay: String,
    /// Rules beyond what was recorded that the replay by messages used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// Wakeups by tasks, or by a softirq inside a task's system call.
    pub wakes_by_tasks: u64,
    /// Wakeups by softirqs after interrupts, and by ksoftirqd.
    pub wakes_by_softirq: u64,
    /// Wakeups by interrupts and timers.
    pub wakes_by_hardirq: u64,
    /// Wakeups whose waker is unknown.
    pub wakes_unknown: u64,
    /// Wakeups from outside, in thousandths.
    pub outside_permille: u64,
    /// Recorded against simulated, class by class.
    pub subjects: Vec<Replayed>,
    /// What each class would have of a CPU without the tasks that never end: two readings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alone: Vec<Alone>,
    /// What each class had in the second half, and what the replay of the first half has there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub second_half: Vec<SecondHalf>,
    /// What was found in the recording and what had to be assumed, as text.
    pub assumptions: String,
    /// Settings of the recorded kernel that the model does not have.
    pub left_out: Vec<String>,
    /// Whether the error is small enough for the rest to mean something.
    pub trusted: bool,
    /// Why not.
    pub distrust: Vec<String>,
}

/// Results from before there were two.
fn by_wakeups() -> String {
    "wakeups".to_owned()
}

/// A variant that was also recorded: what was predicted for it, and what came.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Prediction {
    /// The variant.
    pub variant: String,
    /// The scheduler of the row.
    pub scheduler: String,
    /// The recording that shows what came.
    pub file: String,
    /// Recorded there against predicted here, class by class.
    pub subjects: Vec<Replayed>,
}

/// What a class would have of a CPU without the tasks that never end, as parts of one CPU: as the
/// recording's own moments of less and more contention say, and as simulated.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Alone {
    /// Name of the class.
    pub name: String,
    /// What it had in the recording.
    pub recorded: f64,
    /// The least that the recording allows.
    pub low: f64,
    /// What the recording says.
    pub likely: f64,
    /// The most that the recording allows.
    pub high: f64,
    /// In the simulation.
    pub simulated: f64,
}

/// What a class had in the second half of a recording, as parts of one CPU, and what the replay of
/// its first half has there.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct SecondHalf {
    /// Name of the class.
    pub name: String,
    /// In the recording.
    pub recorded: f64,
    /// In the simulation, of the first seed.
    pub simulated: f64,
}

/// One class of the self-replay.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Replayed {
    /// Name of the class.
    pub name: String,
    /// How many tasks.
    pub tasks: usize,
    /// Its measurements.
    pub cells: Vec<ReplayedCell>,
}

impl Replayed {
    /// The cell of this metric.
    pub fn cell(&self, metric: Metric) -> Option<&ReplayedCell> {
        self.cells.iter().find(|cell| cell.metric == metric)
    }
}

/// One measurement of the self-replay.
#[derive(Clone, Copy, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct ReplayedCell {
    /// What.
    pub metric: Metric,
    /// In the recording.
    pub recorded: f64,
    /// In the simulation, median over the seeds.
    pub simulated: f64,
    /// `simulated - recorded`.
    pub difference: f64,
    /// Smallest in the simulation over the seeds.
    #[serde(default)]
    pub low: f64,
    /// Largest in the simulation over the seeds.
    #[serde(default)]
    pub high: f64,
    /// Of percentiles: where the true one lies, over the recorded values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_interval: Option<Interval>,
    /// The same over the values of all runs; of a prediction it starts from the recording as
    /// `simulated` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated_interval: Option<Interval>,
}

/// One expectation and one cell of the table that it speaks about.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Checked {
    /// The expectation in words.
    pub expectation: String,
    /// Line in the scenario.
    pub line: usize,
    /// Scheduler of the row.
    pub scheduler: String,
    /// Variant of the row.
    pub variant: String,
    /// The program or task that it is about.
    pub subject: String,
    /// What came out, as people write it; `nothing` when nothing was counted.
    pub got: String,
    /// Whether it holds.
    pub holds: bool,
    /// What was published for this, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
    /// How far schedlab's is from that, where it is a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<Deviation>,
    /// Why it differs from that, or what it rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differs: Option<String>,
}

/// A gate, and one row and subject that it is about.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Gated {
    /// As given.
    pub gate: String,
    /// Scheduler of the row.
    pub scheduler: String,
    /// Variant of the row.
    pub variant: String,
    /// The program or task that it is about.
    pub subject: String,
    /// Whether it failed: the condition is met.
    pub outcome: GateOutcome,
    /// What was found, in words.
    pub got: String,
}

impl Study {
    /// Whether a gate failed.
    pub fn failed(&self) -> bool {
        self.gates.iter().any(|gated| gated.outcome == GateOutcome::Met)
    }

    /// Whether a gate could not be judged.
    pub fn cannot_say(&self) -> bool {
        self.gates.iter().any(|gated| gated.outcome == GateOutcome::CannotSay)
    }

    /// Whether every expectation holds.
    pub fn holds(&self) -> bool {
        self.expectations.iter().all(|checked| checked.holds)
    }

    /// How the recommended row is set without schedlab.
    pub fn recommended(&self) -> Option<&Deployment> {
        self.rows.get(self.verdict.row?)?.deploy.as_ref()
    }

    /// Returns one hash of the event streams of all rows and seeds, in hexadecimal.
    pub fn events_hash(&self) -> String {
        let hashes = self.rows.iter().flat_map(|row| &row.event_hashes);
        let hash = hashes.fold(0, |all, one| {
            random::mix(all ^ u64::from_str_radix(one, 16).unwrap_or_default())
                .wrapping_add(random::GOLDEN)
        });
        format!("{hash:016x}")
    }

    /// Whether the numbers mean something.
    pub fn trusted(&self) -> bool {
        self.self_replay.as_ref().is_none_or(|replay| replay.trusted)
    }
}

impl Row {
    /// The subject of this kind and name.
    pub fn find(&self, kind: Kind, name: &str) -> Option<&Subject> {
        self.places.find(&self.subjects, |one| (one.kind, &one.name), (kind, name))
    }
}

impl Subject {
    /// The cell of this metric.
    pub fn cell(&self, metric: Metric) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.metric == metric)
    }
}

/// Distributions and schedules behind the numbers of a [`Study`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Detail {
    /// One for each subject that is shown first.
    pub distributions: Vec<Cdf>,
    /// The recording, and each row with its first seed.
    pub lanes: Lanes,
    /// Which program delayed which: the name of the run, and its matrix.
    pub blame: Vec<(String, Matrix)>,
    /// Run-queue length of all runs.
    pub queue: Option<Series>,
    /// The longest waits, run by run.
    pub worst: Vec<Table>,
    /// The longest waits of the first run.
    pub longest: Vec<LaneWait>,
    /// Whether they are those of the server only.
    pub longest_of_server: bool,
}
