//! Values over time.

use schedlab_model::Ns;
use serde::Serialize;

/// A chart of values over time, one trace for each run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Series {
    /// What it shows.
    pub title: String,
    /// What is counted, such as "tasks".
    pub unit: String,
    /// What one point represents, such as "mean over 10 ms".
    pub about: String,
    /// Time of the first point.
    pub from_ns: Ns,
    /// Time between two points.
    pub step_ns: Ns,
    /// The runs.
    pub traces: Vec<Trace>,
}

/// One run's values.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Trace {
    /// Name of the run.
    pub name: String,
    /// As [`crate::Curve::style`].
    pub style: usize,
    /// Values at equal distances.
    pub values: Vec<f64>,
}
