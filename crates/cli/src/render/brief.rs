//! `compare --brief`: the verdict, how sure it is, and one table of the headline: at most [`LINES`]
//! lines.

use super::style::{Style, wrap};
use schedlab_model::Ns;
use schedlab_study::change::Judgement;
use schedlab_study::gate::GateOutcome;
use schedlab_study::headline::Figure;
use schedlab_study::measurements::Kind;
use schedlab_study::order::{self, Equal};
use schedlab_study::result::{Row, Study};
use schedlab_study::view;
use std::fmt::Write as _;
use unicode_width::UnicodeWidthStr;

/// How many lines the output has at most.
const LINES: usize = 15;
/// The rows that are shown whatever room there is: the first, and the one that the verdict is
/// about.
const FEWEST: usize = 2;

/// One line of the table: a name, and a value and a change for each figure.
struct TableLine {
    name: String,
    cells: Vec<(String, String)>,
}

/// Returns the text.
pub(crate) fn brief(study: &Study, style: &Style) -> String {
    let outcome = wrap(&study.verdict.outcome, style.width, 0);
    let certainty = wrap(&study.verdict.certainty, style.width, 0);
    let failed = failed(study);
    let command = super::deploy::line(study).map(|line| format!("to set it: {line}"));
    let command = command.filter(|line| line.width() <= style.width);
    // A blank line, two of headings, and the last line.
    let taken = outcome.lines().count() + certainty.lines().count() + 4;
    let taken = taken + usize::from(failed.is_some()) + usize::from(command.is_some());
    let in_vain = view::without_effect(study).first().map(|one| wrap(&one.short, style.width, 0));
    // The rows come first, where there is no room for both.
    let in_vain = in_vain.filter(|text| taken + text.lines().count() + FEWEST <= LINES);
    let taken = taken + in_vain.as_ref().map_or(0, |text| text.lines().count());
    let (lines, left_out) = lines(study, LINES.saturating_sub(taken));
    let mut text = format!("{}\n{certainty}\n", style.bold(&outcome));
    text += &in_vain.map_or_else(String::new, |line| format!("{line}\n"));
    text += &command.map_or_else(String::new, |line| format!("{line}\n"));
    text.push('\n');
    text += &table(&study.headline, &lines, style);
    if let Some(failed) = failed {
        let _ = writeln!(text, "  {}", style.bad(&failed));
    }
    let _ = writeln!(text, "{}", style.dim(&last(study, left_out, style)));
    text
}

/// The reason of an exit code that is not 0, where expectations or gates are it.
fn failed(study: &Study) -> Option<String> {
    let missed = study.expectations.iter().filter(|checked| !checked.holds).count();
    let outcome =
        |wanted: GateOutcome| study.gates.iter().filter(|gated| gated.outcome == wanted).count();
    let counted = [
        (missed, study.expectations.len(), "expectations failed"),
        (outcome(GateOutcome::Met), study.gates.len(), "gates FAILED"),
        (outcome(GateOutcome::CannotSay), study.gates.len(), "gates CANNOT SAY"),
    ];
    let some = counted.iter().filter(|(count, ..)| *count > 0);
    let said: Vec<String> =
        some.map(|(count, of, what)| format!("{count} of {of} {what}")).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// The line under the table: what it is about, and how many rows it leaves out.
fn last(study: &Study, left_out: usize, style: &Style) -> String {
    let of = study.rows.len();
    let rows = match left_out {
        0 => String::new(),
        _ => format!("{} of {of} rows; ", of - left_out),
    };
    let unsure = if study.headline.iter().any(|figure| unsure(study, figure)) {
        "; ~ not certain"
    } else {
        ""
    };
    let seeds = match study.seeds.len() {
        1 => "1 seed".to_owned(),
        many => format!("{many} seeds"),
    };
    let length = Ns(study.duration_ns);
    let runs =
        format!("{rows}{length} each, {seeds}{unsure}; all rows and numbers: without --brief");
    let first = wrap(&runs, style.width.saturating_sub(2), 2);
    first.lines().next().unwrap_or_default().to_owned()
}

fn unsure(study: &Study, figure: &Figure) -> bool {
    let changes = study.rows.iter().filter_map(|row| figure.cell(row)?.change);
    changes.into_iter().any(|change| change.judgement == Judgement::CannotTell)
}

/// The rows that fit in `room` lines, in the order of the result: the first row, the one that the
/// verdict is about, what was also recorded, then the best by the first figure. And how many are
/// left out.
fn lines(study: &Study, room: usize) -> (Vec<TableLine>, usize) {
    let equal = equal(study);
    let is_equal = |row: &usize| equal.iter().any(|equal| equal.rows.contains(row));
    let mut order: Vec<usize> = (0..study.rows.len()).filter(|row| !is_equal(row)).collect();
    order.sort_by_key(|&index| rank(study, index));
    let (mut shown, mut used) = (Vec::new(), 0);
    for index in order {
        let height = 1 + checks(study, &study.rows[index]).count();
        if used + height <= room || shown.len() < FEWEST {
            used += height;
            shown.push(index);
        }
    }
    shown.sort_unstable();
    let equals = |first: usize| {
        equal.iter().find(|equal| equal.first == first).map_or(0, |equal| equal.rows.len())
    };
    let left_out = study.rows.len() - shown.iter().map(|&row| 1 + equals(row)).sum::<usize>();
    let mut lines = Vec::new();
    for index in shown {
        let row = &study.rows[index];
        let cells = study.headline.iter().map(|figure| value(figure, row)).collect();
        let name = order::with_equals(&view::row_name(row, study), equals(index));
        lines.push(TableLine { name, cells });
        for prediction in checks(study, row) {
            let recorded = |figure: &Figure| {
                let subject =
                    prediction.subjects.iter().find(|subject| subject.name == figure.subject)?;
                let cell = subject.cells.iter().find(|cell| cell.metric == figure.metric)?;
                Some((figure.metric.show(cell.recorded), String::new()))
            };
            let cells =
                study.headline.iter().map(|figure| recorded(figure).unwrap_or_default()).collect();
            lines.push(TableLine { name: "  what was recorded".to_owned(), cells });
        }
    }
    (lines, left_out)
}

/// Rows that share a line: the figures of the headline are equal, and no recording says what came.
fn equal(study: &Study) -> Vec<Equal> {
    let subjects: Vec<(Kind, String)> =
        study.headline.iter().map(|figure| (figure.kind, figure.subject.clone())).collect();
    let mut all = order::equal(study, &subjects).1;
    for equal in &mut all {
        equal.rows.retain(|&row| checks(study, &study.rows[row]).count() == 0);
    }
    all
}

/// The recordings that show what the row predicts.
fn checks<'a>(
    study: &'a Study,
    row: &'a Row,
) -> impl Iterator<Item = &'a schedlab_study::result::Prediction> {
    let same = |p: &&schedlab_study::result::Prediction| {
        p.variant == row.variant && p.scheduler == row.scheduler
    };
    study.predictions.iter().filter(same)
}

/// The place of a row in the order in which rows get room.
fn rank(study: &Study, index: usize) -> (u8, usize, usize) {
    let row = &study.rows[index];
    let best = study.headline.first().map_or(0, |figure| {
        let value = |row: &Row| figure.cell(row).map_or(f64::NAN, |cell| cell.value.median);
        let mine = value(row);
        study
            .rows
            .iter()
            .filter(|other| {
                figure.metric.is_better(value(other) - mine) == Some(true) && value(other) != mine
            })
            .count()
    });
    let recommended = study.verdict.row == Some(index);
    let class = if index == 0 {
        0
    } else if recommended {
        1
    } else if checks(study, row).count() > 0 {
        2
    } else {
        3
    };
    (class, best, index)
}

/// A value and its change against the first row.
fn value(figure: &Figure, row: &Row) -> (String, String) {
    let Some(cell) = figure.cell(row) else { return ("-".to_owned(), String::new()) };
    let change =
        cell.change.map(|change| view::change(figure.metric, &change, true)).unwrap_or_default();
    (figure.metric.show(cell.value.median), change)
}

/// The table: over each column its subject, then its metric. Columns that do not fit are left out
/// from the end.
fn table(figures: &[Figure], lines: &[TableLine], style: &Style) -> String {
    let name = lines.iter().map(|line| line.name.width()).max().unwrap_or(0);
    let mut text = [format!("  {:name$}", ""), format!("  {:name$}", "")]
        .map(|line| (line, 2 + name))
        .to_vec();
    text.extend(
        lines.iter().map(|line| (format!("  {}{}", line.name, gap(name, &line.name)), 2 + name)),
    );
    for (column, figure) in figures.iter().enumerate() {
        let heads = [figure.subject().to_owned(), figure.heading()];
        let widest = |of: &dyn Fn(&TableLine) -> usize| lines.iter().map(of).max().unwrap_or(0);
        let change = widest(&|line| line.cells[column].1.width());
        let value = widest(&|line| line.cells[column].0.width());
        let tail = if change > 0 { 1 + change } else { 0 };
        let width = heads.iter().map(|head| head.width()).max().unwrap_or(0).max(value + tail);
        if column > 0 && text[0].1 + 2 + width > style.width {
            break;
        }
        for (line, (text, used)) in text.iter_mut().enumerate() {
            let cell = match line {
                0 | 1 => format!("{}{}", gap(width, &heads[line]), heads[line]),
                _ => {
                    let (number, change_text) = &lines[line - 2].cells[column];
                    let space = gap(width - tail, number);
                    let after = if tail > 0 {
                        format!(" {}{change_text}", gap(change, change_text))
                    } else {
                        String::new()
                    };
                    format!("{space}{number}{after}")
                }
            };
            *text += "  ";
            *text += &cell;
            *used += 2 + width;
        }
    }
    let mut out = String::new();
    for (line, (text, _)) in text.iter().enumerate() {
        let text = text.trim_end();
        let _ = writeln!(out, "{}", if line < 2 { style.dim(text) } else { text.to_owned() });
    }
    out
}

fn gap(width: usize, text: &str) -> String {
    " ".repeat(width.saturating_sub(text.width()))
}
