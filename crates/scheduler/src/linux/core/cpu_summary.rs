//! What every CPU may read about every other one without a lock: how many tasks, how much load,
//! idle or not.
//!
//! The owner of a run queue writes its row after each change, under the queue's lock. Readers may
//! see a row that is a moment old, as in the real system; in the simulator it is always up to date.
//! Load signals are published with what is on, so that a reader can carry them on to its own time.
//!
//! | rule | where the real system has it | here | test |
//! |---|---|---|---|
//! | a CPU is idle when nothing runs and nothing is queued | `idle_cpu` | modelled | `an_empty_row_is_idle` |
//! | a CPU with only SCHED_IDLE tasks counts as idle; delayed tasks of other policies speak against it | `sched_idle_cpu`, 5.4+ | modelled | `only_idle_tasks_count_as_idle`, `sim/tests/it/idle_takers.rs` |
//! | delayed tasks count in `nr_running`, but not among the fair ones, nor for a waker that is about to block | `update_sg_lb_stats`, `update_sg_wakeup_stats`, `wake_affine_idle` (7.2.13) | since 6.14; 6.12 counts and moves them, here it does neither | `a_delayed_task_counts_where_new_tasks_are_placed` |
//! | remote load is as of the last tick or switch there | `cpu_load` | simplified: carried on to the reader's time | `signals_are_carried_on` |
//! | capacity is what RT leaves, at least 1 | `scale_rt_capacity` | modelled (interrupts and DL: none) | `rt_takes_capacity` |
//! | an LLC remembers whether it has an idle core, and how far to scan | `sched_domain_shared` | modelled | `placement` |

mod shared_set;

use crate::linux::balance::placement::Kind;
use crate::linux::fair::pelt::{Inputs, Moment, Pelt, SCALE, Signal};
use schedlab_model::{CpuId, CpuSet, Ns};
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

pub(in crate::linux) use shared_set::SharedSet;

/// What is published about one CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::linux) struct Facts {
    /// Tasks running and queued, all classes, without throttled ones; delayed ones are among them
    /// since 6.14 (`rq->nr_running`).
    pub(in crate::linux) nr_running: u32,
    /// Fair tasks among them, without delayed ones (`h_nr_runnable`).
    pub(in crate::linux) fair: u32,
    /// Delayed tasks among `nr_running`, 255 at most.
    pub(in crate::linux) delayed: u8,
    /// Fair tasks with SCHED_IDLE (or in an idle group) among `nr_running`; 0 when there are
    /// others.
    pub(in crate::linux) fair_idle: u32,
    /// A task runs.
    pub(in crate::linux) busy: bool,
    /// RT priority of the running task, 0 = not an RT task.
    pub(in crate::linux) rt_runs: u8,
    /// The running RT task may run here only.
    pub(in crate::linux) rt_pinned: bool,
    /// Best RT priority running or queued, 0 = none.
    pub(in crate::linux) rt_best: u8,
    /// RT tasks wait, one of which can be moved; up to 6.6 beside at least one other RT task.
    pub(in crate::linux) rt_overloaded: bool,
}

impl Facts {
    /// In two words: tasks and fair tasks; the rest.
    #[inline]
    fn packed(&self) -> [u64; 2] {
        let flags = u64::from(self.busy)
            | u64::from(self.rt_pinned) << 1
            | u64::from(self.rt_overloaded) << 2;
        [
            u64::from(self.nr_running) << 32 | u64::from(self.fair),
            u64::from(self.fair_idle) << 32
                | u64::from(self.delayed) << 24
                | u64::from(self.rt_best) << 16
                | u64::from(self.rt_runs) << 8
                | flags,
        ]
    }
    /// The same when there are fair tasks only.
    #[inline]
    pub(in crate::linux) fn packed_fair(
        nr_running: u32,
        fair: u32,
        delayed: u8,
        fair_idle: u32,
        busy: bool,
    ) -> [u64; 2] {
        [
            u64::from(nr_running) << 32 | u64::from(fair),
            u64::from(fair_idle) << 32 | u64::from(delayed) << 24 | u64::from(busy),
        ]
    }
    /// The opposite of [`packed`](Self::packed).
    #[inline]
    fn unpacked([counts, rest]: [u64; 2]) -> Facts {
        Facts {
            nr_running: (counts >> 32) as u32,
            fair: counts as u32,
            delayed: (rest >> 24) as u8,
            fair_idle: (rest >> 32) as u32,
            busy: rest & 1 != 0,
            rt_runs: (rest >> 8) as u8,
            rt_pinned: rest & 2 != 0,
            rt_best: (rest >> 16) as u8,
            rt_overloaded: rest & 4 != 0,
        }
    }
    /// Nothing runs and nothing is queued.
    #[inline]
    fn idle(&self) -> bool {
        self.nr_running == 0 && !self.busy
    }
    /// It has tasks, all of them SCHED_IDLE.
    #[inline]
    fn only_idle_tasks(&self) -> bool {
        self.nr_running > 0 && self.nr_running == self.fair_idle
    }
}

/// Kinds of CPUs of which the summary keeps sets: [`Facts::idle`], where a wakee would run at once,
/// and where more than one task is.
const IDLE: u8 = 1;
const TAKES: u8 = 2;
const CROWDED: u8 = 4;

/// Of packed facts: best RT priority, and that of the running task.
const URGENT: u64 = 0xff_ff00;

/// The kind of packed facts.
#[inline]
fn kind([counts, rest]: [u64; 2]) -> u8 {
    match counts >> 32 {
        0 => {
            if rest & 1 == 0 {
                IDLE | TAKES
            } else {
                0
            }
        }
        nr => (TAKES * u8::from(nr == rest >> 32)) | (CROWDED * u8::from(nr > 1)),
    }
}

/// One CPU's row. What is published at every change is the first cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Row {
    /// [`Facts::packed`].
    facts: [AtomicU64; 2],
    fair_signal: Published,
    // Second line.
    idle_since: AtomicU64,
    /// When `averages` were worked out (plus 1; 0 = never) and of which publication
    /// ([`Published::state`]), for those who ask again in one instant.
    averaged: [AtomicU64; 2],
    averages: [AtomicU64; 4],
    /// `rt_signal` was published.
    has_rt: AtomicBool,
    // Third line.
    rt_signal: Published,
    /// [`CpuSummary::rank`] by these `averages`, and the [`Row::rank_key`] of it; 0 = none.
    rank: [AtomicU64; 2],
}

const _: () = assert!(offset_of!(Row, idle_since) == 64, "publishing writes one line");
const _: () =
    assert!(offset_of!(Row, rt_signal) == 2 * 64, "averages without RT tasks need one more");

impl Row {
    /// What a rank depends on beside the averages: how many tasks there are, whether one runs, and
    /// the `imbalance_pct` of the domain, so that it is never 0.
    #[inline]
    fn rank_key(&self, pct: u64) -> u64 {
        let [counts, rest] = [self.facts[0].load(Relaxed), self.facts[1].load(Relaxed)];
        counts >> 32 << 32 | pct << 1 | rest & 1
    }
    /// What the RT class leaves of the CPU, 1 … 1024.
    #[inline]
    fn capacity(&self, now: impl FnOnce() -> Moment) -> u64 {
        if !self.has_rt.load(Relaxed) || self.rt_signal.is_zero() {
            return SCALE;
        }
        SCALE.saturating_sub(self.rt_signal.at(now()).util_avg()).max(1)
    }
}

/// Bits of the use of a CPU in a rank. No sum of averages comes near.
const RANK_BITS: u32 = 60;

/// What the load signals of one CPU come to at some time.
#[derive(Clone, Copy, Debug)]
pub(in crate::linux) struct Averages {
    pub(in crate::linux) load: u64,
    pub(in crate::linux) util: u64,
    pub(in crate::linux) runnable: u64,
    pub(in crate::linux) capacity: u64,
}

/// What a publication showed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) enum Turn {
    /// The CPU was idle before and after, or at neither time.
    None,
    /// It is idle now.
    Idles,
    /// It is not idle any more.
    Works,
    /// Its last fair task that is not SCHED_IDLE left, and SCHED_IDLE ones are still there.
    Yields,
}

/// A published [`Signal`].
#[derive(Debug, Default)]
struct Published {
    sums: [AtomicU64; 4],
    load: AtomicU64,
    /// Inputs and a number: bit 0 running, 32 bits runnable, the others count publications.
    state: AtomicU64,
}

/// Bit of [`Published::state`] with which the count of publications begins.
const COUNT_SHIFT: u32 = 33;

impl Published {
    #[inline(always)]
    fn write(&self, signal: &Signal) {
        for (cell, value) in self.sums.iter().zip(signal.pelt().parts()) {
            cell.store(value, Relaxed);
        }
        let inputs = signal.inputs();
        self.load.store(inputs.load, Relaxed);
        let count = (self.state.load(Relaxed) >> COUNT_SHIFT) + 1;
        let state = count << COUNT_SHIFT | inputs.runnable << 1 | u64::from(inputs.running);
        self.state.store(state, Relaxed);
    }
    /// Another number after each publication.
    #[inline]
    fn state(&self) -> u64 {
        self.state.load(Relaxed)
    }
    /// It has never been on, or so long ago that nothing is left.
    #[inline]
    fn is_zero(&self) -> bool {
        self.state() & 1 == 0 && self.sums[1..].iter().all(|sum| sum.load(Relaxed) == 0)
    }
    #[inline]
    fn at(&self, now: Moment) -> Pelt {
        let pelt = Pelt::from_parts(std::array::from_fn(|i| self.sums[i].load(Relaxed)));
        let state = self.state();
        let runnable = (state & ((1 << COUNT_SHIFT) - 1)) >> 1;
        pelt.at_moment(
            now,
            Inputs { load: self.load.load(Relaxed), runnable, running: state & 1 != 0 },
        )
    }
}

/// What is known about one last-level cache.
#[derive(Debug)]
struct Cache {
    /// A core whose threads are all idle may exist.
    idle_core: AtomicBool,
    /// How many CPUs a search for an idle one may look at.
    scan: AtomicU32,
}

/// All rows.
#[derive(Debug)]
pub(in crate::linux) struct CpuSummary {
    rows: Box<[Row]>,
    caches: Box<[Cache]>,
    /// CPUs that are idle.
    idle: SharedSet,
    /// CPUs on which a wakee would run at once.
    takers: SharedSet,
    /// CPUs that have more than one task.
    crowded: SharedSet,
    /// When a balancing CPU asked for the averages of others last (plus 1; 0 = never).
    asked_at: AtomicU64,
}

impl CpuSummary {
    /// Idle CPUs. `caches[i]` is the number of CPUs behind last-level cache `i`.
    pub(in crate::linux) fn new(cpus: usize, caches: &[usize]) -> CpuSummary {
        CpuSummary {
            rows: (0..cpus).map(|_| Row::default()).collect(),
            caches: caches
                .iter()
                .map(|&cpus| Cache {
                    idle_core: AtomicBool::new(true),
                    scan: AtomicU32::new(cpus as u32),
                })
                .collect(),
            idle: SharedSet::first(cpus),
            takers: SharedSet::first(cpus),
            crowded: SharedSet::first(0),
            asked_at: AtomicU64::new(0),
        }
    }

    /// The same, written by one thread only where that is said.
    #[must_use]
    pub(in crate::linux) fn of_threads(mut self, one: bool) -> CpuSummary {
        let sets = [&mut self.idle, &mut self.takers, &mut self.crowded];
        sets.into_iter().for_each(|set| set.one_thread = one);
        self
    }

    #[inline]
    fn row(&self, cpu: CpuId) -> &Row {
        &self.rows[cpu.index()]
    }

    /// How many CPUs.
    pub(in crate::linux) fn cpus(&self) -> usize {
        self.rows.len()
    }

    #[inline]
    fn facts(&self, cpu: CpuId) -> Facts {
        let row = self.row(cpu);
        Facts::unpacked([row.facts[0].load(Relaxed), row.facts[1].load(Relaxed)])
    }

    /// Publishes `cpu`'s state as of `now`. Gives whether it became idle or busy by that.
    #[inline]
    pub(in crate::linux) fn publish(&self, cpu: CpuId, now: Ns, facts: &Facts) -> Turn {
        self.show(self.row(cpu), cpu, now, facts.packed())
    }
    /// Where only fair tasks are: packed facts, and the load signals if they have `changed`. Looks
    /// the row up once.
    #[inline(always)]
    pub(in crate::linux) fn publish_plain(
        &self,
        cpu: CpuId,
        now: Ns,
        changed: Option<&Signal>,
        facts: [u64; 2],
    ) -> Turn {
        let row = self.row(cpu);
        if let Some(signal) = changed {
            row.fair_signal.write(signal);
        }
        self.show(row, cpu, now, facts)
    }
    #[inline(always)]
    fn show(&self, row: &Row, cpu: CpuId, now: Ns, new: [u64; 2]) -> Turn {
        let old = [row.facts[0].load(Relaxed), row.facts[1].load(Relaxed)];
        if old == new {
            return Turn::None;
        }
        row.facts[0].store(new[0], Relaxed);
        row.facts[1].store(new[1], Relaxed);
        // Mostly there are two tasks or more before and after, and none of them is SCHED_IDLE.
        if old[0] >> 33 != 0 && new[0] >> 33 != 0 && (old[1] | new[1]) >> 32 == 0 {
            return Turn::None;
        }
        let (before, after) = (kind(old), kind(new));
        // Where tasks were, and none of them was an RT or a deadline task.
        let fair = old[0] >> 32 != 0 && old[1] & URGENT == 0;
        if before == after { Turn::None } else { self.turn(cpu, now, (before, after), fair) }
    }
    /// A CPU is of another kind now. `fair`: it had fair tasks only.
    #[inline(never)]
    fn turn(&self, cpu: CpuId, now: Ns, (before, after): (u8, u8), fair: bool) -> Turn {
        self.idle.change(cpu, before & IDLE != 0, after & IDLE != 0);
        self.takers.change(cpu, before & TAKES != 0, after & TAKES != 0);
        self.crowded.change(cpu, before & CROWDED != 0, after & CROWDED != 0);
        match (before & IDLE != 0, after & IDLE != 0) {
            (false, true) => {
                self.row(cpu).idle_since.store(now.0, Relaxed);
                Turn::Idles
            }
            (true, false) => Turn::Works,
            (false, false) if fair && before & TAKES < after & TAKES => Turn::Yields,
            _ => Turn::None,
        }
    }
    /// Publishes the load signals of `cpu`'s fair class.
    #[inline]
    pub(in crate::linux) fn publish_fair(&self, cpu: CpuId, signal: &Signal) {
        self.row(cpu).fair_signal.write(signal);
    }
    /// Publishes the use of `cpu` by its RT class.
    pub(in crate::linux) fn publish_rt(&self, cpu: CpuId, signal: &Signal) {
        let row = self.row(cpu);
        row.averaged[0].store(0, Relaxed);
        row.has_rt.store(true, Relaxed);
        row.rt_signal.write(signal);
    }

    /// How many CPUs are idle.
    #[inline]
    pub(in crate::linux) fn idle_cpus(&self) -> u32 {
        self.idle.count()
    }
    /// The idle CPUs.
    #[inline]
    pub(in crate::linux) fn idle_set(&self) -> CpuSet {
        self.idle.get()
    }
    /// The CPUs on which a wakee would run at once: the idle ones and, for most tasks, those with
    /// only SCHED_IDLE tasks.
    #[inline]
    pub(in crate::linux) fn takers(&self, beside_idle: bool) -> &SharedSet {
        if beside_idle { &self.takers } else { &self.idle }
    }
    /// Whether some CPU has more than one task.
    #[inline]
    pub(in crate::linux) fn any_crowded(&self) -> bool {
        self.crowded.count() > 0
    }
    /// Whether there may be something to balance: a CPU with several tasks, or several busy CPUs.
    #[inline]
    pub(in crate::linux) fn any_work(&self) -> bool {
        self.any_crowded() || self.rows.len() as u32 > self.idle_cpus() + 1
    }
    /// Nothing runs and nothing is queued.
    #[inline]
    pub(in crate::linux) fn idle(&self, cpu: CpuId) -> bool {
        self.facts(cpu).idle()
    }
    /// It has tasks, all of them SCHED_IDLE.
    #[inline]
    pub(in crate::linux) fn only_idle_tasks(&self, cpu: CpuId) -> bool {
        self.facts(cpu).only_idle_tasks()
    }
    /// A wakee would run there at once.
    #[inline]
    pub(in crate::linux) fn takes_wakee(&self, cpu: CpuId) -> bool {
        let facts = self.facts(cpu);
        facts.idle() || facts.only_idle_tasks()
    }
    /// Tasks of all classes, the fair ones among them, and whether nothing runs and nothing is
    /// queued.
    #[inline]
    pub(in crate::linux) fn counts(&self, cpu: CpuId) -> (u64, u64, bool) {
        let row = self.row(cpu);
        let counts = row.facts[0].load(Relaxed);
        let busy = row.facts[1].load(Relaxed) & 1 != 0;
        (counts >> 32, u64::from(counts as u32), counts >> 32 == 0 && !busy)
    }
    /// Tasks of all classes, without delayed ones.
    #[inline]
    pub(in crate::linux) fn awake(&self, cpu: CpuId) -> u64 {
        self.nr_running(cpu).saturating_sub(u64::from(self.facts(cpu).delayed))
    }
    /// Tasks of all classes, delayed ones too.
    #[inline]
    pub(in crate::linux) fn nr_running(&self, cpu: CpuId) -> u64 {
        self.row(cpu).facts[0].load(Relaxed) >> 32
    }
    /// Fair tasks.
    #[inline]
    pub(in crate::linux) fn fair(&self, cpu: CpuId) -> u64 {
        u64::from(self.row(cpu).facts[0].load(Relaxed) as u32)
    }
    /// Best RT priority there, 0 = none.
    #[inline]
    pub(in crate::linux) fn rt_best(&self, cpu: CpuId) -> u8 {
        self.facts(cpu).rt_best
    }
    /// RT priority of the running task (0 = not RT), and whether it may run there only.
    #[inline]
    pub(in crate::linux) fn rt_runs(&self, cpu: CpuId) -> (u8, bool) {
        let facts = self.facts(cpu);
        (facts.rt_runs, facts.rt_pinned)
    }
    /// Whether RT tasks wait there that could run elsewhere.
    #[inline]
    pub(in crate::linux) fn rt_overloaded(&self, cpu: CpuId) -> bool {
        self.facts(cpu).rt_overloaded
    }
    /// When it became idle last.
    #[inline]
    pub(in crate::linux) fn idle_since(&self, cpu: CpuId) -> Ns {
        Ns(self.row(cpu).idle_since.load(Relaxed))
    }
    /// The load signals of the fair class at `now`: load, runnable and use.
    #[inline]
    pub(in crate::linux) fn signals(&self, cpu: CpuId, now: Ns) -> Pelt {
        self.row(cpu).fair_signal.at(Moment::new(now))
    }
    /// All averages of a CPU at `now`. A fork that looks at every CPU, and the next one in the same
    /// instant, find most of them worked out.
    #[inline]
    pub(in crate::linux) fn averages(&self, cpu: CpuId, now: Ns) -> Averages {
        let row = self.row(cpu);
        let [at, state] = &row.averaged;
        if at.load(Relaxed) != now.0 + 1 || state.load(Relaxed) != row.fair_signal.state() {
            self.average(cpu, now);
        }
        let [load, util, runnable, capacity] = &row.averages;
        Averages {
            load: load.load(Relaxed),
            util: util.load(Relaxed),
            runnable: runnable.load(Relaxed),
            capacity: capacity.load(Relaxed),
        }
    }
    /// The same without leaving them for others, which costs more than it saves where it is not
    /// asked again.
    #[inline]
    pub(in crate::linux) fn averages_once(&self, cpu: CpuId, now: Moment) -> Averages {
        let row = self.row(cpu);
        let signals = row.fair_signal.at(now);
        Averages {
            load: signals.load_avg(1),
            util: signals.util_avg(),
            runnable: signals.runnable_avg(),
            capacity: row.capacity(|| now),
        }
    }
    /// A CPU balances at `now`. Gives whether another one did so at the same time, as many do whose
    /// ticks come together.
    pub(in crate::linux) fn asked_before(&self, now: Ns) -> bool {
        // No exchange: two that come at once may both be the first, and keep nothing.
        let before = self.asked_at.load(Relaxed) == now.0 + 1;
        self.asked_at.store(now.0 + 1, Relaxed);
        before
    }
    #[inline(never)]
    fn average(&self, cpu: CpuId, now: Ns) {
        let row = self.row(cpu);
        let Averages { load, util, runnable, capacity } = self.averages_once(cpu, Moment::new(now));
        let values = [load, util, runnable, capacity];
        row.averages.iter().zip(values).for_each(|(cell, value)| cell.store(value, Relaxed));
        row.averaged[0].store(now.0 + 1, Relaxed);
        row.averaged[1].store(row.fair_signal.state(), Relaxed);
        row.rank[1].store(0, Relaxed);
    }
    /// How busy a CPU is at `now` as a group of its own in a domain with this `imbalance_pct`, for
    /// a new task that looks for the idlest: the smaller, the idler. As
    /// [`averages`](Self::averages) it is kept for those who ask again in this instant, as forks
    /// do that look at every CPU.
    #[inline(always)]
    pub(in crate::linux) fn rank(&self, cpu: CpuId, now: Ns, pct: u64) -> u64 {
        let row = self.row(cpu);
        let [at, state] = &row.averaged;
        let ([rank, of], key) = (&row.rank, row.rank_key(pct));
        // One branch: mostly all of it holds.
        let stale = (at.load(Relaxed) ^ (now.0 + 1))
            | (state.load(Relaxed) ^ row.fair_signal.state())
            | (of.load(Relaxed) ^ key);
        if stale == 0 { rank.load(Relaxed) } else { self.rank_anew(cpu, now, (key, pct)) }
    }
    #[inline(never)]
    fn rank_anew(&self, cpu: CpuId, now: Ns, (key, pct): (u64, u64)) -> u64 {
        let Averages { load, util, runnable, capacity } = self.averages(cpu, now);
        let (tasks, idle) = (self.nr_running(cpu), self.idle(cpu));
        let kind = Kind::classify(tasks, 1, capacity, util, runnable, pct);
        let value = match kind {
            // An idle one before a busy one, then the less used.
            Kind::Spare => u64::from(!idle) << RANK_BITS | util.min((1 << RANK_BITS) - 1),
            _ => load * SCALE / capacity.max(1),
        };
        let rank = (kind as u64) << (RANK_BITS + 1) | value.min((1 << (RANK_BITS + 1)) - 1);
        let row = self.row(cpu);
        row.rank[0].store(rank, Relaxed);
        row.rank[1].store(key, Relaxed);
        rank
    }
    /// Average load of the fair class.
    pub(in crate::linux) fn load(&self, cpu: CpuId, now: Ns) -> u64 {
        self.signals(cpu, now).load_avg(1)
    }
    /// What the RT class leaves of the CPU, 1 … 1024.
    #[inline]
    pub(in crate::linux) fn capacity(&self, cpu: CpuId, now: Ns) -> u64 {
        self.row(cpu).capacity(|| Moment::new(now))
    }

    /// Whether last-level cache `llc` may have a core without a task.
    pub(in crate::linux) fn idle_core(&self, llc: u32) -> bool {
        self.caches[llc as usize].idle_core.load(Relaxed)
    }
    /// Sets it.
    pub(in crate::linux) fn set_idle_core(&self, llc: u32, has: bool) {
        self.caches[llc as usize].idle_core.store(has, Relaxed);
    }
    /// How many CPUs a search in this cache may look at.
    pub(in crate::linux) fn scan(&self, llc: u32) -> u32 {
        self.caches[llc as usize].scan.load(Relaxed)
    }
    /// Sets it.
    pub(in crate::linux) fn set_scan(&self, llc: u32, cpus: u32) {
        self.caches[llc as usize].scan.store(cpus, Relaxed);
    }
}

#[cfg(test)]
pub(in crate::linux) mod tests;
