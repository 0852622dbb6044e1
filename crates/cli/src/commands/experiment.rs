//! `schedlab experiment`

use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::options::{numbers, stop_signal};
use crate::origin::origin;
use crate::output;
use crate::render::{Style, experiment as show};
use anyhow::bail;
use schedlab_lab::experiment::{
    self, ClientKind, ExperimentKind, ExperimentObserver, ExperimentOutput, ExperimentPlan,
    ExperimentResult, Network, PUBLISHED_CONNECTIONS,
};
use schedlab_live::RunDir;
use schedlab_measure::readers::MOST_READERS;
use schedlab_model::Ns;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// `schedlab experiment`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab experiment two-hogs                        `yes` twice on one CPU: shares and turns
  schedlab experiment sleeper                         `nc -l` beside `yes`: its stream, its calls
  schedlab experiment redis-batch --client open:10000 --only shared --only 'batch SCHED_IDLE'
  schedlab experiment redis-batch --client bitcount --only dedicated --only 'redis FIFO'
  schedlab experiment redis-batch --network loopback --client redis-benchmark --rounds 10
  schedlab experiment smp --tasks 2..1024              the SMP paper's program on all CPUs
  schedlab experiment all --rounds 10 --json

Every configuration (row) runs --rounds times for --for each; rows take turns in random order. \
Printed: the published \
figure (docs/sources/experiments.md), this machine (median and 95 % bootstrap interval over the \
rounds), the simulator's figure for \
this machine, and whether the row differs from the one it is compared with (needs at least four \
rounds).

It starts real programs (Debian: apt-get install --no-install-recommends redis-server redis-tools \
sysbench netcat-openbsd \
iproute2) on one CPU, some of them with a real-time policy, and needs root for that. At the end, \
also after Ctrl-C and kill -9, \
nothing of it is left: processes, control group, network namespaces. It changes no sysctl.")]
pub(crate) struct ExperimentArgs {
    /// Run this experiment
    which: Chosen,
    /// Measure every row this many times
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Measure this long, after the warm-up
    #[arg(long = "for", value_name = "TIME", default_value = "2s")]
    time: Ns,
    /// Seed of the order of the rows and of the gaps between requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Measure only this row (may be given several times)
    #[arg(long, value_name = "ROW")]
    only: Vec<String>,
    /// redis-batch: send requests by redis-benchmark; by schedlab's client in a closed loop: closed
    /// (GET) or bitcount (BITCOUNT of a 128 KiB key, where Redis is the bottleneck); or in an open
    /// loop: open:RATE [default: redis-benchmark,bitcount,open:10000]
    #[arg(long, value_name = "CLIENTS", value_delimiter = ',')]
    client: Vec<ClientKind>,
    /// redis-batch: use this many connections; with few of them Redis may sleep between two
    /// requests [default: 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: Option<u16>,
    /// redis-batch: connect client and server by veth, as two hosts, or by loopback, as one
    /// [default: veth]
    #[arg(long, value_name = "NETWORK")]
    network: Option<Wire>,
    /// smp: run these numbers of threads: a list such as 2,64,1024, or powers of two from A to B:
    /// A..B [default: 2,16,128,1024]
    #[arg(long, value_name = "LIST")]
    tasks: Option<String>,
    /// Simulate with this cost preset, such as modern-vm
    /// [default: this-machine, if `schedlab calibrate` was run here]
    #[arg(long, value_name = "PRESET")]
    costs: Option<String>,
    /// Make no control group for the programs
    #[arg(long)]
    no_shield: bool,
    /// Write a page to this file too: one HTML file that needs nothing else
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The experiments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Chosen {
    /// Two tasks that never sleep on one CPU
    TwoHogs,
    /// A task that mostly sleeps beside one that never does
    Sleeper,
    /// A Redis server and a batch job on one CPU
    RedisBatch,
    /// Threads that read memory, on all CPUs
    Smp,
    /// All of them
    All,
}

/// The network between client and server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Wire {
    Veth,
    Loopback,
}

pub(crate) fn run(args: &ExperimentArgs) -> anyhow::Result<Exit> {
    if args.time < Ns::from_ms(100) || args.time > Ns::from_s(600) {
        bail!("--for {}: give a time from 100ms to 600s", args.time);
    }
    output::check_both(args.output.as_deref(), args.report.as_deref())?;
    let plan = ExperimentPlan {
        rounds: usize::from(args.rounds),
        time: args.time,
        seed: args.seed,
        only: args.only.clone(),
        clients: match args.client.is_empty() {
            true => ClientKind::USUAL.to_vec(),
            false => args.client.clone(),
        },
        connections: args.connections.map_or(PUBLISHED_CONNECTIONS, usize::from),
        network: if args.network == Some(Wire::Loopback) {
            Network::Loopback
        } else {
            Network::Veth
        },
        tasks: numbers("--tasks", args.tasks.as_deref().unwrap_or("2,16,128,1024"), MOST_READERS)?,
        costs: args.costs.clone(),
        shield: !args.no_shield,
        run_dir: RunDir::standard()?,
        program: std::env::current_exe()?,
    };
    let all = match args.which {
        Chosen::TwoHogs => vec![ExperimentKind::TwoHogs],
        Chosen::Sleeper => vec![ExperimentKind::Sleeper],
        Chosen::RedisBatch => vec![ExperimentKind::RedisBatch],
        Chosen::Smp => vec![ExperimentKind::Smp],
        Chosen::All => ExperimentKind::ALL.to_vec(),
    };
    refuse_unused(args, &all)?;
    let signal = stop_signal()?;
    let mut live = Live { terminal: std::io::stderr().is_terminal(), plan: None };
    let mut results = Vec::new();
    for kind in all {
        results.push(experiment::run(kind, &plan, &mut live, &|| signal.requested())?);
    }
    let value = || {
        let output = ExperimentOutput { schema: experiment::SCHEMA, experiments: &results };
        Ok(serde_json::to_value(output)?)
    };
    let text = args.format.print(args.output.as_deref(), value, |style| text(&results, style))?;
    if let Some(path) = &args.report {
        let page = experiment::of_experiments(&results, &origin(None)?);
        output::write(Some(path), &page.render()?)?;
    }
    output::write(args.output.as_deref(), &text)?;
    let left = results.iter().any(|result| !result.given_back.complete());
    Ok(if left { Exit::Untrusted } else { Exit::Done })
}

/// Refuses options that have no meaning for the chosen experiments.
fn refuse_unused(args: &ExperimentArgs, all: &[ExperimentKind]) -> anyhow::Result<()> {
    if !args.only.is_empty() && (all.len() > 1 || all[0] == ExperimentKind::Smp) {
        bail!(
            "--only names rows of two-hogs, sleeper or redis-batch: name one of them (smp takes \
             --tasks)"
        );
    }
    let given = [
        ("--client", !args.client.is_empty(), ExperimentKind::RedisBatch),
        ("--connections", args.connections.is_some(), ExperimentKind::RedisBatch),
        ("--network", args.network.is_some(), ExperimentKind::RedisBatch),
        ("--tasks", args.tasks.is_some(), ExperimentKind::Smp),
    ];
    match given.iter().find(|(_, given, of)| *given && !all.contains(of)) {
        Some((option, _, of)) => bail!("{option} is for {}: leave it out here", of.name()),
        None => Ok(()),
    }
}

fn text(results: &[ExperimentResult], style: &Style) -> String {
    results.iter().map(|result| show(result, style)).collect::<Vec<_>>().join("\n")
}

/// Progress on standard error, on a terminal.
struct Live {
    terminal: bool,
    /// The experiment, the time of its measurements, and when it began.
    plan: Option<(&'static str, Ns, Instant)>,
}

impl ExperimentObserver for Live {
    fn plan(&mut self, kind: ExperimentKind, measurements: usize, about: Ns) {
        self.plan = Some((kind.name(), about, Instant::now()));
        self.say(&format!(
            "{}: {measurements} measurements, about {}",
            kind.name(),
            duration(about)
        ));
    }

    fn step(&mut self, what: &str, done: usize, all: usize) {
        let (name, left) = match &self.plan {
            None => ("", String::new()),
            Some((name, about, begun)) => (*name, left(*about, done, all, begun.elapsed())),
        };
        self.say(&format!("{name} {}/{all}: {what}{left}", done + 1));
    }
}

impl Live {
    fn say(&self, line: &str) {
        if self.terminal {
            // Without standard error progress is not needed.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
}

/// Returns the time that is left of `about` after `done` of `all`: by the plan at first, then by
/// the time so far.
fn left(about: Ns, done: usize, all: usize, taken: Duration) -> String {
    let rest = all.saturating_sub(done) as f64;
    let each = match done {
        0 => about.0 as f64 / all.max(1) as f64,
        _ => taken.as_nanos() as f64 / done as f64,
    };
    format!(", {} left", duration(Ns((rest * each) as u64)))
}

/// Returns a time as 45 s or 12 min.
fn duration(time: Ns) -> String {
    match (time.0 as f64 / 1e9).ceil() as u64 {
        seconds @ 0..100 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_the_plan_then_the_pace() {
        let plan = Ns::from_s(200);
        assert_eq!(left(plan, 0, 20, Duration::ZERO), ", 4 min left");
        assert_eq!(left(plan, 10, 20, Duration::from_secs(30)), ", 30 s left");
        assert_eq!(left(plan, 20, 20, Duration::from_secs(60)), ", 0 s left");
    }
}
