//! `schedlab show`, as a user meets it.

use super::{Folder, files, schedlab};
use schedlab_trace::analysis::show::ALL;

/// Two tasks on one CPU, with a system call; worked out by hand below.
const PERF: &str = "\
 hog 10/10 [000] 100.000000000: sched:sched_switch: prev_comm=idle prev_pid=0 prev_prio=120 \
 prev_state=R ==> next_comm=hog next_pid=10 next_prio=120
 srv 11/11 [000] 100.000500000: raw_syscalls:sys_enter: NR 202 (0, 0, 0)
 <idle> 0/0 [000] 100.001000000: sched:sched_waking: comm=srv pid=11 prio=120 target_cpu=000
 hog 10/10 [000] 100.016234000: sched:sched_switch: prev_comm=hog prev_pid=10 prev_prio=120 \
 prev_state=R ==> next_comm=srv next_pid=11 next_prio=120
 srv 11/11 [000] 100.016300000: raw_syscalls:sys_exit: NR 202 = 0
 srv 11/11 [000] 100.016400000: raw_syscalls:sys_enter: NR 7 (0, 0, 0)
 srv 11/11 [000] 100.016734000: sched:sched_switch: prev_comm=srv prev_pid=11 prev_prio=120 \
 prev_state=S ==> next_comm=hog next_pid=10 next_prio=120
 hog 10/10 [000] 100.017000000: sched:sched_waking: comm=srv pid=11 prio=120 target_cpu=000
 hog 10/10 [000] 100.018000000: sched:sched_switch: prev_comm=hog prev_pid=10 prev_prio=120 \
 prev_state=R ==> next_comm=srv next_pid=11 next_prio=120
 srv 11/11 [000] 100.018500000: sched:sched_switch: prev_comm=srv prev_pid=11 prev_prio=120 \
 prev_state=D ==> next_comm=hog next_pid=10 next_prio=120
";

/// The recording of this text, such as [`PERF`].
fn imported(folder: &Folder, text: &str) -> String {
    let text = folder.write("perf.txt", text);
    let file = folder.0.join("a.slt").display().to_string();
    let ran = schedlab(&["import", &text, "-o", &file]);
    assert_eq!(ran.code, 0, "{ran:?}");
    file
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let ran = schedlab(arguments);
    assert_eq!(ran.code, 0, "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn the_worst_wait_is_named_with_its_culprit() {
    let folder = Folder::new("show-worst");
    let file = imported(&folder, PERF);
    let ran = schedlab(&["show", &file, "--worst", "1"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stdout.contains("1. srv[11] waited 15.234 ms from 0.001000s until 0.016234s"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("hog[10] 15.2ms (100.0 %)"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("2. "), "{}", ran.stdout);
    let value = json(&["show", &file, "--worst", "2", "--json"]);
    let worst = &value["analyses"][0]["tables"]["worst"];
    assert_eq!(
        (&worst[0]["waited_ns"], &worst[1]["waited_ns"]),
        (&15_234_000.into(), &1_000_000.into())
    );
    assert_eq!(value["analyses"][0]["tables"]["meanwhile"][0]["who"]["tid"], 10);
}

#[test]
fn timehist_prints_the_columns_of_perf() {
    let folder = Folder::new("show-timehist");
    let file = imported(&folder, PERF);
    let ran = schedlab(&["show", &file, "--timehist", "--absolute"]);
    let rows: Vec<Vec<&str>> =
        ran.stdout.lines().skip(4).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        rows[0],
        ["100.000000", "[0000]", "<idle>", "0.000", "0.000", "0.000"],
        "{}",
        ran.stdout
    );
    assert_eq!(rows[1], ["100.016234", "[0000]", "hog[10]", "0.000", "0.000", "16.234", "R"]);
    assert_eq!(rows[2], ["100.016734", "[0000]", "srv[11]", "0.000", "15.234", "0.500", "S"]);
    assert_eq!(rows[4], ["100.018500", "[0000]", "srv[11]", "1.266", "1.000", "0.500", "D"]);
    let part = schedlab(&["show", &file, "--timehist", "--task", "srv", "--from", "17ms"]);
    assert_eq!(part.stdout.matches("srv[11]").count(), 1, "{}", part.stdout);
    assert!(!part.stdout.contains("hog"), "{}", part.stdout);
}

/// Listed while it is read, from a pipe as a whole, and as far as it goes where it is damaged.
#[test]
fn timehist_is_the_same_however_it_is_read() {
    let folder = Folder::new("show-timehist-ways");
    let file = "recordings/hackbench.slt";
    let whole = schedlab(&["show", file, "--timehist"]);
    assert_eq!(whole.code, 0, "{}", whole.stderr);
    assert!(whole.stdout.lines().count() > 5_000);
    let piped = std::process::Command::new("sh")
        .args([
            "-c",
            "cat \"$1\" | \"$0\" show /dev/stdin --timehist",
            env!("CARGO_BIN_EXE_schedlab"),
            file,
        ])
        .current_dir(super::root())
        .output()
        .unwrap();
    assert!(piped.status.success(), "{piped:?}");
    assert_eq!(String::from_utf8(piped.stdout).unwrap(), whole.stdout);

    let mut bytes = std::fs::read(super::root().join(file)).unwrap();
    let middle = bytes.len() * 2 / 3;
    bytes[middle] ^= 1;
    let bad = folder.0.join("bad.slt");
    std::fs::write(&bad, bytes).unwrap();
    let ran = schedlab(&["show", &bad.display().to_string(), "--timehist"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("is damaged") && ran.stderr.contains("`head -c "),
        "{}",
        ran.stderr
    );
    let shown = ran.stdout.trim_end();
    assert!(whole.stdout.starts_with(shown), "the rows before the damage are shown");
    assert!(shown.lines().count() > 1_000, "{}", shown.lines().count());
}

#[test]
fn a_recording_with_system_calls_says_in_which_one_tasks_blocked() {
    let folder = Folder::new("show-syscalls");
    let file = imported(&folder, PERF);
    let value = json(&["show", &file, "--syscalls", "--stream", "--json"]);
    let calls = &value["analyses"]
        .as_array()
        .unwrap()
        .iter()
        .find(|a| a["name"] == "syscalls")
        .unwrap()["tables"];
    assert_eq!(calls["syscalls"][0]["syscall"], "poll");
    assert_eq!(calls["syscalls"][0]["time_ns"], 266_000);
    let stream = schedlab(&["show", &file, "--stream"]).stdout;
    let line = stream
        .lines()
        .find(|line| line.contains("srv[11]") && line.contains("descheduled"))
        .unwrap();
    assert!(
        line.contains("0.500") && line.contains("Sleeping") && line.ends_with("poll"),
        "{line}"
    );
    // Without them it refuses, and says what is missing.
    let without: Vec<&str> = PERF.lines().filter(|line| !line.contains("raw_syscalls")).collect();
    let ran = schedlab(&["show", &imported(&folder, &without.join("\n")), "--syscalls"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("needs blocking-syscalls"), "{}", ran.stderr);
}

#[test]
fn every_analysis_answers_for_every_recording_and_for_scenarios() {
    let mut inputs: Vec<String> =
        files("recordings", "slt").iter().map(|path| path.display().to_string()).collect();
    inputs.push("two-hogs".to_owned());
    for input in inputs {
        let mut arguments = vec!["show".to_owned(), input.clone(), "--json".to_owned()];
        // Listings of every file would take long: their rows are tested elsewhere.
        let wanted = ALL
            .iter()
            .filter(|e| !["syscalls", "timehist", "stream", "messages"].contains(&e.name));
        for entry in wanted {
            arguments.push(format!("--{}", entry.name));
            arguments.extend(entry.takes.map(|_| "3".to_owned()));
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let value = json(&arguments);
        assert_eq!(value["schema"], "schedlab-show/1");
        assert_eq!(value["analyses"].as_array().unwrap().len(), ALL.len() - 4, "{input}");
        consistent(&value, &input);
    }
}

/// Recordings of 1.4 have facts; those before are refused by name.
#[test]
fn messages_are_shown_where_they_were_recorded() {
    let file = "fuzz/corpus/recording/good-1.4-facts.slt";
    let value = json(&["show", file, "--messages", "--json"]);
    let analysis = &value["analyses"][0];
    let pairs = analysis["tables"]["pairs"].as_array().unwrap();
    let sent: u64 = pairs.iter().filter_map(|row| row["messages"].as_u64()).sum();
    assert!(sent >= 15 && pairs.iter().any(|row| row["over"] == "TCP :6379"), "{analysis}");
    assert!(analysis["notes"].to_string().contains("the recorder lost 12 facts ("), "{analysis}");
    let ran = schedlab(&["show", file, "--messages"]);
    assert!(
        ran.stdout.contains("Which task sends to which") && ran.stdout.contains("<elsewhere>"),
        "{}",
        ran.stdout
    );
    let ran = schedlab(&["show", "recordings/redis-other-other-closed8.slt", "--messages"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("the list of messages needs messages"), "{}", ran.stderr);
}

/// Two analyses that count the same thing must agree.
fn consistent(value: &serde_json::Value, input: &str) {
    let table = |analysis: &str, table: &str| {
        let found =
            value["analyses"].as_array().unwrap().iter().find(|a| a["name"] == analysis).unwrap();
        found["tables"][table].as_array().unwrap().clone()
    };
    let sum = |rows: &[serde_json::Value], keys: &[&str]| -> u64 {
        rows.iter().flat_map(|row| keys.iter().map(|key| row[*key].as_u64().unwrap_or(0))).sum()
    };
    let waited = sum(&table("states", "states"), &["runnable_ns", "preempted_ns", "throttled_ns"]);
    let blamed: u64 =
        table("blame", "antagonists").iter().map(|row| row["time_ns"].as_u64().unwrap()).sum();
    assert!(blamed <= waited, "{input}: {blamed} of {waited}");
    let run = |analysis: &str, name: &str| sum(&table(analysis, name), &["run_ns", "running_ns"]);
    let (states, latency) = (run("states", "states"), run("latency", "tasks"));
    assert_eq!(states, latency, "{input}: CPU time of two analyses");
}

#[test]
fn mistakes_are_answered() {
    for (arguments, expected) in [
        (&["--task", "nobody"][..], "--task nobody: no such task"),
        (&["--cgroup", "/nowhere"], "--cgroup /nowhere: no task"),
        (&["--cpu", "99"], "the recording has the CPUs 0 to 1"),
        (&["--from", "1h"], "--from"),
        (&["--from", "100s"], "the recording is"),
        (&["--from", "2s", "--to", "1s"], "--to 1.00s must be later"),
        (&["--worst", "0"], "--worst"),
        (&["--worst", "x"], "--worst"),
        (&["--scheduler", "linux-6.18"], "--scheduler has a meaning only for scenarios"),
    ] {
        let all: Vec<&str> =
            ["show", "recordings/two-yes.slt"].iter().chain(arguments).copied().collect();
        let ran = schedlab(&all);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(expected), "{expected}: {}", ran.stderr);
    }
    assert_eq!(schedlab(&["show", "nofile.slt"]).code, 2);
}

#[test]
fn without_an_option_there_is_an_overview() {
    let ran = schedlab(&["show", "recordings/two-yes.slt"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for expected in
        ["recorded by: bpf", "can be asked: --worst", "What every task got", "Longest waits"]
    {
        assert!(ran.stdout.contains(expected), "{expected}: {}", ran.stdout);
    }
}

/// Hogs in groups as a kubelet with systemd, Docker and systemd make them.
const OWNED: &str = r#"
title = "owned"
schedulers = ["linux-6.18"]
duration = "100ms"

[machine]
cpus = 1

[[group]]
name = "/kubepods.slice"

[[group]]
name = "/kubepods.slice/kubepods-pod1f9a6c0e_5b7d_4c3a_9e21_0a1b2c3d4e5f.slice"

[[group]]
name = "/kubepods.slice/kubepods-pod1f9a6c0e_5b7d_4c3a_9e21_0a1b2c3d4e5f.slice/cri-containerd-3f0a9c1b2d4e5f60718293a4b5c6d7e8.scope"

[[group]]
name = "/docker-00112233445566778899aabbccddeeff.scope"

[[group]]
name = "/redis-server.service"

[[task]]
name = "web"
group = "/kubepods.slice/kubepods-pod1f9a6c0e_5b7d_4c3a_9e21_0a1b2c3d4e5f.slice/cri-containerd-3f0a9c1b2d4e5f60718293a4b5c6d7e8.scope"
program = ["run 1s"]

[[task]]
name = "worker"
group = "/docker-00112233445566778899aabbccddeeff.scope"
program = ["run 1s"]

[[task]]
name = "redis-server"
count = 2
group = "/redis-server.service"
program = ["run 1s"]
"#;

/// Where the kernel has autogroups, and systemd no group for it, a task is of a session.
#[test]
fn a_session_is_called_by_the_process_that_began_it() {
    let folder = Folder::new("session");
    let file = folder.0.join("session.slt").display().to_string();
    let record = ["record", "-o", &file, "--backend", "own", "--no-calibration", "--"];
    // What the shell starts is in its session from the beginning: the process that calls setsid(2)
    // is in the one before until then, and may be looked at before.
    let command = ["setsid", "-w", "sh", "-c", "sleep 0.05; true"];
    let ran = schedlab(&[&record[..], &command].concat());
    if ran.code == 2 {
        return super::skip("a session", &ran.stderr);
    }
    let recording = schedlab_trace::Recording::open(std::path::Path::new(&file)).unwrap();
    let header = &recording.header;
    let sleeper = header.tasks.iter().find(|task| task.comm == "sleep").expect("it was recorded");
    let group = &header.groups[sleeper.group.index()];
    if !group.spec.autogroup {
        return super::skip("a session", "tasks have no autogroup here");
    }
    // `setsid` forks where it leads a group of processes; the session is that of its child.
    let (session, leader) = (sleeper.session.expect("known"), group.leader.as_deref().unwrap());
    let shell = header.tasks.iter().find(|task| task.comm == "sh").expect("it was recorded");
    assert_eq!((session, leader), (shell.pid, "sh"));
    let shown = schedlab(&["show", &file, "--tasks", "--by", "unit"]);
    let name = format!("session of {leader} ({session})");
    assert!(shown.stdout.contains(&name), "{name}: {}", shown.stdout);
}

#[test]
fn tasks_are_taken_together_by_unit_container_and_pod() {
    let folder = Folder::new("owned");
    let file = folder.write("owned.toml", OWNED);
    let expected = [
        (
            "unit",
            "units",
            &[
                "cri-containerd-3f0a9c1b2d4e5f60718293a4b5c6d7e8.scope",
                "docker-00112233445566778899aabbccddeeff.scope",
                "redis-server.service",
            ][..],
        ),
        (
            "container",
            "containers",
            &["(no container)", "containerd 3f0a9c1b2d4e", "docker 001122334455"][..],
        ),
        ("pod", "pods", &["(no pod)", "1f9a6c0e-5b7d-4c3a-9e21-0a1b2c3d4e5f (guaranteed)"][..]),
    ];
    for (by, table, rows) in expected {
        let json = json(&["show", &file, "--latency", "--by", by, "--json"]);
        let listed =
            json["analyses"][0]["tables"][table].as_array().unwrap_or_else(|| panic!("{json}"));
        let mut names: Vec<&str> = listed.iter().filter_map(|row| row["task"].as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, rows, "{by}: {json}");
    }
}
