//! Long calls: without the interpreter's lock, and ended by Ctrl-C.

use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use schedlab_study::StudyError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Runs `work` on a thread of its own while other Python threads go on. At Ctrl-C the flag that it is given is set, and the
/// exception is raised when it has returned.
pub(crate) fn long<T: Send>(py: Python<'_>, work: impl FnOnce(Arc<AtomicBool>) -> T + Send) -> PyResult<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    std::thread::scope(|threads| {
        let running = threads.spawn(move || work(seen));
        let mut stopped = None;
        while !running.is_finished() {
            py.detach(|| std::thread::sleep(LOOK));
            if stopped.is_none()
                && let Err(error) = py.check_signals()
            {
                stop.store(true, Ordering::Relaxed);
                stopped = Some(error);
            }
        }
        let result =
            running.join().map_err(|_| PyValueError::new_err("schedlab panicked: please report it"))?;
        stopped.map_or(Ok(result), Err)
    })
}
