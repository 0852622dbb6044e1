//! Values on their way into the distributions of the tasks.

use super::{Distribution, TaskMetrics};
use schedlab_model::Ns;

/// Which distribution of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    WakeLatency,
    PreemptWait,
    Response,
    RunLength,
}

/// Values of one task that wait, with their kind in the two upper bits.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Page([u32; ROOM]);

const ROOM: usize = 64;
/// Below the kind.
const BITS: u32 = 30;

/// Collects the values of every task one behind the other and records many at once: the counters and buckets of a
/// distribution have mostly left the caches until it is touched again. Of four cache lines a task one is in use.
#[derive(Debug)]
pub(crate) struct Log {
    /// How many values of each task wait, close together.
    counts: Vec<u8>,
    pages: Vec<Page>,
}

impl Log {
    pub(crate) fn new(tasks: usize) -> Log {
        Log { counts: vec![0; tasks], pages: vec![Page([0; ROOM]); tasks] }
    }

    #[inline(always)]
    pub(crate) fn record(&mut self, tasks: &mut [TaskMetrics], task: usize, kind: Kind, value: u64) {
        if value >> BITS != 0 {
            distributions(&mut tasks[task])[kind as usize].record(Ns(value));
            return;
        }
        let (page, count) = (&mut self.pages[task].0, &mut self.counts[task]);
        page[usize::from(*count) % ROOM] = value as u32 | (kind as u32) << BITS;
        *count += 1;
        if usize::from(*count) == ROOM {
            *count = 0;
            record_all(&mut tasks[task], page);
        }
    }

    /// Reads what recording a value of `task` will touch.
    #[inline]
    pub(crate) fn seen(&self, task: usize) -> u64 {
        let count = self.counts.get(task).copied().unwrap_or(0);
        self.pages.get(task).map_or(0, |page| u64::from(page.0[usize::from(count) % ROOM]))
    }

    /// Everything so far goes into the distributions.
    pub(crate) fn flush(&mut self, tasks: &mut [TaskMetrics]) {
        for ((task, page), count) in tasks.iter_mut().zip(&self.pages).zip(&mut self.counts) {
            record_all(task, &page.0[..usize::from(std::mem::take(count))]);
        }
    }
}

#[inline(never)]
fn record_all(task: &mut TaskMetrics, values: &[u32]) {
    let distributions = distributions(task);
    for &value in values {
        distributions[(value >> BITS) as usize].record(Ns(u64::from(value & ((1 << BITS) - 1))));
    }
}

/// In the order of [`Kind`].
#[inline]
fn distributions(task: &mut TaskMetrics) -> [&mut Distribution; 4] {
    [&mut task.wake_latency, &mut task.preempt_wait, &mut task.response, &mut task.run_length]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_arrives_where_it_belongs() {
        let mut log = Log::new(2);
        let mut tasks = vec![TaskMetrics::default(), TaskMetrics::default()];
        let long = 3_000_000_000;
        for i in 0..100 {
            log.record(&mut tasks, 0, Kind::WakeLatency, i);
            log.record(&mut tasks, 1, Kind::PreemptWait, 1_000 + i);
            log.record(&mut tasks, 1, Kind::Response, (1 << 30) - 1);
            log.record(&mut tasks, 1, Kind::RunLength, long);
        }
        log.flush(&mut tasks);
        log.flush(&mut tasks);
        let seen = |d: &Distribution| (d.count(), d.sum_ns(), d.min(), d.max());
        let [a, b] = &tasks[..] else { unreachable!() };
        assert_eq!(seen(&a.wake_latency), (100, 4_950, Ns(0), Ns(99)));
        assert_eq!(seen(&b.preempt_wait), (100, 104_950, Ns(1_000), Ns(1_099)));
        assert_eq!(seen(&b.response), (100, 100 * ((1 << 30) - 1), Ns((1 << 30) - 1), Ns((1 << 30) - 1)));
        assert_eq!(seen(&b.run_length), (100, 100 * u128::from(long), Ns(long), Ns(long)));
        assert_eq!((b.wake_latency.count(), a.response.count()), (0, 0));
    }
}
