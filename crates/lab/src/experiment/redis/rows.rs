//! The rows and figures of `redis-batch`, the published values, and the values of all rounds.

use super::super::figures::{Collected, Figure, Unit};
use super::super::waits::Overtaken;
use schedlab_model::Policy;

pub(super) const THROUGHPUT: Figure = Figure { name: "requests", unit: Unit::PerSecond };
pub(super) const P50: Figure = Figure { name: "p50", unit: Unit::Time };
/// For Little's law; not printed.
pub(super) const MEAN: Figure = Figure { name: "mean", unit: Unit::Time };
pub(super) const P95: Figure = Figure { name: "p95", unit: Unit::Time };
pub(super) const P99: Figure = Figure { name: "p99", unit: Unit::Time };
pub(super) const P99_9: Figure = Figure { name: "p99.9", unit: Unit::Time };
pub(super) const MAX: Figure = Figure { name: "max", unit: Unit::Time };
pub(super) const BATCH: Figure = Figure { name: "sysbench", unit: Unit::PerSecond };
pub(super) const SERVER_SHARE: Figure = Figure { name: "CPU of redis", unit: Unit::Share };
pub(super) const BATCH_SHARE: Figure = Figure { name: "CPU of sysbench", unit: Unit::Share };
pub(super) const STALL: Figure = Figure { name: "redis waited at most", unit: Unit::Time };
pub(super) const OVERTAKEN: Figure =
    Figure { name: "a fair task went first for", unit: Unit::Time };
pub(super) const TURN: Figure = Figure { name: "longest turn of sysbench", unit: Unit::Time };
pub(super) const CLIENT: Figure = Figure { name: "CPU of the client", unit: Unit::Share };
pub(super) const CLIENT_STALL: Figure = Figure { name: "client waited at most", unit: Unit::Time };
pub(super) const LAG: Figure = Figure { name: "sent late p99", unit: Unit::Time };
pub(super) const FOREIGN: Figure = Figure { name: "foreign work", unit: Unit::Share };
pub(super) const FIGURES: [Figure; 16] = [
    THROUGHPUT,
    P50,
    P95,
    P99,
    P99_9,
    MAX,
    BATCH,
    SERVER_SHARE,
    BATCH_SHARE,
    STALL,
    OVERTAKEN,
    TURN,
    CLIENT,
    CLIENT_STALL,
    LAG,
    FOREIGN,
];

/// A row: how server and batch work are scheduled.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) server: Policy,
    /// Policy and nice value of sysbench; `None`: a program that keeps the CPU awake runs instead.
    pub(super) batch: Option<(Policy, i8)>,
    /// The same for the simulator.
    pub(super) model: &'static str,
}

pub(super) const OTHER: Policy = Policy::Other;
pub(super) const ROWS: [Row; 7] = [
    Row { name: "dedicated", server: OTHER, batch: None, model: "sysbench off" },
    Row { name: "shared", server: OTHER, batch: Some((OTHER, 0)), model: "" },
    Row {
        name: "redis FIFO",
        server: Policy::Fifo(1),
        batch: Some((OTHER, 0)),
        model: "redis-server policy=fifo:1",
    },
    Row {
        name: "redis RR",
        server: Policy::Rr(1),
        batch: Some((OTHER, 0)),
        model: "redis-server policy=rr:1",
    },
    Row {
        name: "batch SCHED_IDLE",
        server: OTHER,
        batch: Some((Policy::Idle, 0)),
        model: "sysbench policy=idle",
    },
    Row {
        name: "batch nice 19",
        server: OTHER,
        batch: Some((OTHER, 19)),
        model: "sysbench nice=19",
    },
    Row {
        name: "batch SCHED_BATCH",
        server: OTHER,
        batch: Some((Policy::Batch, 0)),
        model: "sysbench policy=batch",
    },
];

/// Published (docs/sources/experiments.md, section 1): requests/s, p50, p95, p99, max in ms,
/// sysbench events/s.
const PUBLISHED: [(&str, [f64; 6]); 3] = [
    ("dedicated", [271_785.0, 0.111, 0.143, 0.183, 16.047, 2830.0]),
    ("shared", [119_452.0, 0.111, 0.143, 11.175, 16.215, 1580.0]),
    ("redis FIFO", [271_878.0, 0.111, 0.143, 0.159, 2.631, 5.0]),
];

/// Returns a published value, times in nanoseconds.
pub(super) fn published(row: &str, figure: &str) -> Option<f64> {
    let (_, values) = PUBLISHED.iter().find(|(name, _)| *name == row)?;
    let at = ["requests", "p50", "p95", "p99", "max", "sysbench"]
        .iter()
        .position(|name| *name == figure)?;
    let ms = (1..=4).contains(&at);
    Some(values[at] * if ms { 1e6 } else { 1.0 })
}

/// The values of all rounds with one client.
#[derive(Default)]
pub(super) struct ClientRounds {
    pub(super) figures: Collected,
    /// For each round of a row with a real-time server: the row, and the waits of the server in
    /// which fair tasks ran.
    pub(super) overtaken: Vec<(&'static str, Vec<Overtaken>)>,
}

/// Returns the greatest CPU time of fair tasks in one of the waits, in nanoseconds.
pub(super) fn longest(waits: &[Overtaken]) -> f64 {
    waits.iter().map(|wait| wait.fair).max().unwrap_or_default().0 as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_times_are_in_nanoseconds() {
        assert_eq!(published("shared", "p99"), Some(11_175_000.0));
        assert_eq!(published("redis FIFO", "sysbench"), Some(5.0));
        assert_eq!((published("batch nice 19", "p99"), published("shared", "p99.9")), (None, None));
    }
}
