//! Median, interval, and far end of a measurement in rounds.

use serde::{Deserialize, Serialize};

/// Drawings of the bootstrap.
const DRAWINGS: usize = 1000;

/// How long something took, nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Spread {
    /// Median of the rounds' medians.
    pub median_ns: f64,
    /// The 95 % interval of that median: rounds drawn with replacement.
    pub low_ns: f64,
    /// See `low_ns`.
    pub high_ns: f64,
    /// 99th percentile of all samples. Samples of very short work are means of a batch of calls.
    pub p99_ns: f64,
    /// Samples in all.
    pub count: u64,
    /// Rounds.
    pub rounds: u32,
}

impl Spread {
    /// Of samples by round; `None` when there are none.
    pub(crate) fn of(rounds: &[Vec<f64>], random: &mut Random) -> Option<Spread> {
        let medians: Vec<f64> = rounds.iter().filter_map(|round| median(round)).collect();
        let middle = median(&medians)?;
        let mut all: Vec<f64> = rounds.iter().flatten().copied().collect();
        all.sort_by(f64::total_cmp);
        let mut drawn: Vec<f64> = (0..DRAWINGS)
            .filter_map(|_| {
                let pick = |_: usize| medians[random.below(medians.len())];
                median(&(0..medians.len()).map(pick).collect::<Vec<_>>())
            })
            .collect();
        drawn.sort_by(f64::total_cmp);
        let rank = |of: &[f64], part: f64| of[((of.len() - 1) as f64 * part).round() as usize];
        Some(Spread {
            median_ns: middle,
            low_ns: rank(&drawn, 0.025),
            high_ns: rank(&drawn, 0.975),
            p99_ns: rank(&all, 0.99),
            count: all.len() as u64,
            rounds: medians.len() as u32,
        })
    }
}

/// The median; `None` of nothing.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_rounds() {
        let mut random = Random(1);
        // Rounds differ, samples of a round do not: a thousand samples are five facts.
        let rounds: Vec<Vec<f64>> = (1..=5).map(|round| vec![f64::from(round); 200]).collect();
        let spread = Spread::of(&rounds, &mut random).unwrap();
        assert_eq!((spread.median_ns, spread.count, spread.rounds), (3.0, 1000, 5));
        // The median of five draws out of five is below 2 with probability 0.058, and below 1.5 with 0.058 as well.
        assert_eq!((spread.low_ns, spread.high_ns), (1.0, 5.0));
        assert_eq!(spread.p99_ns, 5.0);
        let same = Spread::of(&vec![vec![7.0; 10]; 20], &mut random).unwrap();
        assert_eq!((same.low_ns, same.median_ns, same.high_ns), (7.0, 7.0, 7.0));
        assert_eq!(Spread::of(&[], &mut random), None);
    }

    #[test]
    fn a_shuffle_keeps_everybody() {
        let mut random = Random(3);
        let mut items: Vec<u32> = (0..100).collect();
        random.shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
