//! Linux before CFS: the global list of 2.4, the multi-queue patch, and the O(1) scheduler.
//!
//! * [`standard`]: `linux-2.4`, one list of all runnable tasks behind one lock, searched for the
//!   best *goodness* at each decision (2.4.0 … 2.4.37, as in 2.4.17).
//! * [`multiqueue`]: `linux-2.4-mq`, the same decision from per-CPU lists that advertise their best
//!   task (Kravetz and Franke's patch of December 2001).
//! * [`o1`]: `linux-2.4-o1`, `linux-2.6.0` and `linux-2.6.22`, per-CPU priority arrays, a bitmap,
//!   an estimate of interactivity, balancing (January 2002 … 2007).
//!
//! They keep time in ticks: nothing here knows nanoseconds, except O(1)'s sleep estimate.

mod goodness;
mod lists;
mod multiqueue;
mod o1;
mod records;
mod standard;

use crate::CellLocks;
use crate::linux::KernelRelease;
use crate::registry::{Entry, Family};
use schedlab_model::Policy;

pub use multiqueue::new_mq;
pub use o1::{new_2_4_o1, new_2_6_22};
pub use standard::new_2_4;

/// `linux-2.4`.
pub(crate) const V2_4: Entry = Entry {
    name: "linux-2.4",
    summary: "goodness on one list behind one lock (Linux 2.4)",
    family: Family::Linux(KernelRelease::new(2, 4, 0)),
    proposed_live: false,
    knobs: goodness::knobs,
    build: |cpus, knobs| Box::new(new_2_4::<CellLocks>(cpus, knobs)),
};

/// `linux-2.4-mq`.
pub(crate) const V2_4_MQ: Entry = Entry {
    name: "linux-2.4-mq",
    summary: "the 2.4 decision from per-CPU lists (multi-queue patch of 2001)",
    knobs: multiqueue::knobs_mq,
    build: |cpus, knobs| Box::new(new_mq::<CellLocks>(cpus, knobs)),
    ..V2_4
};

/// `linux-2.4-o1`.
pub(crate) const V2_4_O1: Entry = Entry {
    name: "linux-2.4-o1",
    summary: "the O(1) patch on 2.4 (early 2002): 10 to 300 ms slices",
    knobs: o1::knobs_o1,
    build: |cpus, knobs| Box::new(new_2_4_o1::<CellLocks>(cpus, knobs)),
    ..V2_4
};

/// `linux-2.6.0`.
pub(crate) const V2_6_0: Entry = Entry {
    name: "linux-2.6.0",
    summary: "the first O(1) of 2.6 (2.6.0 to 2.6.7): 10 to 200 ms slices, sleep credit by bonus",
    family: Family::Linux(KernelRelease::new(2, 6, 0)),
    build: |cpus, knobs| Box::new(o1::new_2_6_0::<CellLocks>(cpus, knobs)),
    ..V2_4_O1
};

/// `linux-2.6.22`.
pub(crate) const V2_6_22: Entry = Entry {
    name: "linux-2.6.22",
    summary: "the last O(1) (2.6.8 to 2.6.22): 5 to 800 ms slices, interactivity",
    family: Family::Linux(KernelRelease::new(2, 6, 22)),
    build: |cpus, knobs| Box::new(new_2_6_22::<CellLocks>(cpus, knobs)),
    ..V2_4_O1
};

/// What tasks of a policy that came later are treated as. `batch`: SCHED_BATCH (2.6.16) is known.
fn stands_in(policy: Policy, batch: bool) -> Option<&'static str> {
    match policy {
        Policy::Deadline { .. } => {
            Some("it has no SCHED_DEADLINE (Linux 3.14): these tasks run as SCHED_OTHER")
        }
        Policy::Idle if batch => {
            Some("it has no SCHED_IDLE (Linux 2.6.23): these tasks run as SCHED_BATCH")
        }
        Policy::Idle => Some("it has no SCHED_IDLE (Linux 2.6.23): these tasks run as SCHED_OTHER"),
        Policy::Batch if !batch => {
            Some("it has no SCHED_BATCH (Linux 2.6.16): these tasks run as SCHED_OTHER")
        }
        _ => None,
    }
}
