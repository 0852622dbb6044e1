//! What a page shows and a table does not: distributions and schedules.

use crate::LabError;
use crate::measure::{Kind, Measured, Quantity, SubjectData};
use crate::result::Study;
use crate::run::Run;
use crate::view::{by_importance, row_name};
use schedlab_model::{EventSink, Ns};
use schedlab_report::{Cdf, Curve, LaneRecorder, LaneTask, Lanes, Measure};
use schedlab_trace::Recording;
use std::collections::BTreeMap;
use std::path::Path;

/// Events of all schedules of a page together: about 4 bytes each in the file.
const EVENTS: u64 = 600_000;
/// A schedule of fewer events than this shows too little.
const LEAST: u64 = 20_000;
/// Colour and dashes of the recording; rows follow.
const RECORDED: usize = 0;

/// Distributions and schedules behind the numbers of a [`Study`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Detail {
    /// One for each subject that is shown first.
    pub distributions: Vec<Cdf>,
    /// The recording, and each row with its first seed.
    pub lanes: Lanes,
}

/// Events kept of each row, when there are so many rows (and perhaps a recording).
pub(super) fn lane_events(rows: usize) -> u64 {
    (EVENTS / (rows as u64 + 1)).max(LEAST)
}

/// Each quantity with its name and meaning.
const QUANTITIES: [(Quantity, &str, &str); 4] = [
    (Quantity::Latency, "Run-queue latency", "From the wakeup to running."),
    (
        Quantity::Response,
        "Response",
        "From the wakeup (or arrival) to the end of the activation (or request).",
    ),
    (Quantity::Wait, "Wait after preemption", "From being taken off a CPU while runnable to running again."),
    (Quantity::Run, "Run length", "Uninterrupted time on a CPU."),
];

impl Detail {
    /// From the runs of each row. `tasks` are name and class by task; `was` is what a recording measured.
    pub(super) fn of(
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
                let (name, about) = (title.to_owned(), format!("{about} {}", pooling(study, was.is_some())));
                (!curves.is_empty()).then_some(Measure { name, about, curves })
            });
            Cdf { title: subject.clone(), measures: measures.collect() }
        };
        let distributions = by_importance(study).0.into_iter().map(distribution);
        let lane = |(index, own): (usize, &Vec<Run>)| {
            let lanes = own.first()?.lanes.clone()?;
            Some(lanes.finish(&names[index], index + 1, Ns(study.duration_ns)))
        };
        Detail {
            distributions: distributions.filter(|cdf| !cdf.measures.is_empty()).collect(),
            lanes: Lanes {
                tasks: tasks.into_iter().map(|(name, class)| LaneTask { name, class }).collect(),
                runs: runs.iter().enumerate().filter_map(lane).collect(),
            },
        }
    }

    /// Puts the recording itself before the rows.
    pub(super) fn recorded(&mut self, path: &Path, rows: usize) -> Result<(), LabError> {
        let fail = |source| LabError::Trace { path: path.to_owned(), source: Box::new(source) };
        let recording = Recording::open(path).map_err(fail)?;
        let cpus = recording.header.topology.cpus();
        let mut lanes = LaneRecorder::new(cpus, Ns::ZERO, lane_events(rows));
        recording.events.iter().for_each(|event| lanes.event(event));
        self.lanes.runs.insert(0, lanes.finish("recorded", RECORDED, recording.duration));
        Ok(())
    }
}

/// The name of a row on a page. What is simulated says so where something recorded stands beside it.
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

fn pooled<'a>(subjects: impl Iterator<Item = &'a SubjectData>, quantity: Quantity) -> Vec<(Ns, u64)> {
    let mut all = BTreeMap::new();
    for (ns, count) in subjects.flat_map(|subject| subject.buckets(quantity)) {
        *all.entry(ns).or_default() += count;
    }
    all.into_iter().collect()
}
