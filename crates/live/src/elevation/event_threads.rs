//! PREEMPT_RT: the kernel's threads that pass events on.
//!
//! A perf event wakes who waits for it from an irq_work (`perf_pending_irq`, kernel/events/core.c),
//! which PREEMPT_RT runs in a thread of each CPU, `irq_work/N`, SCHED_FIFO 1 (kernel/irq_work.c).
//! That is no more than a parked thread has and less than the raised one: an agent would hear of a
//! wakeup only when the CPU is free, or at its next heartbeat. So these threads of the managed CPUs
//! have the agents' priority while their CPU is managed. Their work is short, and it is what the
//! agent waits for.

use super::AGENT;
use crate::{Keeper, LiveError};
use schedlab_host::threads::{self, Identity, Scheduling};
use schedlab_model::{CpuId, Policy};

/// Journals and raises the threads that pass on events of these CPUs. Where there are none, events
/// need none.
///
/// # Errors
/// When the kernel refuses, or the journal cannot be written.
pub(super) fn raise(keeper: &mut Keeper, cpus: &[CpuId]) -> Result<(), LiveError> {
    let all: Vec<Identity> =
        threads::processes().into_iter().filter_map(threads::identity).collect();
    for cpu in cpus {
        let Some(thread) = of_cpu(&all, *cpu) else { continue };
        let before = threads::scheduling(thread.tid);
        if let Some(wanted) = before.ok().and_then(raised) {
            keeper.schedule(thread, &wanted)?;
        }
    }
    Ok(())
}

fn of_cpu(all: &[Identity], cpu: CpuId) -> Option<&Identity> {
    // Any process may have that name.
    all.iter().find(|one| one.kernel && one.comm == format!("irq_work/{}", cpu.0))
}

/// Returns what such a thread is given; `None`: its administrator gave it as much, or more.
fn raised(before: Scheduling) -> Option<Scheduling> {
    match before.policy {
        Policy::Fifo(priority) | Policy::Rr(priority) if priority < AGENT => {
            Some(before.with_policy(Policy::Fifo(AGENT)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kernels_own_thread_of_that_cpu_is_one() {
        let named = |tid: u32, comm: &str, kernel: bool| Identity {
            comm: comm.to_owned(),
            kernel,
            tid,
            process: tid,
            ..threads::identity(std::process::id()).expect("this process")
        };
        let all = [
            named(1, "irq_work/1", false),
            named(2, "irq_work/11", true),
            named(3, "irq_work/1", true),
        ];
        assert_eq!(of_cpu(&all, CpuId(1)).map(|one| one.tid), Some(3));
        assert_eq!(of_cpu(&all, CpuId(0)), None);
    }

    #[test]
    fn what_has_the_priority_already_keeps_its_own() {
        let own = threads::scheduling(0).expect("this thread");
        let fifo = |priority| own.with_policy(Policy::Fifo(priority));
        assert_eq!(raised(fifo(1)), Some(fifo(AGENT)));
        assert_eq!(raised(fifo(50)), None);
        assert_eq!(raised(own.with_policy(Policy::Other)), None);
    }
}
