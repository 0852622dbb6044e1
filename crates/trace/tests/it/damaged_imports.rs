//! No bytes make an import panic: exports of a recording, cut off, with flipped bits, and with
//! pieces moved. Drawn from a fixed seed; `SCHEDLAB_FUZZ_RUNS` asks for more than the usual number
//! of inputs.

use crate::common::{header, ping_pong};
use schedlab_model::Ns;
use schedlab_trace::import::{ImportOptions, read};
use schedlab_trace::{Recording, analysis::Summary, export, replay};

fn inputs() -> Vec<Vec<u8>> {
    let recording = Recording::from_parts(header(2, 2), ping_pong(6), Ns(200_000)).unwrap();
    let mut all = Vec::new();
    for write in [export::ftrace, export::perf_script, export::perfetto] {
        let mut bytes = Vec::new();
        write(&recording, &mut bytes).unwrap();
        all.push(bytes);
    }
    all.push(compact());
    all
}

/// A trace in the compact form, by hand: two names, three switches and a waking on CPU 0.
fn compact() -> Vec<u8> {
    compact_at(100, &[], &[])
}

/// The same from this time on, with more fields of its bundle and its packet.
fn compact_at(at: u8, of_bundle: &[u8], of_packet: &[u8]) -> Vec<u8> {
    let bytes =
        |field: u8, content: &[u8]| [&[field << 3 | 2, content.len() as u8], content].concat();
    let mut columns = [bytes(5, b"aa"), bytes(5, b"swapper")].concat();
    for (field, values) in
        [(1, [at, 10, 10]), (2, [0, 1, 0]), (3, [7, 0, 7]), (4, [120, 120, 120]), (6, [0, 1, 0])]
    {
        columns.extend(bytes(field, &values.map(|v| v & 0x7f)));
    }
    for (field, value) in [(7, at + 15), (8, 7), (9, 0), (10, 120), (11, 0), (12, 8)] {
        columns.extend(bytes(field, &[value & 0x7f]));
    }
    let bundle = [&[0x08, 0], &bytes(4, &columns)[..], of_bundle].concat();
    bytes(1, &[&bytes(1, &bundle), of_packet].concat())
}

#[test]
fn losses_of_perfetto_are_told() {
    let of = |trace: &[u8]| read(trace, ImportOptions::default()).unwrap();
    let lost = |trace: &[u8]| of(trace).recording.repairs.lost;
    // previous_packet_dropped: the first packet of a sequence has it, too.
    let dropped = [0xd0, 0x02, 1];
    let first = compact_at(40, &[], &dropped);
    assert_eq!(lost(&first), 0);
    let after = of(&[first, compact_at(80, &[], &dropped)].concat());
    assert_eq!((after.recording.repairs.lost, after.summary.losses_in_all), (1, 1));
    assert_eq!(
        after.summary.losses[0].from,
        Ns(40),
        "the second packet begins 40 ns after the first"
    );
    // Another sequence (trusted_packet_sequence_id 7) begins.
    assert_eq!(
        lost(&[compact_at(40, &[], &[]), compact_at(80, &[], &[0xd0, 0x02, 1, 0x50, 7])].concat()),
        0
    );
    // A page that could not be read (errors), and lost_events of a bundle that has no events.
    assert_eq!(lost(&compact_at(40, &[0x42, 2, 0x08, 40], &[])), 1);
    assert_eq!(
        lost(&[&compact_at(40, &[], &[])[..], &[0x0a, 6, 0x0a, 4, 0x08, 0, 0x18, 1]].concat()),
        1
    );
}

#[test]
fn a_doubled_compact_packet_is_counted() {
    let once = read(&compact()[..], ImportOptions::default()).unwrap().recording;
    let twice = read(&compact().repeat(2)[..], ImportOptions::default()).unwrap().recording;
    assert_eq!(twice.events, once.events);
    assert_eq!(twice.repairs.duplicates, 4, "three switches and a wakeup: {}", twice.repairs);
}

#[test]
fn what_is_no_packet_is_counted() {
    let trace = [&compact()[..], &[0x10, 1, 0x12, 2, 9, 9]].concat();
    let summary = read(&trace[..], ImportOptions::default()).unwrap().summary;
    assert_eq!(summary.odd.count, 2);
    assert!(summary.odd.first[0].why.contains("no packet"), "{:?}", summary.odd);
    let strict = ImportOptions { strict: true, ..ImportOptions::default() };
    assert!(read(&trace[..], strict).is_err());
}

#[test]
fn an_event_without_its_time_is_a_loss() {
    let recording = Recording::from_parts(header(2, 2), ping_pong(6), Ns(200_000)).unwrap();
    let mut trace = Vec::new();
    export::perfetto(&recording, &mut trace).unwrap();
    let whole = read(&trace[..], ImportOptions::default()).unwrap();
    // A bundle of one waking of thread 1, without a time:
    // `event { pid: 0, sched_waking { pid: 1 } }`.
    trace.extend([0x0a, 13, 0x0a, 11, 0x08, 0, 0x12, 7, 0x10, 0, 0xa2, 1, 2, 0x10, 1]);
    let damaged = read(&trace[..], ImportOptions::default()).unwrap();
    assert_eq!((damaged.summary.damaged.count, damaged.recording.repairs.lost), (1, 1));
    assert_eq!(damaged.recording.duration, whole.recording.duration);
}

#[test]
fn compact_switches_name_who_ran_before() {
    use schedlab_model::{EventKind, PrevState, TaskId, Waker};
    let back = read(&compact()[..], ImportOptions::default()).unwrap().recording;
    let kinds: Vec<EventKind> = back.events.iter().map(|event| event.kind).collect();
    let (aa, switch) =
        (Some(TaskId(0)), |prev, prev_state, next| EventKind::Switch { prev, prev_state, next });
    assert_eq!(
        kinds,
        [
            EventKind::Lost { count: 0 },
            switch(None, PrevState::Runnable, aa),
            switch(aa, PrevState::Sleeping, None),
            EventKind::Wake { task: TaskId(0), waker: Waker::HardIrq },
            switch(None, PrevState::Runnable, aa),
        ]
    );
    assert_eq!((back.duration, back.header.tasks[0].comm.as_str()), (Ns(20), "aa"));
}

#[test]
fn damaged_imports_never_panic() {
    let runs: u64 =
        std::env::var("SCHEDLAB_FUZZ_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(3_000);
    let inputs = inputs();
    let mut state = 0x5eed_u64;
    let mut draw = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below.max(1)
    };
    for run in 0..runs {
        let mut bytes = inputs[run as usize % inputs.len()].clone();
        for _ in 0..1 + draw(6) {
            let at = draw(bytes.len());
            match draw(6) {
                0 => bytes.truncate(at),
                1 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (run % 8)),
                2 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = 0xff),
                3 => {
                    let end = (at + draw(40)).min(bytes.len());
                    bytes.drain(at..end);
                }
                4 => {
                    let end = (at + draw(40)).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    let to = draw(bytes.len());
                    bytes.splice(to..to, piece);
                }
                _ => bytes.insert(at, draw(256) as u8),
            }
        }
        let strict = run % 3 == 0;
        let options =
            ImportOptions { current_is_waker: run % 2 == 0, strict, ..ImportOptions::default() };
        if let Ok(imported) = read(&bytes[..], options) {
            let _ = Summary::from_recording(&imported.recording);
            let options = replay::ReplayOptions { without_wakes: true, ..Default::default() };
            let _ = replay::replay(&imported.recording, &options);
            let mut out = Vec::new();
            export::ftrace(&imported.recording, &mut out).unwrap();
            export::perfetto(&imported.recording, &mut out).unwrap();
        }
    }
}
