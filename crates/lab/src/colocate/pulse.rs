//! Heartbeats for the guardians of a trial, from a thread of its own.
//!
//! `colocate` is for machines on which other threads are in the way, and the trial's own thread is
//! fair: behind a real-time hog of another program it may wait for minutes. That is no hang. So a
//! thread above the server's priority beats, and it stops when the trial's thread hangs: it has
//! used CPU time, or slept, for too long without a word. Time in which it waits for a CPU does not
//! count.

use schedlab_host::threads::{self, Served};
use schedlab_live::guardian::send_heartbeat;
use schedlab_model::{Ns, OwnThread, Policy};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two beats.
const BEAT: Duration = Duration::from_millis(100);
/// CPU time without a word of the trial's thread that looks like an endless loop. Reading back the
/// largest round takes some seconds.
const SPINS: Ns = Ns::from_s(60);
/// Sleep without a word that looks like a deadlock. The thread waits for its client, whose threads
/// are fair, too.
const SLEEPS: Duration = Duration::from_secs(600);
/// As the guardian: above the server's priority under `fifo` (1).
const PRIORITY: u8 = 2;

/// What both threads see.
struct Shared {
    pipes: Mutex<Vec<OwnedFd>>,
    /// The trial's thread has said a word since the last beat.
    word: AtomicBool,
    stop: AtomicBool,
}

/// The beating thread. It ends with this.
pub(super) struct Pulse {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// It is real-time: no fair thread keeps it waiting.
    urgent: bool,
}

impl Pulse {
    /// Starts it for the calling thread. `None`: no thread can be started.
    pub(super) fn start() -> Option<Pulse> {
        let of = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let shared = Arc::new(Shared {
            pipes: Mutex::new(Vec::new()),
            word: AtomicBool::new(true),
            stop: AtomicBool::new(false),
        });
        let (theirs, (ready, started)) = (shared.clone(), channel());
        let builder = std::thread::Builder::new().name(OwnThread::Pulse.name().to_owned());
        let body = move || {
            let urgent = threads::scheduling(0).and_then(|now| {
                threads::set_scheduling(0, &now.with_policy(Policy::Fifo(PRIORITY)))
            });
            let _ = ready.send(urgent.is_ok());
            beat(&theirs, of);
        };
        let thread = builder.spawn(body).ok()?;
        let urgent = started.recv().unwrap_or(false);
        Some(Pulse { shared, thread: Some(thread), urgent })
    }

    /// Returns whether fair threads cannot keep it waiting, so that its silence means something.
    pub(super) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Beats for one more guardian, until that one is gone.
    pub(super) fn add(&self, pipe: OwnedFd) {
        if let Ok(mut pipes) = self.shared.pipes.lock() {
            pipes.push(pipe);
        }
    }

    /// The trial's thread goes on.
    pub(super) fn word(&self) {
        self.shared.word.store(true, Ordering::Relaxed);
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn beat(shared: &Shared, of: u32) {
    let mut silence = Silence::new(threads::served(of), Instant::now());
    while !shared.stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        if shared.word.swap(false, Ordering::Relaxed) {
            silence = Silence::new(threads::served(of), now);
        }
        if !silence.is_hang(threads::served(of), threads::is_runnable(of), now)
            && let Ok(mut pipes) = shared.pipes.lock()
        {
            // A guardian that is gone reads no more.
            pipes.retain(send_heartbeat);
        }
        std::thread::sleep(BEAT);
    }
}

/// The trial's thread since its last word.
struct Silence {
    served: Option<Served>,
    since: Instant,
}

impl Silence {
    fn new(served: Option<Served>, since: Instant) -> Silence {
        Silence { served, since }
    }

    /// Whether the thread hangs: it ran or slept for too long. Without the kernel's account of it
    /// (CONFIG_SCHED_INFO) all time counts.
    fn is_hang(&self, served: Option<Served>, runnable: bool, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since);
        let (Some(before), Some(served)) = (self.served, served) else { return passed > SLEEPS };
        let ran = served.run.saturating_sub(before.run);
        // A wait that is not over yet is in no account.
        let waited = Duration::from_nanos(served.wait.saturating_sub(before.wait).0);
        ran > SPINS || !runnable && passed.saturating_sub(waited) > SLEEPS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_cpu_is_no_hang() {
        let start = Instant::now();
        let silence = Silence::new(Some(Served::default()), start);
        let after = |seconds: u64, run: u64, wait: u64, runnable: bool| {
            let served = Served { run: Ns::from_s(run), wait: Ns::from_s(wait), times: 1 };
            silence.is_hang(Some(served), runnable, start + Duration::from_secs(seconds))
        };
        assert!(!after(50, 0, 0, true), "30 s behind a real-time hog ended it before");
        assert!(!after(3600, 1, 0, true), "it waits still");
        assert!(!after(3600, 1, 3500, false), "it waited");
        assert!(after(62, 61, 0, true), "an endless loop");
        assert!(after(601, 0, 0, false), "a deadlock");
        assert!(silence.is_hang(None, true, start + Duration::from_secs(601)));
    }

    #[test]
    fn it_beats_by_itself_and_forgets_who_is_gone() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let pulse = Pulse::start().expect("a thread");
        pulse.add(writer.into());
        let mut byte = [0];
        // No thread writes a word meanwhile.
        for _ in 0..3 {
            std::io::Read::read_exact(&mut &reader, &mut byte).expect("a beat");
        }
        drop(reader);
        while !pulse.shared.pipes.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
    }
}
