//! Recording a round, and what single programs got in it.

use super::stage::Stage;
use super::waits::{Waits, waits};
use super::{ExperimentError, Which};
use crate::process_tasks::threads_of;
use crate::record::{RecordObserver, RecordPlan, RecordProgress, record};
use rustix::fs::{MemfdFlags, memfd_create};
use schedlab_host::{RecordRequest, RecordUntil};
use schedlab_model::{CpuId, EventKind, EventSink as _, Ns, TaskId};
use schedlab_trace::analysis::{Analysis as _, Summary, TaskSummary};
use schedlab_trace::{Recording, TaskInfo};
use std::cell::Cell;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::rc::Rc;

/// A recording with what each task got in its window.
pub(super) struct Seen {
    pub(super) recording: Recording,
    pub(super) summary: Summary,
    /// The window within the recording.
    window: (Ns, Ns),
}

/// What is recorded, and when.
pub(super) struct Scene<'a> {
    /// Called when the recorder sees everything: what shall be seen begins now.
    pub(super) begin: &'a mut dyn FnMut() -> Result<(), ExperimentError>,
    /// What comes this soon after the beginning does not count.
    pub(super) warm_up: Ns,
    /// What comes after counts for so long.
    pub(super) time: Ns,
    /// Whether it is over before.
    pub(super) over: &'a dyn Fn() -> bool,
}

/// Begins a scene when the recorder is ready: that can take a second on a busy machine.
struct Curtain<'a, 'b> {
    scene: &'a mut Scene<'b>,
    begun_ns: Option<u64>,
    failed: Rc<Cell<Option<ExperimentError>>>,
    time_is_up: Rc<Cell<bool>>,
}

impl RecordObserver for Curtain<'_, '_> {
    fn progress(&mut self, _: &RecordProgress) {
        let now = now_ns();
        match self.begun_ns {
            None => {
                self.begun_ns = Some(now);
                if let Err(error) = (self.scene.begin)() {
                    self.failed.set(Some(error));
                    self.time_is_up.set(true);
                }
            }
            Some(begun) => {
                let up = now.saturating_sub(begun) >= self.scene.warm_up.0 + self.scene.time.0;
                self.time_is_up.set(self.time_is_up.get() || up);
            }
        }
    }
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub(super) fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Records the whole machine while a scene is played. The file has no name and goes by itself.
pub(super) fn watch(stage: &Stage<'_>, which: Which, mut scene: Scene<'_>) -> Result<Seen, ExperimentError> {
    let memory = memfd_create("schedlab-experiment", MemfdFlags::CLOEXEC)
        .map_err(|error| ExperimentError::Input(format!("no memory for a recording: {error}")))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", memory.as_raw_fd()));
    let mut request = RecordRequest::new(RecordUntil::Stopped);
    // The recorder must not disturb whom it measures.
    request.recorder_cpu = stage.others.lowest();
    let plan = RecordPlan::new(request, path.clone(), format!("schedlab experiment {}", which.name()));
    let (stopped, failed, up) = (Cell::new(false), Rc::new(Cell::new(None)), Rc::new(Cell::new(false)));
    let (warm_up, time, over) = (scene.warm_up, scene.time, scene.over);
    let mut curtain =
        Curtain { scene: &mut scene, begun_ns: None, failed: Rc::clone(&failed), time_is_up: Rc::clone(&up) };
    record(&plan, &mut curtain, &|| {
        stopped.set((stage.stop)());
        stopped.get() || up.get() || over()
    })?;
    if let Some(error) = failed.take() {
        return Err(error);
    }
    let begun = curtain.begun_ns.filter(|_| !stopped.get()).ok_or(ExperimentError::Interrupted)?;
    let recording = Recording::open(&path)?;
    let from = Ns(begun.saturating_sub(recording.header.clock_start_ns) + warm_up.0);
    Seen::of(recording, from, from.saturating_add(time))
}

impl Seen {
    /// What lies in a window of a recording, recorded or simulated.
    pub(super) fn of(recording: Recording, from: Ns, to: Ns) -> Result<Seen, ExperimentError> {
        Summary::check(&recording.header)?;
        let to = to.min(recording.duration);
        let from = from.min(to);
        let (tasks, cpus) = (recording.header.tasks.len(), recording.header.topology.cpus());
        let mut summary = Summary::new(tasks, cpus, from);
        recording.events.iter().take_while(|event| event.at < to).for_each(|event| summary.event(event));
        summary.finish(to);
        Ok(Seen { recording, summary, window: (from, to) })
    }

    /// What the tasks that match got, together.
    pub(super) fn sum(&self, matches: impl Fn(&TaskInfo) -> bool) -> TaskSummary {
        let mut sum = TaskSummary::default();
        let tasks = self.recording.header.tasks.iter().zip(&self.summary.tasks);
        tasks.filter(|(info, _)| matches(info)).for_each(|(_, task)| sum.merge(task));
        sum
    }

    /// Which tasks are threads of a process, those included that it made meanwhile.
    fn threads(&self, pid: u32) -> Vec<bool> {
        threads_of(&self.recording.header.tasks, &self.recording.events, pid)
    }

    /// The waits of the threads of a process within the window.
    pub(super) fn waits(&self, pid: u32) -> Waits {
        waits(&self.recording, self.window, &self.threads(pid))
    }

    /// What the threads of a process got, with those that it made meanwhile.
    pub(super) fn process(&self, pid: u32) -> TaskSummary {
        let of = self.threads(pid);
        let mut sum = TaskSummary::default();
        self.summary.tasks.iter().zip(of).filter(|(_, of)| *of).for_each(|(task, _)| sum.merge(task));
        sum
    }

    /// What the threads got that a process made meanwhile, by the events alone: short-lived ones are gone before the
    /// recorder can ask whose they are.
    pub(super) fn made_by(&self, pid: u32) -> TaskSummary {
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

    /// A CPU time as a part of the window.
    pub(super) fn share(&self, time: Ns) -> f64 {
        time.0 as f64 / self.summary.window.0.max(1) as f64
    }

    /// The part of the window in which others than `ours` ran on `cpu`.
    pub(super) fn foreign(&self, cpu: CpuId, ours: &[u32]) -> f64 {
        let tasks = &self.recording.header.tasks;
        let (from, to) = self.window;
        let mut foreign = Ns::ZERO;
        let mut since: Option<(Ns, bool)> = None;
        for event in self.recording.events.iter().filter(|event| event.cpu == cpu) {
            let EventKind::Switch { next, .. } = event.kind else { continue };
            if let Some((began, true)) = since {
                foreign += event.at.min(to).saturating_sub(began.max(from));
            }
            let is_ours = |task: TaskId| tasks.get(task.index()).is_some_and(|info| ours.contains(&info.pid));
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

/// Starting the programs, the recorder and ending them takes about so long in each measurement. Seen on an idle machine; a
/// busy one takes longer.
const AROUND: Ns = Ns::from_ms(900);

/// How long `count` measurements of `time` take, about.
pub(super) fn pieces(count: usize, time: Ns) -> Ns {
    Ns((time + AROUND).0.saturating_mul(count as u64))
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
