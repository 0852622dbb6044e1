//! `schedlab latency`, as a user meets it: short runs, structure only.

use super::schedlab;
use schedlab_host::threads::affinity;

#[test]
fn json_has_every_expiry_and_whole_histograms() {
    for wake in ["clock", "timerfd", "pipe", "eventfd", "futex", "socket"] {
        let ran = schedlab(&["latency", "--loops", "30", "--wake", wake, "--no-lock", "--json"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let value: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(
            (&value["schema"], &value["request"]["wake"]),
            (&"schedlab-latency/1".into(), &wake.into())
        );
        let threads = value["threads"].as_array().unwrap();
        assert_eq!(threads.len(), affinity(0).unwrap().iter().count());
        for thread in threads {
            let samples = thread["latency"]["count"].as_u64().unwrap();
            assert_eq!(samples + thread["withheld"].as_u64().unwrap(), 30, "{wake}: {thread}");
            let buckets = thread["latency"]["buckets"].as_array().unwrap();
            assert_eq!(buckets.iter().map(|bucket| bucket[1].as_u64().unwrap()).sum::<u64>(), samples);
        }
        assert_eq!(value["rows"].as_array().unwrap().len(), threads.len() + 1);
    }
}

#[test]
fn text_has_the_ladder_and_a_verdict() {
    let ran = schedlab(&["latency", "--loops", "40", "--cpus", "all", "--threads", "1", "--no-lock"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for expected in
        ["policy other", "p50", "max", "cpu0", "all", "Half of 40 wakeups", "p90 needs 100 samples"]
    {
        assert!(ran.stdout.contains(expected), "{expected}: {}", ran.stdout);
    }
    // No terminal: nothing live.
    assert_eq!(ran.stderr, "");
}

#[test]
fn conditions_decide_the_exit_code() {
    let with = |gate: &str| schedlab(&["latency", "--loops", "40", "--no-lock", "--fail-if", gate]);
    let failed = with("max > 1ns");
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.stdout.contains("FAILED max > 1ns (all)"), "{}", failed.stdout);
    let passed = with("cpu* min > 100s");
    assert_eq!(passed.code, 0, "{passed:?}");
    let short = with("p99.99 > 100s");
    assert_eq!(short.code, 3, "{short:?}");
    assert!(
        short.stdout.contains("CANNOT SAY") && short.stdout.contains("100000 samples"),
        "{}",
        short.stdout
    );
}

#[test]
fn mistakes_are_answered() {
    for (arguments, expected) in [
        (&["--interval", "1us"][..], "--interval"),
        (&["--interval", "1h"], "--interval"),
        (&["--interval", "-1ms"], "--interval"),
        (&["--for", "1us"], "no expiry"),
        (&["--loops", "0"], "no expiry"),
        (&["--cpus", "4000"], "--cpus"),
        (&["--cpus", "255"], "CPU 255 is not one"),
        (&["--threads", "0"], "--threads"),
        (&["--policy", "fifo:100"], "--policy"),
        (&["--policy", "deadline:1ms/2ms/2ms"], "one CPU"),
        (&["--wake", "smoke"], "timerfd"),
        (&["--dma-latency", "-1"], "--dma-latency"),
        (&["--fail-if", "p99"], "--fail-if"),
        (&["--fail-if", "share > 5%"], "only latency"),
        (&["--fail-if", "p99 > +5%"], "nothing before"),
        (&["--loops", "5", "-o", "/"], "directory"),
        (&["--loops", "5", "-o", "/nowhere/at/all"], "cannot be written"),
    ] {
        let all: Vec<&str> = ["latency"].iter().chain(arguments).copied().collect();
        let ran = schedlab(&all);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(expected), "{expected}: {}", ran.stderr);
    }
}
