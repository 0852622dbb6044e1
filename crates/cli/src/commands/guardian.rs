//! `schedlab guardian`, which schedlab starts itself: the process that gives threads back when
//! their owner dies.

use crate::exit::Exit;
use schedlab_live::guardian::{GuardianOptions, run as guardian};

/// See [`GuardianOptions::arguments`].
#[derive(Debug, clap::Args)]
pub(crate) struct GuardianArgs {
    /// The arguments from schedlab
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(args: &GuardianArgs) -> anyhow::Result<Exit> {
    let end = guardian(&GuardianOptions::parse(&args.arguments)?)?;
    // The owner that waits for it hears whether something is left.
    Ok(if end.complete() { Exit::Done } else { Exit::Untrusted })
}
