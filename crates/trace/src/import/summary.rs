//! What there is to say about an import, beside the recording.

use crate::Repairs;
use schedlab_model::Ns;
use std::collections::BTreeMap;

/// Odd lines, damaged events and losses that are kept; all are counted.
const KEPT: usize = 3;
/// Losses that are kept.
const LOSSES: usize = 100;
/// Bytes of a line that are shown.
const SHOWN: usize = 120;

/// What an import left out, repaired or could not understand.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// The name of the format in [`all`](super::formats::all).
    pub format: &'static str,
    /// Events that mean nothing to the schedule, by name.
    pub ignored: BTreeMap<String, u64>,
    /// Lines that no format explains.
    pub odd: OddLines,
    /// Scheduling events whose fields could not be read; each is a loss in the recording.
    pub damaged: OddLines,
    /// Where events are missing, by time and CPU; the first of them.
    pub losses: Vec<Loss>,
    /// All places where events are missing.
    pub losses_in_all: u64,
    /// What a reader of the recording should know.
    pub notes: Vec<String>,
    /// Events of one CPU that the source had in the wrong order.
    pub(super) misordered: u64,
    /// Events that the source had twice; the second was dropped.
    pub(super) duplicates: u64,
    /// What was repaired in the recording.
    pub repairs: Repairs,
    /// CPUs whose last loss has no end yet, with its place in `losses`.
    open: BTreeMap<u32, usize>,
}

/// Lines that could not be read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OddLines {
    /// How many there are.
    pub count: u64,
    /// The first of them.
    pub first: Vec<OddLine>,
}

/// A line that could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OddLine {
    /// Its number, from 1; 0 in binary files.
    pub line: u64,
    /// Its text, cut after 120 bytes.
    pub text: String,
    /// What is wrong with it.
    pub why: String,
}

/// Events of a CPU that are missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// Which CPU.
    pub cpu: u32,
    /// How many events, where the source says so.
    pub count: u64,
    /// The last event of that CPU before them, on the recording's clock.
    pub from: Ns,
    /// The first event of that CPU after them; `None`: there is none.
    pub to: Option<Ns>,
}

impl OddLines {
    fn add(&mut self, line: u64, text: &str, why: &str) {
        self.count += 1;
        if self.first.len() < KEPT {
            let end = text.floor_char_boundary(SHOWN);
            self.first.push(OddLine { line, text: text[..end].to_owned(), why: why.to_owned() });
        }
    }
}

impl Summary {
    pub(super) fn ignore(&mut self, name: &str) {
        self.ignore_many(name, 1);
    }

    pub(super) fn ignore_many(&mut self, name: &str, count: u64) {
        match self.ignored.get_mut(name) {
            Some(known) => *known += count,
            None => drop(self.ignored.insert(name.to_owned(), count)),
        }
    }

    pub(super) fn odd_line(&mut self, line: u64, text: &str, why: &str) {
        self.odd.add(line, text, why);
    }

    pub(super) fn damage(&mut self, line: u64, text: &str, why: &str) {
        self.damaged.add(line, text, why);
    }

    pub(super) fn note(&mut self, note: &str) {
        if !self.notes.iter().any(|known| known == note) {
            self.notes.push(note.to_owned());
        }
    }

    /// Events of a CPU are missing since `at`.
    pub(super) fn lose(&mut self, cpu: u32, count: u64, at: Ns) {
        if count == 0 {
            return;
        }
        self.losses_in_all += 1;
        if self.losses.len() < LOSSES {
            self.open.insert(cpu, self.losses.len());
            self.losses.push(Loss { cpu, count, from: at, to: None });
        }
    }

    /// The next event of a CPU ends its loss.
    #[inline]
    pub(super) fn end_of_loss(&mut self, cpu: u32, at: Ns) {
        if !self.open.is_empty()
            && let Some(index) = self.open.remove(&cpu)
        {
            self.losses[index].to = Some(at);
        }
    }

    /// Losses have the source's times until the recording's start is known.
    pub(super) fn losses_from(&mut self, start: Ns) {
        for loss in &mut self.losses {
            loss.from = loss.from.saturating_sub(start);
            loss.to = loss.to.map(|to| to.saturating_sub(start));
        }
    }
}
