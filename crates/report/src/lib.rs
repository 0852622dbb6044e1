//! Results as one HTML page that needs nothing else: no network, no second file.
//!
//! A [`Page`] is a title, a verdict and sections; a section holds parts: text, tables, distributions
//! ([`Cdf`], [`Ladders`]), schedules by CPU ([`Lanes`]), matrices ([`Matrix`]), values over time ([`Series`]) and lists of facts
//! ([`Facts`]). Code that has a result builds a page from these and knows nothing of HTML:
//!
//! ```
//! use schedlab_report::{Cell, Column, Page, Part, Section, Table};
//! let mut page = Page::new("Two hogs");
//! page.verdict("Both get half of the CPU.", "Over 5 seeds the range contains the median with 94 % confidence.");
//! let mut section = Section::new("Share of the CPU");
//! section.push(Table {
//!     caption: "CPU share, median of 5 seeds".to_owned(),
//!     columns: vec![Column::text("task"), Column::number("CPU share")],
//!     rows: vec![vec![Cell::head("hog"), Cell::number("50.0 %", 0.5)]],
//!     fold: None,
//! });
//! page.push(section);
//! assert!(page.render().unwrap().starts_with("<!doctype html>"));
//! ```
//!
//! Everything that comes from outside (names of tasks, commands, notes) is hostile: templates escape it, data for
//! scripts cannot end its element, and scripts put text into the page as text only. A strict content security
//! policy in the page forbids everything that is not in the file.
#![forbid(unsafe_code)]

mod cdf;
mod embed;
mod lanes;
mod matrix;
mod page;
mod render;
mod series;
mod table;

pub use cdf::{Between, Cdf, Curve, Ladder, LadderLine, Ladders, Measure};
pub use lanes::{LaneRecorder, LaneRun, LaneTask, Lanes};
pub use matrix::{Choice, Matrix};
pub use page::{Code, Facts, Page, Part, Section, Tone};
pub use render::ReportError;
pub use series::{Series, Trace};
pub use table::{Cell, Column, Table};
