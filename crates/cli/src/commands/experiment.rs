//! `schedlab experiment`

use crate::render::{Style, experiment as show};
use crate::{Done, output};
use anyhow::{anyhow, bail};
use schedlab_host::StopSignal;
use schedlab_lab::experiment::{self, ClientKind, Experiment as Result, Network, Options, Watch, Which};
use schedlab_live::Room;
use schedlab_model::Ns;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;

/// Version of the JSON: docs/experiment-schema.md.
const SCHEMA: u32 = 1;

/// `schedlab experiment`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab experiment two-hogs                        `yes` twice on one CPU: shares and turns
  schedlab experiment sleeper                         `nc -l` beside `yes`: its stream, system calls, cost of a line
  schedlab experiment redis-batch --client open:10000 --only shared --only 'batch SCHED_IDLE'
  schedlab experiment redis-batch --network loopback --client redis-benchmark --rounds 10
  schedlab experiment all --rounds 10 --json

Every configuration (row) runs --rounds times for --for each; rows take turns in random order. Printed: what the article
says, this machine (median and 95 % bootstrap interval over the rounds), what the simulator says of this machine, and
whether the row can be told apart from the one it is compared with (at least four rounds for that).

It starts real programs (Debian: apt-get install --no-install-recommends redis-server redis-tools sysbench netcat-openbsd
iproute2) on one CPU, some of them in a real-time class, and needs root for that. All of it goes at the end, also on
Ctrl-C and kill -9: processes, control group, network namespaces. It changes no sysctl.")]
pub(crate) struct Experiment {
    /// Which
    which: Chosen,
    /// Rounds of every row
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Length of a measurement, after its warm-up
    #[arg(long = "for", value_name = "TIME", default_value = "2s")]
    time: Ns,
    /// Order of the rows, and gaps between requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Only this row (may be given several times)
    #[arg(long, value_name = "ROW")]
    only: Vec<String>,
    /// redis-batch: who sends requests: redis-benchmark, closed, open:RATE
    #[arg(long, value_name = "CLIENTS", value_delimiter = ',', default_value = "redis-benchmark,open:10000")]
    client: Vec<ClientKind>,
    /// redis-batch: veth: client and server are two hosts; loopback: one
    #[arg(long, value_name = "NETWORK", default_value = "veth")]
    network: Wire,
    /// Make no control group for the programs
    #[arg(long)]
    no_shield: bool,
    /// Print as JSON (docs/experiment-schema.md)
    #[arg(long)]
    json: bool,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Chosen {
    /// Two tasks that never sleep on one CPU
    TwoHogs,
    /// A task that mostly sleeps beside one that never does
    Sleeper,
    /// A Redis server and a batch job on one CPU
    RedisBatch,
    /// All of them
    All,
}

/// How client and server talk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Wire {
    Veth,
    Loopback,
}

pub(crate) fn run(args: &Experiment) -> anyhow::Result<Done> {
    if args.time < Ns::from_ms(100) || args.time > Ns::from_s(600) {
        bail!("--for {}: give a time from 100ms to 600s", args.time);
    }
    if let Some(path) = &args.output {
        output::check(path)?;
    }
    let options = Options {
        rounds: usize::from(args.rounds),
        time: args.time,
        seed: args.seed,
        only: args.only.clone(),
        clients: args.client.clone(),
        network: if args.network == Wire::Veth { Network::Veth } else { Network::Loopback },
        shield: !args.no_shield,
        room: Room::standard()?,
        program: std::env::current_exe()?,
    };
    let all = match args.which {
        Chosen::TwoHogs => vec![Which::TwoHogs],
        Chosen::Sleeper => vec![Which::Sleeper],
        Chosen::RedisBatch => vec![Which::RedisBatch],
        Chosen::All => Which::ALL.to_vec(),
    };
    if all.len() > 1 && !args.only.is_empty() {
        bail!("--only names rows of one experiment: name that instead of `all`");
    }
    let signal = StopSignal::install().map_err(|error| anyhow!("cannot catch Ctrl-C: {error}"))?;
    let mut live = Live(std::io::stderr().is_terminal());
    let mut results = Vec::new();
    for which in all {
        results.push(experiment::run(which, &options, &mut live, &|| signal.requested())?);
    }
    let text = if args.json { json(&results)? } else { text(&results) };
    output::write(args.output.as_deref(), &text)?;
    let left = results.iter().any(|result| !result.given_back.complete());
    Ok(if left { Done::Untrusted } else { Done::Well })
}

fn json(results: &[Result]) -> anyhow::Result<String> {
    let value = serde_json::json!({ "schema": SCHEMA, "experiments": results });
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}

fn text(results: &[Result]) -> String {
    let style = Style::of_stdout();
    results.iter().map(|result| show(result, &style)).collect::<Vec<_>>().join("\n")
}

/// Progress on standard error, on a terminal.
struct Live(bool);

impl Watch for Live {
    fn step(&mut self, what: &str, done: usize, all: usize) {
        if self.0 {
            // Nobody needs to read it.
            let _ = writeln!(std::io::stderr(), "{}/{all}: {what}", done + 1);
        }
    }
}
