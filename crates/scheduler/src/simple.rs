//! Two simple schedulers for speed workloads, oracles and the engine's own tests.

mod edf;
mod rr;

pub use edf::{GlobalEdf, edf};
pub use rr::{RoundRobin, first_in_first_out, round_robin};

pub use edf::ENTRY as EDF;
pub use rr::ENTRY as RR;
