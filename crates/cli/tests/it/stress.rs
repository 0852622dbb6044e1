//! `schedlab stress`: the work is what was asked for, and nothing is left behind.

use super::schedlab;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const ENDLESS: [&str; 8] =
    ["stress", "--groups", "2", "--fds", "2", "--messages", "1000000000", "--json"];

#[test]
fn processes_and_threads_over_pipes_and_sockets() {
    for (flags, transport, workers) in [
        (["--process", "--socket"], "socket", "process"),
        (["--thread", "--pipe"], "pipe", "thread"),
    ] {
        let load = ["stress", "--groups", "2", "--fds", "3", "--messages", "10", "--json"];
        let ran = schedlab(&[&load[..], &flags].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        let value: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(value["schema"], "schedlab-stress/1");
        assert_eq!(
            (&value["request"]["transport"], &value["request"]["workers"]),
            (&transport.into(), &workers.into())
        );
        assert_eq!(
            (value["tasks"].as_u64(), value["messages_per_round"].as_u64()),
            (Some(12), Some(180))
        );
        assert_eq!(value["rounds_ns"].as_array().map(Vec::len), Some(1));
        assert_eq!(value["interrupted"], false);
    }
}

#[test]
fn time_ends_a_round_that_would_last_for_years() {
    let ran = schedlab(&[&ENDLESS[..], &["--for", "10ms"]].concat());
    let value: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (value["rounds_ns"].as_array().map(Vec::len), &value["interrupted"]),
        (Some(0), &false.into())
    );
}

#[test]
fn a_signal_ends_it_and_leaves_no_process() {
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let child = Command::new(env!("CARGO_BIN_EXE_schedlab"))
            .args(ENDLESS)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let workers = wait_for_workers(&child, 8);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        if signal == Signal::KILL {
            // The kernel kills them; the process that adopts them reaps them later.
            while workers.iter().any(|&(pid, started)| running(pid, started)) {
                std::thread::sleep(Duration::from_millis(5));
            }
        } else {
            let value: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!((output.status.code(), &value["interrupted"]), (Some(0), &true.into()));
            assert!(!workers.iter().any(|&(pid, started)| running(pid, started)));
        }
    }
}

#[test]
fn hogs_and_memory() {
    let ran = schedlab(&["stress", "--hogs", "1", "--memory", "1M", "--for", "20ms", "--json"]);
    let value: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&value["threads"][0]["kind"], &value["threads"][1]["kind"]),
        (&"hog".into(), &"memory".into())
    );
    assert!(value["threads"][1]["bytes"].as_u64() > Some(0));
}

#[test]
fn what_makes_no_sense_is_refused() {
    for bad in [
        &["stress"][..],
        &["stress", "--groups", "0"],
        &["stress", "--groups", "1", "--size", "0"],
        &["stress", "--groups", "1", "--hogs", "1"],
        &["stress", "--hogs", "1", "--messages", "5"],
        &["stress", "--hogs", "0", "--for", "1ms"],
        &["stress", "--memory", "7 apples"],
    ] {
        let ran = schedlab(bad);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{bad:?}: {ran:?}");
        assert!(ran.stderr.starts_with("error:"), "{ran:?}");
    }
}

/// Parent and start time of a process that is not dead.
fn stat(pid: u32) -> Option<(u32, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    (!["Z", "X"].contains(&fields[0]))
        .then(|| (fields[1].parse().unwrap(), fields[19].parse().unwrap()))
}

fn running(pid: u32, started: u64) -> bool {
    stat(pid).is_some_and(|(_, start)| start == started)
}

/// Waits until the program has so many children: their numbers and start times.
fn wait_for_workers(child: &Child, wanted: usize) -> Vec<(u32, u64)> {
    loop {
        let pids = std::fs::read_dir("/proc").unwrap();
        let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let stats =
            pids.filter_map(|pid| stat(pid).map(|(parent, started)| (parent, pid, started)));
        let found: Vec<_> = stats
            .filter(|(parent, ..)| *parent == child.id())
            .map(|(_, pid, started)| (pid, started))
            .collect();
        if found.len() == wanted {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
