//! Results as text.

mod brief;
pub(crate) mod colocate;
mod confirm;
mod delegation;
pub(crate) mod deploy;
mod diff;
mod experiment;
mod latency;
mod matrix;
pub(crate) mod show;
mod study;
mod style;
mod table;
pub(crate) mod top;
pub(crate) mod watch;
pub(crate) mod xen;

pub(crate) use brief::brief;
pub(crate) use confirm::confirm;
pub(crate) use diff::diff;
pub(crate) use experiment::experiment;
pub(crate) use latency::latency;
pub(crate) use matrix::matrix;
pub(crate) use study::study;
pub(crate) use style::{Style, wrap};
