//! `cargo xtask torture-live`: many rounds of the tests that attack keepers and drivers at random moments: kills, stops, limits, journals that are
//! removed, cut or garbled, numbers that are used again, second instances, full disks.

use anyhow::{Context, Result, bail};
use std::process::{Command, ExitCode};

const ROUNDS: u64 = 2_000;
/// One round of so many is one of a whole driver, which takes ten times as long.
const DRIVERS: u64 = 8;

pub(crate) fn command(arguments: &[String]) -> Result<ExitCode> {
    let (mut rounds, mut seed) = (ROUNDS, 1);
    for pair in arguments.chunks(2) {
        let number = |text: &String| {
            text.parse().with_context(|| format!("{} {text}: give a whole number, such as {ROUNDS}", pair[0]))
        };
        match pair {
            [option, text] if option == "--rounds" => rounds = number(text)?,
            [option, text] if option == "--seed" => seed = number(text)?,
            _ => bail!("torture-live knows --rounds N and --seed N"),
        }
    }
    let of_drivers = rounds / DRIVERS;
    let tests = [
        (["-p", "schedlab-live", "--test", "it", "tortured_keepers_leave_nothing"], rounds - of_drivers),
        (["-p", "schedlab-cli", "--test", "it", "live::torture::tortured_drivers_leave_nothing"], of_drivers),
    ];
    for (test, rounds) in tests {
        let status = Command::new("cargo")
            .arg("test")
            .args(test)
            .args(["--", "--exact", "--nocapture"])
            .env("SCHEDLAB_ROUNDS", rounds.to_string())
            .env("SCHEDLAB_SEED", seed.to_string())
            .status()
            .context("cargo cannot be started")?;
        if !status.success() {
            return Ok(ExitCode::from(1));
        }
    }
    Ok(ExitCode::SUCCESS)
}
