//! A workload: tasks with their programs, groups, channels and sources. It says nothing about a
//! scheduler.

use crate::{
    Amount, ChannelId, CpuId, CpuSet, Draw, Exchange, GroupId, LockId, Nice, Ns, Op, Policy,
    Program, TaskId,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Everything that happens on a machine apart from scheduling.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Workload {
    /// Control groups (Linux) or domains (Xen). The first is the root; a missing list means just
    /// the root.
    pub groups: Vec<GroupSpec>,
    /// The tasks; a [`TaskId`] is the index. Tasks that are spawned later are listed too.
    pub tasks: Vec<TaskSpec>,
    /// Channels, by [`ChannelId`].
    pub channels: Vec<ChannelSpec>,
    /// How many mutexes there are; a [`LockId`] is below it.
    pub locks: u32,
    /// Mutexes with priority inheritance: the owner runs at the priority of its highest waiter.
    pub inheriting_locks: Vec<LockId>,
    /// Requests from outside.
    pub sources: Vec<SourceSpec>,
    /// Threads that hand their work to each other; a thread is in one of these at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handoffs: Vec<Handoff>,
    /// Objects, and the scripts and executors of those that exchange something there.
    #[serde(default, skip_serializing_if = "Exchange::is_empty")]
    pub exchange: Exchange,
}

/// Threads of one runtime that multiplexes its own tasks over them (Go's goroutines over its Ms).
/// Some carry a program, the others are parked. A thread that loses its CPU while it is in a system
/// call does not hold up its program: after a while a parked thread is woken and goes on with it
/// (`retake` and `handoffp` in Go's runtime/proc.go).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Handoff {
    /// The threads.
    pub threads: Vec<TaskId>,
    /// The channel in which parked threads wait; nothing is ever sent there. Their own program is
    /// to receive from it.
    pub parked: ChannelId,
    /// How long a thread is runnable without running before its program goes on in another one.
    pub after: Draw,
    /// How often that happens, in thousandths of the times that a thread waited so long.
    pub permille: u32,
    /// CPU time that the thread without its program needs until it parks.
    pub rest: Draw,
}

/// A control group or a domain.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GroupSpec {
    /// Path below the root, such as `/batch`; the root is `/`.
    pub name: String,
    /// The parent; `None` for the root only.
    pub parent: Option<GroupId>,
    /// Relative weight in the unit of the scheduler's family; `None` is its default. Linux:
    /// `cpu.shares`, 2 … 262144, default 1024 (cgroup v2 `cpu.weight` × 10.24). Xen: 1 … 65535,
    /// default 256.
    pub weight: Option<u32>,
    /// Linux `cpu.idle`: the whole group is served as SCHED_IDLE.
    pub idle: bool,
    /// Linux `cpu.max`.
    pub bandwidth: Option<Bandwidth>,
    /// Linux autogroup: the group is that of a session (`setsid`), not for a cgroup. A scheduler
    /// whose `sched_autogroup_enabled` is off treats its tasks as the parent's. Its weight is the
    /// session's nice value as a weight (`/proc/PID/autogroup`), 1024 by default.
    #[serde(default)]
    pub autogroup: bool,
    /// Xen `cap`: per cent of one pCPU, 0 = none.
    pub cap_percent: u32,
    /// The tasks of this group may run only here (cpuset).
    pub cpus: Option<CpuSet>,
    /// Linux `cpuset.cpus.partition`.
    #[serde(default)]
    pub partition: Partition,
}

/// Whether the CPUs of a control group are its own (Linux `cpuset.cpus.partition`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Partition {
    /// Other tasks run there too.
    #[default]
    Member,
    /// No other task runs there, and the load is balanced among them.
    Root,
    /// No other task runs there, and the load balancer leaves them alone.
    Isolated,
}

impl Partition {
    /// All, in the order in which texts name them.
    pub const ALL: [Partition; 3] = [Partition::Member, Partition::Root, Partition::Isolated];

    /// Returns the name that the kernel has for it.
    pub const fn name(self) -> &'static str {
        match self {
            Partition::Member => "member",
            Partition::Root => "root",
            Partition::Isolated => "isolated",
        }
    }
}

/// Linux CFS bandwidth control: at most `quota` of CPU time (over all CPUs) in each `period`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Bandwidth {
    /// CPU time per period; at least 1 ms.
    pub quota: Ns,
    /// Period; 1 ms … 1 s, default 100 ms.
    pub period: Ns,
    /// `cpu.max.burst`: unused quota that may be saved up.
    pub burst: Ns,
}

/// One task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Name, as in `comm`. Several tasks may share one.
    pub name: String,
    /// Address space: tasks with the same number are threads of one process.
    pub process: u32,
    /// Policy.
    pub policy: Policy,
    /// Nice value; matters for the fair policies (and the slices of old kernels).
    pub nice: Nice,
    /// Where it may run.
    pub affinity: CpuSet,
    /// Where it prefers to run (Xen soft affinity).
    pub soft_affinity: CpuSet,
    /// Its group.
    pub group: GroupId,
    /// Custom slice (`sched_setattr` with `sched_runtime` for fair policies, Linux 6.12+).
    pub slice: Option<Ns>,
    /// When it becomes runnable first.
    pub start: Start,
    /// The CPU on which the task begins, if that is known (from a recording, or from `begins` of a
    /// scenario); `None`: the scheduler places it.
    #[serde(default)]
    pub began_on: Option<CpuId>,
    /// What it does. Workloads that differ in other settings share it: the programs of a large
    /// recording are by far the largest part of its workload.
    #[serde(with = "shared")]
    pub program: Arc<Program>,
}

impl TaskSpec {
    /// A task in the root group: policy other, nice 0, any CPU, a process of its own, runnable at
    /// time 0.
    pub fn new(name: impl Into<String>, program: impl Into<Arc<Program>>) -> TaskSpec {
        TaskSpec {
            name: name.into(),
            process: u32::MAX,
            policy: Policy::Other,
            nice: Nice::ZERO,
            affinity: CpuSet::ALL,
            soft_affinity: CpuSet::ALL,
            group: GroupId::ROOT,
            slice: None,
            start: Start::At(Ns::ZERO),
            began_on: None,
            program: program.into(),
        }
    }
}

/// A shared program as a file has it: as a program.
mod shared {
    use crate::Program;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::sync::Arc;

    pub(super) fn serialize<S: Serializer>(
        program: &Arc<Program>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Program::serialize(program, serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<Program>, D::Error> {
        Program::deserialize(deserializer).map(Arc::new)
    }
}

/// When a task becomes runnable for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Start {
    /// Created then (a fork).
    At(Ns),
    /// It existed and slept long before the run began; it wakes then.
    AsleepUntil(Ns),
    /// Created by another task's [`Op::Spawn`].
    Spawned,
}

/// A channel.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ChannelSpec {
    /// What it represents, in reports.
    pub name: String,
    /// Tokens in it at the start.
    pub initial: u32,
    /// A sender blocks when this many tokens are waiting (a pipe's buffer); `None` = never.
    pub capacity: Option<u32>,
}

/// Requests from outside the machine, put into a channel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceSpec {
    /// Name in reports.
    pub name: String,
    /// Where the requests go.
    pub into: ChannelId,
    /// When they come.
    pub kind: SourceKind,
    /// Time on the wire, each way. It is part of the response time that the client sees.
    pub one_way: Draw,
}

/// When requests come.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SourceKind {
    /// Open loop: regardless of replies. Response times count from the intended send time.
    Open {
        /// Gaps between requests.
        interarrival: Draw,
        /// The first gap starts here.
        start: Ns,
    },
    /// Open loop at these times, ascending (a recording's outside wakeups).
    Recorded {
        /// Arrival times at the machine.
        at: Vec<Ns>,
    },
    /// Closed loop: each of `clients` sends, waits for the reply, thinks, and sends again.
    Closed {
        /// Number of clients (connections).
        clients: u32,
        /// Time between a reply's arrival at the client and the next request.
        think: Draw,
    },
}

/// What is wrong with a workload.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A reference to something that is not there.
    #[error("task `{task}` uses {what}, which the workload does not have")]
    Missing {
        /// Name of the task (or source).
        task: String,
        /// What is missing.
        what: String,
    },
    /// A mask without a CPU of the machine.
    #[error("task `{task}` may run on CPUs {affinity}, but the machine has only CPUs 0-{last}")]
    Affinity {
        /// Name of the task.
        task: String,
        /// The mask.
        affinity: CpuSet,
        /// The last CPU of the machine.
        last: usize,
    },
    /// A program that never lets time pass.
    #[error(
        "task `{task}` loops for ever without running, sleeping or waiting: give its loop a `run` \
         or `sleep` \
         longer than 0"
    )]
    Spins {
        /// Name of the task.
        task: String,
    },
    /// A group whose parent comes later or does not exist.
    #[error("group `{group}` names a parent that is not listed before it")]
    Parent {
        /// Name of the group.
        group: String,
    },
}

impl Workload {
    /// Checks every reference against this workload and a machine with `cpus` CPUs.
    pub fn check(&self, cpus: usize) -> Result<(), WorkloadError> {
        self.groups.iter().enumerate().try_for_each(|(i, group)| match group.parent {
            None if i == 0 => Ok(()),
            Some(parent) if parent.index() < i => Ok(()),
            _ => Err(WorkloadError::Parent { group: group.name.clone() }),
        })?;
        for source in &self.sources {
            self.check_channel(&source.name, source.into)?;
        }
        self.handoffs.iter().try_for_each(|handoff| self.check_handoff(handoff))?;
        self.check_exchange()?;
        self.tasks.iter().try_for_each(|task| self.check_task(task, cpus))
    }

    fn check_handoff(&self, handoff: &Handoff) -> Result<(), WorkloadError> {
        let user = "handoff";
        self.check_channel(user, handoff.parked)?;
        let missing = handoff.threads.iter().find(|thread| thread.index() >= self.tasks.len());
        missing.map_or(Ok(()), |thread| {
            Err(WorkloadError::Missing { task: user.to_owned(), what: thread.to_string() })
        })
    }

    fn check_task(&self, task: &TaskSpec, cpus: usize) -> Result<(), WorkloadError> {
        if task.affinity.and(&CpuSet::first(cpus)).is_empty() {
            let last = cpus.saturating_sub(1);
            return Err(WorkloadError::Affinity {
                task: task.name.clone(),
                affinity: task.affinity,
                last,
            });
        }
        if task.group != GroupId::ROOT && task.group.index() >= self.groups.len() {
            return Err(missing(task, task.group.to_string()));
        }
        let program = &task.program;
        let inside = |index: u32| (index as usize) < program.ops.len();
        if program.repeat_from.is_some_and(|to| !inside(to)) {
            return Err(missing(
                task,
                "a loop that starts beyond the end of its program".to_owned(),
            ));
        }
        for branch in &program.branches {
            self.check_channel(&task.name, branch.channel)?;
            let last = branch.to.checked_sub(1).filter(|last| *last >= branch.from);
            if last.and_then(|last| program.ops.get(last as usize)) != Some(&Op::Select) {
                return Err(missing(task, "a branch that does not end with a `select`".to_owned()));
            }
        }
        program
            .ops
            .iter()
            .enumerate()
            .try_for_each(|(at, op)| self.check_op(task, at, op, cpus))?;
        if program.spins() { Err(WorkloadError::Spins { task: task.name.clone() }) } else { Ok(()) }
    }

    /// Checks what the operation at `at` of a task's program refers to.
    fn check_op(
        &self,
        task: &TaskSpec,
        at: usize,
        op: &Op,
        cpus: usize,
    ) -> Result<(), WorkloadError> {
        match *op {
            Op::Select if task.program.branches.is_empty() => {
                return Err(missing(task, "a `select` without branches".to_owned()));
            }
            Op::Run(amount)
            | Op::Sleep(amount)
            | Op::Kernel { length: amount, .. }
            | Op::Interrupts(amount) => self.check_amount(task, amount)?,
            Op::Serve { channel, per_request: amount }
            | Op::Device { channel, length: amount, .. } => {
                self.check_channel(&task.name, channel)?;
                self.check_amount(task, amount)?;
            }
            Op::Receive(channel)
            | Op::ReceiveAll(channel)
            | Op::Done(channel)
            | Op::Send { channel, .. } => self.check_channel(&task.name, channel)?,
            Op::ReceiveCount { channel, count } => {
                self.check_channel(&task.name, channel)?;
                let room = self.channels[channel.index()].capacity.unwrap_or(u32::MAX);
                if !(1..=room).contains(&count) {
                    return Err(missing(
                        task,
                        format!("{channel} with room for {count} tokens (one at least)"),
                    ));
                }
            }
            Op::Lock(LockId(lock)) | Op::Unlock(LockId(lock)) if lock >= self.locks => {
                return Err(missing(task, LockId(lock).to_string()));
            }
            Op::Spawn(TaskId(child)) if child as usize >= self.tasks.len() => {
                return Err(missing(task, TaskId(child).to_string()));
            }
            Op::Play(script) if script.index() >= self.exchange.scripts.len() => {
                return Err(missing(task, script.to_string()));
            }
            Op::Attend(executor) if executor.index() >= self.exchange.executors.len() => {
                return Err(missing(task, executor.to_string()));
            }
            Op::Repeat { to, .. } if to as usize >= at => {
                return Err(missing(task, "a `repeat` that does not go back".to_owned()));
            }
            Op::NextPeriod { period, .. } | Op::SkipMissed { period, .. } if period == Ns::ZERO => {
                return Err(missing(task, "a period of 0".to_owned()));
            }
            Op::SetCpus { first, last } if first > last || last.index() >= cpus => {
                let (task, affinity) = (task.name.clone(), op.cpus().unwrap_or_default());
                return Err(WorkloadError::Affinity { task, affinity, last: cpus - 1 });
            }
            _ => {}
        }
        Ok(())
    }

    fn check_channel(&self, user: &str, channel: ChannelId) -> Result<(), WorkloadError> {
        if channel.index() < self.channels.len() {
            return Ok(());
        }
        Err(WorkloadError::Missing { task: user.to_owned(), what: channel.to_string() })
    }

    fn check_amount(&self, task: &TaskSpec, amount: Amount) -> Result<(), WorkloadError> {
        match amount {
            Amount::Draw(index) if index as usize >= task.program.draws.len() => {
                Err(missing(task, format!("distribution {index}")))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the error about something that a task refers to and that is not there.
fn missing(task: &TaskSpec, what: String) -> WorkloadError {
    WorkloadError::Missing { task: task.name.clone(), what }
}

impl Program {
    /// Whether the endless part of the program contains nothing that can take time. (A token loop
    /// that feeds itself is not found here; the engine has a limit for that.)
    fn spins(&self) -> bool {
        let Some(from) = self.repeat_from else { return false };
        !self.ops[from as usize..].iter().any(|op| match *op {
            Op::Run(amount) | Op::Sleep(amount) | Op::Kernel { length: amount, .. } => match amount
            {
                Amount::Fixed(ns) => ns > Ns::ZERO,
                Amount::Draw(_) => true,
            },
            Op::Send { .. }
            | Op::Device { .. }
            | Op::Spawn(_)
            | Op::Unlock(_)
            | Op::Done(_)
            | Op::Repeat { .. } => false,
            Op::Yield | Op::CondResched | Op::SkipMissed { .. } | Op::SleepUntil(_) => false,
            Op::SetNice(_) | Op::SetCpus { .. } | Op::Exec => false,
            _ => true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(task: TaskSpec) -> Workload {
        Workload { tasks: vec![task], ..Workload::default() }
    }

    #[test]
    fn a_hog_is_fine() {
        assert_eq!(one(TaskSpec::new("yes", Program::hog())).check(1), Ok(()));
    }

    #[test]
    fn finds_what_is_missing() {
        let mut off = TaskSpec::new("off", Program::hog());
        off.affinity = "4".parse().unwrap();
        assert!(matches!(one(off).check(4), Err(WorkloadError::Affinity { last: 3, .. })));

        let receive = TaskSpec::new("r", Program::forever([Op::Receive(ChannelId(0))]));
        assert!(matches!(one(receive).check(1), Err(WorkloadError::Missing { .. })));

        let spin = TaskSpec::new("s", Program::forever([Op::Yield]));
        assert!(matches!(one(spin).check(1), Err(WorkloadError::Spins { .. })));
    }
}
