//! How many values a statistic needs.

use schedlab_study::metric::{Metric, Stat};
use schedlab_trace::analysis::TaskSummary;

/// Returns the number of values that a statistic needs: for a percentile so many that one lies
/// beyond it.
pub(super) fn needed(stat: Stat) -> u64 {
    match stat {
        Stat::Percentile(thousandths) => u64::from(100_000_u32.div_ceil(100_000 - thousandths)),
        _ => 10,
    }
}

/// Returns why the value of `metric` says nothing: it comes from too few values.
pub(super) fn too_few(sum: &TaskSummary, metric: Metric) -> Option<String> {
    let (values, stat) = match metric {
        Metric::Latency(stat) => (&sum.wake_latency, stat),
        Metric::Wait(stat) => (&sum.preempt_wait, stat),
        Metric::Response(stat) => (&sum.response, stat),
        Metric::Run(stat) => (&sum.run_length, stat),
        _ => return None,
    };
    let needed = needed(stat);
    let count = values.count();
    let text = || format!("{count} values were seen and {needed} are needed");
    (count < needed).then(text)
}
