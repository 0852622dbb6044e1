//! `schedlab verify`: plays the log of a live run again.

use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::output;
use crate::progress::Progress;
use anyhow::Context;
use schedlab_live::verify::{SCHEMA, Verdict, VerifyOutput, verify};
use std::path::{Path, PathBuf};

/// The largest log that is read: some 20 million steps.
const LOG_MAX: u64 = 1 << 30;

/// `schedlab verify`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab verify run.calls        plays the log of a live run again: each decision must be the \
  same")]
pub(crate) struct VerifyArgs {
    /// Play this log, which `run --log` wrote
    file: PathBuf,
    #[command(flatten)]
    format: FormatArgs,
}

pub(crate) fn run(args: &VerifyArgs) -> anyhow::Result<Exit> {
    let log = schedlab_files::read_to_string(&args.file, LOG_MAX)
        .with_context(|| args.file.display().to_string())?;
    let progress = Progress::with_verb(&format!("checking {}", args.file.display()));
    let verdict = verify(&log).with_context(|| args.file.display().to_string())?;
    drop(progress);
    let value = || Ok(serde_json::to_value(VerifyOutput { schema: SCHEMA, verdict: &verdict })?);
    output::write(None, &args.format.print(None, value, |_| as_text(&args.file, &verdict))?)?;
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
        Some(first) => {
            format!("{head}: the first that differs is in line {}: {}\n", first.line, first.what)
        }
    }
}
