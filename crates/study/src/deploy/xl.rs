//! Commands of Xen's toolstack (xl(1)).

use super::{Changes, Step};
use crate::variant::{GroupSetting, Setting, TaskSetting};
use schedlab_model::text::shell_word;
use schedlab_model::{CpuSet, Ns};
use schedlab_scheduler::SchedulerSpec;
use schedlab_scheduler::registry::{Family, XenScheduler};

/// Returns one command a line; empty on machines without Xen.
pub(super) fn text(changes: &Changes<'_>) -> String {
    if !changes.xen() {
        return String::new();
    }
    let mut lines = Vec::new();
    if changes.scheduler.name != changes.from.name {
        let name = sched(changes.scheduler);
        lines.push(format!(
            "# boot Xen with sched={name}, or: xl cpupool-create 'name=\"lab\"' 'sched=\"{name}\"'"
        ));
    }
    if changes.scheduler.pools != changes.from.pools {
        lines.extend(
            changes
                .scheduler
                .pools
                .iter()
                .enumerate()
                .flat_map(|(number, pool)| create(number + 1, pool)),
        );
    }
    lines.extend(changes.steps.iter().filter_map(|step| command(step, changes)));
    lines.join("\n")
}

/// The word of `sched=`.
fn sched(spec: &SchedulerSpec) -> &'static str {
    spec.family().ok().and_then(Family::xen).map_or("", XenScheduler::word)
}

/// Takes the pCPUs of a pool from Pool-0, makes the pool and sets its parameters; domains follow by
/// hand.
fn create(number: usize, (cpus, spec): &(CpuSet, SchedulerSpec)) -> Vec<String> {
    let name = format!("pool-{number}");
    let mut lines = vec![
        format!("xl cpupool-cpu-remove Pool-0 {cpus}"),
        format!(
            "xl cpupool-create 'name=\"{name}\"' 'sched=\"{}\"' 'cpus=\"{cpus}\"'",
            sched(spec)
        ),
    ];
    lines.extend(spec.knobs.iter().map(|(knob, value)| parameter(spec, &name, knob, value)));
    lines.push(format!("# its domains: xl cpupool-migrate DOMAIN {name}"));
    lines
}

/// Sets a knob of a pool.
fn parameter(spec: &SchedulerSpec, pool: &str, knob: &str, value: &str) -> String {
    let set = |option: char, unit: u64| {
        let value = value.parse::<Ns>().ok()?.0 / unit;
        Some(format!("xl sched-{} -s -p {pool} -{option} {value}", sched(spec)))
    };
    let xen = spec.family().ok().and_then(Family::xen);
    let line = match (xen, knob) {
        (Some(XenScheduler::Credit | XenScheduler::Credit2), "ratelimit") => set('r', 1_000),
        (Some(XenScheduler::Credit), "tslice") => set('t', 1_000_000),
        _ => None,
    };
    line.unwrap_or_else(|| format!("# a boot parameter of Xen: {knob} = {value}"))
}

fn command(step: &Step<'_>, changes: &Changes<'_>) -> Option<String> {
    let xl = format!("xl sched-{}", sched(changes.scheduler));
    let domain = shell_word(step.target.name.trim_start_matches('/'));
    match step.setting {
        Setting::Group(GroupSetting::Cap(cap)) => Some(format!("{xl} -d {domain} -c {cap}")),
        Setting::Group(GroupSetting::Weight(weight)) => {
            Some(format!("{xl} -d {domain} -w {weight}"))
        }
        Setting::Group(GroupSetting::Cpus(cpus)) | Setting::Task(TaskSetting::Cpus(cpus)) => {
            Some(format!("xl vcpu-pin -- {domain} all {cpus}"))
        }
        Setting::Knob(name, value) => Some(parameter(changes.scheduler, "Pool-0", name, value)),
        // Policies and nice values are the guest's.
        _ => None,
    }
}
