//! The recorder: opens the best way that works, drains the rings, merges them in time order and
//! hands out [`SchedEvent`]s.
//!
//! Nothing wakes the recorder: it looks every 20 ms, at nice −20 when it may. Each ring is in
//! order; an event is handed out when every ring has been read at a later time than the event's, so
//! that nothing older can still come. Lost records become [`EventKind::Lost`].
//!
//! A recording begins when the last CPU is on and ends before the first is switched off: within it
//! every CPU is seen all the time. (Switching on and off takes up to a second on a slow machine;
//! what happens meanwhile is not recorded.)

pub(crate) mod bpf;
pub(crate) mod calibrate;
pub(crate) mod child;
pub mod in_kernel;
pub(crate) mod kept;
pub(crate) mod limits;
mod merge;
pub(crate) mod messages;
mod open;
mod own_cost;
pub(crate) mod pack;
pub(crate) mod raw;
pub(crate) mod switches;
pub(crate) mod tasks;
pub(crate) mod tracepoints;

pub(crate) use crate::facts::MessageHooks;
use crate::facts::{Backend, GroupFacts, MachineFacts, RecordingCapabilities, TaskFacts};
use crate::privileges::{self, Duty};
use crate::sys::huge_pages::NoHugePages;
use crate::threads::Confined;
use crate::{HostError, proc, sched_ext};
use child::Command;
use merge::Merger;
use open::Opened;
use rustix::time::{ClockId, clock_gettime};
use schedlab_model::{CpuId, CpuSet, EventSink, Ns, ObjectId, ObjectInfo, SchedExt};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use tasks::Tasks;

/// The tasks whose events are kept. All others are one stand-in task on each CPU (`others/0`): when
/// one of them ran stays known, which of them does not. The BPF backend leaves them out in the
/// kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum RecordFilter {
    /// Every task.
    #[default]
    All,
    /// These processes, and the children that they create during the recording.
    Processes(Vec<u32>),
    /// The tasks of this control group and of those below it: a directory of a cgroup file system,
    /// or a path such as `/batch` in the hierarchy of the CPU controller.
    Group(String),
}

/// When a recording ends, apart from its greatest length ([`RecordRequest::duration`]) and `stop`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecordUntil {
    /// With its time, or when it is stopped.
    Stopped,
    /// When these processes have ended.
    ProcessesEnd(Vec<u32>),
    /// When this command, which the recorder starts, has ended. When the time is over or the
    /// recording is stopped before, the command's process group gets SIGTERM, and two seconds later
    /// SIGKILL.
    CommandEnds(Vec<String>),
}

/// Whether what tasks exchange is recorded too (backend `bpf` only).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Messages {
    /// Where it can be; of the whole machine, without a command, only while it makes fewer than a
    /// million system calls a second.
    #[default]
    Auto,
    /// Yes; a backend that cannot is none.
    On,
    /// No.
    Off,
}

impl std::str::FromStr for Messages {
    type Err = String;

    fn from_str(text: &str) -> Result<Messages, String> {
        match text {
            "auto" => Ok(Messages::Auto),
            "on" => Ok(Messages::On),
            "off" => Ok(Messages::Off),
            _ => Err("it is auto, on or off".to_owned()),
        }
    }
}

/// A recording to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordRequest {
    /// When it ends.
    pub until: RecordUntil,
    /// The tasks whose events are kept.
    pub filter: RecordFilter,
    /// Refuse a way to record that sees only what it was started for.
    pub whole_machine: bool,
    /// For how long at most; `None`: until `until` or `stop` ends it.
    pub duration: Option<Ns>,
    /// One way to record; `None`: the best that works.
    pub backend: Option<Backend>,
    /// Bytes of each CPU's ring, rounded up to a power of two of pages. Default 8 MiB.
    pub ring_bytes: usize,
    /// Run the recorder on this CPU only. `None`: wherever the kernel puts it.
    pub recorder_cpu: Option<CpuId>,
    /// Time between two looks at the rings. Default 20 ms.
    pub poll: Ns,
    /// When all is open, the recorder's thread keeps what recording itself still needs and these
    /// capabilities, and no other, for good ([`privileges::give_up_all_but`]). `None`: it keeps all
    /// that it has.
    pub keep: Option<Vec<Duty>>,
    /// Measure first what recording costs a context switch here (up to some 300 ms). Default: no.
    pub measure_cost: bool,
    /// Whether messages are recorded. Default: no.
    pub messages: Messages,
}

impl RecordRequest {
    /// The defaults.
    pub fn new(until: RecordUntil) -> RecordRequest {
        RecordRequest {
            until,
            filter: RecordFilter::All,
            whole_machine: false,
            duration: None,
            backend: None,
            ring_bytes: 8 << 20,
            recorder_cpu: None,
            poll: Ns::from_ms(20),
            keep: None,
            measure_cost: false,
            messages: Messages::Off,
        }
    }
}

/// What is known when a recording begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordStart {
    /// The machine.
    pub machine: MachineFacts,
    /// What the recording can know.
    pub capabilities: RecordingCapabilities,
    /// CLOCK_MONOTONIC of the event time 0, nanoseconds.
    pub monotonic_ns: u64,
    /// The same instant as nanoseconds since 1970 (UTC).
    pub unix_ns: u64,
    /// Bytes of each CPU's ring.
    pub ring_bytes: usize,
    /// CPU time that this recording adds to a wakeup with its switch, in nanoseconds, where it was
    /// measured ([`RecordRequest::measure_cost`]; recordings of the whole machine only: others are
    /// cheaper where nothing is kept).
    pub cost_ns_per_switch: Option<u64>,
    /// The kernel's sched_ext class; `None`: it has none.
    pub sched_ext: Option<SchedExt>,
}

/// What is known when it has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordEnd {
    /// From the first to the last instant at which every CPU was recorded: the time that was asked
    /// for, where that ended it.
    pub duration: Ns,
    /// Events handed out.
    pub events: u64,
    /// Records that the kernel had no room for.
    pub lost: u64,
    /// Facts handed out: what tasks exchanged.
    pub facts: u64,
    /// Facts that the kernel had no room for.
    pub facts_lost: u64,
    /// CPU time that the recorder itself used while recording.
    pub recorder_cpu: Ns,
    /// Time stolen by a hypervisor, all CPUs together.
    pub stolen: Ns,
    /// Time in which the CPUs were neither idle nor stolen, all together (`/proc/stat`, grain 10 ms
    /// a CPU). What is not in the events of it is foreign: tasks that were not recorded, and
    /// interrupts.
    pub busy: Ns,
    /// The kernel's sched_ext class, as [`RecordStart::sched_ext`].
    pub sched_ext: Option<SchedExt>,
    /// How the command ended.
    pub exit: Option<std::process::ExitStatus>,
    /// The process id of the command.
    pub command_pid: Option<u32>,
}

/// What is done before a recording begins. Each may take long where the kernel's own threads get no
/// CPU time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preparing {
    /// The rings and programs are made.
    Opening,
    /// What recording costs a switch is measured.
    Measuring,
    /// The tasks of the machine are listed, and recording is switched on.
    Beginning,
}

/// Receives a recording; what a sink does not want to hear it leaves out. The facts of a task, and
/// of the groups it needs, come before the first event that names it, and again when they have
/// changed: the latest hold.
pub trait RecordSink: EventSink {
    /// Comes before `start`: what the recorder is at.
    fn preparing(&mut self, _: Preparing) {}
    /// Comes first, once.
    ///
    /// # Errors
    /// An error here or below ends the recording with [`HostError::Sink`].
    fn start(&mut self, _: &RecordStart) -> io::Result<()> {
        Ok(())
    }
    /// A group, parents first.
    fn group(&mut self, _: &GroupFacts) {}
    /// A task.
    fn task(&mut self, _: &TaskFacts) {}
    /// An object, before the first fact that names it, and again when more is known of it. New ones
    /// have the next number.
    fn object(&mut self, _: ObjectId, _: &ObjectInfo) {}
    /// Called after each look at the rings: a good moment to write a block.
    ///
    /// # Errors
    /// As for `start`; errors of `event`, `group` and `task` are reported here.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Longest time that rings fill unread while CPUs are switched on.
const EMPTIED_EVERY_NS: u64 = 20_000_000;

/// The ring of one CPU, whatever fills it.
pub(crate) trait CpuSource {
    fn enable(&mut self) -> io::Result<()>;
    fn disable(&mut self) -> io::Result<()>;
    /// Appends everything that is there, in time order.
    fn drain(&mut self, out: &mut VecDeque<raw::RawEvent>);
    fn ring_bytes(&self) -> usize;
    /// Begins to see messages, where they are to be seen. Events are seen already.
    fn enable_facts(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// Appends the facts that are there, in time order.
    fn drain_facts(&mut self, _: &mut VecDeque<messages::RawFact>) {}
    /// Whether `enable` after `disable` waits for an RCU grace period. Enabled once, it is left on
    /// until the end.
    fn begins_once(&self) -> bool {
        false
    }
}

/// Records until the time is over, [`RecordRequest::until`] says so, or `stop` returns true (it is
/// asked every 20 ms).
///
/// # Errors
/// [`HostError::NoBackend`] when nothing works here; everything else as its message says. A command
/// that was started is ended before an error is returned.
pub fn record(
    request: &RecordRequest,
    sink: &mut dyn RecordSink,
    stop: &dyn Fn() -> bool,
) -> Result<RecordEnd, HostError> {
    if let RecordUntil::ProcessesEnd(pids) = &request.until
        && let Some(&pid) = pids.iter().find(|pid| !alive(**pid))
    {
        return Err(HostError::NoProcess { pid });
    }
    let _small_pages = NoHugePages::hold();
    sink.preparing(Preparing::Opening);
    let machine = crate::machine::machine();
    let (opened, mut command) = open::open(request, &machine)?;
    let result = run(request, machine, opened, &mut command, sink, stop);
    match (result, command) {
        (Ok(end), Some(command)) => {
            let command_pid = Some(command.pid());
            Ok(RecordEnd { exit: command.end(), command_pid, ..end })
        }
        (result, command) => {
            command.map(Command::end);
            result
        }
    }
}

fn alive(pid: u32) -> bool {
    std::fs::metadata(format!("/proc/{pid}")).is_ok()
}

/// Where the recorder's own thread runs: where it was asked to, else away from the CPUs to which
/// the recorded processes are bound, when that leaves any.
fn recorder_cpus(request: &RecordRequest, online: &CpuSet) -> CpuSet {
    let (Some(pids), None) = (measured(request), request.recorder_cpu) else {
        return request.recorder_cpu.into_iter().collect();
    };
    let used: Vec<CpuSet> = pids.iter().filter_map(|&pid| proc::affinity(pid).ok()).collect();
    online.iter().filter(|&cpu| !used.iter().any(|set| set.contains(cpu))).collect()
}

fn measured(request: &RecordRequest) -> Option<&[u32]> {
    match (&request.filter, &request.until) {
        (RecordFilter::Processes(pids), _) | (_, RecordUntil::ProcessesEnd(pids)) => Some(pids),
        _ => None,
    }
}

/// The recorder's thread runs here at nice −20 (where allowed) and, when asked, on some CPUs; put
/// back on drop.
struct Priority {
    nice: Option<i32>,
    _affinity: Confined,
}

impl Priority {
    fn raise(cpus: &CpuSet) -> Priority {
        let own = Some(rustix::thread::gettid());
        let nice = rustix::process::getpriority_process(own).ok();
        let nice = nice.filter(|_| rustix::process::setpriority_process(own, -20).is_ok());
        Priority { nice, _affinity: Confined::to(cpus) }
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if let Some(nice) = self.nice {
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), nice);
        }
    }
}

fn run(
    request: &RecordRequest,
    machine: MachineFacts,
    mut opened: Opened,
    command: &mut Option<Command>,
    sink: &mut dyn RecordSink,
    stop: &dyn Fn() -> bool,
) -> Result<RecordEnd, HostError> {
    sink.preparing(Preparing::Measuring);
    let cost_ns_per_switch = own_cost(request, &mut opened, &machine.online);
    sink.preparing(Preparing::Beginning);
    let tasks = known_tasks(request, &opened, command.as_ref())?;
    let cpus = machine.topology.cpus();
    let online = machine.online;
    let stand_ins = !opened.capabilities.system_wide;
    let ring_bytes =
        opened.sources.iter().map(|(_, source)| source.ring_bytes()).min().unwrap_or(0);
    let cpu_before = clock(ClockId::ThreadCPUTime);
    let monotonic_ns = switch_on(&mut opened.sources)?;
    let (unix_ns, busy_before) = (unix_time(monotonic_ns), proc::busy());
    let mut merger = Merger::new(monotonic_ns, cpus, tasks, stand_ins);
    let start = RecordStart {
        machine,
        capabilities: opened.capabilities.clone(),
        monotonic_ns,
        unix_ns,
        ring_bytes,
        cost_ns_per_switch,
        sched_ext: sched_ext::here(),
    };
    sink.start(&start).map_err(HostError::Sink)?;
    if let RecordUntil::CommandEnds(arguments) = &request.until {
        match command {
            Some(started) => started.go_on(),
            None => *command = Some(Command::start(arguments, false)?),
        }
    }
    // Only now: the command would have inherited it.
    let _priority = Priority::raise(&recorder_cpus(request, &online));
    give_up(request, command.is_some())?;
    // No event was handed out yet, so the recorder itself is in the file as it now is.
    merger.look_again(rustix::thread::gettid().as_raw_nonzero().get() as u32);
    drain(request, &mut opened, &mut merger, command, sink, stop)?;
    // What comes while the CPUs are switched off one after the other is of some of them only.
    let over = merger.end_at(request.duration);
    let busy = Ns(proc::busy().saturating_sub(busy_before));
    for (_, source) in &mut opened.sources {
        source.disable().map_err(HostError::io("ending the recording"))?;
    }
    // A virtual CPU that computed at the beginning may halt now, which shows more of it.
    merger.find_vcpus(measured(request));
    merger.finish(&mut opened.sources, &over, sink);
    sink.flush().map_err(HostError::Sink)?;
    Ok(RecordEnd {
        duration: Ns(over.at - monotonic_ns),
        events: merger.events,
        lost: merger.lost,
        facts: merger.facts,
        facts_lost: merger.facts_lost,
        recorder_cpu: Ns(clock(ClockId::ThreadCPUTime).saturating_sub(cpu_before)),
        stolen: merger.stolen,
        busy,
        sched_ext: sched_ext::here(),
        exit: None,
        command_pid: None,
    })
}

/// Gives up what is not needed once all is open and the command runs. Rings are memory by now,
/// programs run in the kernel by themselves, and what /proc says of a task anyone may read.
fn give_up(request: &RecordRequest, command: bool) -> Result<(), HostError> {
    let Some(mut kept) = request.keep.clone() else { return Ok(()) };
    // A command may start programs of other users, and ends with them.
    kept.extend(command.then_some(Duty::Kill));
    kept.extend(privileges::to_see_tasks());
    privileges::give_up_all_but(&kept).map_err(HostError::io("giving up capabilities (capset)"))
}

/// Returns the tasks that are there before anything is recorded, with what is asked about them.
fn known_tasks(
    request: &RecordRequest,
    opened: &Opened,
    command: Option<&Command>,
) -> Result<Tasks, HostError> {
    let own_only = opened.capabilities.backend == Backend::OwnTasks;
    // The numbers in perf's own records are those of the reader's PID namespace.
    let translated = matches!(opened.capabilities.backend, Backend::Switches | Backend::OwnTasks);
    let mut tasks = Tasks::new(proc::in_first_pid_namespace() || translated);
    if opened.filter_here {
        tasks.keep_only(&request.filter)?;
    }
    let only = match (command, measured(request)) {
        _ if !own_only => None,
        (Some(command), _) => Some(vec![command.pid()]),
        (None, pids) => pids.map(<[u32]>::to_vec),
    };
    tasks.scan(only.as_deref());
    tasks.find_vcpus(only.as_deref());
    Ok(tasks)
}

/// Switches every CPU on; returns the moment (CLOCK_MONOTONIC) from which all of them are seen. The
/// first may be on for a second before the last: what they say meanwhile is read, so that no ring
/// is full at the beginning, and belongs to no recording.
fn switch_on(sources: &mut [(CpuId, Box<dyn CpuSource>)]) -> Result<u64, HostError> {
    let mut emptied = clock(ClockId::Monotonic);
    for on in 0..sources.len() {
        sources[on].1.enable().map_err(HostError::io("starting the recording"))?;
        let now = clock(ClockId::Monotonic);
        if now.saturating_sub(emptied) > EMPTIED_EVERY_NS {
            own_cost::empty(&mut sources[..=on]);
            emptied = now;
        }
    }
    // Only now: what recording costs a switch was measured without them.
    for (_, source) in &mut *sources {
        source.enable_facts().map_err(HostError::io("starting to record messages"))?;
    }
    own_cost::empty(sources);
    Ok(clock(ClockId::Monotonic))
}

fn measures_cost(request: &RecordRequest, opened: &Opened) -> bool {
    request.measure_cost && opened.capabilities.system_wide
}

/// What recording costs a switch, where that is asked for and can be measured. A recording is worth
/// more than this figure: without it, replays take what the tier costs usually.
fn own_cost(request: &RecordRequest, opened: &mut Opened, online: &CpuSet) -> Option<u64> {
    if !measures_cost(request, opened) {
        return None;
    }
    let cpus = recorder_cpus(request, online);
    let _priority = Priority::raise(&cpus);
    let here = CpuId(rustix::thread::sched_getcpu() as u32);
    let cpu = cpus.iter().next().unwrap_or(here);
    own_cost::per_switch(&mut opened.sources, cpu).ok().flatten()
}

/// Looks at the rings again and again until the recording is over.
fn drain(
    request: &RecordRequest,
    opened: &mut Opened,
    merger: &mut Merger,
    command: &mut Option<Command>,
    sink: &mut dyn RecordSink,
    stop: &dyn Fn() -> bool,
) -> Result<(), HostError> {
    let poll = Duration::from_nanos(request.poll.0.max(1_000_000));
    let mut last_round = clock(ClockId::Monotonic);
    let end_at = request.duration.map(|duration| merger.origin().saturating_add(duration.0));
    loop {
        std::thread::sleep(poll);
        let now = clock(ClockId::Monotonic);
        let over = end_at.is_some_and(|end| now >= end)
            || stop()
            || command.as_mut().is_some_and(Command::ended)
            || matches!(&request.until, RecordUntil::ProcessesEnd(pids) if !pids.iter().any(|&pid| alive(pid)));
        if over {
            return Ok(());
        }
        merger.round(&mut opened.sources, last_round, sink);
        sink.flush().map_err(HostError::Sink)?;
        last_round = now;
    }
}

/// Returns what CLOCK_REALTIME showed when CLOCK_MONOTONIC showed `monotonic_ns`, a moment ago.
fn unix_time(monotonic_ns: u64) -> u64 {
    let (before, unix) = (clock(ClockId::Monotonic), clock(ClockId::Realtime));
    let now = before.midpoint(clock(ClockId::Monotonic));
    unix.saturating_sub(now.saturating_sub(monotonic_ns))
}

fn clock(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
