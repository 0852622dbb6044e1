//! The tables of analyses, as text and as JSON. Rows of listings are written one by one.

use super::style::{Style, wrap};
use super::table::{Cell as Field, Table as Grid};
use schedlab_model::Ns;
use schedlab_model::text::{between, shown};
use schedlab_study::pieces::{Lanes, in_order};
use schedlab_trace::analysis::Scope;
use schedlab_trace::analysis::show::{Cell, Column, Layout, Output, Table};
use schedlab_trace::analysis::timehist::{self, Piece, Row};
use schedlab_trace::{Header, Recording};
use std::fmt::Write as _;
use std::io::{self, Write};

mod json;
mod listing;
#[cfg(feature = "parquet")]
mod parquet;
mod rows;

pub(crate) use json::Json;
use listing::{Listing, width};
#[cfg(feature = "parquet")]
pub(crate) use parquet::ParquetTable;
pub(crate) use rows::Rows;

/// Returns `redis-server[4711]`; with the process id for a thread that is not the first:
/// `redis-server[4712/4711]`.
fn task_names(header: &Header) -> Vec<String> {
    let name = |task: &schedlab_trace::TaskInfo| match task.tid == task.pid {
        true => format!("{}[{}]", task.comm, task.tid),
        false => format!("{}[{}/{}]", task.comm, task.tid, task.pid),
    };
    header.tasks.iter().map(name).collect()
}

/// Bytes of a listing that are written together.
const PIECE: usize = 1 << 16;

/// Writes tables as text.
pub(crate) struct Text<W> {
    out: W,
    style: Style,
    /// Nanoseconds that are added to points in time.
    clock: u64,
    table: Option<Table>,
    rows: Vec<Vec<Field>>,
    /// The number of leading columns that are names.
    fixed: usize,
    count: u64,
    listing: Listing,
    /// Rows of a listing that are not written yet.
    text: Vec<u8>,
    left_out: Vec<String>,
    /// Whether times have three decimals.
    exact: bool,
}

impl<W: Write> Text<W> {
    pub(crate) fn new(out: W, recording: &Recording, style: Style, clock: u64) -> Text<W> {
        Text {
            out,
            style,
            listing: Listing::new(task_names(&recording.header), clock),
            clock,
            table: None,
            rows: Vec::new(),
            fixed: 0,
            count: 0,
            text: Vec::new(),
            left_out: Vec::new(),
            exact: false,
        }
    }

    /// Writes any text, before or between tables.
    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        self.end_table()?;
        writeln!(self.out, "{text}")
    }

    /// Writes under which sched_ext scheduler the recording was made, where one was loaded or one
    /// came or went.
    pub(crate) fn note_sched_ext(&mut self, recording: &Recording) -> io::Result<()> {
        let Some(words) = recording.header.ext_words() else { return Ok(()) };
        self.note(&format!("sched_ext: {words}"))
    }

    /// Writes the repairs of the recording, which concern every number.
    pub(crate) fn note_repairs(&mut self, recording: &Recording, events: usize) -> io::Result<()> {
        let repairs = &recording.repairs;
        if repairs.is_clean() {
            return Ok(());
        }
        self.note(&format!("repairs of this recording of {events} events: {repairs}"))
    }

    /// Writes how many facts the recording lacks, which concerns what is made of them.
    pub(crate) fn note_lost_facts(&mut self, recording: &Recording) -> io::Result<()> {
        let Some(missing) = recording.facts.loss().sentence() else { return Ok(()) };
        self.note(&format!(
            "{missing}: `--messages` and the replay by messages have this gap, no other number \
             depends on them"
        ))
    }

    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.end_table()?;
        Ok(self.out)
    }

    /// Notes that the listing is cut short: without rows it is not `(none)`.
    pub(crate) fn cut_short(&mut self) {
        self.count += 1;
    }

    fn end_table(&mut self) -> io::Result<()> {
        let Some(table) = self.table.take() else { return Ok(()) };
        self.write_rows(0)?;
        match table.layout {
            Layout::Table if self.rows.is_empty() => {
                writeln!(self.out, "{}", self.style.dim("  (none)"))?
            }
            Layout::Table => {
                let head = table.columns.iter().map(|column| column.title.to_owned()).collect();
                let rows = std::mem::take(&mut self.rows);
                let ranks = table.columns.iter().map(|column| column.rank).collect();
                let (text, left_out) =
                    Grid { head, rows, fixed: self.fixed, ranks, lead: 1 }.render(&self.style);
                self.left_out = left_out;
                self.out.write_all(text.as_bytes())?;
                if !self.left_out.is_empty() {
                    let list = format!(
                        "no room for: {} (a wider terminal or --json shows them)",
                        self.left_out.join(", ")
                    );
                    writeln!(self.out, "{}", self.style.dim(&wrap(&list, self.style.width, 2)))?;
                }
            }
            Layout::Listing | Layout::Paragraphs if self.count == 0 => {
                writeln!(self.out, "{}", self.style.dim("  (none)"))?;
            }
            _ => {}
        }
        match table.layout {
            Layout::Data => Ok(()),
            _ => writeln!(self.out),
        }
    }

    /// Writes the rows of a listing, when they have so many bytes.
    fn write_rows(&mut self, least: usize) -> io::Result<()> {
        if self.text.len() < least {
            return Ok(());
        }
        let result = self.out.write_all(&self.text);
        self.text.clear();
        result
    }

    /// Writes all times on CPUs, as `list` finds them; several threads format them meanwhile.
    pub(crate) fn times_on_cpu<R: Send>(
        &mut self,
        header: &Header,
        scope: &Scope,
        list: impl FnOnce(&mut Lanes<Piece>) -> R + Send,
    ) -> io::Result<R> {
        self.table(&timehist::TABLE)?;
        let Text { out, listing, count, .. } = self;
        let result = in_order(
            list,
            || listing.clone(),
            |listing, piece: &Piece, text| piece.rows(scope, |row| listing.time_on_cpu(row, text)),
            |text| {
                // Only whether a listing had a row counts.
                *count += u64::from(!text.is_empty());
                out.write_all(text)
            },
        )?;
        timehist::note(header).map_or(Ok(()), |text| self.note(text))?;
        Ok(result)
    }

    /// Returns a cell of a table or paragraph.
    fn cell_text(&self, cell: &Cell<'_>, exact: bool) -> String {
        match *cell {
            Cell::None => String::new(),
            Cell::Text(text) => text.to_owned(),
            Cell::Task(task) => self.listing.name(task).to_owned(),
            Cell::Cpu(cpu) => cpu.to_string(),
            Cell::Count(count) => count.to_string(),
            Cell::At(at) => {
                let mut text = String::new();
                seconds(&mut text, at.0 + self.clock);
                text + "s"
            }
            Cell::Time(time) if exact => milliseconds(time) + " ms",
            Cell::Time(time) => time.to_string(),
            Cell::Between(low, high) => between(low, high),
            Cell::Share(share) => format!("{}.{:02}%", share / 10_000, share % 10_000 / 100),
            Cell::Milli(milli) => format!("{}.{:03}", milli / 1_000, milli % 1_000),
        }
    }

    fn listing_head(&mut self, columns: &[Column]) -> io::Result<()> {
        let mut lines = [String::new(), String::new(), String::new()];
        for (i, column) in columns.iter().enumerate() {
            let (width, title) = (width(column), column.title);
            let (title, second) = title
                .split_once(" [")
                .map_or((title, String::new()), |(t, s)| (t, format!("[{s}")));
            let unit = match column.key {
                "at_ns" => "(sec)",
                key if key.ends_with("_ns") => "(msec)",
                _ => &second,
            };
            let gap = if i == 0 { "" } else { "  " };
            let number = column.key.ends_with("_ns");
            for (line, text) in lines.iter_mut().zip([title, unit, &"-".repeat(width)]) {
                line.push_str(gap);
                let _ = if number {
                    write!(line, "{text:>width$}")
                } else {
                    write!(line, "{text:width$}")
                };
            }
        }
        for line in lines {
            writeln!(self.out, "{}", self.style.dim(line.trim_end()))?;
        }
        Ok(())
    }

    fn paragraph(&mut self, columns: &[Column], cells: &[Cell<'_>]) -> io::Result<()> {
        let mut facts = Vec::new();
        let mut sentences = Vec::new();
        for (column, cell) in columns.iter().zip(cells) {
            match cell {
                Cell::None => {}
                Cell::Count(count) if column.title.is_empty() => facts.push(format!("{count}.")),
                Cell::Task(task) if facts.len() < 2 => {
                    facts.push(self.style.bold(self.listing.name(*task)))
                }
                Cell::Text(text) if text.contains(' ') => {
                    sentences.push(format!("{}: {text}", column.title))
                }
                cell => facts.push(format!("{} {}", column.title, self.cell_text(cell, true))),
            }
        }
        writeln!(self.out, "{}", wrap(&facts.join(" "), self.style.width, 0))?;
        for sentence in sentences {
            writeln!(self.out, "{}", wrap(&sentence, self.style.width, 4))?;
        }
        Ok(())
    }
}

impl<W: Write> Output for Text<W> {
    fn table(&mut self, table: &Table) -> io::Result<()> {
        self.end_table()?;
        self.exact = table.layout != Layout::Table;
        // Markdown has no listings: its tables are as long as they have to be.
        let layout = match table.layout {
            Layout::Listing | Layout::Paragraphs if self.style.markdown => Layout::Table,
            layout => layout,
        };
        let table = &Table { layout, ..*table };
        self.table = Some(*table);
        (self.count, self.fixed) = (0, 0);
        self.rows.clear();
        if table.layout != Layout::Data {
            writeln!(self.out, "{}", self.style.bold(table.title))?;
        }
        match table.layout {
            Layout::Listing => {
                self.listing.columns(table.columns);
                self.listing_head(table.columns)
            }
            _ => Ok(()),
        }
    }

    fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        let Some(table) = self.table else { return Ok(()) };
        self.count += 1;
        match table.layout {
            Layout::Data => Ok(()),
            Layout::Listing => {
                self.listing.row(cells, &mut self.text);
                self.write_rows(PIECE)
            }
            Layout::Paragraphs => self.paragraph(table.columns, cells),
            Layout::Table => {
                if self.count == 1 {
                    let named = |cell: &&Cell<'_>| matches!(cell, Cell::Text(_) | Cell::Task(_));
                    self.fixed = cells.iter().take_while(named).count().max(1);
                }
                let row = cells
                    .iter()
                    .map(|cell| Field::plain(self.cell_text(cell, self.exact)))
                    .collect();
                self.rows.push(row);
                Ok(())
            }
        }
    }

    fn time_on_cpu(&mut self, row: &Row) -> io::Result<()> {
        if self.style.markdown {
            return row.cells(|cells| self.row(cells));
        }
        self.count += 1;
        self.listing.time_on_cpu(row, &mut self.text);
        self.write_rows(PIECE)
    }

    fn answer(&mut self, text: &str) -> io::Result<()> {
        self.end_table()?;
        let text = self.style.bold(&wrap(&shown(text), self.style.width, 0));
        writeln!(self.out, "{text}\n")
    }

    fn note(&mut self, text: &str) -> io::Result<()> {
        self.end_table()?;
        let note = wrap(&format!("note: {text}"), self.style.width, 0);
        writeln!(self.out, "{}\n", self.style.dim(&note))
    }
}

/// Writes `12.345678`, rounded down to microseconds.
fn seconds(line: &mut String, ns: u64) {
    digits(line, ns / 1_000_000_000, 1);
    line.push('.');
    digits(line, ns / 1_000 % 1_000_000, 6);
}

/// Writes thousandths as `1.234`.
fn fixed_point(line: &mut String, thousandths: u64) {
    digits(line, thousandths / 1_000, 1);
    line.push('.');
    digits(line, thousandths % 1_000, 3);
}

/// Returns milliseconds with three decimals.
fn milliseconds(time: Ns) -> String {
    let mut text = String::new();
    fixed_point(&mut text, (time.0 + 500) / 1_000);
    text
}

/// Writes at least `least` digits. Listings have millions of rows: this is several times faster
/// than `format!`.
fn digits(line: &mut String, mut number: u64, least: usize) {
    let mut bytes = [b'0'; 20];
    let mut at = bytes.len();
    while number > 0 || at > bytes.len() - least {
        at -= 1;
        bytes[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    line.extend(bytes[at..].iter().map(|&byte| char::from(byte)));
}

/// Returns the first lines of `schedlab show FILE`.
pub(crate) fn overview(input: &str, recording: &Recording, style: &Style) -> String {
    let header = &recording.header;
    let mut text = format!("{}\n", style.bold(input));
    let mut say = |what: &str, value: String| {
        if !value.is_empty() {
            text += &wrap(&format!("{what}: {value}"), style.width, 2);
            text.push('\n');
        }
    };
    say("what", header.note.clone());
    say("recorded by", format!("{} ({})", header.backend, header.program));
    say("machine", header.machine.clone());
    say("kernel", header.kernel.clone());
    say("command", header.command.join(" "));
    say("date", header.date.clone());
    let (cpus, tasks, groups) = (header.topology.cpus(), header.tasks.len(), header.groups.len());
    say(
        "holds",
        format!(
            "{} in {} events of {tasks} tasks in {groups} control groups on {cpus} CPUs",
            recording.duration,
            recording.events.len()
        ),
    );
    let sees: Vec<&str> = header.capabilities.0.iter().map(String::as_str).collect();
    say("sees", sees.join(", "));
    let possible =
        schedlab_trace::analysis::show::ALL.iter().filter(|entry| entry.check(header).is_ok());
    let names: Vec<String> = possible.map(|entry| format!("--{}", entry.name)).collect();
    say("can be asked", names.join(" "));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_format_does() {
        for number in [0, 1, 9, 10, 999, 1_000, 12_345_678_901, u64::MAX] {
            let mut text = String::new();
            digits(&mut text, number, 1);
            assert_eq!(text, format!("{number}"));
            text.clear();
            digits(&mut text, number, 4);
            assert_eq!(text, format!("{number:04}"));
            text.clear();
            seconds(&mut text, number);
            assert_eq!(
                text,
                format!("{}.{:06}", number / 1_000_000_000, number % 1_000_000_000 / 1_000)
            );
        }
        assert_eq!(milliseconds(Ns(15_249_500)), "15.250");
    }
}
