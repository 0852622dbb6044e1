//! Rows of listings: columns of fixed width. A listing has millions of rows, so they are written as
//! bytes, numbers from the right edge of their column.

use schedlab_model::TaskId;
use schedlab_trace::analysis::show::{Cell, Column};
use schedlab_trace::analysis::timehist::Row;
use std::sync::Arc;
use unicode_width::UnicodeWidthStr;

/// Widths of the columns, as `perf sched timehist` has them.
const WIDTH_AT: usize = 15;
const WIDTH_TASK: usize = 30;
const WIDTH_TIME: usize = 9;
const WIDTH_TEXT: usize = 21;

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

/// How rows become text. Each thread that does it has one of its own.
#[derive(Clone)]
pub(super) struct Listing {
    names: Arc<[Name]>,
    /// Added to moments.
    clock: u64,
    widths: Vec<usize>,
    /// Bytes of a row whose words are no longer than their columns or a task's name.
    row: usize,
    /// The name of an idle CPU.
    idle: Arc<Name>,
    /// The name of a task that was not known when the listing began.
    unknown: Arc<Name>,
    second: Second,
}

struct Name {
    text: String,
    /// How many columns of a terminal it takes.
    width: usize,
    /// A row of the listing of times on CPUs without its numbers, when the name is no longer than
    /// its column.
    line: Option<[u8; LINE]>,
}

impl Name {
    fn new(text: String) -> Name {
        let width = text.width();
        // As many bytes as columns: nothing wide, nothing of several bytes.
        let fits = text.is_ascii() && width == text.len() && width <= WIDTH_TASK;
        let line = fits.then(|| {
            let mut line = [b' '; LINE];
            line[TASK..TASK + width].copy_from_slice(text.as_bytes());
            (line[CPU], line[CPU + 5]) = (b'[', b']');
            (1..=3).for_each(|time| line[TIMES + time * (2 + WIDTH_TIME) - 4] = b'.');
            line
        });
        Name { width, line, text }
    }
}

/// Where the columns of the listing of times on CPUs begin.
const CPU: usize = WIDTH_AT + 2;
const TASK: usize = CPU + 6 + 2;
const TIMES: usize = TASK + WIDTH_TASK;
const STATE: usize = TIMES + 3 * (2 + WIDTH_TIME) + 2;
/// Room for its longest state.
const LINE: usize = STATE + 10;

/// The second of the row before: its digits are those of most rows.
#[derive(Clone, Default)]
struct Second {
    /// Its first nanosecond; `None` before the first row.
    begin: Option<u64>,
    digits: [u8; WIDTH_SECOND],
}

/// The seconds of a moment with their point.
const WIDTH_SECOND: usize = WIDTH_AT - 6;
const SECOND: u64 = 1_000_000_000;

impl Listing {
    /// For tasks of these names, in their order.
    pub(super) fn new(names: Vec<String>, clock: u64) -> Listing {
        Listing {
            names: names.into_iter().map(Name::new).collect(),
            clock,
            widths: Vec::new(),
            row: 0,
            idle: Arc::new(Name::new("<idle>".to_owned())),
            unknown: Arc::new(Name::new("?".to_owned())),
            second: Second::default(),
        }
    }

    /// The name of a task.
    pub(super) fn name(&self, task: TaskId) -> &str {
        &self.names.get(task.index()).unwrap_or(&self.unknown).text
    }

    /// A table with these columns begins.
    pub(super) fn columns(&mut self, columns: &[Column]) {
        self.widths = columns.iter().map(width).collect();
        let name = self.names.iter().map(|name| name.text.len()).fold(NUMBER, usize::max);
        self.row = self.widths.iter().map(|width| width + 2 + name).sum::<usize>() + 1;
    }

    /// A row of the listing of times on CPUs, behind `text`: what [`row`](Listing::row) makes of
    /// its cells.
    #[inline]
    pub(super) fn time_on_cpu(&mut self, row: &Row, text: &mut Vec<u8>) {
        if self.short(row, text).is_none() {
            row.cells(|cells| self.row(cells, text));
        }
    }

    /// The same for the usual row, whose values are no longer than their columns: every byte has
    /// its place then.
    #[inline]
    fn short(&mut self, row: &Row, text: &mut Vec<u8>) -> Option<()> {
        let named = |task: TaskId| self.names.get(task.index()).unwrap_or(&self.unknown);
        let plain = row.who.map_or(&*self.idle, named).line.as_ref()?;
        let within = self.second.within(row.at.0.checked_add(self.clock)?)?;
        let times = [row.wait, row.delay, row.run].map(|time| (time.0 + 500) / 1_000);
        if row.cpu.0 >= 10_000 || times.iter().any(|&micros| micros >= 1_000_000) {
            return None;
        }
        let begin = text.len();
        // All of it, whose length the compiler knows, and written over in its place: from elsewhere
        // a processor would have to wait until the bytes are there before it copies them together.
        text.extend_from_slice(plain);
        let line: &mut [u8; LINE] = text[begin..].first_chunk_mut()?;
        line[..WIDTH_SECOND].copy_from_slice(&self.second.digits);
        triple(line, WIDTH_SECOND, within / 1_000_000);
        triple(line, WIDTH_SECOND + 3, within / 1_000 % 1_000);
        pair(line, CPU + 1, row.cpu.0 / 100);
        pair(line, CPU + 3, row.cpu.0 % 100);
        for (place, micros) in times.into_iter().enumerate() {
            let right = TIMES + (place + 1) * (2 + WIDTH_TIME);
            let (whole, part) = (micros as u32 / 1_000, micros as u32 % 1_000);
            line[right - 7..right - 4].copy_from_slice(&NUMBERS[whole as usize]);
            triple(line, right - 3, part);
        }
        let end = match row.letter().unwrap_or_default().as_bytes() {
            [] => STATE - 2,
            &[letter] => {
                line[STATE] = letter;
                STATE + 1
            }
            word => STATE + copy(&mut line[STATE..], word),
        };
        line[end] = b'\n';
        text.truncate(begin + end + 1);
        Some(())
    }

    /// A row, with a cell for each column.
    pub(super) fn row(&self, cells: &[Cell<'_>], bytes: &mut Vec<u8>) {
        let Listing { names, unknown, clock, widths, row, .. } = self;
        // Where the next column begins, and where the last word ended: blanks at the end are left
        // out.
        let (mut place, mut kept) = (bytes.len(), bytes.len());
        bytes.resize(place + *row, b' ');
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
                    let name = names.get(task.index()).unwrap_or(unknown);
                    (copy(slot, name.text.as_bytes()), name.width)
                }
                Cell::Text(word) => (
                    copy(slot, word.as_bytes()),
                    if word.is_ascii() { word.len() } else { word.width() },
                ),
                _ => (0, 0),
            };
            if written > 0 {
                kept = place + written;
            }
            place += written + width.saturating_sub(shown) + 2;
        }
        bytes.truncate(kept);
        bytes.push(b'\n');
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

/// `000` to `999`.
const TRIPLES: [[u8; 3]; 1000] = {
    let mut triples = [[b'0'; 3]; 1000];
    let mut number = 0;
    while number < 1000 {
        let [tens, ones] = PAIRS[number % 100];
        triples[number] = [b'0' + (number / 100) as u8, tens, ones];
        number += 1;
    }
    triples
};

/// The same without leading zeros, at the right edge.
const NUMBERS: [[u8; 3]; 1000] = {
    let mut numbers = TRIPLES;
    let mut number = 0;
    while number < 100 {
        numbers[number][0] = b' ';
        if number < 10 {
            numbers[number][1] = b' ';
        }
        number += 1;
    }
    numbers
};

/// The three digits of a number below 1000 at `place`.
#[inline(always)]
fn triple<const WIDTH: usize>(slot: &mut [u8; WIDTH], place: usize, number: u32) {
    slot[place..place + 3].copy_from_slice(&TRIPLES[number as usize]);
}

impl Second {
    /// Nanoseconds since the beginning of the second of `at`, whose digits are there from now on.
    /// `None`: it has more than there is room for.
    #[inline]
    fn within(&mut self, at: u64) -> Option<u32> {
        match self.begin.and_then(|begin| at.checked_sub(begin)) {
            Some(within) if within < SECOND => Some(within as u32),
            _ => {
                let whole = u32::try_from(at / SECOND).ok().filter(|&whole| whole < 100_000_000)?;
                self.begin = Some(at / SECOND * SECOND);
                self.digits = [b' '; WIDTH_SECOND];
                self.digits[WIDTH_SECOND - 1] = b'.';
                digits(&mut self.digits, WIDTH_SECOND - 1, whole);
                Some((at % SECOND) as u32)
            }
        }
    }
}

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
        Column { key: "at_ns", title: "time", rank: 5 },
        Column { key: "cpu", title: "cpu", rank: 5 },
        Column { key: "task", title: "task", rank: 5 },
        Column { key: "wait_ns", title: "wait", rank: 5 },
        Column { key: "count", title: "count", rank: 5 },
        Column { key: "state", title: "state", rank: 5 },
    ];

    fn row(cells: &[Cell<'_>], clock: u64) -> String {
        let mut listing =
            Listing::new(vec!["redis-server[4711]".to_owned(), "日本[7]".to_owned()], clock);
        listing.columns(COLUMNS);
        let mut out = Vec::new();
        listing.row(cells, &mut out);
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
        assert_eq!(
            row(&text, 0),
            " ".repeat(15 + 2 + 6 + 2 + 30 + 2 + 9 + 2 + 21 + 2) + long + "\n"
        );
        let wide = row(&cells, 1_000_000_000);
        let fill = " ".repeat(30 - 7);
        assert_eq!(wide, format!("{:>15}  {:6}  日本[7]{fill}  {:>9}\n", "1.000005", "", "0.000"));
    }

    #[test]
    fn a_time_on_a_cpu_is_the_row_of_its_cells() {
        use schedlab_model::PrevState;
        let long = "a name that is longer than its column[123456]";
        let names = || vec!["sched-pipe[7]".to_owned(), "日本[7]".to_owned(), long.to_owned()];
        let times = [0, 499, 500, 9_999_499, 99_999_500, 999_999_499, 999_999_500, 77_000_000_000];
        let moments = [
            0,
            999,
            999_999_999,
            1_000_000_000,
            999_999_999,
            61_000_001_000,
            99_999_999_999_999_999,
        ];
        for clock in [0, 123_456_789_012, u64::MAX / 2] {
            let (mut short, mut plain) =
                (Listing::new(names(), clock), Listing::new(names(), clock));
            short.columns(schedlab_trace::analysis::timehist::TABLE.columns);
            plain.columns(schedlab_trace::analysis::timehist::TABLE.columns);
            let (mut a, mut b) = (Vec::new(), Vec::new());
            for (i, at) in moments.into_iter().enumerate() {
                for (j, time) in times.into_iter().enumerate() {
                    let who = [None, Some(0), Some(1), Some(2)][(i + j) % 4].map(TaskId);
                    let state = [PrevState::Sleeping, PrevState::RunnableInKernel][j % 2];
                    let [wait, delay, run] = [time, times[i], times[(i + j) % times.len()]].map(Ns);
                    let cpu = CpuId([0, 17, 9_999, 10_000][j % 4]);
                    let row = Row { at: Ns(at), cpu, who, wait, delay, run, state };
                    short.time_on_cpu(&row, &mut a);
                    row.cells(|cells| plain.row(cells, &mut b));
                }
            }
            assert_eq!(String::from_utf8(a).unwrap(), String::from_utf8(b).unwrap());
        }
    }
}
