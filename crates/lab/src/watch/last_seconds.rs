//! The events of the last seconds, for a user who has just seen something and wants it as a
//! recording.

use crate::record::describe;
use crate::record::flight_recorder::{Destination, FlightRecorder, MEMORY};
use schedlab_host::RecordStart;
use schedlab_model::{Ns, SchedEvent, TaskId};
use schedlab_trace::{GroupInfo, Header, TaskInfo};
use std::path::Path;

/// Keeps events in memory, and writes them on demand.
pub(super) struct LastSeconds {
    flight: FlightRecorder,
    header: Header,
    now: Ns,
    /// Why nothing more is kept.
    failed: Option<String>,
}

impl LastSeconds {
    /// Returns one that keeps the last `keep`.
    pub(super) fn new(keep: Ns) -> LastSeconds {
        LastSeconds {
            flight: FlightRecorder::new(keep, MEMORY),
            header: Header { note: "saved from a live view".to_owned(), ..Header::default() },
            now: Ns::ZERO,
            failed: None,
        }
    }

    pub(super) fn start(&mut self, start: &RecordStart) {
        describe(&mut self.header, start);
    }

    pub(super) fn group(&mut self, info: &GroupInfo) {
        self.flight.group(info.clone());
    }

    pub(super) fn task(&mut self, id: TaskId, info: &TaskInfo) {
        self.flight.task(id, info.clone());
    }

    pub(super) fn event(&mut self, event: &SchedEvent) {
        self.now = event.at;
        if let Err(error) = self.flight.event(event) {
            self.failed.get_or_insert(error.to_string());
        }
    }

    /// Writes a recording of what is kept into a new file.
    pub(super) fn save(&mut self, file: &Path) -> Result<(), String> {
        if let Some(why) = &self.failed {
            return Err(why.clone());
        }
        let destination = Destination { path: file, fresh: true };
        let written = self.flight.write(&destination, &self.header, self.now, None, None);
        written.map(drop).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuId, EventKind, PrevState};
    use schedlab_trace::Recording;

    #[test]
    fn what_is_saved_is_a_recording_of_the_last_second() {
        let mut last = LastSeconds::new(Ns::from_ms(1000));
        last.task(TaskId(0), &TaskInfo::unknown(7, 7, "server"));
        let folder = schedlab_testing::temp_dir();
        let file = folder.join(format!("schedlab-last-{}.slt", std::process::id()));
        for ms in 0..3_000 {
            let (prev, next) =
                if ms % 2 == 0 { (None, Some(TaskId(0))) } else { (Some(TaskId(0)), None) };
            let kind = EventKind::Switch { prev, prev_state: PrevState::Sleeping, next };
            last.event(&SchedEvent { at: Ns::from_ms(ms), cpu: CpuId(0), kind });
        }
        last.save(&file).unwrap();
        let saved = Recording::open(&file).unwrap();
        assert!((900..1_100).contains(&saved.events.len()), "{}", saved.events.len());
        assert_eq!(saved.header.tasks[0].comm, "server");
        assert!(last.save(&file).is_err(), "an existing file stays");
        std::fs::remove_file(&file).unwrap();
    }
}
