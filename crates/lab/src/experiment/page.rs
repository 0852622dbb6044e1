//! Experiments as a page.

use super::figures::{FigureLine, Sheet};
use super::result::ExperimentResult;
use schedlab_report::{Cell, Column, Facts, Page, Part, Section, Table, Tone};
use schedlab_study::page::Origin;
use schedlab_study::view::spaced;

/// Returns the page of some experiments: the first finding of each as the verdict, the tables,
/// reasons and doubts.
pub fn of_experiments(experiments: &[ExperimentResult], origin: &Origin) -> Page {
    let mut page = Page::new(match experiments {
        [one] => one.title.clone(),
        _ => "Experiments: published, this machine, simulated".to_owned(),
    });
    page.subtitle(origin.made_on.clone());
    let named = experiments.len() > 1;
    let first = experiments.iter().filter_map(|one| Some(title(one, one.findings.first()?, named)));
    let doubts: usize = experiments.iter().map(|one| one.doubts.len()).sum();
    let sure = match doubts {
        0 => "No doubts: intervals are 95 % bootstrap intervals of the median over the rounds."
            .to_owned(),
        1 => "One doubt is listed below. Intervals: 95 %, bootstrap, median over the rounds."
            .to_owned(),
        _ => format!(
            "{doubts} doubts are listed below. Intervals: 95 %, bootstrap, median over the rounds."
        ),
    };
    page.verdict(first.collect::<Vec<_>>().join(". "), sure);
    for one in experiments {
        experiment(&mut page, one, named);
    }
    let mut facts = Facts::default();
    facts.add("command", origin.command.clone());
    facts.add("made on", origin.made_on.clone());
    let mut section = Section::new("Where the numbers come from");
    section.push(Part::Facts(facts));
    page.push(section);
    page.footer(origin.footer(env!("CARGO_PKG_VERSION")));
    page
}

/// Returns `text`, with the experiment's name before it where there are several.
fn title(one: &ExperimentResult, text: &str, named: bool) -> String {
    if named { format!("{}: {text}", one.name.name()) } else { text.to_owned() }
}

fn experiment(page: &mut Page, one: &ExperimentResult, named: bool) {
    for sheet in &one.sheets {
        let mut section = Section::new(title(one, &sheet.title, named));
        section.push(table(sheet));
        page.push(section);
    }
    let stream = one.stream.iter().map(|line| {
        format!(
            "{:.6} s, CPU {}: {}",
            line.at_ns as f64 / 1e9,
            line.cpu,
            line.what.split_whitespace().collect::<Vec<_>>().join(" ")
        )
    });
    let lists = [
        ("What it shows", one.findings.clone()),
        ("Why the columns differ", one.reasons.clone()),
        ("Doubts", one.doubts.clone()),
        ("Scheduled and descheduled", stream.collect()),
        ("Conditions", one.conditions.clone()),
    ];
    for (what, lines) in lists.into_iter().filter(|(_, lines)| !lines.is_empty()) {
        let mut section = Section::new(title(one, what, named));
        section.push(Part::List(lines));
        page.push(section);
    }
}

fn table(sheet: &Sheet) -> Table {
    let base = sheet.lines.iter().find_map(|line| Some(line.against.as_ref()?.row.clone()));
    let against = base.map_or_else(|| "against".to_owned(), |base| format!("against {base}"));
    Table {
        caption: sheet.source.clone(),
        columns: vec![
            Column::text("row"),
            Column::text("figure"),
            Column::number("published"),
            Column::number("this machine"),
            Column::number("simulated"),
            Column::number(against),
        ],
        rows: cells(&sheet.lines),
        fold: None,
    }
}

/// Returns the cells; a row has its name at its first figure only.
fn cells(lines: &[FigureLine]) -> Vec<Vec<Cell>> {
    let before = std::iter::once(None).chain(lines.iter().map(|line| Some(line.row.as_str())));
    lines
        .iter()
        .zip(before)
        .map(|(line, before)| row(line, before != Some(line.row.as_str())))
        .collect()
}

fn row(line: &FigureLine, first: bool) -> Vec<Cell> {
    let unit = line.figure.unit;
    let number = |value: Option<f64>| {
        value.map_or_else(Cell::default, |value| Cell::number(spaced(unit.show(value)), value))
    };
    let here = number(line.machine.map(|found| found.median));
    let here = match &line.machine {
        Some(found) if found.count > 1 => here.note(
            format!("{} … {}", spaced(unit.show(found.low)), spaced(unit.show(found.high))),
            Tone::Dim,
        ),
        _ => here,
    };
    let against = line.against.as_ref().map_or_else(Cell::default, |against| {
        let change = &against.difference;
        let sign = if change.median > 0.0 { "+" } else { "" };
        match change.told_apart {
            true => {
                Cell::number(spaced(format!("{sign}{}", unit.show(change.median))), change.median)
            }
            false => Cell::text("").note("cannot tell", Tone::Dim),
        }
    });
    vec![
        if first { Cell::head(line.row.clone()) } else { Cell::text("") },
        Cell::text(line.figure.name),
        number(line.published),
        here,
        number(line.simulated),
        against,
    ]
}
