//! `compare --scan`: a curve over the values of one setting.

use super::style::Style;
use schedlab_study::measurements::Kind;
use schedlab_study::metric::{Metric, Stat};
use schedlab_study::result::{Row, Study};
use schedlab_study::scan::Scan;
use schedlab_study::view;
use std::fmt::Write as _;
use unicode_width::UnicodeWidthStr;

/// How many subjects have a curve.
const SUBJECTS: usize = 2;
/// A bar is at most so wide.
const BAR: usize = 40;

/// Returns a curve for each scheduler and each of the first subjects: a bar for each value.
pub(crate) fn scan(study: &Study, scan: &Scan, style: &Style) -> String {
    let mut text = String::new();
    let mut schedulers: Vec<&str> = study.rows.iter().map(|row| row.scheduler.as_str()).collect();
    schedulers.dedup();
    for (kind, name) in view::by_importance(study).0.into_iter().take(SUBJECTS) {
        let metric = metric(study, kind, &name);
        for scheduler in &schedulers {
            let rows = || study.rows.iter().filter(|row| row.scheduler == *scheduler);
            let value = |row: &Row| Some(row.find(kind, &name)?.cell(metric)?.value.median);
            let found: Vec<(&str, Option<f64>)> = scan
                .values
                .iter()
                .zip(scan.variants())
                .map(|(shown, variant)| {
                    (shown.as_str(), rows().find(|row| row.variant == variant).and_then(value))
                })
                .collect();
            if found.iter().all(|(_, value)| value.is_none()) {
                continue;
            }
            let title =
                format!("{name}, {} over {} ({scheduler})", view::heading(metric, kind), scan.what);
            let _ = writeln!(text, "{}", style.bold(&title));
            text += &bars(metric, &found, style);
            text.push('\n');
        }
    }
    text
}

/// What the curve of a subject is about: its first number in the headline, else its tail, else how
/// much it had.
fn metric(study: &Study, kind: Kind, name: &str) -> Metric {
    let tail = match kind {
        Kind::Source | Kind::Channel => Metric::Response(Stat::Percentile(99_000)),
        Kind::Machine => Metric::Utilisation,
        _ => Metric::Latency(Stat::Percentile(99_000)),
    };
    let of_headline =
        study.headline.iter().filter(|figure| figure.kind == kind && figure.subject == name);
    let wanted = of_headline.map(|figure| figure.metric).chain([tail]);
    let has = |metric: &Metric| {
        study
            .rows
            .iter()
            .any(|row| row.find(kind, name).is_some_and(|subject| subject.cell(*metric).is_some()))
    };
    let last = if matches!(kind, Kind::Source | Kind::Channel) {
        Metric::Throughput
    } else {
        Metric::Share
    };
    wanted.into_iter().find(has).unwrap_or(last)
}

fn bars(metric: Metric, found: &[(&str, Option<f64>)], style: &Style) -> String {
    let most = found.iter().filter_map(|(_, value)| *value).fold(0.0, f64::max);
    let wide = found.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    let room = style.width.saturating_sub(wide + 16).clamp(4, BAR);
    let mut text = String::new();
    for (name, value) in found {
        let pad = " ".repeat(wide - name.width());
        let Some(value) = value else {
            let _ = writeln!(text, "  {pad}{name}  no value");
            continue;
        };
        let eighths =
            if most > 0.0 { (value / most * room as f64 * 8.0).round() as usize } else { 0 };
        let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
        let bar = "█".repeat(eighths / 8) + part;
        let space = " ".repeat(room + 1 - bar.width().min(room + 1));
        let _ = writeln!(text, "  {pad}{name}  {bar}{space}{}", metric.show(*value));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_is_the_largest_value() {
        let found = [("0.7ms", Some(2e6)), ("14ms", Some(1e6)), ("28ms", None)];
        let text = bars(Metric::Latency(Stat::Max), &found, &Style { width: 41, ..Style::plain() });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].matches('█').count(), 2 * lines[1].matches('█').count(), "{text}");
        assert!(
            lines[2].ends_with("no value") && lines.iter().all(|line| line.width() <= 41),
            "{text}"
        );
    }
}
