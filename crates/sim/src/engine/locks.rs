//! Mutexes: a wait for one belongs to the activation in which it happens, as the kernel and rt-app
//! count it.
//!
//! | rule | Linux 6.12 | here |
//! |---|---|---|
//! | a plain mutex serves its waiters first come first served | futex(2): queue of a priority, FIFO within it | simplified: no priorities |
//! | an inheriting mutex serves the waiter of the highest priority | kernel/locking/rtmutex.c, rt_mutex_top_waiter | modelled |
//! | the owner runs at the priority of its highest waiter, along chains of owners | rt_mutex_adjust_prio_chain | modelled for real-time and deadline waiters |
//! | a fair waiter raises no one | __waiter_prio | modelled |
//! | a deadline waiter lends its parameters | rt_mutex_setprio | simplified: the owner runs as fifo:99 |

use super::program::Flow;
use super::state::{Cause, Waits};
use super::{Engine, Step};
use schedlab_model::{EventSink, Ns, Policy, TaskId};
use schedlab_scheduler::Change;

/// Returns the real-time priority that a policy lends; 0: none.
const fn lent(policy: Policy) -> u8 {
    match policy {
        Policy::Fifo(priority) | Policy::Rr(priority) => priority,
        Policy::Deadline { .. } => 100,
        _ => 0,
    }
}

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    pub(super) fn lock(&mut self, cpu: usize, t: usize, lock: u32) -> Step<Flow> {
        // Waiting for the mutex is work of this activation: it is part of its response time.
        self.tasks[t].fresh = false;
        self.tasks[t].pc += 1;
        let mutex = &mut self.traffic.locks[lock as usize];
        let Some(owner) = mutex.owner else {
            mutex.owner = Some(t as u32);
            return Ok(Flow::Next);
        };
        // Unlocking hands the mutex over: the operation is done when the task wakes.
        mutex.waiters.push_back(t as u32);
        if mutex.inherits {
            self.lend(cpu, owner as usize)?;
        }
        Ok(Flow::Block(Waits::Lock(lock)))
    }

    pub(super) fn unlock(&mut self, cpu: usize, t: usize, lock: u32) -> Step<Flow> {
        let mutex = &self.traffic.locks[lock as usize];
        if mutex.owner != Some(t as u32) {
            let what = format!("it unlocks lock{lock}, which it does not hold");
            let task = self.input.workload.tasks[t].name.clone();
            return Err(Box::new(crate::SimError::Program { task, at: Ns(self.clock.now), what }));
        }
        self.tasks[t].pc += 1;
        self.tasks[t].fresh = false;
        let next = if mutex.inherits { self.most_urgent_waiter(lock) } else { 0 };
        let mutex = &mut self.traffic.locks[lock as usize];
        mutex.owner = mutex.waiters.remove(next);
        let (inherits, owner) = (mutex.inherits, mutex.owner);
        let flow = match owner {
            Some(next) => self.wake_by(cpu, t, next as usize)?,
            None => Flow::Next,
        };
        if inherits {
            // What was lent through this mutex goes back; the new owner gets it from those that
            // still wait.
            self.lend(cpu, t)?;
            if let Some(owner) = owner {
                self.lend(cpu, owner as usize)?;
            }
        }
        Ok(flow)
    }

    /// Returns the place of the waiter of the highest priority, the first among equals.
    fn most_urgent_waiter(&self, lock: u32) -> usize {
        let waiters = &self.traffic.locks[lock as usize].waiters;
        let rank = |place: usize| lent(self.world.tasks[waiters[place] as usize].policy);
        (0..waiters.len()).rev().max_by_key(|&place| rank(place)).unwrap_or(0)
    }

    /// Gives the task the policy that its waiters make it have, and passes it on along the chain of
    /// mutexes for which owners wait.
    fn lend(&mut self, cpu: usize, t: usize) -> Step {
        let mut t = t;
        // A circle of owners, which a scenario is checked for, would go on for ever.
        for _ in 0..self.tasks.len() {
            let own = self.input.workload.tasks[t].policy;
            let held = self
                .traffic
                .locks
                .iter()
                .filter(|lock| lock.inherits && lock.owner == Some(t as u32));
            let best = held
                .flat_map(|lock| &lock.waiters)
                .map(|&waiter| lent(self.world.tasks[waiter as usize].policy))
                .max()
                .unwrap_or(0);
            let policy = if best > lent(own) { Policy::Fifo(best.min(99)) } else { own };
            if self.world.tasks[t].policy == policy {
                return Ok(());
            }
            self.world.tasks[t].policy = policy;
            self.input.scheduler.changed(&self.cx(cpu), Change::Attributes(TaskId::from(t)));
            self.after_call(cpu, Cause::Other)?;
            let Waits::Lock(next) = self.tasks[t].waits else { return Ok(()) };
            let next = &self.traffic.locks[next as usize];
            match next.owner.filter(|_| next.inherits) {
                Some(owner) => t = owner as usize,
                None => return Ok(()),
            }
        }
        Ok(())
    }
}
