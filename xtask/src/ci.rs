//! `cargo xtask ci`: everything that must hold before a change lands, in the order in which it
//! fails fastest.

use crate::{tidy, tree};
use anyhow::{Context, Result};
use std::process::{Command, ExitCode, Stdio};

/// One step: what it shows, and the cargo arguments.
struct Step {
    title: &'static str,
    args: &'static [&'static str],
}

const BEFORE: &[Step] = &[
    Step { title: "formatting", args: &["fmt", "--all", "--check"] },
    Step {
        title: "lints",
        args: &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"],
    },
];

const TESTS: &[Step] =
    &[Step { title: "tests", args: &["test", "--workspace", "--all-targets", "--no-fail-fast"] }];

const LICENCES: Step = Step {
    title: "licences, sources and doubles of dependencies",
    args: &["deny", "--offline", "check", "licenses", "bans", "sources"],
};
const ADVISORIES_DATABASE: Step =
    Step { title: "database of advisories", args: &["deny", "fetch", "db"] };
const ADVISORIES: Step =
    Step { title: "advisories", args: &["deny", "--offline", "check", "advisories"] };

/// Runs the steps; stops at the first that fails.
pub(crate) fn command(fast: bool) -> Result<ExitCode> {
    for step in BEFORE {
        if !cargo(step)? {
            return Ok(ExitCode::FAILURE);
        }
    }
    println!("== tidy");
    if tidy::command()? != ExitCode::SUCCESS {
        return Ok(ExitCode::FAILURE);
    }
    if dependencies()? != ExitCode::SUCCESS {
        return Ok(ExitCode::FAILURE);
    }
    for step in TESTS.iter().filter(|_| !fast) {
        if !cargo(step)? {
            return Ok(ExitCode::FAILURE);
        }
    }
    println!("== ci: all good");
    Ok(ExitCode::SUCCESS)
}

/// What is said where RustSec's database is not at hand; docs/security.md has it too.
const UNCHECKED: &str = "known holes are not checked: no package of crates.io carries RustSec's \
                         database (the package `rustsec` is a client for it)";

/// `cargo xtask deny`: what deny.toml allows, and known holes where RustSec's database can be
/// fetched. What cannot run here is said, and is no failure.
pub(crate) fn dependencies() -> Result<ExitCode> {
    if !installed("deny") {
        println!(
            "== {}, advisories: left out, cargo-deny is not installed (cargo install cargo-deny); \
             {UNCHECKED}",
            LICENCES.title
        );
        return Ok(ExitCode::SUCCESS);
    }
    if !cargo(&LICENCES)? {
        return Ok(ExitCode::FAILURE);
    }
    if !cargo(&ADVISORIES_DATABASE)? {
        println!(
            "== {}: left out, the database cannot be fetched from here; {UNCHECKED}",
            ADVISORIES.title
        );
        return Ok(ExitCode::SUCCESS);
    }
    Ok(if cargo(&ADVISORIES)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_about_security_says_what_is_not_checked() {
        let page = std::fs::read_to_string(tree::root().join("docs/security.md")).unwrap();
        let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(UNCHECKED), "{UNCHECKED}");
    }
}
