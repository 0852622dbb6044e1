//! Who delayed the server.

use schedlab_model::Ns;
use schedlab_trace::Recording;
use schedlab_trace::analysis::blame::{Blame, Culprit};
use schedlab_trace::analysis::follow::Followed;
use schedlab_trace::analysis::{By, Scope};
use serde::Serialize;
use std::collections::BTreeMap;

/// How much of the server's waiting is laid to whom.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Blamed {
    /// A program's name; `idle` when the CPU was on its way to the server, `a limit` when one held it back.
    pub who: String,
    /// Waiting time for each second of the round.
    pub ns_per_s: f64,
}

/// Culprits that are kept.
const TOP: usize = 3;

/// The worst of one round, of the tasks for whom `server` is true.
pub(super) fn blame(recording: &Recording, server: &[bool]) -> Vec<Blamed> {
    let scope = Scope::default();
    let blame = Followed::over(recording, &scope, Blame::new(&recording.header, &scope, By::Thread));
    let mut sums: BTreeMap<String, Ns> = BTreeMap::new();
    for (line, _) in server.iter().enumerate().filter(|(_, is)| **is) {
        let Some(row) = blame.rows.get(line) else { continue };
        for (culprit, share) in row.iter().copied() {
            let who = match culprit {
                Culprit::Line(line) => {
                    recording.header.tasks.get(line).map_or("?", |task| task.comm.as_str())
                }
                Culprit::Idle => "idle",
                Culprit::Throttled => "a limit",
                Culprit::Unknown => "unknown",
            };
            *sums.entry(who.to_owned()).or_default() += share.time;
        }
    }
    let seconds = recording.duration.0.max(1) as f64 / 1e9;
    let all = sums.into_iter().map(|(who, time)| Blamed { who, ns_per_s: time.0 as f64 / seconds });
    worst(all.collect())
}

/// The medians over rounds, the worst first.
pub fn over<'a>(rounds: impl Iterator<Item = &'a [Blamed]> + Clone) -> Vec<Blamed> {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let count = rounds.clone().count();
    for one in rounds.flatten() {
        values.entry(&one.who).or_default().push(one.ns_per_s);
    }
    let median = |(who, mut values): (&str, Vec<f64>)| {
        // Whoever is not among the worst of a round counts as nothing there.
        values.resize(count, 0.0);
        let median = schedlab_stats::Estimate::from_values(values).map_or(0.0, |estimate| estimate.median);
        Blamed { who: who.to_owned(), ns_per_s: median }
    };
    worst(values.into_iter().map(median).collect())
}

fn worst(mut all: Vec<Blamed>) -> Vec<Blamed> {
    all.retain(|one| one.ns_per_s > 0.0);
    all.sort_by(|a, b| b.ns_per_s.total_cmp(&a.ns_per_s));
    all.truncate(TOP);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_over_rounds_counts_those_who_are_missing() {
        let one = |who: &str, ns_per_s| Blamed { who: who.to_owned(), ns_per_s };
        let rounds =
            [vec![one("batch", 9.0), one("cron", 50.0)], vec![one("batch", 7.0)], vec![one("batch", 8.0)]];
        assert_eq!(over(rounds.iter().map(Vec::as_slice)), [one("batch", 8.0)]);
    }
}
