//! Recordings made elsewhere: the text of every tracer, perf.data, and Perfetto traces.
//!
//! [`formats::all`] lists every kind of file. A source is unwrapped (gzip, zstd, UTF-16),
//! recognised by its first bytes, and decoded into events; a builder decides what they mean. Events
//! go to memory ([`read`]) or, as they come, into the file of a recording ([`write`]).

mod build;
mod collect;
mod container;
mod event;
pub mod formats;
pub mod output;
mod perf_data;
mod perfetto;
mod reports;
mod shown;
mod states;
mod summary;
mod text;
mod tids;
mod timehist;
mod write;

pub use container::UNFOLDED_MAX;
pub use states::KernelVersion;
pub use summary::{Loss, OddLine, OddLines, Summary};
pub use write::{Written, write};

use crate::{Header, Recording, TraceError};
use build::Builder;
use collect::{Collector, Take};
use formats::{Elsewhere, Format, How};
use schedlab_model::{Ns, SchedEvent};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How to read a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ImportOptions {
    /// Take the task that was running for the waker although the trace does not show whether an
    /// interrupt did it. Forges dependencies where one did.
    pub current_is_waker: bool,
    /// Refuse the first line that is not understood, instead of counting such lines.
    pub strict: bool,
    /// Frequency of the clock whose whole numbers the text has (`trace_clock` x86-tsc), in Hz.
    pub clock_hz: Option<u64>,
    /// Version of the recorded kernel, where the trace does not name it or names a wrong one.
    pub kernel: Option<KernelVersion>,
    /// The machine of a Perfetto trace of several.
    pub machine: Option<u32>,
    /// Read only what happened up to this time since the start. Later events are left out, but for
    /// those that are held back until the start is known, and reading stops where the source can
    /// have no earlier ones any more.
    pub until: Option<Ns>,
    /// What the trace is read for: a text that cannot serve it is refused at its beginning, before
    /// all of it is read.
    pub purpose: Purpose,
}

/// What a trace is read for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Purpose {
    /// Anything: analyses say themselves what they lack.
    #[default]
    Any,
    /// To be replayed, under a scheduler that the user names.
    Replay,
    /// To be replayed under the scheduler of the kernel that the trace names.
    ReplayOfKernel,
}

/// An imported recording, and what there is to say about the import.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The recording.
    pub recording: Recording,
    /// What was left out, lost or odd.
    pub summary: Summary,
}

/// Where a trace comes from.
pub enum Input<'i> {
    /// Bytes as they come.
    Stream(Box<dyn BufRead + 'i>),
    /// A file: formats that have their descriptions at the end are read without holding all of it.
    File(File),
}

/// Bytes of a file that are read at a time.
const CHUNK: usize = 256 << 10;

/// Reads a trace of any kind into memory.
///
/// # Errors
/// What is wrong with the trace, by line or byte, and what to do; also for kinds of files that
/// cannot be read.
pub fn read<'i>(input: impl BufRead + 'i, options: ImportOptions) -> Result<Imported, TraceError> {
    let mut events: Vec<SchedEvent> = Vec::new();
    let (header, duration, mut summary) =
        decode(Input::Stream(Box::new(input)), options, &mut events)?;
    let mut recording = Recording::from_parts(header, events, duration)?;
    recording.repairs.misordered += summary.misordered;
    recording.repairs.duplicates += summary.duplicates;
    summary.repairs = recording.repairs.clone();
    Ok(Imported { recording, summary })
}

/// Whether the file at `path` is something else than a recording, and not empty: a trace to be
/// imported, or nothing that can be read. A file that cannot be opened is not.
pub fn is_foreign(path: &Path) -> bool {
    let file = schedlab_files::open(path);
    file.is_ok_and(|file| {
        crate::reader::is_foreign(&mut std::io::BufReader::new(file)).unwrap_or(false)
    })
}

/// Decodes a trace; its events go to `out` as they come.
fn decode(
    input: Input<'_>,
    options: ImportOptions,
    out: &mut dyn Take,
) -> Result<(Header, Ns, Summary), TraceError> {
    let mut builder = Builder::new(options, Collector::new(out, options.until));
    let format = read_into(input, &mut builder)?;
    let (header, duration, mut summary) = builder.finish()?;
    summary.format = format.name;
    Ok((header, duration, summary))
}

/// Gives what a trace has to `builder`; returns what kind of file it is.
fn read_into(input: Input<'_>, builder: &mut Builder<'_>) -> Result<&'static Format, TraceError> {
    let failed = |source| TraceError::Io { doing: "read", source };
    let mut input = match input {
        Input::Stream(stream) => stream,
        Input::File(file) => {
            let length = perf_data_length(&file).map_err(failed)?;
            if let Some(length) = length {
                perf_data::read_file(&file, length, builder)?;
                return Ok(formats::recognise(b"PERFILE2"));
            }
            Box::new(BufReader::with_capacity(CHUNK, file))
        }
    };
    input = container::unwrap(input)?;
    let head = input.fill_buf().map_err(failed)?;
    let format = formats::recognise(&head[..head.len().min(formats::HEAD)]);
    match format.how {
        How::Stream(read) => read(&mut *input, builder)?,
        How::Whole(read) => read(&formats::whole(&mut *input)?, builder)?,
        How::Elsewhere(what) => return Err(elsewhere(what)),
        How::Refused(what_to_do) => return Err(refused(format, what_to_do)),
    }
    Ok(format)
}

/// The length of a file that is a perf.data and can be read in any order; `None`: it is something
/// else, or a pipe.
fn perf_data_length(file: &File) -> std::io::Result<Option<u64>> {
    let about = file.metadata()?;
    let mut head = [0; 16];
    if !about.is_file() || file.read_at(&mut head, 0)? < head.len() || !perf_data::is_file(&head) {
        return Ok(None);
    }
    Ok(Some(about.len()))
}

fn elsewhere(what: Elsewhere) -> TraceError {
    TraceError::Option(match what {
        Elsewhere::Recording => "this is a schedlab recording already: use it as it is".to_owned(),
        Elsewhere::Scenario => {
            "this is a scenario of schedlab, not a trace: `schedlab compare` runs it".to_owned()
        }
        Elsewhere::RtApp => {
            "this is JSON without the text of a tracer; an rt-app workload has to come as a file"
                .to_owned()
        }
    })
}

fn refused(format: &Format, what_to_do: &str) -> TraceError {
    TraceError::Option(format!("this is {}: {what_to_do}", format.what))
}
