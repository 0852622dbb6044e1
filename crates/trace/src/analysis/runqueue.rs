//! Run-queue length: how many tasks waited on each CPU, besides the one that ran, over time.

use super::answer::{percent, seconds};
use super::follow::{Followed, Follower, Listener, Span};
use super::show::{Cell, Column, Entry, Layout, Output, Table, column};
use super::{Analysis, Scope};
use crate::{Capability, Header, Recording};
use schedlab_model::{CpuId, Ns, SchedEvent, TaskId};
use std::io;

/// The list's entry.
pub(crate) const ENTRY: Entry =
    Entry::new::<RunQueue>("runqueue", "How many tasks waited on each CPU over time", show);

/// How many tasks waited on one CPU.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Queue {
    /// Tasks that wait now.
    now: u64,
    since: Ns,
    /// Time with 0, 1, 2, … tasks waiting.
    pub times: Vec<Ns>,
    /// The most, and when that was first reached.
    pub most: (u64, Ns),
    /// Tasks × ns in each step of the window.
    pub steps: Vec<u64>,
}

/// Run-queue length by CPU.
#[derive(Clone, Debug)]
pub struct RunQueue {
    scope: Scope,
    /// Length of a step.
    pub step: Ns,
    /// By CPU.
    pub cpus: Vec<Queue>,
    /// By task: on which CPU it is counted.
    counted: Vec<Option<CpuId>>,
}

impl Analysis for RunQueue {
    const NAME: &'static str = "run-queue length";
    const NEEDS: &'static [Capability] =
        &[Capability::Preempted, Capability::WakeTimes, Capability::AllTasks];
}

impl RunQueue {
    /// For the machine of `header`, and a window that is cut into `steps` steps. `scope.to` must be
    /// known.
    pub fn new(header: &Header, scope: &Scope, steps: u64) -> RunQueue {
        let length = scope.to.saturating_sub(scope.from);
        let step = Ns(length.0.div_ceil(steps.max(1)).max(1));
        let queue = Queue { since: scope.from, ..Queue::default() };
        let cpus = vec![queue; header.topology.cpus()];
        RunQueue { scope: scope.clone(), step, cpus, counted: vec![None; header.tasks.len()] }
    }

    /// Puts `task` where it waits now, if it waits.
    fn place(&mut self, task: TaskId, at: Ns, waits_on: Option<CpuId>) {
        let counted = &mut self.counted[task.index()];
        if *counted == waits_on || !self.scope.task(task) {
            return;
        }
        let before = std::mem::replace(counted, waits_on);
        if let Some(cpu) = before {
            self.change(cpu, at, |now| now - 1);
        }
        if let Some(cpu) = waits_on {
            self.change(cpu, at, |now| now + 1);
        }
    }

    fn change(&mut self, cpu: CpuId, at: Ns, to: impl FnOnce(u64) -> u64) {
        self.pass(cpu.index(), at);
        let queue = &mut self.cpus[cpu.index()];
        queue.now = to(queue.now);
    }

    /// Time goes on to `at`.
    fn pass(&mut self, cpu: usize, at: Ns) {
        let (from, step) = (self.scope.from, self.step.0);
        let queue = &mut self.cpus[cpu];
        let (mut since, end) = (queue.since.max(from), at.min(self.scope.to));
        if end <= since {
            return;
        }
        queue.since = end;
        // What lasted no time was never seen by anything.
        if queue.now > queue.most.0 {
            queue.most = (queue.now, since);
        }
        let length = queue.now as usize;
        if queue.times.len() <= length {
            queue.times.resize(length + 1, Ns::ZERO);
        }
        queue.times[length] += end - since;
        while since < end && queue.now > 0 {
            let index = ((since - from).0 / step) as usize;
            let edge = Ns(from.0 + (index as u64 + 1) * step).min(end);
            if queue.steps.len() <= index {
                queue.steps.resize(index + 1, 0);
            }
            queue.steps[index] += queue.now * (edge - since).0;
            since = edge;
        }
    }
}

impl Listener for RunQueue {
    fn span(&mut self, span: &Span) {
        if !span.next.queued() {
            self.place(span.task, span.to, None);
        }
    }

    fn after(&mut self, follower: &Follower, event: &SchedEvent) {
        for task in crate::format::tasks_of(&event.kind).into_iter().flatten() {
            let waits = follower.state(task).0.queued();
            self.place(task, follower.now(), waits.then(|| follower.cpu_of(task)));
        }
    }

    fn finished(&mut self, follower: &Follower) {
        (0..self.cpus.len()).for_each(|cpu| self.pass(cpu, follower.now()));
    }
}

const COLUMNS: &[Column] = &[
    column("cpu", "CPU"),
    column("mean", "mean waiting").rank(1),
    column("most", "most").rank(1),
    column("most_at_ns", "first at").rank(4),
    column("none", "none"),
    column("one", "one"),
    column("two", "two"),
    column("three_or_four", "3 or 4"),
    column("more", "more"),
    column("picture", "over time").rank(3),
];

const STEPS: &[Column] =
    &[column("from_ns", "from"), column("cpu", "CPU"), column("mean", "mean waiting")];

/// Steps of the picture and of the series.
const PICTURE: u64 = 40;

/// Tasks that waited, each for its time, in nanoseconds.
fn waiting(queue: &Queue) -> u128 {
    queue.times.iter().enumerate().map(|(n, time)| n as u128 * u128::from(time.0)).sum()
}

/// Which CPU had the longest queue, how long it was, and for how much of the time there was none.
fn answer(queues: &RunQueue, scope: &Scope, recording: &Recording) -> String {
    let shown = queues.cpus.iter().enumerate().filter(|(cpu, _)| scope.on(CpuId::from(*cpu)));
    let longest = shown.max_by_key(|(cpu, queue)| (waiting(queue), std::cmp::Reverse(*cpu)));
    let Some((cpu, queue)) = longest.filter(|(_, queue)| queue.most.0 > 0) else {
        return "No task waited on any CPU.".to_owned();
    };
    let length = scope.length(recording).0;
    let mean = waiting(queue) as f64 / length.max(1) as f64;
    let none = queue.times.first().copied().unwrap_or_default();
    format!(
        "CPU {cpu} has the longest run queue: {mean:.3} tasks waited on average and {} at most, \
         first at {}. None waited there for {} of the \
         time.",
        queue.most.0,
        seconds(queue.most.1),
        percent(none.0, length),
    )
}

fn show(recording: &Recording, scope: &Scope, out: &mut dyn Output) -> io::Result<()> {
    let scope = Scope { to: scope.end(recording), ..scope.clone() };
    let queues =
        Followed::over(recording, &scope, RunQueue::new(&recording.header, &scope, PICTURE));
    let title = "Run-queue length: tasks that waited, besides the one that ran";
    out.answer(&answer(&queues, &scope, recording))?;
    out.table(&Table { key: "runqueue", title, columns: COLUMNS, layout: Layout::Table })?;
    let shown = || queues.cpus.iter().enumerate().filter(|(cpu, _)| scope.on(CpuId::from(*cpu)));
    let length = scope.length(recording);
    let highest = shown().flat_map(|(_, queue)| &queue.steps).max().copied().unwrap_or(0);
    for (cpu, queue) in shown() {
        let time = |range: std::ops::Range<usize>| {
            let end = range.end.min(queue.times.len());
            Cell::part(
                queue.times.get(range.start..end).into_iter().flatten().copied().sum(),
                length,
            )
        };
        let sum = waiting(queue);
        let picture: String = (0..PICTURE as usize)
            .map(|step| bar(queue.steps.get(step).copied().unwrap_or(0), highest))
            .collect();
        out.row(&[
            Cell::Cpu(CpuId::from(cpu)),
            Cell::Milli((sum * 1000 / u128::from(length.0.max(1))) as u64),
            Cell::Count(queue.most.0),
            if queue.most.0 > 0 { Cell::At(queue.most.1) } else { Cell::None },
            time(0..1),
            time(1..2),
            time(2..3),
            time(3..5),
            time(5..usize::MAX),
            Cell::Text(&picture),
        ])?;
    }
    out.table(&Table {
        key: "steps",
        title: "Run-queue length over time",
        columns: STEPS,
        layout: Layout::Data,
    })?;
    for (cpu, queue) in shown() {
        for step in 0..PICTURE {
            let from = scope.from + Ns(step * queues.step.0);
            let width = queues.step.0.min(scope.to.saturating_sub(from).0).max(1);
            let sum = queue.steps.get(step as usize).copied().unwrap_or(0);
            let mean = (u128::from(sum) * 1000 / u128::from(width)) as u64;
            out.row(&[Cell::At(from), Cell::Cpu(CpuId::from(cpu)), Cell::Milli(mean)])?;
        }
    }
    Ok(())
}

/// A column of the picture: eight heights up to the highest of all CPUs.
fn bar(value: u64, highest: u64) -> char {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    if highest == 0 {
        return ' ';
    }
    BARS[((u128::from(value) * 8).div_ceil(u128::from(highest)) as usize).min(8)]
}
