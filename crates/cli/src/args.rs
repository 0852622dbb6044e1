//! The command line.

use crate::commands;
use clap::{ArgAction, Parser, Subcommand, ValueEnum};
use schedlab_host::Backend;
use schedlab_model::Ns;
use schedlab_scheduler::SchedulerSpec;
use std::path::PathBuf;

/// Would another scheduler serve this workload better? Record a real machine, or write a scenario, and compare.
#[derive(Debug, Parser)]
#[command(
    name = "schedlab",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  schedlab compare two-hogs                              a scenario of the gallery
  schedlab record -o redis.slt --for 5s --all            what this machine does now
  schedlab compare redis.slt --variant 'batch idle: sysbench policy=idle'
  schedlab show redis.slt --worst 10                     who waited longest, and why
  schedlab doctor                                        what can be recorded here

Exit codes: 0 done, 1 an expectation failed, 2 bad input or not possible here, 3 not to be trusted."
)]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Record what the scheduler of this machine does
    Record(Record),
    /// Analyse a recording, or the events of a simulated scenario
    Show(commands::show::Show),
    /// Watch the scheduler live: latencies, the worst waits, who delays whom
    Watch(commands::watch::Watch),
    /// Compare two recordings, or two results, task by task and cgroup by cgroup
    Diff(commands::diff::Diff),
    /// Write a random scenario
    Generate(commands::generate::Generate),
    /// Turn a Perfetto trace, or the text of `perf script` or ftrace, into a recording; an rt-app workload into a scenario
    Import(Import),
    /// Write a recording for other tools: Perfetto, ftrace, perf script, CSV
    Export(commands::export::Export),
    /// Play a recording or a scenario under other schedulers and settings
    Compare(Compare),
    /// Every published figure of the gallery's scenarios beside what comes out here, and why it differs
    Published(commands::published::Args),
    /// Show the schedulers or the scenarios that there are
    List(List),
    /// The cost of a scheduling decision: of the model (`bench model`), and live under real locks (`bench runqueue`)
    Bench(commands::bench::Bench),
    /// Measure how late threads wake on this machine: the ladder up to the maximum, and a verdict
    Latency(commands::latency::Latency),
    /// Load this machine: senders and receivers as hackbench has them, CPU hogs, memory streams
    Stress(commands::stress::Stress),
    /// Measure what this machine's own work costs, and keep it as the cost preset this-machine
    Calibrate(commands::calibrate::Calibrate),
    /// Repeat the documents' experiments with the real programs: article, this machine, simulated
    Experiment(commands::experiment::Experiment),
    /// Say what this kernel and these permissions allow
    Doctor(Doctor),
    /// Find the mildest setting under which a server beside batch work meets its goal
    Colocate(commands::colocate::Colocate),
    /// Run a command under a scheduler of ours, on real CPUs
    Run(commands::run::Run),
    /// Take running processes under a scheduler of ours
    Attach(commands::run::Attach),
    /// Check that the log of a live run gives the same decisions again
    Verify(commands::run::Verify),
    /// Run the variants and schedulers of `compare` on the real threads: predicted beside live
    Confirm(commands::confirm::Confirm),
    /// Watch a managed machine: latencies, who delays whom, what agents cost and what they gain
    Top(commands::top::Top),
    /// Show which running threads schedlab manages now
    Status(commands::status::Status),
    /// Give back everything that schedlab manages
    Detach(commands::restore::Detach),
    /// Give back what a crashed schedlab left behind
    Restore(commands::restore::Restore),
    /// (A part of an experiment; schedlab starts it itself)
    #[command(hide = true)]
    Part(commands::part::Part),
    /// (Watches over a process that changes threads; schedlab starts it itself)
    #[command(hide = true)]
    Guardian(commands::guardian::Guardian),
}

/// `schedlab record`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab record -o all.slt --for 5s --all               the whole machine for 5 seconds
  schedlab record -o redis.slt --for 5s -- ./bench.sh     while a command runs, 5 seconds at most
  schedlab record -o redis.slt --pid 4711                 it and its children alone, until it ends
  schedlab record -o redis.slt --pid 4711 --all           the whole machine, until process 4711 ends
  schedlab record -o batch.slt --cgroup /batch --for 1m   the tasks of a control group alone
  schedlab record -o long.slt --all --max-size 2G         until the file has 2 GiB (or Ctrl-C)
  schedlab record --ring 30s --until 'redis-server wait > 10ms' -o incident.slt
                                                          the 30 seconds before such a wait

Record the whole machine where you can: who disturbs a task is as interesting as the task. With --pid or --cgroup \
alone the others are left out in the kernel (backend bpf), and stand in the file as one task `others/N` on each \
CPU.")]
pub(crate) struct Record {
    /// The recording to write (.slt)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Stop after this time, such as 5s
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) duration: Option<Ns>,
    /// Record every task of the machine, until --for or Ctrl-C, or until the command or --pid ends
    #[arg(long, conflicts_with = "cgroup")]
    pub(crate) all: bool,
    /// Record this process and its children until it ends (may be given several times); with --all, everybody
    #[arg(long, value_name = "N", conflicts_with = "run")]
    pub(crate) pid: Vec<u32>,
    /// Record the tasks of this control group: its directory, or its path such as /batch
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    pub(crate) cgroup: Option<String>,
    /// Flight recorder: keep only the last of it in memory, such as 30s, and write that at the end
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) ring: Option<Ns>,
    /// End at this event: '[TASK] wait|run|block > TIME', such as 'redis-server wait > 10ms' or 'ran > 50ms'
    #[arg(long, value_name = "EVENT")]
    pub(crate) until: Vec<String>,
    /// Go on for this long after the event
    #[arg(long, value_name = "TIME", requires = "until", allow_hyphen_values = true)]
    pub(crate) after: Option<Ns>,
    /// End before the file would be larger than this, such as 500M; with --ring: memory for events [256M]
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_size: Option<String>,
    /// How to record: bpf, tracepoints, switches or own [default: the best that works]
    #[arg(long, value_name = "BACKEND")]
    pub(crate) backend: Option<Backend>,
    /// Run the recorder itself on this CPU only
    #[arg(long, value_name = "CPU")]
    pub(crate) recorder_cpu: Option<u32>,
    /// Do not measure first what recording costs a switch (up to 300 ms); replays then take what its tier costs usually
    #[arg(long)]
    pub(crate) no_calibration: bool,
    /// A line about the recording, kept in its header
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) note: String,
    /// Print what was recorded as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The command to run: the whole machine is recorded while it runs (by --backend own, only the command)
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) run: Vec<String>,
}

/// `schedlab compare`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab compare redis-batch
  schedlab compare my.toml --scheduler linux-6.1 --scheduler linux-6.18:base_slice_ns=6ms
  schedlab compare redis.slt --variant 'batch idle: sysbench policy=idle' \\
                             --variant 'redis fifo: redis-server policy=fifo:1'
  schedlab compare redis.slt --variant 'capped: sysbench group=/batch ; /batch cpu.max=50ms/100ms'
  schedlab compare redis.slt --variant 'twice the work: redis-server demand=x2' --json
  schedlab compare redis.slt --variant 'idle: sysbench policy=idle' --report out.html
  schedlab compare redis.slt --variant 'idle: sysbench policy=idle' --check 'idle=redis-idle.slt'
  schedlab compare redis.slt --variant 'idle: sysbench policy=idle' \\
                             --fail-if 'redis-server latency p99 > 1ms' \\
                             --fail-if 'idle: sysbench throughput < -10%'

A variant is 'NAME: TARGET SETTING... ; TARGET SETTING...'. Targets: a task (name, glob such as 'worker-*', or \
pid of a recording), a control group (/path), a source, or `scheduler` (settings are its knobs). Settings of \
tasks: policy=other|batch|idle|fifo:N|rr:N nice=N cpus=0-3 slice=3ms group=/path demand=x2 off. Of groups:
cpu.max=50ms/100ms cpu.weight=N cpu.idle=on cpus=0-3, on Xen cap=N weight=N guest=SCHEDULER|none. Of sources: rate=x2 clients=N.

A gate (--fail-if) is '[ROW: ]SUBJECT METRIC OP VALUE[ against ROW]'; ROW: a variant or scheduler [every row but the \
first]. A VALUE with a sign is the change against the first row (+20%, -1ms), or against the ROW named at the end.

A recording is first compared with its own simulation; no change smaller than that error is claimed.

Exit codes: 0 done, 1 an expectation or a gate failed, 3 the simulation does not reproduce the recording, or the data \
cannot carry a gate.")]
pub(crate) struct Compare {
    /// A recording (.slt), a scenario (.toml), an rt-app workload (.json), or the name of a scenario (`schedlab list
    /// scenarios`)
    pub(crate) input: String,
    /// A scheduler with knobs, such as linux-6.18:base_slice_ns=6ms (may be given several times)
    #[arg(short, long = "scheduler", value_name = "SCHEDULER")]
    pub(crate) schedulers: Vec<SchedulerSpec>,
    /// Something to try: 'NAME: TASK policy=idle' (may be given several times)
    #[arg(long = "variant", value_name = "VARIANT")]
    pub(crate) variants: Vec<String>,
    /// First seed of the random streams
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// How many seeds: more make narrower claims [default: 5 for recordings, else what the scenario says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) seeds: Option<u32>,
    /// Simulate this long, such as 2s [default: the whole recording, or what the scenario says]
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) duration: Option<Ns>,
    /// Costs of the machine instead of the scenario's: a preset such as modern-vm, or this-machine (`schedlab calibrate`)
    #[arg(long, value_name = "PRESET")]
    pub(crate) costs: Option<String>,
    /// The scheduler that stands for the recorded kernel [default: by the kernel's version]
    #[arg(long, value_name = "SCHEDULER")]
    pub(crate) recorded_under: Option<SchedulerSpec>,
    /// 'VARIANT=FILE': a recording of what a variant really did; prints predicted against recorded
    #[arg(long = "check", value_name = "VARIANT=FILE")]
    pub(crate) checks: Vec<String>,
    /// Fail (exit 1) when this holds: 'redis-server latency p99 > 1ms' (may be given several times)
    #[arg(long = "fail-if", value_name = "EXPR")]
    pub(crate) fail_if: Vec<String>,
    /// Threads; 0 = one per CPU. The result does not depend on it
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    pub(crate) jobs: usize,
    /// Scenarios: first run each scheduler three times under every assertion (the same again, every tick delivered, no task
    /// forgotten); what fails ends with exit code 3
    #[arg(long)]
    pub(crate) assert: bool,
    /// Show every class of tasks, also those that use next to nothing
    #[arg(long)]
    pub(crate) all_tasks: bool,
    /// Show the fitted constants and costs, the knobs, and how the errors are computed
    #[arg(long)]
    pub(crate) explain: bool,
    /// Write a page to this file too: one HTML file with charts that needs nothing else
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Print the result as JSON (docs/result-schema.md)
    #[arg(long)]
    pub(crate) json: bool,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// `schedlab list`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab list schedulers
  schedlab list schedulers -v          with every knob
  schedlab list scenarios")]
pub(crate) struct List {
    /// What to list
    pub(crate) what: What,
    /// Show knobs (schedulers) or the story (scenarios)
    #[arg(short, long, action = ArgAction::SetTrue)]
    pub(crate) verbose: bool,
    /// Schedulers: which of them can run real threads (`schedlab run`), and what they need
    #[arg(long)]
    pub(crate) live: bool,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What can be listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum What {
    /// Schedulers and their knobs
    Schedulers,
    /// The gallery
    Scenarios,
}

/// `schedlab import`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  perf sched record -- sleep 5 && perf script | schedlab import - -o mine.slt
  trace-cmd report | schedlab import - -o mine.slt
  schedlab import perf.txt -o mine.slt
  schedlab import trace.pftrace -o mine.slt              a Perfetto trace with sched events
  schedlab import workload.json -o mine.toml             an rt-app workload becomes a scenario

Lossy or misordered input is repaired; the last line says how much was.")]
pub(crate) struct Import {
    /// A Perfetto trace, or the text of `perf script` or of ftrace, with sched events, or an rt-app workload (.json); `-` is
    /// standard input
    pub(crate) input: String,
    /// The recording (.slt) or scenario (.toml) to write
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Take the running task for the waker even where the text does not show whether an interrupt woke
    #[arg(long)]
    pub(crate) current_is_waker: bool,
}

/// `schedlab doctor`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab doctor
  schedlab doctor --json")]
pub(crate) struct Doctor {
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    /// As wide as help is at most.
    const WIDTH: usize = 100;

    /// What a line that is wrapped twice looks like is known: a word alone. Prose is one line for clap to wrap, an example fits.
    fn check(command: &clap::Command, path: &str) {
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        for (line, next) in lines.iter().zip(lines.iter().skip(1).chain([&""])) {
            assert!(!line.starts_with(' ') || line.chars().count() <= WIDTH, "{path}: too wide: {line}");
            let goes_on = !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
            let hard = goes_on && !next.is_empty() && !next.starts_with(' ');
            assert!(!hard, "{path}: end the line with a backslash, so that clap wraps it: {line}");
        }
        command.get_subcommands().for_each(|inner| check(inner, &format!("{path} {}", inner.get_name())));
    }

    #[test]
    fn help_is_wrapped_once() {
        check(&Args::command(), "schedlab");
    }
}
