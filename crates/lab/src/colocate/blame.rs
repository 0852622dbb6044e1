//! Which programs delayed the server.

use super::round::{Round, WorkloadRole};
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
    /// Whether it is of the server itself or of the batch work; `None`: of neither.
    pub role: Option<WorkloadRole>,
    /// Waiting time in each second of the round.
    pub ns_per_s: f64,
}

/// A program that is neither a task nor known.
const NO_TASK: [&str; 3] = ["idle", "a limit", "unknown"];

/// Programs that are kept.
const TOP: usize = 3;

/// Returns the programs that delayed the server most in a round; `server` and `batch` say of each
/// task whether it belongs to the server, or to the batch work.
pub(super) fn blame(recording: &Recording, server: &[bool], batch: &[bool]) -> Vec<Blamed> {
    let scope = Scope::default();
    let blame =
        Followed::over(recording, &scope, Blame::new(&recording.header, &scope, By::Thread));
    let is = |tasks: &[bool], line: usize| tasks.get(line).copied().unwrap_or(false);
    let mut sums: BTreeMap<(String, Option<WorkloadRole>), Ns> = BTreeMap::new();
    for (line, _) in server.iter().enumerate().filter(|(_, is)| **is) {
        let Some(row) = blame.rows.get(line) else { continue };
        for (culprit, share) in row.iter().copied() {
            let who = match culprit {
                Culprit::Line(line) => {
                    recording.header.tasks.get(line).map_or("?", |task| task.comm.as_str())
                }
                Culprit::Idle => NO_TASK[0],
                Culprit::Throttled => NO_TASK[1],
                Culprit::Unknown => NO_TASK[2],
            };
            let role = match culprit {
                Culprit::Line(line) if is(batch, line) => Some(WorkloadRole::Batch),
                Culprit::Line(line) if is(server, line) => Some(WorkloadRole::Server),
                _ => None,
            };
            *sums.entry((who.to_owned(), role)).or_default() += share.time;
        }
    }
    let seconds = recording.duration.0.max(1) as f64 / 1e9;
    let of = |((who, role), time): ((String, Option<WorkloadRole>), Ns)| Blamed {
        who,
        role,
        ns_per_s: time.0 as f64 / seconds,
    };
    worst(sums.into_iter().map(of).collect())
}

/// Returns the medians over rounds, the largest first.
pub fn median_blame<'a>(rounds: impl Iterator<Item = &'a [Blamed]> + Clone) -> Vec<Blamed> {
    let mut values: BTreeMap<(&str, Option<WorkloadRole>), Vec<f64>> = BTreeMap::new();
    let count = rounds.clone().count();
    for one in rounds.flatten() {
        values.entry((&one.who, one.role)).or_default().push(one.ns_per_s);
    }
    let median = |((who, role), mut values): ((&str, Option<WorkloadRole>), Vec<f64>)| {
        // A program that is not among the largest of a round counts as 0 there.
        values.resize(count, 0.0);
        let median =
            schedlab_stats::Estimate::from_values(values).map_or(0.0, |estimate| estimate.median);
        Blamed { who: who.to_owned(), role, ns_per_s: median }
    };
    worst(values.into_iter().map(median).collect())
}

/// Returns what delays the server most, as a sentence, where that is a program outside the batch
/// work: settings of the batch work change little then.
pub(super) fn not_the_batch(rounds: &[Round]) -> Option<String> {
    let all = median_blame(rounds.iter().map(|round| round.blame.as_slice()));
    let batch = all.iter().filter(|one| one.role == Some(WorkloadRole::Batch));
    let of_batch: f64 = batch.map(|one| one.ns_per_s).sum();
    let most = all.first().filter(|one| !NO_TASK.contains(&one.who.as_str()))?;
    let rate = |ns: f64| format!("{}/s", Ns(ns.round() as u64));
    let (who, time) = (&most.who, rate(most.ns_per_s));
    let own = match most.role {
        Some(WorkloadRole::Batch) => return None,
        Some(WorkloadRole::Server) => "its own threads, ",
        None => "",
    };
    // Only the largest are kept: the batch work may not be among them.
    let batch = if of_batch > 0.0 { format!(" ({})", rate(of_batch)) } else { String::new() };
    (most.ns_per_s > of_batch).then(|| {
        format!(
            "the server waits mostly behind {own}{who} ({time}), not behind the batch work{batch}: \
             a setting of the batch work changes little"
        )
    })
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
        let role = None;
        let one = |who: &str, ns_per_s| Blamed { who: who.to_owned(), role, ns_per_s };
        let rounds = [
            vec![one("batch", 9.0), one("cron", 50.0)],
            vec![one("batch", 7.0)],
            vec![one("batch", 8.0)],
        ];
        assert_eq!(median_blame(rounds.iter().map(Vec::as_slice)), [one("batch", 8.0)]);
    }

    #[test]
    fn what_delays_the_server_may_not_be_the_batch_work() {
        let one = |who: &str, role, ns_per_s| Blamed { who: who.to_owned(), role, ns_per_s };
        let batch = |ns| one("sysbench", Some(WorkloadRole::Batch), ns);
        let said = |blame: Vec<Blamed>| not_the_batch(&[Round { blame, ..Round::default() }]);
        assert_eq!(
            said(vec![one("ld-linux", None, 3e6), batch(2e5)]).as_deref(),
            Some(
                "the server waits mostly behind ld-linux (3.00ms/s), not behind the batch work \
                 (200us/s): a setting of the batch work changes little"
            )
        );
        assert_eq!(said(vec![one("ld-linux", None, 3e6), batch(4e6)]), None);
        assert_eq!(said(vec![one("idle", None, 3e6), batch(1e6)]), None, "no program");
        let own = said(vec![one("redis", Some(WorkloadRole::Server), 3e6)]);
        assert!(own.is_some_and(|said| said.contains("behind its own threads, redis (3.00ms/s)")));
        assert_eq!(said(Vec::new()), None);
    }
}
