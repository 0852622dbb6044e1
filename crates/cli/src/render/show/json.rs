//! `schedlab show --json` (docs/show-schema.md). Rows are written one by one: a listing may be
//! larger than memory.

use schedlab_study::show::{ShownServer, caught};
use schedlab_trace::analysis::show::json::{
    SCHEMA, ServedFirst, ShownAnswer, ShownRecording, ShownWindow,
};
use schedlab_trace::analysis::show::{Cell, Column, Output, Table};
use schedlab_trace::analysis::{Answer, Scope};
use schedlab_trace::{Recording, TaskInfo};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Writes tables as JSON.
pub(crate) struct Json<'a, W> {
    out: W,
    tasks: &'a [TaskInfo],
    clock: u64,
    columns: &'static [Column],
    analyses: usize,
    tables: usize,
    rows: usize,
    notes: Vec<String>,
    answer: Option<String>,
}

impl<'a, W: Write> Json<'a, W> {
    pub(crate) fn new(
        mut out: W,
        input: &str,
        recording: &'a Recording,
        scope: &Scope,
        clock: u64,
        (answer, server): (Option<&Answer>, Option<&ShownServer>),
    ) -> io::Result<Json<'a, W>> {
        let header = &recording.header;
        let about = serde_json::to_value(ShownRecording::from(recording))?;
        let window = serde_json::to_value(ShownWindow::new(recording, scope, clock))?;
        let caught = serde_json::to_value(caught(recording, scope))?;
        let serve = serde_json::to_value(server.map(|server| ServedFirst {
            name: &server.name,
            programs: &server.programs,
            guessed: server.guess.as_ref().map(|guess| guess.why.as_str()),
        }))?;
        let answer = serde_json::to_value(answer.map(|answer| ShownAnswer::new(answer, clock)))?;
        write!(
            out,
            "{{\"schema\":\"{SCHEMA}\",\"version\":{},\"input\":{},\"answer\":{answer},\"caught\":{caught},\"serve\":{serve},\
             \"recording\":{about},\
             \"window\":{window},\"analyses\":[",
            Value::from(env!("CARGO_PKG_VERSION")),
            Value::from(input),
        )?;
        let (tasks, columns) = (&header.tasks[..], &[][..]);
        Ok(Json {
            out,
            tasks,
            clock,
            columns,
            analyses: 0,
            tables: 0,
            rows: 0,
            notes: Vec::new(),
            answer: None,
        })
    }

    /// Begins an analysis.
    pub(crate) fn analysis(&mut self, name: &str) -> io::Result<()> {
        self.end_analysis()?;
        let comma = if self.analyses > 0 { "," } else { "" };
        self.analyses += 1;
        self.tables = 0;
        write!(self.out, "{comma}\n{{\"name\":{},\"tables\":{{", Value::from(name))
    }

    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.end_analysis()?;
        self.out.write_all(b"\n]}\n")?;
        Ok(self.out)
    }

    fn end_table(&mut self) -> io::Result<()> {
        if self.tables > 0 { self.out.write_all(b"]") } else { Ok(()) }
    }

    fn end_analysis(&mut self) -> io::Result<()> {
        if self.analyses == 0 {
            return Ok(());
        }
        self.end_table()?;
        let notes = std::mem::take(&mut self.notes);
        let answer = self.answer.take().map_or(Value::Null, Value::from);
        write!(self.out, "}},\"answer\":{answer},\"notes\":{}}}", Value::from(notes))
    }
}

/// Returns a cell as JSON; `clock` is added to points in time.
pub(super) fn value(cell: &Cell<'_>, tasks: &[TaskInfo], clock: u64) -> Value {
    match *cell {
        Cell::None => Value::Null,
        Cell::Text(text) => Value::from(text),
        Cell::Task(task) => {
            let info = &tasks[task.index()];
            json!({ "name": info.comm, "tid": info.tid, "pid": info.pid })
        }
        Cell::Cpu(cpu) => Value::from(cpu.0),
        Cell::Count(count) => Value::from(count),
        Cell::At(at) => Value::from(at.0 + clock),
        Cell::Time(time) => Value::from(time.0),
        Cell::Between(low, high) => json!([low.map(|low| low.0), high.map(|high| high.0)]),
        Cell::Share(share) => Value::from(share as f64 / 1e6),
        Cell::Milli(milli) => Value::from(milli as f64 / 1e3),
    }
}

impl<W: Write> Output for Json<'_, W> {
    fn table(&mut self, table: &Table) -> io::Result<()> {
        self.end_table()?;
        let comma = if self.tables > 0 { "," } else { "" };
        self.tables += 1;
        self.rows = 0;
        self.columns = table.columns;
        write!(self.out, "{comma}\n {}:[", Value::from(table.key))
    }

    fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        let comma = if self.rows > 0 { "," } else { "" };
        self.rows += 1;
        write!(self.out, "{comma}\n  {{")?;
        for (i, (column, cell)) in self.columns.iter().zip(cells).enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(self.out, "{comma}\"{}\":{}", column.key, value(cell, self.tasks, self.clock))?;
        }
        self.out.write_all(b"}")
    }

    fn answer(&mut self, text: &str) -> io::Result<()> {
        self.answer = Some(text.to_owned());
        Ok(())
    }

    fn note(&mut self, text: &str) -> io::Result<()> {
        self.notes.push(text.to_owned());
        Ok(())
    }
}
