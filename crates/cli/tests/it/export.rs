//! `schedlab export` and `schedlab import`.

use super::{Folder, root, schedlab};
use std::process::Command;

fn number(text: &str, before: &str, after: &str) -> u64 {
    let rest = text.split(before).nth(1).unwrap_or_else(|| panic!("no `{before}` in {text}"));
    rest.split(after)
        .next()
        .unwrap()
        .trim()
        .parse()
        .unwrap_or_else(|_| panic!("no number in {text}"))
}

/// Google's own schema reads the trace and finds as many switches as the recording has. Skipped by
/// name without the package `perfetto` of PyPI; `SCHEDLAB_PYTHON` names a Python that has it.
#[test]
#[allow(clippy::print_stderr)] // a test that is skipped says its name
fn perfetto_export_parses_with_the_published_schema() {
    let python = std::env::var("SCHEDLAB_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let probe = Command::new(&python)
        .args(["-c", "import perfetto.protos.perfetto.trace.perfetto_trace_pb2"])
        .output();
    if !probe.is_ok_and(|output| output.status.success()) {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI installs perfetto, but `{python}` does not have it"
        );
        eprintln!(
            "skipped: perfetto_export_parses_with_the_published_schema (pip install perfetto)"
        );
        return;
    }
    let folder = Folder::new("perfetto");
    let trace = folder.0.join("a.pftrace").display().to_string();
    for (recording, threads) in [("recordings/hackbench.slt", 1), ("recordings/two-yes.slt", 1)] {
        let ran = schedlab(&["export", recording, "--perfetto", &trace]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let script = root().join("crates/cli/tests/perfetto_schema.py");
        let output = Command::new(&python).arg(script).arg(&trace).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let switches = number(&ran.stdout, "(perfetto): ", " switches");
        assert_eq!(number(&text, "switches=", " "), switches);
        assert_eq!(number(&text, "wakings=", " "), number(&ran.stdout, "switches, ", " wakeups"));
        assert_eq!(number(&text, "disorder=", " "), 0, "{text}");
        assert!(
            number(&text, "threads=", " ") >= threads
                && number(&text, "chained=", "\n") + 8 >= switches,
            "{text}"
        );
    }
}

#[test]
fn what_goes_out_comes_in_again() {
    let folder = Folder::new("round-trip");
    let path = |name: &str| folder.0.join(name).display().to_string();
    let (trace, text, perf, tables) =
        (path("a.pftrace"), path("a.txt"), path("a.perf"), path("tables"));
    let input = "recordings/hackbench.slt";
    let ran = schedlab(&[
        "export",
        input,
        "--perfetto",
        &trace,
        "--ftrace",
        &text,
        "--perf-script",
        &perf,
        "--csv",
        &tables,
        "--json",
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("\"schema\": \"schedlab-export/1\""), "{ran:?}");
    let out_said = ran.stdout;
    let mut said = Vec::new();
    for from in [&trace, &text, &perf] {
        let out = path("back.slt");
        let ran = schedlab(&["import", from, "-o", &out]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.stdout.contains("repairs: "), "{ran:?}");
        said.push(number(&ran.stdout, "back.slt: ", " events"));
    }
    // Perfetto has no place for system calls.
    let exported: serde_json::Value = serde_json::from_str(&out_said).expect("JSON");
    let left_out = exported["files"][0]["left_out"]["system calls"].as_u64().unwrap_or(0);
    assert!(left_out > 0, "{exported}");
    assert_eq!(said[0] + left_out, said[1]);
    let waits = std::fs::read_to_string(format!("{tables}/waits.csv")).unwrap();
    assert!(
        waits.starts_with("began_ns,ended_ns,wait_ns,cpu,task,tid,comm,why,cgroup,wall_time\n")
            && waits.lines().count() > 1000
    );
    let mut names: Vec<_> = std::fs::read_dir(&tables)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["events.csv", "tasks.csv", "waits.csv"]);
}

#[test]
fn an_export_that_cannot_be_written_leaves_nothing() {
    let folder = Folder::new("export-fails");
    let ran = schedlab(&["export", "recordings/two-yes.slt", "--perfetto", "/proc/none/a.pftrace"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    let ran = schedlab(&["export", "recordings/two-yes.slt"]);
    assert!(ran.code == 2 && ran.stderr.contains("--perfetto FILE"), "{ran:?}");
    let broken = folder.write("broken.pftrace", b"\x0a\xff\x01\x00\x02");
    let ran = schedlab(&["import", &broken, "-o", &folder.0.join("x.slt").display().to_string()]);
    assert!(ran.code == 2 && ran.stderr.contains("damaged at byte 0"), "{ran:?}");
    let file = folder.write("file", "x");
    let ran = schedlab(&["export", "recordings/two-yes.slt", "--csv", &file]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert_eq!(folder.names(), ["broken.pftrace", "file"]);
}

/// A timer of rt-app goes on from its last expiry: absolute timers of several periods that run once
/// are moments.
#[test]
fn an_rt_app_workload_of_a_recording_is_taken_back() {
    let folder = Folder::new("rt-app-back");
    let path = |name: &str| folder.0.join(name).display().to_string();
    let (workload, scenario) = (path("w.json"), path("w.toml"));
    for input in super::files("recordings", "slt") {
        let ran = schedlab(&["export", input.to_str().unwrap(), "--rt-app", &workload]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let ran = schedlab(&["import", &workload, "-o", &scenario]);
        assert_eq!(ran.code, 0, "{input:?}: {ran:?}");
        let recording = input.file_stem().unwrap().to_str().unwrap();
        let task = match recording {
            "two-yes" => "yes",
            "redis-other-other-closed8" => "redis-server",
            _ => continue,
        };
        // What it runs is what was recorded: the largest consumer has its share, the machine is as
        // busy.
        let ran = schedlab(&[
            "compare",
            &scenario,
            "--scheduler",
            "linux-6.18",
            "--for",
            "1s",
            "--all-tasks",
            "--json",
        ]);
        assert_eq!(ran.code, 0, "{recording}: {ran:?}");
        let study: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let subjects = study["rows"][0]["subjects"].as_array().unwrap();
        let share = |subject: &serde_json::Value| {
            let cells = subject["cells"].as_array().unwrap();
            let cell = cells.iter().find(|cell| cell["metric"] == "share");
            cell.map_or(0.0, |cell| cell["value"]["median"].as_f64().unwrap())
        };
        let of_task = subjects.iter().filter(|one| one["name"].as_str().unwrap().starts_with(task));
        let most = of_task.map(share).fold(0.0, f64::max);
        assert!((0.3..0.7).contains(&most), "{recording}: {task} has {most}");
    }
}

/// What the files hold is compared with CSV by the tests of the Python package.
#[test]
fn tables_go_out_as_parquet() {
    let folder = Folder::new("parquet");
    let tables = folder.0.join("tables").display().to_string();
    let ran = schedlab(&[
        "export",
        "recordings/redis-other-other-closed8.slt",
        "--parquet",
        &tables,
        "--json",
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    super::schema::fits("export", &ran.stdout);
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["files"][0]["format"], "parquet");
    let notes = json["files"][0]["notes"].as_array().unwrap();
    assert!(
        notes.iter().any(|note| note.as_str().unwrap().starts_with("latencies.parquet: ")),
        "{notes:?}"
    );
    let all = ["activations", "blame", "events", "latencies", "migrations", "slices", "tasks"]
        .map(|name| format!("{name}.parquet"));
    let mut names: Vec<_> =
        std::fs::read_dir(&tables).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, all.map(std::ffi::OsString::from));
    for name in names {
        let file = std::fs::read(folder.0.join("tables").join(&name)).unwrap();
        assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1"), "{name:?}");
    }
    let file = folder.write("file", "x");
    let ran = schedlab(&["export", "recordings/two-yes.slt", "--parquet", &file]);
    assert_eq!(ran.code, 2, "{ran:?}");
}

/// A trace without wakeups cannot tell waiting from sleeping: its waits are no table, and that is
/// said.
#[test]
fn a_table_for_which_something_is_missing_is_named() {
    let folder = Folder::new("parquet-lacks");
    let trace = folder.write(
        "t.txt",
        "# tracer: nop\n          <idle>-0     [000] d..3.  10.000100: sched_switch: \
         prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=a next_pid=7 \
         next_prio=120\n               a-7     [000] d..3.  10.001100: sched_switch: prev_comm=a \
         prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120\n",
    );
    let tables = folder.0.join("tables").display().to_string();
    let ran = schedlab(&["export", &trace, "--parquet", &tables]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("without migrations.parquet: "), "{}", ran.stdout);
    assert!(folder.0.join("tables/events.parquet").exists());
    assert!(!folder.0.join("tables/migrations.parquet").exists());
}
