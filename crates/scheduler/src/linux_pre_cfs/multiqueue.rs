//! `linux-2.4-mq`: the decision of 2.4 from per-CPU lists (Kravetz and Franke, "2.5.0 Multi-Queue
//! Scheduler", December 2001).
//!
//! Each CPU has a list and a lock of its own and advertises its best task that another CPU could
//! take. A decision searches its own list, then compares with the advertisements of the others and
//! steals when one is better by more than the affinity bonus. No lock but the own one is waited
//! for; the second is only tried.
//!
//! # Example
//! 256 hogs that all start on one of two CPUs end up 128 and 128, by 128 steals in the first epoch
//! (test `hogs_spread_by_stealing`).
//!
//! # Fidelity
//! | rule | the patch | here | test |
//! |---|---|---|---|
//! | own list by local goodness, affinity bonus afterwards | 2.5.0 version | modelled | `two_processes_run_120_ms_and_two_threads_60_ms` |
//! | advertisement, steal, re-advertise the first stealable | 2.5.0 version | modelled | `hogs_spread_by_stealing` |
//! | wakeup: idle the longest, else the lowest goodness, by trylock | 2.5.0 version | modelled | property tests |
//! | recharge of all tasks with the own lock dropped | yes | modelled | |
//! | one global list for real-time tasks | up to the version for 2.4.14 | omitted: they stay on the per-CPU lists, as in 2.5.0 | |
//! | `na_goodness` of the running task is that of its pick | yes | modelled | |
//! | waiting for a list's lock | spinning | omitted: the lock of a list is free, or a try fails at once | |
//! | all tasks on one list | no | knob `lists`, a test of an explanation (scenario `smp-evaluation`) | `one_list_is_stolen_from` |

mod steal;

use super::goodness::{self, NOTHING, Record, charge_ticks};
use super::lists::{LISTS, Lists};
use super::records::{List, NIL, Word};
use crate::{
    Change, Cmd, Cx, Knob, Knobs, Lock, Locks, Needs, Pick, Prev, Runnable, Scheduler, Wake, Work,
    rows,
};
use schedlab_model::{CpuId, Policy, TaskId};
use std::sync::OnceLock;

/// What a CPU's lock guards.
struct Queue {
    list: List,
    curr: Option<TaskId>,
    mm: i64,
    idle_yield: bool,
}

/// What others read without the lock.
struct Board {
    /// `na_goodness` of the best stealable task, or [`NOTHING`].
    max_na: Word,
    /// That task.
    max_task: Word,
    /// `na_goodness` of the running task at its pick, or [`NOTHING`] when idle.
    curr_na: Word,
    /// Time of the last switch, ns.
    last_schedule: Word,
    /// Who runs, or [`NIL`].
    runs: Word,
    /// Tick edges charged so far.
    ticks_seen: Word,
}

/// The scheduler.
pub(super) struct MultiQueue<L: Locks> {
    penalty: i64,
    lists: Lists,
    queues: Vec<L::Lock<Queue>>,
    boards: Vec<Board>,
    tasks: OnceLock<Box<[L::Slot<Record>]>>,
}

/// The knobs of `linux-2.4-mq`.
pub(super) fn knobs_mq() -> Vec<Knob> {
    [goodness::knobs(), rows(&[&LISTS], &())].concat()
}

/// `linux-2.4-mq`, which several threads may call at once if the locks are real ones.
pub fn new_mq<L: Locks>(cpus: usize, knobs: &Knobs) -> impl Scheduler + use<L> {
    let queue =
        |_| L::Lock::new(Queue { list: List::EMPTY, curr: None, mm: NIL, idle_yield: false });
    let board = |_| Board {
        max_na: Word::new(NOTHING),
        max_task: Word::new(NIL),
        curr_na: Word::new(NOTHING),
        last_schedule: Word::new(0),
        runs: Word::new(NIL),
        ticks_seen: Word::new(0),
    };
    MultiQueue::<L> {
        penalty: knobs.get(&goodness::PROC_CHANGE_PENALTY),
        lists: knobs.get(&LISTS),
        queues: (0..cpus).map(queue).collect(),
        boards: (0..cpus).map(board).collect(),
        tasks: OnceLock::new(),
    }
}

impl<L: Locks> MultiQueue<L> {
    fn records(&self, cx: &Cx<'_>) -> &[L::Slot<Record>] {
        self.tasks.get_or_init(|| cx.world.tasks.iter().map(|_| L::Slot::default()).collect())
    }

    fn record<'a>(&'a self, cx: &Cx<'_>, task: TaskId) -> &'a Record {
        &self.records(cx)[task.index()]
    }

    fn cpu_ids(&self) -> impl Iterator<Item = CpuId> + use<L> {
        (0..self.queues.len()).map(CpuId::from)
    }

    fn home(&self, cx: &Cx<'_>, task: TaskId) -> CpuId {
        CpuId(self.record(cx, task).processor.get() as u32)
    }

    fn create(&self, cx: &Cx<'_>, task: TaskId, parent: Option<TaskId>) {
        let parent = parent.filter(|parent| self.record(cx, *parent).alive.flag());
        self.charge_all(cx);
        self.record(cx, task).born(
            cx,
            task,
            parent.map(|parent| (parent, self.record(cx, parent))),
        );
        if let Some(parent) = parent
            && self.record(cx, parent).counter.get() == 0
        {
            cx.push(Cmd::Resched(self.home(cx, parent)));
        }
    }

    /// Charges tick edges to the task that runs on `cpu`; true when its slice is used up. Takes no
    /// lock, as the tick of 2.4 did not.
    fn charge(&self, cx: &Cx<'_>, cpu: CpuId) -> bool {
        let board = &self.boards[cpu.index()];
        let runs = board.runs.get();
        let record = (runs != NIL).then(|| &*self.records(cx)[runs as usize]);
        let mut seen = board.ticks_seen.get() as u64;
        let used_up = charge_ticks(cx, cpu, &mut seen, record);
        board.ticks_seen.set(seen as i64);
        used_up
    }

    /// Before counters of tasks that run elsewhere are read or changed: the driver leaves out
    /// ticks.
    fn charge_all(&self, cx: &Cx<'_>) {
        for cpu in self.cpu_ids() {
            self.charge(cx, cpu);
        }
    }

    /// Puts a task on the list of `cpu` and advertises it when it is the best that could be taken.
    fn enlist(&self, cx: &Cx<'_>, cpu: CpuId, queue: &mut Queue, task: TaskId, front: bool) {
        let record = self.record(cx, task);
        record.processor.set(i64::from(cpu.0));
        record.listed.set(1);
        cx.touch(task, true);
        let records = self.records(cx);
        let links = |id: i64| &records[id as usize].links;
        if front {
            queue.list.push_front(links, task)
        } else {
            queue.list.push_back(links, task)
        }
        let board = &self.boards[cpu.index()];
        if !record.running.flag() && record.base() > board.max_na.get() {
            board.max_na.set(record.base());
            board.max_task.set(i64::from(task.0));
        }
    }

    fn delist(&self, cx: &Cx<'_>, cpu: CpuId, queue: &mut Queue, task: TaskId) {
        let record = self.record(cx, task);
        if !record.listed.flag() {
            return;
        }
        let records = self.records(cx);
        queue.list.remove(|id| &records[id as usize].links, task);
        record.listed.set(0);
        let board = &self.boards[cpu.index()];
        if board.max_task.get() == i64::from(task.0) {
            self.advertise(cpu, NOTHING, None);
        }
    }

    /// Whether a task waits on the list of `cpu`, whose lock the caller holds: another CPU may have
    /// taken it since its home was looked up.
    fn waits_on(&self, cx: &Cx<'_>, task: TaskId, cpu: CpuId) -> bool {
        let record = self.record(cx, task);
        record.listed.flag() && !record.running.flag() && self.home(cx, task) == cpu
    }

    /// Takes a task off whatever list it is on.
    fn take_off(&self, cx: &Cx<'_>, task: TaskId) {
        loop {
            let home = self.home(cx, task);
            let mut queue = self.queues[home.index()].lock();
            if self.home(cx, task) == home {
                return self.delist(cx, home, &mut queue, task);
            }
        }
    }

    fn advertise(&self, cpu: CpuId, na: i64, task: Option<TaskId>) {
        let board = &self.boards[cpu.index()];
        board.max_na.set(na);
        board.max_task.set(task.map_or(NIL, |task| i64::from(task.0)));
    }

    /// The best task of the own list, and the best other one that does not run (it is advertised).
    fn scan(&self, cx: &Cx<'_>, cpu: CpuId, queue: &Queue) -> (Option<TaskId>, i64) {
        let records = self.records(cx);
        let mut best = (None, NOTHING);
        let mut second = (None, NOTHING);
        let mut id = queue.list.head;
        while id != NIL {
            let task = TaskId(id as u32);
            let record = &records[id as usize];
            cx.touch(task, false);
            if (queue.curr == Some(task) || !record.running.flag()) && record.runs_on(cx, task, cpu)
            {
                let base = record.base();
                let bonus = base > 0 && !record.rt.flag() && record.same_mm(queue.mm);
                let goodness = base + i64::from(bonus);
                if goodness > best.1 {
                    if best.0.is_some_and(|task: TaskId| queue.curr != Some(task)) {
                        second = best;
                    }
                    best = (Some(task), goodness);
                } else if goodness > second.1 && queue.curr != Some(task) {
                    second = (Some(task), goodness);
                }
            }
            id = record.links.next.get();
        }
        cx.did(Work::Scan, queue.list.len as u32);
        let na = second.0.map_or(NOTHING, |task| records[task.index()].base());
        self.advertise(cpu, na, second.0);
        best
    }

    fn choose(&self, cx: &Cx<'_>, cpu: CpuId, queue: &mut Queue) -> Option<TaskId> {
        loop {
            let mut local = self.scan(cx, cpu, queue);
            if local.1 > 0 {
                local.1 += self.penalty;
            }
            if self.steal(cx, cpu, queue, &mut local) && local.0.is_none() {
                self.advertise(cpu, NOTHING, None);
                self.steal(cx, cpu, queue, &mut local);
            }
            if local.1 != 0 {
                return local.0;
            }
            if !goodness::recharge_all(cx, self.records(cx).iter().map(|task| &**task)) {
                return local.0;
            }
        }
    }

    fn put_prev(&self, cx: &Cx<'_>, cpu: CpuId, queue: &mut Queue, task: TaskId, why: Prev) {
        let record = self.record(cx, task);
        if record.rr.flag() && record.counter.get() == 0 {
            record.counter.set(record.slice.get());
            if record.listed.flag() {
                self.delist(cx, cpu, queue, task);
                self.enlist(cx, cpu, queue, task, false);
            }
        }
        if !matches!(why, Prev::Runnable | Prev::Idle) {
            self.delist(cx, cpu, queue, task);
        }
        if why == Prev::Exited {
            record.alive.set(0);
            let parent = record.parent.get();
            if parent != NIL && self.records(cx)[parent as usize].alive.flag() {
                let counter = &self.records(cx)[parent as usize].counter;
                counter.set((counter.get() + record.counter.get()).min(i64::from(cx.world.hz) / 5));
            }
        }
    }

    /// Chooses a CPU for a task that became runnable (or was preempted) and enqueues it there.
    /// `queued`: it is on a list, as preempted ones are, unless another CPU takes it meanwhile.
    fn reschedule_idle(&self, cx: &Cx<'_>, task: TaskId, queued: bool) {
        let record = self.record(cx, task);
        let home = self.home(cx, task);
        let allowed = |cpu: CpuId| record.runs_on(cx, task, cpu);
        let home_idle = self.boards[home.index()].curr_na.get() == NOTHING;
        if home_idle && allowed(home) {
            return self.put_on(cx, home, task, true, queued);
        }
        let own = record.base();
        let mut candidates: Vec<(i64, CpuId)> = Vec::with_capacity(self.boards.len());
        for cpu in self.cpu_ids().filter(|cpu| allowed(*cpu)) {
            cx.did(Work::RemoteLine, 1);
            let board = &self.boards[cpu.index()];
            let value = match board.curr_na.get() {
                NOTHING => -(1 << 40) - (cx.now.0 as i64 - board.last_schedule.get()),
                na if cpu == home => na,
                na => na + self.penalty,
            };
            if value < own {
                candidates.push((value, cpu));
            }
        }
        candidates.sort_by_key(|(value, cpu)| (*value, cpu.0));
        for (_, cpu) in candidates {
            if self.worth(cx, cpu, task) {
                return self.put_on(cx, cpu, task, true, queued);
            }
        }
        let place = if allowed(home) {
            home
        } else {
            self.cpu_ids().find(|cpu| allowed(*cpu)).unwrap_or(home)
        };
        self.put_on(cx, place, task, false, queued);
    }

    /// Whether the task would really win on `cpu`: it is idle, or runs something worse.
    fn worth(&self, cx: &Cx<'_>, cpu: CpuId, task: TaskId) -> bool {
        let Some(queue) = self.queues[cpu.index()].try_lock() else {
            cx.did(Work::TryLockMiss, 1);
            return false;
        };
        cx.did(Work::RemoteLock, 1);
        let record = self.record(cx, task);
        queue.curr.is_none_or(|curr| {
            let current = self.record(cx, curr);
            record.goodness(cpu, queue.mm, self.penalty)
                > current.goodness(cpu, queue.mm, self.penalty)
        })
    }

    /// The list for a task that `cpu` was chosen for.
    fn list_for(&self, cx: &Cx<'_>, cpu: CpuId, task: TaskId) -> CpuId {
        let first = || self.cpu_ids().find(|cpu| self.record(cx, task).runs_on(cx, task, *cpu));
        if self.lists == Lists::First { first().unwrap_or(cpu) } else { cpu }
    }

    /// Moves the task to the list for `chosen` (it may be on another) and asks for a decision of
    /// that CPU.
    fn put_on(&self, cx: &Cx<'_>, chosen: CpuId, task: TaskId, decide: bool, queued: bool) {
        let home = self.home(cx, task);
        let cpu = self.list_for(cx, chosen, task);
        let listed = self.record(cx, task).listed.flag();
        if queued && !listed {
            // Another CPU is between taking it off one list and putting it on the next: it is
            // theirs.
            return;
        }
        if listed && home != cpu {
            let mut queue = self.queues[home.index()].lock();
            if !self.waits_on(cx, task, home) {
                return;
            }
            self.delist(cx, home, &mut queue, task);
            cx.did(Work::Move, 1);
        }
        if !listed || home != cpu {
            self.enlist(cx, cpu, &mut self.queues[cpu.index()].lock(), task, true);
        }
        if home != cpu {
            cx.push(Cmd::Moved(task, cpu));
        }
        cx.push(if decide { Cmd::Resched(chosen) } else { Cmd::TickDue(cpu) });
    }
}

impl<L: Locks> Scheduler for MultiQueue<L> {
    fn needs(&self) -> Needs {
        Needs { wakeups: true, ticks: true, saved: true, own_marks: true, ..Needs::default() }
    }

    fn stands_in(&self, policy: Policy) -> Option<&'static str> {
        super::stands_in(policy, false)
    }

    fn init(&self, cx: &Cx<'_>) {
        for (index, view) in cx.world.tasks.iter().enumerate() {
            if view.alive {
                self.create(cx, index.into(), None);
            }
        }
    }

    fn wake(&self, cx: &Cx<'_>, task: TaskId, wake: Wake) {
        cx.did(Work::Lock, 1);
        if self.record(cx, task).listed.flag() {
            return;
        }
        self.charge_all(cx);
        if wake.sync && self.record(cx, task).runs_on(cx, task, cx.cpu) {
            let home = self.home(cx, task);
            let place = if self.record(cx, task).runs_on(cx, task, home) { home } else { cx.cpu };
            return self.put_on(cx, place, task, false, false);
        }
        self.reschedule_idle(cx, task, false);
    }

    fn leave(&self, cx: &Cx<'_>, task: TaskId) {
        self.take_off(cx, task);
    }

    fn yielded(&self, cx: &Cx<'_>, task: TaskId) {
        let home = self.home(cx, task);
        let mut queue = self.queues[home.index()].lock();
        let waiting = self.cpu_ids().any(|cpu| self.boards[cpu.index()].max_na.get() != NOTHING);
        if queue.list.len <= 1 && !waiting {
            queue.idle_yield = true;
            return;
        }
        let record = self.record(cx, task);
        if !record.rt.flag() {
            record.yields.set(1);
        }
        self.delist(cx, home, &mut queue, task);
        self.enlist(cx, home, &mut queue, task, false);
    }

    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        let mut queue = self.queues[cpu.index()].lock();
        let queue = &mut *queue;
        cx.did(Work::Lock, 1);
        self.charge_all(cx);
        if let Some(task) = prev {
            if std::mem::take(&mut queue.idle_yield) && why == Prev::Runnable {
                return Pick::run(task);
            }
            self.put_prev(cx, cpu, queue, task, why);
        }
        let next = self.choose(cx, cpu, queue);
        let board = &self.boards[cpu.index()];
        board
            .curr_na
            .set(next.map_or(NOTHING, |task| self.record(cx, task).base().max(NOTHING + 1)));
        queue.curr = next;
        board.runs.set(next.map_or(NIL, |task| i64::from(task.0)));
        if let Some(task) = next {
            let record = self.record(cx, task);
            record.running.set(1);
            record.processor.set(i64::from(cpu.0));
            queue.mm = record.mm.get();
            if next == prev {
                record.yields.set(0);
            }
        }
        if next != prev {
            board.last_schedule.set(cx.now.0 as i64);
        }
        Pick { task: next, ..Pick::IDLE }
    }

    fn saved(&self, cx: &Cx<'_>, _cpu: CpuId, prev: TaskId) {
        self.charge_all(cx);
        let record = self.record(cx, prev);
        let yielded = record.yields.flag();
        record.yields.set(0);
        record.running.set(0);
        if !record.listed.flag() {
            return;
        }
        cx.did(Work::Lock, 1);
        let home = self.home(cx, prev);
        {
            let _queue = self.queues[home.index()].lock();
            if !self.waits_on(cx, prev, home) {
                return;
            }
            if record.base() > self.boards[home.index()].max_na.get() {
                self.advertise(home, record.base(), Some(prev));
            }
        }
        if !yielded {
            self.reschedule_idle(cx, prev, true);
        }
    }

    fn tick(&self, cx: &Cx<'_>, cpu: CpuId) {
        if self.charge(cx, cpu) {
            cx.push(Cmd::Resched(cpu));
        }
    }

    fn tick_due(&self, cx: &Cx<'_>, cpu: CpuId) -> u64 {
        let board = &self.boards[cpu.index()];
        let runs = board.runs.get();
        if runs == NIL {
            return u64::MAX;
        }
        let uncharged = cx.ticks(cpu).saturating_sub(board.ticks_seen.get() as u64);
        (self.records(cx)[runs as usize].counter.get() as u64).saturating_sub(uncharged).max(1)
    }

    fn changed(&self, cx: &Cx<'_>, change: Change) {
        match change {
            Change::Created { task, parent } => self.create(cx, task, parent),
            Change::Attributes(task) => {
                self.charge_all(cx);
                self.record(cx, task).describe(cx, task);
                cx.push(Cmd::Resched(self.home(cx, task)));
            }
            Change::Regrouped { task, .. } => self.record(cx, task).allow(cx, task),
            Change::Affinity(task) => {
                let home = self.home(cx, task);
                let runs = self.queues[home.index()].lock().curr == Some(task);
                let record = self.record(cx, task);
                record.allow(cx, task);
                if runs && !record.runs_on(cx, task, home) {
                    cx.push(Cmd::Displace(task));
                } else if record.listed.flag() && !runs {
                    self.take_off(cx, task);
                    self.reschedule_idle(cx, task, false);
                }
            }
            _ => {}
        }
    }

    fn resync(&self, cx: &Cx<'_>) {
        for cpu in self.cpu_ids() {
            let mut queue = self.queues[cpu.index()].lock();
            (queue.list, queue.curr) = (List::EMPTY, cx.cpu(cpu).current());
            self.boards[cpu.index()].runs.set(queue.curr.map_or(NIL, |task| i64::from(task.0)));
            self.boards[cpu.index()].ticks_seen.set(cx.ticks(cpu) as i64);
            self.advertise(cpu, NOTHING, None);
            let na = queue.curr.map_or(NOTHING, |task| self.record(cx, task).base());
            self.boards[cpu.index()].curr_na.set(na);
        }
        for (index, view) in cx.world.tasks.iter().enumerate().filter(|(_, view)| view.alive) {
            let task = TaskId::from(index);
            let record = self.record(cx, task);
            if !record.alive.flag() {
                self.create(cx, task, None);
            }
            record.allow(cx, task);
            record.listed.set(0);
            record.running.set(i64::from(view.on_cpu().is_some()));
            if view.runnable() != Runnable::No {
                self.put_on(cx, view.last_cpu(), task, true, false);
            }
        }
    }

    fn explain(&self, _cx: &Cx<'_>, cpu: CpuId) -> String {
        let queue = self.queues[cpu.index()].lock();
        let board = &self.boards[cpu.index()];
        let (na, len) = (board.max_na.get(), queue.list.len);
        format!("linux-2.4-mq {cpu}: curr {:?}, {len} on the list, advertises {na}", queue.curr)
    }
}
