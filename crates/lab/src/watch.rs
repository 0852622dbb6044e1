//! `schedlab watch`: what the scheduler does now. The recorder's events go through the same
//! analysis of waits as a recording ([`follow`](schedlab_trace::analysis::follow)) and are summed
//! up; no event is kept.

mod last_seconds;
pub mod output;
#[cfg(test)]
mod tests;

use crate::live_follower::{LiveFollower, LiveListener};
use crate::record::{capabilities, group_info, task_info};
use last_seconds::LastSeconds;
use schedlab_host::{
    GroupFacts, HostError, RecordEnd, RecordRequest, RecordSink, RecordStart, TaskFacts,
};
use schedlab_model::text::{glob, is_in_group};
use schedlab_model::{CpuId, EventKind, EventSink, Ns, SchedEvent, TaskId, Waker};
use schedlab_study::serve::{Exchanges, Guess, Server};
use schedlab_trace::analysis::follow::{Follower, Listener, Occupant, Span, ThreadState, Wait};
use schedlab_trace::analysis::{Durations, Occupancy, throttle};
use schedlab_trace::{Header, Recording};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Longest waits that are kept.
const WORST: usize = 20;
/// Age from which a wait that goes on is shown: shorter ones are usual, and over before they can be
/// read.
const LONG: Ns = Ns::from_ms(1);
/// Names with a row of their own; all further names count as `(others)`, so that memory stays flat.
const NAMES: usize = 2_000;
/// Switches that are remembered while a task waits, on all CPUs together (12 MB): who ran before
/// them is unknown in a wait that is longer. At the 1,500 switches a second of a build they are six
/// minutes.
const SWITCHES: usize = 1 << 19;
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

/// All threads of a name.
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
    /// Tasks by name.
    pub lines: BTreeMap<String, TaskWaits>,
    /// The longest waits, longest first.
    pub worst: Vec<LongWait>,
    /// Waits of a millisecond and more that go on, longest first; they are not in the sums yet.
    pub ongoing: Vec<OngoingWait>,
    /// By waiting and running name: for how long one ran while the other waited.
    pub delays: BTreeMap<(String, String), Ns>,
    /// By task and limit: how often and for how long the limit held the task back.
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

    /// Keeps the tasks with these names: a name or a glob.
    pub fn only(&mut self, names: &str) {
        let is_meant = |name: &str| glob(names, name);
        self.lines.retain(|name, _| is_meant(name));
        self.worst.retain(|wait| is_meant(&wait.task.0));
        self.ongoing.retain(|wait| is_meant(&wait.task.0));
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

/// Watches until `request` or `stop` ends it. `shared` is updated every 20 ms. Keeps the events of
/// the last `keep`, to be saved on demand; 0: none.
///
/// # Errors
/// As for [`schedlab_host::record`].
pub fn watch(
    request: &RecordRequest,
    focus: &WatchFilter,
    keep: Ns,
    shared: &SharedState,
    stop: &dyn Fn() -> bool,
) -> Result<RecordEnd, HostError> {
    let mut sink = WatchSink::new(focus.clone(), shared.clone());
    sink.last = (keep > Ns::ZERO).then(|| LastSeconds::new(keep));
    schedlab_host::record(request, &mut sink, stop)
}

/// Returns what `watch` would show at the end of a recording.
pub fn replayed(recording: &Recording, focus: &WatchFilter) -> WatchState {
    let shared = SharedState::default();
    let mut watcher = WatchSink::new(focus.clone(), shared.clone());
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
}

/// The sums since the last update of the shared state.
struct Sums {
    header: Header,
    focus: WatchFilter,
    occupancy: Occupancy,
    state: WatchState,
    own: u32,
    /// Where all tasks are shown: how often programs wake each other.
    exchanges: Option<Exchanges>,
}

impl WatchSink {
    fn new(focus: WatchFilter, shared: SharedState) -> WatchSink {
        let sums = Sums {
            header: Header::default(),
            exchanges: (focus == WatchFilter::All).then(Exchanges::default),
            focus,
            occupancy: Occupancy::bounded(SWITCHES),
            state: WatchState::default(),
            own: std::process::id(),
        };
        WatchSink { live: LiveFollower::new(sums), shared, start: None, last: None }
    }

    /// Adds the new sums to the shared state.
    fn update(&mut self) {
        self.live.forget_ended();
        let new = std::mem::take(&mut self.live.listener().state);
        let (now, events) = (new.now, new.events);
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
        let header = self.live.listener().header();
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

impl Sums {
    fn name(&self, task: TaskId) -> String {
        self.header.tasks.get(task.index()).map_or_else(|| "?".to_owned(), |task| task.comm.clone())
    }

    /// Returns the waits that go on, of the tasks that are shown.
    fn ongoing(&self, follower: &Follower) -> Vec<OngoingWait> {
        let now = follower.now();
        let old = |(task, from): (TaskId, Ns)| {
            let age = now.saturating_sub(from);
            (age >= LONG && self.shows(task)).then_some((age, from, task))
        };
        let mut waits: Vec<(Ns, Ns, TaskId)> = follower.waiting().filter_map(old).collect();
        waits.sort_by_key(|&(age, _, task)| (std::cmp::Reverse(age), task));
        waits.truncate(WORST);
        let of = |(age, from, task): (Ns, Ns, TaskId)| {
            let cpu = follower.cpu_of(task);
            let running = match follower.occupant(cpu) {
                _ if follower.state(task).0 == ThreadState::Throttled => None,
                Occupant::Task(task) => Some(self.name(task)),
                Occupant::Idle => Some("(idle)".to_owned()),
                Occupant::Unknown => Some("(unknown)".to_owned()),
            };
            let tid = self.header.tasks.get(task.index()).map_or(0, |info| info.tid);
            OngoingWait { task: (self.name(task), tid), from, age, cpu, running }
        };
        waits.into_iter().map(of).collect()
    }

    fn shows(&self, task: TaskId) -> bool {
        let Some(info) = self.header.tasks.get(task.index()) else { return false };
        match &self.focus {
            WatchFilter::All => true,
            WatchFilter::Threads(threads) => threads.has(info.tid),
            WatchFilter::Processes(pids) => pids.contains(&info.pid) || pids.contains(&info.tid),
            WatchFilter::Group(path) => {
                let group = self.header.groups.get(info.group.index());
                group.is_some_and(|group| is_in_group(&group.spec.name, path))
            }
            WatchFilter::Task(name) => name.parse() == Ok(info.tid) || glob(name, &info.comm),
            WatchFilter::Server(server) => server.is_meant(info, &self.header.groups),
        }
    }
}

impl LiveListener for Sums {
    fn header(&mut self) -> &mut Header {
        &mut self.header
    }

    fn occupancy(&self) -> &Occupancy {
        &self.occupancy
    }
}

impl Listener for Sums {
    fn occupied(&mut self, cpu: CpuId, at: Ns, occupant: Occupant) {
        self.occupancy.note(cpu, at, occupant);
    }

    fn span(&mut self, span: &Span) {
        if span.state != ThreadState::Running {
            return;
        }
        if self.header.tasks.get(span.task.index()).is_some_and(|task| task.pid == self.own) {
            self.state.own += span.length();
        }
        if self.shows(span.task) {
            let name = self.name(span.task);
            self.state.lines.entry(name).or_default().run += span.length();
        }
    }

    fn wait(&mut self, wait: &Wait<'_>) {
        if !self.shows(wait.task) {
            return;
        }
        let (name, length) = (self.name(wait.task), wait.total());
        let mut meanwhile: BTreeMap<Occupant, Ns> = BTreeMap::new();
        wait.each_part(|part, end| {
            if !part.throttled {
                self.occupancy.over(part.cpu, part.since, end, |occupant, time| {
                    *meanwhile.entry(occupant).or_default() += time;
                });
            }
        });
        let named = |(occupant, time): (Occupant, Ns)| match occupant {
            Occupant::Task(task) => (self.name(task), time),
            Occupant::Idle => ("(idle)".to_owned(), time),
            Occupant::Unknown => ("(unknown)".to_owned(), time),
        };
        let meanwhile: Vec<(String, Ns)> = meanwhile.into_iter().map(named).collect();
        let held = throttle::held(&self.header, &self.occupancy, wait)
            .map(|(limit, time)| (limit.words(&self.header), time));
        let long = self.state.worst.len() < WORST
            || self.state.worst.iter().any(|other| other.length < length);
        if long {
            let most = meanwhile.iter().max_by_key(|(_, time)| *time).cloned();
            let worst = LongWait {
                task: (name.clone(), self.header.tasks[wait.task.index()].tid),
                from: wait.from,
                length,
                cpu: wait.cpu,
                culprit: most.unwrap_or_else(|| ("(limit)".to_owned(), wait.throttled)),
                held: held.as_ref().map(|(words, _)| words.clone()),
            };
            self.state.worst.push(worst);
            self.state.worst.sort_by_key(|worst| std::cmp::Reverse(worst.length));
            self.state.worst.truncate(WORST);
        }
        for (culprit, time) in meanwhile {
            *self.state.delays.entry((name.clone(), culprit)).or_default() += time;
        }
        if let Some((words, time)) = held {
            let sum = self.state.throttled.entry((name.clone(), words)).or_default();
            sum.0 += 1;
            sum.1 += time;
        }
        self.state.lines.entry(name).or_default().waits.add(length);
    }

    fn after(&mut self, follower: &Follower, event: &SchedEvent) {
        self.occupancy.tidy(follower);
        if let EventKind::Wake { task, waker: Waker::Task(by) | Waker::InlineSoftirq(by) } =
            event.kind
            && let Some(exchanges) = &mut self.exchanges
        {
            let tasks = &self.header.tasks;
            let mut program = |task: TaskId| exchanges.program(tasks.get(task.index())?);
            if let (Some(by), Some(task)) = (program(by), program(task)) {
                exchanges.wakes(by, task);
            }
        }
    }
}
