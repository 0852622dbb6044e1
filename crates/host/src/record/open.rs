//! Opens the best way to record that works, or the one that was asked for.

use super::bpf::{self, Only};
use super::child::Command;
use super::switches::SwitchRecorder;
use super::tracepoints::Tracepoints;
use super::{CpuSource, MessageHooks, Messages, RecordFilter, RecordRequest, RecordUntil};
use crate::cgroup::{Hierarchy, find_group};
use crate::facts::{Backend, MachineFacts, RecordingCapabilities};
use crate::sys::perf::Target;
use crate::{HostError, proc};
use schedlab_model::{CpuId, CpuSet};
use std::io;

/// What is open, and what it can know.
pub(super) struct Opened {
    pub(super) capabilities: RecordingCapabilities,
    pub(super) sources: Vec<(CpuId, Box<dyn CpuSource>)>,
    /// The kernel's side does not leave out the tasks that the request leaves out.
    pub(super) filter_here: bool,
}

/// What one backend gives.
struct Sources {
    list: Vec<(CpuId, Box<dyn CpuSource>)>,
    wake_rule: &'static str,
    limits: bool,
    idle_unproven: CpuSet,
    messages: Result<MessageHooks, String>,
    command: Option<Command>,
}

impl Sources {
    fn new(list: Vec<(CpuId, Box<dyn CpuSource>)>) -> Sources {
        let messages = Err("only the backend bpf sees them".to_owned());
        let idle_unproven = CpuSet::EMPTY;
        Sources { list, wake_rule: "none", limits: false, idle_unproven, messages, command: None }
    }
}

/// Opens the best backend that works, and with it the command when it must exist first.
pub(super) fn open(
    request: &RecordRequest,
    machine: &MachineFacts,
) -> Result<(Opened, Option<Command>), HostError> {
    let mut reasons = Vec::new();
    for backend in Backend::ALL {
        if request.backend.is_some_and(|wanted| wanted != backend) {
            continue;
        }
        match open_one(backend, request, machine) {
            Ok(opened) => return Ok(opened),
            Err(error @ (HostError::Spawn { .. } | HostError::NoGroup { .. })) => {
                return Err(error);
            }
            Err(error) => reasons.push((backend, error.to_string())),
        }
    }
    if let Some(backend) = request.backend {
        let reason = reasons.pop().map_or_else(String::new, |(_, reason)| reason);
        return Err(HostError::Backend { backend: backend.name(), reason });
    }
    let scope = match request.until {
        RecordUntil::CommandEnds(_) => "a command",
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
    if request.messages == Messages::On && backend != Backend::Bpf {
        let source = io::Error::other(
            "only the backend bpf sees them (`--messages off` records without them)",
        );
        return Err(HostError::Io { what: "recording messages".to_owned(), source });
    }
    let sources = match backend {
        Backend::Bpf => open_bpf(request, machine)?,
        Backend::Tracepoints => open_tracepoints(request, machine)?,
        Backend::Switches => open_switches(request, machine)?,
        Backend::OwnTasks => open_own(request, machine)?,
    };
    let system_wide = backend != Backend::OwnTasks && request.filter == RecordFilter::All;
    let capabilities = capabilities(backend, system_wide, &sources);
    let filter_here = request.filter != RecordFilter::All
        && matches!(backend, Backend::Tracepoints | Backend::Switches);
    Ok((Opened { capabilities, sources: sources.list, filter_here }, sources.command))
}

fn capabilities(backend: Backend, system_wide: bool, sources: &Sources) -> RecordingCapabilities {
    let everything = matches!(backend, Backend::Bpf | Backend::Tracepoints);
    RecordingCapabilities {
        backend,
        system_wide,
        wakeups: everything,
        wakers: everything,
        softirq_rule: sources.wake_rule.to_owned(),
        idle_unproven: sources.idle_unproven,
        prev_state: everything,
        migrations: everything,
        regroups: everything,
        calls: backend == Backend::Bpf && cfg!(target_arch = "x86_64"),
        limits: sources.limits,
        messages: sources.messages.clone(),
        steal_grain: Some(proc::STEAL_GRAIN),
    }
}

fn failed(cpu: CpuId) -> impl FnOnce(io::Error) -> HostError {
    HostError::io(format!("opening perf events on {cpu}"))
}

fn only_in_first_namespace(what: &str) -> Result<(), HostError> {
    if proc::in_first_pid_namespace() {
        return Ok(());
    }
    let source = io::Error::other("their process numbers would not be those seen here");
    Err(HostError::Io { what: format!("{what} inside a PID namespace"), source })
}

fn open_bpf(request: &RecordRequest, machine: &MachineFacts) -> Result<Sources, HostError> {
    only_in_first_namespace("running BPF programs")?;
    let only = match &request.filter {
        RecordFilter::All => Only::All,
        RecordFilter::Processes(list) => Only::Processes(list.clone()),
        RecordFilter::Group(path) => {
            let group = find_group(path)?;
            match group.hierarchy {
                Hierarchy::Cpu => Only::CpuGroup(group.id),
                Hierarchy::Unified => Only::UnifiedGroup(group.id),
            }
        }
    };
    // What a command does is asked for, however much it is.
    let count = only == Only::All && !matches!(request.until, RecordUntil::CommandEnds(_));
    let opened = bpf::open(&machine.online, request.ring_bytes, &only, request.messages, count)?;
    let bpf::OpenedBpf { rings, limits, messages, .. } = opened;
    let boxed = |ring| -> Box<dyn CpuSource> { Box::new(ring) };
    let list = machine.online.iter().zip(rings.into_iter().map(boxed)).collect();
    Ok(Sources { wake_rule: bpf::WAKE_RULE, limits, messages, ..Sources::new(list) })
}

/// What is open where the kernel sums up.
pub(super) struct Summing {
    pub(super) capabilities: RecordingCapabilities,
    pub(super) rings: Vec<bpf::BpfRing>,
    pub(super) sums: bpf::KernelSums,
}

/// Opens the backend bpf for all tasks, with what the kernel sums up.
pub(super) fn open_summing(
    request: &RecordRequest,
    machine: &MachineFacts,
) -> Result<Summing, HostError> {
    only_in_first_namespace("running BPF programs")?;
    let opened = bpf::open_summing(&machine.online, request.ring_bytes)?;
    let bpf::OpenedBpf { rings, limits, messages, sums } = opened;
    let sums = sums.ok_or_else(|| HostError::Form {
        what: "the BPF object".to_owned(),
        detail: "it has no sums".to_owned(),
    })?;
    let none = Sources::new(Vec::new());
    let sources = Sources { wake_rule: bpf::WAKE_RULE, limits, messages, ..none };
    Ok(Summing { capabilities: capabilities(Backend::Bpf, true, &sources), rings, sums })
}

fn open_tracepoints(request: &RecordRequest, machine: &MachineFacts) -> Result<Sources, HostError> {
    only_in_first_namespace("reading tracepoints")?;
    let fs = crate::tracefs::PseudoFs::tracefs().map_err(HostError::io("opening tracefs"))?;
    let points = Tracepoints::read(&fs, &machine.online)?;
    let mut list: Vec<(CpuId, Box<dyn CpuSource>)> = Vec::new();
    for cpu in machine.online.iter() {
        list.push((cpu, Box::new(points.open(cpu.0, request.ring_bytes).map_err(failed(cpu))?)));
    }
    let idle_unproven =
        machine.online.iter().filter(|cpu| !points.idle_seen.contains(*cpu)).collect();
    Ok(Sources { wake_rule: points.wake_rule, idle_unproven, ..Sources::new(list) })
}

fn open_switches(request: &RecordRequest, machine: &MachineFacts) -> Result<Sources, HostError> {
    let target = |cpu: CpuId| Target::Cpu(cpu.0 as i32);
    let list = switch_recorders(request.ring_bytes, machine, target);
    let list = list.map_err(|(cpu, error)| failed(cpu)(error))?;
    Ok(Sources::new(list.into_iter().map(boxed).collect()))
}

fn boxed((cpu, source): (CpuId, SwitchRecorder)) -> (CpuId, Box<dyn CpuSource>) {
    (cpu, Box::new(source))
}

fn switch_recorders(
    ring_bytes: usize,
    machine: &MachineFacts,
    target: impl Fn(CpuId) -> Target,
) -> Result<Vec<(CpuId, SwitchRecorder)>, (CpuId, io::Error)> {
    let open =
        |cpu: CpuId, bytes: usize| SwitchRecorder::open(target(cpu), bytes).map(|ring| (cpu, ring));
    shared_fairly(ring_bytes, &|bytes| {
        machine.online.iter().map(|cpu| open(cpu, bytes).map_err(|error| (cpu, error))).collect()
    })
}

/// The smallest ring that is asked for.
const LEAST_RING: usize = 128 << 10;

/// Opens the rings of all CPUs with `bytes` each, or with less: users have a limit on locked memory
/// for all of them (`perf_event_mlock_kb` for each CPU, and RLIMIT_MEMLOCK), and where the first
/// CPUs took all of it the others would have none.
fn shared_fairly<T>(
    mut bytes: usize,
    all: &dyn Fn(usize) -> Result<T, (CpuId, io::Error)>,
) -> Result<T, (CpuId, io::Error)> {
    loop {
        match all(bytes) {
            Err((_, error))
                if error.kind() == io::ErrorKind::PermissionDenied && bytes > LEAST_RING =>
            {
                bytes /= 2;
            }
            other => return other,
        }
    }
}

fn open_own(request: &RecordRequest, machine: &MachineFacts) -> Result<Sources, HostError> {
    let arguments = match (&request.until, &request.filter) {
        (RecordUntil::CommandEnds(_) | RecordUntil::ProcessesEnd(_), _)
            if request.whole_machine =>
        {
            let source = io::Error::other(
                "it sees only the tasks that it was started for, and --all asks for every task",
            );
            return Err(HostError::Io { what: "recording own tasks".to_owned(), source });
        }
        (RecordUntil::CommandEnds(arguments), _) => arguments,
        (_, RecordFilter::Processes(pids)) | (RecordUntil::ProcessesEnd(pids), _) => {
            return open_threads(request, machine, pids);
        }
        _ => {
            let source = io::Error::other(
                "it sees only a command that schedlab starts (schedlab record -o FILE -- COMMAND) \
                 or processes of yours \
                 (--pid N)",
            );
            return Err(HostError::Io { what: "recording own tasks".to_owned(), source });
        }
    };
    let started = Command::start(arguments, true)?;
    let target = |cpu: CpuId| Target::Tree { pid: started.pid() as i32, cpu: cpu.0 as i32 };
    match switch_recorders(request.ring_bytes, machine, target) {
        Ok(list) => {
            let list = list.into_iter().map(boxed).collect();
            Ok(Sources { command: Some(started), ..Sources::new(list) })
        }
        Err((cpu, error)) => {
            started.end();
            Err(failed(cpu)(error))
        }
    }
}

/// The threads of processes that run already. The kernel allows it for processes that their user
/// may trace.
fn open_threads(
    request: &RecordRequest,
    machine: &MachineFacts,
    pids: &[u32],
) -> Result<Sources, HostError> {
    let refused = |thread: u32| {
        HostError::io(format!("opening perf events of thread {thread} (is it yours?)"))
    };
    let mut list: Vec<(CpuId, SwitchRecorder)> = Vec::new();
    let mut known: Vec<u32> = Vec::new();
    // What is created by a thread that is watched is watched; what another one created meanwhile
    // comes in the next look.
    loop {
        let threads = proc::threads(Some(pids));
        let fresh: Vec<u32> = threads
            .into_iter()
            .map(|(_, thread)| thread)
            .filter(|thread| !known.contains(thread))
            .collect();
        if fresh.is_empty() {
            break;
        }
        for thread in fresh {
            known.push(thread);
            match watch_thread(thread, request.ring_bytes, machine, &mut list) {
                // It has ended meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                result => result.map_err(refused(thread))?,
            }
        }
    }
    if list.is_empty() {
        return Err(HostError::NoProcess { pid: pids.first().copied().unwrap_or_default() });
    }
    Ok(Sources::new(list.into_iter().map(boxed).collect()))
}

/// On every CPU: the first thread has the rings, the others write into them.
fn watch_thread(
    thread: u32,
    ring_bytes: usize,
    machine: &MachineFacts,
    list: &mut Vec<(CpuId, SwitchRecorder)>,
) -> io::Result<()> {
    if !list.is_empty() {
        return list.iter_mut().try_for_each(|(cpu, source)| source.add(thread, cpu.0));
    }
    let target = |cpu: CpuId| Target::Tree { pid: thread as i32, cpu: cpu.0 as i32 };
    *list = switch_recorders(ring_bytes, machine, target).map_err(|(_, error)| error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// The limits of a user of a machine with four CPUs: 4 x 516 KiB, and RLIMIT_MEMLOCK of 8 MiB.
    /// A ring halves itself when the rest does not hold it ([`Ring::map`](crate::sys::Ring::map)).
    #[test]
    fn every_cpu_has_its_part_of_the_memory() {
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        let open = |bytes: usize| {
            let left = Cell::new(4 * (516 << 10) + (8 << 20));
            let one = |cpu: usize| {
                let mut size = bytes;
                while size + 4096 > left.get() {
                    size /= 2;
                    if size < LEAST_RING {
                        return Err((CpuId::from(cpu), refused()));
                    }
                }
                left.set(left.get() - size - 4096);
                Ok(size)
            };
            (0..4).map(one).collect::<Result<Vec<usize>, _>>()
        };
        assert!(open(8 << 20).is_err(), "the first takes what the others need");
        let rings = shared_fairly(8 << 20, &open).expect("there is enough for all");
        assert!(rings.iter().all(|size| *size >= LEAST_RING) && rings.len() == 4, "{rings:?}");
        let never = |_: usize| -> Result<(), _> { Err((CpuId(3), refused())) };
        assert_eq!(
            shared_fairly(8 << 20, &never).unwrap_err().0,
            CpuId(3),
            "a real refusal stays one"
        );
    }
}
