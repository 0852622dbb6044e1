//! Long calls: without the interpreter's lock, and ended by Ctrl-C.

use pyo3::exceptions::{
    PyFileNotFoundError, PyIsADirectoryError, PyKeyboardInterrupt, PyPermissionError, PyValueError,
};
use pyo3::prelude::*;
use schedlab_study::StudyError;
use schedlab_study::compare::request::OPTIONS;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// How often a long call looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(10);

/// The exception of an error, with its message and those of its causes in Python's words. What the
/// operating system refused is an `OSError` of its kind.
pub(crate) fn bad(error: &(dyn Error + 'static)) -> PyErr {
    bad_in(error, &option_words())
}

fn bad_in(error: &(dyn Error + 'static), words: &[Word]) -> PyErr {
    let mut text = error.to_string();
    let mut system = error.downcast_ref::<io::Error>();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let message = inner.to_string();
        if !text.contains(&message) {
            text += ": ";
            text += &message;
        }
        system = system.or_else(|| inner.downcast_ref());
        cause = inner.source();
    }
    of_kind(system, in_words(&text, words))
}

/// The exception for what the operating system answered; `None`: the input is wrong.
pub(crate) fn of_kind(error: Option<&io::Error>, text: String) -> PyErr {
    // What schedlab itself refuses, such as an output that is also the input, has no number.
    match error.filter(|error| error.raw_os_error().is_some()).map(io::Error::kind) {
        Some(io::ErrorKind::NotFound) => PyFileNotFoundError::new_err(text),
        Some(io::ErrorKind::PermissionDenied) => PyPermissionError::new_err(text),
        Some(io::ErrorKind::IsADirectory) => PyIsADirectoryError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}

/// The exception of an error of a study: of a call that Ctrl-C ended, [`PyKeyboardInterrupt`].
pub(crate) fn raised(error: StudyError) -> PyErr {
    raised_in(error, &option_words())
}

/// As [`raised`], in the words of a function with other keywords than `compare` and `tune`.
pub(crate) fn raised_in(error: StudyError, words: &[Word]) -> PyErr {
    match error {
        StudyError::Stopped => PyKeyboardInterrupt::new_err("stopped"),
        StudyError::NoSuchFile(text) => PyFileNotFoundError::new_err(text),
        StudyError::Directory(text) => PyIsADirectoryError::new_err(text),
        other => bad_in(&other, words),
    }
}

/// An option of the command line without its dashes, and the keyword that is given in Python.
pub(crate) type Word = (&'static str, &'static str);

/// Options of `tune` and the keywords of Python's `tune`, beside those that `compare` has.
const TUNE_WORDS: [Word; 5] = [
    ("goal", "goal"),
    ("keep", "cost"),
    ("space", "space"),
    ("trials", "trials"),
    ("validate", "validate"),
];

/// The words of `compare` and `tune`.
pub(crate) fn option_words() -> Vec<Word> {
    OPTIONS.iter().map(|option| (option.flag, option.name)).chain(TUNE_WORDS).collect()
}

/// Replaces each `--option` of the text by its keyword. Between backticks is a command: it stays.
pub(crate) fn in_words(text: &str, words: &[Word]) -> String {
    let mut out = String::with_capacity(text.len());
    for (number, part) in text.split('`').enumerate() {
        if number > 0 {
            out.push('`');
        }
        let mut rest = part;
        while let Some(at) = rest.find("--").filter(|_| number % 2 == 0) {
            let (before, option) = (&rest[..at], &rest[at + 2..]);
            let letter = |c: char| c.is_ascii_lowercase() || c == '-';
            let end = option.find(|c| !letter(c)).unwrap_or(option.len());
            let known = words.iter().find(|(flag, _)| *flag == &option[..end]);
            out.push_str(before);
            out.push_str(known.map_or(&rest[at..at + 2 + end], |(_, keyword)| keyword));
            rest = &option[end..];
        }
        out.push_str(rest);
    }
    out
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
