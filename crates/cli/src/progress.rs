//! Progress on standard error, for work that takes longer than a second.

#[cfg(feature = "machine")]
use crate::output;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
#[cfg(feature = "machine")]
use schedlab_lab::record::RecordProgress;
use schedlab_model::text::shown;
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
#[cfg(feature = "machine")]
use std::time::Instant;

/// What Ctrl-C does to work that ends with an answer.
const KEPT: &str = "  Ctrl-C ends it with what is finished";

/// When work counts as long.
const LONG: Duration = Duration::from_secs(1);

/// Progress of work in runs: it appears after a second, also inside a first run that has no end, on
/// a terminal only, and is removed at the end.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Ends `appears` when it is dropped.
    over: Option<mpsc::Sender<()>>,
    appears: Option<JoinHandle<()>>,
    /// Whether one run is like another, so that the finished ones tell how long the others take.
    even: bool,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress::with_verb("simulating")
    }

    /// Returns progress of work that ends with the answer of what is finished.
    pub(crate) fn with_answer(verb: &str) -> Progress {
        let progress = Progress::with_verb(verb);
        progress.bar.set_prefix(format!("\n{KEPT}"));
        progress
    }

    /// The same for runs of which some take a hundred times as long as others: no time is told.
    pub(crate) fn of_uneven_runs(verb: &str) -> Progress {
        let mut progress = Progress::with_answer(verb);
        progress.even = false;
        progress
    }

    /// Shows the best answer so far.
    pub(crate) fn so_far(&self, best: &str) {
        self.bar.set_prefix(format!("\n  so far: {best}\n{KEPT}"));
    }

    /// Whether there is a terminal to show it on.
    pub(crate) fn is_shown(&self) -> bool {
        self.appears.is_some()
    }

    /// Shows what the finished runs tell, at once: it is the first line of an answer.
    pub(crate) fn first_look(&self, told: &str) {
        self.bar.set_prefix(format!("\n  so far: {}", shown(told)));
        if self.bar.is_hidden() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Returns progress of this work, such as `simulating`.
    pub(crate) fn with_verb(verb: &str) -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        bar.set_style(style("{spinner} {msg} ({elapsed}, Ctrl-C ends it)"));
        bar.set_message(shown(verb).into_owned());
        if !std::io::stderr().is_terminal() {
            return Progress { bar, over: None, appears: None, even: true };
        }
        let (over, ended) = mpsc::channel::<()>();
        let later = bar.clone();
        let appears = std::thread::spawn(move || {
            if ended.recv_timeout(LONG) == Err(mpsc::RecvTimeoutError::Timeout) {
                later.set_draw_target(ProgressDrawTarget::stderr());
                later.enable_steady_tick(Duration::from_millis(200));
            }
        });
        Progress { bar, over: Some(over), appears: Some(appears), even: true }
    }

    /// Shows that `done` of `all` runs are finished.
    pub(crate) fn set(&self, done: usize, all: usize) {
        if self.bar.length() != Some(all as u64) {
            self.bar.set_length(all as u64);
            let left = if self.even { "{left}" } else { "" };
            self.bar.set_style(style(&format!(
                "{{spinner}} {{msg}} {{bar:30}} {{pos}}/{{len}} runs, {{elapsed}}{left}{{prefix}}"
            )));
        }
        self.bar.set_position(done as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(appears) = self.appears.take() {
            // It only draws: a panic of it is no reason for another one.
            let _ = appears.join();
        }
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.with_key("left", |state: &ProgressState, out: &mut dyn Write| {
        // A bar has no other place for an error.
        let _ = out.write_str(&left(state.elapsed(), state.pos(), state.len().unwrap_or(0)));
    })
}

/// Returns `, 20s left`, as long as the finished runs took on average; empty while nothing tells.
fn left(elapsed: Duration, done: u64, all: u64) -> String {
    let to_come = all.saturating_sub(done);
    if done == 0 || to_come == 0 {
        return String::new();
    }
    let seconds = elapsed.as_secs_f64() * to_come as f64 / done as f64;
    format!(", {} left", HumanDuration(Duration::from_secs_f64(seconds.max(1.0))))
}

/// Says on a terminal how long work takes that has just begun.
#[cfg(feature = "machine")]
pub(crate) fn takes(what: &str) {
    if std::io::stderr().is_terminal() {
        output::warn(&format!("{what}; Ctrl-C ends it with the answer of what is measured\n"));
    }
}

/// A line about long work whose end is not known, on a terminal only.
pub(crate) struct Working(Option<ProgressBar>);

impl Working {
    /// Shows `what` if the work is `long`.
    pub(crate) fn new(what: String, long: bool) -> Working {
        let bar = (long && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.set_message(shown(&what).into_owned());
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Working(bar)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// A line about a recording, updated a few times a second, on a terminal only.
#[cfg(feature = "machine")]
pub(crate) struct RecordingLine {
    line: ProgressBar,
    start: Instant,
    shown: Option<Instant>,
}

#[cfg(feature = "machine")]
impl RecordingLine {
    pub(crate) fn new() -> RecordingLine {
        RecordingLine { line: message_line(), start: Instant::now(), shown: None }
    }

    pub(crate) fn set(&mut self, so_far: &RecordProgress) {
        let due = self.shown.unwrap_or(self.start).elapsed() >= Duration::from_millis(250);
        if due && self.start.elapsed() >= Duration::from_secs(1) && !self.line.is_hidden() {
            self.shown = Some(Instant::now());
            self.line.set_message(format!(
                "{} s, {} events, {} KiB, {} lost (Ctrl-C ends it)",
                self.start.elapsed().as_secs(),
                so_far.events,
                so_far.file_bytes / 1024,
                so_far.lost
            ));
        }
    }
}

#[cfg(feature = "machine")]
impl Drop for RecordingLine {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}

/// Returns a line that is written over; hidden when standard error is no terminal.
#[cfg(feature = "machine")]
fn message_line() -> ProgressBar {
    let wanted = std::io::stderr().is_terminal();
    let target = if wanted { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let line = ProgressBar::with_draw_target(None, target);
    line.set_style(
        ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    line
}

/// Lines that are written over a few times a second, on a terminal only.
#[cfg(feature = "machine")]
pub(crate) struct Lines {
    line: ProgressBar,
    shown: Option<Instant>,
}

#[cfg(feature = "machine")]
impl Lines {
    pub(crate) fn new() -> Lines {
        Lines { line: message_line(), shown: None }
    }

    /// Shows what `text` returns, if the last update is long enough ago.
    pub(crate) fn set(&mut self, text: impl FnOnce() -> String) {
        if !self.line.is_hidden()
            && self.shown.is_none_or(|at| at.elapsed() >= Duration::from_millis(250))
        {
            self.shown = Some(Instant::now());
            self.line.set_message(text());
        }
    }
}

#[cfg(feature = "machine")]
impl Drop for Lines {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_left_is_that_of_the_finished_runs() {
        let of = |seconds, done, all| left(Duration::from_secs(seconds), done, all);
        assert_eq!(of(9, 0, 4), "", "no run tells how long one takes");
        assert_eq!(of(9, 1, 4), ", 27 seconds left");
        assert_eq!(of(60, 10, 40), ", 3 minutes left");
        assert_eq!(of(60, 4, 4), "");
    }
}
