//! What the runs of a row say of one subject: its values, and intervals of percentiles by order
//! statistics, over the values of all runs.

use crate::change::{MethodError, Tail, apart};
use crate::measurements::{Kind, Quantity, SubjectData};
use crate::metric::{Metric, Stat};
use crate::result::Interval;
use crate::run::Run;
use schedlab_stats::{quantile_interval, value_of_rank};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;

/// The distribution behind a metric.
pub(super) const fn quantity(metric: Metric) -> Option<(Quantity, Stat)> {
    match metric {
        Metric::Latency(stat) => Some((Quantity::Latency, stat)),
        Metric::Wait(stat) => Some((Quantity::Wait, stat)),
        Metric::Response(stat) => Some((Quantity::Response, stat)),
        Metric::Run(stat) => Some((Quantity::Run, stat)),
        _ => None,
    }
}

/// What several runs, or a recording, say of one subject: looked up once for all of its numbers.
pub(super) struct Found<'a> {
    of: Vec<&'a SubjectData>,
    /// By [`Quantity`]: the values of all of them together, and their counts, ascending.
    pooled: [OnceCell<Vec<(u64, u64)>>; Quantity::ALL.len()],
    /// What each of them has of a metric.
    values: RefCell<BTreeMap<Metric, Vec<f64>>>,
}

impl<'a> Found<'a> {
    /// Of runs, where they have the subject.
    pub(super) fn of_runs(runs: &'a [Run], kind: Kind, name: &str) -> Found<'a> {
        Found::new(runs.iter().filter_map(|run| run.measured.find(kind, name)))
    }

    pub(super) fn new(of: impl Iterator<Item = &'a SubjectData>) -> Found<'a> {
        Found { of: of.collect(), pooled: Default::default(), values: RefCell::default() }
    }

    /// Returns the value of a metric in every run that has one.
    pub(super) fn values(&self, metric: Metric) -> Vec<f64> {
        let find = || self.of.iter().filter_map(|found| found.value(metric)).collect();
        self.values.borrow_mut().entry(metric).or_insert_with(find).clone()
    }

    /// Returns the values behind a percentile; `None`: the metric is none, or there are no values.
    fn pooled(&self, metric: Metric) -> Option<Pooled<'_>> {
        let (quantity, Stat::Percentile(rank)) = quantity(metric)? else { return None };
        let buckets = self.pooled[quantity as usize].get_or_init(|| pool(&self.of, quantity));
        let pooled = Pooled { quantile: f64::from(rank) / 100_000.0, buckets };
        (pooled.samples() > 0).then_some(pooled)
    }

    /// Returns the interval of the percentile over the values of these together; `None` for other
    /// metrics, and without values.
    pub(super) fn interval(&self, metric: Metric) -> Option<Interval> {
        Some(self.pooled(metric)?.interval())
    }

    /// Returns the same with ends that start from what was recorded, as the percentile itself does.
    pub(super) fn anchored(&self, metric: Metric, method: MethodError) -> Option<Interval> {
        Some(anchored(&self.pooled(metric)?, metric, method))
    }

    /// Returns that, and the method's error with the tail of these values.
    pub(super) fn with_tail(
        &self,
        metric: Metric,
        method: MethodError,
    ) -> (Option<Interval>, MethodError) {
        let Some(pooled) = self.pooled(metric) else { return (None, method) };
        let interval = anchored(&pooled, metric, method);
        // Only the bar of a factor is made from it.
        let tail = if method.is_factor(metric) { pooled.tail(method.rate) } else { method.tail };
        (Some(interval), MethodError { tail, ..method })
    }

    /// Returns how far the percentile may lie below and above itself; nothing for other metrics.
    pub(super) fn tail(&self, metric: Metric, rate: f64) -> Tail {
        self.pooled(metric).map_or_else(Tail::default, |pooled| pooled.tail(rate))
    }
}

/// Returns the values of all of them together, and their counts, ascending.
fn pool(of: &[&SubjectData], quantity: Quantity) -> Vec<(u64, u64)> {
    let values = of.iter().flat_map(|found| found.buckets(quantity));
    let mut buckets: Vec<(u64, u64)> = values.map(|(value, count)| (value.0, count)).collect();
    // Those of one run are in order.
    buckets.sort();
    buckets.dedup_by(|next, first| {
        let same = next.0 == first.0;
        first.1 += if same { next.1 } else { 0 };
        same
    });
    buckets
}

/// The values behind a percentile, of several runs together.
struct Pooled<'a> {
    quantile: f64,
    /// Value and count, ascending; at least one.
    buckets: &'a [(u64, u64)],
}

impl Pooled<'_> {
    fn samples(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// Returns the interval that holds the percentile with 95 %.
    fn interval(&self) -> Interval {
        let [low, high] =
            quantile_interval(self.quantile, self.buckets).map(|end| end.map(|ns| ns as f64));
        Interval { low, high, samples: self.samples() }
    }

    /// Returns how far the percentile may lie below and above itself: where it is when values
    /// beyond it are `rate` times as likely, or that much less.
    fn tail(&self, rate: f64) -> Tail {
        let rate = rate.max(1.0);
        let odds = (1.0 - self.quantile) / self.quantile.max(f64::MIN_POSITIVE);
        let samples = self.samples();
        // Where the values are too few to say, what was seen is all that is known.
        let at = |odds: f64| {
            let rank = (samples as f64 / (1.0 + odds)).ceil().clamp(1.0, samples.max(1) as f64);
            value_of_rank(rank as u64, self.buckets).map_or(0.0, |value| value as f64)
        };
        let (low, value, high) = (at(odds * rate), at(odds), at(odds / rate));
        Tail { down: apart(low, value), up: apart(value, high) }
    }
}

/// Returns the interval of the percentile over the values of these together; `None` for other
/// metrics, and without values.
pub fn interval_of<'a>(
    found: impl Iterator<Item = &'a SubjectData>,
    metric: Metric,
) -> Option<Interval> {
    Found::new(found).interval(metric)
}

fn anchored(pooled: &Pooled<'_>, metric: Metric, method: MethodError) -> Interval {
    let anchored = |end: f64| method.anchored(metric, end);
    let found = pooled.interval();
    Interval { low: found.low.map(anchored), high: found.high.map(anchored), ..found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_that_begins_at_the_percentile_may_not_be_there() {
        let of = |short: u64, long: u64| {
            let buckets = vec![(10_000, short), (4_000_000, long)];
            Pooled { quantile: 0.99, buckets: &buckets }.tail(2.0)
        };
        // 1.2 % wait: with half as many it is 10 us.
        let edge = of(98_800, 1_200);
        assert!((edge.down - 400f64.ln()).abs() < 1e-9 && edge.up == 0.0, "{edge:?}");
        // One in ten waits, or one in a thousand: half or twice as many change nothing.
        assert_eq!(of(90_000, 10_000), Tail::default());
        assert_eq!(of(99_900, 100), Tail::default());
    }
}
