//! The rows of `--scan` as curves.

use crate::metric::{Metric, Unit};
use crate::order;
use crate::result::{Cell, Row, Study};
use crate::scan::Scan;
use crate::view::{by_importance, heading};
use schedlab_model::text::shown;
use schedlab_report::{Section, Sweep, SweepLine, SweepScale};

/// Subjects whose numbers have a curve.
const SUBJECTS: usize = 2;
/// Numbers of each that have one.
const NUMBERS: usize = 3;

/// Returns a curve for each scan and scheduler; without one the section has no parts.
pub(super) fn section(study: &Study, scans: &[Scan]) -> Section {
    let mut section = Section::new("Over the values").lead(
        "Every point is a row that was simulated. The slider goes from row to row; its numbers \
         are those of the tables.",
    );
    let mut schedulers: Vec<&str> = study.rows.iter().map(|row| row.scheduler.as_str()).collect();
    schedulers.dedup();
    for scan in scans {
        for scheduler in &schedulers {
            let found = sweep(study, scan, scheduler);
            found.into_iter().for_each(|sweep| section.push(sweep));
        }
    }
    section
}

/// Returns the curves of a scan under a scheduler; `None`: it has no rows.
fn sweep(study: &Study, scan: &Scan, scheduler: &str) -> Option<Sweep> {
    let row = |name: &String| {
        study.rows.iter().find(|row| row.scheduler == scheduler && row.variant == *name)
    };
    let rows: Vec<Option<&Row>> = scan.variants().iter().map(row).collect();
    let mut lines = Vec::new();
    for (kind, name) in by_importance(study).0.into_iter().take(SUBJECTS) {
        let mut columns = order::columns(study, kind, &name);
        columns.sort_by_key(|(_, rank)| *rank);
        let of_one = columns.into_iter().filter_map(|(metric, _)| {
            let cells: Vec<Option<&Cell>> =
                rows.iter().map(|row| (*row)?.find(kind, &name)?.cell(metric)).collect();
            line(study, format!("{} {}", shown(&name), heading(metric, kind)), metric, &cells)
        });
        lines.extend(of_one.take(NUMBERS));
    }
    let title = format!("{}, under {}", shown(&scan.what), shown(scheduler));
    let (what, values) = (scan.what.clone(), scan.values.clone());
    (!lines.is_empty()).then_some(Sweep { title, what, values, lines })
}

/// Returns one number over the values; `None`: no row has it.
fn line(study: &Study, name: String, metric: Metric, cells: &[Option<&Cell>]) -> Option<SweepLine> {
    if cells.iter().all(Option::is_none) {
        return None;
    }
    let alone = study.seeds.len() == 1 && study.self_replay.is_none();
    let text = |cell: &Option<&Cell>| {
        let Some(cell) = cell else { return "no value".to_owned() };
        let value = super::show(metric, cell.value.median);
        let change = cell.change.map(|of| super::change(metric, &of, alone)).unwrap_or_default();
        if change.is_empty() { value } else { format!("{value} ({change})") }
    };
    let between = |cell: &Option<&Cell>| cell.and_then(|c| c.error_bar).map(|b| [b.low, b.high]);
    Some(SweepLine {
        name,
        scale: match metric.unit() {
            Unit::Time => SweepScale::Time,
            Unit::Share => SweepScale::Part,
            Unit::PerSecond => SweepScale::Number,
        },
        at: cells.iter().map(|cell| cell.map(|cell| cell.value.median)).collect(),
        between: cells.iter().map(between).collect(),
        text: cells.iter().map(text).collect(),
    })
}
