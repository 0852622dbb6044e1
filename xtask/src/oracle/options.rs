//! The command line of `cargo xtask oracle`.

use anyhow::{Context, Result};
use schedlab_model::Ns;
use std::path::PathBuf;

/// Compares a scheduler with what a real kernel did (oracles/linux, README there), or with decision
/// logs of the real Xen schedulers
///
/// Of Xen (oracles/xen) every decision must be identical; the options are Linux's. With --replay,
/// `uncalled` counts reschedules that the model would have turned into a switch and the kernel did
/// not.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct OracleArgs {
    /// What was recorded
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Feed the recorded wakeups and switches, compare every choice, go on with the recorded one
    #[arg(long)]
    pub(crate) replay: bool,
    #[command(flatten)]
    pub(crate) tolerance: Tolerance,
    /// Part of the scenarios that must be inside for every task [default: 85%]; with --replay, of
    /// the choices that must be equal [default: 97%]
    #[arg(long, value_name = "PART", value_parser = part)]
    pub(crate) pass: Option<f64>,
    /// Part of the scenarios whose shares must be inside
    #[arg(long, value_name = "PART", default_value = "95%", value_parser = part)]
    pub(crate) pass_shares: f64,
    /// Judge the median of so many runs whose jobs cost up to 3us more or less; 1: a single run, no
    /// jitter
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) jitter: u32,
    /// Another scheduler than that of the file's kernel, such as linux-6.12:base_slice_ns=3ms
    #[arg(long, value_name = "SCHEDULER")]
    pub(crate) scheduler: Option<String>,
    /// This scenario alone (may be given several times)
    #[arg(long, value_name = "ID")]
    pub(crate) only: Vec<String>,
    /// Print a line for each task, or for each choice that differs
    #[arg(long)]
    pub(crate) verbose: bool,
    /// Print the figures as one JSON object a scenario
    #[arg(long)]
    pub(crate) json: bool,
}

/// How much may differ.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    /// Largest difference of a task's share of the CPU; r20261212 is chaotic: at least 0.012
    #[arg(long, value_name = "PART", default_value = "0.005", value_parser = part)]
    pub(crate) share: f64,
    /// Largest relative difference of a task's mean wait, judged for tasks with 30 wakeups or more
    #[arg(long, value_name = "PART", default_value = "15%", value_parser = part)]
    pub(crate) wait: f64,
    /// And so much more
    #[arg(long = "wait-floor", value_name = "TIME", default_value = "50us", value_parser = microseconds)]
    pub(crate) wait_floor_us: f64,
}

impl Default for OracleArgs {
    fn default() -> OracleArgs {
        OracleArgs {
            files: Vec::new(),
            replay: false,
            tolerance: Tolerance { share: 0.005, wait: 0.15, wait_floor_us: 50.0 },
            pass: None,
            pass_shares: 0.95,
            jitter: 1,
            scheduler: None,
            only: Vec::new(),
            verbose: false,
            json: false,
        }
    }
}

fn microseconds(text: &str) -> Result<f64> {
    let time: Ns = text.parse()?;
    Ok(time.0 as f64 / 1e3)
}

/// `15%` or `0.15`: from 0 to 1.
fn part(text: &str) -> Result<f64> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let value = number.trim().parse::<f64>().ok().map(|value| value / scale);
    let value = value.filter(|value| (0.0..=1.0).contains(value));
    value.context("must be from 0 to 1, or from 0% to 100%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_issue_is_understood() {
        let options: OracleArgs =
            crate::parsed("f --share 0.005 --wait 15% --wait-floor=50us --pass 85%").unwrap();
        let tolerance = options.tolerance;
        assert_eq!((tolerance.share, tolerance.wait, tolerance.wait_floor_us), (0.005, 0.15, 50.0));
        assert_eq!(options.pass, Some(0.85));
        let usual: OracleArgs = crate::parsed("f").unwrap();
        let files = usual.files.clone();
        assert_eq!(
            format!("{usual:?}"),
            format!("{:?}", OracleArgs { files, ..OracleArgs::default() })
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, says) in [
            ("", "FILE"),
            ("f --pass", "a value is required"),
            ("f --pass 850%", "from 0% to 100%"),
            ("f --wait-floor 50", "unit"),
            ("f --jitter 0", "1..=1000"),
            ("f --jiter 1", "'--jiter'"),
        ] {
            let error = crate::parsed::<OracleArgs>(line).unwrap_err().to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
