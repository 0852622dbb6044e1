//! Single waits and activations, where a caller of the summary wants them.

use schedlab_model::{CpuId, Ns, PrevState, TaskId, Waker};

/// One wait for the CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// Who waited.
    pub task: TaskId,
    /// The CPU on which it ended.
    pub cpu: CpuId,
    /// When it became runnable.
    pub began: Ns,
    /// When it ran.
    pub ended: Ns,
    /// `ended - began` without throttled time.
    pub wait: Ns,
    /// After a preemption or yield (`false`: after a wakeup).
    pub preempted: bool,
}

/// One activation: from a wakeup or creation to the next block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Activation {
    /// The task.
    pub task: TaskId,
    /// When it woke or was created.
    pub woke: Ns,
    /// When it blocked.
    pub blocked: Ns,
    /// CPU time in between, without stolen time.
    pub demand: Ns,
    /// How it began.
    pub cause: WakeCause,
    /// What it does then.
    pub state: PrevState,
}

/// How an activation began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WakeCause {
    /// With a wakeup.
    Woken(Waker),
    /// With the task's creation, by this task where known.
    Created(Option<TaskId>),
}
