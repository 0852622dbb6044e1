//! Pitfalls of docs/live-safety.md that need real threads, one test each.

use crate::live::{Children, command, state, turn, wait_until};
use crate::{Folder, Ran, ran};
use schedlab_testing::{always, settles};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn schedlab(folder: &Folder, arguments: &[&str]) -> Ran {
    ran(&mut command(folder, arguments))
}

/// What a run printed, after what its command said.
fn report(run: &Ran) -> Value {
    assert_eq!(run.code, 0, "{run:?}");
    let from = run.stdout.find('{').expect("JSON");
    serde_json::from_str(&run.stdout[from..]).expect("JSON")
}

/// How long each thread was the chosen one, by name.
fn chosen(report: &Value, name: &str) -> u64 {
    let threads = report["threads"].as_array().expect("threads");
    let of_name = threads.iter().filter(|thread| thread["comm"] == name);
    of_name.filter_map(|thread| thread["chosen_ns"].as_u64()).sum()
}

/// Pitfall 2: a thread that yields is alone at its priority, so no agent hears of it. It goes on,
/// and the task that waits for it waits.
#[test]
fn a_yield_is_not_seen_and_the_yielding_thread_goes_on() {
    let Some(_turn) = turn("a_yield_is_not_seen_and_the_yielding_thread_goes_on") else { return };
    settles(3, the_yielding_thread_goes_on);
}

fn the_yielding_thread_goes_on() {
    let folder = Folder::new("live-yield");
    let (program, yielder) = (folder.0.join("yield.py"), folder.0.join("yielder"));
    let script = "\
import os, subprocess, sys, time
other = subprocess.Popen(['sh', '-c', 'read word; while :; do :; done'], stdin=subprocess.PIPE)
time.sleep(0.3)
other.stdin.write(b'go\\n')
other.stdin.flush()
yields = 0
while time.thread_time() < 0.6:
    os.sched_yield()
    yields += 1
other.kill()
open(sys.argv[1], 'w').write(str(yields))
";
    std::fs::write(&program, script).expect("a file of this test");
    let (program, counted) = (program.display().to_string(), yielder.display().to_string());
    let run = schedlab(
        &folder,
        &[
            "run",
            "--scheduler",
            "fifo-per-cpu",
            "--starve-after",
            "60s",
            "--for",
            "60s",
            "--json",
            "--",
            "python3",
            &program,
            &counted,
        ],
    );
    let report = report(&run);
    let yields: u64 =
        std::fs::read_to_string(&yielder).expect("it came to its end").parse().expect("a number");
    assert!(yields > 1_000, "{yields}");
    // The other one wanted the CPU all the while. (The kernel gives it some in yield windows; the
    // scheduler never chose it then.)
    let threads = report["threads"].as_array().expect("threads");
    let own =
        threads.iter().filter_map(|thread| thread["chosen_ns"].as_u64()).max().expect("threads");
    let other = chosen(&report, "sh");
    assert!(own > 400_000_000 && other < own / 4, "{own} {other}: {report}");
}

/// Pitfall 6: the owner of a lock waits behind a thread of a better layer for ever, and with it the
/// task that wants the lock. `--starve-after` bounds it: both are given back to the kernel, and
/// come to their ends.
#[test]
fn a_lock_whose_owner_waits_is_free_in_the_end() {
    let Some(_turn) = turn("a_lock_whose_owner_waits_is_free_in_the_end") else { return };
    settles(3, the_lock_is_free_in_the_end);
}

fn the_lock_is_free_in_the_end() {
    let folder = Folder::new("live-lock");
    let owner = folder.0.join("owner");
    std::fs::copy("/bin/sh", &owner).expect("a file of this test");
    // The hog does not sleep; it ends with the test in any case.
    let script = "\
cd \"$0\"
flock lock ./owner -c ': >got; i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done; : >done' &
while [ ! -e got ]; do sleep 0.01; done
timeout --foreground 100 yes >/dev/null &
hog=$!
flock lock true
kill $hog
";
    let place = folder.0.display().to_string();
    let run = schedlab(
        &folder,
        &[
            "run",
            "--scheduler",
            "layers",
            "--task",
            "owner=idle",
            "--starve-after",
            "50ms",
            "--for",
            "90s",
            "--json",
            "--",
            "sh",
            "-c",
            script,
            &place,
        ],
    );
    let report = report(&run);
    assert!(folder.0.join("done").exists(), "{report}");
    assert!(
        report["elapsed_ns"].as_u64().is_some_and(|ns| ns < 85_000_000_000),
        "it ends by itself: {report}"
    );
    assert!(report["counts"]["starved"].as_u64().is_some_and(|count| count > 0), "{report}");
}

/// A control group of a hierarchy of version 1 that goes with the test.
struct Group(PathBuf);

impl Group {
    fn new(controller: &str, files: &[(&str, &str)]) -> Option<Group> {
        let root = Path::new("/sys/fs/cgroup").join(controller);
        let group = Group(root.join(format!("schedlab-test-{}", std::process::id())));
        std::fs::create_dir(&group.0).ok()?;
        files.iter().try_for_each(|(file, text)| std::fs::write(group.0.join(file), text)).ok()?;
        Some(group)
    }
    fn take(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("root");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its member is gone, but the kernel may take a moment.
        for _ in 0..1_000 {
            if std::fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}

/// Pitfall 11: what the control group of a thread forbids is refused with the call, the thread and
/// the reason, and nothing is changed.
#[test]
fn what_a_control_group_forbids_is_refused_with_the_reason() {
    let test = "what_a_control_group_forbids_is_refused_with_the_reason";
    let Some(_turn) = turn(test) else { return };
    let folder = Folder::new("live-groups");
    let refused = |group: &Group, words: &[&str]| {
        let target = Children::start("sleep 60");
        group.take(target.pid());
        let before = state(target.pid());
        let pid = target.pid().to_string();
        let refused =
            schedlab(&folder, &["attach", "--scheduler", "rr", "--cpus", "0", "--pid", &pid]);
        assert_eq!(refused.code, 2, "{refused:?}");
        for word in words.iter().copied().chain([pid.as_str(), "(sh)"]) {
            assert!(refused.stderr.contains(word), "{word}: {refused:?}");
        }
        assert_eq!(state(target.pid()), before);
        assert_eq!(schedlab(&folder, &["status"]).stdout, "nothing is managed\n");
    };
    let Some(elsewhere) = Group::new("cpuset", &[("cpuset.cpus", "1"), ("cpuset.mems", "0")])
    else {
        assert!(std::env::var_os("CI").is_none(), "{test}: CI has control groups of version 1");
        crate::skip(test, "needs cpuset of control groups, version 1");
        return;
    };
    refused(&elsewhere, &["sched_setaffinity", "os error 22", "cpuset"]);
    // A new group has no real-time budget, where the kernel keeps such a thing at all
    // (CONFIG_RT_GROUP_SCHED).
    let Some(poor) = Group::new("cpu", &[]) else { return };
    if poor.0.join("cpu.rt_runtime_us").exists() {
        refused(&poor, &["sched_setattr", "os error 1", "CONFIG_RT_GROUP_SCHED"]);
    }
}

/// A thread that is gone between its being listed and its being changed is no error, however many
/// there are.
#[test]
fn threads_that_end_while_they_are_taken_on_are_no_error() {
    let Some(_turn) = turn("threads_that_end_while_they_are_taken_on_are_no_error") else { return };
    settles(3, threads_that_end_are_no_error);
}

fn threads_that_end_are_no_error() {
    let folder = Folder::new("live-ends");
    let target = Children::start("while :; do /bin/true & /bin/true & /bin/true & wait; done");
    let pid = target.pid().to_string();
    wait_until("it has begun", || state(target.pid()).is_some());
    let before = state(target.pid());
    for round in 0..8 {
        let arguments = ["attach", "--scheduler", "rr", "--pid", &pid, "--for", "60ms"];
        let run = schedlab(&folder, &arguments);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "round {round}: {run:?}");
        let now = state(target.pid());
        always(now == before, || format!("round {round}: {now:?} {before:?}"));
    }
}

/// A name that a thread gives itself makes no event that is followed: the report has it all the
/// same.
#[test]
fn a_thread_that_renames_itself_is_reported_by_its_last_name() {
    let Some(_turn) = turn("a_thread_that_renames_itself_is_reported_by_its_last_name") else {
        return;
    };
    settles(3, || {
        let folder = Folder::new("live-rename");
        // It is managed by its first name for half a second, and lives when the time is over.
        let script = "sleep 0.5; printf later >/proc/$$/comm; sleep 3; :";
        let arguments =
            ["run", "--scheduler", "rr", "--for", "2s", "--json", "--", "sh", "-c", script];
        let run = ran(&mut command(&folder, &arguments));
        assert_eq!(run.code, 0, "{run:?}");
        let result: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
        let names: Vec<&str> = result["threads"]
            .as_array()
            .expect("threads")
            .iter()
            .filter_map(|t| t["comm"].as_str())
            .collect();
        assert!(names.contains(&"later") && !names.contains(&"sh"), "{names:?}");
    });
}

/// A real-time thread of another program keeps the CPU that shall be managed: that is refused by
/// its name, where it once hung until that thread ended.
#[test]
fn a_cpu_that_another_real_time_thread_keeps_is_refused() {
    let Some(_turn) = turn("a_cpu_that_another_real_time_thread_keeps_is_refused") else { return };
    let folder = Folder::new("live-occupied");
    let hog = Children::start("exec chrt -f 50 taskset -c 0 sh -c 'while :; do :; done'");
    wait_until("the hog is real-time", || {
        state(hog.pid()).is_some_and(|(policy, cpus)| (policy, cpus.as_str()) == (1, "0"))
    });
    let run = schedlab(&folder, &["run", "--scheduler", "rr", "--cpus", "0", "--", "true"]);
    let pid = hog.pid();
    drop(hog);
    let says = |text: &str| run.stderr.contains(text);
    assert!(
        run.code == 2 && says("CPU 0 gave a thread of SCHED_FIFO 5 nothing for 3000 ms"),
        "{run:?}"
    );
    assert!(
        says(&format!("thread {pid} (sh) has fifo:50")) && says("manage other CPUs (--cpus)"),
        "{run:?}"
    );
    let left = schedlab(&folder, &["status"]);
    assert_eq!(left.stdout, "nothing is managed\n");
}
