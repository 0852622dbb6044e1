//! Rows whose predictions have errors of their own: in which a task waits that never did in the recording, and in which a class is
//! served before all others.
//!
//! Of a task that hardly ever slept the recording shows that what it waits for was there whenever it looked, and not how much of it: a client may have
//! eight connections with a reply in each. As long as a row leaves it like that, what it does follows from the recording. In a row where it sleeps
//! again and again (another kernel lets it send on where the recorded one gave the CPU to the server) that number decides, and all
//! that the row changes is open.
//!
//! Where activations merge and split, a percentile of their latencies counts other activations in each row, and what changes in it is open. Not so where
//! a row alone puts a class before all others (SCHED_FIFO or SCHED_RR): its tasks wait for each other and for interrupts then, for each of their
//! activations, and the simulation has both.

use super::Errors;
use super::recorded::RecordedInput;
use super::trust::{UNDECIDED, drift};
use crate::change::MethodError;
use crate::measurements::Kind;
use crate::metric::Metric;
use crate::run::{RowPlan, Run};
use std::collections::BTreeMap;

/// Such a task waits when it sleeps after more than this part of its messages (in per cent). Chosen: as many may find those who work for it awake in
/// the recording.
const WAITS_PERCENT: f64 = 10.0;

/// The errors of predictions, row by row.
#[derive(Default)]
pub(super) struct RowErrors {
    common: Errors,
    /// Rows that have others.
    own: BTreeMap<usize, Errors>,
}

impl RowErrors {
    pub(super) fn of(&self, row: usize) -> &Errors {
        self.own.get(&row).unwrap_or(&self.common)
    }

    /// Opens the errors of rows in which such a task waits; and what the reader is told about each.
    pub(super) fn find(
        input: &RecordedInput,
        plans: &[RowPlan],
        runs: &[Vec<Run>],
        common: Errors,
    ) -> (RowErrors, Vec<String>) {
        let (mut open, mut notes) = (BTreeMap::new(), Vec::new());
        for silent in &input.replay.report.silent {
            let class = &input.classes[silent.task.index()];
            let messages = silent.messages as f64 / (input.replay.duration.0 as f64 / 1e9);
            // The first row changes nothing.
            for (row, runs) in runs.iter().enumerate().skip(1) {
                let sleeps = sleeps(runs, class);
                if sleeps * 100.0 <= messages * WAITS_PERCENT {
                    continue;
                }
                let of_all = |(key, error): (&(String, Metric), &MethodError)| {
                    (key.clone(), MethodError { apart: 1.0, ..*error })
                };
                open.entry(row).or_insert_with(|| common.iter().map(of_all).collect::<Errors>());
                notes.push(format!(
                    "{} under {}: {class} sleeps {sleeps:.0} times a second, and hardly ever in the recording: how much lies ready for it is not \
                     recorded, so all that changes there is open",
                    plans[row].variant, plans[row].label
                ));
            }
        }
        let mut own = open;
        for (row, plan) in plans.iter().enumerate().skip(1) {
            if let (Some(class), false) = (served_first(input, plan, &plans[0]), own.contains_key(&row)) {
                own.insert(row, of_served_first(&common, &class, input));
            }
        }
        (RowErrors { common, own }, notes)
    }
}

/// The class whose tasks are the only ones with real-time policies in a row, and had none before; the kernel's own threads do not count.
fn served_first(input: &RecordedInput, plan: &RowPlan, base: &RowPlan) -> Option<String> {
    if plan.scheduler != base.scheduler || plan.delegation.is_some() {
        return None;
    }
    let of = |plan: &RowPlan| -> Vec<usize> {
        let tasks = plan.workload.tasks.iter().enumerate().zip(&input.header.tasks);
        let realtime = tasks.filter(|((_, task), of)| task.policy.is_realtime() && !of.kernel);
        realtime.map(|((index, _), _)| index).collect()
    };
    let (before, first) = (of(base), of(plan));
    let class = input.classes.get(*first.first()?)?;
    let whole = input.classes.iter().enumerate().filter(|(_, of)| *of == class).map(|(index, _)| index);
    (before.is_empty() && whole.eq(first.iter().copied())).then(|| class.clone())
}

/// The errors of a row that serves `class` before all others.
fn of_served_first(common: &Errors, class: &str, input: &RecordedInput) -> Errors {
    let of = |(key, error): (&(String, Metric), &MethodError)| {
        let error = match key.1 {
            Metric::Latency(_) if key.0 == class => {
                MethodError { apart: error.apart.min(UNDECIDED), drift: drift(key.1, input), ..*error }
            }
            _ => *error,
        };
        (key.clone(), error)
    };
    common.iter().map(of).collect()
}

/// How often tasks of a class sleep a second, over all runs of a row.
fn sleeps(runs: &[Run], class: &str) -> f64 {
    let of = |run: &Run| run.measured.find(Kind::Class, class)?.value(Metric::Throughput);
    let all: Vec<f64> = runs.iter().filter_map(of).collect();
    if all.is_empty() { 0.0 } else { all.iter().sum::<f64>() / all.len() as f64 }
}
