//! Values on their way into the distributions of the tasks.

use super::{Distribution, TaskMetrics};
use schedlab_model::Ns;
use std::ops::RangeInclusive;

/// Which distribution of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    WakeLatency,
    PreemptWait,
    Response,
    RunLength,
}

/// Values of a task that wait at most: as many as let [`ALL`] suffice, but a power of two between these.
const ROOM: RangeInclusive<usize> = 64..=256;
/// Waiting values of all tasks, about: 16 MiB.
const ALL: usize = 1 << 22;
/// Below the kind, which is in the two upper bits.
const BITS: u32 = 30;

/// Collects the values of every task one behind the other and records many at once: the counters and buckets of a
/// distribution have mostly left the caches until it is touched again, and the more values come at once, the more of
/// them meet in one cache line. Of a task's waiting values one line is in use.
#[derive(Debug)]
pub(crate) struct Log {
    /// Where the next value of each task goes, close together (67 million tasks are possible).
    next: Vec<u32>,
    /// `room`, a power of two, values for each task.
    values: Vec<u32>,
    room: usize,
}

impl Log {
    pub(crate) fn new(tasks: usize) -> Log {
        let room = (ALL / tasks.max(1)).clamp(*ROOM.start(), *ROOM.end());
        let room = 1 << room.ilog2();
        let next = (0..tasks).map(|task| (task * room) as u32).collect();
        Log { next, values: vec![0; tasks * room], room }
    }

    #[inline(always)]
    pub(crate) fn record(&mut self, tasks: &mut [TaskMetrics], task: usize, kind: Kind, value: u64) {
        if value >> BITS != 0 {
            distributions(&mut tasks[task])[kind as usize].record(Ns(value));
            return;
        }
        let next = &mut self.next[task];
        let at = *next as usize;
        self.values[at] = value as u32 | (kind as u32) << BITS;
        *next += 1;
        if (at + 1) & (self.room - 1) == 0 {
            *next -= self.room as u32;
            record_all(&mut tasks[task], &self.values[task * self.room..][..self.room]);
        }
    }

    /// Reads what recording a value of `task` will touch.
    #[inline]
    pub(crate) fn seen(&self, task: usize) -> u64 {
        let next = self.next.get(task).copied().unwrap_or(0);
        self.values.get(next as usize).map_or(0, |&value| u64::from(value))
    }

    /// Everything so far goes into the distributions.
    pub(crate) fn flush(&mut self, tasks: &mut [TaskMetrics]) {
        let room = self.room as u32;
        for ((task, values), next) in tasks.iter_mut().zip(self.values.chunks(self.room)).zip(&mut self.next)
        {
            record_all(task, &values[..(*next % room) as usize]);
            *next -= *next % room;
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
    fn many_tasks_wait_in_less_room() {
        let rooms = [0, 1, 16_384, 16_385, 65_536, 1_000_000].map(|tasks| Log::new(tasks).room);
        assert_eq!(rooms, [256, 256, 256, 128, 64, 64]);
    }

    #[test]
    fn every_value_arrives_where_it_belongs() {
        let mut log = Log::new(2);
        let mut tasks = vec![TaskMetrics::default(), TaskMetrics::default()];
        let long = 3_000_000_000;
        // More than one room of them.
        for i in 0..300 {
            log.record(&mut tasks, 0, Kind::WakeLatency, i);
            log.record(&mut tasks, 1, Kind::PreemptWait, 1_000 + i);
            log.record(&mut tasks, 1, Kind::Response, (1 << 30) - 1);
            log.record(&mut tasks, 1, Kind::RunLength, long);
        }
        log.flush(&mut tasks);
        log.flush(&mut tasks);
        let seen = |d: &Distribution| (d.count(), d.sum_ns(), d.min(), d.max());
        let [a, b] = &tasks[..] else { unreachable!() };
        assert_eq!(seen(&a.wake_latency), (300, 44_850, Ns(0), Ns(299)));
        assert_eq!(seen(&b.preempt_wait), (300, 344_850, Ns(1_000), Ns(1_299)));
        assert_eq!(seen(&b.response), (300, 300 * ((1 << 30) - 1), Ns((1 << 30) - 1), Ns((1 << 30) - 1)));
        assert_eq!(seen(&b.run_length), (300, 300 * u128::from(long), Ns(long), Ns(long)));
        assert_eq!((b.wake_latency.count(), a.response.count()), (0, 0));
    }
}
