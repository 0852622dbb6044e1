//! A distribution of times in bounded memory.

use schedlab_model::Ns;

/// Count, exact sum, extremes and quantiles of times, in bounded memory: a high-dynamic-range
/// histogram. Below 128 ns every nanosecond has a bucket; above, every octave has 128 (a bucket is
/// at most 0.8 % wide) up to about 4.9 hours; longer times count as that. Memory is there for the
/// octaves between the smallest and the largest value, 128 bytes each: a counter is a byte, which
/// few values need again and again.
///
/// Our own and not the `hdrhistogram` crate, because recording is the hottest thing that the
/// simulator does: a run keeps hundreds of these, and how many cache lines they fill decides its
/// speed.
#[derive(Clone, Debug)]
pub struct Distribution {
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
    /// Bucket that `counts` begins with, a multiple of `PER_OCTAVE`.
    first: usize,
    counts: Vec<u8>,
    /// How often a counter went over its end, by bucket, ascending.
    carries: Vec<(usize, u64)>,
}

impl Default for Distribution {
    fn default() -> Distribution {
        let (counts, carries) = (Vec::new(), Vec::new());
        Distribution { count: 0, sum: 0, min: u64::MAX, max: 0, first: 0, counts, carries }
    }
}

/// Buckets in an octave, and its logarithm.
const PER_OCTAVE: u64 = 128;
const BITS: u32 = 7;
const HIGHEST: u64 = (1 << 44) - 1;
/// So many buckets may carry without another allocation: those of lengths that come again and
/// again.
const FREQUENT: usize = 4;
/// Values of one counter before it starts again.
const CARRY: u64 = 1 << u8::BITS;

/// Returns the bucket of a value up to `HIGHEST`.
#[inline]
const fn bucket(value: u64) -> usize {
    let shift = (value | PER_OCTAVE).ilog2() - BITS;
    (shift as u64 * PER_OCTAVE + (value >> shift)) as usize
}

/// Returns the largest value of a bucket.
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
        self.count += 1;
        self.sum += u128::from(v);
        // Both become rare: as branches they cost less than two stores.
        if v < self.min {
            self.min = v;
        }
        if v > self.max {
            self.max = v;
        }
        self.add(v);
    }

    #[inline]
    fn add(&mut self, value: u64) {
        let bucket = bucket(value.min(HIGHEST));
        let Some(count) = self.counts.get_mut(bucket.wrapping_sub(self.first)) else {
            return self.add_outside(bucket);
        };
        *count = count.wrapping_add(1);
        if *count == 0 {
            self.carry(bucket);
        }
    }

    /// A counter starts again.
    #[cold]
    #[inline(never)]
    fn carry(&mut self, bucket: usize) {
        self.add_carries(bucket, 1);
    }

    fn add_carries(&mut self, bucket: usize, times: u64) {
        match self.carries.binary_search_by_key(&bucket, |(at, _)| *at) {
            Ok(place) => self.carries[place].1 += times,
            Err(place) => self.carries.insert(place, (bucket, times)),
        }
    }

    /// Counts a value of an octave for which there is no memory yet.
    #[cold]
    fn add_outside(&mut self, bucket: usize) {
        self.cover(bucket, bucket);
        self.counts[bucket - self.first] = 1;
    }

    /// Makes sure that these buckets and those between them have memory.
    fn cover(&mut self, from: usize, to: usize) {
        let octave = PER_OCTAVE as usize;
        let (from, to) = (from / octave * octave, (to / octave + 1) * octave);
        if self.counts.is_empty() {
            self.first = from;
            self.carries.reserve(FREQUENT);
        }
        if from < self.first {
            self.counts.splice(0..0, std::iter::repeat_n(0, self.first - from));
            self.first = from;
        }
        if to > self.first + self.counts.len() {
            self.counts.resize(to - self.first, 0);
        }
    }

    /// Returns every bucket that is not empty, ascending, with its number of values.
    fn filled(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        // Both ascend.
        let mut carries = self.carries.iter().peekable();
        let full = move |(i, count): (usize, &u8)| {
            let bucket = self.first + i;
            let carried = carries.next_if(|(at, _)| *at == bucket).map_or(0, |(_, times)| *times);
            (bucket, u64::from(*count) + carried * CARRY)
        };
        self.counts.iter().enumerate().map(full).filter(|(_, count)| *count > 0)
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// Returns their exact sum in nanoseconds.
    pub fn sum_ns(&self) -> u128 {
        self.sum
    }
    /// Returns their mean, rounded down; 0 without values.
    pub fn mean(&self) -> Ns {
        Ns((self.sum / u128::from(self.count.max(1))) as u64)
    }
    /// Returns the smallest, exactly; 0 without values.
    pub fn min(&self) -> Ns {
        if self.count == 0 { Ns::ZERO } else { Ns(self.min) }
    }
    /// Returns the largest, exactly; 0 without values.
    pub fn max(&self) -> Ns {
        Ns(self.max)
    }
    /// Returns the smallest value of which at least the part `q` (0 … 1) of all values is not
    /// larger (nearest rank), up to the width of a bucket; 0 without values.
    pub fn quantile(&self, q: f64) -> Ns {
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        if rank >= self.count {
            return self.max();
        }
        let mut seen = 0;
        for (i, count) in self.filled() {
            seen += count;
            if seen >= rank {
                return Ns(top_of(i).clamp(self.min, self.max));
            }
        }
        self.max()
    }
    /// Returns the part of the values that is at most `value`, 0 … 1, up to the width of a bucket;
    /// 1 without values.
    pub fn part_below(&self, value: Ns) -> f64 {
        if self.count == 0 {
            return 1.0;
        }
        let last = bucket(value.0.min(HIGHEST));
        let below: u64 =
            self.filled().take_while(|(i, _)| *i <= last).map(|(_, count)| count).sum();
        below as f64 / self.count as f64
    }
    /// Returns every bucket that is not empty: its largest value and how many values it holds,
    /// ascending. The last is the largest value of all, exactly.
    pub fn buckets(&self) -> impl Iterator<Item = (Ns, u64)> + '_ {
        self.filled().map(|(i, count)| (Ns(top_of(i)).min(self.max()), count))
    }
    /// Returns the middle of the fullest bucket (the smallest of several); 0 without values.
    pub fn mode(&self) -> Ns {
        let mut fullest = (0, 0);
        for (i, count) in self.filled() {
            if count > fullest.0 {
                let low = if i == 0 { 0 } else { top_of(i - 1) + 1 };
                fullest = (count, low.midpoint(top_of(i)));
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
        self.cover(other.first, other.first + other.counts.len() - 1);
        for (bucket, count) in other.filled() {
            let own = &mut self.counts[bucket - self.first];
            let sum = u64::from(*own) + count;
            *own = sum as u8;
            if sum >= CARRY {
                self.add_carries(bucket, sum / CARRY);
            }
        }
    }
    /// Forgets all values, keeps the memory.
    pub fn clear(&mut self) {
        let mut counts = std::mem::take(&mut self.counts);
        let mut carries = std::mem::take(&mut self.carries);
        counts.fill(0);
        carries.clear();
        *self = Distribution { first: self.first, counts, carries, ..Distribution::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        for value in
            (0..3_000).chain([4_095, 4_096, 1 << 20, (1 << 20) + 8_191, HIGHEST - 1, HIGHEST])
        {
            let i = bucket(value);
            assert!(
                value <= top_of(i) && (i == 0 || value > top_of(i - 1)),
                "{value} in bucket {i}"
            );
            assert!(top_of(i) - value <= value / 128, "{value}");
        }
        assert_eq!(top_of(bucket(HIGHEST)), HIGHEST);
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

    #[test]
    fn a_counter_may_go_over_its_end() {
        let mut d = Distribution::default();
        d.record(Ns(5));
        (0..3 * CARRY + 7).for_each(|_| d.record(Ns::from_ms(1)));
        assert_eq!(d.buckets().map(|(_, count)| count).collect::<Vec<_>>(), [1, 3 * CARRY + 7]);
        let mut twice = d.clone();
        twice.merge(&d);
        assert_eq!(
            twice.buckets().map(|(_, count)| count).collect::<Vec<_>>(),
            [2, 6 * CARRY + 14]
        );
        assert_eq!(twice.quantile(2e-6), Ns(5));
    }

    #[test]
    fn values_may_come_in_any_order() {
        let values = [70_000, 3, 1 << 30, 200, 0, HIGHEST, 1_000_000];
        let mut d = Distribution::default();
        values.iter().for_each(|v| d.record(Ns(*v)));
        let mut sorted = values;
        sorted.sort_unstable();
        let buckets: Vec<usize> = d.buckets().map(|(top, _)| bucket(top.0)).collect();
        assert_eq!(buckets, sorted.map(bucket));
        assert_eq!((d.min(), d.max()), (Ns(0), Ns(HIGHEST)));
    }
}
