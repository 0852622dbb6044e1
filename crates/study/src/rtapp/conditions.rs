//! Conditions of rt-app: `wait`, `sync`, `signal` and `broad` name them, and so do `suspend` and
//! `resume`. One name is one condition, whichever event names it (rt-app 1.0,
//! src/rt-app_parse_config.c, parse_task_event_data: resources of type rtapp_wait).

use super::json::Json;
use super::program::find;
use super::{Mistake, object, text, word};
use std::collections::BTreeMap;

/// The threads that may wait for each condition, by task.
#[derive(Default)]
pub(super) struct Waiters(BTreeMap<String, BTreeMap<String, u64>>);

impl Waiters {
    /// A task of so many threads waits for a condition somewhere in its program.
    pub(super) fn add(&mut self, condition: String, task: &str, copies: u64) {
        self.0.entry(condition).or_default().insert(task.to_owned(), copies);
    }

    /// The threads that can be waiting while one of this task sends; at least 1.
    pub(super) fn beside(&self, condition: &str, sender: &str) -> u64 {
        let Some(tasks) = self.0.get(condition) else { return 1 };
        let of = |(task, copies): (&String, &u64)| copies - u64::from(task == sender);
        tasks.iter().map(of).sum::<u64>().max(1)
    }
}

/// `ref` and `mutex` of `wait` and `sync`.
pub(super) fn reference(value: &Json, place: &str) -> Result<(String, Option<String>), Mistake> {
    let entries = object(value, place)?;
    let named = |key: &str| {
        find(entries, key).map(|value| text(value, &format!("{place}.{key}"))).transpose()
    };
    let condition = named("ref")?
        .ok_or_else(|| (place.to_owned(), "needs \"ref\", the condition".to_owned()))?;
    Ok((word(condition), named("mutex")?.map(word)))
}

/// The condition of those that suspend themselves by this name; without one, by the name of their
/// task.
pub(super) fn suspended(named: &str, task: &str) -> String {
    word(if named.is_empty() { task } else { named })
}

/// Whether the steps took the lock last and did not give it back.
pub(super) fn is_held(lock: &str, steps: &[String]) -> bool {
    let of = |step: &&String| {
        step.strip_suffix(lock).is_some_and(|verb| matches!(verb, "lock " | "unlock "))
    };
    steps.iter().rfind(of).is_some_and(|step| step.starts_with("lock "))
}
