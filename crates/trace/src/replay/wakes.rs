//! How often tasks wake each other, counted once: the passes that look for pairs among all tasks
//! ask for it again and again.

use super::timeline::{Deed, Origin, TaskTimeline};
use std::collections::BTreeMap;

/// See the module.
pub(super) struct Wakes {
    /// By task, then by the task that it wakes: how often.
    sent: Vec<BTreeMap<usize, usize>>,
    /// By task, then by the task whose wakeup began an activation of it: how often.
    asked: Vec<BTreeMap<usize, usize>>,
    /// By task: those of which it began an activation, ascending.
    begins: Vec<Vec<usize>>,
    /// By task: those that wake it, ascending.
    wakers: Vec<Vec<usize>>,
}

impl Wakes {
    pub(super) fn new(lines: &[TaskTimeline]) -> Wakes {
        let mut wakes = Wakes {
            sent: vec![BTreeMap::new(); lines.len()],
            asked: vec![BTreeMap::new(); lines.len()],
            begins: vec![Vec::new(); lines.len()],
            wakers: vec![Vec::new(); lines.len()],
        };
        for (task, line) in lines.iter().enumerate() {
            for activation in &line.activations {
                if let Origin::Task(by) = activation.origin {
                    *wakes.asked[task].entry(by.index()).or_default() += 1;
                }
                for (_, deed) in &activation.deeds {
                    if let Deed::Wake(other, _) = deed {
                        *wakes.sent[task].entry(other.index()).or_default() += 1;
                    }
                }
            }
        }
        for task in 0..lines.len() {
            for by in wakes.asked[task].keys() {
                wakes.begins[*by].push(task);
            }
            for other in wakes.sent[task].keys() {
                wakes.wakers[*other].push(task);
            }
        }
        wakes
    }

    /// Returns how often `task` woke `other`.
    pub(super) fn sent(&self, task: usize, other: usize) -> usize {
        self.sent[task].get(&other).copied().unwrap_or(0)
    }

    /// Returns how often a wakeup by `by` began what `task` did.
    pub(super) fn asked(&self, task: usize, by: usize) -> usize {
        self.asked[task].get(&by).copied().unwrap_or(0)
    }

    /// Returns the tasks that wake `task`, ascending.
    pub(super) fn wakers(&self, task: usize) -> &[usize] {
        &self.wakers[task]
    }

    /// Returns the tasks that `task` woke at least once to do something, ascending.
    pub(super) fn begins(&self, task: usize) -> &[usize] {
        &self.begins[task]
    }
}
