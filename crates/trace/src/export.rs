//! Recordings for other tools: the text of ftrace, trace-cmd, systrace, `perf script` and LTTng, Perfetto, CSV.
//!
//! All of them are written from one walk over the events ([`rows`]), in which each event gets what Linux's trace
//! formats carry beside it: the task that was running and the interrupt context. What a format cannot say is
//! counted in [`Exported::left_out`]. `docs/exchange-formats.md` lists what survives a round trip.

mod csv;
mod lttng;
pub(crate) mod perfetto;
pub(crate) mod proto;
mod rows;
mod text;

pub(crate) use rows::MARK;

pub use csv::csv;
pub use lttng::lttng;
pub use perfetto::perfetto;
pub use text::{ftrace, perf_script, systrace, trace_cmd};

use crate::{NewFile, TraceError};
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
