//! CPUs that the boot line sets apart: isolated ones (`isolcpus=`, cpuset partitions) without
//! balancing and other tasks, and ones without ticks (`nohz_full=`).

use crate::common::scheduler;
use schedlab_model::{
    Bandwidth, CpuId, CpuRoles, CpuSet, EventKind, GroupId, GroupSpec, Ns, Partition, Policy,
    Program, SchedEvent, TaskSpec, Topology, Workload,
};
use schedlab_sim::{Costs, Machine, Outcome, RunOptions, SimError, run};

const VERSIONS: [&str; 6] =
    ["linux-2.6.32", "linux-4.19", "linux-6.1", "linux-6.6", "linux-6.12", "linux-7.2"];

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn isolated(isolated: CpuSet) -> CpuRoles {
    CpuRoles { isolated, ..CpuRoles::default() }
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
    let machine = Machine { roles: isolated(cpus("3-18")), ..Machine::flat(24) };
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
    let machine = Machine { roles: isolated(cpus("3-18")), topology, ..Machine::flat(1) };
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
        partition: Partition::Isolated,
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

/// As above, but two tasks of the partition that begin on one CPU have one each.
#[test]
fn a_partition_that_is_balanced_has_its_load_on_all_its_cpus() {
    let part = GroupSpec {
        name: "/rt".to_owned(),
        parent: Some(GroupId(0)),
        cpus: Some(cpus("2-3")),
        partition: Partition::Root,
        ..GroupSpec::default()
    };
    let root = GroupSpec { name: "/".to_owned(), ..GroupSpec::default() };
    let mut tasks = hogs("inside", 2, CpuSet::ALL, Policy::Other);
    tasks.iter_mut().for_each(|task| {
        task.group = GroupId(1);
        task.began_on = Some(CpuId(2));
    });
    tasks.extend(hogs("outside", 4, CpuSet::ALL, Policy::Other));
    let mut workload = Workload { groups: vec![root, part], tasks, ..Workload::default() };
    let (outcome, events) = go("linux-6.12", &Machine::flat(4), &workload).unwrap();
    for task in 0..6 {
        let (there, share) = if task < 2 { (cpus("2-3"), 1.0) } else { (cpus("0-1"), 0.5) };
        assert_eq!(used(&events, task).or(&there), there, "task {task}");
        let got = outcome.metrics.tasks[task].cpu_ns.0 as f64 / 2e9;
        assert!((got - share).abs() < 0.05, "task {task}: {got}");
    }
    let refused = go("rr", &Machine::flat(4), &workload).unwrap_err().to_string();
    assert!(refused.contains("CPUs 2-3 are a partition"), "{refused}");
    workload.tasks[5].affinity = cpus("3");
    let refused = go("linux-6.12", &Machine::flat(4), &workload).unwrap_err().to_string();
    assert!(refused.contains("leave none") || refused.contains("cpuset"), "{refused}");
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
    let machine = Machine { roles: isolated(cpus("2-3")), ..Machine::flat(4) };
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
    let machine = Machine { roles: isolated(cpus("1")), ..Machine::flat(2) };
    let workload =
        Workload { tasks: hogs("hog", 1, CpuSet::ALL, Policy::Other), ..Workload::default() };
    for name in ["linux-2.6.22", "xen-credit2", "edf", "rr"] {
        let refused = go(name, &machine, &workload).unwrap_err().to_string();
        assert!(refused.contains("CPUs 1 are isolated"), "{name}: {refused}");
    }
    for (text, part) in [("0-1", "leaves no CPU"), ("1-2", "cpu2 does not exist")] {
        let machine = Machine { roles: isolated(cpus(text)), ..Machine::flat(2) };
        let refused = go("linux-6.12", &machine, &workload).unwrap_err().to_string();
        assert!(refused.contains(part), "{text}: {refused}");
    }
}

/// Two CPUs with a tick of 1 us each ms; the second is one of `nohz_full`.
fn without_ticks() -> Machine {
    let costs = Costs { tick_ns: Ns::from_us(1), ..Costs::default() };
    let roles = CpuRoles { nohz_full: cpus("1"), ..CpuRoles::default() };
    Machine { hz: 1_000, costs, roles, ..Machine::flat(2) }
}

/// What the ticks of the second CPU cost in 2 s, in ticks, and the events; the same with every tick
/// delivered.
fn ticks(version: &str, tasks: Vec<TaskSpec>, groups: Vec<GroupSpec>) -> (u64, Vec<SchedEvent>) {
    let workload = Workload { tasks, groups, ..Workload::default() };
    let machine = without_ticks();
    let [few, every] = [false, true].map(|every_tick| {
        let scheduler = scheduler(version, 2);
        let options = RunOptions { every_tick, ..RunOptions::for_time(Ns::from_s(2)) };
        let mut events: Vec<SchedEvent> = Vec::new();
        let outcome = run(&machine, &workload, scheduler.as_ref(), &options, &mut events).unwrap();
        (outcome.metrics.cpus[1].overhead_ns.0 / 1_000, events)
    });
    assert!(few == every, "{version}: {} and {} ticks", few.0, every.0);
    few
}

#[test]
fn nohz_full_cpus_have_no_ticks_beside_one_task() {
    let pinned = |policy: Policy, count: usize| hogs("hog", count, cpus("1"), policy);
    for version in ["linux-3.10", "linux-4.19", "linux-6.1", "linux-6.12", "linux-7.2"] {
        let of = |tasks: Vec<TaskSpec>| ticks(version, tasks, Vec::new()).0;
        assert_eq!(of(pinned(Policy::Other, 1)), 0, "{version}: alone");
        assert!(of(pinned(Policy::Other, 2)) > 1_990, "{version}: two take turns");
        let fifo = of(pinned(Policy::Fifo(1), 2));
        assert_eq!(fifo > 1_990, version == "linux-3.10", "{version}: FIFO, {fifo}");
        assert!(of(pinned(Policy::Rr(1), 2)) > 1_800, "{version}: RR takes turns");
        // Every 10 ms another task computes for 3 ms, which takes 6 ms beside the hog.
        let mut tasks = pinned(Policy::Other, 1);
        let program = Program::periodic(Ns::from_ms(10), Ns::from_ms(3), Ns::ZERO);
        tasks.push(TaskSpec { affinity: cpus("1"), ..TaskSpec::new("now and then", program) });
        let some = of(tasks);
        assert!((400..1_700).contains(&some), "{version}: {some}");
    }
}

/// Since 6.6 a limit keeps the tick that ends its share; before, the tick that comes once a second
/// finds that it is used up.
#[test]
fn a_limit_keeps_the_tick_of_a_nohz_full_cpu() {
    let root = GroupSpec { name: "/".to_owned(), ..GroupSpec::default() };
    let bandwidth = Bandwidth { quota: Ns::from_ms(90), period: Ns::from_ms(100), burst: Ns::ZERO };
    let limited = GroupSpec {
        name: "/batch".to_owned(),
        parent: Some(GroupId(0)),
        bandwidth: Some(bandwidth),
        ..GroupSpec::default()
    };
    let throttled = |event: &&SchedEvent| matches!(event.kind, EventKind::Throttle { .. });
    for (version, kept) in [("linux-6.1", false), ("linux-6.6", true), ("linux-6.18", true)] {
        let mut tasks = hogs("hog", 1, cpus("1"), Policy::Other);
        tasks[0].group = GroupId(1);
        let (counted, events) = ticks(version, tasks, vec![root.clone(), limited.clone()]);
        assert_eq!(counted > 1_500, kept, "{version}: {counted}");
        let times = events.iter().filter(throttled).count();
        assert!(if kept { times == 20 } else { (1..=2).contains(&times) }, "{version}: {times}");
    }
}

#[test]
fn what_does_not_know_cpus_without_ticks_refuses_them() {
    let workload =
        Workload { tasks: hogs("hog", 1, CpuSet::ALL, Policy::Other), ..Workload::default() };
    for name in ["linux-2.6.32", "linux-3.0", "xen-credit2", "edf"] {
        let refused = go(name, &without_ticks(), &workload).unwrap_err().to_string();
        assert!(refused.contains("CPUs 1 are to run without ticks"), "{name}: {refused}");
    }
    let mut machine = without_ticks();
    machine.roles.nohz_full = cpus("0-1");
    let refused = go("linux-6.12", &machine, &workload).unwrap_err().to_string();
    assert!(refused.contains("leaves no CPU for the kernel's own work"), "{refused}");
}
