//! `schedlab show --format csv` and `ndjson`: rows as they come; a listing may be larger than
//! memory.

use super::json::value;
use super::task_names;
use crate::format::{ResultFormat, Sheet};
use schedlab_model::text::shown;
use schedlab_trace::Recording;
use schedlab_trace::analysis::show::{Cell, Column, Output, Table};
use serde_json::Value;
use std::io::{self, Write};

/// Writes tables as rows.
pub(crate) struct Rows<'a, W> {
    sheet: Sheet<W>,
    recording: &'a Recording,
    /// `redis-server[4711]`, by task.
    names: Vec<String>,
    clock: u64,
    columns: &'static [Column],
}

impl<'a, W: Write> Rows<'a, W> {
    pub(crate) fn new(
        out: W,
        format: ResultFormat,
        recording: &'a Recording,
        clock: u64,
    ) -> Rows<'a, W> {
        let sheet = Sheet::new(out, format, schedlab_trace::analysis::show::json::SCHEMA);
        Rows { sheet, recording, names: task_names(&recording.header), clock, columns: &[] }
    }

    pub(crate) fn finish(self) -> io::Result<W> {
        self.sheet.finish()
    }

    /// Returns a cell: of CSV a task is one text, so that every row has the same columns.
    fn value(&self, cell: &Cell<'_>) -> Value {
        match *cell {
            Cell::Task(task) if !self.sheet.has_objects() => {
                self.names[task.index()].as_str().into()
            }
            // Nanoseconds, as in the columns beside it.
            Cell::Between(low, high) if !self.sheet.has_objects() => {
                let end = |end: Option<schedlab_model::Ns>| {
                    end.map_or(String::new(), |end| end.0.to_string())
                };
                format!("{}..{}", end(low), end(high)).into()
            }
            _ => value(cell, &self.recording.header.tasks, self.clock),
        }
    }
}

impl<W: Write> Output for Rows<'_, W> {
    fn table(&mut self, table: &Table) -> io::Result<()> {
        self.columns = table.columns;
        self.sheet
            .table(table.key, table.columns.iter().map(|column| column.key.to_owned()).collect())
    }

    fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        let values: Vec<Value> = cells.iter().map(|cell| self.value(cell)).collect();
        self.sheet.row(&values)
    }

    /// Notes are no rows: they go to standard error.
    fn note(&mut self, text: &str) -> io::Result<()> {
        writeln!(io::stderr(), "note: {}", shown(text))
    }
}
