//! Every activation.

use super::events::state_name;
use super::{CGROUP, COMM, ColumnDef, Kind, Rows, TASK, TID, TableDef, Value};
use super::{cgroup, column, names, wall_column, wall_time};
use crate::analysis::{Analysis, Summary, WakeCause};
use crate::{Recording, TraceError};
use schedlab_model::{EventSink, Ns, TaskId, Waker};

/// The table of activations.
pub const ACTIVATIONS: TableDef = TableDef {
    name: "activations",
    doc: "One activation of a task, from a wakeup or its creation to the next block, in the order \
          of the ends; those that began before the recording or had not ended with it are missing.",
    columns: COLUMNS,
};

const COLUMNS: &[ColumnDef] = &[
    column("woke_ns", Kind::Int, "When it woke or was created, since the start of the recording."),
    column("blocked_ns", Kind::Int, "When it blocked."),
    column(
        "response_ns",
        Kind::Int,
        "From the one to the other: CPU time, waits, throttled and stolen time.",
    ),
    column("demand_ns", Kind::Int, "CPU time in between, without stolen time."),
    TASK,
    TID,
    COMM,
    column(
        "kind",
        Kind::Text,
        "How it began: `task` (a task woke it), `inline-softirq` (a softirq inside a system call \
         of the waker), `softirq`, `hardirq` (an interrupt or a timer), `created`, or `unknown`.",
    ),
    column("waker", Kind::Int, "Place of the task that woke or created it, where it was one."),
    column("waker_tid", Kind::Int, "Its thread id."),
    column("waker_comm", Kind::Text, "Its name."),
    column(
        "state",
        Kind::Text,
        "How it ended: `sleeping`, `disk-sleep`, `stopped`, `dead`, or `blocked` where no more is \
         known.",
    ),
    CGROUP,
    wall_column("What CLOCK_REALTIME showed when it began."),
];

/// Hands on every activation.
///
/// # Errors
/// The recording cannot tell waiting from sleeping.
pub fn activations(recording: &Recording, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    Summary::check(&recording.header)?;
    let header = &recording.header;
    let mut summary =
        Summary::new(header.tasks.len(), header.topology.cpus(), Ns::ZERO).keep_activations();
    recording.events.iter().for_each(|event| summary.event(event));
    for activation in summary.activations() {
        let [task, tid, comm] = names(recording, Some(activation.task));
        let (kind, by) = kind(activation.cause);
        let [waker, waker_tid, waker_comm] = names(recording, by);
        let row = [
            Value::time(activation.woke),
            Value::time(activation.blocked),
            Value::time(activation.blocked.saturating_sub(activation.woke)),
            Value::time(activation.demand),
            task,
            tid,
            comm,
            Value::Text(kind),
            waker,
            waker_tid,
            waker_comm,
            Value::Text(state_name(activation.state)),
            cgroup(recording, activation.task),
            wall_time(recording, activation.woke),
        ];
        if rows(&row).is_break() {
            break;
        }
    }
    Ok(())
}

/// Returns how an activation began, and the task that did it.
fn kind(cause: WakeCause) -> (&'static str, Option<TaskId>) {
    match cause {
        WakeCause::Created(parent) => ("created", parent),
        WakeCause::Woken(Waker::Task(task)) => ("task", Some(task)),
        WakeCause::Woken(Waker::InlineSoftirq(task)) => ("inline-softirq", Some(task)),
        WakeCause::Woken(Waker::SoftIrq) => ("softirq", None),
        WakeCause::Woken(Waker::HardIrq) => ("hardirq", None),
        WakeCause::Woken(Waker::Unknown) => ("unknown", None),
    }
}
