//! The one event stream: what a simulator, a recorder and a live agent all emit.

use crate::{CpuId, Fact, GroupId, Ns, TaskId};
use serde::{Deserialize, Serialize};

/// Something that happened to the schedule. Events of one run are in non-decreasing time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct SchedEvent {
    /// When, in nanoseconds since the start of the run (simulator) or of the recording.
    pub at: Ns,
    /// The CPU on which it happened (for a wakeup: where the waker ran).
    pub cpu: CpuId,
    /// What.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum EventKind {
    /// A context switch. `None` is the idle task.
    Switch {
        /// Who ran until now.
        prev: Option<TaskId>,
        /// Why `prev` stopped ([`PrevState::Runnable`] for idle).
        prev_state: PrevState,
        /// Who runs from now.
        next: Option<TaskId>,
    },
    /// A task became runnable (Linux: `sched_waking`).
    Wake {
        /// The wakee.
        task: TaskId,
        /// On whose behalf.
        waker: Waker,
    },
    /// A task was created and is runnable from now on. Its first wakeup is not reported apart.
    New {
        /// The new task.
        task: TaskId,
        /// Who created it, where known.
        parent: Option<TaskId>,
    },
    /// A task changed its program image.
    Exec {
        /// Which task.
        task: TaskId,
    },
    /// A task ended.
    Exit {
        /// Which task.
        task: TaskId,
    },
    /// A task was moved to another CPU's run queue.
    Migrate {
        /// Which task.
        task: TaskId,
        /// From this CPU.
        from: CpuId,
        /// To this CPU.
        to: CpuId,
    },
    /// A runnable task may not run now: bandwidth limit, cap or real-time throttling.
    Throttle {
        /// Which task.
        task: TaskId,
    },
    /// The opposite of `Throttle`.
    Unthrottle {
        /// Which task.
        task: TaskId,
    },
    /// The hypervisor took the CPU away for `ns` that end now.
    Steal {
        /// Stolen time in nanoseconds.
        ns: Ns,
    },
    /// A task moved to another control group.
    Regroup {
        /// Which task.
        task: TaskId,
        /// Its group from now on.
        group: GroupId,
    },
    /// A task entered a system call.
    SyscallEnter {
        /// Which task.
        task: TaskId,
        /// The call's number on the recorded machine.
        number: u32,
    },
    /// A task came back from its system call.
    SyscallExit {
        /// Which task.
        task: TaskId,
    },
    /// The recorder lost `count` events of this CPU somewhere before now.
    Lost {
        /// How many.
        count: u64,
    },
}

/// Why the previous task stopped running.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrevState {
    /// Still runnable: preempted, or it yielded.
    Runnable,
    /// Preempted inside the kernel (`R+`).
    RunnableInKernel,
    /// Blocked, interruptibly (`S`): waiting for an event.
    Sleeping,
    /// Blocked, uninterruptibly (`D`): usually disk or a kernel lock.
    DiskSleep,
    /// Stopped or traced (`T`, `t`).
    Stopped,
    /// Gone (`X`, `Z`).
    Dead,
    /// The recorder cannot tell (context-switch records know only preempted or not).
    Blocked,
    /// The recorder knows nothing.
    Unknown,
}

impl PrevState {
    /// Whether the task still wants the CPU; `None` when unknown.
    #[inline]
    pub const fn is_runnable(self) -> Option<bool> {
        match self {
            PrevState::Runnable | PrevState::RunnableInKernel => Some(true),
            PrevState::Unknown => None,
            _ => Some(false),
        }
    }
}

/// On whose behalf a wakeup happened. Only a task's own doing makes a dependency; interrupts are
/// the outside world (ARCHITECTURE.md, "only the outside world is outside").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Waker {
    /// The task that was running, in its own context.
    Task(TaskId),
    /// A softirq that ran inside this task's system call (a loopback send): the task's own doing.
    InlineSoftirq(TaskId),
    /// A softirq at the exit of an interrupt, or ksoftirqd: the outside world.
    SoftIrq,
    /// A hardware interrupt, or a timer: the outside world.
    HardIrq,
    /// The recorder cannot tell.
    Unknown,
}

impl Waker {
    /// The task whose doing the wakeup was.
    #[inline]
    pub const fn task(self) -> Option<TaskId> {
        match self {
            Waker::Task(task) | Waker::InlineSoftirq(task) => Some(task),
            _ => None,
        }
    }
}

/// Receives events in time order. The simulator, the recorder and the live agent write into one.
pub trait EventSink {
    /// One event.
    fn event(&mut self, event: &SchedEvent);

    /// One fact: what a task exchanged. A sink that does not care for facts keeps this.
    fn fact(&mut self, _: &Fact) {}

    /// Returns whether [`EventSink::event`] does nothing, so that a driver need not call it.
    fn ignores_all(&self) -> bool {
        false
    }
}

/// Ignores everything.
impl EventSink for () {
    #[inline]
    fn event(&mut self, _: &SchedEvent) {}

    fn ignores_all(&self) -> bool {
        true
    }
}

/// Keeps everything.
impl EventSink for Vec<SchedEvent> {
    fn event(&mut self, event: &SchedEvent) {
        self.push(*event);
    }
}

impl<A: EventSink, B: EventSink> EventSink for (A, B) {
    #[inline]
    fn event(&mut self, event: &SchedEvent) {
        self.0.event(event);
        self.1.event(event);
    }

    fn fact(&mut self, fact: &Fact) {
        self.0.fact(fact);
        self.1.fact(fact);
    }

    fn ignores_all(&self) -> bool {
        self.0.ignores_all() && self.1.ignores_all()
    }
}

impl<S: EventSink + ?Sized> EventSink for &mut S {
    #[inline]
    fn event(&mut self, event: &SchedEvent) {
        (**self).event(event);
    }

    fn fact(&mut self, fact: &Fact) {
        (**self).fact(fact);
    }

    fn ignores_all(&self) -> bool {
        (**self).ignores_all()
    }
}
