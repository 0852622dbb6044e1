//! Isolated CPUs (`isolcpus=`, cpuset partitions): no balancing, and no other tasks there.

use crate::common::scheduler;
use schedlab_model::{
    CpuId, CpuSet, EventKind, GroupId, GroupSpec, Ns, Policy, Program, SchedEvent, TaskSpec,
    Topology, Workload,
};
use schedlab_sim::{Machine, Outcome, RunOptions, SimError, run};

const VERSIONS: [&str; 6] =
    ["linux-2.6.32", "linux-4.19", "linux-6.1", "linux-6.6", "linux-6.12", "linux-7.2"];

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn hogs(name: &str, count: usize, affinity: CpuSet, policy: Policy) -> Vec<TaskSpec> {
    let hog = TaskSpec { affinity, policy, ..TaskSpec::new(name, Program::hog()) };
    vec![hog; count]
}

fn go(
    version: &str,
    machine: &Machine,
    workload: &Workload,
) -> Result<(Outcome, Vec<SchedEvent>), SimError> {
    let scheduler = scheduler(version, machine.topology.cpus());
    let mut events = Vec::new();
    let options = RunOptions::for_time(Ns::from_s(2));
    run(machine, workload, scheduler.as_ref(), &options, &mut events)
        .map(|outcome| (outcome, events))
}

/// The CPUs on which a task ran.
fn used(events: &[SchedEvent], task: usize) -> CpuSet {
    let ran = |event: &SchedEvent| match event.kind {
        EventKind::Switch { next: Some(next), .. } if next.index() == task => Some(event.cpu),
        _ => None,
    };
    events.iter().filter_map(ran).collect()
}

/// The case of moby/moby#31086 and others: threads of a virtual machine on `isolcpus=3-18` all stay
/// on the first of these CPUs, and 15 idle.
#[test]
fn isolated_cpus_keep_their_tasks() {
    let machine = Machine { isolated: cpus("3-18"), ..Machine::flat(24) };
    for version in VERSIONS {
        let mut tasks = hogs("vcpu", 16, cpus("3-18"), Policy::Other);
        tasks.extend(hogs("other", 8, CpuSet::ALL, Policy::Other));
        let workload = Workload { tasks, ..Workload::default() };
        let (outcome, events) = go(version, &machine, &workload).unwrap();
        for task in 0..16 {
            assert_eq!(used(&events, task), cpus("3"), "{version}");
            let share = outcome.metrics.tasks[task].cpu_ns.0 as f64 / 2e9;
            assert!((share - 1.0 / 16.0).abs() < 0.015, "{version}: {share}");
        }
        // What may run everywhere does not run there, and has the other eight CPUs.
        for task in 16..24 {
            assert!(used(&events, task).and(&cpus("3-18")).is_empty(), "{version}");
            let share = outcome.metrics.tasks[task].cpu_ns.0 as f64 / 2e9;
            assert!(share > 0.9, "{version}: {share}");
        }
        let busy = outcome.metrics.cpus.iter().filter(|cpu| cpu.busy_ns > Ns::ZERO).count();
        assert_eq!(busy, 9, "{version}");
    }
}

/// `chrt -f 1` spreads them: RT tasks are pushed and pulled without domains.
#[test]
fn real_time_tasks_spread_over_isolated_cpus() {
    let topology = Topology::regular(24, 1, 1, 1);
    let machine = Machine { isolated: cpus("3-18"), topology, ..Machine::flat(1) };
    for version in VERSIONS {
        let tasks = hogs("vcpu", 16, cpus("3-18"), Policy::Fifo(1));
        let (outcome, _) =
            go(version, &machine, &Workload { tasks, ..Workload::default() }).unwrap();
        for task in &outcome.metrics.tasks {
            let share = task.cpu_ns.0 as f64 / 2e9;
            assert!(share > 0.94, "{version}: {share}");
        }
    }
    // A task that may run on both sides is not pushed from one to the other.
    let mut tasks = hogs("low", 2, cpus("2-3"), Policy::Fifo(1));
    tasks.iter_mut().for_each(|task| task.began_on = Some(CpuId(3)));
    let (outcome, events) =
        go("linux-6.12", &machine, &Workload { tasks, ..Workload::default() }).unwrap();
    assert_eq!(used(&events, 0).or(&used(&events, 1)), cpus("3"));
    assert!(outcome.metrics.tasks[1].cpu_ns < Ns::from_ms(1));
}

/// A partition has its CPUs to itself.
#[test]
fn a_partition_has_its_cpus_to_itself() {
    let part = GroupSpec {
        name: "/rt".to_owned(),
        parent: Some(GroupId(0)),
        cpus: Some(cpus("2-3")),
        isolated: true,
        ..GroupSpec::default()
    };
    let root = GroupSpec { name: "/".to_owned(), ..GroupSpec::default() };
    let mut tasks = hogs("inside", 2, CpuSet::ALL, Policy::Other);
    tasks.iter_mut().for_each(|task| task.group = GroupId(1));
    tasks.extend(hogs("outside", 4, CpuSet::ALL, Policy::Other));
    let mut workload = Workload { groups: vec![root, part], tasks, ..Workload::default() };
    let (outcome, events) = go("linux-6.12", &Machine::flat(4), &workload).unwrap();
    for task in 0..6 {
        let there = if task < 2 { cpus("2") } else { cpus("0-1") };
        assert_eq!(used(&events, task).or(&there), there, "task {task}");
        let share = outcome.metrics.tasks[task].cpu_ns.0 as f64 / 2e9;
        assert!((share - 0.5).abs() < 0.02, "task {task}: {share}");
    }
    workload.tasks[5].affinity = cpus("3");
    let refused = go("linux-6.12", &Machine::flat(4), &workload).unwrap_err().to_string();
    assert!(refused.contains("isolated CPUs (2-3) leave none"), "{refused}");
}

/// SCHED_DEADLINE tasks must be allowed on all CPUs of their root domain: those that are not
/// isolated, or all isolated ones.
#[test]
fn deadline_tasks_are_admitted_by_root_domain() {
    let deadline = |runtime: u64| Policy::Deadline {
        runtime: Ns::from_ms(runtime),
        deadline: Ns::from_ms(10),
        period: Ns::from_ms(10),
    };
    let machine = Machine { isolated: cpus("2-3"), ..Machine::flat(4) };
    let with = |affinity: CpuSet, count: usize, runtime: u64| {
        let tasks = hogs("dl", count, affinity, deadline(runtime));
        go("linux-6.6", &machine, &Workload { tasks, ..Workload::default() }).map(|_| ())
    };
    with(CpuSet::ALL, 2, 9).unwrap();
    with(cpus("2-3"), 2, 9).unwrap();
    let refused = with(CpuSet::ALL, 3, 9).unwrap_err().to_string();
    assert!(refused.contains("admitted are 190.00 %") && refused.contains("2 CPUs"), "{refused}");
    let refused = with(cpus("3"), 1, 1).unwrap_err().to_string();
    assert!(refused.contains("allowed on all of CPUs 2-3"), "{refused}");
}

#[test]
fn what_does_not_know_isolated_cpus_refuses_them() {
    let machine = Machine { isolated: cpus("1"), ..Machine::flat(2) };
    let workload =
        Workload { tasks: hogs("hog", 1, CpuSet::ALL, Policy::Other), ..Workload::default() };
    for name in ["linux-2.6.22", "xen-credit2", "edf", "rr"] {
        let refused = go(name, &machine, &workload).unwrap_err().to_string();
        assert!(refused.contains("CPUs 1 are isolated"), "{name}: {refused}");
    }
    for (isolated, part) in [("0-1", "leaves no CPU"), ("1-2", "cpu2 does not exist")] {
        let machine = Machine { isolated: cpus(isolated), ..Machine::flat(2) };
        let refused = go("linux-6.12", &machine, &workload).unwrap_err().to_string();
        assert!(refused.contains(part), "{isolated}: {refused}");
    }
}
