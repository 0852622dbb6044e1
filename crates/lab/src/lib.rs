//! What the commands of `schedlab` do, as a library.
//!
//! A [`Scenario`](scenario::Scenario) is written by hand in TOML; a recording is made from a real machine.
//! Both become a [`Workload`](schedlab_model::Workload), which [`variant`]s change. Nothing here prints or
//! parses command lines: that is the job of the `cli` crate.
#![forbid(unsafe_code)]

pub mod metric;
pub mod record;
pub mod scenario;
pub mod variant;
