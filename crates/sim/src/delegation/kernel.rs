//! The kernel's end: a scheduler that decides nothing. It writes messages, runs what transactions
//! latched, and keeps the kernel's own scheduler above the tasks of the enclave.

mod messages;

use super::{DelegationCosts, DelegationMetrics, Failed};
use schedlab_model::{CpuId, Ns, Policy, TaskId};
use schedlab_scheduler::{
    Change, Cx, Needs, Pick, Prev, Rejection, Scheduler, Timer, Wake, WakeKind, World,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

pub(super) use messages::{Message, News, What};

/// The scheduler of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Enclave,
    /// The kernel's own scheduler; false: it has not heard of the task yet.
    Own(bool),
}

#[derive(Clone, Copy, Debug)]
struct Task {
    class: Class,
    /// Grows with every message about it: the barrier that transactions name.
    seq: u32,
    alive: bool,
    runnable: bool,
    on: Option<CpuId>,
    /// Runnable and not running since.
    since: u64,
    parent: Option<TaskId>,
}

/// A transaction that was committed and waits for its CPU.
#[derive(Clone, Copy, Debug)]
struct Latch {
    /// `None`: leave the CPU idle.
    task: Option<TaskId>,
    local: bool,
    /// Transactions before it in the same commit.
    before: u64,
    group: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    latch: Option<Latch>,
    yielded: bool,
    /// The kernel's own scheduler has it.
    taken: bool,
}

/// A commit that still has transactions which are not on their CPUs yet.
#[derive(Clone, Copy, Debug)]
struct Group {
    began: u64,
    left: u64,
    last: u64,
}

/// What an agent asks of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Order {
    pub(super) cpu: CpuId,
    /// `None`: take off what runs there.
    pub(super) task: Option<TaskId>,
    pub(super) seq: u32,
}

struct DelegationState {
    tasks: Vec<Task>,
    cpus: Vec<Cpu>,
    posted: Vec<Message>,
    groups: BTreeMap<u64, Group>,
    next_group: u64,
    dead: bool,
    /// The kernel's own scheduler has tasks.
    own_used: bool,
    metrics: DelegationMetrics,
}

/// The kernel's end of delegation; see the module.
pub(super) struct Kernel<'a> {
    policy: &'a dyn Scheduler,
    own: &'a dyn Scheduler,
    costs: DelegationCosts,
    /// The agents' number of each CPU, if they have it.
    inner: Vec<Option<usize>>,
    call_cost: Cell<u64>,
    state: RefCell<DelegationState>,
}

impl<'a> Kernel<'a> {
    /// `inner`: by CPU, the agents' number of it; `outside`: by task, whether the kernel's `own`
    /// scheduler keeps it.
    pub(super) fn new(
        policy: &'a dyn Scheduler,
        own: &'a dyn Scheduler,
        costs: DelegationCosts,
        inner: Vec<Option<usize>>,
        outside: &[bool],
    ) -> Kernel<'a> {
        let cpus = inner.len();
        let task = |outside: &bool| Task {
            class: if *outside { Class::Own(true) } else { Class::Enclave },
            seq: 0,
            alive: false,
            runnable: false,
            on: None,
            since: 0,
            parent: None,
        };
        let state = DelegationState {
            tasks: outside.iter().map(task).collect(),
            cpus: vec![Cpu::default(); cpus],
            posted: Vec::new(),
            groups: BTreeMap::new(),
            next_group: 0,
            dead: false,
            own_used: outside.contains(&true),
            metrics: DelegationMetrics::default(),
        };
        Kernel { policy, own, costs, inner, call_cost: Cell::new(0), state: RefCell::new(state) }
    }

    /// Returns the nanoseconds that the call just made takes on its CPU.
    pub(super) fn call_cost(&self) -> &Cell<u64> {
        &self.call_cost
    }

    /// The messages since the last time.
    pub(super) fn take_posted(&self, into: &mut Vec<Message>) {
        into.append(&mut self.state.borrow_mut().posted);
    }

    /// Gives access to the measurements.
    pub(super) fn measure<T>(&self, with: impl FnOnce(&mut DelegationMetrics) -> T) -> T {
        with(&mut self.state.borrow_mut().metrics)
    }

    /// Commits a transaction group of an agent. The CPUs of those that succeeded still have to be
    /// asked.
    pub(super) fn commit(
        &self,
        cx: &Cx<'_>,
        orders: &[Order],
        local: bool,
        began: u64,
        unread: bool,
    ) -> Vec<Result<(), Failed>> {
        let state = &mut *self.state.borrow_mut();
        let group = state.next_group;
        let mut good = 0;
        let mut results = Vec::with_capacity(orders.len());
        for order in orders {
            let result = if unread { Err(Failed::AgentStale) } else { state.check(cx, order) };
            state.metrics.transactions += 1;
            match result {
                Ok(()) => {
                    let latch = Latch { task: order.task, local, before: good, group };
                    if let Some(old) = state.cpus[order.cpu.index()].latch.replace(latch) {
                        state.settle(old, None);
                    }
                    good += 1;
                }
                Err(why) => state.metrics.failed[why as usize] += 1,
            }
            results.push(result);
        }
        if good > 0 {
            state.next_group += 1;
            state.groups.insert(group, Group { began, left: good, last: 0 });
        }
        state.metrics.commits += 1;
        state.metrics.commit.record(Ns(cx.now.0 - began));
        results
    }

    /// Checks whether the tasks that the agents' view has on the CPUs are those that run, and those
    /// it has queued wait. `seen(task)` is (queued, CPU) there.
    pub(super) fn agrees(
        &self,
        seen: impl Fn(TaskId) -> (bool, Option<CpuId>),
    ) -> Result<(), String> {
        let state = self.state.borrow();
        if state.cpus.iter().any(|cpu| cpu.latch.is_some()) {
            return Ok(());
        }
        for (t, task) in
            state.tasks.iter().enumerate().filter(|(_, task)| task.class == Class::Enclave)
        {
            let (queued, on) = seen(t.into());
            let (waits, runs) = (task.runnable && task.on.is_none(), task.on);
            if queued != waits || (on != runs && !state.cpus.iter().any(|cpu| cpu.taken)) {
                let id = TaskId::from(t);
                return Err(format!(
                    "agents are idle and take {id} for queued {queued}, on {on:?}; it is waiting \
                     {waits}, on {runs:?}"
                ));
            }
        }
        Ok(())
    }

    /// Returns whether a task of the enclave has waited for longer than `limit`.
    pub(super) fn starves(&self, now: u64, limit: u64) -> bool {
        let waits =
            |task: &Task| task.class == Class::Enclave && task.runnable && task.on.is_none();
        self.state.borrow().tasks.iter().any(|task| waits(task) && now - task.since > limit)
    }

    /// The enclave is destroyed: its tasks belong to the kernel's own scheduler from now on. Those
    /// that run follow when their CPUs decide.
    pub(super) fn destroy(&self, cx: &Cx<'_>) {
        let waiting: Vec<TaskId> = {
            let state = &mut *self.state.borrow_mut();
            (state.dead, state.own_used) = (true, true);
            state.cpus.iter_mut().for_each(|cpu| cpu.latch = None);
            state.posted.clear();
            state.metrics.fell_back_at = Some(cx.now);
            let tasks = state.tasks.iter_mut().enumerate();
            tasks
                .filter(|(_, task)| task.class == Class::Enclave && task.on.is_none())
                .filter_map(|(t, task)| {
                    task.class = Class::Own(false);
                    (task.alive && task.runnable).then(|| TaskId::from(t))
                })
                .collect()
        };
        for task in waiting {
            self.hand_over(cx, task);
        }
    }

    /// Makes a runnable task of the late enclave known to the kernel's own scheduler.
    fn hand_over(&self, cx: &Cx<'_>, task: TaskId) {
        let parent = {
            let record = &mut self.state.borrow_mut().tasks[task.index()];
            record.class = Class::Own(true);
            record.parent
        };
        self.own.changed(cx, Change::Created { task, parent });
        let wake = Wake { kind: WakeKind::New, sync: false, waker: schedlab_model::Waker::Unknown };
        self.own.wake(cx, task, wake);
    }

    fn in_enclave(&self, task: TaskId) -> bool {
        self.state.borrow().tasks[task.index()].class == Class::Enclave
    }

    fn own_used(&self) -> bool {
        self.state.borrow().own_used
    }

    fn pay(&self, ns: Ns) {
        self.call_cost.set(self.call_cost.get() + ns.0);
    }
}

impl DelegationState {
    fn post(&mut self, cx: &Cx<'_>, cpu: CpuId, what: What, produce: Ns) {
        let (posted, visible) = (cx.now.0, cx.now.0 + produce.0);
        let home = match what {
            What::Task(task, ..) => cx.task(task).last_cpu(),
            _ => cpu,
        };
        self.posted.push(Message { posted, visible, cpu, home, what });
    }

    fn tell(&mut self, cx: &Cx<'_>, cpu: CpuId, task: TaskId, news: News, produce: Ns) {
        let record = &mut self.tasks[task.index()];
        record.seq += 1;
        let seq = record.seq;
        self.post(cx, cpu, What::Task(task, seq, news), produce);
    }

    fn check(&self, cx: &Cx<'_>, order: &Order) -> Result<(), Failed> {
        let cpu = &self.cpus[order.cpu.index()];
        if cpu.taken {
            return Err(Failed::Busy);
        }
        let Some(id) = order.task else { return Ok(()) };
        let task = &self.tasks[id.index()];
        if !task.alive || task.class != Class::Enclave {
            return Err(Failed::Gone);
        }
        if task.seq != order.seq || !task.runnable {
            return Err(Failed::Stale);
        }
        if task.on.is_some_and(|on| on != order.cpu) {
            return Err(Failed::OnCpu);
        }
        if !cx.task(id).affinity.contains(order.cpu) {
            return Err(Failed::Affinity);
        }
        Ok(())
    }

    /// Ends a latched transaction: its task runs from `at` on, or never did.
    fn settle(&mut self, latch: Latch, at: Option<u64>) {
        let Some(group) = self.groups.get_mut(&latch.group) else { return };
        group.left -= 1;
        group.last = group.last.max(at.unwrap_or(0));
        if group.left == 0 {
            let Group { began, last, .. } = *group;
            self.groups.remove(&latch.group);
            if last > 0 {
                self.metrics.end_to_end.record(Ns(last - began));
            }
        }
    }

    /// Returns what runs on `cpu` now that the kernel's own scheduler does not want it, and what
    /// the way there costs. `prev`: the task of the enclave that ran; `may_stay`: it still wants
    /// to.
    fn run_latched(
        &mut self,
        cx: &Cx<'_>,
        cpu: CpuId,
        prev: Option<TaskId>,
        may_stay: bool,
        costs: &DelegationCosts,
    ) -> (Option<TaskId>, Ns) {
        let stay = prev.filter(|_| may_stay);
        let Some(latch) = self.cpus[cpu.index()].latch.take() else { return (stay, Ns::ZERO) };
        let fits = |task: TaskId| {
            let record = &self.tasks[task.index()];
            record.runnable
                && record.class == Class::Enclave
                && record.on.is_none_or(|on| on == cpu)
        };
        if let Some(task) = latch.task.filter(|task| !fits(*task)) {
            self.settle(latch, None);
            self.tell(cx, cpu, task, News::LatchFailed, costs.msg_produce_ns);
            return (stay, costs.msg_produce_ns);
        }
        let mut price = costs.ctx_switch_ns;
        if !latch.local {
            price += costs.txn_target_ns + costs.txn_target_group_ns * latch.before;
        }
        if latch.task == stay {
            price = Ns::ZERO;
        } else if let Some(prev) = stay.filter(|_| !latch.local) {
            // An agent that took the CPU itself knows.
            self.tell(cx, cpu, prev, News::Preempted, costs.msg_produce_ns);
            price += costs.msg_produce_ns;
        }
        if latch.task.is_none() {
            price = price.saturating_sub(costs.ctx_switch_ns);
        }
        self.settle(latch, latch.task.map(|_| cx.now.0 + price.0));
        (latch.task, price)
    }

    /// The kernel's own scheduler wants `cpu`: the task of the enclave has to go.
    fn take_cpu(&mut self, cx: &Cx<'_>, cpu: CpuId, stay: Option<TaskId>, costs: &DelegationCosts) {
        let produce = costs.msg_produce_ns;
        if let Some(prev) = stay {
            self.tell(cx, cpu, prev, News::Preempted, produce);
        }
        if !std::mem::replace(&mut self.cpus[cpu.index()].taken, true) && !self.dead {
            self.post(cx, cpu, What::Available(false), produce);
        }
        if let Some(latch) = self.cpus[cpu.index()].latch.take() {
            self.settle(latch, None);
            self.metrics.failed[Failed::Busy as usize] += 1;
            if let Some(task) = latch.task {
                self.tell(cx, cpu, task, News::LatchFailed, produce);
            }
        }
    }

    fn put_off(&mut self, now: u64, task: TaskId) {
        let record = &mut self.tasks[task.index()];
        (record.on, record.since) = (None, now);
    }
}

impl Kernel<'_> {
    /// Tells the agent what the end of `prev`'s run means; returns whether it could go on. Adds to
    /// the cost of the call.
    fn leaves(&self, cx: &Cx<'_>, cpu: CpuId, prev: TaskId, why: Prev) -> bool {
        let state = &mut *self.state.borrow_mut();
        let yielded = std::mem::take(&mut state.cpus[cpu.index()].yielded);
        let news = match why {
            Prev::Blocked => News::Blocked,
            Prev::Exited => News::Dead,
            _ if yielded => News::Yielded,
            _ => return true,
        };
        let record = &mut state.tasks[prev.index()];
        record.runnable = news == News::Yielded;
        record.alive = news != News::Dead;
        self.pay(self.costs.msg_produce_ns);
        state.tell(cx, cpu, prev, news, self.costs.msg_produce_ns);
        false
    }

    /// A task that ran when the enclave died: the kernel's own scheduler gets it.
    fn adopt(&self, cx: &Cx<'_>, prev: TaskId, why: Prev) {
        {
            let record = &mut self.state.borrow_mut().tasks[prev.index()];
            record.class = Class::Own(false);
            record.runnable = why == Prev::Runnable;
            record.alive = why != Prev::Exited;
        }
        if why == Prev::Runnable {
            self.hand_over(cx, prev);
        }
    }
}

impl Scheduler for Kernel<'_> {
    fn needs(&self) -> Needs {
        Needs {
            wakeups: true,
            one_lock: false,
            own_marks: false,
            nohz_full: false,
            ..self.own.needs()
        }
    }

    fn refuses(&self, policy: Policy) -> Option<&'static str> {
        self.policy.refuses(policy).or_else(|| self.own.refuses(policy))
    }

    fn rejects(&self, world: &World) -> Option<Rejection> {
        self.policy.rejects(world)
    }

    fn init(&self, cx: &Cx<'_>) {
        for (task, view) in self.state.borrow_mut().tasks.iter_mut().zip(&cx.world.tasks) {
            task.alive = view.alive;
        }
        self.own.init(cx);
    }

    fn wake(&self, cx: &Cx<'_>, task: TaskId, wake: Wake) {
        let class = {
            let record = &mut self.state.borrow_mut().tasks[task.index()];
            (record.runnable, record.alive, record.since) = (true, true, cx.now.0);
            record.class
        };
        match class {
            Class::Own(true) => self.own.wake(cx, task, wake),
            Class::Own(false) => self.hand_over(cx, task),
            Class::Enclave => {
                let released = cx.task(task).released.get();
                let state = &mut *self.state.borrow_mut();
                let parent = state.tasks[task.index()].parent;
                let news = match wake.kind {
                    WakeKind::New => News::New { parent, released },
                    _ => News::Wakeup { wake, released },
                };
                self.pay(self.costs.msg_produce_ns);
                state.tell(cx, cx.cpu, task, news, self.costs.msg_produce_ns);
            }
        }
    }

    fn leave(&self, cx: &Cx<'_>, task: TaskId) {
        if !self.in_enclave(task) {
            self.own.leave(cx, task);
        }
    }

    fn yielded(&self, cx: &Cx<'_>, task: TaskId) {
        if self.in_enclave(task) {
            self.state.borrow_mut().cpus[cx.cpu.index()].yielded = true;
        } else {
            self.own.yielded(cx, task);
        }
    }

    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        let mut inside = prev.filter(|task| self.in_enclave(*task));
        let mut outside = prev.filter(|task| !self.in_enclave(*task));
        if let Some(task) = inside.filter(|_| self.state.borrow().dead) {
            self.adopt(cx, task, why);
            // For the kernel's own scheduler this task was never there, so its switch is one away
            // from idle.
            (inside, outside) = (None, None);
        } else if outside.is_some_and(|task| !matches!(self.class(task), Class::Own(true))) {
            outside = None;
        }
        let may_stay = inside.is_some_and(|task| self.leaves(cx, cpu, task, why));
        let mut pick = Pick::IDLE;
        if self.own_used() {
            pick = self.own.schedule(
                cx,
                cpu,
                outside,
                if outside.is_some() { why } else { Prev::Idle },
            );
        }
        let state = &mut *self.state.borrow_mut();
        if pick.task.is_some() {
            if pick.task != prev {
                self.pay(self.costs.cfs_switch_ns);
            }
            state.take_cpu(cx, cpu, inside.filter(|_| may_stay), &self.costs);
        } else if !state.dead {
            if std::mem::take(&mut state.cpus[cpu.index()].taken) {
                state.post(cx, cpu, What::Available(true), self.costs.msg_produce_ns);
            }
            let (task, price) = state.run_latched(cx, cpu, inside, may_stay, &self.costs);
            self.pay(price);
            pick.task = task;
        }
        if let Some(prev) = prev.filter(|prev| pick.task != Some(*prev)) {
            state.put_off(cx.now.0, prev);
        }
        if let Some(next) = pick.task {
            state.tasks[next.index()].on = Some(cpu);
        }
        pick
    }

    fn saved(&self, cx: &Cx<'_>, cpu: CpuId, prev: TaskId) {
        if self.class(prev) == Class::Own(true) {
            self.own.saved(cx, cpu, prev);
        }
    }

    fn tick(&self, cx: &Cx<'_>, cpu: CpuId) {
        if self.own_used() {
            self.own.tick(cx, cpu);
        }
    }

    fn tick_due(&self, cx: &Cx<'_>, cpu: CpuId) -> u64 {
        if self.own_used() { self.own.tick_due(cx, cpu) } else { u64::MAX }
    }

    fn timer(&self, cx: &Cx<'_>, timer: Timer) {
        self.own.timer(cx, timer);
    }

    fn call(&self, cx: &Cx<'_>, cookie: u64) {
        self.own.call(cx, cookie);
    }

    fn changed(&self, cx: &Cx<'_>, change: Change) {
        match change {
            Change::Created { task, parent } => {
                let class = {
                    let record = &mut self.state.borrow_mut().tasks[task.index()];
                    (record.parent, record.alive, record.runnable) = (parent, true, false);
                    record.class
                };
                if class == Class::Own(true) {
                    self.own.changed(cx, change);
                }
            }
            Change::Released(task) if self.in_enclave(task) => {
                let released = cx.task(task).released.get();
                self.state.borrow_mut().tell(cx, cx.cpu, task, News::Released(released), Ns::ZERO);
            }
            _ => self.own.changed(cx, change),
        }
    }

    fn resync(&self, cx: &Cx<'_>) {
        self.own.resync(cx);
    }

    fn explain(&self, cx: &Cx<'_>, cpu: CpuId) -> String {
        let state = self.state.borrow();
        let agents = match self.inner[cpu.index()] {
            Some(inner) => self.policy.explain(cx, inner.into()),
            None => "one spins here".to_owned(),
        };
        format!("latched {:?}; agents: {agents}", state.cpus[cpu.index()].latch)
    }
}

impl Kernel<'_> {
    fn class(&self, task: TaskId) -> Class {
        self.state.borrow().tasks[task.index()].class
    }
}
