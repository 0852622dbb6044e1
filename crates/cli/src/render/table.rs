//! Tables whose columns fit the terminal.

use super::style::Style;
use crate::format::TABLE as MARKDOWN_ROW;
use schedlab_model::text::{markdown_cell, shown};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How a cell looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Look {
    /// Plain.
    #[default]
    Plain,
    /// Good.
    Good,
    /// Bad.
    Bad,
    /// Less important.
    Dim,
}

/// One cell: a value and its change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cell {
    /// The value.
    pub(crate) value: String,
    /// The change.
    pub(crate) change: String,
    /// How the change looks.
    pub(crate) look: Look,
}

impl Cell {
    /// Returns a cell without a change.
    pub(crate) fn plain(value: impl Into<String>) -> Cell {
        let value: String = value.into();
        Cell { value: shown(&value).into_owned(), ..Cell::default() }
    }
}

/// A table. The first `fixed` columns are always shown, aligned left, and cut where the `lead`
/// columns of the lowest ranks would have no room beside them; of the others as many as fit, those
/// of the lowest rank first.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<Cell>>,
    pub(crate) fixed: usize,
    /// By column; one without a rank comes after those that have one, in the order of the columns.
    pub(crate) ranks: Vec<u8>,
    /// How many columns names are cut for; at least one.
    pub(crate) lead: usize,
}

/// A name is not cut below this many columns.
const NAME_MIN: usize = 8;

impl Table {
    /// Returns the text, indented by two, and the names of the columns that did not fit.
    pub(crate) fn render(&self, style: &Style) -> (String, Vec<String>) {
        if style.markdown {
            return (self.markdown(), Vec::new());
        }
        let mut widths: Vec<(usize, usize)> =
            (0..self.head.len()).map(|column| self.widths(column)).collect();
        let empty = |column: usize| self.rows.iter().all(|row| row[column].value.is_empty());
        let mut others: Vec<usize> =
            (self.fixed..self.head.len()).filter(|&column| !empty(column)).collect();
        others.sort_by_key(|&column| self.ranks.get(column).copied().unwrap_or(u8::MAX));
        let lead: usize =
            others.iter().take(self.lead.max(1)).map(|&column| 2 + total(widths[column])).sum();
        self.cut_names(&mut widths, style.width.saturating_sub(lead));
        let mut shown: Vec<usize> = (0..self.fixed).collect();
        let mut used: usize = shown.iter().map(|&column| 2 + total(widths[column])).sum();
        let mut left_out = Vec::new();
        for column in others {
            let width = 2 + total(widths[column]);
            if used + width <= style.width {
                used += width;
                shown.push(column);
            } else {
                left_out.push(column);
            }
        }
        shown.sort_unstable();
        left_out.sort_unstable();
        let left_out = left_out.into_iter().map(|column| self.head[column].clone()).collect();
        let mut text = String::new();
        for &column in &shown {
            // The heading is over the values, not over their changes.
            text += "  ";
            text += &pad(
                &cut(&self.head[column], widths[column].0),
                widths[column].0,
                column < self.fixed,
            );
            text += &" ".repeat(total(widths[column]) - widths[column].0);
        }
        let mut text = style.dim(text.trim_end()) + "\n";
        for row in &self.rows {
            let mut line = String::new();
            for &column in &shown {
                line += "  ";
                line += &cell(&row[column], widths[column], column < self.fixed, style);
            }
            text += line.trim_end();
            text.push('\n');
        }
        (text, left_out)
    }

    /// Returns all columns that have a value, as a table of Markdown.
    fn markdown(&self) -> String {
        let columns: Vec<usize> = (0..self.head.len())
            .filter(|&column| {
                column < self.fixed
                    || self.rows.iter().any(|row| {
                        !row[column].value.trim().is_empty() || !row[column].change.is_empty()
                    })
            })
            .collect();
        let line = |cells: Vec<String>| format!("{MARKDOWN_ROW}| {} |\n", cells.join(" | "));
        let mut text =
            line(columns.iter().map(|&column| markdown_cell(&self.head[column])).collect());
        let rule = columns.iter().map(|&column| if column < self.fixed { "---|" } else { "---:|" });
        text += &format!("{MARKDOWN_ROW}|{}\n", rule.collect::<String>());
        for row in &self.rows {
            let cell = |&column: &usize| {
                let Cell { value, change, .. } = &row[column];
                markdown_cell(format!("{value} {change}").trim())
            };
            text += &line(columns.iter().map(cell).collect());
        }
        text
    }

    /// Takes columns off the widest names until they are `room` wide together.
    fn cut_names(&self, widths: &mut [(usize, usize)], room: usize) {
        let together = |widths: &[(usize, usize)]| -> usize {
            widths[..self.fixed].iter().map(|&width| 2 + total(width)).sum()
        };
        while together(widths) > room {
            let widest = (0..self.fixed).max_by_key(|&column| widths[column].0);
            match widest {
                Some(column) if widths[column].0 > NAME_MIN => widths[column].0 -= 1,
                _ => return,
            }
        }
    }

    /// Returns the widths of the widest value and the widest change of a column.
    fn widths(&self, column: usize) -> (usize, usize) {
        let cells = || self.rows.iter().map(|row| &row[column]);
        let value = cells().map(|cell| cell.value.width()).max().unwrap_or(0);
        let change = cells().map(|cell| cell.change.width()).max().unwrap_or(0);
        (value.max(self.head[column].width()), change)
    }
}

fn total((value, change): (usize, usize)) -> usize {
    value + if change > 0 { change + 1 } else { 0 }
}

/// Returns `text` in at most `width` columns; what is cut off the end becomes `…`.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    for c in text.chars() {
        if short.width() + c.width().unwrap_or(0) + 1 > width {
            break;
        }
        short.push(c);
    }
    short + "…"
}

fn pad(text: &str, width: usize, left: bool) -> String {
    let space = " ".repeat(width.saturating_sub(text.width()));
    if left { format!("{text}{space}") } else { format!("{space}{text}") }
}

fn cell(cell: &Cell, widths: (usize, usize), left: bool, style: &Style) -> String {
    let value = pad(&cut(&cell.value, widths.0), widths.0, left);
    if widths.1 == 0 {
        return value;
    }
    let change = pad(&cell.change, widths.1, true);
    let change = match cell.look {
        Look::Plain => change,
        Look::Good => style.good(&change),
        Look::Bad => style.bad(&change),
        Look::Dim => style.dim(&change),
    };
    format!("{value} {change}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let cell = |value: &str, change: &str| Cell {
            value: value.into(),
            change: change.into(),
            look: Look::Good,
        };
        Table {
            head: ["task", "share", "p99"].map(String::from).to_vec(),
            rows: vec![
                vec![Cell::plain("redis"), cell("35.1%", ""), cell("3.10ms", "")],
                vec![Cell::plain("x"), cell("5.1%", "-3.0±0.1"), cell("12.0us", "-99%±8%")],
            ],
            fixed: 1,
            ranks: Vec::new(),
            lead: 1,
        }
    }

    #[test]
    fn columns_line_up() {
        let (text, left_out) = table().render(&Style::plain());
        let expected = "  task   share              p99\n\
                        \x20 redis  35.1%           3.10ms\n\
                        \x20 x       5.1% -3.0±0.1  12.0us -99%±8%\n";
        assert_eq!(text, expected);
        assert!(left_out.is_empty());
    }

    #[test]
    fn a_narrow_terminal_loses_columns_by_name() {
        let (text, left_out) = table().render(&Style { width: 30, colors: false, markdown: false });
        assert_eq!(left_out, ["p99"]);
        assert!(text.lines().all(|line| line.width() <= 30), "{text}");
    }

    #[test]
    fn the_important_columns_stay() {
        let ranked = Table { ranks: vec![0, 2, 1], ..table() };
        let (text, left_out) = ranked.render(&Style { width: 30, colors: false, markdown: false });
        assert_eq!(left_out, ["share"]);
        assert!(text.contains("p99") && text.contains("12.0us -99%±8%"), "{text}");
    }

    #[test]
    fn names_are_cut_for_the_columns_that_a_table_is_about() {
        let mut long = table();
        long.rows[0][0] = Cell::plain("a-name-of-twenty-ones");
        long.lead = 2;
        let (text, left_out) = long.render(&Style { width: 50, colors: false, markdown: false });
        assert!(left_out.is_empty() && text.contains("12.0us -99%±8%"), "{text}");
        assert!(text.lines().all(|line| line.width() <= 50), "{text}");
        long.lead = 1;
        assert_eq!(long.render(&Style { width: 50, colors: false, markdown: false }).1, ["p99"]);
    }

    #[test]
    fn long_names_are_cut_before_the_most_important_column_goes() {
        let mut long = table();
        long.rows[0][0] = Cell::plain("a-name-that-is-longer-than-the-screen-is-wide[123456]");
        let (text, _) = long.render(&Style { width: 40, colors: false, markdown: false });
        assert!(text.lines().all(|line| line.width() <= 40), "{text}");
        assert!(text.contains('…') && text.contains("35.1%"), "{text}");
    }
}
