//! `schedlab detach`: gives back what schedlab manages.

use super::restore::finish;
use crate::exit::Exit;
use crate::format::FormatArgs;
use schedlab_live::RunDir;
use schedlab_live::detach::{Owners, detach, detach_process};

/// `schedlab detach`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab detach                  everything that schedlab manages is as before
  schedlab detach --pid 957        this process and its children; the rest stays managed

An owner that does not give back within two seconds is killed, and everything is put back from \
its journal.")]
pub(crate) struct DetachArgs {
    /// Give back this process with its children only
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    #[command(flatten)]
    format: FormatArgs,
}

pub(crate) fn run(args: &DetachArgs) -> anyhow::Result<Exit> {
    let run_dir = RunDir::standard()?;
    match args.pid {
        Some(process) => finish(&[detach_process(&run_dir, process)?], &args.format),
        None => finish(&detach(&run_dir, Owners::All)?, &args.format),
    }
}
