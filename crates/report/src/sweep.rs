//! Numbers over the values of one setting, each a row that was computed.

use serde::Serialize;

/// A curve over the values of a setting, with a slider that goes from row to row: nothing between
/// them is shown as if it were known.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sweep {
    /// What is changed, under which scheduler.
    pub title: String,
    /// The setting, such as `sysbench nice`.
    pub what: String,
    /// Its values, as written.
    pub values: Vec<String>,
    /// The numbers, of which a reader has one drawn at a time.
    pub lines: Vec<SweepLine>,
}

/// One number over the values.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SweepLine {
    /// Of what it is, and which one.
    pub name: String,
    /// How its axis is written.
    pub scale: SweepScale,
    /// By value of the setting; `None`: the row has none.
    pub at: Vec<Option<f64>>,
    /// Between which values each lies; `None`: that is not known.
    pub between: Vec<Option<[f64; 2]>>,
    /// Each as the tables have it, with its change.
    pub text: Vec<String>,
}

/// How numbers of an axis are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SweepScale {
    /// Nanoseconds.
    Time,
    /// Parts of one, as per cent.
    Part,
    /// As they are.
    Number,
}
