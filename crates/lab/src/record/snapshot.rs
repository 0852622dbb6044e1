//! What a flight recorder holds at a moment, and how it becomes a file.

use super::flight_recorder::{Destination, FlightRecorder, Written};
use super::{Caught, RecordError, Recorded, group_info, task_info};
use schedlab_host::in_kernel::Kept;
use schedlab_host::{Backend, GroupFacts, RecordEnd, RecordSink, TaskFacts};
use schedlab_model::{EventSink, SchedEvent};
use schedlab_study::serve::RECORDED_FOR;
use schedlab_trace::{CpuTime, FactLoss, Header, TraceError};
use std::path::{Path, PathBuf};

/// What a flight recorder holds at a moment.
pub struct Snapshot {
    pub(crate) flight: FlightRecorder,
    pub(crate) header: Header,
    pub(crate) caught: Option<Caught>,
    pub(crate) end: RecordEnd,
    /// CPU time of the whole recording, where it has ended.
    pub(crate) cpu_time: Option<CpuTime>,
    pub(crate) backend: Backend,
    pub(crate) system_wide: bool,
    pub(crate) fact_loss: FactLoss,
}

/// Packs what was kept elsewhere.
struct Refill<'a>(&'a mut FlightRecorder);

impl EventSink for Refill<'_> {
    fn event(&mut self, event: &SchedEvent) {
        // An event that cannot be packed is missing, as it is when it comes.
        let _ = self.0.event(event);
    }
}

impl RecordSink for Refill<'_> {
    fn group(&mut self, group: &GroupFacts) {
        self.0.group(group_info(group));
    }

    fn task(&mut self, task: &TaskFacts) {
        self.0.task(task.id, task_info(task));
    }
}

impl Snapshot {
    /// Takes what was kept by the recorder itself.
    pub(crate) fn fill(&mut self, kept: Kept) {
        if kept.is_short() {
            self.flight.is_short();
        }
        // The sink does not fail.
        let _ = kept.replay(&mut Refill(&mut self.flight));
    }

    /// Writes it to `path`, which must be new if `fresh`; else into a folder that has room.
    ///
    /// # Errors
    /// It can be written nowhere, or there is no event and an earlier recording at `path`.
    pub fn write(self, path: &Path, fresh: bool) -> Result<Recorded, RecordError> {
        let Snapshot { mut flight, mut header, mut caught, end, cpu_time, .. } = self;
        let replaced = replaces(path);
        if let Some(server) = caught.as_ref().and_then(Caught::server) {
            header.knobs.insert(RECORDED_FOR.to_owned(), server);
        }
        let mut write = |destination: &Destination<'_>| {
            flight.write(destination, &header, end.duration, cpu_time, caught.as_ref())
        };
        let (file, written, not_at_place) = match write(&Destination { path, fresh }) {
            Ok(written) => (path.to_owned(), written, None),
            Err(error) => {
                let (place, written) = elsewhere(path, write).ok_or_else(|| {
                    RecordError::Nowhere { path: path.to_owned(), reason: error.to_string() }
                })?;
                (place, written, Some(error.to_string()))
            }
        };
        let Written { begin, duration, events, short, tasks, id } = written;
        if let Some(caught) = &mut caught {
            caught.from = caught.from.saturating_sub(begin);
        }
        if events == 0 && replaced {
            return Err(RecordError::Empty(path.to_owned()));
        }
        Ok(Recorded {
            end,
            backend: self.backend,
            system_wide: self.system_wide,
            tasks,
            file_bytes: std::fs::metadata(&file).map_or(0, |metadata| metadata.len()),
            full: false,
            caught,
            fact_loss: self.fact_loss,
            kept: Some(super::Kept { duration, events, short }),
            cost_ns_per_switch: header.recorder_ns_per_switch,
            file,
            id,
            not_at_place,
        })
    }
}

/// Whether there is a recording at `path` that a new file would replace.
pub(super) fn replaces(path: &Path) -> bool {
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
