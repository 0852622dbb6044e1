//! The thread below the running one: when it gets the CPU, the running one has blocked (or ended,
//! or was changed). It does nothing but tell the agent.

use super::BLOCK_DETECTOR;
use crate::LiveError;
use crate::driver::{become_fifo, cpu_time};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use schedlab_model::{CpuSet, OwnThread};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// The agent's end.
pub(super) struct BlockDetector {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// It waits for the CPU and has not told anything.
    armed: bool,
}

struct Shared {
    /// Written by the agent: wait for the CPU.
    arm: OwnedFd,
    /// Written by the detector: it had the CPU.
    free: OwnedFd,
    stop: AtomicBool,
    cpu_ns: AtomicU64,
}

impl BlockDetector {
    /// Starts a detector on `cpus`. It sleeps until it is armed.
    pub(super) fn start(cpus: CpuSet) -> Result<BlockDetector, LiveError> {
        let fd = |flags| {
            eventfd(0, flags).map_err(|error| {
                LiveError::io("making a block detector's descriptor (eventfd)")(error.into())
            })
        };
        let shared = Arc::new(Shared {
            arm: fd(EventfdFlags::CLOEXEC)?,
            free: fd(EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            stop: AtomicBool::new(false),
            cpu_ns: AtomicU64::new(0),
        });
        let (ready, started) = std::sync::mpsc::channel();
        let theirs = shared.clone();
        let thread = std::thread::Builder::new().name(OwnThread::Detector.name().to_owned()).spawn(
            move || {
                let prepared = become_fifo("a block detector", BLOCK_DETECTOR, &cpus);
                let go = prepared.is_ok();
                // The other end waits for it.
                let _ = ready.send(prepared);
                while go && theirs.wait() {
                    theirs.say();
                }
                theirs.cpu_ns.store(cpu_time(), Ordering::Relaxed);
            },
        );
        let thread = thread.map_err(LiveError::io("starting the block detector"))?;
        let detector = BlockDetector { shared, thread: Some(thread), armed: false };
        let ended = || {
            Err(LiveError::AgentDied { why: "its block detector ended before it began".to_owned() })
        };
        started.recv().unwrap_or_else(|_| ended())?;
        Ok(detector)
    }

    /// Asks to be told of the moment in which no thread of a higher priority wants the CPU.
    pub(super) fn arm(&mut self) {
        if !self.armed {
            self.armed = write(&self.shared.arm, &1_u64.to_ne_bytes()).is_ok();
        }
    }

    /// Returns a descriptor that is readable when the detector had the CPU.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.shared.free.as_fd()
    }

    /// Returns whether the detector had the CPU since it was armed.
    pub(super) fn fired(&mut self) -> bool {
        let fired = read(&self.shared.free, &mut [0; 8]).is_ok();
        self.armed &= !fired;
        fired
    }

    /// Ends the detector; returns its CPU time.
    pub(super) fn end(mut self) -> u64 {
        self.stop();
        self.shared.cpu_ns.load(Ordering::Relaxed)
    }

    fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = write(&self.shared.arm, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for BlockDetector {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Waits until it is armed; false: it shall end.
    fn wait(&self) -> bool {
        let armed = read(&self.arm, &mut [0; 8]);
        (armed.is_ok() || armed == Err(rustix::io::Errno::INTR))
            && !self.stop.load(Ordering::Relaxed)
    }

    fn say(&self) {
        let _ = write(&self.free, &1_u64.to_ne_bytes());
    }
}
