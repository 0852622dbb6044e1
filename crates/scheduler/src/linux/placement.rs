//! On which CPU a task that wakes is enqueued.

use super::summary::Summary;
use crate::{Cx, Wake};
use schedlab_model::{CpuId, TaskId};

/// The CPU for `task`, which was on `last`: that one if it may and it is idle, else an idle one, else `last`,
/// else the lowest one allowed. Reads only unlocked summaries.
pub(super) fn select(cx: &Cx<'_>, seen: &[Summary], task: TaskId, last: CpuId, _wake: Wake) -> CpuId {
    if seen.len() == 1 {
        return CpuId(0);
    }
    let allowed = &cx.task(task).affinity;
    let usable = |cpu: CpuId| allowed.contains(cpu) && cx.cpu(cpu).online;
    if usable(last) && seen[last.index()].idle() {
        return last;
    }
    let mut cpus = (0..seen.len()).map(CpuId::from).filter(|&cpu| usable(cpu));
    let first = cpus.clone().next();
    cpus.find(|cpu| seen[cpu.index()].idle()).or(usable(last).then_some(last)).or(first).unwrap_or(last)
}
