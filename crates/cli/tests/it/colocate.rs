//! `colocate` on a small server and a spinner that the tests start.

use crate::live::{started_by, turn, wait_until, words_of};
use crate::{Folder, Ran, ran, root};
use schedlab_model::{CpuId, CpuSet};
use schedlab_testing::{always, settles};
use std::process::{Child, Command, Stdio};

/// Sleeps 2 ms, then works for a moment: what a server does.
const SERVER: &str = "import time\nwhile True:\n  time.sleep(0.002)\n  for _ in range(5000): pass";
const SPINNER: &str = "while True: pass";
/// Answers every request of Redis's protocol; prints its port.
const REDIS: &str = "
import socket, sys, threading
listener = socket.create_server(('127.0.0.1', 0))
open(sys.argv[1], 'w').write(str(listener.getsockname()[1]))
def serve(peer):
  while True:
    asked = peer.recv(65536)
    if not asked: return
    peer.sendall(b'+PONG\\r\\n' * asked.count(b'PING'))
while True: threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()";

/// A child on CPU 0 that goes away.
struct Pinned(Child);

impl Pinned {
    fn python(program: &str) -> Pinned {
        Pinned::start(&["python3", "-c", program])
    }
    fn start(program: &[&str]) -> Pinned {
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).args(program).stdin(Stdio::null());
        Pinned(command.spawn().expect("taskset(1) of util-linux"))
    }
    fn pid(&self) -> String {
        self.0.id().to_string()
    }
    /// The letter of `/proc/PID/stat`.
    fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it lives");
        stat.rsplit_once(')')
            .and_then(|(_, rest)| rest.trim_start().chars().next())
            .expect("a letter")
    }
    fn policy(&self) -> String {
        policy_of(&self.pid())
    }
}

fn policy_of(pid: &str) -> String {
    let output = Command::new("chrt").args(["-p", pid]).output().expect("chrt(1) of util-linux");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().next().and_then(|line| line.rsplit(' ').next()).unwrap_or_default().to_owned()
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

/// Short rounds for this server and this batch work on CPU 0.
fn trial(folder: &Folder, server: &Pinned, batch: &Pinned, more: &[&str]) -> Command {
    let mut command = command(
        folder,
        &["--serve-pid", &server.pid(), "--batch-pid", &batch.pid(), "--cpus", "0"],
    );
    command.args(["--round", "1s", "--rounds", "1"]).args(more);
    command
}

/// Nothing of a run is left, whatever it measured.
fn all_is_as_before(folder: &Folder, workloads: [&Pinned; 2]) {
    for workload in workloads {
        always(workload.policy() == "SCHED_OTHER", || workload.policy());
        always(workload.state() != 'T', || "it is stopped".to_owned());
    }
    always(folder.names().is_empty(), || format!("{:?}", folder.names()));
}

#[test]
fn the_goal_is_reached_and_all_is_as_before() {
    let Some(_turn) = turn("the_goal_is_reached_and_all_is_as_before") else { return };
    settles(3, goal_is_reached);
}

fn goal_is_reached() {
    let folder = Folder::new("colocate");
    let (server, batch) = (Pinned::python(SERVER), Pinned::python(SPINNER));
    let goals = ["--goal", "server share > 0%", "--goal", "batch share < 99.9%", "--json"];
    let goals = [&goals[..], &["--keep-for", "500ms"]].concat();
    let ran: Ran = ran(&mut trial(&folder, &server, &batch, &goals));
    all_is_as_before(&folder, [&server, &batch]);
    let value: serde_json::Value =
        serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    let nothing = serde_json::json!({ "changed_by_others": [], "failed": [] });
    always(value["given_back"] == nothing, || format!("{ran:?}"));
    assert_eq!((ran.code, value["outcome"].as_str()), (0, Some("met")), "{ran:?}");
    assert_eq!(value["chosen"], "default", "it meets them already: {ran:?}");
    // Scripts that measure beside it wait for this line.
    assert!(
        ran.stderr.contains("keeping default for 500ms; then everything is put back\n"),
        "{ran:?}"
    );
    assert_eq!(value["kept"].as_array().map(Vec::len), Some(1), "{ran:?}");
    let blamed = value["before"][0]["blame"].as_array().expect("what the server waited for");
    assert!(blamed.iter().all(|one| one["ns_per_s"].as_f64() > Some(0.0)), "{ran:?}");
}

/// A trial that the user ends gives what it measured until then.
#[test]
fn what_was_measured_is_an_answer() {
    let Some(_turn) = turn("what_was_measured_is_an_answer") else { return };
    settles(3, ended_early);
}

fn ended_early() {
    use std::io::{BufRead as _, BufReader, Read as _};
    let folder = Folder::new("colocate-partial");
    let (server, batch) = (Pinned::python(SERVER), Pinned::python(SPINNER));
    // Never met, so that one setting after the other is tried.
    let goals = ["--goal", "batch share < 0%", "--json"];
    let mut command = trial(&folder, &server, &batch, &goals);
    let mut trial = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let mut said = Vec::new();
    let mut lines = BufReader::new(trial.stderr.take().expect("piped")).lines();
    while !said.iter().any(|line: &String| line.contains("so far: ")) {
        let Some(Ok(line)) = lines.next() else { break };
        said.push(line);
    }
    assert!(said.iter().any(|line| line.contains("in all if the default meets")), "{said:?}");
    let pid = rustix::process::Pid::from_raw(trial.id().cast_signed()).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    said.extend(lines.map_while(Result::ok));
    let mut text = String::new();
    trial.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
    let code = trial.wait().expect("a child of this test").code();
    all_is_as_before(&folder, [&server, &batch]);
    let value: serde_json::Value =
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{code:?} {text} {said:?}"));
    assert_eq!((code, &value["partial"]), (Some(3), &serde_json::json!(true)), "{text}");
    assert!(value["tried"][0]["round"]["goals"][0].as_f64() >= Some(0.0), "{text}");
    assert!(value["so_far"].is_null() && value["chosen"].is_null(), "{text}");
}

/// Only what SCHED_IDLE does tells the two rounds apart: a spinner that has no equal share any
/// more.
#[test]
fn sched_idle_is_found_when_the_default_misses_the_goal() {
    let Some(_turn) = turn("sched_idle_is_found_when_the_default_misses_the_goal") else { return };
    settles(3, sched_idle_is_found);
}

fn sched_idle_is_found() {
    let folder = Folder::new("colocate-idle");
    let (server, batch) = (Pinned::python(SPINNER), Pinned::python(SPINNER));
    let ran: Ran = ran(&mut trial(&folder, &server, &batch, &["--goal", "batch share < -60%"]));
    all_is_as_before(&folder, [&server, &batch]);
    assert!(
        ran.code == 0 && ran.stdout.contains("idle: the batch threads run under SCHED_IDLE"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("CPUSchedulingPolicy=idle"), "{ran:?}");
}

/// The actuator elevation: schedlab's own scheduler in a process of its own, which gives all
/// threads back.
#[test]
fn elevation_keeps_the_batch_from_a_server_that_does_not_sleep() {
    let Some(_turn) = turn("elevation_keeps_the_batch_from_a_server_that_does_not_sleep") else {
        return;
    };
    settles(3, elevation_keeps_the_batch);
}

fn elevation_keeps_the_batch() {
    let folder = Folder::new("colocate-elevation");
    let (server, batch) =
        (Pinned::python(SPINNER), Pinned::start(&["sh", "-c", "while :; do :; done"]));
    // Never met: what is asked for is the round under the agent.
    let more = ["--try", "elevation", "--goal", "batch share < 0%", "--json"];
    let ran: Ran = ran(&mut trial(&folder, &server, &batch, &more));
    // When the agent's guardian ended it, it may be at it still.
    wait_until("the batch is as before", || {
        batch.policy() == "SCHED_OTHER" && folder.names().is_empty()
    });
    all_is_as_before(&folder, [&server, &batch]);
    let value: serde_json::Value =
        serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    let all = value["tried"].as_array().expect("rungs");
    let rung =
        all.iter().find(|one| one["actuator"] == "elevation").expect("the actuator elevation");
    let share = |figure: usize| rung["round"]["figures"][figure].as_f64().unwrap_or(-1.0);
    assert_eq!((ran.code, rung["skipped"].as_str()), (1, None), "{ran:?}");
    assert!(share(4) > 0.5 && (0.0..0.3).contains(&share(5)), "server and batch: {ran:?}");
}

/// Elevation tells server and batch work apart by name: where names are equal it is not tried, with
/// the reason.
#[test]
fn elevation_is_not_tried_on_threads_of_one_name() {
    let Some(_turn) = turn("elevation_is_not_tried_on_threads_of_one_name") else { return };
    let folder = Folder::new("colocate-names");
    let (server, batch) = (Pinned::python(SPINNER), Pinned::python(SPINNER));
    let more = ["--try", "elevation", "--goal", "batch share < -99%"];
    let ran: Ran = ran(&mut trial(&folder, &server, &batch, &more));
    assert!(
        ran.code == 1 && ran.stdout.contains("of the batch work are named `python3`"),
        "{ran:?}"
    );
}

#[test]
fn our_own_client_sees_the_server() {
    let Some(_turn) = turn("our_own_client_sees_the_server") else { return };
    settles(3, client_sees_the_server);
}

fn client_sees_the_server() {
    let folder = Folder::new("colocate-client");
    let port = folder.0.join("port");
    let server = Pinned::start(&["python3", "-c", REDIS, &port.to_string_lossy()]);
    let batch = Pinned::python(SPINNER);
    let listens = || std::fs::read_to_string(&port).unwrap_or_default();
    wait_until("the server listens", || !listens().is_empty());
    let address = format!("127.0.0.1:{}", listens());
    let goal =
        ["--goal", "client throughput > 1/s", "--goal", "client response p50 < 100s", "--json"];
    let more = [&["--client", address.as_str(), "--client-rate", "200"][..], &goal].concat();
    let ran: Ran = ran(&mut trial(&folder, &server, &batch, &more));
    let value: serde_json::Value =
        serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    assert_eq!((ran.code, value["outcome"].as_str()), (0, Some("met")), "{ran:?}");
    let count = value["before"][0]["client"]["response"]["count"].as_u64();
    assert!(count > Some(50), "about 200 requests of one second: {ran:?}");
}

/// The batch work is stopped in the rounds alone, and in no others.
#[test]
fn a_goal_can_be_about_the_server_alone() {
    let Some(_turn) = turn("a_goal_can_be_about_the_server_alone") else { return };
    settles(3, goal_about_the_server_alone);
}

fn goal_about_the_server_alone() {
    let folder = Folder::new("colocate-alone");
    let (server, batch) = (Pinned::python(SERVER), Pinned::python(SPINNER));
    let more = ["--goal", "server latency p50 < alone + 100s", "--json"];
    let ran: Ran = ran(&mut trial(&folder, &server, &batch, &more));
    all_is_as_before(&folder, [&server, &batch]);
    let value: serde_json::Value =
        serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    assert_eq!((ran.code, value["chosen"].as_str()), (0, Some("default")), "{ran:?}");
    assert_eq!(
        (&value["distances"][0]["pairs"], &value["distances"][0]["outcome"]),
        (&1.into(), &"met".into())
    );
    let batch_share = |rounds: &str| value[rounds][0]["figures"][5].as_f64().unwrap_or(0.0);
    assert!(
        batch_share("alone") < 0.001 && batch_share("before") > batch_share("alone"),
        "{ran:?}"
    );
    assert_eq!(value["awake"], "spinner", "the server is in the session of the test: {ran:?}");
    assert!(
        value["stood_still_ns"].as_u64() >= Some(2_000_000_000),
        "two rounds to look, one to confirm: {ran:?}"
    );
}

#[test]
fn kill_9_while_the_batch_stands_still_lets_it_go_on() {
    let Some(_turn) = turn("kill_9_while_the_batch_stands_still_lets_it_go_on") else { return };
    let folder = Folder::new("colocate-alone-kill");
    let (server, batch) = (Pinned::python(SERVER), Pinned::python(SPINNER));
    let mut command = trial(&folder, &server, &batch, &["--goal", "p50 < alone + 10%"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("schedlab");
    wait_until("the batch work is stopped", || batch.state() == 'T');
    child.kill().expect("a child of this test");
    child.wait().expect("a child of this test");
    wait_until("the guardian lets it go on", || batch.state() != 'T');
    wait_until("the journals are gone", || {
        !folder.names().iter().any(|name| name.ends_with(".journal"))
    });
}

#[test]
fn kill_9_leaves_all_as_before() {
    let Some(_turn) = turn("kill_9_leaves_all_as_before") else { return };
    let folder = Folder::new("colocate-kill");
    let (server, batch) = (Pinned::python(SERVER), Pinned::python(SPINNER));
    let more = ["--try", "idle", "--goal", "batch share < -60%", "--keep-for", "60s"];
    let mut child = trial(&folder, &server, &batch, &more)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("schedlab");
    wait_until("the batch is SCHED_IDLE", || batch.policy() == "SCHED_IDLE");
    child.kill().expect("a child of this test");
    child.wait().expect("a child of this test");
    wait_until("the guardian put it back", || batch.policy() == "SCHED_OTHER");
    wait_until("the journals are gone", || {
        !folder.names().iter().any(|name| name.ends_with(".journal"))
    });
}

/// Reading a round back while the setting is kept must not take CPU time from the measured threads.
#[test]
fn colocate_keeps_off_the_cpus_of_the_trial() {
    let Some(_turn) = turn("colocate_keeps_off_the_cpus_of_the_trial") else { return };
    let folder = Folder::new("colocate-aside");
    // No process has this number.
    let left = folder.0.join("colocate-4194305.slt");
    std::fs::write(&left, "of a process that was killed").expect("a folder");
    let server = Pinned::python(SERVER);
    let spins = "while :; do :; done";
    let mut command =
        command(&folder, &["--serve-pid", &server.pid(), "--batch", spins, "--try", "idle"]);
    command.args([
        "--goal",
        "batch share < -60%",
        "--round",
        "1s",
        "--rounds",
        "1",
        "--keep-for",
        "60s",
    ]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("schedlab");
    let (mut batch, mut guardians) = (Vec::new(), Vec::new());
    wait_until("the batch is SCHED_IDLE", || {
        (batch, guardians) =
            started_by(child.id()).into_iter().partition(|pid| words_of(*pid).contains(spins));
        batch.first().is_some_and(|pid| policy_of(&pid.to_string()) == "SCHED_IDLE")
    });
    let (own, child_cpus, batch_cpus) =
        (cpus_of(std::process::id()), cpus_of(child.id()), cpus_of(batch[0]));
    assert!(!left.exists(), "it goes with the next trial");
    let guardians: Vec<CpuSet> = guardians.into_iter().map(cpus_of).collect();
    child.kill().expect("a child of this test");
    child.wait().expect("a child of this test");
    wait_until("the journals are gone", || {
        !folder.names().iter().any(|name| name.ends_with(".journal"))
    });
    let aside = own.without(&CpuSet::single(CpuId(0)));
    let aside = if aside.is_empty() { own } else { aside };
    assert_eq!(child_cpus, aside);
    assert_eq!(batch_cpus, own, "a command begins where we might run");
    assert!(!guardians.is_empty() && guardians.iter().all(|cpus| *cpus == aside), "{guardians:?}");
}

/// Where the first thread of a process may run.
fn cpus_of(pid: u32) -> CpuSet {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let list =
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list");
    list.trim().parse().expect("CPUs")
}

#[test]
fn a_dry_run_changes_nothing() {
    let folder = Folder::new("colocate-dry");
    let (server, batch) = (Pinned::python(SERVER), Pinned::python(SPINNER));
    let ran = ran(&mut command(
        &folder,
        &[
            "--serve-pid",
            &server.pid(),
            "--batch-pid",
            &batch.pid(),
            "--goal",
            "p99 < 1ms",
            "--dry-run",
        ],
    ));
    let line = format!("thread {} ", batch.pid());
    assert!(
        ran.code == 0 && ran.stdout.contains(&line) && ran.stdout.contains("-> idle"),
        "{ran:?}"
    );
    assert_eq!(
        (server.policy(), batch.policy()),
        ("SCHED_OTHER".to_owned(), "SCHED_OTHER".to_owned())
    );
    assert!(folder.names().is_empty(), "{:?}", folder.names());
    // A set of CPUs is fine for all settings but the agent's.
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= 2) {
        let set = ["--cpus", "0-1", "--goal", "p99 < alone + 10%", "--dry-run"];
        let workloads =
            ["--serve-pid", &server.pid(), "--batch-pid", &batch.pid()].map(str::to_owned);
        let ran = crate::ran(command(&folder, &set).args(workloads));
        for part in [
            "CPUs 1\n",
            "manages one CPU",
            "server and batch work on the CPUs 0-1",
            "are stopped (SIGSTOP)",
        ] {
            assert!(ran.code == 0 && ran.stdout.contains(part), "{part}: {ran:?}");
        }
    }
    // What runs already is named by --serve too.
    let named = ["--serve", &server.pid(), "--batch-pid", &batch.pid(), "--dry-run"];
    let named = crate::ran(&mut command(&folder, &named));
    assert!(named.code == 0 && named.stdout.contains(&line), "{named:?}");
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
        (
            &["--serve", "true", "--batch", "true", "--goal", "utilisation > 1%"],
            "about the machine",
        ),
        (&["--serve", "true", "--batch", "true"], "--goal"),
        (
            &["--serve", "no-such.service", "--batch", "true", "--goal", "p99 < 1ms", "--dry-run"],
            "systemctl status no-such.service",
        ),
        (&["--serve", "true", "--batch", "true", "--goal", "p99 < alone 10%"], "alone + 10%"),
        (
            &["--serve", "sleep 9", "--batch", "sleep 9", "--goal", "batch share > alone"],
            "the batch work is stopped",
        ),
        (
            &["--serve", "true", "--batch", "true", "--goal", "client response p99 < 1ms"],
            "--client IP:PORT",
        ),
        (
            &[
                "--serve",
                "sleep 9",
                "--batch",
                "sleep 9",
                "--client",
                "127.0.0.1:1",
                "--goal",
                "p99 < 1ms",
            ],
            "Does the server listen there?",
        ),
        (
            &["--serve-pid", "8388608", "--batch", "true", "--goal", "p99 < 1ms"],
            "no thread 8388608",
        ),
        (
            &["--serve", "true", "--batch", "true", "--goal", "p99 < 1ms", "--try", "lottery"],
            "group-idle",
        ),
        (
            &["--serve", "sleep 9", "--batch-cgroup", "/no/such", "--goal", "p99 < 1ms"],
            "no control group",
        ),
    ] {
        let ran = ran(&mut command(&folder, arguments));
        assert!(ran.code == 2 && ran.stderr.contains(expected), "{arguments:?}: {ran:?}");
    }
}
