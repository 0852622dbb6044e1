//! Measuring real servers: a load client that says what it saw and whether it can be trusted.
#![forbid(unsafe_code)]

mod ladder;
mod load;
mod resp;
pub mod stress;

pub use ladder::Ladder;
pub use load::{LoadError, LoadReport, LoadRequest, LoopKind, run};
pub use resp::{Replies, RespError, command};
