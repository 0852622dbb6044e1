//! The bootstrap of medians (Efron 1979): the values drawn anew, with replacement, again and again.

use crate::summary::{median, middle};
use crate::{CONFIDENCE, Random, can_tell};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Drawings. The ends of an interval come to within half a per cent of their level.
const DRAWINGS: usize = 4000;

/// A median and where it may lie.
#[derive(Clone, Copy, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct BootstrapInterval {
    /// The median of the rounds.
    pub median: f64,
    /// Lower end of the 95 % bootstrap interval of the median.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Rounds.
    pub count: usize,
}

/// The change of a median.
#[derive(Clone, Copy, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Difference {
    /// Median after less median before.
    pub median: f64,
    /// Lower end of the 95 % bootstrap interval of that.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Whether the interval leaves out 0 and the rounds suffice for such a claim. False: cannot be
    /// told apart.
    pub told_apart: bool,
}

/// Returns the median of `values` with its 95 % percentile interval. `None`: there are no values,
/// or some are not finite.
pub fn interval(values: &[f64], seed: u64) -> Option<BootstrapInterval> {
    let middle = finite(values).then(|| median(values)).flatten()?;
    let drawn = medians(values, seed);
    let (low, high) = ends(drawn);
    Some(BootstrapInterval { median: middle, low, high, count: values.len() })
}

/// Returns by how much the median of `after` differs from that of `before`. `None`: as in
/// [`interval`].
pub fn difference(before: &[f64], after: &[f64], seed: u64) -> Option<Difference> {
    if !finite(before) || !finite(after) {
        return None;
    }
    let change = median(after)? - median(before)?;
    let mut random = Random::new(seed);
    let drawn = medians(before, random.next()).into_iter().zip(medians(after, random.next()));
    let (low, high) = ends(drawn.map(|(before, after)| after - before).collect());
    let apart = low > 0.0 || high < 0.0;
    let told_apart = apart && can_tell(before.len().min(after.len()));
    Some(Difference { median: change, low, high, told_apart })
}

fn finite(values: &[f64]) -> bool {
    values.iter().all(|value| value.is_finite())
}

/// The medians of all drawings.
fn medians(values: &[f64], seed: u64) -> Vec<f64> {
    let mut random = Random::new(seed);
    let mut drawn = vec![0.0; values.len()];
    let mut one = || {
        drawn.iter_mut().for_each(|value| *value = values[random.below(values.len())]);
        drawn.sort_by(f64::total_cmp);
        middle(&drawn)
    };
    (0..DRAWINGS).filter_map(|_| one()).collect()
}

/// The ends between which the middle 95 % lie.
fn ends(mut drawn: Vec<f64>) -> (f64, f64) {
    drawn.sort_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let at = |part: f64| {
        let index = (part * drawn.len() as f64) as usize;
        drawn.get(index.min(drawn.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    };
    (at(tail), at(1.0 - tail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::combinations;
    use proptest::prelude::*;

    /// P(median of n drawn values <= the k-th of n) for odd n: at least (n + 1) / 2 of them must be
    /// among the first k.
    fn closed_form(n: u64, k: u64) -> f64 {
        let p = k as f64 / n as f64;
        let exactly =
            |j: u64| combinations(n, j) * p.powi(j as i32) * (1.0 - p).powi((n - j) as i32);
        (n.div_ceil(2)..=n).map(exactly).sum()
    }

    #[test]
    fn drawn_medians_are_distributed_as_the_binomial_says() {
        for n in [3u64, 5, 11] {
            let values: Vec<f64> = (1..=n).map(|value| value as f64).collect();
            let drawn = medians(&values, 42);
            for k in 1..n {
                let below = drawn.iter().filter(|value| **value <= k as f64).count() as f64
                    / DRAWINGS as f64;
                let expected = closed_form(n, k);
                // Three standard deviations of a share over the drawings.
                let error = 3.0 * (expected * (1.0 - expected) / DRAWINGS as f64).sqrt();
                assert!(
                    (below - expected).abs() <= error,
                    "n {n} k {k}: {below} {expected} {error}"
                );
            }
        }
    }

    #[test]
    fn the_interval_is_the_one_of_the_closed_form() {
        // Eleven values: P(median* <= 3rd) = 0.0254, P(median* <= 2nd) = 0.0026; the 2.5 % point is
        // the third, or the next one where a drawing of 4000 falls on the other side of 0.0254.
        let values: Vec<f64> = (1..=11).map(f64::from).collect();
        let found = interval(&values, 1).unwrap();
        assert_eq!((found.median, found.count), (6.0, 11));
        assert!((3.0..=4.0).contains(&found.low) && (8.0..=9.0).contains(&found.high), "{found:?}");
        // Five: P(median* <= 1st) = 0.058 > 0.025: the whole range.
        let found = interval(&[5.0, 1.0, 4.0, 2.0, 3.0], 1).unwrap();
        assert_eq!((found.low, found.high), (1.0, 5.0));
    }

    #[test]
    fn equal_series_cannot_be_told_apart_and_far_ones_can() {
        let one = [10.0, 11.0, 9.0, 10.5, 9.5];
        let far = one.map(|value| value + 5.0);
        assert!(!difference(&one, &one, 3).unwrap().told_apart);
        let found = difference(&one, &far, 3).unwrap();
        assert!(
            found.told_apart && found.median == 5.0 && found.low > 3.0 && found.high < 7.0,
            "{found:?}"
        );
        // As far apart, but three rounds prove nothing.
        assert!(!difference(&one[..3], &far[..3], 3).unwrap().told_apart);
        assert_eq!(difference(&[], &far, 3), None);
        assert_eq!(difference(&[f64::NAN], &far, 3), None);
    }

    /// How often the interval holds the true median 0 of 9 values: order statistics 2 and 8, or
    /// wider, hold it with 1 - 2 (1 + 9) / 2^9 = 0.961 whatever the distribution; the percentile
    /// interval is between that and [3rd, 7th].
    #[test]
    fn the_interval_covers_as_often_as_it_says() {
        let mut random = Random::new(99);
        let mut held = 0;
        for seed in 0..400 {
            let values: Vec<f64> = (0..9).map(|_| random.unit() - 0.5).collect();
            let found = interval(&values, seed).unwrap();
            held += i32::from(found.low <= 0.0 && 0.0 <= found.high);
        }
        let share = f64::from(held) / 400.0;
        assert!((0.90..=0.99).contains(&share), "{share}");
    }

    proptest! {
        #[test]
        fn an_interval_holds_its_median(values in proptest::collection::vec(-1e9f64..1e9, 1..30), seed: u64) {
            let found = interval(&values, seed).unwrap();
            prop_assert!(found.low <= found.median && found.median <= found.high);
            prop_assert_eq!(found, interval(&values, seed).unwrap());
        }

        /// What is added to all values is added to the interval.
        #[test]
        fn an_interval_moves_with_its_values(values in proptest::collection::vec(-1000i32..1000, 1..30), by in -1000i32..1000) {
            let floats: Vec<f64> = values.iter().copied().map(f64::from).collect();
            let moved: Vec<f64> = values.iter().map(|value| f64::from(value + by)).collect();
            let (before, after) = (interval(&floats, 5).unwrap(), interval(&moved, 5).unwrap());
            prop_assert!((after.low - before.low - f64::from(by)).abs() < 1e-6);
            prop_assert!((after.high - before.high - f64::from(by)).abs() < 1e-6);
        }
    }
}
