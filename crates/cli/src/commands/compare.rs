//! `schedlab compare`

pub(crate) mod request;

use super::fleet;
use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::origin::origin;
use crate::output;
use crate::progress::Progress;
use crate::render::{self, Style};
use crate::stdin;
use anyhow::{Context, anyhow, bail};
use request::RequestArgs;
use schedlab_scheduler::{SchedulerSpec, registry};
use schedlab_study::compare::Seen;
use schedlab_study::compare::request::CompareRequest;
use schedlab_study::deploy::Format;
use schedlab_study::gallery::{self, Found};
use schedlab_study::generate::{self, Verdict};
use schedlab_study::input::Input;
use schedlab_study::page;
use schedlab_study::result::Study;
use schedlab_study::scan::Scan;
use schedlab_study::scenario::Scenario;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `schedlab compare`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab compare redis-batch
  schedlab compare redis-batch --brief
  schedlab compare my.toml --scheduler linux-6.1 --scheduler linux-6.18:base_slice_ns=6ms
  schedlab compare redis.slt --variant 'batch idle: sysbench policy=idle' \\
                             --variant 'redis fifo: redis-server policy=fifo:1'
  schedlab compare redis.slt --variant 'capped: sysbench group=/batch ; /batch cpu.max=50ms/100ms'
  schedlab compare redis.slt --variant 'sysbench policy=idle' --serve redis-server --around worst
  schedlab compare redis.slt --scan 'sysbench nice=0..19'
  schedlab compare redis.slt --by unit --variant 'idle: sysbench policy=idle'
  schedlab compare redis.slt --variant 'k8s: pod redis-server requests.cpu=2 limits.cpu=off'
  schedlab compare host.slt --variant 'weight: guest web cpu.weight=400'
  schedlab compare fleet/ --variant 'idle: sysbench policy=idle' --serve redis-server
  schedlab compare redis.slt --variant 'twice the work: redis-server demand=x2' --json
  schedlab compare redis.slt --variant 'idle: sysbench policy=idle' --report out.html
  schedlab compare redis.slt --scan 'sysbench nice=0..19' --format parquet -o rows.parquet
  schedlab compare redis.slt --variant 'idle: sysbench policy=idle' --deploy systemd
  schedlab compare redis.slt --variant 'idle: sysbench policy=idle' --check 'idle=redis-idle.slt'
  schedlab compare nginx.slt --variant 'idle: sysbench policy=idle' --client-log wrk.txt
  schedlab compare redis.slt --variant 'idle: sysbench policy=idle' \\
                             --fail-if 'redis-server latency p99 > 1ms' \\
                             --fail-if 'idle: sysbench throughput < -10%'

A variant is 'NAME: TARGET SETTING... ; TARGET SETTING...'. Targets: a task (name, glob such as \
'worker-*'; of a recording \
also a process by its name or pid: all of its threads), a control group (/path), a source, or `scheduler` (settings are its knobs). \
Settings of \
tasks: policy=other|batch|idle|fifo:N|rr:N nice=N cpus=0-3 slice=3ms group=/path demand=x2 off. \
Of groups:
cpu.max=50ms/100ms cpu.weight=N cpu.idle=on cpus=0-3, on Xen cap=N weight=N guest=SCHEDULER|none. \
Of sources: rate=x2 clients=N. Of a pod of Kubernetes ('pod NAME', a program in it or its uid):
requests.cpu=500m limits.cpu=2|off conversion=linear|quadratic|shares. Of a guest of KVM \
('guest NAME', or its process id):
cpu.weight=N cpu.max=50ms/100ms cpu.idle=on cpus=0-3.

A gate (--fail-if) is '[ROW: ]SUBJECT METRIC OP VALUE[ against ROW]'; ROW: a variant or scheduler \
[every row but the \
first]. A VALUE with a sign is the change against the first row (+20%, -1ms), or against the ROW \
named at the end.

A recording is first compared with its own simulation. What it misses there is one part of the \
error of every change \
(--explain shows all); a change smaller than its error is `cannot tell`.

Exit codes: 0 done, 1 an expectation or a gate failed, 3 the simulation does not reproduce the \
recording, or the data \
cannot carry a gate.")]
pub(crate) struct CompareArgs {
    /// Play this recording (.slt), scenario (.toml), rt-app workload (.json), scenario of the
    /// gallery by name (`schedlab list scenarios`), or folder of recordings, one from each machine
    input: String,
    #[command(flatten)]
    request: RequestArgs,
    /// Run each scheduler of a scenario three times first, under every assertion (same events
    /// again, every tick delivered, no task forgotten); a failure ends with exit code 3
    #[arg(long)]
    assert: bool,
    /// Print the verdict, how sure it is, and one table of the numbers that it is about: at most 15
    /// lines
    #[arg(long, conflicts_with_all = ["json", "format", "explain", "all_tasks"])]
    brief: bool,
    /// Print only what sets the recommended variant without schedlab: commands (chrt, renice,
    /// taskset, control groups), systemd drop-ins, a Kubernetes fragment, or xl commands for Xen
    #[arg(long, value_name = "FORMAT", value_parser = Format::ALL.map(Format::name), conflicts_with_all = ["json", "format", "brief", "explain"])]
    deploy: Option<String>,
    /// Show every task group, also those with less than 1 % of a CPU
    #[arg(long)]
    all_tasks: bool,
    /// Show all rows (default: one line for equal rows, and above nine lines only the best)
    #[arg(long)]
    all: bool,
    /// Show the fitted constants and costs, the knobs, and how the errors are computed
    #[arg(long)]
    explain: bool,
    /// Write a page to this file too: one HTML file with charts, without other files
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<Exit> {
    output::check_both(args.output.as_deref(), args.report.as_deref())?;
    if args.format.is_parquet() {
        output::no_terminal(args.output.as_deref(), "--format parquet")?;
    }
    if fleet::is_folder(&args.input) {
        return of_folder(args);
    }
    let mut request = (*args.request.0).clone();
    request.options.detail = args.report.is_some();
    let input = read(args, &request)?;
    if let Input::Scenario(scenario) = &input
        && args.assert
        && !holds(&request.options.schedulers, scenario)
    {
        return Ok(Exit::Untrusted);
    }
    let progress = Progress::new();
    let seen = match &input {
        Input::Recording(input) if progress.is_shown() => {
            Some(Arc::new(Seen::of_shares(input, &request.options)))
        }
        _ => None,
    };
    request.options.seen.clone_from(&seen);
    let mut study = request.compare(&input, &|done, all| {
        progress.set(done, all);
        if let Some(told) = seen.as_ref().and_then(|seen| seen.first_look()) {
            progress.first_look(&told);
        }
    })?;
    drop(progress);
    study.input.name = stdin::named(&study.input.name);
    let text = if args.format.is_parquet() {
        String::new()
    } else if let Some(name) = &args.deploy {
        let format = Format::ALL.into_iter().find(|format| format.name() == name);
        let format = format.context("--deploy: unknown format")?;
        render::deploy::file(study.recommended(), format)
            .map_err(|why| anyhow!("--deploy {name}: {why}"))?
    } else {
        args.format.print(
            args.output.as_deref(),
            || Ok(&study),
            |style| text(args, &study, &request.scans, style),
        )?
    };
    if let Some(path) = &args.report {
        let page = page::of_study(&study, &request.scans, &origin(input.recording())?);
        output::write(Some(path), &page.render()?)?;
    }
    match args.format.is_parquet() {
        true => write_rows(&study, args.output.as_deref())?,
        false => output::write(args.output.as_deref(), &text)?,
    }
    Ok(if !study.holds() || study.failed() {
        Exit::ExpectationFailed
    } else if !study.trusted() || study.cannot_say() {
        Exit::Untrusted
    } else {
        Exit::Done
    })
}

/// Compares the recordings of a folder.
fn of_folder(args: &CompareArgs) -> anyhow::Result<Exit> {
    fleet::compare(&fleet::Asked {
        input: &args.input,
        request: &args.request.0,
        for_one: &[
            ("--assert", args.assert),
            ("--brief", args.brief),
            ("--deploy", args.deploy.is_some()),
            ("--all-tasks", args.all_tasks),
            ("--explain", args.explain),
            ("--report", args.report.is_some()),
            ("--format parquet", args.format.is_parquet()),
        ],
        all: args.all,
        format: &args.format,
        output: args.output.as_deref(),
    })
}

/// Writes the table `rows` (docs/tables.md).
#[cfg(feature = "parquet")]
fn write_rows(study: &Study, to: Option<&Path>) -> anyhow::Result<()> {
    let mut file = Vec::new();
    schedlab_tables::parquet::write(&schedlab_tables::study::rows(study)?, &mut file)?;
    output::write_bytes(to, &file)
}

#[cfg(not(feature = "parquet"))]
fn write_rows(_: &Study, _: Option<&Path>) -> anyhow::Result<()> {
    Ok(())
}

fn text(args: &CompareArgs, study: &Study, scans: &[Scan], style: &Style) -> String {
    let curves: String = scans.iter().map(|scan| render::scan(study, scan, style)).collect();
    let shown =
        render::Shown { all_tasks: args.all_tasks, all_rows: args.all, explain: args.explain };
    let text = match args.brief {
        true => render::brief(study, style),
        false => render::study(study, style, shown),
    };
    text + &curves
}

/// Finds the input and reads it. Refuses options that have no meaning for an input of its kind.
fn read(args: &CompareArgs, request: &CompareRequest) -> anyhow::Result<Input> {
    // Checking a scenario may take as long as reading a recording.
    let _progress = Progress::with_verb(&format!("reading {}", args.input));
    let found = gallery::find(&stdin::given(&args.input)?)?;
    if let Some((option, why)) = request.without_meaning(&found, &args.input) {
        bail!("--{} {why}", option.flag);
    }
    if args.assert && matches!(found, Found::Recording(_)) {
        bail!("--assert has a meaning only for scenarios, and {} is a recording", args.input);
    }
    Ok(request.read(found)?)
}

/// Runs every scheduler under all assertions. Returns whether they hold; prints those on standard
/// error that do not.
fn holds(asked: &[SchedulerSpec], scenario: &Scenario) -> bool {
    let schedulers = if asked.is_empty() { &scenario.schedulers[..] } else { asked };
    let _progress = Progress::with_verb("checking assertions");
    let mut all = true;
    for scheduler in schedulers {
        match generate::assertions(scenario, scheduler, &registry::build) {
            Verdict::Ran(_) => {}
            Verdict::Refused(why) => {
                let _ = writeln!(std::io::stderr(), "--assert: {scheduler} was not checked: {why}");
            }
            Verdict::Failed(fault, what) => {
                all = false;
                let _ =
                    writeln!(std::io::stderr(), "--assert: {scheduler}: {}: {what}", fault.name());
            }
        }
    }
    all
}
