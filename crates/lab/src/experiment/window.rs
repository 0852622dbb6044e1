//! What single programs got in a window of a recording.

use super::plan::ExperimentError;
use super::waits::{Waits, waits};
use crate::process_tasks::threads_of;
use schedlab_model::{CpuId, EventKind, EventSink as _, Ns, TaskId};
use schedlab_trace::analysis::{Analysis as _, Summary, TaskSummary};
use schedlab_trace::{Recording, TaskInfo};

/// A recording with what each task got in a window of it.
pub(super) struct RecordedWindow {
    pub(super) recording: Recording,
    pub(super) summary: Summary,
    /// The window within the recording.
    window: (Ns, Ns),
}

impl RecordedWindow {
    /// Returns the window from `from` to `to` of a recording, recorded or simulated.
    pub(super) fn new(
        recording: Recording,
        from: Ns,
        to: Ns,
    ) -> Result<RecordedWindow, ExperimentError> {
        Summary::check(&recording.header)?;
        let to = to.min(recording.duration);
        let from = from.min(to);
        let (tasks, cpus) = (recording.header.tasks.len(), recording.header.topology.cpus());
        let mut summary = Summary::new(tasks, cpus, from);
        recording
            .events
            .iter()
            .take_while(|event| event.at < to)
            .for_each(|event| summary.event(event));
        summary.finish(to);
        Ok(RecordedWindow { recording, summary, window: (from, to) })
    }

    /// Returns what the tasks that match got, together.
    pub(super) fn sum(&self, matches: impl Fn(&TaskInfo) -> bool) -> TaskSummary {
        let mut sum = TaskSummary::default();
        let tasks = self.recording.header.tasks.iter().zip(&self.summary.tasks);
        tasks.filter(|(info, _)| matches(info)).for_each(|(_, task)| sum.merge(task));
        sum
    }

    /// Returns for each task whether it is a thread of a process, or of one that ended early and
    /// that the process created.
    fn threads(&self, pid: u32) -> Vec<bool> {
        threads_of(&self.recording.header.tasks, &self.recording.events, pid)
    }

    /// Returns the waits of the threads of a process within the window.
    pub(super) fn waits(&self, pid: u32) -> Waits {
        waits(&self.recording, self.window, &self.threads(pid))
    }

    /// Returns what the threads of a process got together.
    pub(super) fn process(&self, pid: u32) -> TaskSummary {
        let of = self.threads(pid);
        let mut sum = TaskSummary::default();
        self.summary
            .tasks
            .iter()
            .zip(of)
            .filter(|(_, of)| *of)
            .for_each(|(task, _)| sum.merge(task));
        sum
    }

    /// Returns what the threads got together that a process created in the recording, by the events
    /// alone: short-lived threads end before the recorder can ask for their process.
    pub(super) fn created_by(&self, pid: u32) -> TaskSummary {
        let tasks = &self.recording.header.tasks;
        let is_of = |parent: TaskId| tasks.get(parent.index()).is_some_and(|info| info.pid == pid);
        let mut sum = TaskSummary::default();
        for event in &self.recording.events {
            if let EventKind::New { task, parent: Some(parent) } = event.kind
                && is_of(parent)
                && let Some(one) = self.summary.tasks.get(task.index())
            {
                sum.merge(one);
            }
        }
        sum
    }

    /// Returns a CPU time as a part of the window.
    pub(super) fn share(&self, time: Ns) -> f64 {
        time.0 as f64 / self.summary.window.0.max(1) as f64
    }

    /// Returns the part of the window in which other processes than `own` ran on `cpu`.
    pub(super) fn foreign(&self, cpu: CpuId, own: &[u32]) -> f64 {
        let tasks = &self.recording.header.tasks;
        let (from, to) = self.window;
        let mut foreign = Ns::ZERO;
        let mut since: Option<(Ns, bool)> = None;
        for event in self.recording.events.iter().filter(|event| event.cpu == cpu) {
            let EventKind::Switch { next, .. } = event.kind else { continue };
            if let Some((began, true)) = since {
                foreign += event.at.min(to).saturating_sub(began.max(from));
            }
            let is_own =
                |task: TaskId| tasks.get(task.index()).is_some_and(|info| own.contains(&info.pid));
            since = Some((event.at, next.is_some_and(|task| !is_own(task))));
        }
        self.share(foreign)
    }

    /// Returns the number of lost events.
    pub(super) fn lost(&self) -> u64 {
        let count =
            |kind: &EventKind| if let EventKind::Lost { count } = kind { *count } else { 0 };
        self.recording.events.iter().map(|event| count(&event.kind)).sum()
    }
}

/// Returns the length of a turn such that half of the CPU time was used in turns of that length or
/// longer, in nanoseconds. The median would count the short pieces between two interruptions as
/// turns of their own.
pub(super) fn usual_turn(task: &TaskSummary) -> Option<f64> {
    let mut turns: Vec<(Ns, u64)> = task.run_length.buckets().collect();
    turns.sort_unstable();
    let time = |turn: &(Ns, u64)| turn.0.0 as f64 * turn.1 as f64;
    let all: f64 = turns.iter().map(time).sum();
    let mut longer = 0.0;
    turns.iter().rev().find_map(|turn| {
        longer += time(turn);
        (longer >= all / 2.0).then_some(turn.0.0 as f64)
    })
}
