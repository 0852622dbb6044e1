//! A CPU that runs only SCHED_IDLE work takes wakees like an idle one, unless another task
//! is *delayed* there: blocked, but not yet off the queue (`sched_idle_cpu` compares `nr_running`,
//! which counts delayed tasks, with the idle ones).

use crate::common::scheduler;
use schedlab_model::{
    Amount, CpuId, CpuSet, EventKind, Ns, Op, Policy, Program, SchedEvent, Start, TaskId, TaskSpec,
    Workload,
};
use schedlab_sim::{Machine, RunOptions, run};

const LIGHT: u64 = 100;

/// CPU 0: a real-time task that works for 90 % of the time. CPU 1: SCHED_IDLE work and, every 9 ms,
/// a server that works for 20 us and blocks with a little negative lag. 150 us later a light task
/// wakes that slept on CPU 0: how many of a hundred run on CPU 1.
fn taken(spec: &str, server: bool) -> usize {
    let on = |cpu: u32, mut task: TaskSpec| {
        task.affinity = CpuSet::single(CpuId(cpu));
        task
    };
    let fixed = |us| Amount::Fixed(Ns::from_us(us));
    let rt = Program::closed(Ns::from_us(900), Ns::from_us(100));
    let rt = TaskSpec { policy: Policy::Fifo(1), ..TaskSpec::new("client", rt) };
    let batch = TaskSpec { policy: Policy::Idle, ..TaskSpec::new("batch", Program::hog()) };
    let mut tasks = vec![on(0, rt), on(1, batch)];
    for i in 0..LIGHT {
        let at = 20_000 + 9_137 * i;
        let pauses = Program::once([Op::Run(fixed(20)), Op::Sleep(fixed(100_000_000))]);
        let mut other = on(1, TaskSpec::new("server", pauses));
        other.start = Start::AsleepUntil(Ns::from_us(if server { at } else { 100_000_000 }));
        let mut light = TaskSpec::new("light", Program::once([Op::Run(fixed(5))]));
        light.start = Start::AsleepUntil(Ns::from_us(at + 150));
        tasks.extend([other, light]);
    }
    let workload = Workload { tasks, ..Workload::default() };
    let mut events: Vec<SchedEvent> = Vec::new();
    let machine = Machine::flat(2);
    run(
        &machine,
        &workload,
        &*scheduler(spec, 2),
        &RunOptions::for_time(Ns::from_s(1)),
        &mut events,
    )
    .unwrap();
    let light = |event: &&SchedEvent| {
        let light = |task: u32| task > 2 && task % 2 == 1;
        matches!(event.kind, EventKind::Switch { next: Some(TaskId(task)), .. } if light(task))
            && event.cpu == CpuId(1)
    };
    events.iter().filter(light).count()
}

#[test]
fn a_delayed_task_speaks_against_an_idle_looking_cpu() {
    // Only SCHED_IDLE work: a task that finds CPU 0 busy goes to CPU 1.
    for spec in ["linux-6.1", "linux-6.18"] {
        let taken = taken(spec, false);
        assert!(taken > 70, "{spec}: {taken}");
    }
    // The server blocks. Without delayed dequeue it is gone then; with it, it still counts.
    assert!(taken("linux-6.1", true) > 60);
    assert!(taken("linux-6.18:features.DELAY_DEQUEUE=off", true) > 60);
    let taken = taken("linux-6.18", true);
    assert!(taken < 10, "{taken} of {LIGHT}");
}

/// CPU 0: two hogs, one of which wakes there 2 ms before `us`. At `us` the neighbour that has had
/// CPU 1 sleeps for ever and leaves it to SCHED_IDLE work. Returns how long it takes until a hog
/// runs on CPU 1.
fn fetched_after(spec: &str, us: u64) -> Ns {
    let fixed = |us| Amount::Fixed(Ns::from_us(us));
    let begins = |cpu: u32, name: &str, program| TaskSpec {
        began_on: Some(CpuId(cpu)),
        ..TaskSpec::new(name, program)
    };
    let pause = Program::once([Op::Run(fixed(us)), Op::Sleep(fixed(100_000_000))]);
    let on_1 = |task| TaskSpec { affinity: CpuSet::single(CpuId(1)), ..task };
    let neighbour = on_1(begins(1, "neighbour", pause));
    let batch = on_1(begins(1, "batch", Program::hog()));
    let batch = TaskSpec { policy: Policy::Idle, ..batch };
    let mut late = begins(0, "late", Program::hog());
    late.start = Start::AsleepUntil(Ns::from_us(us - 2_000));
    let tasks = vec![neighbour, batch, begins(0, "early", Program::hog()), late];
    let workload = Workload { tasks, ..Workload::default() };
    let mut events: Vec<SchedEvent> = Vec::new();
    let options = RunOptions::for_time(Ns::from_s(1));
    run(&Machine::flat(2), &workload, &*scheduler(spec, 2), &options, &mut events).unwrap();
    let fetched = |event: &&SchedEvent| {
        let hog = |task: u32| task == 2 || task == 3;
        matches!(event.kind, EventKind::Switch { next: Some(TaskId(task)), .. } if hog(task))
            && event.cpu == CpuId(1)
            && event.at > Ns::from_us(us)
    };
    events.iter().find(fetched).map_or(Ns::MAX, |event| event.at.saturating_sub(Ns::from_us(us)))
}

/// `dequeue_entities` sets `next_balance` to now when only SCHED_IDLE tasks are left: the CPU does
/// not wait for the end of the long interval that it had while it was busy.
#[test]
fn a_cpu_left_to_idle_work_balances_early() {
    for spec in ["linux-6.1", "linux-6.12", "linux-6.18", "linux-7.2"] {
        let waits: Vec<Ns> = (0..20).map(|i| fetched_after(spec, 200_000 + 6_137 * i)).collect();
        let longest = waits.iter().max().unwrap();
        // The next tick, and two attempts that fail because the hog's load is too large.
        assert!(*longest <= Ns::from_ms(20), "{spec}: {waits:?}");
    }
}
