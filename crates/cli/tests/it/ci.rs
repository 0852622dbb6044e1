//! `schedlab ci run`: a folder, two schedulers, gates.

use super::{Folder, schedlab};
use serde_json::Value;
use std::fs;

/// A server that answers beside a hog, and a machine with a hog alone.
const SERVED: &str = r#"
title = "a server beside a hog"
schedulers = ["linux-6.18"]
duration = "3s"
channels = ["requests"]
[machine]
cpus = 1
[[task]]
name = "server"
program = ["receive requests", "run 200us", "done requests"]
[[task]]
name = "hog"
program = "hog"
[[source]]
name = "clients"
into = "requests"
clients = 1
think = "1ms"
"#;

const HOGS: &str = r#"
title = "two hogs"
schedulers = ["linux-6.18"]
duration = "300ms"
[machine]
cpus = 1
[[task]]
name = "hog"
count = 2
program = "hog"
"#;

fn corpus() -> Folder {
    let folder = Folder::new("ci");
    fs::create_dir_all(folder.0.join("corpus/hogs")).unwrap();
    fs::write(folder.0.join("corpus/served.toml"), SERVED).unwrap();
    fs::write(folder.0.join("corpus/hogs/two.toml"), HOGS).unwrap();
    fs::write(folder.0.join("corpus/notes.txt"), "not taken").unwrap();
    folder
}

fn run(folder: &Folder, more: &[&str]) -> super::Ran {
    let path = folder.0.join("corpus").display().to_string();
    let all = ["ci", "run", &path, "--seeds", "2", "--against", "linux-6.18"];
    schedlab(&[&all[..], more].concat())
}

#[test]
fn a_planted_regression_fails_and_a_like_scheduler_passes() {
    let folder = corpus();
    let junit = folder.0.join("junit.xml");
    let gate = ["--fail-if", "clients response p50 > +20%"];
    // No preemption by who wakes: the server waits for the end of the hog's slice.
    let worse = "rr:slice_ns=20ms";
    let to = junit.display().to_string();
    let failed = run(&folder, &[&["--scheduler", worse, "--junit", &to], &gate[..]].concat());
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.stdout.starts_with("rr:slice_ns=20ms fails in 1 of 2 files"), "{failed:?}");
    assert!(failed.stdout.contains("1 have nothing that a gate is about"), "{failed:?}");
    let xml = fs::read_to_string(junit).unwrap();
    assert!(xml.contains("<failure") && xml.contains("clients response p50"), "{xml}");

    let like = ["--scheduler", "linux-6.12", "--json"];
    let same = run(&folder, &[&like[..], &gate[..]].concat());
    assert_eq!(same.code, 0, "{same:?}");
    let told: Value = serde_json::from_str(&same.stdout).unwrap();
    assert_eq!(told["files"][1]["outcome"], "passed", "{told}");
    assert_eq!(told["files"][0]["outcome"], "not-covered", "{told}");
}

/// Subjects of gates are what tasks of recordings are taken together by; those of a scenario have
/// their names.
#[test]
fn gates_are_of_what_tasks_are_taken_together_by() {
    let folder = corpus();
    let recording = super::root().join("recordings/redis-other-other-closed8.slt");
    fs::copy(recording, folder.0.join("corpus/redis.slt")).unwrap();
    let of = |more: &[&str]| {
        let all = ["--scheduler", "linux-6.12", "--for", "500ms", "--json"];
        run(&folder, &[&all[..], more].concat())
    };
    let covered = |ran: &super::Ran| {
        let found: Value = serde_json::from_str(&ran.stdout).unwrap();
        let files = found["files"].as_array().unwrap().clone();
        let of = |one: Value| (one["outcome"] == "passed").then(|| one["file"].clone());
        files.into_iter().filter_map(of).collect::<Vec<_>>()
    };
    let by_name = ["--fail-if", "redis-server share < 1%"];
    assert_eq!(covered(&of(&by_name)), ["redis.slt"]);
    // Its tasks are in no unit.
    let by_unit = ["--fail-if", "(no unit) share < 1%"];
    let refused = of(&by_unit);
    assert!(refused.code == 2 && refused.stderr.contains("no file of"), "{refused:?}");
    assert_eq!(covered(&of(&[&by_unit[..], &["--by", "unit"]].concat())), ["redis.slt"]);
    let hogs = of(&["--fail-if", "hog share < 1%", "--by", "unit"]);
    assert_eq!(covered(&hogs), ["hogs/two.toml", "served.toml"]);
}

#[test]
fn what_cannot_be_is_said_with_the_name() {
    let folder = corpus();
    let other = ["--scheduler", "linux-6.12"];
    let refused = run(&folder, &[&other[..], &["--fail-if", "redis latency p99 > 1ms"]].concat());
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("no file of") && refused.stderr.contains("redis latency"));
    let twice = ["--scheduler", "linux-6.18", "--fail-if", "hog share < 1%"];
    assert!(run(&folder, &twice).stderr.contains("are both linux-6.18"));
    let unknown = run(&folder, &["--scheduler", "linux-9", "--fail-if", "hog share < 1%"]);
    assert!(unknown.code == 2 && unknown.stderr.contains("--scheduler"), "{unknown:?}");
    // A broken file is told of with the others, and is no success.
    fs::write(folder.0.join("corpus/broken.slt"), "no recording").unwrap();
    let broken = run(&folder, &[&other[..], &["--fail-if", "hog share < 1%"]].concat());
    assert_eq!(broken.code, 2, "{broken:?}");
    assert!(
        broken.stdout.contains("broken.slt") && broken.stdout.contains("1 could not be compared")
    );
}
