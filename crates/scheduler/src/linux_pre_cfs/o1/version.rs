//! What differs between the versions of the O(1) scheduler.

use schedlab_model::Ns;

/// One version, as data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    pub(super) name: &'static str,
    /// Slices and the sleep estimate.
    pub(super) era: Era,
    /// The longest sleep average, ns.
    pub(super) max_sleep: u64,
    /// A busy CPU balances this often.
    pub(super) busy_balance: Ns,
    /// A task that ran within this time stays where its cache is.
    pub(super) cache_hot: Ns,
}

/// Generations of rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Era {
    /// January 2002 to 2.5, and the backports to 2.4.
    Backport,
    /// 2.6.0 to about 2.6.7.
    Early26,
    /// 2.6.8 to 2.6.22.
    Late26,
}

/// The O(1) patch on 2.4 of early 2002 (rules as in the backport of Red Hat 8).
pub(super) const V2_4_O1: Version = Version {
    name: "linux-2.4-o1",
    era: Era::Backport,
    max_sleep: 2_000_000_000,
    busy_balance: Ns::from_ms(250),
    cache_hot: Ns::from_ms(3),
};

/// 2.6.0.
pub(super) const V2_6_0: Version = Version {
    name: "linux-2.6.0",
    era: Era::Early26,
    max_sleep: 1_020_000_000,
    busy_balance: Ns::from_ms(200),
    cache_hot: Ns::from_us(2_500),
};

/// 2.6.22.
pub(super) const V2_6_22: Version = Version {
    name: "linux-2.6.22",
    era: Era::Late26,
    max_sleep: 1_000_000_000,
    busy_balance: Ns::from_ms(64),
    cache_hot: Ns::from_us(2_500),
};

impl Version {
    /// Ticks of a fresh slice.
    pub(super) fn slice(&self, static_prio: i64, hz: i64) -> i64 {
        match self.era {
            Era::Backport => {
                let (min, max) = ((10 * hz / 1000).max(1), 300 * hz / 1000);
                min + (max - min) * (139 - static_prio) / 39
            }
            Era::Early26 => {
                let (min, max) = ((10 * hz / 1000).max(1), 200 * hz / 1000);
                min + (max - min) * (139 - static_prio) / 39
            }
            Era::Late26 => {
                let unit = if static_prio < 120 { 400 * hz / 1000 } else { 100 * hz / 1000 };
                (unit * (140 - static_prio) / 20).max((5 * hz / 1000).max(1))
            }
        }
    }

    /// How far the dynamic priority must be above the static one for a task to count as
    /// interactive.
    pub(super) fn delta(&self, nice: i64) -> i64 {
        match self.era {
            Era::Backport | Era::Early26 => nice * 10 / 40 + 2,
            Era::Late26 => (nice + 20) * 10 / 40 - 5 + 2,
        }
    }

    /// Rules of 2.6, early or late.
    pub(super) fn is_26(&self) -> bool {
        self.era != Era::Backport
    }

    /// 0 … 10: how much a task slept lately.
    pub(super) fn bonus(&self, sleep_avg: i64) -> i64 {
        sleep_avg * 10 / self.max_sleep as i64
    }
}

/// After how many ticks an interactive task with this bonus is put behind its equals.
pub(super) fn granularity(bonus: i64, hz: i64, cpus: usize) -> i64 {
    let steps = 1 << ((10 - bonus).max(1) - 1);
    (10 * hz / 1000 * steps * cpus as i64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_the_backport() {
        let ms = |nice: i64| V2_4_O1.slice(120 + nice, 100) * 10;
        assert_eq!([-20, -10, -5, 0, 5, 10, 15, 19].map(ms), [300, 220, 180, 150, 110, 70, 30, 10]);
        assert_eq!([0, 5].map(|nice| V2_4_O1.slice(120 + nice, 1000)), [151, 114]);
    }

    #[test]
    fn slices_of_2_6_0() {
        let ms = |nice: i64| V2_6_0.slice(120 + nice, 1000);
        assert_eq!([-20, -10, -5, 0, 5, 10, 15, 19].map(ms), [200, 151, 126, 102, 78, 53, 29, 10]);
    }

    #[test]
    fn slices_of_2_6_22() {
        let ms = |nice: i64| V2_6_22.slice(120 + nice, 1000);
        let want = [800, 600, 500, 420, 100, 95, 75, 50, 25, 5];
        assert_eq!([-20, -10, -5, -1, 0, 1, 5, 10, 15, 19].map(ms), want);
    }

    /// docs/sources/linux-facts.md, A3: every nice value of 2.6.22, in ms.
    #[test]
    fn slices_of_every_nice_value() {
        for nice in -20..20 {
            let want = if nice < 0 { 400 - 20 * nice } else { 100 - 5 * nice };
            assert_eq!(V2_6_22.slice(120 + nice, 1000), want, "nice {nice}");
        }
    }

    /// docs/sources/linux-facts.md, A3: the granularity of bonus 10, 7 and 5 on one CPU is 10, 40
    /// and 160 ms; it grows with the CPUs.
    #[test]
    fn granularity_of_interactive_tasks() {
        assert_eq!([10, 7, 5].map(|bonus| granularity(bonus, 1000, 1)), [10, 40, 160]);
        assert_eq!(granularity(7, 1000, 4), 160);
    }

    #[test]
    fn who_is_interactive() {
        assert_eq!([-20, -10, 0, 10, 19].map(|nice| V2_6_22.delta(nice)), [-3, -1, 2, 4, 6]);
        assert_eq!(V2_4_O1.delta(-10), 0);
        assert_eq!([-20, -10, 0, 10, 19].map(|nice| V2_6_0.delta(nice)), [-3, 0, 2, 4, 6]);
        // Nice 0 needs a bonus of 7: seven tenths of the longest average.
        assert_eq!(V2_6_22.bonus(700_000_000), 7);
        assert_eq!(V2_6_22.bonus(699_999_999), 6);
    }
}
