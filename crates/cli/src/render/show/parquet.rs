//! `schedlab show --format parquet`: the first table of an analysis, with the columns of its CSV.

use super::task_names;
use schedlab_model::Ns;
use schedlab_model::text::shown;
use schedlab_tables::LooseTable;
use schedlab_trace::Recording;
use schedlab_trace::analysis::show::{Cell, Column, Output, Table};
use schedlab_trace::flat::Value;
use std::collections::BTreeSet;
use std::io::{self, Write};

/// The end of a column that holds an interval: it becomes two, in nanoseconds.
const INTERVAL: &str = "_interval_ns";

/// Takes the rows of an analysis, and makes a file of its first table.
pub(crate) struct ParquetTable {
    /// `redis-server[4711]`, by task.
    names: Vec<String>,
    clock: u64,
    /// The first table: its name, and its columns.
    first: Option<(&'static str, &'static [Column], LooseTable)>,
    /// Whether the rows that come are those of the first table.
    taken: bool,
    left_out: BTreeSet<&'static str>,
}

impl ParquetTable {
    /// `clock`: nanoseconds that are added to moments.
    pub(crate) fn new(recording: &Recording, clock: u64) -> ParquetTable {
        let names = task_names(&recording.header);
        ParquetTable { names, clock, first: None, taken: false, left_out: BTreeSet::new() }
    }

    /// Returns the file.
    pub(crate) fn finish(self) -> anyhow::Result<Vec<u8>> {
        if !self.left_out.is_empty() {
            let names: Vec<&str> = self.left_out.iter().copied().collect();
            let text = format!(
                "a Parquet file holds one table: without {} (--format csv and ndjson have all)",
                names.join(", ")
            );
            writeln!(io::stderr(), "note: {text}")?;
        }
        let table = self.first.map_or_else(|| LooseTable::new([]), |(.., table)| table);
        let mut file = Vec::new();
        schedlab_tables::parquet::write(&table.finish()?, &mut file)?;
        Ok(file)
    }
}

/// Returns the columns of a file: an interval has two.
fn columns(columns: &'static [Column]) -> impl Iterator<Item = (String, &'static str)> {
    columns.iter().flat_map(|column| match column.key.strip_suffix(INTERVAL) {
        Some(of) => {
            vec![(format!("{of}_low_ns"), column.title), (format!("{of}_high_ns"), column.title)]
        }
        None => vec![(column.key.to_owned(), column.title)],
    })
}

impl Output for ParquetTable {
    fn table(&mut self, table: &Table) -> io::Result<()> {
        if self.first.is_none() {
            let columns: Vec<(String, &str)> = columns(table.columns).collect();
            let loose =
                LooseTable::new(columns.iter().map(|(name, title)| (name.as_str(), *title)));
            self.first = Some((table.key, table.columns, loose));
        }
        self.taken = self.first.as_ref().is_some_and(|(key, ..)| *key == table.key);
        if !self.taken {
            self.left_out.insert(table.key);
        }
        Ok(())
    }

    fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        let Some((_, columns, table)) = self.first.as_mut().filter(|_| self.taken) else {
            return Ok(());
        };
        let time = |end: Option<Ns>| end.map_or(Value::None, Value::time);
        let mut values = Vec::with_capacity(cells.len() + 4);
        for (column, cell) in columns.iter().zip(cells) {
            match *cell {
                Cell::Between(low, high) => values.extend([time(low), time(high)]),
                Cell::None if column.key.ends_with(INTERVAL) => values.extend([Value::None; 2]),
                Cell::None => values.push(Value::None),
                Cell::Text(text) => values.push(Value::Text(text)),
                Cell::Task(task) => values.push(Value::Text(&self.names[task.index()])),
                Cell::Cpu(cpu) => values.push(Value::count(cpu.0)),
                Cell::Count(count) => values.push(Value::count(count)),
                Cell::At(at) => values.push(Value::count(at.0 + self.clock)),
                Cell::Time(time) => values.push(Value::time(time)),
                Cell::Share(share) => values.push(Value::Float(share as f64 / 1e6)),
                Cell::Milli(milli) => values.push(Value::Float(milli as f64 / 1e3)),
            }
        }
        table.push(&values).map_err(io::Error::other)
    }

    /// Notes are no rows: they go to standard error.
    fn note(&mut self, text: &str) -> io::Result<()> {
        writeln!(io::stderr(), "note: {}", shown(text))
    }
}
