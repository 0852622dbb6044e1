//! The schedule as it happened: a line whenever a task is scheduled (gets a CPU) or descheduled
//! (loses it), with how long it had waited or run, and why it stopped; with the system call in
//! which it blocked where the recording has it.

use super::follow::{Followed, Follower, Listener, Span, ThreadState, Wait};
use super::show::{Cell, Column, Entry, Layout, Output, Table, column};
use super::syscalls::{Calls, name};
use super::{Analysis, Scope};
use crate::{Capability, Header, Recording};
use schedlab_model::{CpuId, EventKind, Ns, SchedEvent, TaskId};
use std::io;

/// The list's entry.
pub(crate) const ENTRY: Entry = Entry::new::<Stream<fn(&StreamEntry)>>(
    "stream",
    "Every `scheduled` and `descheduled`, line by line",
    show,
);

/// What happened to a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// It got the CPU. How long it had waited for it, and whether after a preemption; `None` when
    /// that is not known.
    Scheduled(Option<(Ns, bool)>),
    /// It lost the CPU.
    Descheduled {
        /// How long it had run, where known.
        ran: Option<Ns>,
        /// What it does now.
        state: ThreadState,
        /// The system call in which it blocked, where known.
        call: Option<u32>,
    },
}

/// One line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamEntry {
    /// When.
    pub at: Ns,
    /// Where.
    pub cpu: CpuId,
    /// Who.
    pub task: TaskId,
    /// What.
    pub what: What,
}

/// Gives each [`StreamEntry`] to a function, in order of time. `Followed<Stream<_>>` is the sink.
#[derive(Clone, Debug)]
pub struct Stream<F> {
    calls: Calls,
    ran: Option<Ns>,
    waited: Option<(Ns, bool)>,
    each: F,
}

impl<F> Analysis for Stream<F> {
    const NAME: &'static str = "the stream of scheduled and descheduled tasks";
    const NEEDS: &'static [Capability] = &[Capability::Preempted];
}

impl<F: FnMut(&StreamEntry)> Stream<F> {
    /// Calls `each` for every line of a recording with this header.
    pub fn new(header: &Header, each: F) -> Stream<F> {
        Stream { calls: Calls::new(header), ran: None, waited: None, each }
    }
}

impl<F: FnMut(&StreamEntry)> Listener for Stream<F> {
    fn before(&mut self, _: &Follower, event: &SchedEvent) {
        self.calls.event(event);
        (self.ran, self.waited) = (None, None);
    }

    fn span(&mut self, span: &Span) {
        if span.state == ThreadState::Running && span.next != ThreadState::Running {
            self.ran = Some(span.length());
        }
    }

    fn wait(&mut self, wait: &Wait<'_>) {
        self.waited = Some((wait.total(), wait.preempted()));
    }

    fn after(&mut self, follower: &Follower, event: &SchedEvent) {
        let EventKind::Switch { prev, next, .. } = event.kind else { return };
        let (at, cpu) = (event.at, event.cpu);
        if let Some(task) = prev {
            let state = follower.state(task).0;
            let call = if state.queued() { None } else { self.calls.current(task) };
            (self.each)(&StreamEntry {
                at,
                cpu,
                task,
                what: What::Descheduled { ran: self.ran, state, call },
            });
        }
        if let Some(task) = next {
            (self.each)(&StreamEntry { at, cpu, task, what: What::Scheduled(self.waited) });
        }
    }
}

const COLUMNS: &[Column] = &[
    column("at_ns", "time"),
    column("cpu", "cpu"),
    column("task", "task name [tid/pid]"),
    column("what", "what"),
    column("after_ns", "after"),
    column("detail", "detail"),
    column("syscall", "system call"),
];

fn show(recording: &Recording, scope: &Scope, out: &mut dyn Output) -> io::Result<()> {
    let title = "Scheduled and descheduled (sec; msec waited or run)";
    out.table(&Table { key: "stream", title, columns: COLUMNS, layout: Layout::Listing })?;
    let mut result = Ok(());
    let stream = Stream::new(&recording.header, |line: &StreamEntry| {
        if !scope.at(line.at) || !scope.on(line.cpu) || !scope.task(line.task) || result.is_err() {
            return;
        }
        let (what, after, detail, call) = match line.what {
            What::Scheduled(Some((waited, true))) => {
                ("scheduled", Some(waited), "waited, preempted", None)
            }
            What::Scheduled(Some((waited, false))) => {
                ("scheduled", Some(waited), "waited since its wakeup", None)
            }
            What::Scheduled(None) => ("scheduled", None, "since when it waited is not known", None),
            What::Descheduled { ran, state, call } => ("descheduled", ran, state.words(), call),
        };
        let call = call.map(name);
        let row = [
            Cell::At(line.at),
            Cell::Cpu(line.cpu),
            Cell::Task(line.task),
            Cell::Text(what),
            Cell::maybe(after, Cell::Time),
            Cell::Text(detail),
            Cell::maybe(call.as_deref(), Cell::Text),
        ];
        result = out.row(&row);
    });
    Followed::over(recording, scope, stream);
    result
}
