//! The table of `latency --matrix` and `latency merge`.

use super::style::{Style, wrap};
use super::table::{Cell, Table};
use schedlab_lab::latency::{Matrix, MatrixRow, Truth, differences, findings, summary};
use schedlab_model::Ns;
use schedlab_model::text::between;
use schedlab_stats::OrderInterval;

/// Returns the result as text.
pub(crate) fn matrix(matrix: &Matrix, style: &Style) -> String {
    let found = findings(matrix);
    let mut text = String::new();
    if !found.is_empty() {
        text += &(style.bold(&wrap(&summary(matrix), style.width, 0)) + "\n\n");
    }
    text += &(style.bold("Wakeup latency") + "\n");
    for system in &matrix.systems {
        text += &format!("  {}: {}\n", system.name, system.described());
    }
    text.push('\n');
    let rows = matrix.rows();
    let confidence = rows.iter().map(|row| row.p50_ns.confidence).fold(1.0, f64::min) * 100.0;
    let several = matrix.systems.len() > 1;
    let mut head = vec!["load".to_owned(), "policy".to_owned()];
    if several {
        head.push("system".to_owned());
    }
    let numbers = ["p50", "p99", "max", "worst", "published", "mean", "p99.9", "samples", "rounds"];
    head.extend(numbers.map(String::from));
    let fixed = if several { 3 } else { 2 };
    let cells = rows.iter().map(|row| cells(row, several)).collect();
    let (table, left_out) = Table { head, rows: cells, fixed, ..Table::default() }.render(style);
    text += &table;
    if !left_out.is_empty() {
        text += &format!("  (no room for: {})\n", left_out.join(", "));
    }
    let note = format!(
        "mean, p50, p99, max: medians over the rounds, in brackets the interval that holds the \
         true median with {confidence:.0} % or more; p99.9 and worst are of all rounds, p99.9 \
         with the two samples between which it lies with 95 %; published: the maximum of \
         cyclictest for such a kernel, on another machine (docs/sources/experiments.md)"
    );
    text += &(style.dim(&wrap(&note, style.width, 2)) + "\n\n");
    text += &side_by_side(matrix, style);
    for (number, finding) in found.iter().enumerate() {
        let word = match finding.truth {
            Truth::Holds => style.good("TRUE"),
            Truth::DoesNot => style.bad("FALSE"),
            Truth::CannotTell => style.bold("CANNOT TELL HERE"),
        };
        text += &format!("  {}. {}: {word}\n", number + 1, finding.says);
        text += &(wrap(&finding.because, style.width, 5) + "\n");
    }
    for line in matrix.doubts() {
        text += &(style.dim(&wrap(&format!("note: {line}"), style.width, 2)) + "\n");
    }
    text
}

/// Returns `5.63ms [4.10..7.21]`: the ends in the unit of the median.
fn estimate(of: &OrderInterval) -> Cell {
    let (unit, name) = match of.median {
        1e9.. => (1e9, "s"),
        1e6.. => (1e6, "ms"),
        1e3.. => (1e3, "us"),
        _ => (1.0, "ns"),
    };
    let number = |ns: f64| match ns / unit {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    };
    Cell::plain(format!("{}{name} [{}..{}]", number(of.median), number(of.low), number(of.high)))
}

fn cells(row: &MatrixRow, several: bool) -> Vec<Cell> {
    let time = |ns: u64| Cell::plain(Ns(ns).to_string());
    let mut cells = vec![Cell::plain(row.load.as_str()), Cell::plain(row.policy.to_string())];
    if several {
        cells.push(Cell::plain(&row.system));
    }
    cells.extend([
        estimate(&row.p50_ns),
        estimate(&row.p99_ns),
        estimate(&row.max_ns),
        time(row.worst_ns),
        row.published_max_ns.map_or(Cell::default(), |ns| time(ns.0)),
        estimate(&row.mean_ns),
        row.p999_ns.map_or(Cell::default(), |ns| {
            let [low, high] = row.p999_interval_ns.map(|end| end.map(Ns));
            Cell::plain(format!("{} [{}]", Ns(ns), between(low, high)))
        }),
        Cell::plain(row.count.to_string()),
        Cell::plain(row.rounds.to_string()),
    ]);
    cells
}

fn side_by_side(matrix: &Matrix, style: &Style) -> String {
    let all = differences(matrix);
    if all.is_empty() {
        return String::new();
    }
    let base = matrix.systems.first().map(|system| system.name.as_str()).unwrap_or_default();
    let mut text = style.bold(&format!("Against {base}, over pairs of rounds")) + "\n";
    for one in &all {
        let word = match (one.told(), one.difference_ns.median < 0.0) {
            (false, _) => "cannot tell".to_owned(),
            (true, true) => style.good("shorter"),
            (true, false) => style.bad("longer"),
        };
        let us = |ns: f64| format!("{:+.1}", ns / 1000.0);
        text += &format!(
            "  {}, {}, {}: {} ratio {:.3} [{:.3}..{:.3}], {} us [{}..{}] ({:.0} %): {word}\n",
            one.load.as_str(),
            one.policy,
            one.system,
            one.rung,
            one.ratio.median,
            one.ratio.low,
            one.ratio.high,
            us(one.difference_ns.median),
            us(one.difference_ns.low),
            us(one.difference_ns.high),
            one.difference_ns.confidence * 100.0
        );
    }
    text + "\n"
}
