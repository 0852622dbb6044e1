//! `schedlab generate`

use crate::exit::Exit;
use crate::output;
use schedlab_study::generate;
use std::path::PathBuf;

/// `schedlab generate`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab generate --seed 7
  schedlab generate --seed 7 -o random.toml && schedlab compare random.toml
  schedlab generate --seed 7 --scheduler xen-credit2   domains with own kernels, caps, weights

The same number gives the same scenario: machine, tasks, groups, policies, preemption model, \
agents, scheduler with \
some of its knobs turned.")]
pub(crate) struct GenerateArgs {
    /// Generate the scenario of this number
    #[arg(long, value_name = "N")]
    pub(crate) seed: u64,
    /// Use this scheduler instead of a random one
    #[arg(short, long, value_name = "SCHEDULER")]
    pub(crate) scheduler: Option<String>,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

pub(crate) fn run(args: &GenerateArgs) -> anyhow::Result<Exit> {
    if let Some(path) = &args.output {
        output::check(path)?;
    }
    let draft = generate::draft(args.seed, args.scheduler.as_deref())?;
    output::write(args.output.as_deref(), &draft.to_toml())?;
    Ok(Exit::Done)
}
