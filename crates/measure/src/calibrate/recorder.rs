//! What recording adds to a switch: the same round trips while the whole machine is recorded, and
//! while it is not.

use super::switches::Echo;
use super::{ProbeSettings, on};
use schedlab_host::{RecordRequest, RecordSink, RecordStart, RecordUntil, record};
use schedlab_model::{EventSink, Ns, SchedEvent};
use schedlab_stats::median;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Rounds: each is one recording.
const ROUNDS: usize = 7;

/// Hears everything, keeps nothing, and says when the recording has begun.
struct Deaf<'a>(&'a AtomicBool);

impl EventSink for Deaf<'_> {
    fn event(&mut self, _: &SchedEvent) {}
}

impl RecordSink for Deaf<'_> {
    fn start(&mut self, _: &RecordStart) -> io::Result<()> {
        self.0.store(true, Ordering::Release);
        Ok(())
    }
}

/// A sample a round: the median round trip with less the one without, by two switches.
pub(super) fn rounds(settings: &ProbeSettings) -> Vec<io::Result<Vec<f64>>> {
    let settings = ProbeSettings { budget: settings.budget / (2 * ROUNDS as u32), ..*settings };
    (0..ROUNDS).map(|_| round(&settings).map(|sample| vec![sample])).collect()
}

fn round(settings: &ProbeSettings) -> io::Result<f64> {
    let without = trips(settings)?;
    let (begun, enough) = (AtomicBool::new(false), AtomicBool::new(false));
    let with = std::thread::scope(|scope| {
        let recorder = scope.spawn(|| {
            let mut request = RecordRequest::new(RecordUntil::Stopped);
            request.recorder_cpu = settings.other;
            // However this ends, the recording does.
            request.duration = Some(Ns::from_s(5));
            record(&request, &mut Deaf(&begun), &|| enough.load(Ordering::Relaxed))
        });
        while !begun.load(Ordering::Acquire) && !recorder.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(5));
        let with = trips(settings);
        enough.store(true, Ordering::Relaxed);
        match recorder.join() {
            Ok(Ok(_)) => with,
            Ok(Err(error)) => Err(io::Error::other(error.to_string())),
            Err(_) => Err(io::Error::other("the recorder ended early")),
        }
    })?;
    Ok((with - without) / 2.0)
}

/// Median of round trips through pipes between two threads of one CPU.
fn trips(settings: &ProbeSettings) -> io::Result<f64> {
    let samples = on(settings.cpu, || {
        let echo = Echo::through_pipes(settings.cpu)?;
        settings.calls(1, || echo.call())
    })?;
    median(&samples).ok_or_else(|| io::Error::other("no time for a single round trip"))
}
