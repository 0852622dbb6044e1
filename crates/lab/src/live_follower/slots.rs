//! Numbers for the tasks of a recording that has no end: those of ended tasks are used again, so
//! that tables stay as large as the tasks that live.

use foldhash::fast::FixedState;
use schedlab_model::{Ns, TaskId};
use std::collections::{HashMap, VecDeque};

/// A task's last switch follows its end, and rings of other CPUs may lag (host/src/record/tasks.rs
/// forgets after the same time).
const AFTER_THE_END: Ns = Ns(2_000_000_000);

/// From the recorder's task ids, which are never used again, to places in tables.
#[derive(Debug, Default)]
pub(super) struct Slots {
    by_id: HashMap<TaskId, TaskId, FixedState>,
    /// The latest task of each thread id.
    by_tid: HashMap<u32, TaskId, FixedState>,
    free: Vec<TaskId>,
    made: u32,
    /// Tasks that ended, in order, and when; their thread ids.
    ended: VecDeque<(TaskId, u32, Ns)>,
}

impl Slots {
    /// Returns the place of the recorder's task `id`; a free or a new one when it has none.
    pub(super) fn slot_for(&mut self, id: TaskId) -> TaskId {
        if let Some(&slot) = self.by_id.get(&id) {
            return slot;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.made += 1;
            TaskId(self.made - 1)
        });
        self.by_id.insert(id, slot);
        slot
    }

    /// Notes that `id` has the thread id `tid` at `now`: an earlier task with it has ended, even if
    /// its end was lost.
    pub(super) fn has_thread(&mut self, id: TaskId, tid: u32, now: Ns) {
        if tid == 0 {
            return;
        }
        if let Some(before) = self.by_tid.insert(tid, id).filter(|before| *before != id) {
            self.ended.push_back((before, tid, now));
        }
    }

    /// Notes that `id`, of the thread `tid`, ended at `at`.
    pub(super) fn ended(&mut self, id: TaskId, tid: u32, at: Ns) {
        self.ended.push_back((id, tid, at));
    }

    /// Whether a task that ended may be forgotten at `now`.
    pub(super) fn any_due(&self, now: Ns) -> bool {
        self.ended.front().is_some_and(|&(_, _, at)| at.saturating_add(AFTER_THE_END) <= now)
    }

    /// Returns the next place to be emptied, of a task that left its CPU before `since`; it is free
    /// from then on.
    pub(super) fn release(&mut self, since: Ns) -> Option<TaskId> {
        while self.any_due(since) {
            let (id, tid, _) = self.ended.pop_front()?;
            if self.by_tid.get(&tid) == Some(&id) {
                self.by_tid.remove(&tid);
            }
            // A task may have ended twice here: its own end, and its thread id used again.
            if let Some(slot) = self.by_id.remove(&id) {
                self.free.push(slot);
                return Some(slot);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_when_nothing_can_name_them() {
        let mut slots = Slots::default();
        let (a, b) = (slots.slot_for(TaskId(70)), slots.slot_for(TaskId(71)));
        assert_eq!((a, b, slots.slot_for(TaskId(70))), (TaskId(0), TaskId(1), TaskId(0)));
        slots.has_thread(TaskId(70), 7, Ns::ZERO);
        slots.ended(TaskId(70), 7, Ns::from_ms(100));
        assert_eq!(slots.release(Ns::from_ms(2_099)), None, "a late event may name it");
        assert_eq!(slots.slot_for(TaskId(72)), TaskId(2));
        assert_eq!(slots.release(Ns::from_ms(2_100)), Some(a));
        assert_eq!(slots.slot_for(TaskId(73)), a);
        // The end of 73 was lost: its thread id belongs to another task now.
        slots.has_thread(TaskId(73), 8, Ns::ZERO);
        slots.has_thread(TaskId(74), 8, Ns::from_ms(500));
        slots.ended(TaskId(73), 8, Ns::from_ms(501));
        assert_eq!(slots.release(Ns::from_ms(5_000)), Some(a));
        assert_eq!(slots.release(Ns::from_ms(5_000)), None, "once");
        assert_eq!(slots.by_tid.get(&8), Some(&TaskId(74)));
    }
}
