//! What a search has found while it runs: the best setting by the goal among the finished runs.

use super::goal::Aim;
use crate::compare::Seen;
use schedlab_model::text::shown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Called after each run, from the thread that ran it.
pub type Watch<'a> = &'a (dyn Fn(&Step) + Sync);

/// How far a search is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// Runs that are finished.
    pub done: usize,
    /// All of them.
    pub all: usize,
    /// The best setting so far.
    pub best: Option<Best>,
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
    watch: Watch<'a>,
    done: AtomicUsize,
    seen: Arc<Seen>,
    /// Of the rounds before, until this one has one.
    best: Mutex<Option<Best>>,
}

impl<'a> SoFar<'a> {
    pub(super) fn new(goal: &'a Aim, watch: Watch<'a>) -> SoFar<'a> {
        let (done, best) = (AtomicUsize::new(0), Mutex::default());
        SoFar { goal, watch, done, seen: Arc::new(Seen::new(goal.wanted.clone())), best }
    }

    /// Begins a round: its numbers are of other seeds, or of another time.
    pub(super) fn round(&mut self) {
        self.seen = Arc::new(Seen::new(self.goal.wanted.clone()));
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
        (self.watch)(&Step { done, all, best: best.clone() });
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
