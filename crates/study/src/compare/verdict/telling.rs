//! Changes that can be told: larger than their error, and large enough for a user to feel.

use crate::change::Judgement;
use crate::measurements::Kind;
use crate::metric::{Metric, Stat, Unit};
use crate::result::{Cell, Row, Study, Subject};
use crate::view::{few_for, is_own, seconds};

/// What a user feels first, in this order.
pub(crate) const FELT: [Metric; 4] = [
    Metric::Response(Stat::Percentile(99_000)),
    Metric::Latency(Stat::Percentile(99_000)),
    Metric::Throughput,
    Metric::Share,
];
/// Changes below this part of the value are not worth a sentence.
const WORTH: f64 = 0.02;
/// Times below this are noise to every user, in nanoseconds.
const FELT_TIME: f64 = 5_000.0;

/// The percentile that users see: a task with too few values for it is not in the verdict.
pub(super) const TAIL: u32 = 99_000;

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

/// Returns every change that can be told, row by row. Those of schedlab's own threads are not among them.
pub(crate) fn tellings(study: &Study) -> Vec<Telling<'_>> {
    let Some(base) = study.rows.first() else { return Vec::new() };
    let mut all = Vec::new();
    for row in &study.rows[1..] {
        for subject in row.subjects.iter().filter(|subject| matters(base, subject) && !is_own(&subject.name))
        {
            for metric in FELT {
                let Some(cell) = subject.cell(metric) else { continue };
                let Some(change) = cell.change else { continue };
                let Some(ratio) = change.ratio else { continue };
                let better = match change.judgement {
                    Judgement::Better => true,
                    Judgement::Worse => false,
                    _ => continue,
                };
                let base = cell.value.median - change.difference;
                let tiny = metric.unit() == Unit::Time && change.difference.abs() < FELT_TIME;
                let thin = metric.unit() == Unit::Time && few_for(TAIL, samples(study, subject));
                if (ratio - 1.0).abs() < WORTH || tiny || thin {
                    continue;
                }
                let certain = (change.difference.abs() - change.error).max(0.0).copysign(change.difference);
                let size = ((base + certain) / base).max(1e-6).ln().abs();
                all.push(Telling { row, subject, cell, base, size, better });
            }
        }
    }
    all
}

/// How many activations or requests a subject finished in each run.
fn samples(study: &Study, subject: &Subject) -> f64 {
    subject.cell(Metric::Throughput).map_or(0.0, |cell| cell.value.median * seconds(study))
}

/// Classes that use next to nothing are not what a user asks about.
fn matters(base: &Row, subject: &Subject) -> bool {
    let share =
        |row: &Row| row.find(subject.kind, &subject.name)?.cell(Metric::Share).map(|c| c.value.median);
    !matches!(subject.kind, Kind::Class | Kind::Task)
        || subject.changed
        || share(base).is_some_and(|share| share >= 0.05)
}
