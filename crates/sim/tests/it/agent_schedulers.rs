//! The schedulers written for agents, in the simulated kernel, with zero costs.

use crate::common::{periodic, simulate};
use proptest::prelude::*;
use schedlab_model::{
    Amount, CpuId, CpuSet, EventKind, Ns, Op, Policy, Program, SchedEvent, Start, TaskSpec,
    Workload,
};
use schedlab_sim::{Machine, Metrics, RunOptions, run};

const AGENTS: &[&str] = &[
    "fifo-per-cpu",
    "fifo-centralized",
    "fifo-centralized:slice_ns=3ms",
    "shinjuku",
    "filter",
    "layers",
];

/// Runs once for `length` from `at` on.
fn once(name: &str, at: Ns, length: Ns) -> TaskSpec {
    let mut task = TaskSpec::new(name, Program::once([Op::Run(Amount::Fixed(length))]));
    task.start = Start::At(at);
    task
}

fn batch_hog(name: &str) -> TaskSpec {
    let mut task = TaskSpec::new(name, Program::hog());
    task.policy = Policy::Batch;
    task
}

fn metrics(spec: &str, cpus: usize, tasks: Vec<TaskSpec>, duration: Ns) -> Metrics {
    simulate(spec, cpus, &Workload { tasks, ..Workload::default() }, duration).metrics
}

/// Returns the tasks that ran on CPU 0, and from when.
fn switches(spec: &str, tasks: Vec<TaskSpec>, duration: Ns) -> Vec<(u64, Option<u32>)> {
    let workload = Workload { tasks, ..Workload::default() };
    let scheduler = crate::common::scheduler(spec, 1);
    let mut events: Vec<SchedEvent> = Vec::new();
    let options = RunOptions::for_time(duration);
    run(&Machine::flat(1), &workload, &*scheduler, &options, &mut events).expect("a clean run");
    let switch = |event: &SchedEvent| match event.kind {
        EventKind::Switch { next, .. } => Some((event.at.0 / 1_000, next.map(|task| task.0))),
        _ => None,
    };
    events.iter().filter_map(switch).collect()
}

#[test]
fn first_in_first_out_runs_each_to_its_end() {
    let tasks = || {
        vec![
            once("a", Ns(0), Ns::from_ms(10)),
            once("b", Ns::from_ms(1), Ns::from_ms(2)),
            once("c", Ns::from_ms(2), Ns::from_ms(2)),
        ]
    };
    for spec in ["fifo-centralized", "fifo-per-cpu"] {
        let got = switches(spec, tasks(), Ns::from_ms(20));
        assert_eq!(
            got,
            [(0, Some(0)), (10_000, Some(1)), (12_000, Some(2)), (14_000, None)],
            "{spec}"
        );
    }
}

/// Found by `cargo xtask stress` (seed 12810): a task in the queue of another CPU than that of its
/// creation was nowhere said to be there until it ran, which behind a hog is never.
#[test]
fn a_task_in_another_cpus_queue_is_seen_there() {
    for spec in ["fifo-per-cpu", "rr"] {
        let tasks = ["a", "b", "c", "d"].map(|name| TaskSpec::new(name, Program::hog()));
        let workload = Workload { tasks: tasks.into(), ..Workload::default() };
        let mut events: Vec<SchedEvent> = Vec::new();
        let options = RunOptions::for_time(Ns::from_ms(1));
        run(
            &Machine::flat(2),
            &workload,
            &*crate::common::scheduler(spec, 2),
            &options,
            &mut events,
        )
        .unwrap();
        let place = |event: &SchedEvent| match event.kind {
            EventKind::Migrate { task, to, .. } => Some((task.0, to.0)),
            _ => None,
        };
        assert_eq!(events.iter().filter_map(place).collect::<Vec<_>>(), [(1, 1), (3, 1)], "{spec}");
    }
}

#[test]
fn a_slice_gives_turns() {
    let hogs = vec![TaskSpec::new("a", Program::hog()), TaskSpec::new("b", Program::hog())];
    let got = switches("fifo-centralized:slice_ns=3ms", hogs, Ns::from_ms(10));
    assert_eq!(got, [(0, Some(0)), (3_000, Some(1)), (6_000, Some(0)), (9_000, Some(1))]);
}

#[test]
fn a_short_request_waits_for_a_quantum_at_most() {
    let tasks = || {
        vec![once("scan", Ns(0), Ns::from_ms(10)), once("get", Ns::from_us(1_030), Ns::from_us(4))]
    };
    let got = switches("shinjuku:quantum=30us", tasks(), Ns::from_ms(20));
    assert_eq!(got, [(0, Some(0)), (1_050, Some(1)), (1_054, Some(0)), (10_004, None)]);
    assert_eq!(switches("fifo-centralized", tasks(), Ns::from_ms(20))[1], (10_000, Some(1)));
}

#[test]
fn batch_gets_the_cpus_that_no_request_wants_and_loses_them_at_once() {
    for spec in ["shinjuku", "layers"] {
        let got = switches(
            spec,
            vec![batch_hog("batch"), once("get", Ns::from_ms(1), Ns::from_us(4))],
            Ns::from_ms(2),
        );
        assert_eq!(got, [(0, Some(0)), (1_000, Some(1)), (1_004, Some(0))], "{spec}");
    }
}

#[test]
fn batch_tasks_take_turns() {
    let got = switches("shinjuku", vec![batch_hog("a"), batch_hog("b")], Ns::from_ms(12));
    assert_eq!(got, [(0, Some(0)), (5_000, Some(1)), (10_000, Some(0))]);
}

#[test]
fn a_latency_task_takes_a_batch_tasks_cpu_at_once() {
    let mut server = periodic("server", 1, 10, Ns::from_ms(1));
    server.policy = Policy::Other;
    let got = metrics("layers", 1, vec![batch_hog("batch"), server], Ns::from_s(1));
    assert_eq!(got.tasks[1].wake_latency.max(), Ns::ZERO);
    assert_eq!(got.tasks[1].cpu_ns, Ns::from_ms(100));
    assert_eq!(got.tasks[0].cpu_ns, Ns::from_ms(900));
}

#[test]
fn a_long_function_falls_through_the_filter() {
    let tasks =
        vec![once("long", Ns(0), Ns::from_ms(100)), once("short", Ns::from_ms(12), Ns::from_ms(1))];
    let got = switches("filter:slice_ns=10ms", tasks, Ns::from_ms(200));
    // The long one is in the second level from 10 ms on: the short one takes its CPU the moment it
    // comes.
    assert!(got.contains(&(12_000, Some(1))) && got.contains(&(13_000, Some(0))), "{got:?}");
}

#[test]
fn the_filters_slice_follows_the_arrivals() {
    // Arrivals 2 ms apart on one CPU, window of 4: the slice becomes 2 ms. The fifth to arrive runs
    // 5 ms, and is overtaken after its first 2 ms by those that arrive while it runs.
    let mut tasks: Vec<TaskSpec> =
        (0..5).map(|i| once("f", Ns::from_ms(2 * i), Ns::from_us(100))).collect();
    tasks.push(once("long", Ns::from_ms(10), Ns::from_ms(5)));
    tasks.push(once("late", Ns::from_us(12_000), Ns::from_us(100)));
    let got = switches("filter:window=4", tasks, Ns::from_ms(40));
    assert!(got.contains(&(10_000, Some(5))) && got.contains(&(12_000, Some(6))), "{got:?}");
}

#[test]
fn a_preempted_task_does_not_wait_beside_an_idle_cpu() {
    // CPU 0 runs the batch task; a pinned request takes CPU 0, and CPU 1 is free.
    let mut pinned = once("pinned", Ns::from_ms(1), Ns::from_ms(5));
    pinned.affinity = CpuSet::single(CpuId(0));
    let got = metrics("layers", 2, vec![batch_hog("batch"), pinned], Ns::from_ms(10));
    assert_eq!(got.tasks[0].cpu_ns, Ns::from_ms(10));
}

#[test]
fn deadlines_are_refused_by_name() {
    for spec in AGENTS {
        if *spec != "fifo-per-cpu" {
            let policy = "deadline:1ms/2ms/2ms".parse().unwrap();
            assert!(crate::common::scheduler(spec, 1).refuses(policy).is_some(), "{spec}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(schedlab_testing::cases(40)))]

    /// One queue for all: no CPU idles while a task that may run there waits; and no batch task
    /// runs while a request waits that may run there.
    #[test]
    fn centralised_schedulers_conserve_work(seed in 1_u64..1_000, cpus in 1_usize..5, count in 1_u64..12) {
        let task = |i: u64| {
            let length = Ns::from_us(50 + (seed * 37 + i * 101) % 3_000);
            let pause = Ns::from_us(100 + (seed * 53 + i * 211) % 4_000);
            let mut task = TaskSpec::new(format!("t{i}"), Program::closed(length, pause));
            if (seed + i).is_multiple_of(3) { task.policy = Policy::Idle }
            task
        };
        let tasks: Vec<TaskSpec> = (0..count).map(task).collect();
        for spec in &AGENTS[1..] {
            let got = metrics(spec, cpus, tasks.clone(), Ns::from_ms(200));
            prop_assert_eq!(got.work_conservation.violated_ns, Ns::ZERO, "{}", spec);
        }
    }
}
