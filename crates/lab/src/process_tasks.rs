//! Which tasks of a recording belong to a process.

use schedlab_model::{EventKind, SchedEvent};
use schedlab_trace::{Recording, TaskInfo};
use std::collections::BTreeSet;

/// Returns for each task whether it belongs to one of `processes`, or to a child that one of them
/// created.
pub(crate) fn of_processes(recording: &Recording, processes: &BTreeSet<u32>) -> Vec<bool> {
    let tasks = &recording.header.tasks;
    let mut found: Vec<bool> = tasks.iter().map(|task| processes.contains(&task.pid)).collect();
    add_created(&mut found, &recording.events, |_| true);
    found
}

/// Returns for each task whether it is a thread of process `pid`. Of a thread that ended before the
/// recorder could ask for its process only the creator is known: `redis-benchmark --threads` does
/// its work in such threads.
pub(crate) fn threads_of(tasks: &[TaskInfo], events: &[SchedEvent], pid: u32) -> Vec<bool> {
    let mut found: Vec<bool> = tasks.iter().map(|task| task.pid == pid).collect();
    add_created(&mut found, events, |task| tasks.get(task).is_some_and(|info| !info.known));
    found
}

/// Marks the tasks that a marked task created, where `counts` is true of them.
fn add_created(found: &mut [bool], events: &[SchedEvent], counts: impl Fn(usize) -> bool) {
    for event in events {
        if let EventKind::New { task, parent: Some(parent) } = event.kind
            && counts(task.index())
            && found.get(parent.index()) == Some(&true)
            && let Some(one) = found.get_mut(task.index())
        {
            *one = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuId, Ns, TaskId};

    #[test]
    fn a_thread_that_was_gone_belongs_to_its_creator() {
        let known = |tid, pid| TaskInfo { known: true, ..TaskInfo::unknown(tid, pid, "known") };
        // A client, a thread of it that was gone, one that this created, a program that the client
        // started, a stranger.
        let tasks = [
            known(10, 10),
            TaskInfo::unknown(11, 11, "gone"),
            TaskInfo::unknown(12, 12, "gone"),
            known(13, 13),
            TaskInfo::unknown(14, 14, "stranger"),
        ];
        let created = |task, parent| SchedEvent {
            at: Ns(1),
            cpu: CpuId(0),
            kind: EventKind::New { task: TaskId(task), parent: Some(TaskId(parent)) },
        };
        let events = [created(1, 0), created(2, 1), created(3, 0), created(4, 3)];
        assert_eq!(threads_of(&tasks, &events, 10), [true, true, true, false, false]);
    }
}
