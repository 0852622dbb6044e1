//! A search as text: the answer, the settings that none is better than, how to make the recommended
//! one and how to try it.

use super::deploy;
use super::style::{Style, partial_line, wrap};
use super::table::{Cell, Look, Table};
use crate::origin::as_typed;
use schedlab_model::Ns;
use schedlab_study::change::Judgement;
use schedlab_study::result::Cell as Measured;
use schedlab_study::tune::{Asked, Confirm, Meets, Tried, Tuned};
use schedlab_study::view;
use std::fmt::Write as _;

/// The table has so many rows at most, apart from the first and the marked ones.
const ROWS: usize = 12;

/// Returns the text.
pub(crate) fn tune(tuned: &Tuned, style: &Style) -> String {
    let mut text = style.bold(&wrap(&tuned.verdict.outcome, style.width, 0)) + "\n";
    let _ = writeln!(text, "{}", wrap(&tuned.verdict.certainty, style.width, 0));
    if let Some(partial) = &tuned.partial {
        text += &partial_line(&partial.says(), style);
    }
    let chosen = tuned.recommended.map(|place| &tuned.settings[place]);
    if let Some(deployment) = chosen.and_then(|tried| tried.deploy.as_ref()) {
        text += &deploy::commands(deployment, style);
    }
    if let Some(confirm) = &tuned.confirm {
        text += &confirmation(confirm, style);
    }
    let _ = writeln!(
        text,
        "\n{}",
        style.bold("Settings that no other is better than in everything that was asked for")
    );
    let shown = shown(tuned);
    text += &table(
        &tuned.asked,
        shown.iter().map(|&place| (mark(tuned, place), &tuned.settings[place])),
        style,
    );
    let more = tuned.settings.len() - shown.len();
    if more > 0 {
        let line = format!("{more} more of the last round are in --json");
        let _ = writeln!(text, "{}", style.dim(&wrap(&line, style.width, 0)));
    }
    for validated in &tuned.validated {
        let _ = writeln!(
            text,
            "\n{}",
            style.bold(&format!("On {}, which the search did not see", validated.file))
        );
        if !validated.trusted {
            let why = format!("Do not rely on it: {}.", validated.distrust.join("; "));
            let _ = writeln!(text, "{}", style.bad(&wrap(&why, style.width, 0)));
        }
        let says = std::iter::once("").chain(validated.holds.iter().map(String::as_str));
        let rows = says.map(str::to_owned).zip(&validated.settings);
        text += &table(&tuned.asked, rows, style);
    }
    for note in &tuned.notes {
        let _ = writeln!(text, "{}", wrap(&format!("note: {note}"), style.width, 0));
    }
    text.push('\n');
    text + &style.dim(&wrap(&about(tuned), style.width, 0)) + "\n"
}

/// The rows of the table: the unchanged one, the front, and what is marked.
fn shown(tuned: &Tuned) -> Vec<usize> {
    let marked = |place: usize| place == 0 || !mark(tuned, place).is_empty();
    let mut left = ROWS;
    let mut keep = |&place: &usize| {
        let front = tuned.settings[place].front && left > 0;
        left -= usize::from(front);
        front || marked(place)
    };
    (0..tuned.settings.len()).filter(|place| keep(place)).collect()
}

fn mark(tuned: &Tuned, place: usize) -> String {
    let is = |of: Option<usize>| of == Some(place);
    match (is(tuned.recommended), is(tuned.largest_gain)) {
        (true, true) => "recommended, largest gain",
        (true, false) => "recommended",
        (false, true) => "largest gain",
        (false, false) => "",
    }
    .to_owned()
}

fn table<'a>(
    asked: &[Asked],
    rows: impl Iterator<Item = (String, &'a Tried)>,
    style: &Style,
) -> String {
    let numbers =
        asked.iter().map(|asked| format!("{} {}", asked.figure.subject(), asked.figure.metric));
    let bound =
        |place: usize| format!("within {}", if place == 0 { "the goal" } else { "what is kept" });
    let mut head = vec!["setting".to_owned()];
    head.extend(numbers);
    let rows: Vec<(String, &Tried)> = rows.collect();
    let bounded: Vec<usize> = (0..asked.len())
        .filter(|&place| rows.iter().any(|(_, tried)| tried.meets[place].is_some()))
        .collect();
    head.extend(bounded.iter().map(|&place| bound(place)));
    head.push("mildness".to_owned());
    head.push(String::new());
    let row = |(mark, tried): &(String, &Tried)| {
        let mut row = vec![Cell::plain(tried.setting.clone())];
        row.extend(tried.figures.iter().map(number));
        row.extend(bounded.iter().map(|&place| Cell::plain(within(tried.meets[place]))));
        row.push(Cell::plain(tried.mildness.to_string()));
        row.push(Cell::plain(mark.clone()));
        row
    };
    let table = Table { head, rows: rows.iter().map(row).collect(), fixed: 1, ..Table::default() };
    table.render(style).0
}

fn within(meets: Option<Meets>) -> &'static str {
    match meets {
        Some(Meets::Yes) => "yes",
        Some(Meets::No) => "no",
        Some(Meets::Open) => "not certain",
        None => "",
    }
}

/// A number with its error and its change.
fn number(cell: &Option<Measured>) -> Cell {
    let Some(cell) = cell else { return Cell::plain("no value") };
    let error = cell.error_bar.map_or_else(String::new, |bar| bar.beside(cell.metric));
    let value = format!("{}{error}", cell.metric.show(cell.value.median));
    let look = match cell.change.map(|change| change.judgement) {
        Some(Judgement::Better) => Look::Good,
        Some(Judgement::Worse) => Look::Bad,
        _ => Look::Dim,
    };
    let change =
        cell.change.map(|change| view::change(cell.metric, &change, false)).unwrap_or_default();
    Cell { value, change, look }
}

/// How the setting is tried on the real threads.
fn confirmation(confirm: &Confirm, style: &Style) -> String {
    let Some(line) = confirm.line() else {
        let why = confirm.why_not.as_deref().unwrap_or_default();
        return format!(
            "\n{}\n{}\n",
            style.bold("To try it on the real threads"),
            wrap(why, style.width, 0)
        );
    };
    let command =
        if confirm.command.is_empty() { "COMMAND".to_owned() } else { as_typed(&confirm.command) };
    format!("\n{}\n  {line} -- {command}\n", style.bold("To try it on the real threads"))
}

/// What was searched, and how.
fn about(tuned: &Tuned) -> String {
    let search = &tuned.search;
    let how = match search.how.as_str() {
        "grid" => "every combination",
        _ => "points that fill the space evenly",
    };
    let rounds: Vec<String> = search
        .rounds
        .iter()
        .map(|round| {
            format!(
                "{} with {} for {}",
                round.settings,
                seeds(round.seeds as usize),
                Ns(round.duration_ns)
            )
        })
        .collect();
    let rounds = if rounds.is_empty() {
        String::new()
    } else {
        format!(", of these {}, then {}", rounds.join(", then "), tuned.settings.len() - 1)
    };
    format!(
        "{}: {} settings of {} ({how}, seed {}){rounds} with {} from {} on for {}. Numbers ± \
         their error; changes are against the \
         first row, ~ cannot tell: the change is smaller than its error. mildness: what it asks \
         of the machine's owner, 0 nothing to 7 \
         another system.",
        tuned.input.name,
        search.settings,
        search.space.join(" x "),
        search.seed,
        seeds(tuned.seeds.len()),
        tuned.seeds.first().copied().unwrap_or_default(),
        Ns(tuned.duration_ns)
    )
}

fn seeds(count: usize) -> String {
    if count == 1 { "1 seed".to_owned() } else { format!("{count} seeds") }
}
