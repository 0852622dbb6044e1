//! The self-replay of every shipped recording, with the error that it may have. What is asked is 2 points of CPU
//! share and 15 % of run-queue latency at p50 and p99. Where more is allowed, the line says why.

use schedlab_lab::compare::{Options, RecordedInput, compare_recording};
use schedlab_lab::metric::{Metric, Stat};
use schedlab_lab::result::SelfReplay;
use std::path::PathBuf;

const SHARE: f64 = 0.02;
const LATENCY: f64 = 0.15;

/// What is wanted: tasks that the recording is about.
const SUBJECTS: [&str; 5] = ["redis-server", "redload", "sysbench", "hackbench", "yes"];

#[derive(Clone, Copy, PartialEq, Debug)]
enum What {
    Share,
    P50,
    P99,
}

const IDLE_CPU: &str =
    "the model moves wakees to a CPU that runs only SCHED_IDLE, the recorded kernel did not";

/// Known misses: recording, task, figure, the error reached (points or a part), why.
const MISSES: [(&str, &str, What, f64, &str); 8] = [
    (
        "hackbench",
        "hackbench",
        What::Share,
        0.05,
        "idle for a moment after blocks that were none in the recording",
    ),
    ("hackbench", "hackbench", What::P50, 0.95, "messages that nobody blocks for are not in the recording"),
    ("redis-fifo-other-closed8", "redis-server", What::P99, 0.50, "48 wakeups: the largest is the p99"),
    ("redis-other-idle-closed8", "redis-server", What::P99, 0.60, "48 wakeups: the largest is the p99"),
    ("redis-other-idle-open", "redis-server", What::P99, 0.70, IDLE_CPU),
    ("redis-other-idle-open", "sysbench", What::Share, 0.03, IDLE_CPU),
    (
        "redis-other-other-open",
        "redis-server",
        What::P99,
        3.00,
        "1.04 % of the wakeups wait for a tick: p99 is an edge",
    ),
    ("hackbench", "hackbench", What::P99, 0.30, "as its p50"),
];

fn recordings() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../recordings")
}

fn self_replay(path: &std::path::Path) -> SelfReplay {
    let input = RecordedInput::open(path).unwrap();
    let options = Options { jobs: 1, ..Options::default() };
    let study = compare_recording(&input, None, &options, &|_, _| {}).unwrap();
    study.self_replay.unwrap()
}

fn errors(replay: &SelfReplay) -> Vec<(String, What, f64)> {
    let mut errors = Vec::new();
    for subject in replay.subjects.iter().filter(|s| SUBJECTS.contains(&s.name.as_str())) {
        for cell in &subject.cells {
            let relative = cell.difference.abs() / cell.recorded.max(1.0);
            let of = match cell.metric {
                Metric::Share => (What::Share, cell.difference.abs()),
                Metric::Latency(Stat::Percentile(50_000)) => (What::P50, relative),
                Metric::Latency(Stat::Percentile(99_000)) => (What::P99, relative),
                _ => continue,
            };
            // A task that hardly ever sleeps has no distribution of wakeups.
            let wakes =
                subject.cells.iter().find(|c| c.metric == Metric::Throughput).map_or(0.0, |c| c.recorded);
            if of.0 == What::Share || wakes >= 10.0 {
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
    assert!(files.len() >= 12, "{files:?}");
    let mut wrong = Vec::new();
    for path in &files {
        let file = path.file_stem().unwrap().to_str().unwrap();
        for (task, what, error) in errors(&self_replay(path)) {
            let miss = MISSES.iter().find(|m| (m.0, m.1, m.2) == (file, task.as_str(), what));
            let wanted = if what == What::Share { SHARE } else { LATENCY };
            let most = miss.map_or(wanted, |m| m.3);
            if error > most {
                let why = miss.map_or("", |m| m.4);
                wrong.push(format!("{file}: {task} {what:?} is off by {error:.3}, allowed {most} {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
