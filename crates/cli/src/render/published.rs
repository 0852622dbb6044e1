//! Published figures beside simulated ones, as text.

use super::{Style, partial_line, wrap};
use schedlab_study::deviation::Deviation;
use schedlab_study::published::{Figure, FigureKind, Gallery, Published, Standing};
use std::fmt::Write as _;

/// Everything: the answer, the three kinds by source, what was checked.
pub(crate) fn published(gallery: &Gallery, style: &Style) -> String {
    let mut text = format!("{}\n", wrap(&gallery.answer.join(" "), style.width, 0));
    if let Some(partial) = gallery.partial() {
        text += &partial_line(&partial, style);
    }
    for kind in FigureKind::ALL {
        for source in gallery.origins() {
            let figures = gallery.figures(kind, source.map(|one| one.id.as_str()));
            if figures.clone().next().is_none() {
                continue;
            }
            let name = source.map_or("no source named", |one| one.title.as_str());
            let _ = writeln!(text, "\n{}", style.bold(&format!("{}: {name}", kind.title())));
            figures.for_each(|(one, figure)| text += &line(one, figure, style));
        }
    }
    for one in gallery.scenarios.iter().filter(|one| !one.fitted.is_empty()) {
        let _ = writeln!(text, "\n{} fits:", one.scenario);
        one.fitted.iter().for_each(|fitted| {
            let _ = writeln!(text, "{}", wrap(fitted, style.width, 2));
        });
    }
    text + &checked(gallery, style) + &lost(gallery, style)
}

fn line(one: &Published, figure: &Figure, style: &Style) -> String {
    let checked = &figure.checked;
    let mark = if checked.holds { "" } else { "   NOT as expected" };
    let published = checked.published.as_deref().unwrap_or_default();
    let off = match checked.deviation {
        Some(deviation) => off(&deviation, style),
        None if figure.standing() == Standing::WordsHold => "   holds".to_owned(),
        None => format!("   {}", style.bad("does not hold")),
    };
    let cpus = figure.cpus.map_or(String::new(), |cpus| format!(", {cpus} CPUs"));
    let mut text = format!("  {} ({}{cpus})\n", figure.figure, one.scenario);
    let _ = writeln!(text, "      published {published:>12}   here {:>12}{off}{mark}", checked.got);
    if let Some(differs) = &checked.differs {
        let cause = figure.cause.map_or(String::new(), |cause| format!("{}: ", cause.title()));
        let _ = writeln!(text, "{}", wrap(&format!("{cause}{differs}"), style.width, 6));
    }
    text
}

/// Returns how far a simulated figure is off, and whether a single simulated run may give the
/// published one.
fn off(deviation: &Deviation, style: &Style) -> String {
    let off = format!("   {:>11}", deviation.show());
    if deviation.near {
        return off;
    }
    let one_run = if deviation.seeds[0] == deviation.seeds[1] {
        ""
    } else if deviation.between_seeds() {
        ", inside the range of the seeds"
    } else {
        ", outside the range of the seeds"
    };
    format!("{off}   {}{one_run}", style.bad("off"))
}

fn checked(gallery: &Gallery, style: &Style) -> String {
    if gallery.checks.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}\n", style.bold("Checked against recordings of the real systems"));
    for check in &gallery.checks {
        let part = 100.0 * check.inside as f64 / check.all.max(1) as f64;
        let line = format!(
            "{}: {} of {} {} ({part:.1} %), {} scenarios; {} ({})",
            check.system,
            check.inside,
            check.all,
            check.unit,
            check.scenarios,
            check.compared,
            check.command
        );
        let _ = writeln!(text, "{}", wrap(&line, style.width, 2));
    }
    text
}

fn lost(gallery: &Gallery, style: &Style) -> String {
    let mut lines = gallery
        .sources
        .iter()
        .flat_map(|one| one.lost.iter().map(move |text| (one, text)))
        .peekable();
    if lines.peek().is_none() {
        return String::new();
    }
    let mut text = format!("\n{}\n", style.bold("Published, and not compared"));
    for (source, lost) in lines {
        let _ = writeln!(text, "{}", wrap(&format!("{}: {lost}", source.id), style.width, 2));
    }
    text
}
