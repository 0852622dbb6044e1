//! The event loop.

mod account;
mod agents;
mod attributes;
mod channels;
mod commands;
mod dispatch;
mod event_stream;
mod exchange;
mod fast_path;
mod finish;
mod handoff;
mod layout;
mod locks;
mod nohz;
mod ops;
mod preempt;
mod prices;
mod program;
mod setup;
mod slots;
mod smt;
mod sources;
mod state;
mod ticks;
pub(crate) mod vcpu;
mod wake;

use crate::metrics::{ConservationMeter, PendingValues};
use crate::rng::Stream;
use crate::stop::Watch;
use crate::{Costs, Machine, Metrics, Outcome, RunOptions, SimError};
use event_stream::EventStream;
use layout::{Fires, Layout};
use ops::Ops;
use schedlab_model::{CpuId, EventKind, EventSink, Ns, TaskId, Workload};
use schedlab_scheduler::{Cmd, Cx, Out, Scheduler, World};
pub(crate) use setup::world;
use slots::{First, NEVER, OfCpu, PER_CPU, Slots};
use state::{Channel, Client, Cpu, Extra, Fifo, Mutex, Source, Task};

/// The result of the engine's parts: the error is boxed, it is never on the fast path.
pub(crate) type Step<T = ()> = Result<T, Box<SimError>>;

/// Runs `workload` on `machine` under `scheduler` and hands every event to `sink`.
///
/// # Errors
/// Bad input (workload, machine, a circle of wakeups in which no time passes) and a scheduler that
/// breaks its contract, each as a [`SimError`] that names the culprit.
pub fn run(
    machine: &Machine,
    workload: &Workload,
    scheduler: &dyn Scheduler,
    options: &RunOptions,
    mut sink: &mut dyn EventSink,
) -> Result<Outcome, SimError> {
    machine.check()?;
    workload.check(machine.topology.cpus())?;
    let cpus = machine.topology.cpus();
    machine.preemption.check(workload, cpus).map_err(SimError::Machine)?;
    let hands_over = !workload.handoffs.is_empty();
    let exchanges = !workload.exchange.is_empty();
    let free =
        machine.is_free() && !hands_over && !exchanges && !machine.preemption.matters(workload);
    // Four engines, compiled once, here: with one for each caller's sink they were a fifth of the
    // build.
    match (free && !options.plain_path, sink.ignores_all()) {
        (true, true) => {
            Engine::<(), true>::new(machine, workload, scheduler, options, &mut ())?.run()
        }
        (false, true) => {
            Engine::<(), false>::new(machine, workload, scheduler, options, &mut ())?.run()
        }
        (true, false) => {
            Engine::<_, true>::new(machine, workload, scheduler, options, &mut sink)?.run()
        }
        (false, false) => {
            Engine::<_, false>::new(machine, workload, scheduler, options, &mut sink)?.run()
        }
    }
}

/// The state of a run. `FREE`: all costs and delays of the machine are zero, so a decision takes
/// effect in the instant in which it is asked for; what only prices need is then left out when this
/// is compiled.
pub(crate) struct Engine<'a, S, const FREE: bool> {
    clock: Clock,
    input: Input<'a>,
    ticks: Ticks,
    told: Told,
    /// What the scheduler sees, and what it asks for.
    world: World,
    out: Out,
    due: Due,
    queues: Queues,
    cpus: Vec<Cpu>,
    /// Random streams of the CPUs, for delays that vary.
    streams: Vec<Stream>,
    tasks: Vec<Task>,
    ops: Ops,
    extras: Vec<Extra<'a>>,
    traffic: Traffic,
    output: Output<'a, S>,
    features: Features<'a>,
}

/// The time of a run.
struct Clock {
    now: u64,
    /// Events at this time or later do not happen.
    end: u64,
    /// Steps since time passed last, and how many are too many.
    steps: u64,
    steps_max: u64,
}

/// What a run is made of. It does not change.
struct Input<'a> {
    scheduler: &'a dyn Scheduler,
    workload: &'a Workload,
    machine: &'a Machine,
    options: &'a RunOptions,
    costs: Costs,
}

/// The tick edges that are delivered.
struct Ticks {
    /// The scheduler needs ticks.
    wanted: bool,
    /// Edges that cannot matter are left out: the scheduler is asked.
    asked: bool,
    /// What costs time changes nothing of the answer: it may come when the edge does.
    deferred: bool,
    /// A change of a queue is followed: edges are left out, or ticks stop (`nohz_full`).
    followed: bool,
    /// The CPU whose tick is being handled.
    handled: Option<usize>,
}

/// What the scheduler is told beside wakeups and decisions.
struct Told {
    /// When a context is saved.
    saved: bool,
    /// When a task returns from the kernel to user code.
    user_returns: bool,
    /// In the views of tasks, what changes as they run.
    views: bool,
}

/// What fires, and when.
struct Due {
    slots: Slots,
    layout: Layout,
    /// The slots of the present instant (arming sequence, number), and the index of the next one to
    /// be served.
    batch: Vec<(u64, u32)>,
    batch_at: usize,
    /// By global timer: the CPU that armed it last.
    global_armed_on: Vec<u32>,
}

/// What is to be done in the present instant.
struct Queues {
    /// CPUs that decide.
    resched: Fifo<u32>,
    /// CPUs whose programs go on.
    starts: Fifo<u32>,
    /// Function calls: CPU and cookie.
    calls: Fifo<(CpuId, u64)>,
    /// Commands of the call that was made last; empty but for its room.
    cmds: Vec<Cmd>,
}

impl Queues {
    #[inline]
    fn are_empty(&self) -> bool {
        self.resched.is_empty() & self.starts.is_empty() & self.calls.is_empty()
    }
}

/// What tasks wait for, and what comes from outside.
struct Traffic {
    channels: Vec<Channel>,
    locks: Vec<Mutex>,
    sources: Vec<Source>,
    clients: Vec<Client>,
    /// First client of every closed-loop source.
    first_client: Vec<usize>,
}

/// What a run gives back.
struct Output<'a, S> {
    metrics: Metrics,
    /// Values on their way into the metrics.
    values: PendingValues,
    conservation: ConservationMeter,
    events: EventStream<'a, S>,
}

/// What only some runs have.
struct Features<'a> {
    /// The CPUs are vCPUs, which do not always run.
    guest: Option<Box<vcpu::GuestCpus>>,
    /// Threads hand their work to each other.
    handoffs: Option<Box<handoff::Handoffs<'a>>>,
    /// Tasks exchange messages at objects.
    exchange: Option<Box<exchange::Exchanges<'a>>>,
    /// The scheduler's work has a price.
    prices: Option<Box<prices::Prices>>,
    /// Tasks are in the kernel at times, where they cannot always be preempted.
    preempt: Option<Box<preempt::Preempt>>,
    /// Hardware threads of one core slow each other.
    smt: Option<Box<smt::Smt>>,
    /// CPUs have no ticks at times.
    nohz: Option<Box<nohz::NohzFull>>,
    /// Delegation: the scheduler writes here what a call took on its CPU.
    call_cost: Option<&'a std::cell::Cell<u64>>,
    /// Delegation: tasks that the scheduler behind the agents has throttled.
    by_agents: std::collections::BTreeSet<TaskId>,
}

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// The context of a call on `cpu`.
    #[inline]
    fn cx(&self, cpu: usize) -> Cx<'_> {
        Cx { now: Ns(self.clock.now), cpu: CpuId(cpu as u32), world: &self.world, out: &self.out }
    }

    fn run(mut self) -> Result<Outcome, SimError> {
        self.start()
            .and_then(|()| self.drive())
            .and_then(|()| self.finish())
            .map_err(|error| *error)
    }

    fn drive(&mut self) -> Step {
        let mut watch = Watch::new(self.input.options);
        loop {
            let first = self.due.slots.top();
            let at = self.due.slots.time(first);
            if at >= self.clock.end {
                break;
            }
            watch.instant()?;
            self.go_to(at);
            self.instant(first)?;
        }
        self.go_to(self.clock.end);
        Ok(())
    }

    /// Time goes on.
    #[inline]
    fn go_to(&mut self, at: u64) {
        if at > self.clock.now {
            self.output.conservation.advance(
                self.clock.now,
                at,
                &mut self.output.metrics.work_conservation,
            );
            self.clock.now = at;
            self.clock.steps = 0;
        }
    }

    /// Everything that happens now; `first` is the key of the slot that fires first.
    #[inline(always)]
    fn instant(&mut self, first: u64) -> Step {
        self.due.slots.enter(self.clock.now);
        let decides = self.drain(first)?;
        self.rest_of_instant(decides)
    }

    /// `decides`: the CPU that decides at once.
    #[inline(always)]
    fn rest_of_instant(&mut self, mut decides: Option<usize>) -> Step {
        loop {
            if let Some(cpu) = decides {
                if FREE { self.decide_fast(cpu)? } else { self.decide(cpu)? }
            }
            // Mostly nothing else happens in an instant.
            if self.instant_is_over() {
                return Ok(());
            }
            decides = self.next_step()?;
        }
    }

    /// Nothing is left to do in this instant.
    #[inline]
    fn instant_is_over(&self) -> bool {
        !self.due.slots.more() && self.queues.are_empty()
    }

    /// Does what comes next in this instant. Gives the CPU that decides, if that is a decision.
    #[inline(never)]
    fn next_step(&mut self) -> Step<Option<usize>> {
        if self.due.slots.more() {
            return match self.due.slots.another() {
                Some(first) => self.drain(first),
                None => Ok(None),
            };
        }
        if let Some((cpu, cookie)) = self.queues.calls.pop() {
            self.call(cpu, cookie)?;
        } else if let Some(cpu) = self.queues.resched.pop() {
            return Ok(Some(cpu as usize));
        } else if let Some(cpu) = self.queues.starts.pop() {
            self.go_on(cpu as usize)?;
        }
        Ok(None)
    }

    /// A function call that the scheduler asked for has come to `cpu`.
    #[inline(never)]
    fn call(&mut self, cpu: CpuId, cookie: u64) -> Step {
        self.count_step(None)?;
        if !FREE && self.features.guest.is_some() && self.keep_call(cpu, cookie) {
            return Ok(());
        }
        self.input.scheduler.call(&self.cx(cpu.index()), cookie);
        self.after_call(cpu.index(), state::Cause::Other)
    }

    /// Serves what fires in this instant, in order. Here alone, so that the most frequent events
    /// are inlined. Gives the CPU that decides at once.
    #[inline(always)]
    fn drain(&mut self, first: u64) -> Step<Option<usize>> {
        let (first, another) = self.due.slots.begin(first);
        if another || (!FREE && self.features.guest.is_some()) {
            self.due.slots.collect(first, &mut self.due.batch);
            self.serve_batch()?;
            return Ok(None);
        }
        match first {
            First::Task(task) if FREE => self.wake_fast(task)?,
            First::Task(task) => self.task_timer(task)?,
            First::Cpu(cpu, 0) if FREE => {
                if self.work_done_fast(cpu)? {
                    return Ok(self.decides(cpu));
                }
            }
            First::Cpu(cpu, 0) => self.work_done(cpu)?,
            First::Cpu(cpu, which) if FREE && which == OfCpu::Slice as usize => {
                self.cpus[cpu].slice_armed = false;
                return Ok(self.decides(cpu));
            }
            First::Cpu(cpu, which) if which == OfCpu::Slice as usize => self.slice_over(cpu),
            First::Cpu(cpu, which) => self.fire_alone(PER_CPU * cpu + which)?,
            First::Other(slot) => self.fire_alone(slot)?,
        }
        Ok(None)
    }

    /// `cpu` has to decide because of what fired alone in this instant: gives it back if nothing
    /// goes before, as mostly, and puts it into the queue otherwise.
    #[inline(always)]
    fn decides(&mut self, cpu: usize) -> Option<usize> {
        let first = !self.due.slots.more()
            && self.queues.resched.is_empty()
            && self.queues.calls.is_empty();
        if !first {
            self.enqueue(cpu);
        }
        first.then_some(cpu)
    }

    /// Nothing else fires in this instant, but a tick may put the tick of a higher CPU into the
    /// empty batch.
    fn fire_alone(&mut self, slot: usize) -> Step {
        self.fire(slot)?;
        if self.due.batch.is_empty() { Ok(()) } else { self.serve_batch() }
    }

    #[inline(never)]
    fn serve_batch(&mut self) -> Step {
        while let Some(slot) = self.next_of_batch() {
            self.fire(slot)?;
        }
        Ok(())
    }

    /// Returns the next slot of the batch that is still to be served.
    #[inline]
    fn next_of_batch(&mut self) -> Option<usize> {
        while let Some(&(seq, slot)) = self.due.batch.get(self.due.batch_at) {
            self.due.batch_at += 1;
            if !FREE && self.features.guest.is_some() && self.hold(seq, slot) {
                continue;
            }
            if self.due.slots.is_current(seq, slot as usize) {
                return Some(slot as usize);
            }
        }
        self.due.batch.clear();
        self.due.batch_at = 0;
        None
    }

    #[inline(never)]
    fn fire(&mut self, slot: usize) -> Step {
        let what = self.due.layout.fires(slot);
        match what {
            Fires::Work(cpu) if FREE => {
                if self.work_done_fast(cpu)? {
                    self.enqueue(cpu);
                }
                Ok(())
            }
            Fires::Work(cpu) => self.work_done(cpu),
            Fires::Slice(cpu) => {
                self.slice_over(cpu);
                Ok(())
            }
            Fires::Resched(cpu) => {
                self.cpus[cpu].resched_at = NEVER;
                self.enqueue(cpu);
                Ok(())
            }
            Fires::Tick(cpu) => self.tick(cpu),
            Fires::Task(task) if FREE => self.wake_fast(task),
            Fires::Task(task) => self.task_timer(task),
            Fires::CpuTimer(..) | Fires::TaskTimer(_) | Fires::Global(_) => {
                self.scheduler_timer(what)
            }
            Fires::Source(source) => self.source_fires(source),
            Fires::Client(client) => self.client_fires(client),
            Fires::Handoff(thread) => self.hand_over(thread),
            Fires::Executor(executor) => self.executor_timer(executor),
            Fires::Arrival => self.comes_from_outside(),
            Fires::Warmup => self.restart_metrics(),
        }
    }

    /// The slice of a decision has ended.
    #[inline]
    fn slice_over(&mut self, cpu: usize) {
        self.cpus[cpu].slice_armed = false;
        self.request(cpu, state::Cause::Other, Some(cpu));
    }

    /// Counts one more step in which no time passes.
    #[inline]
    fn count_step(&mut self, task: Option<usize>) -> Step {
        self.clock.steps += 1;
        if self.clock.steps > self.clock.steps_max { self.livelock(task) } else { Ok(()) }
    }

    #[cold]
    fn livelock(&self, task: Option<usize>) -> Step {
        let at = Ns(self.clock.now);
        match task {
            Some(task) => {
                let task = self.input.workload.tasks[task].name.clone();
                Err(Box::new(SimError::Livelock { task, at, steps: self.clock.steps }))
            }
            None => self.fault(0, format!("{} calls without time passing", self.clock.steps)),
        }
    }

    /// Returns the error for a scheduler that broke its contract.
    #[cold]
    fn fault<T>(&self, cpu: usize, what: String) -> Step<T> {
        let state = self.input.scheduler.explain(&self.cx(cpu), CpuId(cpu as u32));
        Err(Box::new(SimError::Scheduler {
            at: Ns(self.clock.now),
            cpu: CpuId(cpu as u32),
            what,
            state,
        }))
    }

    /// Returns the error for a simulator that broke its own rules.
    #[cold]
    fn internal<T>(&self, what: String) -> Step<T> {
        Err(Box::new(SimError::Internal { at: Ns(self.clock.now), what }))
    }

    #[inline]
    fn emit(&mut self, cpu: usize, kind: EventKind) {
        self.output.events.note(self.clock.now, cpu, kind);
    }

    #[inline]
    fn arm_in(&mut self, cpu: usize, which: OfCpu, delay: u64) {
        self.due.slots.arm_cpu(cpu, which, self.clock.now.saturating_add(delay));
    }

    fn name(&self, task: TaskId) -> &str {
        &self.input.workload.tasks[task.index()].name
    }
}
