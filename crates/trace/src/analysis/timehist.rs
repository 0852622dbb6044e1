//! Every time that a task was on a CPU, as `perf sched timehist` (Linux 6.1) lists it: one row when
//! it ends.
//!
//! * *wait time*: since the task was last switched out, sleeping included;
//! * *sch delay*: since it was woken; 0 when it was not woken but preempted (or the wakeup was not
//!   seen);
//! * *run time*: on the CPU.
//!
//! The first row of a task has no wait, the first row of a CPU no run time: both begin before the
//! recording. One difference to perf: a wakeup stamped just before its task had finished blocking
//! is a wakeup here (`repair`), and forgotten there.

mod listing;

use super::show::{Cell, Column, Entry, Layout, Output, Table, column};
use super::{Analysis, Scope};
use crate::{Capability, Header, Recording};
pub use listing::{Found, Listed, Listing, Piece, Take};
use schedlab_model::{CpuId, EventKind, EventSink, Ns, PrevState, SchedEvent, TaskId};
use std::io;

/// The list's entry.
pub const ENTRY: Entry = Entry::new::<Timehist<fn(&Row)>>(
    "timehist",
    "Every time on a CPU, with the columns of `perf sched timehist`",
    show,
);

/// One time on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// When it ended.
    pub at: Ns,
    /// Where.
    pub cpu: CpuId,
    /// Who.
    pub who: Option<TaskId>,
    /// Off any CPU before it.
    pub wait: Ns,
    /// Of that, since the wakeup.
    pub delay: Ns,
    /// On the CPU.
    pub run: Ns,
    /// Why it ended.
    pub state: PrevState,
}

#[derive(Clone, Copy, Debug, Default)]
struct Track {
    out: Option<Ns>,
    ready: Option<Ns>,
}

/// What has to be known of the past to tell the next [`Row`].
#[derive(Clone, Debug, Default)]
struct Tracks {
    tasks: Vec<Track>,
    /// The last switch of each CPU, and when its idle task left it.
    cpus: Vec<(Option<Ns>, Option<Ns>)>,
}

/// Gives each [`Row`] to a function.
#[derive(Clone, Debug)]
pub struct Timehist<F> {
    tracks: Tracks,
    each: F,
}

impl<F> Analysis for Timehist<F> {
    const NAME: &'static str = "timehist";
    const NEEDS: &'static [Capability] = &[Capability::Preempted];
}

impl<F: FnMut(&Row)> Timehist<F> {
    /// Calls `each` for every row, in order of time.
    pub fn new(each: F) -> Timehist<F> {
        Timehist { tracks: Tracks::default(), each }
    }
}

impl<F: FnMut(&Row)> EventSink for Timehist<F> {
    fn event(&mut self, event: &SchedEvent) {
        if let Some(row) = self.tracks.step(event) {
            (self.each)(&row);
        }
    }
}

impl Tracks {
    /// The row that ends with `event`.
    #[inline(always)]
    fn step(&mut self, event: &SchedEvent) -> Option<Row> {
        match event.kind {
            EventKind::Switch { prev, prev_state, .. } => {
                return Some(self.left(event.at, event.cpu, prev, prev_state));
            }
            EventKind::Wake { task, .. } | EventKind::New { task, .. } => {
                self.ready(event.at, task)
            }
            EventKind::Lost { .. } => self.lost(event.cpu),
            _ => {}
        }
        None
    }

    #[inline(always)]
    fn track(&mut self, task: TaskId) -> &mut Track {
        if task.index() >= self.tasks.len() {
            self.tasks.resize(task.index() + 1, Track::default());
        }
        &mut self.tasks[task.index()]
    }

    /// `who` leaves `cpu`.
    #[inline(always)]
    fn left(&mut self, at: Ns, cpu: CpuId, who: Option<TaskId>, state: PrevState) -> Row {
        if cpu.index() >= self.cpus.len() {
            self.cpus.resize(cpu.index() + 1, (None, None));
        }
        let place = &mut self.cpus[cpu.index()];
        let began = place.0.replace(at);
        let left = Track { out: Some(at), ready: None };
        let track = match who {
            Some(task) => std::mem::replace(self.track(task), left),
            None => Track { out: place.1.replace(at), ready: None },
        };
        let mut row = Row { at, cpu, who, wait: Ns::ZERO, delay: Ns::ZERO, run: Ns::ZERO, state };
        if let Some(began) = began {
            row.run = at.saturating_sub(began);
            row.wait = track.out.map_or(Ns::ZERO, |out| began.saturating_sub(out));
            row.delay = track.ready.map_or(Ns::ZERO, |ready| began.saturating_sub(ready));
        }
        row
    }

    /// `task` becomes runnable.
    #[inline(always)]
    fn ready(&mut self, at: Ns, task: TaskId) {
        self.track(task).ready.get_or_insert(at);
    }

    /// `task` was woken as soon as it had left its CPU.
    #[inline(always)]
    fn ready_since_out(&mut self, task: TaskId) {
        let track = self.track(task);
        track.ready = track.out;
    }

    /// It is not known since when the next task of `cpu` ran.
    fn lost(&mut self, cpu: CpuId) {
        if let Some(cpu) = self.cpus.get_mut(cpu.index()) {
            *cpu = (None, None);
        }
    }
}

const COLUMNS: &[Column] = &[
    column("at_ns", "time"),
    column("cpu", "cpu"),
    column("task", "task name [tid/pid]"),
    column("wait_ns", "wait time"),
    column("delay_ns", "sch delay"),
    column("run_ns", "run time"),
    column("state", "state"),
];

/// The letter of `sched_switch`'s `prev_state`.
fn letter(state: PrevState) -> &'static str {
    match state {
        PrevState::Runnable => "R",
        PrevState::RunnableInKernel => "R+",
        PrevState::Sleeping => "S",
        PrevState::DiskSleep => "D",
        PrevState::Stopped => "T",
        PrevState::Dead => "X",
        PrevState::Blocked => "blocked",
        PrevState::Unknown => "?",
    }
}

/// The listing's table.
pub const TABLE: Table = Table {
    key: "timehist",
    title: "Times on a CPU (sec; msec)",
    columns: COLUMNS,
    layout: Layout::Listing,
};

impl Row {
    /// Calls `then` with a cell for each column.
    pub fn cells<T>(&self, then: impl FnOnce(&[Cell<'_>]) -> T) -> T {
        then(&[
            Cell::At(self.at),
            Cell::Cpu(self.cpu),
            Cell::occupant(self.who.into()),
            Cell::Time(self.wait),
            Cell::Time(self.delay),
            Cell::Time(self.run),
            self.letter().map_or(Cell::None, Cell::Text),
        ])
    }

    /// Why a task's time ended; of an idle CPU there is nothing to say.
    #[inline]
    pub fn letter(&self) -> Option<&'static str> {
        self.who.is_some().then(|| letter(self.state))
    }

    /// Whether it belongs to the part that is shown.
    #[inline]
    pub fn is_shown(&self, scope: &Scope) -> bool {
        let whose = self.who.map_or(scope.tasks.is_none(), |task| scope.task(task));
        scope.at(self.at) && scope.on(self.cpu) && whose
    }
}

/// What a reader must know about the rows of a recording.
pub fn note(header: &Header) -> Option<&'static str> {
    let known = header.capabilities.has(Capability::WakeTimes);
    (!known).then_some("the recording has no wakeup times: `sch delay` is 0 throughout")
}

fn show(recording: &Recording, scope: &Scope, out: &mut dyn Output) -> io::Result<()> {
    out.table(&TABLE)?;
    let mut result = Ok(());
    let each = |row: &Row| {
        if row.is_shown(scope) && result.is_ok() {
            result = out.time_on_cpu(row);
        }
    };
    scope.feed(recording, &mut Timehist::new(each));
    result?;
    note(&recording.header).map_or(Ok(()), |text| out.note(text))
}
