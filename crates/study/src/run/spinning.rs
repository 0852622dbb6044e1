//! What a limit of CPU time costs threads that spin before they block, which no simulated thread
//! does.

use super::RowPlan;
use schedlab_model::{Bandwidth, GroupId, Op, TaskSpec, Workload};

/// Says of each group with `cpu.max`, and more threads that wait for each other than its limit has
/// CPUs, that real ones may do less. What the threads of a recording spun is in their demand, for
/// the limits of the `recorded` workload.
pub(crate) fn notes(plans: &[RowPlan], recorded: Option<&Workload>) -> Vec<String> {
    let mut notes = Vec::new();
    for note in plans.iter().flat_map(|plan| notes_of(plan, recorded)) {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

fn notes_of(plan: &RowPlan, recorded: Option<&Workload>) -> Vec<String> {
    let workload = &plan.workload;
    let is_new = |index: usize, limit: Bandwidth| {
        let was = |of: &Workload| of.groups.get(index).and_then(|group| group.bandwidth);
        recorded.is_none_or(|recorded| was(recorded) != Some(limit))
    };
    let limited = workload.groups.iter().enumerate().filter_map(|(index, group)| {
        let limit = group.bandwidth.filter(|limit| is_new(index, *limit))?;
        Some((index, group.name.as_str(), limit))
    });
    let note = |(index, name, limit): (usize, &str, Bandwidth)| {
        let waits = |(task, spec): &(usize, &TaskSpec)| {
            !plan.off.contains(task) && below(workload, spec.group, index) && may_wait(spec)
        };
        let threads = workload.tasks.iter().enumerate().filter(waits).count() as u64;
        let exceeds = threads > 1 && threads.saturating_mul(limit.period.0) > limit.quota.0;
        exceeds.then(|| {
            format!(
                "{name} has {threads} threads that wait for work or for each other, and a limit \
                 of {} CPUs: a runtime that spins before a thread blocks (Go, .NET, the JVM) \
                 uses up its quota so, which is not simulated: its real throughput is lower \
                 (Go with 24 threads and a limit of 2 CPUs: by half, uber-go/automaxprocs)",
                limit.quota.0 as f64 / limit.period.0.max(1) as f64
            )
        })
    };
    limited.filter_map(note).collect()
}

/// Whether `group` is the group `above`, or below it.
fn below(workload: &Workload, group: GroupId, above: usize) -> bool {
    let parent = |of: &GroupId| workload.groups.get(of.index()).and_then(|group| group.parent);
    std::iter::successors(Some(group), parent).any(|group| group.index() == above)
}

/// Whether the thread waits for others, and does not only sleep or run.
fn may_wait(task: &TaskSpec) -> bool {
    task.program.ops.iter().any(|op| {
        matches!(
            op,
            Op::Receive(_) | Op::ReceiveAll(_) | Op::ReceiveCount { .. } | Op::Select | Op::Lock(_)
        )
    })
}
