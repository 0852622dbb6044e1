//! Drop-ins of systemd units (systemd.exec(5), systemd.resource-control(5)).

use super::{Changes, Target};
use crate::scenario::weight_of_shares;
use crate::variant::{GroupSetting, Setting, TaskSetting};
use schedlab_model::{Bandwidth, Policy};
use schedlab_scheduler::linux::weight_of_nice;
use schedlab_trace::owner::is_unit;

/// Returns a drop-in for each unit, each below a comment with its path; empty when systemd has no
/// directive for any of it.
pub(super) fn text(changes: &Changes<'_>) -> String {
    if changes.xen() {
        return String::new();
    }
    let mut units: Vec<(Target<'_>, Vec<String>)> = Vec::new();
    for step in &changes.steps {
        if step.target.session().is_some() {
            continue;
        }
        let lines = directives(step.setting);
        match units.iter_mut().find(|(target, _)| target.name == step.target.name) {
            Some((_, known)) => known.extend(lines),
            None => units.push((step.target, lines)),
        }
    }
    units.retain(|(_, lines)| !lines.is_empty());
    let texts = units.iter().map(|(target, lines)| {
        let unit = unit(*target);
        let section = if unit.ends_with(".slice") { "Slice" } else { "Service" };
        format!("# /etc/systemd/system/{unit}.d/schedlab.conf\n[{section}]\n{}", lines.join("\n"))
    });
    texts.collect::<Vec<_>>().join("\n\n")
}

/// Returns the unit: a control group that is one keeps its name, other groups are slices, programs
/// are services.
fn unit(target: Target<'_>) -> String {
    let last = target.name.rsplit('/').next().unwrap_or_default();
    if is_unit(last) {
        // What a unit's name may have (systemd.unit(5)).
        let allowed =
            |c: char| if c.is_ascii_alphanumeric() || ":-_.\\@".contains(c) { c } else { '-' };
        return last.chars().map(allowed).collect();
    }
    let group = target.name.starts_with('/') && !target.is_placeholder();
    let kind = if group { "slice" } else { "service" };
    format!("{}.{kind}", target.plain())
}

fn directives(setting: &Setting) -> Vec<String> {
    match setting {
        Setting::Task(setting) => match setting {
            TaskSetting::Policy(policy) => of_policy(*policy),
            TaskSetting::Nice(nice) => {
                let weight = weight_of_shares(weight_of_nice(*nice) as u32);
                within(format!("Nice={nice}"), Some(&format!("CPUWeight={weight}")))
            }
            TaskSetting::Cpus(cpus) => {
                vec![format!("CPUAffinity={}", cpus.to_string().replace(',', " "))]
            }
            TaskSetting::Slice(slice) => vec![
                "# no directive sets a slice: chrt of util-linux 2.42 does".to_owned(),
                format!(
                    "ExecStartPost=+/usr/bin/chrt --other --sched-runtime {} --all-tasks --pid 0 \
                     $MAINPID",
                    slice.0
                ),
            ],
            TaskSetting::Group(path) => vec![format!("Slice={}", unit(Target::group(path)))],
            TaskSetting::Demand(_) | TaskSetting::Off => Vec::new(),
        },
        Setting::Group(setting) => of_group(setting),
        // The kubelet writes what pods have.
        Setting::Pod(_)
        | Setting::Source(_)
        | Setting::Machine(_)
        | Setting::Delegation(..)
        | Setting::Knob(..) => Vec::new(),
    }
}

/// Returns a directive that counts within a group only, below a comment that says so, and above
/// what counts between groups. systemd starts each service in a session of its own (setsid(2)), and
/// in a control group of its own where the CPU controller is on.
fn within(directive: String, between: Option<&str>) -> Vec<String> {
    let key = directive.split('=').next().unwrap_or_default();
    let mut lines = vec![
        format!(
            "# {key}= counts among the processes of this service only, where sessions are groups"
        ),
        "# (kernel.sched_autogroup_enabled) or the service has the CPU controller.".to_owned(),
    ];
    if let Some(between) = between {
        lines.push(format!("# Against other services: {between}"));
    }
    lines.push(directive);
    lines
}

fn of_policy(policy: Policy) -> Vec<String> {
    let named = |name: &str| format!("CPUSchedulingPolicy={name}");
    match policy {
        Policy::Other => within(named("other"), None),
        Policy::Batch => within(named("batch"), None),
        Policy::Idle => within(named("idle"), Some("CPUWeight=idle (systemd 252)")),
        Policy::Fifo(priority) => vec![named("fifo"), format!("CPUSchedulingPriority={priority}")],
        Policy::Rr(priority) => vec![named("rr"), format!("CPUSchedulingPriority={priority}")],
        Policy::Deadline { .. } => {
            let (flags, priority) = super::shell::chrt(policy);
            vec![
                "# no directive sets SCHED_DEADLINE".to_owned(),
                format!(
                    "ExecStartPost=+/usr/bin/chrt {flags} --all-tasks --pid {priority} $MAINPID"
                ),
            ]
        }
    }
}

fn of_group(setting: &GroupSetting) -> Vec<String> {
    match setting {
        GroupSetting::Cpus(cpus) => {
            vec![format!("AllowedCPUs={}", cpus.to_string().replace(',', " "))]
        }
        GroupSetting::Max(None) => vec!["CPUQuota=".to_owned()],
        GroupSetting::Max(Some(max)) => {
            vec![
                format!("CPUQuota={}", percent(max)),
                format!("CPUQuotaPeriodSec={}us", max.period.0 / 1000),
            ]
        }
        GroupSetting::Shares(shares) => {
            vec![format!("CPUWeight={}", weight_of_shares(*shares))]
        }
        // systemd 252 and later.
        GroupSetting::Idle(true) => vec!["CPUWeight=idle".to_owned()],
        GroupSetting::Idle(false) => vec!["CPUWeight=100".to_owned()],
        // No property of a unit makes a partition; the shell does.
        GroupSetting::Partition(_)
        | GroupSetting::Cap(_)
        | GroupSetting::Weight(_)
        | GroupSetting::Guest(_) => Vec::new(),
    }
}

/// Returns the quota as systemd has it: per cent of one CPU, to two places.
fn percent(max: &Bandwidth) -> String {
    let hundredths = max.quota.0 * 10_000 / max.period.0.max(1);
    match (hundredths / 100, hundredths % 100) {
        (whole, 0) => format!("{whole}%"),
        (whole, part) => format!("{whole}.{part:02}%"),
    }
}
