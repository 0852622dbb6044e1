//! Load made to order: groups of senders and receivers in the shape of hackbench, CPU hogs, memory
//! streams.

mod groups;
mod hogs;
mod output;

pub use groups::{GroupsRequest, Round, Transport, Workers, run_groups};
pub use hogs::{HogReport, HogsRequest, run_hogs};
pub use output::{GroupsOutput, HogsOutput, SCHEMA, StressOutput};

use std::io;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StressError {
    /// A number that makes no sense.
    #[error("{0}")]
    Request(String),
    /// The system gives no more processes, threads, descriptors or memory.
    #[error(
        "cannot {what}: {source}. Ask for less, or allow more (`ulimit -n` for descriptors, \
         `ulimit -u` for processes)"
    )]
    Resources {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A sender or receiver did not deliver all its messages.
    #[error(
        "{failed} of {workers} senders and receivers ended before their work was done; was one \
         killed from outside?"
    )]
    Workers {
        /// How many failed.
        failed: usize,
        /// Of how many.
        workers: usize,
    },
}

fn resources(what: &'static str) -> impl Fn(io::Error) -> StressError {
    move |source| StressError::Resources { what, source }
}
