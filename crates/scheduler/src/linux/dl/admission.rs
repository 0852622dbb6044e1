//! Who may be a deadline task at all: parameters, affinity, and the sum of what is reserved.

use super::cbs::{BW_SHIFT, ratio};
use crate::linux::tunables::Tunables;
use crate::{GroupView, Rejection, World};
use schedlab_model::{Ns, Policy, TaskId};

/// The least runtime: the kernel counts in units of 1024 ns.
const LEAST_RUNTIME: Ns = Ns(1024);

/// Why no task can have this policy; `None`: it can.
pub(in crate::linux) fn refuses(t: &Tunables, policy: Policy) -> Option<&'static str> {
    let Policy::Deadline { runtime, period, .. } = policy else { return None };
    if !t.version.has_deadline() {
        return Some(
            "SCHED_DEADLINE came with Linux 3.14; `edf` and linux-4.9 and later serve deadlines",
        );
    }
    if runtime < LEAST_RUNTIME {
        return Some("the runtime must be at least 1.024us");
    }
    if period.0 < t.dl_period_min || period.0 > t.dl_period_max {
        return Some(
            "the period must be from sched_deadline_period_min_us to sched_deadline_period_max_us \
             (100us and \
             4.194304s unless these knobs say otherwise)",
        );
    }
    None
}

/// What the deadline tasks of a CPU may reserve together, 20-bit fixed point; `None`: there is no
/// limit.
pub(in crate::linux) fn most(t: &Tunables) -> Option<u64> {
    (t.rt_runtime != u64::MAX).then(|| {
        let servers = if t.version.fair_server_counts_in_admission() {
            ratio(t.fair_server_runtime.0, t.fair_server_period.0)
        } else {
            0
        };
        ratio(t.rt_runtime, t.rt_period).saturating_sub(servers)
    })
}

/// Why these tasks cannot be served together; `None`: they can.
pub(in crate::linux) fn rejects(t: &Tunables, world: &World) -> Option<Rejection> {
    let whole = |why: &str| Some(Rejection { task: None, why: why.to_owned() });
    if !t.version.has_bandwidth() && world.groups.iter().any(|group| group.bandwidth.is_some()) {
        return whole(
            "a group has cpu.max, which came with Linux 3.2; take the limit away or a later version",
        );
    }
    let burst = |group: &GroupView| group.bandwidth.is_some_and(|limit| limit.burst > Ns::ZERO);
    if !t.version.has_burst() && world.groups.iter().any(burst) {
        return whole(
            "a group has cpu.max.burst, which came with Linux 5.14; take it away or a later version",
        );
    }
    if !t.version.has_idle_groups() && world.groups.iter().any(|group| group.idle) {
        return whole(
            "a group has cpu.idle, which came with Linux 5.15; take it away or a later version",
        );
    }
    let most = most(t)?;
    let (mut sum, mut tasks) = (0, 0u32);
    for (index, task) in world.tasks.iter().enumerate() {
        let Policy::Deadline { runtime, period, .. } = task.policy else { continue };
        if world.all_cpus().and(&task.affinity) != world.all_cpus() {
            let why = format!(
                "SCHED_DEADLINE tasks must be allowed on every CPU (sched_setattr says EPERM), \
                 this one only on \
                 {}; sched_rt_runtime_us=-1 switches the check off",
                task.affinity
            );
            return Some(Rejection { task: Some(TaskId::from(index)), why });
        }
        sum += ratio(runtime.0, period.0);
        tasks += 1;
    }
    let all = most * world.cpus.len() as u64;
    if sum <= all {
        return None;
    }
    let half = 1 << (BW_SHIFT - 1);
    let percent = |part: u64| (u128::from(part) * 10_000 + half) >> BW_SHIFT;
    let show = |part: u64| format!("{}.{:02}", percent(part) / 100, percent(part) % 100);
    let why = format!(
        "the {tasks} deadline tasks reserve {} % of a CPU, admitted are {} % (sched_setattr says \
         EBUSY; {} CPUs, \
         sched_rt_runtime_us of sched_rt_period_us of each); lower RUNTIME or raise PERIOD",
        show(sum),
        show(all),
        world.cpus.len()
    );
    Some(Rejection { task: None, why })
}
