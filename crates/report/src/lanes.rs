//! What ran where: the schedule of every CPU, packed for the page's own widget.

mod marks;
mod pack;
mod summed;

use crate::embed::packed;
pub use marks::LaneIncident;
use marks::Marks;
use pack::Packer;
use schedlab_model::{CpuId, EventKind, EventSink, Ns, PrevState, SchedEvent, TaskId, Waker};
use serde::Serialize;
pub use summed::{LaneSums, SWITCHES};

/// Schedules of one or more runs that share a clock and a list of tasks.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Lanes {
    /// By [`TaskId`].
    pub tasks: Vec<LaneTask>,
    /// The runs, the most important first.
    pub runs: Vec<LaneRun>,
    /// Tasks that have a lane of their own at first.
    pub own: Vec<TaskId>,
}

/// Lanes as the widget reads them (`ui/src/page/lanes/decode.ts`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LanesData<'a> {
    /// Name and class of each task.
    tasks: Vec<(&'a str, &'a str)>,
    /// The runs.
    runs: &'a [LaneRun],
    /// Tasks that have a lane of their own at first.
    own: Vec<u32>,
}

impl Lanes {
    /// Returns what the widget reads.
    pub fn data(&self) -> LanesData<'_> {
        LanesData {
            tasks: self
                .tasks
                .iter()
                .map(|task| (task.name.as_str(), task.class.as_str()))
                .collect(),
            runs: &self.runs,
            own: self.own.iter().map(|task| task.0).collect(),
        }
    }
}

/// A wait that a page names and its lanes show.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneWait {
    /// Place of the run in [`Lanes::runs`].
    pub run: usize,
    /// The CPU on which the task then ran.
    pub cpu: CpuId,
    /// When the wait began.
    pub from: Ns,
    /// When it ended.
    pub to: Ns,
    /// Which task waited how long.
    pub head: String,
    /// Where, why, and what ran meanwhile.
    pub text: String,
}

/// A task of the lanes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LaneTask {
    /// Its own name.
    pub name: String,
    /// What it is drawn as: all tasks of one class have one colour.
    pub class: String,
}

/// The schedule of one run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LaneRun {
    /// Name of the run.
    pub name: String,
    /// As [`crate::Curve::style`].
    pub style: usize,
    /// Number of CPUs.
    pub cpus: usize,
    /// What is shown begins here.
    pub from_ns: Ns,
    /// And ends here.
    pub to_ns: Ns,
    /// Length of the whole run; larger than `to_ns` when it was too long to show.
    pub whole_ns: Ns,
    /// Whether the run was too long to be shown from its beginning, or to its end.
    #[serde(skip)]
    pub cut: bool,
    /// The part that is in view at first; `None`: all that is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub focus_ns: Option<[Ns; 2]>,
    /// Events shown.
    pub events: u64,
    /// Names of the rows; the others are `CPU n`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<String>,
    /// What the recording was kept for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incident: Option<LaneIncident>,
    /// Losses, throttling and stolen times that there was no room to mark.
    pub unmarked: u64,
    /// It is a summary of the schedule, for a first look.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub summed: bool,
    data: String,
}

/// Writes down a schedule as it happens, up to a number of events; what comes after is not shown,
/// and the page says so. The bytes: `lanes/pack.rs`, then `lanes/marks.rs`.
#[derive(Clone, Debug)]
pub struct LaneRecorder {
    /// Occupant of each CPU before the window, as far as it is known.
    before: Vec<u64>,
    packer: Packer,
    marks: Marks,
    incident: Option<LaneIncident>,
    from: Ns,
    limit: u64,
    events: u64,
    rows: Vec<String>,
    ended: Option<Ns>,
    now: Ns,
    late: bool,
    focus: Option<[Ns; 2]>,
    packing: Packing,
}

/// How much work makes the data small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Packing {
    /// For a file that is kept: 16 % smaller than [`Packing::Fast`] (a million events).
    Small,
    /// For a reader of this machine, who waits for it.
    Fast,
}

impl Packing {
    const fn effort(self) -> u32 {
        match self {
            Packing::Small => 7,
            Packing::Fast => 1,
        }
    }
}

const fn occupant(task: Option<TaskId>) -> u64 {
    match task {
        None => 1,
        Some(task) => 2 + task.0 as u64,
    }
}

/// Numbers of the widget.
const fn why(state: PrevState) -> u64 {
    match state {
        PrevState::Unknown => 0,
        PrevState::Runnable => 1,
        PrevState::RunnableInKernel => 2,
        PrevState::Sleeping => 3,
        PrevState::DiskSleep => 4,
        PrevState::Stopped => 5,
        PrevState::Dead => 6,
        PrevState::Blocked => 7,
    }
}

impl LaneRecorder {
    /// For `cpus` CPUs, from `from` on, `limit` events at most.
    pub fn new(cpus: usize, from: Ns, limit: u64) -> LaneRecorder {
        LaneRecorder {
            before: vec![0; cpus],
            packer: Packer::new(cpus),
            marks: Marks::default(),
            incident: None,
            from,
            limit,
            events: 0,
            rows: Vec::new(),
            ended: None,
            now: Ns::ZERO,
            late: false,
            focus: None,
            packing: Packing::Small,
        }
    }

    /// Takes as little time as possible: for a reader of this machine, who waits for it.
    #[must_use]
    pub fn fast(mut self) -> LaneRecorder {
        self.packing = Packing::Fast;
        self
    }

    /// Shows nothing before `from`, where that is later: the page says so.
    pub fn not_before(mut self, from: Ns) -> LaneRecorder {
        self.late = from > self.from;
        self.from = self.from.max(from);
        self
    }

    /// Has this part in view at first.
    pub fn focused(mut self, part: Option<[Ns; 2]>) -> LaneRecorder {
        self.focus = part;
        self
    }

    /// A CPU that has not switched yet is idle: a simulation begins so, a recording does not say.
    pub fn idle_at_first(mut self) -> LaneRecorder {
        self.before.fill(occupant(None));
        self
    }

    /// Marks what the recording was kept for.
    pub fn caught(mut self, incident: Option<LaneIncident>) -> LaneRecorder {
        self.incident = incident;
        self
    }

    /// Names of the rows, for those that are no CPUs.
    pub fn named(mut self, rows: Vec<String>) -> LaneRecorder {
        self.rows = rows;
        self
    }

    /// Closes a run of this length.
    pub fn finish(self, name: &str, style: usize, whole: Ns) -> LaneRun {
        let to = self.ended.unwrap_or(whole.max(self.now));
        let small = self.packing == Packing::Small;
        let mut bytes = self.packer.finish(&self.before, small);
        self.marks.finish(self.from, to, &mut bytes);
        LaneRun {
            name: name.to_owned(),
            style,
            cpus: self.before.len(),
            from_ns: self.from,
            to_ns: to,
            whole_ns: whole.max(to),
            cut: self.late || to < whole,
            focus_ns: self.focus,
            events: self.events,
            rows: self.rows,
            incident: self.incident,
            unmarked: self.marks.left,
            summed: false,
            data: packed(&bytes, self.packing.effort()),
        }
    }

    fn switch(&mut self, cpu: CpuId, prev: Option<TaskId>, state: PrevState, next: Option<TaskId>) {
        let (at, cpu) = (self.now, cpu.index());
        let Some(before) = self.before.get_mut(cpu) else { return };
        if at < self.from {
            *before = occupant(next);
            return;
        }
        // The first switch tells who ran before it.
        self.packer.switch((at - self.from).0, cpu, occupant(prev), occupant(next), why(state));
        self.events += 1;
    }

    fn wake(&mut self, cpu: CpuId, task: TaskId, waker: u64) {
        if self.now < self.from || cpu.index() >= self.before.len() {
            return;
        }
        let at = (self.now - self.from).0;
        self.packer.wake(at, cpu.index(), u64::from(task.0), waker);
        self.events += 1;
    }

    fn lost(&mut self, cpu: CpuId, count: u64) {
        let Some(before) = self.before.get(cpu.index()) else { return };
        if self.now < self.from {
            return;
        }
        self.packer.lost((self.now - self.from).0, cpu.index(), *before);
        self.marks.lost(self.now, cpu, count);
    }
}

impl EventSink for LaneRecorder {
    fn event(&mut self, event: &SchedEvent) {
        if self.ended.is_some() {
            return;
        }
        if self.events >= self.limit {
            self.ended = Some(event.at);
            return;
        }
        self.now = self.now.max(event.at);
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                self.switch(event.cpu, prev, prev_state, next)
            }
            EventKind::Wake { task, waker } => {
                let waker = match waker {
                    Waker::Unknown => 0,
                    Waker::HardIrq => 1,
                    Waker::SoftIrq => 2,
                    Waker::Task(task) | Waker::InlineSoftirq(task) => 3 + u64::from(task.0),
                };
                self.wake(event.cpu, task, waker);
            }
            EventKind::New { task, parent } => {
                self.wake(event.cpu, task, parent.map_or(0, |task| 3 + u64::from(task.0)));
            }
            // It is not known who runs until the next switch.
            EventKind::Lost { count } => self.lost(event.cpu, count),
            EventKind::Throttle { task } => self.marks.throttled(self.now, event.cpu, task),
            EventKind::Unthrottle { task } => self.marks.released(self.now, task, self.from),
            EventKind::Steal { ns } if self.now >= self.from => {
                self.marks.stolen(self.now, event.cpu, ns);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(at: u64, prev: Option<u32>, next: Option<u32>) -> SchedEvent {
        let (prev, next) = (prev.map(TaskId), next.map(TaskId));
        let kind = EventKind::Switch { prev, prev_state: PrevState::Sleeping, next };
        SchedEvent { at: Ns(at), cpu: CpuId(0), kind }
    }

    #[test]
    fn a_long_run_ends_at_the_limit_and_says_so() {
        let mut lanes = LaneRecorder::new(1, Ns::ZERO, 2);
        for at in 1..10 {
            lanes.event(&switch(at * 10, None, Some(0)));
        }
        let run = lanes.finish("x", 1, Ns(1_000));
        assert_eq!((run.to_ns, run.whole_ns, run.events), (Ns(30), Ns(1_000), 2));
    }

    /// What a page is about is at the end of a long run: the beginning is left out, and said so.
    #[test]
    fn a_run_that_begins_late_is_cut_too() {
        let focus = Some([Ns(60), Ns(80)]);
        let mut lanes = LaneRecorder::new(1, Ns::ZERO, 100).not_before(Ns(50)).focused(focus);
        lanes.event(&switch(10, None, Some(0)));
        lanes.event(&switch(70, Some(0), Some(1)));
        let run = lanes.finish("x", 1, Ns(100));
        assert_eq!((run.from_ns, run.to_ns, run.cut, run.focus_ns), (Ns(50), Ns(100), true, focus));
        let whole = LaneRecorder::new(1, Ns(5), 100).not_before(Ns::ZERO).finish("x", 1, Ns(100));
        assert_eq!((whole.from_ns, whole.cut), (Ns(5), false));
    }

    #[test]
    fn a_window_begins_with_who_ran_before_it() {
        let mut lanes = LaneRecorder::new(2, Ns(50), 100);
        lanes.event(&switch(10, None, Some(4)));
        assert_eq!(lanes.before[0], 6);
        let run = lanes.finish("x", 1, Ns(100));
        assert_eq!((run.from_ns, run.to_ns), (Ns(50), Ns(100)));
    }
}
