//! The file format: what goes in comes out, and what is broken is refused or repaired, never
//! believed.

use crate::common::{bytes, header, ping_pong, switch, wake};
use schedlab_model::{
    CpuId, EventKind, EventSink, GroupId, Ns, PrevState, SchedEvent, TaskId, Waker,
};
use schedlab_trace::{ReadLimits, Recording, TaskInfo, TraceError, Writer};

#[test]
fn what_goes_in_comes_out() {
    let (header, events) = (header(1, 2), ping_pong(20_000));
    let file = bytes(&header, &events, 500_000_000);
    let back = Recording::read(&file[..]).unwrap();
    assert_eq!((&back.header, &back.events, back.duration), (&header, &events, Ns(500_000_000)));
    assert!(back.repairs.is_clean(), "{}", back.repairs);
    assert_eq!(
        file,
        bytes(&header, &events, 500_000_000),
        "the same input must give the same bytes"
    );
    assert!(file.len() < events.len() * 2, "{} bytes for {} events", file.len(), events.len());
}

#[test]
fn every_kind_of_event_survives() {
    let (t, cpu) = (TaskId(1), CpuId(1));
    let kinds = [
        EventKind::New { task: t, parent: Some(TaskId(0)) },
        EventKind::New { task: t, parent: None },
        EventKind::Exec { task: t },
        EventKind::Migrate { task: t, from: CpuId(0), to: cpu },
        EventKind::Throttle { task: t },
        EventKind::Unthrottle { task: t },
        EventKind::Steal { ns: Ns(u64::MAX / 3) },
        EventKind::Regroup { task: t, group: GroupId(0) },
        EventKind::Lost { count: 1 << 40 },
        EventKind::SyscallEnter { task: t, number: 202 },
        EventKind::SyscallExit { task: t },
        EventKind::Exit { task: t },
    ];
    let wakers =
        [Waker::Unknown, Waker::Task(t), Waker::InlineSoftirq(t), Waker::SoftIrq, Waker::HardIrq];
    let kinds =
        kinds.into_iter().chain(wakers.map(|waker| EventKind::Wake { task: TaskId(0), waker }));
    let events: Vec<_> =
        kinds.enumerate().map(|(i, kind)| SchedEvent { at: Ns(i as u64), cpu, kind }).collect();
    let back = Recording::read(&bytes(&header(2, 2), &events, 0)[..]).unwrap();
    assert_eq!(back.events, events);
    assert_eq!(back.repairs.lost, 1 << 40);
}

#[test]
fn tasks_found_later_are_there() {
    let mut writer = Writer::new(Vec::new(), &header(1, 1)).unwrap();
    let new = writer.add_task(TaskInfo::unknown(7, 7, "late"));
    writer.event(&switch(5, 0, None, PrevState::Runnable, Some(new.0)));
    writer.update_task(TaskId(0), TaskInfo::unknown(1, 1, "renamed"));
    writer.flush().unwrap();
    // A task that was not announced is not dropped either.
    writer.event(&wake(6, 0, 3, Waker::Unknown));
    let back = Recording::read(&writer.finish(Ns(10)).unwrap()[..]).unwrap();
    let names: Vec<_> = back.header.tasks.iter().map(|t| t.comm.as_str()).collect();
    assert_eq!(names, ["renamed", "late", "?", "?"]);
}

#[test]
fn a_recording_cut_off_anywhere_opens_to_its_last_whole_block() {
    let file = bytes(&header(1, 2), &ping_pong(20_000), 0);
    let whole = Recording::read(&file[..]).unwrap().events;
    let mut counts = Vec::new();
    for end in (0..file.len()).step_by(97) {
        match Recording::read(&file[..end]) {
            Ok(cut) => {
                assert!(cut.repairs.cut_off);
                assert_eq!(cut.events, whole[..cut.events.len()]);
                counts.push(cut.events.len());
            }
            Err(TraceError::Empty) => assert_eq!(end, 0),
            Err(TraceError::NoHeader { .. }) => assert!(end < 1_000, "{end}"),
            Err(other) => panic!("cut at {end}: {other}"),
        }
    }
    counts.dedup();
    assert!(counts.len() >= 5 && counts.is_sorted(), "{counts:?}");
}

#[test]
fn refusals_teach() {
    let text = |bytes: &[u8]| Recording::read(bytes).unwrap_err().to_string();
    assert!(text(b"").contains("empty"));
    assert!(text(b"PERFILE2 and so on").contains("not a schedlab recording"));
    assert!(text(b"\x7f").contains("not a schedlab recording"));
    let mut newer = bytes(&header(1, 1), &[], 0);
    newer[8] = 9;
    assert!(text(&newer).contains("format version 9"), "{}", text(&newer));
    let mut after = bytes(&header(1, 1), &[], 0);
    after.push(0);
    assert!(text(&after).contains("after the end"), "{}", text(&after));
    let unknown_cpu = bytes(&header(1, 1), &[wake(0, 5, 0, Waker::Unknown)], 0);
    assert!(text(&unknown_cpu).contains("CPU"), "{}", text(&unknown_cpu));
    let missing = Recording::open("/nowhere/x.slt").unwrap_err().to_string();
    assert!(missing.contains("/nowhere/x.slt"), "{missing}");
}

#[test]
fn a_newer_minor_version_is_read() {
    let mut file = bytes(&header(1, 2), &ping_pong(3), 0);
    file[10] = 7;
    assert_eq!(Recording::read(&file[..]).unwrap().events.len(), 13);
}

#[test]
fn limits_hold_before_memory_is_taken() {
    let file = bytes(&header(1, 2), &ping_pong(100), 0);
    let few = ReadLimits { events: 100, ..ReadLimits::default() };
    assert!(matches!(Recording::read_limited(&file[..], few), Err(TraceError::TooLarge { .. })));
    let small = ReadLimits { block_bytes: 64, ..ReadLimits::default() };
    assert!(matches!(Recording::read_limited(&file[..], small), Err(TraceError::TooLarge { .. })));
}
