//! Real threads under schedulers of ours. Needs root and the kernel's events; touches only threads that the tests start.

use crate::{Folder, Ran, ran, root};
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};

/// One at a time: they manage the same CPU.
static ONE: Mutex<()> = Mutex::new(());

/// `None`: it cannot run here, and says so. In CI that is a failure.
pub(crate) fn turn(test: &str) -> Option<MutexGuard<'static, ()>> {
    let two_cpus = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
    if rustix::process::geteuid().is_root() && two_cpus {
        return Some(ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
    assert!(std::env::var_os("CI").is_none(), "{test}: CI is root on two CPUs");
    crate::skip(test, "needs root and two CPUs");
    None
}

fn schedlab(folder: &Folder, arguments: &[&str]) -> Ran {
    ran(&mut command(folder, arguments))
}

fn command(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    command.args(arguments).current_dir(root()).stdin(Stdio::null());
    command.env("SCHEDLAB_RUN_DIR", folder.0.join("run"));
    command
}

/// Children that end with the test.
struct Children(Vec<Child>);

impl Children {
    fn start(script: &str) -> Children {
        let child = Command::new("sh").args(["-c", script]).stdout(Stdio::null()).spawn();
        Children(vec![child.expect("sh(1)")])
    }
    fn pid(&self) -> u32 {
        self.0[0].id()
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
fn state(pid: u32) -> Option<(i64, String)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The 41st field of the file is the policy: the 39th after the name.
    let policy = stat.rsplit_once(')')?.1.split_whitespace().nth(38)?.parse().ok()?;
    Some((policy, cpus))
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if done() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("this never happened: {what}");
}

const TWO_HOGS: &str = "yes >/dev/null & yes >/dev/null & wait";

#[test]
fn two_hogs_take_turns_of_the_asked_length() {
    let Some(_turn) = turn("two_hogs_take_turns_of_the_asked_length") else { return };
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
    let result: Value = serde_json::from_str(&run.stdout).expect("JSON");
    let hogs: Vec<u64> = result["threads"]
        .as_array()
        .expect("threads")
        .iter()
        .filter_map(|thread| thread["chosen_ns"].as_u64().filter(|ns| *ns > 100_000_000))
        .collect();
    // A second in slices of 20 ms: neither is more than two slices ahead by more than the CPU was given away.
    assert!(hogs.len() == 2 && hogs[0].abs_diff(hogs[1]) < 150_000_000, "{hogs:?}");
    let verified = schedlab(&folder, &["verify", &log]);
    assert!(verified.code == 0 && verified.stdout.contains("all the same"), "{verified:?}");
    assert_eq!(schedlab(&folder, &["status"]).stdout, "nothing is managed\n");
}

#[test]
fn a_log_that_was_edited_is_caught() {
    let Some(_turn) = turn("a_log_that_was_edited_is_caught") else { return };
    let folder = Folder::new("live-log");
    let log = folder.0.join("run.calls");
    let path = log.display().to_string();
    let run = schedlab(
        &folder,
        &[
            "run",
            "--scheduler",
            "fifo-centralized",
            "--for",
            "300ms",
            "--log",
            &path,
            "--",
            "sh",
            "-c",
            TWO_HOGS,
        ],
    );
    assert_eq!(run.code, 0, "{run:?}");
    let text = std::fs::read_to_string(&log).expect("it was written");
    let edited = text.replacen("\"decision\":{\"task\":0", "\"decision\":{\"task\":1", 1);
    assert_ne!(edited, text, "somebody ran");
    std::fs::write(&log, edited).expect("ours");
    let verified = schedlab(&folder, &["verify", &path]);
    assert!(verified.code == 1 && verified.stdout.contains("differs"), "{verified:?}");
}

#[test]
fn attach_takes_a_process_and_detach_gives_it_back() {
    let Some(_turn) = turn("attach_takes_a_process_and_detach_gives_it_back") else { return };
    let folder = Folder::new("live-attach");
    let target = Children::start("while :; do :; done");
    let before = state(target.pid()).expect("it lives");
    let pid = target.pid().to_string();
    let mut attached = command(&folder, &["attach", "--scheduler", "fifo-centralized", "--pid", &pid])
        .stdout(Stdio::null())
        .spawn()
        .expect("the program can be started");
    wait_until("it is SCHED_FIFO", || state(target.pid()).is_some_and(|now| now.0 == 1 && now.1 == "0"));
    let detached = schedlab(&folder, &["detach"]);
    assert!(detached.code == 0 && detached.stdout.contains("gave everything back"), "{detached:?}");
    assert_eq!(state(target.pid()), Some(before));
    assert!(attached.wait().expect("our child").success());
}

#[test]
fn whoever_is_killed_everything_is_given_back() {
    let Some(_turn) = turn("whoever_is_killed_everything_is_given_back") else { return };
    let folder = Folder::new("live-kill");
    // Different moments: while it starts, while it runs.
    for (round, delay_ms) in [3_u64, 40, 90, 170, 260, 410].into_iter().enumerate() {
        let target = Children::start("while :; do :; done");
        let before = state(target.pid()).expect("it lives");
        let pid = target.pid().to_string();
        let mut attached = command(&folder, &["attach", "--scheduler", "rr:slice_ns=1ms", "--pid", &pid])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program can be started");
        std::thread::sleep(std::time::Duration::from_millis(delay_ms));
        attached.kill().expect("our child");
        attached.wait().expect("our child");
        wait_until("everything is as before", || state(target.pid()) == Some(before.clone()));
        let journals = || std::fs::read_dir(folder.0.join("run")).map_or(0, Iterator::count);
        // A journal without a guardian (it was killed before that one watched) is what `restore` is for.
        wait_until("the journal goes", || schedlab(&folder, &["restore"]).code == 0 && journals() <= round);
    }
}

#[test]
fn threads_and_children_that_come_and_go_are_taken_and_given_back() {
    let Some(_turn) = turn("threads_and_children_that_come_and_go_are_taken_and_given_back") else { return };
    let folder = Folder::new("live-forks");
    let script = "i=0; while [ $i -lt 100 ]; do /bin/true & i=$((i+1)); done; wait";
    let arguments = ["run", "--scheduler", "layers", "--for", "20s", "--json", "--", "sh", "-c", script];
    let run = schedlab(&folder, &arguments);
    assert_eq!(run.code, 0, "{run:?}");
    let result: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert!(
        result["elapsed_ns"].as_u64().is_some_and(|ns| ns < 19_000_000_000),
        "it ends with its command: {result}"
    );
    assert_eq!(schedlab(&folder, &["status"]).stdout, "nothing is managed\n");
}

#[test]
fn what_cannot_be_run_is_refused_by_name() {
    let folder = Folder::new("live-refused");
    for (arguments, word) in [
        (vec!["run", "--scheduler", "lottery", "--", "true"], "unknown scheduler `lottery`"),
        (vec!["run", "--scheduler", "rr", "--cpus", "0-1", "--", "true"], "manages one CPU"),
        (vec!["run", "--scheduler", "rr", "--cpus", "400", "--", "true"], "CPU 400 cannot be managed"),
        (vec!["run", "--scheduler", "rr", "--task", "x", "--", "true"], "NAME=POLICY"),
        (vec!["attach", "--scheduler", "rr", "--pid", "8388609"], "no thread 8388609"),
        (vec!["verify", "README.md"], "line 1"),
    ] {
        if arguments[0] != "verify" && !rustix::process::geteuid().is_root() {
            continue;
        }
        let refused = schedlab(&folder, &arguments);
        assert!(refused.code == 2 && refused.stderr.contains(word), "{arguments:?}: {refused:?}");
    }
    // Kernel threads: number 2 is kthreadd, where process numbers begin with the machine's.
    if state(2).is_some()
        && std::fs::read_to_string("/proc/2/comm").is_ok_and(|comm| comm.trim() == "kthreadd")
    {
        let refused = schedlab(&folder, &["attach", "--scheduler", "rr", "--pid", "2"]);
        assert!(refused.code == 2 && refused.stderr.contains("belongs to the kernel"), "{refused:?}");
    }
}
