//! What became of the changes that were to be restored.

use schemars::JsonSchema;
use serde::Serialize;

/// What became of one change.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ItemOutcome {
    /// Restored now.
    Restored,
    /// It was as before already.
    AsBefore,
    /// The thread or file does not exist any more.
    Gone,
    /// Another process changed it meanwhile; left as it is.
    ChangedByOthers,
    /// It could not be restored.
    Failed(String),
}

/// One change.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Item {
    /// What, in words: `policy of thread 17 (redis-server)`.
    pub what: String,
    /// What became of it.
    pub outcome: ItemOutcome,
}

/// What became of all changes.
#[derive(Clone, PartialEq, Eq, Debug, Default, JsonSchema, Serialize)]
pub struct Report {
    /// One by one.
    pub items: Vec<Item>,
}

impl Report {
    /// Returns whether nothing failed.
    pub fn complete(&self) -> bool {
        !self.items.iter().any(|item| matches!(item.outcome, ItemOutcome::Failed(_)))
    }
    /// Returns what could not be restored, and why.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.items.iter().filter_map(|item| match &item.outcome {
            ItemOutcome::Failed(why) => Some((item.what.as_str(), why.as_str())),
            _ => None,
        })
    }
    /// Returns how many changes came out so.
    pub fn count(&self, outcome: &ItemOutcome) -> usize {
        self.items.iter().filter(|item| item.outcome == *outcome).count()
    }
    /// Returns what became of everything after a second look: its outcomes count, unless it found
    /// as before what the first look restored.
    pub(crate) fn then(self, again: Report) -> Report {
        let restored: Vec<String> = self
            .items
            .into_iter()
            .filter(|item| item.outcome == ItemOutcome::Restored)
            .map(|item| item.what)
            .collect();
        let item = |mut item: Item| {
            if item.outcome == ItemOutcome::AsBefore && restored.contains(&item.what) {
                item.outcome = ItemOutcome::Restored;
            }
            item
        };
        let mut items: Vec<Item> = again.items.into_iter().map(item).collect();
        // What only the first look saw: threads that no entry names, or that are gone by now.
        let seen: Vec<String> = items.iter().map(|item| item.what.clone()).collect();
        let missing = restored.into_iter().filter(|what| !seen.contains(what));
        items.extend(missing.map(|what| Item { what, outcome: ItemOutcome::Restored }));
        Report { items }
    }
    /// Notes that another process restored what this one could not.
    pub(crate) fn done_by_another(&mut self) {
        for item in &mut self.items {
            if matches!(item.outcome, ItemOutcome::Failed(_)) {
                item.outcome = ItemOutcome::Restored;
            }
        }
    }
    pub(super) fn add(&mut self, what: String, outcome: ItemOutcome) {
        self.items.push(Item { what, outcome });
    }
}
