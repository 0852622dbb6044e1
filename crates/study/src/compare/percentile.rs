//! Intervals of percentiles by order statistics, over the values of all runs of a row.

use crate::measurements::{Kind, Quantity};
use crate::metric::{Metric, Stat};
use crate::result::Interval;
use crate::run::Run;
use schedlab_stats::quantile_ranks;
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

/// Returns the interval that holds the percentile with 95 %; `None` for other metrics, and without values.
pub(super) fn interval(runs: &[Run], kind: Kind, name: &str, metric: Metric) -> Option<Interval> {
    let (quantity, Stat::Percentile(rank)) = quantity(metric)? else { return None };
    let mut values: BTreeMap<u64, u64> = BTreeMap::new();
    for found in runs.iter().filter_map(|run| run.measured.find(kind, name)) {
        for (value, count) in found.buckets(quantity) {
            *values.entry(value.0).or_default() += count;
        }
    }
    let samples: u64 = values.values().sum();
    if samples == 0 {
        return None;
    }
    let (low, high) = quantile_ranks(samples, f64::from(rank) / 100_000.0);
    let at = |rank: u64| {
        let mut below = 0;
        let reached = values.iter().find(|(_, count)| {
            below += **count;
            below >= rank
        });
        reached.map(|(value, _)| *value as f64)
    };
    Some(Interval { low: low.and_then(at), high: high.and_then(at), samples })
}
