//! A distribution of times in bounded memory.

use hdrhistogram::Histogram;
use schedlab_model::Ns;

/// Count, exact sum, extremes and quantiles of times, in memory that does not grow: an HDR histogram with two
/// significant digits (a bucket is at most 0.8 % wide) up to about 4.9 hours, longer times count as that.
/// Nothing is allocated before the first value.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    histogram: Option<Box<Histogram<u32>>>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

const HIGHEST: u64 = 1 << 44;

impl Distribution {
    /// Counts one value.
    #[inline]
    pub fn record(&mut self, value: Ns) {
        let v = value.0;
        self.min = if self.count == 0 { v } else { self.min.min(v) };
        self.max = self.max.max(v);
        self.count += 1;
        self.sum += u128::from(v);
        match &mut self.histogram {
            Some(histogram) => histogram.saturating_record(v),
            None => self.first(v),
        }
    }

    #[cold]
    fn first(&mut self, v: u64) {
        let mut histogram = Histogram::new_with_max(HIGHEST, 2).expect("constant bounds are valid");
        histogram.saturating_record(v);
        self.histogram = Some(Box::new(histogram));
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
        Ns(self.min)
    }
    /// The largest, exactly; 0 without values.
    pub fn max(&self) -> Ns {
        Ns(self.max)
    }
    /// The smallest value of which at least the part `q` (0 … 1) of all values is not larger (nearest rank),
    /// up to the width of a bucket; 0 without values.
    pub fn quantile(&self, q: f64) -> Ns {
        let Some(histogram) = &self.histogram else { return Ns::ZERO };
        if q >= 1.0 {
            return self.max();
        }
        Ns(histogram.value_at_quantile(q).clamp(self.min, self.max))
    }
    /// The middle of the fullest bucket (the smallest of several); 0 without values.
    pub fn mode(&self) -> Ns {
        let Some(histogram) = &self.histogram else { return Ns::ZERO };
        let mut fullest = (0, 0);
        for bucket in histogram.iter_recorded() {
            if bucket.count_at_value() > fullest.0 {
                fullest = (bucket.count_at_value(), histogram.median_equivalent(bucket.value_iterated_to()));
            }
        }
        Ns(fullest.1.clamp(self.min, self.max))
    }
    /// Adds the values of `other`.
    pub fn merge(&mut self, other: &Distribution) {
        let Some(theirs) = &other.histogram else { return };
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum += other.sum;
        match &mut self.histogram {
            Some(own) => own.add(theirs.as_ref()).expect("the same bounds everywhere"),
            None => self.histogram = Some(theirs.clone()),
        }
    }
    /// The part of the values that is at most `value`, 0 … 1; 1 without values.
    pub fn part_below(&self, value: Ns) -> f64 {
        self.histogram.as_ref().map_or(1.0, |h| h.quantile_below(value.0.min(HIGHEST)))
    }
    /// Forgets all values, keeps the memory.
    pub fn clear(&mut self) {
        let histogram = self.histogram.take().map(|mut histogram| {
            histogram.reset();
            histogram
        });
        *self = Distribution { histogram, ..Distribution::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
