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
