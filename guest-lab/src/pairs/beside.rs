//! The same pairs by several replays, beside each other.

use super::{Figure, PairResult, Summary, servers};
use schedlab_study::compare::{CLIENT_LOG, ReplayFrom};
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

/// The same pairs by several replays, a line for each server: what each replay trusts and claims,
/// and its median errors, those of pairs that it does not trust too.
pub(super) fn by_server(results: &Replays) -> String {
    let names: Vec<String> = results.iter().map(|(from, _)| from.to_string()).collect();
    let mut text = format!(
        "\n| server (each: {}) | pairs | trusted | inside their interval | certain claims, wrong | \
         median error: share | client's count | share, of the recording itself |\n\
         |---|---|---|---|---|---|---|---|\n",
        names.join(" / ")
    );
    let lists: Vec<_> = results.iter().map(|(_, list)| servers(list)).collect();
    let Some(first) = lists.first() else { return text };
    for server in first.keys() {
        let of: Vec<&[PairResult]> =
            lists.iter().map(|list| list.get(server).map_or(&[][..], Vec::as_slice)).collect();
        text += &line(server, &of);
    }
    let all: Vec<&[PairResult]> = results.iter().map(|(_, list)| list.as_slice()).collect();
    text + &line("all", &all) + "\n"
}

/// The line of a server; `of`: its pairs by each replay.
fn line(server: &str, of: &[&[PairResult]]) -> String {
    let each = |cell: &dyn Fn(&[PairResult]) -> String| {
        of.iter().map(|results| cell(results)).collect::<Vec<_>>().join(" / ")
    };
    let unseen = of.iter().all(|results| results.iter().all(|result| result.unseen));
    let summary =
        |cell: &dyn Fn(Summary) -> String| each(&|results| cell(Summary::from_results(results)));
    let median = |results: &[PairResult], error: &dyn Fn(&Figure) -> Option<f64>, unit: &str| {
        let figures = results.iter().flat_map(|result| &result.figures);
        let errors: Vec<f64> = figures.filter_map(error).map(f64::abs).collect();
        schedlab_stats::median(&errors)
            .map_or_else(|| "-".to_owned(), |median| format!("{:.1}{unit}", median * 100.0))
    };
    let is_share = |figure: &Figure| figure.metric == Metric::Share;
    format!(
        "| {server}{} | {} | {} | {} | {} | {} | {} | {} |\n",
        if unseen { ", **unseen**" } else { "" },
        of.first().map_or(0, |results| results.len()),
        summary(&|of| of.pairs.1.to_string()),
        summary(&|of| format!("{} of {}", of.held.1, of.held.0)),
        summary(&|of| format!("{}, {}", of.claims.0, of.claims.1)),
        each(&|results| median(results, &|of| is_share(of).then(|| of.off()), "")),
        each(&|results| {
            median(results, &|of| (of.class == CLIENT_LOG).then(|| of.off()), " %")
        }),
        each(&|results| median(results, &|of| of.replayed.filter(|_| is_share(of)), "")),
    )
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

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_study::change::Judgement;

    fn pair(name: &str, predicted: f64, distrust: &[&str]) -> PairResult {
        let figure = Figure {
            class: "redis-server".to_owned(),
            metric: Metric::Share,
            before: 0.3,
            after: 0.5,
            predicted,
            error: None,
            replayed: Some(0.01),
            judgement: Judgement::Same,
        };
        PairResult {
            name: name.to_owned(),
            unseen: false,
            unchanged: false,
            distrust: distrust.iter().map(|why| (*why).to_owned()).collect(),
            figures: vec![figure],
            verdict: String::new(),
        }
    }

    #[test]
    fn each_server_has_a_line_with_the_errors_of_both_replays() {
        let messages =
            vec![pair("6.1 redis 1 CPU, idle", 0.49, &[]), pair("nginx nice 1", 0.5, &[])];
        let wakeups =
            vec![pair("6.1 redis 1 CPU, idle", 0.53, &["far off"]), pair("nginx nice 1", 0.5, &[])];
        let text = by_server(&[(ReplayFrom::Messages, messages), (ReplayFrom::Wakeups, wakeups)]);
        let redis = "| 6.1 redis 1 CPU | 1 | 1 / 0 | 0 of 0 / 0 of 0 | 0, 0 / 0, 0 | 1.0 / 3.0 | \
                     - / - | 1.0 / 1.0 |";
        assert!(text.contains(redis), "{text}");
        assert!(text.contains("| nginx | 1 | 1 / 1 |"), "{text}");
        assert!(text.contains("| all | 2 | 2 / 1 |"), "{text}");
    }
}
