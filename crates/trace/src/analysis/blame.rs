//! Who ran while others waited. Each nanosecond for which a task was runnable and not running is
//! laid to the task that was on the CPU in whose run queue the task was: another task, no task (the
//! CPU was on its way to it), or a limit that held the task back. What is laid to all together is
//! what the task waited.

use super::follow::{Followed, Follower, Listener, Occupant, Span, ThreadState};
use super::occupancy::Waited;
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
    /// Lines have several tasks, of which many may wait at a time.
    shared: bool,
    /// By CPU: waits with many switches in them, which are laid together.
    long: Vec<Vec<Waited>>,
    /// How many these are.
    noted: usize,
}

/// A wait with more switches in it than this is noted, and laid with others. Chosen: most waits
/// have fewer, and a walk over so few costs less than to note it.
const FEW: usize = 8;
/// So many waits are noted before they are laid (24 bytes each).
const NOTED: usize = 1 << 16;

impl Analysis for Blame {
    const NAME: &'static str = "the blame matrix";
    const NEEDS: &'static [Capability] = &[Capability::Preempted, Capability::AllTasks];
}

impl Blame {
    /// For the tasks of `header`.
    pub fn new(header: &Header, scope: &Scope, by: By) -> Blame {
        let keys = Keys::new(header, by);
        let rows = vec![Vec::new(); keys.len()];
        let shared = keys.len() * 2 <= header.tasks.len();
        let (scope, occupancy) = (scope.clone(), Occupancy::default());
        let (only, long, noted) = (None, Vec::new(), 0);
        Blame { scope, occupancy, keys, rows, only, shared, long, noted }
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

    /// Notes a wait with many switches in it.
    fn note(&mut self, cpu: CpuId, wait: Waited) {
        if cpu.index() >= self.long.len() {
            self.long.resize(cpu.index() + 1, Vec::new());
        }
        self.long[cpu.index()].push(wait);
        self.noted += 1;
        if self.noted >= NOTED {
            self.lay_noted();
        }
    }

    /// Lays the waits that were noted.
    fn lay_noted(&mut self) {
        let Blame { occupancy, keys, rows, long, .. } = self;
        for (cpu, waits) in long.iter_mut().enumerate() {
            occupancy.over_all(CpuId::from(cpu), waits, |line, who, time, times| {
                lay(&mut rows[line], culprit(keys, who), Share { time, times });
            });
            waits.clear();
        }
        self.noted = 0;
    }
}

fn culprit(keys: &Keys, who: Occupant) -> Culprit {
    match who {
        Occupant::Task(task) => Culprit::Line(keys.line(task)),
        Occupant::Idle => Culprit::Idle,
        Occupant::Unknown => Culprit::Unknown,
    }
}

fn lay(row: &mut Vec<(Culprit, Share)>, culprit: Culprit, share: Share) {
    let at = match row.binary_search_by_key(&culprit, |entry| entry.0) {
        Ok(at) => at,
        Err(at) => {
            row.insert(at, (culprit, Share::default()));
            at
        }
    };
    row[at].1.time += share.time;
    row[at].1.times += share.times;
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
        if span.state == ThreadState::Throttled {
            let share = Share { time: to - from, times: 1 };
            return lay(&mut self.rows[line], Culprit::Throttled, share);
        }
        if self.shared && self.occupancy.switches_after(span.cpu, from) > FEW {
            return self.note(span.cpu, Waited { line, from, to });
        }
        let row = &mut self.rows[line];
        self.occupancy.over(span.cpu, from, to, |who, time| {
            lay(row, culprit(keys, who), Share { time, times: 1 });
        });
    }

    fn after(&mut self, follower: &Follower, _event: &SchedEvent) {
        if self.occupancy.is_full() {
            self.lay_noted();
        }
        self.occupancy.tidy(follower);
    }

    fn finished(&mut self, _follower: &Follower) {
        self.lay_noted();
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
