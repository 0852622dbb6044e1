//! What of a [`Study`] people see first, and in which words: the same in the terminal and on the
//! page.

use crate::change::{Change, Judgement};
use crate::compare::constants::{
    COSTS_OF_MESSAGES, Constant, DRIFT_OF_LOOPS, RATE_OF_WAITS, REACTION_OF_LOOPS,
    REACTION_OF_MESSAGES, STEADY_MESSAGES,
};
use crate::error_parts::{ErrorBar, PARTS, RULE};
use crate::measurements::{Kind, MACHINE};
use crate::metric::{Metric, Stat, Unit};
use crate::no_effect::{self, NoEffect};
use crate::result::{Interval, Replayed, Row, Study, Subject};
use schedlab_model::{Ns, OwnThread};

/// Columns of tasks, the most important first: what does not fit is left out from the end.
pub const TASK_COLUMNS: [Metric; 9] = [
    Metric::Share,
    Metric::Steal,
    Metric::Latency(Stat::Percentile(50_000)),
    Metric::Latency(Stat::Percentile(99_000)),
    Metric::Response(Stat::Percentile(99_000)),
    Metric::Throughput,
    Metric::Latency(Stat::Max),
    Metric::Switches,
    Metric::Wait(Stat::Percentile(99_000)),
];
/// Columns of sources and channels.
const CLIENT_COLUMNS: [Metric; 6] = [
    Metric::Throughput,
    Metric::Response(Stat::Percentile(50_000)),
    Metric::Response(Stat::Percentile(95_000)),
    Metric::Response(Stat::Percentile(99_000)),
    Metric::Response(Stat::Percentile(99_500)),
    Metric::Response(Stat::Max),
];
/// Columns of the machine as a whole.
const MACHINE_COLUMNS: [Metric; 11] = [
    Metric::Utilisation,
    Metric::Agents,
    Metric::Transactions,
    Metric::FailedTransactions,
    Metric::Delivery(Stat::Percentile(50_000)),
    Metric::Commit(Stat::Percentile(50_000)),
    Metric::EndToEnd(Stat::Percentile(50_000)),
    Metric::Switches,
    Metric::IdleWaiting,
    Metric::IdleCapped,
    Metric::IdleLongest,
];

/// Returns the columns of a subject, the most important first.
const fn columns_of(kind: Kind) -> &'static [Metric] {
    match kind {
        Kind::Class | Kind::Task => &TASK_COLUMNS,
        Kind::Source | Kind::Channel => &CLIENT_COLUMNS,
        Kind::Machine => &MACHINE_COLUMNS,
    }
}

/// Returns the columns of a subject of this study: those about agents and guests only where there
/// are some.
pub fn columns(study: &Study, kind: Kind) -> Vec<Metric> {
    let delegated = study.rows.iter().any(|row| row.delegation.is_some());
    let has_guests = || {
        let all = study.rows.iter().take(1).flat_map(|row| &row.subjects);
        all.into_iter().any(|subject| subject.cell(Metric::Steal).is_some())
    };
    let is_there = |metric: &Metric| match metric {
        Metric::Steal => has_guests(),
        _ => delegated || !metric.is_of_agents(),
    };
    columns_of(kind).iter().copied().filter(is_there).collect()
}

/// Returns the heading of a metric's column in a table of `kind`. What clients see is all response
/// times: beside the median the percentile alone says which.
pub fn heading(metric: Metric, kind: Kind) -> String {
    match (kind, metric) {
        (Kind::Source | Kind::Channel, Metric::Throughput) => "requests/s".to_owned(),
        (Kind::Source | Kind::Channel, Metric::Response(stat))
            if stat != Stat::Percentile(50_000) =>
        {
            stat.to_string()
        }
        _ => metric.heading(),
    }
}

/// Classes below this share of one CPU are left out unless the user asks for all.
const MAIN_SHARE: f64 = 0.01;
/// How many classes are shown at most unless the user asks for all.
const MAIN_CLASSES: usize = 8;

/// Returns the subjects to show, in order, and how many tasks are not shown. Of the tasks the
/// server comes first: the one that was named, or the one that is guessed.
pub fn main_subjects(study: &Study, all: bool) -> (Vec<(Kind, String)>, usize) {
    let (mut main, hidden) = shown(study, all);
    let later = |kind: Kind, name: &str| is_task(kind) && !is_server(study, name);
    main.sort_by_key(|(kind, name)| (is_task(*kind), later(*kind, name)));
    (main, hidden)
}

/// Returns whether this program is the server that was named, or the one that is guessed.
pub fn is_server(study: &Study, name: &str) -> bool {
    match &study.served {
        Some(served) => served.classes.iter().any(|own| own == name),
        None => {
            study.guess.as_ref().is_some_and(|guess| guess.programs.iter().any(|own| own == name))
        }
    }
}

/// Returns the subjects to show, in the order of the result, and how many tasks are not shown.
fn shown(study: &Study, all: bool) -> (Vec<(Kind, String)>, usize) {
    let Some(base) = study.rows.first() else { return (Vec::new(), 0) };
    let share = |row: &Row, subject: &Subject| {
        let cell = row.find(subject.kind, &subject.name).and_then(|s| s.cell(Metric::Share));
        cell.map_or(0.0, |cell| cell.value.median)
    };
    let most =
        |subject: &Subject| study.rows.iter().map(|row| share(row, subject)).fold(0.0, f64::max);
    let is_set = |subject: &Subject| {
        study
            .rows
            .iter()
            .any(|row| row.find(subject.kind, &subject.name).is_some_and(|s| s.changed))
    };
    // A program has threads that never ran: beside those that did they say nothing.
    let runs = |subject: &Subject| is_set(subject) && most(subject) > 0.0;
    let some_run = base.subjects.iter().any(runs);
    let changed = |subject: &Subject| if some_run { runs(subject) } else { is_set(subject) };
    let mut classes: Vec<(&Subject, f64)> =
        base.subjects.iter().filter(|s| is_task(s.kind)).map(|s| (s, most(s))).collect();
    let total = classes.len();
    if !all {
        let named = |subject: &Subject| {
            study
                .headline
                .iter()
                .any(|figure| figure.kind == subject.kind && figure.subject == subject.name)
        };
        classes
            .retain(|(subject, share)| *share >= MAIN_SHARE || changed(subject) || named(subject));
        if classes.len() > MAIN_CLASSES {
            let key = |subject: &Subject| (named(subject), changed(subject));
            classes.sort_by(|a, b| key(b.0).cmp(&key(a.0)).then(b.1.total_cmp(&a.1)));
            classes.truncate(MAIN_CLASSES);
        }
    }
    let hidden = total - classes.len();
    // The machine as a whole is the subject of some scenarios only.
    let delegated = study.rows.iter().any(|row| row.delegation.is_some());
    let of_machine =
        all || delegated || study.expectations.iter().any(|checked| checked.subject == MACHINE);
    let of_machine = of_machine || study.headline.iter().any(|figure| figure.kind == Kind::Machine);
    let silent = if all { Vec::new() } else { silent(study) };
    let shown = |subject: &&Subject| {
        let heard = subject.kind != Kind::Source || !silent.contains(&subject.name.as_str());
        !is_task(subject.kind) && heard && (of_machine || subject.kind != Kind::Machine)
    };
    let clients = base.subjects.iter().filter(shown);
    let shown = clients.chain(classes.into_iter().map(|(subject, _)| subject));
    (shown.map(|subject| (subject.kind, subject.name.clone())).collect(), hidden)
}

/// The sources of which no request was finished in any run. (Where their messages go on into
/// another channel, say.)
pub fn silent(study: &Study) -> Vec<&str> {
    let zero = |subject: &Subject| subject.cells.iter().all(|cell| cell.value.median == 0.0);
    let everywhere =
        |name: &str| study.rows.iter().filter_map(|row| row.find(Kind::Source, name)).all(zero);
    let base = study.rows.first().map_or(&[][..], |row| &row.subjects);
    let sources = base.iter().filter(|subject| subject.kind == Kind::Source);
    sources.map(|subject| subject.name.as_str()).filter(|name| everywhere(name)).collect()
}

/// The sentence about them.
pub fn about_silent(study: &Study) -> Option<String> {
    let silent = silent(study);
    (!silent.is_empty())
        .then(|| format!("No request of {} was finished in any run.", silent.join(", ")))
}

/// Returns the subjects to show: what clients see first, then the tasks that a variant
/// changes, then by CPU share.
pub fn by_importance(study: &Study) -> (Vec<(Kind, String)>, usize) {
    let (mut main, hidden) = shown(study, false);
    let rank = |kind: Kind, name: &str| {
        let found = || study.rows.iter().filter_map(|row| row.find(kind, name));
        let share =
            |subject: &Subject| subject.cell(Metric::Share).map_or(0.0, |cell| cell.value.median);
        let most = found().map(share).fold(0.0, f64::max);
        let later = is_task(kind) && (most <= 0.0 || !is_server(study, name));
        let changed = found().any(|subject| subject.changed);
        (is_task(kind), later, !changed, (-most * 1e6) as i64)
    };
    main.sort_by_key(|(kind, name)| rank(*kind, name));
    (main, hidden)
}

/// Returns a ratio with two digits that count: `0.012`, `3.4`, `92,129`.
pub fn ratio(value: f64) -> String {
    match value {
        _ if !value.is_finite() || value <= 0.0 => format!("{value:.1}"),
        10.0.. => {
            let digits = format!("{value:.0}");
            let groups = digits.as_bytes().rchunks(3).rev();
            let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
            groups.join(",")
        }
        1.0.. => format!("{value:.1}"),
        _ => {
            let places = (1.0 - value.log10().floor()).clamp(2.0, 9.0) as usize;
            format!("{value:.places$}")
        }
    }
}

/// Fewer values than this beyond a percentile: it is the story of one or two of them.
const BEYOND: f64 = 2.0;

/// Whether `values` are too few for the percentile of this rank (in thousandths of a percent).
pub fn few_for(rank: u32, values: f64) -> bool {
    // The part beyond is whole thousandths: with 1 - 0.99 two hundred values would be a hair too
    // few for p99.
    values * f64::from(100_000_u32.saturating_sub(rank)) < BEYOND * 100_000.0
}

/// What is printed in place of the error of such a percentile.
pub const FEW: &str = "few";
/// What that means.
pub const ABOUT_FEW: &str =
    "few: fewer than two values lie beyond this percentile, so its error says little";

/// The time of each run that is counted, in seconds.
pub fn seconds(study: &Study) -> f64 {
    study.duration_ns.saturating_sub(study.warmup_ns) as f64 / 1e9
}

/// Whether `metric` of a subject that was recorded and simulated is a percentile of too few
/// activations.
pub fn few(study: &Study, subject: &Replayed, metric: Metric) -> bool {
    let (Metric::Latency(Stat::Percentile(rank)) | Metric::Response(Stat::Percentile(rank))) =
        metric
    else {
        return false;
    };
    let done = subject.cell(Metric::Throughput);
    done.is_some_and(|done| few_for(rank, done.recorded.min(done.simulated) * seconds(study)))
}

/// Whether a task of this name is schedlab itself (the recorder, an agent): it is measured, but no
/// verdict is about it.
pub fn is_own(name: &str) -> bool {
    name == OwnThread::PROGRAM || OwnThread::is_called(name)
}

/// Whether a subject is made of tasks.
pub fn is_task(kind: Kind) -> bool {
    matches!(kind, Kind::Class | Kind::Task)
}

/// From this many times on a ratio says no more than that it is large.
const LARGE: f64 = 1000.0;

/// `+12%±3%`, `x35±4`, `1/40`, `-3.0±0.2` (points of CPU share), `-99% (-100..-85)` where the error
/// ends at what is possible; `~` where it cannot be told, `same`, `gone` (it was there before) and
/// `new` in words. Without an error bar when there is no error to speak of (`alone`).
pub fn change(metric: Metric, change: &Change, alone: bool) -> String {
    match change.judgement {
        Judgement::Same => return "same".to_owned(),
        Judgement::CannotTell => return "~".to_owned(),
        _ => {}
    }
    let (value, error) = match (metric.unit(), change.ratio) {
        (_, Some(ratio)) if ratio <= 0.0 => return "gone".to_owned(),
        (Unit::Share, _) => {
            (format!("{:+.1}", change.difference * 100.0), format!("{:.1}", change.error * 100.0))
        }
        (_, Some(ratio)) => of_ratio(change, ratio),
        _ => return "new".to_owned(),
    };
    // A change that rounds to nothing is not worth a place.
    if matches!(value.as_str(), "+0%" | "-0%" | "+0.0" | "-0.0") {
        return String::new();
    }
    match change.error_bar.filter(|bar| bar.is_cut() || bar.factors) {
        _ if alone || error.is_empty() => value,
        Some(bar) => format!("{value} ({})", ends(metric, change, &bar)),
        None => format!("{value}±{error}"),
    }
}

/// Returns the ends of a change's interval as the change itself is written, without its unit:
/// `-100..-85`, or `1/90..1/20`.
fn ends(metric: Metric, change: &Change, bar: &ErrorBar) -> String {
    if let Some(base) = base(change).filter(|_| bar.factors) {
        // The bar belongs to the values of all seeds, the base to those of each: none is negative.
        let [low, high] = [bar.low, bar.high].map(|end| factor((1.0 + end / base).max(0.0)));
        return format!("{low}..{high}");
    }
    let (scale, digits) = match (metric.unit(), base(change)) {
        (Unit::Share, _) | (_, None) => (100.0, 1),
        (_, Some(base)) => (100.0 / base, 0),
    };
    format!("{:+.digits$}..{:+.digits$}", bar.low * scale, bar.high * scale)
}

/// Returns a ratio: `x12`, `1/40`, else in per cent.
fn factor(ratio: f64) -> String {
    match ratio {
        _ if ratio >= 10.0 => format!("x{ratio:.0}"),
        _ if ratio > 0.0 && ratio <= 0.1 => format!("1/{:.0}", 1.0 / ratio),
        _ => format!("{:+.0}%", (ratio - 1.0) * 100.0),
    }
}

/// Returns the value that a change is counted from; `None` where the ratio says nothing of it.
fn base(change: &Change) -> Option<f64> {
    let ratio = change.ratio.filter(|ratio| *ratio != 1.0)?;
    Some(change.difference / (ratio - 1.0))
}

/// A ratio and its error, as people read them.
fn of_ratio(change: &Change, ratio: f64) -> (String, String) {
    let error = (change.error / base(change).unwrap_or(1.0)).abs();
    match ratio {
        _ if ratio >= LARGE => (format!(">x{LARGE:.0}"), String::new()),
        _ if ratio >= 10.0 => (format!("x{ratio:.0}"), format!("{error:.0}")),
        // A part below a tenth is told as one where the error leaves it a meaning.
        _ if ratio <= 1.0 / LARGE && error < ratio => (format!("<1/{LARGE:.0}"), String::new()),
        _ if ratio <= 0.1 && error < ratio / 2.0 => {
            (format!("1/{:.0}", 1.0 / ratio), String::new())
        }
        _ => (format!("{:+.0}%", (ratio - 1.0) * 100.0), format!("{:.0}%", error * 100.0)),
    }
}

/// Returns the ends of a percentile's interval as tables have them: `9.52ms..9.91ms`, `>9.52ms`
/// without an upper end.
pub fn interval(interval: &Interval) -> String {
    let end = |end: Option<f64>| end.map(|ns| Ns(ns.round() as u64));
    schedlab_model::text::between(end(interval.low), end(interval.high))
}

/// Returns how errors come about: the rule, what each part is, and what the error of each figure of
/// the headline is made of.
pub fn about_errors(study: &Study) -> Vec<String> {
    let Some((base, others)) = study.rows.split_first() else { return Vec::new() };
    let recorded = study.self_replay.is_some();
    let mut lines = vec![format!(
        "value: median over {} seeds. Error of a change: {}; an interval ends at what is possible.",
        study.seeds.len(),
        if recorded {
            RULE
        } else {
            "half the range of the change over the seeds (each against itself)"
        }
    )];
    lines.extend(
        PARTS.iter().filter(|_| recorded).map(|def| format!("  {}: {}", def.name, def.doc)),
    );
    lines.extend(
        constants(study).iter().map(|of| format!("  {} = {}: {}", of.name, of.value, of.doc)),
    );
    for figure in &study.headline {
        let name = format!("{} {}", figure.subject(), figure.heading());
        // The only row is the self-replay.
        let own = figure.cell(base).and_then(|cell| cell.error_bar).filter(|_| others.is_empty());
        let own = own.map(|bar| format!("error of {name}: {}", bar.explained(figure.metric)));
        lines.extend(own.filter(|_| recorded));
        lines.extend(others.iter().filter(|_| recorded).filter_map(|row| {
            let bar = figure.cell(row)?.change?.error_bar?;
            Some(format!(
                "error of {name}, {}: {}",
                row_name(row, study),
                bar.explained(figure.metric)
            ))
        }));
    }
    lines
}

/// Returns the constants with which an interval of the result was made.
fn constants(study: &Study) -> Vec<Constant> {
    let cells = study.rows.iter().flat_map(|row| &row.subjects).flat_map(|subject| &subject.cells);
    let bars = |cell: &crate::result::Cell| {
        [cell.error_bar, cell.change.and_then(|change| change.error_bar)]
    };
    let all: Vec<ErrorBar> = cells.flat_map(bars).flatten().collect();
    let bars: Vec<&ErrorBar> = all.iter().filter(|bar| bar.factors).collect();
    let is_from = |replay: &str| study.self_replay.as_ref().is_some_and(|of| of.replay == replay);
    let (by_wakeups, by_messages) = (is_from("wakeups"), is_from("messages"));
    let made = [
        (RATE_OF_WAITS, bars.iter().any(|bar| bar.parts.sampling > 0.0)),
        (DRIFT_OF_LOOPS, by_wakeups && !bars.is_empty()),
        (REACTION_OF_LOOPS, by_wakeups && !bars.is_empty()),
        (REACTION_OF_MESSAGES, by_messages && all.iter().any(|bar| bar.parts.reaction > 0.0)),
        (COSTS_OF_MESSAGES, by_messages && all.iter().any(|bar| bar.parts.reaction > 0.0)),
        (STEADY_MESSAGES, by_messages && all.iter().any(|bar| bar.parts.drift > 0.0)),
    ];
    made.into_iter().filter(|(_, is_in)| *is_in).map(|(constant, _)| constant).collect()
}

/// Returns the settings of the rows that count against no other task, one for each setting and
/// group, whatever its value.
pub fn without_effect(study: &Study) -> Vec<&NoEffect> {
    no_effect::of_each(study.rows.iter().flat_map(|row| &row.no_effect))
}

/// A number does not leave its unit.
pub fn spaced(text: String) -> String {
    match text.find(|c: char| c.is_alphabetic() || c == '%') {
        Some(at) if at > 0 && text[..at].ends_with(|c: char| c.is_ascii_digit()) => {
            format!("{}\u{a0}{}", &text[..at], text[at..].replace("us", "µs"))
        }
        _ => text,
    }
}

/// A short name for a row: what sets it apart from the others.
pub fn row_name(row: &Row, study: &Study) -> String {
    let schedulers = study.rows.iter().any(|other| other.scheduler != row.scheduler);
    let variants = study.rows.iter().any(|other| other.variant != row.variant);
    match (schedulers, variants) {
        (true, true) => format!("{}, {}", row.scheduler, row.variant),
        (true, false) => row.scheduler.clone(),
        _ => row.variant.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_has_digits_that_count() {
        let shown = [92_129.4, 123.0, 3.44, 1.0, 0.0124, 0.5, 0.0].map(ratio);
        assert_eq!(shown, ["92,129", "123", "3.4", "1.0", "0.012", "0.50", "0.0"]);
    }

    /// The ends of a time are of all seeds' values, its change of each seed's.
    #[test]
    fn no_time_falls_by_more_than_all_of_it() {
        let bar = ErrorBar {
            low: -101.0,
            high: -79.0,
            parts: Default::default(),
            largest: None,
            factors: true,
        };
        let change = Change {
            difference: -99.0,
            error: 20.0,
            error_bar: Some(bar),
            ratio: Some(0.01),
            judgement: Judgement::Better,
        };
        let metric = Metric::Latency(Stat::Percentile(99_000));
        assert_eq!(ends(metric, &change, &bar), "-100%..-79%");
    }

    #[test]
    fn every_thread_of_schedlab_is_its_own() {
        assert!(
            is_own("schedlab") && OwnThread::ALL.into_iter().all(|thread| is_own(thread.name()))
        );
        assert!(!is_own("schedlab-demo") && !is_own("sched-messaging"));
    }
}
