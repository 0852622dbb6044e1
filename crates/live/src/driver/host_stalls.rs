//! How long this machine keeps a real-time thread from its CPU although nothing on it goes first:
//! the host of a virtual machine that runs others, or interrupts. Heartbeats come later by so much,
//! and no agent is to blame.

use super::{GUARDIAN, HEARTBEAT, SILENCE, become_fifo};
use crate::LiveError;
use schedlab_host::threads;
use schedlab_model::{CpuId, CpuSet, Ns, Policy};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long is measured. It delays the beginning of a run by so much.
const MEASURED: Duration = Duration::from_millis(150);
/// Between two looks.
const STEP: Duration = Duration::from_millis(1);
/// A silence may last so many times longer than the longest stall that was met: longer ones come,
/// if rarely.
const TIMES: u32 = 4;
/// But no longer than this: until then a hanging agent keeps its CPU.
const LONGEST: Duration = Duration::from_secs(3);
/// So many threads that keep a CPU are named.
const SHOWN: usize = 3;

/// Returns the longest time for which one of `cpus` kept a thread of the guardian's priority
/// waiting.
///
/// # Errors
/// A CPU gave that thread nothing: one of a higher real-time priority keeps it.
pub fn longest(cpus: &CpuSet) -> Result<Ns, LiveError> {
    let all: Vec<Measurement> = cpus.iter().map(Measurement::start).collect();
    let deadline = Instant::now() + LONGEST;
    // Every one is waited for: none may be left behind.
    let measured: Vec<_> = all.into_iter().map(|one| one.end(deadline)).collect();
    let mut longest = Duration::ZERO;
    for one in measured {
        longest = longest.max(one?);
    }
    Ok(Ns(u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX)))
}

/// A thread on one CPU that sleeps a millisecond again and again.
struct Measurement {
    cpu: CpuId,
    tid: Receiver<u32>,
    thread: JoinHandle<Duration>,
}

impl Measurement {
    fn start(cpu: CpuId) -> Measurement {
        let (send, tid) = channel();
        let thread = std::thread::spawn(move || {
            let _ = send.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
            // Without the right to that priority nothing can be managed, which is said elsewhere.
            if become_fifo("a measurement", GUARDIAN, &CpuSet::single(cpu)).is_err() {
                return Duration::ZERO;
            }
            let (begin, mut longest) = (Instant::now(), Duration::ZERO);
            while begin.elapsed() < MEASURED {
                let asked = Instant::now();
                std::thread::sleep(STEP);
                longest = longest.max(asked.elapsed().saturating_sub(STEP));
            }
            longest
        });
        Measurement { cpu, tid, thread }
    }

    fn end(self, deadline: Instant) -> Result<Duration, LiveError> {
        while !self.thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(STEP);
        }
        if self.thread.is_finished() {
            return Ok(self.thread.join().unwrap_or_default());
        }
        let by = occupants(self.cpu);
        // Elsewhere it comes to its end.
        if let Ok(tid) = self.tid.recv() {
            let _ = threads::set_affinity(tid, &CpuSet::ALL);
        }
        let _ = self.thread.join();
        Err(LiveError::Occupied { cpu: self.cpu, waited: LONGEST, by })
    }
}

/// Returns the runnable threads of higher real-time priorities that may run on `cpu`, as text.
fn occupants(cpu: CpuId) -> String {
    let tids = threads::processes().into_iter().flat_map(threads::of_process);
    let keeps = |tid: u32| {
        let policy = threads::scheduling(tid).ok()?.policy;
        let above = match policy {
            Policy::Fifo(priority) | Policy::Rr(priority) => priority > GUARDIAN,
            Policy::Deadline { .. } => true,
            _ => false,
        };
        let here = above
            && threads::is_runnable(tid)
            && threads::affinity(tid).is_ok_and(|at| at.contains(cpu));
        let identity = threads::identity(tid).filter(|_| here)?;
        Some(format!("thread {tid} ({}) has {policy}", identity.comm))
    };
    let all: Vec<String> = tids.filter_map(keeps).take(SHOWN).collect();
    match all.is_empty() {
        true => "what keeps it was not found".to_owned(),
        false => all.join(", "),
    }
}

/// Returns for how long agents may be silent on a machine whose longest stall was `stall`.
pub fn silence(stall: Ns) -> Duration {
    (Duration::from_nanos(stall.0) * TIMES + HEARTBEAT).clamp(SILENCE, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_follows_the_host_within_limits() {
        assert_eq!(silence(Ns::ZERO), SILENCE);
        assert_eq!(silence(Ns::from_ms(10)), SILENCE);
        assert_eq!(silence(Ns::from_ms(120)), Duration::from_millis(490));
        assert_eq!(silence(Ns::from_s(60)), LONGEST);
    }
}
