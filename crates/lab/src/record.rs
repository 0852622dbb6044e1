//! `schedlab record`: writes what the recorder (`host`) sees into a recording (`trace`).

mod error;
mod facts;
pub(crate) mod flight_recorder;
pub mod output;
mod snapshot;
pub(crate) mod stop_conditions;
pub(crate) mod stop_watcher;

use flight_recorder::FlightRecorder;
use schedlab_files::{FileId, NewFile};
use schedlab_host::{
    Backend, GroupFacts, Preparing, RecordEnd, RecordRequest, RecordSink, RecordStart, RecordUntil,
    RecordingCapabilities, TaskFacts,
};
use schedlab_model::{EventKind, EventSink, Fact, Ns, ObjectId, ObjectInfo, SchedEvent};
use schedlab_study::serve::RECORDED_FOR;
use schedlab_trace::{CpuTime, FactLoss, Header, TraceError, Writer};
use std::cell::Cell;
use std::io::{self, BufWriter};
use std::path::PathBuf;
use stop_watcher::StopWatcher;

pub use error::RecordError;
pub(crate) use facts::{capabilities, describe, group_info, task_info};
pub use snapshot::Snapshot;
pub use stop_conditions::{Caught, StopCondition, StopConditionError, StopConditions, StretchKind};

/// Greatest time between two blocks of the file: a recorder that is killed loses no more than this.
pub(crate) const BLOCK_EVERY: Ns = Ns(500_000_000);

/// Least time between two events that are handed on: an event that comes sooner is in the recording
/// of the one before.
const GAP: Ns = Ns(1_000_000_000);

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
    /// With `ring` and `until`: go on recording after each event, and write nothing: the observer
    /// is handed what was caught.
    pub goes_on: bool,
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
        let (after, goes_on) = (Ns::ZERO, false);
        RecordPlan { request, output, fresh, note, max_bytes, ring, until, after, goes_on }
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

impl RecordProgress {
    /// Returns the recorder's account until now; what is known at the end only is 0.
    pub(crate) fn so_far(&self, facts_lost: u64) -> RecordEnd {
        RecordEnd {
            duration: self.at,
            events: self.events,
            lost: self.lost,
            facts: self.facts,
            facts_lost,
            recorder_cpu: Ns::ZERO,
            stolen: Ns::ZERO,
            busy: Ns::ZERO,
            sched_ext: None,
            exit: None,
            command_pid: None,
        }
    }
}

/// Is told how a recording goes, in the recorder's thread, which waits meanwhile.
pub trait RecordObserver {
    /// Called while the recorder prepares, with what it does.
    fn preparing(&mut self, _: Preparing) {}
    /// Called when the recording begins.
    fn started(&mut self, _: &RecordStart) {}
    /// Called every 20 ms.
    fn progress(&mut self, _: &RecordProgress) {}
    /// Called for each event of a recording that goes on after it.
    fn caught(&mut self, _: Snapshot) {}
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
    let over = Cell::new(false);
    let (sink, end) = recorded(plan, observer, &over, stop)?;
    sink.finish(end)
}

/// Records as a plan that goes on says: each event is handed to the observer, and nothing is
/// written. `stop` is asked every 20 ms.
///
/// # Errors
/// As for [`record`].
pub fn record_incidents(
    plan: &RecordPlan,
    observer: &mut dyn RecordObserver,
    stop: &dyn Fn() -> bool,
) -> Result<(), RecordError> {
    let over = Cell::new(false);
    let (mut sink, _) = recorded(plan, observer, &over, stop)?;
    let path = plan.output.clone();
    // One that came at the end.
    sink.hand_on().map_err(|source| RecordError::Output { path, source })
}

/// Records until `stop`, or until what is recorded ends it.
fn recorded<'a>(
    plan: &'a RecordPlan,
    observer: &'a mut dyn RecordObserver,
    over: &'a Cell<bool>,
    stop: &dyn Fn() -> bool,
) -> Result<(FileSink<'a>, RecordEnd), RecordError> {
    let output = |source| RecordError::Output { path: plan.output.clone(), source };
    let command = match &plan.request.until {
        RecordUntil::CommandEnds(arguments) => arguments.clone(),
        _ => Vec::new(),
    };
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
        handed_on: Ns::ZERO,
        over,
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
    Ok((sink, result?))
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
    /// When an incident was handed to the observer last.
    handed_on: Ns,
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
        let cpu_time = CpuTime { busy: end.busy, stolen: end.stolen, recorder: end.recorder_cpu };
        self.header.sched_ext_end.clone_from(&end.sched_ext);
        if let Some(flight) = self.flight.take() {
            let caught = self.stops.as_ref().and_then(|stops| stops.caught().cloned());
            let snapshot = self.snapshot(flight, caught, (end, Some(cpu_time)));
            return snapshot.write(path, self.plan.fresh);
        }
        let Some(mut writer) = self.writer.take() else {
            let source = TraceError::Empty;
            return Err(RecordError::Output { path: path.clone(), source });
        };
        let full = writer.is_full();
        writer.set_cpu_time(cpu_time);
        writer.set_sched_ext(end.sched_ext.clone());
        let id = self.whole(writer, end.duration)?;
        let (backend, system_wide) = self.backend();
        Ok(Recorded {
            end,
            backend,
            system_wide,
            tasks: self.tasks,
            file_bytes: std::fs::metadata(path).map_or(0, |metadata| metadata.len()),
            full,
            caught: self.stops.as_ref().and_then(|stops| stops.caught().cloned()),
            fact_loss: self.fact_loss,
            kept: None,
            cost_ns_per_switch: self.header.recorder_ns_per_switch,
            file: path.clone(),
            id,
            not_at_place: None,
        })
    }

    /// Returns the backend, and whether it records the whole machine.
    fn backend(&self) -> (Backend, bool) {
        let started = self.started.as_ref();
        started.map_or((Backend::Bpf, false), |found| (found.backend, found.system_wide))
    }

    fn snapshot(
        &self,
        flight: FlightRecorder,
        caught: Option<Caught>,
        (end, cpu_time): (RecordEnd, Option<CpuTime>),
    ) -> Snapshot {
        let (backend, system_wide) = self.backend();
        let (header, fact_loss) = (self.header.clone(), self.fact_loss.clone());
        Snapshot { flight, header, caught, end, cpu_time, backend, system_wide, fact_loss }
    }

    /// Hands what was caught to the observer, and looks for the next.
    fn hand_on(&mut self) -> Result<(), TraceError> {
        let caught = self.stops.as_ref().and_then(|stops| stops.caught().cloned());
        let (Some(caught), Some(flight)) = (caught, &mut self.flight) else { return Ok(()) };
        flight.pack()?;
        let flight = flight.clone();
        let end = self.so_far.so_far(self.fact_loss.lost);
        let snapshot = self.snapshot(flight, Some(caught), (end, None));
        self.observer.caught(snapshot);
        self.stops.iter_mut().for_each(StopWatcher::again);
        self.handed_on = self.so_far.at;
        Ok(())
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

    /// Whether a condition was met and the time to go on after it has passed. A recording that goes
    /// on hands it to the observer instead.
    fn met(&mut self) -> bool {
        let Some(stops) = &mut self.stops else { return false };
        stops.look(self.so_far.at);
        let until = stops.caught().map(|caught| {
            let end = caught.from.saturating_add(caught.length.unwrap_or(Ns::ZERO));
            end.saturating_add(self.plan.after)
        });
        let met = until.is_some_and(|until| self.so_far.at >= until);
        if !(met && self.plan.goes_on) {
            return met;
        }
        // What comes sooner is in the same recording.
        let gap = GAP.min(Ns(self.plan.ring.unwrap_or(Ns::MAX).0 / 2));
        if self.so_far.at.saturating_sub(self.handed_on) >= gap {
            let handed_on = self.hand_on();
            // Reported by the next `flush`.
            let _ = self.keep(handed_on);
        }
        false
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
        if let Some(stops) = &mut self.stops {
            stops.group(group.id, &info);
        }
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

#[cfg(test)]
mod tests;
