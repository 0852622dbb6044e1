//! What comes out, and how.

use super::{Folder, ran, root, schedlab};
use std::io::Read;
use std::process::{Command, Stdio};

#[test]
fn every_command_has_examples() {
    for command in ["record", "compare", "show", "list", "import", "doctor", "generate"] {
        let ran = schedlab(&[command, "--help"]);
        assert_eq!(ran.code, 0);
        assert!(ran.stdout.contains("Examples:\n  "), "{command}: {}", ran.stdout);
    }
    assert!(
        schedlab(&["--help"]).stdout.contains("Exit codes: 0 done, 1 an expectation failed, 2 bad input")
    );
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
        assert!(value.as_array().is_some_and(|list| list.len() > 2), "{what}");
    }
}

#[test]
fn json_has_the_schema_and_the_numbers_of_the_table() {
    let folder = Folder::new("json");
    let text = "schedulers = [\"linux-6.18\"]\nduration = \"1s\"\n[machine]\ncpus = 1\n[[task]]\nname = \"yes\"\n\
                program = [\"run 3ms\", \"sleep 6ms\"]\n";
    let path = folder.write("yes.toml", text);
    let study = schedlab(&["compare", &path, "--json"]).stdout;
    let study: schedlab_study::result::Study = serde_json::from_str(&study).unwrap();
    assert_eq!(study.schema, schedlab_study::result::SCHEMA);
    let yes = study.rows[0].find(schedlab_study::measurements::Kind::Class, "yes").expect("it runs");
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
fn the_seed_changes_what_is_drawn() {
    let folder = Folder::new("seed");
    let path = folder.write(
        "drawn.toml",
        "schedulers = [\"linux-6.18\"]\nduration = \"1s\"\n[machine]\ncpus = 1\n[[task]]\nname = \"t\"\n\
         program = [\"run exp 1ms\", \"sleep exp 1ms\"]\n",
    );
    let run = |seed: &str| schedlab(&["compare", &path, "--json", "--seed", seed]).stdout;
    assert_eq!(run("1"), run("1"));
    assert_ne!(run("1"), run("2"));
}

#[test]
fn explain_names_every_cost_in_use() {
    let ran = schedlab(&["compare", "redis-batch", "--explain", "--scheduler", "linux-6.18", "--for", "3s"]);
    assert!(ran.stdout.contains("How these numbers come about"), "{ran:?}");
    let study = schedlab(&["compare", "redis-batch", "--json", "--scheduler", "linux-6.18", "--for", "3s"]);
    let study: schedlab_study::result::Study = serde_json::from_str(&study.stdout).unwrap();
    for (name, _) in &study.costs {
        assert!(ran.stdout.contains(name), "{name}");
    }
}

#[test]
fn doctor_works_for_every_user() {
    let ran = schedlab(&["doctor"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let value: serde_json::Value = serde_json::from_str(&schedlab(&["doctor", "--json"]).stdout).unwrap();
    assert!(!value.is_null());
}
