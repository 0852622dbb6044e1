//! Which rows of a large comparison come first, and which columns.

use crate::change::Judgement;
use crate::measurements::Kind;
use crate::metric::Metric;
use crate::result::{Row, Study};
use crate::view;

/// As many rows are shown in their own order; more are sorted, and those after the first of them
/// folded.
pub const ROWS: usize = 9;

/// A number that differs from that of the first row by at most this part, by a change that cannot
/// be told, is equal to it for a reader: the verdict counts no cost of less than 2 %.
const NEAR_FIRST: f64 = 0.02;
/// The same for numbers of two other rows, of which nothing says what can be told: they look alike
/// with the three digits that tables show.
const NEAR: f64 = 0.001;

/// Rows that show the same numbers as an earlier one.
#[derive(Clone, PartialEq, Debug)]
pub struct Equal {
    /// The row that is shown for them.
    pub first: usize,
    /// The others, in order.
    pub rows: Vec<usize>,
    /// The largest difference of two numbers, as a part of the larger one.
    pub within: f64,
}

/// The rows of a table.
#[derive(Clone, PartialEq, Debug)]
pub struct Rows {
    /// Places in [`Study::rows`], in the order in which they are shown.
    pub shown: Vec<usize>,
    /// Rows that show the same as one of `shown`.
    pub equal: Vec<Equal>,
    /// How many are neither shown nor equal to one that is.
    pub hidden: usize,
}

/// Returns the rows to show: the first row, the one that the verdict is about, then the best by the
/// first figure of the headline. A row whose numbers of `subjects` are those of an earlier row of
/// the same scheduler has no line of its own. `all`: every row has one.
pub fn rows(study: &Study, subjects: &[(Kind, String)], all: bool) -> Rows {
    if all {
        let own = (0..study.rows.len()).collect();
        return Rows { shown: own, equal: Vec::new(), hidden: 0 };
    }
    let (left, mut equal) = equal(study, subjects);
    let shown = best(study, left);
    equal.retain(|equal| shown.contains(&equal.first));
    let lines = shown.len() + equal.iter().map(|equal| equal.rows.len()).sum::<usize>();
    Rows { hidden: study.rows.len() - lines, shown, equal }
}

/// Returns the rows that have a line of their own, and those that share one.
pub fn equal(study: &Study, subjects: &[(Kind, String)]) -> (Vec<usize>, Vec<Equal>) {
    let mut equal: Vec<Equal> = Vec::new();
    let mut left: Vec<usize> = Vec::new();
    for row in 0..study.rows.len() {
        let found =
            left.iter().find_map(|&first| Some((first, alike(study, subjects, first, row)?)));
        let Some((first, within)) = found else {
            left.push(row);
            continue;
        };
        match equal.iter_mut().find(|known| known.first == first) {
            Some(known) => {
                known.rows.push(row);
                known.within = known.within.max(within);
            }
            None => equal.push(Equal { first, rows: vec![row], within }),
        }
    }
    (left, equal)
}

/// Returns by how much the numbers of two rows differ at most, when that is nothing to a reader and
/// no change is told of the second one; `None`: each needs a line.
fn alike(study: &Study, subjects: &[(Kind, String)], first: usize, second: usize) -> Option<f64> {
    let (a, b) = (&study.rows[first], &study.rows[second]);
    let apart = |row: &Row| (row.bound.is_some(), row.load.is_some());
    if a.scheduler != b.scheduler || apart(a) != apart(b) || study.verdict.row == Some(second) {
        return None;
    }
    let near = if first == 0 { NEAR_FIRST } else { NEAR };
    let mut most = 0.0_f64;
    for (kind, name) in subjects {
        for (metric, _) in columns(study, *kind, name) {
            let cell = |row: &Row| row.find(*kind, name).and_then(|s| s.cell(metric)).copied();
            let (a, b) = match (cell(a), cell(b)) {
                (Some(a), Some(b)) => (a, b),
                (None, None) => continue,
                _ => return None,
            };
            let (was, is) = (a.value.median, b.value.median);
            let difference = (was - is).abs() / was.abs().max(is.abs()).max(f64::MIN_POSITIVE);
            let told = b.change.is_some_and(|change| {
                !matches!(change.judgement, Judgement::Same | Judgement::CannotTell)
            });
            if difference > near || told && first == 0 {
                return None;
            }
            most = most.max(difference);
        }
    }
    Some(most)
}

/// Returns of `own`, where it is more than fit, the first, the one that the verdict is about, then
/// the best by the first figure of the headline.
fn best(study: &Study, own: Vec<usize>) -> Vec<usize> {
    let Some(figure) = study.headline.first().filter(|_| own.len() > ROWS) else { return own };
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
    std::iter::once(own[0]).chain(rest).collect()
}

/// Returns how a row is called where `count` others share its line.
pub fn with_equals(name: &str, count: usize) -> String {
    if count == 0 { name.to_owned() } else { format!("{name} (+{count} equal)") }
}

/// Returns the part of a sentence about rows that share a line.
pub fn about_equal(study: &Study, equal: &Equal) -> String {
    let name = |&row: &usize| view::row_name(&study.rows[row], study);
    let others: Vec<String> = equal.rows.iter().map(name).collect();
    let within = match equal.within {
        0.0 => "in every number".to_owned(),
        part => format!("within {:.1} %", (part * 100.0).max(0.1)),
    };
    format!("{}, {}: the same {within}, and one line", name(&equal.first), others.join(", "))
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
