//! What every CPU may read about every other one without a lock: how many tasks, how much load, idle or not.
//!
//! The owner of a run queue writes its row after each change, under the queue's lock. Readers may see a row
//! that is a moment old, as in the real system; in the simulator it is always up to date. Load signals are
//! published with what is on, so that a reader can carry them on to its own time.
//!
//! | rule | where the real system has it | here | test |
//! |---|---|---|---|
//! | a CPU is idle when nothing runs and nothing is queued | `idle_cpu` | modelled | `an_empty_row_is_idle` |
//! | a CPU with only SCHED_IDLE tasks counts as idle | `sched_idle_cpu`, 5.4+ | modelled | `only_idle_tasks_count_as_idle` |
//! | remote load is as of the last tick or switch there | `cpu_load` | simplified: carried on to the reader's time | `signals_are_carried_on` |
//! | capacity is what RT leaves, at least 1 | `scale_rt_capacity` | modelled (interrupts and DL: none) | `rt_takes_capacity` |
//! | an LLC remembers whether it has an idle core, and how far to scan | `sched_domain_shared` | modelled | `placement` |

use super::pelt::{Inputs, Pelt, SCALE, Signal};
use schedlab_model::{CpuId, Ns};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// What is published about one CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Facts {
    /// Tasks running and queued, all classes, without delayed and throttled ones.
    pub(super) nr_running: u32,
    /// Fair tasks among them.
    pub(super) fair: u32,
    /// Fair tasks with SCHED_IDLE (or in an idle group) among them.
    pub(super) fair_idle: u32,
    /// A task runs.
    pub(super) busy: bool,
    /// RT priority of the running task, 0 = not an RT task.
    pub(super) rt_runs: u8,
    /// The running RT task may run here only.
    pub(super) rt_pinned: bool,
    /// Best RT priority running or queued, 0 = none.
    pub(super) rt_best: u8,
    /// More than one RT task, one of which can be moved.
    pub(super) rt_overloaded: bool,
}

/// One CPU's row.
#[derive(Debug, Default)]
struct Row {
    nr_running: AtomicU32,
    fair: AtomicU32,
    fair_idle: AtomicU32,
    rt_best: AtomicU32,
    busy: AtomicBool,
    rt_runs: AtomicU32,
    rt_pinned: AtomicBool,
    rt_overloaded: AtomicBool,
    fair_signal: Published,
    rt_signal: Published,
    idle_since: AtomicU64,
}

/// A published [`Signal`].
#[derive(Debug, Default)]
struct Published {
    sums: [AtomicU64; 5],
    load: AtomicU64,
    runnable: AtomicU64,
    running: AtomicBool,
}

impl Published {
    #[inline]
    fn write(&self, signal: &Signal) {
        for (cell, value) in self.sums.iter().zip(signal.pelt().parts()) {
            cell.store(value, Relaxed);
        }
        let inputs = signal.inputs();
        self.load.store(inputs.load, Relaxed);
        self.runnable.store(inputs.runnable, Relaxed);
        self.running.store(inputs.running, Relaxed);
    }
    fn at(&self, now: Ns) -> Pelt {
        let pelt = Pelt::from_parts(std::array::from_fn(|i| self.sums[i].load(Relaxed)));
        let inputs = Inputs {
            load: self.load.load(Relaxed),
            runnable: self.runnable.load(Relaxed),
            running: self.running.load(Relaxed),
        };
        pelt.at(now, inputs)
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
pub(super) struct Board {
    rows: Box<[Row]>,
    caches: Box<[Cache]>,
    /// How many CPUs are idle, and how many have more than one task.
    idle: AtomicU32,
    crowded: AtomicU32,
}

impl Board {
    /// Idle CPUs. `caches[i]` is the number of CPUs behind last-level cache `i`.
    pub(super) fn new(cpus: usize, caches: &[usize]) -> Board {
        Board {
            rows: (0..cpus).map(|_| Row::default()).collect(),
            caches: caches
                .iter()
                .map(|&cpus| Cache { idle_core: AtomicBool::new(true), scan: AtomicU32::new(cpus as u32) })
                .collect(),
            idle: AtomicU32::new(cpus as u32),
            crowded: AtomicU32::new(0),
        }
    }

    #[inline]
    fn row(&self, cpu: CpuId) -> &Row {
        &self.rows[cpu.index()]
    }

    /// How many CPUs.
    pub(super) fn cpus(&self) -> usize {
        self.rows.len()
    }

    /// Publishes `cpu`'s state and signals as of `now`. Gives whether it has just become idle.
    pub(super) fn publish(&self, cpu: CpuId, now: Ns, facts: &Facts, fair: &Signal, rt: &Signal) -> bool {
        let row = self.row(cpu);
        let was_idle = self.idle(cpu);
        let was_crowded = self.nr_running(cpu) > 1;
        row.nr_running.store(facts.nr_running, Relaxed);
        row.fair.store(facts.fair, Relaxed);
        row.fair_idle.store(facts.fair_idle, Relaxed);
        row.rt_best.store(u32::from(facts.rt_best), Relaxed);
        row.busy.store(facts.busy, Relaxed);
        row.rt_runs.store(u32::from(facts.rt_runs), Relaxed);
        row.rt_pinned.store(facts.rt_pinned, Relaxed);
        row.rt_overloaded.store(facts.rt_overloaded, Relaxed);
        row.fair_signal.write(fair);
        row.rt_signal.write(rt);
        let idle = self.idle(cpu);
        let idles = !was_idle && idle;
        count(&self.idle, was_idle, idle);
        count(&self.crowded, was_crowded, facts.nr_running > 1);
        if idles {
            row.idle_since.store(now.0, Relaxed);
        }
        idles
    }

    /// How many CPUs are idle.
    #[inline]
    pub(super) fn idle_cpus(&self) -> u32 {
        self.idle.load(Relaxed)
    }
    /// Whether some CPU has more than one task.
    #[inline]
    pub(super) fn any_crowded(&self) -> bool {
        self.crowded.load(Relaxed) > 0
    }
    /// Whether there may be something to balance: a CPU with several tasks, or several busy CPUs.
    #[inline]
    pub(super) fn any_work(&self) -> bool {
        self.any_crowded() || self.rows.len() as u32 > self.idle_cpus() + 1
    }
    /// Nothing runs and nothing is queued.
    #[inline]
    pub(super) fn idle(&self, cpu: CpuId) -> bool {
        let row = self.row(cpu);
        row.nr_running.load(Relaxed) == 0 && !row.busy.load(Relaxed)
    }
    /// It has tasks, all of them SCHED_IDLE.
    #[inline]
    pub(super) fn only_idle_tasks(&self, cpu: CpuId) -> bool {
        let row = self.row(cpu);
        let nr = row.nr_running.load(Relaxed);
        nr > 0 && nr == row.fair_idle.load(Relaxed)
    }
    /// A wakee would run there at once.
    #[inline]
    pub(super) fn takes_wakee(&self, cpu: CpuId) -> bool {
        self.idle(cpu) || self.only_idle_tasks(cpu)
    }
    /// Tasks of all classes.
    #[inline]
    pub(super) fn nr_running(&self, cpu: CpuId) -> u64 {
        u64::from(self.row(cpu).nr_running.load(Relaxed))
    }
    /// Fair tasks.
    #[inline]
    pub(super) fn fair(&self, cpu: CpuId) -> u64 {
        u64::from(self.row(cpu).fair.load(Relaxed))
    }
    /// Best RT priority there, 0 = none.
    #[inline]
    pub(super) fn rt_best(&self, cpu: CpuId) -> u8 {
        self.row(cpu).rt_best.load(Relaxed) as u8
    }
    /// RT priority of the running task (0 = not RT), and whether it may run there only.
    #[inline]
    pub(super) fn rt_runs(&self, cpu: CpuId) -> (u8, bool) {
        let row = self.row(cpu);
        (row.rt_runs.load(Relaxed) as u8, row.rt_pinned.load(Relaxed))
    }
    /// Whether RT tasks wait there that could run elsewhere.
    #[inline]
    pub(super) fn rt_overloaded(&self, cpu: CpuId) -> bool {
        self.row(cpu).rt_overloaded.load(Relaxed)
    }
    /// When it became idle last.
    #[inline]
    pub(super) fn idle_since(&self, cpu: CpuId) -> Ns {
        Ns(self.row(cpu).idle_since.load(Relaxed))
    }
    /// The load signals of the fair class at `now`: load, runnable and use.
    pub(super) fn signals(&self, cpu: CpuId, now: Ns) -> Pelt {
        self.row(cpu).fair_signal.at(now)
    }
    /// Average load of the fair class.
    pub(super) fn load(&self, cpu: CpuId, now: Ns) -> u64 {
        self.signals(cpu, now).load_avg(1)
    }
    /// What the RT class leaves of the CPU, 1 … 1024.
    pub(super) fn capacity(&self, cpu: CpuId, now: Ns) -> u64 {
        let used = self.row(cpu).rt_signal.at(now).util_avg();
        SCALE.saturating_sub(used).max(1)
    }

    /// Whether last-level cache `llc` may have a core without a task.
    pub(super) fn idle_core(&self, llc: u32) -> bool {
        self.caches[llc as usize].idle_core.load(Relaxed)
    }
    /// Sets it.
    pub(super) fn set_idle_core(&self, llc: u32, has: bool) {
        self.caches[llc as usize].idle_core.store(has, Relaxed);
    }
    /// How many CPUs a search in this cache may look at.
    pub(super) fn scan(&self, llc: u32) -> u32 {
        self.caches[llc as usize].scan.load(Relaxed)
    }
    /// Sets it.
    pub(super) fn set_scan(&self, llc: u32, cpus: u32) {
        self.caches[llc as usize].scan.store(cpus, Relaxed);
    }
}

/// Counts a CPU in or out.
#[inline]
fn count(counter: &AtomicU32, before: bool, after: bool) {
    match (before, after) {
        (false, true) => counter.fetch_add(1, Relaxed),
        (true, false) => counter.fetch_sub(1, Relaxed),
        _ => 0,
    };
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn signal(load: u64, runnable: u64, running: bool, until: Ns) -> Signal {
        let mut signal = Signal::zero(Ns(0));
        signal.set(Ns(0), Inputs { load, runnable, running });
        signal.at(until);
        signal
    }

    /// Publishes `fair` hogs that have been there for long.
    pub(in crate::linux) fn hogs(board: &Board, cpu: u32, fair: u32, now: Ns) {
        let on = fair > 0;
        let facts = Facts { nr_running: fair, fair, busy: on, ..Facts::default() };
        let signal = signal(1024 * u64::from(fair), u64::from(fair), on, now);
        board.publish(CpuId(cpu), now, &facts, &signal, &Signal::default());
    }

    #[test]
    fn an_empty_row_is_idle() {
        let board = Board::new(2, &[2]);
        assert!(board.idle(CpuId(0)) && board.takes_wakee(CpuId(0)));
        hogs(&board, 0, 1, Ns(5));
        assert!(!board.idle(CpuId(0)));
        let (none, off) = (Facts::default(), Signal::default());
        assert!(board.publish(CpuId(0), Ns(9), &none, &off, &off));
        assert_eq!(board.idle_since(CpuId(0)), Ns(9));
    }

    #[test]
    fn only_idle_tasks_count_as_idle() {
        let (board, off) = (Board::new(1, &[1]), Signal::default());
        let mut facts = Facts { nr_running: 2, fair: 2, fair_idle: 2, busy: true, ..Facts::default() };
        board.publish(CpuId(0), Ns(0), &facts, &off, &off);
        assert!(board.only_idle_tasks(CpuId(0)) && !board.idle(CpuId(0)));
        facts.nr_running = 3;
        board.publish(CpuId(0), Ns(0), &facts, &off, &off);
        assert!(!board.takes_wakee(CpuId(0)));
    }

    #[test]
    fn signals_are_carried_on() {
        let board = Board::new(1, &[1]);
        let facts = Facts { nr_running: 1, fair: 1, busy: true, ..Facts::default() };
        let on = signal(1024, 1, true, Ns(0));
        board.publish(CpuId(0), Ns(0), &facts, &on, &Signal::default());
        assert_eq!(board.load(CpuId(0), Ns(0)), 0);
        let half = board.signals(CpuId(0), Ns(32 * 1024 * 1024)).util_avg();
        assert!((490..=530).contains(&half), "{half}");
    }

    #[test]
    fn rt_takes_capacity() {
        let board = Board::new(1, &[1]);
        assert_eq!(board.capacity(CpuId(0), Ns(0)), 1024);
        let facts = Facts { nr_running: 1, busy: true, rt_runs: 5, rt_best: 5, ..Facts::default() };
        let rt = signal(0, 0, true, Ns(0));
        board.publish(CpuId(0), Ns(0), &facts, &Signal::default(), &rt);
        assert!(board.capacity(CpuId(0), Ns::from_s(2)) <= 8);
        assert_eq!(board.rt_runs(CpuId(0)), (5, false));
    }
}
