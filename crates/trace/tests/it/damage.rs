//! Nothing that a file or a text can hold makes the readers panic, hang or take memory without
//! limit. The inputs of `fuzz/corpus` run here, and systematic damage to a small good recording.

use crate::common::{CPUS, TASKS, any_events, bytes, header, ping_pong, wake};
use proptest::prelude::*;
use schedlab_model::{
    CpuId, EventKind, EventSink, GroupId, Ns, PrevState, SchedEvent, TaskId, Waker,
};
use schedlab_trace::analysis::Summary;
use schedlab_trace::analysis::timehist::{Listing, Row, Timehist};
use schedlab_trace::import::{ImportOptions, read};
use schedlab_trace::replay::{ReplayOptions, replay};
use schedlab_trace::{Blocks, Index, ReadLimits, Recording, TaskInfo, TraceError, Writer};
use std::path::PathBuf;

/// Bytes of the file header and of a block's header (`docs/recording-format.md`).
const FILE: usize = 16;
const BLOCK: usize = 44;

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// Reads, and uses what was read. The error's text must not be empty.
fn exercise(bytes: &[u8]) -> Result<Recording, TraceError> {
    let limits = ReadLimits { events: 100_000, block_bytes: 1 << 20, tasks: 1_000 };
    listed(bytes, limits, true);
    let recording = Recording::read_limited(bytes, limits);
    let mut rows = 0;
    if let Ok(recording) = &recording {
        let mut timehist = Timehist::new(|_: &Row| rows += 1);
        recording.events.iter().for_each(|event| timehist.event(event));
    }
    assert_eq!(listed(bytes, limits, false), recording.is_ok().then_some(rows));
    let recording = recording?;
    Summary::from_recording(&recording).err().inspect(|e| assert!(!e.to_string().is_empty()));
    if let Ok(replay) = replay(&recording, &ReplayOptions::default()) {
        let cpus = recording.header.topology.cpus();
        if let Err(error) = replay.workload.check(cpus) {
            // The header may give a task a mask without a CPU of the machine; nothing else may be
            // wrong.
            assert!(matches!(error, schedlab_model::WorkloadError::Affinity { .. }), "{error}");
        }
    }
    Ok(recording)
}

/// How many rows the listing of `input` has that is made while it is read; `None`: it cannot be
/// listed.
fn listed(input: &[u8], limits: ReadLimits, in_order: bool) -> Option<usize> {
    let mut rows: Vec<Row> = Vec::new();
    let listed =
        Listing::new(&mut rows, in_order).together(5).all(|| Blocks::new(input, limits), limits);
    listed.ok().map(|_| rows.len())
}

#[test]
fn the_corpus_of_recordings() {
    for (path, bytes) in corpus("recording") {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        match exercise(&bytes) {
            Ok(recording) => {
                assert!(name.starts_with("good"), "{name} opened: {}", recording.repairs)
            }
            Err(error) => assert!(name.starts_with("bad"), "{name}: {error}"),
        }
    }
}

/// Written by version 1.0; every later version must read it to the same events.
#[test]
fn a_file_of_version_1_0_reads_for_ever() {
    let path = format!(
        "{}/../../fuzz/corpus/recording/good-1.0-ping-pong.slt",
        env!("CARGO_MANIFEST_DIR")
    );
    if std::env::var_os("SCHEDLAB_WRITE_CORPUS").is_some() {
        std::fs::write(&path, bytes(&header(1, 2), &ping_pong(20), 400_000)).unwrap();
    }
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.events, ping_pong(20));
    assert_eq!(recording.header.tasks[1].comm, "t1");
}

#[test]
fn the_corpus_of_texts() {
    for (_, bytes) in corpus("import") {
        for end in (0..bytes.len()).step_by(1 + bytes.len() / 400) {
            for current_is_waker in [false, true] {
                let result = read(
                    &bytes[..end],
                    ImportOptions { current_is_waker, ..ImportOptions::default() },
                );
                if let Ok(imported) = result {
                    Summary::from_recording(&imported.recording).unwrap();
                    let options = ReplayOptions { without_wakes: true, ..ReplayOptions::default() };
                    replay(&imported.recording, &options).unwrap();
                }
            }
        }
        let broken: Vec<u8> =
            bytes.iter().enumerate().map(|(i, b)| b ^ u8::from(i % 97 == 5) << 4).collect();
        let _ = read(&broken[..], ImportOptions::default())
            .map_err(|e| assert!(!e.to_string().is_empty()));
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let good = bytes(&header(1, 2), &ping_pong(20), 400_000);
    let whole = Recording::read(&good[..]).unwrap();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        match exercise(&bad) {
            // The minor version and the reserved bytes of the file header carry no meaning yet.
            Ok(recording) => {
                assert!(
                    (10..FILE).contains(&(bit / 8)),
                    "bit {bit} of {} is not checked",
                    good.len() * 8
                );
                assert_eq!(recording.events, whole.events);
            }
            Err(error) => assert!(!matches!(error, TraceError::Io { .. }), "bit {bit}: {error}"),
        }
    }
}

#[test]
fn the_message_about_damage_says_how_to_keep_the_rest() {
    let good = bytes(&header(1, 2), &ping_pong(5_000), 200_000_000);
    let events: Vec<(usize, u32, Vec<u8>)> =
        blocks(&good).into_iter().filter(|(_, kind, _)| *kind == 2).collect();
    let (second, ..) = events[1];
    let mut bad = good.clone();
    bad[second + BLOCK + 10] ^= 1;
    let message = Recording::read(&bad[..]).unwrap_err().to_string();
    assert!(message.contains(&format!("`head -c {second} FILE > BEFORE.slt`")), "{message}");
    let before = Recording::read(&bad[..second]).unwrap();
    assert!(before.repairs.cut_off);
    assert_eq!(
        before.events[..],
        Recording::read(&good[..]).unwrap().events[..before.events.len()]
    );
    assert!(before.events.len() > 1_000);
    bad[FILE + BLOCK] ^= 1;
    let message = Recording::read(&bad[..]).unwrap_err().to_string();
    assert!(message.contains("without its header") && !message.contains("head -c"), "{message}");
}

/// Who lists a recording while reading it has its names from before: from all tables, also where
/// the index leaves them out.
#[test]
fn an_index_that_leaves_out_tables_hides_no_task() {
    let mut writer = Writer::new(Vec::new(), &header(1, 2)).unwrap();
    ping_pong(20).iter().for_each(|event| writer.event(event));
    writer.flush().unwrap();
    let late = writer.add_task(TaskInfo::unknown(77, 77, "late"));
    writer.event(&wake(900_000, 0, late.0, Waker::HardIrq));
    let good = writer.finish(Ns(1_000_000)).unwrap();
    let (which, _) =
        blocks(&good).iter().enumerate().find(|(_, block)| block.1 == 0x8000_0005).unwrap();
    // Its first entry only: the header.
    let (_, _, stored) = &blocks(&good)[which];
    let index = zstd::bulk::decompress(stored, 1 << 16).unwrap();
    let bad = forge(&good, which, None, &index[..32], None);
    for (name, file) in [("good", &good), ("bad", &bad)] {
        let path = schedlab_testing::temp_dir()
            .join(format!("schedlab-about-{name}-{}.slt", std::process::id()));
        std::fs::write(&path, file).unwrap();
        let (about, whole) = (
            Recording::about(&path, &Index::of_headers(&path).unwrap()).unwrap(),
            Recording::open(&path).unwrap(),
        );
        std::fs::remove_file(&path).unwrap();
        assert_eq!(about.header, whole.header, "{name}");
        assert_eq!(
            (about.duration, about.events.len(), about.header.tasks.len()),
            (whole.duration, 0, 3)
        );
    }
}

/// The blocks of a file: offset, kind, stored bytes.
fn blocks(file: &[u8]) -> Vec<(usize, u32, Vec<u8>)> {
    let mut at = FILE;
    let mut out = Vec::new();
    while at < file.len() {
        let word =
            |i: usize| u32::from_le_bytes(file[at + i * 4..at + i * 4 + 4].try_into().unwrap());
        let stored = word(2) as usize;
        out.push((at, word(1), file[at + BLOCK..at + BLOCK + stored].to_vec()));
        at += BLOCK + stored;
    }
    out
}

/// The file with block `which` replaced by `raw`, all checksums right: what an attacker can write.
fn forge(
    file: &[u8],
    which: usize,
    kind: Option<u32>,
    raw: &[u8],
    claimed: Option<u32>,
) -> Vec<u8> {
    let mut out = file[..FILE].to_vec();
    for (i, (at, _, stored)) in blocks(file).iter().enumerate() {
        let mut head = file[*at..at + BLOCK].to_vec();
        let stored =
            if i == which { zstd::bulk::compress(raw, 3).unwrap() } else { stored.clone() };
        if i == which {
            if let Some(kind) = kind {
                head[4..8].copy_from_slice(&kind.to_le_bytes());
            }
            head[8..12].copy_from_slice(&(stored.len() as u32).to_le_bytes());
            head[12..16].copy_from_slice(&claimed.unwrap_or(raw.len() as u32).to_le_bytes());
            head[20..24].copy_from_slice(&crc32fast::hash(&stored).to_le_bytes());
            let check = crc32fast::hash(&head[..40]);
            head[40..].copy_from_slice(&check.to_le_bytes());
        }
        out.extend(head);
        out.extend(stored);
    }
    out
}

#[test]
fn forged_blocks_are_refused_or_harmless() {
    let good = bytes(&header(1, 2), &ping_pong(20), 400_000);
    let raw_of = |i: usize| zstd::bulk::decompress(&blocks(&good)[i].2, 1 << 20).unwrap();
    assert_eq!(exercise(&forge(&good, 1, None, &raw_of(1), None)).unwrap().events, ping_pong(20));
    for which in 0..blocks(&good).len() {
        let raw = raw_of(which);
        for at in 0..raw.len() {
            for mask in [0x01, 0x80, 0xff] {
                let mut bad = raw.clone();
                bad[at] ^= mask;
                let _ = exercise(&forge(&good, which, None, &bad, None));
            }
        }
    }
}

#[test]
fn bombs_and_false_lengths_are_refused() {
    let good = bytes(&header(1, 2), &ping_pong(20), 400_000);
    let zeros = vec![0; 512 << 10];
    let text = |file: Vec<u8>| exercise(&file).unwrap_err().to_string();
    let bomb = text(forge(&good, 1, None, &zeros, Some(1_000)));
    assert!(bomb.contains("decompress"), "{bomb}");
    let huge = text(forge(&good, 1, None, &zeros, Some(u32::MAX)));
    assert!(huge.contains("claims"), "{huge}");
    let more = text(forge(&good, 1, None, &[0; 48], Some(72)));
    assert!(more.contains("another length"), "{more}");
    let again = text(forge(&good, 1, Some(1), b"{}", None));
    assert!(again.contains("second header"), "{again}");
    let unknown = text(forge(&good, 1, Some(77), b"?", None));
    assert!(unknown.contains("kind 77"), "{unknown}");
    let optional = exercise(&forge(&good, 1, Some(0x8000_0001), b"?", None)).unwrap();
    assert_eq!((optional.repairs.skipped_blocks, optional.events.len()), (1, 0));
}

fn any_event() -> impl Strategy<Value = SchedEvent> {
    let task = || (0u32..4).prop_map(TaskId);
    let maybe = || proptest::option::of((0u32..4).prop_map(TaskId));
    let state = prop_oneof![
        Just(PrevState::Runnable),
        Just(PrevState::RunnableInKernel),
        Just(PrevState::Sleeping),
        Just(PrevState::DiskSleep),
        Just(PrevState::Stopped),
        Just(PrevState::Dead),
        Just(PrevState::Blocked),
        Just(PrevState::Unknown),
    ];
    let waker = prop_oneof![
        task().prop_map(Waker::Task),
        task().prop_map(Waker::InlineSoftirq),
        Just(Waker::SoftIrq),
        Just(Waker::HardIrq),
        Just(Waker::Unknown),
    ];
    let kind = prop_oneof![
        8 => (maybe(), state, maybe())
            .prop_map(|(prev, prev_state, next)| EventKind::Switch { prev, prev_state, next }),
        8 => (task(), waker).prop_map(|(task, waker)| EventKind::Wake { task, waker }),
        1 => (task(), maybe()).prop_map(|(task, parent)| EventKind::New { task, parent }),
        1 => task().prop_map(|task| EventKind::Exec { task }),
        1 => task().prop_map(|task| EventKind::Exit { task }),
        1 => (task(), 0u32..2, 0u32..2)
            .prop_map(|(task, from, to)| EventKind::Migrate { task, from: CpuId(from), to: CpuId(to) }),
        1 => task().prop_map(|task| EventKind::Throttle { task }),
        1 => task().prop_map(|task| EventKind::Unthrottle { task }),
        1 => any::<u64>().prop_map(|ns| EventKind::Steal { ns: Ns(ns) }),
        1 => task().prop_map(|task| EventKind::Regroup { task, group: GroupId(0) }),
        1 => any::<u64>().prop_map(|count| EventKind::Lost { count }),
    ];
    (0u64..2_000, 0u32..2, kind).prop_map(|(at, cpu, kind)| SchedEvent {
        at: Ns(at),
        cpu: CpuId(cpu),
        kind,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(schedlab_testing::cases(256)))]

    /// Events in any order and of any sense: written, read and repaired; a second pass finds
    /// nothing more to sort or to repair; summary and replay take them; time adds up.
    #[test]
    fn any_events_are_repaired_and_used(events in proptest::collection::vec(any_event(), 0..120)) {
        let file = bytes(&header(2, 4), &events, 2_000);
        let recording = exercise(&file).unwrap();
        prop_assert!(recording.events.is_sorted_by_key(|e| e.at));
        let again = exercise(&bytes(&recording.header, &recording.events, 2_000)).unwrap();
        prop_assert_eq!(again.repairs.misordered, 0);
        prop_assert_eq!(again.repairs.inconsistent_switches, 0, "{:?}", recording.events);
        let summary = Summary::from_recording(&recording).unwrap();
        for cpu in &summary.cpus {
            prop_assert_eq!(cpu.busy + cpu.idle + cpu.unknown, recording.duration);
        }
        for task in &summary.tasks {
            prop_assert!(task.run <= recording.duration);
        }
    }

    /// What was put together and repaired until nothing is left is read back from its file as it
    /// is.
    #[test]
    fn what_is_repaired_is_repaired_once(events in any_events()) {
        let length = Ns(10_000);
        let recording = Recording::from_parts(header(CPUS, TASKS), events.clone(), length).unwrap().settled();
        let again = exercise(&bytes(&recording.header, &recording.events, length.0)).unwrap();
        prop_assert_eq!(&again.events, &recording.events, "{:?}", events);
        let found = again.repairs.early_wakes + again.repairs.inconsistent_switches;
        prop_assert_eq!(found, 0, "{:?}", events);
        prop_assert_eq!(again.repairs.missing_wakes, recording.repairs.missing_wakes);
    }

    /// In order, what goes in comes out.
    #[test]
    fn round_trip(mut events in proptest::collection::vec(any_event(), 0..120)) {
        events.sort_by_key(|e| e.at);
        let file = bytes(&header(2, 4), &events, 2_000);
        let blocks = blocks(&file);
        // Header, index and end mark stand in every file.
        prop_assert_eq!(blocks.len(), 3 + usize::from(!events.is_empty()));
        let back = Recording::read(&file[..]).unwrap();
        // Repair adds and moves events; those that it leaves alone are all there.
        let clean = back.repairs.is_clean() && back.repairs.early_wakes == 0 && back.repairs.duplicates == 0;
        if clean {
            prop_assert_eq!(back.events, events);
        }
    }

    /// No text makes the import panic.
    #[test]
    fn any_text(text in "([a-z0-9 :=\\[\\]./>-]{0,80}\n){0,6}") {
        let _ = read(text.as_bytes(), ImportOptions::default());
    }
}
