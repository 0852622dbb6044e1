//! Random choices that follow from one number.

use schedlab_model::Ns;
use schedlab_stats::Random;

/// Choices of test cases that follow from a seed.
pub struct Dice(Random);

impl Dice {
    /// Returns the choices of a seed.
    pub fn new(seed: u64) -> Dice {
        Dice(Random::new(seed))
    }

    /// Returns 64 random bits.
    #[allow(clippy::should_implement_trait)] // An iterator may end; these numbers do not.
    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high.saturating_sub(low).saturating_add(1).max(1))
    }

    /// True in `percent` of 100 throws.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// Below `end`; 0 when that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// One of `from`, which must not be empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[(self.next() % from.len() as u64) as usize]
    }

    /// A length from 1 us to 20 ms, short ones as likely as long ones; often a round number,
    /// because equal times are where orders go wrong.
    pub(super) fn length(&mut self) -> Ns {
        let unit = *self.pick(&[1_000, 10_000, 100_000, 1_000_000, 4_000_000]);
        match self.chance(50) {
            true => Ns(unit * self.between(1, 5)),
            false => Ns(self.between(unit, 5 * unit)),
        }
    }

    /// A length or a distribution, as scenarios write it.
    pub(super) fn amount(&mut self) -> String {
        let length = self.length();
        match self.between(0, 4) {
            0 => format!("exp {}", length.exact()),
            1 => format!("uniform {}..{}", Ns(length.0 / 2).exact(), length.exact()),
            2 => format!("lognormal {} sigma 0.5", length.exact()),
            _ => length.exact(),
        }
    }
}
