//! The topology-aware Search policy, in the simulated kernel with zero costs.

use proptest::prelude::*;
use schedlab_model::{
    Amount, CpuId, CpuSet, EventKind, Nice, Ns, Op, Program, SchedEvent, Start, TaskId, TaskSpec,
    Topology, Workload,
};
use schedlab_sim::{Machine, RunOptions, run};

/// Two sockets of two CCX of two cores.
fn machine() -> Machine {
    Machine { topology: Topology::regular(2, 2, 2, 1), ..Machine::flat(8) }
}

fn go(
    spec: &str,
    machine: &Machine,
    tasks: Vec<TaskSpec>,
    duration: Ns,
) -> (Vec<SchedEvent>, Vec<Ns>) {
    let workload = Workload { tasks, ..Workload::default() };
    let scheduler = crate::common::scheduler(spec, machine.topology.cpus());
    let mut events: Vec<SchedEvent> = Vec::new();
    let outcome =
        run(machine, &workload, &*scheduler, &RunOptions::for_time(duration), &mut events);
    let metrics = outcome.expect("a clean run").metrics;
    (events, metrics.tasks.iter().map(|task| task.cpu_ns).collect())
}

/// When and where a task was switched in.
fn entries(events: &[SchedEvent], task: u32) -> Vec<(u64, u32)> {
    let entry = |event: &SchedEvent| match event.kind {
        EventKind::Switch { next: Some(next), .. } if next == TaskId(task) => {
            Some((event.at.0 / 1_000, event.cpu.0))
        }
        _ => None,
    };
    events.iter().filter_map(entry).collect()
}

fn pinned(name: &str, cpu: u32, start: Ns) -> TaskSpec {
    let mut task = TaskSpec::new(name, Program::hog());
    (task.affinity, task.start) = (CpuSet::single(CpuId(cpu)), Start::At(start));
    task
}

/// Runs on CPU 0 for 100 us, sleeps until 1 ms, runs on.
fn traveller() -> TaskSpec {
    let us = |us| Amount::Fixed(Ns::from_us(us));
    TaskSpec::new("t", Program::once([Op::Run(us(100)), Op::Sleep(us(900)), Op::Run(us(100))]))
}

#[test]
fn a_woken_thread_goes_to_the_nearest_idle_cpu() {
    let busy = |cpus: &[u32]| -> (u64, u32) {
        let mut tasks = vec![traveller()];
        tasks.extend(cpus.iter().map(|cpu| pinned("hog", *cpu, Ns::from_us(500))));
        let (events, _) = go("search", &machine(), tasks, Ns::from_ms(2));
        let entries = entries(&events, 0);
        assert_eq!(entries[0], (0, 0));
        entries[1]
    };
    assert_eq!(busy(&[]), (1_000, 0), "home");
    assert_eq!(busy(&[0]), (1_000, 1), "its CCX");
    assert_eq!(busy(&[0, 1]), (1_000, 2), "its node");
    assert_eq!(busy(&[0, 1, 2, 3]), (1_000, 4), "anywhere");
}

#[test]
fn a_patient_thread_waits_for_its_ccx() {
    let mut tasks = vec![traveller()];
    for cpu in [0, 1] {
        let mut hog = pinned("hog", cpu, Ns::from_us(500));
        let work = Op::Run(Amount::Fixed(Ns::from_us(550 + 100 * u64::from(cpu))));
        hog.program = Program::once([work]).into();
        tasks.push(hog);
    }
    let entered =
        |spec: &str| entries(&go(spec, &machine(), tasks.clone(), Ns::from_ms(2)).0, 0)[1];
    assert_eq!(entered("search"), (1_000, 2));
    assert_eq!(entered("search:ccx_wait_ns=100us"), (1_050, 0), "its core is free 50 us later");
    assert_eq!(entered("search:ccx_wait_ns=20us"), (1_020, 2), "patience has an end");
}

#[test]
fn a_free_cpu_prefers_a_task_from_nearby() {
    // Each is at home at one of two CPUs when a pinned one comes to share it.
    let mut tasks = Vec::new();
    for cpu in [4, 0] {
        let mut task = TaskSpec::new("t", Program::hog());
        task.affinity = [CpuId(0), CpuId(4)].into_iter().collect();
        task.start = Start::At(Ns::ZERO);
        tasks.push(task);
        tasks.push(pinned("hog", cpu, Ns::from_us(1)));
    }
    let (events, ran) = go("search", &machine(), tasks, Ns::from_ms(100));
    let moves =
        events.iter().filter(|event| matches!(event.kind, EventKind::Migrate { .. })).count();
    assert!(moves <= 4, "{moves} migrations: they stay where their caches are");
    assert!(ran.iter().all(|ran| ran.0.abs_diff(50_000_000) <= 2_000_000), "{ran:?}");
}

#[test]
fn nice_values_count_with_priorities_only() {
    let tasks = || {
        let mut tasks =
            vec![TaskSpec::new("a", Program::hog()), TaskSpec::new("b", Program::hog())];
        tasks[1].nice = Nice::new(5).expect("in range");
        tasks
    };
    let share =
        |spec: &str| go(spec, &Machine::flat(1), tasks(), Ns::from_s(1)).1[0].0 as f64 / 1e9;
    assert!((share("search") - 0.5).abs() < 0.01);
    let want = 1024.0 / (1024.0 + 335.0);
    assert!(
        (share("search:priorities=on") - want).abs() < 0.01,
        "{}",
        share("search:priorities=on")
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Weighted shares of tasks that never sleep, and no CPU idles while a task waits that is not
    /// patient.
    #[test]
    fn shares_follow_the_weights(nices in prop::collection::vec(-5i8..6, 2..6), wait in prop::bool::ANY) {
        let task = |nice: &i8| {
            let mut task = TaskSpec::new("t", Program::hog());
            task.nice = Nice::new(*nice).expect("in range");
            task
        };
        let spec = if wait { "search:priorities=on,ccx_wait_ns=50us" } else { "search:priorities=on" };
        let (_, ran) = go(spec, &Machine::flat(1), nices.iter().map(task).collect(), Ns::from_s(2));
        let weights: Vec<f64> = nices.iter().map(|nice| 1.25f64.powi(-i32::from(*nice))).collect();
        let sum: f64 = weights.iter().sum();
        prop_assert!(ran.iter().copied().sum::<Ns>() == Ns::from_s(2));
        for (ran, weight) in ran.iter().zip(weights) {
            let (got, want) = (ran.0 as f64 / 2e9, weight / sum);
            prop_assert!((got - want).abs() < 0.02, "{got} of {want}");
        }
    }
}
