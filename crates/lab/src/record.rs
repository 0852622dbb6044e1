//! `schedlab record`: writes what the recorder (`host`) sees into a recording (`trace`).

mod error;
mod flight_recorder;
pub mod output;
mod stop_conditions;

use flight_recorder::{Destination, FlightRecorder, Written};
use schedlab_files::{FileId, NewFile};
use schedlab_host::{
    Backend, FactSource, GroupFacts, MachineFacts, Preparing, RecordEnd, RecordRequest, RecordSink,
    RecordStart, RecordUntil, RecordingCapabilities, TaskFacts,
};
use schedlab_model::{EventKind, EventSink, Fact, GroupSpec, Ns, ObjectId, ObjectInfo, SchedEvent};
use schedlab_study::serve::RECORDED_FOR;
use schedlab_trace::{
    Capabilities, Capability, CpuTime, FactLoss, GroupInfo, Header, TaskInfo, TraceError, Writer,
};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use stop_conditions::StopWatcher;

pub use error::RecordError;
pub use stop_conditions::{Caught, StopCondition, StopConditionError, StopConditions, StretchKind};

/// Greatest time between two blocks of the file: a recorder that is killed loses no more than this.
const BLOCK_EVERY: Ns = Ns(500_000_000);

/// A finished recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// The recorder's own account.
    pub end: RecordEnd,
    /// The backend that recorded.
    pub backend: Backend,
    /// Whether every task of the machine is in it.
    pub system_wide: bool,
    /// Threads in the task table.
    pub tasks: usize,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Whether it ended because the file had its greatest allowed size.
    pub full: bool,
    /// The stretch that met a condition, if one did.
    pub caught: Option<Caught>,
    /// What is missing among the facts.
    pub fact_loss: FactLoss,
    /// With a flight recorder: how much of the end is in the file.
    pub kept: Option<Kept>,
    /// CPU time that recording added to a switch with its wakeup, in nanoseconds, where it was
    /// measured.
    pub cost_ns_per_switch: Option<u64>,
    /// Where the recording is.
    pub file: PathBuf,
    /// Which file that is, whatever comes to its name.
    pub id: FileId,
    /// With a flight recorder: why the recording is not where it should be.
    pub not_at_place: Option<String>,
}

/// What to record, when to stop, and into which file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordPlan {
    /// Which tasks, by which backend, for how long.
    pub request: RecordRequest,
    /// The file. An existing one stays until the recording is whole: what is recorded meanwhile is
    /// beside it.
    pub output: PathBuf,
    /// Whether the file must be new: nothing is replaced.
    pub fresh: bool,
    /// A line for the header.
    pub note: String,
    /// The recording ends before the file would be longer than this many bytes. At least
    /// [`SMALLEST_FILE`].
    pub max_bytes: Option<u64>,
    /// Flight recorder: keep only the last of the events, this long, in memory, and write them when
    /// the recording ends.
    pub ring: Option<Ns>,
    /// End when one of these conditions is met.
    pub until: Option<StopConditions>,
    /// How long to go on after that.
    pub after: Ns,
}

impl RecordPlan {
    /// Returns the server that it is made for: the only process, or the task whose waits end it.
    fn server(&self) -> Option<String> {
        match &self.request.until {
            RecordUntil::ProcessesEnd(pids) if pids.len() == 1 => pids.first().map(u32::to_string),
            _ => self.until.as_ref().and_then(StopConditions::server),
        }
    }

    /// Returns a plan that records until `request` ends it, into `output`.
    pub fn new(request: RecordRequest, output: PathBuf, note: String) -> RecordPlan {
        let (fresh, max_bytes, ring, until) = (false, None, None, None);
        RecordPlan { request, output, fresh, note, max_bytes, ring, until, after: Ns::ZERO }
    }
}

/// Smallest file, in bytes: header, first tasks, index and end mark.
pub const SMALLEST_FILE: u64 = 256 << 10;

/// What a flight recorder wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// Length of the recording in the file.
    pub duration: Ns,
    /// Events in the file.
    pub events: u64,
    /// Whether memory was too small for all that was asked for.
    pub short: bool,
}

/// State of a recording that goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecordProgress {
    /// Time of the last event.
    pub at: Ns,
    /// Events so far.
    pub events: u64,
    /// Events lost so far.
    pub lost: u64,
    /// Facts so far: what tasks exchanged.
    pub facts: u64,
    /// Bytes written so far; with a flight recorder, bytes in memory.
    pub file_bytes: u64,
}

/// Is told how a recording goes, in the recorder's thread, which waits meanwhile.
pub trait RecordObserver {
    /// Called while the recorder prepares, with what it does.
    fn preparing(&mut self, _: Preparing) {}
    /// Called when the recording begins.
    fn started(&mut self, _: &RecordStart) {}
    /// Called every 20 ms.
    fn progress(&mut self, _: &RecordProgress) {}
}

impl RecordObserver for () {}

/// Records as `plan` says. `stop` is asked every 20 ms; see [`schedlab_host::StopSignal`] for
/// Ctrl-C.
///
/// # Errors
/// As [`RecordError`] says. A recording that fails after its beginning leaves a file that opens up
/// to its last block.
pub fn record(
    plan: &RecordPlan,
    observer: &mut dyn RecordObserver,
    stop: &dyn Fn() -> bool,
) -> Result<Recorded, RecordError> {
    let output = |source| RecordError::Output { path: plan.output.clone(), source };
    let command = match &plan.request.until {
        RecordUntil::CommandEnds(arguments) => arguments.clone(),
        _ => Vec::new(),
    };
    let over = Cell::new(false);
    let mut sink = FileSink {
        plan,
        observer,
        header: Header { command, note: plan.note.clone(), ..Header::default() },
        writer: None,
        written_to: plan.output.clone(),
        beside: false,
        kept: false,
        flight: plan.ring.map(|keep| {
            FlightRecorder::new(
                keep,
                plan.max_bytes.map_or(flight_recorder::MEMORY, |n| n as usize),
            )
        }),
        stops: plan.until.as_ref().map(|until| StopWatcher::new(until, std::process::id())),
        error: None,
        tasks: 0,
        objects: 0,
        so_far: RecordProgress::default(),
        fact_loss: FactLoss::default(),
        written: Ns::ZERO,
        over: &over,
        started: None,
    };
    let result = schedlab_host::record(&plan.request, &mut sink, &|| over.get() || stop());
    match sink.error.take() {
        Some(Failed::Trace(source)) if sink.kept => {
            return Err(RecordError::Cut {
                path: plan.output.clone(),
                left: sink.written_to,
                source,
            });
        }
        Some(Failed::Trace(error)) => return Err(output(error)),
        Some(Failed::Unseen(condition, backend)) => {
            return Err(RecordError::Unseen { condition, backend });
        }
        None => {}
    }
    sink.finish(result?)
}

/// Whether there is a recording at `path` that a new file would replace.
fn replaces(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| data.is_file() && data.len() > 0)
}

/// Writes what was to be at `path` into the first spare folder that has room for it. Returns where
/// it is.
fn elsewhere(
    path: &Path,
    mut write: impl FnMut(&Destination<'_>) -> Result<Written, TraceError>,
) -> Option<(PathBuf, Written)> {
    schedlab_files::spare_folders().find_map(|folder| {
        let place = folder.path().join(path.file_name()?);
        let written = write(&Destination { path: &place, fresh: true }).ok()?;
        let _ = folder.keep();
        Some((place, written))
    })
}

/// Why the sink stopped the recorder.
enum Failed {
    Trace(TraceError),
    Unseen(String, &'static str),
}

struct FileSink<'a> {
    plan: &'a RecordPlan,
    observer: &'a mut dyn RecordObserver,
    header: Header,
    writer: Option<Writer<BufWriter<NewFile>>>,
    /// The file that is written: the output, or one beside it where a recording was before.
    written_to: PathBuf,
    /// Whether that is beside the output.
    beside: bool,
    /// Whether it has events, and so stays whatever happens.
    kept: bool,
    flight: Option<FlightRecorder>,
    stops: Option<StopWatcher>,
    error: Option<Failed>,
    tasks: usize,
    objects: usize,
    so_far: RecordProgress,
    fact_loss: FactLoss,
    written: Ns,
    /// Set when the recording has to end.
    over: &'a Cell<bool>,
    started: Option<RecordingCapabilities>,
}

impl FileSink<'_> {
    /// Keeps the real error for the caller, and returns one that stops the recorder.
    fn keep<T>(&mut self, result: Result<T, TraceError>) -> io::Result<T> {
        result.map_err(|error| {
            let text = io::Error::other(error.to_string());
            self.error.get_or_insert(Failed::Trace(error));
            text
        })
    }

    /// Writes the file, or its end, and returns what became of the recording.
    fn finish(mut self, end: RecordEnd) -> Result<Recorded, RecordError> {
        let path = &self.plan.output;
        let output = |source| RecordError::Output { path: path.clone(), source };
        let cpu_time = CpuTime { busy: end.busy, stolen: end.stolen, recorder: end.recorder_cpu };
        let cost_ns_per_switch = self.header.recorder_ns_per_switch;
        let mut caught = self.stops.as_ref().and_then(|stops| stops.caught().cloned());
        let (mut tasks, mut full, mut kept) = (self.tasks, false, None);
        let (mut file, mut id, mut not_at_place) = (path.clone(), None, None);
        if let Some(mut flight) = self.flight.take() {
            let replaced = replaces(path) && !self.beside;
            self.header.sched_ext_end.clone_from(&end.sched_ext);
            if let Some(server) = caught.as_ref().and_then(Caught::server) {
                self.header.knobs.insert(RECORDED_FOR.to_owned(), server);
            }
            let header = &self.header;
            let mut write = |destination: &Destination<'_>| {
                flight.write(destination, header, end.duration, cpu_time, caught.as_mut())
            };
            let written = match write(&Destination { path, fresh: self.plan.fresh }) {
                Ok(written) => written,
                Err(error) => {
                    let (place, written) = elsewhere(path, write).ok_or_else(|| {
                        RecordError::Nowhere { path: path.clone(), reason: error.to_string() }
                    })?;
                    file = place;
                    not_at_place = Some(error.to_string());
                    written
                }
            };
            let Written { duration, events, short, .. } = written;
            if events == 0 && replaced {
                return Err(RecordError::Empty(path.clone()));
            }
            tasks = written.tasks;
            id = Some(written.id);
            kept = Some(Kept { duration, events, short });
        } else if let Some(mut writer) = self.writer.take() {
            full = writer.is_full();
            writer.set_cpu_time(cpu_time);
            writer.set_sched_ext(end.sched_ext.clone());
            id = Some(self.whole(writer, end.duration)?);
        }
        let id = id.ok_or_else(|| output(TraceError::Empty))?;
        let file_bytes = std::fs::metadata(&file).map_or(0, |metadata| metadata.len());
        let (backend, system_wide) =
            self.started.map_or((Backend::Bpf, false), |found| (found.backend, found.system_wide));
        Ok(Recorded {
            end,
            backend,
            system_wide,
            tasks,
            file_bytes,
            full,
            caught,
            fact_loss: self.fact_loss,
            kept,
            cost_ns_per_switch,
            file,
            id,
            not_at_place,
        })
    }

    /// Writes the end of a recording that grew, and puts it at its place. When the disk is full
    /// now, what was written stays.
    fn whole(&self, writer: Writer<BufWriter<NewFile>>, end: Ns) -> Result<FileId, RecordError> {
        let path = &self.plan.output;
        let failed = |source| match self.kept {
            true => RecordError::Cut { path: path.clone(), left: self.written_to.clone(), source },
            false => RecordError::Output { path: path.clone(), source },
        };
        let system = |source| failed(TraceError::File { path: path.clone(), source });
        let out = writer.finish(end).map_err(failed)?;
        let file = out.into_inner().map_err(|error| system(error.into_error()))?;
        if self.so_far.events == 0 && self.beside {
            return Err(RecordError::Empty(path.clone()));
        }
        let id = file.id().map_err(system)?;
        file.commit().map_err(system)?;
        Ok(id)
    }

    /// Whether a condition was met and the time to go on after it has passed.
    fn met(&mut self) -> bool {
        let Some(stops) = &mut self.stops else { return false };
        stops.look(self.so_far.at);
        let until = stops.caught().map(|caught| {
            let end = caught.from.saturating_add(caught.length.unwrap_or(Ns::ZERO));
            end.saturating_add(self.plan.after)
        });
        until.is_some_and(|until| self.so_far.at >= until)
    }
}

impl EventSink for FileSink<'_> {
    fn event(&mut self, event: &SchedEvent) {
        self.so_far.at = event.at;
        self.so_far.events += 1;
        if let EventKind::Lost { count } = event.kind {
            self.so_far.lost += count;
        }
        if let Some(stops) = &mut self.stops {
            stops.event(event);
        }
        if let Some(flight) = &mut self.flight {
            let packed = flight.event(event);
            // Reported by the next `flush`.
            let _ = self.keep(packed);
        } else if let Some(writer) = &mut self.writer {
            writer.event(event);
        }
    }

    fn fact(&mut self, fact: &Fact) {
        self.so_far.at = fact.at;
        self.so_far.facts += 1;
        self.fact_loss.count(fact);
        if let Some(flight) = &mut self.flight {
            let packed = flight.fact(fact);
            // Reported by the next `flush`.
            let _ = self.keep(packed);
        } else if let Some(writer) = &mut self.writer {
            writer.fact(fact);
        }
    }
}

impl RecordSink for FileSink<'_> {
    fn preparing(&mut self, what: Preparing) {
        self.observer.preparing(what);
    }

    fn start(&mut self, start: &RecordStart) -> io::Result<()> {
        self.started = Some(start.capabilities.clone());
        describe(&mut self.header, start);
        if let Some(server) = self.plan.server() {
            self.header.knobs.insert(RECORDED_FOR.to_owned(), server);
        }
        let unseen = self.plan.until.as_ref().and_then(StopWatcher::needs_wakeups);
        if let Some(condition) = unseen.filter(|_| !start.capabilities.wakeups) {
            let backend = start.capabilities.backend.name();
            self.error = Some(Failed::Unseen(condition.to_string(), backend));
            return Err(io::Error::other("the event cannot be seen"));
        }
        if self.flight.is_none() {
            let path = &self.plan.output;
            let created =
                NewFile::growing(path).and_then(|file| match self.plan.fresh && file.is_beside() {
                    true => Err(io::ErrorKind::AlreadyExists.into()),
                    false => Ok(file),
                });
            let created = created.map_err(|source| TraceError::File { path: path.clone(), source });
            let file = self.keep(created)?;
            self.written_to = file.path().to_owned();
            self.beside = file.is_beside();
            let begun = Writer::new(BufWriter::new(file), &self.header);
            let mut writer = self.keep(begun)?;
            if let Some(bytes) = self.plan.max_bytes {
                writer.limit(bytes);
            }
            // From here on a killed recorder leaves a file that opens.
            let flushed = writer.flush();
            self.keep(flushed)?;
            self.writer = Some(writer);
        }
        self.observer.started(start);
        Ok(())
    }

    fn group(&mut self, group: &GroupFacts) {
        let info = group_info(group);
        if let Some(flight) = &mut self.flight {
            flight.group(info);
        } else if let Some(writer) = &mut self.writer {
            writer.add_group(info);
        }
    }

    fn task(&mut self, task: &TaskFacts) {
        let info = task_info(task);
        if let Some(stops) = &mut self.stops {
            stops.task(task.id, &info, task.stand_in);
        }
        let new = task.id.index() >= self.tasks;
        self.tasks += usize::from(new);
        if let Some(flight) = &mut self.flight {
            flight.task(task.id, info);
        } else if let Some(writer) = &mut self.writer {
            if new {
                writer.add_task(info);
            } else {
                writer.update_task(task.id, info);
            }
        }
    }

    fn object(&mut self, id: ObjectId, object: &ObjectInfo) {
        let new = id.index() >= self.objects;
        self.objects += usize::from(new);
        if let Some(flight) = &mut self.flight {
            flight.object(id, object.clone());
        } else if let Some(writer) = &mut self.writer {
            if new {
                writer.add_object(object.clone());
            } else {
                writer.update_object(id, object.clone());
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.error.is_some() {
            return Err(io::Error::other("the recording cannot be kept"));
        }
        if self.so_far.at.saturating_sub(self.written) >= BLOCK_EVERY {
            self.written = self.so_far.at;
            let done = match (&mut self.flight, &mut self.writer) {
                (Some(flight), _) => flight.pack(),
                (None, Some(writer)) => writer.flush(),
                (None, None) => Ok(()),
            };
            self.keep(done)?;
            if let Some(writer) = self.writer.as_mut().filter(|_| self.so_far.events > 0) {
                writer.out_mut().get_mut().keep();
                self.kept = true;
            }
        }
        let full = self.writer.as_ref().is_some_and(Writer::is_full);
        let met = self.met();
        self.over.set(full || met);
        self.so_far.file_bytes = match (&self.flight, &self.writer) {
            (Some(flight), _) => flight.bytes() as u64,
            (None, Some(writer)) => writer.bytes_written(),
            (None, None) => 0,
        };
        self.observer.progress(&self.so_far);
        Ok(())
    }
}

fn describe(header: &mut Header, start: &RecordStart) {
    let MachineFacts { kernel, version, arch, model, hz, topology, boot_id, knobs, .. } =
        &start.machine;
    header.backend = match start.capabilities.backend {
        Backend::Bpf => "bpf".to_owned(),
        other => format!("perf {}", other.name()),
    };
    header.kernel.clone_from(kernel);
    header.kernel_build = format!("{version} {arch}");
    header.machine =
        format!("{model}{}", if start.machine.virtual_machine { " (virtual machine)" } else { "" });
    header.hz = *hz;
    header.topology = topology.clone();
    header.clock = "CLOCK_MONOTONIC".to_owned();
    header.clock_start_ns = start.monotonic_ns;
    header.realtime_offset_ns = Some(start.unix_ns.wrapping_sub(start.monotonic_ns).cast_signed());
    header.boot_id.clone_from(boot_id);
    header.knobs = knobs.iter().cloned().collect::<BTreeMap<_, _>>();
    header
        .knobs
        .insert("recorder.softirq_rule".to_owned(), start.capabilities.softirq_rule.clone());
    let messages = match &start.capabilities.messages {
        Ok(hooks) => hooks.name().to_owned(),
        Err(why) => format!("none: {why}"),
    };
    header.knobs.insert("recorder.messages".to_owned(), messages);
    if !start.capabilities.idle_unproven.is_empty() {
        let cpus = start.capabilities.idle_unproven.to_string();
        header.knobs.insert("recorder.idle_wakeups_may_be_missing_on_cpus".to_owned(), cpus);
    }
    // debugfs writes the choices with the chosen one in brackets: "none (voluntary) full".
    header.preempt = header.knobs.get("preempt").and_then(|text| {
        let chosen = text.split_once('(')?.1.split_once(')')?.0;
        Some(chosen.to_owned())
    });
    header.capabilities = capabilities(&start.capabilities);
    header.recorder_ns_per_switch = start.cost_ns_per_switch;
    header.sched_ext.clone_from(&start.sched_ext);
    header.date = schedlab_model::text::iso8601(start.unix_ns);
}

/// Returns the capabilities as a recording's header has them.
pub(crate) fn capabilities(of: &RecordingCapabilities) -> Capabilities {
    let all = [
        (Capability::WakeTimes, of.wakeups),
        (Capability::Waker, of.wakers),
        (Capability::IrqContext, of.wakers),
        (Capability::PrevState, of.prev_state),
        (Capability::Preempted, true),
        (Capability::Migrations, of.migrations),
        (Capability::Lifecycle, true),
        (Capability::Steal, of.steal_grain.is_some()),
        (Capability::AllTasks, of.system_wide),
        (Capability::BlockingSyscalls, of.calls),
        (Capability::Throttling, of.limits),
        (Capability::Messages, of.messages.is_ok()),
    ];
    Capabilities::from_list(
        all.into_iter().filter(|&(_, has)| has).map(|(capability, _)| capability),
    )
}

pub(crate) fn task_info(task: &TaskFacts) -> TaskInfo {
    TaskInfo {
        tid: task.tid,
        pid: task.process,
        comm: task.comm.clone(),
        policy: task.policy,
        nice: task.nice,
        affinity: task.affinity,
        group: task.group,
        slice: task.slice,
        session: None,
        ext: task.ext,
        kernel: task.kernel,
        known: task.from == FactSource::Kernel,
    }
}

pub(crate) fn group_info(group: &GroupFacts) -> GroupInfo {
    let spec = GroupSpec {
        name: schedlab_model::text::shown(&group.path).into_owned(),
        parent: group.parent,
        weight: group.weight,
        idle: group.idle,
        bandwidth: group.bandwidth,
        autogroup: group.autogroup_nice.is_some(),
        cap_percent: 0,
        cpus: None,
    };
    GroupInfo { spec }
}

#[cfg(test)]
mod tests;
