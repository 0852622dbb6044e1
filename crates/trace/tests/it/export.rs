//! Out and in again: ftrace text, `perf script` text and Perfetto, on recordings of a real machine
//! and on hand-written ones.

use crate::common::{header, ping_pong, switch, wake};
use schedlab_model::{CpuId, EventKind, Ns, PrevState, SchedEvent, TaskId, Waker};
use schedlab_trace::export::{self, Exported};
use schedlab_trace::import::{self, ImportOptions, Imported};
use schedlab_trace::{Header, Recording};

type Write = fn(&Recording, &mut dyn std::io::Write) -> std::io::Result<Exported>;

fn out_and_in(recording: &Recording, write: Write) -> (Exported, Imported) {
    let mut bytes = Vec::new();
    let exported = write(recording, &mut bytes).unwrap();
    (exported, import::read(&bytes[..], ImportOptions::default()).unwrap())
}

/// An event with tasks by name instead of by number, which an import gives anew.
fn shown(recording: &Recording, event: &SchedEvent) -> String {
    let name = |task: TaskId| {
        let task = recording.task(task);
        format!("{}/{}", task.comm, task.tid)
    };
    let named = |task: Option<TaskId>| task.map_or("idle".to_owned(), name);
    let what = match event.kind {
        EventKind::Switch { prev, prev_state, next } => {
            format!("switch {} {prev_state:?} {}", named(prev), named(next))
        }
        EventKind::Wake { task, waker } => {
            let kind = match waker {
                Waker::Task(_) => "task",
                Waker::InlineSoftirq(_) => "inline",
                Waker::SoftIrq => "softirq",
                Waker::HardIrq => "hardirq",
                Waker::Unknown => "unknown",
            };
            format!("wake {} {kind} {}", name(task), named(waker.task()))
        }
        EventKind::New { task, parent } => format!("new {} {}", name(task), named(parent)),
        EventKind::Exec { task } => format!("exec {}", name(task)),
        EventKind::Exit { task } => format!("exit {}", name(task)),
        EventKind::Migrate { task, from, to } => format!("migrate {} {from} {to}", name(task)),
        EventKind::SyscallEnter { task, number } => format!("enters {number} {}", name(task)),
        EventKind::SyscallExit { task } => format!("leaves {}", name(task)),
        EventKind::Throttle { task } => format!("throttle {}", name(task)),
        EventKind::Unthrottle { task } => format!("unthrottle {}", name(task)),
        other => format!("{other:?}"),
    };
    format!("{} {} {what}", event.at.0, event.cpu)
}

/// Events of two CPUs in the same nanosecond have no order in a format of per-CPU buffers.
fn list(recording: &Recording) -> Vec<String> {
    let mut events = recording.events.clone();
    events.sort_by_key(|event| (event.at, event.cpu));
    events.iter().map(|event| shown(recording, event)).collect()
}

fn same(before: &Recording, after: &Recording, what: &str) {
    let (a, b) = (list(before), list(after));
    for (i, (left, right)) in a.iter().zip(&b).enumerate() {
        assert_eq!(left, right, "{what}: event {i}");
    }
    assert_eq!(a.len(), b.len(), "{what}");
    assert_eq!(before.duration, after.duration, "{what}");
    assert_eq!(before.header.clock_start_ns, after.header.clock_start_ns, "{what}");
    assert_eq!(before.header.topology.cpus(), after.header.topology.cpus(), "{what}");
}

fn recorded(name: &str) -> Recording {
    let path = format!("{}/../../recordings/{name}.slt", env!("CARGO_MANIFEST_DIR"));
    Recording::open(path).unwrap().settled()
}

/// Every kind of event that Linux's formats and schedlab's marks can say.
fn everything() -> Recording {
    let at = |at, kind| SchedEvent { at: Ns(at), cpu: CpuId(0), kind };
    let mut events = vec![switch(5, 0, Some(0), PrevState::Runnable, None)];
    events.push(wake(10, 0, 1, Waker::HardIrq));
    events.push(wake(11, 0, 0, Waker::SoftIrq));
    events.push(switch(12, 0, None, PrevState::Runnable, Some(1)));
    events.push(at(13, EventKind::New { task: TaskId(2), parent: Some(TaskId(1)) }));
    events.push(at(14, EventKind::Migrate { task: TaskId(2), from: CpuId(0), to: CpuId(1) }));
    events.push(at(15, EventKind::Throttle { task: TaskId(1) }));
    events.push(at(16, EventKind::Unthrottle { task: TaskId(1) }));
    events.push(at(17, EventKind::Steal { ns: Ns(3) }));
    events.push(at(18, EventKind::Exec { task: TaskId(1) }));
    events.push(wake(19, 0, 0, Waker::InlineSoftirq(TaskId(1))));
    events.push(wake(19, 0, 0, Waker::Task(TaskId(1))));
    events.push(switch(20, 0, Some(1), PrevState::RunnableInKernel, Some(0)));
    events.push(switch(21, 0, Some(0), PrevState::DiskSleep, Some(1)));
    events.push(at(22, EventKind::Exit { task: TaskId(1) }));
    events.push(switch(23, 0, Some(1), PrevState::Dead, None));
    let mut header = Header { clock_start_ns: 77_123_456_789_012, ..header(2, 3) };
    header.tasks[1].comm = "a b ==> c: 1.5".to_owned();
    header.tasks[2].comm = header.tasks[1].comm.clone();
    Recording::from_parts(header, events, Ns(1_000)).unwrap()
}

#[test]
fn ftrace_and_perfetto_bring_back_every_event() {
    for (what, write) in [("ftrace", export::ftrace as Write), ("perfetto", export::perfetto)] {
        for recording in [
            everything(),
            Recording::from_parts(header(1, 2), ping_pong(50), Ns(2_000_000)).unwrap(),
        ] {
            let (exported, back) = out_and_in(&recording, write);
            same(&recording, &back.recording, what);
            assert!(
                exported.left_out.is_empty() && back.summary.ignored.is_empty(),
                "{exported:?} {:?}",
                back.summary.ignored
            );
            assert_eq!(recording.header.capabilities, back.recording.header.capabilities);
        }
    }
}

#[test]
fn recordings_of_a_real_machine_come_back() {
    for name in
        ["hackbench", "two-yes", "redis-other-other-open", "redis-other-other-closed8", "compile"]
    {
        let recording = recorded(name);
        for (what, write) in [("ftrace", export::ftrace as Write), ("perfetto", export::perfetto)] {
            let (exported, back) = out_and_in(&recording, write);
            let mut said = recording.clone();
            if let Some((_, count)) =
                exported.left_out.iter().find(|(kind, _)| **kind == "system calls")
            {
                let before = said.events.len() as u64;
                said.events.retain(|e| {
                    !matches!(
                        e.kind,
                        EventKind::SyscallEnter { .. } | EventKind::SyscallExit { .. }
                    )
                });
                assert_eq!(before - said.events.len() as u64, *count, "{name} {what}");
            }
            let count = |r: &Recording| {
                r.events.iter().filter(|e| matches!(e.kind, EventKind::Switch { .. })).count()
                    as u64
            };
            assert_eq!(exported.switches, count(&recording));
            // Without the system calls repairing puts a switch of one CPU and a wakeup by the other
            // into one nanosecond in an open loop; their order is lost on the way, and is repaired
            // otherwise afterwards.
            if what == "ftrace" || !name.ends_with("open") {
                same(&said.settled(), &back.recording, &format!("{name} {what}"));
            }
        }
        let (_, back) = out_and_in(&recording, export::perf_script);
        let scheduled = |r: &Recording| -> Vec<String> {
            let kept = |e: &&SchedEvent| matches!(e.kind, EventKind::Switch { .. });
            let first = r.header.clock_start_ns;
            r.events
                .iter()
                .filter(kept)
                .map(|e| shown(r, &SchedEvent { at: Ns(e.at.0 + first), ..*e }))
                .collect()
        };
        assert_eq!(scheduled(&recording), scheduled(&back.recording), "{name}: perf script");
    }
}

#[test]
fn losses_are_carried() {
    let mut events = ping_pong(3);
    events.insert(
        7,
        SchedEvent { at: events[7].at, cpu: CpuId(0), kind: EventKind::Lost { count: 12 } },
    );
    let recording = Recording::from_parts(header(1, 2), events, Ns(100_000)).unwrap();
    for write in [export::ftrace as Write, export::perfetto, export::perf_script] {
        let (_, back) = out_and_in(&recording, write);
        assert_eq!(back.recording.repairs.lost, 12);
    }
}
