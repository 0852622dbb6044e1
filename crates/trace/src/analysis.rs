//! Analyses of events. The same code reads recorded and simulated events, so a difference between
//! the two is never a difference of method.
//!
//! One file per analysis. Each is an [`EventSink`](schedlab_model::EventSink), declares what it
//! needs, and has a typed result; `show` makes tables of it. [`show::ALL`] is the list. [`follow`]
//! decides what a wait is.

mod answer;
pub mod blame;
pub mod conservation;
pub mod contention;
mod durations;
pub mod follow;
pub mod latency;
pub mod losses;
pub mod messages;
pub mod migrations;
mod occupancy;
pub mod runqueue;
mod scope;
pub mod show;
pub mod slices;
pub mod states;
pub mod steal;
pub mod stream;
mod summary;
pub mod syscalls;
mod tasks;
pub mod throttle;
pub mod timehist;
pub mod wakes;
pub mod worst;

pub use answer::Answer;
pub(crate) use answer::longest_wait;
pub use durations::Durations;
pub use occupancy::Occupancy;
pub use scope::{By, Keys, Label, Scope, line_name};
pub use summary::{Activation, CpuSummary, Summary, TaskSummary, Wait, WakeCause};

use crate::{Capability, Header, TraceError};

/// An analysis by name, with what it needs to see.
pub trait Analysis {
    /// Name in messages.
    const NAME: &'static str;
    /// Without these it refuses.
    const NEEDS: &'static [Capability];

    /// An error that names what `header` lacks, if anything.
    fn check(header: &Header) -> Result<(), TraceError> {
        check(Self::NAME, Self::NEEDS, header)
    }
}

fn check(analysis: &'static str, needs: &[Capability], header: &Header) -> Result<(), TraceError> {
    let missing = header.capabilities.missing(needs);
    if missing.is_empty() {
        return Ok(());
    }
    Err(TraceError::Lacks { analysis, missing, backend: header.backend.clone() })
}
