//! Intervals of percentiles by order statistics, over the values of all runs of a row.

use crate::change::MethodError;
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

/// Returns the interval of the percentile over the values of these together.
pub fn interval_of<'a>(
    found: impl Iterator<Item = &'a SubjectData>,
    metric: Metric,
) -> Option<Interval> {
    let (quantity, Stat::Percentile(rank)) = quantity(metric)? else { return None };
    let mut values: BTreeMap<u64, u64> = BTreeMap::new();
    for (value, count) in found.flat_map(|found| found.buckets(quantity)) {
        *values.entry(value.0).or_default() += count;
    }
    let buckets: Vec<(u64, u64)> = values.into_iter().collect();
    let samples: u64 = buckets.iter().map(|(_, count)| count).sum();
    if samples == 0 {
        return None;
    }
    let ends = quantile_interval(f64::from(rank) / 100_000.0, &buckets);
    let [low, high] = ends.map(|end| end.map(|ns| ns as f64));
    Some(Interval { low, high, samples })
}
