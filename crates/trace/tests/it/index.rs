//! The block index: what it lists, that it changes nothing, and that files without one get the
//! same.

use schedlab_model::{CpuId, EventKind, EventSink, Ns, PrevState, SchedEvent, TaskId};
use schedlab_trace::{Header, Index, Recording, TaskInfo, Writer};
use std::path::PathBuf;

fn header() -> Header {
    let tasks = vec![TaskInfo::unknown(10, 10, "a"), TaskInfo::unknown(11, 11, "b")];
    Header { tasks, ..Header::default() }
}

/// `count` switches between two tasks, a microsecond apart, in blocks of at most `each`.
fn written(name: &str, count: u64, each: u64, limit: Option<u64>) -> (PathBuf, Vec<SchedEvent>) {
    let path = schedlab_testing::temp_dir()
        .join(format!("schedlab-index-{name}-{}.slt", std::process::id()));
    let mut writer = Writer::new(std::fs::File::create(&path).unwrap(), &header()).unwrap();
    if let Some(bytes) = limit {
        writer.limit(bytes);
    }
    let mut events = Vec::new();
    for number in 0..count {
        let (prev, next) =
            (Some(TaskId((number % 2) as u32)), Some(TaskId(((number + 1) % 2) as u32)));
        let kind = EventKind::Switch { prev, prev_state: PrevState::Runnable, next };
        let event = SchedEvent { at: Ns::from_us(number), cpu: CpuId(0), kind };
        writer.event(&event);
        events.push(event);
        if number % each == each - 1 {
            writer.flush().unwrap();
        }
    }
    writer.finish(Ns::from_us(count)).unwrap();
    (path, events)
}

#[test]
fn a_part_is_what_the_whole_has_there() {
    let (path, events) = written("part", 10_000, 500, None);
    let index = Index::open(&path).unwrap();
    assert!(index.stored);
    assert_eq!((index.blocks.len(), index.events()), (21, 10_000));
    let whole = Recording::open(&path).unwrap();
    assert_eq!(whole.events, events);
    assert!(whole.repairs.is_clean(), "{}", whole.repairs);
    for (from, to) in [
        (0, 10_000_000),
        (2_499_000, 2_501_000),
        (0, 0),
        (9_999_000, 9_999_000),
        (5_000_500, 5_000_600),
    ] {
        let part = Recording::open_between(&path, Ns(from), Ns(to)).unwrap();
        let there: Vec<_> =
            events.iter().filter(|e| (from..=to).contains(&e.at.0)).copied().collect();
        assert_eq!(part.events, there, "{from} to {to}");
        assert!(!part.repairs.cut_off);
        assert_eq!(part.duration, whole.duration);
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_cut_recording_has_an_index_too() {
    let (path, _) = written("cut", 4_000, 400, None);
    let bytes = std::fs::read(&path).unwrap();
    let whole = Index::open(&path).unwrap();
    for length in (0..bytes.len()).step_by(97) {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let index = Index::open(&path).unwrap();
        assert!(!index.stored && index.totals.is_none());
        assert_eq!(index.blocks[..], whole.blocks[..index.blocks.len()]);
        if let Ok(recording) = Recording::open(&path) {
            assert_eq!(recording.events.len() as u64, index.events());
            let part = Recording::open_between(&path, Ns(1_000_000), Ns(1_100_000)).unwrap();
            assert!(part.repairs.cut_off && part.events.len() as u64 <= index.events());
        }
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_damaged_index_is_made_anew() {
    let (path, events) = written("damaged", 2_000, 200, None);
    let whole = Index::open(&path).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let at = whole.totals.clone().unwrap().index.unwrap() as usize;
    bytes[at + 60] ^= 0xff;
    std::fs::write(&path, &bytes).unwrap();
    let index = Index::open(&path).unwrap();
    assert!(!index.stored);
    assert_eq!(index.blocks, whole.blocks);
    assert!(index.totals.is_some());
    let part = Recording::open_between(&path, Ns(0), Ns(150_000)).unwrap();
    assert_eq!(part.events[..], events[..151]);
    std::fs::remove_file(path).unwrap();
}

/// `tests/data/version-1.0.slt` is two `yes` on one CPU as the program of 2026-11-21 recorded them,
/// before files had an index.
#[test]
fn files_of_version_1_0_have_one() {
    let path =
        std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/version-1.0.slt"));
    assert_eq!(std::fs::read(path).unwrap()[10..12], [0, 0], "the minor version");
    let index = Index::open(path).unwrap();
    assert!(!index.stored && index.totals.is_some());
    let recording = Recording::open(path).unwrap();
    assert_eq!(index.events(), index.totals.unwrap().events);
    let middle = Ns(recording.duration.0 / 2);
    let part = Recording::open_between(path, Ns::ZERO, middle).unwrap();
    assert!(!part.events.is_empty() && part.events.len() < recording.events.len());
}

#[test]
fn a_limited_file_stays_below_its_limit_and_is_whole() {
    for limit in [3_000u64, 6_000, 9_000] {
        let (path, events) = written("limit", 100_000, 500, Some(limit));
        let length = std::fs::metadata(&path).unwrap().len();
        assert!(length <= limit, "{length} of {limit}");
        let recording = Recording::open(&path).unwrap();
        let kept = recording.events.len();
        assert!(kept > 0 && kept < events.len() && recording.repairs.is_clean());
        assert_eq!(recording.events[..], events[..kept]);
        assert_eq!(recording.duration, recording.events[kept - 1].at);
        assert_eq!(Index::open(&path).unwrap().totals.unwrap().events, kept as u64);
        std::fs::remove_file(path).unwrap();
    }
}
