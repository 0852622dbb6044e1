//! Linux control groups: weights, `cpu.max`, autogroup, on one and on several CPUs.

use proptest::prelude::*;
use schedlab_model::{
    Bandwidth, CpuId, CpuSet, EventKind, GroupId, GroupSpec, Nice, Ns, Program, SchedEvent, TaskId,
    TaskSpec, Topology, Workload,
};
use schedlab_scheduler::registry;
use schedlab_sim::{Machine, Outcome, RunOptions, run};

const VERSIONS: [&str; 5] = ["linux-4.19", "linux-5.10", "linux-6.1", "linux-6.12", "linux-6.18"];

fn simulate(
    spec: &str,
    cpus: usize,
    workload: &Workload,
    duration: Ns,
) -> (Outcome, Vec<SchedEvent>) {
    let machine = Machine { topology: Topology::flat(cpus), ..Machine::flat(1) };
    let traces = [false, true].map(|every_tick| {
        let scheduler = registry::build(&spec.parse().unwrap(), cpus).unwrap();
        let mut events = Vec::new();
        let options = RunOptions { every_tick, ..RunOptions::for_time(duration) };
        let outcome = run(&machine, workload, &*scheduler, &options, &mut events).unwrap();
        (outcome, events)
    });
    let [elided, every] = traces;
    let part = elided.1.iter().zip(&every.1).position(|(a, b)| a != b);
    if let Some(at) = part {
        panic!("{spec}: left-out ticks mattered: {:?} / {:?}", elided.1[at], every.1[at]);
    }
    assert_eq!(elided.1.len(), every.1.len());
    elided
}

fn root() -> GroupSpec {
    GroupSpec { name: "/".to_owned(), ..GroupSpec::default() }
}

fn group(name: &str, parent: u32, weight: Option<u32>) -> GroupSpec {
    GroupSpec {
        name: name.to_owned(),
        parent: Some(GroupId(parent)),
        weight,
        ..GroupSpec::default()
    }
}

fn limited(name: &str, parent: u32, quota_ms: u64) -> GroupSpec {
    let bandwidth =
        Bandwidth { quota: Ns::from_ms(quota_ms), period: Ns::from_ms(100), burst: Ns::ZERO };
    GroupSpec { bandwidth: Some(bandwidth), ..group(name, parent, None) }
}

fn hog(group: u32) -> TaskSpec {
    TaskSpec { group: GroupId(group), ..TaskSpec::new("hog", Program::hog()) }
}

fn share(outcome: &Outcome, task: u32) -> f64 {
    outcome.metrics.share(TaskId(task))
}

/// On and off times of a task in milliseconds, from its switches.
fn runs(events: &[SchedEvent], task: u32) -> Vec<(u64, u64)> {
    let mut runs = Vec::new();
    let mut since = None;
    for event in events {
        let EventKind::Switch { prev, next, .. } = event.kind else { continue };
        if prev == Some(TaskId(task)) && next != prev {
            runs.push((since.take().unwrap_or(0), event.at.0));
        }
        if next == Some(TaskId(task)) {
            since = Some(event.at.0);
        }
    }
    runs
}

/// Found by `cargo xtask stress` (seed 31415940): the fair server lets a fair task of a group
/// without run time go first. Since 6.18 that task leaves when it is chosen; the real-time task
/// runs on then, and the CPU does not idle.
#[test]
fn a_real_time_task_runs_when_the_fair_servers_task_has_no_run_time() {
    for version in ["linux-6.12", "linux-6.18"] {
        let mut control = hog(0);
        control.policy = schedlab_model::Policy::Fifo(39);
        let workload = Workload {
            groups: vec![root(), limited("/g", 0, 1)],
            tasks: vec![hog(1), control],
            ..Workload::default()
        };
        let (outcome, _) = simulate(version, 1, &workload, Ns::from_s(3));
        let ran = outcome.metrics.tasks.iter().map(|task| task.cpu_ns).sum::<Ns>();
        assert_eq!(ran, Ns::from_s(3), "{version}: {:?}", share(&outcome, 1));
    }
}

/// Found by `cargo xtask stress` (seed 4485): `cpu.max` limits fair tasks only. Until 6.17 a
/// real-time task that woke on an idle CPU, while its group was throttled there, asked for no
/// decision.
#[test]
fn real_time_tasks_of_a_throttled_group_run() {
    for version in ["linux-6.1", "linux-6.6", "linux-6.12", "linux-6.18"] {
        let mut control = hog(1);
        control.policy = schedlab_model::Policy::Fifo(39);
        let (period, work) = (Ns::from_ms(20), Ns::from_us(10));
        control.program = Program::periodic(period, work, Ns::ZERO).into();
        let workload = Workload {
            groups: vec![root(), limited("/g", 0, 1)],
            tasks: vec![hog(1), control],
            ..Workload::default()
        };
        let (outcome, _) = simulate(version, 1, &workload, Ns::from_ms(1_000));
        let (hog, control) = (&outcome.metrics.tasks[0], &outcome.metrics.tasks[1]);
        assert!(hog.throttled_ns > Ns::from_ms(900), "{version}: {}", hog.throttled_ns);
        assert_eq!(control.wake_latency.max(), Ns::ZERO, "{version}");
        assert!(control.cpu_ns >= work * 49, "{version}: {}", control.cpu_ns);
    }
}

/// Found by `cargo xtask stress` (seed 716): all tasks of an idle group count as idle above it,
/// also when the group is throttled and let go.
#[test]
fn an_idle_group_may_have_a_limit() {
    for version in ["linux-6.1", "linux-6.6", "linux-6.12", "linux-6.18"] {
        let groups = vec![root(), GroupSpec { idle: true, ..limited("/batch", 0, 10) }];
        let mut sleeper = hog(1);
        let pause = schedlab_model::Op::Sleep(schedlab_model::Amount::Fixed(Ns::from_us(2)));
        let work = schedlab_model::Op::Run(schedlab_model::Amount::Fixed(Ns::from_us(280)));
        sleeper.program = Program::forever([work, pause]).into();
        let workload = Workload { groups, tasks: vec![sleeper], ..Workload::default() };
        let (outcome, _) = simulate(version, 1, &workload, Ns::from_ms(1_000));
        let ran = outcome.metrics.tasks[0].cpu_ns;
        assert!((Ns::from_ms(95)..Ns::from_ms(125)).contains(&ran), "{version}: ran {ran}");
    }
}

#[test]
fn a_hog_with_half_a_cpu_runs_50_on_50_off() {
    for version in VERSIONS {
        let workload = Workload {
            groups: vec![root(), limited("/batch", 0, 50)],
            tasks: vec![hog(1)],
            ..Workload::default()
        };
        let (outcome, events) = simulate(version, 1, &workload, Ns::from_s(5));
        assert!((share(&outcome, 0) - 0.5).abs() < 0.01, "{version}: {}", share(&outcome, 0));
        let task = &outcome.metrics.tasks[0];
        assert_eq!(task.wait_ns, Ns::ZERO, "{version}: throttled is not waiting");
        let throttled = task.throttled_ns.0 as f64 / 5e9;
        assert!((throttled - 0.5).abs() < 0.01, "{version}: {throttled}");
        // Slices of 5 ms checked at ticks of 4 ms: an overrun of up to 4 ms is paid back in the
        // next period.
        for (from, to) in runs(&events, 0).into_iter().skip(1) {
            assert_eq!(from % 100_000_000, 0, "{version}: starts at the refill");
            assert!((44..=52).contains(&((to - from) / 1_000_000)), "{version}: {from} {to}");
        }
    }
}

#[test]
fn weights_share_one_cpu_and_nested_ones_too() {
    for version in VERSIONS {
        // 1 : 2 : 3, the last divided 1 : 1 between a task and a group of two tasks.
        let groups = vec![
            root(),
            group("/a", 0, Some(512)),
            group("/b", 0, Some(1024)),
            group("/c", 0, Some(1536)),
            group("/c/d", 3, Some(1024)),
        ];
        let tasks = vec![hog(1), hog(2), hog(3), hog(4), hog(4)];
        let workload = Workload { groups, tasks, ..Workload::default() };
        let (outcome, _) = simulate(version, 1, &workload, Ns::from_s(10));
        let expected = [1.0 / 6.0, 2.0 / 6.0, 1.5 / 6.0, 0.75 / 6.0, 0.75 / 6.0];
        for (task, want) in expected.into_iter().enumerate() {
            let got = share(&outcome, task as u32);
            assert!((got - want).abs() < 0.012, "{version}: task {task} {got:.4} for {want:.4}");
        }
    }
}

#[test]
fn weights_hold_over_several_cpus() {
    for version in VERSIONS {
        let groups = vec![
            root(),
            group("/a", 0, Some(512)),
            group("/b", 0, Some(1024)),
            group("/c", 0, Some(1536)),
        ];
        let tasks = (0..12).map(|i| hog(1 + i / 4)).collect();
        let workload = Workload { groups, tasks, ..Workload::default() };
        let (outcome, _) = simulate(version, 4, &workload, Ns::from_s(10));
        let of = |group: u32| (0..4).map(|i| share(&outcome, group * 4 + i)).sum::<f64>() / 4.0;
        let got = [of(0), of(1), of(2)];
        for (got, want) in got.into_iter().zip([1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0]) {
            assert!((got - want).abs() < 0.03, "{version}: {got:.3} for {want:.3}");
        }
    }
}

/// On one node the weights hold whatever was declared first.
#[test]
fn weights_hold_on_one_node_in_both_orders() {
    for (cpus, first) in [8, 16, 32].into_iter().flat_map(|cpus| [(cpus, 100), (cpus, 50)]) {
        let group_of = |name, weight: u32| group(name, 0, Some(weight * 1024 / 100));
        let tasks = (0..2 * cpus as u32).map(|task| hog(1 + task / cpus as u32)).collect();
        let workload = Workload {
            groups: vec![root(), group_of("/a", first), group_of("/b", 150 - first)],
            tasks,
            ..Workload::default()
        };
        let (outcome, _) = simulate("linux-6.1", cpus, &workload, Ns::from_s(3));
        let got: f64 = (0..cpus as u32).map(|task| share(&outcome, task)).sum();
        let due = f64::from(first) / 150.0 * cpus as f64;
        assert!((got - due).abs() <= 0.03 * cpus as f64, "{cpus} CPUs, {first}: {got}, not {due}");
    }
}

/// Weights 10 and 100, a hog of each on every CPU: the small group gets 1/11 however many CPUs
/// there are. With HRTICK the runs of 7.2 end before a tick; its timer shares the group's weight
/// out as a tick does.
#[test]
fn weights_hold_where_runs_end_before_a_tick() {
    let mut found = Vec::new();
    for version in ["linux-7.2", "linux-6.18", "linux-7.2:features.HRTICK=off"] {
        for cpus in [2, 4, 8] {
            let groups =
                vec![root(), group("/small", 0, Some(102)), group("/large", 0, Some(1024))];
            let tasks = (0..2 * cpus as u32)
                .map(|i| TaskSpec { affinity: CpuSet::single(CpuId(i / 2)), ..hog(1 + i % 2) })
                .collect();
            let workload = Workload { groups, tasks, ..Workload::default() };
            let (outcome, _) = simulate(version, cpus, &workload, Ns::from_s(10));
            let small = (0..cpus as u32).map(|i| share(&outcome, 2 * i)).sum::<f64>() / cpus as f64;
            found.push((version, cpus, small));
        }
    }
    assert!(found.iter().all(|(.., small)| (0.084..0.094).contains(small)), "{found:.3?}");
}

#[test]
fn an_idle_group_gets_the_rest() {
    // cpu.idle came with Linux 5.15.
    for version in &VERSIONS[2..] {
        let idle = GroupSpec { idle: true, ..group("/idle", 0, None) };
        let workload = Workload {
            groups: vec![root(), idle],
            tasks: vec![hog(1), hog(0)],
            ..Workload::default()
        };
        let (outcome, _) = simulate(version, 1, &workload, Ns::from_s(10));
        assert!(
            (share(&outcome, 0) - 3.0 / 1027.0).abs() < 0.002,
            "{version}: {}",
            share(&outcome, 0)
        );
    }
}

/// Two sessions: one task nice 0, three tasks nice 19. As sessions they share half and half;
/// without autogroup the weights decide.
#[test]
fn sessions_share_regardless_of_nice() {
    for version in VERSIONS {
        let session = |name: &str| GroupSpec { autogroup: true, ..group(name, 0, None) };
        let mut tasks = vec![hog(1), hog(2), hog(2), hog(2)];
        tasks[1..].iter_mut().for_each(|task| task.nice = Nice::new(19).unwrap());
        let workload = Workload {
            groups: vec![root(), session("/s1"), session("/s2")],
            tasks,
            ..Workload::default()
        };
        let (outcome, _) = simulate(version, 1, &workload, Ns::from_s(8));
        assert!((share(&outcome, 0) - 0.5).abs() < 0.01, "{version}: {}", share(&outcome, 0));
        let off = format!("{version}:sched_autogroup_enabled=off");
        let (outcome, _) = simulate(&off, 1, &workload, Ns::from_s(8));
        let want = 1024.0 / (1024.0 + 3.0 * 15.0);
        assert!(
            (share(&outcome, 0) - want).abs() < 0.012,
            "{off}: {} for {want}",
            share(&outcome, 0)
        );
    }
}

#[test]
fn the_tighter_of_two_nested_limits_holds() {
    for version in VERSIONS {
        for (outer, inner, want) in [(60, 30, 0.3), (30, 60, 0.3)] {
            let groups = vec![root(), limited("/a", 0, outer), limited("/a/b", 1, inner)];
            let workload = Workload { groups, tasks: vec![hog(2), hog(0)], ..Workload::default() };
            let (outcome, _) = simulate(version, 1, &workload, Ns::from_s(5));
            let got = share(&outcome, 0);
            assert!((got - want).abs() < 0.02, "{version} {outer}/{inner}: {got}");
            assert!(
                (share(&outcome, 1) - (1.0 - got)).abs() < 0.001,
                "{version}: the rest is used"
            );
        }
    }
}

#[test]
fn sleepers_stay_below_their_quota() {
    for version in VERSIONS {
        // Wants 60 % of a CPU, gets 20 %: each wakeup meets an empty pool.
        let sleeper = TaskSpec {
            group: GroupId(1),
            ..TaskSpec::new("sleeper", Program::closed(Ns::from_us(600), Ns::from_us(400)))
        };
        let workload = Workload {
            groups: vec![root(), limited("/a", 0, 20)],
            tasks: vec![sleeper],
            ..Workload::default()
        };
        let (outcome, _) = simulate(version, 1, &workload, Ns::from_s(5));
        let got = share(&outcome, 0);
        assert!((0.19..0.215).contains(&got), "{version}: {got}");
        assert!(outcome.metrics.tasks[0].throttled_ns > Ns::from_s(3), "{version}");
    }
}

/// Commit de53fd7aedb1 (5.4): threads on many CPUs that each use little of the slice that their CPU
/// took. What a CPU keeps of it (1 ms) was void at the next refill, so a group was throttled that
/// wanted less than its quota. (From 3.16 to 4.17 it was not, by a fault.)
#[test]
fn sleepers_lose_what_they_took_before_5_4() {
    let throttled = |version: &str| {
        // 0.45 ms each 50 ms on each of 8 CPUs, one after another: 7.2 of 10 ms. What is kept
        // makes 11.6 of it.
        let tasks = (0..8).map(|cpu: u32| TaskSpec {
            group: GroupId(1),
            affinity: CpuSet::single(CpuId::from(cpu as usize)),
            ..TaskSpec::new(
                "worker",
                Program::periodic(
                    Ns::from_ms(50),
                    Ns::from_us(450),
                    Ns::from_ms(6 * u64::from(cpu)),
                ),
            )
        });
        let workload = Workload {
            groups: vec![root(), limited("/a", 0, 10)],
            tasks: tasks.collect(),
            ..Workload::default()
        };
        let (outcome, _) = simulate(version, 8, &workload, Ns::from_s(10));
        outcome.metrics.tasks.iter().map(|task| task.throttled_ns).sum::<Ns>()
    };
    for version in ["linux-3.10", "linux-4.19"] {
        assert!(throttled(version) > Ns::from_s(1), "{version}: {}", throttled(version));
    }
    for version in ["linux-4.9", "linux-5.10", "linux-6.1"] {
        // Of the first period.
        assert!(throttled(version) < Ns::from_ms(500), "{version}: {}", throttled(version));
    }
}

#[test]
fn what_a_kernel_did_not_have_is_refused() {
    let with = |limit: GroupSpec| Workload {
        groups: vec![root(), limit],
        tasks: vec![hog(1)],
        ..Workload::default()
    };
    let refused = |version: &str, workload: &Workload| {
        let scheduler = registry::build(&version.parse().unwrap(), 1).unwrap();
        let options = RunOptions::for_time(Ns::from_ms(10));
        let ran = run(&Machine::flat(1), workload, &*scheduler, &options, &mut ());
        ran.err().map_or_else(String::new, |error| error.to_string())
    };
    let limit = with(limited("/a", 0, 50));
    let mut saves = limited("/a", 0, 50);
    saves.bandwidth.as_mut().unwrap().burst = Ns::from_ms(10);
    let saves = with(saves);
    assert!(refused("linux-3.0", &limit).contains("cpu.max, which came with Linux 3.2"));
    assert_eq!(refused("linux-3.10", &limit), "");
    assert!(refused("linux-5.10", &saves).contains("cpu.max.burst, which came with Linux 5.14"));
    assert_eq!(refused("linux-6.1", &saves), "");
}

#[test]
fn a_quota_of_two_cpus_is_shared_by_four() {
    for version in VERSIONS {
        let workload = Workload {
            groups: vec![root(), limited("/a", 0, 200)],
            tasks: (0..4).map(|_| hog(1)).collect(),
            ..Workload::default()
        };
        let (outcome, _) = simulate(version, 4, &workload, Ns::from_s(5));
        let sum: f64 = (0..4).map(|task| share(&outcome, task)).sum();
        assert!((1.9..2.1).contains(&sum), "{version}: {sum}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(schedlab_testing::cases(40)))]

    /// Random groups, limits and tasks on one to three CPUs: no group gets more than its limit
    /// allows (quota for each period, and what slices and ticks overrun), affinity holds, nothing
    /// hangs, and left-out ticks do not matter.
    #[test]
    fn no_group_exceeds_its_limit(
        groups in proptest::collection::vec((0u32..3, prop::option::of(5u64..150), 100u32..3000), 1..5),
        tasks in proptest::collection::vec((0u32..6, 200u64..30_000, 0u64..20_000, any::<u8>()), 1..12),
        cpus in 1usize..4,
        version in 0usize..3,
    ) {
        let mut specs = vec![root()];
        for (i, (parent, quota, weight)) in groups.iter().enumerate() {
            let parent = (*parent).min(i as u32);
            let mut spec = match quota {
                Some(quota) => limited(&format!("/g{i}"), parent, *quota),
                None => group(&format!("/g{i}"), parent, None),
            };
            spec.weight = Some(*weight);
            specs.push(spec);
        }
        let task = |(group, work, sleep, bits): &(u32, u64, u64, u8)| {
            let program = if *sleep < 1000 {
                Program::hog()
            } else {
                Program::closed(Ns::from_us(*work), Ns::from_us(*sleep))
            };
            let affinity = if *bits < 64 { CpuSet::single(CpuId(u32::from(*bits) % cpus as u32)) } else { CpuSet::ALL };
            let group = GroupId(*group % specs.len() as u32);
            TaskSpec { group, affinity, ..TaskSpec::new("t", program) }
        };
        let tasks: Vec<TaskSpec> = tasks.iter().map(task).collect();
        let workload = Workload { groups: specs.clone(), tasks: tasks.clone(), ..Workload::default() };
        let seconds = 3;
        let (outcome, _) = simulate(VERSIONS[version], cpus, &workload, Ns::from_s(seconds));
        for (g, spec) in specs.iter().enumerate() {
            let Some(limit) = spec.bandwidth else { continue };
            let below = |mut group: usize| loop {
                if group == g {
                    return true;
                }
                match specs[group].parent {
                    Some(parent) => group = parent.index(),
                    None => return false,
                }
            };
            let used: u64 = (0..tasks.len())
                .filter(|&t| below(tasks[t].group.index()))
                .map(|t| outcome.metrics.tasks[t].cpu_ns.0)
                .sum();
            let allowed = limit.quota.0 * (seconds * 10 + 1) + cpus as u64 * 9_000_000;
            prop_assert!(used <= allowed, "group {}: {} of {}", g, used, allowed);
        }
    }
}
