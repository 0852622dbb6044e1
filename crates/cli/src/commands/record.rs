//! `schedlab record`

mod incidents;

use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::options::stop_signal;
use crate::output;
use crate::progress::RecordingLine;
use anyhow::{Context, anyhow, bail};
use schedlab_host::privileges::{Duty, to_write_in};
use schedlab_host::{
    Backend, Messages, Preparing, RecordFilter, RecordRequest, RecordStart, RecordUntil,
    RecordingCapabilities, StopSignal,
};
use schedlab_lab::record::output::RecordOutput;
use schedlab_lab::record::{
    RecordObserver, RecordPlan, RecordProgress, Recorded, SMALLEST_FILE, Snapshot, StopConditions,
    record,
};
use schedlab_model::text::{shell_word, shown};
use schedlab_model::{CpuId, Ns};
use schedlab_trace::{FactLoss, too_much_lost};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// `schedlab record`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab record -o all.slt --for 5s --all               the whole machine for 5 seconds
  schedlab record --for 5s --all                          the same, into a file named by the date
  schedlab record -o redis.slt --for 5s -- ./bench.sh     while a command runs, 5 seconds at most
  schedlab record -o redis.slt --pid 4711                 process 4711 and its children
  schedlab record -o redis.slt --pid 4711 --all           the whole machine, until process 4711 \
  ends
  schedlab record -o batch.slt --cgroup /batch --for 1m   the tasks of a control group alone
  schedlab record -o long.slt --all --max-size 2G         until the file has 2 GiB (or Ctrl-C)
  schedlab record --ring 30s --until 'redis-server wait > 10ms' -o incident.slt
                                                          the 30 seconds before such a wait
  schedlab record --ring 30s --until 'redis-server wait > 10ms' --exec ./tell.sh -o incident.slt
                                                          then a script; --keep 5 goes on

Record the whole machine where you can: the tasks that disturb a task are as interesting as the \
task. With --pid or --cgroup \
alone the kernel leaves all others out (backend bpf), and the file has them as one task \
`others/N` on each CPU.

A recording that is there stays until the new one is whole; if the recorder is killed, what it \
had is in FILE.RANDOM.part.


Exit codes: 0 done, 1 the event of --until did not come, 3 more than one event or fact in a \
hundred was lost.")]
pub(crate) struct RecordArgs {
    /// Write this recording (.slt); `-` is standard output [default: schedlab-DATE.slt, in this
    /// folder]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Stop after this time, such as 5s
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<Ns>,
    /// Record every task of the machine, until --for or Ctrl-C, or until the command or --pid ends
    #[arg(long, conflicts_with = "cgroup")]
    all: bool,
    /// Record this process and its children until it ends (may be given several times); with --all,
    /// all tasks
    #[arg(long, value_name = "N", conflicts_with = "run")]
    pid: Vec<u32>,
    /// Record the tasks of this control group: its directory, or its path such as /batch
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    cgroup: Option<String>,
    /// Keep only the last events in memory, such as 30s of them, and write them at the end (flight
    /// recorder)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    ring: Option<Ns>,
    /// End at this event: '[TASK] wait|run|block > TIME', such as 'redis-server wait > 10ms' or
    /// 'ran > 50ms'
    #[arg(long, value_name = "EVENT")]
    until: Vec<String>,
    /// Run this shell command after the event, when the recording is written; its name is in
    /// $SCHEDLAB_FILE
    #[arg(long, value_name = "COMMAND", requires = "until")]
    exec: Option<String>,
    /// Go on after each event: write what --ring holds into FILE-1.slt, FILE-2.slt, ..., one a
    /// second at most, and keep the newest N. Stop with --for (total time) or Ctrl-C
    #[arg(long, value_name = "N", requires_all = ["until", "ring"], value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["json", "run"])]
    keep: Option<u32>,
    /// Go on for this long after the event
    #[arg(long, value_name = "TIME", requires = "until", allow_hyphen_values = true)]
    after: Option<Ns>,
    /// End before the file would be larger than this, such as 500M; with --ring: memory for events
    /// [256M]
    #[arg(long, value_name = "SIZE")]
    max_size: Option<String>,
    /// Record by bpf, tracepoints, switches or own [default: the best that works]
    #[arg(long, value_name = "BACKEND")]
    backend: Option<Backend>,
    /// Record what tasks exchange (sockets, pipes, futexes, sleeps) too: auto, on or off; auto
    /// leaves it out where the backend does not see it, and of the whole machine while it makes
    /// more than a million system calls a second
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    messages: Messages,
    /// Run the recorder itself on this CPU only
    #[arg(long, value_name = "CPU")]
    recorder_cpu: Option<u32>,
    /// Do not measure what recording costs a switch (up to 300 ms); replays then use the usual cost
    /// of the backend
    #[arg(long)]
    no_calibration: bool,
    /// Keep this line in the header of the recording
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    #[command(flatten)]
    format: FormatArgs,
    /// Run this command, and record the whole machine while it runs (with --backend own, only the
    /// command)
    #[arg(last = true, value_name = "COMMAND")]
    run: Vec<String>,
}

pub(crate) fn run(args: &RecordArgs) -> anyhow::Result<Exit> {
    let plan = plan(args)?;
    let signal = stop_signal()?;
    match args.keep {
        Some(keep) => incidents::incidents(args, plan, keep, &signal),
        None => {
            let made = once(args, &plan, &signal)?;
            incidents::misplaced(&plan.output, &made.recorded).map_or(Ok(made.exit), Err)
        }
    }
}

/// A recording, and how the command would end after it.
struct Made {
    exit: Exit,
    recorded: Recorded,
}

/// Makes one recording.
fn once(args: &RecordArgs, plan: &RecordPlan, signal: &StopSignal) -> anyhow::Result<Made> {
    output::check(&plan.output)?;
    let mut live = Live::new();
    let recorded = record(plan, &mut live, &|| signal.requested())?;
    drop(live);
    made(args, recorded)
}

/// Says what became of a recording, and runs the command of `--exec` if the event came.
fn made(args: &RecordArgs, recorded: Recorded) -> anyhow::Result<Made> {
    let file = recorded.file.as_path();
    let text = args.format.print(
        None,
        || Ok(serde_json::to_value(RecordOutput::new(file, &recorded))?),
        |_| text(args, file, &recorded),
    )?;
    output::say(file, &text)?;
    let bad = untrusted(recorded.end.lost, recorded.end.events, &recorded.fact_loss);
    let came = recorded.caught.is_some();
    if let Some(command) = args.exec.as_ref().filter(|_| came) {
        exec(command, file)?;
    }
    let exit = match () {
        () if !args.until.is_empty() && !came => Exit::ExpectationFailed,
        () if bad => Exit::Untrusted,
        () => Exit::Done,
    };
    Ok(Made { exit, recorded })
}

/// Runs the command of `--exec` in a shell, with the recording's name in SCHEDLAB_FILE. What it
/// prints goes to standard error: standard output is the report's.
fn exec(command: &str, file: &Path) -> anyhow::Result<()> {
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", command]).env("SCHEDLAB_FILE", file).stdout(std::io::stderr());
    let status =
        shell.status().with_context(|| format!("--exec '{command}': sh cannot be started"))?;
    if !status.success() {
        bail!("--exec '{command}': {status}; the recording is in {}", file.display());
    }
    Ok(())
}

/// Prints first what the recorder sees, then how the recording goes.
struct Live {
    line: RecordingLine,
    /// Explains a long wait for the beginning, until it begins.
    patience: Option<Patience>,
    /// Takes the recordings of events.
    send: Option<SyncSender<Snapshot>>,
    /// Events for whose recordings there was no room there.
    missed: u64,
}

impl Live {
    fn new() -> Live {
        Live { line: RecordingLine::new(), patience: None, send: None, missed: 0 }
    }
}

impl RecordObserver for Live {
    fn preparing(&mut self, what: Preparing) {
        match self.patience.get_or_insert_with(Patience::new).0.lock() {
            Ok(mut at) => *at = what,
            Err(poisoned) => *poisoned.into_inner() = what,
        }
    }

    fn started(&mut self, start: &RecordStart) {
        self.patience = None;
        let text = first_line(&start.capabilities);
        // Standard output begins with the answer, which comes at the end. Without standard error
        // the line is not needed.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }

    fn progress(&mut self, so_far: &RecordProgress) {
        self.line.set(so_far);
    }

    fn caught(&mut self, snapshot: Snapshot) {
        let Some(send) = &self.send else { return };
        self.missed += u64::from(send.try_send(snapshot).is_err());
    }
}

/// Time before the first line about a recording that does not begin, and between these lines.
const PATIENCE: Duration = Duration::from_secs(2);

/// Prints on standard error why a recording does not begin, until this is dropped.
struct Patience(
    Arc<Mutex<Preparing>>,
    #[expect(dead_code, reason = "ends the thread when it goes")] Sender<()>,
);

impl Patience {
    fn new() -> Patience {
        let (sender, over) = std::sync::mpsc::channel::<()>();
        let at = Arc::new(Mutex::new(Preparing::Opening));
        let shared = at.clone();
        std::thread::spawn(move || {
            let began = Instant::now();
            while over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let at = shared.lock().map_or(Preparing::Opening, |at| *at);
                // Without standard error the line is not needed.
                let _ =
                    std::io::stderr().write_all(waiting(at, began.elapsed().as_secs()).as_bytes());
            }
        });
        Patience(at, sender)
    }
}

/// Returns what a recording waits for before it begins.
fn waiting(at: Preparing, seconds: u64) -> String {
    let what = match at {
        Preparing::Opening => "making rings and loading programs into the kernel",
        Preparing::Measuring => {
            "measuring what recording costs here (`--no-calibration` leaves it out)"
        }
        Preparing::Beginning => "listing the tasks and switching recording on",
    };
    format!(
        "not yet recording after {seconds} s: {what}. Nice values and groups that keep all CPUs \
         busy hold up this program and \
         the kernel's threads that it waits for (rcu_preempt)\n"
    )
}

/// Returns what this backend sees, and which commands work with the recording.
fn first_line(found: &RecordingCapabilities) -> String {
    let tasks = match (found.backend, found.system_wide) {
        (Backend::OwnTasks, _) => "its own tasks only: the command's, or those of --pid",
        (_, true) => "every task of the machine",
        (_, false) => "the chosen tasks (all others are one task `others/N` on each CPU)",
    };
    let (name, works) = (found.backend.name(), found.backend.works(found.system_wide));
    let mut sees = found.backend.sees().to_owned();
    if found.calls {
        sees += ", in which system call a task blocked";
    }
    if found.limits {
        sees += ", when a limit (cpu.max, real time) held a task back";
    }
    if found.messages.is_ok() {
        sees += ", and what tasks exchange (show --messages)";
    }
    let mut lacks = Vec::new();
    if matches!(found.backend, Backend::Bpf | Backend::Tracepoints) {
        lacks.extend((!found.calls).then_some("system calls"));
        lacks.extend((!found.limits).then_some("limits (show --throttle infers them)"));
    }
    let mut lacks = if lacks.is_empty() {
        String::new()
    } else {
        format!(" It does not see {}.", lacks.join(" and "))
    };
    if let (Backend::Bpf, Err(why)) = (found.backend, &found.messages) {
        lacks += &format!(" It does not record messages: {why}.");
    }
    format!("recording by {name}, {tasks}: {sees}. With it {works}.{lacks}\n")
}

fn plan(args: &RecordArgs) -> anyhow::Result<RecordPlan> {
    let max_bytes = args.max_size.as_deref().map(max_size).transpose()?;
    if let Some(bytes) = max_bytes.filter(|&bytes| bytes < SMALLEST_FILE) {
        bail!("--max-size {bytes}: a recording needs at least {} KiB", SMALLEST_FILE / 1024);
    }
    if args.ring == Some(Ns::ZERO) {
        bail!("--ring 0: must be longer than 0, such as --ring 30s");
    }
    let until = args
        .until
        .iter()
        .map(|text| Ok(text.parse::<StopConditions>()?.0))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let until = (!until.is_empty()).then(|| StopConditions(until.concat()));
    Ok(RecordPlan {
        request: request(args)?,
        output: args.output.clone().unwrap_or_else(by_date),
        fresh: false,
        note: args.note.clone(),
        max_bytes,
        ring: args.ring,
        until,
        after: args.after.unwrap_or(Ns::ZERO),
        goes_on: false,
    })
}

/// Returns a name that no other recording of this folder has, as long as none begins in the same
/// second.
pub(super) fn by_date() -> PathBuf {
    let since_1970 =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let date = schedlab_model::text::iso8601(since_1970.as_nanos() as u64).replace(':', "-");
    PathBuf::from(format!("schedlab-{date}.slt"))
}

fn max_size(text: &str) -> anyhow::Result<u64> {
    let refused = || anyhow!("--max-size {text}: give bytes with K, M, G or T, such as 500M");
    schedlab_model::text::bytes(text).ok_or_else(refused)
}

fn request(args: &RecordArgs) -> anyhow::Result<RecordRequest> {
    let scope = if !args.run.is_empty() {
        RecordUntil::CommandEnds(args.run.clone())
    } else if !args.pid.is_empty() {
        RecordUntil::ProcessesEnd(args.pid.clone())
    } else if args.all || args.cgroup.is_some() || args.ring.is_some() || !args.until.is_empty() {
        // Without a name a flight recorder keeps all tasks.
        RecordUntil::Stopped
    } else {
        bail!(
            "say what to record: --all (the whole machine), --pid N, --cgroup PATH, or a command \
             after `--`, such as \
             schedlab record -o x.slt --for 5s -- ./bench.sh"
        );
    };
    if args.duration == Some(Ns::ZERO) {
        bail!("--for 0: must be longer than 0, such as --for 5s");
    }
    let mut request = RecordRequest::new(scope);
    request.duration = args.duration;
    request.backend = args.backend;
    request.measure_cost = !args.no_calibration;
    request.messages = args.messages;
    request.whole_machine = args.all;
    request.filter = match &args.cgroup {
        _ if args.all => RecordFilter::All,
        Some(path) => RecordFilter::Group(path.clone()),
        None if !args.pid.is_empty() => RecordFilter::Processes(args.pid.clone()),
        None => RecordFilter::All,
    };
    request.keep = kept(args);
    if let Some(cpu) = args.recorder_cpu {
        let cpus = schedlab_host::machine().online;
        if cpu as usize >= schedlab_model::MAX_CPUS || !cpus.contains(CpuId(cpu)) {
            bail!("--recorder-cpu {cpu}: this machine has the CPUs {cpus}");
        }
        request.recorder_cpu = Some(CpuId(cpu));
    }
    Ok(request)
}

/// Returns the capabilities that the output needs; `None`: all stay, because more files are written
/// (--keep), or a command of the user follows (--exec).
fn kept(args: &RecordArgs) -> Option<Vec<Duty>> {
    if args.keep.is_some() || args.exec.is_some() {
        return None;
    }
    let file = args.output.as_deref().filter(|path| !output::is_stdout(path));
    let folder = match file.and_then(Path::parent) {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    Some(to_write_in(folder).into_iter().collect())
}

/// Returns the report: first whether the event came and what the file holds, then what the
/// recording cost.
fn text(args: &RecordArgs, file: &Path, recorded: &Recorded) -> String {
    let end = &recorded.end;
    let name = file.display().to_string();
    let path = shown(&name);
    let mut text = match &recorded.caught {
        Some(caught) => format!("The event came, caught: {caught}.\n"),
        None if !args.until.is_empty() => "The event of --until did not come.\n".to_owned(),
        None => String::new(),
    };
    let lost = if end.lost > 0 {
        format!("{} events were lost", end.lost)
    } else {
        "no event was lost".to_owned()
    };
    text += &match recorded.kept {
        Some(kept) => format!(
            "{path} holds the last {} of {}: {} events of {} threads; {lost}.\n",
            kept.duration, end.duration, kept.events, recorded.tasks
        ),
        None => {
            format!(
                "{path} holds {}: {} events of {} threads; {lost}.\n",
                end.duration, end.events, recorded.tasks
            )
        }
    };
    text += &facts(&recorded.fact_loss);
    text += &cost(recorded);
    if end.stolen > Ns::ZERO {
        text += &format!("the hypervisor took {} of CPU time away meanwhile\n", end.stolen);
    }
    if recorded.kept.is_some_and(|kept| kept.short) {
        text += "memory was too small for more: give more with --max-size\n";
    }
    if recorded.full {
        text += "the recording ended early: the file has the size that --max-size allows\n";
    }
    if end.lost > 0 || recorded.fact_loss.lost > 0 {
        text += "to lose fewer events record for a shorter time, or put the recorder on a quiet \
                 CPU with --recorder-cpu\n";
    }
    match end.exit {
        Some(status) if !status.success() => text += &format!("the command ended with {status}\n"),
        _ => {}
    }
    let replays =
        recorded.system_wide && matches!(recorded.backend, Backend::Bpf | Backend::Tracepoints);
    let (name, compare) = (shell_word(&name), replays.then_some("schedlab compare"));
    text + &match (&recorded.caught, compare) {
        // Both begin with what was caught.
        (Some(caught), Some(compare)) => {
            format!("next: schedlab show {name}\n      {compare} {name} --around {}\n", caught.from)
        }
        (Some(_), None) => format!("next: schedlab show {name}\n"),
        (None, Some(compare)) => format!("next: {compare} {name}\n"),
        (None, None) => String::new(),
    }
}

/// Returns whether so many events or facts are missing that the recording cannot be trusted.
fn untrusted(lost: u64, events: u64, facts: &FactLoss) -> bool {
    too_much_lost(lost, events) || facts.is_too_much()
}

/// Returns how many facts were recorded and how many are missing, where messages were recorded.
fn facts(loss: &FactLoss) -> String {
    let missing = loss.sentence().unwrap_or_else(|| "none was lost".to_owned());
    match loss.facts + loss.lost {
        0 => String::new(),
        _ => format!("It has {} facts of what tasks exchanged; {missing}.\n", loss.facts),
    }
}

/// Returns what the recording cost, and by which way it was made.
fn cost(recorded: &Recorded) -> String {
    let added = recorded.cost_ns_per_switch.map_or(String::new(), |cost| {
        format!(
            "Recording added {} to a context switch with its wakeup (measured before it); ",
            Ns(cost)
        )
    });
    let the = if added.is_empty() { "The" } else { "the" };
    // What it used is known at its end.
    let used = match recorded.end.recorder_cpu {
        Ns::ZERO => String::new(),
        cpu => format!("used {cpu} of CPU and "),
    };
    format!(
        "{added}{the} recorder {used}wrote {} KiB, by {}.\n",
        recorded.file_bytes.div_ceil(1024),
        recorded.backend.name()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{Fact, FactKind, ObjectId, Transfer};

    fn loss(kinds: &[FactKind]) -> FactLoss {
        let fact = |kind: &FactKind| Fact { at: Ns(1), cpu: CpuId(0), task: None, kind: *kind };
        FactLoss::of(&kinds.iter().map(fact).collect::<Vec<_>>())
    }

    #[test]
    fn lost_facts_count_as_lost_events_do() {
        let sent = |place| {
            let moved = Transfer { place: Some(place), ..Transfer::done(ObjectId(0), 100) };
            FactKind::Send(moved)
        };
        let whole: Vec<FactKind> = (1..=100).map(|n| sent(n * 100)).collect();
        let with = |kind| loss(&[&whole[..], &[kind]].concat());
        assert_eq!(facts(&loss(&[])), "");
        assert!(facts(&loss(&whole)).ends_with("none was lost.\n"));
        assert!(!untrusted(10, 1000, &loss(&whole)) && untrusted(11, 1000, &loss(&whole)));
        let few = with(FactKind::Lost { count: 1 });
        assert!(!untrusted(0, 1000, &few), "{}", facts(&few));
        let many = with(FactKind::Lost { count: 2 });
        assert!(untrusted(0, 1000, &many), "{}", facts(&many));
        assert!(facts(&many).contains("the recorder lost 2 facts (1.96 % of 102)"));
        // Where the kernel skipped a program no record says so, but the places do.
        let skipped = with(sent(10_300));
        assert!(untrusted(0, 1000, &skipped), "{}", facts(&skipped));
    }
}
