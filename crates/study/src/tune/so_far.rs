//! What a search has found while it runs: the best setting by the goal among the finished runs.

use super::goal::Aim;
use super::rank;
use crate::compare::{Seen, SeenRow};
use crate::headline::Wanted;
use schedlab_model::text::shown;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Called after each run, from the thread that ran it.
pub type Watch<'a> = &'a (dyn Fn(&Step<'_>) + Sync);

/// How far a search is.
pub struct Step<'a> {
    /// Runs that are finished.
    pub done: usize,
    /// All of them.
    pub all: usize,
    /// The best setting so far.
    pub best: Option<Best>,
    so_far: &'a SoFar<'a>,
}

impl Step<'_> {
    /// Returns the settings of this round of which a run is finished, the unchanged row first. More
    /// work than a step itself: a reader asks as often as the answer is looked at.
    pub fn settings(&self) -> Vec<Found> {
        self.so_far.settings()
    }
}

/// A setting of the round that runs. Its numbers are those of the simulation, of the runs that are
/// finished, without the error of the answer.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Found {
    /// As `compare --variant` takes it; of the first row its name.
    pub setting: String,
    /// Runs that are finished.
    pub runs: usize,
    /// Smallest value, median and largest value of what is to become better, and then of what is
    /// not to become worse; `null`: nothing was counted.
    pub figures: Vec<Option<[f64; 3]>>,
    /// Whether no other setting is better in all of them.
    pub front: bool,
}

/// The best setting by the goal among the finished runs. Its number is that of the simulation, of
/// as many seeds as are finished; bounds of what is to be kept are not looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Best {
    /// As `compare --variant` takes it.
    pub setting: String,
    /// The number that is to become better.
    pub value: String,
    /// The same of the unchanged row.
    pub unchanged: String,
}

/// What is known while a search runs.
pub(super) struct SoFar<'a> {
    goal: &'a Aim,
    keep: &'a [Aim],
    watch: Watch<'a>,
    done: AtomicUsize,
    seen: Arc<Seen>,
    /// Of the rounds before, until this one has one.
    best: Mutex<Option<Best>>,
}

impl<'a> SoFar<'a> {
    pub(super) fn new(goal: &'a Aim, keep: &'a [Aim], watch: Watch<'a>) -> SoFar<'a> {
        let (done, best) = (AtomicUsize::new(0), Mutex::default());
        let seen = Arc::new(Seen::new(wanted(goal, keep)));
        SoFar { goal, keep, watch, done, seen, best }
    }

    /// Begins a round: its numbers are of other seeds, or of another time.
    pub(super) fn round(&mut self) {
        self.seen = Arc::new(Seen::new(wanted(self.goal, self.keep)));
    }

    pub(super) fn seen(&self) -> Option<Arc<Seen>> {
        Some(Arc::clone(&self.seen))
    }

    pub(super) fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    /// Tells that a run is finished.
    pub(super) fn step(&self, done: usize, all: usize) {
        self.done.fetch_max(done, Ordering::Relaxed);
        let mut best = self.best.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = self.best() {
            *best = Some(found);
        }
        let best = best.clone();
        (self.watch)(&Step { done, all, best, so_far: self });
    }

    fn settings(&self) -> Vec<Found> {
        let rows = self.seen.rows();
        let aims = || std::iter::once(self.goal).chain(self.keep);
        let middle = |row: &SeenRow, index: usize| {
            row.numbers.get(index).copied().flatten().map(|[_, median, _]| median)
        };
        let base = rows.iter().find(|row| !row.is_changed);
        let base_of = |index| base.and_then(|row| middle(row, index)).unwrap_or_default();
        let losses = |row: &SeenRow| {
            let loss = |(index, aim): (usize, &Aim)| aim.loss(middle(row, index), base_of(index));
            aims().enumerate().map(loss).collect()
        };
        let changed: Vec<usize> = (0..rows.len()).filter(|&row| rows[row].is_changed).collect();
        let all: Vec<Vec<f64>> = changed.iter().map(|&row| losses(&rows[row])).collect();
        let front: Vec<usize> = rank::front(&all).into_iter().map(|row| changed[row]).collect();
        let found = |(place, row): (usize, SeenRow)| Found {
            setting: shown(&row.name).into_owned(),
            runs: row.runs,
            figures: row.numbers,
            front: front.contains(&place),
        };
        rows.into_iter().enumerate().map(found).collect()
    }

    /// The best of this round that is better than the unchanged row.
    fn best(&self) -> Option<Best> {
        let (base, others) = self.seen.medians()?;
        let loss = |value: f64| self.goal.loss(Some(value), base);
        let least = others.into_iter().min_by(|a, b| loss(a.1).total_cmp(&loss(b.1)))?;
        let show = |value: f64| self.goal.metric().show(value);
        (loss(least.1) < loss(base)).then(|| Best {
            setting: shown(&least.0).into_owned(),
            value: show(least.1),
            unchanged: show(base),
        })
    }
}

fn wanted(goal: &Aim, keep: &[Aim]) -> Vec<Wanted> {
    std::iter::once(goal).chain(keep).map(|aim| aim.wanted.clone()).collect()
}
