//! What the recorder itself cost the recorded tasks.
//!
//! A recorder that hears of every switch and wakeup works inside them: after the record of a switch
//! it spends the time of the task that comes in, after the record of a wakeup that of the waker, or
//! of whom the interrupt hit. Left in the demand this work would be done again under every
//! scheduler, even under one that switches a tenth as often. So it is taken out, event by event,
//! from who paid it, and the simulated machine charges the same for each of *its* events: the
//! replay of the recording itself stays what it was, and a what-if pays for the switches that it
//! makes.

use crate::Header;
use schedlab_model::Ns;
use std::fmt;

/// Price of one event of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecorderCost {
    /// Of each switch, paid by the task that comes in.
    pub switch: Ns,
    /// Of each wakeup, paid by the waker or by whom the interrupt hit.
    pub wake: Ns,
    /// The header says so (`schedlab record` measures it first); else it is what the tier costs on
    /// the project's own machine.
    pub calibrated: bool,
    /// Taken out of the tasks' demand in all.
    pub taken: Ns,
}

/// A header that claims more for a switch is not believed: overhead of this size would leave no
/// time for the tasks (`schedlab record` notes at most 50 us).
const DEAREST: u64 = 1_000_000;

/// Extra CPU time of a switch and a wakeup together, in ns, by tier.
///
/// Measured, not fitted to any recording: `experiments/recorder_cost.py`, median of seven
/// interleaved rounds of `perf bench sched pipe` (a switch and a wakeup each) on the virtual
/// machine that the shipped recordings come from. The interval of bpf was 38 to 411 ns.
const TIERS: [(&str, u64); 3] = [("bpf", 146), ("perf tracepoints", 1_846), ("perf switches", 744)];

impl RecorderCost {
    /// What the recorder of this recording cost: by its header, else by its tier. The header's
    /// figure is for a switch with the wakeup that belongs to it, as the benchmark measures it:
    /// half of it for each record. The tier that sees switches only writes no record at a wakeup.
    pub(super) fn from_header(header: &Header) -> RecorderCost {
        let tier = || TIERS.iter().find(|(name, _)| *name == header.backend).map(|(_, ns)| *ns);
        let measured = header.recorder_ns_per_switch.filter(|&ns| ns <= DEAREST);
        let both = measured.or_else(tier).unwrap_or(0);
        let switches_only = header.backend == "perf switches";
        let wake = if switches_only { 0 } else { both / 2 };
        let calibrated = measured.is_some();
        RecorderCost { switch: Ns(both - wake), wake: Ns(wake), calibrated, taken: Ns::ZERO }
    }
}

impl fmt::Display for RecorderCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = if self.calibrated {
            "measured before it began"
        } else {
            "usual for its tier, not measured here"
        };
        write!(
            f,
            "recorder: {} a switch and {} a wakeup ({source}): {} in all taken out of the demand, \
             charged for each \
             simulated event instead",
            self.switch, self.wake, self.taken
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_goes_before_the_tier() {
        let mut header = Header { backend: "perf tracepoints".to_owned(), ..Header::default() };
        let usual = RecorderCost::from_header(&header);
        assert_eq!((usual.switch, usual.wake, usual.calibrated), (Ns(923), Ns(923), false));
        header.recorder_ns_per_switch = Some(101);
        let own = RecorderCost::from_header(&header);
        assert_eq!((own.switch, own.wake, own.calibrated), (Ns(51), Ns(50), true));
        header.recorder_ns_per_switch = Some(u64::MAX);
        assert_eq!(RecorderCost::from_header(&header), usual, "nobody believes that");
        header = Header { backend: "perf switches".to_owned(), ..Header::default() };
        assert_eq!(
            (RecorderCost::from_header(&header).switch, RecorderCost::from_header(&header).wake),
            (Ns(744), Ns::ZERO)
        );
        header.backend = "simulator".to_owned();
        assert_eq!(RecorderCost::from_header(&header), RecorderCost::default());
    }
}
