//! First step: events → per task a list of activations with their CPU demand and what the task did
//! on the way.

mod delays;
mod stretch;

use super::recorder::RecorderCost;
use crate::Recording;
use crate::analysis::Durations;
use crate::siblings::{Beside, Speed};
use schedlab_model::{CpuId, EventKind, Ns, PrevState, SchedEvent, TaskId, Waker};

pub use delays::MachineDelays;
pub(super) use stretch::Stretch;

/// Why an activation began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// It ran or was runnable when the recording began.
    Initial,
    /// It was created, by this task where known.
    Forked(Option<TaskId>),
    /// Another task's doing (directly, or through a softirq inside its system call).
    Task(TaskId),
    /// A softirq at the exit of an interrupt.
    SoftIrq,
    /// An interrupt or a timer.
    HardIrq,
    /// The recorder could not tell, or nothing was seen before it ran.
    Unknown,
}

/// What a task did to another one, at some point of its own CPU progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Deed {
    /// Woke activation `.1` of task `.0`.
    Wake(TaskId, u32),
    /// Created a task.
    Spawn(TaskId),
    /// Got as far as the consumer of this link needs it to be; see `prompt`.
    Feed(u32),
    /// Cannot go on before the producer of this link got that far.
    Await(u32),
}

/// How an activation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Blocked(PrevState),
    Exited,
    /// The recording ended first: the demand is a lower bound.
    Cut,
}

/// From a wakeup to the next block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Activation {
    pub(super) origin: Origin,
    /// When it became runnable.
    pub(super) woken: Ns,
    /// The interrupt that did that: on which CPU, and its number, counted over all CPUs.
    pub(super) interrupt: Option<(CpuId, u32)>,
    /// How long it had slept, and in which state; `None` when that began before the recording.
    pub(super) slept: Option<(Ns, PrevState)>,
    /// The system call in which it slept before, where the recorder saw it.
    pub(super) call: Option<u32>,
    /// CPU time at full speed, without stolen time.
    pub(super) demand: Ns,
    /// Deeds with the CPU progress within this activation at which they happened, ascending.
    pub(super) deeds: Vec<(Ns, Deed)>,
    pub(super) end: End,
}

impl Activation {
    /// The tasks that it woke, in their order: a task once for each time.
    pub(super) fn wakes(&self) -> impl Iterator<Item = usize> + '_ {
        self.deeds.iter().filter_map(|(_, deed)| {
            if let Deed::Wake(of, _) = deed { Some(of.index()) } else { None }
        })
    }
}

#[cfg(test)]
impl Activation {
    /// One without sleep, deeds and interrupt, at whose end the task sleeps.
    pub(super) fn plain(origin: Origin, woken: Ns, demand: Ns) -> Activation {
        let (deeds, end) = (Vec::new(), End::Blocked(PrevState::Sleeping));
        let (interrupt, slept, call) = (None, None, None);
        Activation { origin, woken, interrupt, slept, call, demand, deeds, end }
    }
}

/// All about one task.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskTimeline {
    pub(super) activations: Vec<Activation>,
    /// When it ran, ascending.
    pub(super) stretches: Vec<Stretch>,
    /// CPU time in all.
    pub(super) total: Ns,
    /// Where it was seen first: running, about to run, or leaving for another CPU.
    pub(super) first_cpu: Option<CpuId>,
    /// CPU time before each activation.
    pub(super) starts: Vec<Ns>,
    /// Wakeups that came while it was running or runnable: they released nothing.
    pub(super) absorbed: u64,
    /// Time asleep between the activations.
    pub(super) slept: Ns,
    /// Time asleep from its last block to the end of the recording.
    pub(super) slept_last: Ns,
    life: Life,
    exiting: bool,
    /// The system call that it is in.
    call: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Life {
    /// Not seen yet.
    #[default]
    Fresh,
    Running(CpuId, Ns),
    Runnable,
    Blocked(Ns, PrevState),
    /// It stopped running, but whether it blocked is unknown.
    Limbo(Ns),
    Gone,
}

/// Wakeups by interrupts of one CPU that are no further apart, with no switch between them, are one
/// interrupt's and its softirq's. Chosen, not measured: those of one disk request seen so far are 2
/// to 20 us apart.
const SAME_INTERRUPT: Ns = Ns::from_us(50);

/// The result of the first step.
pub(super) struct Timeline {
    pub(super) lines: Vec<TaskTimeline>,
    pub(super) delays: MachineDelays,
    /// Wakes attributed to a task that was not running: taken as unknown.
    pub(super) waker_not_running: u64,
    /// The recorder's price, and what was taken out of the demand for it.
    pub(super) recorder: RecorderCost,
    cpus: Vec<CpuState>,
    /// ksoftirqd: what it wakes, the outside world woke.
    softirq_daemon: Vec<bool>,
    /// How many interrupts woke a task.
    interrupts: u32,
    lost: bool,
    now: Ns,
    beside: Beside,
}

#[derive(Clone, Copy, Default)]
struct CpuState {
    seen: bool,
    current: Option<TaskId>,
    idle_since: Option<Ns>,
    /// The interrupt that is served, and what it did last.
    interrupt: Option<(u32, Ns)>,
}

/// Reads the whole recording. `beside`: the speed of a hardware thread beside a busy one.
pub(super) fn timeline(recording: &Recording, beside: Speed) -> Timeline {
    let mut out = Timeline {
        lines: vec![TaskTimeline::default(); recording.header.tasks.len()],
        delays: MachineDelays {
            idle_wake: vec![Durations::default(); recording.header.topology.cpus()],
            preempting_wake: vec![Durations::default(); recording.header.topology.cpus()],
        },
        waker_not_running: 0,
        recorder: RecorderCost::from_header(&recording.header),
        cpus: vec![CpuState::default(); recording.header.topology.cpus()],
        softirq_daemon: recording
            .header
            .tasks
            .iter()
            .map(|task| task.comm.starts_with("ksoftirqd/"))
            .collect(),
        interrupts: 0,
        lost: false,
        now: Ns::ZERO,
        beside: Beside::new(&recording.header.topology, beside),
    };
    recording.events.iter().for_each(|event| out.event(event));
    out.now = recording.duration;
    for line in &mut out.lines {
        match line.life {
            Life::Running(on, since) => {
                line.ran(since, recording.duration, out.beside.speed(on));
            }
            Life::Blocked(since, _) => line.slept_last = recording.duration.saturating_sub(since),
            // It was not seen again: it blocked, or it would have run.
            Life::Limbo(since) => {
                line.end(End::Blocked(PrevState::Unknown));
                line.slept_last = recording.duration.saturating_sub(since);
            }
            _ => {}
        }
    }
    out
}

impl TaskTimeline {
    /// Whether the task was created in the recording, which shows its start.
    pub(super) fn was_created(&self) -> bool {
        self.activations.first().is_some_and(|first| matches!(first.origin, Origin::Forked(_)))
    }

    /// Opens an activation.
    pub(super) fn begin(&mut self, origin: Origin, woken: Ns, slept: Option<(Ns, PrevState)>) {
        if let Some((slept, _)) = slept {
            self.slept += slept;
        }
        self.starts.push(self.total);
        let (demand, deeds) = (Ns::ZERO, Vec::new());
        let (interrupt, end) = (None, End::Cut);
        let call = self.call.take();
        self.activations.push(Activation {
            origin,
            woken,
            interrupt,
            slept,
            call,
            demand,
            deeds,
            end,
        });
    }

    /// Adds CPU time to the open activation.
    fn ran(&mut self, since: Ns, until: Ns, speed: Speed) {
        let work = speed.work(until.saturating_sub(since));
        if let Some(open) = self.open() {
            open.demand += work;
            if work > Ns::ZERO {
                self.stretches.push(Stretch { from: since, to: until, before: self.total, speed });
                self.total += work;
            }
        }
    }

    /// The same on a CPU that is not slowed.
    #[cfg(test)]
    pub(super) fn run(&mut self, since: Ns, until: Ns) {
        self.ran(since, until, Speed::FULL);
    }

    /// Adds a deed at this CPU progress.
    pub(super) fn add(&mut self, progress: Ns, deed: Deed) {
        let at = self.starts.partition_point(|start| *start < progress).saturating_sub(1);
        let before = self.starts.get(at).copied().unwrap_or_default();
        if let Some(activation) = self.activations.get_mut(at) {
            activation.deeds.push((progress.saturating_sub(before).min(activation.demand), deed));
        }
    }

    /// Puts what was added to the activations in the order of progress. At the same progress a task
    /// gives before it waits: it might wait for what another one does with that, as the recording
    /// shows only that it had done both by then.
    pub(super) fn order_deeds(&mut self) {
        let waits = |deed: &Deed| matches!(deed, Deed::Await(_));
        self.activations
            .iter_mut()
            .for_each(|a| a.deeds.sort_by_key(|(offset, deed)| (*offset, waits(deed))));
    }

    /// The tasks that it woke, ascending, each once.
    pub(super) fn wakees(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.activations.iter().flat_map(Activation::wakes).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The tasks that it created, in their order.
    pub(super) fn created(&self) -> impl Iterator<Item = usize> + '_ {
        let deeds = self.activations.iter().flat_map(|activation| &activation.deeds);
        deeds.filter_map(
            |(_, deed)| if let Deed::Spawn(of) = deed { Some(of.index()) } else { None },
        )
    }

    /// Whether it looks like a load generator whose time was over: it worked on and on, and ended
    /// in the last fifth of the recording.
    pub(super) fn ended_by_the_clock(&self, duration: Ns) -> bool {
        self.activations.len() >= 100 && self.ended_late(duration)
    }

    /// Whether it ran in the last fifth of the recording.
    pub(super) fn ended_late(&self, duration: Ns) -> bool {
        self.stretches.last().map_or(Ns::ZERO, |s| s.to) * 5 > duration * 4
    }

    /// CPU time that it had had at `at`.
    pub(super) fn progress(&self, at: Ns) -> Ns {
        let next = self.stretches.partition_point(|s| s.from <= at);
        match next.checked_sub(1).map(|i| self.stretches[i]) {
            None => Ns::ZERO,
            Some(s) => s.before + s.work(at),
        }
    }

    /// When it had had this much CPU time.
    pub(super) fn reached(&self, progress: Ns) -> Ns {
        let next = self.stretches.partition_point(|s| s.before < progress);
        match next.checked_sub(1).map(|i| self.stretches[i]) {
            None => Ns::ZERO,
            Some(s) => (s.from + s.speed.time(progress.saturating_sub(s.before))).min(s.to),
        }
    }

    /// When this activation ended: it was awake from its wakeup until then.
    pub(super) fn ends(&self, activation: usize) -> Ns {
        self.reached(self.starts[activation] + self.activations[activation].demand)
    }

    /// The activation that had begun and not ended at `at`.
    pub(super) fn awake_at(&self, at: Ns) -> Option<usize> {
        let last = self.activations.partition_point(|a| a.woken <= at).checked_sub(1)?;
        (at <= self.ends(last)).then_some(last)
    }

    /// The activation that has not ended.
    fn open(&mut self) -> Option<&mut Activation> {
        self.activations.last_mut().filter(|a| a.end == End::Cut)
    }

    fn end(&mut self, end: End) {
        if let Some(open) = self.open() {
            open.end = end;
        }
    }
}

impl Timeline {
    fn event(&mut self, event: &SchedEvent) {
        self.now = event.at;
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                self.first_switch(event.cpu, prev);
                if let Some(prev) = prev {
                    self.stop(prev, event.cpu, prev_state);
                }
                if let Some(next) = next {
                    let preempted = prev.is_some() && prev_state.is_runnable() == Some(true);
                    self.start(next, event.cpu, preempted);
                }
                let cpu = &mut self.cpus[event.cpu.index()];
                cpu.idle_since = next.is_none().then_some(event.at);
                cpu.current = next;
                cpu.interrupt = None;
                self.beside_changes(event.cpu, next.is_some());
                self.recorded(event.cpu, self.recorder.switch);
            }
            EventKind::Wake { task, waker } => {
                self.wake(task, event.cpu, waker);
                self.recorded(event.cpu, self.recorder.wake);
            }
            EventKind::New { task, parent } => {
                self.fork(task, parent);
                self.recorded(event.cpu, self.recorder.wake);
            }
            EventKind::Migrate { task, from, .. } => {
                self.lines[task.index()].first_cpu.get_or_insert(from);
            }
            EventKind::Exit { task } => self.lines[task.index()].exiting = true,
            EventKind::SyscallEnter { task, number } => {
                self.lines[task.index()].call = Some(number)
            }
            EventKind::SyscallExit { task } => self.lines[task.index()].call = None,
            EventKind::Steal { ns } => self.steal(event.cpu, ns),
            EventKind::Lost { .. } => self.forget(event.cpu),
            _ => {}
        }
    }

    /// A task that leaves a CPU at its first switch was on it from the start.
    fn first_switch(&mut self, cpu: CpuId, prev: Option<TaskId>) {
        if std::mem::replace(&mut self.cpus[cpu.index()].seen, true) {
            return;
        }
        match prev {
            None => self.cpus[cpu.index()].idle_since = Some(Ns::ZERO),
            Some(prev) if self.lines[prev.index()].life == Life::Fresh => {
                let line = &mut self.lines[prev.index()];
                line.begin(Origin::Initial, Ns::ZERO, None);
                line.first_cpu.get_or_insert(cpu);
                line.life = Life::Running(cpu, Ns::ZERO);
            }
            Some(_) => {}
        }
    }

    fn stop(&mut self, task: TaskId, cpu: CpuId, state: PrevState) {
        let now = self.now;
        let line = &mut self.lines[task.index()];
        if let Life::Running(on, since) = line.life
            && on == cpu
        {
            line.ran(since, now, self.beside.speed(cpu));
            // It stopped before the last record was paid for.
            self.recorder.taken -= since.saturating_sub(now);
        }
        // On its way out it may lose its CPU, or wait for a lock of the kernel.
        let leaves = line.exiting && matches!(state, PrevState::Blocked | PrevState::Unknown);
        line.life = if leaves || state == PrevState::Dead {
            line.end(End::Exited);
            Life::Gone
        } else {
            match state.is_runnable() {
                Some(true) => Life::Runnable,
                Some(false) => {
                    line.end(End::Blocked(state));
                    Life::Blocked(now, state)
                }
                None => Life::Limbo(now),
            }
        };
    }

    fn start(&mut self, task: TaskId, cpu: CpuId, preempted: bool) {
        let now = self.now;
        let line = &mut self.lines[task.index()];
        line.first_cpu.get_or_insert(cpu);
        match line.life {
            Life::Fresh if !self.lost => line.begin(Origin::Initial, Ns::ZERO, None),
            Life::Blocked(since, state) => {
                line.begin(Origin::Unknown, now, Some((now.saturating_sub(since), state)));
            }
            Life::Fresh | Life::Gone => line.begin(Origin::Unknown, now, None),
            Life::Runnable | Life::Limbo(_) | Life::Running(..) => {
                if line.open().is_none() {
                    line.begin(Origin::Unknown, now, None);
                }
            }
        }
        self.lines[task.index()].life = Life::Running(cpu, now);
        self.measure(task, cpu, preempted);
    }

    fn wake(&mut self, task: TaskId, on: CpuId, waker: Waker) {
        let now = self.now;
        let slept = match self.lines[task.index()].life {
            Life::Running(..) | Life::Runnable | Life::Gone => {
                self.lines[task.index()].absorbed += 1;
                return;
            }
            Life::Blocked(since, state) => Some((now.saturating_sub(since), state)),
            Life::Limbo(since) => {
                self.lines[task.index()].end(End::Blocked(PrevState::Unknown));
                Some((now.saturating_sub(since), PrevState::Unknown))
            }
            Life::Fresh => None,
        };
        let activation = self.lines[task.index()].activations.len() as u32;
        let origin = match waker {
            Waker::Task(by) | Waker::InlineSoftirq(by) if self.softirq_daemon[by.index()] => {
                Origin::SoftIrq
            }
            Waker::Task(by) | Waker::InlineSoftirq(by) => {
                if by != task && self.deed(by, Deed::Wake(task, activation)) {
                    Origin::Task(by)
                } else {
                    self.waker_not_running += 1;
                    Origin::Unknown
                }
            }
            Waker::SoftIrq => Origin::SoftIrq,
            Waker::HardIrq => Origin::HardIrq,
            Waker::Unknown => Origin::Unknown,
        };
        let outside = matches!(origin, Origin::SoftIrq | Origin::HardIrq);
        let interrupt = outside.then(|| (on, self.interrupt(on)));
        let line = &mut self.lines[task.index()];
        line.begin(origin, now, slept);
        if let Some(open) = line.open() {
            open.interrupt = interrupt;
        }
        line.life = Life::Runnable;
    }

    /// The number of the interrupt that wakes a task on this CPU now: the one before when nothing
    /// came between.
    fn interrupt(&mut self, on: CpuId) -> u32 {
        let served = &mut self.cpus[on.index()].interrupt;
        let number = match *served {
            Some((number, last)) if self.now.saturating_sub(last) <= SAME_INTERRUPT => number,
            _ => {
                self.interrupts += 1;
                self.interrupts
            }
        };
        *served = Some((number, self.now));
        number
    }

    fn fork(&mut self, task: TaskId, parent: Option<TaskId>) {
        if !matches!(self.lines[task.index()].life, Life::Fresh) {
            return;
        }
        let parent = parent.filter(|&by| self.deed(by, Deed::Spawn(task)));
        let line = &mut self.lines[task.index()];
        line.begin(Origin::Forked(parent), self.now, None);
        line.life = Life::Runnable;
    }

    /// Notes a deed at the current progress of `by`; false when it is not running.
    fn deed(&mut self, by: TaskId, deed: Deed) -> bool {
        let now = self.now;
        let line = &mut self.lines[by.index()];
        let Life::Running(on, since) = line.life else { return false };
        let Some(open) = line.open() else { return false };
        let progress = open.demand + self.beside.speed(on).work(now.saturating_sub(since));
        if open.deeds.is_empty() {
            // Mostly it stays the only one: room for four would be most of what a timeline takes.
            open.deeds.reserve_exact(1);
        }
        open.deeds.push((progress, deed));
        true
    }

    /// The task that runs on `cpu` pays for a record from now on: that is no demand of its own. The
    /// stretch is cut, so that times and progress still belong together exactly.
    fn recorded(&mut self, cpu: CpuId, cost: Ns) {
        let Some(task) = self.cpus[cpu.index()].current.filter(|_| cost > Ns::ZERO) else { return };
        let now = self.now;
        let line = &mut self.lines[task.index()];
        let Life::Running(on, since) = line.life else { return };
        if on == cpu {
            line.ran(since, now, self.beside.speed(cpu));
            line.life = Life::Running(on, since.max(now).saturating_add(cost));
            self.recorder.taken += cost;
        }
    }

    fn steal(&mut self, cpu: CpuId, ns: Ns) {
        let Some(task) = self.cpus[cpu.index()].current else { return };
        if let Life::Running(_, since) = &mut self.lines[task.index()].life {
            *since = since.saturating_add(ns).min(self.now);
        }
    }

    /// Events of `cpu` were lost: everything but who runs on the other CPUs may have changed.
    fn forget(&mut self, cpu: CpuId) {
        self.lost = true;
        let now = self.now;
        for line in &mut self.lines {
            line.life = match line.life {
                Life::Running(on, since) if on == cpu => {
                    line.ran(since, now, self.beside.speed(cpu));
                    Life::Limbo(now)
                }
                Life::Runnable => Life::Limbo(now),
                Life::Blocked(since, _) => Life::Limbo(since),
                other => other,
            };
        }
        self.cpus[cpu.index()] = CpuState { seen: true, ..CpuState::default() };
        self.beside_changes(cpu, false);
    }

    /// A CPU is busy or idle now: those that run on the other threads of its core have another
    /// speed from now on.
    fn beside_changes(&mut self, cpu: CpuId, busy: bool) {
        for (other, slowed) in self.beside.set(cpu, busy) {
            let before = self.beside.speed(other);
            if let Some(task) = self.cpus[other.index()].current
                && let line = &mut self.lines[task.index()]
                && let Life::Running(on, since) = line.life
                && on == other
            {
                line.ran(since, self.now, before);
                line.life = Life::Running(on, since.max(self.now));
            }
            self.beside.slow(other, slowed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A backend that goes on at the very progress that its client needs would wait for the client,
    /// and the client for it.
    #[test]
    fn at_the_same_progress_a_task_gives_before_it_waits() {
        let mut line = TaskTimeline::default();
        line.begin(Origin::Initial, Ns::ZERO, None);
        line.run(Ns::ZERO, Ns::from_us(60));
        let at = Ns::from_us(20);
        let deeds = [(at * 2, Deed::Feed(3)), (at, Deed::Await(1)), (at, Deed::Feed(2))];
        line.activations[0].deeds.extend(deeds);
        line.order_deeds();
        let ordered = [(at, Deed::Feed(2)), (at, Deed::Await(1)), (at * 2, Deed::Feed(3))];
        assert_eq!(line.activations[0].deeds, ordered);
    }
}
