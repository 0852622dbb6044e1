//! What a setting is, in words.

use super::target::Target;
use super::{Changes, Step, VERSION};
use crate::kubernetes::cpus;
use crate::no_effect::nearest;
use crate::scenario::weight_of_shares;
use crate::variant::{
    GroupSetting, MachineSetting, PodSetting, Setting, SourceSetting, TaskSetting,
};
use schedlab_model::text::shown;
use schedlab_model::{Ns, Policy};
use std::collections::BTreeSet;

/// Returns the setting as a request:
/// `run sysbench under SCHED_IDLE and keep redis-server on the CPUs 0-1`.
pub(super) fn what(changes: &Changes<'_>) -> String {
    let mut parts: Vec<String> = changes.steps.iter().map(part).collect();
    if changes.scheduler.name != changes.from.name {
        parts.push(format!("use {}", changes.scheduler.name));
    }
    // Knobs that the row's scheduler names are a part of the setting too.
    let knobs = changes.scheduler.knobs.iter().filter(|knob| !changes.from.knobs.contains(knob));
    parts.extend(knobs.map(|(name, value)| match name == VERSION {
        true => format!("use its release {value}"),
        false => format!("set {name} = {value}"),
    }));
    let mut seen = BTreeSet::new();
    parts.retain(|part| seen.insert(part.clone()));
    join(&parts)
}

fn join(parts: &[String]) -> String {
    match parts {
        [] => "change nothing".to_owned(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Returns `SCHED_IDLE`, `SCHED_FIFO priority 1`.
pub(super) fn policy(policy: Policy) -> String {
    match policy {
        Policy::Other => "SCHED_OTHER".to_owned(),
        Policy::Batch => "SCHED_BATCH".to_owned(),
        Policy::Idle => "SCHED_IDLE".to_owned(),
        Policy::Fifo(priority) => format!("SCHED_FIFO priority {priority}"),
        Policy::Rr(priority) => format!("SCHED_RR priority {priority}"),
        Policy::Deadline { .. } => "SCHED_DEADLINE".to_owned(),
    }
}

/// What is to be done to a pod.
fn of_pod(target: Target<'_>, setting: PodSetting) -> String {
    match setting {
        PodSetting::Requests(0) => format!("take the CPU request of {target} away"),
        PodSetting::Requests(milli) => {
            format!("let {target} request {} CPUs", cpus(milli))
        }
        PodSetting::Limits(None) => format!("take the CPU limit of {target} away"),
        PodSetting::Limits(Some(milli)) => {
            format!("limit {target} to {} CPUs", cpus(milli))
        }
        PodSetting::Conversion(how) => {
            format!("make the weight of {target} by the {how} formula")
        }
    }
}

fn part(step: &Step<'_>) -> String {
    let target = &step.target;
    match step.setting {
        Setting::Task(setting) => match setting {
            TaskSetting::Policy(new) => format!("run {target} under {}", policy(*new)),
            TaskSetting::Nice(nice) => format!("run {target} at nice {nice}"),
            TaskSetting::Cpus(cpus) => format!("keep {target} on CPU {cpus}"),
            TaskSetting::Slice(slice) => format!("give {target} slices of {slice}"),
            TaskSetting::Group(path) => {
                format!("move {target} to the control group {}", shown(path))
            }
            TaskSetting::Demand(permille) => {
                format!("let {target} need {} times the CPU time", *permille as f64 / 1e3)
            }
            TaskSetting::Off => format!("leave {target} out"),
        },
        Setting::Source(SourceSetting::Rate(permille)) => {
            format!("let {target} send {} times as fast", *permille as f64 / 1e3)
        }
        Setting::Source(SourceSetting::Clients(clients)) => {
            format!("let {target} have {clients} clients")
        }
        Setting::Group(setting) => match setting {
            GroupSetting::Cpus(cpus) => format!("keep {target} on CPU {cpus}"),
            GroupSetting::Partition(kind) => format!("make {target} a cpuset partition: {kind}"),
            GroupSetting::Max(None) => format!("take the cpu.max of {target} away"),
            GroupSetting::Max(Some(max)) => {
                format!(
                    "limit {target} to {} of CPU time in each {}",
                    Ns(max.quota.0),
                    Ns(max.period.0)
                )
            }
            GroupSetting::Shares(shares) if target.session().is_some() => {
                format!("give the session {target} nice {}", nearest(u64::from(*shares)))
            }
            GroupSetting::Shares(shares) => {
                format!("give {target} cpu.weight {}", weight_of_shares(*shares))
            }
            GroupSetting::Idle(true) => format!("set cpu.idle of {target}"),
            GroupSetting::Idle(false) => format!("take cpu.idle of {target} away"),
            GroupSetting::Cap(0) => format!("take the cap of {target} away"),
            GroupSetting::Cap(cap) => format!("cap {target} at {cap} % of a pCPU"),
            GroupSetting::Weight(weight) => format!("give {target} weight {weight}"),
            GroupSetting::Guest(None) => format!("run {target} without a kernel of its own"),
            GroupSetting::Guest(Some(guest)) => format!("run {guest} in {target}"),
        },
        Setting::Pod(setting) => of_pod(*target, *setting),
        Setting::Machine(MachineSetting::Preempt(model)) => {
            format!("boot a kernel with preempt={}", model.name())
        }
        Setting::Machine(MachineSetting::Cpus(role, set)) => role.boot_line(set),
        Setting::Machine(MachineSetting::SmtYield(speed)) => format!(
            "take a processor whose hardware threads run at {} of their speed beside a busy one",
            f64::from(*speed) / 1e3
        ),
        Setting::Machine(MachineSetting::ThreadedIrqs(true)) => "boot with threadirqs".to_owned(),
        Setting::Machine(MachineSetting::ThreadedIrqs(false)) => {
            "boot without threadirqs".to_owned()
        }
        Setting::Delegation(key, value) => format!("schedule from agents ({key}={value})"),
        Setting::Knob(name, value) => format!("set {name} = {value}"),
    }
}
