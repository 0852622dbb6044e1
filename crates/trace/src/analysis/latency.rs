//! Run-queue latency: how long runnable tasks wait for a CPU, after wakeups and after preemptions,
//! and when it was worst. After a wakeup throttled time counts, as in a latency that the task
//! measures itself; after a preemption it does not. Waits that are still open at the end are not
//! counted.

use super::follow::{Followed, Listener, Span, ThreadState, Wait};
use super::show::{Cell, Column, Entry, Layout, Output, Table, column};
use super::{Analysis, By, Durations, Keys, Scope};
use crate::{Capability, Header, Recording};
use schedlab_model::{Ns, TaskId};
use std::io;

/// The list's entry.
pub(crate) const ENTRY: Entry = Entry::new::<Latency>(
    "latency",
    "Run-queue latency per task and cgroup, waits after wakeups and after preemptions apart",
    show,
);

/// The longest of several waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Longest {
    /// How long; after a preemption without throttled time.
    pub length: Ns,
    /// When it began.
    pub from: Ns,
    /// When it ended.
    pub to: Ns,
}

/// The waits of one kind.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// All of them.
    pub lengths: Durations,
    /// The longest.
    pub longest: Option<Longest>,
}

impl Waits {
    fn add(&mut self, wait: &Wait<'_>) {
        let length = wait.counted();
        self.lengths.add(length);
        if self.longest.is_none_or(|longest| longest.length < length) {
            self.longest = Some(Longest { length, from: wait.from, to: wait.to });
        }
    }
}

/// One line: a task, all tasks of a name, or a cgroup.
#[derive(Clone, Debug, Default)]
pub struct RunQueueLatency {
    /// CPU time in the window.
    pub run: Ns,
    /// Wakeup to running.
    pub wake: Waits,
    /// Preemption to running again.
    pub preempt: Waits,
    /// Times a task ran after blocking although no wakeup was seen: no wait is known.
    pub unknown_wakes: u64,
}

/// Run-queue latency by line of [`Keys`].
#[derive(Clone, Debug)]
pub struct Latency {
    scope: Scope,
    /// Which task is in which line.
    pub keys: Keys,
    /// By line.
    pub lines: Vec<RunQueueLatency>,
}

impl Analysis for Latency {
    const NAME: &'static str = "run-queue latency";
    const NEEDS: &'static [Capability] = &[Capability::Preempted];
}

impl Latency {
    /// For the tasks of `header`, one line for each of `by`.
    pub fn new(header: &Header, scope: &Scope, by: By) -> Latency {
        let keys = Keys::new(header, by);
        let lines = vec![RunQueueLatency::default(); keys.len()];
        Latency { scope: scope.clone(), keys, lines }
    }

    fn line(&mut self, task: TaskId) -> &mut RunQueueLatency {
        &mut self.lines[self.keys.line(task)]
    }
}

impl Listener for Latency {
    fn span(&mut self, span: &Span) {
        if span.state == ThreadState::Running
            && self.scope.task(span.task)
            && self.scope.on(span.cpu)
        {
            let run = self.scope.clip(span.from, span.to);
            self.line(span.task).run += run;
        }
    }

    fn wait(&mut self, wait: &Wait<'_>) {
        if self.scope.at(wait.to) && self.scope.task(wait.task) && self.scope.on(wait.cpu) {
            let line = self.line(wait.task);
            if wait.preempted() { line.preempt.add(wait) } else { line.wake.add(wait) }
        }
    }

    fn unknown_wake(&mut self, task: TaskId, at: Ns) {
        if self.scope.at(at) && self.scope.task(task) {
            self.line(task).unknown_wakes += 1;
        }
    }
}

const COLUMNS: &[Column] = &[
    column("task", "task"),
    column("run_ns", "run").rank(6),
    column("wakeups", "wakeups").rank(3),
    column("wake_mean_ns", "wakeup mean").rank(2),
    column("wake_p99_ns", "wakeup p99").rank(1),
    column("wake_p99_interval_ns", "wakeup p99 interval").rank(3),
    column("wake_max_ns", "wakeup max").rank(1),
    column("wake_max_from_ns", "wakeup max from").rank(6),
    column("wake_max_to_ns", "wakeup max to").rank(7),
    column("preemptions", "preempted").rank(3),
    column("preempt_mean_ns", "preempted mean").rank(4),
    column("preempt_p99_ns", "preempted p99").rank(3),
    column("preempt_p99_interval_ns", "preempted p99 interval").rank(6),
    column("preempt_max_ns", "preempted max").rank(2),
    column("preempt_max_from_ns", "preempted max from").rank(7),
    column("preempt_max_to_ns", "preempted max to").rank(8),
    column("wake_p50_ns", "wakeup p50").rank(4),
    column("wake_p50_interval_ns", "wakeup p50 interval").rank(7),
    column("preempt_p50_ns", "preempted p50").rank(6),
    column("preempt_p50_interval_ns", "preempted p50 interval").rank(8),
    column("unknown_wakes", "unknown wakeups"),
];

fn cells(waits: &Waits) -> [Cell<'static>; 9] {
    let lengths = &waits.lengths;
    let Some(longest) = waits.longest else {
        let mut none = [Cell::None; 9];
        none[0] = Cell::Count(0);
        return none;
    };
    [
        Cell::Count(lengths.count()),
        Cell::Time(lengths.mean()),
        Cell::Time(lengths.p99().min(longest.length)),
        Cell::interval(lengths, 990_000),
        Cell::Time(longest.length),
        Cell::At(longest.from),
        Cell::At(longest.to),
        Cell::Time(lengths.p50().min(longest.length)),
        Cell::interval(lengths, 500_000),
    ]
}

fn show(recording: &Recording, scope: &Scope, out: &mut dyn Output) -> io::Result<()> {
    let bys = match scope.by {
        Some(by) => vec![by],
        None if recording.header.groups.len() > 1 => vec![By::Name, By::Cgroup],
        None => vec![By::Name],
    };
    let mut unknown = 0;
    for by in bys {
        let (key, title) = match by {
            By::Thread => ("threads", "Run-queue latency of threads"),
            By::Name => ("tasks", "Run-queue latency of tasks (threads of one name together)"),
            By::Process => ("processes", "Run-queue latency of processes"),
            By::Cgroup => ("cgroups", "Run-queue latency of control groups"),
            By::Unit => ("units", "Run-queue latency of units"),
            By::Container => ("containers", "Run-queue latency of containers"),
            By::Pod => ("pods", "Run-queue latency of pods"),
            By::Guest => ("guests", "Run-queue latency of guests"),
        };
        let latency = Followed::over(recording, scope, Latency::new(&recording.header, scope, by));
        out.table(&Table { key, title, columns: COLUMNS, layout: Layout::Table })?;
        let mut order: Vec<usize> = (0..latency.lines.len()).collect();
        let worst = |line: &RunQueueLatency| {
            [line.wake.longest, line.preempt.longest]
                .iter()
                .flatten()
                .map(|l| l.length)
                .max()
                .unwrap_or(Ns(0))
        };
        order.sort_by_key(|&index| std::cmp::Reverse(worst(&latency.lines[index])));
        latency.keys.server_first(scope, &mut order, |line| *line);
        unknown = 0;
        for index in order {
            let line = &latency.lines[index];
            unknown += line.unknown_wakes;
            if line.run == Ns::ZERO && worst(line) == Ns::ZERO {
                continue;
            }
            let (wake, preempt) = (cells(&line.wake), cells(&line.preempt));
            let mut row = vec![Cell::label(&latency.keys.labels[index]), Cell::Time(line.run)];
            row.extend_from_slice(&wake[..7]);
            row.extend_from_slice(&preempt[..7]);
            row.extend([wake[7], wake[8], preempt[7], preempt[8], Cell::Count(line.unknown_wakes)]);
            out.row(&row)?;
        }
    }
    notes(recording, unknown, out)
}

/// What the figures do not contain.
fn notes(recording: &Recording, unknown: u64, out: &mut dyn Output) -> io::Result<()> {
    if !recording.header.capabilities.has(Capability::WakeTimes) {
        out.note("the recording has no wakeup times: only waits after preemptions are known")
    } else if unknown > 0 {
        out.note(&format!(
            "{unknown} times a task ran after blocking and its wakeup was not seen: not counted"
        ))
    } else {
        Ok(())
    }
}
