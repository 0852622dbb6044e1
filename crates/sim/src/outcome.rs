//! What a run gives back.

use crate::Metrics;
use schedlab_model::{ChannelId, LockId, Ns, TaskId};
use schedlab_scheduler::Work;

/// What a run gives back.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was measured.
    pub metrics: Metrics,
    /// A hash over every event of the run. Equal inputs give equal hashes on every machine.
    pub event_hash: u64,
    /// How many events there were.
    pub events: u64,
    /// The duration of the run, or the time of the last event when nobody was runnable and nothing pending
    /// after it. (Metrics go on to the end of the duration in both cases.)
    pub ended: Ns,
    /// Tasks that wait for ever: nobody is runnable and nothing is pending. Empty when the run could go on.
    pub stuck: Vec<Stuck>,
    /// Units of scheduler work, by [`Work`].
    pub work: [u64; Work::COUNT],
}

/// A task that waits for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stuck {
    /// Which.
    pub task: TaskId,
    /// For what.
    pub waits_for: WaitsFor,
}

/// What a stuck task waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitsFor {
    /// A token.
    Receive(ChannelId),
    /// Room in a full channel.
    Room(ChannelId),
    /// A mutex and its owner.
    Lock(LockId, Option<TaskId>),
}
