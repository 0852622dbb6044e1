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

/// Values that wait for one distribution: their number, then they themselves. One cache line.
type Line = [u32; 16];

const ROOM: usize = 15;

/// Collects the values of every distribution in a cache line of its own and records fifteen at once: the
/// counters and buckets of a distribution have mostly left the caches until it is touched again.
#[derive(Debug)]
pub(crate) struct Log {
    lines: Vec<Line>,
}

impl Log {
    pub(crate) fn new(tasks: usize) -> Log {
        Log { lines: vec![[0; 16]; 4 * tasks] }
    }

    #[inline]
    pub(crate) fn record(&mut self, tasks: &mut [TaskMetrics], task: usize, kind: Kind, value: u64) {
        let Ok(short) = u32::try_from(value) else {
            distribution(tasks, task, kind as usize).record(Ns(value));
            return;
        };
        let line = &mut self.lines[4 * task + kind as usize];
        let count = line[0] as usize + 1;
        line[count & 15] = short;
        line[0] = count as u32;
        if count == ROOM {
            line[0] = 0;
            distribution(tasks, task, kind as usize).record_all(&line[1..]);
        }
    }

    /// Everything so far goes into the distributions.
    pub(crate) fn flush(&mut self, tasks: &mut [TaskMetrics]) {
        for (i, line) in self.lines.iter_mut().enumerate() {
            let count = std::mem::take(&mut line[0]) as usize;
            if count > 0 {
                distribution(tasks, i / 4, i % 4).record_all(&line[1..=count]);
            }
        }
    }
}

#[inline]
fn distribution(tasks: &mut [TaskMetrics], task: usize, kind: usize) -> &mut Distribution {
    let task = &mut tasks[task];
    match kind {
        0 => &mut task.wake_latency,
        1 => &mut task.preempt_wait,
        2 => &mut task.response,
        _ => &mut task.run_length,
    }
}
