//! Tables.

use crate::Tone;
use serde::Serialize;

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
    pub(crate) sort: Option<f64>,
    pub(crate) head: bool,
    pub(crate) swatch: Option<usize>,
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
