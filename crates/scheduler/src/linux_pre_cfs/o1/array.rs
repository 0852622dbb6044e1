//! A priority array: 140 first-in-first-out lists and a bitmap of those that are not empty.

use super::super::records::{Links, List};
use schedlab_model::TaskId;

/// Number of priorities: 0 … 99 real time, 100 … 139 normal.
pub(super) const PRIORITIES: usize = 140;

#[derive(Debug)]
pub(super) struct Array {
    lists: [List; PRIORITIES],
    bitmap: [u64; 3],
    pub(super) nr: usize,
}

impl Array {
    pub(super) fn new() -> Array {
        Array { lists: [List::EMPTY; PRIORITIES], bitmap: [0; 3], nr: 0 }
    }

    pub(super) fn enqueue<'a>(
        &mut self,
        links: impl Fn(i64) -> &'a Links,
        task: TaskId,
        prio: i64,
        front: bool,
    ) {
        let list = &mut self.lists[prio as usize];
        if front {
            list.push_front(links, task)
        } else {
            list.push_back(links, task)
        }
        self.bitmap[prio as usize / 64] |= 1 << (prio % 64);
        self.nr += 1;
    }

    pub(super) fn dequeue<'a>(
        &mut self,
        links: impl Fn(i64) -> &'a Links,
        task: TaskId,
        prio: i64,
    ) {
        let list = &mut self.lists[prio as usize];
        list.remove(links, task);
        if list.len == 0 {
            self.bitmap[prio as usize / 64] &= !(1 << (prio % 64));
        }
        self.nr -= 1;
    }

    /// The best priority at or after `from` that has a task.
    pub(super) fn first_prio(&self, from: usize) -> Option<usize> {
        (from / 64..3).find_map(|word| {
            let mask = if word == from / 64 { u64::MAX << (from % 64) } else { u64::MAX };
            let bits = self.bitmap[word] & mask;
            (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize)
        })
    }

    pub(super) fn list(&self, prio: usize) -> &List {
        &self.lists[prio]
    }

    /// The task to run: the head of the best list.
    pub(super) fn head(&self) -> Option<TaskId> {
        self.first_prio(0).map(|prio| TaskId(self.lists[prio].head as u32))
    }
}
