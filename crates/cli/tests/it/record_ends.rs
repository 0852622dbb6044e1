//! How a recording ends when it is interrupted: properly on a signal, with a file that opens when
//! it is killed. Records own tasks only, which every user may; machines without perf events skip by
//! name.
#![allow(clippy::print_stderr)]

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use schedlab_trace::Recording;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Starts a recording of a shell that writes its process id and then sleeps often: for longer than
/// the recorder waits for events.
fn start(name: &str) -> (Child, PathBuf, PathBuf) {
    let folder =
        schedlab_testing::temp_dir().join(format!("schedlab-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (file, pid) = (folder.join("x.slt"), folder.join("pid"));
    let script = "echo $$ > $0.part; mv $0.part $0; i=0; while [ $i -lt 20000 ]; do sleep 0.01; \
                  i=$((i+1)); done";
    let child = Command::new(env!("CARGO_BIN_EXE_schedlab"))
        .args(["record", "--backend", "own-tasks", "-o"])
        .arg(&file)
        .args(["--", "sh", "-c", script])
        .arg(&pid)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    (child, file, pid)
}

/// No measure of speed: only a recorder that hangs takes that long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until the file holds events; `false` when the recorder refused to record here.
fn has_events(child: &mut Child, file: &Path) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().unwrap() {
            assert_eq!(status.code(), Some(2), "it ended although the command runs on");
            assert!(std::env::var("CI").map_or(true, |ci| ci != "true"), "it must work here");
            eprintln!("SKIPPED: own tasks cannot be recorded here");
            return false;
        }
        if Recording::open(file).is_ok_and(|recording| !recording.events.is_empty()) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("no events after {PATIENCE:?}");
}

fn command_pid(file: &Path) -> Pid {
    Pid::from_raw(std::fs::read_to_string(file).unwrap().trim().parse().unwrap()).unwrap()
}

#[test]
fn a_signal_ends_the_recording_and_the_command() {
    let (mut child, file, pid) = start("signal");
    if has_events(&mut child, &file) {
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert!(child.wait().unwrap().success());
        let recording = Recording::open(&file).unwrap();
        assert!(!recording.repairs.cut_off, "it has its end mark");
        assert!(test_kill_process(command_pid(&pid)).is_err(), "the command was ended");
    }
    let _ = std::fs::remove_dir_all(file.parent().unwrap());
}

#[test]
fn a_killed_recorder_leaves_a_file_that_opens() {
    let (mut child, file, pid) = start("kill");
    if has_events(&mut child, &file) {
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        let recording = Recording::open(&file).unwrap();
        assert!(recording.repairs.cut_off && !recording.events.is_empty());
        // The kernel tells the command's holder, which ends it.
        let begin = Instant::now();
        while test_kill_process(command_pid(&pid)).is_ok() {
            assert!(begin.elapsed() < PATIENCE, "the command runs on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let _ = std::fs::remove_dir_all(file.parent().unwrap());
}
