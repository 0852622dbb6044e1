//! Findings of runs as parts of a page.

use super::observe::Findings;
use schedlab_model::Ns;
use schedlab_report::{Cell, Column, Matrix, Series, Table, Trace};
use schedlab_trace::Header;
use schedlab_trace::analysis::Label;
use schedlab_trace::analysis::blame::Culprit;
use schedlab_trace::analysis::follow::{Began, Occupant};

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

/// The longest waits of one run.
pub(crate) fn worst(run: &str, findings: &Findings, header: &Header) -> Table {
    let name = |task: schedlab_model::TaskId| {
        header.tasks.get(task.index()).map_or_else(|| "?".to_owned(), |task| task.comm.clone())
    };
    let who = |who: Occupant| match who {
        Occupant::Task(task) => name(task),
        Occupant::Idle => "no task".to_owned(),
        Occupant::Unknown => "unknown".to_owned(),
    };
    let row = |case: &schedlab_trace::analysis::worst::Case| {
        let time = |ns: Ns| Cell::number(crate::view::spaced(ns.to_string()), ns.0 as f64);
        let meanwhile =
            case.meanwhile.iter().take(3).map(|(occupant, ns)| format!("{} {ns}", who(*occupant)));
        let began = match case.began {
            Began::Woken { .. } => "woken",
            _ => "preempted",
        };
        let held =
            case.held.map(|(limit, ns)| format!("held back {ns} by {}", limit.words(header)));
        let seconds = case.from.0 as f64 / 1e9;
        vec![
            Cell::head(name(case.task)),
            time(case.length()),
            Cell::number(format!("{seconds:.6}\u{a0}s"), seconds),
            Cell::text(format!("{began}, CPU {}", case.cpu.0)),
            Cell::text(meanwhile.chain(held).collect::<Vec<_>>().join(", ")),
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
