//! Keeps CPUs awake while the server runs alone on them.
//!
//! A CPU without the batch work would fall asleep between requests, and leaving the idle state cost
//! the server more than the batch work did at times. So a SCHED_IDLE thread spins on each CPU.
//! Where the server is in another control group or autogroup, that thread would get an equal share
//! with the server's group; there the kernel is asked for no latency of idle states instead
//! (`/dev/cpu_dma_latency`, on all CPUs; the request ends with this process).

use schedlab_host::threads::{self, Scheduling};
use schedlab_live::actuators::Side;
use schedlab_model::{CpuSet, Policy};
use schemars::JsonSchema;
use serde::Serialize;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// How the CPUs were kept awake while the server was alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeptAwake {
    /// A SCHED_IDLE thread of schedlab spun on each.
    Spinner,
    /// The kernel was asked for no latency of idle states.
    NoLatency,
    /// They were not kept awake: the server's numbers contain the exit from idle.
    Not,
}

/// CPUs that are kept awake for as long as this lives.
#[derive(Debug)]
pub(super) struct AwakeCpus {
    pub(super) how: KeptAwake,
    stop: Arc<AtomicBool>,
    spinners: Vec<JoinHandle<()>>,
    _request: Option<File>,
}

impl AwakeCpus {
    /// Keeps `cpus` awake.
    pub(super) fn start(server: &Side, cpus: &CpuSet) -> AwakeCpus {
        let stop = Arc::new(AtomicBool::new(false));
        if shares_group_with_schedlab(server) {
            let spin = |cpu| {
                let stop = stop.clone();
                std::thread::spawn(move || spin(&CpuSet::single(cpu), &stop))
            };
            let spinners = cpus.iter().map(spin).collect();
            return AwakeCpus { how: KeptAwake::Spinner, stop, spinners, _request: None };
        }
        let request = no_latency();
        let how = if request.is_some() { KeptAwake::NoLatency } else { KeptAwake::Not };
        AwakeCpus { how, stop, spinners: Vec::new(), _request: request }
    }
}

impl Drop for AwakeCpus {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for spinner in self.spinners.drain(..) {
            // The thread cannot panic, and nothing could be done.
            let _ = spinner.join();
        }
    }
}

fn spin(cpu: &CpuSet, stop: &AtomicBool) {
    // It must not compete with fair tasks, nor run on another CPU: without both it does not spin.
    let idle = threads::scheduling(0).and_then(|now| {
        threads::set_scheduling(0, &Scheduling { slice: None, ..now.with_policy(Policy::Idle) })
    });
    if idle.and_then(|()| threads::set_affinity(0, cpu)).is_err() {
        return;
    }
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// Returns whether the server's threads are in the same control group and autogroup as this
/// process: SCHED_IDLE counts within a group only.
fn shares_group_with_schedlab(server: &Side) -> bool {
    let own = std::process::id();
    let on = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled")
        .is_ok_and(|on| on.trim() == "1");
    let group = |pid: u32| {
        let session =
            if on { fs::read_to_string(format!("/proc/{pid}/autogroup")).ok() } else { None };
        (schedlab_host::cpu_groups_of(pid), session)
    };
    let own = group(own);
    server.pids().into_iter().all(|pid| group(pid) == own)
}

/// Asks for no latency of idle states; the request lasts as long as the file is open.
fn no_latency() -> Option<File> {
    let mut file = OpenOptions::new().write(true).open("/dev/cpu_dma_latency").ok()?;
    file.write_all(&0_i32.to_ne_bytes()).ok()?;
    Some(file)
}
