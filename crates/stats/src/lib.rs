//! Statistics of repeated measurements: medians with intervals, whether two configurations can be
//! told apart, the order in which configurations take turns, and what makes a series suspicious.
//!
//! A *value* is what one round of one configuration gave: a p99, a share. Rounds are few and their
//! values are not normal, so nothing here but [`t_critical`] assumes a distribution. Everything
//! random is seeded and gives the same on every machine.
#![forbid(unsafe_code)]

mod bootstrap;
mod quantile;
mod random;
mod series;
mod student;
mod summary;

pub use bootstrap::{BootstrapInterval, Difference, difference, interval};
pub use quantile::{quantile_interval, quantile_ranks, value_of_rank};
pub use random::{Random, turns};
pub use series::{Drift, drift, odd_rounds, outliers, trend};
pub use student::{t_critical, variance, welch_freedom};
pub use summary::{Estimate, OrderInterval, median, median_interval, range_confidence};

/// Confidence of every interval.
pub const CONFIDENCE: f64 = 0.95;

/// The fewest rounds with which two configurations can be told apart.
pub const FEWEST_ROUNDS: usize = 4;

/// Returns how many samples a quantile (0 to 1) needs so that ten lie beyond it; below the median,
/// on its smaller side.
pub fn samples_needed(quantile: f64) -> u64 {
    let beyond = (1.0 - quantile).min(quantile.max(0.0));
    if quantile >= 1.0 || quantile <= 0.0 { 1 } else { (10.0 / beyond - 1e-6).ceil() as u64 }
}

/// Returns whether `count` rounds of each of two configurations can show a difference at all: when
/// both have the same distribution, the chance that all values of one lie beyond all of the other
/// is 2 / C(2n, n).
pub fn can_tell(count: usize) -> bool {
    count > 0 && 2.0 / combinations(2 * count as u64, count as u64) <= 1.0 - CONFIDENCE
}

/// Returns the number of ways to choose `k` of `n`.
fn combinations(n: u64, k: u64) -> f64 {
    (1..=k).map(|i| (n - k + i) as f64 / i as f64).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_samples_lie_beyond_a_quantile() {
        let needed = [0.5, 0.99, 0.999, 0.9999, 0.01, 1.0].map(samples_needed);
        assert_eq!(needed, [20, 1000, 10_000, 100_000, 1000, 1]);
    }

    #[test]
    fn four_rounds_are_the_fewest_that_can_tell() {
        // 2 / C(6, 3) = 0.1; 2 / C(8, 4) = 2 / 70 = 0.029.
        assert_eq!((combinations(6, 3), combinations(8, 4)), (20.0, 70.0));
        let fewest = (0..20).find(|&count| can_tell(count));
        assert_eq!(fewest, Some(FEWEST_ROUNDS));
    }
}
