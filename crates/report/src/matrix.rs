//! Which does something to which: a table whose shades can be read from afar.

use schedlab_model::Ns;

/// Times by row and column.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Matrix {
    /// What it shows, with the conditions of its numbers.
    pub caption: String,
    /// What a row is, such as "waited".
    pub rows_are: String,
    /// What a column is, such as "ran meanwhile".
    pub columns_are: String,
    /// Names of the rows.
    pub rows: Vec<String>,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// One list for each row, as long as `columns`.
    pub times: Vec<Vec<Ns>>,
}

/// Matrices of one kind, of which a reader sees one at a time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Choice {
    /// What is chosen, such as "run".
    pub label: String,
    /// Name and matrix; the first is shown at first.
    pub items: Vec<(String, Matrix)>,
}

impl Matrix {
    /// Shade of a cell in steps of a tenth, by the root of its part of the largest: small delays
    /// stay visible.
    pub(crate) fn shade(&self, time: Ns) -> u32 {
        let most = self.times.iter().flatten().max().map_or(0, |most| most.0);
        if most == 0 || time == Ns::ZERO {
            return 0;
        }
        (((time.0 as f64 / most as f64).sqrt() * 10.0).round() as u32).clamp(1, 10)
    }
}
