//! Tells the guardian that the agents make rounds: a thread on the unmanaged CPUs, so that no turn of a managed
//! thread pays for it (a beat is an interrupt of another CPU). It beats only when every agent has made a round since
//! the last beat. It has the guardian's priority, above the supervisor's, which may share its CPU and be busy for
//! longer than the guardian waits.

use super::agent::Shared;
use super::block_detector::become_fifo;
use super::{GUARDIAN, HEARTBEAT};
use crate::LiveError;
use crate::guardian::send_heartbeat;
use schedlab_host::privileges::keep_only;
use schedlab_model::CpuSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

/// See the module. Ends when it is dropped.
pub(super) struct Heartbeat {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// Starts it on `cpus`.
    pub(super) fn start(shared: Arc<Shared>, pipe: OwnedFd, cpus: CpuSet) -> Result<Heartbeat, LiveError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, started) = channel();
        let theirs = stop.clone();
        let builder = std::thread::Builder::new().name("sched-heartbeat".to_owned());
        let thread = builder.spawn(move || {
            let prepared = become_fifo("the heartbeat", GUARDIAN, &cpus).and_then(|()| {
                keep_only(&[]).map_err(LiveError::io("giving up capabilities of the heartbeat (capset)"))
            });
            let go = prepared.is_ok();
            // The other end waits for it.
            let _ = ready.send(prepared);
            if go {
                beat(&shared, &pipe, &theirs);
            }
        });
        let thread = thread.map_err(LiveError::io("starting the heartbeat"))?;
        let heartbeat = Heartbeat { stop, thread: Some(thread) };
        let ended = || Err(LiveError::AgentDied { why: "its heartbeat ended before it began".to_owned() });
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

fn beat(shared: &Shared, pipe: &OwnedFd, stop: &AtomicBool) {
    let mut known: Vec<u64> = vec![0; shared.agents.len()];
    while !stop.load(Ordering::Relaxed) {
        let rounds = || shared.agents.iter().map(|agent| agent.rounds.load(Ordering::Relaxed));
        if rounds().zip(&known).all(|(now, known)| now != *known) {
            known.clear();
            known.extend(rounds());
            if !send_heartbeat(pipe) {
                shared.unguarded.store(true, Ordering::Relaxed);
                shared.stop.store(true, Ordering::Relaxed);
                shared.wake_all();
                return;
            }
        }
        std::thread::sleep(HEARTBEAT / 2);
    }
}
