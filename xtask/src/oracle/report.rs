//! Tables and JSON of `cargo xtask oracle`. Everything goes into a string first.

use super::data::Measured;
use super::judge::{Judgement, TaskJudgement};
use super::replay::{Difference, Replayed};
use serde_json::{Value, json};
use std::fmt::Write;

/// Heading of the table of runs.
pub(crate) fn run_heading(out: &mut String) {
    let _ = writeln!(
        out,
        "{:12} {:>9} {:>9} {:>9} {:>9} {:>10}  verdict",
        "scenario", "share", "wait mean", "p50", "p99", "run length"
    );
}

/// One scenario: the largest errors among its tasks.
pub(crate) fn run_line(out: &mut String, judgement: &Judgement) {
    let wait = |figure| 100.0 * judgement.wait_error(figure);
    let verdict = match (judgement.shares_inside(), judgement.waits_inside()) {
        (true, true) => "inside",
        (false, true) => "SHARES outside",
        (true, false) => "WAITS outside",
        (false, false) => "SHARES and WAITS outside",
    };
    let _ = writeln!(
        out,
        "{:12} {:9.4} {:8.1}% {:8.1}% {:8.1}% {:>10}  {verdict}",
        judgement.id,
        judgement.share_error(),
        wait(|m| m.wait_mean_us),
        wait(|m| m.wait_p50_us),
        wait(|m| m.wait_p99_us),
        format!("{}/{}", judgement.equal_modes(), judgement.tasks.len()),
    );
}

/// One line for each task: recorded, then modelled.
pub(crate) fn task_lines(out: &mut String, judgement: &Judgement) {
    for task in &judgement.tasks {
        let mark = match (task.share_inside, task.wait_inside) {
            (true, None | Some(true)) => ' ',
            _ => '!',
        };
        for (what, m) in [("recorded", &task.real), ("model", &task.model)] {
            let name = if what == "recorded" { task.name.as_str() } else { "" };
            let _ = writeln!(out, "  {mark} {name:4} {what:8} {}", figures(m));
        }
    }
}

fn figures(m: &Measured) -> String {
    let us = |value: Option<f64>| value.map_or("-".to_owned(), |us| format!("{us:.1}"));
    let lengths = m.run_len_merged_hist_us.iter().take(3);
    let lengths: Vec<String> =
        lengths.map(|(us, n)| format!("{:.1}ms x{n}", *us as f64 / 1e3)).collect();
    format!(
        "share {:.4}  wakeups {:4}  wait mean {:>8} p50 {:>8} p99 {:>8} us  runs {}",
        m.share,
        m.nr_wakeups,
        us(m.wait_mean_us),
        us(m.wait_p50_us),
        us(m.wait_p99_us),
        lengths.join(", ")
    )
}

/// Median and 95th percentile over all tasks of all scenarios.
pub(crate) fn run_sum(out: &mut String, judgements: &[Judgement]) {
    let tasks = || judgements.iter().flat_map(|j| &j.tasks);
    let judged = || tasks().filter(|task| task.wait_inside.is_some());
    let relative = |figure: fn(&Measured) -> Option<f64>| {
        judged()
            .filter_map(|task| task.relative(figure))
            .map(|e| 100.0 * e.abs())
            .collect::<Vec<_>>()
    };
    let shares = tasks().map(TaskJudgement::share_error).collect();
    let mut line = |what: &str, values: Vec<f64>, unit: &str| {
        let count = values.len();
        let (median, p95) = (rank(&values, 0.5), rank(&values, 0.95));
        let _ = writeln!(
            out,
            "  {what:16} median {median:8.4}{unit}  p95 {p95:8.4}{unit}  ({count} tasks)"
        );
    };
    line("share", shares, "");
    line("wait mean", relative(|m| m.wait_mean_us), "%");
    line("wait p50", relative(|m| m.wait_p50_us), "%");
    line("wait p99", relative(|m| m.wait_p99_us), "%");
    let (equal, all) =
        (judgements.iter().map(Judgement::equal_modes).sum::<usize>(), tasks().count());
    let p99 = tasks().filter(|task| task.p99_inside == Some(false)).count();
    let judged_p99 = tasks().filter(|task| task.p99_inside.is_some()).count();
    let _ = writeln!(out, "  most frequent run length equal for {equal} of {all} tasks");
    let _ = writeln!(
        out,
        "  p99 inside 25 % or 1 ms for {} of {judged_p99} tasks with 100 wakeups",
        judged_p99 - p99
    );
}

fn rank(values: &[f64], part: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let index = (part * values.len() as f64).ceil() as usize;
    values.get(index.max(1) - 1).copied().unwrap_or(0.0)
}

/// A scenario's figures as JSON.
pub(crate) fn run_json(judgement: &Judgement) -> Value {
    let figures = |m: &Measured| {
        json!({
            "share": m.share, "nr_wakeups": m.nr_wakeups, "wait_mean_us": m.wait_mean_us,
            "wait_p50_us": m.wait_p50_us, "wait_p99_us": m.wait_p99_us,
            "run_len_merged_hist_us": m.run_len_merged_hist_us,
        })
    };
    let tasks = judgement.tasks.iter().map(|task| {
        json!({
            "name": task.name, "recorded": figures(&task.real), "model": figures(&task.model),
            "share_inside": task.share_inside, "wait_inside": task.wait_inside, "p99_inside": task.p99_inside,
        })
    });
    json!({ "id": judgement.id, "inside": judgement.inside(), "tasks": tasks.collect::<Vec<_>>() })
}

/// Heading of the table of replays.
pub(crate) fn replay_heading(out: &mut String) {
    let _ = writeln!(
        out,
        "{:12} {:>8} {:>9} {:>9} {:>9} {:>13} {:>9}",
        "scenario", "switches", "equal", "different", "> 20 us", "median margin", "uncalled"
    );
}

/// One scenario (or the sum).
pub(crate) fn replay_line(out: &mut String, id: &str, replayed: &Replayed) {
    let _ = writeln!(
        out,
        "{id:12} {:8} {:8.2}% {:9} {:9} {:>13} {:9}",
        replayed.switches,
        replayed.equal() * 100.0,
        replayed.different.len(),
        replayed.beyond(20_000),
        replayed.median_margin().map_or("-".to_owned(), |ns| format!("{:.1} us", ns as f64 / 1e3)),
        replayed.uncalled.len()
    );
}

/// What led to the switches of all scenarios.
pub(crate) fn replay_causes(out: &mut String, replayed: &Replayed) {
    let _ = writeln!(
        out,
        "{:12} {:>8} {:>9} {:>9} {:>9}",
        "after", "switches", "equal", "different", "uncalled"
    );
    for (cause, [switches, different, uncalled]) in &replayed.by {
        let equal = 100.0 - 100.0 * *different as f64 / (*switches).max(1) as f64;
        let _ = writeln!(out, "{cause:12} {switches:8} {equal:8.2}% {different:9} {uncalled:9}");
    }
}

/// Every difference of a scenario.
pub(crate) fn differences(out: &mut String, replayed: &Replayed) {
    let mut list = |kind: &str, list: &[Difference]| {
        for d in list {
            let margin =
                d.margin.map_or("of class".to_owned(), |ns| format!("{:.1} us", ns as f64 / 1e3));
            let at = d.at.0 as f64 / 1e3;
            let _ = writeln!(out, "    {kind} at {at:.1} us, margin {margin}: {}", d.text);
        }
    };
    list("differs", &replayed.different);
    list("uncalled", &replayed.uncalled);
}

/// A scenario's replay as JSON.
pub(crate) fn replay_json(id: &str, replayed: &Replayed) -> Value {
    json!({
        "id": id, "switches": replayed.switches, "equal": replayed.equal(),
        "different": replayed.different.len(), "beyond_20_us": replayed.beyond(20_000),
        "median_margin_ns": replayed.median_margin(), "uncalled": replayed.uncalled.len(),
    })
}
