//! Every move to another CPU's run queue.

use super::{COMM, ColumnDef, Kind, Rows, TASK, TID, TableDef, Value};
use super::{column, names, wall_column, wall_time};
use crate::analysis::follow::{Followed, Follower, Listener, ThreadState};
use crate::analysis::migrations::Migrations;
use crate::analysis::{Analysis, Scope};
use crate::{Recording, TraceError};
use schedlab_model::{CpuId, EventKind, Ns, SchedEvent, TaskId};

/// The table of migrations.
pub const MIGRATIONS: TableDef = TableDef {
    name: "migrations",
    doc: "One move of a task to another CPU's run queue, in the order of time.",
    columns: COLUMNS,
};

const COLUMNS: &[ColumnDef] = &[
    column("at_ns", Kind::Int, "When, since the start of the recording."),
    TASK,
    TID,
    COMM,
    column("from_cpu", Kind::Int, "The CPU that it left."),
    column("to_cpu", Kind::Int, "The CPU that it went to."),
    column(
        "state",
        Kind::Text,
        "What it did, in Perfetto's words: `Runnable` when it had just been woken, `Running`, …",
    ),
    wall_column("What CLOCK_REALTIME showed then."),
];

/// Hands on every migration.
///
/// # Errors
/// The recording does not show migrations.
pub fn migrations(recording: &Recording, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    Migrations::check(&recording.header)?;
    let collected = Followed::over(recording, &Scope::default(), Collected::default());
    for &(at, who, from, to, state) in &collected.0 {
        let [task, tid, comm] = names(recording, Some(who));
        let row = [
            Value::time(at),
            task,
            tid,
            comm,
            Value::count(from.0),
            Value::count(to.0),
            Value::Text(state.words()),
            wall_time(recording, at),
        ];
        if rows(&row).is_break() {
            break;
        }
    }
    Ok(())
}

#[derive(Default)]
struct Collected(Vec<(Ns, TaskId, CpuId, CpuId, ThreadState)>);

impl Listener for Collected {
    fn before(&mut self, follower: &Follower, event: &SchedEvent) {
        if let EventKind::Migrate { task, from, to } = event.kind {
            self.0.push((event.at, task, from, to, follower.state(task).0));
        }
    }
}
