//! `schedlab latency`

use crate::progress::Lines;
use crate::render::{Style, latency as render};
use crate::{Done, output};
use anyhow::{anyhow, bail};
use clap::ValueEnum;
use schedlab_host::StopSignal;
use schedlab_host::threads::affinity;
use schedlab_lab::gate::Outcome;
use schedlab_lab::latency::{gates, judge};
use schedlab_measure::{LatencyLine, LatencyRequest, Wake, latency};
use schedlab_model::{CpuId, CpuSet, Ns, Policy};
use std::path::PathBuf;

/// How long is measured when nobody says.
const USUAL: Ns = Ns::from_s(10);

/// `schedlab latency`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab latency                                    every CPU for 10 seconds, as SCHED_OTHER
  schedlab latency --policy fifo:49 --interval 1ms --distance 500us --loops 30000 --json
  schedlab latency --wake pipe --cpus 1               what a thread sees that another one wakes
  schedlab latency --slack 1ns                        SCHED_OTHER without its 50 us of timer slack
  schedlab latency --for 10m --fail-if 'p99.9 > 200us' --fail-if 'cpu1 max > 5ms'

Every expiry is a sample, also one that passed while the thread was late from the one before. Exit codes: 1 a
--fail-if condition is met, 3 one needs more samples than there are, or Ctrl-C ended it early.")]
pub(crate) struct Latency {
    /// CPUs to measure on, such as 0,2-3 [default: all that this process may use]
    #[arg(long, value_name = "CPUS")]
    cpus: Option<CpuSet>,
    /// Measuring threads, spread over the CPUs [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// other, batch, idle, fifo:N or rr:N
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
    let gates = gates(&args.fail_if).map_err(|error| anyhow!("--fail-if {error}"))?;
    let request = request(args)?;
    request.check()?;
    if let Some(path) = &args.output {
        output::check(path)?;
    }
    let signal = StopSignal::install().map_err(|error| anyhow!("cannot catch Ctrl-C: {error}"))?;
    let mut live = Lines::new();
    let mut show = |lines: &[LatencyLine]| live.set(|| cyclictest(lines, request.policy));
    let report = latency(&request, &mut show, &|| signal.requested())?;
    drop(live);
    let result = judge(report, &gates);
    let text = match args.json {
        true => serde_json::to_string_pretty(&result)? + "\n",
        false => {
            let style = if args.output.is_some() { Style::plain() } else { Style::of_stdout() };
            render(&result, &style)
        }
    };
    output::write(args.output.as_deref(), &text)?;
    let any = |outcome| result.gates.iter().any(|gate| gate.outcome == outcome);
    Ok(if any(Outcome::Met) {
        Done::ExpectationFailed
    } else if any(Outcome::CannotSay) || result.report.stopped {
        Done::Untrusted
    } else {
        Done::Well
    })
}

fn request(args: &Latency) -> anyhow::Result<LatencyRequest> {
    let allowed = affinity(0)?;
    let chosen: Vec<CpuId> = match &args.cpus {
        None => allowed.iter().collect(),
        Some(cpus) if *cpus == CpuSet::ALL => allowed.iter().collect(),
        Some(cpus) => cpus.iter().collect(),
    };
    if chosen.is_empty() {
        bail!("--cpus: name at least one CPU, such as 0 or 0,2-3");
    }
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
}
