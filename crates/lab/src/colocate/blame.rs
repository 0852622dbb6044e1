//! Which programs delayed the server.

use schedlab_model::Ns;
use schedlab_trace::Recording;
use schedlab_trace::analysis::blame::{Blame, Culprit};
use schedlab_trace::analysis::follow::Followed;
use schedlab_trace::analysis::{By, Scope};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// How much of the server's waiting a program caused.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Blamed {
    /// The program's name; `idle` for a CPU that was leaving idle, `a limit` where a limit held the
    /// server back.
    pub who: String,
    /// Waiting time in each second of the round.
    pub ns_per_s: f64,
}

/// Programs that are kept.
const TOP: usize = 3;

/// Returns the programs that delayed the server most in a round; `server` says of each task whether
/// it belongs to the server.
pub(super) fn blame(recording: &Recording, server: &[bool]) -> Vec<Blamed> {
    let scope = Scope::default();
    let blame =
        Followed::over(recording, &scope, Blame::new(&recording.header, &scope, By::Thread));
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

/// Returns the medians over rounds, the largest first.
pub fn median_blame<'a>(rounds: impl Iterator<Item = &'a [Blamed]> + Clone) -> Vec<Blamed> {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let count = rounds.clone().count();
    for one in rounds.flatten() {
        values.entry(&one.who).or_default().push(one.ns_per_s);
    }
    let median = |(who, mut values): (&str, Vec<f64>)| {
        // A program that is not among the largest of a round counts as 0 there.
        values.resize(count, 0.0);
        let median =
            schedlab_stats::Estimate::from_values(values).map_or(0.0, |estimate| estimate.median);
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
    fn the_median_over_rounds_counts_programs_that_are_missing_as_0() {
        let one = |who: &str, ns_per_s| Blamed { who: who.to_owned(), ns_per_s };
        let rounds = [
            vec![one("batch", 9.0), one("cron", 50.0)],
            vec![one("batch", 7.0)],
            vec![one("batch", 8.0)],
        ];
        assert_eq!(median_blame(rounds.iter().map(Vec::as_slice)), [one("batch", 8.0)]);
    }
}
