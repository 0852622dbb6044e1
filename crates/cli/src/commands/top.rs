//! `schedlab top`

use super::watch::{LAST, press, renew};
use crate::exit::Exit;
use crate::format::{FormatArgs, LivePrinter};
use crate::options::stop_signal;
use crate::output;
use crate::render::top::{draw, text};
use crate::render::view::View;
use crate::screen::{LOOK, Screen, show};
use anyhow::{anyhow, bail};
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use schedlab_host::{HostError, RecordEnd};
use schedlab_lab::top::{self, Snapshot, TopOutput, WatchedDriver};
use schedlab_lab::watch::{SharedState, WatchState};
use schedlab_live::RunDir;
use schedlab_model::Ns;
use schedlab_model::text::glob;
use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// `schedlab top`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab top                     the driver of `schedlab run` or `attach`, until q or its end
  schedlab top --owner 4711        the driver of process 4711, where several run
  schedlab top --once              one look after a second, as text or JSON (docs/live-schema.md)
  schedlab top --json --for 10s    a line of JSON every second
  schedlab top --task 'redis-*'    some of the managed threads, by their names

Waits are those that the recorder sees. Gain compares the kernel's own account of each thread \
(/proc/TID/schedstat): the mean \
wait before a turn on a CPU before schedlab managed the thread, and since. The CPU time of agents \
is printed beside it.

Keys: ? help, q quit, / find, arrows scroll, s sort, w write the last 10 s as a recording into this \
folder, p pause, r reset the waits.")]
pub(crate) struct TopArgs {
    /// Watch the driver of this process [default: the first that is found]
    #[arg(long, value_name = "PID")]
    owner: Option<u32>,
    /// Show the managed threads with this name only: a name, or a glob such as 'redis-*'
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// Print the state after a second, then end
    #[arg(long, conflicts_with = "duration")]
    once: bool,
    /// Stop after this time, such as 30s
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<Ns>,
    #[command(flatten)]
    format: FormatArgs,
}

/// How long `--once` measures: rates need a second.
const ONCE: Duration = Duration::from_millis(1_300);

type Recorder = JoinHandle<Result<RecordEnd, HostError>>;

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<Exit> {
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if args.format.is_table() && !args.once && !terminal {
        bail!(
            "top draws on a terminal, and this is none: run it in one (ssh -t HOST schedlab top), \
             or use --once, --json or --format csv"
        );
    }
    let Some(mut driver) = WatchedDriver::find(&RunDir::standard()?, args.owner)? else {
        bail!(
            "nothing is managed here: begin with `schedlab run` or `schedlab attach` (`schedlab \
             status` lists what is)"
        );
    };
    let signal = stop_signal()?;
    let (shared, stop) = (SharedState::default(), Arc::new(AtomicBool::new(false)));
    let recorder = start(&driver, args, &shared, &stop);
    let (begun, mut printer) = (Instant::now(), LivePrinter::new(&args.format));
    while shared.lock().start.is_none() && !recorder.is_finished() && !signal.requested() {
        sleep(LOOK);
    }
    let limit =
        if args.once { Some(ONCE) } else { args.duration.map(|time| Duration::from_nanos(time.0)) };
    let over = || {
        recorder.is_finished()
            || signal.requested()
            || limit.is_some_and(|limit| begun.elapsed() >= limit)
    };
    let shown = match driver.look() {
        // A recorder that could not begin reports its error before the terminal is changed.
        Some(first) if !recorder.is_finished() => {
            if args.once || !args.format.is_table() {
                lines(&mut driver, first, &shared, args, &mut printer, &over)
            } else {
                on_screen(&mut driver, first, args, &shared, &over)
            }
        }
        _ => Ok(None),
    };
    stop.store(true, Ordering::Relaxed);
    recorder.join().map_err(|_| anyhow!("the recorder failed; this is a fault of schedlab"))??;
    if let Some(last) = shown? {
        let (last, state) = seen(last, &shared, args);
        let table = args.format.is_table();
        output::write(
            None,
            &if table { text(&last, &state) } else { printer.next(&json(&last, &state)?)? },
        )?;
    }
    Ok(Exit::Done)
}

/// Returns the driver's state and what was recorded, of the threads that were asked for.
fn seen(driver: Snapshot, shared: &SharedState, args: &TopArgs) -> (Snapshot, WatchState) {
    only(driver, shared.lock().clone(), args.task.as_deref())
}

fn only(
    mut driver: Snapshot,
    mut state: WatchState,
    names: Option<&str>,
) -> (Snapshot, WatchState) {
    if let Some(names) = names {
        driver.gains.retain(|gain| glob(names, &gain.name));
        state.only(names);
    }
    (driver, state)
}

fn start(
    driver: &WatchedDriver,
    args: &TopArgs,
    shared: &SharedState,
    stop: &Arc<AtomicBool>,
) -> Recorder {
    // Only a screen has keys.
    let keep = if args.format.is_table() && !args.once { LAST } else { Ns::ZERO };
    let (filter, shared, stop) =
        ((driver.filter(), driver.cpus()), shared.clone(), Arc::clone(stop));
    spawn(move || top::record(&filter, keep, &shared, &|| stop.load(Ordering::Relaxed)))
}

/// Prints lines of JSON until `over` says so or the driver ends. Returns the last state.
fn lines(
    driver: &mut WatchedDriver,
    first: Snapshot,
    shared: &SharedState,
    args: &TopArgs,
    printer: &mut LivePrinter,
    over: &dyn Fn() -> bool,
) -> anyhow::Result<Option<Snapshot>> {
    let mut last = first;
    let mut next = Instant::now() + Duration::from_secs(1);
    while !over() {
        sleep(LOOK);
        let Some(now) = driver.look() else { break };
        last = now;
        if args.format.has_steps() && !args.once && Instant::now() >= next {
            next += Duration::from_secs(1);
            let mut out = std::io::stdout().lock();
            let (driver, state) = seen(last.clone(), shared, args);
            out.write_all(printer.next(&json(&driver, &state)?)?.as_bytes())?;
            out.flush()?;
        }
    }
    Ok(Some(last))
}

fn json(snapshot: &Snapshot, state: &WatchState) -> anyhow::Result<serde_json::Value> {
    Ok(serde_json::to_value(TopOutput::new(snapshot, state))?)
}

/// The content of the screen.
struct Shown<'a> {
    driver: &'a mut WatchedDriver,
    shared: &'a SharedState,
    /// The threads that are shown, by name.
    names: Option<&'a str>,
    snapshot: Snapshot,
    state: WatchState,
    view: View,
    ended: &'a RefCell<bool>,
}

impl Screen for Shown<'_> {
    fn draw(&mut self, frame: &mut Frame<'_>) {
        match self.driver.look() {
            Some(now) if !self.view.paused => self.snapshot = now,
            Some(_) => {}
            None => *self.ended.borrow_mut() = true,
        }
        renew(&mut self.state, self.shared, &self.view);
        let (driver, state) = only(self.snapshot.clone(), self.state.clone(), self.names);
        let state = self.view.part(&state);
        draw(frame, &driver, &state, &self.view);
    }

    fn press(&mut self, key: KeyCode) {
        press(&mut self.view, self.shared, key);
    }

    fn is_typing(&self) -> bool {
        self.view.typing
    }
}

fn on_screen(
    driver: &mut WatchedDriver,
    first: Snapshot,
    args: &TopArgs,
    shared: &SharedState,
    over: &dyn Fn() -> bool,
) -> anyhow::Result<Option<Snapshot>> {
    let ended = RefCell::new(false);
    let (view, state) = (View::new(), WatchState::default());
    let names = args.task.as_deref();
    let mut shown = Shown { driver, shared, names, snapshot: first, state, view, ended: &ended };
    show(&mut shown, &|| over() || *ended.borrow())?;
    Ok(Some(shown.snapshot))
}
