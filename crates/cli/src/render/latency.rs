//! The ladder of a latency measurement.

use super::style::{Style, wrap};
use super::table::{Cell, Table};
use schedlab_lab::latency::{LatencyResult, RUNGS, Row};
use schedlab_measure::Budget;
use schedlab_model::Ns;
use schedlab_study::gate::GateOutcome;

/// Sentences of the verdict that come before the table.
const ANSWER: usize = 2;

/// Returns the result as text.
pub(crate) fn latency(result: &LatencyResult, style: &Style) -> String {
    let (report, request) = (&result.report, &result.report.request);
    let (answer, rest) = result.verdict.split_at(result.verdict.len().min(ANSWER));
    let mut text = style.bold(&wrap(&answer.join(" "), style.width, 0)) + "\n\n";
    text += &(style.bold("Wakeup latency") + &format!(" on {}\n", result.kernel));
    let slack = match (request.policy.is_fair(), report.slack) {
        (true, slack) => format!("timer slack {slack}"),
        (false, _) => "no timer slack (real-time)".to_owned(),
    };
    let dma = match request.dma_latency_us {
        None => "idle states as they are".to_owned(),
        Some(us) => format!("/dev/cpu_dma_latency held at {us} us"),
    };
    let wake = format!("{:?}", request.wake).to_lowercase();
    let memory = if request.lock && report.unlocked.is_none() {
        "memory locked"
    } else {
        "memory not locked"
    };
    text += &format!(
        "  policy {}, woken by {wake}, {slack}, {dma}, {memory}, {}\n\n",
        request.policy, report.elapsed
    );
    let mut head: Vec<String> =
        ["", "interval", "samples", "min", "mean"].map(String::from).to_vec();
    head.extend(RUNGS.iter().map(|(name, _)| (*name).to_owned()));
    head.extend(["max", "missed", "steal", "foreign", "interrupts"].map(String::from));
    let rows =
        result.rows.iter().enumerate().map(|(index, row)| cells(result, index, row)).collect();
    let (table, left_out) = Table { head, rows, fixed: 1, ..Table::default() }.render(style);
    text += &table;
    if !left_out.is_empty() {
        text += &format!("  (no room for: {})\n", left_out.join(", "));
    }
    text.push('\n');
    if let Some(budget) = &result.blame {
        text += &blame(budget, style);
    }
    if let Some(line) = result.rows.last().and_then(intervals) {
        text += &(style.dim(&wrap(&line, style.width, 2)) + "\n");
    }
    for line in rest {
        text += &(wrap(line, style.width, 2) + "\n");
    }
    for line in &result.doubts {
        text += &(style.dim(&wrap(&format!("note: {line}"), style.width, 2)) + "\n");
    }
    for gate in &result.gates {
        let value = gate.value_ns.map_or("nothing".to_owned(), |ns| Ns(ns).to_string());
        let line = format!("{} ({}): {value}", gate.gate, gate.subject);
        text += &match gate.outcome {
            GateOutcome::Met => style.bad(&format!("  FAILED {line}")),
            GateOutcome::Not => style.good(&format!("  passed {line}")),
            GateOutcome::CannotSay => {
                format!("  CANNOT SAY {line}: {}", gate.lacks.as_deref().unwrap_or_default())
            }
        };
        text.push('\n');
    }
    text
}

/// Returns between which samples the percentiles of a row lie.
fn intervals(row: &Row) -> Option<String> {
    let one = |((name, _), [low, high]): (&(&str, f64), &[Option<u64>; 2])| {
        let end =
            |ns: &Option<u64>, none: &str| ns.map_or(none.to_owned(), |ns| Ns(ns).to_string());
        format!("{name} {}..{}", end(low, "below the smallest"), end(high, "beyond the largest"))
    };
    let shown =
        RUNGS.iter().zip(&row.intervals_ns).zip(&row.rungs_ns).filter(|(_, rung)| rung.is_some());
    let all: Vec<String> = shown.map(|(pair, _)| one(pair)).collect();
    (!all.is_empty()).then(|| format!("with 95 % ({}): {}", row.name, all.join(", ")))
}

/// Returns where the time of the wakeup that ended the run went, part by part.
fn blame(budget: &Budget, style: &Style) -> String {
    let woken = match budget.woken_after_ns {
        Some(ns) => format!("woken {} after its time", Ns(ns)),
        None => "its wakeup was not seen".to_owned(),
    };
    let mut text = style.bold("Stopped")
        + &format!(" at a wakeup {} late on CPU {} ({woken})\n", Ns(budget.total_ns), budget.cpu.0);
    for part in &budget.parts {
        let share = format!("{:5.1} %", budget.share(part) * 100.0);
        let line = format!(
            "  {share} {:>9}  {} {}",
            Ns(part.ns).to_string(),
            part.cause.words(),
            part.called()
        );
        text += line.trim_end();
        text.push('\n');
    }
    let total: u64 = budget.parts.iter().map(|part| part.ns).sum();
    text + &format!(
        "  {:5.1} % {:>9}  in all\n\n",
        total as f64 * 100.0 / budget.total_ns.max(1) as f64,
        Ns(total).to_string()
    )
}

fn cells(result: &LatencyResult, index: usize, row: &Row) -> Vec<Cell> {
    let report = &result.report;
    let time = |ns: u64| Cell::plain(Ns(ns).to_string());
    let thread = report.threads.get(index);
    let mut cells = vec![
        Cell::plain(&row.name),
        Cell::plain(thread.map_or(String::new(), |thread| thread.interval.to_string())),
        Cell::plain(row.count.to_string()),
        time(row.min_ns),
        time(row.mean_ns),
    ];
    cells.extend(row.rungs_ns.iter().map(|rung| rung.map_or(Cell::default(), time)));
    cells.push(time(row.max_ns));
    let missed: u64 = match thread {
        Some(thread) => thread.missed,
        None => report.threads.iter().map(|thread| thread.missed).sum(),
    };
    cells.push(Cell::plain(missed.to_string()));
    let cpu = thread.and_then(|thread| report.cpus.iter().find(|cpu| cpu.cpu == thread.cpu.0));
    // Counted in clock ticks, which can give more than the time of a short run.
    let part = |ns: u64| {
        format!("{:.1} %", (ns as f64 * 100.0 / report.elapsed.0.max(1) as f64).min(100.0))
    };
    cells.push(Cell::plain(cpu.map_or(String::new(), |cpu| part(cpu.steal_ns))));
    cells.push(Cell::plain(cpu.map_or(String::new(), |cpu| part(cpu.foreign_ns))));
    cells.push(Cell::plain(cpu.map_or(String::new(), |cpu| cpu.interrupts.to_string())));
    cells
}
