//! Shinjuku: one queue, and a task that runs longer than a quantum goes to its tail, so that short
//! requests never wait for a long one. Batch tasks take the CPUs that are idle otherwise, and lose
//! them at once.
//!
//! Used for request servers with two or more kinds of requests of very different length (RocksDB: 4
//! us reads, 10 ms scans). Worked example (`a_short_request_waits_for_a_quantum_at_most`): a 10 ms
//! request runs, a 4 us request comes at 1.03 ms; with a quantum of 30 us it starts at 1.05 ms,
//! without preemption at 10 ms.
//!
//! | rule | where it is from | state | test |
//! |---|---|---|---|
//! | centralised queue, first in first out; to the tail after a quantum | Shinjuku (NSDI'19); ghOSt `schedulers/shinjuku` | modelled | `sim/tests/it/agent_schedulers.rs` |
//! | a preempted task goes on with a whole quantum | ghOSt | modelled | the same |
//! | default quantum 50 us | ghOSt `shinjuku` (2023); the paper's experiment has 30 us | modelled | |
//! | a batch class (ghOSt's qos 0) takes idle CPUs, and gives way at once | ghOSt, as Shenango | modelled: batch = `SCHED_BATCH`, `SCHED_IDLE` | the same |
//! | turns inside of the batch class | not in ghOSt | `batch_slice_ns`, 5 ms | the same |
//! | separate queues by kind of request; spinning dispatcher core | Shinjuku (NSDI'19) | omitted; the spinning agent is a delegation mode | |

use super::central::{Central, Rules};
use super::is_batch;
use crate::registry::{Entry, Family};
use crate::{CellLocks, Cx, KnobDefault, TimeKnob, Times, rows};
use schedlab_model::{Ns, TaskId};

const QUANTUM: TimeKnob = TimeKnob {
    name: "quantum",
    allowed: Times::between(Ns(500), Ns::from_s(1)),
    default: KnobDefault::Is(Ns::from_us(50)),
    doc: "a request that ran this long goes to the tail of the queue",
    source: "ghOSt, schedulers/shinjuku (2023); 30 us in the experiment of its paper (SOSP'21)",
};
const BATCH_SLICE: TimeKnob = TimeKnob {
    name: "batch_slice_ns",
    allowed: Times::between(Ns(500), Ns::from_s(10)),
    default: KnobDefault::Is(Ns::from_ms(5)),
    doc: "turns of batch tasks (SCHED_BATCH, SCHED_IDLE) among themselves, on CPUs that no \
          request wants",
    source: "schedlab",
};

struct Shinjuku {
    quantum: Ns,
    batch_slice: Ns,
}

impl Rules for Shinjuku {
    fn levels(&self) -> usize {
        2
    }
    fn woken(&mut self, cx: &Cx<'_>, task: TaskId) -> usize {
        usize::from(is_batch(cx.task(task).policy))
    }
    fn slice(&self, level: usize) -> Option<Ns> {
        Some(if level == 0 { self.quantum } else { self.batch_slice })
    }
    fn follows_policy(&self) -> bool {
        true
    }
}

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    name: "shinjuku",
    summary: "one queue with a short quantum, batch on idle CPUs (Shinjuku of NSDI'19, as in ghOSt)",
    family: Family::Agent,
    proposed_live: true,
    knobs: || rows(&[&QUANTUM, &BATCH_SLICE], &()),
    build: |_, knobs| {
        let quantum = knobs.get(&QUANTUM);
        let batch_slice = knobs.get(&BATCH_SLICE);
        Box::new(Central::<CellLocks, _>::new(Shinjuku { quantum, batch_slice }))
    },
};
