//! The ladder of percentiles that every latency is reported with.

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Percentiles in nanoseconds (three significant digits), with the number of samples behind them.
#[derive(Clone, PartialEq, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct Ladder {
    /// Samples.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90 %.
    pub p90_ns: u64,
    /// 95 %.
    pub p95_ns: u64,
    /// 99 %.
    pub p99_ns: u64,
    /// 99.5 %.
    pub p99_5_ns: u64,
    /// 99.9 %. Needs 10,000 samples to mean something.
    pub p99_9_ns: u64,
    /// 99.99 %. Needs 100,000 samples.
    pub p99_99_ns: u64,
    /// The largest. Grows with the length of the run.
    pub max_ns: u64,
}

impl Ladder {
    /// Reads the rungs off a histogram of nanoseconds.
    pub fn from_histogram(histogram: &Histogram<u64>) -> Ladder {
        let at = |quantile| histogram.value_at_quantile(quantile).min(histogram.max());
        Ladder {
            count: histogram.len(),
            mean_ns: histogram.mean() as u64,
            p50_ns: at(0.50),
            p90_ns: at(0.90),
            p95_ns: at(0.95),
            p99_ns: at(0.99),
            p99_5_ns: at(0.995),
            p99_9_ns: at(0.999),
            p99_99_ns: at(0.9999),
            max_ns: histogram.max(),
        }
    }
}

/// A histogram from 1 ns to an hour with three significant digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("these bounds are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_are_those_of_the_samples() {
        let mut histogram = histogram();
        (1..=1000).for_each(|us| histogram.record(us * 1000).unwrap());
        let ladder = Ladder::from_histogram(&histogram);
        assert_eq!(ladder.count, 1000);
        assert!(ladder.p50_ns.abs_diff(500_000) < 1000, "{ladder:?}");
        assert!(ladder.p99_ns.abs_diff(990_000) < 1000, "{ladder:?}");
        assert!(ladder.max_ns.abs_diff(1_000_000) < 1000, "{ladder:?}");
    }
}
