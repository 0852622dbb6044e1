//! Plain facts that a recording's header is made of.

use schedlab_model::{Bandwidth, CpuSet, GroupId, Nice, Ns, Policy, TaskId, Topology};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A thread as it was when the recorder first saw it (and again when its name or group changed).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TaskFacts {
    /// Number in the recording. A thread id that the kernel used twice has two.
    pub id: TaskId,
    /// Linux thread id (`gettid`).
    pub tid: u32,
    /// Process id (`getpid`); 0 when not known.
    pub process: u32,
    /// Session id (`getsid`); 0 when not known, and of the kernel's own threads.
    pub session: u32,
    /// The thread's name.
    pub comm: String,
    /// Name of its process (that of the first thread), where it is another one.
    pub process_name: Option<String>,
    /// sched(7) policy.
    pub policy: Policy,
    /// Nice value.
    pub nice: Nice,
    /// Where it may run (`sched_getaffinity`; a cpuset is part of it).
    pub affinity: CpuSet,
    /// Custom slice (`sched_setattr`, Linux 6.12+), when it differs from the kernel's default.
    pub slice: Option<Ns>,
    /// The group that its CPU time is counted in.
    pub group: GroupId,
    /// The policy is SCHED_EXT, which is SCHED_OTHER where no sched_ext scheduler is loaded
    /// ([`policy`](Self::policy) says that).
    pub ext: bool,
    /// A thread of the kernel.
    pub kernel: bool,
    /// It runs a virtual CPU of a KVM guest.
    pub vcpu: bool,
    /// Represents all tasks that an own-tasks recording cannot see on one CPU.
    pub stand_in: bool,
    /// Where the facts come from.
    pub from: FactSource,
}

/// How sure the facts of a task are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FactSource {
    /// Read from the kernel while the task lived.
    Kernel,
    /// The task was gone before it could be asked; what it inherited from its parent.
    Parent,
    /// Only what the events carry: name, and policy or nice as far as the priority tells.
    Events,
}

/// A control group, or an autogroup (one per session, when `sched_autogroup_enabled` is 1).
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct GroupFacts {
    /// Number in the recording; 0 is the root.
    pub id: GroupId,
    /// Path in the CPU controller's hierarchy, `/` for the root; `/autogroup-N` for an autogroup.
    pub path: String,
    /// The parent; `None` for the root.
    pub parent: Option<GroupId>,
    /// `cpu.shares`, or `cpu.weight` × 10.24; of an autogroup by its nice value. `None`: not
    /// readable.
    pub weight: Option<u32>,
    /// `cpu.idle`.
    pub idle: bool,
    /// `cpu.cfs_quota_us` and `cpu.cfs_period_us`, or `cpu.max`.
    pub bandwidth: Option<Bandwidth>,
    /// `cpu.rt_runtime_us` (cgroup v1 with RT_GROUP_SCHED): microseconds per period; −1 = no limit.
    pub rt_runtime_us: Option<i64>,
    /// The autogroup's own nice value (`/proc/PID/autogroup`).
    pub autogroup_nice: Option<Nice>,
    /// Name of the process that began the autogroup's session. `None`: no autogroup, or it had
    /// ended.
    pub leader: Option<String>,
}

/// The machine and its kernel.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct MachineFacts {
    /// `uname -r`.
    pub kernel: String,
    /// `uname -v`: carries the preemption model.
    pub version: String,
    /// `uname -m`.
    pub arch: String,
    /// CPU model name.
    pub model: String,
    /// Timer interrupts a second: the tick.
    pub hz: u32,
    /// Sockets, nodes, caches, cores.
    pub topology: Topology,
    /// CPUs that are on line.
    pub online: CpuSet,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Whether a hypervisor is below (x86 CPU flag, or steal time).
    pub virtual_machine: bool,
    /// Random id of this boot; two recordings of one boot share a clock.
    pub boot_id: String,
    /// Scheduler settings under their kernel names, as far as they can be read, in file order.
    pub knobs: Vec<(String, String)>,
}

impl MachineFacts {
    /// Returns whether the kernel is PREEMPT_RT.
    pub fn is_realtime(&self) -> bool {
        is_realtime(&self.version)
    }
}

/// Returns whether a kernel is PREEMPT_RT, which its version says (`uname -v`, or text with that in
/// it).
pub fn is_realtime(version: &str) -> bool {
    version.split_whitespace().any(|word| word == "PREEMPT_RT")
}

/// What a recording can know, by the way in which it was made. An analysis that needs more refuses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordingCapabilities {
    /// How it was made.
    pub backend: Backend,
    /// Every task of the machine is in it.
    pub system_wide: bool,
    /// Wakeups are in it, with their time.
    pub wakeups: bool,
    /// Each wakeup says on whose behalf.
    pub wakers: bool,
    /// By which rule a softirq inside a system call is told from one at the exit of an interrupt;
    /// `"none"` when they cannot be told apart.
    pub softirq_rule: String,
    /// CPUs on which events in the idle task were not proven to be recorded (some virtual machines
    /// drop them; a busy CPU cannot be checked): wakeups by interrupts that hit these CPUs idle may
    /// be missing.
    pub idle_unproven: CpuSet,
    /// The state of a task that stops running is exact (sleep, disk, stopped); else only preempted
    /// or not.
    pub prev_state: bool,
    /// Migrations are in it.
    pub migrations: bool,
    /// Changes of group are in it.
    pub regroups: bool,
    /// It says in which system call a task blocked (calls in which no task blocked are not in it).
    pub calls: bool,
    /// It says when a limit held a task back.
    pub limits: bool,
    /// How it sees what tasks exchange, or why it does not.
    pub messages: Result<MessageHooks, String>,
    /// Steal time is in it, to this grain; `None`: not measured.
    pub steal_grain: Option<Ns>,
}

/// Where the recorder sees messages: the first way that the kernel has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageHooks {
    /// Those of sockets at their tracepoints (Linux 6.3), all others when system calls return.
    SocketTracepoints,
    /// All of them when system calls return.
    SystemCalls,
}

impl MessageHooks {
    /// Returns the name in a recording's header.
    pub const fn name(self) -> &'static str {
        match self {
            MessageHooks::SocketTracepoints => "socket-tracepoints",
            MessageHooks::SystemCalls => "system-calls",
        }
    }

    /// Returns where what is seen, for people.
    pub const fn words(self) -> &'static str {
        match self {
            MessageHooks::SocketTracepoints => {
                "sockets at their tracepoints; pipes, eventfds, futexes, selects and sleeps when \
                 system calls return"
            }
            MessageHooks::SystemCalls => {
                "sockets, pipes, eventfds, futexes, selects and sleeps when system calls return \
                 (the kernel has no tracepoints for \
                 sockets)"
            }
        }
    }
}

/// A way to record, best first.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// BPF programs on the scheduler's tracepoints: everything, at the lowest cost.
    Bpf,
    /// perf tracepoints: everything.
    Tracepoints,
    /// perf context-switch records of the whole machine: no wakeups.
    Switches,
    /// perf context-switch records of a command's own tasks, or of processes of the same user;
    /// needs no privilege.
    #[serde(rename = "own")]
    OwnTasks,
}

impl Backend {
    /// All, best first.
    pub const ALL: [Backend; 4] =
        [Backend::Bpf, Backend::Tracepoints, Backend::Switches, Backend::OwnTasks];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Bpf => "bpf",
            Backend::Tracepoints => "tracepoints",
            Backend::Switches => "switches",
            Backend::OwnTasks => "own",
        }
    }

    /// What it sees of the tasks that it records.
    pub const fn sees(self) -> &'static str {
        match self {
            Backend::Bpf | Backend::Tracepoints => {
                "switches, wakeups with their wakers, migrations, groups, starts and ends"
            }
            Backend::Switches | Backend::OwnTasks => {
                "which task ran where and whether it was preempted, starts and ends; not when it \
                 was woken, nor by which task"
            }
        }
    }

    /// What works with its recordings. With `all` every task of the machine is in them.
    pub const fn works(self, all: bool) -> &'static str {
        match (self, all) {
            (Backend::Bpf | Backend::Tracepoints, true) => "every analysis and replay work",
            (Backend::Bpf | Backend::Tracepoints, false) => {
                "latencies, slices and states work; who ran instead, and replay, do not"
            }
            (Backend::Switches, true) => {
                "run times, slices and waits after a preemption work; waits after a wakeup, \
                 wakers and replay do not"
            }
            (Backend::Switches | Backend::OwnTasks, _) => {
                "run times, slices and waits after a preemption work; waits after a wakeup, \
                 wakers, who ran \
                 instead, and replay do not"
            }
        }
    }
}

impl std::str::FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> Result<Backend, String> {
        // `own-tasks` is what version 0.1 called it.
        let text = if text == "own-tasks" { "own" } else { text };
        Backend::ALL.into_iter().find(|b| b.name() == text).ok_or_else(|| {
            format!(
                "unknown backend `{text}`: use bpf, tracepoints, switches or own (default: \
                     the best that works)"
            )
        })
    }
}
