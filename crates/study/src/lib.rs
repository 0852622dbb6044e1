//! Predictions as a library: what another scheduler, another policy or another limit would make of
//! a workload.
//!
//! A [`Scenario`](scenario::Scenario) is written by hand in TOML; a recording is made from a real
//! machine. Both become a [`Workload`](schedlab_model::Workload), which [`variant`]s change;
//! [`compare`] runs it under every scheduler and gives a [`Study`](result::Study). Nothing here
//! prints, parses command lines, or touches the machine.
#![forbid(unsafe_code)]

pub mod change;
pub mod compare;
pub mod corpus;
pub mod decision_cost;
pub mod delegation;
pub mod deploy;
pub mod deviation;
pub mod diff;
mod error;
pub mod error_output;
pub mod error_parts;
pub mod fleet;
pub mod gallery;
pub mod gate;
pub mod generate;
pub mod glossary;
pub mod headline;
pub mod input;
pub mod kubernetes;
pub mod listing;
pub mod measurements;
pub mod metric;
pub mod no_effect;
pub mod objects;
pub mod order;
pub mod page;
pub mod pieces;
pub mod places;
pub mod preset;
pub mod published;
pub mod result;
pub mod rtapp;
mod run;
pub mod scan;
pub mod scenario;
pub mod schemas;
pub mod serve;
pub mod show;
pub mod together;
pub mod tune;
pub mod variant;
pub mod view;
pub mod workbench;
pub mod xen;

pub use error::StudyError;
