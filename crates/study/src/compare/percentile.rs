//! Intervals of percentiles by order statistics, over the values of all runs of a row.

use crate::change::{MethodError, Tail, apart};
use crate::measurements::{Kind, Quantity, SubjectData};
use crate::metric::{Metric, Stat};
use crate::result::Interval;
use crate::run::Run;
use schedlab_stats::quantile_interval;
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

/// Returns the interval that holds the percentile with 95 %; `None` for other metrics, and without
/// values. Its ends start from what was recorded, as the percentile itself does.
pub(super) fn interval(
    runs: &[Run],
    kind: Kind,
    name: &str,
    metric: Metric,
    method: MethodError,
) -> Option<Interval> {
    let found = interval_of(runs.iter().filter_map(|run| run.measured.find(kind, name)), metric)?;
    let anchored = |end: f64| method.anchored(metric, end);
    Some(Interval { low: found.low.map(anchored), high: found.high.map(anchored), ..found })
}

/// How often a wakeup finds its CPU busy differs from one recording of a setting to the next by up
/// to this factor: where one wakeup of a hundred waits for a turn of another task, p99 is either
/// that turn or nothing. Fitted to the pairs of `recordings/pairs`.
pub(super) const RATE_OF_WAITS: f64 = 2.0;

/// Returns how far the percentile may lie below and above itself: where it is when values beyond it
/// are [`RATE_OF_WAITS`] times as likely, or that much less, with what their number leaves open (95
/// %). Nothing for metrics that are no percentiles.
pub(super) fn tail<'a>(found: impl Iterator<Item = &'a SubjectData>, metric: Metric) -> Tail {
    match quantity(metric) {
        Some((quantity, Stat::Percentile(rank))) => tail_of_buckets(&pooled(found, quantity), rank),
        _ => Tail::default(),
    }
}

fn tail_of_buckets(buckets: &[(u64, u64)], rank: u32) -> Tail {
    let (Some(first), Some(last)) = (buckets.first(), buckets.last()) else {
        return Tail::default();
    };
    let quantile = f64::from(rank) / 100_000.0;
    let odds = (1.0 - quantile) / quantile.max(f64::MIN_POSITIVE);
    let at = |odds: f64| quantile_interval(1.0 / (1.0 + odds), buckets);
    let ([low, _], [_, high]) = (at(odds * RATE_OF_WAITS), at(odds / RATE_OF_WAITS));
    // Where the values are too few to say, what was seen is all that is known.
    let (low, high) = (low.unwrap_or(first.0), high.unwrap_or(last.0));
    let value = value_at(quantile, buckets);
    Tail { down: apart(low as f64, value), up: apart(value, high as f64) }
}

/// Returns the same over all runs of a row.
pub(super) fn tail_of(runs: &[Run], kind: Kind, name: &str, metric: Metric) -> Tail {
    tail(runs.iter().filter_map(|run| run.measured.find(kind, name)), metric)
}

/// Returns the value that this part of all values does not exceed.
fn value_at(quantile: f64, buckets: &[(u64, u64)]) -> f64 {
    let count: u64 = buckets.iter().map(|(_, count)| count).sum();
    let rank = (count as f64 * quantile).ceil().max(1.0) as u64;
    let mut seen = 0;
    let reached = buckets.iter().find(|(_, count)| {
        seen += count;
        seen >= rank
    });
    reached.map_or(0.0, |(value, _)| *value as f64)
}

fn pooled<'a>(found: impl Iterator<Item = &'a SubjectData>, quantity: Quantity) -> Vec<(u64, u64)> {
    let mut values: BTreeMap<u64, u64> = BTreeMap::new();
    for (value, count) in found.flat_map(|found| found.buckets(quantity)) {
        *values.entry(value.0).or_default() += count;
    }
    values.into_iter().collect()
}

/// Returns the interval of the percentile over the values of these together.
pub fn interval_of<'a>(
    found: impl Iterator<Item = &'a SubjectData>,
    metric: Metric,
) -> Option<Interval> {
    let (quantity, Stat::Percentile(rank)) = quantity(metric)? else { return None };
    let buckets = pooled(found, quantity);
    let samples: u64 = buckets.iter().map(|(_, count)| count).sum();
    if samples == 0 {
        return None;
    }
    let ends = quantile_interval(f64::from(rank) / 100_000.0, &buckets);
    let [low, high] = ends.map(|end| end.map(|ns| ns as f64));
    Some(Interval { low, high, samples })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_that_begins_at_the_percentile_may_not_be_there() {
        let of =
            |short: u64, long: u64| tail_of_buckets(&[(10_000, short), (4_000_000, long)], 99_000);
        // 1.2 % wait: with half as many it is 10 us.
        let edge = of(98_800, 1_200);
        assert!((edge.down - 400f64.ln()).abs() < 1e-9 && edge.up == 0.0, "{edge:?}");
        // One in ten waits, or one in a thousand: half or twice as many change nothing.
        assert_eq!(of(90_000, 10_000), Tail::default());
        assert_eq!(of(99_900, 100), Tail::default());
    }
}
