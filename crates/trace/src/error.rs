//! Why a recording cannot be read, written, or used for something.

use std::path::PathBuf;

/// What is wrong with a recording or an imported text. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The operating system refused.
    #[error("{path}: {source}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Reading or writing failed midway.
    #[error("cannot {doing} the recording: {source}")]
    Io {
        /// `read` or `write`.
        doing: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// No bytes at all.
    #[error(
        "the recording is empty (0 bytes): the recorder did not get as far as its header; record \
         again"
    )]
    Empty,
    /// Not our file.
    #[error(
        "this is not a schedlab recording: it starts with {found}; recordings are made by \
         `schedlab record`, and \
         the text of `perf script` is read by `schedlab import`"
    )]
    Foreign {
        /// The first bytes.
        found: String,
    },
    /// Written by a later schedlab.
    #[error(
        "the recording has format version {found}, this schedlab reads versions up to {known}: \
         use the schedlab \
         that wrote it, or a newer one"
    )]
    Newer {
        /// Version of the file.
        found: u16,
        /// Highest version that is understood.
        known: u16,
    },
    /// Too short even for the header block.
    #[error(
        "the recording is cut off inside its header (after {bytes} bytes): nothing in it can be \
         used; record again"
    )]
    NoHeader {
        /// Length of the file.
        bytes: u64,
    },
    /// A block that cannot be right.
    #[error("block {block} of the recording (at byte {offset}) is damaged: {what}; {}", what_is_left(*block, *offset))]
    Damaged {
        /// Number of the block, the header being 0.
        block: u64,
        /// Where it starts.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// Another process writes it.
    #[error(
        "the recording changed while it was read: wait until it is complete, then read it again"
    )]
    Changed,
    /// More than the limits allow.
    #[error("the recording is too large: {what}; record for a shorter time, or raise the limit")]
    TooLarge {
        /// What, how much, and the limit.
        what: String,
    },
    /// A header that does not describe a machine.
    #[error("the recording's header is not usable: {what}")]
    Header {
        /// What is wrong.
        what: String,
    },
    /// A line of an imported text.
    #[error("line {line}: {what}")]
    Import {
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong and what was expected.
        what: String,
    },
    /// The recording lacks what an analysis needs.
    #[error(
        "{analysis} needs {}, which this recording ({backend}) does not have: {}",
        missing.join(", "), remedy(analysis, backend, missing)
    )]
    Lacks {
        /// Which analysis.
        analysis: &'static str,
        /// Names of the capabilities.
        missing: Vec<&'static str>,
        /// The backend that recorded.
        backend: String,
    },
    /// Nothing says which kernel's scheduler is to be modelled.
    #[error(
        "the recording does not name its kernel: name the scheduler that models it with \
         --recorded-under, such as --recorded-under linux-6.18; {WITHOUT_REPLAY}"
    )]
    NoKernel,
    /// An option of a conversion that cannot be honoured.
    #[error("{0}")]
    Option(String),
}

/// What a recording is good for that cannot be replayed.
const WITHOUT_REPLAY: &str = "`schedlab show`, `diff` and `export` read the file as it is";

/// What gives a recording what it lacks, and what else can be done with it.
fn remedy(analysis: &str, backend: &str, missing: &[&str]) -> String {
    let remedy = remedy_of(backend, missing);
    match analysis {
        crate::replay::NAME => format!("{remedy}; {WITHOUT_REPLAY}"),
        _ => remedy.to_owned(),
    }
}

fn remedy_of(backend: &str, missing: &[&str]) -> &'static str {
    let imported = ["perf-script", "perf-data", "ftrace", "perfetto", "lttng", "perf-timehist"]
        .contains(&backend);
    let wakers = [crate::Capability::Waker.name(), crate::Capability::IrqContext.name()];
    match imported {
        true if backend == "perf-timehist" => {
            "the text of `perf sched timehist` does not have it: pass the perf.data that it was \
             made from, or its text, `perf script -i perf.data`"
        }
        true if missing.iter().all(|name| wakers.contains(name)) => {
            "the trace does not show whether an interrupt woke a task; `schedlab import \
             --current-is-waker` takes the running task \
             for the waker (perf.data and ftrace with its flags show it)"
        }
        true => {
            "the imported trace does not have it: docs/exchange-formats.md says what each kind of \
             trace shows"
        }
        false => "record with a backend that sees it (`schedlab doctor` says which)",
    }
}

/// What can be done about a damaged block.
fn what_is_left(block: u64, offset: u64) -> String {
    match block {
        0 => "copy the file again: without its header nothing in it can be used".to_owned(),
        _ => {
            format!(
                "copy the file again, or keep what comes before it: `head -c {offset} FILE > \
                 BEFORE.slt`"
            )
        }
    }
}
