//! Which rows of a large comparison come first.

use crate::measurements::Kind;
use crate::metric::{Metric, Stat};
use crate::result::{Row, Study};
use crate::view::by_importance;

/// As many rows are shown in their own order; more are sorted, and those after the first of them folded.
pub const ROWS: usize = 9;

/// What rows are sorted by: a metric of a subject.
pub fn sorted_by(study: &Study) -> Option<(Kind, String, Metric)> {
    let p99 = Stat::Percentile(99_000);
    let (kind, name) = by_importance(study).0.into_iter().next()?;
    let metric = match kind {
        Kind::Source | Kind::Channel => Metric::Response(p99),
        Kind::Machine => Metric::Utilisation,
        Kind::Class | Kind::Task => Metric::Latency(p99),
    };
    Some((kind, name, metric))
}

/// Returns the rows to show, as numbers, and how many are not shown: the first row, then the best by what they are
/// [sorted by](sorted_by).
pub fn rows(study: &Study, all: bool) -> (Vec<usize>, usize) {
    let count = study.rows.len();
    let own: Vec<usize> = (0..count).collect();
    let Some((kind, name, metric)) = sorted_by(study).filter(|_| count > ROWS && !all) else {
        return (own, 0);
    };
    let value = |row: &Row| {
        row.find(kind, &name)
            .and_then(|subject| subject.cell(metric))
            .map_or(f64::INFINITY, |cell| cell.value.median)
    };
    let mut rest = own[1..].to_vec();
    rest.sort_by(|a, b| value(&study.rows[*a]).total_cmp(&value(&study.rows[*b])));
    rest.truncate(ROWS - 1);
    let hidden = count - 1 - rest.len();
    (std::iter::once(0).chain(rest).collect(), hidden)
}
