//! `cargo xtask torture-writes`: many rounds of the test that kills every command that writes, and fills its disk.

use anyhow::{Context, Result, bail};
use std::process::{Command, ExitCode};

const ROUNDS: u32 = 500;

pub(crate) fn command(arguments: &[String]) -> Result<ExitCode> {
    let rounds = match arguments {
        [] => ROUNDS,
        [option, number] if option == "--rounds" => {
            let wanted = || format!("--rounds {number}: give a whole number, such as {ROUNDS}");
            number.parse().with_context(wanted)?
        }
        _ => bail!("torture-writes knows --rounds N"),
    };
    let test = "what_was_there_stays_or_the_whole_new_file_is_there";
    let status = Command::new("cargo")
        .args(["test", "-p", "schedlab-cli", "--test", "writes", test, "--", "--exact", "--nocapture"])
        .env("SCHEDLAB_ROUNDS", rounds.to_string())
        .status()
        .context("cargo cannot be started")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
