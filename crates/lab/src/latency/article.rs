//! Reference data: the eight rows of the cyclictest article that compares a standard and a PREEMPT_RT kernel.
//!
//! Provenance: the article's table of `cyclictest` maxima, as the project's documents give it: Linux 4.19 of Debian with
//! CONFIG_PREEMPT_VOLUNTARY beside 4.19 with PREEMPT_RT on one machine with two CPUs; one thread a CPU at intervals of
//! 1000 and 1500 us, 30,000 loops, policy other or fifo at priority 49; idle, and beside hackbench. Of averages it says in words
//! what finding 1 repeats. Its hardware is not ours: magnitudes may be compared, microseconds may not.

use super::matrix::Load;
use schedlab_model::Ns;
use serde::Serialize;

/// Expiries of the article's first thread.
pub const LOOPS: u64 = 30_000;

/// One row of the article.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ArticleRow {
    /// PREEMPT_RT, or the standard kernel.
    pub realtime: bool,
    /// What else ran.
    pub load: Load,
    /// FIFO at priority 49, or SCHED_OTHER.
    pub fifo: bool,
    /// The largest latency of 30,000 expiries.
    pub max_ns: Ns,
}

const fn row(realtime: bool, load: Load, fifo: bool, max_us: u64) -> ArticleRow {
    ArticleRow { realtime, load, fifo, max_ns: Ns::from_us(max_us) }
}

/// The eight rows.
pub const ROWS: [ArticleRow; 8] = [
    row(false, Load::Idle, false, 9_602),
    row(false, Load::Loaded, false, 101_095),
    row(false, Load::Idle, true, 369),
    row(false, Load::Loaded, true, 446),
    row(true, Load::Idle, false, 7_399),
    row(true, Load::Loaded, false, 150_414),
    row(true, Load::Idle, true, 75),
    row(true, Load::Loaded, true, 41),
];

/// The article's maximum of one row.
pub fn max(realtime: bool, load: Load, fifo: bool) -> Option<Ns> {
    ROWS.iter().find(|row| (row.realtime, row.load, row.fifo) == (realtime, load, fifo)).map(|row| row.max_ns)
}
