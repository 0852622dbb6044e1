//! Every wait for a CPU.

use super::{CGROUP, COMM, ColumnDef, Kind, Rows, TASK, TID, TableDef, Value};
use super::{cgroup, column, names, wall_column, wall_time};
use crate::analysis::{Analysis, Summary};
use crate::{Recording, TraceError};
use schedlab_model::{EventSink, Ns};

/// The table of waits.
pub const LATENCIES: TableDef = TableDef {
    name: "latencies",
    doc: "One wait for a CPU that ended within the recording (run-queue latency), in the order of \
          the ends.",
    columns: COLUMNS,
};

const COLUMNS: &[ColumnDef] = &[
    column(
        "began_ns",
        Kind::Int,
        "When the task became runnable, since the start of the recording.",
    ),
    column("ended_ns", Kind::Int, "When it ran."),
    column("wait_ns", Kind::Int, "The wait, without time for which a limit held the task back."),
    column("cpu", Kind::Int, "The CPU on which it ran then."),
    TASK,
    TID,
    COMM,
    column(
        "why",
        Kind::Text,
        "`woken` after a wakeup, `preempted` after it lost the CPU or yielded.",
    ),
    CGROUP,
    wall_column("What CLOCK_REALTIME showed when it began."),
];

/// Hands on every wait.
///
/// # Errors
/// The recording cannot tell waiting from sleeping.
pub fn latencies(recording: &Recording, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    Summary::check(&recording.header)?;
    let header = &recording.header;
    let mut summary =
        Summary::new(header.tasks.len(), header.topology.cpus(), Ns::ZERO).keep_waits();
    recording.events.iter().for_each(|event| summary.event(event));
    summary.finish(recording.duration);
    for wait in summary.waits() {
        let [task, tid, comm] = names(recording, Some(wait.task));
        let row = [
            Value::time(wait.began),
            Value::time(wait.ended),
            Value::time(wait.wait),
            Value::count(wait.cpu.0),
            task,
            tid,
            comm,
            Value::Text(if wait.preempted { "preempted" } else { "woken" }),
            cgroup(recording, wait.task),
            wall_time(recording, wait.began),
        ];
        if rows(&row).is_break() {
            break;
        }
    }
    Ok(())
}
