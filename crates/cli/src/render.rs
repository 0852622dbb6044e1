//! Results as text.

mod brief;
#[cfg(feature = "machine")]
pub(crate) mod colocate;
#[cfg(feature = "machine")]
mod confirm;
mod corpus;
mod delegation;
pub(crate) mod deploy;
mod diff;
#[cfg(feature = "machine")]
mod experiment;
mod fleet;
#[cfg(feature = "machine")]
mod latency;
#[cfg(feature = "machine")]
mod matrix;
mod published;
mod scan;
pub(crate) mod show;
mod study;
mod style;
mod table;
#[cfg(feature = "machine")]
pub(crate) mod top;
mod totals;
mod tune;
#[cfg(feature = "machine")]
pub(crate) mod view;
#[cfg(feature = "machine")]
pub(crate) mod watch;
pub(crate) mod xen;

pub(crate) use brief::brief;
#[cfg(feature = "machine")]
pub(crate) use confirm::confirm;
pub(crate) use corpus::corpus;
pub(crate) use diff::diff;
#[cfg(feature = "machine")]
pub(crate) use experiment::experiment;
pub(crate) use fleet::{fleet, fleet_study};
#[cfg(feature = "machine")]
pub(crate) use latency::latency;
#[cfg(feature = "machine")]
pub(crate) use matrix::matrix;
pub(crate) use published::published;
pub(crate) use scan::scan;
pub(crate) use study::{Shown, study};
pub(crate) use style::{Style, partial_line, use_colors, wrap};
pub(crate) use totals::totals;
pub(crate) use tune::tune;
