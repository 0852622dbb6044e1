//! What ran where: the schedule of every CPU, packed for the page's own widget.

use crate::embed::{packed, varint};
use schedlab_model::{CpuId, EventKind, EventSink, Ns, PrevState, SchedEvent, TaskId, Waker};
use serde::Serialize;

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
    data: String,
}

/// Writes down a schedule as it happens, up to a number of events; what comes after is not shown,
/// and the page says so.
///
/// The bytes: for each CPU the number of spans, then column by column: start (difference to the one
/// before), occupant (0 unknown, 1 idle, 2 + task), and why the occupant before stopped. Then the
/// wakeups: number, time differences, CPUs, tasks, wakers (0 unknown, 1 interrupt, 2 softirq, 3 +
/// task). All numbers are varints.
#[derive(Clone, Debug)]
pub struct LaneRecorder {
    cpus: Vec<Cpu>,
    wakes: Wakes,
    from: Ns,
    limit: u64,
    events: u64,
    rows: Vec<String>,
    ended: Option<Ns>,
    now: Ns,
    late: bool,
    focus: Option<[Ns; 2]>,
}

#[derive(Clone, Debug, Default)]
struct Cpu {
    spans: u64,
    last: Ns,
    starts: Vec<u8>,
    who: Vec<u8>,
    why: Vec<u8>,
    /// Occupant before the window.
    before: u64,
}

#[derive(Clone, Debug, Default)]
struct Wakes {
    count: u64,
    last: Ns,
    at: Vec<u8>,
    cpus: Vec<u8>,
    tasks: Vec<u8>,
    wakers: Vec<u8>,
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
            cpus: vec![Cpu::default(); cpus],
            wakes: Wakes::default(),
            from,
            limit,
            events: 0,
            rows: Vec::new(),
            ended: None,
            now: Ns::ZERO,
            late: false,
            focus: None,
        }
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
        self.cpus.iter_mut().for_each(|cpu| cpu.before = occupant(None));
        self
    }

    /// Names of the rows, for those that are no CPUs.
    pub fn named(mut self, rows: Vec<String>) -> LaneRecorder {
        self.rows = rows;
        self
    }

    /// Closes a run of this length.
    pub fn finish(mut self, name: &str, style: usize, whole: Ns) -> LaneRun {
        let to = self.ended.unwrap_or(whole.max(self.now));
        let mut bytes = Vec::new();
        for cpu in &mut self.cpus {
            // A CPU that never switched was one thing all the time.
            if cpu.spans == 0 {
                let before = cpu.before;
                cpu.push(Ns::ZERO, before, 0);
            }
            varint(&mut bytes, cpu.spans);
            for column in [&cpu.starts, &cpu.who, &cpu.why] {
                bytes.extend_from_slice(column);
            }
        }
        varint(&mut bytes, self.wakes.count);
        for column in [&self.wakes.at, &self.wakes.cpus, &self.wakes.tasks, &self.wakes.wakers] {
            bytes.extend_from_slice(column);
        }
        LaneRun {
            name: name.to_owned(),
            style,
            cpus: self.cpus.len(),
            from_ns: self.from,
            to_ns: to,
            whole_ns: whole.max(to),
            cut: self.late || to < whole,
            focus_ns: self.focus,
            events: self.events,
            rows: self.rows,
            data: packed(&bytes),
        }
    }

    fn switch(&mut self, cpu: CpuId, prev: Option<TaskId>, state: PrevState, next: Option<TaskId>) {
        let (at, from) = (self.now, self.from);
        let Some(cpu) = self.cpus.get_mut(cpu.index()) else { return };
        if at < from {
            cpu.before = occupant(next);
            return;
        }
        if cpu.spans == 0 {
            // The first switch tells who ran before it.
            cpu.push(Ns::ZERO, occupant(prev), 0);
        }
        cpu.push(at - from, occupant(next), why(state));
        self.events += 1;
    }

    fn wake(&mut self, cpu: CpuId, task: TaskId, waker: u64) {
        if self.now < self.from {
            return;
        }
        let at = self.now - self.from;
        let wakes = &mut self.wakes;
        varint(&mut wakes.at, at.saturating_sub(wakes.last).0);
        varint(&mut wakes.cpus, cpu.index() as u64);
        varint(&mut wakes.tasks, u64::from(task.0));
        varint(&mut wakes.wakers, waker);
        wakes.count += 1;
        wakes.last = at;
        self.events += 1;
    }
}

impl Cpu {
    fn push(&mut self, at: Ns, who: u64, why: u64) {
        varint(&mut self.starts, at.saturating_sub(self.last).0);
        varint(&mut self.who, who);
        varint(&mut self.why, why);
        self.spans += 1;
        self.last = at;
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
            EventKind::Lost { .. } if event.at >= self.from => {
                // It is not known who runs until the next switch.
                if let Some(cpu) = self.cpus.get_mut(event.cpu.index()) {
                    cpu.push(event.at - self.from, 0, 0);
                }
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
    fn columns_of_a_short_schedule() {
        let mut lanes = LaneRecorder::new(1, Ns::ZERO, 100);
        lanes.event(&switch(100, None, Some(0)));
        let kind = EventKind::Wake { task: TaskId(1), waker: Waker::Task(TaskId(0)) };
        lanes.event(&SchedEvent { at: Ns(150), cpu: CpuId(0), kind });
        lanes.event(&switch(300, Some(0), Some(1)));
        assert_eq!(lanes.cpus[0].starts, [0, 100, 0xc8, 1], "0, +100, +200");
        assert_eq!(lanes.cpus[0].who, [1, 2, 3], "idle, task 0, task 1");
        assert_eq!(lanes.cpus[0].why, [0, 3, 3]);
        assert_eq!((&lanes.wakes.tasks[..], &lanes.wakes.wakers[..]), (&[1][..], &[3][..]));
        let run = lanes.finish("x", 1, Ns(1_000));
        assert_eq!((run.to_ns, run.whole_ns, run.events), (Ns(1_000), Ns(1_000), 3));
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
        assert_eq!(lanes.cpus[0].before, 6);
        let run = lanes.finish("x", 1, Ns(100));
        assert_eq!((run.from_ns, run.to_ns), (Ns(50), Ns(100)));
    }
}
