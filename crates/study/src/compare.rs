//! `schedlab compare`: schedulers × variants over a scenario or a recording.

mod alone;
mod assemble;
mod bound;
mod client_log;
pub mod clients;
pub(crate) mod constants;
pub(crate) mod course;
pub(crate) mod delays;
pub(crate) mod detail;
pub(crate) mod elasticity;
mod features;
mod gates;
mod notes;
pub(crate) mod observe;
mod part;
mod percentile;
mod recorded;
mod recorded_kernel;
mod recorded_machine;
mod replaying;
pub mod request;
mod room;
mod row_errors;
mod scenario;
mod seen;
mod serve;
mod spread;
mod subjects;
mod timing;
mod trust;
mod validation;
mod verdict;

pub use client_log::{ClientLogSpec, SUBJECT as CLIENT_LOG};
pub(crate) use detail::name as page_name;
pub use gates::RowGate;
pub(crate) use gates::open;
pub use part::{Around, Window};
pub use recorded::{RecordedInput, compare_recording};
pub use recorded_kernel::{kernel_scheduler, modelled_by, recorded_scheduler};
pub use replaying::{ReplayFrom, measured_in};
pub use scenario::compare_scenario;
pub(crate) use scenario::{known as known_of_scenario, plan_of_point, runs_of_scenario};
pub use seen::{Seen, SeenRow};
pub use serve::{Delay, Served};
pub(crate) use verdict::{
    FELT, MOST_GAIN, of_change, reproduction, tellings, times_its_error, upper,
};

use crate::StudyError;
use crate::change::{MethodError, change};
use crate::delegation::DelegationResult;
use crate::deploy;
use crate::headline::Wanted;
use crate::measurements::{Kind, Measured, SubjectData};
use crate::metric::Metric;
use crate::result::{Cell, Row, Subject};
use crate::run::{RowPlan, Run};
use crate::variant::{self, Variant};
use percentile::Found;
pub use percentile::interval_of;
use row_errors::RowErrors;
use schedlab_model::Ns;
use schedlab_scheduler::{SchedulerSpec, registry, sched_ext};
use schedlab_stats::Estimate;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What a user may choose. Everything else comes from the scenario or the recording.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Schedulers instead of those of the scenario, or beside the recorded one.
    pub schedulers: Vec<SchedulerSpec>,
    /// Variants beside those of the scenario, as written by the user.
    pub variants: Vec<String>,
    /// First seed.
    pub seed: Option<u64>,
    /// How many seeds.
    pub repetitions: Option<u32>,
    /// Virtual time of each run.
    pub duration: Option<Ns>,
    /// Threads; 0 = one per CPU.
    pub jobs: usize,
    /// Recordings of what variants really did: (variant, file).
    pub checks: Vec<(String, std::path::PathBuf)>,
    /// What the client of the recorded server counted.
    pub client_log: Option<ClientLogSpec>,
    /// The server that the question is about: a program, a pid, a control group or a unit of a
    /// recording.
    pub serve: Option<String>,
    /// Conditions that must not be met.
    pub gates: Vec<RowGate>,
    /// A gate about what the input does not have is left out, instead of refused.
    pub gates_where_found: bool,
    /// Rows instead of every scheduler with every variant: those of a search. The unchanged row
    /// comes first all the same.
    pub points: Vec<Point>,
    /// The only numbers that rows hold, and their headline; empty: all.
    pub only: Vec<Wanted>,
    /// Keep distributions and schedules for a page
    /// ([`Study::detail`](crate::result::Study::detail)).
    pub detail: bool,
    /// When it becomes true, the runs end and [`StudyError::Stopped`] is returned.
    pub stop: Option<Arc<AtomicBool>>,
    /// Then the rows that are finished are the result, if the first is among them.
    pub keep_finished: bool,
    /// Where finished runs leave a number while others run.
    pub seen: Option<Arc<Seen>>,
}

/// One row of a search.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// The scheduler; `None`: that of the first row.
    pub scheduler: Option<SchedulerSpec>,
    /// What is set; its name is that of the row, and no other row has it.
    pub variant: Variant,
}

impl Point {
    /// Reads a point from its scheduler, if it has one of its own, and its settings, which may be
    /// none. Its name says both.
    ///
    /// # Errors
    /// What is wrong with the scheduler or the settings.
    pub fn parse(scheduler: Option<&str>, settings: &str) -> Result<Point, StudyError> {
        let scheduler = scheduler.map(str::parse::<SchedulerSpec>).transpose()?;
        scheduler.as_ref().map(registry::check).transpose()?;
        let settings = settings.trim();
        let name = match (&scheduler, settings.is_empty()) {
            (Some(scheduler), true) => scheduler.to_string(),
            (Some(scheduler), false) => format!("{scheduler}, {settings}"),
            (None, true) => "unchanged".to_owned(),
            (None, false) => settings.to_owned(),
        };
        let variant = match settings.is_empty() {
            true => Variant { name, schedulers: Vec::new(), clauses: Vec::new() },
            false => Variant::parse_named(&name, settings)
                .map_err(|source| StudyError::Variant { variant: settings.to_owned(), source })?,
        };
        Ok(Point { scheduler, variant })
    }
}

/// Called with (done, all) runs.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// Whether what is being done is needed no more.
pub type Ended<'a> = &'a (dyn Fn() -> bool + Sync);

/// The method's error by class and metric.
type Errors = BTreeMap<(String, Metric), MethodError>;

/// Makes the rows of the table. The first plan is the baseline. `name(task)` is a name of its own
/// for a task whose class is changed only in part.
fn rows(
    plans: &[RowPlan],
    runs: &[Vec<Run>],
    classes: &[String],
    name: &dyn Fn(usize) -> String,
    errors: &RowErrors,
    numbers: Numbers<'_>,
) -> Vec<Row> {
    let split = split_classes(plans, classes);
    let loads = bound::first_of_load(plans);
    // What the first row has is asked for by every row.
    let firsts: RefCell<BTreeMap<(Kind, String), Rc<Found<'_>>>> = RefCell::default();
    let first = |kind: Kind, name: &str| {
        let find = || Rc::new(Found::of_runs(&runs[0], kind, name));
        firsts.borrow_mut().entry((kind, name.to_owned())).or_insert_with(find).clone()
    };
    let row = |(index, (plan, own)): (usize, (&RowPlan, &Vec<Run>))| {
        let errors = errors.row(index);
        let mut changed: BTreeSet<String> =
            plan.changed.iter().map(|&task| classes[task].clone()).collect();
        changed.extend(plan.changed.iter().map(|&task| name(task)));
        let held =
            subjects(&own[0].measured, plan, &split).filter(|subject| numbers.holds(subject));
        let subjects = held.map(|subject| {
            let base = first(subject.kind, &subject.name);
            let own = match index {
                0 => base.clone(),
                _ => Rc::new(Found::of_runs(own, subject.kind, &subject.name)),
            };
            let cell = |metric: Metric| {
                let method = errors.method(subject, metric);
                let (interval, method) = own.with_tail(metric, method);
                let anchored = |found: &Found<'_>| -> Vec<f64> {
                    let values = found.values(metric).into_iter();
                    values.map(|value| method.anchored(metric, value)).collect()
                };
                let (mine, theirs) = (anchored(&own), anchored(&base));
                let value = Estimate::from_values(mine.clone())?;
                let comparable = index > 0 && theirs.len() == mine.len();
                let change = if comparable { change(metric, &theirs, &mine, method) } else { None };
                // The first row may have no such number.
                let was =
                    Estimate::from_values(theirs.clone()).map_or(value.median, |was| was.median);
                // Of a recording what was not recorded, or is no measure of work, is not predicted.
                let is_predicted =
                    errors.are_of_seeds() || method.anchor.is_some() && !method.merges;
                let bar = is_predicted.then(|| method.bar(metric, was, &value));
                let error = bar.filter(|_| !errors.are_of_seeds()).map(|bar| bar.error());
                Some(Cell { metric, value, error, error_bar: bar, interval, change })
            };
            Subject {
                kind: subject.kind,
                name: subject.name.clone(),
                tasks: subject.tasks,
                changed: matches!(subject.kind, Kind::Class | Kind::Task)
                    && changed.contains(&subject.name),
                merges: errors.method(subject, Metric::Throughput).merges,
                cells: numbers.metrics(subject).into_iter().filter_map(cell).collect(),
            }
        });
        row_of(plans, index, loads[index], own, subjects.collect())
    };
    plans.iter().zip(runs).enumerate().map(row).collect()
}

/// Which numbers the rows hold.
#[derive(Clone, Copy)]
enum Numbers<'a> {
    /// All that are reported, and those of the headline: a scenario may be about a number that
    /// results do not hold otherwise.
    All(&'a [Wanted]),
    /// These and nothing else.
    Only(&'a [Wanted]),
}

impl<'a> Numbers<'a> {
    fn new(options: &'a Options, headline: &'a [Wanted]) -> Numbers<'a> {
        if options.only.is_empty() { Numbers::All(headline) } else { Numbers::Only(&options.only) }
    }

    fn wanted(self) -> &'a [Wanted] {
        match self {
            Numbers::All(wanted) | Numbers::Only(wanted) => wanted,
        }
    }

    /// The metrics that are named for a subject.
    fn named(self, subject: &SubjectData) -> impl Iterator<Item = Metric> {
        let of = self.wanted().iter();
        of.filter(|wanted| wanted.is_about(subject.kind, &subject.name, &subject.class))
            .map(|wanted| wanted.metric)
    }

    fn holds(self, subject: &SubjectData) -> bool {
        matches!(self, Numbers::All(_)) || self.named(subject).next().is_some()
    }

    fn metrics(self, subject: &SubjectData) -> Vec<Metric> {
        match self {
            Numbers::All(_) => {
                let more = self
                    .named(subject)
                    .filter(|named| !Metric::all_reported().any(|m| m == *named));
                Metric::all_reported().chain(more).collect()
            }
            Numbers::Only(_) => {
                let mut all: Vec<Metric> = self.named(subject).collect();
                all.sort_unstable();
                all.dedup();
                all
            }
        }
    }
}

/// Returns the row of a plan. `first`: the first plan with its load.
fn row_of(
    plans: &[RowPlan],
    index: usize,
    first: usize,
    own: &[Run],
    subjects: Vec<Subject>,
) -> Row {
    let plan = &plans[index];
    let standing = bound::standing(plan, &plans[0]);
    // Under another load a setting is what differs from the first row of that load.
    let from = &plans[if standing.load().is_some() { first } else { 0 }];
    let mut notes = plan.notes.clone();
    notes.extend(own[0].notes.iter().cloned());
    let delegated = plan.delegation.as_ref().zip(own[0].delegation.as_deref());
    Row {
        scheduler: plan.label.clone(),
        variant: plan.variant.clone(),
        subjects,
        places: Default::default(),
        event_hashes: own.iter().map(|run| format!("{:016x}", run.event_hash)).collect(),
        notes,
        no_effect: Vec::new(),
        bound: standing.bound(),
        load: standing.load(),
        first_of_load: Some(first).filter(|&first| first > 0),
        timing: Vec::new(),
        mildness: deploy::mildness(&bound::own(plan, from), &plan.scheduler, &from.scheduler),
        deploy: bound::deployment(plan, from),
        delegation: delegated
            .map(|(delegated, metrics)| DelegationResult::from_metrics(&delegated.spec, metrics)),
    }
}

/// Places of the rows whose scheduler is an object in BPF.
fn rows_of_objects(plans: &[RowPlan]) -> Vec<usize> {
    let is_object = |row: &usize| sched_ext::is_object(&plans[*row].scheduler.name);
    (0..plans.len()).filter(is_object).collect()
}

/// Programs of which some variant changes a part only: each of their tasks has a row of its own.
fn split_classes<'a>(plans: &[RowPlan], classes: &'a [String]) -> BTreeSet<&'a str> {
    let mut split = BTreeSet::new();
    for plan in plans {
        let changed: BTreeSet<usize> = plan.changed.iter().copied().collect();
        let (mut with, mut without) = (BTreeSet::new(), BTreeSet::new());
        for (task, class) in classes.iter().enumerate() {
            if changed.contains(&task) { &mut with } else { &mut without }.insert(class.as_str());
        }
        split.extend(with.intersection(&without).copied());
    }
    split
}

/// The subjects of the table: every program (or its tasks, where it is split), sources, and
/// channels that no source feeds (what their clients see says more).
fn subjects<'a>(
    measured: &'a Measured,
    plan: &'a RowPlan,
    split: &'a BTreeSet<&str>,
) -> impl Iterator<Item = &'a SubjectData> {
    let fed = |name: &str| {
        let channel = plan.workload.channels.iter().position(|channel| channel.name == name);
        plan.workload.sources.iter().any(|source| Some(source.into.index()) == channel)
    };
    measured.subjects.iter().flat_map(move |subject| match subject.kind {
        Kind::Channel if fed(&subject.name) => Vec::new(),
        Kind::Class if split.contains(subject.name.as_str()) => {
            measured.tasks.iter().filter(|task| task.class == subject.name).collect()
        }
        _ => vec![subject],
    })
}

/// Refuses two variants of one name.
fn check_names(variants: &[Variant]) -> Result<(), StudyError> {
    let mut seen = BTreeSet::new();
    match variants.iter().find(|variant| !seen.insert(variant.name.as_str())) {
        None => Ok(()),
        Some(twice) => Err(StudyError::Option(format!(
            "there are two variants `{}`: give each a name of its own, 'NAME: TARGET SETTING...'",
            twice.name
        ))),
    }
}

/// The value of a metric in every run that has one.
fn values(runs: &[Run], kind: Kind, name: &str, metric: Metric) -> Vec<f64> {
    let value = |measured: &Measured| measured.find(kind, name)?.value(metric);
    runs.iter().filter_map(|run| value(&run.measured)).collect()
}

/// Reads the variants of the command line.
fn parse_variants(texts: &[String]) -> Result<Vec<Variant>, StudyError> {
    let parse = |text: &String| {
        Variant::parse(text).map_err(|source| StudyError::Variant { variant: text.clone(), source })
    };
    texts.iter().map(parse).collect()
}

/// Refuses schedulers and knobs that do not exist.
fn check_schedulers(specs: &[SchedulerSpec]) -> Result<(), StudyError> {
    for spec in specs {
        registry::check(spec)?;
    }
    Ok(())
}

/// The same for the points of a search, of which some schedulers may lack a knob that others have.
fn check_knobs_of_points(plans: &[RowPlan], points: &[Point]) -> Result<(), StudyError> {
    let mut known: BTreeSet<&str> = BTreeSet::new();
    known
        .extend(plans.iter().flat_map(|plan| &plan.scheduler.knobs).map(|(name, _)| name.as_str()));
    let misses = |point: &&Point| {
        let settings = point.variant.clauses.iter().flat_map(|clause| &clause.settings);
        settings.into_iter().any(
            |setting| matches!(setting, variant::Setting::Knob(name, _) if !known.contains(name.as_str())),
        )
    };
    match points.iter().find(misses) {
        Some(point) => check_knobs_exist(plans, std::slice::from_ref(&point.variant)),
        None => Ok(()),
    }
}

/// A knob that none of the schedulers has is a slip, not a variant.
fn check_knobs_exist(plans: &[RowPlan], variants: &[Variant]) -> Result<(), StudyError> {
    for variant in variants {
        for setting in variant.clauses.iter().flat_map(|clause| &clause.settings) {
            let variant::Setting::Knob(name, _) = setting else { continue };
            let with = |plan: &&RowPlan| plan.variant == variant.name;
            let known = |plan: &RowPlan| plan.scheduler.knobs.iter().any(|(knob, _)| knob == name);
            if plans.iter().filter(with).any(known) {
                continue;
            }
            let specs: BTreeSet<&str> =
                plans.iter().filter(with).map(|plan| plan.scheduler.name.as_str()).collect();
            let all: Vec<&str> = specs
                .iter()
                .filter_map(|spec| registry::find(spec).ok())
                .flat_map(|entry| (entry.knobs)())
                .map(|knob| knob.name)
                .collect();
            let hint = schedlab_model::text::nearest(name, all.into_iter())
                .map(|right| format!(" (did you mean `{right}`?)"))
                .unwrap_or_default();
            let specs: Vec<&str> = specs.into_iter().collect();
            return Err(StudyError::Option(format!(
                "variant '{}': none of {} has a knob `{name}`{hint}; `schedlab list schedulers \
                 -v` shows all",
                variant.name,
                specs.join(", ")
            )));
        }
    }
    Ok(())
}

/// The seeds of a study.
fn seeds(first: u64, count: u32) -> Vec<u64> {
    (0..u64::from(count)).map(|offset| first.wrapping_add(offset)).collect()
}
