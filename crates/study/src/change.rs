//! Changes against a baseline, with error bars. `docs/result-schema.md` explains the rules.

use crate::compare::constants::{DRIFT_OF_LOOPS, REACTION_OF_LOOPS};
use crate::error_parts::{ErrorBar, ErrorParts, Possible};
use crate::metric::{Metric, Unit};
use schedlab_stats::Estimate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a change is, seen by a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// More of what one wants.
    Better,
    /// Less of it.
    Worse,
    /// Different, but neither good nor bad in itself (switches, migrations).
    Different,
    /// The change is smaller than the error.
    CannotTell,
    /// Exactly equal in every seed.
    Same,
}

/// A change against the baseline.
#[derive(Clone, Copy, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Change {
    /// Variant minus baseline, median over the seeds (each seed against itself), in the metric's
    /// unit.
    pub difference: f64,
    /// Half width of the error bar, before it is cut to what is possible; of a factor how far its
    /// end towards no change is away.
    pub error: f64,
    /// Between which values the difference lies, and what the error is made of; missing in results
    /// of schedlab 1.0 and before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_bar: Option<ErrorBar>,
    /// Variant divided by baseline, median over the seeds; `None` when the baseline is 0.
    pub ratio: Option<f64>,
    /// What to think of it.
    pub judgement: Judgement,
}

/// How far a percentile of times may lie below and above itself, as natural logarithms.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Tail {
    /// Below.
    pub down: f64,
    /// Above.
    pub up: f64,
}

/// The method's error for one metric of one class, from the self-replay.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MethodError {
    /// |simulated − recorded|, in the metric's unit.
    pub absolute: f64,
    /// The same as a part of the larger of the two.
    pub relative: f64,
    /// By what part of a change two readings of how the class reacts differ.
    pub apart: f64,
    /// Standard error of the share in the recording, in parts of a CPU.
    pub noise: f64,
    /// By how much two recordings of one setting differ, judging from windows of this one: of a
    /// share in parts of a CPU, of a rate as a part of it.
    pub spread: f64,
    /// By how much the time that the machine itself takes from a wakeup to the switch differs, in
    /// nanoseconds.
    pub machine: f64,
    /// By how much what the server waits for is off in the self-replay: of a share in parts of a
    /// CPU, of a time as a natural logarithm.
    pub behind: f64,
    /// How far the recorded percentile may be from where it is.
    pub recorded_tail: Tail,
    /// The same of the simulated one.
    pub tail: Tail,
    /// It is how long an event loop waits for a CPU: that it waits less where nothing is before it
    /// shows in the recording, where it does so at times; how requests pile up when it waits more
    /// does not.
    pub is_of_loop: bool,
    /// By what factor values beyond a percentile may come more or less often than they did.
    pub rate: f64,
    /// By how much what a request costs changes in this row, as a natural logarithm: how a task's
    /// activations divide its work there was not recorded, and all of that may not come.
    pub costs: f64,
    /// What two recordings of one setting differ by, as a part of the value.
    pub drift: f64,
    /// Of a share that is what others leave: by how much what others do may change with what it
    /// costs them. `None`: it is none.
    pub left: Option<f64>,
    /// The metric counts activations that are no requests: more of them is neither better nor
    /// worse.
    pub merges: bool,
    /// What was recorded, and simulated for the same setting: predictions start from the first.
    /// `None`: not recorded.
    pub anchor: Option<(f64, f64)>,
    /// Between which values the number can lie at all.
    pub possible: Possible,
}

impl MethodError {
    /// Of a value that was recorded and is simulated.
    pub fn between(recorded: f64, simulated: f64) -> MethodError {
        let absolute = (simulated - recorded).abs();
        let larger = recorded.abs().max(simulated.abs());
        let relative = if larger > 0.0 { absolute / larger } else { 0.0 };
        MethodError { absolute, relative, ..MethodError::default() }
    }

    /// Returns what the error of a difference between two values of this size is made of, without
    /// the seeds. The self-replay: for shares the points by which it was off; for times and rates
    /// the same part of the larger of the two, and never less than the self-replay's own absolute
    /// error of the baseline.
    pub fn parts(self, metric: Metric, base: f64, other: f64) -> ErrorParts {
        let larger = base.abs().max(other.abs());
        let reaction = (self.apart * (other - base).abs()).hypot(self.costs * other.abs());
        let (self_replay, drift) = match metric.unit() {
            // What was recorded is known; what its costs were then is not known of what is
            // predicted.
            Unit::Share => (
                self.absolute.hypot(self.behind),
                if self.drift > 0.0 { self.drift_of_share(other) + RESOLUTION } else { 0.0 },
            ),
            _ => (self.absolute.max(self.relative * larger), self.drift * larger),
        };
        let sampling = match metric.unit() {
            Unit::Share => (NOISE_ERRORS * self.noise).max(self.spread),
            _ => self.spread * larger,
        };
        ErrorParts { seeds: 0.0, self_replay, reaction, drift, sampling }
    }

    /// Returns how far a share of this size may be moved by what work costs another time. Tasks
    /// without end do no work of which that could be asked: they have what is left.
    pub(crate) fn drift_of_share(self, share: f64) -> f64 {
        let own = self.drift * unsettled(share, self.possible.high);
        self.left.map_or(own, |left| own.min(left))
    }

    /// Whether this is a time of a recording, which is known up to a factor: the spread of a tail
    /// grows with its length, and what is eighty times shorter is told however large the error of
    /// the longer one is.
    pub fn is_factor(self, metric: Metric) -> bool {
        metric.unit() == Unit::Time && self.anchor.is_some()
    }

    /// Returns the bar of a time that is changed from `base`. `seeds`: half the logarithm of the
    /// range over the seeds.
    fn bar_of_factor(self, base: f64, other: f64, seeds: f64) -> ErrorBar {
        let (recorded, simulated) = self.anchor.unwrap_or_default();
        let parts = |reaction: f64, (drift, machine): (f64, f64), tail: f64, recorded_tail: f64| {
            ErrorParts {
                seeds,
                self_replay: apart(recorded, simulated).hypot(self.behind),
                reaction: (reaction * apart(base, other)).hypot(self.costs),
                drift: libm::log(1.0 + drift).hypot(machine),
                sampling: tail.hypot(recorded_tail),
            }
        };
        // The prediction starts from what was recorded: where that may be lower, so may the
        // prediction.
        let of_loop = if self.is_of_loop { REACTION_OF_LOOPS.value } else { 0.0 };
        let reaction = self.apart.max(of_loop);
        let back = if self.is_of_loop && other > base { 1.0 } else { reaction };
        let less = if self.is_of_loop { DRIFT_OF_LOOPS.value.max(self.drift) } else { self.drift };
        // A time of some microseconds is that of the machine, which was measured at other moments.
        let shorter = apart(other, (other - self.machine).max(other.min(CLOCK)));
        let longer = apart(other, other + self.machine);
        let down = parts(back, (less, shorter), self.tail.down, self.recorded_tail.down);
        let up = parts(reaction, (self.drift, longer), self.tail.up, self.recorded_tail.up);
        ErrorBar::of_factor(other, down, up)
    }

    /// Returns the bar of a value over the seeds, which is changed from `base`.
    pub fn bar(self, metric: Metric, base: f64, value: &Estimate) -> ErrorBar {
        if self.is_factor(metric) {
            return self.bar_of_factor(base, value.median, apart(value.low, value.high) / 2.0);
        }
        let seeds = (value.high - value.low) / 2.0;
        let parts = ErrorParts { seeds, ..self.parts(metric, base, value.median) };
        ErrorBar::new(value.median, parts, self.possible)
    }

    /// The prediction for a value that was simulated: the recorded value of the unchanged setting,
    /// changed as the simulation changes. The further the two simulated values are apart, the less
    /// the error of the one says about the other.
    pub fn anchored(self, metric: Metric, simulated: f64) -> f64 {
        let Some((recorded, base)) = self.anchor else { return simulated };
        let (low, high) = (base.abs().min(simulated.abs()), base.abs().max(simulated.abs()));
        if low <= 0.0 || recorded <= 0.0 {
            return simulated;
        }
        let alike = low / high;
        match metric.unit() {
            Unit::Share => self.possible.nearest(simulated + alike * (recorded - base)),
            _ => simulated * libm::pow(recorded / base, alike),
        }
    }
}

/// The shortest time from a wakeup to the switch that is told apart from none, in nanoseconds.
/// Chosen: a context switch takes 0.4 to 2.1 us (docs/sources/machine-costs.md).
const CLOCK: f64 = 1_000.0;

/// A share is known to a point at best: interrupts and the kernel's own threads are in it.
pub(crate) const RESOLUTION: f64 = 0.01;
/// Standard errors of a share that are counted.
const NOISE_ERRORS: f64 = 2.0;

/// How far a share can be moved by what tasks cost: the slope of the logistic function, greatest at
/// half of the CPUs that the tasks can have, and none at all of them. `most`: so many CPUs; where
/// that is not known, those that the share takes at least.
fn unsettled(share: f64, most: f64) -> f64 {
    let most = if most.is_finite() { most.max(share) } else { share.ceil().max(1.0) };
    if most > 0.0 { share * (1.0 - share / most) } else { 0.0 }
}

/// How far two times are apart, as a natural logarithm. The clock's nanosecond is the shortest
/// time.
pub(crate) fn apart(one: f64, other: f64) -> f64 {
    apart_from(1.0, one, other)
}

/// How far two numbers are apart, as a natural logarithm; below `least` all are alike.
pub(crate) fn apart_from(least: f64, one: f64, other: f64) -> f64 {
    libm::log(one.max(least) / other.max(least)).abs()
}

/// The change from `base` to `other`, both by seed.
pub fn change(metric: Metric, base: &[f64], other: &[f64], method: MethodError) -> Option<Change> {
    let pairs = || base.iter().zip(other);
    let differences = Estimate::from_values(pairs().map(|(b, o)| o - b).collect())?;
    let ratios: Vec<f64> = pairs().filter(|(b, _)| **b != 0.0).map(|(b, o)| o / b).collect();
    let (size_base, size_other) = (
        Estimate::from_values(base.to_vec())?.median,
        Estimate::from_values(other.to_vec())?.median,
    );
    let difference = differences.median;
    let (bar, error) = if method.is_factor(metric) {
        let logs = Estimate::from_values(
            pairs().map(|(b, o)| libm::log(o.max(1.0) / b.max(1.0))).collect(),
        )?;
        let bar =
            method.bar_of_factor(size_base, size_base + difference, (logs.high - logs.low) / 2.0);
        let bar = bar.moved(-size_base);
        // Up to the end that is nearer to no change.
        (bar, if difference < 0.0 { bar.high - difference } else { difference - bar.low })
    } else {
        let spread = (differences.high - differences.low) / 2.0;
        let parts = ErrorParts { seeds: spread, ..method.parts(metric, size_base, size_other) };
        let bar = ErrorBar::new(difference, parts, method.possible.less(size_base));
        (bar, bar.error())
    };
    let judgement = if differences.low == 0.0 && differences.high == 0.0 {
        Judgement::Same
    } else if difference.abs() <= error {
        Judgement::CannotTell
    } else {
        match metric.is_better(difference).filter(|_| !method.merges) {
            None => Judgement::Different,
            Some(true) => Judgement::Better,
            Some(false) => Judgement::Worse,
        }
    };
    Some(Change {
        difference,
        error,
        error_bar: Some(bar),
        ratio: Estimate::from_values(ratios).map(|ratio| ratio.median),
        judgement,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Stat;
    use proptest::prelude::*;

    const P99: Metric = Metric::Latency(Stat::Percentile(99_000));

    /// On one CPU the slope is that of the logistic function; a group on four is moved most at two.
    #[test]
    fn a_share_is_moved_by_costs_as_far_as_its_cpus_leave_room() {
        let share = |most: f64, share: f64, left: Option<f64>| {
            let possible = Possible { low: 0.0, high: most };
            let error = MethodError { drift: 0.4, left, possible, ..MethodError::default() };
            error.drift_of_share(share)
        };
        let near = |is: f64, should: f64| assert!((is - should).abs() < 1e-12, "{is} {should}");
        near(share(1.0, 0.5, None), 0.1);
        near(share(1.0, 1.0, None), 0.0);
        near(share(4.0, 2.0, None), 0.4);
        near(share(4.0, 0.5, None), 0.175);
        near(share(f64::INFINITY, 0.5, None), 0.1);
        near(share(f64::INFINITY, 1.5, None), 0.15);
        near(share(4.0, 2.0, Some(0.3)), 0.3);
        near(share(4.0, 3.9, Some(0.3)), 0.039);
    }

    #[test]
    fn a_change_within_the_self_replay_error_cannot_be_told() {
        let method = MethodError::between(100.0, 130.0);
        assert_eq!(
            change(P99, &[130.0], &[110.0], method).unwrap().judgement,
            Judgement::CannotTell
        );
        assert_eq!(change(P99, &[130.0], &[10.0], method).unwrap().judgement, Judgement::Better);
        assert_eq!(change(P99, &[130.0], &[9000.0], method).unwrap().judgement, Judgement::Worse);
    }

    #[test]
    fn seeds_that_disagree_cannot_be_told() {
        let change =
            change(P99, &[10.0, 20.0, 30.0], &[20.0, 21.0, 22.0], MethodError::default()).unwrap();
        assert_eq!(change.judgement, Judgement::CannotTell);
    }

    #[test]
    fn equal_runs_are_the_same() {
        let change =
            change(Metric::Share, &[0.5, 0.6], &[0.5, 0.6], MethodError::between(0.4, 0.5))
                .unwrap();
        assert_eq!(change.judgement, Judgement::Same);
    }

    #[test]
    fn more_share_is_better_for_who_gets_it() {
        let change =
            change(Metric::Share, &[0.2], &[0.4], MethodError::between(0.2, 0.21)).unwrap();
        assert_eq!(change.judgement, Judgement::Better);
        assert!((change.error - 0.01).abs() < 1e-12);
    }

    proptest! {
        /// A larger error of the method never turns "cannot tell" into a claim.
        #[test]
        fn more_error_never_claims_more(base in 0.1f64..1e6, other in 0.1f64..1e6, off in 0.0f64..2.0) {
            let small = MethodError::between(base, base * (1.0 + off));
            let large = MethodError::between(base, base * (1.0 + off * 1.5));
            let judge = |method| change(P99, &[base], &[other], method).unwrap().judgement;
            if judge(small) == Judgement::CannotTell {
                prop_assert_eq!(judge(large), Judgement::CannotTell);
            }
        }
    }
}
