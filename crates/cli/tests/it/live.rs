//! Real threads under schedlab schedulers. Needs root and the kernel's events; touches only threads
//! that the tests start.
//!
//! A guardian ends a driver that does not beat for 100 ms, as it must, and a hypervisor may take
//! the CPU from it for so long: a run that was ended for that is repeated ([`settles`]). What must
//! hold whatever happens is told to [`always`].

use crate::{Folder, Ran, ran, root};
use schedlab_testing::{Turn, always, settles};
use serde_json::Value;
use std::process::{Child, Command, Stdio};

mod flight_service;
mod flight_sums;
mod killed_drivers;
mod messages;
mod refused;
mod strangers;
mod torture;

/// `None`: it cannot run here, and says so. In CI that is a failure.
pub(crate) fn turn(test: &str) -> Option<Turn> {
    let two_cpus = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
    if rustix::process::geteuid().is_root() && two_cpus {
        return Some(schedlab_testing::turn());
    }
    assert!(std::env::var_os("CI").is_none(), "{test}: CI is root on two CPUs");
    crate::skip(test, "needs root and two CPUs");
    None
}

fn schedlab(folder: &Folder, arguments: &[&str]) -> Ran {
    ran(&mut command(folder, arguments))
}

pub(super) fn command(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    command.args(arguments).current_dir(root()).stdin(Stdio::null());
    command.env("SCHEDLAB_RUN_DIR", folder.0.join("run"));
    command
}

/// Children that end with the test.
pub(super) struct Children(Vec<Child>);

impl Children {
    pub(super) fn start(script: &str) -> Children {
        let child = Command::new("sh").args(["-c", script]).stdout(Stdio::null()).spawn();
        Children(vec![child.expect("sh(1)")])
    }
    pub(super) fn pid(&self) -> u32 {
        self.0[0].id()
    }
}

impl Children {
    /// Ends and reaps them now: their numbers are free.
    pub(super) fn end(&mut self) {
        for child in &mut self.0 {
            child.kill().expect("a child of this test");
            child.wait().expect("a child of this test");
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Policy and CPUs of a thread as the kernel says now; `None`: it is gone.
pub(super) fn state(pid: u32) -> Option<(i64, String)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let cpus =
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The 41st field of the file is the policy: the 39th after the name.
    let policy = stat.rsplit_once(')')?.1.split_whitespace().nth(38)?.parse().ok()?;
    Some((policy, cpus))
}

/// Until `done`. A minute is no measure of speed: only a program that hangs takes that long.
pub(super) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if done() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("this never happened: {what}");
}

/// Checks that what was given back is as it was.
fn is_as_before(target: &Children, before: &(i64, String)) {
    let now = state(target.pid());
    always(now.as_ref() == Some(before), || format!("{now:?} {before:?}"));
}

// They end with their driver; where that fails, by themselves.
const TWO_HOGS: &str =
    "timeout --foreground 60 yes >/dev/null & timeout --foreground 60 yes >/dev/null & wait";

#[test]
fn two_hogs_take_turns_of_the_asked_length() {
    let Some(_turn) = turn("two_hogs_take_turns_of_the_asked_length") else { return };
    settles(3, two_hogs_take_turns);
}

fn two_hogs_take_turns() {
    let folder = Folder::new("live-rr");
    let log = folder.0.join("run.calls").display().to_string();
    let arguments = [
        "run",
        "--scheduler",
        "rr:slice_ns=20ms",
        "--for",
        "1s",
        "--log",
        &log,
        "--json",
        "--",
        "sh",
        "-c",
        TWO_HOGS,
    ];
    let run = schedlab(&folder, &arguments);
    assert_eq!(run.code, 0, "{run:?}");
    let left = schedlab(&folder, &["status"]);
    always(left.stdout == "nothing is managed\n", || format!("{left:?}"));
    let result: Value = serde_json::from_str(&run.stdout).expect("JSON");
    let hogs: Vec<u64> = result["threads"]
        .as_array()
        .expect("threads")
        .iter()
        .filter_map(|thread| thread["chosen_ns"].as_u64().filter(|ns| *ns > 100_000_000))
        .collect();
    // A second in slices of 20 ms: neither is more than two slices ahead by more than the CPU was
    // given away.
    assert!(hogs.len() == 2 && hogs[0].abs_diff(hogs[1]) < 150_000_000, "{hogs:?}");
    super::schema::fits("run", &run.stdout);
    let verified = schedlab(&folder, &["verify", &log]);
    assert!(verified.code == 0 && verified.stdout.contains("all the same"), "{verified:?}");
    let verified = schedlab(&folder, &["verify", &log, "--json"]);
    super::schema::fits("verify", &verified.stdout);
    let rows = schedlab(&folder, &["verify", &log, "--format", "csv"]);
    assert!(
        rows.stdout.starts_with("scheduler,") || rows.stdout.contains(",scheduler"),
        "{rows:?}"
    );
}

#[test]
fn a_log_that_was_edited_is_caught() {
    let Some(_turn) = turn("a_log_that_was_edited_is_caught") else { return };
    settles(3, an_edited_log_is_caught);
}

fn an_edited_log_is_caught() {
    let folder = Folder::new("live-log");
    let log = folder.0.join("run.calls");
    let path = log.display().to_string();
    // It ends by itself, when a task has run for certain.
    let script = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; sleep 0.05; /bin/true";
    let arguments = [
        "run",
        "--scheduler",
        "fifo-centralized",
        "--for",
        "60s",
        "--log",
        &path,
        "--",
        "sh",
        "-c",
        script,
    ];
    let run = schedlab(&folder, &arguments);
    assert_eq!(run.code, 0, "{run:?}");
    let text = std::fs::read_to_string(&log).expect("it was written");
    let edited = text.replacen("\"decision\":{\"task\":0", "\"decision\":{\"task\":1", 1);
    assert_ne!(edited, text, "a task ran");
    std::fs::write(&log, edited).expect("a file of this test");
    let verified = schedlab(&folder, &["verify", &path]);
    assert!(verified.code == 1 && verified.stdout.contains("differs"), "{verified:?}");
}

#[test]
fn attach_takes_a_process_and_detach_gives_it_back() {
    let Some(_turn) = turn("attach_takes_a_process_and_detach_gives_it_back") else { return };
    settles(3, attach_and_detach);
}

fn attach_and_detach() {
    let folder = Folder::new("live-attach");
    let target = Children::start("while :; do :; done");
    let before = state(target.pid()).expect("it lives");
    let pid = target.pid().to_string();
    let mut attached =
        command(&folder, &["attach", "--scheduler", "fifo-centralized", "--pid", &pid])
            .stdout(Stdio::null())
            .spawn()
            .expect("the program can be started");
    wait_until("it is SCHED_FIFO", || {
        state(target.pid()).is_some_and(|now| now.0 == 1 && now.1 == "0")
    });
    let detached = schedlab(&folder, &["detach"]);
    assert!(detached.code == 0 && detached.stdout.contains("gave everything back"), "{detached:?}");
    is_as_before(&target, &before);
    assert!(attached.wait().expect("a child of this test").success());
}

#[test]
fn whichever_process_is_killed_everything_is_given_back() {
    let Some(_turn) = turn("whichever_process_is_killed_everything_is_given_back") else { return };
    let folder = Folder::new("live-kill");
    // Different moments: while it starts, while it runs.
    for (round, delay_ms) in [3_u64, 40, 90, 170, 260, 410].into_iter().enumerate() {
        let target = Children::start("while :; do :; done");
        let before = state(target.pid()).expect("it lives");
        let pid = target.pid().to_string();
        let mut attached =
            command(&folder, &["attach", "--scheduler", "rr:slice_ns=1ms", "--pid", &pid])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the program can be started");
        std::thread::sleep(std::time::Duration::from_millis(delay_ms));
        attached.kill().expect("a child of this test");
        attached.wait().expect("a child of this test");
        wait_until("everything is as before", || state(target.pid()) == Some(before.clone()));
        let journals = || std::fs::read_dir(folder.0.join("run")).map_or(0, Iterator::count);
        // A journal without a guardian (it was killed before that one watched) is what `restore` is
        // for.
        wait_until("the journal goes", || {
            schedlab(&folder, &["restore"]).code == 0 && journals() <= round
        });
    }
}

#[test]
fn one_process_is_given_back_and_the_other_goes_on() {
    let Some(_turn) = turn("one_process_is_given_back_and_the_other_goes_on") else { return };
    settles(3, one_of_two_is_given_back);
}

fn one_of_two_is_given_back() {
    let folder = Folder::new("live-part");
    let (first, second) =
        (Children::start("while :; do :; done"), Children::start("while :; do :; done"));
    let before = [first.pid(), second.pid()].map(|pid| state(pid).expect("it lives"));
    let pids = format!("{},{}", first.pid(), second.pid());
    let mut attached =
        command(&folder, &["attach", "--scheduler", "rr:slice_ns=5ms", "--pid", &pids])
            .stdout(Stdio::null())
            .spawn()
            .expect("the program can be started");
    let managed = |pid: u32| state(pid).is_some_and(|(policy, _)| policy == 1);
    wait_until("both are managed", || managed(first.pid()) && managed(second.pid()));
    let stranger = schedlab(&folder, &["detach", "--pid", &std::process::id().to_string()]);
    assert!(stranger.code == 2 && stranger.stderr.contains("is not managed"), "{stranger:?}");
    let given = schedlab(&folder, &["detach", "--pid", &first.pid().to_string()]);
    assert!(given.code == 0 && given.stdout.contains("still manages the rest"), "{given:?}");
    is_as_before(&first, &before[0]);
    let listed = schedlab(&folder, &["status", "--json"]).stdout;
    let status: Value = serde_json::from_str(&listed).expect("JSON");
    let tids: Vec<u64> = status["managed"][0]["threads"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|t| t["tid"].as_u64())
        .collect();
    assert_eq!(tids, [u64::from(second.pid())], "{listed}");
    wait_until("the other is managed on", || managed(second.pid()));
    assert_eq!(schedlab(&folder, &["detach"]).code, 0);
    is_as_before(&second, &before[1]);
    attached.wait().expect("a child of this test");
    assert_eq!(folder_names(&folder), Vec::<String>::new());
}

/// The processes of a shell's children.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    let text =
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// What a process started: its children, and of a holder, which is between a program and what it
/// starts, the children.
pub(crate) fn started_by(pid: u32) -> Vec<u32> {
    let is_holder = |pid: u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|comm| comm.trim() == "sched-holder")
    };
    let own = |child: u32| if is_holder(child) { children_of(child) } else { vec![child] };
    children_of(pid).into_iter().flat_map(own).collect()
}

/// The words of a process, each but the first after a zero byte.
pub(crate) fn words_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

#[test]
fn children_born_under_management_get_what_their_parent_had() {
    let Some(_turn) = turn("children_born_under_management_get_what_their_parent_had") else {
        return;
    };
    settles(3, children_get_what_their_parent_had);
}

fn children_get_what_their_parent_had() {
    let folder = Folder::new("live-born");
    let target = Children::start("sleep 1; sleep 600 & sleep 600 & wait");
    let before = state(target.pid()).expect("it lives");
    let pid = target.pid().to_string();
    let mut attached = command(&folder, &["attach", "--scheduler", "rr", "--pid", &pid])
        .stdout(Stdio::null())
        .spawn()
        .expect("the program can be started");
    let managed = |pid: &u32| state(*pid).is_some_and(|(policy, _)| policy == 1);
    wait_until("both children are managed", || {
        let children = children_of(target.pid());
        children.len() == 2 && children.iter().all(managed)
    });
    let children = children_of(target.pid());
    assert_eq!(schedlab(&folder, &["detach"]).code, 0);
    attached.wait().expect("a child of this test");
    let after: Vec<_> = children.iter().map(|pid| state(*pid)).collect();
    for child in &children {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_raw(*child as i32).expect("a process"),
            rustix::process::Signal::KILL,
        );
    }
    let wanted = [Some(before.clone()), Some(before)];
    always(after == wanted, || format!("{after:?} {wanted:?}"));
}

fn folder_names(folder: &Folder) -> Vec<String> {
    let entries = std::fs::read_dir(folder.0.join("run")).expect("it was made");
    entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect()
}

#[test]
fn what_is_declared_follows_the_name_through_exec() {
    let Some(_turn) = turn("what_is_declared_follows_the_name_through_exec") else { return };
    settles(3, declared_through_exec);
}

fn declared_through_exec() {
    let folder = Folder::new("live-exec");
    let log = folder.0.join("run.calls").display().to_string();
    let script = "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; exec yes >/dev/null";
    let arguments = [
        "run",
        "--scheduler",
        "layers",
        "--task",
        "yes=batch",
        "--for",
        "3s",
        "--log",
        &log,
        "--",
        "sh",
        "-c",
        script,
    ];
    let run = schedlab(&folder, &arguments);
    assert!(run.code == 0 && run.stdout.contains("yes"), "{run:?}");
    let text = std::fs::read_to_string(&log).expect("it was written");
    assert!(text.contains(r#""what":{"policy":{"task":0,"policy":"batch"}}"#), "{text}");
    assert_eq!(schedlab(&folder, &["verify", &log]).code, 0);
}

#[test]
fn linux_runs_live_and_is_told_who_woke_whom() {
    let Some(_turn) = turn("linux_runs_live_and_is_told_who_woke_whom") else { return };
    settles(3, linux_is_told_who_woke_whom);
}

fn linux_is_told_who_woke_whom() {
    let folder = Folder::new("live-wakers");
    let log = folder.0.join("run.calls").display().to_string();
    let script = "yes | head -c 30000000 >/dev/null";
    let arguments = [
        "run",
        "--scheduler",
        "linux-6.18",
        "--for",
        "5s",
        "--log",
        &log,
        "--",
        "sh",
        "-c",
        script,
    ];
    let run = schedlab(&folder, &arguments);
    assert_eq!(run.code, 0, "{run:?}");
    let text = std::fs::read_to_string(&log).expect("it was written");
    assert!(text.contains(r#""by":{"task":"#), "a pipe's reader is woken by its writer: {text}");
    let verified = schedlab(&folder, &["verify", &log]);
    assert!(verified.code == 0, "{verified:?}");
}

/// Effective capabilities of the threads of a process, by name.
fn capabilities(pid: u32) -> Vec<(String, u64)> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let of = |path: std::path::PathBuf| {
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        let value = |key: &str| {
            Some(status.lines().find_map(|line| line.strip_prefix(key))?.trim().to_owned())
        };
        Some((value("Name:")?, u64::from_str_radix(&value("CapEff:")?, 16).ok()?))
    };
    threads.filter_map(|entry| of(entry.ok()?.path())).collect()
}

#[test]
fn what_the_driver_does_not_need_any_more_it_gives_up() {
    let Some(_turn) = turn("what_the_driver_does_not_need_any_more_it_gives_up") else { return };
    settles(3, the_driver_gives_up);
}

fn the_driver_gives_up() {
    let folder = Folder::new("live-caps");
    let target = Children::start("while :; do :; done");
    let pid = target.pid().to_string();
    let mut attached = command(&folder, &["attach", "--scheduler", "rr", "--pid", &pid])
        .stdout(Stdio::null())
        .spawn()
        .expect("the program can be started");
    wait_until("it is managed", || state(target.pid()).is_some_and(|(policy, _)| policy == 1));
    let (nice, lock, perfmon, kill, see) =
        (1_u64 << 23, 1_u64 << 14, 1_u64 << 38, 1_u64 << 5, 1_u64 << 19);
    let seen = capabilities(attached.id());
    for (name, most) in [
        ("sched-agent", nice | lock),
        ("sched-detector", nice | lock),
        ("sched-supervise", nice | lock | perfmon | kill | see),
    ] {
        let found = seen
            .iter()
            .find(|(comm, _)| comm == name)
            .unwrap_or_else(|| panic!("{name}: {seen:?}"));
        assert_eq!(found.1 & !most, 0, "{name} has more than it needs: {:x}", found.1);
    }
    assert_eq!(schedlab(&folder, &["detach"]).code, 0);
    attached.wait().expect("a child of this test");
}

#[test]
fn threads_and_children_that_come_and_go_are_taken_and_given_back() {
    let Some(_turn) = turn("threads_and_children_that_come_and_go_are_taken_and_given_back") else {
        return;
    };
    settles(3, threads_and_children_come_and_go);
}

fn threads_and_children_come_and_go() {
    let folder = Folder::new("live-forks");
    let script = "i=0; while [ $i -lt 100 ]; do /bin/true & i=$((i+1)); done; wait";
    let arguments =
        ["run", "--scheduler", "layers", "--for", "120s", "--json", "--", "sh", "-c", script];
    let run = schedlab(&folder, &arguments);
    assert_eq!(run.code, 0, "{run:?}");
    let left = schedlab(&folder, &["status"]);
    always(left.stdout == "nothing is managed\n", || format!("{left:?}"));
    let result: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert!(
        result["elapsed_ns"].as_u64().is_some_and(|ns| ns < 110_000_000_000),
        "it ends with its command: {result}"
    );
}

/// A short round of `experiments/live_kills.py`: each kind of target with each victim once.
#[test]
fn killed_at_random_moments_nothing_is_left() {
    let Some(_turn) = turn("killed_at_random_moments_nothing_is_left") else { return };
    let script = root().join("experiments/live_kills.py");
    let mut python = Command::new("python3");
    let output = python
        .arg(script)
        .args(["--rounds", "25", "--binary", env!("CARGO_BIN_EXE_schedlab")])
        .output();
    let Ok(output) = output else {
        assert!(std::env::var_os("CI").is_none(), "CI has python3");
        crate::skip("killed_at_random_moments_nothing_is_left", "python3 is missing");
        return;
    };
    assert!(output.status.success(), "{output:?}");
}
