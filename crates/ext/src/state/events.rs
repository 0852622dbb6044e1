//! What the kernel told: events, and answers to questions.

use super::placing::order;
use super::{
    AgentState, At, By, CpuSet, Fate, KEPT, KernelState, Notice, Ns, StepKind, Threads, What,
    WokenBy,
};
use crate::wire::{Ask, Event};
use schedlab_model::CpuId;

impl<T: Threads> AgentState<T> {
    /// Takes an event.
    pub(crate) fn hear(&mut self, event: &Event) {
        self.advance(event.at.saturating_sub(self.rules.start));
        if let Some(slot) = self.slot_of(event.cpu) {
            self.slots[slot].busy_until = Ns::ZERO;
        }
        match event.what {
            What::Fork { maker } => {
                self.freed.remove(&event.tid);
                self.taken.insert(event.tid);
                self.threads.born(event.tid, maker);
                self.notices.push(Notice::Born(event.tid));
                return;
            }
            What::Online | What::Offline => {
                return self.set_online(event.cpu, event.what == What::Online);
            }
            What::End => {
                self.ended = true;
                return;
            }
            _ => {}
        }
        if matches!(event.what, What::Exit | What::Left) {
            self.freed.remove(&event.tid);
            self.taken.remove(&event.tid);
        }
        let known = self.by_tid.get(&event.tid).copied();
        let first = matches!(event.what, What::Enqueue(_) | What::Running)
            && !self.freed.contains(&event.tid);
        let Some(task) = known.or_else(|| if first { self.join(event.tid) } else { None }) else {
            return;
        };
        self.tasks[task as usize].unsure = None;
        match event.what {
            What::Enqueue(by) => self.held(task, event.seq, by),
            What::Running => self.running(task, event),
            What::Stopping { runnable } => self.stopping(task, event.cpu, runnable),
            What::Quiescent { ends } => {
                self.blocked(task, if ends { Fate::Exited } else { Fate::Blocked })
            }
            What::Yield => {
                if let Some(slot) = self.runs_on(task) {
                    self.step(StepKind::Yield { cpu: slot as u32 });
                }
            }
            What::Weight => {
                if let Some(nice) = self.threads.nice(event.tid) {
                    self.step(StepKind::Nice { task, nice });
                }
            }
            What::Cpumask => self.affinity_changed(task),
            What::Exit => self.forget(task),
            What::Left => {
                self.counts.changed_by_others += 1;
                self.notices.push(Notice::LetGo(event.tid));
                self.orders.push(order(event.tid, Ask::Free));
                self.forget(task);
            }
            What::Fork { .. } | What::Online | What::Offline | What::End => {}
        }
    }

    /// A thread is in the queue of waiting threads.
    fn held(&mut self, task: u32, seq: u32, by: By) {
        let now = self.now;
        let one = &mut self.tasks[task as usize];
        (one.seq, one.at) = (seq, At::Held);
        one.waits_since.get_or_insert(now);
        self.off_cpu(task);
        if let Some(slot) = self.runs_on(task) {
            // It yielded, or its attributes changed, or a CPU had it while the agent was silent.
            self.slots[slot].kept_since = None;
            self.slots[slot].decide = true;
        } else if !self.core.runnable(task) {
            self.wake(task, by);
        }
    }

    /// A thread is on no CPU that it was on before.
    pub(super) fn off_cpu(&mut self, task: u32) {
        self.strays.retain(|stray| *stray != task);
        for slot in &mut self.slots {
            slot.actual = slot.actual.filter(|actual| *actual != task);
        }
    }

    pub(super) fn wake(&mut self, task: u32, by: By) {
        let by = match by {
            By::Thread(waker) => {
                self.by_tid.get(&waker).map_or(WokenBy::Unknown, |waker| WokenBy::Task(*waker))
            }
            By::SoftIrq => WokenBy::SoftIrq,
            By::HardIrq => WokenBy::HardIrq,
            By::Unknown => WokenBy::Unknown,
        };
        self.counts.wakeups += 1;
        self.step(StepKind::Wake { task, by });
        // A scheduler asks for what it wants; one that leaves an idle CPU to its next tick would
        // leave it for ever.
        let allowed = self.on_line(&self.tasks[task as usize].allowed);
        let idle = allowed.iter().map(CpuId::index).find(|slot| self.current(*slot).is_none());
        if let Some(idle) = idle.filter(|_| !self.slots.iter().any(|slot| slot.decide)) {
            self.slots[idle].decide = true;
        }
    }

    fn running(&mut self, task: u32, event: &Event) {
        let now = self.now;
        let slot = self.slot_of(event.cpu);
        let one = &mut self.tasks[task as usize];
        one.seq = event.seq;
        one.waits_since = None;
        self.off_cpu(task);
        let Some(slot) = slot else {
            self.tasks[task as usize].at = At::Elsewhere(event.cpu);
            self.strays.push(task);
            return;
        };
        self.tasks[task as usize].at = At::Running(slot);
        self.slots[slot].actual = Some(task);
        self.ran_ahead(slot, event);
        if !self.core.runnable(task) {
            // The event of its wakeup was lost.
            self.wake(task, By::Unknown);
        }
        if self.current(slot) != Some(task) {
            return;
        }
        let one = &mut self.slots[slot];
        let kept = one.kept_since.take().map_or(Ns::ZERO, |since| now.saturating_sub(since));
        self.ext.kept_by_others_ns += kept.0 * u64::from(kept >= KEPT);
        // A turn begins when the thread does.
        if !std::mem::replace(&mut one.begun, true) && one.slice_ends.is_some() {
            one.slice_ends = one.slice.map(|slice| now + slice);
        }
    }

    fn stopping(&mut self, task: u32, cpu: u32, runnable: bool) {
        let now = self.now;
        let Some(slot) = self.slot_of(cpu) else { return };
        self.slots[slot].actual = self.slots[slot].actual.filter(|actual| *actual != task);
        if runnable {
            // If it is to wait for a decision, the event that says so follows.
            self.tasks[task as usize].at = At::Sent(slot);
            self.tasks[task as usize].waits_since = Some(now);
            if self.current(slot) == Some(task) {
                self.slots[slot].kept_since = Some(now);
            }
        }
    }

    /// A thread blocked, or is at its end.
    fn blocked(&mut self, task: u32, fate: Fate) {
        let one = &mut self.tasks[task as usize];
        (one.at, one.waits_since) = (At::Out, None);
        self.off_cpu(task);
        // Where the core takes it for a waiting one, it finds out when it chooses it.
        if let Some(slot) = self.runs_on(task) {
            self.decide(slot, fate);
        }
    }

    /// The answer to a question.
    pub(super) fn told(&mut self, tid: u32, seq: u32, state: KernelState, cpu: u32) {
        let what = match state {
            KernelState::Out => What::Quiescent { ends: false },
            KernelState::Held => What::Enqueue(By::Unknown),
            KernelState::Sent => {
                let (slot, task) = (self.slot_of(cpu), self.by_tid.get(&tid));
                if let (Some(slot), Some(&task)) = (slot, task) {
                    let one = &mut self.tasks[task as usize];
                    (one.at, one.seq, one.unsure) = (At::Sent(slot), seq, None);
                    self.off_cpu(task);
                }
                return;
            }
            KernelState::OnCpu => What::Running,
        };
        self.hear(&Event { at: self.now + self.rules.start, tid, seq, cpu, what });
    }

    /// Itself or another process sent a thread to other CPUs.
    pub(super) fn affinity_changed(&mut self, task: u32) {
        let tid = self.tasks[task as usize].tid;
        let Some(affinity) = self.threads.affinity(tid) else { return };
        let allowed = self.numbered(&affinity);
        if allowed.is_empty() {
            // No managed CPU is left to it.
            self.counts.changed_by_others += 1;
            return self.release(tid);
        }
        self.tasks[task as usize].allowed = allowed;
        self.confine(task);
    }

    /// Tells the scheduler where a thread may run now, and takes it off a CPU where it may not.
    fn confine(&mut self, task: u32) {
        let affinity: CpuSet = self.on_line(&self.tasks[task as usize].allowed);
        let from = self.runs_on(task).filter(|slot| !affinity.contains(CpuId(*slot as u32)));
        // To the scheduler it sleeps meanwhile: it may not pick it again there.
        if let Some(slot) = from {
            self.decide(slot, Fate::Blocked);
        }
        self.step(StepKind::Affinity { task, affinity });
        if from.is_some() && self.tasks[task as usize].at != At::Out {
            self.wake(task, By::Unknown);
        }
    }

    pub(super) fn set_online(&mut self, cpu: u32, online: bool) {
        let Some(slot) = self.slot_of(cpu) else { return };
        self.slots[slot].online = online;
        let one = &mut self.slots[slot];
        (one.actual, one.displaced, one.ahead) = (None, None, None);
        for task in 0..self.tasks.len() as u32 {
            let one = &self.tasks[task as usize];
            if !one.left && one.allowed.contains(CpuId(slot as u32)) {
                self.confine(task);
            }
        }
        self.slots[slot].decide = true;
    }
}
