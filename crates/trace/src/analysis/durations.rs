//! A distribution of durations.

use hdrhistogram::Histogram;
use schedlab_model::Ns;

/// How durations are distributed: exact count, sum and extremes; quantiles to 3 significant digits.
/// Empty ones take no memory to speak of.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    histogram: Option<Box<Histogram<u32>>>,
    sum: u128,
    /// The shortest and the longest; a histogram's bucket is up to 0.1 % off.
    extremes: Option<(Ns, Ns)>,
}

impl Durations {
    /// Adds one.
    pub fn add(&mut self, duration: Ns) {
        let histogram = self.histogram.get_or_insert_with(|| {
            Box::new(Histogram::new(3).expect("3 significant digits are supported"))
        });
        histogram
            .record(duration.0.min(u64::MAX / 4))
            .expect("it resizes itself for all below 2^62");
        self.sum += u128::from(duration.0);
        self.reach(duration, duration);
    }

    #[inline]
    fn reach(&mut self, low: Ns, high: Ns) {
        let (least, most) = self.extremes.unwrap_or((low, high));
        self.extremes = Some((least.min(low), most.max(high)));
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Durations) {
        self.sum += other.sum;
        if let Some((low, high)) = other.extremes {
            self.reach(low, high);
        }
        match (&mut self.histogram, &other.histogram) {
            (Some(own), Some(theirs)) => own.add(&**theirs).expect("both resize themselves"),
            (own @ None, Some(theirs)) => *own = Some(theirs.clone()),
            (_, None) => {}
        }
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, |h| h.len())
    }

    /// The arithmetic mean; 0 when empty.
    pub fn mean(&self) -> Ns {
        Ns((self.sum / u128::from(self.count().max(1))) as u64)
    }

    /// All together.
    pub fn sum(&self) -> Ns {
        Ns(u64::try_from(self.sum).unwrap_or(u64::MAX))
    }

    /// The duration that `per_million` millionths of all do not exceed (500_000 is the median); 0
    /// when empty.
    pub fn quantile(&self, per_million: u32) -> Ns {
        let (Some(histogram), Some((low, high))) = (&self.histogram, self.extremes) else {
            return Ns::ZERO;
        };
        match per_million {
            0 => low,
            1_000_000.. => high,
            _ => Ns(histogram.value_at_quantile(f64::from(per_million) / 1e6)).clamp(low, high),
        }
    }

    /// The median.
    pub fn p50(&self) -> Ns {
        self.quantile(500_000)
    }

    /// 99 of 100 do not exceed it.
    pub fn p99(&self) -> Ns {
        self.quantile(990_000)
    }

    /// Returns the two durations between which the quantile lies with 95 %, by order statistics:
    /// whatever the distribution. `None` at an end: the values are too few to say where it is.
    pub fn interval(&self, per_million: u32) -> (Option<Ns>, Option<Ns>) {
        let buckets: Vec<(u64, u64)> =
            self.buckets().map(|(value, count)| (value.0, count)).collect();
        let [low, high] = schedlab_stats::quantile_interval(f64::from(per_million) / 1e6, &buckets);
        (low.map(Ns), high.map(Ns))
    }

    /// The shortest, exactly; 0 when empty.
    pub fn min(&self) -> Ns {
        self.extremes.map_or(Ns::ZERO, |(low, _)| low)
    }

    /// The longest, exactly; 0 when empty.
    pub fn max(&self) -> Ns {
        self.extremes.map_or(Ns::ZERO, |(_, high)| high)
    }

    /// `count` values that are distributed like all: evenly spaced quantiles. Empty when this is.
    pub fn sample(&self, count: u32) -> Vec<Ns> {
        if self.count() == 0 {
            return Vec::new();
        }
        let middle = |i: u32| ((2 * u64::from(i) + 1) * 1_000_000 / (2 * u64::from(count))) as u32;
        (0..count).map(|i| self.quantile(middle(i))).collect()
    }

    /// Returns the largest value of each non-empty bucket and its count, ascending; the last is the
    /// longest, exactly.
    pub fn buckets(&self) -> impl Iterator<Item = (Ns, u64)> + '_ {
        let buckets = self.histogram.iter().flat_map(|histogram| histogram.iter_recorded());
        buckets.map(|bucket| {
            (Ns(bucket.value_iterated_to()).min(self.max()), bucket.count_at_value().into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bucket of 12 ms reaches to 12.008 ms.
    #[test]
    fn extremes_are_exact_in_the_buckets_too() {
        let mut all = Durations::default();
        [Ns::from_us(50), Ns::from_ms(12)].into_iter().for_each(|one| all.add(one));
        assert_eq!((all.min(), all.max()), (Ns::from_us(50), Ns::from_ms(12)));
        assert_eq!(all.quantile(1_000_000), Ns::from_ms(12));
        assert_eq!(all.buckets().last(), Some((Ns::from_ms(12), 1)));
        // The bucket alone does not know it.
        assert_ne!(all.histogram.as_ref().unwrap().highest_equivalent(12_000_000), 12_000_000);
    }

    /// Of 1000 values the binomial rule takes the 984th and the 997th for p99 (mean 990, standard
    /// deviation 3.1), and of 100 none above it.
    #[test]
    fn percentiles_have_intervals_by_order_statistics() {
        let mut all = Durations::default();
        (1..=100u64).for_each(|us| all.add(Ns::from_us(us)));
        assert_eq!(all.interval(990_000).1, None);
        assert!(all.interval(990_000).0.is_some_and(|low| low > Ns::from_us(90)));
        (101..=1_000u64).for_each(|us| all.add(Ns::from_us(us)));
        let (low, high) = schedlab_stats::quantile_ranks(1_000, 0.99);
        let near = |end: Option<Ns>, rank: Option<u64>| {
            end.unwrap().0.abs_diff(Ns::from_us(rank.unwrap()).0) <= 1_000
        };
        let (least, most) = all.interval(990_000);
        assert!(near(least, low) && near(most, high), "{least:?} {most:?} {low:?} {high:?}");
        assert!(least.unwrap() < all.p99() && all.p99() < most.unwrap());
        assert_eq!(Durations::default().interval(500_000), (None, None));
    }

    #[test]
    fn quantiles_hold_over_nine_decades() {
        let mut all = Durations::default();
        assert_eq!((all.count(), all.p50(), all.max()), (0, Ns(0), Ns(0)));
        (1..=1_000u64).for_each(|i| all.add(Ns(i * 1_000_000)));
        all.add(Ns(3));
        let mut other = Durations::default();
        other.add(Ns::from_s(1_000));
        other.merge(&all);
        assert_eq!(other.count(), 1_002);
        assert_eq!(other.sum(), Ns(500_500 * 1_000_000 + 3 + 1_000_000_000_000));
        assert!(other.p50().0.abs_diff(500_000_000) < 1_000_000, "{}", other.p50());
        assert!(other.p99().0.abs_diff(991_000_000) < 2_000_000, "{}", other.p99());
        assert_eq!((other.min(), other.max()), (Ns(3), Ns::from_s(1_000)));
        assert_eq!((other.quantile(0), other.quantile(1_000_000)), (Ns(3), Ns::from_s(1_000)));
        other.add(Ns(u64::MAX));
    }
}
