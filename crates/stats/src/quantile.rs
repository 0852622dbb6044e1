//! Intervals of quantiles from order statistics: whatever the distribution.

use crate::CONFIDENCE;

/// From this variance of the rank on it is normal enough: the exact sum and this differ by less
/// than one rank in a hundred.
const NORMAL: f64 = 400.0;
/// A sum above this is continued in a larger unit.
const LARGE: f64 = 1e200;
/// Half width of a normal interval of 95 %, in standard deviations.
const HALF_WIDTH: f64 = 1.959_963_985;

/// Returns the ranks (from 1) of the two of `n` sorted values between which the quantile `q`
/// (0 to 1) lies with 95 %. `None` at an end: no value is certain to be beyond the quantile. Rule:
/// the number of values below the quantile is binomial with n and q (Hahn and Meeker, Statistical
/// Intervals, 5.2).
pub fn quantile_ranks(n: u64, q: f64) -> (Option<u64>, Option<u64>) {
    if n == 0 || !(0.0..=1.0).contains(&q) {
        return (None, None);
    }
    let beyond = (1.0 - CONFIDENCE) / 2.0;
    // The smallest rank whose value is above the quantile: at most `beyond` is the chance that so
    // many values lie below it.
    let high = first_rank(n, q, beyond);
    // The same from the other end.
    let low = first_rank(n, 1.0 - q, beyond).map(|rank| n + 1 - rank);
    (low, high)
}

/// Returns the two of the values of `buckets` (value and count, ascending) between which the
/// quantile `q` (0 to 1) lies with 95 %, by the rule of [`quantile_ranks`]. `None` at an end: the
/// values are too few to say where it is.
pub fn quantile_interval(q: f64, buckets: &[(u64, u64)]) -> [Option<u64>; 2] {
    let (low, high) = quantile_ranks(buckets.iter().map(|(_, count)| count).sum(), q);
    [low, high].map(|rank| value_of_rank(rank?, buckets))
}

/// Returns the value of this rank (from 1) of those of `buckets`; `None`: they are fewer.
pub fn value_of_rank(rank: u64, buckets: &[(u64, u64)]) -> Option<u64> {
    let mut seen = 0;
    let reached = buckets.iter().find(|(_, count)| {
        seen += count;
        seen >= rank
    });
    reached.map(|(value, _)| *value)
}

/// The smallest k from 1 to n with P(B >= k) <= `beyond`, for B binomial with n and q.
fn first_rank(n: u64, q: f64, beyond: f64) -> Option<u64> {
    if q <= 0.0 {
        return Some(1);
    }
    if q >= 1.0 {
        return None;
    }
    let (mean, variance) = (n as f64 * q, n as f64 * q * (1.0 - q));
    if variance > NORMAL {
        let rank = (mean + HALF_WIDTH * variance.sqrt() + 0.5).ceil() as u64 + 1;
        return (rank <= n).then_some(rank);
    }
    // P(B = n), then one less at a time, as parts of a unit: q^n may be smaller than a number can
    // be.
    let odds = (1.0 - q) / q;
    let mut unit = n as f64 * q.ln();
    let (mut part, mut sum, mut k) = (1.0, 0.0, n);
    let mut enough = (beyond.ln() - unit).exp();
    loop {
        sum += part;
        if sum > enough {
            return (k < n).then_some(k + 1);
        }
        if k == 0 {
            return Some(1);
        }
        part *= odds * k as f64 / (n - k + 1) as f64;
        if sum > LARGE {
            (part, sum, unit) = (part / LARGE, sum / LARGE, unit + LARGE.ln());
            enough = (beyond.ln() - unit).exp();
        }
        k -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Table values: of 10 values the 2nd and the 9th hold the median with 97.9 %, and the 3rd and
    /// 8th with 89.1 %.
    #[test]
    fn ranks_of_a_median() {
        assert_eq!(quantile_ranks(10, 0.5), (Some(2), Some(9)));
        assert_eq!(quantile_ranks(5, 0.5), (None, None));
        assert_eq!(quantile_ranks(6, 0.5), (Some(1), Some(6)));
    }

    /// Of ten values, in three buckets: the 2nd and the 9th.
    #[test]
    fn an_interval_is_of_values() {
        assert_eq!(quantile_interval(0.5, &[(10, 1), (20, 7), (30, 2)]), [Some(20), Some(30)]);
        assert_eq!(quantile_interval(0.99, &[(10, 1), (20, 7), (30, 2)]), [Some(30), None]);
        assert_eq!(quantile_interval(0.5, &[]), [None, None]);
    }

    /// 1 - 0.99^n exceeds 97.5 % from 368 values on: before that none is certain to lie beyond p99.
    #[test]
    fn a_tail_needs_values() {
        assert_eq!(quantile_ranks(367, 0.99).1, None);
        assert_eq!(quantile_ranks(368, 0.99).1, Some(368));
        assert_eq!(quantile_ranks(173, 0.99), (Some(168), None));
        assert_eq!(quantile_ranks(0, 0.99), (None, None));
    }

    proptest! {
        #[test]
        fn the_quantile_is_between(n in 1u64..100_000, q in 0.001f64..0.999) {
            let (low, high) = quantile_ranks(n, q);
            let rank = n as f64 * q;
            prop_assert!(low.is_none_or(|low| low >= 1 && low as f64 <= rank + 1.0), "{low:?} of \
                {rank}");
            prop_assert!(high.is_none_or(|high| high <= n && high as f64 >= rank), "{high:?} of \
                {rank}");
        }

        /// The sum in units is the sum by logarithms.
        #[test]
        fn ranks_are_those_of_logarithms(n in 1u64..1_600, q in 0.001f64..0.999) {
            let beyond = (1.0 - CONFIDENCE) / 2.0;
            let by_logarithms = || {
                let (mut log, mut sum, mut k) = (n as f64 * q.ln(), 0.0, n);
                loop {
                    sum += log.exp();
                    if sum > beyond {
                        return (k < n).then_some(k + 1);
                    }
                    if k == 0 {
                        return Some(1);
                    }
                    log += (k as f64).ln() - ((n - k + 1) as f64).ln() + (1.0 - q).ln() - q.ln();
                    k -= 1;
                }
            };
            prop_assert_eq!(first_rank(n, q, beyond), by_logarithms());
        }

        /// The normal rule goes on where the exact one ends.
        #[test]
        fn both_rules_agree(q in 0.3f64..0.7) {
            let n = (NORMAL / (q * (1.0 - q))) as u64;
            let (exact, normal) = (quantile_ranks(n - 2, q), quantile_ranks(n + 2, q));
            for (a, b) in [(exact.0, normal.0), (exact.1, normal.1)] {
                prop_assert!(a.unwrap().abs_diff(b.unwrap()) <= 6, "{exact:?} {normal:?}");
            }
        }
    }
}
