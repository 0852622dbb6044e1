//! `cargo xtask torture-writes`: many rounds of the tests that kill every command that writes, fill
//! its disk, and let it write as root where another user prepared links, pipes and modes.

use anyhow::{Context, Result};
use std::process::{Command, ExitCode};

const TESTS: [&str; 2] = [
    "writes::what_was_there_stays_or_the_whole_new_file_is_there",
    "writes::hostile::a_hostile_file_system_gets_nothing_of_root",
];

pub(crate) fn command(rounds: u32) -> Result<ExitCode> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "-p", "schedlab-cli", "--test", "it", "--"]).args(TESTS);
    let status = cargo
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .env("SCHEDLAB_ROUNDS", rounds.to_string())
        .status()
        .context("cargo cannot be started")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
