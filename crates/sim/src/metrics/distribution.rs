//! A distribution of times in bounded memory.

use schedlab_model::Ns;

/// Count, exact sum, extremes and quantiles of times, in memory that does not grow: a high-dynamic-range
/// histogram. Below 128 ns every nanosecond has a bucket; above, every octave has 128 (a bucket is at most
/// 0.8 % wide) up to about 4.9 hours; longer times count as that. Nothing is allocated before the first value.
///
/// Our own and not the `hdrhistogram` crate, because recording is the hottest thing that the simulator does:
/// one line of counters and one bucket are touched, which made whole runs a quarter faster.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
    buckets: Vec<u32>,
}

/// Buckets in an octave, and its logarithm.
const PER_OCTAVE: u64 = 128;
const BITS: u32 = 7;
const HIGHEST: u64 = (1 << 44) - 1;
const BUCKETS: usize = bucket(HIGHEST) + 1;

/// The bucket of a value up to `HIGHEST`.
#[inline]
const fn bucket(value: u64) -> usize {
    let shift = (value | PER_OCTAVE).ilog2() - BITS;
    (shift as u64 * PER_OCTAVE + (value >> shift)) as usize
}

/// The largest value of a bucket.
fn top_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * PER_OCTAVE {
        return bucket;
    }
    let shift = bucket / PER_OCTAVE - 1;
    ((bucket - shift * PER_OCTAVE + 1) << shift) - 1
}

impl Distribution {
    /// Counts one value.
    #[inline]
    pub fn record(&mut self, value: Ns) {
        let v = value.0;
        if self.buckets.is_empty() {
            self.buckets = vec![0; BUCKETS];
            self.min = u64::MAX;
        }
        self.count += 1;
        self.sum += u128::from(v);
        self.min = self.min.min(v);
        self.max = self.max.max(v);
        let count = &mut self.buckets[bucket(v.min(HIGHEST))];
        *count = count.saturating_add(1);
    }

    /// Counts several values.
    #[inline(never)]
    pub(crate) fn record_all(&mut self, values: &[u32]) {
        let Some((first, rest)) = values.split_first() else { return };
        self.record(Ns(u64::from(*first)));
        for value in rest {
            let count = &mut self.buckets[bucket(u64::from(*value))];
            *count = count.saturating_add(1);
            let value = u64::from(*value);
            self.sum += u128::from(value);
            self.min = self.min.min(value);
            self.max = self.max.max(value);
        }
        self.count += rest.len() as u64;
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// Their exact sum in nanoseconds.
    pub fn sum_ns(&self) -> u128 {
        self.sum
    }
    /// Their mean, rounded down; 0 without values.
    pub fn mean(&self) -> Ns {
        Ns((self.sum / u128::from(self.count.max(1))) as u64)
    }
    /// The smallest, exactly; 0 without values.
    pub fn min(&self) -> Ns {
        if self.count == 0 { Ns::ZERO } else { Ns(self.min) }
    }
    /// The largest, exactly; 0 without values.
    pub fn max(&self) -> Ns {
        Ns(self.max)
    }
    /// The smallest value of which at least the part `q` (0 … 1) of all values is not larger (nearest rank),
    /// up to the width of a bucket; 0 without values.
    pub fn quantile(&self, q: f64) -> Ns {
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        if rank >= self.count {
            return self.max();
        }
        let mut seen = 0;
        for (i, count) in self.buckets.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                return Ns(top_of(i).clamp(self.min, self.max));
            }
        }
        self.max()
    }
    /// The part of the values that is at most `value`, 0 … 1, up to the width of a bucket; 1 without values.
    pub fn part_below(&self, value: Ns) -> f64 {
        if self.count == 0 {
            return 1.0;
        }
        let upto = bucket(value.0.min(HIGHEST)) + 1;
        let below: u64 = self.buckets[..upto].iter().map(|count| u64::from(*count)).sum();
        below as f64 / self.count as f64
    }
    /// Every bucket that is not empty: its largest value and how many values it holds, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (Ns, u64)> + '_ {
        let filled = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(i, count)| (Ns(top_of(i)), u64::from(*count)))
    }
    /// The middle of the fullest bucket (the smallest of several); 0 without values.
    pub fn mode(&self) -> Ns {
        let mut fullest = (0, 0);
        for (i, count) in self.buckets.iter().enumerate() {
            if *count > fullest.0 {
                let low = if i == 0 { 0 } else { top_of(i - 1) + 1 };
                fullest = (*count, low.midpoint(top_of(i)));
            }
        }
        Ns(fullest.1.clamp(self.min().0, self.max))
    }
    /// Adds the values of `other`.
    pub fn merge(&mut self, other: &Distribution) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            self.clone_from(other);
            return;
        }
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum += other.sum;
        for (own, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *own = own.saturating_add(*theirs);
        }
    }
    /// Forgets all values, keeps the memory.
    pub fn clear(&mut self) {
        let mut buckets = std::mem::take(&mut self.buckets);
        buckets.fill(0);
        let min = if buckets.is_empty() { 0 } else { u64::MAX };
        *self = Distribution { buckets, min, ..Distribution::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        for value in (0..3_000).chain([4_095, 4_096, 1 << 20, (1 << 20) + 8_191, HIGHEST - 1, HIGHEST]) {
            let i = bucket(value);
            assert!(value <= top_of(i) && (i == 0 || value > top_of(i - 1)), "{value} in bucket {i}");
            assert!(top_of(i) - value <= value / 128, "{value}");
        }
        assert_eq!(top_of(BUCKETS - 1), HIGHEST);
    }

    #[test]
    fn quantiles_within_a_bucket() {
        let mut d = Distribution::default();
        (1..=10_000u64).for_each(|v| d.record(Ns::from_us(v)));
        for (q, us) in [(0.5, 5_000), (0.99, 9_900), (1.0, 10_000)] {
            let got = d.quantile(q).0 as f64 / 1000.0;
            assert!((got / f64::from(us) - 1.0).abs() < 0.008, "{q}: {got}");
        }
        assert_eq!(
            (d.count(), d.mean(), d.min(), d.max()),
            (10_000, Ns(5_000_500), Ns(1_000), Ns(10_000_000))
        );
    }

    #[test]
    fn the_mode_is_the_fullest_bucket() {
        let mut d = Distribution::default();
        (1..=1_000u64).for_each(|v| d.record(Ns::from_us(v * 100)));
        (0..9).for_each(|_| d.record(Ns::from_us(77)));
        assert!((d.mode().0 as f64 / 77_000.0 - 1.0).abs() < 0.008, "{}", d.mode());
        assert_eq!(Distribution::default().mode(), Ns::ZERO);
    }

    #[test]
    fn merging_is_recording_both() {
        let (mut a, mut b, mut both) =
            (Distribution::default(), Distribution::default(), Distribution::default());
        for v in 0..1000u64 {
            let value = Ns(v * v);
            if v % 3 == 0 {
                a.record(value)
            } else {
                b.record(value)
            }
            both.record(value);
        }
        a.merge(&b);
        assert_eq!(
            (a.count(), a.sum_ns(), a.min(), a.max()),
            (both.count(), both.sum_ns(), both.min(), both.max())
        );
        assert_eq!(a.quantile(0.9), both.quantile(0.9));
        a.clear();
        assert_eq!((a.count(), a.max(), a.quantile(0.5)), (0, Ns(0), Ns(0)));
    }
}
