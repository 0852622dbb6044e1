//! Threads of one runtime: the work of a thread that waits for its CPU goes on in a parked one.

use crate::common::{fixed, scheduler};
use schedlab_model::{
    ChannelId, ChannelSpec, CpuSet, Draw, EventKind, Handoff, Ns, Op, Program, SchedEvent, TaskId,
    TaskSpec, Waker, Workload,
};
use schedlab_sim::{Machine, Outcome, RunOptions, run};

const PARKED: ChannelId = ChannelId(0);
const MS: u64 = 1_000_000;

/// Task 0 carries 30 ms of work, task 1 is parked, task 2 wants the CPU too; round robin with turns
/// of 5 ms on one CPU.
fn played(permille: u32) -> (Vec<SchedEvent>, Outcome) {
    let work = Program::once([Op::Run(fixed(30 * MS))]);
    let tasks = [("carries", work), ("parked", Program::parked(PARKED)), ("batch", Program::hog())];
    let workload = Workload {
        tasks: tasks
            .map(|(name, program)| TaskSpec {
                affinity: CpuSet::single(schedlab_model::CpuId(0)),
                ..TaskSpec::new(name, program)
            })
            .to_vec(),
        channels: vec![ChannelSpec { name: "parked".to_owned(), ..ChannelSpec::default() }],
        handoffs: vec![Handoff {
            threads: vec![TaskId(0), TaskId(1)],
            parked: PARKED,
            after: Draw::Fixed(Ns(MS)),
            permille,
            rest: Draw::Fixed(Ns(MS / 100)),
        }],
        ..Workload::default()
    };
    let mut events = Vec::new();
    let options = RunOptions::for_time(Ns::from_ms(200));
    let scheduler = scheduler("rr:slice_ns=5ms", 1);
    let outcome =
        run(&Machine::flat(1), &workload, &*scheduler, &options, &mut events).expect("a clean run");
    (events, outcome)
}

/// Woken after 1 ms of waiting, the parked thread has the work, and both together do all of it and
/// one rest for each handoff.
#[test]
fn a_parked_thread_goes_on_with_the_work() {
    let (events, outcome) = played(1_000);
    let handoffs: Vec<&SchedEvent> = events
        .iter()
        .filter(|e| matches!(e.kind, EventKind::Wake { waker: Waker::HardIrq, .. }))
        .collect();
    let first = handoffs.first().expect("the work is handed over");
    assert!(matches!(first.kind, EventKind::Wake { task: TaskId(1), .. }), "{first:?}");
    assert_eq!(first.at.0 % (5 * MS), MS, "1 ms after a turn ended: {first:?}");
    let worked = outcome.metrics.tasks[0].cpu_ns + outcome.metrics.tasks[1].cpu_ns;
    let rests = worked.0 - 30 * MS;
    assert_eq!(rests, handoffs.len() as u64 * MS / 100);
    assert!(
        events.iter().any(|e| matches!(e.kind, EventKind::Exit { .. })),
        "the work came to its end"
    );
}

#[test]
fn without_a_handoff_the_thread_keeps_its_work() {
    let (events, outcome) = played(0);
    assert!(
        events.iter().all(|e| !matches!(e.kind, EventKind::Wake { waker: Waker::HardIrq, .. }))
    );
    assert_eq!(outcome.metrics.tasks[0].cpu_ns, Ns(30 * MS));
    assert_eq!(outcome.metrics.tasks[1].cpu_ns, Ns::ZERO);
}
