//! A comparison as text: verdict, self-replay, a table for each task group, expectations.

use super::diff::gate_outcome;
use super::style::{Style, wrap};
use super::table::{Cell, Look, Table};
use schedlab_model::Ns;
use schedlab_study::change::{Change, Judgement};
use schedlab_study::measurements::Kind;
use schedlab_study::metric::{Metric, Stat, Unit};
use schedlab_study::order;
use schedlab_study::result::{
    Cell as Measured, InputKind, Interval, Prediction, Replayed, ReplayedCell, Row, SelfReplay,
    Study, Subject,
};
use schedlab_study::view::{self, TASK_COLUMNS, main_subjects};
use std::fmt::Write as _;

/// How much of a result is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// Also tasks with less than 1 % of a CPU.
    pub(crate) all_tasks: bool,
    /// All rows, in the order of the result.
    pub(crate) all_rows: bool,
    /// Constants, costs, and how errors come about.
    pub(crate) explain: bool,
}

/// Returns the whole result.
pub(crate) fn study(study: &Study, style: &Style, show: Shown) -> String {
    let Shown { all_tasks, all_rows, explain } = show;
    let (main, hidden) = main_subjects(study, all_tasks);
    let rows = order::rows(study, &main, all_rows);
    let mut text = String::new();
    let _ = writeln!(text, "{}", style.bold(&wrap(&study.verdict.outcome, style.width, 0)));
    let _ = writeln!(text, "{}", wrap(&study.verdict.certainty, style.width, 0));
    text += &super::deploy::block(study, style);
    let _ = write!(text, "\n{}", head(study, style));
    if let Some(replay) = &study.self_replay {
        text += &self_replay(study, replay, &main, style);
    }
    let mut left_out = Vec::new();
    // The self-replay shows the only row of a recording.
    let alone = study.rows.len() < 2 && study.self_replay.is_some();
    for (kind, name) in main.iter().filter(|_| !alone) {
        let (table, missing) = subject(study, (*kind, name), &rows, style);
        text += &table;
        left_out.extend(missing);
    }
    for prediction in &study.predictions {
        text += &predicted(study, prediction, &main, style);
    }
    if !alone {
        text += &about_rows(study, &rows, style);
    }
    text += &footer(study, &main, hidden, left_out, style);
    for line in super::delegation::lines(study) {
        let _ = writeln!(text, "{}", wrap(&line, style.width, 2));
    }
    text += &expectations(study, style);
    for gated in &study.gates {
        let (what, row) =
            (gate_outcome(gated.outcome, style), format!("{}, {}", gated.scheduler, gated.variant));
        let line = format!("--fail-if '{}': {row}, {}: {}", gated.gate, gated.subject, gated.got);
        let _ = writeln!(text, "{what}  {}", wrap(&line, style.width, 2).trim_start());
    }
    for note in notes(study) {
        let _ = writeln!(text, "{}", wrap(&format!("note: {note}"), style.width, 0));
    }
    if explain {
        text += &explanation(study, style);
    }
    text
}

/// Returns what is said of rows that have no line of their own.
fn about_rows(study: &Study, rows: &order::Rows, style: &Style) -> String {
    let mut text = String::new();
    let mut say = |line: &str| {
        let _ = writeln!(text, "{}", style.dim(&wrap(line, style.width, 0)));
    };
    rows.equal
        .iter()
        .for_each(|equal| say(&format!("{} (--all shows each)", order::about_equal(study, equal))));
    if rows.hidden > 0 {
        let by = study.headline.first().map_or(String::new(), |figure| {
            format!(", by {} {}", figure.subject(), figure.heading())
        });
        let count = rows.shown.len();
        say(&format!("{count} of {} rows are shown{by} (--all shows them)", study.rows.len()));
    }
    text
}

fn head(study: &Study, style: &Style) -> String {
    let input = &study.input;
    let title = if input.title.is_empty() { String::new() } else { format!(": {}", input.title) };
    let cpus = if input.cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", input.cpus) };
    let seeds = match &study.seeds[..] {
        [one] => format!("seed {one}"),
        [first, .., last] => format!("seeds {first}-{last}"),
        [] => String::new(),
    };
    let (duration, hz) = (Ns(study.duration_ns), input.hz);
    let title = wrap(&format!("{}{title}", input.name), style.width, 0);
    let title = title.replacen(&input.name, &style.bold(&input.name), 1);
    let only = study.rows.first().map(|row| row.scheduler.as_str());
    let only = only.filter(|only| study.rows.iter().all(|row| row.scheduler == *only));
    let scheduler = only.map_or(String::new(), |only| format!("{only}, "));
    let part = input.part();
    let runs = format!("{scheduler}{cpus}, HZ={hz}, {duration} each{part}, {seeds}");
    let serve = study.guess.as_ref().map_or_else(String::new, |guess| {
        style.dim(&wrap(&format!("serve: {}", guess.sentence()), style.width, 0)) + "\n"
    });
    format!("{title}\n{}\n{serve}\n", style.dim(&wrap(&runs, style.width, 0)))
}

fn self_replay(
    study: &Study,
    replay: &SelfReplay,
    main: &[(Kind, String)],
    style: &Style,
) -> String {
    let scheduler = replay.scheduler.split(':').next().unwrap_or_default();
    let title = format!(
        "Self-replay: the recording against its simulation under {scheduler} ({})",
        replay.why
    );
    let mut text = format!("{}\n", style.bold(&wrap(&title, style.width, 0)));
    text += &replayed(study, &replay.subjects, main, style);
    let outside = replay.wakes_by_softirq + replay.wakes_by_hardirq + replay.wakes_unknown;
    let wakes = format!(
        "wakeups: {} by tasks, {outside} from outside ({}.{} %: {} by softirqs after interrupts, \
         {} by interrupts \
         and timers, {} unknown)",
        replay.wakes_by_tasks,
        replay.outside_permille / 10,
        replay.outside_permille % 10,
        replay.wakes_by_softirq,
        replay.wakes_by_hardirq,
        replay.wakes_unknown
    );
    let _ = writeln!(text, "{}\n", wrap(&wakes, style.width, 2));
    text
}

/// Returns recorded against simulated (or predicted) values, one line for each task group.
fn replayed(
    study: &Study,
    subjects: &[Replayed],
    main: &[(Kind, String)],
    style: &Style,
) -> String {
    let mut rows = Vec::new();
    let columns: Vec<Column> = TASK_COLUMNS
        .iter()
        .flat_map(|&metric| {
            let cells = subjects.iter().flat_map(|subject| &subject.cells);
            let found = cells
                .filter(|cell| cell.metric == metric)
                .any(|cell| cell.recorded_interval.is_some());
            std::iter::once(Column::Value(metric)).chain(found.then_some(Column::Interval(metric)))
        })
        .collect();
    let shown = |subject: &&Replayed| main.iter().any(|(_, name)| *name == subject.name);
    let mut shown: Vec<&Replayed> = subjects.iter().filter(shown).collect();
    shown.sort_by_key(|subject| !view::is_server(study, &subject.name));
    for subject in shown {
        let mut row = vec![Cell::plain(counted(&subject.name, subject.tasks))];
        for column in &columns {
            let metric = column.metric();
            let cell = subject.cells.iter().find(|cell| cell.metric == metric);
            row.push(cell.map_or_else(Cell::default, |cell| column.replayed(study, subject, cell)));
        }
        rows.push(row);
    }
    let mut names = vec!["task".to_owned()];
    names.extend(columns.iter().map(|column| column.heading(Kind::Class)));
    // The interval of the latency's tail comes behind the columns up to it; other intervals are the
    // first to go.
    let place = |metric: Metric| {
        TASK_COLUMNS.iter().position(|column| *column == metric).unwrap_or(0) as u8
    };
    let tail = place(TAIL);
    let rank = |column: &Column| {
        let place = place(column.metric());
        match column {
            Column::Value(_) if place <= tail => place,
            Column::Value(_) => place + 1,
            Column::Interval(_) if place == tail => tail + 1,
            Column::Interval(_) => LAST,
        }
    };
    let ranks = std::iter::once(0).chain(columns.iter().map(rank)).collect();
    Table { head: names, rows, fixed: 1, ranks, ..Table::default() }.render(style).0
}

fn predicted(
    study: &Study,
    prediction: &Prediction,
    main: &[(Kind, String)],
    style: &Style,
) -> String {
    let title = format!(
        "Prediction: {} recorded against what was predicted for `{}` under {}",
        prediction.file, prediction.variant, prediction.scheduler
    );
    let table = replayed(study, &prediction.subjects, main, style);
    format!("{}\n{table}\n", style.bold(&wrap(&title, style.width, 0)))
}

fn error_of(metric: Metric, recorded: f64, difference: f64) -> String {
    match metric.unit() {
        Unit::Share => format!("{:+.1}", difference * 100.0),
        _ if recorded > 0.0 => format!("{:+.0}%", difference / recorded * 100.0),
        _ => String::new(),
    }
}

fn counted(name: &str, tasks: usize) -> String {
    if tasks == 1 { name.to_owned() } else { format!("{name} ({tasks} tasks)") }
}

fn subject(
    study: &Study,
    (kind, name): (Kind, &str),
    shown: &order::Rows,
    style: &Style,
) -> (String, Vec<String>) {
    let (columns, column_ranks) = with_intervals(study, kind, name);
    // The verdict speaks of two figures at most.
    let of_headline =
        study.headline.iter().filter(|figure| figure.kind == kind && figure.subject == name);
    let lead = of_headline.count().min(2);
    // One run of each row, without a recording, has no error.
    let sure = study.seeds.len() == 1 && study.self_replay.is_none();
    let mut tasks = 1;
    let mut rows = Vec::new();
    // What all rows have in common needs no column.
    let differ =
        |name: fn(&Row) -> &str| study.rows.iter().any(|row| name(row) != name(&study.rows[0]));
    let variants = differ(|row| &row.variant);
    let schedulers = differ(|row| &row.scheduler) || !variants;
    for &index in &shown.shown {
        let row = &study.rows[index];
        let equal = shown.equal.iter().find(|equal| equal.first == index);
        let equals = equal.map_or(0, |equal| equal.rows.len());
        let subject = row.find(kind, name);
        tasks = subject.map_or(tasks, |subject| subject.tasks);
        let mut cells = Vec::new();
        cells.extend(schedulers.then(|| Cell::plain(&row.scheduler)));
        cells.extend(variants.then(|| Cell::plain(order::with_equals(&row.variant, equals))));
        for column in &columns {
            let cell = subject.and_then(|subject| subject.cell(column.metric()));
            cells.push(cell.map_or_else(Cell::default, |cell| column.cell(cell, sure)));
        }
        rows.push(cells);
    }
    let mut head = Vec::new();
    head.extend(schedulers.then(|| "scheduler".to_owned()));
    head.extend(variants.then(|| "variant".to_owned()));
    let fixed = head.len();
    head.extend(columns.iter().map(|column| column.heading(kind)));
    let ranks = std::iter::repeat_n(0, fixed).chain(column_ranks).collect();
    let (table, missing) = Table { head, rows, fixed, ranks, lead }.render(style);
    let title = match kind {
        Kind::Source => format!("{name} (source: what its clients see)"),
        Kind::Channel => format!("{name} (channel: requests that were finished)"),
        Kind::Machine => "the machine".to_owned(),
        _ => counted(name, tasks),
    };
    (format!("{}\n{table}\n", style.bold(&title)), missing)
}

/// A column of a subject's table.
#[derive(Clone, Copy)]
enum Column {
    /// Values and their changes.
    Value(Metric),
    /// Between which values the percentile beside it lies.
    Interval(Metric),
}

/// Ends the heading of a column of intervals.
const INTERVAL: &str = " interval";

impl Column {
    const fn metric(self) -> Metric {
        match self {
            Column::Value(metric) | Column::Interval(metric) => metric,
        }
    }

    fn heading(self, kind: Kind) -> String {
        let heading = view::heading(self.metric(), kind);
        if matches!(self, Column::Interval(_)) { heading + INTERVAL } else { heading }
    }

    fn cell(self, cell: &Measured, sure: bool) -> Cell {
        let Column::Value(metric) = self else {
            return Cell::plain(
                cell.interval.map_or_else(String::new, |interval| view::interval(&interval)),
            );
        };
        let (change, look) =
            cell.change.map_or_else(Default::default, |c| shown_change(metric, &c, sure));
        Cell { value: metric.show(cell.value.median), change, look }
    }
}

impl Column {
    /// What was recorded, and what was simulated for it.
    fn replayed(self, study: &Study, subject: &Replayed, cell: &ReplayedCell) -> Cell {
        let Column::Value(metric) = self else {
            let ends = |of: Option<Interval>| of.map_or_else(String::new, |of| view::interval(&of));
            let (was, is) = (ends(cell.recorded_interval), ends(cell.simulated_interval));
            return Cell { value: format!("{was} -> {is}"), look: Look::Dim, ..Cell::default() };
        };
        Cell {
            value: format!("{} -> {}", metric.show(cell.recorded), metric.show(cell.simulated)),
            change: if view::few(study, subject, metric) {
                view::FEW.to_owned()
            } else {
                error_of(metric, cell.recorded, cell.difference)
            },
            look: Look::Dim,
        }
    }
}

/// Returns the columns with their ranks. Intervals of the headline's percentiles stay longer than
/// columns that it does not name; the others are the first to go.
fn with_intervals(study: &Study, kind: Kind, name: &str) -> (Vec<Column>, Vec<u8>) {
    let headline =
        study.headline.iter().filter(|figure| figure.kind == kind && figure.subject == name);
    let first = headline.count() as u8;
    let found = || study.rows.iter().filter_map(|row| row.find(kind, name));
    let mut columns = Vec::new();
    for (metric, rank) in order::columns(study, kind, name) {
        columns.push((Column::Value(metric), if rank < first { rank } else { first + rank }));
        let has =
            |subject: &Subject| subject.cell(metric).is_some_and(|cell| cell.interval.is_some());
        if found().any(has) {
            columns
                .push((Column::Interval(metric), if rank < first { first + rank } else { LAST }));
        }
    }
    columns.into_iter().unzip()
}

/// The rank of what goes first.
const LAST: u8 = u8::MAX;
/// The metric whose interval is the last to go.
const TAIL: Metric = Metric::Latency(Stat::Percentile(99_000));

/// Returns the text of a change ([`view::change`]) and how it looks.
fn shown_change(metric: Metric, change: &Change, alone: bool) -> (String, Look) {
    let look = match change.judgement {
        Judgement::Better => Look::Good,
        Judgement::Worse => Look::Bad,
        Judgement::Different => Look::Plain,
        Judgement::Same | Judgement::CannotTell => Look::Dim,
    };
    (view::change(metric, change, alone), look)
}

fn footer(
    study: &Study,
    main: &[(Kind, String)],
    hidden: usize,
    mut left_out: Vec<String>,
    style: &Style,
) -> String {
    let mut text = String::new();
    let judged = |wanted: Judgement| {
        let cells =
            study.rows.iter().flat_map(|row| &row.subjects).flat_map(|subject| &subject.cells);
        cells.filter_map(|cell| cell.change).any(|change| change.judgement == wanted)
    };
    let mut legend = Vec::new();
    if study.rows.len() > 1 {
        legend.push(
            "changes are against the first row, ± their error; CPU share in points".to_owned(),
        );
    }
    if intervals(study) {
        legend.push(
            "interval: holds the percentile with 95 %, by order statistics over all runs of a row"
                .to_owned(),
        );
    }
    if judged(Judgement::CannotTell) {
        legend.push("~ cannot tell: the change is smaller than the error".to_owned());
    }
    if judged(Judgement::Same) {
        legend.push("same: in every run".to_owned());
    }
    let checked = study.predictions.iter().map(|prediction| &prediction.subjects);
    let mut replayed =
        study.self_replay.iter().map(|replay| &replay.subjects).chain(checked).flatten();
    let few =
        |subject: &Replayed| TASK_COLUMNS.iter().any(|metric| view::few(study, subject, *metric));
    if replayed.any(|subject| few(subject) && main.iter().any(|(_, name)| *name == subject.name)) {
        legend.push(view::ABOUT_FEW.to_owned());
    }
    if !legend.is_empty() {
        let _ = writeln!(text, "{}", style.dim(&wrap(&legend.join("; "), style.width, 0)));
    }
    let all = left_out.len();
    left_out.retain(|heading| !heading.ends_with(INTERVAL));
    left_out.sort();
    left_out.dedup();
    left_out.extend(
        (left_out.len() < all && intervals(study)).then(|| "intervals of percentiles".to_owned()),
    );
    if !left_out.is_empty() {
        let list =
            format!("no room for: {} (a wider terminal or --json shows them)", left_out.join(", "));
        let _ = writeln!(text, "{}", style.dim(&wrap(&list, style.width, 0)));
    }
    if let Some(about) = view::about_silent(study) {
        let _ = writeln!(text, "{}", style.dim(&wrap(&about, style.width, 0)));
    }
    if hidden > 0 {
        let line = format!(
            "{hidden} task groups with less than 1 % of a CPU are not shown (--all-tasks shows \
             them)"
        );
        let _ = writeln!(text, "{}", style.dim(&wrap(&line, style.width, 0)));
    }
    text
}

/// Whether a percentile of the study has an interval.
fn intervals(study: &Study) -> bool {
    let subjects = study.rows.iter().flat_map(|row| &row.subjects);
    subjects.flat_map(|subject| &subject.cells).any(|cell| cell.interval.is_some())
}

fn expectations(study: &Study, style: &Style) -> String {
    let all = study.expectations.len();
    if study.input.kind != InputKind::Scenario || all == 0 {
        return String::new();
    }
    let failed: Vec<_> = study.expectations.iter().filter(|checked| !checked.holds).collect();
    let mut text = format!("expectations: {} of {all} hold\n", all - failed.len());
    for checked in failed {
        let _ = writeln!(
            text,
            "{} line {}: {}: {}, {}, {} gave {}",
            style.bad("failed"),
            checked.line,
            checked.expectation,
            checked.scheduler,
            checked.variant,
            checked.subject,
            checked.got
        );
    }
    text
}

fn notes(study: &Study) -> Vec<String> {
    let mut notes = study.notes.clone();
    for row in &study.rows {
        for note in &row.notes {
            let line = format!("{}, {}: {note}", row.scheduler, row.variant);
            if !notes.contains(&line) {
                notes.push(line);
            }
        }
    }
    notes
}

/// Returns the kernel sections, and what the scenario's author fitted.
fn of_the_scenario(study: &Study) -> Vec<String> {
    let mut lines = Vec::new();
    let mut list = |title: &str, items: &[String]| {
        if !items.is_empty() {
            lines.push(title.to_owned());
            lines.extend(items.iter().map(|item| format!("  {item}")));
        }
    };
    list("kernel sections of the programs (name, kind, length):", &study.sections);
    list("fitted by the scenario's author:", &study.fitted);
    lines
}

/// What the simulation of a recording assumes, and the tests that it was put to.
fn of_the_self_replay(replay: &SelfReplay, say: &mut dyn FnMut(&str)) {
    say(&format!("recorded under: kernel {}, simulated as {}", replay.kernel, replay.scheduler));
    replay.assumptions.lines().for_each(&mut *say);
    let show = |share: f64| Metric::Share.show(share);
    for alone in &replay.alone {
        say(&format!(
            "{} without the tasks that never end: {} to {} of a CPU, judging from quiet stretches \
             of the recording; the simulation gives {}",
            alone.name,
            show(alone.low),
            show(alone.high),
            show(alone.simulated)
        ));
    }
    for half in &replay.second_half {
        say(&format!(
            "{} in the second half: {} of a CPU recorded, {} as the replay of the first half goes \
             on there",
            half.name,
            show(half.recorded),
            show(half.simulated)
        ));
    }
    if !replay.left_out.is_empty() {
        say(&format!(
            "settings of the kernel that the model does not have: {}",
            replay.left_out.join(", ")
        ));
    }
}

fn explanation(study: &Study, style: &Style) -> String {
    let mut text = format!("\n{}\n", style.bold("How these numbers come about"));
    let mut say = |line: &str| {
        let _ = writeln!(text, "{}", wrap(line, style.width, 2));
    };
    if let Some(replay) = &study.self_replay {
        of_the_self_replay(replay, &mut say);
    }
    if study.costs.is_empty() {
        say("costs of the machine: none (switches, wakeups, ticks and migrations are free)");
    } else {
        let fitted = if study.self_replay.is_some() {
            "fitted to this recording"
        } else {
            "from the scenario"
        };
        say(&format!("costs of the machine, {fitted}:"));
        for (name, ns) in &study.costs {
            let doc = schedlab_sim::Costs::knobs()
                .find(|(known, _)| known == name)
                .map_or("", |(_, doc)| doc);
            say(&format!("  {name} = {}: {doc}", Ns(*ns)));
        }
    }
    super::delegation::explanation(study).iter().for_each(|line| say(line));
    let mut known: Vec<&str> = Vec::new();
    for row in &study.rows {
        if known.contains(&row.scheduler.as_str()) {
            continue;
        }
        known.push(&row.scheduler);
        let spec = row.scheduler.parse::<schedlab_scheduler::SchedulerSpec>();
        let built = spec
            .and_then(|spec| schedlab_scheduler::registry::build(&spec, study.input.cpus.max(1)));
        for what in built.iter().flat_map(|scheduler| scheduler.fitted()) {
            say(&format!("fitted in {}: {what}", row.scheduler));
        }
    }
    of_the_scenario(study).iter().for_each(|line| say(line));
    view::about_errors(study).iter().for_each(|line| say(line));
    for row in &study.rows {
        say(&format!(
            "event hashes of {}, {}: {}",
            row.scheduler,
            row.variant,
            row.event_hashes.join(" ")
        ));
    }
    text
}
