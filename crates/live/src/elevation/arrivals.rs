//! Threads that go to another CPU, and what waits for them there: on PREEMPT_RT they may be on
//! their way for a while ([`super::senders`]).

use super::agent_state::{AgentState, Placement};
use super::control::{CpuControl, ThreadControl};
use super::senders::Sent;

impl<T: ThreadControl, C: CpuControl> AgentState<T, C> {
    /// Asks to be told when the chosen thread of a CPU does not want it any more; once it is there.
    pub(super) fn arm(&mut self, slot: usize) {
        let awaits = self.current(slot).is_some_and(|task| self.is_on_its_way(task));
        self.slots[slot].awaits = awaits;
        if !awaits {
            self.slots[slot].control.arm();
        }
    }

    pub(super) fn is_on_its_way(&self, task: u32) -> bool {
        self.threads[task as usize].control.leaves().is_some()
    }

    /// The chosen thread may have arrived: from here on the block detector tells of it.
    pub(super) fn look_at_arrival(&mut self, slot: usize) {
        if std::mem::take(&mut self.slots[slot].awaits)
            && !self.is_yielded(slot)
            && self.current(slot).is_some()
        {
            self.arm(slot);
        }
    }

    /// Sends a parked thread to a CPU. False: the kernel refused, or the thread has an affinity of
    /// its own by now. It stays where it is, not raised: the block detector of the CPU that chose
    /// it fires, and the look at it lets it go.
    pub(super) fn move_to(&mut self, task: u32, slot: usize) -> bool {
        let thread = &mut self.threads[task as usize];
        if thread.slot == slot {
            return true;
        }
        // It blocked in a yield window and woke, and its CPU has not decided since: it stops
        // running beside the chosen thread there before it leaves.
        if thread.placement == Placement::OwnPolicy && thread.control.set_behind() {
            thread.placement = Placement::Behind;
        }
        let sent = thread.control.send_to(self.slots[slot].cpu) != Sent::No;
        if sent {
            thread.slot = slot;
            self.counts.migrations += 1;
        }
        sent
    }

    /// Lets a raised thread out of the kernel's lock that keeps it on a CPU that it shall leave:
    /// the thread that is raised there goes behind it, among equals, and has the CPU again when it
    /// is gone.
    pub(super) fn make_way(&mut self, task: u32) {
        let leaves = self.threads[task as usize].control.leaves();
        let from = leaves.and_then(|cpu| self.slots.iter().position(|slot| slot.cpu == cpu));
        let Some(from) = from.filter(|from| !self.is_yielded(*from)) else { return };
        if let Some(front) = self.current(from).filter(|front| *front != task) {
            self.threads[front as usize].control.park();
            self.threads[front as usize].control.raise();
        }
    }
}
