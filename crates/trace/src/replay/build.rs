//! Third step: activations → programs, channels and sources.

use super::classify::{Classes, Outside, Why};
use super::devices::Devices;
use super::makers::{self, Makers};
use super::parts::{Ending, Parts, Wait};
use super::prompt::Prompt;
use super::rounds;
use super::runtime::Runtime;
use super::starts::{self, StartUp};
use super::timeline::{Activation, Deed, End, Origin, TaskTimeline};
use super::{DemandChange, ReplayReport};
use crate::Header;
use schedlab_model::{
    Amount, ChannelId, ChannelSpec, Draw, GroupId, GroupSpec, Handoff, Ns, Op, PrevState, Program,
    SourceKind, SourceSpec, Start, TaskId, TaskSpec, Workload,
};
use std::collections::BTreeMap;

/// A task without end of demand wants the CPU for at least one part in this many of the recording,
/// up to its end. What began later may be a command that lasts some milliseconds and did not get
/// them.
const ENDLESS_OF: u64 = 2;
/// … and, if it blocked before, has had one part in this many of the recording since: to
/// extrapolate a tenth to the whole is bold enough. (A task that got 1.75 % of a CPU was replayed
/// as one of 31 %.)
const WORKED_OF: u64 = 10;
/// A task that has had less than one part in this many of what it wanted is starved.
const STARVED_OF: u64 = 10;
/// Values that stand for a fitted distribution.
const SAMPLES: usize = 1_000;

pub(super) struct Builder<'a> {
    pub(super) header: &'a Header,
    pub(super) lines: &'a [TaskTimeline],
    pub(super) classes: &'a Classes,
    /// What tasks need that hardly ever sleep.
    pub(super) prompt: &'a [Prompt],
    pub(super) devices: &'a Devices,
    pub(super) runtimes: &'a [Runtime],
    pub(super) makers: &'a Makers,
    pub(super) demand: &'a [DemandChange],
    pub(super) duration: Ns,
    pub(super) report: &'a mut ReplayReport,
    /// The starts of tasks that were created in the recording.
    pub(super) starts: BTreeMap<usize, StartUp>,
}

/// The name of the channel on which a task waits when its recorded work is done. No task sends
/// there.
pub const END: &str = "end of the recorded work";

impl Builder<'_> {
    pub(super) fn build(mut self) -> Workload {
        let names = self.header.tasks.iter().map(|t| t.comm.as_str());
        let mut channels: Vec<ChannelSpec> = names
            .map(|name| ChannelSpec { name: name.to_owned(), ..ChannelSpec::default() })
            .collect();
        let never = ChannelId::from(channels.len());
        channels.push(ChannelSpec { name: END.to_owned(), ..ChannelSpec::default() });
        for Prompt { link, .. } in self.prompt {
            let name = |task: usize| &self.header.tasks[task].comm;
            let name = format!("{} works for {}", name(link.producer), name(link.consumer));
            channels.push(ChannelSpec { name, ..ChannelSpec::default() });
        }
        for &starter in &self.devices.starters {
            let name = format!("a device works for {}", self.header.tasks[starter].comm);
            channels.push(ChannelSpec { name, ..ChannelSpec::default() });
        }
        let parked = ChannelId::from(channels.len());
        for runtime in self.runtimes {
            let name =
                runtime.threads.first().map_or("", |&thread| &self.header.tasks[thread].comm);
            let name = format!("{name} has no work for this thread");
            channels.push(ChannelSpec { name, ..ChannelSpec::default() });
        }
        let mut sources = Vec::new();
        let mut tasks = Vec::new();
        for index in 0..self.lines.len() {
            let outside = ChannelId::from(channels.len());
            let (task, arrivals) = self.task(index, never, outside);
            if !arrivals.is_empty() {
                let own = task.program.branches.is_empty();
                let name = format!("outside wakeups of {}", task.name);
                if !own {
                    channels.push(ChannelSpec { name: name.clone(), ..ChannelSpec::default() });
                }
                sources.push(SourceSpec {
                    name,
                    into: if own { ChannelId::from(index) } else { outside },
                    kind: SourceKind::Recorded { at: arrivals },
                    one_way: Draw::Fixed(Ns::ZERO),
                });
            }
            tasks.push(task);
        }
        let groups: Vec<GroupSpec> = self.header.groups.iter().map(|g| g.spec.clone()).collect();
        let activations: Vec<usize> =
            self.lines.iter().map(|line| line.activations.len()).collect();
        starts::begin_at_exchange(&mut tasks, &self.classes.loops, |task| {
            self.lines[task].was_created()
        });
        rounds::complete(&mut tasks, &self.classes.loops, &activations);
        rounds::complete_makers(&mut tasks, self.makers);
        starts::shorten(&mut tasks, &self.starts);
        let handoffs = self.handoffs(parked, &mut tasks);
        Workload { groups, tasks, channels, sources, handoffs, ..Workload::default() }
    }

    /// How the threads of each runtime take over from each other. Those that carry nothing at the
    /// beginning are parked; the channels of the parked begin with `first`.
    fn handoffs(&self, first: ChannelId, tasks: &mut [TaskSpec]) -> Vec<Handoff> {
        let handoff = |(number, runtime): (usize, &Runtime)| {
            let parked = ChannelId::from(first.index() + number);
            for &thread in &runtime.threads {
                let task = &mut tasks[thread];
                if !runtime.lanes.contains(&thread) {
                    task.program = Program::parked(parked).into();
                    task.start = Start::AsleepUntil(Ns::ZERO);
                }
            }
            let sample = |values: &[Ns]| Draw::Empirical(evenly(values, SAMPLES));
            Handoff {
                threads: runtime.threads.iter().copied().map(TaskId::from).collect(),
                parked,
                after: sample(&runtime.after),
                permille: runtime.permille(),
                rest: sample(&runtime.rest),
            }
        };
        self.runtimes.iter().enumerate().map(handoff).collect()
    }

    /// One task and the times at which the outside wakes it.
    fn task(&mut self, index: usize, never: ChannelId, outside: ChannelId) -> (TaskSpec, Vec<Ns>) {
        let line = &self.lines[index];
        let info = &self.header.tasks[index];
        let scale = self.scale(&info.comm);
        let mut parts = self.activations(index, scale);
        let arrivals = std::mem::take(&mut parts.arrivals);
        let program = self.program(index, parts, never, outside);
        let mut task = TaskSpec::new(info.comm.clone(), program);
        task.process = info.pid;
        task.policy = info.policy;
        task.nice = info.nice;
        task.affinity = info.affinity;
        task.group = if self.header.groups.is_empty() { GroupId::ROOT } else { info.group };
        task.slice = info.slice;
        task.start = self.start(line);
        let existed = !line.activations.is_empty() && !line.was_created();
        task.began_on = line.first_cpu.filter(|_| existed);
        (task, arrivals)
    }

    /// The activations of a task in their order.
    fn activations(&mut self, index: usize, scale: (u64, u64)) -> Parts {
        let mut parts = Parts::default();
        let line = &self.lines[index];
        let awaits =
            |of: &Activation| of.slept.is_some_and(|(_, state)| state != PrevState::DiskSleep);
        let started = line.activations.iter().position(awaits).filter(|_| line.was_created());
        for (number, activation) in line.activations.iter().enumerate() {
            if started == Some(number) {
                parts.start = parts.len();
            }
            match if number == 0 { Wait::None } else { self.waits_for(index, number, activation) } {
                Wait::None => {}
                Wait::Sleep(slept) => parts.ops().push(Op::Sleep(Amount::Fixed(slept))),
                Wait::Device => parts.ops().extend(self.device(index, number)),
                Wait::Task => parts.begin(Wait::Task),
                Wait::Outside => parts.arrive(activation.woken),
            }
            self.work(index, activation, scale, parts.ops());
        }
        parts
    }

    /// What a task does that its own activations, in their order, say.
    fn program(
        &mut self,
        index: usize,
        parts: Parts,
        never: ChannelId,
        outside: ChannelId,
    ) -> Program {
        let own = ChannelId::from(index);
        match self.ending(index, &parts, never) {
            // Only a task that goes on for ever and is woken both ways needs to tell the two apart.
            Ending::Again(_)
                if parts.has(Wait::Task) && parts.has(Wait::Outside) && !parts.creates() =>
            {
                self.report.event_loops += 1;
                parts.event_loop(own, outside)
            }
            ends => {
                if let (Ending::Again(_), Some(start)) = (ends, parts.start_up()) {
                    self.starts.insert(index, start);
                }
                parts.in_order(own, ends)
            }
        }
    }

    /// The channel of a link: they come after those of the tasks and the one that nobody feeds.
    fn link(&self, link: u32) -> ChannelId {
        ChannelId::from(self.lines.len() + 1 + link as usize)
    }

    /// How the task waits for a device before this activation; empty where it does not.
    fn device(&self, index: usize, number: usize) -> Vec<Op> {
        let first = self.link(self.prompt.len() as u32).index();
        self.devices.wait(index, number, first).unwrap_or_default()
    }

    fn scale(&self, name: &str) -> (u64, u64) {
        let changes = self.demand.iter().filter(|change| change.task == name);
        changes.fold((1, 1), |(top, bottom), change| (top * change.times_permille, bottom * 1_000))
    }

    /// The first wakeup of a task that slept when the recording began has no recorded sleep before
    /// it that a dependency could end; it stays at its time.
    fn start(&self, line: &TaskTimeline) -> Start {
        match line.activations.first() {
            None => Start::AsleepUntil(self.duration.saturating_add(Ns::from_s(3_600))),
            Some(Activation { origin: Origin::Initial, .. }) => Start::At(Ns::ZERO),
            Some(Activation { origin: Origin::Forked(Some(_)), .. }) => Start::Spawned,
            Some(Activation { origin: Origin::Forked(None), woken, .. }) => Start::At(*woken),
            Some(first) => Start::AsleepUntil(first.woken),
        }
    }

    /// What ends the sleep before an activation.
    fn waits_for(&mut self, index: usize, number: usize, activation: &Activation) -> Wait {
        let report = &mut *self.report;
        if self.devices.has(index, number) {
            report.device_sleeps += 1;
            return Wait::Device;
        }
        match activation.origin {
            Origin::Task(by) if self.classes.opens(by.index(), index) => match activation.slept {
                // A date would hold up a task that hardly ever sleeps.
                Some((slept, _)) if is_prompt(self.prompt, index) => {
                    report.loop_sleeps += 1;
                    Wait::Sleep(slept)
                }
                _ => {
                    report.absolute_wakes += 1;
                    Wait::Outside
                }
            },
            Origin::Task(by) if self.makers.are_stopped(self.lines, by.index(), index, number) => {
                Wait::None
            }
            Origin::Task(_) => Wait::Task,
            Origin::Initial | Origin::Forked(_) => Wait::None,
            Origin::SoftIrq | Origin::HardIrq | Origin::Unknown => {
                match (activation.slept, self.classes.outside[index]) {
                    (Some((slept, PrevState::DiskSleep)), _) => {
                        report.device_sleeps += 1;
                        Wait::Sleep(slept)
                    }
                    // When it fell asleep was not recorded: it may have waited for what it needs of
                    // its servers.
                    (None, Outside::Relative(Why::ClosedLoop)) if is_prompt(self.prompt, index) => {
                        Wait::None
                    }
                    (Some((slept, _)), Outside::Relative(why)) => {
                        match why {
                            Why::EqualSleeps | Why::Nap => report.timer_sleeps += 1,
                            Why::Hungry => report.hungry_sleeps += 1,
                            Why::ClosedLoop => report.loop_sleeps += 1,
                        }
                        Wait::Sleep(slept)
                    }
                    // It is created again, at another date.
                    (Some((slept, _)), Outside::Absolute) if self.makers.create(index) => {
                        report.timer_sleeps += 1;
                        Wait::Sleep(slept)
                    }
                    _ => {
                        report.absolute_wakes += 1;
                        Wait::Outside
                    }
                }
            }
        }
    }

    /// The CPU time of an activation with its deeds in between.
    fn work(
        &mut self,
        index: usize,
        activation: &Activation,
        (top, bottom): (u64, u64),
        ops: &mut Vec<Op>,
    ) {
        let scaled = |ns: Ns| Ns(scaled(ns, (top, bottom)));
        let mut done = Ns::ZERO;
        for &(progress, deed) in &activation.deeds {
            let progress = scaled(progress);
            if progress > done {
                ops.push(Op::Run(Amount::Fixed(progress - done)));
                done = progress;
            }
            match deed {
                // The first wakeup of a task is its start; see `start`.
                Deed::Wake(_, 0) => self.report.first_wakes += 1,
                // It comes at its date: see `waits_for`.
                Deed::Wake(task, _) if self.classes.opens(index, task.index()) => {}
                Deed::Wake(task, number)
                    if self.makers.are_stopped(
                        self.lines,
                        index,
                        task.index(),
                        number as usize,
                    ) => {}
                Deed::Wake(task, _) => {
                    self.report.dependencies += 1;
                    ops.push(Op::Send { channel: ChannelId(task.0), count: 1 });
                }
                Deed::Feed(link) => ops.push(Op::Send { channel: self.link(link), count: 1 }),
                Deed::Await(link) => ops.push(Op::Receive(self.link(link))),
                Deed::Spawn(task) => {
                    self.report.forks += 1;
                    ops.push(Op::Spawn(task));
                }
            }
        }
        let demand = scaled(activation.demand);
        if demand > done {
            ops.push(Op::Run(Amount::Fixed(demand - done)));
        }
    }

    /// Decides what comes after the recorded operations.
    fn ending(&mut self, index: usize, parts: &Parts, never: ChannelId) -> Ending {
        let line = &self.lines[index];
        let prompt = is_prompt(self.prompt, index);
        let report = &mut *self.report;
        let Some(last) = line.activations.last() else { return Ending::Wait(never) };
        if self.makers.has(index) {
            return Ending::Anew;
        }
        if last.end == End::Exited {
            // A server that hardly ever sleeps has few activations, and ends when its client is
            // gone.
            let stopped =
                line.ended_by_the_clock(self.duration) || prompt && line.ended_late(self.duration);
            if self.classes.in_loop(index) && stopped {
                report.stopped_by_clock.push(TaskId::from(index));
                return Ending::Again(Ns::ZERO);
            }
            return Ending::Exit;
        }
        // A task that works for others of its loop waits for them, however seldom it sleeps.
        if last.end == End::Cut && !prompt && !self.classes.serves(index, last) {
            match demand_of_cut(line, self.header.tasks[index].kernel, self.duration) {
                Some(Cut::Endless) => {
                    report.hogs.push(TaskId::from(index));
                    return Ending::Run;
                }
                Some(Cut::Unfinished) => {
                    report.unfinished.push(TaskId::from(index));
                    return Ending::Wait(never);
                }
                Some(Cut::Starved) => {
                    report.starved.push(TaskId::from(index));
                    return Ending::Wait(never);
                }
                None => {}
            }
        }
        let closed = self.classes.in_closed_loop(index);
        let keeps_all = || makers::keeps_all(self.lines, index);
        let process = |task: usize| self.header.tasks[task].pid;
        let threads = || line.created().all(|of| process(of) == process(index));
        let once = || parts.sets_up() || parts.creates_first() && threads() && keeps_all();
        if parts.creates() && !(closed && once()) {
            if closed && keeps_all() {
                // A thread pool that grows: in its second round those threads are there.
                return Ending::Anew;
            }
            report.finite.push(TaskId::from(index));
            return Ending::Wait(never);
        }
        // Across the seam it sleeps for as long as it did before its first and after its last
        // activation.
        let first = line.activations.first().map_or(Ns::ZERO, |a| a.woken);
        let seam = first + line.slept_last;
        // What began and ended a closed loop, a client's start and end, is no part of it.
        let waits = parts.has(Wait::Task) || parts.has(Wait::Outside) || prompt;
        if closed && waits {
            return Ending::Again(Ns::ZERO);
        }
        let waits = parts.iter().any(|(wait, ops)| {
            wait != Wait::None
                || ops.iter().any(|op| matches!(op, Op::Sleep(_) | Op::Device { .. } | Op::Run(_)))
        });
        if seam > Ns::ZERO || waits { Ending::Again(seam) } else { Ending::Wait(never) }
    }
}

/// Whether this is a task of a loop that hardly ever sleeps.
fn is_prompt(prompt: &[Prompt], index: usize) -> bool {
    prompt.iter().any(|prompt| prompt.link.consumer == index)
}

/// At most so many of these values, evenly chosen.
fn evenly(values: &[Ns], most: usize) -> Vec<Ns> {
    let count = values.len().min(most);
    (0..count).map(|i| values[i * values.len() / count]).collect()
}

fn scaled(ns: Ns, (top, bottom): (u64, u64)) -> u64 {
    (u128::from(ns.0) * u128::from(top) / u128::from(bottom)) as u64
}

/// What is known of a demand that the end of the recording cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cut {
    /// It has no end.
    Endless,
    /// It was some work of a late task: taken to end there.
    Unfinished,
    /// It hardly got the CPU, so what it still wanted is unknown: taken to end there.
    Starved,
}

/// Judges a demand that the end of the recording cut off; `None`: nothing special, it was about to
/// end.
///
/// That a task wanted the CPU for most of the recording shows no endless demand by itself: one that
/// is starved waits for long with little to do. So it must have worked for long too, without a
/// block, or never have blocked at all, from before the recording to its end. A thread of the
/// kernel has its bit of work to do.
fn demand_of_cut(line: &TaskTimeline, kernel: bool, duration: Ns) -> Option<Cut> {
    let last = line.activations.last()?;
    let total: Ns = line.activations.iter().map(|a| a.demand).sum();
    let wanted = duration.saturating_sub(last.woken);
    let (long, most) = (wanted.0 * ENDLESS_OF >= duration.0, last.demand * 2 > total);
    let only = line.activations.len() == 1 && last.origin == Origin::Initial;
    let worked = only || last.demand.0 * WORKED_OF >= duration.0;
    let starved = last.demand.0 * STARVED_OF < wanted.0;
    if most && long && worked && !kernel {
        return Some(Cut::Endless);
    }
    if long && (most || starved) {
        return Some(Cut::Starved);
    }
    (most && (kernel || line.was_created())).then_some(Cut::Unfinished)
}
