//! `schedlab verify`: plays the log of a live run again.

use crate::exit::Exit;
use crate::output;
use anyhow::Context;
use schedlab_live::verify::{Verdict, verify};
use std::path::{Path, PathBuf};

/// `schedlab verify`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab verify run.calls        plays the log of a live run again: each decision must be the same")]
pub(crate) struct VerifyArgs {
    /// Play this log, which `run --log` wrote
    file: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &VerifyArgs) -> anyhow::Result<Exit> {
    let log = std::fs::read_to_string(&args.file).with_context(|| args.file.display().to_string())?;
    let verdict = verify(&log).with_context(|| args.file.display().to_string())?;
    let text = match args.json {
        true => serde_json::to_string_pretty(&verdict)? + "\n",
        false => as_text(&args.file, &verdict),
    };
    output::write(None, &text)?;
    Ok(if verdict.differs.is_none() { Exit::Done } else { Exit::ExpectationFailed })
}

fn as_text(file: &Path, verdict: &Verdict) -> String {
    let head = format!(
        "{}: {} steps, {} decisions of {}",
        file.display(),
        verdict.steps,
        verdict.decisions,
        verdict.scheduler
    );
    match &verdict.differs {
        None => format!("{head}: all the same\n"),
        Some(first) => format!("{head}: the first that differs is in line {}: {}\n", first.line, first.what),
    }
}
