//! Predictions against reality: recordings of a workload, a change, and what was recorded after
//! that change.
//!
//! A file of pairs is TOML; `recordings/pairs/pairs.toml` is one. What came of a change is in a
//! second recording, or in the figures of one (made by [`figures`]), which are smaller.

mod beside;
mod calibration;
pub mod chore;
mod cpus;
mod large;
pub mod page;

pub use calibration::Held;
pub use large::{LargeChange, Told};
use schedlab_study::StudyError;
use schedlab_study::change::Judgement;
use schedlab_study::compare::{
    CLIENT_LOG, ClientLogSpec, Options, RecordedInput, ReplayFrom, compare_recording, interval_of,
    measured_in,
};
use schedlab_study::error_parts::ErrorBar;
use schedlab_study::measurements::{Kind, Measured, OF_SERVICE, SubjectData};
use schedlab_study::metric::{Metric, Stat};
use schedlab_study::result::{Row, Study};
use schedlab_study::view;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The figures that are compared: what a user feels.
pub const COMPARED: [Metric; 4] = [
    Metric::Share,
    Metric::Throughput,
    Metric::Latency(Stat::Percentile(99_000)),
    Metric::Response(Stat::Percentile(99_000)),
];
/// What is compared of the requests that servers answered.
const OF_REQUESTS: [Metric; 3] = [
    Metric::Throughput,
    Metric::Response(Stat::Percentile(50_000)),
    Metric::Response(Stat::Percentile(99_000)),
];
/// Classes with less of a CPU than this, before and after the change, are left out.
const MATTERS: f64 = 0.05;
/// The largest file of pairs that is read.
const FILE_MAX: u64 = 16 << 20;

/// A file of pairs.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairFile {
    /// Where the recordings come from: machine, kernel, date, commands.
    #[serde(default)]
    pub about: String,
    /// The pairs.
    #[serde(default, rename = "pair")]
    pub pairs: Vec<Pair>,
}

/// One recording and one change.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// Its name in tables.
    pub name: String,
    /// The recording before the change, beside the file of pairs.
    pub base: PathBuf,
    /// The change, as `compare --variant` has it; empty: none, the same was recorded again.
    #[serde(default)]
    pub change: String,
    /// The scheduler that was changed to, as `compare --scheduler` has it; empty: the recorded one.
    #[serde(default)]
    pub scheduler: String,
    /// The recording after the change.
    #[serde(default)]
    pub came: Option<PathBuf>,
    /// Or its figures: by class and metric, shares as parts of a CPU, times in nanoseconds, the
    /// rest a second.
    #[serde(default)]
    pub figures: BTreeMap<String, BTreeMap<Metric, f64>>,
    /// What the client counted before the change, as `compare --client-log` has it, beside the file
    /// of pairs.
    #[serde(default)]
    pub client_log: Option<PathBuf>,
    /// And requests a second that it counted after the change.
    #[serde(default)]
    pub requests_per_s: Option<f64>,
    /// The only classes that are compared (and the requests that servers answered); empty: all that
    /// matter.
    #[serde(default)]
    pub classes: Vec<String>,
    /// The server that the question is about, as `compare --serve` has it: it and what clients
    /// count are compared. Empty: all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub serve: String,
    /// Nothing was looked at, and nothing changed because of it, before the method was final.
    #[serde(default)]
    pub unseen: bool,
}

/// One figure of one class.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// The class.
    pub class: String,
    /// What.
    pub metric: Metric,
    /// Recorded before the change.
    pub before: f64,
    /// Recorded after the change.
    pub after: f64,
    /// Predicted for after the change.
    pub predicted: f64,
    /// The interval beside the prediction; `None`: activations that are no requests, of which
    /// nothing is predicted.
    pub error: Option<ErrorBar>,
    /// By what part the replay of the recording itself is off, in points for shares; `None`: it was
    /// not recorded.
    pub replayed: Option<f64>,
    /// What the prediction says of the change.
    pub judgement: Judgement,
}

impl Figure {
    /// Whether what came is inside the interval.
    pub fn holds(&self) -> bool {
        self.error.is_some_and(|bar| bar.low <= self.after && self.after <= bar.high)
    }

    /// Whether the prediction claims a change that goes the other way, or did not come at all.
    pub fn is_wrong(&self) -> bool {
        let claims = matches!(self.judgement, Judgement::Better | Judgement::Worse);
        let said = self.metric.is_better(self.predicted - self.before);
        let came = self.metric.is_better(self.after - self.before);
        claims && (self.after == self.before || said != came)
    }

    /// Whether both are the same metric of the same class.
    fn is_of(&self, other: &Figure) -> bool {
        self.class == other.class && self.metric == other.metric
    }

    /// Whether it is about the requests that were answered over a port or path.
    pub fn is_of_requests(&self) -> bool {
        self.class.starts_with(OF_SERVICE)
    }

    /// Error of the prediction: points of a CPU for shares, parts of what came for the rest.
    pub fn off(&self) -> f64 {
        off(self.metric, self.predicted, self.after)
    }
}

/// What came of one pair.
#[derive(Clone, PartialEq, Debug)]
pub struct PairResult {
    /// The pair.
    pub name: String,
    /// It was not looked at while the method was made.
    pub unseen: bool,
    /// Nothing was changed: what was recorded before and after differs by what two recordings of
    /// one setting do.
    pub unchanged: bool,
    /// Why the prediction is not to be relied on; empty: it is trusted.
    pub distrust: Vec<String>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// The verdict in words.
    pub verdict: String,
}

impl PairFile {
    /// Reads a file of pairs.
    pub fn open(path: &Path) -> Result<PairFile, StudyError> {
        let fail = |what: String| StudyError::Option(format!("{}: {what}", path.display()));
        let text = schedlab_files::read_to_string(path, FILE_MAX)
            .map_err(|error| fail(error.to_string()))?;
        toml::from_str(&text).map_err(|error| fail(error.to_string()))
    }
}

/// The figures of a recording that a [`Pair`] keeps: of every class that has a twentieth of a CPU.
pub fn figures(path: &Path) -> Result<BTreeMap<String, BTreeMap<Metric, f64>>, StudyError> {
    Ok(of_measured(&measured_in(path)?))
}

fn of_measured(measured: &Measured) -> BTreeMap<String, BTreeMap<Metric, f64>> {
    let classes = measured.subjects.iter().filter(|subject| subject.kind == Kind::Class);
    let of = |metrics: &dyn Fn(Metric) -> Option<f64>| {
        COMPARED.iter().filter_map(|&metric| Some((metric, metrics(metric)?))).collect()
    };
    classes
        .filter(|subject| subject.value(Metric::Share).is_some_and(|share| share >= MATTERS))
        .map(|subject| {
            (
                subject.name.clone(),
                of(&|metric| subject.value(metric).filter(|_| !of_few(subject, metric))),
            )
        })
        .collect()
}

/// The figures of all subjects of a kind.
fn of_kind(measured: &Measured, kind: Kind) -> Figures {
    let of = |subject: &SubjectData| {
        OF_REQUESTS
            .iter()
            .filter_map(|&metric| Some((metric, subject.value(metric)?)))
            .filter(|&(metric, _)| !of_few(subject, metric))
            .collect()
    };
    let subjects = measured.subjects.iter().filter(|subject| subject.kind == kind);
    subjects.map(|subject| (subject.name.clone(), of(subject))).collect()
}

/// Whether this is a percentile with too few values beyond it: where a server wakes twice in three
/// seconds, its p99 says nothing.
fn of_few(subject: &SubjectData, metric: Metric) -> bool {
    let (Metric::Latency(Stat::Percentile(rank)) | Metric::Response(Stat::Percentile(rank))) =
        metric
    else {
        return false;
    };
    interval_of(std::iter::once(subject), metric)
        .is_none_or(|interval| view::few_for(rank, interval.samples as f64))
}

/// Judges every pair of a folder whose name `wanted` accepts; `jobs`: simulations at once, 0 = one
/// a CPU.
///
/// # Errors
/// What cannot be read or predicted.
pub fn judge_all(
    folder: &Path,
    jobs: usize,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<PairResult>, StudyError> {
    judge_all_from(folder, ReplayFrom::default(), jobs, wanted)
}

/// As [`judge_all`], replayed from what is chosen.
///
/// # Errors
/// What cannot be read or predicted.
pub fn judge_all_from(
    folder: &Path,
    from: ReplayFrom,
    jobs: usize,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<PairResult>, StudyError> {
    let file = PairFile::open(&folder.join("pairs.toml"))?;
    let wanted = file.pairs.iter().filter(|pair| wanted(&pair.name));
    wanted.map(|pair| judge(folder, pair, from, jobs)).collect()
}

/// Predicts one pair, and lays it beside what came. `folder`: where the recordings are.
pub fn judge(
    folder: &Path,
    pair: &Pair,
    from: ReplayFrom,
    jobs: usize,
) -> Result<PairResult, StudyError> {
    let input = RecordedInput::open_from(&folder.join(&pair.base), from)?;
    let mut options = Options { jobs, ..Options::default() };
    if !pair.change.is_empty() {
        options.variants = vec![format!("{}: {}", pair.name, pair.change)];
    }
    if !pair.scheduler.is_empty() {
        options.schedulers = vec![pair.scheduler.parse().map_err(StudyError::Scheduler)?];
    }
    options.client_log = pair
        .client_log
        .as_ref()
        .map(|file| ClientLogSpec { server: None, file: folder.join(file) });
    options.serve = (!pair.serve.is_empty()).then(|| pair.serve.clone());
    let study = compare_recording(&input, None, &options, &|_, _| {})?;
    let came = match &pair.came {
        Some(path) => figures(&folder.join(path))?,
        None => pair.figures.clone(),
    };
    let before = of_measured(&input.measured());
    let mut figures = beside(&study, &before, &came, Kind::Class);
    let served = study.served.as_ref().map(|server| &server.classes);
    let wanted = |class: &String| {
        served.is_none_or(|own| own.contains(class))
            && (pair.classes.is_empty() || pair.classes.contains(class))
    };
    figures.retain(|figure| wanted(&figure.class));
    if let Some(path) = &pair.came {
        let came = of_kind(&measured_in(&folder.join(path))?, Kind::Channel);
        figures.extend(beside(
            &study,
            &of_kind(&input.measured(), Kind::Channel),
            &came,
            Kind::Channel,
        ));
    }
    figures.extend(pair.requests_per_s.and_then(|after| requests(&study, after)));
    let distrust =
        study.self_replay.as_ref().map(|replay| replay.distrust.clone()).unwrap_or_default();
    Ok(PairResult {
        name: pair.name.clone(),
        unseen: pair.unseen,
        unchanged: pair.change.is_empty() && pair.scheduler.is_empty(),
        distrust,
        figures,
        verdict: study.verdict.outcome.clone(),
    })
}

/// What the client counted after the change, beside what is predicted from what it counted before.
fn requests(study: &Study, after: f64) -> Option<Figure> {
    let cell = |row: &Row| Some(*row.find(Kind::Source, CLIENT_LOG)?.cell(Metric::Throughput)?);
    let (base, own) = (cell(study.rows.first()?)?, cell(study.rows.last()?)?);
    Some(Figure {
        class: CLIENT_LOG.to_owned(),
        metric: Metric::Throughput,
        before: base.value.median,
        after,
        predicted: own.value.median,
        error: own.error_bar,
        replayed: None,
        judgement: own.change.map_or(Judgement::Same, |change| change.judgement),
    })
}

type Figures = BTreeMap<String, BTreeMap<Metric, f64>>;

fn beside(study: &Study, before: &Figures, came: &Figures, kind: Kind) -> Vec<Figure> {
    let Some(row) = study.rows.last() else { return Vec::new() };
    let mut classes: Vec<&String> = before.keys().chain(came.keys()).collect();
    classes.sort_unstable();
    classes.dedup();
    let mut figures = Vec::new();
    for class in classes {
        let Some(subject) = row.find(kind, class) else { continue };
        let compared = if kind == Kind::Channel { &OF_REQUESTS[..] } else { &COMPARED };
        for &metric in compared {
            let (Some(&before), Some(&after), Some(cell)) = (
                before.get(class).and_then(|of| of.get(&metric)),
                came.get(class).and_then(|of| of.get(&metric)),
                subject.cell(metric),
            ) else {
                continue;
            };
            figures.push(Figure {
                class: class.clone(),
                metric,
                before,
                after,
                predicted: cell.value.median,
                error: cell.error_bar,
                replayed: replayed(study, class, metric),
                judgement: cell.change.map_or(Judgement::Same, |change| change.judgement),
            });
        }
    }
    figures
}

/// By how much the replay of the recording itself is off.
fn replayed(study: &Study, class: &str, metric: Metric) -> Option<f64> {
    let subject =
        study.self_replay.as_ref()?.subjects.iter().find(|subject| subject.name == class)?;
    let cell = subject.cells.iter().find(|cell| cell.metric == metric)?;
    Some(off(metric, cell.simulated, cell.recorded))
}

/// By how much a value differs from another: in points of a CPU for shares, in parts of the second
/// for the rest.
fn off(metric: Metric, is: f64, was: f64) -> f64 {
    match metric {
        Metric::Share => is - was,
        _ => (is - was) / was.abs().max(f64::MIN_POSITIVE),
    }
}

/// The head of the table.
const HEAD: &str = "| pair | class | figure | before | after | predicted | error | claim |\n\
                    |---|---|---|---|---|---|---|---|\n";

/// A figure of a pair, as a row of the table.
struct Judged<'a> {
    pair: &'a PairResult,
    figure: &'a Figure,
}

/// Returns the rows of the table: of every figure that is predicted.
fn rows(results: &[PairResult]) -> impl Iterator<Item = Judged<'_>> {
    results.iter().flat_map(|pair| {
        let predicted = pair.figures.iter().filter(|figure| figure.error.is_some());
        predicted.map(move |figure| Judged { pair, figure })
    })
}

impl Judged<'_> {
    fn claim(&self) -> &'static str {
        match self.figure.judgement {
            _ if !self.pair.distrust.is_empty() => "not trusted",
            _ if self.figure.is_wrong() => "WRONG",
            Judgement::CannotTell => "cannot tell",
            Judgement::Same => "none",
            _ => "right",
        }
    }
}

impl std::fmt::Display for Judged<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let figure = self.figure;
        let show = |value: f64| figure.metric.show(value);
        let off = match figure.metric {
            Metric::Share => format!("{:+.1} points", figure.off() * 100.0),
            _ => format!("{:+.0} %", figure.off() * 100.0),
        };
        write!(
            f,
            "| {} | {} | {} | {} | {} | {}{}{} | {off} | {} |",
            self.pair.name,
            figure.class,
            figure.metric,
            show(figure.before),
            show(figure.after),
            show(figure.predicted),
            figure.error.map_or_else(String::new, |bar| bar.beside(figure.metric)),
            if figure.holds() { "" } else { " (outside)" },
            self.claim(),
        )
    }
}

/// The pairs as a table in Markdown, with a summary below it.
pub fn table(results: &[PairResult]) -> String {
    let mut text = HEAD.to_owned();
    for result in results {
        for row in rows(std::slice::from_ref(result)) {
            let _ = writeln!(text, "{row}");
        }
        for why in &result.distrust {
            let _ = writeln!(text, "| {} | | not trusted: {why} | | | | | |", result.name);
        }
    }
    text + "\n" + &Summary::from_results(results).to_string()
}

/// Returns the pairs of each server: of those that [`PairResult::name`] begins with, up to its
/// comma (guests) or its first space.
fn servers(results: &[PairResult]) -> BTreeMap<&str, Vec<PairResult>> {
    let mut servers: BTreeMap<&str, Vec<PairResult>> = BTreeMap::new();
    for result in results {
        let parts = result.name.split_once(',').or_else(|| result.name.split_once(' '));
        let server = parts.map_or(result.name.as_str(), |(server, _)| server);
        servers.entry(server).or_default().push(result.clone());
    }
    servers
}

/// How good the predictions are.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Summary {
    /// Figures that are not predicted, because several requests share an activation.
    pub merged: usize,
    /// Pairs, and how many of them are trusted.
    pub pairs: (usize, usize),
    /// Figures of trusted pairs, and how many are inside their interval.
    pub held: (usize, usize),
    /// Certain claims of trusted pairs, and how many of them are wrong.
    pub claims: (usize, usize),
    /// Median absolute errors by metric: points of a CPU for shares, parts for the rest.
    pub errors: BTreeMap<Metric, f64>,
    /// The same of the pairs in which nothing was changed, which no prediction can be better than;
    /// and of the replay of each recording itself.
    pub parts: BTreeMap<Metric, Parts>,
    /// How many figures lie inside an interval that is stated at more or less than 95 %.
    pub at_levels: Held,
    /// Of the changes that were large: whether the predictions told them.
    pub told: BTreeMap<LargeChange, Told>,
}

/// What an error is made of: medians, as [`Summary::errors`].
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Parts {
    /// Predictions of pairs in which something was changed.
    pub changed: Option<f64>,
    /// Two recordings of one setting.
    pub unchanged: Option<f64>,
    /// The replay of a recording under its own setting.
    pub replayed: Option<f64>,
}

impl Summary {
    /// Of these results.
    pub fn from_results(results: &[PairResult]) -> Summary {
        let mut summary = Summary { pairs: (results.len(), 0), ..Summary::default() };
        // All, of changes, of none, of the replay itself.
        let mut errors: BTreeMap<Metric, [Vec<f64>; 4]> = BTreeMap::new();
        for result in results.iter().filter(|result| result.distrust.is_empty()) {
            summary.pairs.1 += 1;
            summary.merged += result.figures.iter().filter(|figure| figure.error.is_none()).count();
            for figure in result.figures.iter().filter(|figure| figure.error.is_some()) {
                summary.held.0 += 1;
                summary.held.1 += usize::from(figure.holds());
                summary.at_levels.count(figure);
                let claims = matches!(figure.judgement, Judgement::Better | Judgement::Worse);
                summary.claims.0 += usize::from(claims);
                summary.claims.1 += usize::from(figure.is_wrong());
                let of = errors.entry(figure.metric).or_default();
                let error = figure.off().abs();
                of[0].push(error);
                of[if result.unchanged { 2 } else { 1 }].push(error);
                of[3].extend(figure.replayed.map(f64::abs));
            }
        }
        results.iter().for_each(|result| summary.count_large(result));
        for (metric, of) in errors {
            let [all, changed, unchanged, replayed] =
                of.map(|values| schedlab_stats::median(&values));
            summary.errors.extend(all.map(|all| (metric, all)));
            summary.parts.insert(metric, Parts { changed, unchanged, replayed });
        }
        summary
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} pairs, {} trusted.", self.pairs.0, self.pairs.1)?;
        writeln!(f, "Inside the interval: {} of {} figures.", self.held.1, self.held.0)?;
        if self.merged > 0 {
            writeln!(
                f,
                "Not predicted: {} rates and response times of activations that several requests \
                 share.",
                self.merged
            )?;
        }
        writeln!(f, "Certain claims: {}, of them wrong: {}.", self.claims.0, self.claims.1)?;
        for line in self.large_changes().chain([self.calibration()]) {
            writeln!(f, "{line}")?;
        }
        for (metric, error) in &self.errors {
            let unit = if *metric == Metric::Share { "points" } else { "%" };
            let show = |part: f64| format!("{:.1} {unit}", part * 100.0);
            write!(f, "Median error of {metric}: {}", show(*error))?;
            let parts = self.parts.get(metric).copied().unwrap_or_default();
            let of = [
                ("where something was changed", parts.changed),
                ("between two recordings of one setting", parts.unchanged),
                ("of the replay of the recording itself", parts.replayed),
            ];
            let told: Vec<String> = of
                .iter()
                .filter_map(|(what, part)| Some(format!("{} {what}", show((*part)?))))
                .collect();
            writeln!(f, " ({}).", told.join(", "))?;
        }
        Ok(())
    }
}
