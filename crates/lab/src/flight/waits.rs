//! A histogram of waits for a scraper, in the classic and the native form. Its own buckets are
//! those that the kernel counts in (`bpf/sums.h`): eight an octave, 6 to 12 % wide, of which the
//! bounds of the classic form are some.

use prometheus_client::encoding::{
    EncodeMetric, MetricEncoder, NativeHistogram, NativeHistogramBuckets, NoLabelSet,
};
use prometheus_client::metrics::histogram::{
    DEFAULT_NATIVE_HISTOGRAM_ZERO_THRESHOLD, exponential_buckets,
};
use prometheus_client::metrics::{MetricType, TypedMetric};
use schedlab_host::in_kernel::{BUCKETS, bucket, bucket_bound};
use schedlab_model::Ns;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Bounds of the classic form: from 1 us to 16.8 s by factors of two, as runqlat has them.
const CLASSIC: u16 = 25;

/// Buckets of the native form grow by 2^(1/8), 9 %: the default of Prometheus' clients.
const SCHEMA: i32 = 3;
const NATIVE_AN_OCTAVE: f64 = 8.0;

/// Of which only the recorder's thread changes the counts: none is lost without a lock on the bus
/// for each.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    sum: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Counts {
    fn default() -> Counts {
        Counts { sum: AtomicU64::new(0), buckets: [const { AtomicU64::new(0) }; BUCKETS] }
    }
}

fn add(to: &AtomicU64, more: u64) {
    to.store(to.load(Relaxed).wrapping_add(more), Relaxed);
}

impl Waits {
    pub(super) fn observe(&self, wait: Ns) {
        add(&self.0.sum, wait.0);
        add(&self.0.buckets[bucket(wait)], 1);
    }

    /// Adds waits that were counted elsewhere: their time, and how many each bucket has.
    pub(super) fn add(&self, waited: Ns, counts: &[u64]) {
        add(&self.0.sum, waited.0);
        for (bucket, count) in self.0.buckets.iter().zip(counts) {
            add(bucket, *count);
        }
    }
}

/// Returns the native bucket in which the middle of a bucket of the kernel is.
fn native(bucket: usize) -> i32 {
    let lower = bucket.checked_sub(1).map_or(Ns::ZERO, bucket_bound);
    let middle = lower.0.midpoint(bucket_bound(bucket).0) as f64 / 1e9;
    (middle.log2() * NATIVE_AN_OCTAVE).ceil() as i32
}

/// Spans and deltas as the native form has them: gaps and lengths, and what a bucket has more than
/// the one before it.
fn spans(counts: &[u64]) -> (Vec<(i32, u32)>, Vec<i64>) {
    let (mut spans, mut deltas): (Vec<(i32, u32)>, Vec<i64>) = (Vec::new(), Vec::new());
    let (mut next, mut before) = (0, 0i64);
    let mut at = 0;
    while at < counts.len() {
        let place = native(at);
        let mut count = 0;
        while at < counts.len() && native(at) == place {
            count += counts[at];
            at += 1;
        }
        if count == 0 {
            continue;
        }
        match spans.last_mut() {
            Some((_, length)) if place == next => *length += 1,
            _ => spans.push((place - next, 1)),
        }
        let count = count.cast_signed();
        deltas.push(count - before);
        (next, before) = (place + 1, count);
    }
    (spans, deltas)
}

impl TypedMetric for Waits {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Waits {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let counts: Vec<u64> = self.0.buckets.iter().map(|count| count.load(Relaxed)).collect();
        let sum = self.0.sum.load(Relaxed) as f64 / 1e9;
        let bounds = exponential_buckets(1e-6, 2.0, CLASSIC).chain([f64::INFINITY]);
        let mut from = 0;
        let classic: Vec<(f64, u64)> = bounds
            .enumerate()
            .map(|(octave, bound)| {
                let to = if bound.is_finite() { octave * 8 + 8 } else { BUCKETS };
                let count = counts[from..to].iter().sum();
                from = to;
                (bound, count)
            })
            .collect();
        let (spans, deltas) = spans(&counts);
        let buckets = |spans, deltas| NativeHistogramBuckets { spans, deltas };
        let native = NativeHistogram {
            schema: SCHEMA,
            zero_threshold: DEFAULT_NATIVE_HISTOGRAM_ZERO_THRESHOLD,
            zero_count: 0,
            negative: buckets(&[], &[]),
            positive: buckets(&spans, &deltas),
            created: None,
        };
        let all = counts.iter().sum();
        encoder.encode_histogram_with_native::<NoLabelSet>(sum, all, &classic, None, native)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The native bucket with number i holds what is longer than 2^((i-1)/8) s and no longer than
    /// 2^(i/8) s.
    #[test]
    fn native_buckets_are_where_the_waits_are() {
        for at in 1..BUCKETS - 1 {
            let (lower, upper) = (bucket_bound(at - 1).0 as f64, bucket_bound(at).0 as f64);
            let bound = |number: i32| 1e9 * (f64::from(number) / 8.0).exp2();
            let place = native(at);
            assert!(bound(place) > lower && bound(place - 1) < upper, "{at}");
        }
        let mut counts = [0; BUCKETS];
        (counts[100], counts[101], counts[150]) = (5, 7, 1);
        let (spans, deltas) = spans(&counts);
        assert_eq!(
            deltas
                .iter()
                .scan(0, |sum, delta| {
                    *sum += delta;
                    Some(*sum)
                })
                .sum::<i64>(),
            13
        );
        assert_eq!(spans.iter().map(|(_, length)| *length as usize).sum::<usize>(), deltas.len());
        assert_eq!(spans[0].0, native(100));
    }
}
