//! The verdict of a diff, in words.

use super::{Cell, Diff, Subject};
use crate::change::Judgement;
use crate::result::Verdict;
use crate::view::is_own;

fn told(cell: &Cell) -> bool {
    !matches!(cell.judgement, Judgement::Same | Judgement::CannotTell)
}

fn size(cell: &Cell) -> f64 {
    if cell.before > 0.0 && cell.after > 0.0 {
        (cell.after / cell.before).ln().abs()
    } else {
        f64::MAX
    }
}

pub(super) fn verdict(diff: &Diff) -> Verdict {
    let others = || diff.subjects.iter().filter(|subject| !is_own(&subject.name));
    let cells = || others().flat_map(|s| s.cells.iter().map(move |cell| (s, cell)));
    let of = |wanted: Judgement| {
        let mut list: Vec<(&Subject, &Cell)> =
            cells().filter(|(_, c)| c.judgement == wanted).collect();
        list.sort_by(|a, b| size(b.1).total_cmp(&size(a.1)));
        // One number about each name says enough.
        let mut seen: Vec<&str> = Vec::new();
        list.retain(|(subject, _)| {
            !seen.contains(&subject.name.as_str()) && {
                seen.push(&subject.name);
                true
            }
        });
        let texts: Vec<String> =
            list.iter().take(2).map(|(subject, cell)| describe(subject, cell)).collect();
        texts
    };
    let (worse, better, other) =
        (of(Judgement::Worse), of(Judgement::Better), of(Judgement::Different));
    let outcome = match (worse.is_empty(), better.is_empty(), other.is_empty()) {
        (true, true, true) => "The two cannot be told apart.".to_owned(),
        (false, true, _) => format!("Worse: {}.", worse.join(" and ")),
        (true, false, _) => format!("Better: {}.", better.join(" and ")),
        (false, false, _) => {
            format!("Worse: {}; better: {}.", worse.join(" and "), better.join(" and "))
        }
        (true, true, false) => {
            format!("Neither better nor worse, but different: {}.", other.join(" and "))
        }
    };
    let judged = cells().filter(|(_, cell)| cell.lacks.is_none()).count();
    let apart = cells().filter(|(_, cell)| told(cell)).count();
    let left = cells().filter(|(_, cell)| cell.lacks.is_some()).count();
    let variation = match [diff.before.recordings, diff.after.recordings] {
        [0 | 1, _] | [_, 0 | 1] => "within each input".to_owned(),
        [before, after] => format!("between the recordings of each side ({before} and {after})"),
    };
    let certainty = format!(
        "{apart} of {judged} numbers changed by more than chance; {left} more cannot be judged. \
         The intervals hold \
         for all of them together with 95 % confidence, for the variation {variation}."
    );
    Verdict { outcome, certainty, row: None, beside: Vec::new() }
}

fn describe(subject: &Subject, cell: &Cell) -> String {
    let show = |value| cell.metric.show(value);
    let percent = (cell.after / cell.before - 1.0) * 100.0;
    let change = if percent.is_finite() { format!(" ({percent:+.0} %)") } else { String::new() };
    format!(
        "{} {} {} -> {}{change}",
        subject.name,
        cell.metric,
        show(cell.before),
        show(cell.after)
    )
}
