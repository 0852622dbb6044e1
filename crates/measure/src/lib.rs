//! Measuring real machines and servers: wakeup latency, and a load client that says what it saw and
//! whether it can be trusted.
#![forbid(unsafe_code)]

pub mod calibrate;
mod ladder;
mod latency;
mod load;
pub mod readers;
mod resp;
pub mod runqueue;
pub mod stress;

pub use ladder::Ladder;
pub use latency::{
    Broke, Budget, BudgetPart, Cause, CpuUse, LONGEST, LatencyError, LatencyLine, LatencyReport,
    LatencyRequest, MOST_THREADS, SHORTEST, Samples, ThreadReport, Wake, latency,
};
pub use load::{LoadError, LoadReport, LoadRequest, LoopKind, run, run_after};
pub use resp::{Replies, RespError, command};
