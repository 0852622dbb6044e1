//! Third step: activations → programs, channels and sources.

use super::classify::{Classes, Outside, Why};
use super::timeline::{Activation, Deed, End, Line, Origin};
use super::couple::Link;
use super::{DemandChange, ReplayReport};
use crate::Header;
use schedlab_model::{
    Amount, ChannelId, ChannelSpec, Draw, GroupId, GroupSpec, Ns, Op, PrevState, Program, SourceKind,
    SourceSpec, Start, TaskId, TaskSpec, Workload,
};

/// Longest single `Run` of an endless task.
const CHUNK: Ns = Ns::from_s(1);

pub(super) struct Builder<'a> {
    pub(super) header: &'a Header,
    pub(super) lines: &'a [Line],
    pub(super) classes: &'a Classes,
    pub(super) links: &'a [Link],
    pub(super) demand: &'a [DemandChange],
    pub(super) duration: Ns,
    pub(super) report: &'a mut ReplayReport,
}

impl Builder<'_> {
    pub(super) fn build(mut self) -> Workload {
        let names = self.header.tasks.iter().map(|t| t.comm.as_str());
        let mut channels: Vec<ChannelSpec> =
            names.map(|name| ChannelSpec { name: name.to_owned(), ..ChannelSpec::default() }).collect();
        // Nobody ever sends here: a task waits on it when its recorded work is done for good.
        let never = ChannelId::from(channels.len());
        channels.push(ChannelSpec { name: "end of the recorded work".to_owned(), ..ChannelSpec::default() });
        for link in self.links {
            let name = |task: usize| &self.header.tasks[task].comm;
            let name = format!("{} works for {}", name(link.producer), name(link.consumer));
            channels.push(ChannelSpec { name, ..ChannelSpec::default() });
        }
        let mut sources = Vec::new();
        let mut tasks = Vec::new();
        for index in 0..self.lines.len() {
            let (task, arrivals) = self.task(index, never);
            if !arrivals.is_empty() {
                sources.push(SourceSpec {
                    name: format!("outside wakeups of {}", task.name),
                    into: ChannelId::from(index),
                    kind: SourceKind::Recorded { at: arrivals },
                    one_way: Draw::Fixed(Ns::ZERO),
                });
            }
            tasks.push(task);
        }
        let groups: Vec<GroupSpec> = self.header.groups.iter().map(|g| g.spec.clone()).collect();
        Workload { groups, tasks, channels, locks: 0, sources }
    }

    /// One task and the times at which the outside wakes it.
    fn task(&mut self, index: usize, never: ChannelId) -> (TaskSpec, Vec<Ns>) {
        let line = &self.lines[index];
        let info = &self.header.tasks[index];
        let mut ops = Vec::new();
        let mut arrivals = Vec::new();
        let scale = self.scale(&info.comm);
        for (number, activation) in line.activations.iter().enumerate() {
            if number > 0 {
                self.waits_for(index, activation, &mut ops, &mut arrivals);
            }
            self.work(activation, scale, &mut ops);
        }
        let program = self.program(index, ops, never);
        let mut task = TaskSpec::new(info.comm.clone(), program);
        task.process = info.pid;
        task.policy = info.policy;
        task.nice = info.nice;
        task.affinity = info.affinity;
        task.group = if self.header.groups.is_empty() { GroupId::ROOT } else { info.group };
        task.slice = info.slice;
        task.start = self.start(line);
        (task, arrivals)
    }

    /// The channel of a link: they come after those of the tasks and the one that nobody feeds.
    fn link(&self, link: u32) -> ChannelId {
        ChannelId::from(self.lines.len() + 1 + link as usize)
    }

    fn scale(&self, name: &str) -> (u64, u64) {
        let changes = self.demand.iter().filter(|change| change.task == name);
        changes.fold((1, 1), |(top, bottom), change| (top * change.times_permille, bottom * 1_000))
    }

    /// The first wakeup of a task that slept when the recording began has no recorded sleep before it that a
    /// dependency could end; it stays at its time.
    fn start(&self, line: &Line) -> Start {
        match line.activations.first() {
            None => Start::AsleepUntil(self.duration.saturating_add(Ns::from_s(3_600))),
            Some(Activation { origin: Origin::Initial, .. }) => Start::At(Ns::ZERO),
            Some(Activation { origin: Origin::Forked(Some(_)), .. }) => Start::Spawned,
            Some(Activation { origin: Origin::Forked(None), woken, .. }) => Start::At(*woken),
            Some(first) => Start::AsleepUntil(first.woken),
        }
    }

    /// What ends the sleep before an activation.
    fn waits_for(
        &mut self,
        index: usize,
        activation: &Activation,
        ops: &mut Vec<Op>,
        arrivals: &mut Vec<Ns>,
    ) {
        let report = &mut *self.report;
        match activation.origin {
            Origin::Task(_) => ops.push(Op::Receive(ChannelId::from(index))),
            Origin::Initial | Origin::Forked(_) => {}
            Origin::SoftIrq | Origin::HardIrq | Origin::Unknown => {
                let relative = match (activation.slept, self.classes.outside[index]) {
                    (Some((slept, PrevState::DiskSleep)), _) => {
                        report.device_sleeps += 1;
                        Some(slept)
                    }
                    (Some((slept, _)), Outside::Relative(why)) => {
                        match why {
                            Why::EqualSleeps => report.timer_sleeps += 1,
                            Why::Hungry => report.hungry_sleeps += 1,
                            Why::ClosedLoop => report.loop_sleeps += 1,
                        }
                        Some(slept)
                    }
                    _ => None,
                };
                match relative {
                    Some(slept) => ops.push(Op::Sleep(Amount::Fixed(slept))),
                    None => {
                        report.absolute_wakes += 1;
                        arrivals.push(activation.woken);
                        ops.push(Op::Receive(ChannelId::from(index)));
                    }
                }
            }
        }
    }

    /// The CPU time of an activation with its deeds in between.
    fn work(&mut self, activation: &Activation, (top, bottom): (u64, u64), ops: &mut Vec<Op>) {
        let scaled = |ns: Ns| Ns((u128::from(ns.0) * u128::from(top) / u128::from(bottom)) as u64);
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
    fn program(&mut self, index: usize, mut ops: Vec<Op>, never: ChannelId) -> Program {
        let line = &self.lines[index];
        let report = &mut *self.report;
        let Some(last) = line.activations.last() else {
            return Program::forever([Op::Receive(never)]);
        };
        if last.end == End::Exited {
            return Program { ops, repeat_from: None, draws: Vec::new() };
        }
        let total: Ns = line.activations.iter().map(|a| a.demand).sum();
        if last.end == End::Cut && last.demand * 2 > total {
            // What the recording's end cut off is most of what the task did: it has no end of demand.
            report.hogs.push(TaskId::from(index));
            let at = ops.len() as u32;
            ops.push(Op::Run(Amount::Fixed(CHUNK)));
            return Program { ops, repeat_from: Some(at), draws: Vec::new() };
        }
        let forks = ops.iter().any(|op| matches!(op, Op::Spawn(_)));
        let takes_time = ops.iter().any(|op| matches!(op, Op::Run(_) | Op::Sleep(_) | Op::Receive(_)));
        if forks || !takes_time {
            // A second round would create tasks that are there already.
            report.finite.push(TaskId::from(index));
            let at = ops.len() as u32;
            ops.push(Op::Receive(never));
            return Program { ops, repeat_from: Some(at), draws: Vec::new() };
        }
        // Across the seam it sleeps for as long as it did before its first and after its last activation.
        let first = line.activations.first().map_or(Ns::ZERO, |a| a.woken);
        let seam = first + line.slept_last;
        if seam > Ns::ZERO {
            ops.push(Op::Sleep(Amount::Fixed(seam)));
        }
        Program { ops, repeat_from: Some(0), draws: Vec::new() }
    }
}
