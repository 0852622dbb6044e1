//! Intervals of percentiles by order statistics, over the values of all runs of a row.

use crate::change::{MethodError, Tail, apart};
use crate::measurements::{Kind, Quantity, SubjectData};
use crate::metric::{Metric, Stat};
use crate::result::Interval;
use crate::run::Run;
use schedlab_stats::{quantile_interval, value_of_rank};

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

/// The values behind a percentile, of several runs together.
struct Pooled {
    quantile: f64,
    /// Value and count, ascending; at least one.
    buckets: Vec<(u64, u64)>,
}

impl Pooled {
    /// `None`: the metric is no percentile, or there are no values.
    fn new<'a>(found: impl Iterator<Item = &'a SubjectData>, metric: Metric) -> Option<Pooled> {
        let (quantity, Stat::Percentile(rank)) = quantity(metric)? else { return None };
        let values = found.flat_map(|found| found.buckets(quantity));
        let mut buckets: Vec<(u64, u64)> = values.map(|(value, count)| (value.0, count)).collect();
        // Those of one run are in order.
        buckets.sort();
        buckets.dedup_by(|next, first| {
            let same = next.0 == first.0;
            first.1 += if same { next.1 } else { 0 };
            same
        });
        let pooled = Pooled { quantile: f64::from(rank) / 100_000.0, buckets };
        (pooled.samples() > 0).then_some(pooled)
    }

    fn samples(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// Returns the interval that holds the percentile with 95 %.
    fn interval(&self) -> Interval {
        let [low, high] =
            quantile_interval(self.quantile, &self.buckets).map(|end| end.map(|ns| ns as f64));
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
            value_of_rank(rank as u64, &self.buckets).map_or(0.0, |value| value as f64)
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
    Some(Pooled::new(found, metric)?.interval())
}

/// Returns how far the percentile of one subject may lie below and above itself; nothing for other
/// metrics.
pub(super) fn tail(found: &SubjectData, metric: Metric, rate: f64) -> Tail {
    Pooled::new(std::iter::once(found), metric)
        .map_or_else(Tail::default, |pooled| pooled.tail(rate))
}

/// Returns the interval of the percentile over all runs of a row, whose ends start from what was
/// recorded, as the percentile itself does; and the method's error with the tail of these values.
pub(super) fn of_runs(
    runs: &[Run],
    kind: Kind,
    name: &str,
    metric: Metric,
    method: MethodError,
) -> (Option<Interval>, MethodError) {
    let found = runs.iter().filter_map(|run| run.measured.find(kind, name));
    let Some(pooled) = Pooled::new(found, metric) else { return (None, method) };
    let interval = anchored(&pooled, metric, method);
    // Only the bar of a factor is made from it.
    let tail = if method.is_factor(metric) { pooled.tail(method.rate) } else { method.tail };
    (Some(interval), MethodError { tail, ..method })
}

/// As [`of_runs`], the interval alone.
pub(super) fn interval_of_runs(
    runs: &[Run],
    kind: Kind,
    name: &str,
    metric: Metric,
    method: MethodError,
) -> Option<Interval> {
    let found = runs.iter().filter_map(|run| run.measured.find(kind, name));
    Some(anchored(&Pooled::new(found, metric)?, metric, method))
}

fn anchored(pooled: &Pooled, metric: Metric, method: MethodError) -> Interval {
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
            Pooled { quantile: 0.99, buckets }.tail(2.0)
        };
        // 1.2 % wait: with half as many it is 10 us.
        let edge = of(98_800, 1_200);
        assert!((edge.down - 400f64.ln()).abs() < 1e-9 && edge.up == 0.0, "{edge:?}");
        // One in ten waits, or one in a thousand: half or twice as many change nothing.
        assert_eq!(of(90_000, 10_000), Tail::default());
        assert_eq!(of(99_900, 100), Tail::default());
    }
}
