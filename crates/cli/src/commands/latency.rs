//! `schedlab latency`

mod matrix;

use crate::progress::Lines;
use crate::render::{Style, latency as render};
use crate::{Done, output};
use anyhow::{anyhow, bail};
use clap::ValueEnum;
use schedlab_host::StopSignal;
use schedlab_host::threads::affinity;
use schedlab_lab::latency::{check_subjects, gates, judge, measure};
use schedlab_measure::{LatencyLine, LatencyRequest, Wake};
use schedlab_model::{CpuId, CpuSet, Ns, Policy};
use schedlab_study::gate::GateOutcome;
use std::path::PathBuf;

/// How long is measured when nobody says.
const USUAL: Ns = Ns::from_s(10);

/// `schedlab latency`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "\
Examples:
  schedlab latency                                    every CPU for 10 seconds, as SCHED_OTHER
  schedlab latency --policy fifo:49 --interval 1ms --distance 500us --loops 30000 --json
  schedlab latency --wake pipe --cpus 1               what a thread sees that another one wakes
  schedlab latency --slack 1ns                        SCHED_OTHER without its 50 us of timer slack
  schedlab latency --for 10m --fail-if 'p99.9 > 200us' --fail-if 'cpu1 max > 5ms'
  schedlab latency --policy fifo:80 --for 1h --break 500us    the first worse one: who is to blame?
  schedlab latency --matrix --report rt.html          {idle, loaded} x {other, fifo:49}, two minutes
  schedlab latency merge standard=a.json rt=b.json --report kernels.html

Every expiry is a sample, also one that passed while the thread was late from the one before. Exit codes: 1 a \
--fail-if condition is met or --break ended it, 3 a condition needs more samples than there are, or Ctrl-C ended it \
early.",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Latency {
    #[command(subcommand)]
    command: Option<Sub>,
    /// CPUs to measure on, such as 0,2-3 [default: all that this process may use]
    #[arg(long, value_name = "CPUS")]
    cpus: Option<CpuSet>,
    /// Measuring threads, spread over the CPUs [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// other, batch, idle, fifo:N, rr:N, or deadline:RUNTIME/DEADLINE/PERIOD (on all CPUs of a root domain)
    #[arg(long, value_name = "POLICY", default_value = "other")]
    policy: Policy,
    /// What wakes the threads: a timer (clock, timerfd), or another thread of the same policy on the next CPU
    #[arg(long, value_enum, default_value = "clock")]
    wake: How,
    /// Time between two expiries
    #[arg(long, value_name = "TIME", default_value = "1ms", allow_hyphen_values = true)]
    interval: Ns,
    /// How much longer the interval of each further thread is
    #[arg(long, value_name = "TIME", default_value = "500us", allow_hyphen_values = true)]
    distance: Ns,
    /// Measure this long [default: 10s, or until --loops]
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<Ns>,
    /// Measure this many expiries per thread
    #[arg(long, value_name = "N")]
    loops: Option<u64>,
    /// Timer slack of the threads, such as 1ns [default: as inherited, usually 50us]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    slack: Option<Ns>,
    /// Hold /dev/cpu_dma_latency at this many microseconds (0: no idle states) [default: leave it alone]
    #[arg(long, value_name = "US", allow_hyphen_values = true, value_parser = clap::value_parser!(i32).range(0..))]
    dma_latency: Option<i32>,
    /// Do not lock memory
    #[arg(long)]
    no_lock: bool,
    /// All threads expire in the same instants [default: their grids begin apart]
    #[arg(long)]
    aligned: bool,
    /// Stop at the first wakeup that is later than this, and say who is to blame (records interrupts and switches
    /// meanwhile: root)
    #[arg(long = "break", value_name = "TIME", conflicts_with = "matrix")]
    break_above: Option<Ns>,
    /// Measure a table: {idle, loaded} x {other, fifo:49}, rows in random order, and check the cyclictest article's findings
    #[arg(long, conflicts_with_all = ["policy", "wake", "threads", "loops", "fail_if", "aligned"])]
    matrix: bool,
    /// With --matrix: how often each row is measured, --for [6s] each
    #[arg(long, value_name = "N", default_value = "5", requires = "matrix", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// With --matrix: groups of the load, 20 senders and 20 receivers each
    #[arg(long, value_name = "N", default_value = "10", requires = "matrix", value_parser = clap::value_parser!(u32).range(1..=100))]
    groups: u32,
    /// With --matrix: write the table as a page (HTML) too
    #[arg(long, value_name = "FILE", requires = "matrix")]
    report: Option<PathBuf>,
    /// Exit with 1 when this holds, such as 'p99.9 > 200us' or 'cpu0 max > 1ms' (may be given several times)
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<String>,
    /// Print as JSON, with whole histograms (docs/latency-schema.md)
    #[arg(long)]
    json: bool,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What else `schedlab latency` does.
#[derive(Debug, clap::Subcommand)]
enum Sub {
    /// Put results of several machines or kernels into one table and one page
    Merge(matrix::Merge),
}

/// [`Wake`] on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum How {
    Clock,
    Timerfd,
    Pipe,
    Eventfd,
    Futex,
    Socket,
}

impl From<How> for Wake {
    fn from(how: How) -> Wake {
        match how {
            How::Clock => Wake::Clock,
            How::Timerfd => Wake::Timerfd,
            How::Pipe => Wake::Pipe,
            How::Eventfd => Wake::Eventfd,
            How::Futex => Wake::Futex,
            How::Socket => Wake::Socket,
        }
    }
}

pub(crate) fn run(args: &Latency) -> anyhow::Result<Done> {
    if let Some(Sub::Merge(merge)) = &args.command {
        return matrix::merge(merge);
    }
    if args.matrix {
        return matrix::run(args);
    }
    let gates = gates(&args.fail_if).map_err(|error| anyhow!("--fail-if {error}"))?;
    let request = request(args)?;
    request.check()?;
    check_subjects(&gates, &request.cpus).map_err(|error| anyhow!("--fail-if {error}"))?;
    if let Some(path) = &args.output {
        output::check(path)?;
    }
    let signal = StopSignal::install().map_err(|error| anyhow!("cannot catch Ctrl-C: {error}"))?;
    let mut live = Lines::new();
    let mut show = |lines: &[LatencyLine]| live.set(|| cyclictest(lines, request.policy));
    let measured = measure(&request, &mut show, &|| signal.requested())?;
    drop(live);
    let result = judge(measured, &gates);
    let text = match args.json {
        true => serde_json::to_string_pretty(&result)? + "\n",
        false => {
            let style = if args.output.is_some() { Style::plain() } else { Style::of_stdout() };
            render(&result, &style)
        }
    };
    output::write(args.output.as_deref(), &text)?;
    let any = |outcome| result.gates.iter().any(|gate| gate.outcome == outcome);
    Ok(if any(GateOutcome::Met) || result.report.broke.is_some() {
        Done::ExpectationFailed
    } else if any(GateOutcome::CannotSay) || result.report.stopped {
        Done::Untrusted
    } else {
        Done::Well
    })
}

/// The CPUs that were asked for.
fn cpus(args: &Latency) -> anyhow::Result<Vec<CpuId>> {
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

fn request(args: &Latency) -> anyhow::Result<LatencyRequest> {
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

/// As cyclictest shows its threads, microseconds.
fn cyclictest(lines: &[LatencyLine], policy: Policy) -> String {
    let priority = match policy {
        Policy::Fifo(priority) | Policy::Rr(priority) => priority,
        _ => 0,
    };
    let line = |(index, line): (usize, &LatencyLine)| {
        let us = |ns: u64| ns / 1000;
        format!(
            "T:{index:2} ({:5}) P:{priority:2} I:{} C:{:7} Min:{:7} Act:{:5} Avg:{:5} Max:{:8}",
            line.tid,
            us(line.interval.0),
            line.count,
            us(line.min),
            us(line.last),
            us(line.mean),
            us(line.max)
        )
    };
    lines.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_look_like_those_of_cyclictest() {
        let interval = Ns::from_ms(1);
        let line = LatencyLine {
            tid: 4711,
            interval,
            count: 1000,
            min: 2_900,
            last: 8_000,
            mean: 7_000,
            max: 93_000,
        };
        assert_eq!(
            cyclictest(&[line], Policy::Fifo(49)),
            "T: 0 ( 4711) P:49 I:1000 C:   1000 Min:      2 Act:    8 Avg:    7 Max:      93"
        );
    }

    /// The numbers of cyclictest's own line, printed by us, are its line.
    #[test]
    #[allow(clippy::print_stderr)] // a test that is skipped says its name
    fn lines_are_those_of_the_cyclictest_that_is_installed() {
        let ran = std::process::Command::new("cyclictest")
            .args(["-q", "-t2", "-i", "1000", "-d", "500", "-l", "20", "--policy=other", "--default-system"])
            .output();
        let printed = ran.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
        let theirs: Vec<&str> = printed.lines().filter(|line| line.starts_with("T:")).collect();
        if theirs.is_empty() {
            assert!(std::env::var("CI").map_or(true, |ci| ci != "true"), "CI installs rt-tests (.ci/run)");
            eprintln!("SKIPPED: no cyclictest here");
            return;
        }
        for line in theirs {
            let number = |name: &str| -> u64 {
                let rest = line.split_once(name).unwrap_or_else(|| panic!("no {name} in {line}")).1;
                let digits = rest.trim_start_matches([' ', '(']);
                digits.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
            };
            let ours = LatencyLine {
                tid: line.split_once('(').map(|_| number("(") as u32).unwrap(),
                interval: Ns::from_us(number("I:")),
                count: number("C:"),
                min: number("Min:") * 1000,
                last: number("Act:") * 1000,
                mean: number("Avg:") * 1000,
                max: number("Max:") * 1000,
            };
            let index = number("T:") as usize;
            let all = vec![ours; index + 1];
            let text = cyclictest(&all, Policy::Other);
            assert_eq!(text.lines().last().unwrap().trim_end(), line.trim_end());
        }
    }
}
