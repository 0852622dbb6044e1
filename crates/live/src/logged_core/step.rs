//! What happens to a scheduler behind live agents, as a log has it.

use schedlab_model::{CpuId, CpuSet, Nice, Ns, Policy, TaskId, Waker};
use schedlab_scheduler::Timer;
use serde::{Deserialize, Serialize};

/// One thing that happened; a line of a log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// When, on the monotonic clock since the start of the run.
    pub at: Ns,
    /// What happened.
    pub what: StepKind,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepKind {
    /// A thread came under management; it sleeps until its first `Wake`.
    Join {
        /// Number of the task: the next free one.
        task: u32,
        /// The policy that the scheduler takes it for.
        policy: Policy,
        /// Nice value.
        nice: Nice,
        /// Where it may run, of the managed CPUs.
        affinity: CpuSet,
        /// Process id.
        process: u32,
    },
    /// A task became runnable.
    Wake {
        /// Which task.
        task: u32,
        /// On whose behalf.
        #[serde(default, skip_serializing_if = "WokenBy::is_unknown")]
        by: WokenBy,
    },
    /// The scheduler takes a task for one of another policy from now on.
    Policy {
        /// Which task.
        task: u32,
        /// That policy.
        policy: Policy,
    },
    /// The nice value of a task changed.
    Nice {
        /// Which task.
        task: u32,
        /// The nice value now.
        nice: Nice,
    },
    /// The affinity of a task changed.
    Affinity {
        /// Which task.
        task: u32,
        /// Where it may run now.
        affinity: CpuSet,
    },
    /// A task that does not run left: it ended, or was released.
    Leave {
        /// Which task.
        task: u32,
    },
    /// The task that runs on a CPU called `sched_yield`: the next decision there tells the
    /// scheduler.
    Yield {
        /// Which CPU.
        cpu: u32,
    },
    /// A CPU must decide.
    Decide {
        /// Which CPU.
        cpu: u32,
        /// What became of the task that ran there; `Idle` when none did.
        prev: Fate,
    },
    /// A tick edge of a CPU.
    Tick {
        /// Which CPU.
        cpu: u32,
    },
    /// A timer that the scheduler armed fired.
    Timer {
        /// The timer.
        timer: LoggedTimer,
    },
}

/// The context in which a task was woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WokenBy {
    /// Not known, or a thread that is not managed.
    #[default]
    Unknown,
    /// A managed task, in its own context.
    Task(u32),
    /// A softirq.
    SoftIrq,
    /// A hardware interrupt.
    HardIrq,
}

impl WokenBy {
    /// Returns whether nothing is known.
    pub fn is_unknown(&self) -> bool {
        *self == WokenBy::Unknown
    }

    pub(super) fn waker(self, tasks: u32) -> Waker {
        match self {
            WokenBy::Task(task) if task < tasks => Waker::Task(TaskId(task)),
            WokenBy::SoftIrq => Waker::SoftIrq,
            WokenBy::HardIrq => Waker::HardIrq,
            WokenBy::Task(_) | WokenBy::Unknown => Waker::Unknown,
        }
    }
}

/// What became of the task that ran on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// No task ran.
    Idle,
    /// The task wants to go on.
    Runnable,
    /// The task sleeps.
    Blocked,
    /// The task ended, or is managed no longer.
    Exited,
}

/// A timer, as the log writes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoggedTimer {
    /// Of a CPU.
    Cpu(u32, u8),
    /// Of a task.
    Task(u32),
    /// Of the machine.
    Global(u8),
}

impl From<Timer> for LoggedTimer {
    fn from(timer: Timer) -> LoggedTimer {
        match timer {
            Timer::Cpu(cpu, slot) => LoggedTimer::Cpu(cpu.0, slot),
            Timer::Task(task) => LoggedTimer::Task(task.0),
            Timer::Global(slot) => LoggedTimer::Global(slot),
        }
    }
}

impl From<LoggedTimer> for Timer {
    fn from(slot: LoggedTimer) -> Timer {
        match slot {
            LoggedTimer::Cpu(cpu, slot) => Timer::Cpu(CpuId(cpu), slot),
            LoggedTimer::Task(task) => Timer::Task(TaskId(task)),
            LoggedTimer::Global(slot) => Timer::Global(slot),
        }
    }
}
