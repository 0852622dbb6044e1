//! Recordings as flat tables, for spreadsheets and data frames: one row an event, a task, a wait,
//! an activation, a slice, a migration, or a pair of who waited and who ran.
//!
//! Each table is declared once, as a [`TableDef`]; CSV files, Arrow batches and `docs/tables.md`
//! are made from it. A function of the table's name hands every row to a receiver, its [`Value`]s
//! in the order of the columns.

mod activations;
mod blame;
mod events;
mod migrations;
mod slices;
mod tasks;
mod waits;

pub use activations::{ACTIVATIONS, activations};
pub use blame::{BLAME, blame};
pub use events::{EVENTS, events};
pub use migrations::{MIGRATIONS, migrations};
pub use slices::{SLICES, slices};
pub use tasks::{TASKS, tasks};
pub use waits::{LATENCIES, latencies};

use crate::analysis::blame::Blame;
use crate::analysis::migrations::Migrations;
use crate::analysis::{Analysis as _, Summary};
use crate::{Header, Recording, TraceError};
use schedlab_model::{Ns, TaskId};
use std::ops::ControlFlow;

/// What a column holds. Every kind may be missing in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A whole number: nanoseconds where the name ends in `_ns`, else a count or an id.
    Int,
    /// A moment of CLOCK_REALTIME: nanoseconds since 1970 (UTC).
    WallTime,
    /// A number with a fraction.
    Float,
    /// Yes or no.
    Bool,
    /// A text; few different ones in many rows.
    Text,
}

/// One column.
#[derive(Clone, Copy, Debug)]
pub struct ColumnDef {
    /// Name, with the unit at its end where it has one (`_ns`).
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What it means, in one sentence.
    pub doc: &'static str,
}

/// One table.
#[derive(Clone, Copy, Debug)]
pub struct TableDef {
    /// Name.
    pub name: &'static str,
    /// What a row is, in one sentence.
    pub doc: &'static str,
    /// The columns in order.
    pub columns: &'static [ColumnDef],
}

/// Declares a column.
pub const fn column(name: &'static str, kind: Kind, doc: &'static str) -> ColumnDef {
    ColumnDef { name, kind, doc }
}

/// One value of a row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    /// Missing.
    None,
    /// Of [`Kind::Int`] and [`Kind::WallTime`].
    Int(i64),
    /// Of [`Kind::Float`].
    Float(f64),
    /// Of [`Kind::Bool`].
    Bool(bool),
    /// Of [`Kind::Text`].
    Text(&'a str),
}

impl Value<'_> {
    /// A count or an id. What is larger than 2^63 - 1 becomes that.
    pub fn count(value: impl TryInto<i64>) -> Value<'static> {
        Value::Int(value.try_into().unwrap_or(i64::MAX))
    }

    /// A time in nanoseconds.
    pub fn time(value: Ns) -> Value<'static> {
        Value::count(value.0)
    }
}

/// Takes rows; [`ControlFlow::Break`] ends the walk.
pub type Rows<'a> = dyn FnMut(&[Value<'_>]) -> ControlFlow<()> + 'a;

/// A table of recordings, and what walks its rows.
pub struct Flat {
    /// Its declaration.
    pub def: &'static TableDef,
    /// Hands each row to the receiver.
    pub walk: fn(&Recording, &mut Rows<'_>) -> Result<(), TraceError>,
    /// Names what a recording lacks for it: what `walk` does before the first row.
    pub check: fn(&Header) -> Result<(), TraceError>,
}

/// Returns the table of this name.
pub fn find(name: &str) -> Option<&'static Flat> {
    TABLES.iter().find(|table| table.def.name == name)
}

/// Every table of recordings.
pub const TABLES: &[Flat] = &[
    Flat { def: &EVENTS, walk: events, check: |_| Ok(()) },
    Flat { def: &TASKS, walk: tasks, check: |_| Ok(()) },
    Flat { def: &LATENCIES, walk: latencies, check: Summary::check },
    Flat { def: &ACTIVATIONS, walk: activations, check: Summary::check },
    Flat { def: &SLICES, walk: slices, check: |_| Ok(()) },
    Flat { def: &MIGRATIONS, walk: migrations, check: Migrations::check },
    Flat { def: &BLAME, walk: blame, check: Blame::check },
];

/// The three columns that name a task: its place in the header, thread id, name.
fn names(recording: &Recording, task: Option<TaskId>) -> [Value<'_>; 3] {
    match task.map(|task| (task, recording.task(task))) {
        Some((task, info)) => {
            [Value::count(task.0), Value::count(info.tid), Value::Text(&info.comm)]
        }
        None => [Value::None; 3],
    }
}

/// Returns what the wall clock showed; missing where the recording does not say it.
fn wall_time(recording: &Recording, at: Ns) -> Value<'static> {
    recording.header.unix_ns(at).map_or(Value::None, Value::count)
}

/// Declares the column of [`wall_time`].
const fn wall_column(doc: &'static str) -> ColumnDef {
    column("wall_time", Kind::WallTime, doc)
}

/// Returns the control group of a task as the header knows it.
fn cgroup(recording: &Recording, task: TaskId) -> Value<'_> {
    let group = recording.header.groups.get(recording.task(task).group.index());
    Value::Text(group.map_or("/", |group| group.spec.name.as_str()))
}

const CGROUP: ColumnDef = column("cgroup", Kind::Text, "Path of its control group.");

/// The columns of [`names`].
const TASK: ColumnDef = column("task", Kind::Int, "Place of the task in the recording, from 0 on.");
const TID: ColumnDef = column("tid", Kind::Int, "Thread id.");
const COMM: ColumnDef = column("comm", Kind::Text, "Name of the task, as in /proc/TID/comm.");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recording;

    fn shipped() -> Recording {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../recordings/redis-other-other-closed8.slt");
        Recording::open(path).expect("a shipped recording")
    }

    fn fits(column: &ColumnDef, value: &Value<'_>) -> bool {
        match value {
            Value::None => true,
            Value::Int(_) => matches!(column.kind, Kind::Int | Kind::WallTime),
            Value::Float(_) => column.kind == Kind::Float,
            Value::Bool(_) => column.kind == Kind::Bool,
            Value::Text(_) => column.kind == Kind::Text,
        }
    }

    #[test]
    fn every_row_has_the_declared_columns() {
        let recording = shipped();
        for table in TABLES {
            let mut rows = 0;
            (table.walk)(&recording, &mut |row| {
                rows += 1;
                assert_eq!(row.len(), table.def.columns.len(), "{}", table.def.name);
                for (column, value) in table.def.columns.iter().zip(row) {
                    assert!(fits(column, value), "{} {}: {value:?}", table.def.name, column.name);
                }
                ControlFlow::Continue(())
            })
            .expect("rows");
            assert!(rows > 0, "{}", table.def.name);
        }
    }

    #[test]
    fn a_receiver_can_stop() {
        let recording = shipped();
        for table in TABLES {
            let mut rows = 0;
            (table.walk)(&recording, &mut |_| {
                rows += 1;
                if rows == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .expect("rows");
            assert!(rows <= 2, "{}", table.def.name);
        }
    }

    #[test]
    fn moments_have_the_wall_clock_where_the_header_has_its_offset() {
        let mut recording = shipped();
        let since = |recording: &Recording| {
            let mut found = std::collections::BTreeSet::new();
            latencies(recording, &mut |row| {
                if let (Value::Int(began), Some(Value::Int(wall))) = (row[0], row.last()) {
                    found.insert(wall - began);
                }
                ControlFlow::Continue(())
            })
            .expect("rows");
            found
        };
        assert!(since(&recording).is_empty());
        recording.header.clock_start_ns = 7;
        recording.header.realtime_offset_ns = Some(1_000);
        assert_eq!(since(&recording), [1_007].into());
    }

    #[test]
    fn sums_agree_between_tables() {
        let recording = shipped();
        let sum = |walk: fn(&Recording, &mut Rows<'_>) -> Result<(), TraceError>,
                   def: &TableDef,
                   name: &str| {
            let at = def.columns.iter().position(|column| column.name == name).expect("a column");
            let mut sum = 0;
            walk(&recording, &mut |row| {
                if let Value::Int(value) = row[at] {
                    sum += value;
                }
                ControlFlow::Continue(())
            })
            .expect("rows");
            sum
        };
        let waits =
            sum(tasks, &TASKS, "wake_latency_count") + sum(tasks, &TASKS, "preempt_wait_count");
        let mut rows = 0;
        latencies(&recording, &mut |_| {
            rows += 1;
            ControlFlow::Continue(())
        })
        .expect("rows");
        assert_eq!(waits, rows);
        let ended = sum(tasks, &TASKS, "activations");
        let (mut rows, mut within) = (0, true);
        activations(&recording, &mut |row| {
            rows += 1;
            let time = |place: usize| if let Value::Int(time) = row[place] { time } else { -1 };
            within &= (0..=time(2)).contains(&time(3)) && time(2) == time(1) - time(0);
            ControlFlow::Continue(())
        })
        .expect("rows");
        assert_eq!(ended, rows);
        assert!(within, "an activation uses more CPU time than it lasts");
        let run = sum(tasks, &TASKS, "run_ns");
        let slices = sum(slices, &SLICES, "length_ns");
        // Slices that were cut by an end of the recording have no row.
        assert!(slices <= run && run - slices < 20_000_000, "{slices} {run}");
    }
}
