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

/// Values of a task that wait at most: as many as let [`ALL`] suffice, but a power of two between
/// these.
const ROOM: RangeInclusive<usize> = 64..=256;
/// Waiting values of all tasks, about: 16 MiB.
const ALL: usize = 1 << 22;
/// Below the kind, which is in the two upper bits.
const BITS: u32 = 30;

/// What is counted of a task between two times at which its values go into its metrics. There are
/// few enough: every switch away from it gives a value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) preemptions: u32,
    pub(crate) migrations: u32,
    pub(crate) wakeups: u32,
}

impl Counts {
    /// Whether one of them has no room for as many again.
    #[inline(always)]
    fn are_many(self) -> bool {
        (self.preemptions | self.migrations | self.wakeups) >> (u32::BITS - 1) != 0
    }

    /// Adds them to the metrics, and begins again.
    pub(crate) fn go_into(&mut self, task: &mut TaskMetrics) {
        let Counts { preemptions, migrations, wakeups } = std::mem::take(self);
        task.preemptions += u64::from(preemptions);
        task.migrations += u64::from(migrations);
        task.wakeups += u64::from(wakeups);
    }
}

/// How long a task waited before it runs, as it is kept here. It is recorded when the run ends,
/// together with its length: one touch of the task's values instead of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waited(u32);

impl Waited {
    /// Nothing is left to record. No wait looks like this: the kind would be another.
    pub(crate) const NOTHING: Waited = Waited(u32::MAX);

    /// A task comes onto a CPU after waiting so long. What has no room here is recorded at once.
    #[inline(always)]
    pub(crate) fn after(
        (kind, value): (Kind, u64),
        values: &PendingValues,
        tasks: &mut [TaskMetrics],
        task: usize,
        counts: &mut Counts,
    ) -> Waited {
        if !values.are_kept() {
            return Waited::NOTHING;
        }
        if value >> BITS != 0 {
            record_long(&mut tasks[task], kind, value, counts);
            return Waited::NOTHING;
        }
        Waited(packed(kind, value))
    }
}

/// Collects the values of every task one behind the other and records many at once: the counters
/// and buckets of a distribution have mostly left the caches until it is touched again, and the
/// more values come at once, the more of them meet in one cache line. Of a task's waiting values
/// one line is in use.
#[derive(Debug)]
pub(crate) struct PendingValues {
    /// Where the next value of each task goes, close together (67 million tasks are possible).
    /// Empty: values are not kept.
    next: Vec<u32>,
    /// `room`, a power of two, values for each task.
    values: Vec<u32>,
    room: usize,
}

impl PendingValues {
    pub(crate) fn new(tasks: usize) -> PendingValues {
        let room = (ALL / tasks.max(1)).clamp(*ROOM.start(), *ROOM.end());
        let room = 1 << room.ilog2();
        let next = (0..tasks).map(|task| (task * room) as u32).collect();
        PendingValues { next, values: vec![0; tasks * room], room }
    }

    /// Keeps no values, for a run whose caller measures its events.
    pub(crate) fn none() -> PendingValues {
        PendingValues { next: Vec::new(), values: Vec::new(), room: 1 }
    }

    /// Whether values go into the distributions of tasks.
    #[inline(always)]
    pub(crate) fn are_kept(&self) -> bool {
        !self.next.is_empty()
    }

    #[inline(always)]
    pub(crate) fn record(
        &mut self,
        tasks: &mut [TaskMetrics],
        task: usize,
        kind: Kind,
        value: u64,
        counts: &mut Counts,
    ) {
        if !self.are_kept() {
            // No full room takes them along.
            if counts.are_many() {
                counts.go_into(&mut tasks[task]);
            }
            return;
        }
        if value >> BITS != 0 {
            return record_long(&mut tasks[task], kind, value, counts);
        }
        self.push(tasks, task, packed(kind, value), counts);
    }

    /// A task stops running.
    #[inline(always)]
    pub(crate) fn record_run(
        &mut self,
        tasks: &mut [TaskMetrics],
        task: usize,
        waited: &mut Waited,
        ran: u64,
        counts: &mut Counts,
    ) {
        let wait = *waited;
        let Some(&next) = self.next.get(task) else {
            return self.record(tasks, task, Kind::RunLength, ran, counts);
        };
        // Mostly there is a wait too, and there is room for both.
        let at = next as usize;
        if let Some(both) = self.values.get_mut(at..at + 2)
            && wait != Waited::NOTHING
            && ran >> BITS == 0
            && (at + 2) & (self.room - 1) > 1
        {
            *waited = Waited::NOTHING;
            both.copy_from_slice(&[wait.0, packed(Kind::RunLength, ran)]);
            self.next[task] += 2;
            return;
        }
        self.record_wait(tasks, task, waited, counts);
        self.record(tasks, task, Kind::RunLength, ran, counts);
    }

    /// Records a wait that is not recorded yet.
    #[inline(always)]
    pub(crate) fn record_wait(
        &mut self,
        tasks: &mut [TaskMetrics],
        task: usize,
        waited: &mut Waited,
        counts: &mut Counts,
    ) {
        let value = std::mem::replace(waited, Waited::NOTHING);
        if value != Waited::NOTHING {
            self.push(tasks, task, value.0, counts);
        }
    }

    #[inline(always)]
    fn push(&mut self, tasks: &mut [TaskMetrics], task: usize, value: u32, counts: &mut Counts) {
        let next = &mut self.next[task];
        let at = *next as usize;
        self.values[at] = value;
        *next += 1;
        if (at + 1) & (self.room - 1) == 0 {
            *next -= self.room as u32;
            counts.go_into(&mut tasks[task]);
            record_all(&mut tasks[task], &self.values[task * self.room..][..self.room]);
        }
    }

    /// Moves everything so far of one task into its distributions. Values are kept.
    pub(crate) fn flush_task(&mut self, tasks: &mut [TaskMetrics], task: usize) {
        let (room, next) = (self.room, &mut self.next[task]);
        let waiting = *next as usize % room;
        record_all(&mut tasks[task], &self.values[task * room..][..waiting]);
        *next -= waiting as u32;
    }

    /// Moves everything so far into the distributions.
    pub(crate) fn flush(&mut self, tasks: &mut [TaskMetrics]) {
        let room = self.room as u32;
        for ((task, values), next) in
            tasks.iter_mut().zip(self.values.chunks(self.room)).zip(&mut self.next)
        {
            record_all(task, &values[..(*next % room) as usize]);
            *next -= *next % room;
        }
    }
}

/// Returns a value with its kind, as they wait. It is less than 2 to the power of [`BITS`].
#[inline]
fn packed(kind: Kind, value: u64) -> u32 {
    value as u32 | (kind as u32) << BITS
}

/// A value that has no room among those that wait.
#[cold]
#[inline(never)]
fn record_long(task: &mut TaskMetrics, kind: Kind, value: u64, counts: &mut Counts) {
    counts.go_into(task);
    record_value(task, kind as usize, value);
}

/// Records a value of a kind.
#[inline]
fn record_value(task: &mut TaskMetrics, kind: usize, value: u64) {
    if kind == Kind::WakeLatency as usize
        && let Some(queued) = &mut task.limited_latency
    {
        queued.record(Ns(value));
    }
    distributions(task)[kind].record(Ns(value));
}

#[inline(never)]
fn record_all(task: &mut TaskMetrics, values: &[u32]) {
    let split = |value: u32| ((value >> BITS) as usize, u64::from(value & ((1 << BITS) - 1)));
    if task.limited_latency.is_some() {
        for &value in values {
            let (kind, value) = split(value);
            record_value(task, kind, value);
        }
        return;
    }
    let distributions = distributions(task);
    for &value in values {
        let (kind, value) = split(value);
        distributions[kind].record(Ns(value));
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
        let rooms =
            [0, 1, 16_384, 16_385, 65_536, 1_000_000].map(|tasks| PendingValues::new(tasks).room);
        assert_eq!(rooms, [256, 256, 256, 128, 64, 64]);
    }

    #[test]
    fn values_that_are_not_kept_leave_counts_alone_until_they_are_many() {
        let mut log = PendingValues::none();
        let mut tasks = vec![TaskMetrics::default()];
        let mut counts = Counts { wakeups: 7, ..Counts::default() };
        log.record(&mut tasks, 0, Kind::RunLength, 3_000_000_000, &mut counts);
        assert_eq!((counts.wakeups, tasks[0].wakeups), (7, 0));
        counts.wakeups = 1 << 31;
        let wait = (Kind::WakeLatency, 5);
        let mut waited = Waited::after(wait, &log, &mut tasks, 0, &mut counts);
        log.record_run(&mut tasks, 0, &mut waited, 9, &mut counts);
        log.flush(&mut tasks);
        assert_eq!((counts.wakeups, tasks[0].wakeups), (0, 1 << 31));
        assert_eq!((tasks[0].run_length.count(), tasks[0].wake_latency.count()), (0, 0));
    }

    #[test]
    fn every_value_arrives_where_it_belongs() {
        let mut log = PendingValues::new(2);
        let mut tasks = vec![TaskMetrics::default(), TaskMetrics::default()];
        let long = 3_000_000_000;
        let mut counts = [Counts::default(), Counts::default()];
        // More than one room of them.
        for i in 0..300 {
            for counts in &mut counts {
                (counts.migrations, counts.wakeups) = (counts.migrations + 1, counts.wakeups + 2);
            }
            let [a, b] = &mut counts;
            log.record(&mut tasks, 0, Kind::WakeLatency, i, a);
            log.record(&mut tasks, 1, Kind::PreemptWait, 1_000 + i, b);
            log.record(&mut tasks, 1, Kind::Response, (1 << 30) - 1, b);
            log.record(&mut tasks, 1, Kind::RunLength, long, b);
        }
        // Counts go with a full room, and with a value that takes none.
        assert_eq!(counts.map(|c| (c.migrations, c.wakeups)), [(44, 88), (0, 0)]);
        assert_eq!((tasks[0].migrations, tasks[1].migrations, tasks[1].wakeups), (256, 300, 600));
        log.flush(&mut tasks);
        log.flush(&mut tasks);
        let seen = |d: &Distribution| (d.count(), d.sum_ns(), d.min(), d.max());
        let [a, b] = &tasks[..] else { unreachable!() };
        assert_eq!(seen(&a.wake_latency), (300, 44_850, Ns(0), Ns(299)));
        assert_eq!(seen(&b.preempt_wait), (300, 344_850, Ns(1_000), Ns(1_299)));
        assert_eq!(
            seen(&b.response),
            (300, 300 * ((1 << 30) - 1), Ns((1 << 30) - 1), Ns((1 << 30) - 1))
        );
        assert_eq!(seen(&b.run_length), (300, 300 * u128::from(long), Ns(long), Ns(long)));
        assert_eq!((b.wake_latency.count(), a.response.count()), (0, 0));
    }
}
