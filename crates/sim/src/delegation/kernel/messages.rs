//! What the kernel tells agents.

use crate::delegation::agent_view::Alarm;
use schedlab_model::{CpuId, Ns, TaskId};
use schedlab_scheduler::Wake;

/// What an agent is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::delegation) struct Message {
    /// When it happened.
    pub(in crate::delegation) posted: u64,
    /// When an agent can read it.
    pub(in crate::delegation) visible: u64,
    /// Where it happened.
    pub(in crate::delegation) cpu: CpuId,
    /// The CPU to whose queue it belongs: all messages about a task go where it ran last.
    pub(in crate::delegation) home: CpuId,
    pub(in crate::delegation) what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::delegation) enum What {
    /// About a task, with its sequence number.
    Task(TaskId, u32, News),
    /// The kernel's own scheduler took the CPU (CPU_BUSY), or gave it back (CPU_AVAILABLE).
    Available(bool),
    /// Something of the agents' own is due on this CPU (CPU_TICK, CPU_TIMER_EXPIRED).
    Alarm(Alarm),
}

/// What became of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::delegation) enum News {
    New {
        parent: Option<TaskId>,
        released: Ns,
    },
    Wakeup {
        wake: Wake,
        released: Ns,
    },
    Blocked,
    Dead,
    Preempted,
    Yielded,
    LatchFailed,
    /// A late periodic job begins; not a message of ghOSt's but of the table that applications
    /// share with agents.
    Released(Ns),
}
