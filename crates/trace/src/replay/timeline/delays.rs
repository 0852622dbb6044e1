//! How long the machine itself takes from a wakeup to the switch.

use super::{Origin, Timeline};
use crate::analysis::Durations;
use schedlab_model::{CpuId, Ns, TaskId};

/// What the machine itself added between a wakeup and the switch, where no other task was in the
/// way.
#[derive(Clone, Debug, Default)]
pub struct MachineDelays {
    /// Wakeup to switch on a CPU that was idle: interrupt, leaving idle, the switch. By CPU.
    pub idle_wake: Vec<Durations>,
    /// Wakeup to switch where the wakee took the CPU from a running task within 200 us. By CPU.
    pub preempting_wake: Vec<Durations>,
}

impl MachineDelays {
    /// The idle wakeups of all CPUs together.
    pub fn idle_wakes(&self) -> Durations {
        together(&self.idle_wake)
    }
    /// The preempting wakeups of all CPUs together.
    pub fn preempting_wakes(&self) -> Durations {
        together(&self.preempting_wake)
    }

    /// Returns by how much these delays differ, in nanoseconds: from their median to their p99, of
    /// the kind in which that is more.
    pub fn spread(&self) -> f64 {
        let of = |all: Durations| all.p99().saturating_sub(all.p50()).0 as f64;
        of(self.idle_wakes()).max(of(self.preempting_wakes()))
    }
}

fn together(parts: &[Durations]) -> Durations {
    let mut all = Durations::default();
    parts.iter().for_each(|part| all.merge(part));
    all
}

/// A wakee that takes a running task's CPU later than this was let on by a tick, not by its wakeup.
const PREEMPTED_AT_ONCE: Ns = Ns::from_us(200);

impl Timeline {
    /// Samples of the machine's own delay: the first switch after a wakeup with nobody else in the
    /// way.
    pub(super) fn measure(&mut self, task: TaskId, cpu: CpuId, preempted: bool) {
        let open = self.lines[task.index()].open();
        let Some(open) = open.filter(|a| a.demand == Ns::ZERO && a.deeds.is_empty()) else {
            return;
        };
        if matches!(open.origin, Origin::Initial | Origin::Unknown) {
            return;
        }
        let woken = open.woken;
        let wait = self.now.saturating_sub(woken);
        if self.cpus[cpu.index()].idle_since.is_some_and(|idle| idle <= woken) {
            self.delays.idle_wake[cpu.index()].add(wait);
        } else if preempted && wait <= PREEMPTED_AT_ONCE {
            self.delays.preempting_wake[cpu.index()].add(wait);
        }
    }
}
