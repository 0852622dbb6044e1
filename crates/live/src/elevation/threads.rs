//! The managed threads: identity, scheduling before, and how each is changed.

use super::control::{Interference, ThreadActivity, ThreadControl};
use super::senders::{Journey, Post, Sent};
use super::{PARKED, RUNNING};
use rustix::io::pread;
use schedlab_host::threads::{self, Identity, Scheduling};
use schedlab_model::{CpuId, CpuSet, Nice, Policy};
use std::fs::File;
use std::sync::Arc;

/// One managed thread.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) identity: Identity,
    /// How it was scheduled before.
    pub(super) before: Scheduling,
    /// Where it could run before.
    pub(super) affinity: CpuSet,
    /// What it is given back: every CPU, if it follows its cpuset
    /// ([`Entry::Affinity`](crate::journal::Entry::Affinity)).
    home: CpuSet,
    /// The policy that the scheduler takes it for.
    pub(super) taken_for: Policy,
    /// The CPU to which it is pinned.
    pub(super) cpu: CpuId,
    stat: File,
    /// Who sends it; `None`: the agent itself does.
    post: Option<Post>,
    /// Its last journey by post, and the CPU where that began.
    journey: Option<(CpuId, Arc<Journey>)>,
}

impl Thread {
    /// Returns the thread; `None`: it is gone already.
    pub(super) fn open(
        identity: Identity,
        before: Scheduling,
        affinity: CpuSet,
        taken_for: Policy,
        cpu: CpuId,
    ) -> Option<Thread> {
        let stat =
            File::open(format!("/proc/{}/task/{}/stat", identity.process, identity.tid)).ok()?;
        let (post, journey) = (None, None);
        let home =
            if threads::follows_cpuset(identity.tid, &affinity) { CpuSet::ALL } else { affinity };
        Some(Thread { identity, before, affinity, home, taken_for, cpu, stat, post, journey })
    }

    /// Has the thread sent by others than the agent.
    pub(super) fn by(self, post: Option<Post>) -> Thread {
        Thread { post, ..self }
    }

    /// Returns whether the thread itself, or another process, gave it an affinity. On its way it
    /// has the one of where it was, or already that of where it goes.
    fn is_confined(&self) -> bool {
        self.leaves().is_none()
            && threads::affinity(self.identity.tid).is_ok_and(|now| now != CpuSet::single(self.cpu))
    }

    /// Gives the thread its affinity of before. On its way it has that in the end: its sender would
    /// write over it.
    fn give_cpus_back(&self) {
        let redirected = match (&self.post, &self.journey) {
            (Some(post), Some((_, journey))) => post.redirect(journey, self.home),
            _ => false,
        };
        if !redirected {
            let _ = threads::set_affinity(self.identity.tid, &self.home);
        }
    }

    fn pin_to(&mut self, cpu: CpuId) -> Sent {
        let tid = self.identity.tid;
        let Some(post) = &self.post else {
            return if threads::set_affinity(tid, &CpuSet::single(cpu)).is_ok() {
                Sent::There
            } else {
                Sent::No
            };
        };
        let (sent, journey) =
            post.send(tid, (self.cpu, cpu), self.journey.as_ref().map(|(_, last)| last));
        if sent != Sent::No {
            // On the way already, it has not left the CPU where that way began.
            self.journey = Some((self.leaves().unwrap_or(self.cpu), journey));
        }
        sent
    }

    fn set(&self, priority: u8) -> bool {
        threads::set_fifo(self.identity.tid, priority).is_ok()
    }

    /// Returns the scheduling of this thread at a priority of the band. Children begin unmanaged,
    /// until they are taken on.
    pub(super) fn band(&self, priority: u8) -> Scheduling {
        Scheduling {
            policy: Policy::Fifo(priority),
            nice: self.before.nice,
            slice: None,
            reset_on_fork: true,
            ext: false,
        }
    }

    /// Returns the scheduling behind the chosen thread of a yield window; `None`: the thread's own
    /// policy could not be told from it.
    fn behind(&self) -> Option<Scheduling> {
        // The flag tells it from a SCHED_IDLE that another process set
        // ([`Setting::FifoBand`](crate::journal::Setting)).
        let behind = Scheduling {
            slice: None,
            reset_on_fork: true,
            ..self.before.with_policy(Policy::Idle)
        };
        matches!(self.before.policy, Policy::Other | Policy::Batch).then_some(behind)
    }
}

impl ThreadControl for Thread {
    /// Asks the kernel (about 3 us; no allocation).
    fn state(&self) -> ThreadActivity {
        let mut text = [0_u8; 128];
        // The file is of the thread that it was opened for: after the thread's death reading fails.
        let Ok(length) = pread(&self.stat, &mut text, 0) else { return ThreadActivity::Gone };
        let after = text[..length].iter().rposition(|byte| *byte == b')');
        match after.and_then(|at| text.get(at + 2)) {
            Some(b'R') => ThreadActivity::Runnable,
            None | Some(b'Z' | b'X' | b'x') => ThreadActivity::Gone,
            Some(_) => ThreadActivity::Sleeping,
        }
    }

    fn raise(&self) -> bool {
        self.set(RUNNING)
    }

    fn park(&self) -> bool {
        self.set(PARKED)
    }

    fn set_own(&self) -> bool {
        threads::set_scheduling(self.identity.tid, &self.before).is_ok()
    }

    fn set_behind(&self) -> bool {
        match self.behind() {
            Some(behind) => threads::set_policy(self.identity.tid, &behind).is_ok(),
            None => self.set_own(),
        }
    }

    fn is_as_in_window(&self) -> bool {
        let set_here = |now: Scheduling| {
            now.policy == self.before.policy
                || self
                    .behind()
                    .is_some_and(|behind| behind.policy == now.policy && now.reset_on_fork)
                || matches!(now.policy, Policy::Fifo(PARKED..=RUNNING))
        };
        threads::scheduling(self.identity.tid).map_or(true, set_here)
    }

    fn give_back(&mut self) {
        let _ = self.set_own();
        self.give_cpus_back();
    }

    fn interference(&self) -> Interference {
        let in_band =
            |priority: Option<u8>| priority.is_some_and(|now| (PARKED..=RUNNING).contains(&now));
        let tid = self.identity.tid;
        if !threads::fifo_priority(tid).map_or(true, in_band) {
            Interference::Policy
        } else if self.is_confined() {
            Interference::Cpus
        } else {
            Interference::None
        }
    }

    fn new_nice(&mut self) -> Option<Nice> {
        let now = threads::nice(self.identity.tid).ok().filter(|now| *now != self.before.nice)?;
        self.before.nice = now;
        Some(now)
    }

    fn tid(&self) -> u32 {
        self.identity.tid
    }

    fn send_to(&mut self, cpu: CpuId) -> Sent {
        // What the thread itself, or another process, asked for since its last look is not written
        // over.
        let sent = if self.is_confined() { Sent::No } else { self.pin_to(cpu) };
        if sent != Sent::No {
            self.cpu = cpu;
        }
        sent
    }

    fn leaves(&self) -> Option<CpuId> {
        self.journey.as_ref().filter(|(_, journey)| journey.goes_on()).map(|(from, _)| *from)
    }

    fn let_go(&self, interference: Interference) {
        if interference == Interference::Cpus {
            self.set_own();
        } else if !self.is_confined() {
            self.give_cpus_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A thread narrows its own affinity between two looks of the driver, and the scheduler picks
    /// it elsewhere.
    #[test]
    fn a_thread_that_confined_itself_is_not_sent_elsewhere() {
        let allowed = threads::affinity(0).expect("our own");
        let cpus: Vec<CpuId> = allowed.iter().collect();
        let [first, .., last] = cpus[..] else { return };
        let mut child = Command::new("sleep").arg("600").spawn().expect("sleep(1)");
        let pin = |cpu: CpuId| {
            threads::set_affinity(child.id(), &CpuSet::single(cpu)).expect("an allowed CPU")
        };
        let identity = threads::identity(child.id()).expect("it lives");
        let before = threads::scheduling(child.id()).expect("it lives");
        pin(first);
        let mut thread =
            Thread::open(identity, before, allowed, before.policy, first).expect("it lives");
        let there = [thread.send_to(last), thread.send_to(first)];
        pin(last);
        let (sent, now) = (thread.send_to(first), threads::affinity(child.id()).expect("it lives"));
        let seen = thread.interference();
        child.kill().expect("a child of this test");
        child.wait().expect("a child of this test");
        assert_eq!(there, [Sent::There; 2], "a thread that is as the driver left it can be sent");
        assert_eq!((sent, now), (Sent::No, CpuSet::single(last)));
        assert_ne!(seen, Interference::None, "the next look finds it");
    }
}
