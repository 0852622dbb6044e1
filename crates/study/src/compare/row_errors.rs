//! Errors that differ from row to row.
//!
//! Another scheduler than the recorded one is further from what was recorded than another setting:
//! that the machine was steady narrows nothing there. (Of five pairs of servers in guests under
//! another kernel, shares were off by up to 16 points and counts by 9 to 24 %.)
//!
//! Rows of a replay by messages in which a request costs more or less CPU time. What a message
//! costs was recorded where messages came as they did; a server that takes the CPU at each of them
//! looks more often, and how much of its work comes with each look is a reading of the recording.
//! Half of that difference may not come.
//!
//! Tasks without end, where tasks move between CPUs: they have what the others leave, and are as
//! uncertain as those are.
//!
//! Where hardware threads share cores, rows in which tasks run beside a busy one more or less than
//! they did: how fast a thread is there is known as well as the recording shows it
//! ([`schedlab_trace::siblings`]).
//!
//! Rows in which a task waits that never did in the recording. Of a task that hardly ever slept the
//! recording shows that what it waits for was there whenever it looked, and not how much of it: a
//! client may have eight connections with a reply in each. As long as a row leaves it like that,
//! what it does follows from the recording. In a row where it sleeps again and again (another
//! kernel lets it send on where the recorded one gave the CPU to the server) that number decides,
//! and all that the row changes is open.

use super::Errors;
use super::constants::COSTS_OF_MESSAGES;
use super::recorded::RecordedInput;
use super::room::Room;
use super::trust::most_drift;
use crate::change::{MethodError, apart_from};
use crate::measurements::{Kind, SubjectData};
use crate::metric::Metric;
use crate::run::{RowPlan, Run};
use std::collections::{BTreeMap, BTreeSet};

/// Such a task waits when it sleeps after more than this part of its messages (in per cent).
/// Chosen: as many may find those who work for it awake in the recording.
const WAITS_PERCENT: f64 = 10.0;

/// The errors of predictions, row by row.
#[derive(Default)]
pub(super) struct RowErrors {
    common: Errors,
    own: BTreeMap<usize, Errors>,
    rooms: Vec<Room>,
    /// The classes of tasks without end where tasks move between CPUs; and by row, how far what
    /// they leave, and have, may be moved by what the others' work costs.
    endless: BTreeSet<String>,
    left: Vec<f64>,
}

/// The errors of one row.
#[derive(Clone, Copy)]
pub(super) struct OfRow<'a> {
    errors: &'a Errors,
    room: &'a Room,
    endless: &'a BTreeSet<String>,
    left: Option<f64>,
}

impl OfRow<'_> {
    /// Returns the method's error of a number of a subject; none of a scenario.
    pub(super) fn method(self, subject: &SubjectData, metric: Metric) -> MethodError {
        let found = self.errors.get(&(subject.name.clone(), metric)).copied().unwrap_or_default();
        let left = self.left.filter(|_| self.endless.contains(&subject.name));
        MethodError { possible: self.room.possible(subject, metric), left, ..found }
    }

    /// Whether nothing but the seeds is known of the errors: in a scenario.
    pub(super) fn are_of_seeds(self) -> bool {
        self.errors.is_empty()
    }
}

impl RowErrors {
    pub(super) fn row(&self, row: usize) -> OfRow<'_> {
        OfRow {
            errors: self.own.get(&row).unwrap_or(&self.common),
            room: &self.rooms[row],
            endless: &self.endless,
            left: self.left.get(row).copied(),
        }
    }

    /// Returns those of a scenario, which are of the seeds. `cpus`: of the machine.
    pub(super) fn of_scenario(plans: &[RowPlan], classes: &[String], cpus: usize) -> RowErrors {
        let rooms = plans.iter().map(|plan| Room::of_row(plan, classes, cpus)).collect();
        RowErrors { rooms, ..RowErrors::default() }
    }

    /// Finds the rows that have errors of their own; and what the reader is told about each that is
    /// open.
    pub(super) fn find(
        input: &RecordedInput,
        plans: &[RowPlan],
        runs: &[Vec<Run>],
        common: Errors,
    ) -> (RowErrors, Vec<String>) {
        let of_all = |errors: &Errors, f: &dyn Fn(Metric, MethodError) -> MethodError| -> Errors {
            errors.iter().map(|(key, error)| (key.clone(), f(key.1, *error))).collect()
        };
        let is_other = |plan: &RowPlan| plan.scheduler != plans[0].scheduler;
        let far = of_all(&common, &|metric, error| MethodError {
            drift: error.drift.max(most_drift(metric)),
            ..error
        });
        let others = plans.iter().enumerate().filter(|(_, plan)| is_other(plan));
        let mut own: BTreeMap<usize, Errors> = others.map(|(row, _)| (row, far.clone())).collect();
        let mut notes = Vec::new();
        for silent in &input.replay.report.silent {
            let class = &input.classes[silent.task.index()];
            let messages = silent.messages as f64 / (input.replay.duration.0 as f64 / 1e9);
            // The first row changes nothing.
            for (row, runs) in runs.iter().enumerate().skip(1) {
                let sleeps = sleeps(runs, class);
                if sleeps * 100.0 <= messages * WAITS_PERCENT {
                    continue;
                }
                let known = own.get(&row).unwrap_or(&common);
                let open = of_all(known, &|_, error| MethodError { apart: 1.0, ..error });
                own.insert(row, open);
                notes.push(format!(
                    "{} under {}: {class} sleeps {sleeps:.0} times a second, and almost never in \
                     the recording, which does not show how many \
                     replies were queued for {class}: nothing is claimed in this row",
                    plans[row].variant, plans[row].label
                ));
            }
        }
        for row in 1..plans.len() {
            let known = own.get(&row).unwrap_or(&common);
            let changed = with_costs(input, known, &runs[0], &runs[row]);
            let known = changed.as_ref().unwrap_or(known);
            let beside = with_siblings(input, known, &runs[0], &runs[row]);
            if let Some(changed) = beside.or(changed) {
                own.insert(row, changed);
            }
        }
        let none = RowErrors::of_scenario(plans, &input.classes, input.replay.topology.cpus());
        let mut found = RowErrors { common, own, ..none };
        if input.spread.moves {
            found.endless = endless(input).into_iter().map(str::to_owned).collect();
            found.left =
                runs.iter().enumerate().map(|(row, own)| found.left_in(row, own)).collect();
        }
        (found, notes)
    }

    /// Returns how far all that is not without end may be moved in a row by what its work costs.
    fn left_in(&self, row: usize, runs: &[Run]) -> f64 {
        let errors = self.row(row);
        let Some(run) = runs.first() else { return f64::INFINITY };
        let works =
            |class: &&SubjectData| class.kind == Kind::Class && !self.endless.contains(&class.name);
        let moved = |class: &SubjectData| {
            let share = mean(runs, Kind::Class, &class.name, Metric::Share);
            errors.method(class, Metric::Share).drift_of_share(share)
        };
        let of = run.measured.subjects.iter().filter(works).map(moved);
        of.map(|moved| moved * moved).sum::<f64>().sqrt()
    }
}

/// Returns the classes that have tasks without end.
fn endless(input: &RecordedInput) -> BTreeSet<&str> {
    let hogs = input.replay.report.hogs.iter();
    hogs.map(|task| input.classes[task.index()].as_str()).collect()
}

/// Returns the errors of a row with what the costs of requests make of them; `None`: its requests
/// are not known.
fn with_costs(input: &RecordedInput, known: &Errors, base: &[Run], row: &[Run]) -> Option<Errors> {
    input.by_messages.as_ref()?;
    let changed = requests(row) / requests(base);
    if !changed.is_finite() || changed <= 0.0 {
        return None;
    }
    let cost = |was: f64, is: f64| match was > 0.0 && is > 0.0 {
        true => apart_from(LEAST_SHARE, is, was * changed),
        false => 0.0,
    };
    // Those who work for requests: not what has no end, and not the recorder.
    let endless = endless(input);
    let works = |class: &str| !endless.contains(class) && !crate::view::is_own(class);
    let share = |runs: &[Run], class: &str| mean(runs, Kind::Class, class, Metric::Share);
    let names: BTreeSet<&str> = known.keys().map(|(name, _)| name.as_str()).collect();
    let classes = || names.iter().copied().filter(|name| works(name));
    let all = |runs: &[Run]| classes().map(|class| share(runs, class)).sum::<f64>();
    let of_all = cost(all(base), all(row));
    let of = |name: &str| match base.first()?.measured.find(Kind::Class, name) {
        Some(_) if !works(name) => None,
        Some(_) => Some(cost(share(base, name), share(row, name))),
        // Requests, and what a client counts of them.
        None => Some(of_all),
    };
    let costs: BTreeMap<&str, f64> =
        names.iter().filter_map(|name| Some((*name, of(name)?))).collect();
    let with = |((name, metric), error): (&(String, Metric), &MethodError)| {
        let costs = costs.get(name.as_str()).copied().unwrap_or_default();
        let costs = costs * COSTS_OF_MESSAGES.value;
        ((name.clone(), *metric), MethodError { costs, ..*error })
    };
    Some(known.iter().map(with).collect())
}

/// Returns the errors of a row with what is not known of the speed beside a busy thread; `None`: no
/// core has two.
fn with_siblings(
    input: &RecordedInput,
    known: &Errors,
    base: &[Run],
    row: &[Run],
) -> Option<Errors> {
    let unknown = input.error_of_siblings()?;
    let part = |runs: &[Run], class: &str| {
        let tasks = || (0..input.classes.len()).filter(|task| input.classes[*task] == class);
        let of = |run: &Run| run.beside.as_ref()?.part(tasks());
        let all: Vec<f64> = runs.iter().filter_map(of).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    };
    let changes = |class: &str| Some((part(row, class)? - part(base, class)?).abs());
    let classes: BTreeSet<&str> = input.classes.iter().map(String::as_str).collect();
    let changes: BTreeMap<&str, f64> =
        classes.into_iter().filter_map(|class| Some((class, changes(class)?))).collect();
    // Requests, and what a client counts of them, are as far off as those who work for them.
    let endless = endless(input);
    let works = changes.iter().filter(|(class, _)| !endless.contains(*class));
    let most = works.map(|(_, change)| *change).fold(0.0, f64::max);
    let with = |((name, metric), error): (&(String, Metric), &MethodError)| {
        let change = changes.get(name.as_str()).copied().unwrap_or(most);
        let drift = error.drift.hypot(unknown * change);
        ((name.clone(), *metric), MethodError { drift, ..*error })
    };
    Some(known.iter().map(with).collect())
}

/// The smallest share of a CPU: a nanosecond of each second.
const LEAST_SHARE: f64 = 1e-9;

/// Returns how many requests were answered a second, over all ports and paths.
fn requests(runs: &[Run]) -> f64 {
    let of = |run: &Run| {
        let channels = run.measured.subjects.iter().filter(|found| found.kind == Kind::Channel);
        channels.filter_map(|found| found.value(Metric::Throughput)).sum::<f64>()
    };
    runs.iter().map(of).sum::<f64>() / runs.len().max(1) as f64
}

/// Returns the mean of a metric over runs; 0 where it has none.
fn mean(runs: &[Run], kind: Kind, name: &str, metric: Metric) -> f64 {
    let of = |run: &Run| run.measured.find(kind, name)?.value(metric);
    let all: Vec<f64> = runs.iter().filter_map(of).collect();
    if all.is_empty() { 0.0 } else { all.iter().sum::<f64>() / all.len() as f64 }
}

/// How often tasks of a class sleep a second, over all runs of a row.
fn sleeps(runs: &[Run], class: &str) -> f64 {
    mean(runs, Kind::Class, class, Metric::Throughput)
}
