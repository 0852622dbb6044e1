//! Pairs of machines with several CPUs: how good predictions are by the number of CPUs, and what
//! errors of shares are made of.

use super::{COMPARED, Figure, LargeChange, PairResult, Summary};
use schedlab_study::error_parts::{ErrorParts, PARTS};
use schedlab_study::metric::Metric;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Returns two tables with a line for each number of CPUs, which the name of a pair says
/// (`6.12 redis 4 CPUs, idle`).
pub(super) fn by_cpus(results: &[PairResult]) -> String {
    let mut groups: BTreeMap<u32, Vec<PairResult>> = BTreeMap::new();
    for result in results {
        groups.entry(cpus(&result.name).unwrap_or_default()).or_default().push(result.clone());
    }
    let mut text = "\n| CPUs | pairs | trusted | inside their interval | certain claims, wrong | \
                    shares by more than 10 points: told, wrong | rates, by more than a fifth | p99 \
                    of times, by more than half | median error: share | client's count | p99 of \
                    latency |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    let mut parts = "\n| CPUs | share: median error | of the recording itself | half of the \
                     interval |"
        .to_owned();
    PARTS.iter().for_each(|def| parts += &format!(" {} |", def.name));
    parts += &format!("\n|---|---|---|---|{}\n", "---|".repeat(PARTS.len()));
    for (name, results) in named(&groups).chain([("all".to_owned(), results)]) {
        text += &line(&name, results);
        parts += &line_of_parts(&name, results);
    }
    text + &parts + "\n"
}

fn named(groups: &BTreeMap<u32, Vec<PairResult>>) -> impl Iterator<Item = (String, &[PairResult])> {
    groups.iter().map(|(cpus, of)| (cpus.to_string(), of.as_slice()))
}

/// Returns how many CPUs the machine of a pair has, if its name says it.
fn cpus(name: &str) -> Option<u32> {
    let words: Vec<&str> = name.split([' ', ',']).collect();
    let at = words.iter().position(|word| ["CPU", "CPUs"].contains(word))?;
    words.get(at.checked_sub(1)?)?.parse().ok()
}

fn line(name: &str, results: &[PairResult]) -> String {
    let summary = Summary::from_results(results);
    let told = |large: LargeChange| summary.told.get(&large).copied().unwrap_or_default().cell();
    let error = |metric: Metric, unit: &str| {
        let error = summary.errors.get(&metric);
        error.map_or_else(|| "-".to_owned(), |error| format!("{:.1} {unit}", error * 100.0))
    };
    format!(
        "| {name} | {} | {} | {} of {} | {}, {} |{}{}{} {} | {} | {} |\n",
        summary.pairs.0,
        summary.pairs.1,
        summary.held.1,
        summary.held.0,
        summary.claims.0,
        summary.claims.1,
        told(LargeChange::Share),
        told(LargeChange::Rate),
        told(LargeChange::Time),
        error(Metric::Share, "points"),
        error(Metric::Throughput, "%"),
        error(COMPARED[2], "%"),
    )
}

/// Medians over the shares of trusted pairs: what came of the error, and what is stated of it.
fn line_of_parts(name: &str, results: &[PairResult]) -> String {
    let trusted = results.iter().filter(|result| result.distrust.is_empty());
    let shares: Vec<&Figure> = trusted
        .flat_map(|result| &result.figures)
        .filter(|figure| figure.metric == Metric::Share && figure.error.is_some())
        .collect();
    let median = |of: &dyn Fn(&Figure) -> Option<f64>| {
        let values: Vec<f64> = shares.iter().filter_map(|figure| of(figure)).collect();
        schedlab_stats::median(&values)
            .map_or_else(|| "-".to_owned(), |median| format!("{:.1}", median * 100.0))
    };
    let stated =
        |of: &dyn Fn(ErrorParts) -> f64| median(&|figure| figure.error.map(|bar| of(bar.parts)));
    let mut text = format!(
        "| {name} | {} | {} | {} |",
        median(&|figure| Some(figure.off().abs())),
        median(&|figure| figure.replayed.map(f64::abs)),
        stated(&|parts| parts.half_width()),
    );
    PARTS.iter().for_each(|def| {
        let _ = write!(text, " {} |", stated(&|parts| parts.get(def.part)));
    });
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_study::change::Judgement;
    use schedlab_study::error_parts::{ErrorBar, Possible};

    fn pair(name: &str, after: f64) -> PairResult {
        let parts = ErrorParts { drift: 0.2, ..ErrorParts::default() };
        let figure = Figure {
            class: "redis-server".to_owned(),
            metric: Metric::Share,
            before: 0.3,
            after,
            predicted: 0.5,
            error: Some(ErrorBar::new(0.5, parts, Possible::default())),
            replayed: Some(0.01),
            judgement: Judgement::Better,
        };
        PairResult {
            name: name.to_owned(),
            unseen: false,
            unchanged: false,
            distrust: Vec::new(),
            figures: vec![figure],
            verdict: String::new(),
        }
    }

    #[test]
    fn the_number_of_cpus_is_in_the_name() {
        assert_eq!(cpus("6.12 redis 4 CPUs, idle"), Some(4));
        assert_eq!(cpus("6.12 redis 8 CPUs 20 s, back from idle"), Some(8));
        assert_eq!(cpus("6.1 nginx 1 CPU, same"), Some(1));
        assert_eq!(cpus("nginx nice 1"), None);
    }

    #[test]
    fn each_number_of_cpus_has_a_line_and_its_parts() {
        let results = [pair("6.12 redis 2 CPUs, idle", 0.54), pair("6.12 redis 8 CPUs, idle", 0.8)];
        let text = by_cpus(&results);
        let two = "| 2 | 1 | 1 | 1 of 1 | 1, 0 | 1 of 1, 0 | 0 of 0, 0 | 0 of 0, 0 | 4.0 points |";
        assert!(text.contains(two), "{text}");
        assert!(text.contains("| 8 | 1 | 1 | 0 of 1 | 1, 0 |"), "{text}");
        assert!(text.contains("| all | 2 | 2 | 1 of 2 | 2, 0 |"), "{text}");
        assert!(
            text.contains("| 8 | 30.0 | 1.0 | 20.0 | 0.0 | 0.0 | 0.0 | 20.0 | 0.0 |"),
            "{text}"
        );
    }
}
