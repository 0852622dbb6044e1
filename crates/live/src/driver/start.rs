//! What is asked and set before a driver begins.

use crate::LiveError;
use crate::logged_core::{CoreOptions, LoggedCore};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use schedlab_host::threads::{self, Scheduling};
use schedlab_model::{CpuSet, Ns, Policy};
use std::time::Duration;

/// An agent that works for so long without a sleep is ended by the kernel (RLIMIT_RTTIME).
const SPINS: Duration = Duration::from_secs(5);
/// While it lives, a thread of this process that is SCHED_FIFO and does not sleep for five seconds
/// ends the process (RLIMIT_RTTIME, setrlimit(2)), so that even an agent that spins comes to an
/// end. Only the soft limit is set, so that it can be taken back. The programs that schedlab starts
/// were started before, or are not real-time.
#[derive(Debug)]
pub struct RtLimit(Rlimit);

impl RtLimit {
    /// Sets the limit, where the process has none that is tighter.
    pub fn set() -> RtLimit {
        let before = getrlimit(Resource::Rttime);
        let spins = SPINS.as_micros() as u64;
        let current = Some(before.maximum.map_or(spins, |most| most.min(spins)));
        // Without the limit the guardian is still there.
        let _ = setrlimit(Resource::Rttime, Rlimit { current, ..before });
        RtLimit(before)
    }
}

impl Drop for RtLimit {
    fn drop(&mut self) {
        let _ = setrlimit(Resource::Rttime, self.0);
    }
}

/// Returns CLOCK_MONOTONIC.
pub fn monotonic() -> Ns {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Ns(u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// From here on no page of this process waits for a disk.
///
/// # Errors
/// When the kernel refuses.
pub fn lock_memory() -> Result<(), LiveError> {
    let all = rustix::mm::MlockAllFlags::CURRENT | rustix::mm::MlockAllFlags::FUTURE;
    rustix::mm::mlockall(all)
        .map_err(|error| LiveError::io("locking memory (mlockall)")(error.into()))
}

/// Makes the calling thread, `who` in an error, one of FIFO `priority` on these CPUs.
///
/// # Errors
/// When the kernel refuses.
pub fn become_fifo(who: &str, priority: u8, cpus: &CpuSet) -> Result<(), LiveError> {
    let failed = |call: &str| {
        let on = format!("giving {who} SCHED_FIFO {priority} on CPU {cpus}: {call}");
        LiveError::io(on)
    };
    threads::set_affinity(0, cpus).map_err(failed("sched_setaffinity"))?;
    let now = threads::scheduling(0).map_err(failed("sched_getattr"))?;
    let wanted = Scheduling { reset_on_fork: true, ..now.with_policy(Policy::Fifo(priority)) };
    threads::set_scheduling(0, &wanted).map_err(failed("sched_setattr"))
}

/// Returns the CPU time of the calling thread.
pub fn cpu_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Returns the CPUs that stay unmanaged.
///
/// # Errors
/// When a managed CPU is not one that this process may use, or when none is left.
pub fn check_cpus(managed: &CpuSet) -> Result<CpuSet, LiveError> {
    let allowed =
        threads::affinity(0).map_err(LiveError::io("reading the CPUs of this process"))?;
    if let Some(cpu) = managed.without(&allowed).lowest() {
        return Err(LiveError::Cpu { cpu: cpu.0, allowed: allowed.to_string() });
    }
    let others = allowed.without(managed);
    if others.is_empty() || managed.is_empty() {
        return Err(LiveError::OneCpu {
            managed: managed.to_string(),
            allowed: allowed.to_string(),
        });
    }
    Ok(others)
}

/// Checks that the scheduler exists, and can serve what is declared.
///
/// # Errors
/// When either is not so.
pub fn check_scheduler(core: &CoreOptions, declared: &[(String, Policy)]) -> Result<(), LiveError> {
    let made = LoggedCore::new(core)?;
    for (name, policy) in declared {
        if let Some(reason) = made.scheduler().refuses(*policy) {
            let (scheduler, name, policy) = (core.scheduler.clone(), name.clone(), *policy);
            return Err(LiveError::Policy { scheduler, name, policy, reason });
        }
    }
    Ok(())
}
