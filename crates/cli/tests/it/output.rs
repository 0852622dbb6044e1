//! What comes out, and how.

use super::{Folder, ran, root, schedlab};
use std::io::Read;
use std::process::{Command, Stdio};

#[test]
fn every_command_has_examples() {
    for command in [
        "record",
        "compare",
        "show",
        "list",
        "import",
        "doctor",
        "generate",
        "explain",
        "completions",
        "man",
    ] {
        let ran = schedlab(&[command, "--help"]);
        assert_eq!(ran.code, 0);
        assert!(ran.stdout.contains("Examples:\n  "), "{command}: {}", ran.stdout);
    }
    assert!(
        schedlab(&["--help"])
            .stdout
            .contains("Exit codes: 0 done, 1 an expectation failed, 2 bad input")
    );
}

#[test]
fn the_version_says_what_a_report_of_a_fault_needs() {
    assert_eq!(schedlab(&["-V"]).stdout, format!("schedlab {}\n", env!("CARGO_PKG_VERSION")));
    let long = schedlab(&["--version"]).stdout;
    let lines: Vec<&str> = long.lines().collect();
    let [name, commit, features, libc, kernels] = lines[..] else { panic!("{long}") };
    assert_eq!(name, format!("schedlab {}", env!("CARGO_PKG_VERSION")));
    assert!(commit.starts_with("commit: ") && commit.len() >= "commit: ".len() + 7, "{commit}");
    assert!(features.starts_with("features: ") && features.contains("machine, parquet"), "{long}");
    assert_eq!(libc, "C library: of the system", "a test is no package");
    assert!(kernels.contains(schedlab_host::privileges::RECORDING_NEEDS), "{kernels}");
}

#[test]
fn lists_are_complete() {
    let names = schedlab(&["list", "schedulers"]).stdout;
    let knobs = schedlab(&["list", "schedulers", "-v"]).stdout;
    for scheduler in schedlab_scheduler::registry::all() {
        assert!(names.contains(scheduler.name), "{}", scheduler.name);
        for knob in (scheduler.knobs)() {
            assert!(knobs.contains(knob.name), "{} of {}", knob.name, scheduler.name);
        }
    }
    let scenarios = schedlab(&["list", "scenarios"]).stdout;
    for file in super::files("scenarios", "toml") {
        let name = file.file_stem().expect("has one").to_string_lossy().into_owned();
        assert!(scenarios.contains(&name), "{name}");
    }
}

#[test]
fn lists_as_json() {
    for what in ["schedulers", "scenarios"] {
        let value: serde_json::Value =
            serde_json::from_str(&schedlab(&["list", what, "--json"]).stdout).unwrap();
        assert!(value[what].as_array().is_some_and(|list| list.len() > 2), "{what}");
    }
}

#[test]
fn json_has_the_schema_and_the_numbers_of_the_table() {
    let folder = Folder::new("json");
    let text = "schedulers = [\"linux-6.18\"]\nduration = \"1s\"\n[machine]\ncpus = 1\n[[task]]\n\
                name = \"yes\"\n\
                program = [\"run 3ms\", \"sleep 6ms\"]\n";
    let path = folder.write("yes.toml", text);
    let study = schedlab(&["compare", &path, "--json"]).stdout;
    let study: schedlab_study::result::Study = serde_json::from_str(&study).unwrap();
    assert_eq!(study.schema, schedlab_study::result::SCHEMA);
    let yes =
        study.rows[0].find(schedlab_study::measurements::Kind::Class, "yes").expect("it runs");
    let share = yes.cell("share".parse().unwrap()).unwrap().value;
    assert!((share.median - 1.0 / 3.0).abs() < 0.002 && share.low == share.high, "{share:?}");
    let table = schedlab(&["compare", &path]).stdout;
    assert!(table.contains(&format!("{:.1}%", share.median * 100.0)), "{share:?} in {table}");
}

#[test]
fn no_colours_and_no_progress_in_a_pipe() {
    let ran = schedlab(&["compare", "fifo-rr"]);
    assert!(!ran.stdout.contains('\u{1b}') && ran.stderr.is_empty(), "{ran:?}");
}

#[test]
fn a_narrow_terminal_gets_narrow_tables() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    command.args(["compare", "fifo-rr"]).env("COLUMNS", "70").current_dir(root());
    let ran = ran(&mut command);
    let wide: Vec<&str> = ran.stdout.lines().filter(|line| line.chars().count() > 70).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    assert!(ran.stdout.contains("no room for"), "{}", ran.stdout);
}

/// Tables at any width: no line is wider, and what a table is about stays.
#[test]
fn no_line_is_wider_than_the_terminal() {
    let recording = "recordings/redis-other-other-closed8.slt";
    for (arguments, stays) in [
        (&["show", recording][..], "latency p99"),
        (&["show", recording, "--latency"], "wakeup p99"),
        (&["show", recording, "--slices"], "slice max"),
        (
            &["compare", recording, "--seeds", "1", "--variant", "idle: sysbench policy=idle"],
            "CPU share",
        ),
        (&["diff", recording, recording], ""),
        (&["doctor"], ""),
        (&["explain"], ""),
    ] {
        for width in [60, 80, 100] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
            command.args(arguments).env("COLUMNS", width.to_string()).current_dir(root());
            let ran = ran(&mut command);
            // A command that is to be copied, a path or a setting of the kernel is one word.
            let can_break = |line: &&str| {
                line.trim().contains("  ")
                    || line.split_whitespace().all(|word| word.chars().count() < 30)
            };
            let wide =
                ran.stdout.lines().filter(|line| line.chars().count() > width).find(can_break);
            let copied = wide.is_some_and(|line| {
                line.contains("lift: ") || line.contains(" = ") || line.contains("$(pgrep ")
            });
            assert!(wide.is_none() || copied, "{arguments:?} at {width}: {wide:?}");
            assert!(
                ran.stdout.contains(stays),
                "{arguments:?} at {width} has no {stays}: {}",
                ran.stdout
            );
        }
    }
}

/// Two columns of one name cannot be told apart.
#[test]
fn no_two_columns_have_one_name() {
    let recording = "recordings/redis-other-other-closed8.slt";
    for entry in schedlab_trace::analysis::show::ALL {
        let option = if entry.takes.is_some() {
            format!("--{}=3", entry.name)
        } else {
            format!("--{}", entry.name)
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
        command.args(["show", recording, &option]).env("COLUMNS", "400").current_dir(root());
        let ran = ran(&mut command);
        for line in ran
            .stdout
            .lines()
            .filter(|line| line.starts_with("  task ") || line.starts_with("  CPU "))
        {
            let heads: Vec<&str> =
                line.split("  ").map(str::trim).filter(|head| !head.is_empty()).collect();
            let mut once = heads.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), heads.len(), "{}: {heads:?}", entry.name);
        }
    }
}

#[test]
fn a_scan_is_a_table_and_a_curve() {
    let ran = schedlab(&[
        "compare",
        "recordings/two-yes.slt",
        "--seeds",
        "1",
        "--scan",
        "yes nice=0..12",
    ]);
    assert!([0, 3].contains(&ran.code), "{ran:?}");
    assert!(ran.stdout.contains("over yes nice") && ran.stdout.contains('█'), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("as recorded (+13 equal)"),
        "both hogs of a session have the same nice value: {}",
        ran.stdout
    );
    let hog = ["compare", "two-hogs", "--for", "1500ms", "--scan", "yes-2 nice=1..12"];
    let hog = schedlab(&[&hog[..], &["--scheduler", "linux-6.18"]].concat());
    assert!(hog.stdout.contains("9 of ") && hog.stdout.contains(" rows are shown"), "{hog:?}");
    // Hogs that never sleep have no latency: the curve is of what the verdict is about.
    let hogs = schedlab(&[
        "compare",
        "two-hogs",
        "--scheduler",
        "linux-6.18",
        "--scan",
        "yes-2 nice=0,5,10",
    ]);
    assert!(hogs.stdout.contains("yes-1, CPU share over yes-2 nice"), "{}", hogs.stdout);
    let all = schedlab(&[
        "compare",
        "recordings/two-yes.slt",
        "--seeds",
        "1",
        "--scan",
        "yes nice=0..12",
        "--all",
    ]);
    assert!(
        !all.stdout.contains(" equal)") && all.stdout.contains("\n  yes nice=12"),
        "{}",
        all.stdout
    );
}

/// Kernels that sources name and that have no preset of their own.
#[test]
fn a_kernel_is_taken_for_the_preset_that_models_it() {
    for (kernel, preset) in [("linux-6.2", "linux-6.1"), ("linux-4.14", "linux-4.9")] {
        let ran = schedlab(&["compare", "two-hogs", "--for", "1500ms", "--scheduler", kernel]);
        assert!([0, 1].contains(&ran.code), "{ran:?}");
        assert!(
            ran.stdout.contains(&format!("{kernel} is simulated as {preset}")),
            "{}",
            ran.stdout
        );
    }
}

#[test]
fn words_are_explained() {
    let ran = schedlab(&["explain", "cannot", "tell"]);
    assert!(ran.code == 0 && ran.stdout.contains("smaller than its error"), "{ran:?}");
    let ran = schedlab(&["explain", "presure"]);
    assert!(ran.code == 2 && ran.stderr.contains("did you mean `pressure`?"), "{ran:?}");
}

#[test]
fn completions_and_manual_pages_are_made() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = schedlab(&["completions", shell]);
        assert!(
            ran.code == 0 && ran.stdout.contains("compare") && ran.stdout.contains("fail-if"),
            "{shell}"
        );
    }
    let folder = Folder::new("man");
    let place = folder.0.join("man1").display().to_string();
    assert_eq!(schedlab(&["man", "--all", &place]).code, 0);
    let page = std::fs::read_to_string(folder.0.join("man1/schedlab-compare.1")).unwrap();
    assert!(
        page.starts_with(".") && page.contains(".SH OPTIONS") && page.contains("fail"),
        "{page}"
    );
    assert!(schedlab(&["man", "compar"]).stderr.contains("did you mean `compare`?"));
}

#[test]
fn colours_are_what_was_asked_for() {
    let coloured = |option: &str| {
        schedlab(&["compare", "fifo-rr", "--color", option]).stdout.contains('\u{1b}')
    };
    assert!(coloured("always") && !coloured("never") && !coloured("auto"));
}

/// `-` is standard output, and what is said about it goes to standard error.
#[test]
fn a_dash_is_standard_output() {
    let ran = schedlab(&["export", "recordings/two-yes.slt", "--ftrace", "-"]);
    assert!(
        ran.stdout.contains("sched_switch") && ran.stderr.contains("switches"),
        "{}",
        ran.stderr
    );
    let page =
        schedlab(&["compare", "two-hogs", "--for", "1500ms", "--report", "-", "-o", "/dev/null"]);
    assert!(page.stdout.starts_with("<!doctype html>"), "{page:?}");
    let both = schedlab(&["compare", "two-hogs", "--report", "-"]);
    assert!(both.code == 2 && both.stderr.contains("standard output"), "{both:?}");
}

/// `schedlab … | head -1` is no error.
#[test]
fn a_broken_pipe_is_no_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    command
        .args(["list", "schedulers", "-v"])
        .current_dir(root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    // Closing the pipe before anything is read.
    drop(child.stdout.take());
    let mut errors = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut errors).expect("UTF-8");
    let status = child.wait().expect("ends");
    assert!(status.success() && errors.is_empty(), "{status} {errors}");
}

/// An expectation that fails: exit code 1, and the line that failed.
#[test]
fn a_failed_expectation_is_named() {
    let folder = Folder::new("expect");
    let text = std::fs::read_to_string(root().join("scenarios/two-hogs.toml")).expect("shipped");
    let path = folder.write("wrong.toml", text.replace("0.5 ± 0.005", "0.7 ± 0.005"));
    let ran = schedlab(&["compare", &path]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.stdout.contains("share of yes-* is 0.7 ± 0.005") && ran.stdout.contains("gave 0.5"),
        "{ran:?}"
    );
}

#[test]
fn what_is_shown_as_one_number_is_no_range() {
    let folder = Folder::new("range");
    // Beside a task of 1 us in 50 ms the hog has a little less than all, and not the same under
    // both.
    let path = folder.write(
        "equal.toml",
        "schedulers = [\"linux-6.12\", \"rr\"]\nduration = \"2s\"\nheadline = [\"h share\"]\n\
         [machine]\ncpus = 1\n[[task]]\n\
         name = \"h\"\nprogram = \"hog\"\n[[task]]\nname = \"s\"\n\
         program = [\"run 1us\", \"sleep 50.3ms\"]\n",
    );
    let ran = schedlab(&["compare", &path]);
    let first = ran.stdout.lines().next().unwrap_or_default();
    assert_eq!(
        (ran.code, first),
        (0, "h CPU share is 100.0% in every row that has it."),
        "{ran:?}"
    );
}

#[test]
fn the_seed_changes_what_is_drawn() {
    let folder = Folder::new("seed");
    let path = folder.write(
        "drawn.toml",
        "schedulers = [\"linux-6.18\"]\nduration = \"1s\"\n[machine]\ncpus = 1\n[[task]]\n\
         name = \"t\"\n\
         program = [\"run exp 1ms\", \"sleep exp 1ms\"]\n",
    );
    let run = |seed: &str| schedlab(&["compare", &path, "--json", "--seed", seed]).stdout;
    assert_eq!(run("1"), run("1"));
    assert_ne!(run("1"), run("2"));
}

#[test]
fn explain_names_every_cost_in_use() {
    let ran = schedlab(&[
        "compare",
        "redis-batch",
        "--explain",
        "--scheduler",
        "linux-6.18",
        "--for",
        "3s",
    ]);
    assert!(ran.stdout.contains("How these numbers come about"), "{ran:?}");
    let study =
        schedlab(&["compare", "redis-batch", "--json", "--scheduler", "linux-6.18", "--for", "3s"]);
    let study: schedlab_study::result::Study = serde_json::from_str(&study.stdout).unwrap();
    for (name, _) in &study.costs {
        assert!(ran.stdout.contains(name), "{name}");
    }
}

#[test]
fn doctor_works_for_every_user() {
    let ran = schedlab(&["doctor"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let value: serde_json::Value =
        serde_json::from_str(&schedlab(&["doctor", "--json"]).stdout).unwrap();
    assert!(!value.is_null());
}
