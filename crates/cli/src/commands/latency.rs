//! `schedlab latency`

mod cyclictest;
mod matrix;

use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::options::stop_signal;
use crate::output;
use crate::progress::{Lines, takes};
use crate::render::latency as render;
use anyhow::{anyhow, bail};
use clap::ValueEnum;
use schedlab_host::threads::affinity;
use schedlab_lab::latency::{MatrixRequest, check_subjects, gates, judge, measure};
use schedlab_measure::{LatencyLine, LatencyRequest, Wake};
use schedlab_model::{CpuId, CpuSet, Ns, Policy};
use schedlab_study::gate::GateOutcome;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// How long a measurement is without --for.
const USUAL: Ns = Ns::from_s(10);
/// How long a row of --matrix is without --for: 30,000 expiries of a millisecond over five rounds,
/// as many as the published table has (docs/sources/experiments.md).
const USUAL_OF_A_ROW: Ns = Ns::from_s(6);

/// `schedlab latency`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "\
Examples:
  schedlab latency                                    every CPU for 10 seconds, as SCHED_OTHER
  schedlab latency --policy fifo:49 --interval 1ms --distance 500us --loops 30000 --json
  schedlab latency --wake pipe --cpus 1               wakeups by another thread
  schedlab latency --slack 1ns                        SCHED_OTHER without its 50 us of timer slack
  schedlab latency --for 10m --fail-if 'p99.9 > 200us' --fail-if 'cpu1 max > 5ms'
  schedlab latency --policy fifo:80 --for 1h --break 500us    stop at the first later one
  schedlab latency --matrix --report rt.html          {idle, loaded} x {other, fifo:49}, two \
  minutes
  schedlab latency merge standard=a.json rt=b.json --report kernels.html

Every expiry is a sample, also one that passes while the thread is late from an earlier one. Exit \
codes: 1 a \
--fail-if condition is met or --break ended it, 3 a condition needs more samples than there are, \
or Ctrl-C ended it \
early.",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct LatencyArgs {
    #[command(subcommand)]
    command: Option<Sub>,
    /// Measure on these CPUs, such as 0,2-3 [default: all that this process may use]
    #[arg(long, value_name = "CPUS")]
    cpus: Option<CpuSet>,
    /// Use this many measuring threads, spread over the CPUs [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// Measure under other, batch, idle, fifo:N, rr:N, or deadline:RUNTIME/DEADLINE/PERIOD (on all
    /// CPUs of a root domain)
    #[arg(long, value_name = "POLICY", default_value = "other")]
    policy: Policy,
    /// Wake the threads by a timer (clock, timerfd), or by another thread of the same policy on the
    /// next CPU
    #[arg(long, value_enum, default_value = "clock")]
    wake: WakeArg,
    /// Let this time pass between two expiries
    #[arg(long, value_name = "TIME", default_value = "1ms", allow_hyphen_values = true)]
    interval: Ns,
    /// Lengthen the interval of each further thread by this much
    #[arg(long, value_name = "TIME", default_value = "500us", allow_hyphen_values = true)]
    distance: Ns,
    /// Measure this long [default: 10s, or until --loops]
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<Ns>,
    /// Measure this many expiries per thread
    #[arg(long, value_name = "N")]
    loops: Option<u64>,
    /// Give the threads this timer slack, such as 1ns [default: as inherited, usually 50us]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    slack: Option<Ns>,
    /// Hold /dev/cpu_dma_latency at this many microseconds (0: no idle states) [default: leave it
    /// alone]
    #[arg(long, value_name = "US", allow_hyphen_values = true, value_parser = clap::value_parser!(i32).range(0..))]
    dma_latency: Option<i32>,
    /// Do not lock memory
    #[arg(long)]
    no_lock: bool,
    /// Let all threads expire in the same instants [default: their grids begin apart]
    #[arg(long)]
    aligned: bool,
    /// Stop at the first wakeup that is later than this, and say what took the time (records
    /// interrupts and switches meanwhile: needs root)
    #[arg(long = "break", value_name = "TIME", conflicts_with = "matrix")]
    break_above: Option<Ns>,
    /// Measure a table, {idle, loaded} x {other, fifo:49}, rows in random order, and check four
    /// published findings (docs/sources/experiments.md)
    #[arg(long, conflicts_with_all = ["policy", "wake", "threads", "loops", "fail_if", "aligned"])]
    matrix: bool,
    /// With --matrix: measure each row this often, --for [6s] each
    #[arg(long, value_name = "N", default_value = "5", requires = "matrix", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// With --matrix: load with this many groups of 20 senders and 20 receivers
    #[arg(long, value_name = "N", default_value = "10", requires = "matrix", value_parser = clap::value_parser!(u32).range(1..=100))]
    groups: u32,
    /// With --matrix: write a page (HTML) to this file too
    #[arg(long, value_name = "FILE", requires = "matrix")]
    report: Option<PathBuf>,
    /// Exit with 1 when this holds, such as 'p99.9 > 200us' or 'cpu0 max > 1ms' (may be given
    /// several times)
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<String>,
    #[command(flatten)]
    format: FormatArgs,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The subcommand of `schedlab latency`.
#[derive(Debug, clap::Subcommand)]
enum Sub {
    /// Put results of several machines or kernels into one table and one page
    Merge(matrix::MergeArgs),
}

/// [`Wake`] on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum WakeArg {
    Clock,
    Timerfd,
    Pipe,
    Eventfd,
    Futex,
    Socket,
}

impl From<WakeArg> for Wake {
    fn from(wake: WakeArg) -> Wake {
        match wake {
            WakeArg::Clock => Wake::Clock,
            WakeArg::Timerfd => Wake::Timerfd,
            WakeArg::Pipe => Wake::Pipe,
            WakeArg::Eventfd => Wake::Eventfd,
            WakeArg::Futex => Wake::Futex,
            WakeArg::Socket => Wake::Socket,
        }
    }
}

pub(crate) fn run(args: &LatencyArgs) -> anyhow::Result<Exit> {
    if let Some(Sub::Merge(merge)) = &args.command {
        return matrix::merge(merge);
    }
    if args.matrix {
        output::check_both(args.output.as_deref(), args.report.as_deref())?;
        return matrix::run(
            &matrix_request(args)?,
            &args.format,
            args.output.as_deref(),
            args.report.as_deref(),
        );
    }
    let gates = gates(&args.fail_if).map_err(|error| anyhow!("--fail-if {error}"))?;
    let request = request(args)?;
    request.check()?;
    check_subjects(&gates, &request.cpus).map_err(|error| anyhow!("--fail-if {error}"))?;
    if let Some(path) = &args.output {
        output::check(path)?;
    }
    let signal = stop_signal()?;
    if let Some(duration) = request.duration {
        takes(&format!("measures for {duration}"));
    }
    let mut live = Lines::new();
    let mut show = |lines: &[LatencyLine]| live.set(|| cyclictest::lines(lines, request.policy));
    let measured = measure(&request, &mut show, &|| signal.requested())?;
    drop(live);
    let result = judge(measured, &gates);
    let to = args.output.as_deref();
    output::write(to, &args.format.print(to, || Ok(&result), |style| render(&result, style))?)?;
    let any = |outcome| result.gates.iter().any(|gate| gate.outcome == outcome);
    Ok(if any(GateOutcome::Met) || result.report.broke.is_some() {
        Exit::ExpectationFailed
    } else if any(GateOutcome::CannotSay) || result.report.stopped {
        Exit::Untrusted
    } else {
        Exit::Done
    })
}

/// Returns the CPUs to measure on.
fn cpus(args: &LatencyArgs) -> anyhow::Result<Vec<CpuId>> {
    let allowed = affinity(0)?;
    let chosen: Vec<CpuId> = match &args.cpus {
        None => allowed.iter().collect(),
        Some(cpus) if *cpus == CpuSet::ALL => allowed.iter().collect(),
        Some(cpus) => cpus.iter().collect(),
    };
    if chosen.is_empty() {
        bail!("--cpus: name at least one CPU, such as 0 or 0,2-3");
    }
    Ok(chosen)
}

fn matrix_request(args: &LatencyArgs) -> anyhow::Result<MatrixRequest> {
    Ok(MatrixRequest {
        cpus: cpus(args)?,
        interval: args.interval,
        distance: args.distance,
        each: args.duration.unwrap_or(USUAL_OF_A_ROW),
        rounds: args.rounds,
        policies: vec![Policy::Other, Policy::Fifo(49)],
        groups: args.groups as usize,
        slack: args.slack,
        dma_latency_us: args.dma_latency,
        lock: !args.no_lock,
        seed: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64),
    })
}

fn request(args: &LatencyArgs) -> anyhow::Result<LatencyRequest> {
    let chosen = cpus(args)?;
    let threads = args.threads.map_or(chosen.len(), |threads| threads as usize);
    Ok(LatencyRequest {
        cpus: chosen.iter().copied().cycle().take(threads).collect(),
        policy: args.policy,
        wake: args.wake.into(),
        interval: args.interval,
        distance: args.distance,
        duration: args.duration.or(args.loops.is_none().then_some(USUAL)),
        loops: args.loops,
        slack: args.slack,
        dma_latency_us: args.dma_latency,
        lock: !args.no_lock,
        aligned: args.aligned,
        break_above: args.break_above,
    })
}
