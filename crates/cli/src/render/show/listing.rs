//! Rows of listings: columns of fixed width. A listing has millions of rows, so they are put together as bytes, from
//! right to left where numbers stand at the right edge, and handed on in large pieces.

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

/// Blanks for any column.
const BLANKS: [u8; 64] = [b' '; 64];

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
    bytes: Vec<u8>,
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
        Listing { names: names.into_iter().map(name).collect(), clock, widths: Vec::new(), bytes: Vec::new() }
    }

    /// The name of a task.
    pub(super) fn name(&self, task: TaskId) -> &str {
        &self.names[task.index()].text
    }

    /// A table with these columns begins.
    pub(super) fn columns(&mut self, columns: &[Column]) {
        self.widths = columns.iter().map(width).collect();
        self.bytes.reserve(2 * PIECE);
    }

    /// Whether it is time to hand on what is there.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= PIECE
    }

    /// Hands on what is there.
    pub(super) fn flush(&mut self, out: &mut impl Write) -> io::Result<()> {
        let result = out.write_all(&self.bytes);
        self.bytes.clear();
        result
    }

    /// A row, with a cell for each column.
    pub(super) fn row(&mut self, cells: &[Cell<'_>]) {
        let Listing { names, clock, widths, bytes } = self;
        let begin = bytes.len();
        for (&width, cell) in widths.iter().zip(cells) {
            if bytes.len() > begin {
                bytes.extend_from_slice(b"  ");
            }
            let mut number = Number::default();
            match *cell {
                Cell::At(at) => {
                    let micros = (at.0 + *clock) / 1_000;
                    number.with_point(micros, 1_000_000, 6).put(bytes, width.max(WIDTH_AT), width);
                }
                Cell::Time(time) => {
                    number.with_point((time.0 + 500) / 1_000, 1_000, 3).put(bytes, WIDTH_TIME, width);
                }
                Cell::Cpu(cpu) => number.push(b']').digits(cpu.0.into(), 4).push(b'[').put(bytes, 0, width),
                Cell::Count(count) => number.digits(count, 1).put(bytes, 0, width),
                Cell::Task(task) => {
                    let name = &names[task.index()];
                    text(bytes, &name.text, name.width, width);
                }
                Cell::Text(word) => {
                    text(bytes, word, if word.is_ascii() { word.len() } else { word.width() }, width)
                }
                _ => blanks(bytes, width),
            }
        }
        let kept = bytes.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
        bytes.truncate(kept.max(begin));
        bytes.push(b'\n');
    }
}

fn blanks(bytes: &mut Vec<u8>, mut count: usize) {
    while count > 0 {
        let now = count.min(BLANKS.len());
        bytes.extend_from_slice(&BLANKS[..now]);
        count -= now;
    }
}

/// At the left edge of a column.
fn text(bytes: &mut Vec<u8>, text: &str, shown: usize, width: usize) {
    bytes.extend_from_slice(text.as_bytes());
    blanks(bytes, width.saturating_sub(shown));
}

/// A number that grows to the left.
struct Number {
    bytes: [u8; 32],
    begin: usize,
}

impl Default for Number {
    fn default() -> Number {
        Number { bytes: [b' '; 32], begin: 32 }
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
    #[inline(always)]
    fn with_point(&mut self, parts: u64, whole: u64, places: usize) -> &mut Number {
        self.digits(parts % whole, places).push(b'.').digits(parts / whole, 1)
    }

    /// At the right edge of `right` bytes, in a column of `width`.
    fn put(&self, bytes: &mut Vec<u8>, right: usize, width: usize) {
        let length = self.bytes.len() - self.begin;
        if right == width && length <= width && width <= self.bytes.len() {
            // What is left of the number is blank.
            bytes.extend_from_slice(&self.bytes[self.bytes.len() - width..]);
            return;
        }
        blanks(bytes, right.saturating_sub(length));
        bytes.extend_from_slice(&self.bytes[self.begin..]);
        blanks(bytes, width.saturating_sub(length.max(right)));
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
        let wide = row(&cells, 1_000_000_000);
        let fill = " ".repeat(30 - 7);
        assert_eq!(wide, format!("{:>15}  {:6}  日本[7]{fill}  {:>9}\n", "1.000005", "", "0.000"));
    }
}
