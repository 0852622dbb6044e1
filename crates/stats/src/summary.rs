//! Values of a few rounds or seeds as one: median, range, and the interval that holds the true
//! median.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A value over several seeds.
#[derive(Clone, Copy, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Estimate {
    /// Median over the seeds.
    pub median: f64,
    /// Smallest over the seeds.
    pub low: f64,
    /// Largest over the seeds.
    pub high: f64,
}

impl Estimate {
    /// Returns the median and range of the values of all seeds; `None` when there is none.
    pub fn from_values(mut values: Vec<f64>) -> Option<Estimate> {
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        Some(Estimate { median: middle(&values)?, low, high })
    }

    /// Returns the estimate with every value divided by `by`.
    pub fn divided_by(self, by: f64) -> Estimate {
        Estimate { median: self.median / by, low: self.low / by, high: self.high / by }
    }
}

/// Returns how sure a range over `seeds` seeds is to contain the true median, whatever the
/// distribution: both ends lie on one side of it with probability 2 · 2^-seeds.
pub fn range_confidence(seeds: usize) -> f64 {
    1.0 - 2.0_f64.powi(1 - seeds.min(1000) as i32)
}

/// Returns the median: the mean of the two middle values when their number is even. `None`: there
/// is no value.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    middle(&sorted)
}

/// Returns the median of sorted values.
pub(crate) fn middle(sorted: &[f64]) -> Option<f64> {
    let at = sorted.len() / 2;
    match sorted.len() % 2 {
        _ if sorted.is_empty() => None,
        0 => Some((sorted[at - 1] + sorted[at]) / 2.0),
        _ => Some(sorted[at]),
    }
}

/// A median with an interval of order statistics that holds the true one.
#[derive(Clone, Copy, PartialEq, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct OrderInterval {
    /// Median of the values.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How sure the interval is to hold the true median, whatever the distribution, 0 to 1.
    pub confidence: f64,
}

/// Returns the median and the narrowest pair of order statistics that holds the true one with 95 %;
/// the range of all values where they are too few for that. `None` without values. Rule: the number
/// of values below the true median is binomial with 1/2 (David and Nagaraja, Order Statistics, 3rd
/// edition, 7.1).
pub fn median_interval(mut values: Vec<f64>) -> Option<OrderInterval> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    let median = middle(&values)?;
    // `missed` is the probability that the true median lies beyond the pair, both sides together.
    let (mut cut, mut missed, mut term) = (0, 2.0 * 0.5f64.powi(n as i32), 0.5f64.powi(n as i32));
    // Beyond a thousand values the probabilities are smaller than numbers can be: the whole range,
    // which is safe.
    for k in 1..if n > 1000 { 0 } else { n / 2 } {
        term *= (n - k + 1) as f64 / k as f64;
        if missed + 2.0 * term > 0.05 {
            break;
        }
        missed += 2.0 * term;
        cut = k;
    }
    let (low, high) = (values[cut], values[n - 1 - cut]);
    Some(OrderInterval { median, low, high, confidence: 1.0 - missed.min(1.0) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn medians_of_odd_and_even_numbers() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn intervals_of_the_median_are_those_of_the_tables() {
        let first = |n: u32| median_interval((1..=n).rev().map(f64::from).collect()).unwrap();
        // Pairs and confidences of printed tables for 95 %.
        for (n, low, high, confidence) in [
            (5, 1.0, 5.0, 0.9375),
            (6, 1.0, 6.0, 0.96875),
            (10, 2.0, 9.0, 0.9785),
            (20, 6.0, 15.0, 0.9586),
        ] {
            let found = first(n);
            assert_eq!((found.low, found.high), (low, high), "{n}");
            assert!((found.confidence - confidence).abs() < 1e-4, "{n}: {}", found.confidence);
        }
        assert_eq!((first(1).median, first(1).confidence), (1.0, 0.0));
        assert!(median_interval(Vec::new()).is_none());
    }

    #[test]
    fn confidence_of_the_range() {
        assert_eq!(range_confidence(1), 0.0);
        assert_eq!(range_confidence(5), 0.9375);
    }

    proptest! {
        #[test]
        fn the_median_lies_between(values in proptest::collection::vec(-1e9f64..1e9, 1..20)) {
            let estimate = Estimate::from_values(values).unwrap();
            prop_assert!(estimate.low <= estimate.median && estimate.median <= estimate.high);
        }
    }
}
