//! The result of a run.

use crate::Metrics;
use schedlab_model::{ChannelId, ExecutorId, LockId, Ns, ObjectId, TaskId};
use schedlab_scheduler::Work;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The measurements.
    pub metrics: Metrics,
    /// A hash over every event of the run. Equal inputs give equal hashes on every machine.
    pub event_hash: u64,
    /// Number of events.
    pub events: u64,
    /// The duration of the run, or the time of the last event when no task was runnable and nothing
    /// pending after it. (Metrics go on to the end of the duration in both cases.)
    pub ended: Ns,
    /// Tasks that wait for ever: none is runnable and nothing is pending. Empty when the run could
    /// go on.
    pub stuck: Vec<Stuck>,
    /// Units of scheduler work, by [`Work`].
    pub work: [u64; Work::COUNT],
}

/// A task that waits for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stuck {
    /// The task.
    pub task: TaskId,
    /// What it waits for.
    pub waits_for: WaitsFor,
}

/// What a stuck task waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitsFor {
    /// A token.
    Receive(ChannelId),
    /// Room in a full channel.
    Room(ChannelId),
    /// A message at an object, or room there.
    Object(ObjectId),
    /// Work for an executor.
    Executor(ExecutorId),
    /// A mutex and its owner.
    Lock(LockId, Option<TaskId>),
}
