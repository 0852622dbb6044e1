//! Values on their way into the distributions of the tasks.

use super::TaskMetrics;
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

const ROOM: usize = 512;

/// Collects values and records them many at once: each touches memory that has left the caches, and in a
/// batch the processor waits for several of them at the same time.
#[derive(Debug)]
pub(crate) struct Log {
    /// Task times four plus the kind, and the value.
    values: Vec<(u32, u64)>,
}

impl Log {
    pub(crate) fn new() -> Log {
        Log { values: Vec::with_capacity(ROOM) }
    }

    #[inline]
    pub(crate) fn record(&mut self, tasks: &mut [TaskMetrics], task: usize, kind: Kind, value: u64) {
        if self.values.len() == ROOM {
            self.flush(tasks);
        }
        self.values.push(((task as u32) << 2 | kind as u32, value));
    }

    /// Everything so far goes into the distributions.
    #[inline(never)]
    pub(crate) fn flush(&mut self, tasks: &mut [TaskMetrics]) {
        for &(key, value) in &self.values {
            let task = &mut tasks[(key >> 2) as usize];
            let distribution = match key & 3 {
                0 => &mut task.wake_latency,
                1 => &mut task.preempt_wait,
                2 => &mut task.response,
                _ => &mut task.run_length,
            };
            distribution.record(Ns(value));
        }
        self.values.clear();
    }
}
