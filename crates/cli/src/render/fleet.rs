//! A folder of recordings as text: what is typical of its machines, what a setting does to them,
//! and a row for each recording.

use super::style::{Style, wrap};
use super::table::{Cell, Look, Table};
use schedlab_model::Ns;
use schedlab_model::text::shown;
use schedlab_stats::OrderInterval;
use schedlab_study::change::Judgement;
use schedlab_study::fleet::compare::{FleetChange, FleetCompared, FleetStudy};
use schedlab_study::fleet::{Fleet, FleetRecording, NUMBERS, ORDER, Typical};
use schedlab_study::metric::{Metric, Unit};
use std::collections::BTreeSet;

/// Recordings that are listed unless the user asks for more.
const LISTED: usize = 20;

/// Returns the text of `show FOLDER`.
pub(crate) fn fleet(found: &Fleet, top: Option<usize>, style: &Style) -> String {
    let all = &found.recordings;
    let tasks = found.tasks.as_deref().map_or_else(|| "tasks".to_owned(), |of| shown(of).into());
    let far: Vec<&FleetRecording> = all.iter().filter(|one| one.outlier).collect();
    let of = |metric: Metric| found.typical.iter().find(|typical| typical.metric == metric);
    let first = match of(ORDER) {
        None => format!("No wakeup of {tasks} was recorded."),
        Some(typical) => format!(
            "The run-queue latency p99 of {} is {} on half of {}{}{}",
            typical.subject.as_deref().map_or(tasks.as_str().into(), shown),
            ORDER.show(typical.interval.median),
            counted(typical.machines, "machine"),
            found.by.map_or_else(String::new, |by| longest_of(found, by)),
            match far.len() {
                0 => ".".to_owned(),
                few => format!(
                    "; {} far off, {} the most.",
                    if few == 1 { "1 recording is".to_owned() } else { format!("{few} are") },
                    match &far[0].subject {
                        Some(subject) => format!("{} of {}", shown(subject), far[0].file),
                        None => far[0].file.clone(),
                    }
                ),
            }
        ),
    };
    let mut text = style.bold(&wrap(&first, style.width, 0)) + "\n\n";
    text += &match found.by {
        Some(by) => subjects(found, by, top.unwrap_or(LISTED), style),
        None => numbers(found, style),
    };
    text += &recordings(all, top.unwrap_or(LISTED), style);
    text
}

/// Says of how many it is the longest.
fn longest_of(found: &Fleet, by: &str) -> String {
    let names: BTreeSet<&Option<String>> = found.typical.iter().map(|one| &one.subject).collect();
    if names.len() < 2 {
        return String::new();
    }
    format!(", the longest of {}", counted(names.len(), by))
}

/// What is typical of the machines: a row for each number.
fn numbers(found: &Fleet, style: &Style) -> String {
    let rows = found.typical.iter().map(|typical| {
        let show = |value: f64| typical.metric.show(value);
        vec![
            Cell::plain(typical.metric.heading()),
            Cell::plain(show(typical.interval.median)),
            Cell::plain(range(&typical.interval, show)),
            Cell::plain(typical.machines.to_string()),
        ]
    });
    let head = ["number", "median", "95% over machines", "machines"].map(String::from).to_vec();
    Table { head, rows: rows.collect(), fixed: 1, ..Table::default() }.render(style).0
}

/// What is typical of each subject: a row for each, with the medians over machines.
fn subjects(found: &Fleet, by: &str, top: usize, style: &Style) -> String {
    let groups: Vec<&[Typical]> = found.typical.chunk_by(|a, b| a.subject == b.subject).collect();
    let row = |own: &&[Typical]| -> Vec<Cell> {
        let name = own[0].subject.as_deref().map_or("".into(), shown);
        let machines = own.iter().map(|typical| typical.machines).max().unwrap_or(0);
        let number = |metric: &Metric| {
            let of = own.iter().find(|typical| typical.metric == *metric);
            Cell::plain(of.map_or_else(String::new, |of| metric.show(of.interval.median)))
        };
        let start = [Cell::plain(name.into_owned()), Cell::plain(machines.to_string())];
        start.into_iter().chain(NUMBERS.iter().map(number)).collect()
    };
    let head = [by.to_owned(), "machines".to_owned()].into_iter();
    let head = head.chain(NUMBERS.iter().map(|metric| metric.heading())).collect();
    let rows = groups.iter().take(top).map(row).collect();
    let mut text = Table { head, rows, fixed: 1, ..Table::default() }.render(style).0;
    if groups.len() > top {
        text += &format!("  {} more: --top N, --json has all\n", groups.len() - top);
    }
    text
}

fn recordings(all: &[FleetRecording], top: usize, style: &Style) -> String {
    let head = ["recording", "kernel", "CPUs", "length", "busy"].into_iter().map(str::to_owned);
    let head: Vec<String> =
        head.chain(NUMBERS.iter().map(|metric| metric.heading())).chain(["lost".into()]).collect();
    let row = |one: &FleetRecording| {
        let number = |metric: &Metric| {
            let value = one.value(*metric).map_or_else(String::new, |value| metric.show(value));
            let far = *metric == ORDER && one.outlier;
            let change = if far { "far off".to_owned() } else { String::new() };
            Cell { value, change, look: Look::Bad }
        };
        let name = match &one.subject {
            Some(subject) => format!("{}: {}", one.file, shown(subject)),
            None => one.file.clone(),
        };
        let start = [
            Cell::plain(name),
            Cell::plain(one.kernel.clone()),
            Cell::plain(one.cpus.to_string()),
            Cell::plain(Ns(one.duration_ns).to_string()),
            Cell::plain(Metric::Share.show(one.busy)),
        ];
        let lost = if one.lost > 0 { Cell::plain(one.lost.to_string()) } else { Cell::default() };
        start.into_iter().chain(NUMBERS.iter().map(number)).chain([lost]).collect()
    };
    let read: Vec<&FleetRecording> = all.iter().filter(|one| one.error.is_none()).collect();
    let rows: Vec<Vec<Cell>> = read.iter().take(top).map(|one| row(one)).collect();
    // The latency orders the rows; what belongs to the machine comes last.
    let ranks = vec![0, 7, 5, 6, 4, 2, 3, 0, 1, 3, 6];
    let mut text =
        format!("\n{}", Table { head, rows, fixed: 1, ranks, ..Table::default() }.render(style).0);
    if read.len() > top {
        text += &format!("  {} more: --top N, --json has all\n", read.len() - top);
    }
    text + &unread(all.iter().filter_map(|one| Some((&one.file, one.error.as_ref()?))), style)
}

fn unread<'a>(of: impl Iterator<Item = (&'a String, &'a String)>, style: &Style) -> String {
    let line = |(file, error): (&String, &String)| {
        // Messages begin with the path already.
        wrap(&format!("not read: {file}: {}", shown(error)), style.width, 2) + "\n"
    };
    of.take(LISTED).map(line).collect()
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn range(of: &OrderInterval, show: impl Fn(f64) -> String) -> String {
    let sure = match of.confidence {
        enough if enough >= schedlab_stats::CONFIDENCE => String::new(),
        less => format!(" ({:.0}% sure)", less * 100.0),
    };
    format!("{} to {}{sure}", show(of.low), show(of.high))
}

/// Returns the text of `compare FOLDER`.
pub(crate) fn fleet_study(found: &FleetStudy, all_rows: bool, style: &Style) -> String {
    let trusted = found.recordings.iter().filter(|one| one.trusted).count();
    let told: Vec<&FleetChange> = found
        .changes
        .iter()
        .filter(|change| !matches!(change.judgement, Judgement::CannotTell | Judgement::Same))
        .collect();
    let mut sentences: Vec<String> = told.iter().take(3).map(|change| sentence(change)).collect();
    if sentences.is_empty() {
        sentences
            .push(format!("No change can be told over {}.", counted(found.machines, "machine")));
    }
    let mut text = style.bold(&wrap(&sentences.join(" "), style.width, 0)) + "\n";
    let absent = found.recordings.iter().filter(|one| one.absent).count();
    let of = format!(
        "{trusted} of {} replay well enough to count, of {}{}.",
        counted(found.recordings.len(), "recording"),
        counted(found.machines, "machine"),
        match absent {
            0 => String::new(),
            some => format!("; {some} do not have what is changed"),
        }
    );
    text += &(wrap(&of, style.width, 0) + "\n\n");
    let shown: Vec<&FleetChange> = match all_rows || told.is_empty() {
        true => found.changes.iter().collect(),
        false => told,
    };
    let head = ["row", "task", "number", "median before", "change", "95% over machines"];
    let head = head.into_iter().chain(["machines", "better", "worse", "open"]);
    let table = Table {
        head: head.map(String::from).collect(),
        rows: shown.iter().map(|change| row(change)).collect(),
        fixed: 3,
        ..Table::default()
    };
    text += &table.render(style).0;
    let hidden = found.changes.len() - shown.len();
    if hidden > 0 {
        text += &format!("  {hidden} more cannot be told over machines: --all\n");
    }
    text + &compared(&found.recordings, style)
}

fn row(change: &FleetChange) -> Vec<Cell> {
    let (word, look) = match change.judgement {
        Judgement::Better => ("better", Look::Good),
        Judgement::Worse => ("worse", Look::Bad),
        Judgement::Different => ("different", Look::Dim),
        Judgement::CannotTell | Judgement::Same => ("", Look::Dim),
    };
    let by = |value: f64| factor(change.metric, value);
    let moved = match change.judgement {
        Judgement::CannotTell => "~".to_owned(),
        Judgement::Same => "same".to_owned(),
        _ => by(change.change.median),
    };
    let [better, worse, open] = change.recordings;
    vec![
        Cell::plain(change.row.clone()),
        Cell::plain(change.subject.clone()),
        Cell::plain(change.metric.heading()),
        Cell::plain(change.metric.show(change.before)),
        Cell { value: moved, change: word.to_owned(), look },
        Cell::plain(range(&change.change, by)),
        Cell::plain(change.machines.to_string()),
        Cell::plain(better.to_string()),
        Cell::plain(worse.to_string()),
        Cell::plain(open.to_string()),
    ]
}

/// Returns a change: points of shares, per cent of the rest, factors of what is large.
fn factor(metric: Metric, value: f64) -> String {
    if metric.unit() == Unit::Share {
        return format!("{:+.1}", value * 100.0);
    }
    match value {
        large if large >= 2.0 => format!("x{large:.1}"),
        small if small > 0.0 && small <= 0.5 => format!("1/{:.1}", 1.0 / small),
        value => format!("{:+.0}%", (value - 1.0) * 100.0),
    }
}

fn sentence(change: &FleetChange) -> String {
    let points = if change.metric.unit() == Unit::Share { " points" } else { "" };
    format!(
        "{}: {} of {} changes by {}{points} ({}) over {}.",
        shown(&change.row),
        change.metric.heading(),
        shown(&change.subject),
        factor(change.metric, change.change.median),
        range(&change.change, |value| factor(change.metric, value)),
        counted(change.machines, "machine")
    )
}

fn compared(all: &[FleetCompared], style: &Style) -> String {
    let listed = |one: &&FleetCompared| one.error.is_none();
    let word = |one: &FleetCompared| match (&one.outlier, one.trusted) {
        (Some(what), _) => format!("far off: {what}"),
        (None, false) => "not trusted".to_owned(),
        (None, true) => String::new(),
    };
    let rows: Vec<Vec<Cell>> = all
        .iter()
        .filter(listed)
        .filter(|one| one.outlier.is_some() || !one.trusted)
        .take(LISTED)
        .map(|one| {
            vec![
                Cell::plain(one.file.clone()),
                Cell::plain(word(one)),
                Cell::plain(one.verdict.clone()),
            ]
        })
        .collect();
    let mut text = String::new();
    if !rows.is_empty() {
        let head = ["recording", "what is about it", "verdict"].map(String::from).to_vec();
        text +=
            &format!("\n{}", Table { head, rows, fixed: 2, ..Table::default() }.render(style).0);
    }
    let wrong = all.iter().filter(|one| !one.absent);
    text + &unread(wrong.filter_map(|one| Some((&one.file, one.error.as_ref()?))), style)
}
