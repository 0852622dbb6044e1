//! Reading ahead: while one event is served, what the next one needs comes into the caches.
//!
//! With thousands of tasks an event finds the records of its task in no near cache, one after the other; read together
//! and early they arrive while something else is computed. Nothing depends on what is read.

use super::Engine;
use super::layout::Fires;
use schedlab_model::{CpuId, EventSink};
use std::hint::black_box;

/// From so many tasks on it pays: below, all records stay in the second-level cache.
pub(super) const MANY_TASKS: usize = 512;

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// Reads what the next event will need, as far as it can be told.
    #[inline(never)]
    pub(super) fn look_ahead(&self) {
        let Some(slot) = self.slots.peek() else { return };
        let (cpu, wakes) = match self.layout.fires(slot) {
            Fires::Task(t) => {
                self.read_task(t);
                black_box(self.slots.seen(slot));
                (self.tasks[t].home as usize, Some(t.into()))
            }
            Fires::Work(cpu) => {
                if let Some(current) = self.cpus[cpu].current {
                    self.read_end(current.index());
                }
                (cpu, None)
            }
            _ => return,
        };
        if let Some(next) = self.scheduler.look_ahead(CpuId(cpu as u32), wakes) {
            self.read_task(next.index());
        }
    }

    /// Reads every line of a task's records that a switch or a wakeup touches.
    #[inline]
    fn read_task(&self, t: usize) {
        let Some(task) = self.tasks.get(t) else { return };
        let view = if self.shows { self.world.tasks[t].ran().0 } else { 0 };
        black_box(task.left ^ task.job ^ view);
    }

    /// The same for a task that will have done its work, whose program goes on.
    #[inline]
    fn read_end(&self, t: usize) {
        let Some(task) = self.tasks.get(t) else { return };
        let timer = self.slots.seen(self.layout.task(t));
        black_box(task.ops().get(task.pc as usize).map(std::mem::discriminant));
        self.read_task(t);
        black_box(self.log.seen(t) ^ timer);
    }
}
