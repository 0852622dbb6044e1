//! An experiment: published, this machine, simulated.

use super::style::{Style, wrap};
use super::table::{Cell, Look, Table};
use schedlab_lab::experiment::{ExperimentResult, FigureLine, Sheet};
use std::fmt::Write as _;

/// Returns the result as text.
pub(crate) fn experiment(result: &ExperimentResult, style: &Style) -> String {
    let mut text = style.bold(&result.title) + "\n";
    for condition in &result.conditions {
        text += &(style.dim(&wrap(condition, style.width, 2)) + "\n");
    }
    for sheet in &result.sheets {
        let _ = writeln!(
            text,
            "\n{}\n{}",
            style.bold(&sheet.title),
            style.dim(&format!("  {}", sheet.source))
        );
        text += &table(sheet, style);
    }
    if !result.stream.is_empty() {
        text += "\nscheduled and descheduled, from the connection on (s on CPU: what)\n";
        for line in &result.stream {
            let _ =
                writeln!(text, "  {:10.6} {:>3}: {}", line.at_ns as f64 / 1e9, line.cpu, line.what);
        }
    }
    list(&mut text, "what it shows", &result.findings, style);
    list(&mut text, "why the columns differ", &result.reasons, style);
    list(&mut text, "doubts", &result.doubts, style);
    let back = if result.given_back.complete() {
        "\neverything that was started or changed is gone\n".to_owned()
    } else {
        style.bad("\nnot everything could be given back: `schedlab status`, `schedlab restore`\n")
    };
    text + &back
}

fn list(text: &mut String, title: &str, lines: &[String], style: &Style) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{}", style.bold(title));
    for line in lines {
        let wrapped = wrap(line, style.width, 4);
        let _ = writeln!(text, "  - {}", wrapped.trim_start());
    }
}

fn table(sheet: &Sheet, style: &Style) -> String {
    let base = sheet.lines.iter().find_map(|line| Some(line.against.as_ref()?.row.clone()));
    let against = base.map_or_else(String::new, |base| format!("against {base}"));
    let head = ["", "", "published", "this machine", "95 % interval", "simulated", &against];
    let mut before = "";
    let mut rows = Vec::new();
    for line in &sheet.lines {
        let name = if line.row == before { "" } else { line.row.as_str() };
        rows.push(cells(line, name));
        before = &line.row;
    }
    let (text, left_out) =
        Table { head: head.map(str::to_owned).to_vec(), rows, fixed: 2, ..Table::default() }
            .render(style);
    match left_out.is_empty() {
        true => text,
        false => text + &format!("  (no room for: {})\n", left_out.join(", ")),
    }
}

fn cells(line: &FigureLine, name: &str) -> Vec<Cell> {
    let unit = line.figure.unit;
    let shown =
        |value: Option<f64>| Cell::plain(value.map_or_else(String::new, |value| unit.show(value)));
    let interval = line.machine.as_ref().map_or_else(String::new, |found| match found.count {
        1 => "1 round".to_owned(),
        _ => format!("{} .. {}", unit.show(found.low), unit.show(found.high)),
    });
    let against = line.against.as_ref().map_or_else(Cell::default, |against| {
        let change = &against.difference;
        if change.told_apart {
            let sign = if change.median > 0.0 { "+" } else { "" };
            Cell::plain(format!("{sign}{}", unit.show(change.median)))
        } else {
            Cell { look: Look::Dim, ..Cell::plain("cannot be told apart") }
        }
    });
    vec![
        Cell::plain(name),
        Cell::plain(line.figure.name),
        shown(line.published),
        shown(line.machine.map(|found| found.median)),
        Cell::plain(interval),
        shown(line.simulated),
        against,
    ]
}
