//! Long calls: without the interpreter's lock, and ended by Ctrl-C.

use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use schedlab_study::StudyError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// How often a long call looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(10);

/// The message of an error and its causes, as the command line prints them.
pub(crate) fn bad(error: &dyn std::error::Error) -> PyErr {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let message = inner.to_string();
        if !text.contains(&message) {
            text += ": ";
            text += &message;
        }
        cause = inner.source();
    }
    PyValueError::new_err(text)
}

/// The exception of an error of a study: of a call that Ctrl-C ended, [`PyKeyboardInterrupt`].
pub(crate) fn raised(error: StudyError) -> PyErr {
    match error {
        StudyError::Stopped => PyKeyboardInterrupt::new_err("stopped"),
        other => bad(&other),
    }
}

/// Runs `work` on a thread of its own while other Python threads go on. At Ctrl-C the flag that it
/// is given is set, and the exception is raised when it has returned.
pub(crate) fn long<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(Arc<AtomicBool>) -> T + Send,
) -> PyResult<T> {
    watched(py, None, |stop, _| work(stop))
}

/// How far a long call has come.
#[derive(Default)]
pub(crate) struct Counter {
    done: AtomicUsize,
    all: AtomicUsize,
}

impl Counter {
    pub(crate) fn set(&self, done: usize, all: usize) {
        // Several threads report: what is shown does not go back.
        self.done.fetch_max(done, Ordering::Relaxed);
        self.all.store(all, Ordering::Relaxed);
    }
}

/// As [`long`]; `report(done, all)` is called with what the counter has, on the caller's thread.
pub(crate) fn watched<T: Send>(
    py: Python<'_>,
    report: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(Arc<AtomicBool>, &Counter) -> T + Send,
) -> PyResult<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let counter = Counter::default();
    let (mut stopped, mut shown) = (None, 0);
    let result = std::thread::scope(|threads| {
        let running = threads.spawn(|| work(seen, &counter));
        while !running.is_finished() {
            py.detach(|| std::thread::sleep(LOOK));
            let signals = py.check_signals();
            let reported = match report.filter(|_| stopped.is_none()) {
                Some(report) => tell(report, &counter, &mut shown),
                None => Ok(()),
            };
            if stopped.is_none()
                && let Err(error) = signals.and(reported)
            {
                stop.store(true, Ordering::Relaxed);
                stopped = Some(error);
            }
        }
        running.join().map_err(|_| PyValueError::new_err("schedlab panicked: please report it"))
    })?;
    if let (None, Some(report)) = (&stopped, report) {
        tell(report, &counter, &mut shown)?;
    }
    stopped.map_or(Ok(result), Err)
}

fn tell(report: &Bound<'_, PyAny>, counter: &Counter, shown: &mut usize) -> PyResult<()> {
    let (done, all) = (counter.done.load(Ordering::Relaxed), counter.all.load(Ordering::Relaxed));
    if all > 0 && done != *shown {
        *shown = done;
        report.call1((done, all))?;
    }
    Ok(())
}
