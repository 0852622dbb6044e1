//! A diff as text: the verdict, the gates, then what changed.

use super::style::{Style, wrap};
use super::table::{Cell, Look, Table};
use schedlab_study::change::Judgement;
use schedlab_study::diff::{self, Diff};
use schedlab_study::gate::GateOutcome;

/// Returns the outcome of a gate in a word.
pub(super) const fn gate_word(outcome: GateOutcome) -> &'static str {
    match outcome {
        GateOutcome::Met => "FAILED",
        GateOutcome::Not => "passed",
        GateOutcome::CannotSay => "CANNOT SAY",
    }
}

/// Returns the word, coloured.
pub(super) fn gate_outcome(outcome: GateOutcome, style: &Style) -> String {
    let word = gate_word(outcome);
    if outcome == GateOutcome::Not { style.good(word) } else { style.bad(word) }
}

/// Returns the text.
pub(crate) fn diff(diff: &Diff, style: &Style, all: bool) -> String {
    let mut text = style.bold(&wrap(&diff.verdict.outcome, style.width, 0)) + "\n";
    text += &(wrap(&diff.verdict.certainty, style.width, 0) + "\n");
    for gated in &diff.gates {
        let what = gate_outcome(gated.outcome, style);
        text += &format!("\n{what}  --fail-if '{}'  {}: {}", gated.gate, gated.subject, gated.got);
    }
    if !diff.gates.is_empty() {
        text.push('\n');
    }
    let (table, cells) = table(diff, all);
    if !table.rows.is_empty() {
        text += &format!("\n{}", table.render(style).0);
    }
    let hidden = diff.subjects.iter().map(|subject| subject.cells.len()).sum::<usize>() - cells;
    if hidden > 0 {
        let line =
            format!("{hidden} numbers did not change by more than chance (--all shows them)");
        text += &format!("\n{}\n", style.dim(&wrap(&line, style.width, 0)));
    }
    for (names, what) in [(&diff.gone, "only before"), (&diff.new, "only after")] {
        if !names.is_empty() {
            text +=
                &format!("{}\n", wrap(&format!("{what}: {}", names.join(", ")), style.width, 0));
        }
    }
    for note in &diff.notes {
        text += &format!("{}\n", wrap(note, style.width, 0));
    }
    text
}

fn table(diff: &Diff, all: bool) -> (Table, usize) {
    let head = ["task", "tasks", "metric", "before", "after", "change", "interval"]
        .map(String::from)
        .to_vec();
    let mut rows = Vec::new();
    for subject in &diff.subjects {
        for cell in &subject.cells {
            if all || !matches!(cell.judgement, Judgement::Same | Judgement::CannotTell) {
                rows.push(row(subject, cell));
            }
        }
    }
    let cells = rows.len();
    (Table { head, rows, fixed: 1, ..Table::default() }, cells)
}

fn row(subject: &diff::Subject, cell: &diff::Cell) -> Vec<Cell> {
    let [a, b] = subject.tasks;
    let tasks = if a == b { a.to_string() } else { format!("{a} -> {b}") };
    let percent = (cell.after / cell.before - 1.0) * 100.0;
    let look = match cell.judgement {
        Judgement::Better => Look::Good,
        Judgement::Worse => Look::Bad,
        Judgement::Different => Look::Plain,
        _ => Look::Dim,
    };
    let signed = |value: f64| {
        let shown = cell.metric.show(value.abs());
        format!("{}{shown}", if value < 0.0 { "-" } else { "+" })
    };
    let interval = match (&cell.lacks, cell.interval) {
        (Some(lacks), _) => lacks.clone(),
        (None, Some([low, high])) => format!("{} .. {}", signed(low), signed(high)),
        _ => String::new(),
    };
    let change = if percent.is_finite() { format!("{percent:+.1}%") } else { String::new() };
    let changed = Cell { value: " ".to_owned(), change, look };
    vec![
        Cell::plain(subject.name.clone()),
        Cell::plain(tasks),
        Cell::plain(cell.metric.to_string()),
        Cell::plain(cell.metric.show(cell.before)),
        Cell::plain(cell.metric.show(cell.after)),
        changed,
        Cell::plain(interval),
    ]
}
