//! Results as one HTML page that needs nothing else: no network, no second file.
//!
//! A [`Page`] is a title, a verdict and sections; a section holds parts: text, tables,
//! distributions ([`Cdf`], [`Ladders`]), schedules by CPU ([`Lanes`]), matrices ([`Matrix`]),
//! values over time ([`Series`]) or over a setting ([`Sweep`]), and lists of facts ([`Facts`]).
//! Code that has a result builds a page from these and knows nothing of HTML: see
//! `examples/page.rs`.
//!
//! Everything that comes from outside (names of tasks, commands, notes) is hostile: templates
//! escape it, data for scripts cannot end its element, and scripts put text into the page as text
//! only. A strict content security policy in the page forbids everything that is not in the file.
#![forbid(unsafe_code)]

mod cdf;
mod embed;
mod lanes;
mod matrix;
mod page;
mod render;
mod series;
mod sweep;
mod table;

pub use cdf::{Between, Cdf, Curve, Ladder, LadderLine, Ladders, Measure};
pub use lanes::{
    LaneIncident, LaneRecorder, LaneRun, LaneSums, LaneTask, LaneWait, Lanes, LanesData, SWITCHES,
};
pub use matrix::{Choice, Matrix};
pub use page::{Code, Facts, Page, Part, Section, Tone};
pub use render::ReportError;
pub use series::{Series, Trace};
pub use sweep::{Sweep, SweepLine, SweepScale};
pub use table::{Cell, Column, Table};
