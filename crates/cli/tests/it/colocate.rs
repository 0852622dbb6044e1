//! `colocate` on a small server and a spinner of our own.

use crate::{Folder, Ran, ran, root};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Sleeps 2 ms, then works for a moment: what a server does.
const SERVER: &str = "import time\nwhile True:\n  time.sleep(0.002)\n  for _ in range(5000): pass";
const SPINNER: &str = "while True: pass";

/// A child on CPU 0 that goes away.
struct Pinned(Child);

impl Pinned {
    fn python(program: &str) -> Pinned {
        let mut command = Command::new("taskset");
        command.args(["-c", "0", "python3", "-c", program]).stdin(Stdio::null());
        Pinned(command.spawn().expect("taskset(1) of util-linux"))
    }
    fn pid(&self) -> String {
        self.0.id().to_string()
    }
    fn policy(&self) -> String {
        let output = Command::new("chrt").args(["-p", &self.pid()]).output().expect("chrt(1) of util-linux");
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().next().and_then(|line| line.rsplit(' ').next()).expect("a line").to_owned()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    command.arg("colocate").args(arguments).current_dir(root());
    command.stdin(Stdio::null()).env("SCHEDLAB_RUN_DIR", &folder.0);
    command
}

/// Whether wakeups can be recorded here; with `CI` set they must.
fn can_record(test: &str) -> bool {
    let doctor = crate::schedlab(&["record", "-o", "/dev/null", "--all", "--for", "10ms"]);
    let can = rustix::process::geteuid().is_root() && doctor.code != 2;
    assert!(can || std::env::var_os("CI").is_none(), "{test} needs root and a recorder: {doctor:?}");
    can
}

#[test]
fn the_goal_is_reached_and_all_is_as_before() {
    if !can_record("the_goal_is_reached_and_all_is_as_before") {
        return;
    }
    let folder = Folder::new("colocate");
    let (server, batch) = (Pinned::python(SERVER), Pinned::python(SPINNER));
    let ran: Ran = ran(&mut command(
        &folder,
        &[
            "--serve-pid",
            &server.pid(),
            "--batch-pid",
            &batch.pid(),
            "--cpus",
            "0",
            "--round",
            "1s",
            "--rounds",
            "1",
            "--goal",
            "server share > 0%",
            "--goal",
            "batch share < 99.9%",
            "--json",
        ],
    ));
    let value: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    assert_eq!((ran.code, value["outcome"].as_str()), (0, Some("met")), "{ran:?}");
    assert_eq!(value["chosen"], "default", "it meets them already: {ran:?}");
    let before = (server.policy(), batch.policy());
    assert_eq!(before, ("SCHED_OTHER".to_owned(), "SCHED_OTHER".to_owned()));
    assert!(folder.names().is_empty(), "{:?}", folder.names());
}

/// Only what SCHED_IDLE does tells the two rounds apart: a spinner that has no equal share any more.
#[test]
fn sched_idle_is_found_when_the_default_misses_the_goal() {
    if !can_record("sched_idle_is_found_when_the_default_misses_the_goal") {
        return;
    }
    let folder = Folder::new("colocate-idle");
    let (server, batch) = (Pinned::python(SPINNER), Pinned::python(SPINNER));
    let ran: Ran = ran(&mut command(
        &folder,
        &[
            "--serve-pid",
            &server.pid(),
            "--batch-pid",
            &batch.pid(),
            "--cpus",
            "0",
            "--round",
            "1s",
            "--rounds",
            "1",
            "--goal",
            "batch share < -60%",
        ],
    ));
    assert!(ran.code == 0 && ran.stdout.contains("idle: the batch threads run under SCHED_IDLE"), "{ran:?}");
    assert!(ran.stdout.contains("CPUSchedulingPolicy=idle"), "{ran:?}");
    assert_eq!(batch.policy(), "SCHED_OTHER");
    assert!(folder.names().is_empty(), "{:?}", folder.names());
}

#[test]
fn kill_9_leaves_all_as_before() {
    if !can_record("kill_9_leaves_all_as_before") {
        return;
    }
    let folder = Folder::new("colocate-kill");
    let (server, batch) = (Pinned::python(SERVER), Pinned::python(SPINNER));
    let mut child = command(
        &folder,
        &[
            "--serve-pid",
            &server.pid(),
            "--batch-pid",
            &batch.pid(),
            "--round",
            "5s",
            "--rounds",
            "3",
            "--try",
            "idle",
            "--goal",
            "batch share < -60%",
        ],
    )
    .stdout(Stdio::null())
    .stderr(Stdio::null())
    .spawn()
    .expect("schedlab");
    wait("the batch is SCHED_IDLE", || batch.policy() == "SCHED_IDLE");
    child.kill().expect("our child");
    child.wait().expect("our child");
    wait("the guardian put it back", || batch.policy() == "SCHED_OTHER");
    wait("the journals are gone", || !folder.names().iter().any(|name| name.ends_with(".journal")));
}

/// Until `done`. A minute is no measure of speed: only a program that hangs takes that long.
fn wait(what: &str, done: impl Fn() -> bool) {
    for _ in 0..6000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("this never happened: {what}");
}

#[test]
fn a_dry_run_changes_nothing() {
    let folder = Folder::new("colocate-dry");
    let (server, batch) = (Pinned::python(SERVER), Pinned::python(SPINNER));
    let ran = ran(&mut command(
        &folder,
        &["--serve-pid", &server.pid(), "--batch-pid", &batch.pid(), "--goal", "p99 < 1ms", "--dry-run"],
    ));
    let line = format!("thread {} ", batch.pid());
    assert!(ran.code == 0 && ran.stdout.contains(&line) && ran.stdout.contains("-> idle"), "{ran:?}");
    assert_eq!((server.policy(), batch.policy()), ("SCHED_OTHER".to_owned(), "SCHED_OTHER".to_owned()));
    assert!(folder.names().is_empty(), "{:?}", folder.names());
    let marker = folder.0.join("started");
    let touch = format!("touch {}", marker.display());
    let ran = crate::ran(&mut command(
        &folder,
        &["--serve", &touch, "--batch", &touch, "--goal", "p99 < 1ms", "--dry-run"],
    ));
    assert!(ran.code == 0 && !marker.exists(), "{ran:?}");
}

#[test]
fn bad_input_is_refused() {
    let folder = Folder::new("colocate-bad");
    for (arguments, expected) in [
        (&["--serve", "true", "--batch", "true", "--goal", "p99 1ms"][..], "--goal"),
        (&["--serve", "true", "--batch", "true", "--goal", "utilisation > 1%"], "about the machine"),
        (&["--serve", "true", "--batch", "true"], "--goal"),
        (&["--serve-pid", "8388608", "--batch", "true", "--goal", "p99 < 1ms"], "no thread 8388608"),
        (&["--serve", "true", "--batch", "true", "--goal", "p99 < 1ms", "--try", "lottery"], "group-idle"),
        (&["--serve", "sleep 9", "--batch-cgroup", "/no/such", "--goal", "p99 < 1ms"], "no control group"),
    ] {
        let ran = ran(&mut command(&folder, arguments));
        assert!(ran.code == 2 && ran.stderr.contains(expected), "{arguments:?}: {ran:?}");
    }
}
