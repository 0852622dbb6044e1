//! Every time that somebody was on a CPU, as `perf sched timehist` (Linux 6.1) lists it: one row when it ends.
//!
//! * *wait time*: since the task was last switched out, sleeping included;
//! * *sch delay*: since it was woken; 0 when it was not woken but preempted (or the wakeup was not seen);
//! * *run time*: on the CPU.
//!
//! The first row of a task has no wait, the first row of a CPU no run time: both begin before the recording. One
//! difference to perf: a wakeup stamped just before its task had finished blocking is a wakeup here (`repair`),
//! and forgotten there.

use super::show::{Cell, Column, Entry, Layout, Output, Table, column};
use super::{Analysis, Scope};
use crate::{Capability, Recording};
use schedlab_model::{CpuId, EventKind, EventSink, Ns, PrevState, SchedEvent, TaskId};
use std::io;

/// The list's entry.
pub(crate) const ENTRY: Entry = Entry::of::<Timehist<fn(&Row)>>(
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

/// Gives each [`Row`] to a function.
#[derive(Clone, Debug)]
pub struct Timehist<F> {
    tasks: Vec<Track>,
    /// The last switch of each CPU, and when its idle task left it.
    cpus: Vec<(Option<Ns>, Option<Ns>)>,
    each: F,
}

impl<F> Analysis for Timehist<F> {
    const NAME: &'static str = "timehist";
    const NEEDS: &'static [Capability] = &[Capability::Preempted];
}

impl<F: FnMut(&Row)> Timehist<F> {
    /// Calls `each` for every row, in order of time.
    pub fn new(each: F) -> Timehist<F> {
        Timehist { tasks: Vec::new(), cpus: Vec::new(), each }
    }

    fn track(&mut self, task: TaskId) -> &mut Track {
        if task.index() >= self.tasks.len() {
            self.tasks.resize(task.index() + 1, Track::default());
        }
        &mut self.tasks[task.index()]
    }

    fn switch(&mut self, at: Ns, cpu: CpuId, who: Option<TaskId>, state: PrevState) {
        if cpu.index() >= self.cpus.len() {
            self.cpus.resize(cpu.index() + 1, (None, None));
        }
        let (began, idle_out) = self.cpus[cpu.index()];
        let track = match who {
            Some(task) => *self.track(task),
            None => Track { out: idle_out, ready: None },
        };
        let mut row = Row { at, cpu, who, wait: Ns::ZERO, delay: Ns::ZERO, run: Ns::ZERO, state };
        if let Some(began) = began {
            row.run = at.saturating_sub(began);
            row.wait = track.out.map_or(Ns::ZERO, |out| began.saturating_sub(out));
            row.delay = track.ready.map_or(Ns::ZERO, |ready| began.saturating_sub(ready));
        }
        (self.each)(&row);
        let left = Track { out: Some(at), ready: None };
        match who {
            Some(task) => *self.track(task) = left,
            None => self.cpus[cpu.index()].1 = left.out,
        }
        self.cpus[cpu.index()].0 = Some(at);
    }
}

impl<F: FnMut(&Row)> EventSink for Timehist<F> {
    #[inline]
    fn event(&mut self, event: &SchedEvent) {
        match event.kind {
            EventKind::Switch { prev, prev_state, .. } => self.switch(event.at, event.cpu, prev, prev_state),
            EventKind::Wake { task, .. } | EventKind::New { task, .. } => {
                self.track(task).ready.get_or_insert(event.at);
            }
            // Nobody knows since when its next task ran.
            EventKind::Lost { .. } => {
                if let Some(cpu) = self.cpus.get_mut(event.cpu.index()) {
                    *cpu = (None, None);
                }
            }
            _ => {}
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

fn show(recording: &Recording, scope: &Scope, out: &mut dyn Output) -> io::Result<()> {
    let title = "Times on a CPU (sec; msec)";
    out.table(&Table { key: "timehist", title, columns: COLUMNS, layout: Layout::Listing })?;
    let mut result = Ok(());
    let mut timehist = Timehist::new(|row: &Row| {
        let shown =
            scope.at(row.at) && scope.on(row.cpu) && row.who.map_or(scope.tasks.is_none(), |t| scope.task(t));
        if shown && result.is_ok() {
            result = out.row(&[
                Cell::At(row.at),
                Cell::Cpu(row.cpu),
                Cell::occupant(row.who.into()),
                Cell::Time(row.wait),
                Cell::Time(row.delay),
                Cell::Time(row.run),
                if row.who.is_some() { Cell::Text(letter(row.state)) } else { Cell::None },
            ]);
        }
    });
    scope.feed(recording, &mut timehist);
    result?;
    if !recording.header.capabilities.has(Capability::WakeTimes) {
        out.note("the recording has no wakeup times: `sch delay` is 0 throughout")?;
    }
    Ok(())
}
