//! What the tests of this crate share.
#![allow(dead_code, clippy::allow_attributes, reason = "each test program uses a part of it")]

use schedlab_model::{CpuId, EventKind, EventSink, Ns, PrevState, SchedEvent, TaskId, Topology, Waker};
use schedlab_trace::{Capabilities, Header, TaskInfo, Writer};

/// A header for `tasks` tasks on `cpus` CPUs that can see everything.
pub(crate) fn header(cpus: usize, tasks: usize) -> Header {
    Header {
        backend: "test".to_owned(),
        hz: 250,
        topology: Topology::flat(cpus),
        capabilities: Capabilities::simulator(),
        tasks: (0..tasks as u32).map(|i| TaskInfo::unknown(100 + i, 100 + i, format!("t{i}"))).collect(),
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
    let kind = EventKind::Switch { prev: prev.map(TaskId), prev_state: state, next: next.map(TaskId) };
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
