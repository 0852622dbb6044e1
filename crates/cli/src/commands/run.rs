//! `schedlab run`: a command under a schedlab scheduler. Also the options and the report that
//! `attach` has in common with it.

use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::options::stop_signal;
use crate::output;
use crate::render::Style;
use anyhow::{Context, anyhow, bail};
use schedlab_host::OwnCommand;
use schedlab_live::RunDir;
use schedlab_live::driver::{DriverOptions, DriverReport, ExtCounts, LogLine, RunOutput};
use schedlab_live::elevation;
use schedlab_model::{CpuSet, Ns, Policy};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Steps of a log, at most: some minutes of a busy server.
const LOG_STEPS: usize = 200_000;
/// Threads of one run, at most.
const CAPACITY: usize = 2_048;

/// How threads are made to run in the order of a schedlab scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Driver {
    /// By SCHED_FIFO priorities, above every fair thread: on any kernel
    Elevation,
    /// In the kernel's class for schedulers, below every fair thread: Linux 6.12 and later, built
    /// with sched_ext
    SchedExt,
}

/// The options of `run` and `attach`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManageArgs {
    /// Run the threads under this scheduler, such as shinjuku:quantum=200us (see
    /// `schedlab list schedulers --live`)
    #[arg(long, value_name = "SCHEDULER")]
    scheduler: String,
    /// Enforce the scheduler's decisions with this driver: elevation or sched-ext
    /// (docs/sched-ext.md)
    #[arg(long, value_enum, value_name = "DRIVER", default_value = "elevation")]
    driver: Driver,
    /// Manage these CPUs, such as 0 or 1-3 (several: tried in QEMU guests only, docs/guests.md);
    /// one CPU of the machine must stay unmanaged
    #[arg(long, value_name = "CPUS", default_value = "0")]
    cpus: String,
    /// Treat threads of this name as if they had this policy, such as sysbench=batch (may be given
    /// several times)
    #[arg(long = "task", value_name = "NAME=POLICY")]
    tasks: Vec<String>,
    /// Give a runnable thread back to the kernel when it waits longer than this
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    starve_after: Ns,
    /// Write every step and decision, for `schedlab verify`
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// End after this time
    #[arg(long = "for", value_name = "TIME")]
    duration: Option<Ns>,
    #[command(flatten)]
    format: FormatArgs,
}

/// `schedlab run`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab run --scheduler shinjuku:quantum=200us --cpus 0 -- ./my-server
  schedlab run --scheduler rr:slice_ns=20ms --for 5s -- sh -c 'yes & yes & wait' >/dev/null
  schedlab run --scheduler layers --task sysbench=batch --log run.calls -- ./both.sh
  schedlab run --driver sched-ext --scheduler shinjuku:quantum=5ms --cpus 1-3 -- ./my-server

Needs root. The threads get SCHED_FIFO priorities 1 to 3 while they are managed (SCHED_EXT with \
--driver sched-ext); a guardian process gives everything back \
within 100 ms when schedlab dies, `schedlab restore` when the guardian dies too. The command ends \
with schedlab, whatever ends \
that, and so does whatever the command started.")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    manage: ManageArgs,
    /// Run this command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl ManageArgs {
    /// Runs the threads of `pids` until `done` says so; see [`elevation::manage`].
    pub(super) fn manage(
        &self,
        options: &DriverOptions,
        pids: &[u32],
        begin: impl FnOnce() + Send,
        done: impl FnMut() -> bool + Send,
    ) -> anyhow::Result<DriverReport> {
        match self.driver {
            Driver::Elevation => Ok(elevation::manage(options, pids, begin, done)?),
            Driver::SchedExt => by_sched_ext(options, pids, begin, done),
        }
    }

    pub(super) fn options(&self) -> anyhow::Result<DriverOptions> {
        // Before a command is started.
        #[cfg(not(feature = "sched-ext"))]
        if self.driver == Driver::SchedExt {
            return Err(not_built());
        }
        let cpus: CpuSet =
            self.cpus.parse().map_err(|error| anyhow!("--cpus {}: {error}", self.cpus))?;
        if cpus.is_empty() {
            bail!("--cpus {}: name the CPUs to manage, such as --cpus 0", self.cpus);
        }
        if let Some(path) = &self.log {
            output::check(path)?;
        }
        Ok(DriverOptions {
            command: None,
            scheduler: self.scheduler.clone(),
            cpus,
            starve_after: self.starve_after,
            declared: self
                .tasks
                .iter()
                .map(|text| declared(text))
                .collect::<anyhow::Result<_>>()?,
            capacity: CAPACITY,
            run_dir: RunDir::standard()?,
            program: std::env::current_exe()
                .context("finding the program that becomes the guardian")?,
            log_steps: if self.log.is_some() { LOG_STEPS } else { 0 },
        })
    }

    /// Returns whether a signal has come, or the time is up: it begins with the first question,
    /// when the threads are managed.
    pub(super) fn done(&self) -> anyhow::Result<impl FnMut() -> bool + Send + use<>> {
        let signal = stop_signal()?;
        let (mut start, limit) = (None, self.duration.map(|time| Duration::from_nanos(time.0)));
        Ok(move || {
            let start: Instant = *start.get_or_insert_with(Instant::now);
            signal.requested() || limit.is_some_and(|limit| start.elapsed() >= limit)
        })
    }

    pub(super) fn finish(&self, report: &DriverReport) -> anyhow::Result<Exit> {
        if let Some(path) = &self.log {
            output::write(Some(path), &log_text(report)?)?;
        }
        let text = self.format.print(
            None,
            || Ok(serde_json::to_value(RunOutput::from(report))?),
            |style| as_text(report, style),
        )?;
        output::write(None, &text)?;
        Ok(if report.restored.complete() { Exit::Done } else { Exit::Untrusted })
    }
}

#[cfg(feature = "sched-ext")]
fn by_sched_ext(
    options: &DriverOptions,
    pids: &[u32],
    begin: impl FnOnce() + Send,
    done: impl FnMut() -> bool + Send,
) -> anyhow::Result<DriverReport> {
    use std::io::Write as _;
    let warn = move |loads: &[schedlab_ext::fair_load::FairLoad]| {
        for load in loads {
            // Nothing is left to do when standard error is gone.
            let _ = writeln!(
                std::io::stderr(),
                "warning: {} % of CPU {} goes to {}, whose class goes before sched_ext's: managed \
                 threads get what is left",
                load.share,
                load.cpu.0,
                load.by
            );
        }
    };
    Ok(schedlab_ext::manage(options, pids, warn, begin, done)?)
}

#[cfg(not(feature = "sched-ext"))]
fn by_sched_ext(
    _: &DriverOptions,
    _: &[u32],
    _: impl FnOnce() + Send,
    _: impl FnMut() -> bool + Send,
) -> anyhow::Result<DriverReport> {
    Err(not_built())
}

/// Says how to build a program that has the driver.
#[cfg(not(feature = "sched-ext"))]
pub(super) fn not_built() -> anyhow::Error {
    anyhow!(
        "--driver sched-ext: this schedlab was built without it, because it links libelf and zlib \
         of the system. Build it so: apt-get install \
         libelf-dev zlib1g-dev pkg-config; cargo build --release -p schedlab-cli --features \
         sched-ext"
    )
}

fn declared(text: &str) -> anyhow::Result<(String, Policy)> {
    let (name, policy) = text.split_once('=').ok_or_else(|| {
        anyhow!(
            "--task {text}: write NAME=POLICY, such as sysbench=batch (NAME as `ps -eLo comm` \
                 shows it)"
        )
    })?;
    let policy = policy.parse().map_err(|error| anyhow!("--task {text}: {error}"))?;
    Ok((name.to_owned(), policy))
}

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<Exit> {
    let mut options = args.manage.options()?;
    let mut done = args.manage.done()?;
    let command = OwnCommand::start(&args.command, true)?;
    let pid = command.pid();
    options.command = Some(command.mark().to_owned());
    let command = Mutex::new(command);
    let held = || command.lock().unwrap_or_else(PoisonError::into_inner);
    let result =
        args.manage.manage(&options, &[pid], || held().go_on(), || done() || held().ended());
    command.into_inner().unwrap_or_else(PoisonError::into_inner).end();
    args.manage.finish(&result?)
}

fn log_text(report: &DriverReport) -> anyhow::Result<String> {
    let mut text = serde_json::to_string(&report.core)? + "\n";
    for line in &report.log {
        text += &serde_json::to_string::<LogLine>(line)?;
        text.push('\n');
    }
    Ok(text)
}

/// Returns the line that only the sched_ext driver has. `kept`: per cent of a CPU.
fn sched_ext_text(ext: &ExtCounts, kept: f64) -> String {
    format!(
        "other classes kept managed CPUs from chosen threads for {kept:.1} % of a CPU; {} threads \
         that were queued ahead took a CPU \
         without waiting for the agent; {} decisions came too early and were repeated; {} threads \
         displaced, {} taken by CPUs while the \
         agent was silent; {} events lost\n",
        ext.ahead, ext.early, ext.displaced, ext.alone, ext.lost
    )
}

fn as_text(report: &DriverReport, style: &Style) -> String {
    let counts = &report.counts;
    let elapsed = report.elapsed.0.max(1) as f64;
    let percent = |ns: u64| 100.0 * ns as f64 / elapsed;
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{} for {}: {} decisions, {} switches, {} wakeups ({} more without an event)",
        style.bold(&report.core.scheduler),
        report.elapsed,
        counts.decisions,
        counts.switches,
        counts.wakeups,
        counts.wakeups_found
    );
    let _ = writeln!(
        text,
        "agents and block detectors used {:.1} % of a CPU; {} yield windows; {} stale commits; \
         threads released after a long wait: {}, \
         changed by other programs: {}, not managed for lack of room: {}",
        percent(counts.agent_cpu_ns),
        counts.yield_windows,
        counts.stale,
        counts.starved,
        counts.changed_by_others,
        counts.refused
    );
    if counts.migrations > 0 {
        let _ = writeln!(text, "sent to another managed CPU {} times", counts.migrations);
    }
    text += &counts
        .sched_ext
        .as_ref()
        .map_or(String::new(), |ext| sched_ext_text(ext, percent(ext.kept_by_others_ns)));
    // Now and then it happens on every machine: a quantum that is too short shows in most
    // decisions.
    if counts.postponed * 4 > counts.decisions {
        let _ = writeln!(
            text,
            "slices were longer than asked for after {} of {} decisions: the agents take as long \
             to decide; a longer quantum or slice \
             wastes less",
            counts.postponed, counts.decisions
        );
    }
    if report.silence > schedlab_live::driver::SILENCE {
        let _ = writeln!(
            text,
            "this machine kept real-time threads waiting for up to {}: the guardian waited {} ms \
             for a heartbeat",
            report.stall,
            report.silence.as_millis()
        );
    }
    if counts.unlogged > 0 {
        let _ = writeln!(text, "the log was full: it lacks {} steps", counts.unlogged);
    }
    for thread in &report.threads {
        let _ = writeln!(
            text,
            "  {:>7}  {:<16} chosen {:5.1} %",
            thread.tid,
            thread.comm,
            percent(thread.chosen_ns)
        );
    }
    text
}
