//! The answer of `schedlab colocate`.

use super::style::Style;
use super::table::{Cell, Table};
use schedlab_lab::colocate::{
    Blamed, ColocatePlan, Colocation, FIGURES, GivenBack, Goal, Intent, KeptAwake, MOST_TIMES,
    Round, Tried, WorkloadRole, advice, median_blame,
};
use schedlab_live::actuators::Actuator;
use schedlab_model::Ns;
use schedlab_stats::{Estimate, OrderInterval, range_confidence};
use schedlab_study::gate::{Against, GateOutcome};
use schedlab_study::metric::Metric;
use std::fmt::Write as _;

/// Returns the steps of a dry run.
pub(crate) fn intents(plan: &ColocatePlan, intents: &[Intent]) -> String {
    let mut text =
        "nothing is changed; these actuators would be tried, in this order, until the goal is \
         met:\n"
            .to_owned();
    if let Some(cpus) = plan.cpus {
        let _ = writeln!(text, "  throughout: server and batch work on the CPUs {cpus} only");
    }
    if plan.goals.iter().any(|goal| goal.0.against == Against::Alone) {
        let _ = writeln!(
            text,
            "  before each, for {}: the batch processes are stopped (SIGSTOP) to measure the \
             server alone",
            plan.round
        );
    }
    for intent in intents {
        let what = intent.skipped.as_ref().map_or_else(
            || advice(intent.actuator).what.to_owned(),
            |why| format!("not tried: {why}"),
        );
        let _ = writeln!(text, "  {:<13} {what}", intent.actuator.name());
        for change in &intent.changes {
            let _ = writeln!(text, "    {change}");
        }
    }
    text
}

/// Returns the name of a row.
pub(crate) fn name(role: WorkloadRole, metric: Metric) -> String {
    let role = if role == WorkloadRole::Server { "server" } else { "batch" };
    format!("{role} {metric}")
}

/// Returns the answer.
pub(crate) fn answer(plan: &ColocatePlan, found: &Colocation, style: &Style) -> String {
    let mut text = String::new();
    tried(&mut text, plan, found, style);
    let _ = match (found.chosen, found.outcome) {
        _ if found.partial => partial(&mut text, found, style),
        (Some(Actuator::Default), GateOutcome::Met) => {
            writeln!(
                text,
                "\n{}: the goal is met under the host's default",
                style.good("nothing needs to be changed")
            )
        }
        (Some(how), GateOutcome::CannotSay) => unsure(&mut text, found, how, style),
        (Some(how), _) => writeln!(text, "\n{}: {}", style.good(how.name()), advice(how).what),
        (None, GateOutcome::CannotSay) => {
            let lacks = found
                .before
                .iter()
                .chain(&found.after)
                .flat_map(|round| round.lacks.iter().flatten());
            let why = lacks.map(String::as_str).next().unwrap_or("nothing was seen of the metric");
            writeln!(
                text,
                "\n{}: {why} in a round. Send the server load (--load), or give longer rounds \
                 (--round)",
                style.bad("cannot say")
            )
        }
        (None, _) => {
            writeln!(text, "\n{}: none of these actuators meets the goal", style.bad("not met"))
        }
    };
    if let Some(sentence) = &found.not_the_batch {
        let _ = writeln!(text, "{sentence}");
    }
    table(&mut text, plan, found, style);
    alone(&mut text, found, style);
    if let Some(advice) = &found.advice {
        let _ = writeln!(text, "\nto know: {}", advice.bites);
        let _ = writeln!(text, "\nthe same setting without schedlab:\n{}", advice.shell);
        let _ = writeln!(text, "systemd:\n{}\nKubernetes: {}", advice.systemd, advice.kubernetes);
    }
    if let Some(outcome) = found.kept_outcome {
        let word =
            if outcome == GateOutcome::Met { style.good("met") } else { style.bad("not met") };
        let _ = writeln!(
            text,
            "\nkept for {} rounds: the goal was {word} in the median of them",
            found.kept.len()
        );
    }
    if found.batch_restarts > 0 {
        let _ = writeln!(
            text,
            "the batch work ended {} times and was started again",
            found.batch_restarts
        );
    }
    as_before(&mut text, found, style);
    text
}

/// Writes what is known when the user ended the trial.
fn partial(text: &mut String, found: &Colocation, style: &Style) -> std::fmt::Result {
    let known = match found.so_far {
        Some(how) => format!(
            "{how} is the mildest setting that met the goal in the rounds that were finished; they \
             do not confirm it. {how}: {}",
            advice(how).what
        ),
        None => "no setting met the goal in the rounds that were finished".to_owned(),
    };
    writeln!(text, "\n{}: ended early; {known}", style.bad("partial"))
}

/// Writes the mildest setting that its rounds did not decide.
fn unsure(text: &mut String, found: &Colocation, how: Actuator, style: &Style) -> std::fmt::Result {
    let names: Vec<&str> = found.undecided.iter().map(|how| how.name()).collect();
    writeln!(
        text,
        "\n{}, {}: {}\nAfter {} pairs of rounds ({MOST_TIMES} times --rounds, the most that a \
         setting gets) it is not known whether the \
         goal is met: the interval below contains both answers. Of the settings without an answer \
         ({}) it is the mildest; harsher \
         settings were not tried. Longer rounds (--round), more rounds (--rounds), or a machine \
         with less other work give an \
         answer",
        style.bad("not sure"),
        how.name(),
        advice(how).what,
        found.after.len(),
        names.join(", ")
    )
}

/// Writes the distance from the server alone, and the cost for the batch work.
fn alone(text: &mut String, found: &Colocation, style: &Style) {
    for one in &found.distances {
        let show = |value: f64| match one.relative {
            true => format!("{:+.1} %", 100.0 * value),
            false => format!("{value:+.0}"),
        };
        let OrderInterval { median, low, high, confidence } = one.of;
        let outcome = match one.outcome {
            GateOutcome::Met => style.good("met"),
            GateOutcome::Not => style.bad("missed"),
            GateOutcome::CannotSay => "cannot tell".to_owned(),
        };
        let _ = writeln!(
            text,
            "{}: {} against alone ({} .. {} holds the median of {} pairs with {:.0} %): {outcome}",
            one.goal,
            show(median),
            show(low),
            show(high),
            one.pairs,
            100.0 * confidence
        );
    }
    if let Some(awake) = found.awake {
        let how = match awake {
            KeptAwake::Spinner => "a SCHED_IDLE thread kept the CPUs awake",
            KeptAwake::NoLatency => {
                "the kernel was asked for no latency of idle states, on all CPUs"
            }
            KeptAwake::Not => {
                "the CPUs could not be kept awake: the server's numbers alone contain the exit \
                 from idle"
            }
        };
        let still = Ns(found.stood_still_ns / 1_000_000 * 1_000_000);
        let _ = writeln!(text, "alone: the batch work was stopped for {still} in all; {how}");
    }
    let share = |rounds: &[Round]| {
        let of = |round: &Round| round.figures.last().copied().flatten();
        Estimate::from_values(rounds.iter().filter_map(of).collect()).map(|share| share.median)
    };
    if let (Some(how), Some(before), Some(after)) =
        (found.chosen, share(&found.before), share(&found.after))
        && how != Actuator::Default
    {
        let left = Estimate::from_values(
            found.after.iter().filter_map(|round| round.batch_of_left).collect(),
        );
        let left = left.map_or_else(String::new, |left| {
            format!(", {} of what the server leaves", Metric::Share.show(left.median))
        });
        let (before, after) = (Metric::Share.show(before), Metric::Share.show(after));
        let _ =
            writeln!(text, "cost for the batch work: {after} of a CPU, {before} by default{left}");
    }
}

/// Writes what is not as it was.
fn as_before(text: &mut String, found: &Colocation, style: &Style) {
    for what in &found.given_back.changed_by_others {
        let _ = writeln!(
            text,
            "{what}: another program changed it meanwhile; left as that program set it"
        );
    }
    for what in &found.given_back.failed {
        let _ =
            writeln!(text, "{}: {what}. `schedlab restore` tries again", style.bad("not put back"));
    }
    if found.given_back == GivenBack::default() {
        text.push_str("everything is as before\n");
    }
}

/// Returns `sysbench 120ms/s`: waiting time of the server for each second.
fn blamed(all: &[Blamed]) -> impl Iterator<Item = String> {
    all.iter().map(|one| format!("{} {}/s", one.who, Ns(one.ns_per_s.round() as u64)))
}

/// Returns what the first rounds under an actuator say, in a line: an answer for the time being.
pub(crate) fn so_far(goals: &[Goal], tried: &Tried) -> String {
    let name = tried.actuator.name();
    let Some(round) = &tried.round else {
        let why = tried.skipped.as_deref().unwrap_or("nothing was measured");
        return format!("so far: {name} is not tried: {why}");
    };
    let mut all = Vec::new();
    for (index, goal) in goals.iter().enumerate() {
        let value = round.goals.get(index).copied().flatten();
        let value = value.map_or("no value".to_owned(), |value| goal.0.metric.show(value));
        all.push(format!("{value} of '{}'", goal.0));
    }
    let outcome = match tried.outcome {
        Some(GateOutcome::Met) => "meets the goal in its first round",
        Some(GateOutcome::Not) => "misses the goal",
        _ => "cannot be judged yet",
    };
    format!("so far: {name} {outcome} ({})", all.join(", "))
}

/// Writes a line for each actuator.
fn tried(text: &mut String, plan: &ColocatePlan, found: &Colocation, style: &Style) {
    let goals = found.goals.join(" and ");
    let _ = writeln!(
        text,
        "goal: {goals} (met when true), on the CPUs {}, rounds of {}",
        found.cpus, plan.round
    );
    for one in &found.tried {
        let values = one.round.iter().flat_map(|round| round.goals.iter().zip(&plan.goals));
        let values: Vec<String> = values
            .map(|(value, goal)| value.map_or("?".to_owned(), |value| goal.0.metric.show(value)))
            .collect();
        let outcome = match (&one.skipped, one.outcome) {
            (Some(why), _) => style.dim(&format!("not tried: {why}")),
            (None, Some(GateOutcome::Met)) => {
                format!("{} {}", values.join(", "), style.good("met"))
            }
            (None, Some(GateOutcome::Not)) => {
                format!("{} {}", values.join(", "), style.bad("missed"))
            }
            _ => format!("{} cannot say", values.join(", ")),
        };
        let worst = one.round.iter().flat_map(|round| blamed(&round.blame));
        let worst = worst.take(2).collect::<Vec<_>>().join(", ");
        let outcome = if worst.is_empty() {
            outcome
        } else {
            format!("{outcome}; the server waited for {worst}")
        };
        let _ = writeln!(text, "  {:<13} {outcome}", one.actuator.name());
    }
}

/// Writes the table of both settings, with the range over the rounds.
fn table(text: &mut String, plan: &ColocatePlan, found: &Colocation, style: &Style) {
    if found.before.is_empty() || found.after.is_empty() {
        return;
    }
    let mut rows = Vec::new();
    let alone = (!found.alone.is_empty()).then_some(&found.alone);
    let mut row =
        |name: String, show: &dyn Fn(f64) -> String, of: &dyn Fn(&Round) -> Option<f64>| {
            let cell = |rounds: &Vec<Round>| {
                let range = Estimate::from_values(rounds.iter().filter_map(of).collect());
                let range = range
                    .map(|e| format!("{} ({} .. {})", show(e.median), show(e.low), show(e.high)));
                Cell::plain(range.unwrap_or_else(|| "-".to_owned()))
            };
            let columns = alone.into_iter().chain([&found.before, &found.after]);
            rows.push(std::iter::once(Cell::plain(name)).chain(columns.map(cell)).collect());
        };
    for (index, goal) in plan.goals.iter().enumerate() {
        let show = |value| goal.0.metric.show(value);
        row(format!("goal {goal}", goal = goal.0), &show, &|round| {
            round.goals.get(index).copied().flatten()
        });
    }
    for (index, (role, metric)) in FIGURES.into_iter().enumerate() {
        row(name(role, metric), &|value| metric.show(value), &|round| {
            round.figures.get(index).copied().flatten()
        });
    }
    row("batch of what the server leaves".to_owned(), &|v| Metric::Share.show(v), &|round| {
        round.batch_of_left
    });
    if plan.client.is_some() {
        for metric in
            ["response p50", "response p99", "response p99.9", "response max", "throughput"]
        {
            let Ok(metric) = metric.parse::<Metric>() else { continue };
            row(format!("client {metric}"), &|value| metric.show(value), &|round| {
                round.client_value(metric)
            });
        }
    }
    let how = found.tried.last().map_or(Actuator::Default, |last| last.actuator);
    let how = found.chosen.unwrap_or(how);
    let names = [""].into_iter().chain(alone.map(|_| "alone")).chain(["default", how.name()]);
    let head = names.map(str::to_owned).collect();
    let rounds = found.before.len();
    let more = match found.after.len() {
        same if same == rounds => String::new(),
        more => format!(" ({more} of {} and alone)", how.name()),
    };
    let sure = range_confidence(rounds) * 100.0;
    let _ = writeln!(
        text,
        "\nmedian (range) over {rounds} interleaved rounds{more}; the range holds the true median \
         with {sure:.0} %"
    );
    text.push_str(
        &Table { head, rows, fixed: if alone.is_some() { 4 } else { 3 }, ..Table::default() }
            .render(style)
            .0,
    );
    waited_for(text, found, how, style);
}

/// Writes for which tasks the server waited in both settings, and what the client doubts.
fn waited_for(text: &mut String, found: &Colocation, how: Actuator, style: &Style) {
    for (what, rounds) in [("default", &found.before), (how.name(), &found.after)] {
        let worst = median_blame(rounds.iter().map(|round| round.blame.as_slice()));
        let worst = blamed(&worst).collect::<Vec<_>>().join(", ");
        let worst = if worst.is_empty() { "no task" } else { &worst };
        let _ = writeln!(text, "the server waited for ({what}): {worst}");
    }
    let doubts = found.before.iter().chain(&found.after).flat_map(|round| round.client.iter());
    if let Some(doubt) = doubts.flat_map(|seen| &seen.doubts).next() {
        let _ = writeln!(text, "{}: {doubt}", style.bad("doubt about the client"));
    }
}
