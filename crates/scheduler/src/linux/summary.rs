//! What other CPUs may read of a run queue without its lock.

use super::rq::{NONE, ROOT, Rq};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Published by the owner at the end of each locked section; a reader sees some recent state.
#[derive(Debug, Default)]
pub(super) struct Summary {
    nr_running: AtomicU32,
    busy: AtomicU8,
    fair_nr: AtomicU32,
    fair_idle_nr: AtomicU32,
    fair_load: AtomicU64,
}

impl Summary {
    /// Publishes the state of `rq`.
    #[inline]
    pub(super) fn publish(&self, rq: &Rq) {
        let root = rq.queue(ROOT);
        self.nr_running.store(rq.nr_running, Relaxed);
        self.busy.store(u8::from(rq.curr != NONE), Relaxed);
        self.fair_nr.store(root.h_nr, Relaxed);
        self.fair_idle_nr.store(root.idle_h_nr, Relaxed);
        self.fair_load.store(root.load.weight(), Relaxed);
    }
    /// Nothing runs and nothing waits.
    #[inline]
    pub(super) fn idle(&self) -> bool {
        self.busy.load(Relaxed) == 0 && self.nr_running() == 0
    }
    /// Runnable tasks, running one included.
    #[inline]
    pub(super) fn nr_running(&self) -> u32 {
        self.nr_running.load(Relaxed)
    }
}
