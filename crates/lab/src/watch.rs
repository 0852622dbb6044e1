//! `schedlab watch`: what the scheduler does now. The recorder's events go through the same
//! analysis of waits as a recording ([`follow`](schedlab_trace::analysis::follow)) and are summed
//! up; no event is kept.

mod last_seconds;
mod metrics;
pub mod output;
mod sums;
#[cfg(test)]
mod tests;

use crate::flight::sink::own_cpu;
use crate::live_follower::LiveFollower;
use crate::record::{capabilities, group_info, task_info};
use last_seconds::LastSeconds;
pub use metrics::{MetricsServer, WatchMetrics};
use schedlab_host::{
    GroupFacts, HostError, RecordEnd, RecordRequest, RecordSink, RecordStart, TaskFacts,
};
use schedlab_model::text::glob;
use schedlab_model::{CpuId, EventKind, EventSink, Ns, SchedEvent, TaskId};
use schedlab_study::serve::{Exchanges, Guess, Server};
use schedlab_trace::analysis::{By, Durations};
use schedlab_trace::{Header, Recording};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use sums::Sums;

/// Longest waits that are kept.
const WORST: usize = 20;
/// Age from which a wait that goes on is shown: shorter ones are usual, and over before they can be
/// read.
const LONG: Ns = Ns::from_ms(1);
/// Names with a row of their own; all further ones count as `(others)`, so that memory stays flat.
const NAMES: usize = 2_000;
/// Switches that are remembered while a task waits, on all CPUs together (12 MB): who ran before
/// them is unknown in a wait that is longer. At the 1,500 switches a second of a build they are six
/// minutes.
const SWITCHES: usize = 1 << 19;
/// Time between two looks at what metrics only read.
const SECOND: Ns = Ns::from_s(1);
/// Events of a recording between two updates.
const BATCH: usize = 4_096;
/// The row of names beyond [`NAMES`].
const OTHERS: &str = "(others)";

/// The tasks whose waits are shown. Of the tasks that ran meanwhile all are shown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum WatchFilter {
    /// All tasks.
    #[default]
    All,
    /// The threads of these processes.
    Processes(Vec<u32>),
    /// The tasks of this control group and of those below it.
    Group(String),
    /// The tasks of a server.
    Server(Server),
    /// The tasks with a name or a glob, or the thread with this number.
    Task(String),
    /// The threads of a set that may change meanwhile.
    Threads(ThreadSet),
}

/// A set of thread ids; clones share it.
#[derive(Clone, Debug, Default)]
pub struct ThreadSet(Arc<Mutex<BTreeSet<u32>>>);

impl ThreadSet {
    /// Replaces the set.
    pub fn set(&self, threads: BTreeSet<u32>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = threads;
    }

    fn has(&self, thread: u32) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&thread)
    }
}

impl PartialEq for ThreadSet {
    fn eq(&self, other: &ThreadSet) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ThreadSet {}

/// What is watched, and how.
pub struct WatchOptions {
    /// Whose waits are shown.
    pub filter: WatchFilter,
    /// What tasks are taken together by. [`By::Thread`] and [`By::Guest`], which need to know all
    /// tasks, are as [`By::Name`].
    pub by: By,
    /// How much of the last events is kept, to be saved on demand; 0: nothing.
    pub keep: Ns,
    /// The metrics that are counted beside it.
    pub metrics: Option<WatchMetrics>,
}

impl WatchOptions {
    /// Returns those that show the waits of some tasks by their names.
    pub fn new(filter: WatchFilter) -> WatchOptions {
        WatchOptions { filter, by: By::Name, keep: Ns::ZERO, metrics: None }
    }
}

/// All threads of a row.
#[derive(Clone, Debug, Default)]
pub struct TaskWaits {
    /// Their waits for a CPU, from a wakeup or a preemption to running, throttled time included.
    pub waits: Durations,
    /// Their CPU time.
    pub run: Ns,
}

/// A long wait that is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LongWait {
    /// Name and thread id.
    pub task: (String, u32),
    /// The row in which it counts.
    pub row: String,
    /// Its beginning, since the start.
    pub from: Ns,
    /// Its length.
    pub length: Ns,
    /// The CPU on which it ended.
    pub cpu: CpuId,
    /// The program that ran longest meanwhile, and for how long.
    pub culprit: (String, Ns),
    /// The limit that held the task back, if one did.
    pub held: Option<String>,
}

/// A wait that goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OngoingWait {
    /// Name and thread id.
    pub task: (String, u32),
    /// The row in which it counts.
    pub row: String,
    /// Its beginning, since the start.
    pub from: Ns,
    /// Its length until now, the time of the last event.
    pub age: Ns,
    /// The CPU in whose run queue the task is.
    pub cpu: CpuId,
    /// The task that runs there now; `None`: a limit holds the waiting task back.
    pub running: Option<String>,
}

/// Everything that `watch` shows.
#[derive(Clone, Debug, Default)]
pub struct WatchState {
    /// The recorder's own account; `None` until it runs.
    pub start: Option<RecordStart>,
    /// Time of the last event, since the start.
    pub now: Ns,
    /// Beginning of the sums: the start, or the last reset.
    pub since: Ns,
    /// Events since the start.
    pub events: u64,
    /// Events that the kernel had no room for.
    pub lost: u64,
    /// What tasks are taken together by; `None`: by name.
    pub by: Option<By>,
    /// Waits by row.
    pub lines: BTreeMap<String, TaskWaits>,
    /// The longest waits, longest first.
    pub worst: Vec<LongWait>,
    /// Waits of a millisecond and more that go on, longest first; they are not in the sums yet.
    pub ongoing: Vec<OngoingWait>,
    /// By waiting and running row: for how long one ran while the other waited.
    pub delays: BTreeMap<(String, String), Ns>,
    /// By row and limit: how often and for how long the limit held the task back.
    pub throttled: BTreeMap<(String, String), (u64, Ns)>,
    /// CPU time of this program itself, recorder and display.
    pub own: Ns,
    /// The program that schedlab takes for the server, where all tasks are shown. It orders rows.
    pub guess: Option<Guess>,
    /// What became of the last recording that was asked for: its file, or why there is none.
    pub saved: Option<Result<PathBuf, String>>,
}

impl WatchState {
    /// Sets all sums to 0.
    pub fn reset(&mut self) {
        let (start, now, ongoing) =
            (self.start.take(), self.now, std::mem::take(&mut self.ongoing));
        let (guess, saved) = (self.guess.take(), self.saved.take());
        *self = WatchState {
            start,
            by: self.by,
            now,
            ongoing,
            guess,
            saved,
            since: now,
            events: self.events,
            lost: self.lost,
            ..WatchState::default()
        };
    }

    /// Keeps the rows with these names: a name or a glob.
    pub fn only(&mut self, names: &str) {
        let is_meant = |name: &str| glob(names, name);
        self.lines.retain(|name, _| is_meant(name));
        self.worst.retain(|wait| is_meant(&wait.row));
        self.ongoing.retain(|wait| is_meant(&wait.row));
        self.delays.retain(|(waited, _), _| is_meant(waited));
        self.throttled.retain(|(task, _), _| is_meant(task));
    }

    /// Returns the time that the sums are over.
    pub fn window(&self) -> Ns {
        self.now.saturating_sub(self.since)
    }

    /// Returns a time as a part of the window, in CPUs.
    pub fn part(&self, time: Ns) -> f64 {
        time.0 as f64 / self.window().0.max(1) as f64
    }
}

/// The state that the recorder's thread writes and a display reads.
#[derive(Clone, Debug, Default)]
pub struct SharedState {
    state: Arc<Mutex<WatchState>>,
    /// The file that the last seconds are to be saved in.
    save: Arc<Mutex<Option<PathBuf>>>,
}

impl SharedState {
    /// Locks the state. The recorder waits for as long as the guard lives.
    pub fn lock(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the recorder to save the last seconds as a recording; `saved` of the state says what
    /// became of it.
    pub fn save(&self, file: PathBuf) {
        *self.save.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
    }

    fn to_save(&self) -> Option<PathBuf> {
        self.save.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Watches until `request` or `stop` ends it. `shared` is updated every 20 ms.
///
/// # Errors
/// As for [`schedlab_host::record`].
pub fn watch(
    request: &RecordRequest,
    options: WatchOptions,
    shared: &SharedState,
    stop: &dyn Fn() -> bool,
) -> Result<RecordEnd, HostError> {
    let mut sink = WatchSink::new(options, shared.clone());
    schedlab_host::record(request, &mut sink, stop)
}

/// Returns what `watch` would show at the end of a recording.
pub fn replayed(recording: &Recording, options: WatchOptions) -> WatchState {
    let shared = SharedState::default();
    let mut watcher = WatchSink::new(options, shared.clone());
    let Header { tasks, .. } = &recording.header;
    watcher.live.listener().header = Header { tasks: Vec::new(), ..recording.header.clone() };
    for (index, task) in tasks.iter().enumerate() {
        watcher.live.meet(TaskId::from(index), task.clone());
    }
    for events in recording.events.chunks(BATCH) {
        events.iter().for_each(|event| watcher.event(event));
        watcher.update();
    }
    watcher.update();
    shared.lock().clone()
}

struct WatchSink {
    live: LiveFollower<Sums>,
    shared: SharedState,
    start: Option<RecordStart>,
    /// The events of the last seconds, where a user may want them.
    last: Option<LastSeconds>,
    /// When that was read which metrics only read.
    read: Option<Ns>,
}

impl WatchSink {
    fn new(options: WatchOptions, shared: SharedState) -> WatchSink {
        let WatchOptions { filter, by, keep, metrics } = options;
        let by = if matches!(by, By::Thread | By::Guest) { By::Name } else { by };
        shared.lock().by = (by != By::Name).then_some(by);
        let sums = Sums::new(filter, by, metrics.map(WatchMetrics::into_meters));
        let last = (keep > Ns::ZERO).then(|| LastSeconds::new(keep));
        WatchSink { live: LiveFollower::new(sums), shared, start: None, last, read: None }
    }

    /// Adds the new sums to the shared state.
    fn update(&mut self) {
        self.live.forget_ended();
        let new = std::mem::take(&mut self.live.listener().state);
        let (now, events) = (new.now, new.events);
        self.account(&new);
        let (sums, follower) = self.live.both();
        let ongoing = sums.ongoing(follower);
        let guess = sums.exchanges.as_ref().and_then(Exchanges::guess);
        let mut all = self.shared.lock();
        (all.ongoing, all.guess) = (ongoing, guess);
        all.start = self.start.clone().or(all.start.take());
        all.now = all.now.max(now);
        all.events += events;
        all.lost += new.lost;
        all.own += new.own;
        for (name, line) in new.lines {
            let full = all.lines.len() >= NAMES && !all.lines.contains_key(&name);
            let known = all.lines.entry(if full { OTHERS.to_owned() } else { name }).or_default();
            known.waits.merge(&line.waits);
            known.run += line.run;
        }
        for (pair, time) in new.delays {
            let full = all.delays.len() >= NAMES && !all.delays.contains_key(&pair);
            let pair = if full { (OTHERS.to_owned(), OTHERS.to_owned()) } else { pair };
            *all.delays.entry(pair).or_default() += time;
        }
        for (pair, (times, time)) in new.throttled {
            let full = all.throttled.len() >= NAMES && !all.throttled.contains_key(&pair);
            let sum = all
                .throttled
                .entry(if full { (OTHERS.to_owned(), String::new()) } else { pair })
                .or_default();
            sum.0 += times;
            sum.1 += time;
        }
        all.worst.extend(new.worst);
        all.worst.sort_by(|a, b| b.length.cmp(&a.length).then(a.from.cmp(&b.from)));
        all.worst.truncate(WORST);
    }

    /// Counts for the metrics what is no wait.
    fn account(&mut self, new: &WatchState) {
        let Some(meters) = &self.live.listener().meters else { return };
        meters.seen(new.events, new.lost);
        if self.read.is_none_or(|at| new.now.saturating_sub(at) >= SECOND) {
            self.read = Some(new.now);
            meters.read(own_cpu(), schedlab_host::stolen(), 0);
        }
    }
}

impl EventSink for WatchSink {
    fn event(&mut self, event: &SchedEvent) {
        let sums = &mut self.live.listener().state;
        sums.events += 1;
        sums.now = event.at;
        if let EventKind::Lost { count } = event.kind {
            sums.lost += count;
        }
        self.last.iter_mut().for_each(|last| last.event(event));
        self.live.event(event);
    }
}

impl RecordSink for WatchSink {
    fn start(&mut self, start: &RecordStart) -> io::Result<()> {
        let header = &mut self.live.listener().header;
        header.topology = start.machine.topology.clone();
        header.capabilities = capabilities(&start.capabilities);
        self.start = Some(start.clone());
        self.last.iter_mut().for_each(|last| last.start(start));
        self.update();
        Ok(())
    }

    fn group(&mut self, group: &GroupFacts) {
        let info = group_info(group);
        self.last.iter_mut().for_each(|last| last.group(&info));
        self.live.group(group.id, info);
    }

    fn task(&mut self, task: &TaskFacts) {
        let info = task_info(task);
        self.last.iter_mut().for_each(|last| last.task(task.id, &info));
        self.live.meet(task.id, info);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.update();
        if let Some(file) = self.shared.to_save() {
            let why = || Err("this command keeps no events".to_owned());
            let saved = self.last.as_mut().map_or_else(why, |last| last.save(&file));
            self.shared.lock().saved = Some(saved.map(|()| file));
        }
        Ok(())
    }
}
