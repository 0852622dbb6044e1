//! All samples of a run: a whole histogram, not percentiles of it, so that runs can be put together
//! later.

use crate::Ladder;
use crate::ladder::histogram;
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest time that the histogram tells apart, nanoseconds (an hour).
const LONGEST: u64 = 3_600_000_000_000;

/// Times in nanoseconds, with three significant digits; smallest, largest and sum are exact.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub struct Samples {
    histogram: Histogram<u64>,
    min: u64,
    max: u64,
    sum: u64,
}

/// All samples of a run as JSON: a whole histogram. Smallest, largest and sum are exact, buckets
/// have three significant digits (HdrHistogram, 1 ns to 1 h), so that histograms of several runs
/// can be added without loss.
#[derive(JsonSchema, Serialize, Deserialize)]
struct Written {
    /// Number of samples.
    count: u64,
    /// The smallest.
    min_ns: u64,
    /// The largest.
    max_ns: u64,
    /// Their sum.
    sum_ns: u64,
    /// Largest value of a bucket and how many samples it has; empty buckets are left out.
    buckets: Vec<(u64, u64)>,
}

impl Default for Samples {
    fn default() -> Samples {
        Samples { histogram: histogram(), min: u64::MAX, max: 0, sum: 0 }
    }
}

impl Samples {
    /// Adds a time in nanoseconds.
    pub fn add(&mut self, ns: u64) {
        self.add_many(ns, 1);
    }

    /// Adds a time `times` times.
    pub fn add_many(&mut self, ns: u64, times: u64) {
        if times == 0 {
            return;
        }
        self.histogram.saturating_record_n(ns, times);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        self.sum = self.sum.saturating_add(ns.saturating_mul(times));
    }

    /// Adds the samples of another run.
    pub fn merge(&mut self, other: &Samples) {
        // Both have the same bounds: nothing is out of range.
        let _ = self.histogram.add(&other.histogram);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }
    /// The smallest, nanoseconds; 0 when there is none.
    pub fn min(&self) -> u64 {
        if self.count() == 0 { 0 } else { self.min }
    }
    /// The largest, nanoseconds, exact.
    pub fn max(&self) -> u64 {
        self.max
    }
    /// Arithmetic mean, nanoseconds, rounded down.
    pub fn mean(&self) -> u64 {
        self.sum / self.count().max(1)
    }

    /// The smallest value that at least the part `quantile` (0 … 1) of all samples does not exceed,
    /// nanoseconds, with three significant digits.
    pub fn quantile(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile).min(self.max)
    }

    /// Returns between which samples the quantile (0 to 1) of all that could have been measured
    /// lies with 95 %; `None` at an end: the samples are too few for one.
    pub fn interval(&self, quantile: f64) -> [Option<u64>; 2] {
        let ends = schedlab_stats::quantile_interval(quantile, &self.buckets());
        ends.map(|end| end.map(|ns| ns.max(self.min)))
    }

    /// How many samples are larger than `ns` (those of the same bucket do not count).
    pub fn above(&self, ns: u64) -> u64 {
        let limit = self.histogram.highest_equivalent(ns.min(LONGEST));
        self.histogram
            .iter_recorded()
            .filter(|v| v.value_iterated_to() > limit)
            .map(|v| v.count_at_value())
            .sum()
    }

    /// Buckets that are not empty, ascending: largest value in nanoseconds (of the last bucket the
    /// exact one), and count.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        self.histogram
            .iter_recorded()
            .map(|v| (v.value_iterated_to().min(self.max), v.count_at_value()))
            .collect()
    }

    /// The usual rungs, with the exact largest.
    pub fn ladder(&self) -> Ladder {
        Ladder { max_ns: self.max, mean_ns: self.mean(), ..Ladder::from_histogram(&self.histogram) }
    }

    /// How many samples a quantile needs so that ten lie beyond it.
    pub fn needed(quantile: f64) -> u64 {
        schedlab_stats::samples_needed(quantile)
    }
}

impl From<Samples> for Written {
    fn from(samples: Samples) -> Written {
        let buckets =
            samples.histogram.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value()));
        Written {
            count: samples.count(),
            min_ns: samples.min(),
            max_ns: samples.max,
            sum_ns: samples.sum,
            buckets: buckets.collect(),
        }
    }
}

impl TryFrom<Written> for Samples {
    type Error = String;

    fn try_from(written: Written) -> Result<Samples, String> {
        let mut samples =
            Samples { sum: written.sum_ns, max: written.max_ns, ..Samples::default() };
        let mut count = 0u64;
        for (ns, times) in written.buckets {
            if ns > LONGEST * 2 {
                return Err(format!("a bucket of {ns} ns: an hour is the most"));
            }
            count = count.checked_add(times).ok_or("the buckets have too many samples")?;
            samples.histogram.saturating_record_n(ns, times);
        }
        if count != written.count {
            return Err(format!(
                "the buckets have {count} samples, `count` says {}",
                written.count
            ));
        }
        if count > 0 {
            samples.min = written.min_ns;
        }
        Ok(samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_of_a_line_are_known() {
        let mut samples = Samples::default();
        assert_eq!((samples.count(), samples.min(), samples.max(), samples.mean()), (0, 0, 0, 0));
        (1..=10_000u64).for_each(|us| samples.add(us * 1000));
        // Of 1, 2, ... n the quantile q is q n, to three digits.
        for quantile in [0.5, 0.9, 0.99, 0.999, 0.9999] {
            let (got, exact) = (samples.quantile(quantile) as f64, quantile * 1e7);
            assert!((got / exact - 1.0).abs() < 1e-3, "{quantile}: {got} for {exact}");
        }
        assert_eq!((samples.min(), samples.max(), samples.mean()), (1000, 10_000_000, 5_000_500));
        assert_eq!(samples.above(10_000_000), 0);
        assert!(samples.above(9_000_000).abs_diff(1000) <= 10);
    }

    #[test]
    fn an_interval_is_between_two_samples() {
        let mut samples = Samples::default();
        assert_eq!(samples.interval(0.5), [None, None]);
        (1..=1_000u64).for_each(|us| samples.add(us * 1000));
        // Of 1000 values the median lies between the 469th and the 532nd with 95 %
        // (binomial: 500 +- 1.96 times 15.8).
        let [low, high] = samples.interval(0.5).map(Option::unwrap);
        assert!(
            (467_000..=470_500).contains(&low) && (530_500..=533_500).contains(&high),
            "{low} {high}"
        );
        // Beyond p99.9 of a thousand there may be none.
        assert_eq!(samples.interval(0.999)[1], None);
        assert!(samples.interval(0.99)[1].is_some_and(|high| high <= samples.max()));
    }

    #[test]
    fn of_an_exponential_distribution() {
        // The k-th of n values of the inverse distribution function: quantile q is -ln(1-q) ms.
        let mut samples = Samples::default();
        (0..100_000u32)
            .for_each(|k| samples.add((-(1.0 - (f64::from(k) + 0.5) / 1e5).ln() * 1e6) as u64));
        for quantile in [0.5f64, 0.99, 0.999] {
            let exact = -(1.0 - quantile).ln() * 1e6;
            assert!((samples.quantile(quantile) as f64 / exact - 1.0).abs() < 5e-3, "{quantile}");
        }
        assert!((samples.mean() as f64 / 1e6 - 1.0).abs() < 1e-2);
    }

    #[test]
    fn a_quantile_needs_ten_samples_beyond() {
        assert_eq!(Samples::needed(0.5), 20);
        assert_eq!(Samples::needed(0.999), 10_000);
        assert_eq!(Samples::needed(0.9999), 100_000);
    }

    #[test]
    fn damaged_samples_are_refused() {
        let text = |count: u64, ns: u64| {
            format!(r#"{{"count":{count},"min_ns":1,"max_ns":9,"sum_ns":9,"buckets":[[{ns},3]]}}"#)
        };
        assert!(serde_json::from_str::<Samples>(&text(3, 5)).is_ok());
        assert!(
            serde_json::from_str::<Samples>(&text(4, 5))
                .unwrap_err()
                .to_string()
                .contains("`count`")
        );
        assert!(serde_json::from_str::<Samples>(&text(3, u64::MAX)).is_err());
    }

    proptest! {
        #[test]
        fn written_and_read_again_is_the_same(values in proptest::collection::vec(0u64..10_000_000_000, 0..200)) {
            let mut samples = Samples::default();
            values.iter().for_each(|&ns| samples.add(ns));
            let text = serde_json::to_string(&samples).unwrap();
            let again: Samples = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(again.ladder(), samples.ladder());
            prop_assert_eq!(serde_json::to_string(&again).unwrap(), text);
        }

        #[test]
        fn merged_is_the_same_as_together(a in proptest::collection::vec(0u64..1_000_000_000, 0..100),
                                          b in proptest::collection::vec(0u64..1_000_000_000, 0..100)) {
            let of = |values: &[u64]| {
                let mut samples = Samples::default();
                values.iter().for_each(|&ns| samples.add(ns));
                samples
            };
            let mut merged = of(&a);
            merged.merge(&of(&b));
            prop_assert_eq!(merged.ladder(), of(&[a, b].concat()).ladder());
        }
    }
}
