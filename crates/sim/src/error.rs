//! Why a run is refused or given up.

use schedlab_model::{CpuId, CpuSet, Ns, Policy, WorkloadError};

/// Why a run is refused or given up. Nothing here is a panic: bad input is `Workload`, `Machine`,
/// `Livelock` or `Restless`; a scheduler that breaks the contract is named with the state of its
/// run queue.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// A reference to something that is not there, or a program that never lets time pass.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A machine that cannot be.
    #[error("machine: {0}")]
    Machine(String),
    /// The caller ended the run.
    #[error("the run was ended")]
    Stopped,
    /// The scheduler needs something that this driver does not have.
    #[error("the scheduler needs {0}, which the simulator does not have")]
    Needs(String),
    /// The scheduler cannot serve a task.
    #[error("task `{task}` has policy {policy}, which this scheduler does not serve: {why}")]
    Refused {
        /// Name of the task.
        task: String,
        /// Its policy.
        policy: Policy,
        /// What the scheduler says.
        why: &'static str,
    },
    /// The scheduler ended itself, or its system ended it.
    #[error("at {at}: {why}")]
    GaveUp {
        /// When.
        at: Ns,
        /// The reason, in the words of its system.
        why: String,
    },
    /// The scheduler does not admit the tasks together.
    #[error("not admitted{}: {why}", .task.as_ref().map_or(String::new(), |task| format!(": task \
        `{task}`")))]
    Admission {
        /// Name of the task at fault, if it is a single one.
        task: Option<String>,
        /// What the scheduler says.
        why: String,
    },
    /// The group's cpuset and the task's mask have no CPU in common.
    #[error(
        "task `{task}` may run on CPUs {affinity}, but its group's `cpus` and the machine leave \
         none of them"
    )]
    Cpuset {
        /// Name of the task.
        task: String,
        /// The task's own mask.
        affinity: CpuSet,
    },
    /// What isolated CPUs leave for a task is nothing.
    #[error(
        "task `{task}` may run on CPUs {affinity}, of which isolated CPUs ({isolated}) leave none: a \
         partition has its CPUs to itself, and what may run everywhere keeps off those of isolcpus; \
         move the task to the partition's group, or give it `cpus`"
    )]
    Isolated {
        /// Name of the task.
        task: String,
        /// The task's own mask.
        affinity: CpuSet,
        /// The isolated CPUs.
        isolated: Box<CpuSet>,
    },
    /// A program does something that makes no sense at that moment.
    #[error("task `{task}` at {at}: {what}")]
    Program {
        /// Name of the task.
        task: String,
        /// When.
        at: Ns,
        /// What it did.
        what: String,
    },
    /// A million steps without time passing.
    #[error(
        "at {at} task `{task}` went through {steps} steps without time passing: tasks that wake \
         each other \
         need a `run` or `sleep` longer than 0 somewhere in the circle; where a scheduler lets \
         tasks change places for \
         ever, switches need a price (`other_switch_ns` of the machine's costs)"
    )]
    Livelock {
        /// Name of the task that made the last step.
        task: String,
        /// When.
        at: Ns,
        /// How many steps.
        steps: u64,
    },
    /// A million steps of agents without time passing.
    #[error(
        "at {at} agents went through {steps} steps without time passing: a scheduler that lets \
         tasks change places for \
         ever needs agents whose work takes time (`costs` of `[delegation]`)"
    )]
    Restless {
        /// When.
        at: Ns,
        /// How many steps.
        steps: u64,
    },
    /// More requests wait in a channel than the simulator keeps.
    #[error(
        "channel `{channel}`: more than {limit} sends wait at {at}; the requests come faster than \
         they are served"
    )]
    Backlog {
        /// Name of the channel.
        channel: String,
        /// When.
        at: Ns,
        /// The limit.
        limit: usize,
    },
    /// The scheduler broke its contract.
    #[error("scheduler fault at {at} on {cpu}: {what}{}", explain(.state))]
    Scheduler {
        /// When.
        at: Ns,
        /// The CPU decided for.
        cpu: CpuId,
        /// What it did.
        what: String,
        /// What the scheduler says about its run queue.
        state: String,
    },
    /// An invariant of the simulator itself does not hold. A bug: please report it.
    #[error(
        "simulator fault at {at}: {what} (a bug of schedlab: please report it with the scenario)"
    )]
    Internal {
        /// When.
        at: Ns,
        /// Which one.
        what: String,
    },
}

fn explain(state: &str) -> String {
    if state.is_empty() { String::new() } else { format!("; its run queue: {state}") }
}
