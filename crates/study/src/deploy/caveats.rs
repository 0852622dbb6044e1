//! What to know before a setting is used: rules of the kernels that the models have, with their
//! releases.

use super::{Changes, Step};
use crate::kubernetes::{PERIOD, quota_of_limit};
use crate::no_effect::nearest;
use crate::scenario::Role;
use crate::variant::{GroupSetting, MachineSetting, PodSetting, Setting, TaskSetting};
use schedlab_model::Policy;
use schedlab_scheduler::linux::weight_of_nice;

/// Returns the sentences.
pub(super) fn caveats(changes: &Changes<'_>) -> Vec<String> {
    let mut all = Vec::new();
    let policy = |is: fn(&Policy) -> bool| {
        changes.any(
            |setting| matches!(setting, Setting::Task(TaskSetting::Policy(policy)) if is(policy)),
        )
    };
    all.extend(of_threads(changes));
    if policy(|policy| policy.is_realtime()) {
        all.push(realtime(changes));
    }
    if policy(|policy| *policy == Policy::Idle) {
        all.push(
            "SCHED_IDLE has weight 3 against the 1024 of a task of nice 0: beside one that never \
             sleeps the idle task gets 0.3 % \
             of the CPU, and holds its locks for that much longer. Policies count within one \
             control group (or autogroup); between groups the \
             groups' weights decide."
                .to_owned(),
        );
    }
    if policy(|policy| *policy == Policy::Batch) {
        all.push(
            "SCHED_BATCH only keeps a task from preempting when it wakes: one that runs still \
             runs its whole slice."
                .to_owned(),
        );
    }
    if policy(|policy| matches!(policy, Policy::Deadline { .. })) {
        all.push(
            "SCHED_DEADLINE is admitted only while the tasks of a root domain need less than 95 % \
             of its CPUs, and not with an \
             affinity smaller than the root domain."
                .to_owned(),
        );
    }
    all.extend(of_settings(changes));
    if changes.scheduler.name != changes.from.name {
        let kind = if changes.linux().is_some() { "kernel" } else { "scheduler" };
        all.push(format!(
            "{} is another {}: its other changes come with it.",
            changes.scheduler.name, kind
        ));
    }
    all
}

/// What names threads alone can be set by commands only.
fn of_threads(changes: &Changes<'_>) -> Option<String> {
    let step = changes.steps.iter().find(|step| step.target.is_threads())?;
    Some(format!(
        "{} names threads, not a process: a unit, a container or a control group has all threads \
         of their process.",
        step.target
    ))
}

/// What a real-time task that does not sleep meets.
fn realtime(changes: &Changes<'_>) -> String {
    match changes.linux() {
        Some(release) if release.has_fair_server() => {
            "A real-time task that does not sleep keeps fair tasks off its CPU, shells too. Since \
             Linux 6.12 the fair server then \
             gives fair tasks 50 ms of each second, in one piece, and the real-time task waits \
             that long."
                .to_owned()
        }
        Some(_) => {
            "A real-time task that does not sleep keeps fair tasks off its CPU, shells too. \
             Before Linux 6.12 RT throttling then \
             stops it for 50 ms of each second (kernel.sched_rt_runtime_us), even when no other \
             task is runnable."
                .to_owned()
        }
        None => {
            "A real-time task that does not sleep keeps fair tasks off its CPU, shells too. Since \
             Linux 6.12 the fair server then \
             gives fair tasks 50 ms of each second in one piece; before, and with RT_GROUP_SCHED, \
             RT throttling stops the \
             real-time task for 50 ms of each second (kernel.sched_rt_runtime_us)."
                .to_owned()
        }
    }
}

/// Says of each setting what is to know, once.
fn of_settings(changes: &Changes<'_>) -> Vec<String> {
    let mut all = Vec::new();
    let sessions = changes.steps.iter().filter_map(of_session);
    for text in changes.steps.iter().filter_map(|step| of_setting(step.setting)).chain(sessions) {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}

/// Says what is to know of the weight of a session.
fn of_session(step: &Step<'_>) -> Option<String> {
    let (Some(_), Setting::Group(GroupSetting::Shares(shares))) =
        (step.target.session(), step.setting)
    else {
        return None;
    };
    let nice = nearest(u64::from(*shares));
    let weight = weight_of_nice(nice);
    let rounded = match weight == u64::from(*shares) {
        true => String::new(),
        false => format!("; nice {nice} is weight {weight}, the nearest to {shares}"),
    };
    Some(format!(
        "The weight of a session is a nice value of its own (/proc/PID/autogroup){rounded}. A new \
         session has another number and nice 0."
    ))
}

/// Says what is to know of a setting of a pod, if there is something.
fn of_pod(setting: PodSetting) -> Option<String> {
    Some(match setting {
        PodSetting::Requests(_) => {
            "A request is a weight against other pods and units, and room that the scheduler of \
             the cluster keeps on a node; a pod of several containers has the sum of theirs."
                .to_owned()
        }
        PodSetting::Limits(Some(milli)) => {
            let quota = quota_of_limit(milli).quota;
            format!(
                "A pod that has run for {quota} of CPU time waits for the next period of {PERIOD}, \
                 though the CPU idles (container_cpu_cfs_throttled_seconds_total counts that)."
            )
        }
        PodSetting::Limits(None) => {
            "Without limits.cpu nothing holds the pod back; beside others it gets what its request \
             gives it. A LimitRange of the namespace may set one again."
                .to_owned()
        }
        PodSetting::Conversion(_) => return None,
    })
}

const ISOLATED: &str = "No load balancing on isolated CPUs: a fair thread stays where it is, and new \
                        ones stay with their parent; give each its own CPU.";

/// Says what is to know of a cpuset partition.
fn of_partition(kind: &str) -> Option<String> {
    match kind {
        "isolated" => Some(ISOLATED.to_owned()),
        "root" => Some(
            "No other task runs on the CPUs of a partition, so its CPUs are taken from all others; \
             the kernel refuses it where a sibling group has one of them."
                .to_owned(),
        ),
        _ => None,
    }
}

/// Says what is to know of a setting, if there is something.
fn of_setting(setting: &Setting) -> Option<String> {
    Some(match setting {
        Setting::Task(TaskSetting::Nice(_)) => {
            "A nice value counts within one control group (or autogroup) only; between groups the \
             groups' weights decide."
                .to_owned()
        }
        Setting::Task(TaskSetting::Slice(_)) => {
            "Slices of a task need Linux 6.12; a task that used its share still waits for its \
             turn, and more switches cost \
             CPU time."
                .to_owned()
        }
        Setting::Task(TaskSetting::Cpus(_)) | Setting::Group(GroupSetting::Cpus(_)) => {
            "What one side leaves idle on its CPUs the other cannot use.".to_owned()
        }
        Setting::Pod(setting) => return of_pod(*setting),
        Setting::Group(GroupSetting::Max(Some(max))) => {
            format!(
                "A group that has used its quota waits for the next period, up to {}, though \
                 the CPU idles; a lock that it holds \
                 waits with it.",
                max.period.saturating_sub(max.quota)
            )
        }
        Setting::Group(GroupSetting::Max(None)) => {
            "Without cpu.max nothing holds the group back; beside other work it gets what its \
             weight gives it."
                .to_owned()
        }
        Setting::Group(GroupSetting::Shares(_) | GroupSetting::Weight(_)) => {
            "A weight changes shares, not who runs first: a wakeup still waits until the \
             current slice ends."
                .to_owned()
        }
        Setting::Group(GroupSetting::Idle(true)) => {
            "cpu.idle needs Linux 5.15, and counts against the groups beside it only.".to_owned()
        }
        Setting::Group(GroupSetting::Cap(cap)) if *cap > 0 => {
            "A capped domain waits for credit, up to a whole period, though the pCPU idles."
                .to_owned()
        }
        Setting::Knob(name, _) => {
            format!("{name} counts for every task of the machine.")
        }
        Setting::Machine(MachineSetting::Preempt(_) | MachineSetting::ThreadedIrqs(_)) => {
            "Preemption costs throughput, and counts for the whole machine.".to_owned()
        }
        Setting::Machine(MachineSetting::Cpus(Role::NohzFull, _)) => {
            "Needs CONFIG_NO_HZ_FULL; every system call and interrupt on these CPUs costs more, and \
             two tasks on one of them have ticks as before."
                .to_owned()
        }
        Setting::Group(GroupSetting::Partition(kind)) => return of_partition(kind),
        Setting::Machine(MachineSetting::Cpus(Role::Isolated, _)) => ISOLATED.to_owned(),
        Setting::Delegation(..) => {
            "The rows behind agents need a kernel with ghOSt; `schedlab run` elevates threads \
             on a stock kernel."
                .to_owned()
        }
        _ => return None,
    })
}
