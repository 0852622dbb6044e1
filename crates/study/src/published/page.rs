//! The published figures as a page ([`schedlab_report`]): three kinds apart, the reason beside each
//! that is off.

use super::{Figure, FigureKind, Gallery, Published, Source, Standing};
use crate::page::Origin;
use schedlab_report::{Cell, Column, Facts, Page, Part, Section, Table, Tone};

/// The page.
pub fn page(gallery: &Gallery, origin: &Origin) -> Page {
    let mut page = Page::new("Published figures beside simulated ones");
    page.subtitle(format!(
        "{} scenarios, {} sources",
        gallery.scenarios.len(),
        gallery.sources.len()
    ));
    let [how_many, why_not] = gallery.answer.each_ref().map(|text| text.replace(" %", "\u{a0}%"));
    match gallery.partial() {
        None => page.verdict(how_many, why_not),
        Some(partial) => {
            page.verdict(how_many, format!("Partial: {partial}. {why_not}"));
            page.distrust();
        }
    }
    page.push(off(gallery));
    for kind in FigureKind::ALL {
        page.push(section(gallery, kind));
    }
    page.push(checked(gallery));
    page.push(lost(gallery));
    page.push(provenance(origin).folded());
    page.footer(origin.footer(env!("CARGO_PKG_VERSION")));
    page
}

/// How the figures of a kind are to be read.
const fn how_to_read(kind: FigureKind) -> &'static str {
    match kind {
        FigureKind::Paper => {
            "Figures of machines that this project never had; nothing was fitted to those of \
             these tables."
        }
        FigureKind::RealCode => {
            "The schedulers' own code in a harness of this project. It shows that the rules are \
             right, not that a machine behaves so."
        }
        FigureKind::Fitted => {
            "An input of the scenario was taken from or fitted to these figures. That they come \
             out shows only that the model can carry them."
        }
    }
}

fn off(gallery: &Gallery) -> Section {
    let mut section = Section::new("What is off, and why")
        .lead("Every figure that is farther off than 10 % (shares: half a point), farthest first.");
    let mut off: Vec<(&Published, &Figure)> = gallery
        .scenarios
        .iter()
        .flat_map(|one| one.figures.iter().map(move |figure| (one, figure)))
        .filter(|(_, figure)| figure.is_off())
        .collect();
    let far = |figure: &Figure| {
        figure
            .checked
            .deviation
            .and_then(|one| one.relative)
            .map_or(f64::MAX, |part| (part + 1.0).ln().abs())
    };
    off.sort_by(|a, b| far(b.1).total_cmp(&far(a.1)));
    if !off.is_empty() {
        section.push(table(String::new(), off.into_iter(), true));
    }
    section
}

fn section(gallery: &Gallery, kind: FigureKind) -> Section {
    let mut section = Section::new(kind.title()).lead(how_to_read(kind));
    for source in gallery.origins() {
        let figures = gallery.figures(kind, source.map(|one| one.id.as_str()));
        if figures.clone().next().is_none() {
            continue;
        }
        section.push(table(
            caption(source, figures.clone().map(|(_, figure)| figure)),
            figures,
            false,
        ));
    }
    if kind == FigureKind::Fitted {
        let fitted: Vec<String> = gallery
            .scenarios
            .iter()
            .flat_map(|one| one.fitted.iter().map(move |text| format!("{}: {text}", one.scenario)))
            .collect();
        if !fitted.is_empty() {
            section
                .push(Part::Text("What the scenarios say about their fitted inputs:".to_owned()));
            section.push(Part::List(fitted));
        }
    }
    section
}

fn caption<'a>(
    source: Option<&Source>,
    figures: impl Iterator<Item = &'a Figure> + Clone,
) -> String {
    let count =
        |standing: Standing| figures.clone().filter(|one| one.standing() == standing).count();
    let (inside, off) = (count(Standing::Inside), count(Standing::Off));
    let words = count(Standing::WordsHold) + count(Standing::WordsFail);
    let mut parts = Vec::new();
    if inside + off > 0 {
        parts.push(format!("{inside} of {} inside", inside + off));
    }
    if words > 0 {
        parts.push(format!("{} of {words} in words hold", count(Standing::WordsHold)));
    }
    let (title, about) =
        source.map_or(("No source named", ""), |one| (one.title.as_str(), one.about.as_str()));
    let about = if about.is_empty() { String::new() } else { format!("; {about}") };
    format!("{title}: {}{about}.", parts.join(", "))
}

fn table<'a>(
    caption: String,
    figures: impl Iterator<Item = (&'a Published, &'a Figure)>,
    with_source: bool,
) -> Table {
    let mut columns = vec![
        Column::text("figure, and why it is off"),
        Column::number("published"),
        Column::number("simulated"),
        Column::number("off by"),
        Column::text("scenario"),
    ];
    if with_source {
        columns.push(Column::text("source"));
    }
    let row = |(one, figure): (&Published, &Figure)| {
        let mut cells = row(one, figure);
        if with_source {
            cells.push(Cell::text(figure.source.as_deref().unwrap_or("not named")));
        }
        cells
    };
    Table { caption, columns, rows: figures.map(row).collect(), fold: None }
}

fn row(one: &Published, figure: &Figure) -> Vec<Cell> {
    let checked = &figure.checked;
    let scenario = match figure.cpus {
        Some(cpus) => format!("{}, {cpus} CPUs", one.scenario),
        None => one.scenario.clone(),
    };
    let published = checked.published.as_deref().unwrap_or_default();
    let here = match checked.deviation {
        Some(deviation) => {
            let cell = Cell::number(&checked.got, deviation.here);
            if one.seeds > 1 {
                cell.note(format!("median of {} seeds", one.seeds), Tone::Dim)
            } else {
                cell
            }
        }
        None => Cell::text(&checked.got),
    };
    let reason = match (&checked.differs, figure.cause) {
        (Some(reason), Some(cause)) => format!("{}: {reason}", cause.title()),
        (Some(reason), None) => reason.clone(),
        (None, _) => String::new(),
    };
    vec![
        Cell::head(&figure.figure).note(reason, Tone::Dim),
        Cell::number(published, checked.deviation.map_or(f64::NAN, |one| one.published[0])),
        here,
        off_by(figure),
        Cell::text(scenario),
    ]
}

/// The difference, and what it means.
fn off_by(figure: &Figure) -> Cell {
    match (figure.checked.deviation, figure.standing()) {
        (Some(deviation), standing) => {
            let cell =
                Cell::number(deviation.show(), deviation.relative.unwrap_or(deviation.difference));
            match standing {
                Standing::Off => cell.note("off", Tone::Bad),
                _ => cell.note("inside", Tone::Good),
            }
        }
        (None, Standing::WordsHold) => Cell::text("words").note("holds", Tone::Good),
        (None, _) => Cell::text("words").note("does not hold", Tone::Bad),
    }
}

fn checked(gallery: &Gallery) -> Section {
    let mut section = Section::new("Checked against the real systems").lead(
        "Recordings of real kernels and decision logs of Xen's code, shipped with the source; \
         each command repeats its line.",
    );
    let row = |check: &super::Check| {
        let part = check.inside as f64 / check.all.max(1) as f64;
        vec![
            Cell::head(&check.system),
            Cell::text(&check.compared),
            Cell::number(format!("{} of {} {}", check.inside, check.all, check.unit), part)
                .note(format!("{:.1} %", part * 100.0), Tone::Dim),
            Cell::number(check.scenarios.to_string(), check.scenarios as f64),
            Cell::text(&check.command),
        ]
    };
    let columns = vec![
        Column::text("system"),
        Column::text("compared"),
        Column::number("equal, or inside"),
        Column::number("scenarios"),
        Column::text("command"),
    ];
    let rows: Vec<Vec<Cell>> = gallery.checks.iter().map(row).collect();
    if !rows.is_empty() {
        section.push(Table { caption: String::new(), columns, rows, fold: None });
    }
    section
}

fn lost(gallery: &Gallery) -> Section {
    let mut section = Section::new("Published, and not compared")
        .lead("Figures of these sources that stand in no scenario.");
    let lost: Vec<String> = gallery
        .sources
        .iter()
        .flat_map(|source| source.lost.iter().map(move |text| format!("{}: {text}", source.id)))
        .collect();
    if !lost.is_empty() {
        section.push(Part::List(lost));
    }
    section
}

fn provenance(origin: &Origin) -> Section {
    let mut facts = Facts::default();
    facts.add("command", &origin.command);
    facts.add(
        "program",
        format!("schedlab {}, commit {}", env!("CARGO_PKG_VERSION"), origin.commit),
    );
    facts.add("made on", &origin.made_on);
    let mut section = Section::new("Where the numbers come from").lead(
        "The same program gives the same numbers on any machine; simulated figures are \
               medians over the scenario's seeds.",
    );
    section.push(facts);
    section
}
