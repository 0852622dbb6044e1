//! Where each task's entity is: on which CPU and in which slot of that CPU's store.

use crate::linux::core::rq::EntityId;
use schedlab_model::{CpuId, TaskId};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const FIRST: usize = 1024;
const SEGMENTS: usize = 23;
const NOWHERE: u64 = u64::MAX;

/// A table by task that grows without moving: segment `k` holds `1024 << k` tasks, the first of
/// them at hand.
#[derive(Debug)]
pub(in crate::linux) struct ByTask<const FRESH: u64> {
    first: Box<[AtomicU64; FIRST]>,
    more: [OnceLock<Box<[AtomicU64]>>; SEGMENTS - 1],
}

impl<const FRESH: u64> ByTask<FRESH> {
    pub(in crate::linux) fn new() -> ByTask<FRESH> {
        let first = Box::new([const { AtomicU64::new(FRESH) }; FIRST]);
        ByTask { first, more: [const { OnceLock::new() }; SEGMENTS - 1] }
    }
    /// The cell of a task, which begins as `FRESH`.
    #[inline]
    pub(in crate::linux) fn cell(&self, task: TaskId) -> &AtomicU64 {
        match self.first.get(task.index()) {
            Some(cell) => cell,
            None => self.in_more(task),
        }
    }
    fn in_more(&self, task: TaskId) -> &AtomicU64 {
        let index = task.index() + FIRST;
        let segment = (index.ilog2() - FIRST.ilog2()) as usize;
        let cells = self.more[segment - 1].get_or_init(|| {
            (0..FIRST << segment)
                .map(|_| AtomicU64::new(FRESH))
                .collect::<Vec<_>>()
                .into_boxed_slice()
        });
        &cells[index - (FIRST << segment)]
    }
}

/// An entry is written under the lock of the CPU it names; readers that hold no lock must check
/// again after locking.
pub(in crate::linux) struct TaskIndex(ByTask<NOWHERE>);

impl TaskIndex {
    pub(in crate::linux) fn new() -> TaskIndex {
        TaskIndex(ByTask::new())
    }
    /// CPU and slot of a task; `None` when it has not been created.
    #[inline]
    pub(in crate::linux) fn get(&self, task: TaskId) -> Option<(CpuId, EntityId)> {
        match self.0.cell(task).load(Relaxed) {
            NOWHERE => None,
            packed => Some((CpuId((packed >> 32) as u32), packed as u32)),
        }
    }
    /// Writes it.
    #[inline]
    pub(in crate::linux) fn set(&self, task: TaskId, cpu: CpuId, entity: EntityId) {
        self.0.cell(task).store(u64::from(cpu.0) << 32 | u64::from(entity), Relaxed);
    }
    /// The task is gone.
    pub(in crate::linux) fn clear(&self, task: TaskId) {
        self.0.cell(task).store(NOWHERE, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_every_segment_have_a_place_of_their_own() {
        let index = TaskIndex::new();
        let tasks = [0, 1, 1023, 1024, 3071, 3072, 1_000_000];
        for (i, task) in tasks.into_iter().enumerate() {
            assert_eq!(index.get(TaskId(task)), None);
            index.set(TaskId(task), CpuId(7), i as u32);
        }
        for (i, task) in tasks.into_iter().enumerate() {
            assert_eq!(index.get(TaskId(task)), Some((CpuId(7), i as u32)));
        }
        index.clear(TaskId(1024));
        assert_eq!(index.get(TaskId(1024)), None);
    }
}
