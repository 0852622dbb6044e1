//! What a page shows and a table does not: distributions and schedules.

use super::delays;
pub(super) use super::observe::Keep;
use super::observe::{Findings, Observer};
use super::part::{Read, Window, events_of};
use crate::StudyError;
use crate::measurements::{Kind, Measured, Quantity, SubjectData};
use crate::result::{Detail, Study};
use crate::run::Run;
use crate::view::{by_importance, row_name};
use schedlab_model::{EventSink, Ns};
use schedlab_report::{Cdf, Curve, LaneRun, LaneTask, Lanes, Measure};
use schedlab_trace::Header;
use schedlab_trace::analysis::Analysis;
use schedlab_trace::analysis::runqueue::RunQueue;
use schedlab_trace::import::Purpose;
use std::collections::BTreeMap;
use std::path::Path;

/// Events of all schedules of a page together: about 3 bytes each in the file.
pub(crate) const EVENTS: u64 = 1_000_000;
/// A schedule of fewer events than this shows too little.
const LEAST: u64 = 20_000;
/// Colour and dashes of the recording; rows follow.
const RECORDED: usize = 0;

/// How runs are observed when there are so many (the recording not counted). `classes` by task,
/// `server`: those of the server.
pub(super) fn keep(
    header: &Header,
    classes: &[String],
    duration: Ns,
    rows: usize,
    server: &[String],
) -> Keep {
    let mut header = header.clone();
    for (task, class) in header.tasks.iter_mut().zip(classes) {
        task.comm.clone_from(class);
    }
    let events = (EVENTS / (rows as u64 + 1)).max(LEAST);
    let first = classes.iter().map(|class| server.contains(class)).collect();
    Keep {
        header,
        from: Ns::ZERO,
        duration,
        focus: None,
        events,
        tasks: None,
        first: Some(first).filter(|first: &Vec<bool>| first.contains(&true)),
        vcpus: Vec::new(),
    }
}

/// Each quantity with its name and meaning.
pub(crate) const QUANTITIES: [(Quantity, &str, &str); 4] = [
    (Quantity::Latency, "Run-queue latency", "From the wakeup to running."),
    (
        Quantity::Response,
        "Response",
        "From the wakeup (or arrival) to the end of the activation (or request).",
    ),
    (
        Quantity::Wait,
        "Wait after preemption",
        "From being taken off a CPU while runnable to running again.",
    ),
    (Quantity::Run, "Run length", "Uninterrupted time on a CPU."),
];

impl Detail {
    /// From the runs of each row. `tasks` are name and class by task; `was` is what a recording
    /// measured.
    pub(super) fn from_runs(
        study: &Study,
        runs: &[Vec<Run>],
        tasks: Vec<(String, String)>,
        was: Option<&Measured>,
    ) -> Detail {
        let names: Vec<String> = study.rows.iter().map(|row| name(study, row)).collect();
        let distribution = |(kind, subject): (Kind, String)| {
            let measures = QUANTITIES.iter().filter_map(|&(quantity, title, about)| {
                let recorded = was.and_then(|was| {
                    let buckets = was.find(kind, &subject)?.buckets(quantity);
                    Curve::of_buckets("recorded", RECORDED, &buckets)
                });
                let row = |(index, own): (usize, &Vec<Run>)| {
                    let found = own.iter().filter_map(|run| run.measured.find(kind, &subject));
                    Curve::of_buckets(&names[index], index + 1, &pooled(found, quantity))
                };
                let curves: Vec<Curve> =
                    recorded.into_iter().chain(runs.iter().enumerate().filter_map(row)).collect();
                let (name, about) =
                    (title.to_owned(), format!("{about} {}", pooling(study, was.is_some())));
                Measure { name, about, curves }.worth_drawing()
            });
            Cdf { title: subject.clone(), measures: measures.collect() }
        };
        let distributions = by_importance(study).0.into_iter().map(distribution);
        Detail {
            distributions: distributions.filter(|cdf| !cdf.measures.is_empty()).collect(),
            lanes: Lanes {
                tasks: tasks.into_iter().map(|(name, class)| LaneTask { name, class }).collect(),
                runs: Vec::new(),
                own: Vec::new(),
            },
            ..Detail::default()
        }
    }

    /// Adds what was observed: of the recording (its file and the part of it), then of each row.
    pub(super) fn observed(
        &mut self,
        study: &Study,
        runs: &[Vec<Run>],
        keep: &Keep,
        recorded: Option<(&Path, &Window)>,
    ) -> Result<(), StudyError> {
        let mut all: Vec<(String, usize, Findings)> = Vec::new();
        let mut add = |name: String, style: usize, observer: Observer, lanes: &mut Vec<LaneRun>| {
            let (recorder, findings) = observer.finish();
            lanes.push(recorder.finish(&name, style, keep.duration));
            // What a recorder could not see is not laid to any task.
            if style != RECORDED || RunQueue::check(&keep.header).is_ok() {
                all.push((name, style, findings));
            }
        };
        if let Some((path, window)) = recorded {
            let mut observer = Observer::new(keep);
            // The same part as was compared, so that tasks have the same numbers.
            let Read { recording, .. } = events_of(path, window, Purpose::Any, &|| false)?;
            let within = recording.events.iter().take_while(|event| event.at <= keep.duration);
            within.for_each(|event| observer.event(event));
            add("recorded".to_owned(), RECORDED, observer, &mut self.lanes.runs);
        }
        for (index, (row, own)) in study.rows.iter().zip(runs).enumerate() {
            if let Some(observer) = own.first().and_then(|run| run.observed.clone()) {
                add(name(study, row), index + 1, *observer, &mut self.lanes.runs);
            }
        }
        self.blame = all
            .iter()
            .filter_map(|(name, _, findings)| Some((name.clone(), delays::matrix(name, findings)?)))
            .collect();
        let named = |header: &Header| {
            let mut header = header.clone();
            for (info, task) in header.tasks.iter_mut().zip(&self.lanes.tasks) {
                info.comm.clone_from(&task.name);
            }
            header
        };
        let header = named(&keep.header);
        self.worst =
            all.iter().map(|(name, _, findings)| delays::worst(name, findings, &header)).collect();
        self.worst.retain(|table| !table.rows.is_empty());
        if let Some((_, style, findings)) = all.first() {
            let run = usize::from(recorded.is_some() && *style != RECORDED);
            let server = keep.first.as_deref();
            (self.longest, self.longest_of_server) =
                delays::longest(run, &findings.worst, &header, server);
            self.lanes.own = delays::own_lanes(&findings.worst, server);
        }
        self.queue = delays::queue(&all);
        Ok(())
    }
}

/// The name of a row on a page. A simulated row says so where there is a recorded one beside it.
pub(crate) fn name(study: &Study, row: &crate::result::Row) -> String {
    let name = row_name(row, study);
    if study.self_replay.is_some() { format!("{name}, simulated") } else { name }
}

fn pooling(study: &Study, recorded: bool) -> String {
    let what = if recorded { "simulated curves" } else { "curves" };
    match study.seeds.len() {
        1 => format!("One seed ({}).", study.seeds[0]),
        seeds => format!("The {what} hold the values of all {seeds} seeds."),
    }
}

fn pooled<'a>(
    subjects: impl Iterator<Item = &'a SubjectData>,
    quantity: Quantity,
) -> Vec<(Ns, u64)> {
    let mut all = BTreeMap::new();
    for (ns, count) in subjects.flat_map(|subject| subject.buckets(quantity)) {
        *all.entry(ns).or_default() += count;
    }
    all.into_iter().collect()
}
