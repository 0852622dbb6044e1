//! `schedlab watch`

use super::compare::request::{RequestArgs, Serve};
use super::record::by_date;
use crate::exit::Exit;
use crate::format::{FormatArgs, LivePrinter};
use crate::options::stop_signal;
use crate::output;
use crate::render::view::{Pressed, View};
use crate::render::watch::{draw, summary};
use crate::screen::{LOOK, Screen, show};
use anyhow::{Context as _, anyhow, bail};
use clap::ValueEnum;
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use schedlab_host::privileges::{give_up_all_but, to_write_in};
use schedlab_host::{HostError, RecordEnd, RecordRequest, RecordUntil, StopSignal};
use schedlab_lab::flight::metrics::Address;
use schedlab_lab::watch::output::WatchOutput;
use schedlab_lab::watch::{
    SharedState, WatchFilter, WatchMetrics, WatchOptions, WatchState, watch,
};
use schedlab_model::Ns;
use schedlab_study::serve::Server;
use schedlab_trace::analysis::By;
use schedlab_trace::owner::is_unit;
use schedlab_trace::too_much_lost;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// `schedlab watch`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab watch                            the whole machine, until q
  schedlab watch --pid 4711                 waits of one process, and which tasks cause them
  schedlab watch --serve redis-server       waits of a server, by name, pid, group or unit
  schedlab watch --task 'redis-*'           waits of tasks by their names
  schedlab watch --unit redis               waits of a systemd unit
  schedlab watch --cgroup /batch --for 1m   waits of a control group, for a minute
  schedlab watch --by unit                  a row for each systemd unit, container, pod, ...
  schedlab watch --by pod --openmetrics 127.0.0.1:9920
                                            the same, and metrics for Prometheus beside it
  schedlab watch --json --for 10s           a line of JSON every second (docs/watch-schema.md)

Keys: ? help, q quit, / find, arrows scroll, s sort, w write the last 10 s as a recording into this \
folder, p pause, r reset. Works over ssh in 80x24.")]
pub(crate) struct WatchArgs {
    /// Show the waits of this process only (may be given several times)
    #[arg(long, value_name = "N", conflicts_with_all = ["cgroup", "serve", "task", "unit"])]
    pid: Vec<u32>,
    /// Show the waits of this control group and those below it only
    #[arg(long, value_name = "PATH", conflicts_with_all = ["serve", "task", "unit"])]
    cgroup: Option<String>,
    /// Show the waits of the tasks with this name only: a name, or a glob such as 'redis-*'
    #[arg(long, value_name = "TASK", conflicts_with_all = ["serve", "unit"])]
    task: Option<String>,
    /// Show the waits of this systemd unit only: redis, or redis.service
    #[arg(long, value_name = "UNIT", conflicts_with = "serve")]
    unit: Option<String>,
    #[command(flatten)]
    serve: RequestArgs<Serve>,
    /// Take tasks together: a row for each of these, not for each thread
    #[arg(long, value_name = "WHAT", default_value = "name")]
    by: Rows,
    /// Serve metrics by these rows in OpenMetrics' form: a port of loopback, or unix:/PATH; without
    /// a terminal nothing else is shown until the end
    #[arg(long, value_name = "ADDRESS")]
    openmetrics: Option<Address>,
    /// Stop after this time, such as 30s
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<Ns>,
    /// Record by bpf, tracepoints or switches [default: the best that works]
    #[arg(long, value_name = "BACKEND")]
    backend: Option<schedlab_host::Backend>,
    #[command(flatten)]
    format: FormatArgs,
}

/// What a row is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Rows {
    /// Name of the tasks
    Name,
    /// Process: its main thread's name and its id
    Process,
    /// Control group
    Cgroup,
    /// Systemd unit; without one the session
    Unit,
    /// Container: the runtime and the first digits of the id
    Container,
    /// Pod of Kubernetes: namespace and name, or uid; and class of service
    Pod,
}

impl Rows {
    const fn by(self) -> By {
        match self {
            Rows::Name => By::Name,
            Rows::Process => By::Process,
            Rows::Cgroup => By::Cgroup,
            Rows::Unit => By::Unit,
            Rows::Container => By::Container,
            Rows::Pod => By::Pod,
        }
    }
}

/// What the key w writes.
pub(super) const LAST: Ns = Ns::from_s(10);

fn is_terminal() -> bool {
    std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
}

impl WatchArgs {
    fn is_on_screen(&self) -> bool {
        self.format.is_table() && is_terminal()
    }
}

/// The thread that records.
pub(super) type Recorder = JoinHandle<Result<RecordEnd, HostError>>;

pub(crate) fn run(args: &WatchArgs) -> anyhow::Result<Exit> {
    if args.format.is_table() && !is_terminal() && args.openmetrics.is_none() {
        bail!(
            "watch draws on a terminal, and this is none: run it in one (ssh -t HOST schedlab \
             watch), or use --json, --format csv or --openmetrics 127.0.0.1:9920"
        );
    }
    if args.duration == Some(Ns::ZERO) {
        bail!("--for 0: must be longer than 0, such as --for 30s");
    }
    let signal = stop_signal()?;
    let (shared, stop) = (SharedState::default(), Arc::new(AtomicBool::new(false)));
    let bound = args.openmetrics.as_ref().map(|at| WatchMetrics::bind(at, args.by.by()));
    let (metrics, server) = bound.transpose()?.unzip();
    let recorder = start(args, metrics, &shared, &stop);
    // The recorder's thread has what it needs to open; this one and the server's only show.
    give_up_all_but(&[]).context("giving up capabilities (capset)")?;
    let serving = server.map(|server| {
        let stop = Arc::clone(&stop);
        spawn(move || server.serve(&|| stop.load(Ordering::Relaxed)))
    });
    let ready = || shared.lock().start.is_some();
    while !ready() && !recorder.is_finished() && !signal.requested() {
        sleep(LOOK);
    }
    let mut printer = LivePrinter::new(&args.format);
    // A recorder that could not begin reports its error before the terminal is changed.
    let shown = if !ready() || recorder.is_finished() {
        Ok(())
    } else if !args.is_on_screen() {
        lines(&shared, &recorder, args.format.has_steps().then_some(&mut printer), &signal)
    } else {
        on_screen(&shared, &recorder, &signal)
    };
    stop.store(true, Ordering::Relaxed);
    let end = recorder
        .join()
        .map_err(|_| anyhow!("the recorder failed; this is a fault of schedlab"))??;
    if let Some(Err(_)) = serving.map(JoinHandle::join) {
        bail!("the server of the metrics failed; this is a fault of schedlab");
    }
    shown?;
    let mut state = shared.lock().clone();
    state.now = state.now.max(end.duration);
    let text =
        if args.format.is_table() { summary(&state) } else { printer.next(&json(&state)?)? };
    output::write(None, &text)?;
    let bad = too_much_lost(state.lost, state.events);
    Ok(if bad { Exit::Untrusted } else { Exit::Done })
}

fn start(
    args: &WatchArgs,
    metrics: Option<WatchMetrics>,
    shared: &SharedState,
    stop: &Arc<AtomicBool>,
) -> Recorder {
    let scope = if args.pid.is_empty() {
        RecordUntil::Stopped
    } else {
        RecordUntil::ProcessesEnd(args.pid.clone())
    };
    let filter = match (&args.cgroup, args.serve.serve()) {
        (Some(path), _) => WatchFilter::Group(path.clone()),
        (None, Some(server)) => WatchFilter::Server(Server::new(server)),
        (None, None) => match (&args.task, &args.unit) {
            (Some(task), _) => WatchFilter::Task(task.clone()),
            (None, Some(unit)) => WatchFilter::Server(Server::new(&unit_name(unit))),
            (None, None) if args.pid.is_empty() => WatchFilter::All,
            (None, None) => WatchFilter::Processes(args.pid.clone()),
        },
    };
    // Only a screen has keys.
    let keep = if args.is_on_screen() { LAST } else { Ns::ZERO };
    let duty = if keep > Ns::ZERO { to_write_in(Path::new(".")) } else { None };
    let request = RecordRequest {
        duration: args.duration,
        backend: args.backend,
        keep: Some(duty.into_iter().collect()),
        ..RecordRequest::new(scope)
    };
    let (shared, stop) = (shared.clone(), Arc::clone(stop));
    let options = WatchOptions { filter, by: args.by.by(), keep, metrics };
    spawn(move || watch(&request, options, &shared, &|| stop.load(Ordering::Relaxed)))
}

/// Returns the name of a unit with its kind, as a control group has it.
fn unit_name(unit: &str) -> String {
    if is_unit(unit) { unit.to_owned() } else { format!("{unit}.service") }
}

/// Waits until the recorder ends, a signal comes, or the reader is gone; prints the state every
/// second with a `printer`.
fn lines(
    shared: &SharedState,
    recorder: &Recorder,
    mut printer: Option<&mut LivePrinter>,
    signal: &StopSignal,
) -> anyhow::Result<()> {
    let mut next = Instant::now() + Duration::from_secs(1);
    while !recorder.is_finished() && !signal.requested() {
        if let Some(printer) = printer.as_mut().filter(|_| Instant::now() >= next) {
            next += Duration::from_secs(1);
            let text = printer.next(&json(&shared.lock().clone())?)?;
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
        sleep(LOOK);
    }
    Ok(())
}

fn json(state: &WatchState) -> anyhow::Result<serde_json::Value> {
    Ok(serde_json::to_value(WatchOutput::from(state))?)
}

/// The content of the screen.
struct Shown<'a> {
    shared: &'a SharedState,
    state: WatchState,
    view: View,
}

/// Takes a key of a live view.
pub(super) fn press(view: &mut View, shared: &SharedState, key: KeyCode) {
    // What became of the last key has been read.
    shared.lock().saved = None;
    match view.press(key) {
        Pressed::Reset => shared.lock().reset(),
        Pressed::Save => shared.save(by_date()),
        Pressed::Nothing => {}
    }
}

/// Copies the state into `shown`, unless the view is paused.
pub(super) fn renew(shown: &mut WatchState, shared: &SharedState, view: &View) {
    let now = shared.lock();
    match view.paused {
        true => shown.saved.clone_from(&now.saved),
        false => *shown = now.clone(),
    }
}

impl Screen for Shown<'_> {
    fn draw(&mut self, frame: &mut Frame<'_>) {
        renew(&mut self.state, self.shared, &self.view);
        let part = self.view.part(&self.state);
        draw(frame, &part, &self.view);
    }

    fn press(&mut self, key: KeyCode) {
        press(&mut self.view, self.shared, key);
    }

    fn is_typing(&self) -> bool {
        self.view.typing
    }
}

/// Shows the screen until the user leaves it.
fn on_screen(shared: &SharedState, recorder: &Recorder, signal: &StopSignal) -> anyhow::Result<()> {
    let mut shown = Shown { shared, state: WatchState::default(), view: View::new() };
    show(&mut shown, &|| recorder.is_finished() || signal.requested())
}
