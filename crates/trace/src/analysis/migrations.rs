//! Migrations: who moves to another CPU's run queue, when, and between which CPUs.

use super::answer::{counted, name, percent};
use super::follow::{Followed, Follower, Listener, ThreadState};
use super::show::{Cell, Column, Entry, Layout, Output, Table, column};
use super::{Analysis, By, Keys, Scope};
use crate::{Capability, Header, Recording};
use schedlab_model::{CpuId, EventKind, SchedEvent, TaskId};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;

/// The list's entry.
pub(crate) const ENTRY: Entry =
    Entry::new::<Migrations>("migrations", "Who moves between which CPUs, and when", show);

/// The moves of one line, by what the task was doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MigrationCounts {
    /// While it was being woken: placed elsewhere than before.
    pub woken: u64,
    /// While it waited after losing the CPU.
    pub preempted: u64,
    /// While it ran.
    pub running: u64,
    /// While it slept, or it is not known.
    pub other: u64,
}

impl MigrationCounts {
    /// All of them.
    pub const fn all(&self) -> u64 {
        self.woken + self.preempted + self.running + self.other
    }
}

/// Migrations by line of [`Keys`], and between CPUs.
#[derive(Clone, Debug)]
pub struct Migrations {
    scope: Scope,
    /// Which task is in which line.
    pub keys: Keys,
    /// By line.
    pub lines: Vec<MigrationCounts>,
    /// How many from one CPU to another.
    pub between: BTreeMap<(CpuId, CpuId), u64>,
}

impl Analysis for Migrations {
    const NAME: &'static str = "migrations";
    const NEEDS: &'static [Capability] = &[Capability::Migrations];
}

impl Migrations {
    /// For the tasks of `header`.
    pub fn new(header: &Header, scope: &Scope, by: By) -> Migrations {
        let keys = Keys::new(header, by);
        let lines = vec![MigrationCounts::default(); keys.len()];
        Migrations { scope: scope.clone(), keys, lines, between: BTreeMap::new() }
    }

    fn moved(&mut self, task: TaskId, state: ThreadState, from: CpuId, to: CpuId) {
        let line = &mut self.lines[self.keys.line(task)];
        *match state {
            ThreadState::Runnable => &mut line.woken,
            ThreadState::Preempted | ThreadState::Throttled => &mut line.preempted,
            ThreadState::Running => &mut line.running,
            _ => &mut line.other,
        } += 1;
        *self.between.entry((from, to)).or_default() += 1;
    }
}

impl Listener for Migrations {
    fn before(&mut self, follower: &Follower, event: &SchedEvent) {
        if let EventKind::Migrate { task, from, to } = event.kind
            && self.scope.at(event.at)
            && self.scope.task(task)
            && (self.scope.on(from) || self.scope.on(to))
        {
            self.moved(task, follower.state(task).0, from, to);
        }
    }
}

const COLUMNS: &[Column] = &[
    column("task", "task"),
    column("migrations", "migrations"),
    column("woken", "at or after a wakeup"),
    column("preempted", "preempted"),
    column("running", "running"),
    column("other", "asleep or unknown"),
];

const BETWEEN: &[Column] =
    &[column("from", "from"), column("to", "to"), column("migrations", "migrations")];

/// Which task moved most, and from where to where most moves went.
fn answer(recording: &Recording, found: &Migrations) -> String {
    let all: u64 = found.lines.iter().map(MigrationCounts::all).sum();
    let most = (0..found.lines.len()).max_by_key(|&line| (found.lines[line].all(), Reverse(line)));
    let way = found.between.iter().max_by_key(|(way, count)| (**count, Reverse(**way)));
    let (Some(most), Some(((from, to), count)), true) = (most, way, all > 0) else {
        return "No task moved to another CPU.".to_owned();
    };
    let (line, who) = (&found.lines[most], name(&recording.header, &found.keys.labels[most]));
    format!(
        "{who} moved to another CPU most often: {} of {}, {} of its own at or after a wakeup. \
         Most moves of all tasks went from \
         CPU {} to CPU {}: {count}.",
        line.all(),
        counted(all, "migration"),
        percent(line.woken, line.all()),
        from.0,
        to.0,
    )
}

fn show(recording: &Recording, scope: &Scope, out: &mut dyn Output) -> io::Result<()> {
    let found = Migrations::new(&recording.header, scope, scope.by.unwrap_or(By::Name));
    let found = Followed::over(recording, scope, found);
    let title = "Migrations, by what the task was doing";
    out.answer(&answer(recording, &found))?;
    out.table(&Table { key: "migrations", title, columns: COLUMNS, layout: Layout::Table })?;
    let mut order: Vec<usize> =
        (0..found.lines.len()).filter(|&line| found.lines[line].all() > 0).collect();
    order.sort_by_key(|&line| std::cmp::Reverse(found.lines[line].all()));
    found.keys.server_first(scope, &mut order, |line| *line);
    for index in order {
        let line = &found.lines[index];
        out.row(&[
            Cell::label(&found.keys.labels[index]),
            Cell::Count(line.all()),
            Cell::Count(line.woken),
            Cell::Count(line.preempted),
            Cell::Count(line.running),
            Cell::Count(line.other),
        ])?;
    }
    out.table(&Table {
        key: "between",
        title: "Between CPUs",
        columns: BETWEEN,
        layout: Layout::Table,
    })?;
    for (&(from, to), &count) in &found.between {
        out.row(&[Cell::Cpu(from), Cell::Cpu(to), Cell::Count(count)])?;
    }
    Ok(())
}
