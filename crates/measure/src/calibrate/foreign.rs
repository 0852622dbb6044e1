//! How much of the measured CPUs other programs had.

use crate::latency::account::Account;
use rustix::time::{ClockId, clock_gettime};
use schedlab_model::CpuId;
use std::collections::BTreeMap;
use std::time::Instant;

/// The counters at the start.
pub(super) struct Foreign {
    cpus: BTreeMap<u32, u64>,
    account: Account,
    own: u64,
    start: Instant,
}

impl Foreign {
    pub(super) fn start(cpu: CpuId, other: Option<CpuId>) -> Foreign {
        let cpus = [Some(cpu), other].into_iter().flatten().map(|cpu| (cpu.0, 0)).collect();
        Foreign { cpus, account: Account::now(), own: own_cpu(), start: Instant::now() }
    }

    /// Part of the CPUs' time since then that others used or a hypervisor took, 0 to 1.
    pub(super) fn part(&self) -> f64 {
        let uses = self.account.until(&Account::now(), &self.cpus);
        let taken: u64 = uses.iter().map(|cpu| cpu.busy_ns + cpu.steal_ns).sum();
        let all = self.start.elapsed().as_nanos() as f64 * self.cpus.len() as f64;
        (taken.saturating_sub(own_cpu() - self.own) as f64 / all.max(1.0)).min(1.0)
    }
}

/// CPU time of this process, nanoseconds.
fn own_cpu() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
