//! Runs of the row that nothing changes, which every question about an input has: they are kept, so
//! that a question simulates what it changes. The same plan and seed give the same run.

use super::Run;
use schedlab_scheduler::SchedulerSpec;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Tasks of all runs that are kept. Chosen: 20 seeds, the last stage of a question of the
/// workbench, of a thousand tasks; what is measured of a task takes a few kilobytes.
const KEPT: usize = 20_000;

/// Runs that are known, by scheduler and seed.
#[derive(Debug, Default)]
pub(crate) struct KnownRuns(Mutex<Vec<(SchedulerSpec, u64, Run)>>);

impl KnownRuns {
    fn all(&self) -> MutexGuard<'_, Vec<(SchedulerSpec, u64, Run)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the run under this scheduler with this seed.
    pub(crate) fn get(&self, scheduler: &SchedulerSpec, seed: u64) -> Option<Run> {
        let all = self.all();
        let found = all.iter().find(|(spec, of, _)| (spec, *of) == (scheduler, seed));
        found.map(|(_, _, run)| run.clone())
    }

    /// Keeps a run of so many tasks, while there is room.
    pub(crate) fn keep(&self, scheduler: &SchedulerSpec, seed: u64, tasks: usize, run: &Run) {
        let mut all = self.all();
        let is_there = all.iter().any(|(spec, of, _)| (spec, *of) == (scheduler, seed));
        if !is_there && (all.len() + 1) * tasks.max(1) <= KEPT {
            all.push((scheduler.clone(), seed, run.clone()));
        }
    }
}
