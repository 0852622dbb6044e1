//! Hardware threads of one core that slow each other (`smt_yield`).

use crate::common::random::free_case;
use crate::common::scheduler;
use proptest::prelude::*;
use schedlab_model::{Amount, CpuId, CpuSet, Ns, Op, Program, TaskSpec, Topology, Workload};
use schedlab_scheduler::registry;
use schedlab_sim::{Machine, Metrics, Outcome, RunOptions, SimError, run};

const MS: u64 = 1_000_000;

fn busy(ns: u64) -> Op {
    Op::Run(Amount::Fixed(Ns(ns)))
}

fn on(cpu: u32, program: Program) -> TaskSpec {
    let affinity = CpuSet::from_iter([CpuId(cpu)]);
    TaskSpec { affinity, ..TaskSpec::new(format!("on {cpu}"), program) }
}

fn go(machine: &Machine, tasks: Vec<TaskSpec>, for_ms: u64) -> Result<Outcome, SimError> {
    let workload = Workload { tasks, ..Workload::default() };
    let scheduler = scheduler("linux-6.12", machine.topology.cpus());
    let options = RunOptions::for_time(Ns(for_ms * MS));
    run(machine, &workload, scheduler.as_ref(), &options, &mut ())
}

/// Two cores of two threads: CPUs 0 and 1 share one.
fn two_cores(smt_yield: u16) -> Machine {
    Machine { topology: Topology::regular(1, 1, 2, 2), smt_yield, ..Machine::flat(1) }
}

fn ended(metrics: &Metrics, task: usize) -> u64 {
    metrics.tasks[task].cpu_ns.0
}

/// 60 ms of work take 100 ms at 0.6 of the speed, and 60 ms beside an idle thread.
#[test]
fn two_busy_threads_of_a_core_run_at_the_yield() {
    let work = || Program::once([busy(60 * MS)]);
    let machine = two_cores(600);
    let same = go(&machine, vec![on(0, work()), on(1, work())], 200).unwrap().metrics;
    assert_eq!([0, 1].map(|task| ended(&same, task)), [100 * MS; 2]);
    let apart = go(&machine, vec![on(0, work()), on(2, work())], 200).unwrap().metrics;
    assert_eq!([0, 1].map(|task| ended(&apart, task)), [60 * MS; 2]);
    let plain = go(&two_cores(1_000), vec![on(0, work()), on(1, work())], 200).unwrap().metrics;
    assert_eq!([0, 1].map(|task| ended(&plain, task)), [60 * MS; 2]);
}

/// Beside a thread that is busy for 30 of its first 60 ms the same work takes 12 ms longer.
#[test]
fn the_speed_follows_the_other_thread_at_once() {
    let work = Program::once([busy(60 * MS)]);
    let ten = || [Op::Sleep(Amount::Fixed(Ns(10 * MS))), busy(6 * MS)];
    let beside = Program::once([ten(), ten(), ten()].concat());
    let machine = two_cores(600);
    let metrics = go(&machine, vec![on(0, work), on(1, beside)], 200).unwrap().metrics;
    assert_eq!(ended(&metrics, 1), 30 * MS, "6 ms of work take 10");
    let took = ended(&metrics, 0);
    assert!(took.abs_diff(72 * MS) < 10, "{took}");
}

/// What is left of a task that loses its CPU is work, not time.
#[test]
fn a_task_that_loses_its_cpu_keeps_its_work() {
    let machine = two_cores(500);
    // CPU 0 runs two tasks in turn; its sibling is busy all the time.
    let tasks = vec![
        on(0, Program::once([busy(30 * MS)])),
        on(0, Program::once([busy(30 * MS)])),
        on(1, Program::hog()),
    ];
    let metrics = go(&machine, tasks, 300).unwrap().metrics;
    for task in [0, 1] {
        assert!(ended(&metrics, task).abs_diff(60 * MS) < 100, "{}", ended(&metrics, task));
    }
}

#[test]
fn what_is_no_speed_is_refused() {
    for smt_yield in [0, 99, 1_001] {
        let error = go(&two_cores(smt_yield), vec![on(0, Program::hog())], 1).unwrap_err();
        assert!(error.to_string().contains("allowed are 100 to 1000"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(schedlab_testing::cases(64)) })]

    /// The assertions of the engine hold, and two runs are the same.
    #[test]
    fn random_machines_with_slow_siblings_run(
        (machine, workload) in free_case(),
        smt_yield in 100u16..1_000,
        seed in 0u64..1_000,
    ) {
        let topology = Topology::regular(1, 1, machine.topology.cpus().div_ceil(2), 2);
        let machine = Machine { topology, smt_yield, ticks: Default::default(), ..machine };
        for entry in registry::all() {
            let again = || {
                let scheduler = scheduler(entry.name, machine.topology.cpus());
                let options = RunOptions { seed, ..RunOptions::for_time(Ns::from_ms(60)) };
                run(&machine, &workload, scheduler.as_ref(), &options, &mut ())
                    .map(|outcome| outcome.event_hash)
            };
            let first = again();
            if let Err(SimError::Internal { .. }) = &first {
                panic!("{}: {first:?}", entry.name);
            }
            prop_assert_eq!(first, again(), "{}", entry.name);
        }
    }
}
