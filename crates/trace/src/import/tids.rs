//! Thread ids → tasks: a table of pages, because every event looks up two or three ids.

use schedlab_model::TaskId;
use std::collections::BTreeMap;

/// Ids of a page.
const PAGE: usize = 1024;
/// Ids below this have pages: the kernel's largest `pid_max` (include/linux/threads.h,
/// PID_MAX_LIMIT on 64 bits).
const PAGED: u32 = 4 << 20;
/// No task.
const NONE: u32 = u32::MAX;

#[derive(Default)]
pub(super) struct Tids {
    pages: Vec<Option<Box<[u32; PAGE]>>>,
    /// Ids that no Linux gives.
    beyond: BTreeMap<u32, TaskId>,
}

impl Tids {
    pub(super) fn get(&self, tid: u32) -> Option<TaskId> {
        if tid >= PAGED {
            return self.beyond.get(&tid).copied();
        }
        let page = self.pages.get(tid as usize / PAGE)?.as_ref()?;
        Some(page[tid as usize % PAGE]).filter(|&task| task != NONE).map(TaskId)
    }

    pub(super) fn insert(&mut self, tid: u32, task: TaskId) {
        match self.slot(tid) {
            Some(slot) => *slot = task.0,
            None => drop(self.beyond.insert(tid, task)),
        }
    }

    pub(super) fn remove(&mut self, tid: u32) {
        match self.slot(tid) {
            Some(slot) => *slot = NONE,
            None => drop(self.beyond.remove(&tid)),
        }
    }

    /// The place of an id that has a page; the page is made.
    fn slot(&mut self, tid: u32) -> Option<&mut u32> {
        if tid >= PAGED {
            return None;
        }
        let at = tid as usize / PAGE;
        if at >= self.pages.len() {
            self.pages.resize_with(at + 1, || None);
        }
        let page = self.pages[at].get_or_insert_with(|| Box::new([NONE; PAGE]));
        Some(&mut page[tid as usize % PAGE])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_and_go() {
        let mut tids = Tids::default();
        for tid in [1, 1023, 1024, PAGED - 1, PAGED, u32::MAX] {
            assert_eq!(tids.get(tid), None);
            tids.insert(tid, TaskId(tid / 2));
            assert_eq!(tids.get(tid), Some(TaskId(tid / 2)));
        }
        tids.remove(1024);
        tids.remove(u32::MAX);
        assert_eq!(
            (tids.get(1024), tids.get(u32::MAX), tids.get(1023)),
            (None, None, Some(TaskId(511)))
        );
    }
}
