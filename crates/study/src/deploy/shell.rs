//! Commands of a Linux shell.

use super::{Changes, Step, Target};
use crate::kubernetes::quantity;
use crate::no_effect::nearest;
use crate::scenario::weight_of_shares;
use crate::variant::{GroupSetting, MachineSetting, PodSetting, Setting, TaskSetting};
use schedlab_model::text::shell_word;
use schedlab_model::{Ns, Policy};

/// Returns one command a line; empty when no command makes the setting.
pub(super) fn text(changes: &Changes<'_>) -> String {
    if changes.xen() {
        return String::new();
    }
    let mut lines: Vec<String> =
        changes.steps.iter().flat_map(|step| commands(step, changes)).collect();
    if changes.scheduler.name != changes.from.name && changes.linux().is_some() {
        lines.insert(0, format!("# needs the kernel that {} models", changes.scheduler.name));
    }
    lines.join("\n")
}

/// Returns the commands of one step. They are for any POSIX shell. A name is one word of them
/// ([`shell_word`]) and is no option: `--` is before it where getopt(3) of the program ends its
/// options (chrt and taskset take it before the priority or the list).
fn commands(step: &Step<'_>, changes: &Changes<'_>) -> Vec<String> {
    let target = step.target;
    match step.setting {
        Setting::Task(setting) => task(target, setting),
        Setting::Group(setting) => group(target, setting),
        Setting::Knob(name, value) => knob(name, value, changes).into_iter().collect(),
        Setting::Machine(MachineSetting::Preempt(model)) => match model.name() {
            "rt" => vec!["# needs a kernel with CONFIG_PREEMPT_RT".to_owned()],
            name => vec![format!(
                "echo {name} > /sys/kernel/debug/sched/preempt   # CONFIG_PREEMPT_DYNAMIC; else \
                 boot preempt={name}"
            )],
        },
        Setting::Machine(MachineSetting::ThreadedIrqs(on)) => {
            vec![format!("# boot {} threadirqs", if *on { "with" } else { "without" })]
        }
        Setting::Machine(MachineSetting::Cpus(role, set)) => {
            vec![format!("# {}", role.boot_line(set))]
        }
        Setting::Pod(setting) => pod(target, *setting).into_iter().collect(),
        Setting::Machine(MachineSetting::SmtYield(_)) => {
            vec!["# smt_yield is a property of the processor: no command sets it".to_owned()]
        }
        Setting::Source(_) | Setting::Delegation(..) => Vec::new(),
    }
}

/// Returns the command for a pod (`kubectl set resources --help`: 0 removes a value). Which
/// workload makes the pod is not recorded.
fn pod(target: Target<'_>, setting: PodSetting) -> Option<String> {
    let of = match setting {
        PodSetting::Requests(milli) => format!("--requests=cpu={}", quantity(milli)),
        PodSetting::Limits(milli) => format!("--limits=cpu={}", quantity(milli.unwrap_or(0))),
        PodSetting::Conversion(_) => return None,
    };
    let container = target.container();
    Some(format!("kubectl set resources deployment WORKLOAD --containers={container} {of}"))
}

fn task(target: Target<'_>, setting: &TaskSetting) -> Vec<String> {
    let (pids, command) = (target.pids(), target.command());
    let (id, all) = if target.is_threads() { ("tid", "") } else { ("pid", "--all-tasks ") };
    let each = |what: &str| match target.is_one() {
        true => format!("{what} {pids}"),
        false => format!("for {id} in {pids}; do {what} ${id}; done"),
    };
    match setting {
        TaskSetting::Policy(policy) => {
            let (flags, priority) = chrt(*policy);
            vec![
                each(&format!("chrt {flags} {all}--pid {priority}")),
                format!("# at the start: chrt {flags} -- {priority} {command}"),
            ]
        }
        TaskSetting::Nice(nice) => {
            // renice changes threads one by one: the threads of each process are named.
            let threads = match target.is_one() {
                true => format!("$(ls /proc/{pids}/task)"),
                false if target.is_threads() => pids.clone(),
                false => format!("$(for pid in {pids}; do ls /proc/$pid/task; done)"),
            };
            vec![
                format!("renice -n {nice} -p {threads}"),
                format!("# at the start: nice -n {nice} -- {command}"),
            ]
        }
        TaskSetting::Cpus(cpus) => vec![
            each(&format!("taskset {all}--cpu-list --pid {cpus}")),
            format!("# at the start: taskset --cpu-list -- {cpus} {command}"),
        ],
        TaskSetting::Slice(slice) => vec![
            format!(
                "{}   # util-linux 2.42, Linux 6.12",
                each(&format!("chrt --other --sched-runtime {} {all}--pid 0", slice.0))
            ),
            format!("# at the start: chrt --other --sched-runtime {} -- 0 {command}", slice.0),
        ],
        TaskSetting::Group(path) => {
            let folder = shell_word(&format!("/sys/fs/cgroup{path}")).into_owned();
            vec![
                format!("echo +cpu > /sys/fs/cgroup/cgroup.subtree_control; mkdir -p {folder}"),
                format!("for pid in {pids}; do echo $pid > {folder}/cgroup.procs; done"),
            ]
        }
        TaskSetting::Demand(_) | TaskSetting::Off => Vec::new(),
    }
}

fn group(target: Target<'_>, setting: &GroupSetting) -> Vec<String> {
    let write = |file: &str, value: String| {
        let root = if target.name.starts_with('/') { "" } else { "/" };
        let path = format!("/sys/fs/cgroup{root}{}/{file}", target.name);
        vec![format!("echo {value} > {}", shell_word(&path))]
    };
    if let (Some(session), GroupSetting::Shares(shares)) = (target.session(), setting) {
        let nice = nearest(u64::from(*shares));
        let file = format!("grep -ls '^/autogroup-{session} ' /proc/[0-9]*/autogroup | head -n 1");
        return vec![format!("echo {nice} > \"$({file})\"")];
    }
    match setting {
        GroupSetting::Cpus(cpus) => write("cpuset.cpus", cpus.to_string()),
        GroupSetting::Partition(kind) => write("cpuset.cpus.partition", kind.clone()),
        GroupSetting::Max(None) => write("cpu.max", "max".to_owned()),
        GroupSetting::Max(Some(max)) => {
            write("cpu.max", format!("'{} {}'", max.quota.0 / 1000, max.period.0 / 1000))
        }
        GroupSetting::Shares(shares) => write("cpu.weight", weight_of_shares(*shares).to_string()),
        GroupSetting::Idle(on) => write("cpu.idle", u8::from(*on).to_string()),
        GroupSetting::Cap(_) | GroupSetting::Weight(_) | GroupSetting::Guest(_) => Vec::new(),
    }
}

/// Returns the options and the priority of chrt for a policy.
pub(super) fn chrt(policy: Policy) -> (String, u8) {
    match policy {
        Policy::Other => ("--other".to_owned(), 0),
        Policy::Batch => ("--batch".to_owned(), 0),
        Policy::Idle => ("--idle".to_owned(), 0),
        Policy::Fifo(priority) => ("--fifo".to_owned(), priority),
        Policy::Rr(priority) => ("--rr".to_owned(), priority),
        Policy::Deadline { runtime, deadline, period } => {
            let Ns(runtime) = runtime;
            let text = format!(
                "--deadline --sched-runtime {runtime} --sched-deadline {} --sched-period {}",
                deadline.0, period.0
            );
            (text, 0)
        }
    }
}

/// Returns the command that sets a knob of a Linux kernel: a sysctl, or a file of debugfs
/// (since 5.13).
fn knob(name: &str, value: &str, changes: &Changes<'_>) -> Option<String> {
    let debugfs = changes.linux()?.has_debugfs_tunables();
    if let Some(feature) = name.strip_prefix("features.") {
        let off = if value == "off" { "NO_" } else { "" };
        return Some(format!(
            "echo {off}{} > /sys/kernel/debug/sched/features",
            shell_word(feature)
        ));
    }
    // debugfs and the sysctls count nanoseconds.
    let number = value.parse::<Ns>().map_or_else(|_| value.to_owned(), |ns| ns.0.to_string());
    let number = match number.as_str() {
        "on" => "1".to_owned(),
        "off" => "0".to_owned(),
        _ => shell_word(&number).into_owned(),
    };
    match name {
        "sched_rt_runtime_us"
        | "sched_rt_period_us"
        | "sched_rr_timeslice_ms"
        | "sched_autogroup_enabled"
        | "sched_child_runs_first"
        | "sched_cfs_bandwidth_slice_us"
        | "sched_deadline_period_max_us"
        | "sched_deadline_period_min_us" => Some(format!("sysctl -w kernel.{name}={number}")),
        "base_slice_ns" | "migration_cost_ns" | "nr_migrate" if debugfs => {
            Some(format!("echo {number} > /sys/kernel/debug/sched/{name}"))
        }
        "sched_latency_ns" | "sched_min_granularity_ns" | "sched_wakeup_granularity_ns"
            if debugfs =>
        {
            Some(format!("echo {number} > /sys/kernel/debug/sched/{}", &name["sched_".len()..]))
        }
        "sched_latency_ns" | "sched_min_granularity_ns" | "sched_wakeup_granularity_ns" => {
            Some(format!("sysctl -w kernel.{name}={number}"))
        }
        _ => None,
    }
}
