//! Every time that a task was on a CPU without a break.

use super::{COMM, ColumnDef, Kind, Rows, TASK, TID, TableDef, Value};
use super::{column, names, wall_column, wall_time};
use crate::analysis::Scope;
use crate::analysis::follow::{Followed, Listener, Span, ThreadState};
use crate::{Recording, TraceError};
use schedlab_model::Ns;

/// The table of slices.
pub const SLICES: TableDef = TableDef {
    name: "slices",
    doc: "One time for which a task kept a CPU without a break, in the order of the ends; those \
          that began before the recording \
          or had not ended with it are missing.",
    columns: COLUMNS,
};

const COLUMNS: &[ColumnDef] = &[
    column("began_ns", Kind::Int, "When it was put on the CPU, since the start of the recording."),
    column("ended_ns", Kind::Int, "When it was taken off."),
    column(
        "length_ns",
        Kind::Int,
        "How long it kept the CPU; time that a hypervisor took is included.",
    ),
    column("cpu", Kind::Int, "The CPU."),
    TASK,
    TID,
    COMM,
    column(
        "next_state",
        Kind::Text,
        "What it did then, in Perfetto's words: `Sleeping`, `Runnable (Preempted)`, …",
    ),
    wall_column("What CLOCK_REALTIME showed when it began."),
];

/// Hands on every slice.
///
/// # Errors
/// None is known.
pub fn slices(recording: &Recording, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    let collected = Followed::over(recording, &Scope::default(), Collected::default());
    for span in &collected.0 {
        let [task, tid, comm] = names(recording, Some(span.task));
        let row = [
            Value::time(span.from),
            Value::time(span.to),
            Value::time(span.length()),
            Value::count(span.cpu.0),
            task,
            tid,
            comm,
            Value::Text(span.next.words()),
            wall_time(recording, span.from),
        ];
        if rows(&row).is_break() {
            break;
        }
    }
    Ok(())
}

#[derive(Default)]
struct Collected(Vec<Span>);

impl Listener for Collected {
    fn span(&mut self, span: &Span) {
        // What began before the recording has no known length.
        let whole = span.from > Ns::ZERO && span.next != ThreadState::Running;
        if span.state == ThreadState::Running && whole {
            self.0.push(*span);
        }
    }
}
