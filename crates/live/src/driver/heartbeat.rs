//! Tells the guardian that the agents make rounds: a thread on the unmanaged CPUs, so that no turn
//! of a managed thread pays for it (a beat is an interrupt of another CPU). It beats only when
//! every agent has made a round since the last beat. It has the guardian's priority, above the
//! supervisor's, which may share its CPU and be busy for longer than the guardian waits.

use super::{GUARDIAN, HEARTBEAT, become_fifo};
use crate::LiveError;
use crate::guardian::send_heartbeat;
use schedlab_host::privileges::keep_only;
use schedlab_model::{CpuSet, OwnThread};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

/// What a driver tells its heartbeat.
pub trait Rounds: Send + Sync {
    /// Puts into `rounds` how many rounds each agent has made.
    fn read(&self, rounds: &mut Vec<u64>);
    /// The guardian is gone: everything must end.
    fn unguarded(&self);
}

/// See the module. Ends when it is dropped.
#[derive(Debug)]
pub struct Heartbeat {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// Starts it on `cpus`.
    ///
    /// # Errors
    /// When the thread cannot be started, or gets no real-time priority.
    pub fn start(
        rounds: Arc<dyn Rounds>,
        pipe: OwnedFd,
        cpus: CpuSet,
    ) -> Result<Heartbeat, LiveError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, started) = channel();
        let theirs = stop.clone();
        let builder = std::thread::Builder::new().name(OwnThread::Heartbeat.name().to_owned());
        let thread = builder.spawn(move || {
            let prepared = become_fifo("the heartbeat", GUARDIAN, &cpus).and_then(|()| {
                keep_only(&[])
                    .map_err(LiveError::io("giving up capabilities of the heartbeat (capset)"))
            });
            let go = prepared.is_ok();
            // The other end waits for it.
            let _ = ready.send(prepared);
            if go {
                beat(&*rounds, &pipe, &theirs);
            }
        });
        let thread = thread.map_err(LiveError::io("starting the heartbeat"))?;
        let heartbeat = Heartbeat { stop, thread: Some(thread) };
        let ended =
            || Err(LiveError::AgentDied { why: "its heartbeat ended before it began".to_owned() });
        started.recv().unwrap_or_else(|_| ended())?;
        Ok(heartbeat)
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn beat(agents: &dyn Rounds, pipe: &OwnedFd, stop: &AtomicBool) {
    let (mut known, mut now) = (Vec::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        agents.read(&mut now);
        if now.iter().enumerate().all(|(agent, rounds)| known.get(agent) != Some(rounds)) {
            std::mem::swap(&mut known, &mut now);
            if !send_heartbeat(pipe) {
                agents.unguarded();
                return;
            }
        }
        std::thread::sleep(HEARTBEAT / 2);
    }
}
