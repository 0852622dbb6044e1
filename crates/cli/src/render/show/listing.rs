//! Rows of listings: columns of fixed width. A listing has millions of rows, so they are written as bytes into a buffer that
//! is blank already, numbers from the right edge of their column, and handed on in large pieces.

use schedlab_model::TaskId;
use schedlab_trace::analysis::show::{Cell, Column};
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Widths of the columns, as `perf sched timehist` has them.
const WIDTH_AT: usize = 15;
const WIDTH_TASK: usize = 30;
const WIDTH_TIME: usize = 9;
const WIDTH_TEXT: usize = 21;

/// Bytes that are handed on together.
const PIECE: usize = 1 << 16;

/// The longest number with its brackets or point is shorter.
const NUMBER: usize = 32;

/// How wide a column of a listing is.
pub(super) fn width(column: &Column) -> usize {
    match column.key {
        "at_ns" => WIDTH_AT,
        "cpu" => 6,
        "task" => WIDTH_TASK,
        "what" => 11,
        "state" => 5,
        key if key.ends_with("_ns") => WIDTH_TIME,
        _ => WIDTH_TEXT,
    }
}

/// Rows that are not yet handed on.
pub(super) struct Listing {
    names: Vec<Name>,
    /// Added to moments.
    clock: u64,
    widths: Vec<usize>,
    /// Bytes of a row whose words are no longer than their columns or a task's name.
    row: usize,
    /// Blank from `end` on.
    bytes: Vec<u8>,
    end: usize,
}

struct Name {
    text: String,
    /// How many columns of a terminal it takes.
    width: usize,
}

impl Listing {
    /// For tasks of these names, in their order.
    pub(super) fn new(names: Vec<String>, clock: u64) -> Listing {
        let name = |text: String| Name { width: text.width(), text };
        let names = names.into_iter().map(name).collect();
        Listing { names, clock, widths: Vec::new(), row: 0, bytes: Vec::new(), end: 0 }
    }

    /// The name of a task.
    pub(super) fn name(&self, task: TaskId) -> &str {
        &self.names[task.index()].text
    }

    /// A table with these columns begins.
    pub(super) fn columns(&mut self, columns: &[Column]) {
        self.widths = columns.iter().map(width).collect();
        let name = self.names.iter().map(|name| name.text.len()).fold(NUMBER, usize::max);
        self.row = self.widths.iter().map(|width| width + 2 + name).sum::<usize>() + 1;
    }

    /// Whether it is time to hand on what is there.
    pub(super) fn is_full(&self) -> bool {
        self.end >= PIECE
    }

    /// Hands on what is there.
    pub(super) fn flush(&mut self, out: &mut impl Write) -> io::Result<()> {
        let rows = &mut self.bytes[..self.end];
        let result = out.write_all(rows);
        rows.fill(b' ');
        self.end = 0;
        result
    }

    /// A row, with a cell for each column.
    pub(super) fn row(&mut self, cells: &[Cell<'_>]) {
        let Listing { names, clock, widths, row, bytes, end } = self;
        if bytes.len() < *end + *row {
            bytes.resize((*end + *row).max(2 * PIECE), b' ');
        }
        // Where the next column begins, and where the last word ended: blanks at the end are left out.
        let (mut place, mut kept) = (*end, *end);
        for (&width, cell) in widths.iter().zip(cells) {
            if let Cell::Text(word) = cell
                && bytes.len() < place + word.len() + *row
            {
                bytes.resize(place + word.len() + *row, b' ');
            }
            let slot = &mut bytes[place..];
            // Bytes written, and how many of a terminal's columns they take.
            let (written, shown) = match *cell {
                Cell::At(at) => same(moment(slot, (at.0 + *clock) / 1_000)),
                Cell::Time(time) => same(span(slot, (time.0 + 500) / 1_000)),
                Cell::Cpu(cpu) => same(processor(slot, cpu.0)),
                Cell::Count(count) => same(Number::default().digits(count, 1).put(slot, 0)),
                Cell::Task(task) => {
                    let name = &names[task.index()];
                    (copy(slot, name.text.as_bytes()), name.width)
                }
                Cell::Text(word) => {
                    (copy(slot, word.as_bytes()), if word.is_ascii() { word.len() } else { word.width() })
                }
                _ => (0, 0),
            };
            if written > 0 {
                kept = place + written;
            }
            place += written + width.saturating_sub(shown) + 2;
        }
        bytes[kept] = b'\n';
        *end = kept + 1;
    }
}

fn same(written: usize) -> (usize, usize) {
    (written, written)
}

/// At the left edge of a column.
fn copy(slot: &mut [u8], text: &[u8]) -> usize {
    slot[..text.len()].copy_from_slice(text);
    text.len()
}

/// `[0007]`
fn processor(slot: &mut [u8], cpu: u32) -> usize {
    match slot.first_chunk_mut::<6>() {
        Some(slot) if cpu < 10_000 => {
            (slot[0], slot[5]) = (b'[', b']');
            pair(slot, 1, cpu / 100);
            pair(slot, 3, cpu % 100);
            6
        }
        _ => Number::default().push(b']').digits(cpu.into(), 4).push(b'[').put(slot, 0),
    }
}

/// Microseconds as seconds, at the right edge of [`WIDTH_AT`].
fn moment(slot: &mut [u8], micros: u64) -> usize {
    match slot.first_chunk_mut::<WIDTH_AT>() {
        Some(slot) if micros < 100_000_000_000_000 => {
            let (whole, part) = ((micros / 1_000_000) as u32, (micros % 1_000_000) as u32);
            pair(slot, 9, part / 10_000);
            pair(slot, 11, part / 100 % 100);
            pair(slot, 13, part % 100);
            slot[8] = b'.';
            digits(slot, 8, whole);
            WIDTH_AT
        }
        _ => Number::default().with_point(micros, 1_000_000, 6).put(slot, WIDTH_AT),
    }
}

/// Microseconds as milliseconds, at the right edge of [`WIDTH_TIME`].
fn span(slot: &mut [u8], micros: u64) -> usize {
    match slot.first_chunk_mut::<WIDTH_TIME>() {
        Some(slot) if micros < 100_000_000 => {
            let (whole, part) = (micros as u32 / 1_000, micros as u32 % 1_000);
            pair(slot, 7, part % 100);
            slot[6] = b'0' + (part / 100) as u8;
            slot[5] = b'.';
            digits(slot, 5, whole);
            WIDTH_TIME
        }
        _ => Number::default().with_point(micros, 1_000, 3).put(slot, WIDTH_TIME),
    }
}

/// `00` to `99`: a division gives two digits.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

/// The two digits of a number below 100 at `place`.
#[inline(always)]
fn pair<const WIDTH: usize>(slot: &mut [u8; WIDTH], place: usize, number: u32) {
    let [tens, ones] = PAIRS[number as usize];
    (slot[place], slot[place + 1]) = (tens, ones);
}

/// A number that has room there, its last digit before `end`.
#[inline(always)]
fn digits<const WIDTH: usize>(slot: &mut [u8; WIDTH], mut end: usize, mut number: u32) {
    while number >= 100 {
        end -= 2;
        pair(slot, end, number % 100);
        number /= 100;
    }
    if number >= 10 {
        pair(slot, end - 2, number);
    } else {
        slot[end - 1] = b'0' + number as u8;
    }
}

/// A number that grows to the left.
struct Number {
    bytes: [u8; NUMBER],
    begin: usize,
}

impl Default for Number {
    fn default() -> Number {
        Number { bytes: [b' '; NUMBER], begin: NUMBER }
    }
}

impl Number {
    fn push(&mut self, byte: u8) -> &mut Number {
        self.begin -= 1;
        self.bytes[self.begin] = byte;
        self
    }

    /// At least `least` digits.
    #[inline]
    fn digits(&mut self, mut number: u64, least: usize) -> &mut Number {
        let end = self.begin;
        while number > 0 || end - self.begin < least {
            self.push(b'0' + (number % 10) as u8);
            number /= 10;
        }
        self
    }

    /// `parts` of which `whole` are 1, with `places` decimals.
    fn with_point(&mut self, parts: u64, whole: u64, places: usize) -> &mut Number {
        self.digits(parts % whole, places).push(b'.').digits(parts / whole, 1)
    }

    /// At the right edge of `right` bytes, or past it when it is longer.
    fn put(&self, slot: &mut [u8], right: usize) -> usize {
        let begin = self.begin.min(NUMBER - right);
        copy(slot, &self.bytes[begin..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuId, Ns};

    const COLUMNS: &[Column] = &[
        Column { key: "at_ns", title: "time" },
        Column { key: "cpu", title: "cpu" },
        Column { key: "task", title: "task" },
        Column { key: "wait_ns", title: "wait" },
        Column { key: "count", title: "count" },
        Column { key: "state", title: "state" },
    ];

    fn row(cells: &[Cell<'_>], clock: u64) -> String {
        let mut listing = Listing::new(vec!["redis-server[4711]".to_owned(), "日本[7]".to_owned()], clock);
        listing.columns(COLUMNS);
        listing.row(cells);
        let mut out = Vec::new();
        listing.flush(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// What `format!` makes of the same numbers.
    fn plain(at: u64, cpu: u32, name: &str, wait: u64, count: u64, state: &str) -> String {
        let at = format!("{}.{:06}", at / 1_000_000_000, at % 1_000_000_000 / 1_000);
        let wait = (wait + 500) / 1_000;
        let wait = format!("{}.{:03}", wait / 1_000, wait % 1_000);
        let fill = " ".repeat(30usize.saturating_sub(name.width()));
        let line = format!("{at:>15}  [{cpu:04}]  {name}{fill}  {wait:>9}  {count:<21}  {state}");
        line.trim_end().to_owned() + "\n"
    }

    #[test]
    fn rows_are_what_format_makes() {
        let state = "S";
        for (at, cpu, wait, count) in [
            (0, 0, 0, 0),
            (1_234_567_890, 17, 499, 1),
            (999_999, 9_999, 500, 12_345),
            (123_456_789_012_345_678, 12_345, 999_999_500, u64::MAX),
            (u64::MAX, 1, u64::MAX - 500, 10),
            (99_999_999_999_999_999, 10_000, 99_999_999_499, 9),
            (100_000_000_000_000_000, 100, 99_999_999_500, 99),
            (10_000_000_000, 12, 9_999_500, 100),
            (7_000_100_000, 1_234, 100_012_345, 7),
        ] {
            let cells = [
                Cell::At(Ns(at)),
                Cell::Cpu(CpuId(cpu)),
                Cell::Task(TaskId(0)),
                Cell::Time(Ns(wait)),
                Cell::Count(count),
                Cell::Text(state),
            ];
            assert_eq!(row(&cells, 0), plain(at, cpu, "redis-server[4711]", wait, count, state));
        }
        let cells = [
            Cell::At(Ns(5_000)),
            Cell::None,
            Cell::Task(TaskId(1)),
            Cell::Time(Ns(7)),
            Cell::None,
            Cell::None,
        ];
        let long = "a word that is much longer than its column";
        let text = [Cell::None, Cell::None, Cell::None, Cell::None, Cell::None, Cell::Text(long)];
        assert_eq!(row(&text, 0), " ".repeat(15 + 2 + 6 + 2 + 30 + 2 + 9 + 2 + 21 + 2) + long + "\n");
        let wide = row(&cells, 1_000_000_000);
        let fill = " ".repeat(30 - 7);
        assert_eq!(wide, format!("{:>15}  {:6}  日本[7]{fill}  {:>9}\n", "1.000005", "", "0.000"));
    }
}
