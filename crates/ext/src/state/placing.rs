//! From what the core decided to what the kernel is asked, and what it answered.

use super::{AgentState, At, BEAT, Fate, StepKind, Task, Threads};
use crate::wire::{Ask, Decision, Event, Status};
use schedlab_scheduler::decision_core::DECISIONS_MAX;

/// Returns an order about a thread that names no CPU.
pub(super) fn order(tid: u32, ask: Ask) -> Decision {
    Decision { tid, seq: 0, cpu: 0, ask, status: Status::Open }
}

/// Returns what is asked about a thread as it is now, and a CPU.
fn about(task: &Task, cpu: u32, ask: Ask) -> Decision {
    Decision { tid: task.tid, seq: task.seq, cpu, ask, status: Status::Open }
}

impl<T: Threads> AgentState<T> {
    /// Asks which thread runs on a CPU. One that turns out to sleep is told to the core, which
    /// chooses again.
    pub(super) fn decide(&mut self, slot: usize, fate: Fate) {
        let mut fate = fate;
        for _ in 0..DECISIONS_MAX {
            let prev = self.current(slot);
            self.counts.decisions += 1;
            let Some(decision) = self.step(StepKind::Decide { cpu: slot as u32, prev: fate })
            else {
                return;
            };
            let now = self.now;
            let one = &mut self.slots[slot];
            one.slice = decision.slice.filter(|_| decision.task.is_some());
            one.slice_ends = one.slice.map(|slice| now + slice);
            one.begun =
                decision.task.is_some_and(|task| self.tasks[task as usize].at == At::Running(slot));
            if decision.task != prev {
                self.counts.switches += 1;
                one.kept_since = None;
                if let Some(prev) = prev.filter(|_| fate == Fate::Runnable) {
                    self.tasks[prev as usize].waits_since.get_or_insert(now);
                }
            }
            match decision.task {
                Some(next) if self.tasks[next as usize].at == At::Out => {
                    self.counts.stale += 1;
                    fate = Fate::Blocked;
                }
                _ => return,
            }
        }
    }

    /// Returns what the kernel is asked for now.
    pub(crate) fn due_decisions(&mut self) -> Vec<Decision> {
        let mut all = std::mem::take(&mut self.orders);
        if self.breach.is_some() || self.ended {
            return all;
        }
        for slot in 0..self.slots.len() {
            all.extend(self.for_slot(slot));
        }
        for task in std::mem::take(&mut self.strays) {
            let one = &self.tasks[task as usize];
            if let At::Elsewhere(cpu) = one.at {
                self.ext.displaced += 1;
                all.push(about(one, cpu, Ask::Displace));
            }
        }
        // Behind the others: what these change, the kernel has done by then.
        all.extend((0..self.slots.len()).filter_map(|slot| self.ahead(slot)));
        all
    }

    /// Names the thread that a CPU takes when its own blocks, where the scheduler can tell and the
    /// kernel was told otherwise. When that happens, the event is decided as any other; mostly the
    /// answer then runs already. Else it takes the CPU back.
    fn ahead(&mut self, slot: usize) -> Option<Decision> {
        let cpu = self.slots[slot].cpu.0;
        let busy = self.slots[slot].online && self.current(slot).is_some();
        let next = if busy { self.core.ahead(slot as u32, self.now) } else { None };
        let next = next.map(|task| &self.tasks[task as usize]).filter(|task| task.at == At::Held);
        let wanted = next.map(|task| (task.tid, task.seq));
        if wanted == self.slots[slot].ahead {
            return None;
        }
        self.slots[slot].ahead = wanted;
        let (tid, seq) = wanted.unwrap_or((0, 0));
        Some(Decision { tid, seq, cpu, ask: Ask::Ahead, status: Status::Open })
    }

    /// A thread runs on a CPU: was it taken ahead of a decision? Once the kernel took it, its name
    /// there means nothing.
    pub(super) fn ran_ahead(&mut self, slot: usize, event: &Event) {
        if self.slots[slot].ahead == Some((event.tid, event.seq)) {
            self.slots[slot].ahead = None;
            self.ext.ahead += 1;
        }
    }

    /// Returns what is asked for one CPU.
    fn for_slot(&mut self, slot: usize) -> Option<Decision> {
        let (chosen, now) = (self.current(slot), self.now);
        let one = &self.slots[slot];
        if !one.online {
            return None;
        }
        let waits = |chosen: &u32| self.tasks[*chosen as usize].at == At::Held;
        if let Some(task) = chosen.filter(waits).map(|chosen| &self.tasks[chosen as usize])
            && one.busy_until <= now
        {
            return task.unsure.is_none().then(|| about(task, one.cpu.0, Ask::Run));
        }
        // The core wants another thread, or none, and the kernel has this one there.
        let other = one.actual.filter(|actual| Some(*actual) != chosen)?;
        let task = &self.tasks[other as usize];
        let this = Some((other, task.seq));
        if one.displaced == this {
            return None;
        }
        let order = about(task, one.cpu.0, Ask::Displace);
        self.slots[slot].displaced = this;
        self.ext.displaced += 1;
        Some(order)
    }

    /// Takes the kernel's answers. Returns whether something is to be asked again soon.
    pub(crate) fn answered(&mut self, decisions: &[Decision]) -> bool {
        let mut again = false;
        for one in decisions {
            match one.ask {
                Ask::Run => again |= self.placed(one),
                Ask::Tell => self.answered_question(one),
                Ask::Displace if one.status != Status::Done => self.not_displaced(one),
                Ask::Displace | Ask::Take | Ask::Free | Ask::Ahead => {}
            }
        }
        again
    }

    fn placed(&mut self, one: &Decision) -> bool {
        let Some(&task) = self.by_tid.get(&one.tid) else { return false };
        let Some(slot) = self.slot_of(one.cpu) else { return false };
        let now = self.now;
        match one.status {
            Status::Done => {
                self.tasks[task as usize].at = At::Sent(slot);
                // The thread that runs there gives way without being asked.
                let other =
                    self.slots[slot].actual.map(|other| (other, self.tasks[other as usize].seq));
                (self.slots[slot].kept_since, self.slots[slot].displaced) = (Some(now), other);
            }
            Status::Early => {
                self.ext.early += 1;
                return true;
            }
            Status::Stale => {
                self.counts.stale += 1;
                self.tasks[task as usize].unsure = Some(now);
            }
            Status::NotCpu => {
                self.counts.stale += 1;
                self.affinity_changed(task);
                // What forbids it is not what the thread asked for: its cpuset, say, or a section
                // without migration. Later again.
                self.slots[slot].busy_until = now + BEAT;
            }
            Status::Busy | Status::Refused => {
                // An earlier decision waits there, behind a thread that has to make room for it
                // first.
                self.counts.stale += 1;
                (self.slots[slot].busy_until, self.slots[slot].displaced) = (now + BEAT, None);
            }
            Status::Gone => self.forget(task),
            Status::Open | Status::State(..) => {}
        }
        false
    }

    fn answered_question(&mut self, one: &Decision) {
        match (one.status, self.by_tid.get(&one.tid)) {
            (Status::State(state, cpu), _) => self.told(one.tid, one.seq, state, cpu),
            (Status::Gone, known) => {
                let known = known.copied();
                self.taken.remove(&one.tid);
                if let Some(task) = known {
                    self.forget(task);
                }
            }
            _ => {}
        }
    }

    /// It had left by itself, or it was not where it was thought to be: the next event tells.
    fn not_displaced(&mut self, one: &Decision) {
        if let Some(slot) = self.slot_of(one.cpu) {
            self.slots[slot].displaced = None;
            self.slots[slot].busy_until = self.now + BEAT;
        }
    }
}
