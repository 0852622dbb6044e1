//! `schedlab confirm`

use super::compare::request::{Replay, RequestArgs, Serve};
use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::options::{long_enough, stop_signal};
use crate::progress::{Lines, Progress};
use crate::render;
use crate::{origin, output};
use anyhow::{Context, bail};
use schedlab_lab::confirm::{ConfirmPlan, LiveDriver, confirm};
use schedlab_live::RunDir;
use schedlab_model::text::shown;
use schedlab_model::{CpuSet, Ns};
use schedlab_scheduler::{SchedulerList, SchedulerSpec, sched_ext};
use schedlab_trace::Recording;
use std::path::{Path, PathBuf};

/// By which means the command runs in the order of a schedlab scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Drivers {
    /// By SCHED_FIFO priorities, above every fair thread: on any kernel
    Elevation,
    /// In the kernel's class for schedulers, below every fair thread: Linux 6.12 and later, built
    /// with sched_ext
    SchedExt,
    /// In rounds of the one and rounds of the other
    Both,
}

impl Drivers {
    fn all(self) -> anyhow::Result<Vec<LiveDriver>> {
        // Before a command is started.
        #[cfg(not(feature = "sched-ext"))]
        if self != Drivers::Elevation {
            return Err(super::run::not_built());
        }
        Ok(match self {
            Drivers::Elevation => vec![LiveDriver::Elevation],
            Drivers::SchedExt => vec![LiveDriver::SchedExt],
            Drivers::Both => vec![LiveDriver::Elevation, LiveDriver::SchedExt],
        })
    }
}

/// `schedlab confirm`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab confirm redis.slt --variant 'idle: sysbench policy=idle' --cpus 0 -- ./both.sh
  schedlab confirm redis.slt --serve redis-server --variant 'sysbench policy=idle' -- ./both.sh
  schedlab confirm --scheduler rr,layers --rounds 3 -- sh -c 'yes & yes & wait'
  schedlab confirm --driver both --scheduler rr:slice_ns=5ms,layers -- ./both.sh
  schedlab confirm redis.slt --variant 'nice: sysbench nice=10' --json -- ./both.sh > \
  confirmed.json
  schedlab confirm --replay messages --variant 'idle: sysbench policy=idle' -- ./both.sh

Each round starts the command anew: as the host has it, with each variant's settings made on its \
threads, and under each \
scheduler by `schedlab run`, with --driver both once by each driver. Every round is recorded; \
predictions are those of `schedlab compare` from FILE, or \
from the first round; with --replay messages each round records them. Variants may set policy, nice, slice and cpus of tasks. Needs root. Give a \
command that works for longer than \
a round, which ends it.")]
pub(crate) struct ConfirmArgs {
    /// Predict from this recording (.slt) [default: the first round under the host's default]
    file: Option<PathBuf>,
    /// Run the command under these schedulers, such as rr:slice_ns=5ms,layers (may be given several
    /// times)
    #[arg(short, long = "scheduler", value_name = "SCHEDULERS")]
    schedulers: Vec<SchedulerList>,
    /// Enforce the schedulers' decisions with this driver: elevation, sched-ext or both
    /// (docs/sched-ext.md)
    #[arg(long, value_enum, value_name = "DRIVER", default_value = "elevation")]
    driver: Drivers,
    /// Try this variant: 'NAME: TASK policy=idle' (may be given several times)
    #[arg(long = "variant", value_name = "VARIANT")]
    variants: Vec<String>,
    /// Run each setting this many times
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Record each round for this long
    #[arg(long = "for", value_name = "TIME", default_value = "2s")]
    round: Ns,
    /// Confine the command to these CPUs in every round; one with --scheduler
    #[arg(long, value_name = "CPUS", default_value = "0")]
    cpus: CpuSet,
    /// Represent this kernel by this scheduler in the simulator [default: by the kernel's version]
    #[arg(long, value_name = "SCHEDULER")]
    recorded_under: Option<SchedulerSpec>,
    #[command(flatten)]
    serve: RequestArgs<Serve>,
    #[command(flatten)]
    replay: RequestArgs<Replay>,
    #[command(flatten)]
    format: FormatArgs,
    /// Run this command
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(args: &ConfirmArgs) -> anyhow::Result<Exit> {
    if args.command.is_empty() {
        bail!("{}", without_command(args.file.as_deref())?);
    }
    long_enough("--for", args.round)?;
    let mut named = args.schedulers.iter().flat_map(|list| &list.0);
    if let Some(object) = named.find(|spec| sched_ext::is_object(&spec.name)) {
        bail!(
            "{}: confirm runs schedlab's own schedulers on real threads, and an object is loaded by \
             its own user-space program. Load it, and compare it with the kernel's scheduler by \
             docs/guide/sched-ext-gate.sh; what it would do here `compare` and `tune` say",
            shown(&object.name)
        );
    }
    let plan = ConfirmPlan {
        base: args.file.clone(),
        schedulers: args.schedulers.iter().flat_map(|list| list.0.clone()).collect(),
        drivers: args.driver.all()?,
        variants: args.variants.clone(),
        command: args.command.clone(),
        cpus: args.cpus,
        rounds: args.rounds as usize,
        round: args.round,
        serve: args.serve.serve().map(str::to_owned),
        recorded_under: args.recorded_under.clone(),
        replay: args.replay.replay().unwrap_or_default(),
        run_dir: RunDir::standard()?,
        program: std::env::current_exe()
            .context("finding the program that becomes the guardian")?,
    };
    let signal = stop_signal()?;
    // Which settings there are is known with the first of them.
    let mut said = false;
    let (mut lines, progress) = (Lines::new(), Progress::new());
    let mut watch = |what: &str, done: usize, all: usize| {
        if !std::mem::replace(&mut said, true) {
            let settings = all / plan.rounds.max(1);
            output::warn(&format!(
                "{all} rounds take at least {}; Ctrl-C ends with the answer of those that are \
                 finished\n",
                plan.takes(settings)
            ));
        }
        lines.set(|| format!("round {} of {all}: {what}", done + 1))
    };
    let simulating = |done, all| progress.set(done, all);
    let confirmed = confirm(&plan, &mut watch, &simulating, &|| signal.requested())?;
    drop((lines, progress));
    let text =
        args.format.print(None, || Ok(&confirmed), |style| render::confirm(&confirmed, style))?;
    output::write(None, &text)?;
    Ok(if confirmed.trusted && !confirmed.partial { Exit::Done } else { Exit::Untrusted })
}

/// Returns what is missing. The command in a recording's header is printed and not run: the file
/// may come from anywhere, and this program runs as root.
fn without_command(file: Option<&Path>) -> anyhow::Result<String> {
    let missing = "say what to run, after `--`: each round starts the command anew";
    let Some(file) = file else { return Ok(format!("{missing}, such as `-- ./bench.sh`")) };
    let recording = Recording::open(file).with_context(|| file.display().to_string())?;
    let made = match recording.header.command.as_slice() {
        [] => "does not say what ran while it was made".to_owned(),
        command => format!("was made with: {}", origin::as_typed(command)),
    };
    Ok(format!("{missing}. {} {made}", file.display()))
}
