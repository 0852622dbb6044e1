//! Experiments on the real machine as a library: what the commands of `schedlab` that record,
//! measure or run threads do.
//!
//! Predictions come from [`schedlab_study`]. Nothing here prints or parses command lines: that is
//! the job of the `cli` crate.
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod colocate;
pub mod confirm;
mod cpus;
pub mod experiment;
pub mod flight;
pub mod latency;
mod live_follower;
mod process_tasks;
pub mod record;
pub mod runqueue;
pub mod schemas;
pub mod snapshot;
pub mod top;
pub mod watch;
