//! The command line of `cargo xtask oracle`.

use anyhow::{Context, Result, bail, ensure};
use schedlab_model::Ns;
use std::path::PathBuf;

/// Text of `cargo xtask oracle --help`.
pub(crate) const HELP: &str = "\
Compares a scheduler with what a real kernel did (files of oracles/linux/, README there), or with the decision
logs of the real Xen schedulers (oracles/xen/: every decision must be identical; the options below are Linux's).

Usage: cargo xtask oracle FILE... [options]

  --replay           feed the recorded wakeups and switches, compare every choice, go on with the recorded one;
                     `uncalled`: reschedules that the model would have turned into a switch, the kernel did not
  --share X          largest difference of a task's share of the CPU (0.005); r20261212 is chaotic: at least 0.012
  --wait P%          largest relative difference of a task's mean wait (15%), beside
  --wait-floor T     this much (50us); judged for tasks with 30 wakeups or more
  --pass P%          part of the scenarios that must be inside for every task (85%); with --replay: part of the
                     choices that must be equal (97%)
  --pass-shares P%   part of the scenarios whose shares must be inside (95%)
  --jitter N         judge the median of N runs whose jobs cost up to 3us more or less (1: a single run, no jitter)
  --scheduler S      another scheduler than that of the file's kernel, such as linux-6.12:base_slice_ns=3ms
  --only ID          this scenario alone (may be given more than once)
  --verbose          a line for each task, or for each choice that differs
  --json             the figures as one JSON object a scenario
";

/// What was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) replay: bool,
    pub(crate) tolerance: Tolerance,
    /// Required part of scenarios (or choices), 0 … 1; `None` = the default of the mode.
    pub(crate) pass: Option<f64>,
    /// Required part of scenarios with the right shares, 0 … 1.
    pub(crate) pass_shares: f64,
    pub(crate) jitter: u32,
    pub(crate) scheduler: Option<String>,
    pub(crate) only: Vec<String>,
    pub(crate) verbose: bool,
    pub(crate) json: bool,
}

/// How much may differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    /// Share of the CPU, absolute.
    pub(crate) share: f64,
    /// Mean wait, relative.
    pub(crate) wait: f64,
    /// Mean wait, absolute, us.
    pub(crate) wait_floor_us: f64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
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

/// Reads the arguments after `oracle`; `None`: help was asked for.
pub(crate) fn parse(args: &[String]) -> Result<Option<Options>> {
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let (name, inline) = match arg.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (arg.as_str(), None),
        };
        let mut value = || match inline.clone().or_else(|| args.next().cloned()) {
            Some(value) => Ok(value),
            None => bail!("option {name} needs a value\n\n{HELP}"),
        };
        match name {
            "-h" | "--help" => return Ok(None),
            "--replay" => options.replay = true,
            "--verbose" => options.verbose = true,
            "--json" => options.json = true,
            "--share" => options.tolerance.share = part(name, &value()?)?,
            "--wait" => options.tolerance.wait = part(name, &value()?)?,
            "--wait-floor" => {
                let text = value()?;
                let floor: Ns = text.parse().with_context(|| format!("option {name}"))?;
                options.tolerance.wait_floor_us = floor.0 as f64 / 1e3;
            }
            "--pass" => options.pass = Some(part(name, &value()?)?),
            "--pass-shares" => options.pass_shares = part(name, &value()?)?,
            "--jitter" => {
                let text = value()?;
                let runs = text.parse().ok().filter(|n| (1..=1000).contains(n));
                options.jitter = runs.with_context(|| format!("--jitter {text}: must be from 1 to 1000"))?;
            }
            "--scheduler" => options.scheduler = Some(value()?),
            "--only" => options.only.push(value()?),
            _ if name.starts_with('-') => bail!("unknown option {arg}\n\n{HELP}"),
            _ => options.files.push(PathBuf::from(arg)),
        }
    }
    ensure!(!options.files.is_empty(), "no file given\n\n{HELP}");
    Ok(Some(options))
}

/// `15%` or `0.15`: from 0 to 1.
fn part(name: &str, text: &str) -> Result<f64> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let value = number.trim().parse::<f64>().ok().map(|value| value / scale);
    let value = value.filter(|value| (0.0..=1.0).contains(value));
    value.with_context(|| format!("option {name}: `{text}` must be from 0 to 1, or from 0% to 100%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Option<Options>> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_line_of_the_issue_is_understood() {
        let options = read("f --share 0.005 --wait 15% --wait-floor=50us --pass 85%").unwrap().unwrap();
        let tolerance = options.tolerance;
        assert_eq!((tolerance.share, tolerance.wait, tolerance.wait_floor_us), (0.005, 0.15, 50.0));
        assert_eq!(options.pass, Some(0.85));
        assert!(read("--help").unwrap().is_none());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, says) in [
            ("", "no file"),
            ("f --pass", "needs a value"),
            ("f --pass 850%", "from 0% to 100%"),
            ("f --wait-floor 50", "unit"),
            ("f --jitter 0", "from 1 to 1000"),
            ("f --jiter 1", "unknown option --jiter"),
        ] {
            let error = format!("{:#}", read(line).unwrap_err());
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
