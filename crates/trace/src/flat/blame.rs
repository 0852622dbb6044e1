//! Who ran while others waited.

use super::{ColumnDef, Kind, Rows, TableDef, Value, column};
use crate::analysis::blame::{Blame, Culprit};
use crate::analysis::follow::Followed;
use crate::analysis::{Analysis, By, Label, Scope};
use crate::{Recording, TraceError};
use schedlab_model::Ns;

/// The table of who ran while others waited.
pub const BLAME: TableDef = TableDef {
    name: "blame",
    doc: "One pair of a name that waited for a CPU and a name that ran there meanwhile; all that \
          is laid to the others together is \
          what the first waited.",
    columns: COLUMNS,
};

const COLUMNS: &[ColumnDef] = &[
    column("waiting", Kind::Text, "Name of the tasks that waited."),
    column(
        "running",
        Kind::Text,
        "Name of the tasks that ran; `<idle>` when none did, `<throttled>` when a limit held the \
         waiting task back, `<unknown>`.",
    ),
    column("time_ns", Kind::Int, "For how long."),
    column("times", Kind::Int, "In how many parts of waits."),
];

/// Hands on every pair, in the order of the first name's place in the recording.
///
/// # Errors
/// The recording cannot tell waiting from sleeping, or does not hold all tasks.
pub fn blame(recording: &Recording, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    Blame::check(&recording.header)?;
    let scope = Scope::default();
    let blame = Followed::over(recording, &scope, Blame::new(&recording.header, &scope, By::Name));
    let label = |line: usize| match &blame.keys.labels[line] {
        Label::Name(name) => name.as_str(),
        Label::Task(task) => recording.task(*task).comm.as_str(),
    };
    for (line, shares) in
        blame.rows.iter().enumerate().filter(|(line, _)| blame.waited(*line) > Ns::ZERO)
    {
        for (culprit, share) in shares {
            let running = match culprit {
                Culprit::Line(other) => label(*other),
                Culprit::Idle => "<idle>",
                Culprit::Throttled => "<throttled>",
                Culprit::Unknown => "<unknown>",
            };
            let row = [
                Value::Text(label(line)),
                Value::Text(running),
                Value::time(share.time),
                Value::count(share.times),
            ];
            if rows(&row).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}
