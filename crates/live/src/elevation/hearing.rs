//! Whether the kernel tells of wakeups at all. A driver that is told of none takes every sleeping
//! thread for asleep, and these threads starve. So whenever no wakeup was heard for a while, a
//! thread of its own is woken, of which an agent must hear.

use super::agent::Shared;
use crate::LiveError;
use crate::driver::monotonic;
use rustix::event::{EventfdFlags, eventfd};
use schedlab_host::threads;
use schedlab_model::{Ns, OwnThread};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// No wakeup for so long: it is time to ask whether any would be heard.
const QUIET: Ns = Ns::from_ms(400);
/// A wakeup is heard within microseconds, but the CPU of the agent may be away, on a virtual
/// machine for long.
const PATIENCE: Ns = Ns::from_ms(500);
/// At the beginning, when nothing depends on it yet.
const PATIENCE_FIRST: Ns = Ns::from_ms(3000);

/// The thread that is woken, and what was known at the last look.
pub(super) struct Hearing {
    bell: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    tid: u32,
    /// The wakeups that were counted when the last change was seen, and when that was.
    heard: (u64, Ns),
}

impl Hearing {
    /// Starts the thread that is woken. It sleeps.
    pub(super) fn start(shared: &Shared) -> Result<Hearing, LiveError> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|error| LiveError::io("making a bell (eventfd)")(error.into()))?;
        let (bell, stop) = (Arc::new(bell), Arc::new(AtomicBool::new(false)));
        let (theirs, ends) = (bell.clone(), stop.clone());
        let (tell, told) = std::sync::mpsc::channel();
        let builder = std::thread::Builder::new().name(OwnThread::Probe.name().to_owned());
        let thread = builder.spawn(move || {
            let _ = tell.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
            while !ends.load(Ordering::Relaxed) {
                let _ = rustix::io::read(&*theirs, &mut [0; 8]);
            }
        });
        let thread = Some(thread.map_err(LiveError::io("starting the probe"))?);
        let died = |_| LiveError::AgentDied { why: "its probe ended before it began".to_owned() };
        let tid = told.recv().map_err(died)?;
        shared.probe.store(tid, Ordering::Relaxed);
        Ok(Hearing { bell, stop, thread, tid, heard: (0, monotonic()) })
    }

    /// The thread that the agents must hear of.
    pub(super) fn tid(&self) -> u32 {
        self.tid
    }

    /// Shows that events come before anything depends on them. `beat`: the guardian must not take
    /// that for silence.
    ///
    /// # Errors
    /// [`LiveError::Deaf`] when they do not; what `beat` answers.
    pub(super) fn first(
        &mut self,
        shared: &Shared,
        beat: impl FnMut() -> Result<(), LiveError>,
    ) -> Result<(), LiveError> {
        self.test(shared, PATIENCE_FIRST, beat)
    }

    /// Asks the kernel for a wakeup when there was none for a while. To be called often.
    ///
    /// # Errors
    /// As [`first`](Self::first).
    pub(super) fn tend(
        &mut self,
        shared: &Shared,
        beat: impl FnMut() -> Result<(), LiveError>,
    ) -> Result<(), LiveError> {
        let (heard, now) = (shared.counts.lock().map_or(0, |counts| counts.wakeups), monotonic());
        if heard != self.heard.0 {
            self.heard = (heard, now);
        }
        if now.saturating_sub(self.heard.1) < QUIET {
            return Ok(());
        }
        self.test(shared, PATIENCE, beat)?;
        self.heard.1 = monotonic();
        Ok(())
    }

    /// Wakes the probe and waits until an agent has heard of it.
    fn test(
        &self,
        shared: &Shared,
        patience: Ns,
        mut beat: impl FnMut() -> Result<(), LiveError>,
    ) -> Result<(), LiveError> {
        let (before, begin) = (shared.probed.load(Ordering::Acquire), monotonic());
        let mut rung = false;
        while monotonic().saturating_sub(begin) < patience && !shared.stop.load(Ordering::Relaxed) {
            // Only a thread that sleeps is woken.
            if !rung && threads::is_asleep(self.tid) {
                rung = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes()).is_ok();
            }
            if shared.probed.load(Ordering::Acquire) != before {
                return Ok(());
            }
            beat()?;
            std::thread::sleep(Duration::from_millis(1));
        }
        // Where its CPU was kept from it for so long that it never slept, and at the end of all,
        // nothing is shown.
        if !rung || shared.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let what = format!(
            "thread {} was woken {} ms ago, and no agent heard of it",
            self.tid,
            patience.0 / 1_000_000
        );
        Err(LiveError::Deaf { what })
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
