//! Every event, in the order of time.

use super::{COMM, ColumnDef, Kind, Rows, TASK, TID, TableDef, Value};
use super::{column, names, wall_column, wall_time};
use crate::format::tasks_of;
use crate::{Recording, TraceError};
use schedlab_model::{EventKind, PrevState, TaskId, Waker};
use std::fmt::Write;

/// The table of events.
pub const EVENTS: TableDef = TableDef {
    name: "events",
    doc: "One event of the recording, in the order of time.",
    columns: COLUMNS,
};

const COLUMNS: &[ColumnDef] = &[
    column("at_ns", Kind::Int, "When, since the start of the recording."),
    column("cpu", Kind::Int, "On which CPU."),
    column(
        "event",
        Kind::Text,
        "`switch`, `wake`, `new`, `exec`, `exit`, `migrate`, `throttle`, `unthrottle`, `steal`, \
         `regroup`, `lost`, `syscall-enter` or `syscall-exit`.",
    ),
    TASK,
    TID,
    COMM,
    column("state", Kind::Text, "Of a switch: what the task that leaves the CPU does next."),
    column(
        "next_task",
        Kind::Int,
        "Of a switch: place of the task that comes; missing for the idle task.",
    ),
    column("next_tid", Kind::Int, "Its thread id."),
    column("next_comm", Kind::Text, "Its name."),
    column(
        "by",
        Kind::Text,
        "Of a wakeup or a creation: on whose behalf, such as `task:3` (a place), `softirq` or \
         `hardirq`.",
    ),
    column(
        "detail",
        Kind::Text,
        "What else belongs to the event: `0>2` of a migration, stolen nanoseconds, lost events, a \
         control group, the number of a system call.",
    ),
    wall_column("What CLOCK_REALTIME showed then; missing where the recording does not say it."),
];

/// Hands on every event.
///
/// # Errors
/// None is known.
pub fn events(recording: &Recording, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    let mut words = Words::default();
    for event in &recording.events {
        let [task, _] = tasks_of(&event.kind);
        let name = words.fill(recording, &event.kind);
        let [task, tid, comm] = names(recording, task);
        let [next, next_tid, next_comm] = names(recording, words.next);
        let row = [
            Value::time(event.at),
            Value::count(event.cpu.0),
            Value::Text(name),
            task,
            tid,
            comm,
            words.state.map_or(Value::None, Value::Text),
            next,
            next_tid,
            next_comm,
            text(&words.by),
            text(&words.detail),
            wall_time(recording, event.at),
        ];
        if rows(&row).is_break() {
            break;
        }
    }
    Ok(())
}

fn text(text: &str) -> Value<'_> {
    if text.is_empty() { Value::None } else { Value::Text(text) }
}

/// What an event says besides its task; the texts are used again.
#[derive(Default)]
struct Words {
    state: Option<&'static str>,
    next: Option<TaskId>,
    by: String,
    detail: String,
}

impl Words {
    /// Fills the words and returns the event's name.
    fn fill(&mut self, recording: &Recording, kind: &EventKind) -> &'static str {
        (self.state, self.next) = (None, None);
        self.by.clear();
        self.detail.clear();
        match *kind {
            EventKind::Switch { prev_state, next, .. } => {
                (self.state, self.next) = (Some(state_name(prev_state)), next);
                "switch"
            }
            EventKind::Wake { waker, .. } => {
                self.waker(waker);
                "wake"
            }
            EventKind::New { parent, .. } => {
                if let Some(parent) = parent {
                    self.task("task", parent);
                }
                "new"
            }
            EventKind::Exec { .. } => "exec",
            EventKind::Exit { .. } => "exit",
            EventKind::Migrate { from, to, .. } => {
                // Writing to a String does not fail.
                let _ = write!(self.detail, "{}>{}", from.0, to.0);
                "migrate"
            }
            EventKind::Throttle { .. } => "throttle",
            EventKind::Unthrottle { .. } => "unthrottle",
            EventKind::Steal { ns } => self.number(ns.0, "steal"),
            EventKind::Regroup { group, .. } => {
                let path = recording.header.groups.get(group.index());
                self.detail.push_str(path.map_or("/", |group| group.spec.name.as_str()));
                "regroup"
            }
            EventKind::Lost { count } => self.number(count, "lost"),
            EventKind::SyscallEnter { number, .. } => {
                self.number(u64::from(number), "syscall-enter")
            }
            EventKind::SyscallExit { .. } => "syscall-exit",
            _ => "other",
        }
    }

    fn number(&mut self, number: u64, event: &'static str) -> &'static str {
        let _ = write!(self.detail, "{number}");
        event
    }

    fn task(&mut self, how: &str, task: TaskId) {
        let _ = write!(self.by, "{how}:{}", task.0);
    }

    fn waker(&mut self, waker: Waker) {
        match waker {
            Waker::Task(by) => self.task("task", by),
            Waker::InlineSoftirq(by) => self.task("inline-softirq", by),
            Waker::SoftIrq => self.by.push_str("softirq"),
            Waker::HardIrq => self.by.push_str("hardirq"),
            Waker::Unknown => self.by.push_str("unknown"),
        }
    }
}

pub(super) fn state_name(state: PrevState) -> &'static str {
    match state {
        PrevState::Runnable => "runnable",
        PrevState::RunnableInKernel => "runnable-in-kernel",
        PrevState::Sleeping => "sleeping",
        PrevState::DiskSleep => "disk-sleep",
        PrevState::Stopped => "stopped",
        PrevState::Dead => "dead",
        PrevState::Blocked => "blocked",
        PrevState::Unknown => "unknown",
    }
}
