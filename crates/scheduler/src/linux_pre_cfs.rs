//! Linux before CFS: the global list of 2.4, the multi-queue patch, and the O(1) scheduler.
//!
//! * [`standard`]: `linux-2.4`, one list of all runnable tasks behind one lock, searched for the best
//!   *goodness* at each decision (2.4.0 … 2.4.37, as in 2.4.17).
//! * [`multiqueue`]: `linux-2.4-mq`, the same decision from per-CPU lists that advertise their best task
//!   (Kravetz and Franke's patch of December 2001).
//! * [`o1`]: `linux-2.4-o1`, `linux-2.6.0` and `linux-2.6.22`, per-CPU priority arrays, a bitmap, an estimate of
//!   interactivity, balancing (January 2002 … 2007).
//!
//! They keep time in ticks: nothing here knows nanoseconds, except O(1)'s sleep estimate.

mod goodness;
mod lists;
mod multiqueue;
mod o1;
mod records;
mod standard;

use schedlab_model::Policy;

/// What tasks of a policy that came later are treated as. `batch`: SCHED_BATCH (2.6.16) is known.
fn stands_in(policy: Policy, batch: bool) -> Option<&'static str> {
    match policy {
        Policy::Deadline { .. } => {
            Some("it has no SCHED_DEADLINE (Linux 3.14): these tasks run as SCHED_OTHER")
        }
        Policy::Idle if batch => Some("it has no SCHED_IDLE (Linux 2.6.23): these tasks run as SCHED_BATCH"),
        Policy::Idle => Some("it has no SCHED_IDLE (Linux 2.6.23): these tasks run as SCHED_OTHER"),
        Policy::Batch if !batch => {
            Some("it has no SCHED_BATCH (Linux 2.6.16): these tasks run as SCHED_OTHER")
        }
        _ => None,
    }
}

pub use multiqueue::{build_mq, knobs_mq, new_mq};
pub use o1::{build_2_4_o1, build_2_6_0, build_2_6_22, knobs_o1, new_2_4_o1, new_2_6_22};
pub use standard::{build_2_4, knobs_2_4, new_2_4};
