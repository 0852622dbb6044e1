//! The managed threads: who they are, what they were, what they do now.

use super::{PARKED, RUNNING};
use rustix::io::pread;
use schedlab_host::threads::{self, Identity, Scheduling};
use schedlab_model::{CpuSet, Ns, Policy};
use std::fs::File;

/// One managed thread.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) identity: Identity,
    /// How it was scheduled before.
    pub(super) before: Scheduling,
    /// Where it could run before.
    pub(super) affinity: CpuSet,
    /// What the scheduler takes it for.
    pub(super) taken_for: Policy,
    /// Since when it waits, when it is runnable and not chosen.
    pub(super) waits_since: Option<Ns>,
    /// No longer ours.
    pub(super) left: bool,
    stat: File,
}

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Runnable,
    Sleeping,
    Gone,
}

impl Thread {
    /// `None`: it is gone already.
    pub(super) fn open(
        identity: Identity,
        before: Scheduling,
        affinity: CpuSet,
        taken_for: Policy,
    ) -> Option<Thread> {
        let stat = File::open(format!("/proc/{}/task/{}/stat", identity.process, identity.tid)).ok()?;
        Some(Thread { identity, before, affinity, taken_for, waits_since: None, left: false, stat })
    }

    /// Asks the kernel (about 3 us; no allocation).
    pub(super) fn state(&self) -> State {
        let mut text = [0_u8; 128];
        // The file stays with the thread that it was opened for: after its death reading fails.
        let Ok(length) = pread(&self.stat, &mut text, 0) else { return State::Gone };
        let after = text[..length].iter().rposition(|byte| *byte == b')');
        match after.and_then(|at| text.get(at + 2)) {
            Some(b'R') => State::Runnable,
            None | Some(b'Z' | b'X' | b'x') => State::Gone,
            Some(_) => State::Sleeping,
        }
    }

    pub(super) fn raise(&self) -> bool {
        self.set(RUNNING)
    }

    pub(super) fn park(&self) -> bool {
        self.set(PARKED)
    }

    fn set(&self, priority: u8) -> bool {
        threads::set_scheduling(self.identity.tid, &self.band(priority)).is_ok()
    }

    /// What it looks like with this priority. Children begin unmanaged, until they are taken on.
    pub(super) fn band(&self, priority: u8) -> Scheduling {
        Scheduling {
            policy: Policy::Fifo(priority),
            nice: self.before.nice,
            slice: None,
            reset_on_fork: true,
        }
    }

    /// As it was before, apart from its affinity: for as long as the CPU is given away.
    pub(super) fn lend(&self) {
        let _ = threads::set_scheduling(self.identity.tid, &self.before);
    }

    /// As it was before.
    pub(super) fn give_back(&mut self) {
        self.left = true;
        self.lend();
        let _ = threads::set_affinity(self.identity.tid, &self.affinity);
    }

    /// Whether it still looks as we left it.
    pub(super) fn is_ours(&self) -> bool {
        threads::scheduling(self.identity.tid).is_ok_and(
            |now| matches!(now.policy, Policy::Fifo(priority) if (PARKED..=RUNNING).contains(&priority)),
        )
    }
}
