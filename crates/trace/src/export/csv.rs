//! Three tables as CSV (RFC 4180, UTF-8, a heading line): `events.csv`, `tasks.csv`, `waits.csv`.

use super::Exported;
use crate::analysis::{Analysis, Summary};
use crate::flat::{self, Flat, Value};
use crate::{NewFile, Recording, TraceError};
use schedlab_model::EventKind;
use schedlab_model::text::csv_field;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;

/// The files and their tables.
const FILES: &[(&str, Flat)] = &[
    ("events.csv", Flat { def: &flat::EVENTS, walk: flat::events }),
    ("tasks.csv", Flat { def: &flat::TASKS, walk: flat::tasks }),
    ("waits.csv", Flat { def: &flat::LATENCIES, walk: flat::latencies }),
];

/// Writes the tables into `folder`, which is made when it is missing. Each file is written beside its place
/// first; only when all three are whole they are put there.
///
/// # Errors
/// The folder or a file cannot be written, or the recording cannot tell waiting from sleeping.
pub fn csv(recording: &Recording, folder: &Path) -> Result<Exported, TraceError> {
    // Before anything is written.
    Summary::check(&recording.header)?;
    let made = |path: &Path, source| TraceError::File { path: path.to_owned(), source };
    let existed = folder.is_dir();
    std::fs::create_dir_all(folder).map_err(|source| made(folder, source))?;
    let place = |name: &str| folder.join(name);
    let write_all = || -> Result<(), TraceError> {
        let mut whole = Vec::new();
        for (name, table) in FILES {
            let failed = |source| made(&place(name), source);
            let mut out =
                io::BufWriter::with_capacity(1 << 18, NewFile::create(&place(name)).map_err(failed)?);
            write(recording, table, &mut out)?.map_err(failed)?;
            whole.push((name, out.into_inner().map_err(|error| failed(error.into_error()))?));
        }
        for (name, file) in whole {
            file.commit().map_err(|source| made(&place(name), source))?;
        }
        Ok(())
    };
    let written = write_all();
    if written.is_err() && !existed {
        // Best effort: the error that matters is the first.
        let _ = std::fs::remove_dir(folder);
    }
    written?;
    let count = |f: fn(&EventKind) -> bool| recording.events.iter().filter(|e| f(&e.kind)).count() as u64;
    Ok(Exported {
        switches: count(|kind| matches!(kind, EventKind::Switch { .. })),
        wakes: count(|kind| matches!(kind, EventKind::Wake { .. })),
        ..Exported::default()
    })
}

/// Writes one table: a fault of the recording, or of writing.
fn write(recording: &Recording, table: &Flat, out: &mut dyn Write) -> Result<io::Result<()>, TraceError> {
    let heading: Vec<&str> = table.def.columns.iter().map(|column| column.name).collect();
    let mut result = writeln!(out, "{}", heading.join(","));
    (table.walk)(recording, &mut |row| {
        if result.is_ok() {
            result = line(row, out);
        }
        if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(result)
}

fn line(row: &[Value<'_>], out: &mut dyn Write) -> io::Result<()> {
    for (index, value) in row.iter().enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        match value {
            Value::None => {}
            Value::Int(value) => write!(out, "{value}")?,
            Value::Float(value) => write!(out, "{value}")?,
            Value::Bool(value) => write!(out, "{value}")?,
            Value::Text(value) => out.write_all(csv_field(value).as_bytes())?,
        }
    }
    out.write_all(b"\n")
}
