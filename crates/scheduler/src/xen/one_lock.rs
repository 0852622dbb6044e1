//! What makes a Xen scheduler a [`Scheduler`]: all of it is behind one lock, and Xen's core does
//! the same around each.

use super::common::Units;
use crate::{Change, Cx, Lock, Locks, Needs, Pick, Prev, Rejection, Scheduler, Timer, Wake, Work};
use schedlab_model::{CpuId, Policy, TaskId};

/// What one of Xen's schedulers does, once the lock is held.
pub(super) trait XenRules: Units + Send + 'static {
    /// Returns what it asks of its driver.
    fn needs() -> Needs {
        super::needs()
    }
    /// As [`Scheduler::refuses`].
    fn refuses(_policy: Policy) -> Option<&'static str> {
        None
    }
    /// As [`Scheduler::rejects`].
    fn rejects(&self, _world: &crate::World) -> Option<Rejection> {
        None
    }
    /// As [`Scheduler::init`].
    fn begin(&mut self, cx: &Cx<'_>) {
        self.create_all(cx);
    }
    /// As [`Scheduler::yielded`].
    fn yielded(&mut self, _task: TaskId) {}
    /// As [`Scheduler::schedule`].
    fn schedule(&mut self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick;
    /// As [`Scheduler::saved`].
    fn saved(&mut self, cx: &Cx<'_>, prev: TaskId);
    /// As [`Scheduler::timer`].
    fn timer(&mut self, _cx: &Cx<'_>, _timer: Timer) {}
    /// The affinity of a unit has changed.
    fn affinity_changed(&mut self, cx: &Cx<'_>, task: TaskId);
    /// As [`Scheduler::changed`].
    fn changed(&mut self, cx: &Cx<'_>, change: Change) {
        match change {
            Change::Created { task, .. } => self.create(cx, task),
            Change::Affinity(task) => self.affinity_changed(cx, task),
            _ => {}
        }
    }
    /// As [`Scheduler::resync`].
    fn resync(&mut self, cx: &Cx<'_>);
    /// As [`Scheduler::explain`].
    fn explain(&self, cx: &Cx<'_>, cpu: CpuId) -> String;
}

/// A scheduler of Xen.
pub(super) struct OneLock<L: Locks, R: Send + 'static> {
    rules: L::Lock<R>,
}

impl<L: Locks, R: Send + 'static> OneLock<L, R> {
    /// Returns the scheduler with these rules.
    pub(super) fn new(rules: R) -> Self {
        OneLock { rules: L::Lock::new(rules) }
    }
}

impl<L: Locks, R: XenRules> Scheduler for OneLock<L, R> {
    fn needs(&self) -> Needs {
        R::needs()
    }
    fn refuses(&self, policy: Policy) -> Option<&'static str> {
        R::refuses(policy)
    }
    fn rejects(&self, world: &crate::World) -> Option<Rejection> {
        self.rules.lock().rejects(world)
    }
    fn init(&self, cx: &Cx<'_>) {
        self.rules.lock().begin(cx);
    }
    fn wake(&self, cx: &Cx<'_>, task: TaskId, wake: Wake) {
        self.rules.lock().woken(cx, task, wake);
    }
    fn leave(&self, cx: &Cx<'_>, task: TaskId) {
        self.rules.lock().left(cx, task);
    }
    fn yielded(&self, _cx: &Cx<'_>, task: TaskId) {
        self.rules.lock().yielded(task);
    }
    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        cx.did(Work::Lock, 1);
        self.rules.lock().schedule(cx, cpu, prev, why)
    }
    fn saved(&self, cx: &Cx<'_>, _cpu: CpuId, prev: TaskId) {
        self.rules.lock().saved(cx, prev);
    }
    fn tick_due(&self, _cx: &Cx<'_>, _cpu: CpuId) -> u64 {
        u64::MAX
    }
    fn timer(&self, cx: &Cx<'_>, timer: Timer) {
        self.rules.lock().timer(cx, timer);
    }
    fn changed(&self, cx: &Cx<'_>, change: Change) {
        self.rules.lock().changed(cx, change);
    }
    fn resync(&self, cx: &Cx<'_>) {
        self.rules.lock().resync(cx);
    }
    fn explain(&self, cx: &Cx<'_>, cpu: CpuId) -> String {
        self.rules.lock().explain(cx, cpu)
    }
}
