//! How sure a verdict is, in one sentence.

use super::telling::{FELT, TAIL, Telling, counts};
use crate::change::{Change, Judgement};
use crate::metric::{Metric, Stat};
use crate::result::{SelfReplay, Study};
use crate::view::{few_for, seconds};
use schedlab_stats::range_confidence;

/// Returns the sentence. `gain`: the change that the outcome speaks of first.
pub(super) fn certainty(study: &Study, gain: Option<&Telling<'_>>) -> String {
    let judged = |wanted: fn(Judgement) -> bool| {
        let subjects = study.rows.iter().skip(1).flat_map(|row| &row.subjects);
        let cells = subjects.filter(|subject| counts(study, subject)).flat_map(|s| &s.cells);
        let shown = cells.filter(|cell| FELT.contains(&cell.metric));
        shown.filter_map(|cell| cell.change).filter(|change| wanted(change.judgement)).count()
    };
    let unsure = judged(|judgement| judgement == Judgement::CannotTell);
    let all = judged(|judgement| judgement != Judgement::Same);
    let seeds = study.seeds.len();
    let told = match gain {
        Some(gain) => of_gain(gain, study.self_replay.is_some()),
        None if all == 0 => "nothing changes".to_owned(),
        None => format!("{} of {all} changes are larger than their error", all - unsure),
    };
    match &study.self_replay {
        Some(replay) if !replay.trusted => {
            format!("{}{}", reproduction(replay, seconds(study)), advice(study))
        }
        Some(replay) => {
            let told = if study.rows.len() < 2 { String::new() } else { format!("; {told}") };
            format!(
                "{}{told}.",
                for_server(study, replay, all > 0 && unsure == all)
                    .unwrap_or_else(|| reproduction(replay, seconds(study)))
            )
        }
        None if seeds == 1 => {
            "One run of each, so nothing is known about chance: --seeds 5 gives error bars."
                .to_owned()
        }
        None => {
            let told = if study.rows.len() < 2 { String::new() } else { format!("{told}; ") };
            let sure = range_confidence(seeds) * 100.0;
            format!(
                "Over {seeds} seeds {told}the range over the seeds contains the median with \
                 {sure:.0} % confidence."
            )
        }
    }
}

/// What to do where a server was asked about and the answer is not to be relied on.
fn advice(study: &Study) -> String {
    study.served.as_ref().map_or_else(String::new, |served| {
        format!(
            " A longer recording, or one of a quieter moment, may do for {}; `schedlab colocate` \
             measures instead of predicting.",
            served.name()
        )
    })
}

/// Returns how well the server that was asked about is reproduced. `untold`: something changes, and
/// none of it by more than its error, for which no reproduction was good enough.
fn for_server(study: &Study, replay: &SelfReplay, untold: bool) -> Option<String> {
    let served = study.served.as_ref()?;
    let own = || replay.subjects.iter().filter(|subject| served.classes.contains(&subject.name));
    let cells = |metric: Metric| {
        own().flat_map(|subject| &subject.cells).filter(move |cell| cell.metric == metric)
    };
    let share = cells(Metric::Share).map(|cell| cell.difference.abs() * 100.0).fold(0.0, f64::max);
    let tail = cells(Metric::Latency(Stat::Percentile(TAIL))).filter(|cell| cell.recorded > 0.0);
    let latency =
        tail.map(|cell| cell.difference.abs() / cell.recorded * 100.0).fold(0.0, f64::max);
    let name = served.name();
    let (judged, whose) = match untold {
        true => ("The simulation".to_owned(), format!("the CPU share of {name}")),
        false => (format!("Good enough for {name}: the simulation"), "its CPU share".to_owned()),
    };
    Some(format!(
        "{judged} reproduces {whose} within {share:.1} points and its run-queue latency (p99) \
         within {latency:.0} %"
    ))
}

/// Returns how well the recording is reproduced in `seconds` of it: a sentence without its full
/// stop, or with it where the recording is not to be relied on.
pub(crate) fn reproduction(replay: &SelfReplay, seconds: f64) -> String {
    if !replay.trusted {
        let why = replay.distrust.join("; ");
        return format!(
            "Do not rely on it: the simulation does not reproduce the recording ({why})."
        );
    }
    let (share, latency) = worst(replay, seconds);
    format!(
        "The simulation reproduces the recording within {share:.1} points of CPU share and \
         {latency}"
    )
}

/// How many times its error the gain is.
fn of_gain(gain: &Telling<'_>, recorded: bool) -> String {
    gain.cell.change.map_or_else(String::new, |change| of_change(&change, recorded))
}

/// Returns how many times its error a change is. Of a recording it also says what most of the error
/// comes from.
pub(crate) fn of_change(change: &Change, recorded: bool) -> String {
    if change.error <= 0.0 {
        return "the gain is the same in every run".to_owned();
    }
    let parts = change.error_bar.filter(|_| recorded).map(|bar| bar.parts.of_which());
    let times = change.difference.abs() / change.error;
    format!("the gain is {times:.1} times its error{}", parts.unwrap_or_default())
}

/// The largest error of shares (points) among all classes, and of run-queue latency (as text) among
/// those that use 5 % of a CPU and whose p99 is more than the story of one or two activations.
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
                Metric::Latency(stat @ Stat::Percentile(50_000 | 99_000))
                    if main && cell.recorded > 0.0 =>
                {
                    let off = cell.difference.abs() / cell.recorded;
                    if latency.as_ref().is_none_or(|(most, _)| off > *most) {
                        latency = Some((
                            off,
                            format!(
                                "{:.0} % of run-queue latency ({}, {stat})",
                                off * 100.0,
                                subject.name
                            ),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Options, RecordedInput, compare_recording};
    use std::path::Path;

    /// What reproduces a server well enough is no use where the error is larger than the change.
    #[test]
    fn nothing_is_good_enough_where_no_change_can_be_told() {
        let file =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../recordings/redis-other-other-closed8.slt");
        let input = RecordedInput::open(Path::new(file)).unwrap();
        let options = Options {
            variants: vec!["batch idle: sysbench policy=idle".to_owned()],
            serve: Some("redis-server".to_owned()),
            repetitions: Some(1),
            jobs: 1,
            ..Options::default()
        };
        let mut study = compare_recording(&input, None, &options, &|_, _| {}).unwrap();
        let said = certainty(&study, None);
        assert!(said.starts_with("Good enough for redis-server: "), "{said}");
        let subjects = study.rows.iter_mut().skip(1).flat_map(|row| &mut row.subjects);
        for cell in subjects.flat_map(|subject| &mut subject.cells) {
            if let Some(change) = &mut cell.change {
                change.judgement = Judgement::CannotTell;
            }
        }
        let said = certainty(&study, None);
        let (begins, ends) = (
            "The simulation reproduces the CPU share of redis-server within ",
            "changes are larger than their error.",
        );
        assert!(said.starts_with(begins) && said.ends_with(ends), "{said}");
        assert!(said.contains("; 0 of "), "{said}");
    }
}
