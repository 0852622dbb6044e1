//! Published maxima of cyclictest on a standard and a PREEMPT_RT kernel.
//!
//! Linux 4.19 of Debian with CONFIG_PREEMPT_VOLUNTARY beside 4.19 with PREEMPT_RT, on one machine
//! with two CPUs; two threads at intervals of 1000 and 1500 us, 30,000 loops, policy other or FIFO
//! at priority 49; idle, and beside hackbench. The table with its conditions is in
//! docs/sources/experiments.md, section 2. Another machine has other microseconds: only magnitudes
//! can be compared.

use super::load::Load;
use schedlab_model::Ns;
use schemars::JsonSchema;
use serde::Serialize;

/// Expiries of the first thread.
pub(super) const LOOPS: u64 = 30_000;

/// The maximum of one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct PublishedMaximum {
    /// PREEMPT_RT, or the standard kernel.
    pub realtime: bool,
    /// What else ran.
    pub load: Load,
    /// FIFO at priority 49, or SCHED_OTHER.
    pub fifo: bool,
    /// The largest latency of 30,000 expiries.
    pub max_ns: Ns,
}

const fn row(realtime: bool, load: Load, fifo: bool, max_us: u64) -> PublishedMaximum {
    PublishedMaximum { realtime, load, fifo, max_ns: Ns::from_us(max_us) }
}

/// The maxima of all eight rows.
pub const MAXIMA: [PublishedMaximum; 8] = [
    row(false, Load::Idle, false, 9_602),
    row(false, Load::Loaded, false, 101_095),
    row(false, Load::Idle, true, 369),
    row(false, Load::Loaded, true, 446),
    row(true, Load::Idle, false, 7_399),
    row(true, Load::Loaded, false, 150_414),
    row(true, Load::Idle, true, 75),
    row(true, Load::Loaded, true, 41),
];

/// Returns the published maximum of one row.
pub(super) fn max(realtime: bool, load: Load, fifo: bool) -> Option<Ns> {
    MAXIMA
        .iter()
        .find(|row| (row.realtime, row.load, row.fifo) == (realtime, load, fifo))
        .map(|row| row.max_ns)
}
