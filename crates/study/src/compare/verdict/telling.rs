//! Changes that can be told: larger than their error, and large enough for a user to feel.

use crate::change::Judgement;
use crate::headline::Figure;
use crate::measurements::Kind;
use crate::metric::{Metric, Stat, Unit};
use crate::result::{Cell, Row, Study, Subject};
use crate::view::{few_for, is_own, seconds};

/// What a user feels first, in this order.
pub(crate) const FELT: [Metric; 5] = [
    Metric::Steal,
    Metric::Response(Stat::Percentile(99_000)),
    Metric::Latency(Stat::Percentile(99_000)),
    Metric::Throughput,
    Metric::Share,
];
/// Changes below this part of the value are not worth a sentence.
pub(crate) const WORTH: f64 = 0.02;
/// Times below this are noise to every user, in nanoseconds.
pub(crate) const FELT_TIME: f64 = 5_000.0;

/// The percentile that users see, in thousandths of a percent: a task with too few values for it is
/// not in the verdict. Chosen: what service levels are mostly written in.
pub(crate) const TAIL: u32 = 99_000;

/// One change that can be told.
pub(crate) struct Telling<'a> {
    pub(crate) row: &'a Row,
    pub(crate) subject: &'a Subject,
    pub(crate) cell: &'a Cell,
    pub(crate) base: f64,
    /// |ln(value / base)|, with the value nearer to the base by its error: so much is certain.
    pub(crate) size: f64,
    pub(crate) better: bool,
}

/// Whether what becomes of this one can be told: it is none of schedlab's own threads, and no
/// program that does not replay and does not delay the server.
pub(super) fn counts(study: &Study, subject: &Subject) -> bool {
    let left_aside =
        study.served.as_ref().is_some_and(|served| served.left_aside.contains(&subject.name));
    !is_own(&subject.name) && !left_aside
}

/// Returns every change that can be told, row by row.
pub(crate) fn tellings(study: &Study) -> Vec<Telling<'_>> {
    let Some(base_row) = study.rows.first() else { return Vec::new() };
    let mut all = Vec::new();
    for row in &study.rows[1..] {
        for subject in row.subjects.iter().filter(|subject| counts(study, subject)) {
            let of_headline =
                |figure: &Figure| figure.kind == subject.kind && figure.subject == subject.name;
            if !matters(base_row, subject) && !study.headline.iter().any(of_headline) {
                continue;
            }
            let named = |metric: &Metric| is_named(study, subject, *metric);
            let more = subject
                .cells
                .iter()
                .map(|cell| cell.metric)
                .filter(|metric| !FELT.contains(metric));
            for metric in FELT.into_iter().chain(more.filter(named)) {
                let Some(cell) = subject.cell(metric) else { continue };
                let Some(change) = cell.change else { continue };
                let Some(ratio) = change.ratio else { continue };
                let better = match change.judgement {
                    Judgement::Better => true,
                    Judgement::Worse => false,
                    _ => continue,
                };
                // The number of the first row's table; with several seeds the change is the median
                // of pairs.
                let was = base_row.find(subject.kind, &subject.name).and_then(|of| of.cell(metric));
                let base =
                    was.map_or(cell.value.median - change.difference, |was| was.value.median);
                let named = is_named(study, subject, metric);
                let tiny =
                    metric.unit() == Unit::Time && change.difference.abs() < FELT_TIME && !named;
                let of_few = |stat| matches!(stat, Stat::Percentile(rank) if few_for(rank, samples(study, subject)));
                let thin = metric.stat().is_some_and(of_few);
                let spared = metric == Metric::Share && !better && does_the_same(base_row, subject);
                if (ratio - 1.0).abs() < WORTH || tiny || thin || spared {
                    continue;
                }
                let certain =
                    (change.difference.abs() - change.error).max(0.0).copysign(change.difference);
                let size = ((base + certain) / base).max(1e-6).ln().abs();
                all.push(Telling { row, subject, cell, base, size, better });
            }
        }
    }
    all
}

/// Whether the headline has this number.
fn is_named(study: &Study, subject: &Subject, metric: Metric) -> bool {
    let is = |figure: &Figure| {
        figure.metric == metric && figure.kind == subject.kind && figure.subject == subject.name
    };
    study.headline.iter().any(is)
}

/// Whether a subject finishes as much as before: then less CPU time for it is no loss.
fn does_the_same(base: &Row, subject: &Subject) -> bool {
    let rate = |of: &Subject| of.cell(Metric::Throughput).map(|cell| cell.value.median);
    let was = base.find(subject.kind, &subject.name).and_then(rate);
    was.zip(rate(subject)).is_some_and(|(was, is)| was > 0.0 && is >= was * (1.0 - WORTH))
}

/// How many activations or requests a subject finished in each run.
fn samples(study: &Study, subject: &Subject) -> f64 {
    subject.cell(Metric::Throughput).map_or(0.0, |cell| cell.value.median * seconds(study))
}

/// Classes that use next to nothing are not what a user asks about.
fn matters(base: &Row, subject: &Subject) -> bool {
    let share = |row: &Row| {
        row.find(subject.kind, &subject.name)?.cell(Metric::Share).map(|c| c.value.median)
    };
    !matches!(subject.kind, Kind::Class | Kind::Task)
        || subject.changed
        || share(base).is_some_and(|share| share >= 0.05)
}
