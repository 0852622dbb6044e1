//! kill -9 of the recorder at any moment leaves no file or one that opens. Rounds and seed are
//! fixed: `SCHEDLAB_KILLS=50 cargo test -p schedlab-cli --test it killed:: -- --nocapture` does
//! fifty.
#![allow(clippy::print_stderr)]

use schedlab_trace::{Index, Recording, TraceError};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A small generator of moments.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn a_killed_recorder_leaves_a_file_that_opens() {
    let rounds =
        std::env::var("SCHEDLAB_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    let folder =
        schedlab_testing::temp_dir().join(format!("schedlab-killed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // Something to record: a pipe between two processes.
    let script = "while :; do echo x | cat >/dev/null; done";
    let load = Command::new("sh").args(["-c", script]).stdout(Stdio::null()).spawn().unwrap();
    let _load = Ended(load);
    let mut seed = 20_261_121;
    let (mut opened, mut empty, mut events) = (0, 0, 0);
    for round in 0..rounds {
        let path = folder.join(format!("{round}.slt"));
        let mut recorder = Command::new(env!("CARGO_BIN_EXE_schedlab"))
            .args(["record", "--all", "-o"])
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let moment = Duration::from_millis(next(&mut seed) % 1800);
        // Any moment; every second one is counted from when there is a file, however long that
        // takes here.
        while round % 2 == 1 && !path.exists() && recorder.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(moment);
        if recorder.try_wait().unwrap().is_some() {
            assert!(std::env::var("CI").map_or(true, |ci| ci != "true"), "it must record here");
            eprintln!(
                "SKIPPED a_killed_recorder_leaves_a_file_that_opens: this machine cannot be \
                 recorded"
            );
            return;
        }
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        match Recording::open(&path) {
            Ok(recording) => {
                assert!(recording.repairs.cut_off, "round {round}");
                // Repair adds a switch where one is missing and drops what is there twice.
                let repaired =
                    recording.repairs.inconsistent_switches + recording.repairs.duplicates;
                let listed = Index::open(&path).unwrap().events();
                assert!(
                    listed.abs_diff(recording.events.len() as u64) <= repaired,
                    "round {round}"
                );
                opened += 1;
                events += recording.events.len();
            }
            // Killed before it began: there is no file.
            Err(TraceError::File { .. }) if !path.exists() => empty += 1,
            Err(error) => panic!("round {round}, killed after {moment:?}: {error}"),
        }
        // What is left beside the file are no pieces of it.
        let left = std::fs::read_dir(&folder).unwrap().count();
        assert!(left <= round + 1, "{left} files after {} rounds", round + 1);
    }
    std::fs::remove_dir_all(&folder).unwrap();
    eprintln!(
        "{rounds} kills: {opened} files opened with {events} events, {empty} were killed before \
         there was a file"
    );
    assert!(opened > 0);
}
