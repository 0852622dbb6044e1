//! `cargo xtask ci`: everything that must hold before a change lands, in the order in which it fails fastest.

use crate::{tidy, tree};
use anyhow::{Context, Result, bail};
use std::process::{Command, ExitCode, Stdio};

/// One step: what it shows, and the cargo arguments.
struct Step {
    title: &'static str,
    args: &'static [&'static str],
}

const BEFORE: &[Step] = &[
    Step { title: "formatting", args: &["fmt", "--all", "--check"] },
    Step { title: "lints", args: &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"] },
];

const TESTS: &[Step] = &[
    Step { title: "tests", args: &["test", "--workspace", "--all-targets", "--no-fail-fast"] },
    Step { title: "examples in the documentation", args: &["test", "--workspace", "--doc"] },
];

const DENY: Step = Step { title: "licences and advisories", args: &["deny", "--offline", "check"] };

/// Runs the steps; stops at the first that fails.
pub(crate) fn command(args: &[String]) -> Result<ExitCode> {
    let fast = match args {
        [] => false,
        [one] if one == "--fast" => true,
        _ => bail!("ci takes only --fast"),
    };
    for step in BEFORE {
        if !cargo(step)? {
            return Ok(ExitCode::FAILURE);
        }
    }
    println!("== tidy");
    if tidy::command(&[])? != ExitCode::SUCCESS {
        return Ok(ExitCode::FAILURE);
    }
    if installed("deny") {
        if !cargo(&DENY)? {
            return Ok(ExitCode::FAILURE);
        }
    } else {
        println!("== {}: left out, cargo-deny is not installed (cargo install cargo-deny)", DENY.title);
    }
    for step in TESTS.iter().filter(|_| !fast) {
        if !cargo(step)? {
            return Ok(ExitCode::FAILURE);
        }
    }
    println!("== ci: all good");
    Ok(ExitCode::SUCCESS)
}

fn cargo(step: &Step) -> Result<bool> {
    println!("== {}: cargo {}", step.title, step.args.join(" "));
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(program)
        .args(step.args)
        .current_dir(tree::root())
        .stdin(Stdio::null())
        .status()
        .context("cargo does not start")?;
    Ok(status.success())
}

fn installed(subcommand: &str) -> bool {
    Command::new("cargo")
        .args([subcommand, "--version"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
