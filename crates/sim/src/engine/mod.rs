//! The event loop.

mod account;
mod channels;
mod commands;
mod dispatch;
mod finish;
mod layout;
mod program;
mod setup;
mod slots;
mod sources;
mod state;
mod ticks;
pub(crate) mod vcpu;
mod wake;

use crate::hash::EventHash;
use crate::metrics::{Log, Watch};
use crate::{Costs, Machine, Metrics, Outcome, RunOptions, SimError};
use layout::{Fires, Layout};
use schedlab_model::{CpuId, EventKind, EventSink, Ns, SchedEvent, TaskId, Workload};
use schedlab_scheduler::{Cmd, Cx, Out, Scheduler, World};
use slots::{NEVER, Slots};
use state::{Channel, Client, Cpu, Extra, Mutex, Source, Task};
use std::collections::VecDeque;

/// What the parts of the engine return: the error is boxed, it is never on the fast path.
pub(crate) type Step<T = ()> = Result<T, Box<SimError>>;

/// Runs `workload` on `machine` under `scheduler` and hands every event to `sink`.
///
/// # Errors
/// Bad input (workload, machine, a circle of wakeups in which no time passes) and a scheduler that breaks
/// its contract, each as a [`SimError`] that names the culprit.
pub fn run<S: EventSink>(
    machine: &Machine,
    workload: &Workload,
    scheduler: &dyn Scheduler,
    options: &RunOptions,
    sink: &mut S,
) -> Result<Outcome, SimError> {
    machine.check()?;
    workload.check(machine.topology.cpus())?;
    let mut engine = Engine::new(machine, workload, scheduler, options, sink)?;
    engine.start().and_then(|()| engine.drive()).and_then(|()| engine.finish()).map_err(|error| *error)
}

/// The state of a run.
pub(crate) struct Engine<'a, S> {
    now: u64,
    /// Events at this time or later do not happen.
    end: u64,
    scheduler: &'a dyn Scheduler,
    workload: &'a Workload,
    machine: &'a Machine,
    options: &'a RunOptions,
    costs: Costs,
    /// All costs are zero.
    free: bool,
    wants_ticks: bool,
    /// Ticks are wanted, and those that cannot matter are left out.
    asks_ticks: bool,
    /// The CPU whose tick is being handled.
    ticking: Option<usize>,
    world: World,
    out: Out,
    slots: Slots,
    layout: Layout,
    cpus: Vec<Cpu>,
    tasks: Vec<Task>,
    extras: Vec<Extra>,
    channels: Vec<Channel>,
    locks: Vec<Mutex>,
    sources: Vec<Source>,
    clients: Vec<Client>,
    /// First client of every closed-loop source.
    first_client: Vec<usize>,
    /// The CPU that armed each global timer last.
    global_armed_on: Vec<u32>,
    batch: Vec<(u64, u32)>,
    /// Index of the next one to be served.
    batch_at: usize,
    cmds: Vec<Cmd>,
    resched: VecDeque<u32>,
    starts: VecDeque<u32>,
    calls: VecDeque<(CpuId, u64)>,
    metrics: Metrics,
    log: Log,
    watch: Watch,
    sink: &'a mut S,
    hash: EventHash,
    events: u64,
    last_event: u64,
    /// The CPUs of a guest are vCPUs, which do not always run; `None`: a real machine.
    gate: Option<Box<vcpu::Gate>>,
    /// Steps since time passed last, and how many are too many.
    steps: u64,
    steps_max: u64,
}

impl<S: EventSink> Engine<'_, S> {
    /// The context of a call on `cpu`.
    #[inline]
    fn cx(&self, cpu: usize) -> Cx<'_> {
        Cx { now: Ns(self.now), cpu: CpuId(cpu as u32), world: &self.world, out: &self.out }
    }

    fn drive(&mut self) -> Step {
        loop {
            let at = self.slots.min();
            if at >= self.end {
                break;
            }
            self.go_to(at);
            self.instant()?;
        }
        self.go_to(self.end);
        Ok(())
    }

    /// Time goes on.
    #[inline]
    fn go_to(&mut self, at: u64) {
        if at > self.now {
            self.watch.advance(at, &mut self.metrics.work_conservation);
            self.now = at;
            self.steps = 0;
        }
    }

    /// Everything that happens now.
    fn instant(&mut self) -> Step {
        self.drain()?;
        loop {
            if self.slots.more() {
                self.drain()?;
            } else if let Some((cpu, cookie)) = self.calls.pop_front() {
                self.count_step(None)?;
                if self.gate.is_some() && self.keep_call(cpu, cookie) {
                    continue;
                }
                self.scheduler.call(&self.cx(cpu.index()), cookie);
                self.after_call(cpu.index(), state::Cause::Other)?;
            } else if let Some(cpu) = self.resched.pop_front() {
                self.decide(cpu as usize)?;
            } else if let Some(cpu) = self.starts.pop_front() {
                self.go_on(cpu as usize)?;
            } else {
                return Ok(());
            }
        }
    }

    fn drain(&mut self) -> Step {
        let mut batch = std::mem::take(&mut self.batch);
        self.slots.collect(self.now, &mut batch);
        self.batch = batch;
        self.batch_at = 0;
        // A tick may put the tick of a higher CPU into what is left of the batch.
        while let Some(&(seq, slot)) = self.batch.get(self.batch_at) {
            self.batch_at += 1;
            if self.gate.is_some() && self.hold(seq, slot) {
                continue;
            }
            if self.slots.is_current(seq, slot as usize) {
                self.fire(self.layout.fires(slot as usize))?;
            }
        }
        self.batch.clear();
        Ok(())
    }

    fn fire(&mut self, what: Fires) -> Step {
        match what {
            Fires::Work(cpu) => self.work_done(cpu),
            Fires::Slice(cpu) => {
                self.cpus[cpu].slice_armed = false;
                self.request(cpu, state::Cause::Other, Some(cpu));
                Ok(())
            }
            Fires::Resched(cpu) => {
                self.cpus[cpu].resched_at = NEVER;
                self.enqueue(cpu);
                Ok(())
            }
            Fires::Tick(cpu) => self.tick(cpu),
            Fires::Task(task) => self.task_timer(task),
            Fires::CpuTimer(..) | Fires::TaskTimer(_) | Fires::Global(_) => self.scheduler_timer(what),
            Fires::Source(source) => self.source_fires(source),
            Fires::Client(client) => self.client_fires(client),
            Fires::Warmup => self.restart_metrics(),
        }
    }

    /// One more step in which no time passes.
    #[inline]
    fn count_step(&mut self, task: Option<usize>) -> Step {
        self.steps += 1;
        if self.steps > self.steps_max { self.livelock(task) } else { Ok(()) }
    }

    #[cold]
    fn livelock(&self, task: Option<usize>) -> Step {
        let at = Ns(self.now);
        match task {
            Some(task) => {
                let task = self.workload.tasks[task].name.clone();
                Err(Box::new(SimError::Livelock { task, at, steps: self.steps }))
            }
            None => self.fault(0, format!("{} calls without time passing", self.steps)),
        }
    }

    /// The scheduler broke its contract.
    #[cold]
    fn fault<T>(&self, cpu: usize, what: String) -> Step<T> {
        let state = self.scheduler.explain(&self.cx(cpu), CpuId(cpu as u32));
        Err(Box::new(SimError::Scheduler { at: Ns(self.now), cpu: CpuId(cpu as u32), what, state }))
    }

    /// The simulator broke its own rules.
    #[cold]
    fn internal<T>(&self, what: String) -> Step<T> {
        Err(Box::new(SimError::Internal { at: Ns(self.now), what }))
    }

    #[inline]
    fn emit(&mut self, cpu: usize, kind: EventKind) {
        let event = SchedEvent { at: Ns(self.now), cpu: CpuId(cpu as u32), kind };
        self.hash.add(&event);
        self.events += 1;
        self.last_event = self.now;
        self.sink.event(&event);
    }

    #[inline]
    fn arm_in(&mut self, slot: usize, delay: u64) {
        self.slots.arm(slot, self.now.saturating_add(delay));
    }

    fn name(&self, task: TaskId) -> &str {
        &self.workload.tasks[task.index()].name
    }
}
