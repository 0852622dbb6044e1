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
mod scan;
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
pub(crate) use scan::scan;
pub(crate) use study::{Shown, study};
pub(crate) use style::{Style, use_colors, wrap};
