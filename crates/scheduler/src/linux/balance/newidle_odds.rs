//! NI_RANDOM: how often a CPU that becomes idle looks for work in a domain.
//!
//! | rule | where the real system has it | here | test |
//! |---|---|---|---|
//! | looks with a chance of (successes of the last 1024 looks + 2) in 1024, half at first; a success counts for the looks that the dice prevented | `sched_balance_newidle`, `update_newidle_stats` in later 6.12.y and 6.18.y | exact but for the dice | `one_that_never_finds_anything_stops_looking` |
//!
//! The tracer's own machine (6.18.44) has it: `sched_features` in the headers of `recordings/`
//! shows the bit. It matters to replays because a look takes the other run queue's lock and brings
//! its clock up to date between a wakeup and its switch: who pays for those microseconds changes.

/// Successes of one domain of one CPU.
#[derive(Clone, Copy, Debug)]
pub(in crate::linux) struct NewidleOdds {
    looked: u32,
    found: u32,
    /// Successes in 1024 looks, as of the last 1024.
    ratio: u32,
}

impl Default for NewidleOdds {
    fn default() -> NewidleOdds {
        NewidleOdds { looked: 512, found: 256, ratio: 512 }
    }
}

impl NewidleOdds {
    /// Whether to look this time.
    pub(in crate::linux) fn dice(&self, random: u64) -> bool {
        random % 1024 <= u64::from(self.ratio) + 1
    }

    /// Notes a look, or one that the dice were against. A success represents as many as would have
    /// come without the dice.
    pub(in crate::linux) fn add(&mut self, found: bool) {
        let chance = 1 + self.ratio;
        let weight = (1024 + chance / 2) / chance;
        self.looked += 1;
        self.found += if found { weight } else { 0 };
        if self.looked >= 1024 {
            self.ratio = self.found;
            self.looked /= 2;
            self.found /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chance(odds: &NewidleOdds) -> usize {
        (0..1024).filter(|&random| odds.dice(random)).count()
    }

    #[test]
    fn one_that_never_finds_anything_stops_looking() {
        let mut odds = NewidleOdds::default();
        assert_eq!(chance(&odds), 514);
        (0..512).for_each(|_| odds.add(false));
        assert_eq!(chance(&odds), 258);
        (0..10_000).for_each(|_| odds.add(false));
        assert_eq!(chance(&odds), 2);
    }

    /// Every look finds something, and half of them are not made: the chance stays what it is.
    #[test]
    fn a_success_counts_for_the_looks_that_were_not_made() {
        let mut odds = NewidleOdds::default();
        (0..20_000).for_each(|turn| odds.add(turn % 2 == 0));
        assert!(chance(&odds) > 700, "{}", chance(&odds));
    }

    #[test]
    fn one_that_always_does_goes_on() {
        let mut odds = NewidleOdds::default();
        (0..20_000).for_each(|_| odds.add(true));
        assert_eq!(chance(&odds), 1024);
    }
}
