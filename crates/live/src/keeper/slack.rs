//! The timer slack of threads, which the kernel takes from those that become real-time.

use schedlab_host::threads::{self, Identity, Scheduling};
use schedlab_model::Ns;
use std::collections::BTreeMap;

/// Threads that are remembered; beyond that, those that ended are forgotten.
const THREADS: usize = 4096;

/// What threads had before, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Slacks {
    threads: BTreeMap<Identity, Ns>,
    /// By process: what its new threads are given.
    processes: BTreeMap<u32, Ns>,
}

impl Slacks {
    /// Returns what a thread had; `before`: how it was scheduled. `None`: it is not known, or the
    /// thread was real-time and had none.
    pub(super) fn of_thread(&mut self, thread: &Identity, before: &Scheduling) -> Option<Ns> {
        if !before.policy.is_fair() {
            return None;
        }
        if let Some(known) = self.threads.get(thread) {
            return Some(*known);
        }
        let slack = self.now_or_inherited(thread)?;
        if self.threads.len() >= THREADS {
            self.threads.retain(|one, _| one.lives());
        }
        self.threads.insert(thread.clone(), slack);
        Some(slack)
    }

    /// As [`Slacks::of_thread`], for the threads that a process makes from now on.
    pub(super) fn of_process(&mut self, first: &Identity, before: &Scheduling) -> Option<Ns> {
        let slack = self.of_thread(first, before)?;
        self.processes.insert(first.process, slack);
        Some(slack)
    }

    /// A thread that was born of a real-time one has none, as its parent at that moment: it gets
    /// what its process, or its parent's, had.
    fn now_or_inherited(&self, thread: &Identity) -> Option<Ns> {
        let now = threads::timer_slack(thread.tid).ok()?;
        let inherited =
            || [thread.process, thread.parent].iter().find_map(|pid| self.processes.get(pid));
        Some(if now == Ns::ZERO { inherited().copied().unwrap_or(now) } else { now })
    }

    /// Gives a thread its slack back while others stay managed.
    pub(super) fn give_back(&mut self, thread: &Identity) {
        let Some(slack) = self.threads.remove(thread).filter(|_| thread.lives()) else { return };
        let is_fair = threads::scheduling(thread.tid).is_ok_and(|now| now.policy.is_fair());
        if is_fair && threads::timer_slack(thread.tid).is_ok_and(|now| now != slack) {
            // It may have ended in this moment.
            let _ = threads::set_timer_slack(thread.tid, slack);
        }
    }

    pub(super) fn give_process_back(&mut self, process: u32) {
        let all: Vec<Identity> =
            self.threads.keys().filter(|thread| thread.process == process).cloned().collect();
        all.iter().for_each(|thread| self.give_back(thread));
        self.processes.remove(&process);
    }
}
