//! FILTER of SFS: short functions run first in first out and are done within one slice; what is
//! longer falls through the filter to turns, as under a fair scheduler. Approximates
//! shortest-remaining-time-first without knowing lengths.
//!
//! For serverless functions: many short, few long. Worked example
//! (`a_long_function_falls_through_the_filter`): a function of 100 ms with a slice of 10 ms falls
//! after its first 10 ms, and a 1 ms function that comes later overtakes it.
//!
//! | rule | where it is from | state | test |
//! |---|---|---|---|
//! | a new activation enters a first-in-first-out level and runs for one slice there | SFS (SC'22) | modelled | `sim/tests/it/agent_schedulers.rs` |
//! | the task that used up the slice goes to the second level for the rest of the activation | SFS (demoted from SCHED_FIFO to CFS) | modelled; turns of `fair_slice_ns` in place of CFS | the same |
//! | slice = number of CPUs x mean time between the last `window` arrivals | SFS | modelled; `slice_ns` sets a fixed one | the same |
//! | a function that waited longer than `overload` slices goes to the second level at once | SFS, hybrid mode under overload | modelled | |
//! | a function that blocks keeps its place in the filter | SFS polls for blocked functions | simplified: a wakeup begins a new activation | |

use super::central::{Central, Rules};
use crate::registry::{Entry, Family};
use crate::{CellLocks, Cx, KnobDefault, NumberKnob, TimeKnob, Times, rows};
use schedlab_model::{Ns, TaskId};
use std::collections::VecDeque;

const SLICE: TimeKnob = TimeKnob {
    name: "slice_ns",
    allowed: Times::between(Ns::ZERO, Ns::from_s(100)),
    default: KnobDefault::Is(Ns::ZERO),
    doc: "slice of the filter; 0 = CPUs x mean time between arrivals, 100 ms before the window is \
          filled",
    source: "SFS (SC'22), the time slice of its FILTER",
};
const FAIR_SLICE: TimeKnob = TimeKnob {
    name: "fair_slice_ns",
    allowed: Times::between(Ns::from_us(1), Ns::from_s(10)),
    default: KnobDefault::Is(Ns::from_ms(4)),
    doc: "turns of the functions that fell through the filter",
    source: "schedlab, in place of CFS",
};
const WINDOW: NumberKnob = NumberKnob {
    name: "window",
    unit: "arrivals",
    allowed: (1, 100_000),
    default: KnobDefault::Is(100),
    doc: "arrivals over which the time between arrivals is averaged",
    source: "SFS (SC'22)",
};
const OVERLOAD: NumberKnob = NumberKnob {
    name: "overload",
    unit: "slices",
    allowed: (1, 1_000_000),
    default: KnobDefault::Is(3),
    doc: "a function that waited longer than this falls through at once",
    source: "SFS (SC'22), overload",
};
/// Slice before the window is filled.
const FIRST_SLICE: Ns = Ns::from_ms(100);

struct Filter {
    fixed: Option<Ns>,
    fair: Ns,
    window: usize,
    overload: u64,
    cpus: u64,
    arrivals: VecDeque<Ns>,
    adapted: Ns,
}

impl Filter {
    fn filter_slice(&self) -> Ns {
        self.fixed.unwrap_or(self.adapted)
    }
}

impl Rules for Filter {
    fn levels(&self) -> usize {
        2
    }
    fn woken(&mut self, cx: &Cx<'_>, _task: TaskId) -> usize {
        if self.arrivals.len() > self.window {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back(cx.now);
        let gaps = self.arrivals.len() as u64 - 1;
        if let Some(first) = self.arrivals.front().filter(|_| gaps >= self.window as u64) {
            // No shorter than a microsecond: a burst of one instant must not make the slice vanish.
            self.adapted = Ns((cx.now.saturating_sub(*first).0 / gaps).saturating_mul(self.cpus))
                .max(Ns(1_000));
        }
        0
    }
    fn slice(&self, level: usize) -> Option<Ns> {
        Some(if level == 0 { self.filter_slice() } else { self.fair })
    }
    fn expired(&mut self, _level: usize) -> usize {
        1
    }
    fn begins(&mut self, level: usize, wait: Ns) -> usize {
        if level == 0 && wait > Ns(self.filter_slice().0.saturating_mul(self.overload)) {
            1
        } else {
            level
        }
    }
}

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    name: "filter",
    summary: "short ones first in first out, long ones fall through to turns (SFS of SC'22)",
    family: Family::Agent,
    proposed_live: false,
    knobs: || rows(&[&SLICE, &FAIR_SLICE, &WINDOW, &OVERLOAD], &()),
    build: |cpus, knobs| {
        Box::new(Central::<CellLocks, _>::new(Filter {
            fixed: Some(knobs.get(&SLICE)).filter(|slice| *slice > Ns::ZERO),
            fair: knobs.get(&FAIR_SLICE),
            window: knobs.get(&WINDOW) as usize,
            overload: knobs.get(&OVERLOAD) as u64,
            cpus: cpus as u64,
            arrivals: VecDeque::new(),
            adapted: FIRST_SLICE,
        }))
    },
};
