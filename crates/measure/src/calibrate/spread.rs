//! Median, interval, and far end of a measurement in rounds.

use schedlab_stats::{Random, interval, median};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How long something took, nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, JsonSchema, Serialize, Deserialize)]
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
    /// Returns the spread of samples by round; `None` when there are none.
    pub(crate) fn from_rounds(rounds: &[Vec<f64>], random: &mut Random) -> Option<Spread> {
        let medians: Vec<f64> = rounds.iter().filter_map(|round| median(round)).collect();
        let found = interval(&medians, random.next())?;
        let mut all: Vec<f64> = rounds.iter().flatten().copied().collect();
        all.sort_by(f64::total_cmp);
        let p99_ns = all[((all.len() - 1) as f64 * 0.99).round() as usize];
        Some(Spread {
            median_ns: found.median,
            low_ns: found.low,
            high_ns: found.high,
            p99_ns,
            count: all.len() as u64,
            rounds: medians.len() as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_rounds() {
        let mut random = Random::new(1);
        // Rounds differ, samples of a round do not: a thousand samples are five facts.
        let rounds: Vec<Vec<f64>> = (1..=5).map(|round| vec![f64::from(round); 200]).collect();
        let spread = Spread::from_rounds(&rounds, &mut random).unwrap();
        assert_eq!((spread.median_ns, spread.count, spread.rounds), (3.0, 1000, 5));
        // The median of five draws out of five is below 2 with probability 0.058, and below 1.5
        // with 0.058 as well.
        assert_eq!((spread.low_ns, spread.high_ns), (1.0, 5.0));
        assert_eq!(spread.p99_ns, 5.0);
        let same = Spread::from_rounds(&vec![vec![7.0; 10]; 20], &mut random).unwrap();
        assert_eq!((same.low_ns, same.median_ns, same.high_ns), (7.0, 7.0, 7.0));
        assert_eq!(Spread::from_rounds(&[], &mut random), None);
    }
}
