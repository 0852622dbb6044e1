//! The same pairs by several replays, beside each other.

use super::{Figure, PairResult};
use schedlab_study::compare::ReplayFrom;
use schedlab_study::metric::Metric;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What each replay gave for the same pairs.
type Replays = [(ReplayFrom, Vec<PairResult>)];

/// The same pairs by several replays, as one table in Markdown: what came, and what each predicted
/// with its error; below it, the median errors of each.
pub(super) fn side_by_side(results: &Replays) -> String {
    let mut text = "| pair | class | figure | before | after |".to_owned();
    for (from, _) in results {
        let _ = write!(text, " {from} | error |");
    }
    let _ = write!(text, "\n|---|---|---|---|---|{}\n", "---|---|".repeat(results.len()));
    let mut rows: Vec<(&str, &Figure)> = Vec::new();
    for result in results.iter().flat_map(|(_, list)| list) {
        for figure in &result.figures {
            if !rows.iter().any(|row| row.0 == result.name && row.1.is_of(figure)) {
                rows.push((&result.name, figure));
            }
        }
    }
    for (pair, row) in rows {
        let (before, after) = (row.metric.show(row.before), row.metric.show(row.after));
        let _ = write!(text, "| {pair} | {} | {} | {before} | {after} |", row.class, row.metric);
        for (_, list) in results {
            text.push_str(&predicted_in(list, pair, row));
        }
        text.push('\n');
    }
    text + "\n" + &medians(results) + &distrusts(results)
}

/// Two cells: what a replay predicted, and its error.
fn predicted_in(list: &[PairResult], pair: &str, row: &Figure) -> String {
    let result = list.iter().find(|result| result.name == pair);
    let figure = result.and_then(|result| result.figures.iter().find(|figure| figure.is_of(row)));
    let doubt =
        if result.is_some_and(|result| result.distrust.is_empty()) { "" } else { " (not trusted)" };
    match figure {
        None => " - | - |".to_owned(),
        Some(figure) => {
            format!(" {}{doubt} | {} |", figure.metric.show(figure.predicted), shown_error(figure))
        }
    }
}

/// The median errors of each replay, by metric.
fn medians(results: &Replays) -> String {
    let mut text = "| median error of all, trusted or not |".to_owned();
    for (from, _) in results {
        let _ = write!(text, " {from} |");
    }
    let _ = write!(text, "\n|---|{}\n", "---|".repeat(results.len()));
    let mut rows: BTreeMap<(Metric, bool), Vec<Option<f64>>> = BTreeMap::new();
    for (place, (_, list)) in results.iter().enumerate() {
        let mut errors: BTreeMap<(Metric, bool), Vec<f64>> = BTreeMap::new();
        for figure in list.iter().flat_map(|result| &result.figures) {
            errors
                .entry((figure.metric, figure.is_of_requests()))
                .or_default()
                .push(figure.off().abs());
        }
        for (key, errors) in errors {
            let row = rows.entry(key).or_insert_with(|| vec![None; results.len()]);
            row[place] = schedlab_stats::median(&errors);
        }
    }
    for ((metric, requests), medians) in rows {
        let _ = write!(text, "| {metric}{} |", if requests { " of requests" } else { "" });
        let unit = if metric == Metric::Share { "points" } else { "%" };
        for median in medians {
            let shown = median
                .map_or_else(|| "-".to_owned(), |median| format!("{:.1} {unit}", median * 100.0));
            let _ = write!(text, " {shown} |");
        }
        text.push('\n');
    }
    text
}

/// How many pairs each replay trusts, and why not the others.
fn distrusts(results: &Replays) -> String {
    let mut text = String::new();
    for (from, list) in results {
        let trusted = list.iter().filter(|result| result.distrust.is_empty()).count();
        let _ = writeln!(text, "\n{from}: {} pairs, {trusted} trusted.", list.len());
        for result in list {
            for why in &result.distrust {
                let _ = writeln!(text, "* {}: {why}", result.name);
            }
        }
    }
    text
}

fn shown_error(figure: &Figure) -> String {
    match figure.metric {
        Metric::Share => format!("{:+.1} points", figure.off() * 100.0),
        _ => format!("{:+.1} %", figure.off() * 100.0),
    }
}
