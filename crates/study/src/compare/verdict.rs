//! The verdict: what to set, who gains what, who pays, and how sure that is. Two sentences, from
//! the numbers alone.

mod certainty;
mod recommend;
mod telling;

pub(crate) use certainty::{of_change as times_its_error, reproduction};
pub(crate) use recommend::MOST as MOST_GAIN;
pub(crate) use telling::{FELT, FELT_TIME, TAIL, Telling, WORTH, tellings};

use crate::change::Judgement;
use crate::headline::Figure;
use crate::measurements::Kind;
use crate::metric::Metric;
use crate::result::{Cell, Row, Study, Verdict};
use crate::view::{self, row_name};
use certainty::certainty;
use schedlab_scheduler::registry::Family;

pub(super) fn verdict(study: &Study) -> Verdict {
    let tellings = tellings(study);
    if study.rows.len() < 2 {
        let row = study.rows.first().map(|row| row.scheduler.as_str()).unwrap_or_default();
        let outcome =
            format!("Only {row} was run: give something to compare (--scheduler, --variant).");
        return Verdict { outcome, certainty: certainty(study, None), ..Verdict::default() };
    }
    let mut verdict = match recommend::recommended(study, &tellings) {
        Some(row) => {
            let (gains, losses) =
                (of_row(study, &tellings, row, true), of_row(study, &tellings, row, false));
            Verdict {
                outcome: recommendation(study, row, &gains, &losses),
                certainty: certainty(study, gains.first().copied()),
                row: Some(row),
                beside: beside(study, &tellings, row),
            }
        }
        None => Verdict {
            outcome: nothing_better(study, &tellings),
            certainty: certainty(study, None),
            row: None,
            beside: of_bound(study, &tellings, None).into_iter().collect(),
        },
    };
    // Which settings change no share of CPU time, and what does.
    let vain = view::without_effect(study).into_iter().take(2);
    verdict.beside.extend(vain.map(|one| one.sentence.clone()));
    verdict
}

/// The setting, what it gains, and who pays what.
fn recommendation(
    study: &Study,
    row: usize,
    gains: &[&Telling<'_>],
    losses: &[&Telling<'_>],
) -> String {
    let row = &study.rows[row];
    let what = row.deploy.as_ref().map_or_else(String::new, |deploy| upper(&deploy.what));
    let name = match what.is_empty() {
        true => row_name(row, study),
        false => format!("{what} ({})", row_name(row, study)),
    };
    let mut gain: Vec<String> = gains.iter().take(2).map(|t| describe(t)).collect();
    if let [first, second, ..] = gains
        && std::ptr::eq(first.subject, second.subject)
    {
        gain[1] = numbers(second);
    }
    let cost = match losses.first() {
        None => "at no cost above 2 %".to_owned(),
        Some(loss) if loss.subject.kind == Kind::Machine => {
            format!("at the cost of {}", describe(loss))
        }
        Some(loss) => format!("{} pays: {}", loss.subject.name, numbers(loss)),
    };
    format!("{name}: {}; {cost}.", gain.join(" and "))
}

/// Returns `text` with a capital at its beginning.
pub(crate) fn upper(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// The changes of a row that deserve a place in the sentence: those of the headline first, in its
/// order.
fn of_row<'a, 'b>(
    study: &Study,
    tellings: &'b [Telling<'a>],
    row: usize,
    better: bool,
) -> Vec<&'b Telling<'a>> {
    let row = &study.rows[row];
    let all: Vec<&Telling<'_>> =
        tellings.iter().filter(|t| std::ptr::eq(t.row, row) && t.better == better).collect();
    let place = |t: &Telling<'_>| {
        let is = |figure: &Figure| {
            figure.metric == t.cell.metric
                && figure.kind == t.subject.kind
                && figure.subject == t.subject.name
        };
        study.headline.iter().position(is).unwrap_or(usize::MAX)
    };
    let mut list: Vec<&Telling<'_>> =
        all.iter().copied().filter(|t| place(t) < usize::MAX || speaks(t, &all)).collect();
    list.sort_by(|a, b| {
        let key = |t| (place(t), first(study, t));
        key(a).cmp(&key(b)).then(b.size.total_cmp(&a.size))
    });
    list
}

/// The outcome where no setting gains: what is worse, or where the headline's numbers lie.
fn nothing_better(study: &Study, tellings: &[Telling<'_>]) -> String {
    let base = row_name(&study.rows[0], study);
    // What is neither better nor worse in itself (a cost of the scheduler) is what the scenario is
    // about all the same.
    let neutral = study.headline.first().filter(|figure| figure.metric.is_better(1.0).is_none());
    if let Some(range) = neutral.and_then(|figure| range(study, figure)) {
        return range;
    }
    let worst =
        tellings.iter().filter(|t| !t.better && t.row.bound.is_none() && t.row.load.is_none());
    let Some(worst) = worst.max_by(|a, b| a.size.total_cmp(&b.size)) else {
        let range = study.headline.first().and_then(|figure| range(study, figure));
        return range.unwrap_or_else(|| format!("No change against {base} can be told."));
    };
    format!(
        "No setting that was tried is better than {base}; {} is worse: {}.",
        row_name(worst.row, study),
        describe(worst)
    )
}

/// Where a number lies over the rows: nothing says which of them is better. Rows whose change is
/// within its error count only where the others are all alike, and then the sentence says that.
fn range(study: &Study, figure: &Figure) -> Option<String> {
    let of = |row: &Row| figure.cell(row).map(|cell| cell.value.median);
    let open = |row: &&Row| {
        let change = figure.cell(row).and_then(|cell| cell.change);
        change.is_some_and(|change| change.judgement == Judgement::CannotTell)
    };
    let show = |(value, row): (f64, &Row)| {
        format!("{} ({})", figure.metric.show(value), row_name(row, study))
    };
    let what = match figure.kind {
        Kind::Machine => upper(&figure.heading()),
        _ => format!("{} {}", figure.subject(), figure.heading()),
    };
    // What differs by less than is shown is the same to a reader.
    let alike = |(least, most): (f64, f64)| figure.metric.show(least) == figure.metric.show(most);
    let told = ends(study.rows.iter().filter(|row| !open(row)), of);
    if let Some([least, most]) = told.filter(|[least, most]| !alike((least.0, most.0))) {
        return Some(format!("{what}: from {} to {}.", show(least), show(most)));
    }
    let [least, most] = ends(study.rows.iter(), of)?;
    Some(match alike((least.0, most.0)) {
        true => format!("{what} is {} in every row that has it.", figure.metric.show(least.0)),
        false => format!(
            "No change can be told: {what} from {} to {} is within the error.",
            show(least),
            show(most)
        ),
    })
}

/// The rows with the least and the most of a value, and what they have; of rows that have the same,
/// the first and the last.
fn ends<'a>(
    rows: impl Iterator<Item = &'a Row>,
    of: impl Fn(&Row) -> Option<f64>,
) -> Option<[(f64, &'a Row); 2]> {
    let mut values: Vec<(f64, &Row)> = rows.filter_map(|row| Some((of(row)?, row))).collect();
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    Some([*values.first()?, *values.last()?])
}

/// Sentences beside the outcome: the same setting under the other schedulers of the table, and the
/// best bound.
fn beside(study: &Study, tellings: &[Telling<'_>], row: usize) -> Vec<String> {
    let chosen = &study.rows[row];
    let same =
        |other: &&Row| other.variant == chosen.variant && other.scheduler != chosen.scheduler;
    // Where the setting is a scheduler, there is no such setting under another.
    let of_any = study.rows.first().is_some_and(|base| base.scheduler == chosen.scheduler);
    let mut all: Vec<String> = study
        .rows
        .iter()
        .filter(same)
        .filter(|_| of_any)
        .filter_map(|other| {
            Some(format!(
                "Under {} the same setting gives {}.",
                other.scheduler,
                figures(study, other)?
            ))
        })
        .take(2)
        .collect();
    all.extend(of_other_loads(study, row));
    if let Some(more) = recommend::with_another_kernel(study, row)
        && let Some((row, figures)) =
            study.rows.get(more).and_then(|row| Some((row, figures(study, row)?)))
    {
        let xen = Family::named_by(&row.scheduler).is_ok_and(Family::is_xen);
        let what = if xen { "another Xen" } else { "another kernel" };
        all.push(format!("More needs {what} ({}): {figures}.", row_name(row, study)));
    }
    all.extend(of_bound(study, tellings, Some(chosen)));
    all
}

/// What the setting of a row gives under the other loads of the table: their first row beside the
/// row that has the setting.
fn of_other_loads(study: &Study, row: usize) -> Vec<String> {
    let chosen = &study.rows[row];
    let Some(deploy) = &chosen.deploy else { return Vec::new() };
    let of = |other: &Row| {
        let same = other.deploy.as_ref() == Some(deploy) && other.scheduler == chosen.scheduler;
        let base = other.first_of_load.filter(|_| other.load.is_some() && same)?;
        let base = &study.rows[base];
        let was = figures(study, base)?;
        Some(format!(
            "Under the load of {} ({was}) the same setting gives {}.",
            row_name(base, study),
            figures(study, other)?
        ))
    };
    study.rows.iter().filter_map(of).take(2).collect()
}

/// The best bound, where it reaches more than `chosen`.
fn of_bound(study: &Study, tellings: &[Telling<'_>], chosen: Option<&Row>) -> Option<String> {
    let bound = &study.rows[recommend::bound(study, tellings)?];
    let why = bound.bound.as_deref().unwrap_or_default();
    let first = study.headline.first()?;
    let value = |row: &Row| first.cell(row).map(|cell| cell.value.median);
    let near = chosen.and_then(&value).zip(value(bound));
    let near = near.is_some_and(|(mine, most)| (mine / most - 1.0).abs() < 0.02);
    let reached = if near { ", which the setting reaches within 2 %" } else { "" };
    Some(format!(
        "The bound is {} ({why}): {}{reached}.",
        row_name(bound, study),
        figures(study, bound)?
    ))
}

/// The first two figures of the headline in a row.
fn figures(study: &Study, row: &Row) -> Option<String> {
    let of = |figure: &Figure| {
        let cell = figure.cell(row)?;
        let what = match figure.metric {
            Metric::Throughput => "requests".to_owned(),
            _ => figure.heading(),
        };
        Some(format!("{} {what} {}", figure.subject(), figure.metric.show(cell.value.median)))
    };
    let all: Vec<String> = study.headline.iter().filter_map(of).take(2).collect();
    (!all.is_empty()).then(|| all.join(" and "))
}

/// One number about each class says enough: the one that is felt first, unless another one changed
/// more than twice as much for certain.
fn speaks(t: &Telling<'_>, all: &[&Telling<'_>]) -> bool {
    let of_class = || all.iter().filter(|other| std::ptr::eq(other.subject, t.subject));
    let most = of_class().map(|other| other.size).fold(0.0, f64::max);
    of_class().find(|other| other.size >= most / 2.0).is_some_and(|first| std::ptr::eq(*first, t))
}

/// The order of the verdict: what clients see, then the tasks that the variant changes, then those
/// that waited longest for a CPU. Of a server and its load generator it is the server that waits:
/// the generator is put where it does not.
fn first(study: &Study, t: &Telling<'_>) -> (bool, bool, std::cmp::Reverse<i32>) {
    let waited = study.rows.first().and_then(|base| {
        let cell = base.find(t.subject.kind, &t.subject.name)?.cell(FELT[1])?;
        Some(cell.value.median)
    });
    // Twice as long is longer; less than that is left to the size of the change.
    let octave = waited.map_or(0, |ns| ns.max(1.0).log2() as i32);
    (t.subject.kind != Kind::Source, !t.subject.changed, std::cmp::Reverse(octave))
}

fn describe(t: &Telling<'_>) -> String {
    format!("{} {}", t.subject.name, numbers(t))
}

/// Returns `run-queue latency p99 5.36ms -> 65.5us ± 12us`.
fn numbers(t: &Telling<'_>) -> String {
    of_change(t.cell, t.subject.kind, t.base)
}

/// Returns the same of the cell of a subject of this kind, against the value of the first row.
pub(crate) fn of_change(cell: &Cell, kind: Kind, base: f64) -> String {
    let metric = cell.metric;
    let what = match (metric, kind) {
        (Metric::Latency(stat), _) => format!("run-queue latency {stat}"),
        (Metric::Throughput, Kind::Source | Kind::Channel) => "requests".to_owned(),
        (Metric::Throughput, _) => "throughput".to_owned(),
        _ => metric.heading(),
    };
    let base = base.max(0.0);
    // The bar of the change is one of differences.
    let bar = cell.change.and_then(|change| change.error_bar).map(|bar| bar.moved(base));
    let error = bar.map_or_else(String::new, |bar| bar.beside(metric));
    format!("{what} {} -> {}{error}", metric.show(base), metric.show(cell.value.median))
}
