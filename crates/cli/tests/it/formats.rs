//! Every command that prints a result prints it in every format.

use super::hostile::{harmless, no_formulas};
use super::{Folder, Ran, schedlab};
use serde_json::Value;

const RECORDING: &str = "recordings/redis-other-other-closed8.slt";

/// Runs a command in a format; the outcome of a gate is no failure here.
fn run(command: &[&str], format: &str) -> Ran {
    let ran = schedlab(&[command, &["--format", format]].concat());
    assert!([0, 1, 3].contains(&ran.code), "{command:?} as {format}: {ran:?}");
    harmless(&format!("{command:?} as {format}"), &ran.stdout);
    ran
}

/// Returns the fields of a line of CSV (RFC 4180).
fn fields(line: &str) -> usize {
    let quotes = |text: &str| text.matches('"').count();
    let mut fields = 1;
    let mut open = 0;
    for part in line.split(',') {
        open += quotes(part);
        fields += usize::from(open % 2 == 0);
    }
    fields - 1
}

/// Every table has a heading, and rows that are as wide.
fn csv_holds(what: &str, text: &str) {
    no_formulas(what, text);
    for table in text.split("\n\n").filter(|table| !table.is_empty()) {
        let widths: Vec<usize> = table.lines().map(fields).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{what}: {widths:?} in {table}");
    }
}

/// Returns how many rows the tables of a Markdown text have; all of a table are as wide.
fn markdown_rows(what: &str, text: &str) -> usize {
    let bars = |line: &str| line.replace("\\|", "").matches('|').count();
    let mut rows = 0;
    for part in text.split("\n\n").filter(|part| part.starts_with("| ")) {
        let widths: Vec<usize> = part.lines().map(bars).collect();
        assert!(
            part.lines().nth(1).is_some_and(|rule| rule.starts_with("|---|")),
            "{what}: {part}"
        );
        assert!(widths.iter().all(|width| *width == widths[0]), "{what}: {widths:?} in {part}");
        rows += widths.len() - 2;
    }
    assert!(!text.contains('\u{e002}') && !text.contains('\u{e000}'), "{what}: {text}");
    rows
}

/// Returns how many lines there are; each is an object that names its schema and its table.
fn ndjson_rows(what: &str, text: &str) -> usize {
    for line in text.lines() {
        let row: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{what}: {error}: {line}"));
        let named = |key: &str| row[key].as_str().is_some_and(|name| !name.is_empty());
        assert!(
            row["schema"].as_str().is_some_and(|name| name.starts_with("schedlab-")),
            "{what}: {line}"
        );
        assert!(named("table"), "{what}: {line}");
    }
    text.lines().count()
}

/// Runs a command in all formats. `rows`: whether its result has rows.
fn in_every_format(command: &[&str], rows: bool) {
    let what = format!("{command:?}");
    assert!(!run(command, "table").stdout.is_empty(), "{what}");
    let json: Value = serde_json::from_str(&run(command, "json").stdout).expect(&what);
    assert!(json["schema"].as_str().is_some_and(|name| name.starts_with("schedlab-")), "{what}");
    let csv = run(command, "csv").stdout;
    csv_holds(&what, &csv);
    let markdown = run(command, "markdown").stdout;
    let in_markdown = markdown_rows(&what, &markdown);
    let in_ndjson = ndjson_rows(&what, &run(command, "ndjson").stdout);
    assert_eq!(in_ndjson > 0, rows, "{what}");
    assert_eq!(csv.lines().count() > 1, rows, "{what}: {csv}");
    assert_eq!(in_markdown > 0, rows, "{what}: {markdown}");
}

#[test]
fn predictions_and_recordings_have_every_format() {
    for command in [
        &["compare", "two-hogs", "--for", "1500ms"][..],
        &[
            "compare",
            RECORDING,
            "--seeds",
            "1",
            "--for",
            "300ms",
            "--variant",
            "i: sysbench policy=idle",
        ],
        &["show", RECORDING],
        &["show", RECORDING, "--worst=3", "--latency", "--blame", "--states"],
        &["show", RECORDING, "--timehist", "--to", "20ms"],
        &["show", "xen-ping", "--xl"],
        &["published", "xen-bare-one"],
        &["bench", "model", "--tasks", "2,4", "--cpus", "2", "--variant", "default"],
    ] {
        in_every_format(command, true);
    }
    in_every_format(&["diff", RECORDING, RECORDING, "--all"], true);
}

#[test]
fn small_results_have_every_format() {
    let folder = Folder::new("formats");
    let out = |name: &str| folder.0.join(name).display().to_string();
    let trace = folder.write("t.txt", FTRACE);
    for command in [
        &["list", "schedulers"][..],
        &["list", "schedulers", "--live"],
        &["list", "scenarios"],
        &["explain"],
        &["doctor"],
        &["export", RECORDING, "--ftrace", &out("x.txt")],
        &["import", &trace, "-o", &out("y.slt")],
        &["stress", "--hogs", "1", "--for", "50ms"],
        &["stress", "--groups", "1", "--messages", "1", "--fds", "1"],
    ] {
        in_every_format(command, true);
    }
    // Nothing is managed, so that there is nothing to give back.
    let nothing = folder.0.join("run").display().to_string();
    std::fs::create_dir(&nothing).unwrap();
    for command in ["status", "restore", "detach"] {
        for format in ["table", "markdown", "csv", "json", "ndjson"] {
            let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_schedlab"));
            let ran = super::ran(
                program.args([command, "--format", format]).env("SCHEDLAB_RUN_DIR", &nothing),
            );
            assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{command} as {format}");
        }
    }
}

const FTRACE: &str = "\
# tracer: nop
          <idle>-0     [000] d..3.  10.000100: sched_switch: prev_comm=swapper/0 prev_pid=0 \
          prev_prio=120 prev_state=R ==> next_comm=a next_pid=7 next_prio=120
               a-7     [000] d..3.  10.001100: sched_switch: prev_comm=a prev_pid=7 prev_prio=120 \
               prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
";

/// What measures the live machine, where it may.
#[test]
fn live_results_have_every_format() {
    let folder = Folder::new("formats-live");
    let file = folder.0.join("x.slt").display().to_string();
    let preset = folder.0.join("x.toml").display().to_string();
    for command in [
        &["latency", "--for", "100ms"][..],
        &["calibrate", "--for", "500ms", "--rounds", "3", "-o", &preset],
        &["bench", "runqueue", "--tasks", "2", "--threads", "1", "--rounds", "3", "--for", "1ms"],
    ] {
        let first = schedlab(command);
        if first.code == 2 {
            super::skip(command[0], &first.stderr);
            continue;
        }
        in_every_format(command, true);
    }
    for format in ["table", "markdown", "csv", "json", "ndjson"] {
        let own =
            ["record", "-o", &file, "--backend", "own", "--no-calibration", "--format", format];
        let ran = schedlab(&[&own[..], &["--", "sleep", "0.05"]].concat());
        if ran.code == 2 {
            super::skip("record", &ran.stderr);
            break;
        }
        assert!(!ran.stdout.is_empty(), "{format}: {ran:?}");
        if format == "csv" {
            assert_eq!(ran.stdout.lines().count(), 2, "{ran:?}");
            csv_holds("record", &ran.stdout);
        }
    }
    for format in ["markdown", "csv", "json", "ndjson"] {
        let ran = schedlab(&["watch", "--for", "2500ms", "--format", format]);
        if ran.code == 2 {
            super::skip("watch", &ran.stderr);
            break;
        }
        match format {
            "csv" => {
                csv_holds("watch", &ran.stdout);
                assert_eq!(
                    ran.stdout.matches("at_ns").count(),
                    1,
                    "one heading for all states: {ran:?}"
                );
            }
            "ndjson" => assert!(ndjson_rows("watch", &ran.stdout) > 0),
            _ => {}
        }
    }
}

#[test]
fn two_formats_are_refused() {
    for command in [
        &["list", "scenarios", "--json", "--format", "csv"][..],
        &["compare", "two-hogs", "--brief", "--format", "json"],
        &["compare", "two-hogs", "--deploy", "shell", "--format", "markdown"],
        &["show", RECORDING, "--report", "x.html", "--format", "csv"],
        &["list", "scenarios", "--format", "xml"],
    ] {
        let ran = schedlab(command);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{command:?}: {ran:?}");
    }
    // An error is JSON where rows would have been.
    let ran = schedlab(&["show", "gone.slt", "--format", "ndjson"]);
    let error: Value = serde_json::from_str(&ran.stderr).expect("JSON");
    assert_eq!(error["schema"], "schedlab-error/1");
}

/// The short form is the same.
#[test]
fn json_is_short_for_format_json() {
    let [long, short] = [&["--format", "json"][..], &["--json"]]
        .map(|more| schedlab(&[&["list", "schedulers"][..], more].concat()));
    assert_eq!(long.stdout, short.stdout);
}

fn bytes(arguments: &[&str]) -> (Vec<u8>, String) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_schedlab"));
    let output = command.args(arguments).current_dir(super::root()).output().expect("it starts");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    (output.stdout, String::from_utf8(output.stderr).expect("text"))
}

#[test]
fn one_table_is_a_parquet_file() {
    for analysis in [
        "--tasks",
        "--latency",
        "--worst=3",
        "--blame",
        "--states",
        "--slices",
        "--migrations",
        "--wakes",
    ] {
        let (file, said) = bytes(&["show", RECORDING, analysis, "--format", "parquet"]);
        assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1"), "{analysis}");
        assert_eq!(
            said.contains("without antagonists"),
            analysis == "--blame",
            "{analysis}: {said}"
        );
    }
    let folder = Folder::new("parquet-rows");
    let rows = folder.0.join("rows.parquet").display().to_string();
    let (out, _) = bytes(&["compare", "two-hogs", "--format", "parquet", "-o", &rows]);
    assert!(out.is_empty());
    assert!(std::fs::read(&rows).expect("it is there").ends_with(b"PAR1"));
    for (arguments, says) in [
        (&["show", RECORDING, "--format", "parquet"][..], "ask for one analysis"),
        (&["show", RECORDING, "--tasks", "--blame", "--format", "parquet"], "ask for one analysis"),
        (&["list", "scenarios", "--format", "parquet"], "a format of `show` and `compare`"),
        (&["diff", RECORDING, RECORDING, "--format=parquet"], "a format of `show` and `compare`"),
    ] {
        let ran = schedlab(arguments);
        assert!(
            ran.code == 2 && ran.stderr.contains(says) && ran.stdout.is_empty(),
            "{arguments:?}: {ran:?}"
        );
    }
}
