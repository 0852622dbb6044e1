//! Tables.

use crate::Tone;
use serde::{Serialize, Serializer};

/// A table. A reader can sort it by any column.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Table {
    /// What it shows, with the conditions of its numbers.
    pub caption: String,
    /// Heads of the columns.
    pub columns: Vec<Column>,
    /// Rows, each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
    /// Folded away behind this line until the reader opens it.
    pub fold: Option<String>,
}

/// The head of a column.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Column {
    pub(crate) name: String,
    pub(crate) number: bool,
}

impl Column {
    /// A column of words.
    pub fn text(name: impl Into<String>) -> Column {
        Column { name: name.into(), number: false }
    }

    /// A column of numbers.
    pub fn number(name: impl Into<String>) -> Column {
        Column { name: name.into(), number: true }
    }
}

/// One cell.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Cell {
    pub(crate) text: String,
    pub(crate) note: String,
    pub(crate) tone: &'static str,
    #[serde(serialize_with = "short")]
    pub(crate) sort: Option<f64>,
    pub(crate) head: bool,
    pub(crate) swatch: Option<usize>,
}

/// Writes a value by which to sort with six digits: more than the text beside it has.
fn short<S: Serializer>(value: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
    value.map(six_digits).serialize(to)
}

fn six_digits(value: f64) -> String {
    let rounded = format!("{value:.5e}").parse().unwrap_or(value);
    format!("{rounded}")
}

impl Cell {
    /// Words.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// What the row is about.
    pub fn head(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), head: true, ..Cell::default() }
    }

    /// A number as people write it, and the value by which to sort.
    pub fn number(text: impl Into<String>, value: f64) -> Cell {
        Cell { text: text.into(), sort: value.is_finite().then_some(value), ..Cell::default() }
    }

    /// A smaller remark below the text: the error, the change.
    pub fn note(mut self, note: impl Into<String>, tone: Tone) -> Cell {
        self.note = note.into();
        self.tone = tone.class();
        self
    }

    /// The sign of a run (see [`crate::Curve::style`]) before the text.
    pub fn swatch(mut self, style: usize) -> Cell {
        self.swatch = Some(style);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_to_sort_by_has_six_digits() {
        let all = [0.0, 62_399.0, 7_605_199.0, 0.349_793_215_723, -1.5, 1e-9, 1e21].map(six_digits);
        let expected = ["0", "62399", "7605200", "0.349793", "-1.5", "0.000000001"];
        assert_eq!(all[..6], expected);
        assert_eq!(all[6].parse::<f64>(), Ok(1e21));
    }
}
