//! `schedlab guardian`: not for people.

use crate::Done;
use schedlab_live::guardian::{GuardianOptions, run as guardian};

/// See [`GuardianOptions::arguments`].
#[derive(Debug, clap::Args)]
pub(crate) struct Guardian {
    /// What schedlab tells it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(args: &Guardian) -> anyhow::Result<Done> {
    guardian(&GuardianOptions::parse(&args.arguments)?)?;
    Ok(Done::Well)
}
