//! `schedlab latency` beside a planted stall: a thread of this test that is real-time and above the
//! measuring one. Needs CAP_SYS_NICE (and perf tracepoints for the blame); skips by name without,
//! which is a failure where CI=true.

#![allow(clippy::print_stderr)] // a test that is skipped says its name

use super::schedlab;
use schedlab_host::threads::{Scheduling, affinity, scheduling, set_affinity, set_scheduling};
use schedlab_model::{CpuId, CpuSet, Policy};
use schedlab_testing::settles;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Disturbances of 4 ms come as often as the hog on a bad machine: that all of so many tries meet
/// one is as good as never.
const TRIES: u32 = 25;

/// Below it and above it.
const MEASURED: &str = "fifo:50";
const HOG: Policy = Policy::Fifo(60);

/// The CPU on which to plant.
fn place() -> CpuId {
    affinity(0).unwrap().iter().next().unwrap()
}

/// Runs `work` while a thread of the test holds its CPU for `long` again and again; `None`: not
/// allowed here. The thread ends when `work` does.
fn beside_hog<T>(long: Duration, work: impl FnOnce() -> T) -> Option<T> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let over = &over;
        let hog = std::thread::Builder::new().name("planted-hog".to_owned());
        hog.spawn_scoped(scope, move || {
            set_affinity(0, &CpuSet::single(place())).unwrap();
            let real_time = scheduling(0)
                .and_then(|old| set_scheduling(0, &Scheduling { policy: HOG, slice: None, ..old }));
            tell.send(real_time.is_ok()).unwrap();
            while real_time.is_ok() && !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(250));
                let begin = Instant::now();
                while begin.elapsed() < long {
                    std::hint::spin_loop();
                }
            }
        })
        .unwrap();
        if !told.recv().unwrap() {
            assert!(std::env::var("CI").map_or(true, |ci| ci != "true"), "CI runs as root");
            eprintln!("SKIPPED: no real-time policy for us here");
            return None;
        }
        let done = work();
        over.store(true, Ordering::Relaxed);
        Some(done)
    })
}

#[test]
fn fail_if_tells_a_planted_stall_from_none() {
    let cpu = place().0.to_string();
    let measure = || {
        schedlab(
            &["latency", "--cpus", &cpu, "--policy", MEASURED, "--for", "1200ms", "--no-lock"]
                .into_iter()
                .chain(["--fail-if", "max > 300ms"])
                .collect::<Vec<_>>(),
        )
    };
    settles(3, || {
        let Some(stalled) = beside_hog(Duration::from_millis(400), measure) else { return };
        assert_eq!(stalled.code, 1, "{stalled:?}");
        assert!(stalled.stdout.contains("FAILED max > 300ms (all)"), "{}", stalled.stdout);
    });
    settles(3, || {
        let quiet = measure();
        assert_eq!(quiet.code, 0, "{quiet:?}");
    });
}

#[test]
fn break_blames_a_planted_hog_by_name() {
    let cpu = place().0.to_string();
    let arguments = [
        "latency",
        "--cpus",
        &cpu,
        "--policy",
        MEASURED,
        "--for",
        "20s",
        "--break",
        "4ms",
        "--no-lock",
        "--json",
    ];
    // Another program that holds the CPU for so long is named rightly, which proves nothing: the
    // hog is named some time.
    let mut seen = String::new();
    for _ in 0..TRIES {
        let Some(ran) = beside_hog(Duration::from_millis(5), || schedlab(&arguments)) else {
            return;
        };
        assert_eq!(ran.code, 1, "{ran:?}");
        let value: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        if value["blame"].is_null() {
            assert!(std::env::var("CI").map_or(true, |ci| ci != "true"), "CI has perf tracepoints");
            eprintln!("SKIPPED: {}", value["doubts"]);
            return;
        }
        let blame = &value["blame"];
        let (total, parts) =
            (blame["total_ns"].as_u64().unwrap(), blame["parts"].as_array().unwrap());
        let sum: u64 = parts.iter().map(|part| part["ns"].as_u64().unwrap()).sum();
        assert_eq!(sum, total, "the budget adds up: {blame}");
        let by = |part: &&serde_json::Value| {
            part["cause"] == "preempted" && part["who"] == "planted-hog"
        };
        let hog: u64 = parts.iter().filter(by).map(|part| part["ns"].as_u64().unwrap()).sum();
        if hog * 10 >= total * 9 {
            assert!(total > 3_000_000, "{blame}");
            assert!(
                value["verdict"][0].as_str().unwrap().contains("preempted by planted-hog"),
                "{value}"
            );
            return;
        }
        seen = blame.to_string();
    }
    panic!("the hog was never blamed with 90 %: {seen}");
}
