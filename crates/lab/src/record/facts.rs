//! What the recorder knows of the machine, its tasks and groups, as a recording has it.

use schedlab_host::{
    Backend, FactSource, GroupFacts, MachineFacts, RecordStart, RecordingCapabilities, TaskFacts,
};
use schedlab_model::{GroupSpec, Partition};
use schedlab_trace::{Capabilities, Capability, GroupInfo, Header, TaskInfo, owner};
use std::collections::BTreeMap;

/// Notes in a header what the recorder knows at its start.
pub(crate) fn describe(header: &mut Header, start: &RecordStart) {
    let MachineFacts { kernel, version, arch, model, hz, topology, boot_id, knobs, .. } =
        &start.machine;
    header.backend = match start.capabilities.backend {
        Backend::Bpf => "bpf".to_owned(),
        other => format!("perf {}", other.name()),
    };
    header.kernel.clone_from(kernel);
    header.kernel_build = format!("{version} {arch}");
    header.machine =
        format!("{model}{}", if start.machine.virtual_machine { " (virtual machine)" } else { "" });
    header.hz = *hz;
    header.topology = topology.clone();
    header.clock = "CLOCK_MONOTONIC".to_owned();
    header.clock_start_ns = start.monotonic_ns;
    header.realtime_offset_ns = Some(start.unix_ns.wrapping_sub(start.monotonic_ns).cast_signed());
    header.boot_id.clone_from(boot_id);
    header.knobs = knobs.iter().cloned().collect::<BTreeMap<_, _>>();
    header
        .knobs
        .insert("recorder.softirq_rule".to_owned(), start.capabilities.softirq_rule.clone());
    let messages = match &start.capabilities.messages {
        Ok(hooks) => hooks.name().to_owned(),
        Err(why) => format!("none: {why}"),
    };
    header.knobs.insert("recorder.messages".to_owned(), messages);
    if !start.capabilities.idle_unproven.is_empty() {
        let cpus = start.capabilities.idle_unproven.to_string();
        header.knobs.insert("recorder.idle_wakeups_may_be_missing_on_cpus".to_owned(), cpus);
    }
    // debugfs writes the choices with the chosen one in brackets: "none (voluntary) full".
    header.preempt = header.knobs.get("preempt").and_then(|text| {
        let chosen = text.split_once('(')?.1.split_once(')')?.0;
        Some(chosen.to_owned())
    });
    header.capabilities = capabilities(&start.capabilities);
    header.recorder_ns_per_switch = start.cost_ns_per_switch;
    header.sched_ext.clone_from(&start.sched_ext);
    header.date = schedlab_model::text::iso8601(start.unix_ns);
}

/// Returns the capabilities as a recording's header has them.
pub(crate) fn capabilities(of: &RecordingCapabilities) -> Capabilities {
    let all = [
        (Capability::WakeTimes, of.wakeups),
        (Capability::Waker, of.wakers),
        (Capability::IrqContext, of.wakers),
        (Capability::PrevState, of.prev_state),
        (Capability::Preempted, true),
        (Capability::Migrations, of.migrations),
        (Capability::Lifecycle, true),
        (Capability::Steal, of.steal_grain.is_some()),
        (Capability::AllTasks, of.system_wide),
        (Capability::BlockingSyscalls, of.calls),
        (Capability::Throttling, of.limits),
        (Capability::Messages, of.messages.is_ok()),
    ];
    Capabilities::from_list(
        all.into_iter().filter(|&(_, has)| has).map(|(capability, _)| capability),
    )
}

pub(crate) fn task_info(task: &TaskFacts) -> TaskInfo {
    TaskInfo {
        tid: task.tid,
        pid: task.process,
        comm: task.comm.clone(),
        process: task.process_name.clone(),
        policy: task.policy,
        nice: task.nice,
        affinity: task.affinity,
        group: task.group,
        slice: task.slice,
        session: (task.session != 0).then_some(task.session),
        ext: task.ext,
        kernel: task.kernel,
        vcpu: task.vcpu,
        known: task.from == FactSource::Kernel,
    }
}

pub(crate) fn group_info(group: &GroupFacts) -> GroupInfo {
    let spec = GroupSpec {
        partition: Partition::Member,
        name: schedlab_model::text::shown(&group.path).into_owned(),
        parent: group.parent,
        weight: group.weight,
        idle: group.idle,
        bandwidth: group.bandwidth,
        autogroup: group.autogroup_nice.is_some(),
        cap_percent: 0,
        cpus: None,
    };
    let pod = owner::pod(&spec.name).map(|pod| schedlab_host::pod(&pod.uid)).unwrap_or_default();
    let leader = group.leader.clone();
    GroupInfo { spec, pod: pod.name, pod_labels: pod.labels, leader }
}
