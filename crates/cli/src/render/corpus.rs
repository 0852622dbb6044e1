//! What came of a folder as text: how many files failed, then a row for each gate.

use super::diff::gate_word;
use super::style::{Style, wrap};
use super::table::{Cell, Look, Table};
use schedlab_model::text::shown;
use schedlab_study::corpus::{CorpusFile, CorpusResult, FileOutcome};
use schedlab_study::gate::GateOutcome;
use schedlab_study::result::Gated;

/// Returns the text.
pub(crate) fn corpus(found: &CorpusResult, style: &Style) -> String {
    let CorpusResult { scheduler, against, files, .. } = found;
    let [failed, passed, open] = [FileOutcome::Failed, FileOutcome::Passed, FileOutcome::CannotSay]
        .map(|of| found.count(of));
    let wrong = found.count(FileOutcome::Error);
    let first = match failed {
        0 if wrong == files.len() => {
            format!("No file could be compared under {scheduler} and {against}")
        }
        0 => format!("No gate fails for {scheduler} against {against} in {} files", files.len()),
        _ => format!("{scheduler} fails in {failed} of {} files against {against}", files.len()),
    };
    let mut rest = vec![format!("{passed} passed")];
    for (count, what) in [
        (open, "cannot be judged"),
        (found.count(FileOutcome::NotCovered), "have nothing that a gate is about"),
        (wrong, "could not be compared"),
    ] {
        if count > 0 {
            rest.push(format!("{count} {what}"));
        }
    }
    let mut text = style.bold(&wrap(&format!("{first}."), style.width, 0)) + "\n";
    text += &(wrap(&format!("{}.", rest.join(", ")), style.width, 0) + "\n");
    let head = ["file", "gate", "about", "outcome", "found"].map(String::from).to_vec();
    let rows: Vec<Vec<Cell>> = files.iter().flat_map(rows).collect();
    if !rows.is_empty() {
        let table = Table { head, rows, fixed: 1, ..Table::default() };
        text += &format!("\n{}", table.render(style).0);
    }
    // Behind the table: a sentence does not fit into a column.
    for file in files.iter().filter(|file| file.outcome == FileOutcome::Error) {
        let said = format!("{}: {}", shown(&file.file), shown(&file.message));
        text += &format!("\n{}\n", wrap(&said, style.width, 2));
    }
    text
}

fn rows(file: &CorpusFile) -> Vec<Vec<Cell>> {
    let name = || Cell::plain(file.file.clone());
    if file.gates.is_empty() {
        let outcome = Cell::plain(file.outcome.name());
        return vec![vec![name(), Cell::default(), Cell::default(), outcome, Cell::default()]];
    }
    let row = |gated: &Gated| {
        let look = match gated.outcome {
            GateOutcome::Met => Look::Bad,
            GateOutcome::Not => Look::Good,
            GateOutcome::CannotSay => Look::Dim,
        };
        let change = gate_word(gated.outcome).to_owned();
        let outcome = Cell { value: String::new(), change, look };
        vec![
            name(),
            Cell::plain(gated.gate.clone()),
            Cell::plain(gated.subject.clone()),
            outcome,
            Cell::plain(gated.got.clone()),
        ]
    };
    file.gates.iter().map(row).collect()
}
