//! `schedlab diff`

use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::output;
use crate::progress::Progress;
use crate::render::{self, Style};
use crate::stdin;
use anyhow::{Context, bail};
use schedlab_study::diff::totals::{is_totals, totals};
use schedlab_study::diff::{DiffOptions, diff};
use schedlab_study::gate::Gate;
use schedlab_study::together::Together;
use std::path::{Path, PathBuf};

/// `schedlab diff`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab diff before.slt after.slt
  schedlab diff before.slt after.slt --fail-if 'redis-server latency p99 > +20%'
  schedlab diff before.slt after.slt --fail-if 'redis-server wait p99 > 1ms' \\
                                     --fail-if '/batch share < 50%'
  schedlab diff before/ after/ --fail-if 'redis-server response p50 > +10%'
                                                  several recordings each, made in turns
  schedlab diff before.slt after.slt --by unit    units of systemd instead of tasks and groups
  schedlab diff old.json new.json                 two results of `schedlab compare --json`
  schedlab diff schedstat-1.txt schedstat-2.txt --hz 250
                                                  what was between two states of /proc/schedstat
  schedlab diff stats-before.txt stats-after.txt  two reports of `perf sched stats`

Two recordings of one setup differ by what else the machine does, which neither of them shows. \
Folders with at least 3 \
recordings (*.slt) each, made in turns, show how large that difference is; a change must be \
larger then.

A gate is 'SUBJECT METRIC OP VALUE'. SUBJECT: a task name, a glob, or a cgroup path. METRIC: \
share, switches, \
migrations, or latency, wait, response with p50, p90, p99, p99.9 or max. OP: > >= < <=. A VALUE \
with a sign is the \
change (+20%, -1ms), one without is the value itself (1ms, 50%, 300/s).

Exit codes: 0 no gate failed, 1 a gate failed, 3 the data cannot carry a gate.")]
pub(crate) struct DiffArgs {
    /// Compare this recording (.slt), folder of recordings, or result of `compare --json` (.json)
    /// ...
    before: PathBuf,
    /// ... with this one, made later
    after: PathBuf,
    /// Take the tasks of recordings together by this: process, cgroup, unit (of systemd),
    /// container, pod (of Kubernetes) or guest (of KVM) [default: guest in a recording that has
    /// some, else name, and control groups beside it]
    #[arg(long, value_name = "WHAT")]
    by: Option<Together>,
    /// Fail (exit 1) when this holds: 'redis-server latency p99 > +20%' (may be given several
    /// times)
    #[arg(long = "fail-if", value_name = "EXPR")]
    fail_if: Vec<String>,
    /// Call changes below this many per cent equal
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=100))]
    least: u32,
    /// Make seconds of the jiffies in /proc/schedstat and `perf sched stats`: CONFIG_HZ of that
    /// kernel
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    hz: Option<u32>,
    /// Compute the intervals with this seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Show also metrics that did not change
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    format: FormatArgs,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<Exit> {
    if let Some(path) = &args.output {
        output::check(path)?;
    }
    let gate = |text: &String| Gate::parse(text).with_context(|| "--fail-if".to_owned());
    let options = DiffOptions {
        least: f64::from(args.least) / 100.0,
        seed: args.seed,
        gates: args.fail_if.iter().map(gate).collect::<anyhow::Result<_>>()?,
        by: args.by.unwrap_or_default(),
        ..DiffOptions::default()
    };
    let given = |path: &PathBuf| match path.to_str() {
        Some("-") => stdin::given("-").map(PathBuf::from),
        _ if !path.exists() => bail!(
            "{}: No such file or folder; diff takes two recordings, two folders of them, two \
             results of `compare --json`, or two states of /proc/schedstat",
            path.display()
        ),
        _ => Ok(path.clone()),
    };
    let (before, after) = (given(&args.before)?, given(&args.after)?);
    if is_totals(&before) || is_totals(&after) {
        return run_totals(args, &before, &after);
    }
    if args.by.is_some() && before.extension().is_some_and(|end| end == "json") {
        bail!("--by is for recordings: a result was taken together when it was made");
    }
    if args.hz.is_some() {
        bail!(
            "--hz is for two texts with sums of the kernel (/proc/schedstat, reports of `perf \
             sched stats`); recordings have their own times: leave it out"
        );
    }
    let progress = Progress::with_verb("comparing");
    let found = diff(&before, &after, &options)?;
    drop(progress);
    let text = |style: &Style| render::diff(&found, style, args.all);
    let text = args.format.print(args.output.as_deref(), || Ok(&found), text)?;
    let text = stdin::named(&text);
    output::write(args.output.as_deref(), &text)?;
    Ok(match (found.failed(), found.cannot_say()) {
        (true, _) => Exit::ExpectationFailed,
        (false, true) => Exit::Untrusted,
        _ => Exit::Done,
    })
}

/// Two texts with sums of the kernel.
fn run_totals(args: &DiffArgs, before: &Path, after: &Path) -> anyhow::Result<Exit> {
    if args.by.is_some() {
        bail!("--by is for recordings: sums of the kernel do not say what a task belongs to");
    }
    if !args.fail_if.is_empty() {
        bail!(
            "--fail-if needs two recordings, folders of them or results: sums of the kernel have \
             no intervals that a gate could be judged by"
        );
    }
    let found = totals(before, after, args.hz)?;
    let text = |style: &Style| render::totals(&found, style);
    let text = args.format.print(args.output.as_deref(), || Ok(&found), text)?;
    output::write(args.output.as_deref(), &stdin::named(&text))?;
    Ok(Exit::Done)
}
