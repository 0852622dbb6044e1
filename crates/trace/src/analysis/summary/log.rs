//! Durations on their way into the distributions of the tasks.

use super::TaskSummary;
use schedlab_model::Ns;

/// Which distribution of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum Kind {
    /// A wait after a wakeup, with none of it throttled.
    Wakeup,
    Preempted,
    Response,
    Run,
}

/// Below the kind, which is in the two upper bits.
const BITS: u32 = 30;
/// Of a task: how many durations wait, and they. Two lines of a cache.
const ROOM: usize = 32;

/// Keeps the last durations of each task together, and moves many at once: the distributions of
/// thousands of tasks have mostly left the caches until the next duration comes, and each has
/// several lines. What a distribution says does not depend on the order in which its durations
/// came.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    /// [`ROOM`] for each task that has had a duration, or has a lower number than one that had.
    slots: Vec<[u32; ROOM]>,
}

impl Log {
    /// Adds a duration of a task.
    #[inline]
    pub(super) fn add(&mut self, tasks: &mut [TaskSummary], task: usize, kind: Kind, length: Ns) {
        if length.0 >> BITS != 0 {
            return tasks[task].add(kind, length);
        }
        if task >= self.slots.len() {
            self.grow(tasks.len());
        }
        let slot = &mut self.slots[task];
        slot[0] += 1;
        slot[slot[0] as usize] = (kind as u32) << BITS | length.0 as u32;
        if slot[0] as usize == ROOM - 1 {
            move_into(&mut tasks[task], slot);
        }
    }

    #[cold]
    fn grow(&mut self, tasks: usize) {
        self.slots.resize(tasks, [0; ROOM]);
    }

    /// Moves the durations of one task.
    pub(super) fn move_one(&mut self, tasks: &mut [TaskSummary], task: usize) {
        if let Some(slot) = self.slots.get_mut(task) {
            move_into(&mut tasks[task], slot);
        }
    }

    /// Moves all durations.
    pub(super) fn move_all(&mut self, tasks: &mut [TaskSummary]) {
        for (task, slot) in tasks.iter_mut().zip(&mut self.slots) {
            move_into(task, slot);
        }
    }
}

#[inline(never)]
fn move_into(task: &mut TaskSummary, slot: &mut [u32; ROOM]) {
    let count = std::mem::take(&mut slot[0]) as usize;
    for &one in &slot[1..=count] {
        let kind = match one >> BITS {
            0 => Kind::Wakeup,
            1 => Kind::Preempted,
            2 => Kind::Response,
            _ => Kind::Run,
        };
        task.add(kind, Ns(u64::from(one & ((1 << BITS) - 1))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many as fill the slot of a task more than once, and some that are too long for it.
    #[test]
    fn what_waits_arrives_where_it_belongs() {
        let kinds = [Kind::Wakeup, Kind::Preempted, Kind::Response, Kind::Run];
        let mut log = Log::default();
        let mut tasks = vec![TaskSummary::default(), TaskSummary::default()];
        let mut expected = tasks.clone();
        for number in 0..300_u64 {
            let (task, kind) = (number as usize % 3 % 2, kinds[number as usize % 4]);
            let length = Ns(if number % 7 == 0 { (1 << 30) + number } else { number * 1_000 });
            log.add(&mut tasks, task, kind, length);
            expected[task].add(kind, length);
        }
        log.move_one(&mut tasks, 1);
        log.move_all(&mut tasks);
        log.move_all(&mut tasks);
        for (task, expected) in tasks.iter().zip(&expected) {
            let all = |task: &TaskSummary| {
                let all =
                    [&task.wake_latency, &task.preempt_wait, &task.response, &task.run_length];
                all.map(|one| (one.count(), one.sum(), one.buckets().collect::<Vec<_>>()))
            };
            assert_eq!(all(task), all(expected));
        }
        assert!(tasks[0].wake_latency.max() > Ns(1 << 30));
    }
}
