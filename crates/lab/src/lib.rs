//! What the commands of `schedlab` do, as a library.
//!
//! A [`Scenario`](scenario::Scenario) is written by hand in TOML; a recording is made from a real machine.
//! Both become a [`Workload`](schedlab_model::Workload), which [`variant`]s change; [`compare`] runs it under
//! every scheduler and gives a [`Study`](result::Study). Nothing here prints or parses command lines: that is
//! the job of the `cli` crate.
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod colocate;
pub mod compare;
pub mod confirm;
pub mod delegation;
pub mod deviation;
pub mod diff;
mod error;
pub mod experiment;
pub mod gallery;
pub mod gate;
pub mod generate;
pub mod latency;
pub mod measure;
pub mod metric;
pub mod page;
pub mod pieces;
pub mod published;
pub mod record;
pub mod result;
pub mod rtapp;
mod run;
pub mod runqueue;
pub mod scenario;
pub mod show;
pub mod smp;
pub mod stats;
pub mod top;
pub mod variant;
pub mod view;
pub mod watch;
pub mod xen;

pub use error::LabError;
