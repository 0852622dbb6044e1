//! Analyses of events. The same code reads recorded and simulated events, so a difference between the two is
//! never a difference of method.
//!
//! One file per analysis. Each is an [`EventSink`](schedlab_model::EventSink) and declares what it needs.

mod durations;
mod summary;

pub use durations::Durations;
pub use summary::{CpuSummary, Summary, TaskSummary, Wait};

use crate::{Capability, Header, TraceError};

/// An analysis by name, with what it needs to see.
pub trait Analysis {
    /// Name in messages.
    const NAME: &'static str;
    /// Without these it refuses.
    const NEEDS: &'static [Capability];

    /// An error that names what `header` lacks, if anything.
    fn check(header: &Header) -> Result<(), TraceError> {
        let missing = header.capabilities.missing(Self::NEEDS);
        if missing.is_empty() {
            return Ok(());
        }
        Err(TraceError::Lacks { analysis: Self::NAME, missing, backend: header.backend.clone() })
    }
}
