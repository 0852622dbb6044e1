//! Seeded random numbers for statistics, test cases and the order of rounds.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A stream of random numbers that follows from a seed and is the same on every machine (PCG-64
/// MCG).
#[derive(Clone, Debug)]
pub struct Random(Pcg64Mcg);

impl Random {
    /// Returns the stream of this seed.
    pub fn new(seed: u64) -> Random {
        Random(Pcg64Mcg::seed_from_u64(seed))
    }

    /// Returns the next 64 bits.
    #[allow(clippy::should_implement_trait)] // An iterator may end; this stream does not.
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `bound`, and 0 when `bound` is 0. Numbers are off even by less than
    /// `bound` in 2^64.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Returns a number from 0 to 1, 1 excluded.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Puts `items` into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// Returns 0 to `n` - 1 in a random order.
    pub fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        self.shuffle(&mut order);
        order
    }
}

/// Returns the turns of `rounds` rounds of all `configurations`, each round in a random order of
/// its own, so that a slow change of the machine meets them all alike.
pub fn turns(configurations: usize, rounds: usize, seed: u64) -> Vec<Vec<usize>> {
    let mut random = Random::new(seed);
    (0..rounds).map(|_| random.order(configurations)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(3).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn numbers_are_even_and_below_their_bound() {
        let mut random = Random::new(11);
        let mut count = [0; 10];
        (0..10_000).for_each(|_| count[random.below(10)] += 1);
        // A thousand each, with a standard deviation of 30.
        assert!(count.iter().all(|&n: &i32| (n - 1000).abs() < 150), "{count:?}");
        assert_eq!(random.below(0), 0);
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.unit())));
    }

    #[test]
    fn the_stream_is_fixed() {
        // Intervals, turns and generated scenarios follow from these bits: a change must be seen
        // here first.
        let mut random = Random::new(1);
        assert_eq!([random.next(), random.next()], STREAM_1);
    }

    const STREAM_1: [u64; 2] = [15_803_641_690_485_367_939, 2_537_432_388_316_380_799];
}
