//! The self-replay of every shipped recording, with the error that it may have. What is asked is 2
//! points of CPU share and 15 % of run-queue latency at p50 and p99. Where more is allowed, the
//! line says why. With `--nocapture` every figure is printed; `SELF_REPLAY=FILE,FILE` looks at
//! other recordings instead.

#![allow(clippy::print_stdout)]

use schedlab_study::compare::{Options, RecordedInput, compare_recording};
use schedlab_study::metric::{Metric, Stat};
use schedlab_study::result::SelfReplay;
use std::path::PathBuf;

const SHARE: f64 = 0.02;
const LATENCY: f64 = 0.15;

/// The tasks that a recording is about, by the beginning of its name. What else ran on the machine
/// is not judged.
const SUBJECTS: [(&str, &[&str]); 5] = [
    ("redis", &["redis-server", "redload", "sysbench"]),
    ("hackbench", &["hackbench"]),
    ("two-yes", &["yes"]),
    ("compile", &["cc1"]),
    ("guests", &["web", "batch"]),
];

#[derive(Clone, Copy, PartialEq, Debug)]
enum What {
    Share,
    P50,
    P99,
}

/// A percentile with fewer samples beyond it than this is no figure: the p99 of 48 wakeups is the
/// largest of them.
const BEYOND: f64 = 5.0;

/// A message to a task that is awake has no wakeup, and these recordings have no facts.
const UNSEEN: &str = "a message to a task that is awake has no wakeup: recorded without facts";

/// What a guest does has no facts on its host, and other programs ran on both CPUs: the sum of the
/// waits, the steal time, is what docs/guide/guests.md holds against recordings.
const BESIDE: &str = "virtual CPUs wake each other inside, and compilers ran beside them";

/// Known misses: recording, task, figure, the error reached (points or a part), why.
const MISSES: [(&str, &str, What, f64, &str); 16] = [
    (
        "compile",
        "cc1",
        What::P50,
        0.25,
        "the median of 87 recorded waits, 56 us, is known to lie between 33 and 76 us only (95 %, \
         by order statistics)",
    ),
    ("hackbench", "hackbench", What::Share, 0.05, UNSEEN),
    ("hackbench", "hackbench", What::P50, 0.55, UNSEEN),
    ("hackbench", "hackbench", What::P99, 1.2, UNSEEN),
    ("redis-other-other-open", "redis-server", What::P99, 0.75, UNSEEN),
    ("redis-other-idle-closed8", "redis-server", What::Share, 0.025, UNSEEN),
    ("redis-other-idle-closed8", "sysbench", What::Share, 0.025, UNSEEN),
    ("guests-equal", "web", What::P50, 0.3, BESIDE),
    ("guests-equal", "web", What::P99, 0.25, BESIDE),
    ("guests-equal", "batch", What::P50, 0.65, BESIDE),
    ("guests-quota", "web", What::P50, 0.25, BESIDE),
    ("guests-quota", "web", What::P99, 0.3, BESIDE),
    ("guests-quota", "batch", What::P50, 0.65, BESIDE),
    ("guests-weighted", "web", What::P50, 0.2, BESIDE),
    ("guests-weighted", "web", What::P99, 0.55, BESIDE),
    ("guests-weighted", "batch", What::P50, 0.7, BESIDE),
];

fn recordings() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../recordings")
}

/// With its length in seconds.
fn self_replay(path: &std::path::Path) -> (SelfReplay, f64) {
    let input = RecordedInput::open(path).unwrap();
    let options = Options { jobs: 1, ..Options::default() };
    let study = compare_recording(&input, None, &options, &|_, _| {}).unwrap();
    let replay = study.self_replay.unwrap();
    println!("{}: {:?}", path.display(), replay.distrust);
    (replay, study.duration_ns as f64 / 1e9)
}

fn errors(file: &str, (replay, seconds): &(SelfReplay, f64)) -> Vec<(String, What, f64)> {
    let mut errors = Vec::new();
    let (_, about) =
        SUBJECTS.iter().find(|(begins, _)| file.starts_with(begins)).expect("named above");
    for subject in replay.subjects.iter().filter(|s| about.contains(&s.name.as_str())) {
        for cell in &subject.cells {
            let relative = cell.difference.abs() / cell.recorded.max(1.0);
            let of = match cell.metric {
                Metric::Share => (What::Share, cell.difference.abs()),
                Metric::Latency(Stat::Percentile(50_000)) => (What::P50, relative),
                Metric::Latency(Stat::Percentile(99_000)) => (What::P99, relative),
                _ => continue,
            };
            // A task that hardly ever sleeps has no distribution of wakeups.
            let wakes = subject
                .cells
                .iter()
                .find(|c| c.metric == Metric::Throughput)
                .map_or(0.0, |c| c.recorded);
            let beyond = match of.0 {
                What::Share => f64::INFINITY,
                What::P50 => wakes * seconds / 2.0,
                What::P99 => wakes * seconds / 100.0,
            };
            println!(
                "{file}: {} {:?} {:.0} recorded, {:.0} simulated, off by {:.3} ({beyond:.0} \
                 beyond it)",
                subject.name,
                of.0,
                cell.recorded * if of.0 == What::Share { 1e4 } else { 1.0 },
                cell.simulated * if of.0 == What::Share { 1e4 } else { 1.0 },
                of.1
            );
            if beyond >= BEYOND {
                errors.push((subject.name.clone(), of.0, of.1));
            }
        }
    }
    errors
}

#[test]
fn every_shipped_recording_replays_itself() {
    let mut files: Vec<PathBuf> = std::fs::read_dir(recordings())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "slt"))
        .collect();
    files.sort();
    assert!(files.len() >= 13, "{files:?}");
    if let Ok(others) = std::env::var("SELF_REPLAY") {
        files = others.split(',').map(PathBuf::from).collect();
    }
    let mut wrong = Vec::new();
    for path in &files {
        let file = path.file_stem().unwrap().to_str().unwrap();
        for (task, what, error) in errors(file, &self_replay(path)) {
            let miss = MISSES.iter().find(|m| (m.0, m.1, m.2) == (file, task.as_str(), what));
            let wanted = if what == What::Share { SHARE } else { LATENCY };
            let most = miss.map_or(wanted, |m| m.3);
            if error > most {
                let why = miss.map_or("", |m| m.4);
                wrong.push(format!(
                    "{file}: {task} {what:?} is off by {error:.3}, allowed {most} {why}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
