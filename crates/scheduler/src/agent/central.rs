//! One queue for all CPUs, in levels; the part that the agent schedulers share.
//!
//! An activation enters at the tail of its level. A CPU takes the first task of the best level that
//! may run there. A task whose time is used up goes to the tail of the level that the rules name;
//! one that was preempted before that stays the first of its level and keeps what is left of its
//! time.

use crate::{Change, Cmd, Cx, Lock, Locks, Needs, Pick, Prev, Runnable, Scheduler, Wake, Work};
use schedlab_model::{CpuId, CpuSet, Ns, Policy, TaskId};
use std::collections::VecDeque;

/// What distinguishes one scheduler over this queue from another. Level 0 is served first.
pub(super) trait Rules: Send + 'static {
    /// Number of levels.
    fn levels(&self) -> usize;
    /// The level of an activation that begins now.
    fn woken(&mut self, cx: &Cx<'_>, task: TaskId) -> usize;
    /// How long a task of this level runs before it goes behind others; `None`: until it blocks.
    fn slice(&self, level: usize) -> Option<Ns>;
    /// Where a task goes whose slice of this level is used up.
    fn expired(&mut self, level: usize) -> usize {
        level
    }
    /// A task runs for the first time in its activation, after it waited for `wait`: the level at
    /// which it goes on.
    fn begins(&mut self, level: usize, _wait: Ns) -> usize {
        level
    }
    /// Whether the level of a task follows from its policy, and changes with it.
    fn follows_policy(&self) -> bool {
        false
    }
}

/// A scheduler made of [`Rules`] over one queue.
pub(super) struct Central<L: Locks, R: Rules> {
    state: L::Lock<CentralState<R>>,
}

struct CentralState<R> {
    rules: R,
    queues: Vec<VecDeque<TaskId>>,
    tasks: Vec<Account>,
    cpus: Vec<Seat>,
    /// CPUs that were not asked, by what runs there: a set for each level, and the idle ones behind
    /// them.
    open: Vec<CpuSet>,
}

/// What is known of one task.
#[derive(Clone, Copy, Default)]
struct Account {
    level: usize,
    queued: bool,
    /// It ran in this activation.
    begun: bool,
    /// It yielded: its slice counts as used up.
    yielded: bool,
    /// Time of its slice that is used up.
    used: Ns,
    /// When it was enqueued, or began to run.
    since: Ns,
}

/// What is known of one CPU.
#[derive(Clone, Copy)]
struct Seat {
    runs: Option<TaskId>,
    /// The level of what runs; `usize::MAX` when nothing does.
    level: usize,
    /// It was asked to decide anew and has not done so: no second wakeup counts on it.
    asked: bool,
}

impl Seat {
    const IDLE: Seat = Seat { runs: None, level: usize::MAX, asked: false };
}

impl<R: Rules> CentralState<R> {
    fn fill(&mut self, cx: &Cx<'_>) {
        self.queues = (0..self.rules.levels())
            .map(|_| VecDeque::with_capacity(cx.world.tasks.len()))
            .collect();
        self.tasks = vec![Account::default(); cx.world.tasks.len()];
        self.cpus = vec![Seat::IDLE; cx.world.cpus.len()];
        self.open = vec![CpuSet::EMPTY; self.rules.levels() + 1];
        self.open[self.rules.levels()] = cx.world.all_cpus();
    }

    /// From now on `seat` is what is known of `cpu`. What runs there has its level for as long as
    /// it runs, but for [`Change::Attributes`].
    fn set_seat(&mut self, cpu: usize, seat: Seat) {
        let old = std::mem::replace(&mut self.cpus[cpu], seat);
        let kind = |seat: Seat| seat.level.min(self.open.len() - 1);
        let (before, after) = (kind(old), kind(seat));
        self.open[before].remove(cpu.into());
        if !seat.asked {
            self.open[after].insert(cpu.into());
        }
    }

    fn activate(&mut self, cx: &Cx<'_>, task: TaskId) {
        let level = self.rules.woken(cx, task);
        self.tasks[task.index()] = Account { level, ..Account::default() };
        self.push(cx, task, true);
        self.ask(cx, task);
    }

    fn push(&mut self, cx: &Cx<'_>, task: TaskId, tail: bool) {
        let account = &mut self.tasks[task.index()];
        account.queued = true;
        account.since = cx.now;
        let queue = &mut self.queues[account.level];
        if tail {
            queue.push_back(task)
        } else {
            queue.push_front(task)
        }
        cx.touch(task, true);
    }

    fn remove(&mut self, task: TaskId) {
        let account = &mut self.tasks[task.index()];
        if std::mem::take(&mut account.queued) {
            self.queues[account.level].retain(|queued| *queued != task);
        }
    }

    /// Asks the CPU that should run `task` to decide: an idle one (its last one, then the lowest),
    /// else the one that runs the worst level, if that is worse than the task's own.
    fn ask(&mut self, cx: &Cx<'_>, task: TaskId) {
        let view = cx.task(task);
        let level = self.tasks[task.index()].level;
        let (last, idle) = (view.last_cpu(), self.open.len() - 1);
        let fits = |cpu: CpuId| cx.cpu(cpu).online && view.affinity.contains(cpu);
        let found = if self.open[idle].contains(last) && fits(last) {
            Some(last)
        } else {
            let worse = self.open[level + 1..].iter().rev();
            worse.flat_map(CpuSet::iter).find(|cpu| fits(*cpu))
        };
        if let Some(cpu) = found {
            self.set_seat(cpu.index(), Seat { asked: true, ..self.cpus[cpu.index()] });
            cx.push(Cmd::Resched(cpu));
        }
    }

    /// Takes off `prev`, as `why` says.
    fn put(&mut self, cx: &Cx<'_>, prev: TaskId, why: Prev) {
        let account = &mut self.tasks[prev.index()];
        account.used += cx.now.saturating_sub(account.since);
        if why != Prev::Runnable || account.queued {
            return;
        }
        let slice = self.rules.slice(account.level);
        let used_up = account.yielded || slice.is_some_and(|slice| account.used >= slice);
        if used_up {
            account.used = Ns::ZERO;
            account.yielded = false;
            account.level = self.rules.expired(account.level);
        }
        self.push(cx, prev, used_up);
    }

    /// The first task of the best level that may run on `cpu`, off its queue.
    fn take(&mut self, cx: &Cx<'_>, cpu: CpuId) -> Option<TaskId> {
        for queue in &mut self.queues {
            for place in 0..queue.len() {
                cx.did(Work::Scan, 1);
                if cx.task(queue[place]).affinity.contains(cpu) {
                    return queue.remove(place);
                }
            }
        }
        None
    }

    /// The task that `take` would give.
    fn first(&self, cx: &Cx<'_>, cpu: CpuId) -> Option<TaskId> {
        self.queues.iter().flatten().copied().find(|task| cx.task(*task).affinity.contains(cpu))
    }

    fn run(&mut self, cx: &Cx<'_>, task: TaskId) -> Pick {
        let account = &mut self.tasks[task.index()];
        account.queued = false;
        if !std::mem::replace(&mut account.begun, true) {
            account.level = self.rules.begins(account.level, cx.now.saturating_sub(account.since));
        }
        account.since = cx.now;
        let left = self
            .rules
            .slice(account.level)
            .map(|slice| slice.saturating_sub(account.used).max(Ns(1)));
        Pick { slice_ns: left, note: account.level as i64, ..Pick::run(task) }
    }
}

impl<L: Locks, R: Rules> Central<L, R> {
    pub(super) fn new(rules: R) -> Central<L, R> {
        let state = CentralState {
            rules,
            queues: Vec::new(),
            tasks: Vec::new(),
            cpus: Vec::new(),
            open: Vec::new(),
        };
        Central { state: L::Lock::new(state) }
    }
}

impl<L: Locks, R: Rules> Scheduler for Central<L, R> {
    fn needs(&self) -> Needs {
        let state = self.state.lock();
        let exact_slices =
            (0..state.rules.levels()).any(|level| state.rules.slice(level).is_some());
        Needs { wakeups: true, exact_slices, ..Needs::default() }
    }

    fn refuses(&self, policy: Policy) -> Option<&'static str> {
        super::refuses_deadlines(policy)
    }

    fn init(&self, cx: &Cx<'_>) {
        self.state.lock().fill(cx);
    }

    fn wake(&self, cx: &Cx<'_>, task: TaskId, _wake: Wake) {
        cx.did(Work::Lock, 1);
        self.state.lock().activate(cx, task);
    }

    fn leave(&self, _cx: &Cx<'_>, task: TaskId) {
        self.state.lock().remove(task);
    }

    fn yielded(&self, _cx: &Cx<'_>, task: TaskId) {
        self.state.lock().tasks[task.index()].yielded = true;
    }

    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        cx.did(Work::Lock, 1);
        let mut state = self.state.lock();
        if let Some(prev) = prev {
            state.put(cx, prev, why);
        }
        let next = state.take(cx, cpu);
        let pick = next.map_or(Pick::IDLE, |task| state.run(cx, task));
        let level = next.map_or(usize::MAX, |task| state.tasks[task.index()].level);
        state.set_seat(cpu.index(), Seat { runs: next, level, asked: false });
        // The task that took its place may have been pinned here: then another CPU can be free for
        // it.
        if let Some(prev) = prev.filter(|prev| state.tasks[prev.index()].queued) {
            state.ask(cx, prev);
        }
        pick
    }

    fn ahead(&self, cx: &Cx<'_>, cpu: CpuId) -> Option<TaskId> {
        self.state.lock().first(cx, cpu)
    }

    fn changed(&self, cx: &Cx<'_>, change: Change) {
        let mut state = self.state.lock();
        match change {
            Change::Affinity(task) => {
                match state.cpus.iter().position(|seat| seat.runs == Some(task)) {
                    Some(cpu) if !cx.task(task).affinity.contains(cpu.into()) => {
                        cx.push(Cmd::Displace(task))
                    }
                    None if state.tasks[task.index()].queued => state.ask(cx, task),
                    _ => {}
                }
            }
            Change::Attributes(task) if state.rules.follows_policy() => {
                let level = state.rules.woken(cx, task);
                if state.tasks[task.index()].queued {
                    state.remove(task);
                    state.tasks[task.index()].level = level;
                    state.push(cx, task, true);
                    state.ask(cx, task);
                } else {
                    state.tasks[task.index()].level = level;
                    if let Some(cpu) = state.cpus.iter().position(|seat| seat.runs == Some(task)) {
                        let runs = state.cpus[cpu].runs;
                        state.set_seat(cpu, Seat { runs, level, asked: true });
                        cx.push(Cmd::Resched(cpu.into()));
                    }
                }
            }
            Change::Online(cpu, true) => cx.push(Cmd::Resched(cpu)),
            _ => {}
        }
    }

    fn resync(&self, cx: &Cx<'_>) {
        let mut state = self.state.lock();
        state.fill(cx);
        let views = || cx.world.tasks.iter().enumerate().filter(|(_, view)| view.alive);
        for (task, view) in views() {
            if let Some(cpu) = view.on_cpu() {
                let level = state.rules.woken(cx, task.into());
                state.tasks[task] =
                    Account { level, begun: true, since: cx.now, ..Account::default() };
                state.set_seat(cpu.index(), Seat { runs: Some(task.into()), level, asked: false });
            }
        }
        for (task, view) in views() {
            if view.on_cpu().is_none() && view.runnable() != Runnable::No {
                state.activate(cx, task.into());
            }
        }
    }

    fn explain(&self, _cx: &Cx<'_>, cpu: CpuId) -> String {
        match self.state.try_lock() {
            Some(state) => {
                format!("runs {:?}, queues {:?}", state.cpus[cpu.index()].runs, state.queues)
            }
            None => "locked".to_owned(),
        }
    }
}
