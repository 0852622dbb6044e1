//! Which of the threads that are born descend from managed ones.
//!
//! A few followed threads are named in the filters of the tracepoints; of many the kernel tells
//! about every thread of the machine ([`schedlab_host::follow::Adder::add`]), other people's births
//! among them.

use super::super::agent::Birth;
use schedlab_host::threads::{Identity, identity};
use std::collections::BTreeMap;

/// For so many heartbeats a birth is kept whose maker is not known. Agents tell in no order among
/// each other: a grandchild may come before its parent.
const HEARTBEATS: u32 = 3;
/// Members that are remembered; beyond that, those that have ended are forgotten.
const MEMBERS: usize = 4096;

/// See the module.
#[derive(Default)]
pub(super) struct Lineage {
    /// Managed threads and their descendants: when each started, where that is known.
    members: BTreeMap<u32, Option<u64>>,
    /// Births that were heard of and are not known to be managed, with the heartbeats since.
    unknown: Vec<(Birth, u32)>,
}

impl Lineage {
    /// A thread comes under management.
    pub(super) fn joined(&mut self, thread: &Identity) {
        self.members.insert(thread.tid, Some(thread.started));
    }

    /// A thread was made by a process, managed or not.
    pub(super) fn heard(&mut self, birth: Birth) {
        self.unknown.push((birth, 0));
    }

    /// Returns the births since the last call whose makers are members. They are members from now
    /// on.
    pub(super) fn ours(&mut self) -> Vec<Birth> {
        self.ours_among(&|tid| identity(tid).map(|one| one.started))
    }

    /// `started` tells when a thread that lives started.
    fn ours_among(&mut self, started: &dyn Fn(u32) -> Option<u64>) -> Vec<Birth> {
        let mut found = Vec::new();
        loop {
            let before = found.len();
            self.unknown.retain(|(birth, _)| {
                let is_ours = is_member(&self.members, birth.parent, started);
                if is_ours {
                    self.members.insert(birth.child, started(birth.child));
                    found.push(*birth);
                }
                !is_ours
            });
            if found.len() == before {
                break;
            }
        }
        found
    }

    /// A heartbeat is over: births whose makers were not known in several are other people's.
    pub(super) fn forget(&mut self) {
        self.unknown.retain_mut(|(_, beats)| {
            *beats += 1;
            *beats < HEARTBEATS
        });
        if self.members.len() > MEMBERS {
            self.members.retain(|tid, _| identity(*tid).is_some());
        }
    }
}

/// Numbers are used again: a thread that lives is a member when it began as the member did.
fn is_member(
    members: &BTreeMap<u32, Option<u64>>,
    tid: u32,
    started: &dyn Fn(u32) -> Option<u64>,
) -> bool {
    members.get(&tid).is_some_and(|known| match (known, started(tid)) {
        (Some(known), Some(now)) => *known == now,
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::CpuId;

    fn birth(parent: u32, child: u32) -> Birth {
        Birth { child, parent, cpu: CpuId(1) }
    }

    /// Thread N started at 10 N, and 8 has ended.
    fn started(tid: u32) -> Option<u64> {
        (tid != 8).then_some(u64::from(tid) * 10)
    }

    #[test]
    fn children_of_others_are_not_ours_and_grandchildren_are() {
        let mut lineage = Lineage::default();
        lineage.members.insert(5, Some(50));
        // The grandchild is told of first, and its parent has ended.
        for one in [birth(8, 9), birth(100, 101), birth(5, 8), birth(101, 102)] {
            lineage.heard(one);
        }
        assert_eq!(lineage.ours_among(&started), [birth(5, 8), birth(8, 9)]);
        // Told by another agent, late.
        lineage.heard(birth(9, 12));
        assert_eq!(lineage.ours_among(&started), [birth(9, 12)]);
        (0..HEARTBEATS).for_each(|_| lineage.forget());
        assert_eq!(lineage.ours_among(&started), []);
        assert!(lineage.unknown.is_empty(), "other people's births are forgotten");
    }

    #[test]
    fn a_birth_waits_for_that_of_its_maker() {
        let mut lineage = Lineage::default();
        lineage.members.insert(5, Some(50));
        lineage.heard(birth(6, 7));
        assert_eq!(lineage.ours_among(&started), []);
        lineage.forget();
        lineage.heard(birth(5, 6));
        assert_eq!(lineage.ours_among(&started), [birth(5, 6), birth(6, 7)]);
    }

    #[test]
    fn a_number_that_is_used_again_is_another_thread() {
        let mut lineage = Lineage::default();
        lineage.members.insert(5, Some(40));
        lineage.heard(birth(5, 6));
        assert_eq!(lineage.ours_among(&started), []);
    }
}
