//! What the follower of all tasks tells `watch`: sums by row, the longest waits, and metrics.

use super::{LONG, LongWait, OngoingWait, WORST, WatchFilter, WatchState};
use crate::flight::meters::{Meters, name_of};
use crate::live_follower::LiveListener;
use schedlab_model::text::is_in_group;
use schedlab_model::{CpuId, EventKind, Ns, SchedEvent, TaskId, Waker};
use schedlab_study::serve::Exchanges;
use schedlab_trace::analysis::follow::{Follower, Listener, Occupant, Span, ThreadState, Wait};
use schedlab_trace::analysis::{By, Occupancy, throttle};
use schedlab_trace::{Header, TaskInfo};
use std::collections::BTreeMap;

/// The sums since the last update of the shared state.
pub(super) struct Sums {
    pub(super) header: Header,
    pub(super) occupancy: Occupancy,
    pub(super) state: WatchState,
    /// Where all tasks are shown by their names: how often programs wake each other.
    pub(super) exchanges: Option<Exchanges>,
    pub(super) meters: Option<Meters>,
    filter: WatchFilter,
    by: By,
    own: u32,
    /// By place of a task: its row, once one was asked for.
    rows: Vec<Option<String>>,
}

impl Sums {
    pub(super) fn new(filter: WatchFilter, by: By, meters: Option<Meters>) -> Sums {
        let exchanges = (filter == WatchFilter::All && by == By::Name).then(Exchanges::default);
        // Who ran before these switches is unknown in a wait that is longer.
        let occupancy = Occupancy::bounded(super::SWITCHES);
        Sums {
            header: Header::default(),
            occupancy,
            state: WatchState::default(),
            exchanges,
            meters,
            filter,
            by,
            own: std::process::id(),
            rows: Vec::new(),
        }
    }

    fn name(&self, task: TaskId) -> String {
        self.info(task).map_or_else(|| "?".to_owned(), |task| task.comm.clone())
    }

    fn info(&self, task: TaskId) -> Option<&TaskInfo> {
        self.header.tasks.get(task.index())
    }

    /// Returns the row in which a task counts.
    fn row(&mut self, task: TaskId) -> String {
        if self.by == By::Name {
            return self.name(task);
        }
        if let Some(Some(row)) = self.rows.get(task.index()) {
            return row.clone();
        }
        let row = name_of(self.by, task, &self.header);
        if task.index() >= self.rows.len() {
            self.rows.resize(task.index() + 1, None);
        }
        self.rows[task.index()] = Some(row.clone());
        row
    }

    /// Returns the waits that go on, of the tasks that are shown.
    pub(super) fn ongoing(&self, follower: &Follower) -> Vec<OngoingWait> {
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
            let tid = self.info(task).map_or(0, |info| info.tid);
            let row = name_of(self.by, task, &self.header);
            OngoingWait { task: (self.name(task), tid), row, from, age, cpu, running }
        };
        waits.into_iter().map(of).collect()
    }

    /// Counts a wait in the metrics.
    fn count(&mut self, wait: &Wait<'_>, meanwhile: &BTreeMap<Occupant, Ns>, held: Ns) {
        let Some(meters) = &mut self.meters else { return };
        let header = &self.header;
        meters.waited((wait.task, header), (wait.total(), held), wait.to);
        for (occupant, time) in meanwhile {
            if let Occupant::Task(ran) = occupant {
                meters.delayed((wait.task, *ran), header, *time, wait.to);
            }
        }
    }

    /// Keeps a wait that is one of the longest.
    fn keep_long(
        &mut self,
        wait: &Wait<'_>,
        row: &str,
        meanwhile: &BTreeMap<Occupant, Ns>,
        held: Option<&String>,
    ) {
        let length = wait.total();
        let worst = &self.state.worst;
        if worst.len() >= WORST && worst.iter().all(|other| other.length >= length) {
            return;
        }
        let name = |(occupant, time): (&Occupant, &Ns)| match occupant {
            Occupant::Task(task) => (self.name(*task), *time),
            Occupant::Idle => ("(idle)".to_owned(), *time),
            Occupant::Unknown => ("(unknown)".to_owned(), *time),
        };
        let most = meanwhile.iter().max_by_key(|(_, time)| **time).map(name);
        let worst = LongWait {
            task: (self.name(wait.task), self.info(wait.task).map_or(0, |info| info.tid)),
            row: row.to_owned(),
            from: wait.from,
            length,
            cpu: wait.cpu,
            culprit: most.unwrap_or_else(|| ("(limit)".to_owned(), wait.throttled)),
            held: held.cloned(),
        };
        self.state.worst.push(worst);
        self.state.worst.sort_by_key(|worst| std::cmp::Reverse(worst.length));
        self.state.worst.truncate(WORST);
    }

    fn shows(&self, task: TaskId) -> bool {
        let Some(info) = self.info(task) else { return false };
        match &self.filter {
            WatchFilter::All => true,
            WatchFilter::Threads(threads) => threads.has(info.tid),
            WatchFilter::Processes(pids) => pids.contains(&info.pid) || pids.contains(&info.tid),
            WatchFilter::Group(path) => {
                let group = self.header.groups.get(info.group.index());
                group.is_some_and(|group| is_in_group(&group.spec.name, path))
            }
            WatchFilter::Task(name) => name.parse() == Ok(info.tid) || info.is_named(name),
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

    fn met(&mut self, slot: TaskId) {
        if let Some(row) = self.rows.get_mut(slot.index()) {
            *row = None;
        }
        self.meters.iter_mut().for_each(|meters| meters.met(slot));
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
        if self.info(span.task).is_some_and(|task| task.pid == self.own) {
            self.state.own += span.length();
        }
        if self.shows(span.task) {
            let row = self.row(span.task);
            self.state.lines.entry(row).or_default().run += span.length();
            if let Some(meters) = &mut self.meters {
                meters.ran(span.task, &self.header, span.length(), span.to);
            }
        }
    }

    fn wait(&mut self, wait: &Wait<'_>) {
        if !self.shows(wait.task) {
            return;
        }
        let (row, length) = (self.row(wait.task), wait.total());
        let mut meanwhile: BTreeMap<Occupant, Ns> = BTreeMap::new();
        wait.each_part(|part, end| {
            if !part.throttled {
                self.occupancy.over(part.cpu, part.since, end, |occupant, time| {
                    *meanwhile.entry(occupant).or_default() += time;
                });
            }
        });
        let held = throttle::held(&self.header, &self.occupancy, wait)
            .map(|(limit, time)| (limit.words(&self.header), time));
        self.count(wait, &meanwhile, held.as_ref().map_or(Ns::ZERO, |(_, time)| *time));
        self.keep_long(wait, &row, &meanwhile, held.as_ref().map(|(words, _)| words));
        for (occupant, time) in meanwhile {
            let culprit = match occupant {
                Occupant::Task(task) => self.row(task),
                Occupant::Idle => "(idle)".to_owned(),
                Occupant::Unknown => "(unknown)".to_owned(),
            };
            *self.state.delays.entry((row.clone(), culprit)).or_default() += time;
        }
        if let Some((words, time)) = held {
            let sum = self.state.throttled.entry((row.clone(), words)).or_default();
            sum.0 += 1;
            sum.1 += time;
        }
        self.state.lines.entry(row).or_default().waits.add(length);
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
