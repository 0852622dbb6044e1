//! Three tables as CSV (RFC 4180, UTF-8, a heading line): `events.csv`, `tasks.csv`, `waits.csv`.

use super::{Exported, whole_folder};
use crate::analysis::{Analysis, Summary};
use crate::flat::{self, Flat, Kind, TableDef, Value};
use crate::{Recording, TraceError};
use schedlab_model::text::{csv_field, iso8601_ns};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;

/// The files and their tables.
const FILES: &[(&str, &str)] =
    &[("events.csv", "events"), ("tasks.csv", "tasks"), ("waits.csv", "latencies")];

/// Writes the tables into `folder`, which is made when it is missing. Each file is written beside
/// its place first; only when all three are whole they are put there.
///
/// # Errors
/// The folder or a file cannot be written, or the recording cannot tell waiting from sleeping.
pub fn csv(recording: &Recording, folder: &Path) -> Result<Exported, TraceError> {
    // Before anything is written.
    Summary::check(&recording.header)?;
    let write_one = |(_, name): &(&str, &str), out: &mut (dyn Write + Send)| match flat::find(name)
    {
        Some(table) => write(recording, table, out),
        None => Ok(Ok(())),
    };
    whole_folder(folder, FILES, |(file, _)| file, write_one)?;
    Ok(Exported::counted(recording))
}

/// Writes one table: a fault of the recording, or of writing.
fn write(
    recording: &Recording,
    table: &Flat,
    out: &mut dyn Write,
) -> Result<io::Result<()>, TraceError> {
    let heading: Vec<&str> = table.def.columns.iter().map(|column| column.name).collect();
    let mut result = writeln!(out, "{}", heading.join(","));
    (table.walk)(recording, &mut |row| {
        if result.is_ok() {
            result = line(table.def, row, out);
        }
        if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(result)
}

fn line(def: &TableDef, row: &[Value<'_>], out: &mut dyn Write) -> io::Result<()> {
    for (index, value) in row.iter().enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        match value {
            Value::None => {}
            Value::Int(value) if def.columns[index].kind == Kind::WallTime => {
                write!(out, "{}", iso8601_ns(u64::try_from(*value).unwrap_or_default()))?;
            }
            Value::Int(value) => write!(out, "{value}")?,
            Value::Float(value) => write!(out, "{value}")?,
            Value::Bool(value) => write!(out, "{value}")?,
            Value::Text(value) => out.write_all(csv_field(value).as_bytes())?,
        }
    }
    out.write_all(b"\n")
}
