//! The agents' end: the scheduler with the world as its agents know it. It learns from messages
//! only, so its calls come in an order that every scheduler knows from the kernel, and what it
//! believes may be out of date. The calls themselves and the commands are those of every driver
//! with agents ([`DecisionCore`]).

use super::kernel::{Message, News, Order, What};
use crate::engine::Step;
use crate::{Machine, SimError};
use schedlab_model::{CpuId, Ns, TaskId, Waker, Workload};
use schedlab_scheduler::decision_core::{AgentDriver, Breach, Decided, DecisionCore, Ticks};
use schedlab_scheduler::{Change, Prev, Runnable, Scheduler, Timer, Wake, WakeKind};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Something that is due at a time. The CPU is the agents' number of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Alarm {
    Tick(usize),
    Slice(usize),
    Timer(Timer),
}

/// One CPU of the enclave as its agents know it.
#[derive(Clone, Copy, Default, Debug)]
struct CpuSlot {
    /// It is among those that have to decide.
    asked: bool,
    /// The kernel's own scheduler has it; a decision waits.
    taken: bool,
    waits: bool,
}

/// What the scheduler asked of its agents.
struct Asked {
    cpus: Vec<CpuSlot>,
    /// CPUs that have to decide, in the order in which they were asked.
    decisions: VecDeque<usize>,
    throttles: Vec<(TaskId, bool)>,
    due: BTreeSet<(u64, Alarm)>,
    due_at: BTreeMap<Alarm, u64>,
    /// How much later than armed a timer fires.
    timer_late: u64,
}

impl Asked {
    fn decide_soon(&mut self, cpu: usize) {
        let slot = &mut self.cpus[cpu];
        if slot.taken {
            slot.waits = true;
        } else if !std::mem::replace(&mut slot.asked, true) {
            self.decisions.push_back(cpu);
        }
    }

    fn set_alarm(&mut self, alarm: Alarm, at: Option<u64>) {
        if let Some(old) = self.due_at.remove(&alarm) {
            self.due.remove(&(old, alarm));
        }
        if let Some(at) = at {
            self.due.insert((at, alarm));
            self.due_at.insert(alarm, at);
        }
    }
}

impl AgentDriver for Asked {
    fn decide(&mut self, cpu: CpuId) {
        self.decide_soon(cpu.index());
    }
    fn arm(&mut self, timer: Timer, at: Ns) {
        self.set_alarm(Alarm::Timer(timer), Some(at.0.saturating_add(self.timer_late)));
    }
    fn disarm(&mut self, timer: Timer) {
        self.set_alarm(Alarm::Timer(timer), None);
    }
    fn throttle(&mut self, task: TaskId, throttled: bool) {
        self.throttles.push((task, throttled));
    }
    fn next_tick(&mut self, cpu: CpuId, at: Option<Ns>) {
        let at = at.map(|at| at.0.saturating_add(self.timer_late));
        self.set_alarm(Alarm::Tick(cpu.index()), at);
    }
}

/// The scheduler behind its agents, and what it asked for.
pub(super) struct AgentView<'a> {
    core: DecisionCore<&'a dyn Scheduler>,
    asked: Asked,
    /// The machine's number of each CPU of the enclave, and back.
    outer: Vec<CpuId>,
    inner: Vec<Option<usize>>,
    /// Sequence number of the last message read about each task.
    seen: Vec<u32>,
    /// Where a task really runs, as far as messages and commits say.
    real: Vec<Option<usize>>,
    exited: Vec<bool>,
    /// Run time of a task when its view was last brought up to date.
    ran: Vec<Ns>,
}

impl<'a> AgentView<'a> {
    /// `machine` and `workload` are the enclave's: its CPUs only. `outer`: their numbers in the
    /// whole machine, which has `cpus`.
    pub(super) fn new(
        scheduler: &'a dyn Scheduler,
        machine: &Machine,
        workload: &Workload,
        outer: Vec<CpuId>,
        cpus: usize,
        seed: u64,
        timer_late: u64,
    ) -> Result<AgentView<'a>, SimError> {
        let world = crate::engine::world(machine, workload)?;
        let tasks = world.tasks.len();
        let asked = Asked {
            cpus: vec![CpuSlot::default(); outer.len()],
            decisions: VecDeque::new(),
            throttles: Vec::new(),
            due: BTreeSet::new(),
            due_at: BTreeMap::new(),
            timer_late,
        };
        Ok(AgentView {
            core: DecisionCore::new(scheduler, world, seed, Ticks::Asked),
            asked,
            inner: super::inner_numbers(&outer, cpus),
            outer,
            seen: vec![0; tasks],
            real: vec![None; tasks],
            exited: vec![false; tasks],
            ran: vec![Ns::ZERO; tasks],
        })
    }

    /// Lets the scheduler place the tasks of the enclave; those outside of it do not exist for the
    /// agents.
    pub(super) fn start(&mut self, outside: &[bool]) -> Step {
        for (view, outside) in self.core.world_mut().tasks.iter_mut().zip(outside) {
            view.alive &= !outside;
        }
        let started = self.core.init(&mut self.asked);
        self.checked(0, 0, started)
    }

    /// Returns when something of the agents' own is due.
    pub(super) fn next_at(&self) -> u64 {
        self.asked.due.first().map_or(u64::MAX, |(at, _)| *at)
    }

    /// Takes out what is due, with the CPU whose agent has to see to it.
    pub(super) fn take_due(&mut self, now: u64) -> Option<(u64, Alarm, usize)> {
        let (at, alarm) = *self.asked.due.first().filter(|(at, _)| *at <= now)?;
        self.asked.due.remove(&(at, alarm));
        self.asked.due_at.remove(&alarm);
        let cpu = match alarm {
            Alarm::Tick(cpu) | Alarm::Slice(cpu) => cpu,
            Alarm::Timer(timer) => self.core.timer_cpu(timer).index(),
        };
        Some((at, alarm, cpu))
    }

    /// Returns the machine's number of a CPU of the enclave.
    pub(super) fn outer(&self, cpu: usize) -> CpuId {
        self.outer[cpu]
    }

    /// Returns the CPUs that have to decide, in the order in which they were asked.
    pub(super) fn asks(&self) -> impl Iterator<Item = usize> + '_ {
        self.asked.decisions.iter().copied()
    }

    /// Returns the next of those that have to decide; `cpu`: if it is that one.
    pub(super) fn next_ask(&self, cpu: Option<usize>) -> Option<usize> {
        self.asks().find(|asked| cpu.is_none_or(|cpu| cpu == *asked))
    }

    /// Takes a CPU out of those that have to decide.
    pub(super) fn take_ask(&mut self, cpu: usize) {
        self.asked.decisions.retain(|asked| *asked != cpu);
        self.asked.cpus[cpu].asked = false;
    }

    /// Takes a function call for an agent (`None`: for any).
    pub(super) fn take_call(&mut self, cpu: Option<usize>) -> Option<(CpuId, u64)> {
        self.core.take_call(cpu.map(CpuId::from))
    }

    /// Takes the tasks that the scheduler throttled (true) or let go.
    pub(super) fn take_throttles(&mut self) -> Vec<(TaskId, bool)> {
        std::mem::take(&mut self.asked.throttles)
    }

    /// Returns the calls made and the work units counted since the last time.
    pub(super) fn take_work(&mut self) -> (u64, u64) {
        self.core.take_work()
    }

    /// Returns whether a task is queued, and the CPU on which the agents have it, for the kernel's
    /// comparison.
    pub(super) fn sees(&self, task: TaskId) -> (bool, Option<CpuId>) {
        let view = &self.core.world().tasks[task.index()];
        let on = view.on_cpu().map(|cpu| self.outer[cpu.index()]);
        (view.runnable() == Runnable::Yes && on.is_none() && view.alive, on)
    }

    /// Returns whether no CPU has to decide and no function call waits.
    pub(super) fn is_quiet(&self) -> bool {
        let waits = self.asked.cpus.iter().any(|slot| slot.waits);
        self.asked.decisions.is_empty() && !self.core.has_calls() && !waits
    }

    /// Turns a breach of contract in a call on `cpu` into the error of the run.
    fn checked<T>(&self, now: u64, cpu: usize, result: Result<T, Breach>) -> Step<T> {
        result.map_err(|breach| {
            let (at, state) = (Ns(now), self.core.explain(Ns(now), cpu.into()));
            Box::new(SimError::Scheduler {
                at,
                cpu: self.outer[cpu],
                what: breach.to_string(),
                state,
            })
        })
    }
}

/// What agents read, and what they decide.
impl AgentView<'_> {
    /// Returns whether a message has to wait for a decision: a task that was started anew while the
    /// decision that its first life is over is still to come.
    pub(super) fn holds_up(&self, message: &Message) -> bool {
        match message.what {
            What::Task(task, _, News::New { .. }) => {
                self.core.world().tasks[task.index()].on_cpu().is_some()
            }
            _ => false,
        }
    }

    /// An agent has read a message.
    pub(super) fn read(&mut self, now: u64, message: &Message) -> Step {
        let cpu = self.inner[message.cpu.index()];
        match message.what {
            What::Available(free) => {
                let Some(cpu) = cpu else { return Ok(()) };
                let slot = &mut self.asked.cpus[cpu];
                slot.taken = !free;
                if free && std::mem::take(&mut slot.waits) {
                    self.asked.decide_soon(cpu);
                }
                Ok(())
            }
            What::Alarm(alarm) => self.alarm(now, alarm),
            What::Task(task, seq, news) => {
                self.seen[task.index()] = seq;
                self.news(now, cpu, task, news)
            }
        }
    }

    fn alarm(&mut self, now: u64, alarm: Alarm) -> Step {
        match alarm {
            Alarm::Slice(cpu) => {
                self.asked.decide_soon(cpu);
                Ok(())
            }
            Alarm::Tick(cpu) => {
                let done = self.core.tick(Ns(now), cpu.into(), &mut self.asked);
                self.checked(now, cpu, done)
            }
            Alarm::Timer(timer) => {
                let cpu = self.core.timer_cpu(timer).index();
                let done = self.core.timer(Ns(now), timer, &mut self.asked);
                self.checked(now, cpu, done)
            }
        }
    }

    fn news(&mut self, now: u64, cpu: Option<usize>, task: TaskId, news: News) -> Step {
        let t = task.index();
        let view = &self.core.world().tasks[t];
        let (on, last) = (view.on_cpu().map(CpuId::index), view.last_cpu().index());
        if !matches!(news, News::Released(_)) {
            self.real[t] = None;
        }
        match news {
            News::New { parent, released } => self.new_task(now, cpu, task, parent, released)?,
            News::Wakeup { wake, released } => match on {
                // It was not decided off yet: the decision that is to come finds it runnable.
                Some(_) => {
                    view.set_runnable(Runnable::Yes);
                    view.released.set(released);
                }
                None => {
                    let wake = Wake { sync: wake.sync && self.decides_soon(wake.waker), ..wake };
                    self.wake(now, cpu.unwrap_or(last), task, wake, released)?;
                }
            },
            News::Blocked | News::Dead => {
                self.exited[t] = news == News::Dead;
                view.set_runnable(Runnable::No);
                match on {
                    Some(on) => self.asked.decide_soon(on),
                    None => {
                        let left = self.core.leave(Ns(now), last.into(), task, &mut self.asked);
                        self.checked(now, last, left)?;
                        self.core.world_mut().tasks[t].alive &= news != News::Dead;
                    }
                }
            }
            News::Preempted | News::LatchFailed => {
                on.into_iter().for_each(|on| self.asked.decide_soon(on))
            }
            News::Yielded => {
                if let Some(on) = on {
                    self.core.note_yield(on.into());
                    self.asked.decide_soon(on);
                }
            }
            News::Released(released) => {
                view.released.set(released);
                self.changed(now, last, Change::Released(task))?;
            }
        }
        Ok(())
    }

    /// A task was created, and wakes for the first time.
    fn new_task(
        &mut self,
        now: u64,
        cpu: Option<usize>,
        task: TaskId,
        parent: Option<TaskId>,
        released: Ns,
    ) -> Step {
        self.exited[task.index()] = false;
        let view = &mut self.core.world_mut().tasks[task.index()];
        view.alive = true;
        let place = cpu.map(CpuId::from).filter(|cpu| view.affinity.contains(*cpu));
        if let Some(place) = place.or_else(|| view.affinity.lowest()) {
            view.set_last_cpu(place);
        }
        let at = view.last_cpu().index();
        self.changed(now, at, Change::Created { task, parent })?;
        let waker = parent.map_or(Waker::Unknown, Waker::Task);
        self.wake(now, at, task, Wake { kind: WakeKind::New, sync: false, waker }, released)
    }

    fn changed(&mut self, now: u64, at: usize, change: Change) -> Step {
        let done = self.core.changed(Ns(now), at.into(), change, &mut self.asked);
        self.checked(now, at, done)
    }

    /// Whether a waker that said it would leave its CPU at once (`sync`) is still on one for the
    /// agents, so that they are to decide for it. A task of the kernel's own scheduler never is,
    /// and the news that it left may have been read already: a scheduler that counts on that
    /// decision (2.4) would leave the woken task waiting for it for ever.
    fn decides_soon(&self, waker: Waker) -> bool {
        matches!(waker, Waker::Task(waker) if self.core.world().tasks[waker.index()].on_cpu().is_some())
    }

    fn wake(&mut self, now: u64, at: usize, task: TaskId, wake: Wake, released: Ns) -> Step {
        let done = self.core.wake(Ns(now), at.into(), (task, released), wake, &mut self.asked);
        self.checked(now, at, done)
    }

    /// Makes a function call that the scheduler asked for.
    pub(super) fn run_call(&mut self, now: u64, call: (CpuId, u64)) -> Step {
        let done = self.core.run_call(Ns(now), call, &mut self.asked);
        self.checked(now, call.0.index(), done)
    }

    /// Decides for `cpu`. `None`: what runs there may go on. `ran(task)`: its run time so far
    /// (status word).
    pub(super) fn decide(
        &mut self,
        now: u64,
        cpu: usize,
        ran: impl Fn(TaskId) -> Ns,
    ) -> Step<Option<Order>> {
        let world = self.core.world();
        let why = match world.cpus[cpu].current() {
            None => Prev::Idle,
            Some(task) if self.exited[task.index()] => Prev::Exited,
            Some(task) if world.tasks[task.index()].runnable() == Runnable::No => Prev::Blocked,
            Some(_) => Prev::Runnable,
        };
        let until = &mut self.ran;
        let since = |_: &_, task: TaskId| {
            let total = ran(task);
            total.saturating_sub(std::mem::replace(&mut until[task.index()], total))
        };
        let decided = self.core.decide(Ns(now), cpu.into(), why, since, &mut self.asked);
        let Decided { prev, pick, .. } = self.checked(now, cpu, decided)?;
        let slice_ends = pick.slice_ns.map(|ns| now.saturating_add(ns.0 + self.asked.timer_late));
        self.asked.set_alarm(Alarm::Slice(cpu), slice_ends);
        if pick.task == prev {
            let goes_on = match prev {
                Some(task) => self.real[task.index()] == Some(cpu),
                None => !self.is_occupied(cpu),
            };
            return Ok((!goes_on).then(|| self.order(cpu, prev)));
        }
        // Where no task is wanted, only a CPU on which one really runs needs an order.
        let wanted = pick.task.is_some() || prev.is_some() && self.is_occupied(cpu);
        Ok(wanted.then(|| self.order(cpu, pick.task)))
    }

    /// Whether a task really runs on `cpu`, as far as messages and commits say. That need not be
    /// the task that the scheduler has there: transactions fail.
    fn is_occupied(&self, cpu: usize) -> bool {
        self.real.contains(&Some(cpu))
    }

    fn order(&self, cpu: usize, task: Option<TaskId>) -> Order {
        let seq = task.map_or(0, |task| self.seen[task.index()]);
        Order { cpu: self.outer[cpu], task, seq }
    }

    /// A transaction succeeded: what it named runs there now, or will at once.
    pub(super) fn committed(&mut self, order: &Order) {
        let Some(cpu) = self.inner[order.cpu.index()] else { return };
        self.real.iter_mut().filter(|real| **real == Some(cpu)).for_each(|real| *real = None);
        if let Some(task) = order.task {
            self.real[task.index()] = Some(cpu);
        }
    }

    /// A transaction failed: its CPU decides again, when it can be had.
    pub(super) fn failed(&mut self, order: &Order, why: super::Failed) {
        let Some(cpu) = self.inner[order.cpu.index()] else { return };
        self.asked.cpus[cpu].taken |= why == super::Failed::Busy;
        self.asked.decide_soon(cpu);
    }
}
