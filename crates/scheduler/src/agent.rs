//! Schedulers that were written for user-space agents (ghOSt and its relatives). They decide for
//! many CPUs from one queue, and run anywhere: in the simulated kernel, behind simulated agents,
//! and over real threads.
//!
//! All but `search` are sets of [`Rules`](central::Rules) over the shared queue of [`central`]:
//! which level an activation belongs to, how long it may run there, and where it goes when that
//! time is used up. A new one is one file with its rules and its `ENTRY`, and one line in the
//! registry. `search` places by distance and has a queue of its own.

mod central;
mod fifo;
mod filter;
mod layers;
mod search;
mod shinjuku;

pub use fifo::CENTRALIZED as FIFO_CENTRALIZED;
pub use fifo::PER_CPU as FIFO_PER_CPU;
pub use filter::ENTRY as FILTER;
pub use layers::ENTRY as LAYERS;
pub use search::ENTRY as SEARCH;
pub use shinjuku::ENTRY as SHINJUKU;

use schedlab_model::Policy;

/// Batch work in the eyes of these schedulers: tasks whose owner says so by `SCHED_BATCH` or
/// `SCHED_IDLE`. ghOSt's Shinjuku reads a shared table that the application must fill; a policy is
/// what every program already can set.
fn is_batch(policy: Policy) -> bool {
    matches!(policy, Policy::Batch | Policy::Idle)
}

/// Why a task of this policy is not taken: none of these schedulers keeps reservations.
fn refuses_deadlines(policy: Policy) -> Option<&'static str> {
    matches!(policy, Policy::Deadline { .. }).then_some("it knows no deadlines; edf does")
}
