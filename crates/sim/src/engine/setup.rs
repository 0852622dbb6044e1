//! From the description of a machine and a workload to the state of a run.

use super::event_stream::EventStream;
use super::exchange::Exchanges;
use super::handoff::Handoffs;
use super::nohz::NohzFull;
use super::ops::Ops;
use super::preempt::Preempt;
use super::prices::Prices;
use super::slots::NEVER;
use super::slots::Slots;
use super::state::{
    Channel, Client, Cpu, Extra, Fifo, Mutex, Origin, Source, Task, TaskState, Token, Waits,
};
use super::{
    Clock, Due, Engine, Features, Input, Output, Queues, Step, Ticks, Told, Traffic, layout::Layout,
};
use crate::metrics::{ConservationMeter, PendingValues};
use crate::rng::{Entity, Stream};
use crate::{
    ChannelMetrics, CpuMetrics, Machine, Metrics, ObjectMetrics, RunOptions, SimError,
    SourceMetrics, TaskMetrics,
};
use schedlab_model::{
    CpuId, CpuRoles, CpuSet, EventSink, GroupId, GroupSpec, LockId, Ns, Op, Partition, SourceKind,
    Start, TaskSpec, Workload, random,
};
use schedlab_scheduler::{CpuView, GroupView, Needs, Out, Rejection, Scheduler, TaskView, World};
use std::collections::BinaryHeap;

impl<'a, S: EventSink, const FREE: bool> Engine<'a, S, FREE> {
    pub(crate) fn new(
        machine: &'a Machine,
        workload: &'a Workload,
        scheduler: &'a dyn Scheduler,
        options: &'a RunOptions,
        sink: &'a mut S,
    ) -> Result<Self, SimError> {
        let needs = scheduler.needs();
        let cpus = machine.topology.cpus();
        let mut world = world(machine, workload)?;
        draw_phases(&mut world, options);
        admit(scheduler, workload, &world)?;
        let traffic = traffic(workload, options.seed);
        let handoffs = Handoffs::new(workload, options.seed).map(Box::new);
        let threads = handoffs.as_ref().map_or(0, |handoffs| handoffs.threads());
        let exchange = Exchanges::new(workload).map(Box::new);
        let inside = (threads, exchange.as_ref().map_or(0, |exchange| exchange.executors()));
        let outside = (traffic.sources.len(), traffic.clients.len());
        let layout = Layout::new(cpus, workload.tasks.len(), outside, inside, &needs);
        let slots = Slots::new(cpus, workload.tasks.len(), layout.others());
        options.check(Ns(slots.latest()))?;
        let masks: Vec<CpuSet> = world.tasks.iter().map(|view| view.affinity).collect();
        let later = later_masks(workload, machine);
        let (tasks, ops) = tasks(workload, &world);
        let prices = Prices::new(&machine.costs, cpus, workload.tasks.len(), &needs).map(Box::new);
        let nohz = NohzFull::of(machine, &needs);
        let out = Out::new(options.seed);
        let out = if prices.is_some() { out.with_touches() } else { out };
        let steps_max = 1_000_000 + 1_000 * workload.tasks.len() as u64;
        Ok(Engine {
            clock: Clock { now: 0, end: options.duration.0, steps: 0, steps_max },
            input: Input { scheduler, workload, machine, options, costs: machine.costs },
            ticks: Ticks {
                wanted: needs.ticks,
                asked: needs.ticks && !options.every_tick,
                deferred: nohz.is_none() && prices.is_none(),
                followed: needs.ticks && (!options.every_tick || nohz.is_some()),
                handled: None,
            },
            told: Told::by(&needs, options.every_tick),
            due: due(slots, layout, usize::from(needs.global_timers)),
            queues: Queues::new(cpus),
            cpus: (0..cpus).map(|_| Cpu::new()).collect(),
            streams: (0..cpus).map(|cpu| Stream::new(options.seed, Entity::Cpu, cpu, 2)).collect(),
            tasks,
            ops,
            extras: extras(workload, options.seed),
            traffic,
            output: Output {
                metrics: metrics(workload, cpus),
                values: values(workload, options),
                conservation: ConservationMeter::new(&masks, &later, cpus),
                events: EventStream::new(sink),
            },
            features: Features {
                guest: None,
                handoffs,
                exchange,
                prices,
                preempt: Preempt::new(&machine.preemption, workload, cpus).map(Box::new),
                smt: super::smt::Smt::of(machine),
                nohz,
                call_cost: None,
                by_agents: Default::default(),
            },
            out,
            world,
        })
    }

    /// Lets the scheduler place what exists, and arms what comes first.
    pub(crate) fn start(&mut self) -> Step {
        self.input.scheduler.init(&self.cx(0));
        self.after_call(0, super::state::Cause::Other)?;
        for t in 0..self.tasks.len() {
            match self.input.workload.tasks[t].start {
                Start::At(at) => self.due.slots.arm(self.due.layout.task(t), at.0),
                Start::AsleepUntil(at) => {
                    let task = &mut self.tasks[t];
                    (task.state, task.bucket) = (TaskState::Blocked, super::state::Bucket::Sleep);
                    task.waits = Waits::Timer;
                    task.released = task.next_release(Waits::Timer, &self.ops);
                    self.due.slots.arm(self.due.layout.task(t), at.0);
                }
                Start::Spawned => {}
            }
        }
        self.start_exchanges();
        (0..self.traffic.sources.len()).for_each(|s| self.start_source(s));
        if self.input.options.warmup > Ns::ZERO {
            self.due.slots.arm(self.due.layout.warmup(), self.input.options.warmup.0);
        }
        (0..self.cpus.len()).for_each(|cpu| self.start_ticks(cpu));
        Ok(())
    }
}

/// Returns what is due, of which nothing is yet. `timers`: those of the scheduler that no CPU has.
fn due(slots: Slots, layout: Layout, timers: usize) -> Due {
    Due { slots, layout, batch: Vec::new(), batch_at: 0, global_armed_on: vec![0; timers] }
}

impl Queues {
    fn new(cpus: usize) -> Queues {
        let (resched, starts) = (Fifo::new(cpus), Fifo::new(cpus));
        Queues { resched, starts, calls: Fifo::new(cpus), cmds: Vec::new() }
    }
}

impl Told {
    /// Returns what a scheduler with these needs is told. With every tick the views are kept for
    /// all, so that stress finds a scheduler that reads them all the same.
    fn by(needs: &Needs, every_tick: bool) -> Told {
        Told {
            saved: needs.saved,
            user_returns: needs.user_returns,
            views: !needs.own_marks || every_tick,
        }
    }
}

/// Checks that the scheduler knows isolated CPUs, serves every policy, and these tasks together.
fn admit(scheduler: &dyn Scheduler, workload: &Workload, world: &World) -> Result<(), SimError> {
    if !scheduler.needs().isolation && !world.roles.isolated.is_empty() {
        return Err(SimError::Machine(format!(
            "CPUs {} are isolated (isolcpus, or a partition), which this scheduler does not \
             know, or not where it runs behind agents; linux-2.6.24 and later do in the kernel",
            world.roles.isolated
        )));
    }
    if !scheduler.needs().isolation
        && let Some(part) = world.partitions.first()
    {
        return Err(SimError::Machine(format!(
            "CPUs {part} are a partition, which this scheduler does not balance for itself, or \
             not where it runs behind agents; linux-2.6.24 and later do in the kernel"
        )));
    }
    if !scheduler.needs().nohz_full && !world.roles.nohz_full.is_empty() {
        return Err(SimError::Machine(format!(
            "CPUs {} are to run without ticks (nohz_full), which this scheduler does not know, or \
             not where it runs behind agents; linux-3.10 and later do in the kernel",
            world.roles.nohz_full
        )));
    }
    for task in &workload.tasks {
        if let Some(why) = scheduler.refuses(task.policy) {
            return Err(SimError::Refused { task: task.name.clone(), policy: task.policy, why });
        }
    }
    if let Some(Rejection { task, why }) = scheduler.rejects(world) {
        let task = task.map(|task| workload.tasks[task.index()].name.clone());
        return Err(SimError::Admission { task, why });
    }
    Ok(())
}

/// Draws when each CPU balanced its load last, for a run that begins midway.
fn draw_phases(world: &mut World, options: &RunOptions) {
    for (cpu, view) in world.cpus.iter_mut().enumerate().filter(|_| options.midway) {
        view.balance_phase = drawn(options.seed, cpu);
    }
}

/// Returns a number for a CPU that has nothing to do with that of another CPU or seed; never 0.
fn drawn(seed: u64, cpu: usize) -> u64 {
    let step = (cpu as u64 + 1).wrapping_mul(random::GOLDEN);
    random::mix(random::mix(seed.wrapping_add(random::GOLDEN)) ^ step).max(1)
}

/// Returns what schedulers see of a machine and a workload at the start.
pub(crate) fn world(machine: &Machine, workload: &Workload) -> Result<World, SimError> {
    let mut groups: Vec<GroupView> = workload
        .groups
        .iter()
        .map(|group| GroupView {
            parent: group.parent,
            weight: group.weight,
            idle: group.idle,
            bandwidth: group.bandwidth,
            autogroup: group.autogroup,
            cap_percent: group.cap_percent,
        })
        .collect();
    if groups.is_empty() {
        groups.push(GroupView::default());
    }
    let isolated = isolated(machine, workload);
    let view = |(i, spec)| {
        let affinity = allowed(spec, workload, machine);
        Ok(view(i, spec, affinity.ok_or_else(|| no_cpu(spec, &isolated))?))
    };
    Ok(World {
        tasks: workload.tasks.iter().enumerate().map(view).collect::<Result<_, SimError>>()?,
        roles: CpuRoles { isolated, ..machine.roles },
        partitions: partitions(workload, Partition::Root).collect(),
        cpus: machine.phases().into_iter().map(CpuView::new).collect(),
        groups,
        topology: machine.topology.clone(),
        hz: machine.hz,
        tick_ns: machine.tick_ns(),
    })
}

/// The CPUs that the balancer leaves alone: those of the machine, and those of partitions that are
/// isolated.
fn isolated(machine: &Machine, workload: &Workload) -> CpuSet {
    partitions(workload, Partition::Isolated)
        .fold(machine.roles.isolated, |all, part| all.or(&part))
        .and(&CpuSet::first(machine.topology.cpus()))
}

/// The CPUs of partitions of this kind.
fn partitions(workload: &Workload, kind: Partition) -> impl Iterator<Item = CpuSet> + '_ {
    let of_kind = move |group: &&GroupSpec| group.partition == kind;
    workload.groups.iter().filter(of_kind).filter_map(|group| group.cpus)
}

/// Where a task may run; `None`: nowhere.
///
/// A cpuset partition has its CPUs to itself. What may run everywhere, and has no cpuset, does not
/// run on CPUs of `isolcpus`: the first process has the others only, and all inherit from it
/// (`sched_init_smp`, kernel/sched/core.c).
fn allowed(spec: &TaskSpec, workload: &Workload, machine: &Machine) -> Option<CpuSet> {
    let everywhere = CpuSet::first(machine.topology.cpus());
    let (mut affinity, cpuset) = within_groups(spec, spec.affinity, workload, machine);
    if !cpuset && spec.affinity.and(&everywhere) == everywhere {
        affinity = affinity.without(&machine.roles.isolated);
    }
    (!affinity.is_empty()).then_some(affinity)
}

/// The masks that tasks ask for while they run.
fn later_masks(workload: &Workload, machine: &Machine) -> Vec<CpuSet> {
    let asked = workload.tasks.iter().flat_map(|spec| {
        let cpus = spec.program.ops.iter().filter_map(Op::cpus);
        cpus.map(move |cpus| within_groups(spec, cpus, workload, machine).0)
    });
    asked.filter(|mask| !mask.is_empty()).collect()
}

/// The CPUs of `affinity` on which a task's control groups let it run, and whether one of them has
/// CPUs of its own.
pub(super) fn within_groups(
    spec: &TaskSpec,
    affinity: CpuSet,
    workload: &Workload,
    machine: &Machine,
) -> (CpuSet, bool) {
    let mut affinity = affinity.and(&CpuSet::first(machine.topology.cpus()));
    let (mut own, mut cpuset) = (Vec::new(), false);
    let mut group: Option<GroupId> = Some(spec.group);
    while let Some(id) = group
        && let Some(spec) = workload.groups.get(id.index())
    {
        affinity = spec.cpus.map_or(affinity, |allowed| affinity.and(&allowed));
        cpuset |= spec.cpus.is_some();
        own.push(id.index());
        group = spec.parent;
    }
    let others = workload.groups.iter().enumerate().filter(|(i, _)| !own.contains(i));
    for (_, part) in others.filter(|(_, group)| group.partition != Partition::Member) {
        affinity = part.cpus.map_or(affinity, |cpus| affinity.without(&cpus));
    }
    (affinity, cpuset)
}

/// The error for a task that may run nowhere.
fn no_cpu(spec: &TaskSpec, isolated: &CpuSet) -> SimError {
    let (task, affinity) = (spec.name.clone(), spec.affinity);
    match isolated.is_empty() {
        true => SimError::Cpuset { task, affinity },
        false => SimError::Isolated { task, affinity, isolated: Box::new(*isolated) },
    }
}

fn view(index: usize, spec: &TaskSpec, affinity: CpuSet) -> TaskView {
    let first = affinity.lowest().unwrap_or(CpuId(0));
    let old_sleeper = matches!(spec.start, Start::AsleepUntil(_));
    let mut view = TaskView::default();
    view.alive = old_sleeper;
    view.old_sleeper = old_sleeper;
    view.policy = spec.policy;
    view.nice = spec.nice;
    view.group = spec.group;
    view.process = if spec.process == u32::MAX { u32::MAX - index as u32 } else { spec.process };
    view.slice = spec.slice;
    view.name = spec.name.as_str().into();
    view.affinity = affinity;
    view.soft_affinity = spec.soft_affinity;
    view.began_on = spec.began_on.filter(|cpu| affinity.contains(*cpu));
    view.set_last_cpu(view.began_on.unwrap_or(first));
    view
}

/// Returns the records of the tasks, and the operations of their programs.
fn tasks(workload: &Workload, world: &World) -> (Vec<Task>, Ops) {
    let all = world.all_cpus();
    let mut ops = Ops::with_room(workload.tasks.iter().map(|task| task.program.ops.len()).sum());
    let task = |(spec, view): (&TaskSpec, _)| {
        let place = ops.add(&spec.program);
        Task::new(&spec.program, place, view, &all)
    };
    let tasks = workload.tasks.iter().zip(&world.tasks).map(task).collect();
    (tasks, ops)
}

fn values(workload: &Workload, options: &RunOptions) -> PendingValues {
    if options.sums_only { PendingValues::none() } else { PendingValues::new(workload.tasks.len()) }
}

fn extras<'a>(workload: &'a Workload, seed: u64) -> Vec<Extra<'a>> {
    let extra = |(i, spec): (usize, &'a TaskSpec)| {
        let repeats = spec.program.ops.iter().any(|op| matches!(op, Op::Repeat { .. }));
        Extra {
            stream: Stream::new(seed, Entity::Task, i, spec.program.draws.len()),
            program: &spec.program,
            debt: 0,
            worked: 0,
            realtime: spec.policy.is_realtime(),
            saving_until: 0,
            born: 0,
            lived: 0,
            yields: 0,
            came_back: 0,
            held_back: (0, 0),
            batch: 0,
            loops: vec![0; if repeats { spec.program.ops.len() } else { 0 }],
            cursors: spec.program.branches.iter().map(|branch| branch.from).collect(),
            serving: false,
            stolen: 0,
            device: None,
            deferred: None,
        }
    };
    workload.tasks.iter().enumerate().map(extra).collect()
}

/// Returns what tasks wait for besides time and the CPU, and who sends to them.
fn traffic(workload: &Workload, seed: u64) -> Traffic {
    let (sources, clients, first_client) = sources(workload, seed);
    let (channels, locks) = (channels(workload), locks(workload));
    Traffic { channels, locks, sources, clients, first_client }
}

fn channels(workload: &Workload) -> Vec<Channel> {
    let mut channels: Vec<Channel> = workload
        .channels
        .iter()
        .map(|spec| Channel {
            capacity: spec.capacity,
            len: u64::from(spec.initial),
            ..Channel::default()
        })
        .collect();
    let ops = workload.tasks.iter().flat_map(|task| &task.program.ops);
    for op in ops {
        if let Op::Done(channel) | Op::Serve { channel, .. } = op {
            channels[channel.index()].tracked = true;
        }
    }
    for channel in &mut channels {
        if channel.tracked && channel.len > 0 {
            let count = channel.len as u32;
            channel.queue.push_back(Token { origin: Origin::Inside, sent: 0, entered: 0, count });
        }
    }
    channels
}

/// Returns the sources, the clients of the closed-loop ones, and the first client of each source.
fn sources(workload: &Workload, seed: u64) -> (Vec<Source>, Vec<Client>, Vec<usize>) {
    let (mut sources, mut clients, mut first) = (Vec::new(), Vec::new(), Vec::new());
    for (s, spec) in workload.sources.iter().enumerate() {
        first.push(clients.len());
        // Index 0 is the source's own stream, the clients follow.
        let stream = |i: usize| Stream::new(seed, Entity::Source, (s << 32) | i, 2);
        sources.push(Source {
            stream: stream(0),
            next_send: NEVER,
            next_index: 0,
            flying: BinaryHeap::new(),
            sends: 0,
        });
        if let SourceKind::Closed { clients: count, .. } = spec.kind {
            clients.extend((0..count as usize).map(|i| Client {
                source: s as u32,
                stream: stream(i + 1),
                sent: 0,
            }));
        }
    }
    (sources, clients, first)
}

fn metrics(workload: &Workload, cpus: usize) -> Metrics {
    let task = |spec: &TaskSpec| TaskMetrics { name: spec.name.clone(), ..TaskMetrics::default() };
    Metrics {
        tasks: workload.tasks.iter().map(task).collect(),
        cpus: vec![CpuMetrics::default(); cpus],
        sources: workload
            .sources
            .iter()
            .map(|spec| SourceMetrics { name: spec.name.clone(), ..SourceMetrics::default() })
            .collect(),
        channels: workload
            .channels
            .iter()
            .map(|spec| ChannelMetrics { name: spec.name.clone(), ..ChannelMetrics::default() })
            .collect(),
        objects: workload
            .exchange
            .objects
            .iter()
            .map(|spec| ObjectMetrics { name: spec.name.clone(), ..ObjectMetrics::default() })
            .collect(),
        ..Metrics::default()
    }
}

fn locks(workload: &Workload) -> Vec<Mutex> {
    let inherits = |lock| workload.inheriting_locks.contains(&LockId(lock));
    (0..workload.locks).map(|lock| Mutex { inherits: inherits(lock), ..Mutex::default() }).collect()
}
