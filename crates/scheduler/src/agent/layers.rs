//! Strict layers: a batch task runs only where no latency-critical task wants to.
//!
//! For a server and batch work on the same CPUs. What `SCHED_IDLE` promises and the fair class
//! gives only on average holds at every instant here: a latency task that wakes takes a CPU from a
//! batch task at once, and is never preempted by one. Worked example
//! (`a_latency_task_takes_a_batch_tasks_cpu_at_once`): a server that wakes every 10 ms for 1 ms
//! beside a batch hog never waits, and the hog gets nine tenths.
//!
//! | rule | where it is from | state | test |
//! |---|---|---|---|
//! | layers are served strictly in order; a better layer preempts at wakeup | scx_layered's `preempt` layers; design document of this project | modelled | `sim/tests/it/agent_schedulers.rs` |
//! | who is in which layer: `SCHED_BATCH` and `SCHED_IDLE` are batch, all else is latency | our choice (scx_layered matches by cgroup, name, nice) | modelled | the same |
//! | inside of the latency layer: first in first out, until it blocks | FIFO of sched(7) | modelled; `slice_ns` gives turns | the same |
//! | inside of the batch layer: turns | | modelled, `batch_slice_ns` | the same |
//! | utilisation targets, growing and shrinking CPU sets | scx_layered | omitted | |

use super::central::{Central, Rules};
use super::is_batch;
use crate::registry::{Entry, Family};
use crate::{CellLocks, Cx, KnobDefault, TimeKnob, Times, rows};
use schedlab_model::{Ns, TaskId};

const SLICE: TimeKnob = TimeKnob {
    name: "slice_ns",
    allowed: Times::between(Ns::ZERO, Ns::from_s(10)),
    default: KnobDefault::Is(Ns::ZERO),
    doc: "turns among latency tasks; 0 = each runs until it blocks",
    source: "SCHED_FIFO and SCHED_RR of sched(7)",
};
const BATCH_SLICE: TimeKnob = TimeKnob {
    name: "batch_slice_ns",
    allowed: Times::between(Ns(500), Ns::from_s(10)),
    default: KnobDefault::Is(Ns::from_ms(5)),
    doc: "turns among batch tasks (SCHED_BATCH, SCHED_IDLE)",
    source: "schedlab",
};

struct Layers {
    slice: Option<Ns>,
    batch_slice: Ns,
}

impl Rules for Layers {
    fn levels(&self) -> usize {
        2
    }
    fn woken(&mut self, cx: &Cx<'_>, task: TaskId) -> usize {
        usize::from(is_batch(cx.task(task).policy))
    }
    fn slice(&self, level: usize) -> Option<Ns> {
        if level == 0 { self.slice } else { Some(self.batch_slice) }
    }
    fn follows_policy(&self) -> bool {
        true
    }
}

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    name: "layers",
    summary: "strict latency and batch layers: batch runs only where no latency task wants to",
    family: Family::Agent,
    proposed_live: true,
    knobs: || rows(&[&SLICE, &BATCH_SLICE], &()),
    build: |_, knobs| {
        let slice = Some(knobs.get(&SLICE)).filter(|slice| *slice > Ns::ZERO);
        let batch_slice = knobs.get(&BATCH_SLICE);
        Box::new(Central::<CellLocks, _>::new(Layers { slice, batch_slice }))
    },
};
