//! Who may be a deadline task at all: parameters, affinity, and the sum of what is reserved.

use super::cbs::{BW_SHIFT, ratio};
use crate::linux::balance::domains::Parts;
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
    // Isolated CPUs are a root domain of their own (def_root_domain), and so is each partition.
    let mut roots = Parts::of(world).cut(&world.all_cpus().without(&world.roles.isolated));
    roots.push(world.roles.isolated);
    let mut reserved = vec![(0, 0u32); roots.len()];
    for (index, task) in world.tasks.iter().enumerate() {
        let Policy::Deadline { runtime, period, .. } = task.policy else { continue };
        let here = roots.iter().position(|root| root.contains(task.last_cpu())).unwrap_or(0);
        if roots[here].and(&task.affinity) != roots[here] {
            let every = match roots[here] == world.all_cpus() {
                true => "every CPU".to_owned(),
                false => format!("all of CPUs {}", roots[here]),
            };
            let why = format!(
                "SCHED_DEADLINE tasks must be allowed on {every} (sched_setattr says EPERM), \
                 this one only on \
                 {}; sched_rt_runtime_us=-1 switches the check off",
                task.affinity
            );
            return Some(Rejection { task: Some(TaskId::from(index)), why });
        }
        reserved[here].0 += ratio(runtime.0, period.0);
        reserved[here].1 += 1;
    }
    let checked = roots.iter().zip(reserved);
    checked
        .map(|(root, (sum, tasks))| (root.count(), sum, tasks))
        .find(|(cpus, sum, _)| *sum > most * *cpus as u64)
        .map(|(cpus, sum, tasks)| over(most, cpus, sum, tasks))
}

/// A part of a CPU in per cent, to two places.
fn percent(part: u64) -> String {
    let half = 1 << (BW_SHIFT - 1);
    let hundredths = (u128::from(part) * 10_000 + half) >> BW_SHIFT;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Where what is published about the deadline class and a kernel of this version differ.
pub(in crate::linux) fn remarks(t: &Tunables, policies: &[Policy], cpus: usize) -> Vec<String> {
    let reserved = policies.iter().filter_map(|policy| match policy {
        Policy::Deadline { runtime, period, .. } => Some(ratio(runtime.0, period.0)),
        _ => None,
    });
    let reserved: Vec<u64> = reserved.collect();
    let sum: u64 = reserved.iter().sum();
    let mut remarks = Vec::new();
    if let Some(most) = most(t)
        && t.version.has_fair_server()
        && !t.version.fair_server_counts_in_admission()
    {
        let server = ratio(t.fair_server_runtime.0, t.fair_server_period.0);
        let by_rule = most.saturating_sub(server) * cpus as u64;
        if sum > by_rule && sum <= most * cpus as u64 {
            remarks.push(format!(
                "the deadline tasks reserve {} % of a CPU: admitted here, as Linux 6.12.95 was \
                 measured to do; by the rule the fair servers' {} % of each CPU count too, {} % \
                 are admitted (J. Lelli, LKML 2024-11-29), and another kernel may say EBUSY",
                percent(sum),
                percent(server),
                percent(by_rule)
            ));
        }
    }
    if t.dl_reclaim && !reserved.is_empty() && t.version.reclaims_too_much() {
        remarks.push(
            "dl_reclaim is GRUB as it was published; from Linux 6.12 to 6.16 tasks with \
             SCHED_FLAG_RECLAIM get too much (extra_bw is wrong with root domains and the fair \
             server, LKML 2025-04-28, M. Ziswiler), and others may miss their deadlines there"
                .to_owned(),
        );
    }
    remarks
}

/// The refusal of tasks that reserve `sum` where `most` of each of `cpus` CPUs may be reserved.
fn over(most: u64, cpus: usize, sum: u64, tasks: u32) -> Rejection {
    let all = most * cpus as u64;
    let why = format!(
        "the {tasks} deadline tasks reserve {} % of a CPU, admitted are {} % (sched_setattr says \
         EBUSY; {} CPUs, \
         sched_rt_runtime_us of sched_rt_period_us of each); lower RUNTIME or raise PERIOD",
        percent(sum),
        percent(all),
        cpus
    );
    Rejection { task: None, why }
}
