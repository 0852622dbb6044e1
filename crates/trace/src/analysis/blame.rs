//! Who ran while others waited. Each nanosecond for which a task was runnable and not running is
//! laid to the task that was on the CPU in whose run queue the task was: another task, no task (the
//! CPU was on its way to it), or a limit that held the task back. What is laid to all together is
//! what the task waited.

use super::follow::{Followed, Follower, Listener, Occupant, Span, ThreadState};
use super::show::{Cell, Column, Entry, Layout, Output, Table, column};
use super::{Analysis, By, Keys, Occupancy, Scope};
use crate::{Capability, Header, Recording};
use schedlab_model::{CpuId, Ns, SchedEvent};
use std::io;

/// The list's entry.
pub(crate) const ENTRY: Entry =
    Entry::new::<Blame>("blame", "Who ran while others waited (antagonists)", show);

/// Who is to blame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Culprit {
    /// The tasks of this line.
    Line(usize),
    /// None: the CPU was idle.
    Idle,
    /// A bandwidth limit or cap.
    Throttled,
    /// Not known who ran.
    Unknown,
}

/// What was laid to one culprit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share {
    /// How long.
    pub time: Ns,
    /// In how many parts of waits.
    pub times: u64,
}

/// The matrix: waiting line × culprit. Sparse, each row in order of culprits.
#[derive(Clone, Debug)]
pub struct Blame {
    scope: Scope,
    occupancy: Occupancy,
    /// Which task is in which line.
    pub keys: Keys,
    /// By waiting line.
    pub rows: Vec<Vec<(Culprit, Share)>>,
    /// The only row that is filled; `None`: all are.
    only: Option<usize>,
}

impl Analysis for Blame {
    const NAME: &'static str = "the blame matrix";
    const NEEDS: &'static [Capability] = &[Capability::Preempted, Capability::AllTasks];
}

impl Blame {
    /// For the tasks of `header`.
    pub fn new(header: &Header, scope: &Scope, by: By) -> Blame {
        let keys = Keys::new(header, by);
        let rows = vec![Vec::new(); keys.len()];
        Blame { scope: scope.clone(), occupancy: Occupancy::default(), keys, rows, only: None }
    }

    /// Fills the row of this line alone: who ran is not looked up for the waits of others.
    #[must_use]
    pub fn of_line(mut self, line: usize) -> Blame {
        self.only = Some(line);
        self
    }

    /// How long a line waited.
    pub fn waited(&self, line: usize) -> Ns {
        self.rows[line].iter().map(|(_, share)| share.time).sum()
    }
}

fn lay(row: &mut Vec<(Culprit, Share)>, culprit: Culprit, time: Ns) {
    let at = match row.binary_search_by_key(&culprit, |entry| entry.0) {
        Ok(at) => at,
        Err(at) => {
            row.insert(at, (culprit, Share::default()));
            at
        }
    };
    row[at].1.time += time;
    row[at].1.times += 1;
}

impl Listener for Blame {
    fn occupied(&mut self, cpu: CpuId, at: Ns, who: Occupant) {
        self.occupancy.note(cpu, at, who);
    }

    fn span(&mut self, span: &Span) {
        let (from, to) = (span.from.max(self.scope.from), span.to.min(self.scope.to));
        if !span.state.waits()
            || from >= to
            || !self.scope.task(span.task)
            || !self.scope.on(span.cpu)
        {
            return;
        }
        let keys = &self.keys;
        let line = keys.line(span.task);
        if self.only.is_some_and(|only| only != line) {
            return;
        }
        let row = &mut self.rows[line];
        if span.state == ThreadState::Throttled {
            return lay(row, Culprit::Throttled, to - from);
        }
        self.occupancy.over(span.cpu, from, to, |who, part| {
            let culprit = match who {
                Occupant::Task(task) => Culprit::Line(keys.line(task)),
                Occupant::Idle => Culprit::Idle,
                Occupant::Unknown => Culprit::Unknown,
            };
            lay(row, culprit, part);
        });
    }

    fn after(&mut self, follower: &Follower, _event: &SchedEvent) {
        self.occupancy.tidy(follower);
    }
}

const COLUMNS: &[Column] = &[
    column("waiting", "who waited"),
    column("running", "who ran meanwhile"),
    column("time_ns", "time"),
    column("share", "of its waiting"),
    column("times", "times"),
];

const ANTAGONISTS: &[Column] = &[
    column("running", "who ran"),
    column("time_ns", "while others waited"),
    column("share", "of all waiting"),
    column("most", "most of it to"),
    column("most_ns", "time"),
];

/// Culprits of one waiter that are printed when no number is given.
const TOP: usize = 5;

fn show(recording: &Recording, scope: &Scope, out: &mut dyn Output) -> io::Result<()> {
    let blame = Blame::new(&recording.header, scope, scope.by.unwrap_or(By::Name));
    let blame = Followed::over(recording, scope, blame);
    let labels = &blame.keys.labels;
    let name = |culprit| match culprit {
        Culprit::Line(line) => Cell::label(&labels[line]),
        Culprit::Idle => Cell::Text("<idle>"),
        Culprit::Throttled => Cell::Text("<throttled>"),
        Culprit::Unknown => Cell::Text("<unknown>"),
    };
    let mut order: Vec<usize> =
        (0..labels.len()).filter(|&line| blame.waited(line) > Ns::ZERO).collect();
    order.sort_by_key(|&line| std::cmp::Reverse(blame.waited(line)));
    blame.keys.server_first(scope, &mut order, |line| *line);
    let title = "Who ran while others waited";
    let mut hidden = 0;
    out.table(&Table { key: "matrix", title, columns: COLUMNS, layout: Layout::Table })?;
    for &line in &order {
        let mut row = blame.rows[line].clone();
        row.sort_by_key(|(_, share)| std::cmp::Reverse(share.time));
        let top = scope.top.unwrap_or(if scope.tasks.is_some() { usize::MAX } else { TOP });
        hidden += row.len().saturating_sub(top);
        for (culprit, share) in row.into_iter().take(top) {
            let part = Cell::part(share.time, blame.waited(line));
            let times = Cell::Count(share.times);
            out.row(&[
                Cell::label(&labels[line]),
                name(culprit),
                Cell::Time(share.time),
                part,
                times,
            ])?;
        }
    }
    antagonists(&blame, &order, &name, out)?;
    if hidden > 0 {
        out.note(&format!(
            "{hidden} smaller entries of the matrix are not shown (`--top N` shows N for each task)"
        ))?;
    }
    if !recording.header.capabilities.has(Capability::Migrations) {
        out.note(
            "the recording has no migrations: a whole wait is laid to the CPU on which it ended",
        )?;
    }
    Ok(())
}

/// Who delayed others most. Threads of one name that wait for each other are no antagonists.
fn antagonists<'a>(
    blame: &'a Blame,
    waiters: &[usize],
    name: &impl Fn(Culprit) -> Cell<'a>,
    out: &mut dyn Output,
) -> io::Result<()> {
    let mut sums: Vec<(Ns, Option<(Ns, usize)>)> = vec![(Ns::ZERO, None); blame.keys.len()];
    let mut all = Ns::ZERO;
    for &waiter in waiters {
        all += blame.waited(waiter);
        for (culprit, share) in &blame.rows[waiter] {
            if let Culprit::Line(line) = *culprit
                && line != waiter
            {
                let (sum, most) = &mut sums[line];
                *sum += share.time;
                if most.is_none_or(|(time, _)| time < share.time) {
                    *most = Some((share.time, waiter));
                }
            }
        }
    }
    let title = "Antagonists: who ran most while others waited";
    out.table(&Table { key: "antagonists", title, columns: ANTAGONISTS, layout: Layout::Table })?;
    let mut order: Vec<usize> = (0..sums.len()).filter(|&line| sums[line].0 > Ns::ZERO).collect();
    order.sort_by_key(|&line| std::cmp::Reverse(sums[line].0));
    for line in order.into_iter().take(10) {
        let (sum, most) = sums[line];
        let Some((time, victim)) = most else { continue };
        let share = Cell::part(sum, all);
        out.row(&[
            name(Culprit::Line(line)),
            Cell::Time(sum),
            share,
            name(Culprit::Line(victim)),
            Cell::Time(time),
        ])?;
    }
    Ok(())
}
