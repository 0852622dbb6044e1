//! How many of the published figures are inside 10 %, and why the others are not: in two sentences.

use super::{Figure, FigureKind, Published, Standing, all};
use crate::compare::upper;
use crate::scenario::Cause;

/// The two sentences.
pub fn answer(scenarios: &[Published]) -> [String; 2] {
    [how_many(scenarios), why_not(scenarios)]
}

fn figures(scenarios: &[Published], kind: FigureKind) -> Vec<&Figure> {
    all(scenarios).filter(|figure| figure.kind == kind).collect()
}

fn count(figures: &[&Figure], standing: Standing) -> usize {
    figures.iter().filter(|figure| figure.standing() == standing).count()
}

/// Those that are numbers, and those inside.
fn numbers(figures: &[&Figure]) -> (usize, usize) {
    let inside = count(figures, Standing::Inside);
    (inside + count(figures, Standing::Off), inside)
}

fn how_many(scenarios: &[Published]) -> String {
    let paper = figures(scenarios, FigureKind::Paper);
    let (all, inside) = numbers(&paper);
    let words = paper.len() - all;
    let mut parts = Vec::new();
    if all > 0 {
        parts.push(format!(
            "{inside} of {all} figures that papers, articles and talks publish are inside 10 % \
             (shares: half a point)"
        ));
    }
    if words > 0 {
        let hold = count(&paper, Standing::WordsHold);
        parts.push(format!("{hold} of {words} statements without a number hold"));
    }
    let (code, same) = numbers(&figures(scenarios, FigureKind::RealCode));
    if code > 0 {
        parts.push(format!("of real code that the project ran {same} of {code} are inside"));
    }
    let fitted = figures(scenarios, FigureKind::Fitted).len();
    if fitted > 0 {
        parts.push(format!("{fitted} more were used to fit inputs and are no evidence"));
    }
    if parts.is_empty() { String::new() } else { format!("{}.", upper(&parts.join("; "))) }
}

fn why_not(scenarios: &[Published]) -> String {
    let off: Vec<&Figure> = all(scenarios).filter(|figure| figure.is_off()).collect();
    if off.is_empty() {
        return "No figure is farther off.".to_owned();
    }
    let mut causes: Vec<(usize, &str)> = Cause::ALL
        .into_iter()
        .map(|cause| (off.iter().filter(|one| one.cause == Some(cause)).count(), cause.says()))
        .filter(|(count, _)| *count > 0)
        .collect();
    causes.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let mut parts: Vec<String> =
        causes.iter().map(|(count, says)| format!("{count} {says}")).collect();
    let unnamed = off.iter().filter(|one| one.cause.is_none()).count();
    if unnamed > 0 {
        parts.push(format!("{unnamed} without a cause that is known"));
    }
    format!("Of the {} that are not, {}.", off.len(), list(&parts))
}

/// `a, b and c`.
fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
