//! `schedlab attach`: running processes under a schedlab scheduler.

use super::run::ManageArgs;
use crate::exit::Exit;

/// `schedlab attach`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab attach --scheduler layers --pid 957,1201 --task sysbench=batch --cpus 0      until \
  Ctrl-C
  schedlab attach --scheduler fifo-centralized --pid 957 --for 10s --json

All threads of the processes are managed, and those that they create. `schedlab detach` in \
another shell ends it, too.")]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    manage: ManageArgs,
    /// Manage the threads of these processes
    #[arg(long = "pid", value_name = "PID", required = true, value_delimiter = ',')]
    pids: Vec<u32>,
}

pub(crate) fn run(args: &AttachArgs) -> anyhow::Result<Exit> {
    let options = args.manage.options()?;
    let report = args.manage.manage(&options, &args.pids, || {}, args.manage.done()?)?;
    args.manage.finish(&report)
}
