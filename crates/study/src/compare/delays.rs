//! Findings of runs as parts of a page.

use super::observe::Findings;
use crate::view::spaced;
use schedlab_model::text::shown;
use schedlab_model::{Ns, TaskId};
use schedlab_report::{Cell, Column, LaneWait, Matrix, Series, Table, Trace};
use schedlab_trace::Header;
use schedlab_trace::analysis::Label;
use schedlab_trace::analysis::blame::Culprit;
use schedlab_trace::analysis::follow::{Began, Occupant};
use schedlab_trace::analysis::worst::{Case, Worst};

/// Longest waits below the verdict.
const LONGEST: usize = 3;
/// Rows and columns of a matrix at most; smaller ones are added up.
const LINES: usize = 8;

/// Returns which task waited for which, the largest first. `None` when no task waited.
pub(crate) fn matrix(run: &str, findings: &Findings) -> Option<Matrix> {
    let blame = &findings.blame;
    let mut rows: Vec<usize> =
        (0..blame.keys.len()).filter(|&line| blame.waited(line) > Ns::ZERO).collect();
    rows.sort_by_key(|&line| std::cmp::Reverse(blame.waited(line)));
    let others = rows.split_off(rows.len().min(LINES));
    let mut sums: Vec<(Culprit, Ns)> = Vec::new();
    for (culprit, share) in rows.iter().flat_map(|&line| &blame.rows[line]) {
        match sums.iter_mut().find(|(known, _)| known == culprit) {
            Some(sum) => sum.1 += share.time,
            None => sums.push((*culprit, share.time)),
        }
    }
    sums.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    let shown: Vec<Culprit> = sums.iter().take(LINES).map(|(culprit, _)| *culprit).collect();
    let rest = sums.len() > shown.len();
    let times = |lines: &[usize]| {
        let all = || lines.iter().flat_map(|&line| &blame.rows[line]);
        let of = |wanted: &dyn Fn(Culprit) -> bool| {
            all().filter(|(culprit, _)| wanted(*culprit)).map(|(_, share)| share.time).sum::<Ns>()
        };
        let mut row: Vec<Ns> = shown.iter().map(|&one| of(&|culprit| culprit == one)).collect();
        if rest {
            row.push(of(&|culprit| !shown.contains(&culprit)));
        }
        row
    };
    let label = |line: usize| match &blame.keys.labels[line] {
        Label::Name(name) => name.clone(),
        Label::Task(task) => format!("task {}", task.0),
    };
    let mut matrix = Matrix {
        caption: format!(
            "{run}: time for which a row waited while a column was on the CPU of its run queue"
        ),
        rows_are: "waited".to_owned(),
        columns_are: "ran meanwhile".to_owned(),
        rows: rows.iter().map(|&line| label(line)).collect(),
        columns: shown
            .iter()
            .map(|culprit| match culprit {
                Culprit::Line(line) => label(*line),
                Culprit::Idle => "no task (idle)".to_owned(),
                Culprit::Throttled => "a limit".to_owned(),
                Culprit::Unknown => "unknown".to_owned(),
            })
            .collect(),
        times: rows.iter().map(|&line| times(&[line])).collect(),
    };
    if rest {
        matrix.columns.push("others".to_owned());
    }
    if !others.is_empty() {
        matrix.rows.push(format!("{} others", others.len()));
        matrix.times.push(times(&others));
    }
    (!matrix.rows.is_empty()).then_some(matrix)
}

/// Run-queue length of each run over time, all CPUs together.
pub(crate) fn queue(runs: &[(String, usize, Findings)]) -> Option<Series> {
    let step = runs.first()?.2.queue.step;
    let trace = |(name, style, findings): &(String, usize, Findings)| {
        let steps = findings.queue.cpus.iter().map(|cpu| cpu.steps.len()).max().unwrap_or(0);
        let at = |index: usize| {
            let sum: u64 = findings.queue.cpus.iter().filter_map(|cpu| cpu.steps.get(index)).sum();
            (sum as f64 / step.0 as f64 * 1000.0).round() / 1000.0
        };
        Trace { name: name.clone(), style: *style, values: (0..steps).map(at).collect() }
    };
    Some(Series {
        title: "Tasks that waited for a CPU, all CPUs together".to_owned(),
        unit: "tasks".to_owned(),
        about: format!("mean over {step}"),
        from_ns: runs.first()?.2.from,
        step_ns: step,
        traces: runs.iter().map(trace).collect(),
    })
}

/// The name of a task of a run, as its header has it.
fn name(header: &Header, task: TaskId) -> String {
    header.tasks.get(task.index()).map_or_else(|| "?".to_owned(), |task| task.comm.clone())
}

/// What was on the CPU while a task waited, and what held it back.
fn meanwhile<'a>(case: &'a Case, header: &'a Header) -> impl Iterator<Item = String> + 'a {
    let who = |who: Occupant| match who {
        Occupant::Task(task) => name(header, task),
        Occupant::Idle => "no task".to_owned(),
        Occupant::Unknown => "unknown".to_owned(),
    };
    let time = |ns: Ns| spaced(ns.to_string());
    let ran = case.meanwhile.iter().take(3);
    let ran = ran.map(move |(one, ns)| format!("{} {}", who(*one), time(*ns)));
    let held =
        case.held.map(|(limit, ns)| format!("held back {} by {}", time(ns), limit.words(header)));
    ran.chain(held)
}

/// How a wait began.
const fn began(case: &Case) -> &'static str {
    match case.began {
        Began::Woken { .. } => "woken",
        _ => "preempted",
    }
}

/// A moment, as the lanes have it.
fn moment(at: Ns) -> String {
    format!("{:.6}\u{a0}s", at.0 as f64 / 1e9)
}

/// Whether a task is one of the server's.
fn serves(task: TaskId, server: Option<&[bool]>) -> bool {
    server.is_some_and(|server| server.get(task.index()) == Some(&true))
}

/// The longest waits of a run, which is this one of the lanes: of the server, if one is known and
/// waited (then the second is true).
pub(crate) fn longest(
    run: usize,
    worst: &Worst,
    header: &Header,
    server: Option<&[bool]>,
) -> (Vec<LaneWait>, bool) {
    let wait = |case: &Case| {
        let length = spaced(case.length().to_string());
        let ran = meanwhile(case, header).collect::<Vec<_>>().join(", ");
        let ran = if ran.is_empty() { String::new() } else { format!("; meanwhile: {ran}") };
        LaneWait {
            run,
            cpu: case.cpu,
            from: case.from,
            to: case.to,
            head: shown(&format!("{} waited {length}", name(header, case.task))).into_owned(),
            text: shown(&format!("from {}, {}{ran}", moment(case.from), began(case))).into_owned(),
        }
    };
    let cases = &worst.cases;
    let of_server = cases.iter().any(|case| serves(case.task, server));
    let told = cases.iter().filter(|case| !of_server || serves(case.task, server));
    (told.take(LONGEST).map(wait).collect(), of_server)
}

/// The task that has a lane of its own at first: the server's that waited longest.
pub(crate) fn own_lanes(worst: &Worst, server: Option<&[bool]>) -> Vec<TaskId> {
    let longest = worst.cases.iter().map(|case| case.task);
    longest.filter(|task| serves(*task, server)).take(1).collect()
}

/// The longest waits of one run.
pub(crate) fn worst(run: &str, findings: &Findings, header: &Header) -> Table {
    let row = |case: &Case| {
        let time = |ns: Ns| Cell::number(spaced(ns.to_string()), ns.0 as f64);
        vec![
            Cell::head(name(header, case.task)),
            time(case.length()),
            Cell::number(moment(case.from), case.from.0 as f64 / 1e9),
            Cell::text(format!("{}, CPU {}", began(case), case.cpu.0)),
            Cell::text(meanwhile(case, header).collect::<Vec<_>>().join(", ")),
        ]
    };
    Table {
        caption: format!("{run}: the longest waits"),
        columns: vec![
            Column::text("task"),
            Column::number("waited"),
            Column::number("from"),
            Column::text("how"),
            Column::text("who ran meanwhile"),
        ],
        rows: findings.worst.cases.iter().map(row).collect(),
        fold: Some(format!("{run}: the longest waits")),
    }
}
