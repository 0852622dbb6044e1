//! What the tests of this crate share.

use proptest::prelude::*;
use schedlab_model::{
    CpuId, EventKind, EventSink, Ns, PrevState, SchedEvent, TaskId, Topology, Waker,
};
use schedlab_trace::{Capabilities, Header, TaskInfo, Writer};

/// A header for `tasks` tasks on `cpus` CPUs that can see everything.
pub(crate) fn header(cpus: usize, tasks: usize) -> Header {
    Header {
        backend: "test".to_owned(),
        hz: 250,
        topology: Topology::flat(cpus),
        capabilities: Capabilities::simulator(),
        tasks: (0..tasks as u32)
            .map(|i| TaskInfo::unknown(100 + i, 100 + i, format!("t{i}")))
            .collect(),
        ..Header::default()
    }
}

/// A switch on `cpu` at `at` nanoseconds.
pub(crate) fn switch(
    at: u64,
    cpu: u32,
    prev: Option<u32>,
    state: PrevState,
    next: Option<u32>,
) -> SchedEvent {
    let kind =
        EventKind::Switch { prev: prev.map(TaskId), prev_state: state, next: next.map(TaskId) };
    SchedEvent { at: Ns(at), cpu: CpuId(cpu), kind }
}

/// A wakeup of `task`.
pub(crate) fn wake(at: u64, cpu: u32, task: u32, waker: Waker) -> SchedEvent {
    SchedEvent { at: Ns(at), cpu: CpuId(cpu), kind: EventKind::Wake { task: TaskId(task), waker } }
}

/// The bytes of a recording.
pub(crate) fn bytes(header: &Header, events: &[SchedEvent], duration: u64) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), header).unwrap();
    events.iter().for_each(|event| writer.event(event));
    writer.finish(Ns(duration)).unwrap()
}

/// Two tasks that wake each other on one CPU, `rounds` times.
pub(crate) fn ping_pong(rounds: u64) -> Vec<SchedEvent> {
    let mut out = vec![switch(0, 0, None, PrevState::Runnable, Some(0))];
    for round in 0..rounds {
        let at = 1_000 + round * 20_000;
        out.push(wake(at, 0, 1, Waker::Task(TaskId(0))));
        out.push(switch(at + 1_000, 0, Some(0), PrevState::Sleeping, Some(1)));
        out.push(wake(at + 9_000, 0, 0, Waker::InlineSoftirq(TaskId(1))));
        out.push(switch(at + 10_000, 0, Some(1), PrevState::Sleeping, Some(0)));
    }
    out
}

/// CPUs of [`any_events`].
pub(crate) const CPUS: usize = 3;
/// Tasks of [`any_events`].
pub(crate) const TASKS: usize = 6;

/// Any events at all: repair makes a possible history of them.
pub(crate) fn any_events() -> impl Strategy<Value = Vec<SchedEvent>> {
    let task = || 0..TASKS as u32;
    let who = || proptest::option::weighted(0.8, 0..TASKS as u32);
    let state = prop_oneof![
        3 => Just(PrevState::Runnable), 3 => Just(PrevState::Sleeping), 1 => Just(PrevState::DiskSleep),
        1 => Just(PrevState::Unknown), 1 => Just(PrevState::Blocked),
    ];
    let kind = prop_oneof![
        8 => (who(), state, who()).prop_map(|(prev, prev_state, next)| {
            switch(0, 0, prev, prev_state, next.filter(|next| Some(*next) != prev)).kind
        }),
        6 => task().prop_map(|task| wake(0, 0, task, Waker::HardIrq).kind),
        2 => (task(), 0..CPUS as u32).prop_map(|(task, to)| {
            EventKind::Migrate { task: TaskId(task), from: CpuId(0), to: CpuId(to) }
        }),
        1 => task().prop_map(|task| EventKind::Throttle { task: TaskId(task) }),
        1 => task().prop_map(|task| EventKind::Unthrottle { task: TaskId(task) }),
        1 => task().prop_map(|task| EventKind::New { task: TaskId(task), parent: None }),
        1 => Just(EventKind::Lost { count: 3 }),
    ];
    let event = (0..50u64, 0..CPUS as u32, kind);
    proptest::collection::vec(event, 0..120).prop_map(|list| {
        let mut at = 0;
        let timed = |(gap, cpu, kind)| {
            at += gap;
            SchedEvent { at: Ns(at), cpu: CpuId(cpu), kind }
        };
        list.into_iter().map(timed).collect()
    })
}
