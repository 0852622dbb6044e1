//! `schedlab stress`

use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::options::stop_signal;
use crate::output;
use crate::progress::Working;
use anyhow::anyhow;
use schedlab_host::StopSignal;
use schedlab_measure::stress::{
    GroupsOutput, GroupsRequest, HogReport, HogsOutput, HogsRequest, Round, SCHEMA, StressOutput,
    Transport, Workers, run_groups, run_hogs,
};
use schedlab_model::Ns;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// `schedlab stress`
#[derive(Debug, clap::Args)]
#[command(
    group(clap::ArgGroup::new("load").required(true).multiple(true).args(["groups", "hogs", "memory"])),
    after_help = "\
Examples:
  schedlab stress --groups 10 --messages 100              the work of hackbench -g 10 -l 100
  schedlab stress --groups 4 --pipe --thread --json       as hackbench -g 4 -p -T
  schedlab stress --groups 2 --fds 20 --for 30s           one round after the other, for 30 seconds
  schedlab stress --hogs 2 --for 10s                      two threads that only compute
  schedlab stress --memory 64M                            stream through 64 MiB until Ctrl-C

Ctrl-C ends the load at once and leaves no process behind."
)]
pub(crate) struct StressArgs {
    /// Start this many groups of senders and receivers
    #[arg(short, long, value_name = "N", conflicts_with_all = ["hogs", "memory"])]
    groups: Option<usize>,
    // `requires` alone lets `--hogs 1 --messages 5` pass: clap waives it because --hogs
    // excludes --groups.
    /// Send this many messages from each sender to each receiver
    #[arg(short = 'l', long, value_name = "N", default_value_t = 100, requires = "groups", conflicts_with_all = ["hogs", "memory"])]
    messages: u64,
    /// Send messages of this many bytes
    #[arg(short, long, value_name = "BYTES", default_value_t = 100, requires = "groups", conflicts_with_all = ["hogs", "memory"])]
    size: usize,
    /// Start this many senders, and as many receivers, in each group
    #[arg(short, long, value_name = "N", default_value_t = 20, requires = "groups", conflicts_with_all = ["hogs", "memory"])]
    fds: usize,
    /// Send messages through pipes
    #[arg(short, long, requires = "groups", conflicts_with_all = ["socket", "hogs", "memory"])]
    pipe: bool,
    /// Send messages through Unix sockets [default]
    #[arg(long, requires = "groups", conflicts_with_all = ["hogs", "memory"])]
    socket: bool,
    /// Start senders and receivers as threads
    #[arg(short = 'T', long, requires = "groups", conflicts_with_all = ["process", "hogs", "memory"])]
    thread: bool,
    /// Start senders and receivers as processes [default]
    #[arg(short = 'P', long, requires = "groups", conflicts_with_all = ["hogs", "memory"])]
    process: bool,
    /// Start this many threads that only compute
    #[arg(long, value_name = "N")]
    hogs: Option<usize>,
    /// Start a thread that streams through this much memory, such as 64M
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    memory: Option<usize>,
    /// End after this time, such as 10s; groups send round after round until then
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<Ns>,
    #[command(flatten)]
    format: FormatArgs,
}

pub(crate) fn run(args: &StressArgs) -> anyhow::Result<Exit> {
    let signal = stop_signal()?;
    let text = match args.groups {
        Some(groups) => send(args, groups, &signal)?,
        None => hogs(args, &signal)?,
    };
    output::write(None, &text)?;
    Ok(Exit::Done)
}

fn send(args: &StressArgs, groups: usize, signal: &StopSignal) -> anyhow::Result<String> {
    let request = GroupsRequest {
        groups,
        fds: args.fds,
        messages: args.messages,
        size: args.size,
        transport: if args.pipe { Transport::Pipe } else { Transport::Socket },
        workers: if args.thread { Workers::Thread } else { Workers::Process },
    };
    let start = Instant::now();
    let over =
        || args.duration.is_some_and(|wanted| start.elapsed() >= Duration::from_nanos(wanted.0));
    let mut rounds = Vec::new();
    // This process forks and must have one thread: no progress line.
    let interrupted = loop {
        match run_groups(&request, &|| signal.requested() || over())? {
            Round::Done(time) => rounds.push(time),
            Round::Stopped => break signal.requested(),
        }
        if args.duration.is_none() || over() {
            break false;
        }
    };
    let value = || {
        let output = GroupsOutput::new(&request, &rounds, interrupted);
        Ok(serde_json::to_value(StressOutput::Groups(output))?)
    };
    args.format.print(None, value, |_| sent(&request, groups, &rounds))
}

/// Returns first how long the rounds took and what a round is, then the lines that hackbench
/// prints.
fn sent(request: &GroupsRequest, groups: usize, rounds: &[Ns]) -> String {
    let mut sorted = rounds.to_vec();
    sorted.sort_unstable();
    let time = |time: &Ns| format!("{:.3} s", time.0 as f64 / 1e9);
    let mut text = match &sorted[..] {
        [] => "Stopped before the first round was over.".to_owned(),
        [only] => format!("A round took {}.", time(only)),
        [least, .., most] => {
            // Of two values in the middle the lower one.
            let median = &sorted[(sorted.len() - 1) / 2];
            let rounds = sorted.len();
            format!(
                "A round took {} (median of {rounds}, {} to {}).",
                time(median),
                time(least),
                time(most)
            )
        }
    };
    let _ = writeln!(
        text,
        " In a round {} tasks in {groups} group{} send {} messages of {} bytes.",
        request.tasks(),
        if groups == 1 { "" } else { "s" },
        request.total_messages(),
        request.size
    );
    for time in rounds {
        let _ = writeln!(text, "Time: {:.3}", time.0 as f64 / 1e9);
    }
    text
}

fn hogs(args: &StressArgs, signal: &StopSignal) -> anyhow::Result<String> {
    let request = HogsRequest {
        hogs: args.hogs.unwrap_or(0),
        memory_bytes: args.memory.unwrap_or(0),
        duration: args.duration,
    };
    let working = Working::new("load is on, Ctrl-C ends it".to_owned(), true);
    let start = Instant::now();
    let reports = run_hogs(&request, &|| signal.requested())?;
    let elapsed = start.elapsed();
    drop(working);
    let value = || {
        Ok(serde_json::to_value(StressOutput::Hogs(HogsOutput {
            schema: SCHEMA,
            load: "hogs",
            request: &request,
            elapsed_ns: elapsed.as_nanos() as u64,
            threads: &reports,
            interrupted: signal.requested(),
        }))?)
    };
    args.format.print(None, value, |_| worked(&reports, elapsed))
}

fn worked(reports: &[HogReport], elapsed: Duration) -> String {
    let cpu: u64 = reports.iter().map(|report| report.cpu_ns.0).sum();
    let seconds = elapsed.as_secs_f64();
    let least = reports.iter().map(|report| report.share).fold(f64::INFINITY, f64::min);
    let mut text = format!(
        "{} {} had {:.3} s of CPU time in {seconds:.3} s. The one that had least got {:.1} % of a \
         CPU.\n",
        reports.len(),
        if reports.len() == 1 { "thread" } else { "threads" },
        cpu as f64 / 1e9,
        if least.is_finite() { least * 100.0 } else { 0.0 }
    );
    for HogReport { kind, cpu_ns, share, bytes } in reports {
        let _ =
            write!(text, "{kind:6}  CPU {:8.3} s  {:5.1} %", cpu_ns.0 as f64 / 1e9, share * 100.0);
        if *bytes > 0 {
            let _ = write!(text, "  {:.2} GB/s", *bytes as f64 / elapsed.as_nanos().max(1) as f64);
        }
        text.push('\n');
    }
    text
}

/// Reads a number of bytes up to 64 GiB: this is a load, not a test of the machine's limits.
fn memory_size(text: &str) -> anyhow::Result<usize> {
    let bytes = schedlab_model::text::bytes(text)
        .ok_or_else(|| anyhow!("give bytes with K, M or G, such as 64M"))?;
    if !(4096..=1 << 36).contains(&bytes) {
        return Err(anyhow!("from 4K to 64G"));
    }
    Ok(usize::try_from(bytes)?)
}
