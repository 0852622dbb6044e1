//! The run queue of a CPU, the life of a task on it, and the decision.

pub(super) mod cpu_summary;
mod decide;
pub(super) mod plain;
pub(super) mod rq;
pub(super) mod smp;
pub(super) mod task_index;
mod tasks;
pub(super) mod tick_edges;
