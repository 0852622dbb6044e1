//! The list of analyses that `schedlab show` offers, and the plain tables in which they answer.
//!
//! An analysis is one file beside this one, with one line in [`ALL`]. It never prints: it gives an
//! [`Output`] typed cells, of which the terminal, JSON and a page make what suits them.

pub mod json;

use super::follow::Occupant;
use super::timehist::Row;
use super::{Analysis, Scope, scope};
use crate::{Capability, Header, Recording, TraceError};
use schedlab_model::{CpuId, Ns, TaskId};
use std::io;

/// One analysis on offer.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its option on the command line, and its name in JSON.
    pub name: &'static str,
    /// What it shows, in one line.
    pub about: &'static str,
    /// What it is called in messages.
    pub title: &'static str,
    /// What it must be able to see; without these it refuses by name.
    pub needs: &'static [Capability],
    /// A number that its option takes, which becomes [`Scope::top`].
    pub takes: Option<&'static str>,
    how: How,
}

/// What an analysis found, ready to be shown.
pub type Found<'a> = Box<dyn FnOnce(&mut dyn Output) -> io::Result<()> + Send + 'a>;

/// How an analysis is run.
#[derive(Clone, Copy)]
enum How {
    /// It shows while it looks at the events: what it finds may be as large as these.
    AtOnce(fn(&Recording, &Scope, &mut dyn Output) -> io::Result<()>),
    /// It finds first and shows then.
    Apart(for<'a> fn(&'a Recording, &'a Scope) -> Found<'a>),
}

impl Entry {
    /// The entry of analysis `A`.
    pub(crate) const fn new<A: Analysis>(
        name: &'static str,
        about: &'static str,
        run: fn(&Recording, &Scope, &mut dyn Output) -> io::Result<()>,
    ) -> Entry {
        let how = How::AtOnce(run);
        Entry { name, about, title: A::NAME, needs: A::NEEDS, takes: None, how }
    }

    /// The entry of an analysis that finds all before it shows anything, so that others may run
    /// beside it.
    pub(crate) const fn finding<A: Analysis>(
        name: &'static str,
        about: &'static str,
        find: for<'a> fn(&'a Recording, &'a Scope) -> Found<'a>,
    ) -> Entry {
        let how = How::Apart(find);
        Entry { name, about, title: A::NAME, needs: A::NEEDS, takes: None, how }
    }

    /// The same entry, with an option that takes a number.
    pub(crate) const fn taking(self, number: &'static str) -> Entry {
        Entry { takes: Some(number), ..self }
    }

    /// An error that names what the recording lacks for this analysis, if anything.
    pub fn check(&self, header: &Header) -> Result<(), TraceError> {
        super::check(self.title, self.needs, header)
    }

    /// Runs the analysis over `recording`, which must have passed [`check`](Entry::check). The only
    /// error is that of `out`.
    pub fn run(
        &self,
        recording: &Recording,
        scope: &Scope,
        out: &mut dyn Output,
    ) -> io::Result<()> {
        self.found(recording, scope)(out)
    }

    /// Whether [`found`](Entry::found) is where the work is.
    pub fn finds_first(&self) -> bool {
        matches!(self.how, How::Apart(_))
    }

    /// The first half of [`run`](Entry::run): all that can be done before anything is shown.
    pub fn found<'a>(&'a self, recording: &'a Recording, scope: &'a Scope) -> Found<'a> {
        let found: Found<'a> = match self.how {
            How::AtOnce(run) => Box::new(move |out| run(recording, scope, out)),
            How::Apart(find) => find(recording, scope),
        };
        Box::new(move |out| {
            found(out)?;
            self.notes(recording, scope, out)
        })
    }

    /// Says what the recording lacks of what was shown.
    fn notes(&self, recording: &Recording, scope: &Scope, out: &mut dyn Output) -> io::Result<()> {
        if self.needs.contains(&Capability::Messages)
            && let Some(missing) = recording.facts.loss().sentence()
        {
            out.note(&format!("{missing}: what they would have shown is missing"))?;
        }
        match super::losses::sentence(&super::losses::losses(recording, scope)) {
            Some(sentence) => out.note(&sentence),
            None => Ok(()),
        }
    }
}

/// Every analysis, in the order of the help.
pub const ALL: &[Entry] = &[
    super::worst::ENTRY,
    super::latency::ENTRY,
    super::timehist::ENTRY,
    super::slices::ENTRY,
    super::blame::ENTRY,
    super::steal::ENTRY,
    super::tasks::ENTRY,
    super::throttle::ENTRY,
    super::states::ENTRY,
    super::runqueue::ENTRY,
    super::conservation::ENTRY,
    super::wakes::ENTRY,
    super::messages::ENTRY,
    super::migrations::ENTRY,
    super::stream::ENTRY,
    super::syscalls::ENTRY,
];

/// How a table is meant to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Some rows with columns as wide as needed.
    Table,
    /// Rows without end, to be printed as they come; columns have fixed widths.
    Listing,
    /// Each row is a paragraph.
    Paragraphs,
    /// For programs: a terminal shows the same elsewhere.
    Data,
}

/// A table before its rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Table {
    /// Its name in JSON.
    pub key: &'static str,
    /// Its headline.
    pub title: &'static str,
    /// Its columns.
    pub columns: &'static [Column],
    /// How it is read.
    pub layout: Layout,
}

/// A column of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// Its name in JSON; names of times end in `_ns`.
    pub key: &'static str,
    /// Its headline; no two columns of a table have the same.
    pub title: &'static str,
    /// Where a screen is too narrow, columns of the lowest rank stay.
    pub rank: u8,
}

/// The rank of a column that names none.
const RANK: u8 = 5;

/// A column.
pub(crate) const fn column(key: &'static str, title: &'static str) -> Column {
    Column { key, title, rank: RANK }
}

impl Column {
    /// The same column with this rank: 1 is what its table is about.
    pub(crate) const fn rank(self, rank: u8) -> Column {
        Column { rank, ..self }
    }
}

/// One value of a row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Cell<'a> {
    /// Nothing is known, or there is nothing to say.
    None,
    /// A word or a sentence.
    Text(&'a str),
    /// A task.
    Task(TaskId),
    /// A CPU.
    Cpu(CpuId),
    /// A number of things.
    Count(u64),
    /// A moment, since the start of the recording.
    At(Ns),
    /// A length of time.
    Time(Ns),
    /// Between which two lengths a percentile lies with 95 %; an end that is missing is not known.
    Between(Option<Ns>, Option<Ns>),
    /// A part, in millionths.
    Share(u64),
    /// A mean of counts, in thousandths.
    Milli(u64),
}

impl<'a> Cell<'a> {
    /// The head of a line.
    pub fn label(label: &'a scope::Label) -> Cell<'a> {
        match label {
            scope::Label::Task(task) => Cell::Task(*task),
            scope::Label::Name(name) => Cell::Text(name),
        }
    }

    /// `part` of `whole`, nothing when there is no whole.
    pub fn part(part: Ns, whole: Ns) -> Cell<'static> {
        match whole.0 {
            0 => Cell::None,
            whole => Cell::Share((u128::from(part.0) * 1_000_000 / u128::from(whole)) as u64),
        }
    }

    /// Between which two values the percentile (in millionths) of `durations` lies; nothing where
    /// they are too few for either end.
    pub fn interval(durations: &super::Durations, per_million: u32) -> Cell<'static> {
        match durations.interval(per_million) {
            (None, None) => Cell::None,
            (low, high) => Cell::Between(low, high),
        }
    }

    /// Who was on a CPU.
    pub fn occupant(who: Occupant) -> Cell<'static> {
        match who {
            Occupant::Task(task) => Cell::Task(task),
            Occupant::Idle => Cell::Text("<idle>"),
            Occupant::Unknown => Cell::Text("<unknown>"),
        }
    }

    /// A moment or a length that may not exist.
    pub fn maybe<T>(value: Option<T>, cell: impl FnOnce(T) -> Cell<'a>) -> Cell<'a> {
        value.map_or(Cell::None, cell)
    }
}

/// Takes the answers of an analysis.
pub trait Output {
    /// A table begins; the rows that follow belong to it.
    fn table(&mut self, table: &Table) -> io::Result<()>;
    /// A row of the last table, with a cell for each column.
    fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()>;
    /// A row of the listing of times on CPUs: there are millions of them, and who writes them may
    /// know a shorter way.
    fn time_on_cpu(&mut self, row: &Row) -> io::Result<()> {
        row.cells(|cells| self.row(cells))
    }
    /// What the tables that follow say, in two sentences: it is before them.
    fn answer(&mut self, text: &str) -> io::Result<()> {
        let _ = text;
        Ok(())
    }
    /// Something that a reader must know about the numbers.
    fn note(&mut self, text: &str) -> io::Result<()>;
}
