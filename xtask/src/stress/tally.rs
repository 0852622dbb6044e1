//! What a run of `cargo xtask stress` has covered.

use schedlab_study::generate::{Draft, Verdict};
use std::collections::BTreeMap;
use std::fmt;

/// Counts of cases.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) done: u64,
    pub(super) failed: u64,
    ran: u64,
    events: u64,
    refused: u64,
    why: BTreeMap<String, u64>,
    /// Cases that ran, by scheduler and by what the scheduler ran on.
    schedulers: BTreeMap<String, u64>,
    places: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Counts a case.
    pub(super) fn count(&mut self, draft: &Draft, verdict: &Verdict) {
        self.done += 1;
        match verdict {
            Verdict::Ran(events) => {
                self.ran += 1;
                self.events += events;
                *self.schedulers.entry(scheduler(draft)).or_default() += 1;
                *self.places.entry(place(draft)).or_default() += 1;
            }
            Verdict::Refused(why) => {
                self.refused += 1;
                *self.why.entry(why.clone()).or_default() += 1;
            }
            Verdict::Failed(..) => self.failed += 1,
        }
    }

    /// Lines on what ran where, and why the rest did not.
    pub(super) fn particulars(&self) -> String {
        let list = |counts: Vec<(&str, u64)>| -> String {
            counts
                .iter()
                .map(|(name, count)| format!("{name} {count}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let places = list(self.places.iter().map(|(name, count)| (*name, *count)).collect());
        let schedulers =
            list(self.schedulers.iter().map(|(name, count)| (name.as_str(), *count)).collect());
        let mut text = format!("  ran {places}\n  {schedulers}\n");
        for (why, count) in &self.why {
            text += &format!("  refused {count}: {why}\n");
        }
        text
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { done, ran, events, refused, failed, .. } = self;
        let events = *events as f64 / 1e6;
        write!(
            f,
            "{done} cases, {ran} ran ({events:.1} M events), {refused} refused, {failed} failed"
        )
    }
}

/// The scheduler's name without knobs.
fn scheduler(draft: &Draft) -> String {
    let spec = draft.keys.iter().find(|(key, _)| key == "schedulers").map_or("", |(_, spec)| spec);
    let name = spec.trim_matches(['[', ']', '"']);
    name.split(':').next().unwrap_or_default().to_owned()
}

fn place(draft: &Draft) -> &'static str {
    let nested = draft.parts.iter().any(|part| part.keys.iter().any(|(key, _)| key == "vm"));
    match draft.delegation.first() {
        Some((_, mode)) if mode.contains("global") => "behind a global agent",
        Some(_) => "behind per-CPU agents",
        None if nested => "with kernels in domains",
        None => "in the kernel",
    }
}
