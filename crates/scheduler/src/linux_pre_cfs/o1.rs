//! The O(1) scheduler: `linux-2.4-o1` (the patch of early 2002 on 2.4), `linux-2.6.0` and
//! `linux-2.6.22` (its last version).
//!
//! Each CPU has two priority arrays. A decision takes the head of the best list of the *active*
//! one, found by a bitmap; a task whose slice ends goes to the *expired* one, unless it is
//! interactive; when nothing is active the arrays change places. So a decision costs the same with
//! 2 and with 1024 tasks.
//!
//! # Example
//! Two hogs alternate with whole slices: 150 ms under `linux-2.4-o1` at HZ=100, 102 ms under
//! `linux-2.6.0` at HZ=1000, 100 ms under `linux-2.6.22`
//! (test `o1_two_hogs_alternate_with_whole_slices`).
//!
//! # Fidelity
//! | rule | real system | here | test |
//! |---|---|---|---|
//! | arrays, bitmap, swap, slices | `kernel/sched.c` of both | modelled | `version.rs`, `o1_shares_follow_slices` |
//! | sleep average, bonus, interactive requeue, starvation limit | both | modelled | `o1_a_sleeper_is_interactive` |
//! | uninterruptible sleep earns less (2.6) | 2.6.0 … 22 | omitted: a workload does not say why it sleeps | |
//! | interactive credit (2.6.0 only) | 2.6.0 | omitted | |
//! | wakeup stays on the last CPU; sync wakeups pull (backport), load decides (2.6.22) | both | modelled; SMT idle search omitted | |
//! | balancing: longest queue by history, 25 % | backport | modelled, one flat level | `o1_hogs_spread_over_the_cpus` |
//! | balancing by load over sched domains | 2.6.7 … 22 | simplified: one level, load = tasks by weight of slices | `o1_hogs_spread_over_the_cpus` |
//! | cache-hot tasks stay; active balance by the migration thread | both | modelled; active balance omitted | |
//! | second lock taken in address order | both | simplified: tried; a miss ends this balance | |
//! | yield: to the expired array (2.6), behind the next (backport) | both | modelled | `o1_a_yielder_lets_the_other_run` |

mod array;
mod balance;
mod estimate;
mod version;

use super::records::{Byte, Half, Links, NIL, Word};
use crate::{
    Change, Cmd, Cx, Knob, KnobDefault, Knobs, Lock, Locks, Needs, Pick, Prev, Runnable, Scheduler,
};
use crate::{Wake, WordKnob, Work, rows, words};
use array::Array;
use schedlab_model::{CpuId, Policy, TaskId};
use std::sync::OnceLock;
use version::{Era, Version};

/// The scheduler's record of one task.
#[derive(Debug, Default)]
struct Record {
    links: Links,
    /// 0, 1: in that array of its run queue; [`NIL`]: in none.
    array: Byte,
    prio: Half,
    static_prio: Half,
    slice: Half,
    /// The first slice is shared with the parent.
    first_slice: Byte,
    parent: Half,
    rt: Byte,
    rr: Byte,
    batch: Byte,
    /// ns.
    sleep_avg: Word,
    /// Last wakeup, switch-in or switch-out, ns.
    timestamp: Word,
    /// Last time on a CPU, ns.
    last_ran: Word,
    /// Credit for waiting on the run queue, in 128ths of the wait; 0 = none is due.
    wait_credit: Half,
    cpu: Half,
    running: Byte,
    alive: Byte,
    /// It may run on every CPU: its set, which is on another line, need not be asked.
    anywhere: Byte,
}

const _: () = assert!(size_of::<Record>() <= 64, "a decision touches one line a task");

struct Rq {
    arrays: [Array; 2],
    active: usize,
    curr: Option<TaskId>,
    nr_running: usize,
    /// Time of the first expiry since the last swap, ns; 0 = none.
    expired_timestamp: u64,
    best_expired_prio: i64,
    ticks_seen: u64,
    /// Time of the first tick edge behind those, ns.
    next_edge: u64,
    /// Queue lengths of all CPUs as seen last time.
    prev_len: Vec<u32>,
    next_balance: u64,
}

/// The scheduler.
struct O1<L: Locks> {
    version: Version,
    balance: Pull,
    rqs: Vec<L::Lock<Rq>>,
    /// Queue lengths, readable without the locks.
    lens: Vec<Word>,
    /// How many of them are 2 or more.
    crowded: Word,
    tasks: OnceLock<Box<[L::Slot<Record>]>>,
}

words! {
    /// When balancing moves tasks.
    enum Pull {
        /// A queue below about half of the busiest pulls.
        Default = "default",
        /// Never.
        Stay = "stay",
        /// At a difference of 3.
        Change = "change",
    }
}

const BALANCE: WordKnob<Pull> = WordKnob {
    name: "balance",
    default: KnobDefault::Is(Pull::Default),
    doc: "variants of affinity: default (a queue below about half of the busiest pulls), stay \
          (balancing never moves a task), change (pulls at a difference of 3)",
    source: "Taniguchi, Ishikawa, Hiraki, SMP 環境における Linux スケジューラの評価",
};

/// The knobs of the O(1) schedulers.
pub(super) fn knobs_o1() -> Vec<Knob> {
    rows(&[&BALANCE], &())
}

/// `linux-2.4-o1`, which several threads may call at once if the locks are real ones.
pub fn new_2_4_o1<L: Locks>(cpus: usize, knobs: &Knobs) -> impl Scheduler + use<L> {
    O1::<L>::new(version::V2_4_O1, cpus, knobs)
}

/// Returns `linux-2.6.0`.
pub(super) fn new_2_6_0<L: Locks>(cpus: usize, knobs: &Knobs) -> impl Scheduler + use<L> {
    O1::<L>::new(version::V2_6_0, cpus, knobs)
}

/// `linux-2.6.22`, which several threads may call at once if the locks are real ones.
pub fn new_2_6_22<L: Locks>(cpus: usize, knobs: &Knobs) -> impl Scheduler + use<L> {
    O1::<L>::new(version::V2_6_22, cpus, knobs)
}

impl<L: Locks> O1<L> {
    fn new(version: Version, cpus: usize, knobs: &Knobs) -> Self {
        let rq = |_| {
            L::Lock::new(Rq {
                arrays: [Array::new(), Array::new()],
                active: 0,
                curr: None,
                nr_running: 0,
                expired_timestamp: 0,
                best_expired_prio: 140,
                ticks_seen: 0,
                next_edge: 0,
                prev_len: vec![0; cpus],
                next_balance: 0,
            })
        };
        O1 {
            version,
            balance: knobs.get(&BALANCE),
            rqs: (0..cpus).map(rq).collect(),
            lens: (0..cpus).map(|_| Word::new(0)).collect(),
            crowded: Word::new(0),
            tasks: OnceLock::new(),
        }
    }

    fn records(&self, cx: &Cx<'_>) -> &[L::Slot<Record>] {
        self.tasks.get_or_init(|| cx.world.tasks.iter().map(|_| L::Slot::default()).collect())
    }

    fn record<'a>(&'a self, cx: &Cx<'_>, task: TaskId) -> &'a Record {
        &self.records(cx)[task.index()]
    }

    fn describe(&self, cx: &Cx<'_>, task: TaskId) {
        let view = cx.task(task);
        let record = self.record(cx, task);
        record.static_prio.set(120 + i64::from(view.nice.get()));
        record.rt.set(i64::from(view.policy.rt_priority()));
        record.rr.set(i64::from(matches!(view.policy, Policy::Rr(_))));
        record.batch.set(i64::from(matches!(view.policy, Policy::Batch | Policy::Idle)));
        record.prio.set(self.effective_prio(record));
    }

    fn fresh_slice(&self, cx: &Cx<'_>, record: &Record) -> i64 {
        self.version.slice(record.static_prio.get(), i64::from(cx.world.hz))
    }

    fn create(&self, cx: &Cx<'_>, task: TaskId, parent: Option<TaskId>) {
        let record = self.record(cx, task);
        let parent =
            parent.map(|id| (id, self.record(cx, id))).filter(|(_, parent)| parent.alive.flag());
        record.alive.set(1);
        record.array.set(NIL);
        record.parent.set(NIL);
        record.cpu.set(i64::from(cx.task(task).last_cpu().0));
        record.timestamp.set(cx.now.0 as i64);
        self.note_affinity(cx, task);
        self.describe(cx, task);
        record.slice.set(self.fresh_slice(cx, record));
        if cx.task(task).old_sleeper {
            record.sleep_avg.set(0);
        }
        let Some((id, parent)) = parent else { return };
        let cpu = parent.cpu.get() as usize;
        let mut rq = self.rqs[cpu].lock();
        self.charge(cx, CpuId::from(cpu), &mut rq);
        let whole = parent.slice.get();
        record.slice.set((whole + 1) / 2);
        parent.slice.set((whole / 2).max(1));
        record.first_slice.set(1);
        record.parent.set(i64::from(id.0));
        record.cpu.set(cpu as i64);
        record.sleep_avg.set(self.inherited(parent));
        record.prio.set(self.effective_prio(record));
    }

    /// Charges tick edges to the running task, short of the end of its slice.
    #[inline]
    fn charge(&self, cx: &Cx<'_>, cpu: CpuId, rq: &mut Rq) {
        if cx.now.0 >= rq.next_edge {
            self.charge_ticks(cx, cpu, rq);
        }
    }

    fn charge_ticks(&self, cx: &Cx<'_>, cpu: CpuId, rq: &mut Rq) {
        let ticks = cx.ticks(cpu);
        rq.next_edge = cx.world.tick_edge(cpu, ticks + 1).0;
        let new = (ticks - std::mem::replace(&mut rq.ticks_seen, ticks)) as i64;
        let Some(task) = rq.curr.filter(|_| new > 0) else { return };
        let record = self.record(cx, task);
        if !record.rt.flag() {
            self.charge_run_ticks(cx, record, new);
        }
        if !record.rt.flag() || record.rr.flag() {
            record.slice.set((record.slice.get() - new).max(0));
        }
    }

    fn enqueue(&self, cx: &Cx<'_>, rq: &mut Rq, task: TaskId, array: usize) {
        let records = self.records(cx);
        let record = &records[task.index()];
        record.array.set(array as i64);
        rq.arrays[array].enqueue(|id| &records[id as usize].links, task, record.prio.get(), false);
    }

    fn dequeue(&self, cx: &Cx<'_>, rq: &mut Rq, task: TaskId) {
        let records = self.records(cx);
        let record = &records[task.index()];
        let array = record.array.get();
        if array != NIL {
            rq.arrays[array as usize].dequeue(
                |id| &records[id as usize].links,
                task,
                record.prio.get(),
            );
            record.array.set(NIL);
        }
    }

    /// Takes a task into the run queue of `cpu`.
    fn activate(&self, cx: &Cx<'_>, cpu: CpuId, rq: &mut Rq, task: TaskId, array: usize) {
        self.record(cx, task).cpu.set(i64::from(cpu.0));
        self.enqueue(cx, rq, task, array);
        rq.nr_running += 1;
        self.publish(cx, cpu, rq);
    }

    fn deactivate(&self, cx: &Cx<'_>, cpu: CpuId, rq: &mut Rq, task: TaskId) {
        if self.record(cx, task).array.get() == NIL {
            return;
        }
        self.dequeue(cx, rq, task);
        rq.nr_running -= 1;
        self.publish(cx, cpu, rq);
    }

    /// Tells the others how long the queue is. They look for work only while a CPU has two tasks or
    /// more.
    fn publish(&self, cx: &Cx<'_>, cpu: CpuId, rq: &Rq) {
        let before = self.lens[cpu.index()].get();
        self.lens[cpu.index()].set(rq.nr_running as i64);
        match (before >= 2, rq.nr_running >= 2) {
            (false, true) => self.crowds(cx, cpu),
            (true, false) => self.crowded.add(-1),
            _ => {}
        }
    }

    /// `cpu` has two tasks or more now. That is news for CPUs that knew of no other one: for all
    /// when it is the first, for the first when it is the second.
    fn crowds(&self, cx: &Cx<'_>, cpu: CpuId) {
        let before = self.crowded.get();
        self.crowded.add(1);
        if before > 1 || self.balance == Pull::Stay {
            return;
        }
        for other in (0..self.lens.len()).filter(|other| *other != cpu.index()) {
            if before == 0 || self.lens[other].get() >= 2 {
                cx.push(Cmd::TickDue(CpuId::from(other)));
            }
        }
    }

    /// The end of a slice of a normal task: to the expired array, or back when interactive.
    fn expire(&self, cx: &Cx<'_>, cpu: CpuId, rq: &mut Rq, task: TaskId) {
        cx.push(Cmd::Resched(cpu));
        let record = self.record(cx, task);
        self.dequeue(cx, rq, task);
        record.prio.set(self.effective_prio(record));
        record.slice.set(self.fresh_slice(cx, record));
        record.first_slice.set(0);
        record.parent.set(NIL);
        let stays = self.interactive(record) && !self.starving(cx, rq, record);
        if rq.expired_timestamp == 0 && (self.version.is_26() || !stays) {
            rq.expired_timestamp = cx.now.0.max(1);
        }
        let array = if stays { rq.active } else { 1 - rq.active };
        if !stays {
            rq.best_expired_prio = rq.best_expired_prio.min(record.static_prio.get());
        }
        self.enqueue(cx, rq, task, array);
    }

    fn tick_busy(&self, cx: &Cx<'_>, cpu: CpuId, rq: &mut Rq, task: TaskId) {
        let record = self.record(cx, task);
        if record.array.get() != rq.active as i64 {
            return cx.push(Cmd::Resched(cpu));
        }
        if record.rt.flag() {
            if record.rr.flag() && record.slice.get() == 0 {
                record.slice.set(self.fresh_slice(cx, record));
                self.requeue(cx, rq, task);
                cx.push(Cmd::Resched(cpu));
            }
            return;
        }
        if record.slice.get() == 0 {
            return self.expire(cx, cpu, rq, task);
        }
        if self.chop_due(cx, record) == 0 {
            self.requeue(cx, rq, task);
            cx.push(Cmd::Resched(cpu));
        }
    }

    fn requeue(&self, cx: &Cx<'_>, rq: &mut Rq, task: TaskId) {
        let array = self.record(cx, task).array.get();
        self.dequeue(cx, rq, task);
        self.enqueue(cx, rq, task, array as usize);
    }

    fn choose(&self, cx: &Cx<'_>, cpu: CpuId, rq: &mut Rq) -> Option<TaskId> {
        if rq.nr_running == 0 {
            self.pull(cx, cpu, rq, true);
        }
        if rq.nr_running == 0 {
            rq.expired_timestamp = 0;
            return None;
        }
        if rq.arrays[rq.active].nr == 0 {
            rq.active = 1 - rq.active;
            rq.expired_timestamp = 0;
            rq.best_expired_prio = 140;
        }
        let mut task = rq.arrays[rq.active].head()?;
        cx.did(Work::TreeStep, 1);
        if self.pay_wait(cx, task) {
            let record = self.record(cx, task);
            self.dequeue(cx, rq, task);
            record.prio.set(self.effective_prio(record));
            self.enqueue(cx, rq, task, rq.active);
            task = rq.arrays[rq.active].head()?;
        }
        Some(task)
    }

    fn put_prev(&self, cx: &Cx<'_>, cpu: CpuId, rq: &mut Rq, task: TaskId, why: Prev) {
        let record = self.record(cx, task);
        self.charge_run(cx, record);
        record.timestamp.set(cx.now.0 as i64);
        record.last_ran.set(cx.now.0 as i64);
        if !matches!(why, Prev::Runnable | Prev::Idle) {
            self.deactivate(cx, cpu, rq, task);
        }
        if why == Prev::Exited {
            record.alive.set(0);
            let parent = record.parent.get();
            if parent != NIL && record.first_slice.flag() {
                let parent = &self.records(cx)[parent as usize];
                let most = self.fresh_slice(cx, parent).max(1);
                parent.slice.set((parent.slice.get() + record.slice.get()).min(most));
            }
        }
    }
}

impl<L: Locks> Scheduler for O1<L> {
    fn needs(&self) -> Needs {
        Needs { wakeups: true, ticks: true, saved: true, own_marks: true, ..Needs::default() }
    }

    fn stands_in(&self, policy: Policy) -> Option<&'static str> {
        super::stands_in(policy, self.version.era == Era::Late26)
    }

    fn init(&self, cx: &Cx<'_>) {
        for (index, view) in cx.world.tasks.iter().enumerate() {
            if view.alive {
                self.create(cx, index.into(), None);
            }
        }
    }

    fn wake(&self, cx: &Cx<'_>, task: TaskId, wake: Wake) {
        if self.record(cx, task).array.get() != NIL {
            return;
        }
        let cpu = self.select(cx, task, wake.sync);
        let record = self.record(cx, task);
        let mut rq = self.rqs[cpu.index()].lock();
        cx.did(Work::Lock, 1);
        self.charge(cx, cpu, &mut rq);
        self.credit_sleep(cx, record, wake);
        record.prio.set(self.effective_prio(record));
        let batch = self.version.era == Era::Late26 && record.batch.flag() && rq.curr.is_some();
        let array = if batch { 1 - rq.active } else { rq.active };
        if record.cpu.get() != i64::from(cpu.0) {
            cx.push(Cmd::Moved(task, cpu));
        }
        self.activate(cx, cpu, &mut rq, task, array);
        let better =
            rq.curr.is_none_or(|curr| record.prio.get() < self.record(cx, curr).prio.get());
        // Who wakes in passing sleeps at once: the decision comes. No other task asks for one on an
        // idle CPU, such as behind agents that hear of the waker's sleep first.
        let waits = wake.sync && cpu == cx.cpu && self.version.is_26() && rq.curr.is_some();
        if better && !waits {
            cx.push(Cmd::Resched(cpu));
        } else if cpu != cx.cpu {
            cx.push(Cmd::TickDue(cpu));
        }
    }

    fn leave(&self, cx: &Cx<'_>, task: TaskId) {
        let cpu = CpuId(self.record(cx, task).cpu.get() as u32);
        self.deactivate(cx, cpu, &mut self.rqs[cpu.index()].lock(), task);
    }

    fn yielded(&self, cx: &Cx<'_>, task: TaskId) {
        let cpu = self.record(cx, task).cpu.get() as usize;
        let mut rq = self.rqs[cpu].lock();
        let record = self.record(cx, task);
        if record.array.get() == NIL {
            return;
        }
        if self.version.is_26() && !record.rt.flag() {
            let expired = 1 - rq.active;
            self.dequeue(cx, &mut rq, task);
            self.enqueue(cx, &mut rq, task, expired);
            return;
        }
        // Its slice may have ended in this instant: then it stays in the expired array.
        let array = record.array.get() as usize;
        let alone = rq.arrays[array].list(record.prio.get() as usize).len == 1;
        self.dequeue(cx, &mut rq, task);
        if alone
            && !record.rt.flag()
            && let Some(next) = rq.arrays[array].first_prio(record.prio.get() as usize)
        {
            record.prio.set(next as i64);
        }
        self.enqueue(cx, &mut rq, task, array);
    }

    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        let mut rq = self.rqs[cpu.index()].lock();
        let rq = &mut *rq;
        cx.did(Work::Lock, 1);
        self.charge(cx, cpu, rq);
        if let Some(task) = prev {
            self.put_prev(cx, cpu, rq, task, why);
        }
        let next = self.choose(cx, cpu, rq);
        rq.curr = next;
        if let Some(task) = next {
            let record = self.record(cx, task);
            cx.touch(task, true);
            record.running.set(1);
            if next != prev {
                record.timestamp.set(cx.now.0 as i64);
            }
        }
        Pick { task: next, ..Pick::IDLE }
    }

    fn saved(&self, cx: &Cx<'_>, _cpu: CpuId, prev: TaskId) {
        self.record(cx, prev).running.set(0);
    }

    fn tick(&self, cx: &Cx<'_>, cpu: CpuId) {
        let mut rq = self.rqs[cpu.index()].lock();
        cx.did(Work::Lock, 1);
        self.charge(cx, cpu, &mut rq);
        match rq.curr {
            Some(task) => self.tick_busy(cx, cpu, &mut rq, task),
            None => {
                let before = rq.nr_running;
                if self.others_busy(cpu) {
                    self.pull(cx, cpu, &mut rq, true);
                }
                // Who was queued before has asked for a decision, which may be on its way: this
                // tick must not be faster.
                if rq.nr_running > before {
                    cx.push(Cmd::Resched(cpu));
                }
                return;
            }
        }
        self.tick_balance(cx, cpu, &mut rq);
    }

    fn tick_due(&self, cx: &Cx<'_>, cpu: CpuId) -> u64 {
        let rq = self.rqs[cpu.index()].lock();
        let balance = self.balance_due(cx, cpu, &rq);
        let Some(task) = rq.curr else { return balance };
        let record = self.record(cx, task);
        let uncharged = if cx.now.0 < rq.next_edge { 0 } else { cx.ticks(cpu) - rq.ticks_seen };
        let runs = match () {
            () if record.array.get() != rq.active as i64 => 1,
            () if record.rt.flag() && !record.rr.flag() => u64::MAX,
            () if record.rt.flag() => record.slice.get() as u64,
            () => (record.slice.get() as u64).min(self.chop_due(cx, record)),
        };
        balance.min(runs.saturating_sub(uncharged).max(1))
    }

    fn changed(&self, cx: &Cx<'_>, change: Change) {
        match change {
            Change::Created { task, parent } => self.create(cx, task, parent),
            Change::Attributes(task) => {
                let cpu = CpuId(self.record(cx, task).cpu.get() as u32);
                let mut rq = self.rqs[cpu.index()].lock();
                self.charge(cx, cpu, &mut rq);
                let array = self.record(cx, task).array.get();
                self.dequeue(cx, &mut rq, task);
                self.describe(cx, task);
                if array != NIL {
                    self.enqueue(cx, &mut rq, task, array as usize);
                    cx.push(Cmd::Resched(cpu));
                }
            }
            Change::Affinity(task) => self.affinity_changed(cx, task),
            _ => {}
        }
    }

    fn resync(&self, cx: &Cx<'_>) {
        for (cpu, rq) in self.rqs.iter().enumerate() {
            let mut rq = rq.lock();
            rq.arrays = [Array::new(), Array::new()];
            self.lens[cpu].set(0);
            self.crowded.set(0);
            (rq.nr_running, rq.curr) = (0, cx.world.cpus[cpu].current());
            (rq.ticks_seen, rq.next_edge) = (cx.ticks(cpu.into()), 0);
        }
        for (index, view) in cx.world.tasks.iter().enumerate().filter(|(_, view)| view.alive) {
            let task = TaskId::from(index);
            if !self.record(cx, task).alive.flag() {
                self.create(cx, task, None);
            }
            self.record(cx, task).array.set(NIL);
            self.note_affinity(cx, task);
            if view.runnable() != Runnable::No {
                let cpu = view.last_cpu();
                let mut rq = self.rqs[cpu.index()].lock();
                let active = rq.active;
                self.activate(cx, cpu, &mut rq, task, active);
                cx.push(Cmd::Resched(cpu));
            }
        }
    }

    fn explain(&self, _cx: &Cx<'_>, cpu: CpuId) -> String {
        let rq = self.rqs[cpu.index()].lock();
        let (active, expired) = (rq.arrays[rq.active].nr, rq.arrays[1 - rq.active].nr);
        let name = self.version.name;
        format!("{name} {cpu}: curr {:?}, {active} active, {expired} expired", rq.curr)
    }
}
