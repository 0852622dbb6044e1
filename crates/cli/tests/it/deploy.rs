//! `compare --deploy FORMAT`: settings without schedlab; and the headline of the seed experiments.

use super::{Folder, root, schedlab};
use std::process::Command;

const RECORDING: &str = "recordings/redis-other-other-closed8.slt";

fn deploy(variant: &str, format: &str) -> super::Ran {
    schedlab(&["compare", RECORDING, "--seeds", "2", "--variant", variant, "--deploy", format])
}

#[test]
fn commands_set_the_recommended_variant() {
    let ran = deploy("batch idle: sysbench policy=idle", "shell");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.starts_with("# run sysbench under SCHED_IDLE\n"), "{}", ran.stdout);
    let command =
        "for pid in $(pgrep -x -- sysbench); do chrt --idle --all-tasks --pid 0 $pid; done\n";
    assert!(ran.stdout.contains(command), "{}", ran.stdout);
    assert!(ran.stdout.contains("weight 3 against the 1024"), "what to know: {}", ran.stdout);
    let parsed = Command::new("sh").args(["-n", "-c", &ran.stdout]).status().expect("a shell");
    assert!(parsed.success(), "{}", ran.stdout);
}

#[test]
fn a_fragment_wraps_the_program() {
    let ran = deploy("batch nice: sysbench nice=19", "kubernetes");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stdout.contains("command: [\"nice\", \"-n\", \"19\", PROGRAM, ARGUMENTS]"),
        "{}",
        ran.stdout
    );
}

#[test]
fn a_format_that_the_setting_has_not_is_refused_with_those_that_it_has() {
    let ran = deploy("batch idle: sysbench policy=idle", "xl");
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("shell, systemd, kubernetes"), "{ran:?}");
    // Nothing is better than what was recorded.
    let ran = deploy("worse: redis-server nice=19", "shell");
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("no setting that was tried gains anything"), "{ran:?}");
}

#[test]
fn drop_ins_are_valid_where_systemd_can_say() {
    let present = Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_ok_and(|out| out.status.success());
    let variants = [
        "idle: sysbench policy=idle nice=19",
        "slow: sysbench group=/batch ; /batch cpu.max=10ms/100ms cpu.weight=10",
    ];
    for variant in variants {
        let ran = deploy(variant, "systemd");
        assert_eq!(ran.code, 0, "{ran:?}");
        let folder = Folder::new("deploy");
        for unit in ran.stdout.split("# /etc/systemd/system/").skip(1) {
            let (path, text) = unit.split_once('\n').expect("a path and a text");
            let name = path.split(".d/").next().expect("a unit");
            assert!(text.starts_with("[Service]") || text.starts_with("[Slice]"), "{unit}");
            // A unit that is nothing but the drop-in and a program.
            let program =
                if name.ends_with(".service") { "\n[Service]\nExecStart=/bin/true\n" } else { "" };
            let unit = folder.write(name, format!("{text}\n{program}"));
            let checked =
                present.then(|| Command::new("systemd-analyze").arg("verify").arg(&unit).output());
            if let Some(Ok(checked)) = checked {
                let said = String::from_utf8_lossy(&checked.stderr);
                // Other units of this machine may have faults of their own.
                assert!(
                    !said.lines().any(|line| line.contains(name) && line.contains("Unknown")),
                    "{said}"
                );
                assert!(
                    !said.lines().any(|line| line.contains(name) && line.contains("nvalid")),
                    "{said}"
                );
            }
        }
    }
}

/// The columns that an experiment is about are there at 100 columns.
#[test]
fn the_main_figure_of_each_seed_experiment_is_in_its_own_output() {
    // Whatever the time: it is no longer than a warm-up needs.
    for (scenario, time, headings) in [
        ("smp-evaluation", "1s", vec!["decision"]),
        ("ghost-micro", "1s", vec!["end-to-end p50"]),
        ("cyclictest", "6s", vec!["latency max"]),
        ("xen-ping", "1s", vec!["mean", "p99"]),
        ("redis-batch", "2s", vec!["requests/s", "p99"]),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
        command
            .args(["compare", scenario, "--for", time])
            .current_dir(root())
            .env("COLUMNS", "100");
        let ran = super::ran(&mut command);
        let head = |line: &&str| line.starts_with("  scheduler ") || line.starts_with("  variant ");
        let heads: Vec<&str> = ran.stdout.lines().filter(head).collect();
        for heading in headings {
            assert!(
                heads.iter().any(|line| line.contains(heading)),
                "{scenario}: {heading}: {}",
                ran.stdout
            );
        }
    }
}

/// What the first row leaves out is no part of a setting, and a cost that is neither good nor bad
/// is told as a range.
#[test]
fn the_verdict_speaks_of_what_the_scenario_is_about() {
    let outcome = |scenario: &str| {
        let ran = schedlab(&["compare", scenario, "--json"]);
        let value: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        value["verdict"]["outcome"].as_str().expect("a text").to_owned()
    };
    let said = outcome("ghost-micro");
    assert!(said.starts_with("End-to-end p50: from ") && said.contains("local"), "{said}");
    // The ping that is alone has less work beside it: a bound, and no load to give advice for.
    let said = outcome("xen-ping");
    assert!(said.starts_with("Cap /background at 200 % of a pCPU"), "{said}");
    assert!(
        said.contains("network-bound, cap 200") && said.contains("response mean 612us -> "),
        "{said}"
    );
    // SCHED_FIFO does it without another kernel; what that kernel adds is said beside it.
    let ran = schedlab(&["compare", "cyclictest", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let said = value["verdict"]["outcome"].as_str().expect("a text");
    assert!(said.starts_with("Run cyclictest-* under SCHED_FIFO"), "{said}");
    assert!(said.contains("cyclictest-1000 run-queue latency max 50.0ms -> 472us"), "{said}");
    let beside = value["verdict"]["beside"].as_array().expect("sentences");
    let more = |text: &serde_json::Value| {
        text.as_str()
            .is_some_and(|text| text.starts_with("More needs another kernel (rt, hackbench, fifo)"))
    };
    assert!(beside.iter().any(more), "{beside:?}");
    let row = |name: &str| {
        value["rows"].as_array().unwrap().iter().find(|row| row["variant"] == name).unwrap()
    };
    assert_eq!(row("standard, idle, fifo")["bound"], "it has fewer tasks");
    assert!(row("rt, hackbench, fifo").get("bound").is_none());
}

/// A load that the first row does not have is no bound: it has a first row of its own, and the same
/// setting is told for it.
#[test]
fn another_load_is_no_bound() {
    let twice = [
        "--variant",
        "busy: yes-1 demand=x2",
        "--variant",
        "busy nice: yes-1 demand=x2 ; yes-2 nice=19",
    ];
    let nice = ["--variant", "quiet nice: yes-2 nice=19", "--scheduler", "linux-6.18", "--json"];
    let arguments = [&["compare", "two-hogs"][..], &nice, &twice].concat();
    let ran = schedlab(&arguments);
    let value: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let rows = value["rows"].as_array().unwrap();
    let place = |name: &str| rows.iter().position(|row| row["variant"] == name).unwrap();
    for name in ["busy", "busy nice"] {
        let row = &rows[place(name)];
        assert_eq!(row["load"], "its work is another", "{row}");
        assert!(row.get("bound").is_none());
        assert_eq!(row["first_of_load"], place("busy"));
    }
    let beside = value["verdict"]["beside"].as_array().expect("sentences");
    let told = |text: &serde_json::Value| {
        text.as_str().is_some_and(|text| text.starts_with("Under the load of busy ("))
    };
    assert!(beside.iter().any(told), "{beside:?}");
}

/// Each event has a recording of its own, and the newest stay.
#[test]
fn a_flight_recorder_goes_on() {
    let folder = Folder::new("keep");
    let file = folder.0.join("x.slt").display().to_string();
    let condition = ["--until", "ran > 1us", "--for", "1500ms"];
    let mut arguments =
        vec!["record", "--ring", "1s", "--keep", "2", "--no-calibration", "-o", &file];
    arguments.extend(condition);
    let ran = schedlab(&arguments);
    if ran.code == 2 {
        return super::skip("a_flight_recorder_goes_on", &ran.stderr);
    }
    assert!(matches!(ran.code, 0 | 3), "{ran:?}");
    let (names, told) = (folder.names(), ran.stdout.matches("caught: ").count());
    assert_eq!(names.len(), told.min(2), "{names:?}: {ran:?}");
    assert!(names.iter().all(|name| name.starts_with("x-") && name.ends_with(".slt")), "{names:?}");
    // Each is full from its beginning, and has what it was kept for.
    for name in &names {
        let recording = schedlab_trace::Recording::open(folder.0.join(name)).expect("it opens");
        let incident = recording.header.incident().expect("it is in the header");
        assert!(incident.to() <= recording.duration, "{incident:?} of {}", recording.duration);
    }
    if let [first, second] = &names[..] {
        let open =
            |name: &String| schedlab_trace::Recording::open(folder.0.join(name)).expect("it opens");
        let (first, second) = (open(first), open(second));
        let end = first.header.clock_start_ns + first.duration.0;
        let gap = second.header.clock_start_ns.saturating_sub(end);
        assert!(gap < 100_000_000, "{gap} ns between two recordings of a second");
    }
    // Without one the exit code says so, and nothing is left.
    let never = ["--until", "nosuchtask ran > 1s", "--for", "300ms"];
    let file = folder.0.join("y.slt").display().to_string();
    let mut arguments =
        vec!["record", "--ring", "1s", "--keep", "2", "--no-calibration", "-o", &file];
    arguments.extend(never);
    let ran = schedlab(&arguments);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(!folder.names().iter().any(|name| name.starts_with('y')), "{ran:?}");
}

/// A thread of SCHED_OTHER is so already: nothing sets that.
#[test]
fn what_is_so_already_is_not_deployed() {
    let ran = deploy("batch nice: sysbench policy=other nice=19", "shell");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("renice -n 19") && !ran.stdout.contains("chrt"), "{}", ran.stdout);
    let ran = deploy("batch nice: sysbench policy=other nice=19", "systemd");
    assert!(
        ran.stdout.contains("Nice=19") && !ran.stdout.contains("CPUSchedulingPolicy"),
        "{}",
        ran.stdout
    );
    let ran = deploy("batch idle: sysbench policy=idle nice=0", "shell");
    assert!(ran.stdout.contains("chrt --idle") && !ran.stdout.contains("renice"), "{}", ran.stdout);
    // Against a first row that is not the scenario's workload a setting of the scenario is one.
    let ran = schedlab(&[
        "compare",
        RECORDING,
        "--seeds",
        "1",
        "--variant",
        "same: sysbench policy=other",
        "--json",
    ]);
    let study: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(study["rows"][1]["deploy"].is_null(), "{}", study["rows"][1]["deploy"]);
}
