//! From the facts of a recording to a workload, in three stages whose types cannot be mixed:
//! [`facts`] (what each task did, immutable), [`graph`] (objects, who reads and writes them, whose
//! threads share their work), and the programs of the [`Workload`]. Which task waits for which is
//! written nowhere: it is a result of the simulation.
//!
//! # Rules
//! * An object's account closes: what is in it at the start is the least for which no receive comes
//!   before its bytes.
//! * A send counts from the moment in which it woke its receiver; without one, from its end.
//! * Bytes that no recorded task sent come from outside, at their times.
//! * A thread that waits for many objects is an executor with a coroutine for each; threads that
//!   read the same object are one. Where one of these waits at a futex and then looks or reads, it
//!   waited for work, and for no message. A thread that reads from one connection only, and waits
//!   at futexes more often than it looks, does one thing after the other.
//! * A datagram is taken whole. How many of them a thread finds at once is a result of the
//!   schedule: each is answered before the next is taken ([`batches`]). Sockets of datagrams with
//!   the same ends are one mailbox ([`mailboxes`]).
//! * What a loop does after its time was over and it found nothing belongs to its timer.
//! * What a thread did before it first waited for many objects it does once.
//! * Programs begin again when they are done, with what was in flight made good. A task that was
//!   born in the recording begins again at its birth, and its times count from there; one that
//!   ended too lives again when its creator creates it again ([`lives`]).
//! * What a task did that is stopped at the end of the recording, or sleeps there for more than
//!   half of it, or in its first wait since its birth, it did once.
//! * What an event loop sends over a connection from which it read nothing in that activation was
//!   caused by the oldest message that it has read and not acted on ([`pairing`]).
//! * A send costs more where it ends a wait, and where it is the first one of an activation, by as
//!   much as such sends cost more in the recording ([`prices`]).
//! * The recorder's own work follows from how much is recorded ([`recorder`]).
//! * A wait without a fact that a recorded task ended is a token from that task; one that ended
//!   otherwise ends at its time, or lasts as long as the device took.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod batches;
mod executors;
pub mod facts;
pub mod graph;
pub mod lives;
mod mailboxes;
mod pairing;
mod ports;
mod prices;
mod recorder;
mod report;
mod stalls;
mod steps;

use executors::Deed;
use facts::Facts;
use graph::{Graph, Object};
use lives::Lives;
pub use report::Report;
use schedlab_model::{
    Act, ChannelId, ChannelSpec, Exchange, ExecutorId, FactKind, GroupId, GroupSpec, Handoff,
    Holds, Ns, ObjectId, ObjectInfo, ObjectKind, ObjectSpec, Op, Program, Room, Script, ScriptId,
    Start, TaskId, TaskSpec, Workload,
};
use schedlab_trace::replay::RecorderCost;
use schedlab_trace::siblings::Speed;
use schedlab_trace::{Capability, Recording};
pub use stalls::{Stall, stalls};
use std::collections::BTreeSet;
use steps::Steps;

/// Threads over which a runtime multiplexes its work, and how they take over from each other: what
/// no fact says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Runtime {
    /// How many of them work at a time.
    pub lanes: usize,
    /// The channel in it is ignored.
    pub handoff: Handoff,
}

/// A recording as a workload of messages.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Tasks have the ids and names of the recording.
    pub workload: Workload,
    /// What it is made of.
    pub report: Report,
}

/// Returns the workload of a recording with facts; `None` when it has none. `recorder`: the price
/// of the recorder, which is taken out of the demand. `beside`: the speed of a hardware thread
/// beside a busy one of its core. `runtimes`: those of its threads that take over from each other.
pub fn replay(
    recording: &Recording,
    recorder: RecorderCost,
    beside: Speed,
    runtimes: &[Runtime],
) -> Option<Replayed> {
    if !recording.header.capabilities.has(Capability::Messages) {
        return None;
    }
    let mut facts = Facts::from_recording(recording, recorder, beside);
    let apart = facts.tell_ports_apart();
    let graph = Graph::from_facts(&facts, recording);
    let lives = Lives::from_facts(&facts, &graph);
    let mut programs = Programs::new(&facts, &graph, &lives, recording, runtimes);
    programs.report.apart = apart
        .into_iter()
        .map(|(task, sockets)| (recording.task(task).program().to_owned(), sockets))
        .collect();
    Some(programs.replayed())
}

/// What becomes the programs of a workload.
struct Programs<'a> {
    steps: Steps<'a>,
    recording: &'a Recording,
    exchange: Exchange,
    /// By task.
    programs: Vec<Program>,
    runtimes: &'a [Runtime],
    /// Those of executors, with the channel in which the parked threads of each wait.
    handoffs: Vec<Handoff>,
    report: Report,
}

impl<'a> Programs<'a> {
    fn new(
        facts: &'a Facts,
        graph: &'a Graph,
        lives: &'a Lives,
        recording: &'a Recording,
        runtimes: &'a [Runtime],
    ) -> Programs<'a> {
        let mut programs = Programs {
            steps: Steps {
                facts,
                graph,
                lives,
                balances: steps::balances(facts, graph, lives),
                drains: recorder::drains(facts, lives, recording),
                requests: requests(&recording.facts),
                arrivals: Vec::new(),
                on_behalf: 0,
                unexplained: 0,
            },
            recording,
            exchange: Exchange::default(),
            programs: vec![Program::default(); facts.tasks.len()],
            runtimes,
            handoffs: Vec::new(),
            report: Report::default(),
        };
        for threads in graph.groups() {
            programs.program(&threads);
        }
        programs
    }

    /// Makes the program of threads that share their work, or of one alone.
    fn program(&mut self, threads: &[TaskId]) {
        if lives::attend(self.steps.facts, self.steps.graph, threads) {
            self.attend(threads);
            return;
        }
        for &task in threads {
            self.play(task);
        }
    }

    /// Makes the script of a task.
    fn play(&mut self, task: TaskId) {
        let of = &self.steps.facts.tasks[task.index()];
        let mut script = steps::sequence(&mut self.steps, task, of);
        let exit = self.exit(task, true).map(Op::Play);
        if script.steps.is_empty() {
            self.programs[task.index()] = Program::once(exit);
            return;
        }
        let waits = |step: &schedlab_model::Step| {
            !matches!(step.act, Act::Send { .. } | Act::Spawn(_) | Act::Drain { .. } | Act::Nothing)
        };
        if !of.ended() && !script.steps.iter().any(waits) {
            self.report.endless.push(task);
        }
        script.balance = self.steps.balance(&[task]);
        script.wake = prices::of_script(&script.steps);
        let id = ScriptId::from(self.exchange.scripts.len());
        self.exchange.scripts.push(script);
        self.programs[task.index()] = Program::once([Op::Play(id)].into_iter().chain(exit));
    }

    /// Makes the executor of threads that wait for many objects.
    fn attend(&mut self, threads: &[TaskId]) {
        let facts = self.steps.facts;
        let ran = |task: &TaskId| std::cmp::Reverse(facts.tasks[task.index()].ran);
        let born = |task: &TaskId| facts.tasks[task.index()].born();
        let mut lanes = threads.to_vec();
        lanes.sort_by_key(ran);
        // Work that was there from the start begins then, even if that is what creates the others.
        if let Some(first) = (0..lanes.len()).min_by_key(|&lane| born(&lanes[lane])) {
            lanes[..=first].rotate_right(1);
        }
        let cpus = self.recording.header.topology.cpus();
        let info = &self.recording.header.tasks[lanes[0].index()];
        let may_run = (0..cpus).filter(|&cpu| info.affinity.contains(cpu.into())).count();
        let runtime = self.runtimes.iter().find(|runtime| {
            let of = |task: &&TaskId| runtime.handoff.threads.contains(task);
            threads.iter().filter(of).count() > runtime.lanes
        });
        let at_once = runtime.map_or(may_run, |runtime| runtime.lanes.min(may_run));
        lanes.truncate(at_once.max(1));
        let deeds: Vec<Deed> = executors::merged(&self.steps, threads);
        let name = info.comm.clone();
        let executor =
            executors::executor(&mut self.steps, &self.recording.facts, &name, threads, &deeds);
        if threads.len() > 1 {
            self.report.shared.push((name, threads.len(), lanes.len()));
        }
        let id = ExecutorId::from(self.exchange.executors.len());
        self.exchange.executors.push(executor);
        for &task in threads {
            let begin = self.begin(task).map(Op::Play);
            let attends = lanes.contains(&task).then_some(Op::Attend(id));
            let exit = self.exit(task, attends.is_some()).map(Op::Play);
            let ops = begin.into_iter().chain(attends).chain(exit);
            self.programs[task.index()] = Program::once(ops);
        }
        if let Some(runtime) = runtime {
            let parked = ChannelId::from(self.handoffs.len());
            for task in threads.iter().filter(|task| !lanes.contains(task)) {
                self.programs[task.index()] = Program::parked(parked);
            }
            let threads = threads.to_vec();
            self.handoffs.push(Handoff { threads, parked, ..runtime.handoff.clone() });
        }
    }

    /// Returns what a thread of an executor does once, before it attends.
    fn begin(&mut self, task: TaskId) -> Option<ScriptId> {
        let operations = self.steps.lives.begin(self.steps.facts, task);
        let (steps, rest) = steps::played(&mut self.steps, task, operations);
        let rest = schedlab_model::Step::new(rest, Act::Nothing, Ns::ZERO);
        let steps: Vec<_> = steps.into_iter().chain([rest]).collect();
        let id = ScriptId::from(self.exchange.scripts.len());
        (!operations.is_empty())
            .then(|| self.exchange.scripts.push(Script { steps, ..Script::default() }))
            .map(|()| id)
    }

    /// Returns what a task does at its end, where another task waits for that; `works`: what it
    /// does comes before it, else it comes when its life is over.
    fn exit(&mut self, task: TaskId, works: bool) -> Option<ScriptId> {
        let of = &self.steps.facts.tasks[task.index()];
        let object = *self.steps.graph.exits.get(&task).filter(|_| of.ended())?;
        let act = |act| schedlab_model::Step::new(Ns::ZERO, act, Ns::ZERO);
        let life = act(Act::SleepUntil(of.life(self.steps.facts.duration)));
        let end = act(Act::Send { object, amount: 1 });
        let steps = if works { vec![end] } else { vec![life, end] };
        let id = ScriptId::from(self.exchange.scripts.len());
        self.exchange.scripts.push(Script { steps, ..Script::default() });
        Some(id)
    }

    fn replayed(mut self) -> Replayed {
        self.report.note(&self.steps, self.recording, &self.exchange);
        let report = std::mem::take(&mut self.report);
        Replayed { workload: self.workload(), report }
    }

    /// Returns the tasks that a program creates.
    fn spawned(&self) -> BTreeSet<TaskId> {
        let scripts = self.exchange.scripts.iter().flat_map(|script| &script.steps);
        let coroutines = self.exchange.executors.iter().flat_map(|executor| &executor.coroutines);
        let acts = scripts.map(|step| step.act);
        let acts =
            acts.chain(coroutines.flat_map(|coroutine| &coroutine.steps).map(|step| step.step.act));
        acts.filter_map(|act| if let Act::Spawn(child) = act { Some(child) } else { None })
            .collect()
    }

    fn workload(mut self) -> Workload {
        let spawned = self.spawned();
        let (facts, graph) = (self.steps.facts, self.steps.graph);
        let mut arrivals = std::mem::take(&mut self.steps.arrivals);
        arrivals.sort_by_key(|arrival| arrival.at);
        self.exchange.arrivals = arrivals;
        let requests = std::mem::take(&mut self.steps.requests);
        let name = |number: usize| self.name(number);
        self.exchange.objects = (0..graph.objects.len())
            .map(|n| spec(&facts.objects, (graph, &requests), n, name(n)))
            .collect();
        let header = &self.recording.header;
        let handoffs = std::mem::take(&mut self.handoffs);
        let tasks = header.tasks.iter().enumerate().map(|(number, info)| {
            let own = &facts.tasks[number];
            let program = std::mem::take(&mut self.programs[number]);
            let mut task = TaskSpec::new(info.comm.clone(), program);
            task.process = info.pid;
            task.policy = info.policy;
            task.nice = info.nice;
            task.affinity = info.affinity;
            task.group = if header.groups.is_empty() { GroupId::ROOT } else { info.group };
            task.slice = info.slice;
            let parked = |handoff: &Handoff| task.program.receives_only(handoff.parked);
            let is_parked = handoffs.iter().any(parked);
            task.start = match own.created {
                _ if is_parked => Start::AsleepUntil(Ns::ZERO),
                Some(_) if spawned.contains(&number.into()) => Start::Spawned,
                Some(at) => Start::At(at),
                None => Start::AsleepUntil(own.first_seen.unwrap_or(facts.duration)),
            };
            task.began_on = own.first_cpu.filter(|_| own.created.is_none());
            task
        });
        let tasks = tasks.collect();
        let groups: Vec<GroupSpec> = header.groups.iter().map(|group| group.spec.clone()).collect();
        let name = |handoff: &Handoff| {
            let thread = handoff.threads.first().map_or(0, |thread| thread.index());
            format!("{} has no work for this thread", header.tasks[thread].comm)
        };
        let channels = handoffs
            .iter()
            .map(|handoff| ChannelSpec { name: name(handoff), ..ChannelSpec::default() });
        let channels = channels.collect();
        Workload {
            groups,
            tasks,
            channels,
            handoffs,
            exchange: self.exchange,
            ..Workload::default()
        }
    }

    /// Returns the name of an object in reports.
    fn name(&self, number: usize) -> String {
        match self.steps.facts.objects.get(number) {
            Some(info) if info.to.is_empty() => info.kind.word().to_owned(),
            Some(info) => format!("{} {} to {}", info.kind.word(), info.from, info.to),
            None => "a wakeup or an exit".to_owned(),
        }
    }
}

/// The least that a pipe can have room for (Linux 6.12: fs/pipe.c, `round_pipe_size`; x86-64).
const PAGE: u64 = 4_096;

/// Returns what the simulator is to know of an object.
fn spec(
    objects: &[ObjectInfo],
    (graph, requests): (&Graph, &BTreeSet<ObjectId>),
    number: usize,
    name: String,
) -> ObjectSpec {
    let object: &Object = &graph.objects[number];
    let info = objects.get(number);
    let kind = info.map(|info| info.kind);
    let holds = if object.lock {
        Holds::Lock { wakers: object.writers.keys().copied().collect() }
    } else if object.messages {
        Holds::Queue
    } else if object.futex || kind.is_none() {
        Holds::Tokens
    } else {
        Holds::Stream
    };
    let sync = matches!(
        kind,
        Some(
            ObjectKind::Tcp
                | ObjectKind::Udp
                | ObjectKind::Unix
                | ObjectKind::UnixDatagram
                | ObjectKind::Socket
                | ObjectKind::Pipe
        )
    );
    // A pipe's writer goes on when a slot is free, that of a Unix socket when a quarter is left
    // (Linux 6.12: fs/pipe.c, `unix_writable` in net/unix/af_unix.c).
    // A pipe has room for a page at least: what slept in a write to one with less in it waited for
    // something else.
    let least = if kind == Some(ObjectKind::Pipe) { PAGE } else { 1 };
    let room = object.full_at.filter(|&full| full >= least).map(|full| {
        let capacity = full.max(object.at_start);
        let resume_at = if kind == Some(ObjectKind::Unix) { capacity / 4 } else { capacity - 1 };
        Room { capacity, resume_at }
    });
    let answered_in = info.and_then(|info| info.peer).filter(|_| requests.contains(&number.into()));
    // What no recorded task sent comes at its times.
    let initial = if object.lock || !object.has_sender() { 0 } else { object.at_start };
    ObjectSpec { name, holds, initial, room, sync, answered_in }
}

/// Returns the objects in which requests come: from a connection that was accepted, or towards an
/// end that was listened at.
fn requests(facts: &schedlab_trace::Facts) -> BTreeSet<ObjectId> {
    let listeners = facts.objects.iter().filter(|object| object.kind == ObjectKind::Listener);
    let names: BTreeSet<&str> = listeners.map(|object| object.to.as_str()).collect();
    let asked = |to: &str| !to.is_empty() && names.contains(to);
    let objects = facts.objects.iter().enumerate().filter(|(_, object)| asked(&object.to));
    let accepted = facts.list.iter().filter_map(|fact| match fact.kind {
        FactKind::Accept { object, .. } => Some(object),
        _ => None,
    });
    objects.map(|(number, _)| ObjectId::from(number)).chain(accepted).collect()
}
