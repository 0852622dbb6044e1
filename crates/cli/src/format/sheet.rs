//! Rows as CSV, Markdown, or a line of JSON each.

use super::ResultFormat;
use super::paragraphs::escaped;
use schedlab_model::Ns;
use schedlab_model::text::{csv_field, markdown_cell};
use serde_json::Value;
use std::io::{self, Write};

/// Writes tables as they come.
pub(crate) struct Sheet<W> {
    out: W,
    format: ResultFormat,
    schema: String,
    table: String,
    columns: Vec<String>,
    /// Whether something is written: what comes next has an empty line before it.
    begun: bool,
}

impl<W: Write> Sheet<W> {
    pub(crate) fn new(out: W, format: ResultFormat, schema: &str) -> Sheet<W> {
        let schema = schema.to_owned();
        Sheet { out, format, schema, table: String::new(), columns: Vec::new(), begun: false }
    }

    /// Begins a table. One with the same name and columns as the last goes on.
    pub(crate) fn table(&mut self, name: &str, columns: Vec<String>) -> io::Result<()> {
        if self.table == name && self.columns == columns {
            return Ok(());
        }
        (self.table, self.columns) = (name.to_owned(), columns);
        match self.format {
            ResultFormat::Csv => {
                self.gap()?;
                let head: Vec<String> =
                    self.columns.iter().map(|column| csv_field(column)).collect();
                writeln!(self.out, "{}", head.join(","))
            }
            ResultFormat::Markdown => {
                self.gap()?;
                let head: Vec<String> = self.columns.iter().map(|column| title(column)).collect();
                writeln!(self.out, "| {} |", head.join(" | "))?;
                writeln!(self.out, "|{}", "---|".repeat(head.len()))
            }
            _ => Ok(()),
        }
    }

    /// Writes a row, a value for each column.
    pub(crate) fn row(&mut self, values: &[Value]) -> io::Result<()> {
        let cells = || self.columns.iter().zip(values);
        let line = match self.format {
            ResultFormat::Csv => {
                cells().map(|(_, value)| csv_field_of(value)).collect::<Vec<_>>().join(",")
            }
            ResultFormat::Markdown => {
                let cells: Vec<String> = cells()
                    .map(|(column, value)| markdown_cell(&for_people(column, value)))
                    .collect();
                format!("| {} |", cells.join(" | "))
            }
            _ => {
                let all: Vec<_> =
                    cells().map(|(column, value)| (column.clone(), value.clone())).collect();
                return self.object(&all);
            }
        };
        writeln!(self.out, "{line}")
    }

    /// Writes a row that is an object, with its schema and table first.
    pub(crate) fn object(&mut self, object: &[(String, Value)]) -> io::Result<()> {
        let (schema, table) = (Value::from(self.schema.as_str()), Value::from(self.table.as_str()));
        write!(self.out, "{{\"schema\":{schema},\"table\":{table}")?;
        for (key, value) in object {
            write!(self.out, ",{}:{value}", Value::from(key.as_str()))?;
        }
        writeln!(self.out, "}}")
    }

    /// Whether rows are objects, in which values may be nested.
    pub(crate) fn has_objects(&self) -> bool {
        self.format == ResultFormat::Ndjson
    }

    /// Writes a paragraph, in Markdown only.
    pub(crate) fn paragraph(&mut self, text: &str) -> io::Result<()> {
        if self.format != ResultFormat::Markdown {
            return Ok(());
        }
        self.gap()?;
        writeln!(self.out, "{}", escaped(text))
    }

    #[cfg(feature = "machine")]
    pub(crate) fn out(&mut self) -> &mut W {
        &mut self.out
    }

    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn gap(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.begun, true) { writeln!(self.out) } else { Ok(()) }
    }
}

/// Only a text may be a formula; a negative number is none.
fn csv_field_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => csv_field(text),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        nested => csv_field(&nested.to_string()),
    }
}

/// Returns the heading of a column: a time says its unit in its cells.
fn title(column: &str) -> String {
    markdown_cell(&column.strip_suffix("_ns").unwrap_or(column).replace('_', " "))
}

fn for_people(column: &str, value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) if column.ends_with("_ns") && number.is_u64() => {
            Ns(number.as_u64().unwrap_or_default()).to_string()
        }
        Value::Number(number) if number.is_f64() => rounded(number.as_f64().unwrap_or_default()),
        other => other.to_string(),
    }
}

/// Returns a number with at least four digits.
fn rounded(number: f64) -> String {
    match number.abs() {
        1e3.. => format!("{number:.0}"),
        10.0.. => format!("{number:.2}"),
        _ => format!("{number:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sheet(format: ResultFormat) -> String {
        let mut sheet = Sheet::new(Vec::new(), format, "schedlab-x/1");
        sheet.table("tasks", vec!["name".to_owned(), "wait_ns".to_owned()]).unwrap();
        sheet.row(&[json!("=1+1"), json!(164_000)]).unwrap();
        sheet.row(&[json!("a|b,\u{1b}[31m"), Value::Null]).unwrap();
        sheet.table("other", vec!["change".to_owned()]).unwrap();
        sheet.row(&[json!(-0.5)]).unwrap();
        String::from_utf8(sheet.finish().unwrap()).unwrap()
    }

    #[test]
    fn csv_has_a_heading_for_each_table_and_no_formulas() {
        let expected = "name,wait_ns\n'=1+1,164000\n\"a|b,\\x1b[31m\",\n\nchange\n-0.5\n";
        assert_eq!(sheet(ResultFormat::Csv), expected);
    }

    #[test]
    fn markdown_has_units_and_no_markup_of_names() {
        let text = sheet(ResultFormat::Markdown);
        let expected = "| name | wait |\n|---|---|\n| =1+1 | 164.0us |\n\
                        | a\\|b,\\\\x1b\\[31m |  |\n\n\
                        | change |\n|---|\n| -0.5000 |\n";
        assert_eq!(text.replace("164us", "164.0us"), expected);
    }

    #[test]
    fn every_line_of_ndjson_names_its_schema_and_table() {
        let text = sheet(ResultFormat::Ndjson);
        let rows: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(rows.len(), 3);
        assert_eq!(
            rows[0],
            json!({ "schema": "schedlab-x/1", "table": "tasks", "name": "=1+1", "wait_ns": 164_000 })
        );
        assert_eq!(rows[2]["table"], "other");
    }
}
