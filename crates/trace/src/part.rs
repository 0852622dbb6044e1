//! A part of a recording as a recording of its own.

use crate::Recording;
use crate::analysis::follow::{Follower, Listener, Occupant};
use crate::format::tasks_of;
use schedlab_model::{CpuId, EventKind, Ns, PrevState, SchedEvent, TaskId, Waker};
use std::collections::{BTreeMap, BTreeSet};

impl Recording {
    /// Returns the part from `from` to `to` (both included) as if it had been recorded then: its
    /// times begin at `from`, and its tasks are in the control groups that they had moved to
    /// before.
    ///
    /// What was pending at `from` is in it. A recording shows that a task ran or was runnable when
    /// it began by the switch that follows. Where none follows (a task that keeps its CPU or waits
    /// through all of the part), the part begins with an event that says so.
    #[must_use]
    pub fn part(&self, from: Ns, to: Ns) -> Recording {
        let begin = self.events.partition_point(|event| event.at < from);
        let end = self.events.partition_point(|event| event.at <= to);
        let (before, within) = self.events.split_at(begin);
        let within = within.get(..end.saturating_sub(begin)).unwrap_or_default();
        let mut header = self.header.clone();
        header.clock_start_ns = header.clock_start_ns.saturating_add(from.0);
        for event in before {
            if let EventKind::Regroup { task, group } = event.kind
                && let Some(info) = header.tasks.get_mut(task.index())
            {
                info.group = group;
            }
        }
        let mut events = self.pending(before, within);
        events.extend(
            within.iter().map(|event| SchedEvent { at: event.at.saturating_sub(from), ..*event }),
        );
        let mut repairs = self.repairs.clone();
        let lost = |event: &SchedEvent| match event.kind {
            EventKind::Lost { count } => Some(count),
            _ => None,
        };
        let lost: Vec<u64> = within.iter().filter_map(lost).collect();
        (repairs.gaps, repairs.lost) = (lost.len() as u64, lost.iter().sum());
        let facts = self.facts.part(from, to);
        Recording {
            header,
            events,
            facts,
            duration: to.min(self.duration).saturating_sub(from),
            repairs,
        }
    }

    /// Returns events, at the beginning of a part, for what was pending then and what the events
    /// `within` it do not show.
    fn pending(&self, before: &[SchedEvent], within: &[SchedEvent]) -> Vec<SchedEvent> {
        struct Nothing;
        impl Listener for Nothing {}
        let cpus = self.header.topology.cpus();
        let mut follower = Follower::new(self.header.tasks.len(), cpus);
        before.iter().for_each(|event| follower.event(event, &mut Nothing));
        let (mut switched, mut met, mut shown) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for event in within {
            if let EventKind::Switch { next, .. } = event.kind {
                switched.insert(event.cpu);
                // Its first event is that it gets a CPU: it waited for that.
                shown.extend(next.filter(|task| !met.contains(task)));
            }
            met.extend(tasks_of(&event.kind).into_iter().flatten());
        }
        let at_start = |cpu, kind| SchedEvent { at: Ns::ZERO, cpu, kind };
        let runs = (0..cpus).map(CpuId::from).filter(|cpu| !switched.contains(cpu));
        let runs = runs.filter_map(|cpu| match follower.occupant(cpu) {
            Occupant::Task(task) => {
                let (prev, prev_state) = (None, PrevState::Runnable);
                Some(at_start(cpu, EventKind::Switch { prev, prev_state, next: Some(task) }))
            }
            _ => None,
        });
        let waits = follower.waiting().filter(|(task, _)| !shown.contains(task));
        let waits = waits.map(|(task, _)| {
            at_start(follower.cpu_of(task), EventKind::Wake { task, waker: Waker::Unknown })
        });
        let calls = calls(before).into_iter().filter(|(task, _)| met.contains(task));
        let calls = calls.map(|(task, number)| {
            at_start(follower.cpu_of(task), EventKind::SyscallEnter { task, number })
        });
        runs.chain(waits).chain(calls).collect()
    }
}

/// Returns the system calls that have not come back.
fn calls(events: &[SchedEvent]) -> BTreeMap<TaskId, u32> {
    let mut calls = BTreeMap::new();
    for event in events {
        match event.kind {
            EventKind::SyscallEnter { task, number } => drop(calls.insert(task, number)),
            EventKind::SyscallExit { task } => drop(calls.remove(&task)),
            _ => {}
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupInfo, Header, TaskInfo};
    use schedlab_model::{GroupId, Topology};

    const PREEMPTED: PrevState = PrevState::Runnable;

    fn switch(at: u64, cpu: u32, prev: Option<u32>, next: Option<u32>) -> SchedEvent {
        let (prev, next) = (prev.map(TaskId), next.map(TaskId));
        let kind = EventKind::Switch { prev, prev_state: PREEMPTED, next };
        SchedEvent { at: Ns(at), cpu: CpuId(cpu), kind }
    }

    /// Task 0 keeps CPU 0 from 10 on; tasks 1 and 2 share CPU 1; task 3 loses CPU 1 at 20 and waits
    /// to the end.
    fn recording() -> Recording {
        let tasks = (1..=4).map(|tid| TaskInfo::unknown(tid, tid, format!("t{tid}"))).collect();
        let groups = vec![GroupInfo::default(), GroupInfo::default()];
        let header = Header { tasks, groups, topology: Topology::flat(2), ..Header::default() };
        let moved = EventKind::Regroup { task: TaskId(2), group: GroupId(1) };
        let events = vec![
            switch(10, 0, None, Some(0)),
            switch(10, 1, None, Some(3)),
            SchedEvent { at: Ns(15), cpu: CpuId(1), kind: moved },
            switch(20, 1, Some(3), Some(1)),
            switch(40, 1, Some(1), Some(2)),
            switch(60, 1, Some(2), Some(1)),
            switch(80, 1, Some(1), Some(2)),
        ];
        Recording { header, events, duration: Ns(100), ..Recording::default() }
    }

    #[test]
    fn a_part_begins_with_what_was_pending() {
        let part = recording().part(Ns(30), Ns(70));
        let wake = EventKind::Wake { task: TaskId(3), waker: Waker::Unknown };
        let expected = [
            switch(0, 0, None, Some(0)),
            SchedEvent { at: Ns(0), cpu: CpuId(1), kind: wake },
            // That task 1 ran at the beginning shows the switch.
            switch(10, 1, Some(1), Some(2)),
            switch(30, 1, Some(2), Some(1)),
        ];
        assert_eq!(part.events, expected);
        assert_eq!((part.duration, part.header.clock_start_ns), (Ns(40), 30));
        assert_eq!(part.header.tasks[2].group, GroupId(1));
    }

    #[test]
    fn the_whole_is_its_own_part() {
        let whole = recording();
        let part = whole.part(Ns::ZERO, whole.duration);
        assert_eq!((part.events, part.duration), (whole.events, whole.duration));
    }
}
