//! The fair class's queue of one group on one CPU.

use super::{EntityId, NONE};
use crate::linux::fair::eevdf::timeline::Timeline;
use crate::linux::fair::pelt::Signal;
use crate::linux::fair::weights::Load;
use schedlab_model::{GroupId, Ns};

/// A waiting entity with its sort key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) struct Waiting {
    /// CFS: vruntime; EEVDF: deadline.
    pub(in crate::linux) key: i64,
    /// Who.
    pub(in crate::linux) entity: EntityId,
}

/// The fair class's queue of one group on one CPU. What every decision touches comes first.
#[derive(Clone, Debug)]
#[repr(C)]
pub(in crate::linux) struct Queue {
    /// The entity of this queue that runs (or contains the one that runs); not in `waiting`.
    pub(in crate::linux) curr: EntityId,
    /// Entities queued and running.
    pub(in crate::linux) nr: u32,
    /// Tasks queued and running here and below.
    pub(in crate::linux) h_nr: u32,
    /// How many of `nr` are idle entities.
    pub(in crate::linux) idle_nr: u32,
    /// How many of `h_nr` are SCHED_IDLE (or below an idle group).
    pub(in crate::linux) idle_h_nr: u32,
    /// The group's entity in the parent's queue; [`NONE`] for the root.
    pub(in crate::linux) owner: EntityId,
    /// Sum of the weights of queued and running entities.
    pub(in crate::linux) load: Load,
    /// CFS: monotone lower bound of the vruntimes, virtual ns. EEVDF: base of the sums.
    pub(in crate::linux) min_vruntime: i64,
    /// EEVDF: sum of `weight * (vruntime - min_vruntime)` over `timeline`.
    pub(in crate::linux) avg_vruntime: i64,
    /// EEVDF: sum of the weights in `timeline`.
    pub(in crate::linux) avg_load: i64,
    // Second line.
    /// Several CPUs: load signals of everything in it.
    pub(in crate::linux) signal: Signal,
    /// CFS: preferred because it was woken and should have preempted.
    pub(in crate::linux) next: EntityId,
    /// CFS: preferred because a wakeup preempted it.
    pub(in crate::linux) last: EntityId,
    // Third line.
    /// EEVDF: the waiting entities by deadline (`waiting` stays empty).
    pub(in crate::linux) timeline: Timeline,
    /// The others, by descending key: the leftmost is the last. Equal keys are first in, first out.
    waiting: Vec<Waiting>,
    /// CFS: passed over because it yielded.
    pub(in crate::linux) skip: EntityId,
    // Rarely used.
    /// Whose.
    pub(in crate::linux) group: GroupId,
    /// Bandwidth: it may not run until it is refilled.
    pub(in crate::linux) throttled: bool,
    /// Bandwidth: its run time is limited.
    pub(in crate::linux) limited: bool,
    /// Bandwidth: run time left, ns; overruns are debts.
    pub(in crate::linux) runtime: i64,
    /// Bandwidth: the filling of the pool that `runtime` was taken from (`expires_seq`).
    pub(in crate::linux) filling: u64,
    /// Bandwidth: the owner's `sum_exec` up to which `runtime` is charged, ns.
    pub(in crate::linux) charged: u64,
    /// Bandwidth, 6.18: tasks that are throttled one by one.
    pub(in crate::linux) limbo: Vec<EntityId>,
    /// How many of this queue and those above it are throttled.
    pub(in crate::linux) throttle_count: u32,
    /// Several CPUs: the part of the group's load that this queue has reported, and when.
    pub(in crate::linux) reported: u64,
    pub(in crate::linux) reported_at: Ns,
}

impl Queue {
    /// An empty one.
    pub(in crate::linux) fn new(group: GroupId, owner: EntityId) -> Queue {
        Queue {
            group,
            owner,
            curr: NONE,
            waiting: Vec::new(),
            load: Load::default(),
            nr: 0,
            h_nr: 0,
            idle_nr: 0,
            idle_h_nr: 0,
            min_vruntime: 0,
            avg_vruntime: 0,
            avg_load: 0,
            timeline: Timeline::default(),
            next: NONE,
            last: NONE,
            skip: NONE,
            throttled: false,
            limited: false,
            reported: 0,
            reported_at: Ns::ZERO,
            runtime: 0,
            filling: 0,
            charged: 0,
            limbo: Vec::new(),
            throttle_count: 0,
            signal: Signal::zero(Ns::ZERO),
        }
    }
    /// Adds a waiting entity, to the right of those with the same key.
    #[inline]
    pub(in crate::linux) fn insert(&mut self, key: i64, entity: EntityId) {
        let at = self.position(key);
        self.waiting.insert(at, Waiting { key, entity });
    }
    /// Takes a waiting entity out.
    #[inline]
    pub(in crate::linux) fn remove(&mut self, key: i64, entity: EntityId) {
        let from = self.position(key);
        let found = self.waiting[from..].iter().position(|w| w.entity == entity);
        self.waiting.remove(from + found.expect("a waiting entity is in its queue under its key"));
    }
    /// Index of the first entry whose key is not above `key`.
    #[inline]
    fn position(&self, key: i64) -> usize {
        if self.waiting.len() <= 8 {
            self.waiting.iter().position(|w| w.key <= key).unwrap_or(self.waiting.len())
        } else {
            self.waiting.partition_point(|w| w.key > key)
        }
    }
    /// The waiting entity with the smallest key.
    #[inline]
    pub(in crate::linux) fn leftmost(&self) -> Option<Waiting> {
        self.waiting.last().copied()
    }
    /// The one after the leftmost.
    #[inline]
    pub(in crate::linux) fn second(&self) -> Option<Waiting> {
        self.waiting.len().checked_sub(2).map(|i| self.waiting[i])
    }
    /// The waiting entities, by descending key.
    #[cfg(test)]
    pub(in crate::linux) fn waiting(&self) -> &[Waiting] {
        &self.waiting
    }
    /// Whether only idle entities are in it (and at least one).
    #[inline]
    pub(in crate::linux) fn only_idle(&self) -> bool {
        self.nr > 0 && self.nr == self.idle_nr
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_are_first_in_first_out() {
        let mut queue = Queue::new(GroupId::ROOT, NONE);
        for (key, entity) in [(5, 0), (3, 1), (5, 2), (3, 3), (4, 4)] {
            queue.insert(key, entity);
        }
        let order: Vec<u32> = queue.waiting().iter().rev().map(|w| w.entity).collect();
        assert_eq!(order, [1, 3, 4, 0, 2]);
        queue.remove(3, 3);
        queue.remove(5, 0);
        assert_eq!((queue.leftmost().unwrap().entity, queue.second().unwrap().entity), (1, 4));
    }
}
