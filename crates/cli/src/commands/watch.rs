//! `schedlab watch`

use super::compare::request::{RequestArgs, Serve};
use crate::exit::Exit;
use crate::format::{FormatArgs, LivePrinter};
use crate::options::stop_signal;
use crate::output;
use crate::render::watch::{View, draw, summary};
use crate::screen::{LOOK, Screen, show};
use anyhow::{Context as _, anyhow, bail};
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use schedlab_host::privileges::give_up_all_but;
use schedlab_host::{HostError, RecordEnd, RecordRequest, RecordUntil, StopSignal};
use schedlab_lab::watch::output::WatchOutput;
use schedlab_lab::watch::{SharedState, WatchFilter, WatchState, watch};
use schedlab_model::Ns;
use schedlab_study::serve::Server;
use schedlab_trace::too_much_lost;
use std::io::{IsTerminal, Write};
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
  schedlab watch --cgroup /batch --for 1m   waits of a control group, for a minute
  schedlab watch --json --for 10s           a line of JSON every second (docs/watch-schema.md)

Keys: ? help, q quit, p pause, s sort, r reset. Works over ssh in 80x24.")]
pub(crate) struct WatchArgs {
    /// Show the waits of this process only (may be given several times)
    #[arg(long, value_name = "N", conflicts_with_all = ["cgroup", "serve"])]
    pid: Vec<u32>,
    /// Show the waits of this control group and those below it only
    #[arg(long, value_name = "PATH", conflicts_with = "serve")]
    cgroup: Option<String>,
    #[command(flatten)]
    serve: RequestArgs<Serve>,
    /// Stop after this time, such as 30s
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<Ns>,
    /// Record by bpf, tracepoints or switches [default: the best that works]
    #[arg(long, value_name = "BACKEND")]
    backend: Option<schedlab_host::Backend>,
    #[command(flatten)]
    format: FormatArgs,
}

type Recorder = JoinHandle<Result<RecordEnd, HostError>>;

pub(crate) fn run(args: &WatchArgs) -> anyhow::Result<Exit> {
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if args.format.is_table() && !terminal {
        bail!(
            "watch draws on a terminal, and this is none: run it in one (ssh -t HOST schedlab \
             watch), or use --json or --format csv"
        );
    }
    if args.duration == Some(Ns::ZERO) {
        bail!("--for 0: must be longer than 0, such as --for 30s");
    }
    let signal = stop_signal()?;
    let (shared, stop) = (SharedState::default(), Arc::new(AtomicBool::new(false)));
    let recorder = start(args, &shared, &stop);
    // The recorder's thread has what it needs to open; this one only shows.
    give_up_all_but(&[]).context("giving up capabilities (capset)")?;
    let ready = || shared.lock().start.is_some();
    while !ready() && !recorder.is_finished() && !signal.requested() {
        sleep(LOOK);
    }
    let mut printer = LivePrinter::new(&args.format);
    // A recorder that could not begin reports its error before the terminal is changed.
    let shown = if !ready() || recorder.is_finished() {
        Ok(())
    } else if !args.format.is_table() {
        lines(&shared, &recorder, args.format.has_steps().then_some(&mut printer), &signal)
    } else {
        on_screen(&shared, &recorder, &signal)
    };
    stop.store(true, Ordering::Relaxed);
    let end = recorder
        .join()
        .map_err(|_| anyhow!("the recorder failed; this is a fault of schedlab"))??;
    shown?;
    let mut state = shared.lock().clone();
    state.now = state.now.max(end.duration);
    let text =
        if args.format.is_table() { summary(&state) } else { printer.next(&json(&state)?)? };
    output::write(None, &text)?;
    let bad = too_much_lost(state.lost as f64 / state.events.max(1) as f64);
    Ok(if bad { Exit::Untrusted } else { Exit::Done })
}

fn start(args: &WatchArgs, shared: &SharedState, stop: &Arc<AtomicBool>) -> Recorder {
    let scope = if args.pid.is_empty() {
        RecordUntil::Stopped
    } else {
        RecordUntil::ProcessesEnd(args.pid.clone())
    };
    let focus = match (&args.cgroup, args.serve.serve()) {
        (Some(path), _) => WatchFilter::Group(path.clone()),
        (None, Some(server)) => WatchFilter::Server(Server::new(server)),
        (None, None) if args.pid.is_empty() => WatchFilter::All,
        (None, None) => WatchFilter::Processes(args.pid.clone()),
    };
    let request = RecordRequest {
        duration: args.duration,
        backend: args.backend,
        keep: Some(Vec::new()),
        ..RecordRequest::new(scope)
    };
    let (shared, stop) = (shared.clone(), Arc::clone(stop));
    spawn(move || watch(&request, &focus, &shared, &|| stop.load(Ordering::Relaxed)))
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

impl Screen for Shown<'_> {
    fn draw(&mut self, frame: &mut Frame<'_>) {
        if !self.view.paused {
            self.state = self.shared.lock().clone();
        }
        draw(frame, &self.state, self.view);
    }

    fn press(&mut self, key: KeyCode) {
        let view = &mut self.view;
        match key {
            KeyCode::Char('?' | 'h') => view.help = !view.help,
            KeyCode::Char('p' | ' ') => view.paused = !view.paused,
            KeyCode::Char('s') => view.sort = view.sort.next(),
            KeyCode::Char('r') => self.shared.lock().reset(),
            _ => {}
        }
    }
}

/// Shows the screen until the user leaves it.
fn on_screen(shared: &SharedState, recorder: &Recorder, signal: &StopSignal) -> anyhow::Result<()> {
    let view = View { colors: std::env::var_os("NO_COLOR").is_none(), ..View::default() };
    let mut shown = Shown { shared, state: WatchState::default(), view };
    show(&mut shown, &|| recorder.is_finished() || signal.requested())
}
