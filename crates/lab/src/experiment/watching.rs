//! Recording a round, and what single programs got in it.

use super::stage::Stage;
use super::{ExperimentError, Which};
use crate::record::{self, record};
use rustix::fs::{MemfdFlags, memfd_create};
use schedlab_host::{RecordRequest, Scope};
use schedlab_model::{CpuId, EventKind, Ns};
use schedlab_trace::Recording;
use schedlab_trace::analysis::{Summary, TaskSummary};
use std::cell::Cell;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// A recording with what each task got.
pub(super) struct Seen {
    pub(super) recording: Recording,
    pub(super) summary: Summary,
}

/// Records the whole machine for `time`, or until `over`. The file has no name and goes by itself.
pub(super) fn watch(
    stage: &Stage<'_>,
    which: Which,
    time: Ns,
    over: &dyn Fn() -> bool,
) -> Result<Seen, ExperimentError> {
    let memory = memfd_create("schedlab-experiment", MemfdFlags::CLOEXEC)
        .map_err(|error| ExperimentError::Input(format!("no memory for a recording: {error}")))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", memory.as_raw_fd()));
    let mut request = RecordRequest::new(Scope::All);
    request.duration = Some(time);
    // The recorder must not disturb whom it measures.
    request.recorder_cpu = stage.others.lowest();
    let plan = record::Plan {
        request,
        output: path.clone(),
        note: format!("schedlab experiment {}", which.name()),
        max_bytes: None,
        ring: None,
        until: None,
        after: Ns::ZERO,
    };
    let stopped = Cell::new(false);
    record(&plan, &mut (), &|| {
        stopped.set((stage.stop)());
        stopped.get() || over()
    })?;
    if stopped.get() {
        return Err(ExperimentError::Interrupted);
    }
    Seen::of(Recording::open(&path)?)
}

impl Seen {
    /// Of a recording, recorded or simulated.
    pub(super) fn of(recording: Recording) -> Result<Seen, ExperimentError> {
        let summary = Summary::of(&recording)?;
        Ok(Seen { recording, summary })
    }

    /// What the tasks that match got, together.
    pub(super) fn sum(&self, matches: impl Fn(&schedlab_trace::TaskInfo) -> bool) -> TaskSummary {
        let mut sum = TaskSummary::default();
        let tasks = self.recording.header.tasks.iter().zip(&self.summary.tasks);
        tasks.filter(|(info, _)| matches(info)).for_each(|(_, task)| sum.merge(task));
        sum
    }

    /// What the threads of a process got.
    pub(super) fn process(&self, pid: u32) -> TaskSummary {
        self.sum(|info| info.pid == pid)
    }

    /// A CPU time as a part of the window.
    pub(super) fn share(&self, time: Ns) -> f64 {
        time.0 as f64 / self.summary.window.0.max(1) as f64
    }

    /// The part of the window in which others than `ours` ran on `cpu`.
    pub(super) fn foreign(&self, cpu: CpuId, ours: &[u32]) -> f64 {
        let tasks = &self.recording.header.tasks;
        let mut foreign = Ns::ZERO;
        let mut since: Option<(Ns, bool)> = None;
        for event in self.recording.events.iter().filter(|event| event.cpu == cpu) {
            let EventKind::Switch { next, .. } = event.kind else { continue };
            if let Some((from, true)) = since {
                foreign += event.at.saturating_sub(from);
            }
            let is_ours = |task: schedlab_model::TaskId| {
                tasks.get(task.index()).is_some_and(|info| ours.contains(&info.pid))
            };
            since = Some((event.at, next.is_some_and(|task| !is_ours(task))));
        }
        self.share(foreign)
    }

    /// Events that were lost.
    pub(super) fn lost(&self) -> u64 {
        let count = |kind: &EventKind| if let EventKind::Lost { count } = kind { *count } else { 0 };
        self.recording.events.iter().map(|event| count(&event.kind)).sum()
    }
}

/// The length of a turn such that half of the CPU time was had in turns of that length or longer. Unlike the median it
/// does not count the crumbs between two interruptions as turns of their own.
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
