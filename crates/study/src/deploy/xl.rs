//! Commands of Xen's toolstack (xl(1)).

use super::{Changes, Step};
use crate::variant::{GroupSetting, Setting, TaskSetting};
use schedlab_model::Ns;

/// Returns one command a line; empty on machines without Xen.
pub(super) fn text(changes: &Changes<'_>) -> String {
    if !changes.xen() {
        return String::new();
    }
    let mut lines = Vec::new();
    if changes.scheduler.name != changes.from.name {
        let name = changes.scheduler.name.trim_start_matches("xen-");
        lines.push(format!(
            "# boot Xen with sched={name}, or: xl cpupool-create 'name=\"lab\"' 'sched=\"{name}\"'"
        ));
    }
    lines.extend(changes.steps.iter().filter_map(|step| command(step, changes)));
    lines.join("\n")
}

fn command(step: &Step<'_>, changes: &Changes<'_>) -> Option<String> {
    let xl = format!("xl sched-{}", changes.scheduler.name.trim_start_matches("xen-"));
    let domain = super::shell::quoted(step.target.0.trim_start_matches('/'));
    match step.setting {
        Setting::Group(GroupSetting::Cap(cap)) => Some(format!("{xl} -d {domain} -c {cap}")),
        Setting::Group(GroupSetting::Weight(weight)) => Some(format!("{xl} -d {domain} -w {weight}")),
        Setting::Group(GroupSetting::Cpus(cpus)) | Setting::Task(TaskSetting::Cpus(cpus)) => {
            Some(format!("xl vcpu-pin {domain} all {cpus}"))
        }
        Setting::Knob(name, value) => {
            let us = |value: &str| value.parse::<Ns>().ok().map(|ns| ns.0 / 1000);
            let ms = |value: &str| us(value).map(|us| us / 1000);
            match (changes.scheduler.name.as_str(), name.as_str()) {
                (_, "ratelimit") => Some(format!("{xl} -s -p Pool-0 -r {}", us(value)?)),
                ("xen-credit", "tslice") => Some(format!("{xl} -s -p Pool-0 -t {}", ms(value)?)),
                _ => Some(format!("# a boot parameter of Xen: {name} = {value}")),
            }
        }
        // Policies and nice values are the guest's.
        _ => None,
    }
}
