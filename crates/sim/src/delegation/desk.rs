//! The agents' end: the scheduler with the world as its agents know it. It learns from messages only, so its calls come
//! in an order that every scheduler knows from the kernel, and what it believes may be out of date.

use super::kernel::{Message, News, Order, What};
use crate::engine::Step;
use crate::{Machine, SimError};
use schedlab_model::{CpuId, Ns, TaskId, Waker, Workload};
use schedlab_scheduler::{
    Change, Cmd, Cx, Needs, Out, Prev, Runnable, Scheduler, Timer, Wake, WakeKind, Work, World,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Something that is due at a time. The CPU is the agents' number of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Alarm {
    Tick(usize),
    Slice(usize),
    Timer(Timer),
}

/// One CPU as the agents know it.
#[derive(Clone, Copy, Debug)]
struct Seat {
    asked: bool,
    displace: bool,
    yielded: bool,
    /// The kernel's own scheduler has it; a decision waits.
    taken: bool,
    waits: bool,
}

/// The scheduler, its world, and what it asked for.
pub(super) struct Desk<'a> {
    scheduler: &'a dyn Scheduler,
    needs: Needs,
    world: World,
    out: Out,
    cmds: Vec<Cmd>,
    /// The machine's number of each CPU of the enclave, and back.
    outer: Vec<CpuId>,
    inner: Vec<Option<usize>>,
    seats: Vec<Seat>,
    /// Sequence number of the last message read about each task.
    seen: Vec<u32>,
    /// Where a task really runs, as far as messages and commits say.
    real: Vec<Option<usize>>,
    exited: Vec<bool>,
    /// Run time of a task when its view was last brought up to date.
    ran: Vec<Ns>,
    asks: VecDeque<usize>,
    calls: VecDeque<(usize, u64)>,
    throttles: Vec<(TaskId, bool)>,
    due: BTreeSet<(u64, Alarm)>,
    due_at: BTreeMap<Alarm, u64>,
    global_armed_on: BTreeMap<u8, usize>,
    timer_late: u64,
    /// Work counted up to the last question.
    counted: u64,
    calls_made: u64,
}

impl<'a> Desk<'a> {
    /// `machine` and `workload` are the enclave's: its CPUs only. `outer`: their numbers in the whole machine, which has
    /// `cpus`.
    pub(super) fn new(
        scheduler: &'a dyn Scheduler,
        machine: &Machine,
        workload: &Workload,
        outer: Vec<CpuId>,
        cpus: usize,
        seed: u64,
        timer_late: u64,
    ) -> Result<Desk<'a>, SimError> {
        let world = crate::engine::world(machine, workload)?;
        let tasks = world.tasks.len();
        let inner = super::inner_numbers(&outer, cpus);
        let seat = Seat { asked: false, displace: false, yielded: false, taken: false, waits: false };
        Ok(Desk {
            scheduler,
            needs: scheduler.needs(),
            world,
            out: Out::new(seed),
            cmds: Vec::new(),
            seats: vec![seat; outer.len()],
            outer,
            inner,
            seen: vec![0; tasks],
            real: vec![None; tasks],
            exited: vec![false; tasks],
            ran: vec![Ns::ZERO; tasks],
            asks: VecDeque::new(),
            calls: VecDeque::new(),
            throttles: Vec::new(),
            due: BTreeSet::new(),
            due_at: BTreeMap::new(),
            global_armed_on: BTreeMap::new(),
            timer_late,
            counted: 0,
            calls_made: 0,
        })
    }

    /// Tasks that are not the agents' business do not exist for them.
    pub(super) fn start(&mut self, outside: &[bool]) {
        for (view, outside) in self.world.tasks.iter_mut().zip(outside) {
            view.alive &= !outside;
        }
        self.call(0, 0, |scheduler, cx| scheduler.init(cx));
        if self.needs.ticks {
            (0..self.outer.len()).for_each(|cpu| self.ask_tick(0, cpu));
        }
    }

    /// When something of the agents' own is due.
    pub(super) fn next_at(&self) -> u64 {
        self.due.first().map_or(u64::MAX, |(at, _)| *at)
    }

    /// Takes out what is due, with the CPU whose agent has to see to it.
    pub(super) fn take_due(&mut self, now: u64) -> Option<(u64, Alarm, usize)> {
        let (at, alarm) = *self.due.first().filter(|(at, _)| *at <= now)?;
        self.due.remove(&(at, alarm));
        self.due_at.remove(&alarm);
        let cpu = match alarm {
            Alarm::Tick(cpu) | Alarm::Slice(cpu) => cpu,
            Alarm::Timer(Timer::Cpu(cpu, _)) => cpu.index(),
            Alarm::Timer(Timer::Task(task)) => self.world.tasks[task.index()].last_cpu().index(),
            Alarm::Timer(Timer::Global(n)) => self.global_armed_on.get(&n).copied().unwrap_or(0),
        };
        Some((at, alarm, cpu))
    }

    /// The machine's number of a CPU of the enclave.
    pub(super) fn outer(&self, cpu: usize) -> CpuId {
        self.outer[cpu]
    }

    /// CPUs that have to decide, in the order in which they were asked.
    pub(super) fn asks(&self) -> impl Iterator<Item = usize> + '_ {
        self.asks.iter().copied()
    }

    /// The next of those that have to decide, `cpu` if only that is of interest.
    pub(super) fn next_ask(&self, cpu: Option<usize>) -> Option<usize> {
        self.asks.iter().copied().find(|asked| cpu.is_none_or(|cpu| cpu == *asked))
    }

    /// Takes it out.
    pub(super) fn take_ask(&mut self, cpu: usize) {
        self.asks.retain(|asked| *asked != cpu);
        self.seats[cpu].asked = false;
    }

    /// Takes a function call for an agent (`None`: for any).
    pub(super) fn take_call(&mut self, cpu: Option<usize>) -> Option<(usize, u64)> {
        let at = self.calls.iter().position(|(on, _)| cpu.is_none_or(|cpu| cpu == *on))?;
        self.calls.remove(at)
    }

    /// Tasks that the scheduler throttled or let go.
    pub(super) fn take_throttles(&mut self) -> Vec<(TaskId, bool)> {
        std::mem::take(&mut self.throttles)
    }

    /// Calls made and work units counted since the last time.
    pub(super) fn take_work(&mut self) -> (u64, u64) {
        let all = Work::ALL.iter().map(|work| self.out.work(*work)).sum();
        (std::mem::take(&mut self.calls_made), all - std::mem::replace(&mut self.counted, all))
    }

    /// Whether a task is queued, and the CPU on which the agents have it, for the kernel's comparison.
    pub(super) fn sees(&self, task: TaskId) -> (bool, Option<CpuId>) {
        let view = &self.world.tasks[task.index()];
        let on = view.on_cpu().map(|cpu| self.outer[cpu.index()]);
        (view.runnable() == Runnable::Yes && on.is_none() && view.alive, on)
    }

    /// Nobody has to decide, nothing was called.
    pub(super) fn is_quiet(&self) -> bool {
        self.asks.is_empty() && self.calls.is_empty() && !self.seats.iter().any(|seat| seat.waits)
    }

    pub(super) fn ask(&mut self, cpu: usize) {
        let seat = &mut self.seats[cpu];
        if seat.taken {
            seat.waits = true;
        } else if !std::mem::replace(&mut seat.asked, true) {
            self.asks.push_back(cpu);
        }
    }

    fn call<T>(&mut self, now: u64, cpu: usize, f: impl FnOnce(&dyn Scheduler, &Cx<'_>) -> T) -> T {
        let cx = Cx { now: Ns(now), cpu: CpuId(cpu as u32), world: &self.world, out: &self.out };
        let result = f(self.scheduler, &cx);
        self.calls_made += 1;
        if self.out.has_cmds() {
            self.carry_out(now, cpu);
        }
        if self.needs.ticks {
            self.ask_tick(now, cpu);
        }
        result
    }

    fn carry_out(&mut self, now: u64, cpu: usize) {
        let mut cmds = std::mem::take(&mut self.cmds);
        self.out.take_cmds(&mut cmds);
        for cmd in cmds.drain(..) {
            match cmd {
                Cmd::Resched(target) => {
                    self.ask(target.index());
                    self.ask_tick(now, target.index());
                }
                Cmd::TickDue(target) => self.ask_tick(now, target.index()),
                Cmd::Arm(timer, at) => {
                    if let Timer::Global(n) = timer {
                        self.global_armed_on.insert(n, cpu);
                    }
                    let at = at.0.max(now).saturating_add(self.timer_late);
                    self.set_alarm(Alarm::Timer(timer), Some(at));
                }
                Cmd::Disarm(timer) => self.set_alarm(Alarm::Timer(timer), None),
                Cmd::Displace(task) => {
                    if let Some(on) = self.world.tasks[task.index()].on_cpu() {
                        self.seats[on.index()].displace = true;
                        self.ask(on.index());
                    }
                }
                Cmd::Call(target, cookie) => self.calls.push_back((target.index(), cookie)),
                Cmd::Throttled(task) => self.throttles.push((task, true)),
                Cmd::Unthrottled(task) => self.throttles.push((task, false)),
                Cmd::Moved(task, to) => {
                    let from = self.world.tasks[task.index()].last_cpu();
                    self.ask_tick(now, from.index());
                    self.ask_tick(now, to.index());
                }
            }
        }
        self.cmds = cmds;
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

    /// Asks the scheduler which tick of `cpu` matters next; only those become messages.
    fn ask_tick(&mut self, now: u64, cpu: usize) {
        if !self.needs.ticks {
            return;
        }
        let id = CpuId(cpu as u32);
        let cx = Cx { now: Ns(now), cpu: id, world: &self.world, out: &self.out };
        let due = self.scheduler.tick_due(&cx, id);
        let edge = self.world.ticks_until(id, Ns(now)).saturating_add(due.max(1));
        let offset = self.world.tick_ns.0.checked_mul(edge - 1);
        let at = offset.and_then(|ns| ns.checked_add(self.world.cpus[cpu].tick_phase.0));
        let at = at.filter(|_| due != u64::MAX).map(|at| at.saturating_add(self.timer_late));
        self.set_alarm(Alarm::Tick(cpu), at);
    }
}

/// What agents read, and what they decide.
impl Desk<'_> {
    /// Whether a message has to wait for a decision: a task that was started anew while the decision that its first
    /// life is over is still to come.
    pub(super) fn holds_up(&self, message: &Message) -> bool {
        match message.what {
            What::Task(task, _, News::New { .. }) => self.world.tasks[task.index()].on_cpu().is_some(),
            _ => false,
        }
    }

    /// An agent has read a message.
    pub(super) fn read(&mut self, now: u64, message: &Message) {
        let cpu = self.inner[message.cpu.index()];
        match message.what {
            What::Available(free) => {
                let Some(cpu) = cpu else { return };
                let seat = &mut self.seats[cpu];
                seat.taken = !free;
                if free && std::mem::take(&mut seat.waits) {
                    self.ask(cpu);
                }
            }
            What::Alarm(alarm) => self.alarm(now, alarm),
            What::Task(task, seq, news) => {
                self.seen[task.index()] = seq;
                self.news(now, cpu, task, news);
            }
        }
    }

    fn alarm(&mut self, now: u64, alarm: Alarm) {
        match alarm {
            Alarm::Slice(cpu) => self.ask(cpu),
            Alarm::Tick(cpu) => {
                self.call(now, cpu, |scheduler, cx| scheduler.tick(cx, CpuId(cpu as u32)));
            }
            Alarm::Timer(timer) => {
                let cpu = match timer {
                    Timer::Cpu(cpu, _) => cpu.index(),
                    Timer::Task(task) => self.world.tasks[task.index()].last_cpu().index(),
                    Timer::Global(n) => self.global_armed_on.get(&n).copied().unwrap_or(0),
                };
                self.call(now, cpu, |scheduler, cx| scheduler.timer(cx, timer));
            }
        }
    }

    fn news(&mut self, now: u64, cpu: Option<usize>, task: TaskId, news: News) {
        let t = task.index();
        let on = self.world.tasks[t].on_cpu().map(CpuId::index);
        if !matches!(news, News::Released(_)) {
            self.real[t] = None;
        }
        match news {
            News::New { parent, released } => {
                self.exited[t] = false;
                let view = &mut self.world.tasks[t];
                view.alive = true;
                let place = cpu.map(|cpu| CpuId(cpu as u32)).filter(|cpu| view.affinity.contains(*cpu));
                if let Some(place) = place.or_else(|| view.affinity.lowest()) {
                    view.set_last_cpu(place);
                }
                let at = view.last_cpu().index();
                self.call(now, at, |scheduler, cx| scheduler.changed(cx, Change::Created { task, parent }));
                let waker = parent.map_or(Waker::Unknown, Waker::Task);
                self.wake(now, at, task, Wake { kind: WakeKind::New, sync: false, waker }, released);
            }
            News::Wakeup { wake, released } => match on {
                // It was not decided off yet: the decision that is to come finds it runnable.
                Some(_) => {
                    self.world.tasks[t].set_runnable(Runnable::Yes);
                    self.world.tasks[t].released.set(released);
                }
                None => {
                    let at = cpu.unwrap_or(self.world.tasks[t].last_cpu().index());
                    let wake = Wake { sync: wake.sync && self.decides_soon(wake.waker), ..wake };
                    self.wake(now, at, task, wake, released);
                }
            },
            News::Blocked | News::Dead => {
                self.exited[t] = news == News::Dead;
                self.world.tasks[t].set_runnable(Runnable::No);
                match on {
                    Some(on) => self.ask(on),
                    None => {
                        let at = self.world.tasks[t].last_cpu().index();
                        self.call(now, at, |scheduler, cx| scheduler.leave(cx, task));
                        self.world.tasks[t].alive &= news != News::Dead;
                    }
                }
            }
            News::Preempted | News::LatchFailed => on.into_iter().for_each(|on| self.ask(on)),
            News::Yielded => {
                if let Some(on) = on {
                    self.seats[on].yielded = true;
                    self.ask(on);
                }
            }
            News::Released(released) => {
                self.world.tasks[t].released.set(released);
                let at = self.world.tasks[t].last_cpu().index();
                self.call(now, at, |scheduler, cx| scheduler.changed(cx, Change::Released(task)));
            }
        }
    }

    /// Whether a waker that said it would leave its CPU at once (`sync`) still stands on one for the agents, so that they are
    /// to decide for it. One of the kernel's own tasks never does, and the news that it left may have been read already:
    /// a scheduler that counts on that decision (2.4) would leave the woken one waiting for it for ever.
    fn decides_soon(&self, waker: Waker) -> bool {
        matches!(waker, Waker::Task(waker) if self.world.tasks[waker.index()].on_cpu().is_some())
    }

    fn wake(&mut self, now: u64, at: usize, task: TaskId, wake: Wake, released: Ns) {
        let view = &self.world.tasks[task.index()];
        view.set_runnable(Runnable::Yes);
        view.released.set(released);
        self.call(now, at, |scheduler, cx| scheduler.wake(cx, task, wake));
    }

    /// A function call that the scheduler asked for.
    pub(super) fn run_call(&mut self, now: u64, cpu: usize, cookie: u64) {
        self.call(now, cpu, |scheduler, cx| scheduler.call(cx, cookie));
    }

    /// Decides for `cpu`. `None`: what runs there may go on. `ran(task)`: its run time so far (status word).
    pub(super) fn decide(&mut self, now: u64, cpu: usize, ran: impl Fn(TaskId) -> Ns) -> Step<Option<Order>> {
        let id = CpuId(cpu as u32);
        let prev = self.world.cpus[cpu].current();
        let seat = &mut self.seats[cpu];
        let displace = std::mem::take(&mut seat.displace);
        let yielded = std::mem::take(&mut seat.yielded);
        let why = match prev {
            None => Prev::Idle,
            Some(task) if self.exited[task.index()] => Prev::Exited,
            Some(task) if self.world.tasks[task.index()].runnable() == Runnable::No => Prev::Blocked,
            Some(_) if displace => Prev::Migrating,
            Some(_) => Prev::Runnable,
        };
        if let Some(task) = prev.filter(|_| yielded && why == Prev::Runnable) {
            self.call(now, cpu, |scheduler, cx| scheduler.yielded(cx, task));
        }
        let pick = self.call(now, cpu, |scheduler, cx| scheduler.schedule(cx, id, prev, why));
        self.set_alarm(Alarm::Slice(cpu), pick.slice_ns.map(|ns| now.saturating_add(ns.0 + self.timer_late)));
        if pick.task == prev {
            if !matches!(why, Prev::Idle | Prev::Runnable) {
                return self.fault(
                    now,
                    cpu,
                    format!("it picked {:?}, which has just left ({why:?})", pick.task),
                );
            }
            let stands = match prev {
                Some(task) => self.real[task.index()] == Some(cpu),
                None => !self.somebody_on(cpu),
            };
            return Ok((!stands).then(|| self.order(cpu, prev)));
        }
        if let Some(next) = pick.task {
            self.check_pick(now, cpu, next)?;
        }
        let mut order = pick.task.map(|task| self.order(cpu, Some(task)));
        if let Some(task) = prev {
            let t = task.index();
            let total = ran(task);
            let more = total.saturating_sub(std::mem::replace(&mut self.ran[t], total));
            self.world.tasks[t].switched_out(Ns(now), more);
            if order.is_none() && self.somebody_on(cpu) {
                order = Some(self.order(cpu, None));
            }
        }
        self.world.cpus[cpu].set_current(pick.task);
        if let Some(task) = pick.task {
            self.world.tasks[task.index()].switched_in(id, Ns(now));
        }
        if let Some(task) = prev {
            self.call(now, cpu, |scheduler, cx| scheduler.saved(cx, id, task));
            self.world.tasks[task.index()].alive &= why != Prev::Exited;
            if why == Prev::Migrating {
                let wake = Wake { kind: WakeKind::Migrated, sync: false, waker: Waker::Unknown };
                self.call(now, cpu, |scheduler, cx| scheduler.wake(cx, task, wake));
            }
        }
        Ok(order)
    }

    /// Whether a task really runs on `cpu`, as far as messages and commits say. That need not be the one whom the scheduler has
    /// there: transactions fail.
    fn somebody_on(&self, cpu: usize) -> bool {
        self.real.contains(&Some(cpu))
    }

    fn order(&self, cpu: usize, task: Option<TaskId>) -> Order {
        let seq = task.map_or(0, |task| self.seen[task.index()]);
        Order { cpu: self.outer[cpu], task, seq }
    }

    fn check_pick(&self, now: u64, cpu: usize, task: TaskId) -> Step {
        let Some(view) = self.world.tasks.get(task.index()) else {
            return self.fault(now, cpu, format!("it picked {task}, which does not exist"));
        };
        let fits = view.alive && view.runnable() == Runnable::Yes && view.on_cpu().is_none();
        if fits && view.affinity.contains(CpuId(cpu as u32)) {
            return Ok(());
        }
        let what = format!(
            "behind its agents it picked {task} (runnable {:?}, on {:?}, may run on {})",
            view.runnable(),
            view.on_cpu(),
            view.affinity
        );
        self.fault(now, cpu, what)
    }

    fn fault<T>(&self, now: u64, cpu: usize, what: String) -> Step<T> {
        let id = CpuId(cpu as u32);
        let cx = Cx { now: Ns(now), cpu: id, world: &self.world, out: &self.out };
        let state = self.scheduler.explain(&cx, id);
        Err(Box::new(SimError::Scheduler { at: Ns(now), cpu: self.outer[cpu], what, state }))
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
        self.seats[cpu].taken |= why == super::Failed::Busy;
        self.ask(cpu);
    }
}
