//! First in, first out, as ghOSt's two example policies have it: every CPU for itself, or one queue
//! for all.
//!
//! | rule | where it is from | state | test |
//! |---|---|---|---|
//! | one queue; a free CPU takes its first task, which runs until it blocks | ghOSt `schedulers/fifo/centralized` (2023) | modelled | `sim/tests/it/agent_schedulers.rs` |
//! | no task is preempted; `slice_ns` adds turns | ghOSt's has an optional slice | modelled | the same |
//! | a queue for each CPU; a task is placed once, later wakeups go to the same CPU | ghOSt `schedulers/fifo/per_cpu` | modelled: [`RoundRobin`](crate::simple) without a slice | the same |
//! | new tasks go to CPUs in turn | ghOSt per_cpu | simplified: to the allowed CPU with the fewest tasks | |
//! | priorities of agents, CPUs taken away by CFS | ghOSt | the machine's, not the scheduler's | |

use super::central::{Central, Rules};
use crate::registry::{Entry, Family};
use crate::simple::first_in_first_out;
use crate::{CellLocks, Cx, KnobDefault, TimeKnob, Times, rows};
use schedlab_model::{Ns, TaskId};

struct Fifo {
    slice: Option<Ns>,
}

impl Rules for Fifo {
    fn levels(&self) -> usize {
        1
    }
    fn woken(&mut self, _cx: &Cx<'_>, _task: TaskId) -> usize {
        0
    }
    fn slice(&self, _level: usize) -> Option<Ns> {
        self.slice
    }
}

const SLICE: TimeKnob = TimeKnob {
    name: "slice_ns",
    allowed: Times::between(Ns::ZERO, Ns::from_s(10)),
    default: KnobDefault::Is(Ns::ZERO),
    doc: "a task goes to the tail after this much CPU time; 0 = it runs until it blocks",
    source: "ghOSt, schedulers/fifo/centralized, preemption_time_slice",
};

/// Its line in the registry.
pub const CENTRALIZED: Entry = Entry {
    name: "fifo-centralized",
    summary: "one first-in-first-out queue for all CPUs (ghOSt's centralized FIFO)",
    family: Family::Agent,
    proposed_live: true,
    knobs: || rows(&[&SLICE], &()),
    build: |_, knobs| {
        let slice = Some(knobs.get(&SLICE)).filter(|slice| *slice > Ns::ZERO);
        Box::new(Central::<CellLocks, _>::new(Fifo { slice }))
    },
};

/// Its line in the registry.
pub const PER_CPU: Entry = Entry {
    name: "fifo-per-cpu",
    summary: "a first-in-first-out queue for each CPU, no balancing (ghOSt's per-CPU FIFO)",
    family: Family::Agent,
    proposed_live: false,
    knobs: Vec::new,
    build: |_, _| Box::new(first_in_first_out()),
};
