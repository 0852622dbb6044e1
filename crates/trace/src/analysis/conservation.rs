//! Work conservation: times in which a CPU idled although a task that may run there waited on
//! another CPU, behind another. Short ones are the price of deciding (a wakeup is placed, an idle
//! CPU looks for work); long ones are lost throughput and latency, so the lengths matter more than
//! the count.
//!
//! A task that waits on a CPU which itself idles is told apart: no other CPU is the matter, but a
//! limit that keeps the task off (RT throttling has no event of its own), or a CPU that wakes late.
//!
//! Where a task's affinity is not known, the CPUs on which it ran at some time are taken: what it
//! could do less of is then not found, but nothing is claimed that was forbidden.

use super::answer::{counted, of_task, percent, seconds};
use super::follow::{Followed, Follower, Listener, Occupant, Span};
use super::show::{Cell, Column, Entry, Layout, Output, Table, column};
use super::{Analysis, By, Durations, Keys, Scope};
use crate::{Capability, Header, Recording};
use schedlab_model::{CpuId, CpuSet, EventKind, Ns, SchedEvent, TaskId};
use std::cmp::Reverse;
use std::io;

/// The list's entry.
pub(crate) const ENTRY: Entry = Entry::new::<Conservation>(
    "conservation",
    "CPUs that idled while a task that may run there waited elsewhere",
    show,
);

/// The machine was not work-conserving for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Since when.
    pub from: Ns,
    /// Until when.
    pub to: Ns,
    /// Who waited (when it began; of several the one with the lowest number).
    pub task: TaskId,
    /// Where it waited.
    pub waited_on: CpuId,
    /// Who ran there.
    pub behind: TaskId,
    /// Which CPU idled.
    pub idle: CpuId,
}

impl Violation {
    fn length(&self) -> Ns {
        self.to.saturating_sub(self.from)
    }
}

/// The least wait on a CPU that idles which is told. Shorter ones are the price of waking it (a
/// choice: exits from idle states take microseconds).
const LATE: Ns = Ns::from_ms(1);

/// A task waited on a CPU that idled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// Since when.
    pub from: Ns,
    /// Until when.
    pub to: Ns,
    /// Who waited (when it began; of several the one with the lowest number).
    pub task: TaskId,
    /// Which CPU idled.
    pub cpu: CpuId,
}

/// Violations of work conservation.
#[derive(Clone, Debug)]
pub struct Conservation {
    scope: Scope,
    allowed: Vec<CpuSet>,
    queued: Vec<TaskId>,
    /// By task: its place in `queued`.
    places: Vec<Option<usize>>,
    idle: CpuSet,
    since: Ns,
    open: Option<Violation>,
    top: usize,
    /// Lengths of all of them, in time of the machine: several waiting tasks at a time count once.
    pub lengths: Durations,
    /// The longest ones, longest first.
    pub longest: Vec<Violation>,
    kept_open: Option<Kept>,
    /// Lengths of the times in which a task waited on a CPU that idled, of [`LATE`] and more.
    pub kept: Durations,
    /// The longest of them.
    pub kept_longest: Option<Kept>,
    /// By task: how long it waited so.
    pub tasks: Vec<Ns>,
    /// By CPU: how long it idled so.
    pub cpus: Vec<Ns>,
}

impl Analysis for Conservation {
    const NAME: &'static str = "work conservation";
    const NEEDS: &'static [Capability] =
        &[Capability::Preempted, Capability::WakeTimes, Capability::AllTasks];
}

impl Conservation {
    /// For the machine of `header`; `allowed` says by task where it may run.
    pub fn new(header: &Header, scope: &Scope, allowed: Vec<CpuSet>, top: usize) -> Conservation {
        Conservation {
            scope: scope.clone(),
            allowed,
            queued: Vec::new(),
            places: vec![None; header.tasks.len()],
            idle: CpuSet::EMPTY,
            since: Ns::ZERO,
            open: None,
            top,
            lengths: Durations::default(),
            longest: Vec::new(),
            kept_open: None,
            kept: Durations::default(),
            kept_longest: None,
            tasks: vec![Ns::ZERO; header.tasks.len()],
            cpus: vec![Ns::ZERO; header.topology.cpus()],
        }
    }

    fn place(&mut self, task: TaskId, queued: bool) {
        match (queued, self.places[task.index()]) {
            (true, None) => {
                self.places[task.index()] = Some(self.queued.len());
                self.queued.push(task);
            }
            (false, Some(place)) => {
                self.queued.swap_remove(place);
                if let Some(moved) = self.queued.get(place) {
                    self.places[moved.index()] = Some(place);
                }
                self.places[task.index()] = None;
            }
            _ => {}
        }
    }

    /// Accounts the time from the last event to `at`, in which nothing changed.
    fn pass(&mut self, follower: &Follower, at: Ns) {
        let (from, to) = (self.since.max(self.scope.from), at.min(self.scope.to));
        self.since = at;
        if to <= from {
            return;
        }
        let found = self.find(follower, from, to);
        match (&mut self.open, found) {
            (Some(open), Some(_)) => open.to = to,
            (Some(_), None) => self.close(),
            (None, found) => self.open = found,
        }
        let kept = self.find_kept(follower, from, to);
        match (&mut self.kept_open, kept) {
            (Some(open), Some(_)) => open.to = to,
            (Some(_), None) => self.close_kept(),
            (None, kept) => self.kept_open = kept,
        }
    }

    /// The task that waits in `from .. to` on a CPU that idles, if any.
    fn find_kept(&self, follower: &Follower, from: Ns, to: Ns) -> Option<Kept> {
        if self.idle.is_empty() {
            return None;
        }
        let waits = |task: &&TaskId| self.idle.contains(follower.cpu_of(**task));
        let task = *self.queued.iter().filter(waits).min()?;
        Some(Kept { from, to, task, cpu: follower.cpu_of(task) })
    }

    fn close_kept(&mut self) {
        let Some(kept) = self.kept_open.take() else { return };
        let length = kept.to.saturating_sub(kept.from);
        if length < LATE {
            return;
        }
        self.kept.add(length);
        let longest =
            self.kept_longest.map_or(Ns::ZERO, |other| other.to.saturating_sub(other.from));
        if length > longest {
            self.kept_longest = Some(kept);
        }
    }

    /// The violation that holds in `from .. to`, if any; accounts it to tasks and CPUs.
    fn find(&mut self, follower: &Follower, from: Ns, to: Ns) -> Option<Violation> {
        if self.queued.is_empty() || self.idle.is_empty() {
            return None;
        }
        let mut found: Option<Violation> = None;
        let mut wasted = CpuSet::EMPTY;
        for &task in &self.queued {
            let waited_on = follower.cpu_of(task);
            // At an idle CPU it is about to run: that is the price of waking the CPU, not of
            // placing the task.
            let Occupant::Task(behind) = follower.occupant(waited_on) else { continue };
            let free = self.allowed[task.index()].and(&self.idle);
            let Some(idle) = free.lowest() else { continue };
            self.tasks[task.index()] += to - from;
            wasted = wasted.or(&free);
            if found.is_none_or(|found| task < found.task) {
                found = Some(Violation { from, to, task, waited_on, behind, idle });
            }
        }
        for cpu in wasted.iter() {
            self.cpus[cpu.index()] += to - from;
        }
        found
    }

    fn close(&mut self) {
        let Some(violation) = self.open.take() else { return };
        self.lengths.add(violation.length());
        let at = self.longest.partition_point(|other| other.length() >= violation.length());
        if at < self.top {
            self.longest.insert(at, violation);
            self.longest.truncate(self.top);
        }
    }
}

impl Listener for Conservation {
    fn before(&mut self, follower: &Follower, event: &SchedEvent) {
        self.pass(follower, event.at.max(follower.now()));
    }

    fn occupied(&mut self, cpu: CpuId, _at: Ns, who: Occupant) {
        if who == Occupant::Idle { self.idle.insert(cpu) } else { self.idle.remove(cpu) }
    }

    fn finished(&mut self, follower: &Follower) {
        self.pass(follower, follower.now());
        self.close();
        self.close_kept();
    }

    fn span(&mut self, span: &Span) {
        if !span.next.queued() {
            self.place(span.task, false);
        }
    }

    fn after(&mut self, follower: &Follower, event: &SchedEvent) {
        for task in crate::format::tasks_of(&event.kind).into_iter().flatten() {
            if self.scope.task(task) {
                self.place(task, follower.state(task).0.queued());
            }
        }
    }
}

/// Where each task may run: its mask where it is known, else where it ran. The second is the number
/// of tasks with an unknown mask.
pub fn allowed(recording: &Recording) -> (Vec<CpuSet>, usize) {
    let header = &recording.header;
    let all = CpuSet::first(header.topology.cpus());
    let mut allowed: Vec<CpuSet> = header
        .tasks
        .iter()
        .map(|task| {
            let group = header.groups.get(task.group.index()).and_then(|group| group.spec.cpus);
            if task.known {
                task.affinity.and(&all).and(&group.unwrap_or(all))
            } else {
                CpuSet::EMPTY
            }
        })
        .collect();
    for event in &recording.events {
        if let EventKind::Switch { next: Some(next), .. } = event.kind
            && !header.tasks[next.index()].known
        {
            allowed[next.index()].insert(event.cpu);
        }
    }
    (allowed, header.tasks.iter().filter(|task| !task.known).count())
}

const SUMMARY: &[Column] = &[
    column("times", "times"),
    column("time_ns", "time"),
    column("share", "of the window"),
    column("p50_ns", "p50"),
    column("p50_interval_ns", "p50 interval").rank(6),
    column("p99_ns", "p99"),
    column("p99_interval_ns", "p99 interval"),
    column("max_ns", "max"),
];

const LONGEST: &[Column] = &[
    column("length_ns", "length"),
    column("from_ns", "from"),
    column("to_ns", "until"),
    column("task", "who waited"),
    column("waited_on", "on"),
    column("behind", "behind"),
    column("idle", "while idle"),
];

const TASKS: &[Column] =
    &[column("task", "task"), column("time_ns", "waited while a CPU idled for it")];
const CPUS: &[Column] =
    &[column("cpu", "CPU"), column("time_ns", "idled while a task waited for it")];

/// For how long the machine was not work-conserving, and the longest time of it.
fn answer(recording: &Recording, scope: &Scope, found: &Conservation) -> String {
    let elsewhere = answer_of_elsewhere(recording, scope, found);
    let Some(longest) = found.kept_longest else { return elsewhere };
    format!(
        "{elsewhere} On a CPU that itself idled a task waited {} of {LATE} or more, {} in all; the \
         longest was {}, from {} on: {} on CPU {}. A limit kept it off (RT throttling), or the CPU \
         woke late.",
        counted(found.kept.count(), "time"),
        found.kept.sum(),
        longest.to.saturating_sub(longest.from),
        seconds(longest.from),
        of_task(&recording.header, longest.task),
        longest.cpu.0,
    )
}

fn answer_of_elsewhere(recording: &Recording, scope: &Scope, found: &Conservation) -> String {
    let Some(longest) = found.longest.first() else {
        return "No CPU idled while a task that may run there waited elsewhere.".to_owned();
    };
    let (lengths, name) = (&found.lengths, |task| of_task(&recording.header, task));
    let (sum, length) = (lengths.sum(), scope.length(recording));
    format!(
        "A CPU idled while a task that may run there waited elsewhere for {sum} of {length} ({}), \
         {}. The longest such time was {}, from \
         {} on: {} waited on CPU {} behind {} while CPU {} idled.",
        percent(sum.0, length.0),
        counted(lengths.count(), "time"),
        longest.length(),
        seconds(longest.from),
        name(longest.task),
        longest.waited_on.0,
        name(longest.behind),
        longest.idle.0,
    )
}

fn show(recording: &Recording, scope: &Scope, out: &mut dyn Output) -> io::Result<()> {
    let header = &recording.header;
    let (allowed, unknown) = allowed(recording);
    let listener = Conservation::new(header, scope, allowed, scope.top.unwrap_or(10));
    let found = Followed::over(recording, scope, listener);
    let title = "A CPU idled while a task that may run there waited elsewhere";
    out.answer(&answer(recording, scope, &found))?;
    out.table(&Table { key: "violations", title, columns: SUMMARY, layout: Layout::Table })?;
    let lengths = &found.lengths;
    out.row(&[
        Cell::Count(lengths.count()),
        Cell::Time(lengths.sum()),
        Cell::part(lengths.sum(), scope.length(recording)),
        Cell::Time(lengths.p50()),
        Cell::interval(lengths, 500_000),
        Cell::Time(lengths.p99()),
        Cell::interval(lengths, 990_000),
        Cell::Time(lengths.max()),
    ])?;
    out.table(&Table {
        key: "longest",
        title: "The longest",
        columns: LONGEST,
        layout: Layout::Table,
    })?;
    for v in &found.longest {
        out.row(&[
            Cell::Time(v.length()),
            Cell::At(v.from),
            Cell::At(v.to),
            Cell::Task(v.task),
            Cell::Cpu(v.waited_on),
            Cell::Task(v.behind),
            Cell::Cpu(v.idle),
        ])?;
    }
    let keys = Keys::new(header, scope.by.unwrap_or(By::Name));
    let mut lines = vec![Ns::ZERO; keys.len()];
    found.tasks.iter().enumerate().for_each(|(i, &time)| lines[keys.line(TaskId::from(i))] += time);
    let mut order: Vec<usize> = (0..lines.len()).filter(|&line| lines[line] > Ns::ZERO).collect();
    order.sort_by_key(|&line| Reverse(lines[line]));
    keys.server_first(scope, &mut order, |line| *line);
    out.table(&Table { key: "tasks", title: "By task", columns: TASKS, layout: Layout::Table })?;
    for line in order {
        out.row(&[Cell::label(&keys.labels[line]), Cell::Time(lines[line])])?;
    }
    out.table(&Table { key: "cpus", title: "By CPU", columns: CPUS, layout: Layout::Table })?;
    for (cpu, &time) in found.cpus.iter().enumerate() {
        out.row(&[Cell::Cpu(CpuId::from(cpu)), Cell::Time(time)])?;
    }
    if unknown > 0 {
        out.note(&format!(
            "the affinity of {unknown} tasks is not known: taken are the CPUs on which they ran"
        ))?;
    }
    Ok(())
}
