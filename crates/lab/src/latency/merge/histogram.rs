//! Histograms that other programs print as text: `rtla timerlat hist`, `rtla osnoise hist` and
//! `cyclictest -h` (the forms of tools/tracing/rtla in Linux 5.17 to 6.18 and of rt-tests 1 and 2).

use super::super::matrix::{Cell, Matrix, Quantity, Round, SCHEMA, System};
use super::Load;
use schedlab_measure::Samples;
use schedlab_model::{Ns, Policy};
use std::collections::BTreeMap;

const RTLA: &str = "# RTLA ";
const CYCLICTEST: &str = "# Histogram";

/// Priority of timerlat's threads unless `-P` says another (kernel/trace/trace_osnoise.c:
/// DEFAULT_TIMERLAT_PRIO).
const TIMERLAT_PRIORITY: u8 = 95;

/// Returns whether a text is one of these histograms.
pub(super) fn is_text(text: &str) -> bool {
    text.lines().any(|line| rtla_tool(line).is_some() || line.trim_end() == CYCLICTEST)
}

/// Reads such a text. Its systems are called by `name`; `policy` is that of the threads, where the
/// text does not state one.
///
/// # Errors
/// What is wrong with the text, and what to do.
pub(super) fn read(text: &str, name: &str, policy: Option<Policy>) -> Result<Matrix, String> {
    if text.lines().any(|line| rtla_tool(line).is_some()) {
        rtla(text, name, policy)
    } else {
        cyclictest(text, name, policy)
    }
}

/// The histogram of one thread, in units of the text.
#[derive(Default)]
pub(super) struct Column {
    /// Beginning of a bucket, and how many samples are in it.
    pub(super) buckets: BTreeMap<u64, u64>,
    /// Samples above the last bucket.
    pub(super) beyond: u64,
    /// The largest sample.
    pub(super) max: Option<u64>,
}

impl Column {
    /// Returns how many samples are in buckets.
    pub(super) fn inside(&self) -> u64 {
        self.buckets.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Adds the samples, each at the middle of its bucket of `width` units of `unit` nanoseconds
    /// (times are cut to whole units), none above the maximum. Those beyond the histogram are only
    /// counted: they are put at the maximum.
    ///
    /// # Errors
    /// Samples beyond the histogram, and no maximum.
    pub(super) fn add_to(
        &self,
        samples: &mut Samples,
        unit: u64,
        width: u64,
    ) -> Result<(), String> {
        let middle = |time: u64, width: u64| {
            time.saturating_mul(unit).saturating_add(width.saturating_mul(unit) / 2)
        };
        let most = self.max.map_or(u64::MAX, |max| middle(max, 1));
        for (time, count) in &self.buckets {
            samples.add_many(middle(*time, width).min(most), *count);
        }
        match (self.beyond, self.max) {
            (0, _) => Ok(()),
            (beyond, Some(_)) => {
                samples.add_many(most, beyond);
                Ok(())
            }
            (beyond, None) => Err(format!(
                "{beyond} samples lie above the histogram, and no maximum says how far: measure \
                 with more buckets"
            )),
        }
    }
}

/// Returns what is to be known of samples that are in no bucket.
pub(super) fn beyond_note(columns: &[Column]) -> Option<String> {
    let beyond = columns.iter().fold(0u64, |sum, column| sum.saturating_add(column.beyond));
    let all = columns.iter().fold(beyond, |sum, column| sum.saturating_add(column.inside()));
    (beyond > 0).then(|| {
        format!(
            "{beyond} of {all} samples lie above its histogram and count as the maximum: a \
             percentile among them is at most what is shown"
        )
    })
}

fn system(name: String, tool: String, quantity: Quantity, notes: Vec<String>) -> System {
    System {
        name,
        kernel: String::new(),
        realtime: false,
        virtual_machine: None,
        emulated: false,
        tool,
        quantity,
        notes,
    }
}

/// Returns `timerlat` or `osnoise` of a first line of rtla's histograms. An action that rtla ran
/// may have printed something before it on the same line.
fn rtla_tool(line: &str) -> Option<&'static str> {
    let (_, rest) = line.split_once(RTLA)?;
    ["timerlat", "osnoise"]
        .into_iter()
        .find(|tool| rest.trim_end().strip_prefix(tool) == Some(" histogram"))
}

/// A whole number; rtla prints `-` where it has no value.
fn number(word: &str) -> Result<Option<u64>, String> {
    match word {
        "-" => Ok(None),
        word => word.parse().map(Some).map_err(|_| format!("'{word}' is no number")),
    }
}

/// The table of rtla.
struct Table {
    kinds: Vec<Quantity>,
    columns: Vec<Column>,
    counts: Vec<Option<u64>>,
}

impl Table {
    /// Reads the line above the columns: `Index   IRQ-000   Thr-000`.
    fn new(head: &str) -> Result<Table, String> {
        let kind = |word: &str| match word.split_once('-') {
            Some(("IRQ", _)) => Ok(Quantity::Interrupt),
            Some(("Thr", _)) => Ok(Quantity::Wakeup),
            Some(("Usr", _)) => Ok(Quantity::UserReturn),
            Some(("CPU", _)) => Ok(Quantity::Noise),
            _ => Err(format!("its column '{word}' is none that rtla is known to print")),
        };
        let kinds: Vec<Quantity> =
            head.split_whitespace().skip(1).map(kind).collect::<Result<_, _>>()?;
        let columns = kinds.iter().map(|_| Column::default()).collect();
        Ok(Table { counts: vec![None; kinds.len()], kinds, columns })
    }

    /// Takes the lines below the columns' names, up to the end of the table.
    fn fill<'a>(&mut self, lines: impl Iterator<Item = &'a str>) -> Result<(), String> {
        let mut ended = false;
        for line in lines {
            let mut words = line.split_whitespace();
            let Some(first) = words.next() else { continue };
            let index = first.parse::<u64>().ok().filter(|_| !ended);
            match first {
                "min:" | "avg:" => continue,
                "over:" | "count:" | "max:" => {}
                _ if index.is_some() => {}
                // Sums over all CPUs (`ALL:`), or rtla's report of why it stopped.
                _ => break,
            }
            let values = words.map(number).collect::<Result<Vec<_>, _>>();
            let values = values.map_err(|what| format!("damaged: line `{line}`: {what}"))?;
            if values.len() != self.columns.len() {
                return Err(format!(
                    "damaged: line `{line}` has {} values for {} columns",
                    values.len(),
                    self.columns.len()
                ));
            }
            ended |= first == "over:";
            for ((column, value), count) in
                self.columns.iter_mut().zip(values).zip(&mut self.counts)
            {
                match (index, first) {
                    (Some(index), _) => {
                        let known = column.buckets.entry(index).or_default();
                        *known = known.saturating_add(value.unwrap_or(0));
                    }
                    (None, "over:") => column.beyond = value.unwrap_or(0),
                    (None, "count:") => *count = value,
                    (None, "max:") => column.max = value,
                    _ => {}
                }
            }
        }
        if ended {
            return Ok(());
        }
        Err("it ends before its line `over:`: give the whole text of rtla".to_owned())
    }

    /// Returns how many units a bucket has: what divides the beginnings of all (rtla does not print
    /// its `-b`).
    fn width(&self) -> u64 {
        let common = |a: u64, b: u64| {
            let (mut a, mut b) = (a, b);
            while b != 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        let of_column = |column: &Column| column.buckets.keys().copied().fold(0, common);
        self.columns.first().map_or(1, of_column).max(1)
    }
}

fn rtla(text: &str, name: &str, policy: Option<Policy>) -> Result<Matrix, String> {
    let titles: Vec<&str> = text.lines().filter_map(rtla_tool).collect();
    let [tool] = titles[..] else {
        return Err(format!("it holds {} histograms of rtla: give each a file", titles.len()));
    };
    let head = |line: &&str| line.split_whitespace().next() == Some("Index");
    let Some(at) = text.lines().position(|line| head(&line)) else {
        return Err("its columns have no names: run rtla without --no-header and --no-index".into());
    };
    let comment = |begin: &str| text.lines().take(at).find_map(|line| line.strip_prefix(begin));
    let unit = match comment("# Time unit is ") {
        Some(unit) if unit.starts_with("nanoseconds") => 1,
        Some(unit) if unit.starts_with("microseconds") => 1000,
        _ => return Err("its time unit is not stated (`# Time unit is ...`)".to_owned()),
    };
    let elapsed = comment("# Duration:").and_then(duration).unwrap_or(Ns::ZERO);
    let mut lines = text.lines().skip(at);
    let mut table = Table::new(lines.next().unwrap_or_default())?;
    table.fill(lines)?;
    let width = table.width();
    let usual = if tool == "timerlat" { Policy::Fifo(TIMERLAT_PRIORITY) } else { Policy::Other };
    let mut notes = Vec::new();
    if policy.is_none() {
        notes.push(format!(
            "the text does not state the threads' policy: {usual}, which rtla {tool} uses without \
             -P (`--policy` says another)"
        ));
    }
    let row = RtlaRow { name, tool, unit, width, policy: policy.unwrap_or(usual), elapsed, notes };
    row.of_table(table)
}

/// What the rows of one text have in common.
struct RtlaRow<'a> {
    name: &'a str,
    tool: &'a str,
    unit: u64,
    width: u64,
    policy: Policy,
    elapsed: Ns,
    notes: Vec<String>,
}

impl RtlaRow<'_> {
    /// Returns a system for each kind of column, that of the threads first.
    fn of_table(&self, table: Table) -> Result<Matrix, String> {
        let (mut systems, mut cells) = (Vec::new(), Vec::new());
        let mut columns: BTreeMap<Quantity, Vec<(Column, Option<u64>)>> = BTreeMap::new();
        for ((kind, column), count) in table.kinds.into_iter().zip(table.columns).zip(table.counts)
        {
            columns.entry(kind).or_default().push((column, count));
        }
        for (kind, columns) in columns {
            let (columns, counts): (Vec<Column>, Vec<Option<u64>>) = columns.into_iter().unzip();
            let mut samples = Samples::default();
            for column in &columns {
                column.add_to(&mut samples, self.unit, self.width)?;
            }
            let notes = self.notes(kind, &columns, &counts);
            let suffix = match kind {
                Quantity::Wakeup | Quantity::Noise => "",
                Quantity::Interrupt => " irq",
                Quantity::UserReturn => " user",
            };
            let tool = format!("rtla {} hist", self.tool);
            let system = system(format!("{}{suffix}", self.name), tool, kind, notes);
            cells.push(Cell {
                system: system.name.clone(),
                load: Load::Unstated,
                policy: self.policy,
                rounds: vec![Round::from_samples(self.elapsed, samples)],
            });
            systems.push(system);
        }
        if cells.iter().all(|cell| cell.all().count() == 0) {
            return Err("it has no samples".to_owned());
        }
        Ok(Matrix { schema: SCHEMA.to_owned(), request: None, systems, cells, stopped: false })
    }

    fn notes(&self, kind: Quantity, columns: &[Column], counts: &[Option<u64>]) -> Vec<String> {
        let mut notes = Vec::new();
        if kind == Quantity::Wakeup || kind == Quantity::Noise {
            notes.clone_from(&self.notes);
        }
        notes.extend(kind.note().map(str::to_owned));
        notes.extend(beyond_note(columns));
        if self.width > 1 {
            notes.push(format!(
                "its buckets are {} wide: values are the middles of buckets",
                Ns(self.width.saturating_mul(self.unit))
            ));
        }
        let differs = columns.iter().zip(counts).any(|(column, count)| {
            count.is_some_and(|count| count != column.inside().saturating_add(column.beyond))
        });
        if differs {
            notes.push("its buckets do not add up to its line `count:`".to_owned());
        }
        notes
    }
}

/// Reads a duration as rtla prints it: days, hours, minutes, seconds (`  0 00:10:00`).
fn duration(text: &str) -> Option<Ns> {
    let (days, clock) = text.trim().split_once(' ')?;
    let mut seconds: u64 = days.parse().ok()?;
    for (part, of) in clock.trim().split(':').zip([24u64, 60, 60]) {
        seconds = seconds.checked_mul(of)?.checked_add(part.parse().ok()?)?;
    }
    Some(Ns(seconds.checked_mul(1_000_000_000)?))
}

fn cyclictest(text: &str, name: &str, policy: Option<Policy>) -> Result<Matrix, String> {
    let summary = |begin: &str| -> Result<Option<Vec<u64>>, String> {
        let Some(line) = text.lines().find_map(|line| line.strip_prefix(begin)) else {
            return Ok(None);
        };
        let values = line.split_whitespace().map(|word| word.parse::<u64>());
        let values = values.collect::<Result<Vec<u64>, _>>();
        values.map(Some).map_err(|_| format!("damaged: line `{begin}{line}`"))
    };
    let missing = |line: &str| format!("it has no line `{line}`: give cyclictest's whole text");
    // With `-H` a further column has the sums over all threads.
    let threads = summary("# Min Latencies:")?.ok_or_else(|| missing("# Min Latencies:"))?.len();
    let max = summary("# Max Latencies:")?.ok_or_else(|| missing("# Max Latencies:"))?;
    let over =
        summary("# Histogram Overflows:")?.ok_or_else(|| missing("# Histogram Overflows:"))?;
    let column = |thread: usize| Column {
        buckets: BTreeMap::new(),
        beyond: over.get(thread).copied().unwrap_or(0),
        max: max.get(thread).copied(),
    };
    let mut columns: Vec<Column> = (0..threads).map(column).collect();
    let rows = text.lines().skip_while(|line| line.trim_end() != CYCLICTEST).skip(1);
    for line in rows.filter(|line| line.starts_with(|first: char| first.is_ascii_digit())) {
        let values = line.split_whitespace().map(|word| word.parse::<u64>());
        let values = values.collect::<Result<Vec<u64>, _>>().unwrap_or_default();
        let (Some((time, counts)), true) =
            (values.split_first(), (threads + 1..=threads + 2).contains(&values.len()))
        else {
            return Err(format!("damaged: line `{line}` is no row of {threads} threads"));
        };
        for (column, count) in columns.iter_mut().zip(counts) {
            let known = column.buckets.entry(*time).or_default();
            *known = known.saturating_add(*count);
        }
    }
    let mut samples = Samples::default();
    columns.iter().try_for_each(|column| column.add_to(&mut samples, 1000, 1))?;
    if samples.count() == 0 {
        return Err("it has no samples".to_owned());
    }
    let mut notes = vec![
        "the text does not state its time unit: microseconds (cyclictest without -N)".to_owned(),
    ];
    notes.extend(beyond_note(&columns));
    let system = system(name.to_owned(), "cyclictest -h".to_owned(), Quantity::Wakeup, notes);
    let Some(policy) = stated_policy(text)?.or(policy) else {
        return Err("the text does not state the threads' policy (cyclictest -q): add `--policy \
                    fifo:PRIORITY` (cyclictest -p PRIORITY) or `--policy other` (without -p)"
            .to_owned());
    };
    Ok(super::one_row(system, policy, Round::from_samples(Ns::ZERO, samples), false))
}

/// Returns the policy that cyclictest's lines of threads state, which `-q` leaves out:
/// `policy: fifo: loadavg: ...` and `T: 0 ( 1234) P:80 I:1000 C: 10000 Min: ...`.
fn stated_policy(text: &str) -> Result<Option<Policy>, String> {
    let thread = text.lines().rev().find_map(|line| {
        let (before, rest) = line.split_once(" P:")?;
        before.contains("T:").then(|| rest.split_whitespace().next())?
    });
    let Some(priority) = thread else { return Ok(None) };
    let usual = if priority == "0" { "other" } else { "fifo" };
    let named = text.lines().rev().find_map(|line| {
        let (_, rest) = line.split_once("policy: ")?;
        rest.split_once(':').map(|(name, _)| name)
    });
    let name = match named.unwrap_or(usual) {
        name @ ("fifo" | "rr") => format!("{name}:{priority}"),
        "normal" => "other".to_owned(),
        name => name.to_owned(),
    };
    name.parse().map(Some).map_err(|error| format!("its policy `{name}` is not known: {error}"))
}

#[cfg(test)]
mod tests;
