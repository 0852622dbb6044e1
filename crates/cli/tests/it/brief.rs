//! `compare --brief`: the answer in at most 15 lines.

use super::{Ran, root, schedlab};
use std::process::Command;

fn brief(arguments: &[&str], columns: &str) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    command
        .arg("compare")
        .args(arguments)
        .arg("--brief")
        .current_dir(root())
        .env("COLUMNS", columns);
    super::ran(&mut command)
}

fn fits(ran: &Ran, code: i32, columns: usize) {
    assert_eq!(ran.code, code, "{ran:?}");
    assert!(ran.stdout.lines().count() <= 15, "{}", ran.stdout);
    // A name that is wider than the terminal cannot be broken.
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= columns), "{}", ran.stdout);
}

#[test]
fn a_recording_with_what_really_came() {
    let idle = "recordings/redis-other-idle-closed8.slt";
    let check = format!("batch idle={idle}");
    let ran = brief(
        &[
            "recordings/redis-other-other-closed8.slt",
            "--seeds",
            "2",
            "--variant",
            "batch idle: sysbench policy=idle",
            "--check",
            &check,
        ],
        "100",
    );
    fits(&ran, 0, 100);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    let at =
        lines.iter().position(|line| line.trim_start().starts_with("batch idle ")).expect("a row");
    assert!(lines[at + 1].trim_start().starts_with("what was recorded"), "{}", ran.stdout);
    assert!(ran.stdout.contains("redis-server"), "{}", ran.stdout);
}

#[test]
fn sixteen_rows_are_folded() {
    let ran = brief(&["redis-batch", "--for", "1500ms"], "100");
    // Some expectations are about the whole length; a short run says that they failed.
    fits(&ran, 1, 100);
    assert!(ran.stdout.contains(" expectations failed"), "{}", ran.stdout);
    assert!(ran.stdout.contains(" of 16 rows; "), "{}", ran.stdout);
    assert!(ran.stdout.contains("linux-6.1, shared"), "the first row stays: {}", ran.stdout);
}

#[test]
fn a_change_that_is_open_is_said_to_be_so_first() {
    let ran =
        brief(&["recordings/pairs/guest/6.1-java.slt", "--variant", "n: batch nice=1"], "100");
    fits(&ran, 0, 100);
    let said = |ran: &Ran| ran.stdout.replace('\n', " ");
    let text = said(&ran);
    assert!(
        text.starts_with("No change can be told: ") && text.contains(" is within the error. "),
        "{text}"
    );
    // What a policy does not change is no change at all.
    let ran = brief(
        &["recordings/pairs/guest/6.1-apache.slt", "--variant", "n: batch policy=batch"],
        "100",
    );
    assert!(said(&ran).contains("; nothing changes."), "{ran:?}");
}

#[test]
fn what_it_leaves_out_is_not_asked_for_too() {
    for option in ["--json", "--explain", "--all-tasks"] {
        let ran = schedlab(&["compare", "two-hogs", "--brief", option]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(option), "{ran:?}");
    }
}
