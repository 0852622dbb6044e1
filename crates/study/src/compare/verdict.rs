//! The verdict: which tasks gain what, at what cost, and how sure that is. Two sentences, from the numbers alone.

mod telling;

pub(crate) use telling::{FELT, Telling, tellings};

use crate::change::Judgement;
use crate::measurements::Kind;
use crate::metric::{Metric, Stat};
use crate::result::{SelfReplay, Study, Verdict};
use crate::view::{few_for, row_name, seconds};
use schedlab_stats::range_confidence;
use telling::TAIL;

pub(super) fn verdict(study: &Study) -> Verdict {
    let tellings = tellings(study);
    let (row, outcome) = outcome(study, &tellings);
    Verdict { outcome, certainty: certainty(study), row }
}

fn outcome(study: &Study, tellings: &[Telling<'_>]) -> (Option<usize>, String) {
    if study.rows.len() < 2 {
        let row = study.rows.first().map(|row| row.scheduler.as_str()).unwrap_or_default();
        return (None, format!("Only {row} was run: name a second --scheduler or a --variant to compare."));
    }
    let time = |t: &&Telling<'_>| t.cell.metric.unit() == crate::metric::Unit::Time;
    let best = |of: &mut dyn Iterator<Item = &Telling<'_>>| -> Option<(usize, f64)> {
        let of: Vec<&Telling<'_>> = of.collect();
        let index = |t: &Telling<'_>| study.rows.iter().position(|row| std::ptr::eq(row, t.row)).unwrap_or(0);
        of.iter().map(|t| (index(t), t.size)).max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
    };
    let gains = || tellings.iter().filter(|t| t.better);
    let found = best(&mut gains().filter(time)).or_else(|| best(&mut gains()));
    let Some((row, _)) = found else {
        let base = &study.rows[0];
        let said = match tellings.iter().max_by(|a, b| a.size.total_cmp(&b.size)) {
            None => {
                format!(
                    "No change of response, run-queue latency, throughput or CPU share against {} can be told.",
                    row_name(base, study)
                )
            }
            Some(worst) => format!(
                "Nothing that was tried is better than {}; {} is worse: {}.",
                row_name(base, study),
                row_name(worst.row, study),
                describe(worst)
            ),
        };
        return (None, said);
    };
    let (index, row) = (row, &study.rows[row]);
    let of_row = |better: bool| {
        let all: Vec<&Telling<'_>> =
            tellings.iter().filter(|t| std::ptr::eq(t.row, row) && t.better == better).collect();
        let mut list: Vec<&Telling<'_>> = all.iter().copied().filter(|t| speaks(t, &all)).collect();
        list.sort_by(|a, b| first(study, a).cmp(&first(study, b)).then(b.size.total_cmp(&a.size)));
        list
    };
    let (gains, losses) = (of_row(true), of_row(false));
    let gain: Vec<String> = gains.iter().take(2).map(|t| describe(t)).collect();
    let cost = match losses.first() {
        None => "at no cost above 2 %".to_owned(),
        Some(loss) => format!("at the cost of {}", describe(loss)),
    };
    (Some(index), format!("{}: {}, {cost}.", row_name(row, study), gain.join(" and ")))
}

/// One number about each class says enough: the one that is felt first, unless another one changed more than twice as much
/// for certain.
fn speaks(t: &Telling<'_>, all: &[&Telling<'_>]) -> bool {
    let of_class = || all.iter().filter(|other| std::ptr::eq(other.subject, t.subject));
    let most = of_class().map(|other| other.size).fold(0.0, f64::max);
    of_class().find(|other| other.size >= most / 2.0).is_some_and(|first| std::ptr::eq(*first, t))
}

/// The order of the verdict: what clients see, then the tasks that the variant changes, then those that waited longest for a CPU. Of a
/// server and its load generator it is the server that waits: the generator is put where it does not.
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
    let metric = t.cell.metric;
    let what = match metric {
        Metric::Response(_) => "response p99",
        Metric::Latency(_) => "run-queue latency p99",
        Metric::Throughput => "throughput",
        _ => "CPU share",
    };
    let (base, value) = (t.base.max(0.0), t.cell.value.median);
    let error = t.cell.change.map_or(0.0, |change| change.error);
    let error = if error > 0.0 { format!(" ± {}", metric.show(error)) } else { String::new() };
    format!("{} {what} {} -> {}{error}", t.subject.name, metric.show(base), metric.show(value))
}

fn certainty(study: &Study) -> String {
    let judged = |wanted: fn(Judgement) -> bool| {
        let cells = study.rows.iter().skip(1).flat_map(|row| &row.subjects).flat_map(|s| &s.cells);
        let shown = cells.filter(|cell| FELT.contains(&cell.metric));
        shown.filter_map(|cell| cell.change).filter(|change| wanted(change.judgement)).count()
    };
    let unsure = judged(|judgement| judgement == Judgement::CannotTell);
    let all = judged(|_| true);
    let seeds = study.seeds.len();
    let told = format!("{} of {all} changes are larger than the error", all - unsure);
    match &study.self_replay {
        Some(replay) if !replay.trusted => format!(
            "Do not rely on it: the simulation does not reproduce the recording ({}).",
            replay.distrust.join("; ")
        ),
        Some(replay) => {
            let (share, latency) = worst(replay, seconds(study));
            let told = if study.rows.len() < 2 { String::new() } else { format!("; {told}") };
            format!(
                "The simulation reproduces the recording within {share:.1} points of CPU share and {latency}{told}."
            )
        }
        None if seeds == 1 => {
            "One run of each, so nothing is known about chance: --seeds 5 gives error bars.".to_owned()
        }
        None => {
            let told = if study.rows.len() < 2 { String::new() } else { format!("{told}; ") };
            let sure = range_confidence(seeds) * 100.0;
            format!(
                "Over {seeds} seeds {told}the range over the seeds contains the median with {sure:.0} % confidence."
            )
        }
    }
}

/// The largest error of shares (points) among all classes, and of run-queue latency (as text) among those
/// that use 5 % of a CPU and whose p99 is more than the story of one or two activations.
fn worst(replay: &SelfReplay, seconds: f64) -> (f64, String) {
    let mut share: f64 = 0.0;
    let mut latency: Option<(f64, String)> = None;
    for subject in &replay.subjects {
        let any = |metric: Metric, enough: &dyn Fn(f64) -> bool| {
            subject.cells.iter().any(|cell| cell.metric == metric && enough(cell.recorded))
        };
        let main = any(Metric::Share, &|share| share >= 0.05)
            && any(Metric::Throughput, &|rate| !few_for(TAIL, rate * seconds));
        for cell in &subject.cells {
            match cell.metric {
                Metric::Share => share = share.max(cell.difference.abs() * 100.0),
                Metric::Latency(stat @ Stat::Percentile(50_000 | 99_000)) if main && cell.recorded > 0.0 => {
                    let off = cell.difference.abs() / cell.recorded;
                    if latency.as_ref().is_none_or(|(most, _)| off > *most) {
                        latency = Some((
                            off,
                            format!("{:.0} % of run-queue latency ({}, {stat})", off * 100.0, subject.name),
                        ));
                    }
                }
                _ => {}
            }
        }
    }
    let none = "no class wakes often enough to judge run-queue latency".to_owned();
    (share, latency.map_or(none, |(_, text)| text))
}
