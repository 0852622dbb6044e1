//! Statistics of repeated measurements: medians with bootstrap intervals, whether two configurations can be told
//! apart, the order in which configurations take turns, and what makes a series suspicious.
//!
//! A *value* is what one round of one configuration gave: a p99, a share. Rounds are few and their values are not
//! normal, so nothing here assumes a distribution. Everything random is seeded and gives the same on every machine.

mod bootstrap;
mod series;

pub use bootstrap::{Difference, Interval, Random, difference, interval};
pub use series::{Drift, drift, odd_rounds, outliers, trend};

/// Confidence of every interval.
pub const CONFIDENCE: f64 = 0.95;

/// The median: the mean of the two middle values when their number is even. `None`: there is no value.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    middle(&sorted)
}

/// The median of sorted values.
fn middle(sorted: &[f64]) -> Option<f64> {
    let at = sorted.len() / 2;
    match sorted.len() % 2 {
        _ if sorted.is_empty() => None,
        0 => Some((sorted[at - 1] + sorted[at]) / 2.0),
        _ => Some(sorted[at]),
    }
}

/// How many samples a quantile (0 … 1) needs so that ten lie beyond it; below the median, on its smaller side.
pub fn samples_needed(quantile: f64) -> u64 {
    let beyond = (1.0 - quantile).min(quantile.max(0.0));
    if quantile >= 1.0 || quantile <= 0.0 { 1 } else { (10.0 / beyond - 1e-6).ceil() as u64 }
}

/// Whether `count` rounds of each of two configurations can show a difference at all: when they have the same
/// distribution, the chance that all values of one lie beyond all of the other is 2 / C(2n, n).
pub fn can_tell(count: usize) -> bool {
    count > 0 && 2.0 / combinations(2 * count as u64, count as u64) <= 1.0 - CONFIDENCE
}

/// The fewest rounds with which two configurations can be told apart.
pub const FEWEST_ROUNDS: usize = 4;

fn combinations(n: u64, k: u64) -> f64 {
    (1..=k).map(|i| (n - k + i) as f64 / i as f64).product()
}

/// Turns: `rounds` rounds of all `configurations`, each round in a random order of its own, so that a slow change of the
/// machine meets them all alike.
pub fn turns(configurations: usize, rounds: usize, seed: u64) -> Vec<Vec<usize>> {
    let mut random = Random::new(seed);
    let mut round = || {
        let mut order: Vec<usize> = (0..configurations).collect();
        // Fisher and Yates.
        for last in (1..configurations).rev() {
            order.swap(last, random.below(last + 1));
        }
        order
    };
    (0..rounds).map(|_| round()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_numbers() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

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

    #[test]
    fn every_round_has_all_and_all_orders_come() {
        let turns = turns(3, 600, 7);
        assert_eq!(turns, super::turns(3, 600, 7));
        let mut count = std::collections::BTreeMap::new();
        for round in &turns {
            let mut sorted = round.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2]);
            *count.entry(round.clone()).or_insert(0) += 1;
        }
        // 600 rounds over six orders: 100 each, with a standard deviation of 9.
        assert_eq!(count.len(), 6);
        assert!(count.values().all(|&n: &i32| (n - 100).abs() < 46), "{count:?}");
    }
}
