//! The least that an agent does to hand a CPU from one thread to another: the system calls of the
//! real one, without scheduler, log, timers and threads that come and go. `benches/dispatch.rs`
//! measures what the driver adds to it.

use super::agent::wait_for;
use super::block_detector::BlockDetector;
use super::control::{ThreadActivity, ThreadControl as _};
use super::threads::Thread;
use super::yield_window::YieldWindows;
use super::{AGENT, HEARTBEAT};
use crate::LiveError;
use crate::driver::{become_fifo, monotonic};
use schedlab_host::follow::Follower;
use schedlab_host::threads;
use schedlab_model::{CpuId, CpuSet, Ns};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs two threads on `cpu` in turn, each until it blocks, until `stop`. With `windows` the CPU is
/// given to the fair class as the driver must do it, so that the kernel does not throttle real-time
/// threads. The calling thread becomes the agent for good: give it one of its own. The threads keep
/// the policy and the CPU that they get here, and there is no guardian: they must belong to a
/// process that the caller started for this and that ends soon.
///
/// # Errors
/// When the kernel refuses priorities or events, or a thread does not exist.
pub fn hand_over(
    cpu: CpuId,
    pair: [u32; 2],
    windows: bool,
    stop: &AtomicBool,
) -> Result<(), LiveError> {
    let managed = CpuSet::single(cpu);
    let all = threads::affinity(0).map_err(LiveError::io("reading the CPUs of this process"))?;
    let no_events =
        |error: schedlab_host::HostError| LiveError::NoEvents { reason: error.to_string() };
    let mut follower = Follower::open(&all.or(&managed)).map_err(no_events)?;
    let mut adder = follower.adder().map_err(no_events)?;
    for tid in pair {
        let batch = adder.add(&BTreeSet::from([tid]), &BTreeSet::new()).map_err(no_events)?;
        batch.into_iter().for_each(|batch| follower.take(batch));
    }
    let take = |tid: u32| {
        let gone = LiveError::NoThread { tid };
        let Some(identity) = threads::identity(tid) else { return Err(gone) };
        let now = threads::scheduling(tid).map_err(LiveError::io("reading a policy"))?;
        let thread = Thread::open(identity, now, all, now.policy, cpu).ok_or(gone)?;
        threads::set_affinity(tid, &managed).map_err(LiveError::io("setting an affinity"))?;
        thread.park();
        Ok(thread)
    };
    let taken = [take(pair[0])?, take(pair[1])?];
    let mut detector = BlockDetector::start(managed)?;
    become_fifo("the agent", AGENT, &managed)?;
    let (windows, mut began) = (windows.then(YieldWindows::for_this_kernel), monotonic());
    let mut runs = 0;
    taken[runs].raise();
    detector.arm();
    while !stop.load(Ordering::Relaxed) {
        let woke = wait_for(None, detector.fd(), &follower, Ns(HEARTBEAT.as_nanos() as u64));
        if woke.free && detector.fired() {
            let mut goes_on = true;
            if taken[runs].state() != ThreadActivity::Runnable {
                let next = 1 - runs;
                // None is left when both have ended.
                goes_on = taken[next].raise();
                taken[runs].park();
                runs = next;
            }
            if goes_on {
                detector.arm();
            }
        }
        follower.read(|_| {});
        if let Some(windows) =
            windows.filter(|windows| monotonic().saturating_sub(began) >= windows.period)
        {
            taken[runs].set_own();
            taken[1 - runs].set_behind();
            std::thread::sleep(std::time::Duration::from_nanos(windows.length.0));
            follower.read(|_| {});
            let _ = detector.fired();
            if taken[runs].state() != ThreadActivity::Runnable {
                runs = 1 - runs;
            }
            taken[runs].raise();
            taken[1 - runs].park();
            detector.arm();
            began = monotonic();
        }
    }
    detector.end();
    Ok(())
}
