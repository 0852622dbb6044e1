//! Which tasks live again when the programs begin again. A task that has not ended repeats what it
//! did, from its birth if that was recorded. One that ended lives again when the task that created
//! it repeats that; where that one is not recorded, or has ended for good, it lives once.

use crate::facts::{Facts, Kind};
use crate::graph::{Graph, Object};
use schedlab_model::TaskId;

/// Which tasks live again, and with whose rounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lives {
    /// By task: the task with whose rounds it lives again, which may be itself; `None`: it lives
    /// once.
    with: Vec<Option<TaskId>>,
    /// By task: whether it is a thread of an executor.
    serves: Vec<bool>,
}

impl Lives {
    /// Returns which tasks live again.
    pub fn from_facts(facts: &Facts, graph: &Graph) -> Lives {
        let count = facts.tasks.len();
        let mut serves = vec![false; count];
        for threads in graph.groups().filter(|threads| attend(facts, threads)) {
            threads.iter().for_each(|task| serves[task.index()] = true);
        }
        let by_itself = |task: TaskId| !facts.tasks[task.index()].ended || serves[task.index()];
        let with = |number: usize| {
            let mut task = TaskId::from(number);
            // No task is its own ancestor; a file that says so is left after as many steps as there
            // are tasks.
            for _ in 0..count {
                if by_itself(task) {
                    return Some(task);
                }
                task = facts.tasks[task.index()].creator?;
            }
            None
        };
        Lives { with: (0..count).map(with).collect(), serves }
    }

    /// Returns whether the task lives again.
    pub fn again(&self, task: TaskId) -> bool {
        self.with[task.index()].is_some()
    }

    /// Returns whether the task is a thread of an executor.
    pub fn serves(&self, task: TaskId) -> bool {
        self.serves[task.index()]
    }

    /// Returns whether what comes into the object comes at its time in each round of `reader`: from
    /// another task that lives again, or from outside.
    pub fn come_again(&self, object: &Object, reader: TaskId) -> bool {
        let mut writers = object.writers.keys();
        object.lock
            || !object.has_sender()
            || writers.any(|&writer| writer != reader && self.again(writer))
    }

    /// Returns the task with whose rounds it lives again.
    pub fn round_of(&self, task: TaskId) -> Option<TaskId> {
        self.with[task.index()]
    }
}

/// Returns whether threads that share their work are an executor: one of them waits for many
/// objects. Threads that have all ended are none: an executor has no end, and each of them plays
/// what it did in its order.
pub(crate) fn attend(facts: &Facts, threads: &[TaskId]) -> bool {
    let of = |task: &TaskId| &facts.tasks[task.index()];
    let looks = |task: &TaskId| {
        of(task).operations.iter().any(|operation| matches!(operation.kind, Kind::Select { .. }))
    };
    threads.iter().any(looks) && !threads.iter().all(|task| of(task).ended)
}
