//! Recordings for other tools: the text of ftrace, trace-cmd, systrace, `perf script` and LTTng,
//! Perfetto, CSV.
//!
//! All of them are written from one walk over the events ([`rows`]), in which each event gets what
//! Linux's trace formats carry beside it: the task that was running and the interrupt context. What
//! a format cannot say is counted in [`Exported::left_out`]. `docs/exchange-formats.md` lists what
//! survives a round trip.

mod anonymous;
mod csv;
mod lttng;
pub mod output;
pub(crate) mod perfetto;
pub(crate) mod proto;
mod rows;
mod text;

pub(crate) use rows::MARK;

pub use anonymous::{Pseudonyms, anonymous};
pub use csv::csv;
pub use lttng::lttng;
pub use perfetto::perfetto;
pub use text::{ftrace, perf_script, systrace, trace_cmd};

use crate::{Recording, TraceError};
use schedlab_files::NewFile;
use schedlab_model::EventKind;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// What was written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Exported {
    /// Context switches.
    pub switches: u64,
    /// Wakeups.
    pub wakes: u64,
    /// Events that the format cannot express, by name.
    pub left_out: BTreeMap<&'static str, u64>,
    /// What was written in a poorer form, as sentences.
    pub notes: Vec<String>,
}

impl Exported {
    /// Returns what a table of all events carries: everything.
    pub fn counted(recording: &Recording) -> Exported {
        let count = |is: fn(&EventKind) -> bool| {
            recording.events.iter().filter(|event| is(&event.kind)).count() as u64
        };
        Exported {
            switches: count(|kind| matches!(kind, EventKind::Switch { .. })),
            wakes: count(|kind| matches!(kind, EventKind::Wake { .. })),
            ..Exported::default()
        }
    }
}

/// Writes files into `folder`, which is made when it is missing. Each is written beside its place
/// first; only when all are whole they are put there. `name` is that of the file for an item,
/// `write` writes it.
///
/// # Errors
/// The folder or a file cannot be written, or what `write` says.
pub fn whole_folder<T>(
    folder: &Path,
    items: &[T],
    name: impl Fn(&T) -> &str,
    mut write: impl FnMut(&T, &mut (dyn Write + Send)) -> Result<std::io::Result<()>, TraceError>,
) -> Result<(), TraceError> {
    let made = |path: &Path, source| TraceError::File { path: path.to_owned(), source };
    let new = schedlab_files::make_folder(folder).map_err(|source| made(folder, source))?;
    let mut write_all = || -> Result<(), TraceError> {
        let mut whole = Vec::new();
        for item in items {
            let path = folder.join(name(item));
            let failed = |source| made(&path, source);
            let file = NewFile::create(&path).map_err(failed)?;
            let mut out = std::io::BufWriter::with_capacity(1 << 18, file);
            write(item, &mut out)?.map_err(failed)?;
            let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
            whole.push((path, file));
        }
        for (path, file) in whole {
            file.commit().map_err(|source| made(&path, source))?;
        }
        Ok(())
    };
    let written = write_all();
    if written.is_err() && new {
        // Best effort: the error that matters is the first.
        let _ = schedlab_files::remove_folder(folder);
    }
    written
}

/// Writes a file that appears whole or not at all: beside `path` first, then renamed over it.
///
/// # Errors
/// What the system says, with the path.
pub fn whole_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<Exported>,
) -> Result<Exported, TraceError> {
    let error = |source| TraceError::File { path: path.to_owned(), source };
    let mut out = std::io::BufWriter::with_capacity(1 << 18, NewFile::create(path).map_err(error)?);
    let exported = write(&mut out).map_err(error)?;
    let file = out.into_inner().map_err(|failed| error(failed.into_error()))?;
    file.commit().map_err(error)?;
    Ok(exported)
}
