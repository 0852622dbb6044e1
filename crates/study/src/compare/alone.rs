//! What every class would have of a CPU without the tasks that never end: simulated, beside what
//! the recording says of it (`elasticity.rs`).

use super::recorded::RecordedInput;
use super::trust::allowed;
use crate::StudyError;
use crate::change::RESOLUTION;
use crate::measurements::Kind;
use crate::metric::Metric;
use crate::result::Alone;
use crate::run::{Bench, Measures, RowPlan};
use schedlab_model::{Op, Program};
use std::collections::BTreeMap;

/// What every class has of a CPU when the tasks without end are not there, simulated once; empty
/// when there are none.
pub(super) fn alone(
    input: &RecordedInput,
    baseline: &RowPlan,
    bench: &Bench<'_>,
) -> Result<BTreeMap<String, f64>, StudyError> {
    let endless = &input.replay.report.hogs;
    if endless.is_empty() || input.readings.is_empty() {
        return Ok(BTreeMap::new());
    }
    let (scheduler, seed) = (&baseline.scheduler, bench.seeds.first().copied());
    if let Some((.., found)) =
        input.alone.get().filter(|(spec, of, _)| spec == scheduler && *of == seed)
    {
        return Ok(found.clone());
    }
    let mut plan = baseline.clone();
    for task in endless {
        plan.workload.tasks[task.index()].program = Program::once([Op::Exit]).into();
    }
    let first = &bench.seeds[..bench.seeds.len().min(1)];
    let bench = Bench {
        seeds: first,
        keep: None,
        known: None,
        measures: Measures::Sums,
        progress: &|_, _| {},
        ..*bench
    };
    let runs = bench.run(&mut vec![plan])?.runs;
    let Some(run) = runs.first().and_then(|runs| runs.first()) else { return Ok(BTreeMap::new()) };
    let share = |name: &String| {
        Some((name.clone(), run.measured.find(Kind::Class, name)?.value(Metric::Share)?))
    };
    let found: BTreeMap<_, _> = input.readings.iter().filter_map(|(name, _)| share(name)).collect();
    // What it gave first is kept: every question about the input asks.
    let _ = input.alone.set((scheduler.clone(), seed, found.clone()));
    Ok(found)
}

impl Alone {
    /// Why the simulation is not to be believed about this class; `None`: both readings agree.
    pub(super) fn disagreement(&self) -> Option<String> {
        // More than its own moments say is no contradiction: what it waits for may be held back
        // too, and it gains when that is not.
        if self.simulated >= self.low - allowed(self.low) {
            return None;
        }
        let show = |share: f64| Metric::Share.show(share);
        Some(format!(
            "{} would use {} of a CPU without the tasks that never end, judging from quiet \
             stretches of the recording; the \
             simulation gives {}",
            self.name,
            show(self.likely),
            show(self.simulated)
        ))
    }

    /// By what part of a change the two readings differ.
    pub(super) fn apart(&self) -> f64 {
        self.apart_beyond(0.0)
    }

    /// The same for how long a virtual CPU waits. Where it has the same to do in both readings they
    /// agree: what is left of their difference is how well a share is known.
    pub(super) fn apart_of_steal(&self) -> f64 {
        self.apart_beyond(RESOLUTION)
    }

    /// `least`: a smaller change counts as one of that size.
    fn apart_beyond(&self, least: f64) -> f64 {
        let change =
            (self.simulated - self.recorded).abs().max((self.likely - self.recorded).abs());
        let change = change.max(least);
        if change > 0.0 { ((self.simulated - self.likely).abs() / change).min(1.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a program on several CPUs may be off by is a part of what it has.
    #[test]
    fn a_share_above_one_cpu_is_judged_by_what_it_is() {
        let alone = |low: f64, simulated: f64| Alone {
            name: "server".to_owned(),
            low,
            likely: low,
            high: low,
            simulated,
            recorded: low,
        };
        assert_eq!(alone(2.29, 2.24).disagreement(), None, "5 points of 229");
        assert_eq!(alone(2.29, 2.18).disagreement(), None, "less than 5 % of 229 points");
        assert!(alone(2.29, 2.16).disagreement().is_some());
        assert!(alone(0.29, 0.23).disagreement().is_some(), "5 points of one CPU");
    }

    /// A guest that has the same to do whatever runs before it: the readings differ by a thousandth
    /// of a point, and say nothing against its waits.
    #[test]
    fn a_guest_that_reacts_to_nothing_waits_as_it_is_simulated() {
        let alone = |likely: f64, simulated: f64| Alone {
            name: "web".to_owned(),
            low: likely,
            likely,
            high: likely,
            simulated,
            recorded: 0.36,
        };
        assert_eq!(alone(0.36, 0.35999).apart(), 1.0);
        assert!(alone(0.36, 0.35999).apart_of_steal() < 0.01);
        assert!(alone(0.60, 0.36).apart_of_steal() > 0.99, "one reacts, the other does not");
    }
}
