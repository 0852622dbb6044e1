//! The recorder: opens the best way that works, drains the rings, merges them in time order and hands out
//! [`SchedEvent`]s.
//!
//! Nothing wakes the recorder: it looks every 20 ms, at nice −20 when it may. Each ring is in order; an event
//! is handed out when every ring has been read at a later time than the event's, so that nothing older can
//! still come. Lost records become [`EventKind::Lost`].

pub(crate) mod calibrate;
pub(crate) mod child;
mod merge;
pub(crate) mod raw;
pub(crate) mod switches;
pub(crate) mod tasks;
pub(crate) mod tracepoints;

use crate::facts::{Backend, GroupFacts, MachineFacts, RecordingCapabilities, TaskFacts};
use crate::sys::perf::Target;
use crate::{HostError, proc};
use child::Command;
use merge::Merger;
use rustix::time::{ClockId, clock_gettime};
use schedlab_model::{CpuId, CpuSet, EventSink, Ns};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use switches::SwitchRecorder;
use tasks::Tasks;
use tracepoints::Tracepoints;

/// What to record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The whole machine.
    All,
    /// The whole machine, until these processes have ended (or the time is over).
    Pids(Vec<u32>),
    /// The whole machine while this command runs. When the time is over or the recording is stopped, the
    /// command's process group gets SIGTERM, and two seconds later SIGKILL.
    Command(Vec<String>),
}

/// A recording to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordRequest {
    /// Whom.
    pub scope: Scope,
    /// For how long at most; `None`: until the scope ends or `stop` says so.
    pub duration: Option<Ns>,
    /// One way to record; `None`: the best that works.
    pub backend: Option<Backend>,
    /// Bytes of each CPU's ring, rounded up to a power of two of pages. Default 8 MiB.
    pub ring_bytes: usize,
    /// Run the recorder on this CPU only. `None`: wherever the kernel puts it.
    pub recorder_cpu: Option<CpuId>,
    /// Time between two looks at the rings. Default 20 ms.
    pub poll: Ns,
}

impl RecordRequest {
    /// The defaults.
    pub fn new(scope: Scope) -> RecordRequest {
        RecordRequest {
            scope,
            duration: None,
            backend: None,
            ring_bytes: 8 << 20,
            recorder_cpu: None,
            poll: Ns::from_ms(20),
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
}

/// What is known when it has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordEnd {
    /// From the first to the last instant recorded.
    pub duration: Ns,
    /// Events handed out.
    pub events: u64,
    /// Records that the kernel had no room for.
    pub lost: u64,
    /// CPU time that the recorder itself used while recording.
    pub recorder_cpu: Ns,
    /// Time stolen by a hypervisor, all CPUs together.
    pub stolen: Ns,
    /// How the command ended.
    pub exit: Option<std::process::ExitStatus>,
    /// The process id of the command.
    pub command_pid: Option<u32>,
}

/// Receives a recording. The facts of a task, and of the groups it needs, come before the first event that
/// names it, and again when they have changed: the latest hold.
pub trait RecordSink: EventSink {
    /// Comes first, once.
    ///
    /// # Errors
    /// An error here or below ends the recording with [`HostError::Sink`].
    fn start(&mut self, start: &RecordStart) -> io::Result<()>;
    /// A group, parents first.
    fn group(&mut self, group: &GroupFacts);
    /// A task.
    fn task(&mut self, task: &TaskFacts);
    /// Called after each look at the rings: a good moment to write a block.
    ///
    /// # Errors
    /// As for `start`; errors of `event`, `group` and `task` are reported here.
    fn flush(&mut self) -> io::Result<()>;
}

/// The ring of one CPU, whatever fills it.
pub(crate) trait CpuSource {
    fn enable(&self) -> io::Result<()>;
    fn disable(&self) -> io::Result<()>;
    /// Appends everything that is there, in time order.
    fn drain(&mut self, out: &mut VecDeque<raw::RawEvent>);
    fn ring_bytes(&self) -> usize;
}

/// Records until the time is over, the scope ends, or `stop` returns true (it is asked every 20 ms).
///
/// # Errors
/// [`HostError::NoBackend`] when nothing works here; everything else as its message says. A command that was
/// started is ended before an error is returned.
pub fn record(
    request: &RecordRequest,
    sink: &mut dyn RecordSink,
    stop: &dyn Fn() -> bool,
) -> Result<RecordEnd, HostError> {
    if let Scope::Pids(pids) = &request.scope
        && let Some(&pid) = pids.iter().find(|pid| !alive(**pid))
    {
        return Err(HostError::NoProcess { pid });
    }
    let machine = crate::machine::machine();
    let (opened, mut command) = open(request, &machine)?;
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

struct Opened {
    capabilities: RecordingCapabilities,
    sources: Vec<(CpuId, Box<dyn CpuSource>)>,
}

/// Opens the best backend that works, and with it the command when it must exist first.
fn open(request: &RecordRequest, machine: &MachineFacts) -> Result<(Opened, Option<Command>), HostError> {
    let mut reasons = Vec::new();
    for backend in Backend::ALL {
        if request.backend.is_some_and(|wanted| wanted != backend) {
            continue;
        }
        match open_one(backend, request, machine) {
            Ok(opened) => return Ok(opened),
            Err(HostError::Spawn { program, source }) => return Err(HostError::Spawn { program, source }),
            Err(error) => reasons.push((backend, error.to_string())),
        }
    }
    if let Some(backend) = request.backend {
        let reason = reasons.pop().map_or_else(String::new, |(_, reason)| reason);
        return Err(HostError::Backend { backend: backend.name(), reason });
    }
    let scope = match request.scope {
        Scope::Command(_) => "a command",
        _ => "other processes",
    };
    let reasons: Vec<String> =
        reasons.into_iter().map(|(b, reason)| format!("{}: {reason}", b.name())).collect();
    Err(HostError::NoBackend { scope, reasons: reasons.join("; ") })
}

fn open_one(
    backend: Backend,
    request: &RecordRequest,
    machine: &MachineFacts,
) -> Result<(Opened, Option<Command>), HostError> {
    let bytes = request.ring_bytes;
    let cpus: Vec<CpuId> = machine.online.iter().collect();
    let failed = |cpu: &CpuId| HostError::io(format!("opening perf events on {cpu}"));
    let mut sources: Vec<(CpuId, Box<dyn CpuSource>)> = Vec::new();
    let mut rule = "none";
    let mut idle_unproven = CpuSet::EMPTY;
    let mut command = None;
    match backend {
        Backend::Tracepoints => {
            if !proc::in_first_pid_namespace() {
                let what = "reading tracepoints inside a PID namespace".to_owned();
                let source = io::Error::other("their process numbers would not be those seen here");
                return Err(HostError::Io { what, source });
            }
            let fs = crate::tracefs::PseudoFs::tracefs().map_err(HostError::io("opening tracefs"))?;
            let points = Tracepoints::read(&fs, &machine.online)?;
            rule = points.wake_rule;
            idle_unproven = machine.online.iter().filter(|cpu| !points.idle_seen.contains(*cpu)).collect();
            for cpu in &cpus {
                sources.push((*cpu, Box::new(points.open(cpu.0, bytes).map_err(failed(cpu))?)));
            }
        }
        Backend::Switches => {
            for cpu in &cpus {
                let target = Target::Cpu(cpu.0 as i32);
                sources.push((*cpu, Box::new(SwitchRecorder::open(target, bytes).map_err(failed(cpu))?)));
            }
        }
        Backend::OwnTasks => {
            let Scope::Command(arguments) = &request.scope else {
                let source =
                    io::Error::other("it sees only the tasks of a command that schedlab starts itself");
                return Err(HostError::Io { what: "recording own tasks".to_owned(), source });
            };
            let started = Command::start(arguments, true)?;
            for cpu in &cpus {
                let target = Target::Tree { pid: started.pid() as i32, cpu: cpu.0 as i32 };
                match SwitchRecorder::open(target, bytes) {
                    Ok(source) => sources.push((*cpu, Box::new(source))),
                    Err(error) => {
                        started.end();
                        return Err(failed(cpu)(error));
                    }
                }
            }
            command = Some(started);
        }
    }
    let everything = backend == Backend::Tracepoints;
    let capabilities = RecordingCapabilities {
        backend,
        system_wide: backend != Backend::OwnTasks,
        wakeups: everything,
        wakers: everything,
        softirq_rule: rule.to_owned(),
        idle_unproven,
        prev_state: everything,
        migrations: everything,
        regroups: everything,
        steal_grain: Some(proc::STEAL_GRAIN),
    };
    Ok((Opened { capabilities, sources }, command))
}

/// The recorder's thread runs here at nice −20 (where allowed) and, when asked, on one CPU; put back on drop.
struct Priority {
    nice: Option<i32>,
    affinity: Option<rustix::thread::CpuSet>,
}

impl Priority {
    fn raise(cpu: Option<CpuId>) -> Priority {
        let own = Some(rustix::thread::gettid());
        let nice = rustix::process::getpriority_process(own).ok();
        let nice = nice.filter(|_| rustix::process::setpriority_process(own, -20).is_ok());
        let affinity = cpu.and_then(|cpu| {
            let before = rustix::thread::sched_getaffinity(None).ok()?;
            let mut only = rustix::thread::CpuSet::new();
            only.set(cpu.index());
            rustix::thread::sched_setaffinity(None, &only).ok()?;
            Some(before)
        });
        Priority { nice, affinity }
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if let Some(nice) = self.nice {
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), nice);
        }
        if let Some(mask) = &self.affinity {
            let _ = rustix::thread::sched_setaffinity(None, mask);
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
    let own_only = !opened.capabilities.system_wide;
    let mut tasks =
        Tasks::new(proc::in_first_pid_namespace() || opened.capabilities.backend != Backend::Tracepoints);
    let only = command.as_ref().filter(|_| own_only).map(|command| vec![command.pid()]);
    tasks.scan(only.as_deref());
    let cpus = machine.topology.cpus();
    let cpu_before = clock(ClockId::ThreadCPUTime);
    let monotonic_ns = clock(ClockId::Monotonic);
    sink.start(&RecordStart {
        machine,
        capabilities: opened.capabilities.clone(),
        monotonic_ns,
        unix_ns: clock(ClockId::Realtime),
        ring_bytes: opened.sources.iter().map(|(_, source)| source.ring_bytes()).min().unwrap_or(0),
    })
    .map_err(HostError::Sink)?;
    let mut merger = Merger::new(monotonic_ns, cpus, tasks, own_only);
    for (_, source) in &opened.sources {
        source.enable().map_err(HostError::io("starting the recording"))?;
    }
    if let Scope::Command(arguments) = &request.scope {
        match command {
            Some(started) => started.go_on(),
            None => *command = Some(Command::start(arguments, false)?),
        }
    }
    // Only now: the command would have inherited it.
    let _priority = Priority::raise(request.recorder_cpu);
    drain(request, &mut opened, &mut merger, command, sink, stop)?;
    for (_, source) in &opened.sources {
        source.disable().map_err(HostError::io("ending the recording"))?;
    }
    let ended = clock(ClockId::Monotonic);
    merger.round(&mut opened.sources, u64::MAX, sink);
    sink.flush().map_err(HostError::Sink)?;
    Ok(RecordEnd {
        duration: Ns(ended - monotonic_ns),
        events: merger.events,
        lost: merger.lost,
        recorder_cpu: Ns(clock(ClockId::ThreadCPUTime).saturating_sub(cpu_before)),
        stolen: merger.stolen,
        exit: None,
        command_pid: None,
    })
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
            || matches!(&request.scope, Scope::Pids(pids) if !pids.iter().any(|&pid| alive(pid)));
        if over {
            return Ok(());
        }
        merger.round(&mut opened.sources, last_round, sink);
        sink.flush().map_err(HostError::Sink)?;
        last_round = now;
    }
}

fn clock(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
