//! The managed threads: who they are, what they were, what they do now.

use super::{PARKED, RUNNING};
use rustix::io::pread;
use schedlab_host::threads::{self, Identity, Scheduling};
use schedlab_model::{CpuSet, Nice, Ns, Policy};
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
    /// In the fair class, for the length of a gift.
    pub(super) lent: bool,
    stat: File,
}

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Runnable,
    Sleeping,
    Gone,
}

/// Whether a thread is as we left it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Grip {
    Firm,
    /// Somebody gave it another policy.
    Policy,
    /// Somebody sent it to other CPUs.
    Cpus,
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
        Some(Thread {
            identity,
            before,
            affinity,
            taken_for,
            waits_since: None,
            left: false,
            lent: false,
            stat,
        })
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
        threads::set_fifo(self.identity.tid, priority).is_ok()
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
    pub(super) fn lend(&self) -> bool {
        threads::set_scheduling(self.identity.tid, &self.before).is_ok()
    }

    /// Behind the one that is lent, for as long as the CPU is given away.
    pub(super) fn stand_back(&self) -> bool {
        match self.behind() {
            Some(behind) => threads::set_scheduling(self.identity.tid, &behind).is_ok(),
            None => self.lend(),
        }
    }

    /// How it stands back; `None`: its own policy is none of those that can be told from SCHED_IDLE.
    fn behind(&self) -> Option<Scheduling> {
        // The flag tells ours from a policy that somebody else gave it ([`Setting::FifoBand`](crate::journal::Setting)).
        let behind = Scheduling { policy: Policy::Idle, slice: None, reset_on_fork: true, ..self.before };
        matches!(self.before.policy, Policy::Other | Policy::Batch).then_some(behind)
    }

    /// Whether it still has a policy that a gift gave it, or those of the band. One that is gone counts as ours.
    pub(super) fn is_as_lent(&self) -> bool {
        let ours = |now: Scheduling| {
            now.policy == self.before.policy
                || self.behind().is_some_and(|behind| behind.policy == now.policy && now.reset_on_fork)
                || matches!(now.policy, Policy::Fifo(PARKED..=RUNNING))
        };
        threads::scheduling(self.identity.tid).map_or(true, ours)
    }

    /// As it was before.
    pub(super) fn give_back(&mut self) {
        self.left = true;
        let _ = self.lend();
        let _ = threads::set_affinity(self.identity.tid, &self.affinity);
    }

    /// Whether it is still as we left it. A thread that is gone counts as ours: its end is seen elsewhere.
    pub(super) fn grip(&self, managed: &CpuSet) -> Grip {
        let ours = |priority: Option<u8>| priority.is_some_and(|now| (PARKED..=RUNNING).contains(&now));
        let tid = self.identity.tid;
        if !threads::fifo_priority(tid).map_or(true, ours) {
            Grip::Policy
        } else if threads::affinity(tid).is_ok_and(|now| now != *managed) {
            Grip::Cpus
        } else {
            Grip::Firm
        }
    }

    /// A nice value that somebody gave it meanwhile. It stays with the thread when it is given back.
    pub(super) fn new_nice(&mut self) -> Option<Nice> {
        let now = threads::nice(self.identity.tid).ok().filter(|now| *now != self.before.nice)?;
        self.before.nice = now;
        Some(now)
    }
}
