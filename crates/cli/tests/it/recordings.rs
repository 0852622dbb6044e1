//! Every shipped recording: it replays, the same on one thread and in a batch on two.

use super::{files, schedlab};
use schedlab_study::measurements::Kind;
use schedlab_study::result::Study;

/// Recorded beside compilers that begin and end, of which a replay makes endless ones: what is said
/// of the guests is held against other recordings (docs/guide/guests.md).
const BESIDE_COMPILERS: &str = "guests-weighted.slt";

#[test]
fn every_recording_replays_the_same_on_one_thread_and_two() {
    for file in files("recordings", "slt") {
        let path = file.display().to_string();
        let run =
            |jobs: &str| schedlab(&["compare", &path, "--json", "--seeds", "2", "--jobs", jobs]);
        let (one, two) = (run("1"), run("2"));
        assert!(one.code == 0 || one.code == 3, "{path}: {}", one.stderr);
        assert!(one.stdout == two.stdout, "{path} depends on the number of threads");
        let study: Study = serde_json::from_str(&one.stdout).expect(&path);
        let replay = study.self_replay.expect("a recording is replayed");
        if !path.ends_with(BESIDE_COMPILERS) {
            assert!(replay.trusted, "{path}: {:?}", replay.distrust);
        }
        assert!(replay.wakes_by_tasks > 0, "{path}: no dependencies found");
    }
}

/// A closed loop over loopback is seen as a loop: with 8 connections the server is always busy, so
/// when it needs twice the CPU time, its clients get half as many replies. Were their requests
/// counted as arrivals by the clock, they would get as many as before.
#[test]
fn a_loop_is_seen_as_a_loop() {
    let path = "recordings/redis-other-other-closed8.slt";
    let variant = "double: redis-server demand=x2";
    let ran = schedlab(&["compare", path, "--json", "--seeds", "1", "--variant", variant]);
    let study: Study = serde_json::from_str(&ran.stdout).unwrap();
    let replies = |row: usize| {
        let client = study.rows[row].find(Kind::Class, "redload").expect("recorded");
        client.cell("throughput".parse().unwrap()).expect("measured").value.median
    };
    let ratio = replies(1) / replies(0);
    assert!((0.45..0.55).contains(&ratio), "throughput changed to {ratio}");
}

/// A server that is always busy blocks some 25 times in three seconds: a p99 of these is one of
/// them, and its error is no judgement of the method. The batch job beside it in the same column
/// has none, the client thousands.
#[test]
fn percentiles_of_a_few_activations_are_not_judged() {
    let ran = schedlab(&["compare", "recordings/redis-other-other-closed8.slt", "--seeds", "1"]);
    let line =
        |name: &str| ran.stdout.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
    let (server, client) = (line("redis-server"), line("redload"));
    let few = |line: &str| line.split_whitespace().any(|word| word == "few");
    assert!(few(server), "{server}");
    assert!(client.contains('%') && !few(client), "{client}");
    assert!(ran.stdout.contains("few: fewer than two values"), "{}", ran.stdout);
}
