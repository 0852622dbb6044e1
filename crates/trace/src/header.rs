//! What a recording knows besides its events: machine, tasks, groups, and what the recorder could
//! see.

use crate::Repairs;
use schedlab_model::text::{glob, is_hostile, shown};
use schedlab_model::{CpuSet, GroupId, GroupSpec, Nice, Ns, Policy, SchedExt, Topology};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Everything about a recording that is not an event. Fields that a recorder cannot fill keep their
/// defaults (empty text, `None`), which mean "unknown".
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// The program and version that wrote the file.
    pub program: String,
    /// How events were captured: `perf-tracepoints`, `perf-context-switches`, `perf-script`,
    /// `simulator`, …
    pub backend: String,
    /// Kernel release as `uname -r` prints it; for a simulated recording the scheduler's name.
    pub kernel: String,
    /// Kernel build as `uname -v` prints it.
    pub kernel_build: String,
    /// Processor model and hypervisor, such as `AMD EPYC 9R14 (KVM guest)`.
    pub machine: String,
    /// Ticks per second (`CONFIG_HZ`); 0 when unknown.
    pub hz: u32,
    /// Preemption model in force: `none`, `voluntary`, `full`, `lazy` or `rt`.
    pub preempt: Option<String>,
    /// The CPUs; CPU ids of events are below its count.
    pub topology: Topology,
    /// The clock of the events, such as `CLOCK_MONOTONIC`.
    pub clock: String,
    /// What the clock showed at time 0 of the recording, in nanoseconds.
    pub clock_start_ns: u64,
    /// What CLOCK_REALTIME (nanoseconds since 1970, UTC) showed more than the clock of the events
    /// when the recording began (format 1.5); a later step of CLOCK_REALTIME is not in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realtime_offset_ns: Option<i64>,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// What the recorder was able to see.
    pub capabilities: Capabilities,
    /// Scheduler settings read from the kernel, under their real names and in the kernel's own
    /// text: `sched_rt_runtime_us`, `sched_autogroup_enabled`, `base_slice_ns`,
    /// `fair_server/cpu0/runtime`, …
    pub knobs: BTreeMap<String, String>,
    /// The command that was recorded, or empty.
    pub command: Vec<String>,
    /// When, as ISO 8601 in UTC.
    pub date: String,
    /// Free text: what the recording shows, how it was made.
    pub note: String,
    /// What the recorder itself costs per context switch, in nanoseconds, where it was calibrated.
    pub recorder_ns_per_switch: Option<u64>,
    /// The kernel's sched_ext class when the recording began (format 1.3). `None`: the kernel has
    /// none, or the recorder did not look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sched_ext: Option<SchedExt>,
    /// The same when it ended. A recorder writes it into the end mark, and a reader puts it here;
    /// `None` also where the file is cut off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sched_ext_end: Option<SchedExt>,
    /// What was repaired before the events were written: an import puts a trace in order, and a
    /// recording that is saved again was repaired when it was read. A reader adds what it repairs.
    #[serde(skip_serializing_if = "Repairs::is_default")]
    pub repairs: Repairs,
    /// Every task that occurs; the index is the [`TaskId`](schedlab_model::TaskId). Tasks found
    /// later are added while recording.
    pub tasks: Vec<TaskInfo>,
    /// Control groups; the index is the [`GroupId`](schedlab_model::GroupId), the first is the
    /// root.
    pub groups: Vec<GroupInfo>,
}

impl Header {
    /// Returns what CLOCK_REALTIME showed at a moment of the recording, in nanoseconds since 1970;
    /// `None` where the header does not say it.
    pub fn unix_ns(&self, at: Ns) -> Option<u64> {
        let since = self.clock_start_ns.checked_add(at.0)?;
        since.checked_add_signed(self.realtime_offset_ns?)
    }

    /// Returns for each task whether it runs a virtual CPU.
    pub fn vcpus(&self) -> Vec<bool> {
        self.tasks.iter().map(|task| task.vcpu).collect()
    }

    /// Writes every text as it is shown ([`schedlab_model::text::shown`]). Readers and importers
    /// call it, so that nothing behind them meets a control character in a name; the kernel does
    /// the same in `/proc/PID/status`.
    pub(crate) fn escape(&mut self) {
        let texts = [
            &mut self.program,
            &mut self.backend,
            &mut self.kernel,
            &mut self.kernel_build,
            &mut self.machine,
            &mut self.clock,
            &mut self.boot_id,
            &mut self.date,
            &mut self.note,
        ];
        texts.into_iter().chain(&mut self.preempt).chain(&mut self.command).for_each(escape);
        self.sched_ext.iter_mut().chain(&mut self.sched_ext_end).for_each(escape_sched_ext);
        if self
            .knobs
            .iter()
            .any(|(name, value)| [name, value].iter().any(|text| text.contains(is_hostile)))
        {
            let knobs = std::mem::take(&mut self.knobs).into_iter();
            self.knobs = knobs
                .map(|(name, value)| (shown(&name).into_owned(), shown(&value).into_owned()))
                .collect();
        }
        self.tasks.iter_mut().for_each(TaskInfo::escape);
        self.groups.iter_mut().for_each(GroupInfo::escape);
    }
}

impl Header {
    /// Notes the name of each task's process with the task.
    pub(crate) fn name_processes(&mut self) {
        let leaders = self.tasks.iter().filter(|task| task.tid == task.pid);
        let names: HashMap<u32, String> =
            leaders.map(|task| (task.pid, task.comm.clone())).collect();
        for task in self.tasks.iter_mut().filter(|task| task.tid != task.pid) {
            task.process = names.get(&task.pid).filter(|name| **name != task.comm).cloned();
        }
    }
}

/// Replaces `text` by what is shown of it.
pub(crate) fn escape(text: &mut String) {
    if text.contains(is_hostile) {
        *text = shown(text).into_owned();
    }
}

/// Names of schedulers come from other programs, as names of tasks do.
pub(crate) fn escape_sched_ext(of: &mut SchedExt) {
    std::iter::once(&mut of.state).chain(&mut of.ops).for_each(escape);
}

impl Default for Header {
    fn default() -> Header {
        Header {
            program: concat!("schedlab ", env!("CARGO_PKG_VERSION")).to_owned(),
            backend: String::new(),
            kernel: String::new(),
            kernel_build: String::new(),
            machine: String::new(),
            hz: 0,
            preempt: None,
            topology: Topology::flat(1),
            clock: String::new(),
            clock_start_ns: 0,
            realtime_offset_ns: None,
            boot_id: String::new(),
            capabilities: Capabilities::default(),
            knobs: BTreeMap::new(),
            command: Vec::new(),
            date: String::new(),
            note: String::new(),
            recorder_ns_per_switch: None,
            sched_ext: None,
            sched_ext_end: None,
            repairs: Repairs::default(),
            tasks: Vec::new(),
            groups: Vec::new(),
        }
    }
}

/// One task of a recording, as it was when it was first seen (attributes may change later; the
/// recording carries the last state that the recorder read).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TaskInfo {
    /// Thread id (what Linux's `gettid` gives, in the recorder's pid namespace).
    pub tid: u32,
    /// Process id (thread group).
    pub pid: u32,
    /// Name, as in `/proc/TID/comm`.
    pub comm: String,
    /// Name of its process, which is that of the first thread, where it is another one. Not in the
    /// file: it follows from the tasks of a recording, and is asked for when a live task is met.
    #[serde(skip)]
    pub process: Option<String>,
    /// Policy.
    pub policy: Policy,
    /// Nice value.
    pub nice: Nice,
    /// Affinity mask.
    pub affinity: CpuSet,
    /// Control group.
    pub group: GroupId,
    /// Custom slice of a fair policy (`sched_runtime` of `sched_getattr`, Linux 6.12+), when it was
    /// set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<Ns>,
    /// Session id: tasks of one session share an autogroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u32>,
    /// The policy is SCHED_EXT (format 1.3). Where no sched_ext scheduler is loaded the kernel
    /// treats it as SCHED_OTHER, and so [`policy`](Self::policy) is that; [`Header::policy_of`] has
    /// the name for people.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ext: bool,
    /// A thread of the kernel (kworker, ksoftirqd, migration).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kernel: bool,
    /// It runs a virtual CPU of a KVM guest (format 1.7). `false` also where the recorder did not
    /// look.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub vcpu: bool,
    /// Whether policy, nice, affinity and group were read from the kernel. `false`: the task was
    /// gone before the recorder could ask, and they are defaults.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub known: bool,
}

fn yes() -> bool {
    true
}

impl TaskInfo {
    /// Writes the name as it is shown.
    pub(crate) fn escape(&mut self) {
        escape(&mut self.comm);
    }

    /// Returns whether a program's name, which may be a glob, means it: its own name, or that of
    /// its process, as `pgrep` and `chrt --all-tasks` take it.
    pub fn is_named(&self, program: &str) -> bool {
        let of_process = self.process.as_deref();
        std::iter::once(&self.comm[..]).chain(of_process).any(|name| glob(program, name))
    }

    /// Returns the name of its program: that of its process.
    pub fn program(&self) -> &str {
        self.process.as_deref().unwrap_or(&self.comm)
    }

    /// A task of which only ids and name are known: policy other, nice 0, any CPU, root group.
    pub fn unknown(tid: u32, pid: u32, comm: impl Into<String>) -> TaskInfo {
        TaskInfo {
            tid,
            pid,
            comm: comm.into(),
            process: None,
            policy: Policy::Other,
            nice: Nice::ZERO,
            affinity: CpuSet::ALL,
            group: GroupId::ROOT,
            slice: None,
            session: None,
            ext: false,
            kernel: false,
            vcpu: false,
            known: false,
        }
    }
}

/// One control group of a recording.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GroupInfo {
    /// Name, parent, weight, `cpu.max`, cpuset, and whether it is an autogroup.
    #[serde(flatten)]
    pub spec: GroupSpec,
    /// The pod of Kubernetes to which it belongs, `NAMESPACE/NAME` (format 1.8). `None`: the path
    /// names no pod, or the recorder could not learn the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Labels of that pod (format 1.9); empty where the recorder had none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pod_labels: BTreeMap<String, String>,
    /// Name of the process that began the session whose autogroup it is (format 1.9). `None`: it is
    /// no autogroup, or that process had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
}

impl GroupInfo {
    /// Writes the names as they are shown.
    pub(crate) fn escape(&mut self) {
        let names = self.pod.iter_mut().chain(&mut self.leader);
        std::iter::once(&mut self.spec.name).chain(names).for_each(escape);
        let labels = std::mem::take(&mut self.pod_labels).into_iter();
        self.pod_labels = labels
            .map(|(mut key, mut value)| {
                [&mut key, &mut value].into_iter().for_each(escape);
                (key, value)
            })
            .collect();
    }
}

impl From<GroupSpec> for GroupInfo {
    fn from(spec: GroupSpec) -> GroupInfo {
        GroupInfo { spec, ..GroupInfo::default() }
    }
}

/// One thing that a recorder may or may not be able to see.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Capability {
    /// When a task became runnable (`Wake` events).
    WakeTimes,
    /// Who woke it.
    Waker,
    /// Whether a wakeup came from an interrupt, a softirq or a task.
    IrqContext,
    /// Why a task stopped running, in the kernel's states.
    PrevState,
    /// Whether a task that stopped was preempted or blocked.
    Preempted,
    /// Migrations between run queues.
    Migrations,
    /// Task creation, exec and exit.
    Lifecycle,
    /// Stolen time of a virtual CPU.
    Steal,
    /// Every task of the machine (not only one's own).
    AllTasks,
    /// Which system call a task is in (`SyscallEnter` and `SyscallExit` events).
    Syscalls,
    /// Which system call a task blocked in: `SyscallEnter` directly before its switch, and no
    /// `SyscallExit`. Any recording with all system calls has it, too.
    BlockingSyscalls,
    /// When a limit held a task back (`Throttle` and `Unthrottle` events).
    Throttling,
    /// What tasks exchanged ([`Facts`](crate::Facts), format 1.4).
    Messages,
}

impl Capability {
    /// The name in headers and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Capability::WakeTimes => "wake-times",
            Capability::Waker => "waker",
            Capability::IrqContext => "irq-context",
            Capability::PrevState => "prev-state",
            Capability::Preempted => "preempted",
            Capability::Migrations => "migrations",
            Capability::Lifecycle => "lifecycle",
            Capability::Steal => "steal",
            Capability::AllTasks => "all-tasks",
            Capability::Syscalls => "syscalls",
            Capability::BlockingSyscalls => "blocking-syscalls",
            Capability::Throttling => "throttling",
            Capability::Messages => "messages",
        }
    }
}

/// What a recording's source was able to see. An analysis that needs more refuses by name.
#[derive(Clone, PartialEq, Eq, Debug, Default, JsonSchema, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Capabilities(pub std::collections::BTreeSet<String>);

impl Capabilities {
    /// These capabilities.
    pub fn from_list(list: impl IntoIterator<Item = Capability>) -> Capabilities {
        Capabilities(list.into_iter().map(|c| c.name().to_owned()).collect())
    }
    /// What the simulator's events carry: everything but steal and system calls. (Throttling by
    /// `cpu.max` is there, the fair server's is not.)
    pub fn simulator() -> Capabilities {
        use Capability::*;
        Capabilities::from_list([
            WakeTimes, Waker, IrqContext, PrevState, Preempted, Migrations, Lifecycle, AllTasks,
        ])
    }
    /// Whether `capability` is there.
    pub fn has(&self, capability: Capability) -> bool {
        let all_calls = || self.0.contains(Capability::Syscalls.name());
        self.0.contains(capability.name())
            || capability == Capability::BlockingSyscalls && all_calls()
    }
    /// The names of `needed` that are not there.
    pub fn missing(&self, needed: &[Capability]) -> Vec<&'static str> {
        needed.iter().filter(|c| !self.has(**c)).map(|c| c.name()).collect()
    }
}

/// What is known only when the recording ends.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Length of the recording; the last event may be earlier.
    pub duration: Ns,
    /// Events in the file.
    pub events: u64,
    /// Events that the recorder lost (also in the stream as `Lost`).
    pub lost: u64,
    /// Facts in the file (format 1.4).
    #[serde(skip_serializing_if = "is_zero")]
    pub facts: u64,
    /// Facts that the recorder lost (also in their stream as `Lost`).
    #[serde(skip_serializing_if = "is_zero")]
    pub facts_lost: u64,
    /// Where the CPU time of the machine went meanwhile, where it was measured (format 1.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_time: Option<CpuTime>,
    /// The kernel's sched_ext class at the end, where it was looked at (format 1.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sched_ext: Option<SchedExt>,
    /// Where the block index is in the file (format 1.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Where the CPU time of all CPUs together went while a recording was made, by the kernel's own
/// counters (`/proc/stat`; grain 10 ms a CPU). What is busy beyond the run times in the events is
/// foreign: tasks that were not recorded, and interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuTime {
    /// Neither idle nor stolen.
    pub busy: Ns,
    /// Taken by a hypervisor.
    pub stolen: Ns,
    /// Used by the recorder itself (by its own clock; it is part of `busy`).
    pub recorder: Ns,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_name_of_its_process() {
        let threads = [(7, 7, "named"), (8, 7, "isc-net"), (9, 7, "named"), (20, 19, "orphan")];
        let tasks = threads.map(|(tid, pid, comm)| TaskInfo::unknown(tid, pid, comm)).to_vec();
        let mut header = Header { tasks, ..Header::default() };
        header.name_processes();
        let named: Vec<Option<&str>> =
            header.tasks.iter().map(|task| task.process.as_deref()).collect();
        assert_eq!(named, [None, Some("named"), None, None]);
        let isc = &header.tasks[1];
        assert!(isc.is_named("isc*") && isc.is_named("named") && !isc.is_named("orphan"));
    }
}
