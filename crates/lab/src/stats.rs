//! Estimates over seeds, and changes with honest error bars. `docs/result-schema.md` explains the rules.

use crate::metric::{Metric, Unit};
use serde::{Deserialize, Serialize};

/// A value over several seeds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Estimate {
    /// Median over the seeds.
    pub median: f64,
    /// Smallest over the seeds.
    pub low: f64,
    /// Largest over the seeds.
    pub high: f64,
}

impl Estimate {
    /// Of the values of all seeds; `None` when there is none.
    pub fn of(mut values: Vec<f64>) -> Option<Estimate> {
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => (values[middle - 1] + values[middle]) / 2.0,
            _ => values[middle],
        };
        Some(Estimate { median, low, high })
    }

    /// All of it divided by a number.
    pub fn over(self, by: f64) -> Estimate {
        Estimate { median: self.median / by, low: self.low / by, high: self.high / by }
    }
}

/// How sure a range over `seeds` seeds is to contain the true median, whatever the distribution: both ends
/// lie on one side of it with probability 2 · 2^-seeds.
pub fn range_confidence(seeds: usize) -> f64 {
    1.0 - 2.0_f64.powi(1 - seeds.min(1000) as i32)
}

/// A median with an interval that holds the true one.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Interval {
    /// Median of the values.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How sure the interval is to hold the true median, whatever the distribution, 0 … 1.
    pub confidence: f64,
}

/// The median and the narrowest pair of order statistics that holds the true one with 95 %; the range of all where they
/// are too few for that. `None` without values. Rule: the number of values below the true median is binomial with 1/2
/// (David and Nagaraja, Order Statistics, 3rd edition, 7.1).
pub fn median_interval(mut values: Vec<f64>) -> Option<Interval> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    let median = Estimate::of(values.clone())?.median;
    // `missed` is the probability that the true median lies beyond the pair, both sides together.
    let (mut cut, mut missed, mut term) = (0, 2.0 * 0.5f64.powi(n as i32), 0.5f64.powi(n as i32));
    // Beyond a thousand values the probabilities are smaller than numbers can be: the whole range, which is safe.
    for k in 1..if n > 1000 { 0 } else { n / 2 } {
        term *= (n - k + 1) as f64 / k as f64;
        if missed + 2.0 * term > 0.05 {
            break;
        }
        missed += 2.0 * term;
        cut = k;
    }
    Some(Interval { median, low: values[cut], high: values[n - 1 - cut], confidence: 1.0 - missed.min(1.0) })
}

/// What a change is, seen by a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Change {
    /// Variant minus baseline, median over the seeds (each seed against itself), in the metric's unit.
    pub difference: f64,
    /// Half width of the error bar: half the range over the seeds plus the method's error.
    pub error: f64,
    /// Variant divided by baseline, median over the seeds; `None` when the baseline is 0.
    pub ratio: Option<f64>,
    /// What to think of it.
    pub judgement: Judgement,
}

/// The method's error for one metric of one class, from the self-replay.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MethodError {
    /// |simulated − recorded|, in the metric's unit.
    pub absolute: f64,
    /// The same as a part of the larger of the two.
    pub relative: f64,
}

impl MethodError {
    /// Of a value that was recorded and is simulated.
    pub fn between(recorded: f64, simulated: f64) -> MethodError {
        let absolute = (simulated - recorded).abs();
        let larger = recorded.abs().max(simulated.abs());
        MethodError { absolute, relative: if larger > 0.0 { absolute / larger } else { 0.0 } }
    }

    /// The error to expect of a value of this size.
    pub fn of_value(self, metric: Metric, value: f64) -> f64 {
        self.of_difference(metric, value, value)
    }

    /// The error to expect of a difference between two values of this size: for shares the points by which
    /// the self-replay was off; for times and rates the same part of the larger of the two, and never less
    /// than the self-replay's own absolute error of the baseline.
    fn of_difference(self, metric: Metric, base: f64, other: f64) -> f64 {
        match metric.unit() {
            Unit::Share => self.absolute,
            _ => self.absolute.max(self.relative * base.abs().max(other.abs())),
        }
    }
}

/// The change from `base` to `other`, both by seed.
pub fn change(metric: Metric, base: &[f64], other: &[f64], method: MethodError) -> Option<Change> {
    let pairs = || base.iter().zip(other);
    let differences = Estimate::of(pairs().map(|(b, o)| o - b).collect())?;
    let ratios: Vec<f64> = pairs().filter(|(b, _)| **b != 0.0).map(|(b, o)| o / b).collect();
    let (size_base, size_other) = (Estimate::of(base.to_vec())?.median, Estimate::of(other.to_vec())?.median);
    let spread = (differences.high - differences.low) / 2.0;
    let error = spread + method.of_difference(metric, size_base, size_other);
    let difference = differences.median;
    let judgement = if differences.low == 0.0 && differences.high == 0.0 {
        Judgement::Same
    } else if difference.abs() <= error {
        Judgement::CannotTell
    } else {
        match metric.smaller_is_better() {
            None => Judgement::Different,
            Some(smaller) if smaller == (difference < 0.0) => Judgement::Better,
            Some(_) => Judgement::Worse,
        }
    };
    Some(Change { difference, error, ratio: Estimate::of(ratios).map(|ratio| ratio.median), judgement })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Stat;
    use proptest::prelude::*;

    const P99: Metric = Metric::Latency(Stat::Percentile(99_000));

    #[test]
    fn a_change_within_the_self_replay_error_cannot_be_told() {
        let method = MethodError::between(100.0, 130.0);
        assert_eq!(change(P99, &[130.0], &[110.0], method).unwrap().judgement, Judgement::CannotTell);
        assert_eq!(change(P99, &[130.0], &[10.0], method).unwrap().judgement, Judgement::Better);
        assert_eq!(change(P99, &[130.0], &[9000.0], method).unwrap().judgement, Judgement::Worse);
    }

    #[test]
    fn seeds_that_disagree_cannot_be_told() {
        let change = change(P99, &[10.0, 20.0, 30.0], &[20.0, 21.0, 22.0], MethodError::default()).unwrap();
        assert_eq!(change.judgement, Judgement::CannotTell);
    }

    #[test]
    fn equal_runs_are_the_same() {
        let change = change(Metric::Share, &[0.5, 0.6], &[0.5, 0.6], MethodError::between(0.4, 0.5)).unwrap();
        assert_eq!(change.judgement, Judgement::Same);
    }

    #[test]
    fn more_share_is_better_for_who_gets_it() {
        let change = change(Metric::Share, &[0.2], &[0.4], MethodError::between(0.2, 0.21)).unwrap();
        assert_eq!(change.judgement, Judgement::Better);
        assert!((change.error - 0.01).abs() < 1e-12);
    }

    #[test]
    fn intervals_of_the_median_are_those_of_the_tables() {
        let of = |n: u32| median_interval((1..=n).rev().map(f64::from).collect()).unwrap();
        // Pairs and confidences of printed tables for 95 %.
        for (n, low, high, confidence) in
            [(5, 1.0, 5.0, 0.9375), (6, 1.0, 6.0, 0.96875), (10, 2.0, 9.0, 0.9785), (20, 6.0, 15.0, 0.9586)]
        {
            let found = of(n);
            assert_eq!((found.low, found.high), (low, high), "{n}");
            assert!((found.confidence - confidence).abs() < 1e-4, "{n}: {}", found.confidence);
        }
        assert_eq!((of(1).median, of(1).confidence), (1.0, 0.0));
        assert!(median_interval(Vec::new()).is_none());
    }

    #[test]
    fn confidence_of_the_range() {
        assert_eq!(range_confidence(1), 0.0);
        assert_eq!(range_confidence(5), 0.9375);
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

        #[test]
        fn the_median_lies_between(values in proptest::collection::vec(-1e9f64..1e9, 1..20)) {
            let estimate = Estimate::of(values).unwrap();
            prop_assert!(estimate.low <= estimate.median && estimate.median <= estimate.high);
        }
    }
}
