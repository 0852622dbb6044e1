//! `schedlab colocate`

use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::options::{long_enough, stop_signal};
use crate::output;
use crate::render::colocate as show;
use anyhow::{anyhow, bail};
use schedlab_lab::colocate::{
    Client, ColocateAnswer, ColocateDryRun, ColocateObserver, ColocateOutput, ColocatePlan,
    FIGURES, Goal, Round, SCHEMA, Tried, WorkloadSource, colocate, intentions,
};
use schedlab_live::RunDir;
use schedlab_live::actuators::Actuator;
use schedlab_model::{CpuSet, Ns};
use schedlab_study::gate::{Against, Gate, GateOutcome};
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Instant;

/// `schedlab colocate`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab colocate --serve 'redis-server --port 7777' --batch 'sysbench cpu run' --cpus 0 \\
                    --load 'redis-benchmark -p 7777 -l -q' --goal 'redis-server latency p99 < 1ms'
  schedlab colocate --serve-pid 957 --batch-pid 1201 --goal 'p99 < 500us' --keep-for 1h
  schedlab colocate --serve redis.service --batch-cgroup /batch --goal 'p99 < 1ms'
  schedlab colocate --serve-pid 957 --batch-cgroup /batch --goal 'p99 < 1ms' --dry-run
  schedlab colocate --serve-pid 957 --batch-pid 1201 --cpus 0 \\
                    --client 127.0.0.1:6379 --client-rate 4000 \\
                    --goal 'client response p99 < alone + 10%'

A goal is met when its condition is true: 'latency p99 < 1ms' wants less than 1 ms. (A gate of \
`diff --fail-if` is \
written in the same way and fails when it is true.) SUBJECT is a thread's name or glob, `server` \
or `batch`; without \
one it is the server, and a percentile alone is one of `latency`, the time from the wakeup to \
running. `client` is \
schedlab's own client (--client, Redis's protocol): it sends at the times of a Poisson process, \
whatever the server does, \
and measures from the intended time, so that it misses no stall.

`alone` is the server's value while the batch work is stopped (for some rounds; the guardian lets \
it go on if schedlab dies) \
and a SCHED_IDLE thread keeps the CPUs awake. Rounds alone alternate with the others; a goal such \
as \
'response p99 < alone + 10%' is met when the interval of their distances, pair by pair, is within \
the bound, and `cannot tell` when \
the interval contains the bound. A setting without an answer gets more pairs of rounds, up to \
eight times --rounds, before \
schedlab's own scheduler and settings that stall the server are tried; after those rounds the \
mildest setting without an answer is \
chosen, and the result says that it is not sure (exit code 3).

Order: the host's default, idle, group-idle, quota-off, group-weight, batch, nice, slice, apart, \
group-max, elevation, fifo. \
The first that meets every goal is confirmed. fifo, under which the kernel stops a busy server \
for 50 ms of each second, is not \
tried when a goal about a `max` forbids that. At the end everything is as before, also after kill \
-9 (`schedlab restore` when the \
guardian was killed too). Exit codes: 0 met, 1 no actuator meets the goal, 3 too little was seen \
for an answer.")]
pub(crate) struct ColocateArgs {
    /// Serve by this: a pid, a control group (/path) or a unit (NAME.service) that runs already, or
    /// a command, which is started (by `/bin/sh`) and ended afterwards
    #[arg(
        long,
        value_name = "SERVER",
        required_unless_present = "serve_pid",
        conflicts_with = "serve_pid"
    )]
    serve: Option<String>,
    /// Take this running process and its children for the server (may be given several times)
    #[arg(long, value_name = "N")]
    serve_pid: Vec<u32>,
    /// Start this batch work, start it again when it ends, and end it afterwards
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["batch_pid", "batch_cgroup"],
          required_unless_present_any = ["batch_pid", "batch_cgroup"])]
    batch: Option<String>,
    /// Take this running process and its children for the batch work (may be given several times)
    #[arg(long, value_name = "N", conflicts_with = "batch_cgroup")]
    batch_pid: Vec<u32>,
    /// Take all processes of this control group for the batch work: its folder, or its path such as
    /// /batch
    #[arg(long, value_name = "PATH")]
    batch_cgroup: Option<String>,
    /// Start this client, which keeps the server busy, and start it again when it ends
    #[arg(long, value_name = "COMMAND")]
    load: Option<String>,
    /// Measure with schedlab's own client at this address, IP:PORT (Redis's protocol)
    #[arg(long, value_name = "ADDRESS")]
    client: Option<SocketAddr>,
    /// Send this many requests a second by --client
    #[arg(long, value_name = "RATE", default_value_t = 1000.0, requires = "client")]
    client_rate: f64,
    /// Send in a closed loop instead: each connection waits for its reply. Hides stalls, shows
    /// throughput
    #[arg(long, requires = "client", conflicts_with = "client_rate")]
    client_closed: bool,
    /// Use this many connections for --client
    #[arg(long, value_name = "N", default_value_t = 8, requires = "client", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    client_connections: u16,
    /// Send this request by --client
    #[arg(long, value_name = "WORDS", default_value = "PING", requires = "client")]
    client_request: String,
    /// Confine server and batch work to these CPUs meanwhile, such as 0 or 0-3 [default: those that
    /// they may use]
    #[arg(long, value_name = "CPUS")]
    cpus: Option<CpuSet>,
    /// Meet this goal: '[SUBJECT] METRIC < VALUE' (may be given several times; all must be met)
    #[arg(long = "goal", value_name = "GOAL", required_unless_present = "dry_run")]
    goals: Vec<String>,
    /// Measure each round for this long
    #[arg(long, value_name = "TIME", default_value = "2s")]
    round: Ns,
    /// Measure this many interleaved rounds with and without the chosen actuator [default: 3; with
    /// `alone` in a goal 5, and up to eight times as many without an answer]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: Option<u8>,
    /// Try only these actuators, such as idle,nice
    #[arg(long = "try", value_name = "NAMES", value_delimiter = ',')]
    only: Vec<Actuator>,
    /// Keep the chosen actuator for this long and measure; then put everything back
    #[arg(long, value_name = "TIME")]
    keep_for: Option<Ns>,
    /// Print what would be changed; start nothing and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    format: FormatArgs,
}

pub(crate) fn run(args: &ColocateArgs) -> anyhow::Result<Exit> {
    let plan = plan(args)?;
    if args.dry_run {
        let intents = intentions(&plan)?;
        let value = || {
            let dry_run = ColocateDryRun { schema: SCHEMA, dry_run: true, would_try: &intents };
            Ok(serde_json::to_value(ColocateOutput::DryRun(dry_run))?)
        };
        let text = args.format.print(None, value, |_| show::intents(&plan, &intents))?;
        output::write(None, &text)?;
        return Ok(Exit::Done);
    }
    let signal = stop_signal()?;
    let mut live = Live { goals: plan.goals.clone(), begun: Instant::now(), kept: 0 };
    let (shortest, longest) = plan.takes();
    live.say(&format!(
        "rounds of {}: {shortest} in all if the default meets the goal, {longest} if each setting \
         is tried; Ctrl-C ends with the answer so far",
        plan.round
    ));
    let found = colocate(&plan, &mut live, &|| signal.requested())?;
    let value = || {
        let figures = FIGURES.map(|(role, metric)| show::name(role, metric)).to_vec();
        let answer = ColocateAnswer { schema: SCHEMA, figures, found: &found };
        Ok(serde_json::to_value(ColocateOutput::Answer(answer))?)
    };
    output::write(
        None,
        &args.format.print(None, value, |style| show::answer(&plan, &found, style))?,
    )?;
    if !found.given_back.failed.is_empty() {
        return Ok(Exit::Untrusted);
    }
    Ok(match (found.outcome, found.kept_outcome) {
        (_, Some(GateOutcome::Not)) | (GateOutcome::Not, _) => Exit::ExpectationFailed,
        (GateOutcome::CannotSay, _) | (_, Some(GateOutcome::CannotSay)) => Exit::Untrusted,
        _ => Exit::Done,
    })
}

/// Prints progress on standard error, a terminal or not: a trial takes minutes, and what is known
/// so far is an answer too.
struct Live {
    goals: Vec<Goal>,
    begun: Instant,
    kept: usize,
}

impl Live {
    fn say(&self, text: &str) {
        let _ = writeln!(std::io::stderr(), "{:5.1} s  {text}", self.begun.elapsed().as_secs_f64());
    }
}

impl ColocateObserver for Live {
    fn round(&mut self, what: &str, how: Actuator) {
        self.say(&format!("{what}: {how}"));
    }

    fn alone(&mut self) {
        self.say("the server alone: the batch work is stopped");
    }

    fn tried(&mut self, tried: &Tried) {
        self.say(&show::so_far(&self.goals, tried));
    }

    fn keeping(&mut self, how: Actuator, time: Ns) {
        self.say(&format!("keeping {how} for {time}; then everything is put back"));
    }

    fn kept(&mut self, _: &Round, met: GateOutcome) {
        self.kept += 1;
        if met == GateOutcome::Not {
            self.say(&format!("regression: the goal was missed in round {} of keeping", self.kept));
        }
    }
}

fn plan(args: &ColocateArgs) -> anyhow::Result<ColocatePlan> {
    let goals = args.goals.iter().map(|text| {
        let gate =
            Gate::parse_with(text, Some("latency")).map_err(|error| anyhow!("--goal {error}"))?;
        if gate.metric.is_of_machine() {
            bail!(
                "--goal '{text}': `{}` is about the machine; a goal is about the server or the \
                 batch work",
                gate.metric
            );
        }
        if gate.subject.as_deref() == Some("client") && args.client.is_none() {
            bail!(
                "--goal '{text}': `client` is schedlab's own client; give its server with \
                 --client IP:PORT"
            );
        }
        Ok(Goal(gate))
    });
    let goals = goals.collect::<anyhow::Result<Vec<_>>>()?;
    if !(args.client_rate > 0.0 && args.client_rate <= 1e6) || args.client_request.trim().is_empty()
    {
        bail!(
            "--client-rate must be above 0 and at most 1000000 a second, and --client-request \
             have a word"
        );
    }
    long_enough("--round", args.round)?;
    let source =
        |command: &Option<String>, pids: &[u32], group: &Option<String>| match (command, group) {
            (Some(command), _) => WorkloadSource::Command(command.clone()),
            (_, Some(group)) => WorkloadSource::Group(group.clone()),
            _ => WorkloadSource::Pids(pids.to_vec()),
        };
    Ok(ColocatePlan {
        serve: match &args.serve {
            Some(server) => WorkloadSource::of_server(server),
            None => source(&None, &args.serve_pid, &None),
        },
        batch: source(&args.batch, &args.batch_pid, &args.batch_cgroup),
        load: args.load.clone(),
        client: args.client.map(|address| Client {
            address,
            rate_per_s: (!args.client_closed).then_some(args.client_rate),
            connections: usize::from(args.client_connections),
            words: args.client_request.split_whitespace().map(str::to_owned).collect(),
        }),
        cpus: args.cpus,
        rounds: args.rounds.map_or_else(|| usual_rounds(&goals), usize::from),
        goals,
        round: args.round,
        only: args.only.clone(),
        keep_for: args.keep_for,
        run_dir: RunDir::standard()?,
        program: std::env::current_exe()?,
    })
}

/// Returns the number of rounds without --rounds. Five pairs are the fewest whose range holds the
/// true median with 90 % (1 - 2/2^5).
fn usual_rounds(goals: &[Goal]) -> usize {
    if goals.iter().any(|goal| goal.0.against == Against::Alone) { 5 } else { 3 }
}
