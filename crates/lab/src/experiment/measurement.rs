//! One recorded measurement.

use super::plan::{ExperimentError, ExperimentKind};
use super::testbed::Testbed;
use super::window::RecordedWindow;
use crate::record::{RecordObserver, RecordPlan, RecordProgress, record};
use rustix::fs::{MemfdFlags, memfd_create};
use schedlab_host::{RecordRequest, RecordUntil};
use schedlab_model::Ns;
use schedlab_trace::Recording;
use std::cell::Cell;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::rc::Rc;

/// A measurement: what begins it, and how long it takes.
pub(super) struct Measurement<'a> {
    /// Called when the recorder sees the whole machine; begins what is measured.
    pub(super) begin: &'a mut dyn FnMut() -> Result<(), ExperimentError>,
    /// How long after that nothing counts.
    pub(super) warm_up: Ns,
    /// How long what follows counts.
    pub(super) time: Ns,
    /// Returns whether it is over before that.
    pub(super) over: &'a dyn Fn() -> bool,
}

/// Begins a measurement when the recorder is ready, which can take a second on a busy machine.
struct BeginWhenReady<'a, 'b> {
    measurement: &'a mut Measurement<'b>,
    begun_ns: Option<u64>,
    failed: Rc<Cell<Option<ExperimentError>>>,
    time_is_up: Rc<Cell<bool>>,
}

impl RecordObserver for BeginWhenReady<'_, '_> {
    fn progress(&mut self, _: &RecordProgress) {
        let now = now_ns();
        match self.begun_ns {
            None => {
                self.begun_ns = Some(now);
                if let Err(error) = (self.measurement.begin)() {
                    self.failed.set(Some(error));
                    self.time_is_up.set(true);
                }
            }
            Some(begun) => {
                let up = now.saturating_sub(begun)
                    >= self.measurement.warm_up.0 + self.measurement.time.0;
                self.time_is_up.set(self.time_is_up.get() || up);
            }
        }
    }
}

/// Returns the time of CLOCK_MONOTONIC in nanoseconds.
pub(super) fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Records the whole machine during a measurement. Returns its window. The file has no name, so
/// that it ends with this process.
pub(super) fn record_measurement(
    testbed: &Testbed<'_>,
    kind: ExperimentKind,
    mut measurement: Measurement<'_>,
) -> Result<RecordedWindow, ExperimentError> {
    let memory = memfd_create("schedlab-experiment", MemfdFlags::CLOEXEC)
        .map_err(|error| ExperimentError::Input(format!("no memory for a recording: {error}")))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", memory.as_raw_fd()));
    let mut request = RecordRequest::new(RecordUntil::Stopped);
    // The recorder must not disturb the measured threads.
    request.recorder_cpu = testbed.others.lowest();
    let plan =
        RecordPlan::new(request, path.clone(), format!("schedlab experiment {}", kind.name()));
    let (stopped, failed, up) =
        (Cell::new(false), Rc::new(Cell::new(None)), Rc::new(Cell::new(false)));
    let (warm_up, time, over) = (measurement.warm_up, measurement.time, measurement.over);
    let mut begin = BeginWhenReady {
        measurement: &mut measurement,
        begun_ns: None,
        failed: Rc::clone(&failed),
        time_is_up: Rc::clone(&up),
    };
    record(&plan, &mut begin, &|| {
        stopped.set((testbed.stop)());
        stopped.get() || up.get() || over()
    })?;
    if let Some(error) = failed.take() {
        return Err(error);
    }
    let begun = begin.begun_ns.filter(|_| !stopped.get()).ok_or(ExperimentError::Interrupted)?;
    let recording = Recording::open(&path)?;
    let from = Ns(begun.saturating_sub(recording.header.clock_start_ns) + warm_up.0);
    RecordedWindow::new(recording, from, from.saturating_add(time))
}

/// Time for starting and ending programs and recorder in each measurement, about (measured on an
/// idle machine; a busy one takes longer).
const AROUND: Ns = Ns::from_ms(900);

/// Returns how long `count` measurements of `time` take, about.
pub(super) fn time_of(count: usize, time: Ns) -> Ns {
    Ns((time + AROUND).0.saturating_mul(count as u64))
}
