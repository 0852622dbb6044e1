//! Load weights and the arithmetic of virtual time (CFS since 2.6.24, EEVDF).

use schedlab_model::Nice;

/// Weight of a nice-0 task, and of a group where nothing else is set: virtual time passes as fast
/// as real time.
pub const NICE_0: u64 = 1024;

/// Weight of SCHED_IDLE tasks and `cpu.idle` groups (`WEIGHT_IDLEPRIO`, since 2.6.29).
pub const IDLE: u64 = 3;

/// Weights of nice −20 … 19; each step is about 1.25 (`sched_prio_to_weight`).
const WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

/// Returns the weight of a nice value: that of a task, and of a session's autogroup with it.
pub const fn of_nice(nice: Nice) -> u64 {
    WEIGHTS[nice.table_index()] as u64
}

/// A weight with its inverse, 2^32 / weight. The inverse of a sum is worked out when it is first
/// needed. Packed, since it is part of records that are counted in cache lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C, packed(4))]
pub(in crate::linux) struct Load {
    weight: u64,
    /// 0 = not worked out.
    inverse: u32,
}

impl Load {
    /// The weight of a task with this nice value. Its inverse is rounded to nearest, as in the
    /// kernel's table.
    pub(in crate::linux) const fn nice(nice: Nice) -> Load {
        let weight = WEIGHTS[nice.table_index()] as u64;
        Load { weight, inverse: (((1 << 32) + weight / 2) / weight) as u32 }
    }
    /// The weight of SCHED_IDLE.
    pub(in crate::linux) const IDLE: Load = Load { weight: IDLE, inverse: 1_431_655_765 };

    /// Any weight, such as that of a group.
    pub(in crate::linux) const fn from_weight(weight: u64) -> Load {
        Load { weight, inverse: 0 }
    }
    /// The weight.
    #[inline]
    pub(in crate::linux) const fn weight(self) -> u64 {
        self.weight
    }
    /// Adds to a sum.
    #[inline]
    pub(in crate::linux) fn add(&mut self, weight: u64) {
        *self = Load::from_weight(self.weight + weight);
    }
    /// Takes off a sum.
    #[inline]
    pub(in crate::linux) fn sub(&mut self, weight: u64) {
        *self = Load::from_weight(self.weight - weight);
    }
    /// 2^32 / weight, rounded down for sums.
    #[inline]
    fn inverse(&mut self) -> u32 {
        if self.inverse == 0 {
            let weight = self.weight;
            self.inverse = match weight {
                0 => u32::MAX,
                w if w >= u64::from(u32::MAX) => 1,
                w => (u64::from(u32::MAX) / w) as u32,
            };
        }
        self.inverse
    }
    /// `delta * weight / self`, with the kernel's rounding: the product of weight and inverse is
    /// cut to 32 bits first, then multiplied.
    #[inline]
    pub(in crate::linux) fn share(&mut self, delta: u64, weight: u64) -> u64 {
        let mut factor = weight * u64::from(self.inverse());
        let excess = 64 - (factor >> 32).leading_zeros();
        factor >>= excess;
        ((u128::from(delta) * u128::from(factor)) >> (32 - excess)) as u64
    }
    /// Virtual time that passes for an entity of this weight while it runs for `delta`.
    #[inline]
    pub(in crate::linux) fn virt(&mut self, delta: u64) -> u64 {
        if self.weight == NICE_0 { delta } else { self.share(delta, NICE_0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nice(value: i8) -> Load {
        Load::nice(Nice::new(value).expect("in range"))
    }

    /// docs/sources/linux-facts.md, A4.
    #[test]
    fn a_step_of_nice_is_a_quarter() {
        for value in -20..19 {
            let ratio = nice(value).weight() as f64 / nice(value + 1).weight() as f64;
            assert!((1.18..1.31).contains(&ratio), "{value}: {ratio}");
        }
        let ratio = |a, b| nice(a).weight() as f64 / nice(b).weight() as f64;
        assert!((ratio(0, 5) - 3.0567).abs() < 1e-4);
        assert!((ratio(0, 19) - 68.27).abs() < 1e-2);
    }

    #[test]
    fn inverses_are_rounded_to_nearest() {
        assert_eq!(nice(0).inverse(), 4_194_304);
        assert_eq!(nice(5).inverse(), 12_820_798);
        assert_eq!(nice(19).inverse(), 286_331_153);
        assert_eq!(nice(-20).inverse(), 48_388);
        assert_eq!(Load::IDLE.inverse, ((1u64 << 32) / 3) as u32);
    }

    #[test]
    fn virtual_time_is_within_a_part_in_a_million() {
        for value in -20..=19 {
            for delta in [1_000, 4_000_000, 1_000_000_000u64] {
                let mut load = nice(value);
                let exact = delta * 1024 / load.weight();
                let got = load.virt(delta);
                assert!(
                    got.abs_diff(exact) <= 1 + exact / 20_000,
                    "nice {value}, {delta}: {got} {exact}"
                );
            }
        }
    }
}
