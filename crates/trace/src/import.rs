//! Recordings made elsewhere: the text that `perf script` prints for sched events, ftrace's own text, and
//! Perfetto traces with the sched events of ftrace.

mod build;
mod line;
mod perfetto;

pub use perfetto::perfetto;

use crate::{Recording, TraceError};
use std::collections::BTreeMap;
use std::io::{BufRead, Read};

/// How to read a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ImportOptions {
    /// Take the task that was running for the waker although the text does not show whether an interrupt did
    /// it. Forges dependencies where one did.
    pub current_is_waker: bool,
}

/// An imported recording, and what was left out.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The recording.
    pub recording: Recording,
    /// Events that mean nothing to the schedule, by name.
    pub ignored: BTreeMap<String, u64>,
}

/// Longest line that is read, in bytes.
const LINE_MAX: u64 = 64 << 10;
/// Most lines that are read.
const LINES_MAX: u64 = 50_000_000;

/// Largest Perfetto trace that is read; it is held in memory.
const PERFETTO_MAX: u64 = 1 << 30;

/// Reads the output of `perf script` of a recording with sched events (at least `sched:sched_switch`), or the
/// text of ftrace (`trace-cmd report`, `/sys/kernel/tracing/trace`). Times may have any number of decimals;
/// pid, tid or both; interrupt flags are used where they are shown.
pub fn perf_script(mut input: impl BufRead, options: ImportOptions) -> Result<Imported, TraceError> {
    let mut builder = build::Builder::new(options);
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        let read = Read::take(&mut input, LINE_MAX).read_until(b'\n', &mut bytes);
        if read.map_err(|source| TraceError::Io { doing: "read", source })? == 0 {
            break;
        }
        let fail = |what: String| TraceError::Import { line: number, what };
        if bytes.len() as u64 == LINE_MAX {
            return Err(fail(format!(
                "is longer than {LINE_MAX} bytes; this is not the text of `perf script`"
            )));
        }
        if number > LINES_MAX {
            return Err(TraceError::TooLarge { what: format!("it has more than {LINES_MAX} lines") });
        }
        let text = String::from_utf8_lossy(&bytes);
        builder.line(text.trim_end_matches(['\n', '\r'])).map_err(fail)?;
    }
    builder.finish("perf-script", "as recorded by perf")
}

/// Reads a trace of any kind that is understood: Perfetto by its first bytes, else text.
pub fn any(mut input: impl BufRead, options: ImportOptions) -> Result<Imported, TraceError> {
    let head = input.fill_buf().map_err(|source| TraceError::Io { doing: "read", source })?;
    if !perfetto::is_perfetto(head) {
        return perf_script(input, options);
    }
    let mut bytes = Vec::new();
    let read = Read::take(&mut input, PERFETTO_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|source| TraceError::Io { doing: "read", source })?;
    if bytes.len() as u64 > PERFETTO_MAX {
        return Err(TraceError::TooLarge { what: format!("the trace has more than {PERFETTO_MAX} bytes") });
    }
    perfetto(&bytes, options)
}
