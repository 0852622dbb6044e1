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

/// What units are worth; `ui/src/page/sort.ts` has the same.
const UNITS: [(&str, f64); 7] =
    [("", 1.0), ("%", 0.01), ("/s", 1.0), ("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];

/// Returns the number that a text is, such as `4.11 ms` or `1.7 %`, and what its last digit is
/// worth.
fn number(text: &str) -> Option<(f64, f64)> {
    let end = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = unit.strip_prefix(['\u{a0}', ' ']).unwrap_or(unit);
    let (_, worth) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let after = digits.split_once('.').map_or(0, |(_, after)| after.len());
    let value: f64 = digits.parse().ok()?;
    Some((value * worth, worth / 10f64.powi(after as i32)))
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
    ///
    /// A text that is the number, rounded, is sorted by itself: in a table of thousands of rows
    /// the values would take as much room as the texts.
    pub fn number(text: impl Into<String>, value: f64) -> Cell {
        let text = text.into();
        let is_same = |(shown, last): (f64, f64)| (shown - value).abs() <= 0.51 * last;
        let says_it = number(&text).is_some_and(is_same);
        let sort = (value.is_finite() && !says_it).then_some(value);
        Cell { text, sort, ..Cell::default() }
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
    fn a_text_that_is_its_number_is_sorted_by_itself() {
        let sort = |text: &str, value| Cell::number(text, value).sort;
        let said = [
            ("1.7\u{a0}%", 0.017_247),
            ("0\u{a0}ns", 0.0),
            ("1.12\u{a0}ms", 1_118_210.0),
            ("486\u{a0}µs", 486_065.0),
            ("418/s", 418.383),
            ("231.02", 231.016),
            ("7", 7.0),
        ];
        assert_eq!(said.map(|(text, value)| sort(text, value)), [None; 7]);
        let others =
            [("−3.1", -3.1), ("12\u{202f}345", 12_345.0), ("2 of 3", 0.67), ("1m2s", 62e9)];
        assert_eq!(others.map(|(text, value)| sort(text, value)), others.map(|(_, v)| Some(v)));
        assert_eq!(
            (sort("1.3\u{a0}ms", 1_118_210.0), sort("–", f64::NAN)),
            (Some(1_118_210.0), None)
        );
    }

    #[test]
    fn a_value_to_sort_by_has_six_digits() {
        let all = [0.0, 62_399.0, 7_605_199.0, 0.349_793_215_723, -1.5, 1e-9, 1e21].map(six_digits);
        let expected = ["0", "62399", "7605200", "0.349793", "-1.5", "0.000000001"];
        assert_eq!(all[..6], expected);
        assert_eq!(all[6].parse::<f64>(), Ok(1e21));
    }
}
