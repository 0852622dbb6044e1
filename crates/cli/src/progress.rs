//! A progress bar on standard error, for what takes longer than a second.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Appears after a second, only on a terminal, and goes away.
pub(crate) struct Progress {
    start: Instant,
    bar: OnceLock<ProgressBar>,
    wanted: bool,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress { start: Instant::now(), bar: OnceLock::new(), wanted: std::io::stderr().is_terminal() }
    }

    /// `done` of `all` runs are finished.
    pub(crate) fn set(&self, done: usize, all: usize) {
        if !self.wanted || self.start.elapsed() < Duration::from_secs(1) {
            return;
        }
        let bar = self.bar.get_or_init(|| {
            let bar = ProgressBar::with_draw_target(Some(all as u64), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("simulating {bar:30} {pos}/{len} runs, {eta} left");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        bar.set_position(done as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
