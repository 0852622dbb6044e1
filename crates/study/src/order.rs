//! Which rows of a large comparison come first, and which columns.

use crate::measurements::Kind;
use crate::metric::Metric;
use crate::result::{Row, Study};
use crate::view;

/// As many rows are shown in their own order; more are sorted, and those after the first of them
/// folded.
pub const ROWS: usize = 9;

/// Returns the rows to show, as numbers, and how many are not shown: the first row, the one that
/// the verdict is about, then the best by the first figure of the headline.
pub fn rows(study: &Study, all: bool) -> (Vec<usize>, usize) {
    let count = study.rows.len();
    let own: Vec<usize> = (0..count).collect();
    let Some(figure) = study.headline.first().filter(|_| count > ROWS && !all) else {
        return (own, 0);
    };
    let value = |index: usize| figure.cell(&study.rows[index]).map(|cell| cell.value.median);
    // How many rows are better: metrics know which direction that is.
    let better = |row: usize| {
        let than = value(row);
        let is = |other: &usize| {
            let difference = value(*other).zip(than).map(|(other, than)| other - than);
            difference.is_some_and(|difference| {
                difference != 0.0 && figure.metric.is_better(difference) == Some(true)
            })
        };
        own.iter().filter(|other| is(other)).count()
    };
    let mut rest = own[1..].to_vec();
    rest.sort_by_key(|&row| {
        (study.verdict.row != Some(row), value(row).is_none(), better(row), row)
    });
    rest.truncate(ROWS - 1);
    let hidden = count - 1 - rest.len();
    (std::iter::once(0).chain(rest).collect(), hidden)
}

/// Returns the columns of a subject with their ranks: the figures of the headline are always there
/// and stay longest where there is little room.
pub fn columns(study: &Study, kind: Kind, name: &str) -> Vec<(Metric, u8)> {
    let mine = study.headline.iter().filter(|figure| figure.kind == kind && figure.subject == name);
    let first: Vec<Metric> = mine.map(|figure| figure.metric).collect();
    let has =
        |row: &Row, metric: Metric| row.find(kind, name).is_some_and(|s| s.cell(metric).is_some());
    let mut all = view::columns(study, kind);
    for &metric in &first {
        if !all.contains(&metric) && study.rows.iter().any(|row| has(row, metric)) {
            all.push(metric);
        }
    }
    let place = |metric: &Metric| first.iter().position(|own| own == metric);
    let rank = |(index, metric): (usize, Metric)| {
        (metric, place(&metric).unwrap_or(first.len() + index) as u8)
    };
    all.into_iter().enumerate().map(rank).collect()
}
