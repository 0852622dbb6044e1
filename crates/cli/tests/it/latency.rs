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
            assert_eq!(
                buckets.iter().map(|bucket| bucket[1].as_u64().unwrap()).sum::<u64>(),
                samples
            );
        }
        assert_eq!(value["rows"].as_array().unwrap().len(), threads.len() + 1);
        for row in value["rows"].as_array().unwrap() {
            let (rungs, intervals) =
                (row["rungs_ns"].as_array().unwrap(), row["intervals_ns"].as_array().unwrap());
            assert_eq!(rungs.len(), intervals.len(), "{row}");
            // A machine that stood still withheld the others: of fewer than six samples the median
            // has no interval of 95 %.
            if row["count"].as_u64().unwrap() < 6 {
                assert!(intervals[0][0].is_null() || intervals[0][1].is_null(), "{row}");
                continue;
            }
            let [low, high] = [0, 1].map(|end| intervals[0][end].as_u64().unwrap());
            // Nor is p50 told of fewer than twenty.
            let Some(median) = rungs[0].as_u64() else {
                assert!(row["count"].as_u64().unwrap() < 20, "{row}");
                continue;
            };
            assert!(
                row["min_ns"].as_u64().unwrap() <= low && low <= median && median <= high,
                "{row}"
            );
            assert!(high <= row["max_ns"].as_u64().unwrap(), "{row}");
            // No sample of thirty is certain to be beyond p99.
            assert!(intervals[2][1].is_null(), "{row}");
        }
    }
}

#[test]
fn text_has_the_ladder_and_a_verdict() {
    let ran =
        schedlab(&["latency", "--loops", "40", "--cpus", "all", "--threads", "1", "--no-lock"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for expected in
        ["policy other", "p50", "max", "cpu0", "all", "Half of 40 wakeups", "p90 needs 100 samples"]
    {
        assert!(ran.stdout.contains(expected), "{expected}: {}", ran.stdout);
    }
    // No terminal: nothing live.
    assert_eq!(ran.stderr, "");
    // The answer is before the table, and each percentile has its interval.
    assert!(ran.stdout.starts_with("Half of 40 wakeups were at most "), "{}", ran.stdout);
    assert!(ran.stdout.contains("with 95 % (all): p50 "), "{}", ran.stdout);
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

/// A run of one thread, as JSON, in a file that goes with the value.
struct File(std::path::PathBuf);

impl File {
    fn named(name: &str) -> File {
        File(
            schedlab_testing::temp_dir()
                .join(format!("schedlab-latency-{}-{name}", std::process::id())),
        )
    }
    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }
    fn measured(name: &str) -> File {
        let file = File::named(name);
        let ran = schedlab(&[
            "latency",
            "--loops",
            "40",
            "--threads",
            "1",
            "--no-lock",
            "--json",
            "-o",
            file.text(),
        ]);
        assert_eq!(ran.code, 0, "{ran:?}");
        file
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn results_of_several_machines_are_one_table_and_one_page() {
    let (first, second, page, whole) = (
        File::measured("a.json"),
        File::measured("b.json"),
        File::named("m.html"),
        File::named("m.json"),
    );
    let (a, b) = (format!("old={}", first.text()), format!("new={}", second.text()));
    let ran = schedlab(&["latency", "merge", &a, &b, "--report", page.text()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for expected in
        ["old: ", "new: ", "Against old, over pairs of rounds", "as it was, other, new: p99 ratio"]
    {
        assert!(ran.stdout.contains(expected), "{expected}: {}", ran.stdout);
    }
    let html = std::fs::read_to_string(&page.0).unwrap();
    assert!(html.contains("Wakeup latency, side by side") && html.contains("Ratio to old"));
    // What was merged can be merged again; two files of one name are two rounds.
    let ran = schedlab(&["latency", "merge", &a, &b, &b, "--json", "-o", whole.text()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let ran = schedlab(&["latency", "merge", whole.text(), "--json"]);
    let value: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(value["schema"], "schedlab-latency-matrix/1");
    assert_eq!(value["systems"].as_array().unwrap().len(), 2);
    let rounds: Vec<usize> = value["cells"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["rounds"].as_array().unwrap().len())
        .collect();
    assert_eq!(rounds, [1, 2]);
    // The files do not say what ran beside: no finding can be checked.
    assert_eq!(value["findings"].as_array().unwrap().len(), 0);
    assert_eq!(value["article"].as_array().unwrap().len(), 8);
}

#[test]
fn what_cannot_be_merged_is_answered() {
    let (good, bad) = (File::measured("c.json"), File::named("d.json"));
    for (text, expected) in [
        ("{\"schema\": \"schedlab-latency/7\"}", "reads schedlab-latency/1"),
        ("not JSON", "neither JSON"),
        ("{\"schema\": \"schedlab-stress/1\"}", "cyclictest"),
    ] {
        std::fs::write(&bad.0, text).unwrap();
        let ran = schedlab(&["latency", "merge", good.text(), bad.text()]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(expected) && ran.stderr.contains(bad.text()), "{}", ran.stderr);
    }
    for (arguments, expected) in
        [(&["/nowhere/x.json"][..], "/nowhere/x.json"), (&["=x.json"], "a name"), (&[], "FILE")]
    {
        let ran = schedlab(&[&["latency", "merge"], arguments].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(expected), "{expected}: {}", ran.stderr);
    }
}

/// The smallest table that there is: real threads, a real load.
#[test]
fn a_matrix_has_its_four_rows_beside_the_published_maxima() {
    let page = File::named("rt.html");
    let arguments = [
        "latency",
        "--matrix",
        "--rounds",
        "1",
        "--for",
        "300ms",
        "--groups",
        "1",
        "--no-lock",
        "--json",
        "--report",
        page.text(),
    ];
    let ran = schedlab(&arguments);
    if ran.code == 2 && ran.stderr.contains("CAP_SYS_NICE") {
        assert!(std::env::var("CI").map_or(true, |ci| ci != "true"), "CI runs as root");
        super::skip(
            "a_matrix_has_its_four_rows_beside_the_published_maxima",
            "no real-time policy here",
        );
        return;
    }
    assert_eq!(ran.code, 0, "{ran:?}");
    let value: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let rows: Vec<String> = value["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            format!("{} {} {}", row["load"], row["policy"], row["article_max_ns"]).replace('"', "")
        })
        .collect();
    let published = ["9602000", "369000", "101095000", "446000"];
    assert_eq!(rows.len(), 4, "{rows:?}");
    for (row, start) in
        rows.iter().zip(["idle other", "idle fifo:49", "loaded other", "loaded fifo:49"])
    {
        assert!(row.starts_with(start), "{rows:?}");
    }
    assert_eq!(value["findings"].as_array().unwrap().len(), 4);
    let realtime = value["systems"][0]["realtime"] == true;
    assert!(
        realtime || rows.iter().zip(published).all(|(row, max)| row.ends_with(max)),
        "{rows:?}"
    );
    for cell in value["cells"].as_array().unwrap() {
        assert!(cell["rounds"][0]["samples"]["count"].as_u64().unwrap() >= 30, "{cell}");
    }
    assert!(std::fs::read_to_string(&page.0).unwrap().contains("The table"));
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
        (&["--matrix", "--policy", "other"], "--policy"),
        (&["--rounds", "3"], "--matrix"),
        (&["--break", "later"], "--break"),
        (&["--matrix", "--report", "/tmp/x.html", "-o", "/tmp/x.html"], "a file of its own"),
        (&["--wake", "smoke"], "timerfd"),
        (&["--dma-latency", "-1"], "--dma-latency"),
        (&["--fail-if", "p99"], "--fail-if"),
        (&["--fail-if", "share > 5%"], "only latency"),
        (&["--fail-if", "p99 > +5%"], "nothing before"),
        (&["--cpus", "0", "--fail-if", "cpu9 max > 1ms"], "there are cpu0, all"),
        (&["--loops", "5", "-o", "/"], "directory"),
        (&["--loops", "5", "-o", "/nowhere/at/all"], "cannot be written"),
    ] {
        let all: Vec<&str> = ["latency"].iter().chain(arguments).copied().collect();
        let ran = schedlab(&all);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(expected), "{expected}: {}", ran.stderr);
    }
}
