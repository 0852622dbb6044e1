//! The price of the scheduler's own work: the units that it counted ([`Work`]) and the task records
//! that it touched, priced by [`Costs`], with one queue for a lock that all CPUs share.
//!
//! The rules are those of docs/sources/linux-facts.md, 5.3:
//! * A record that is scanned is *hot* when this CPU touched it at most `hot_lines` touches ago, no
//!   other CPU wrote it since, and no task filled the cache meanwhile. (Counting touches instead of
//!   distinct lines makes the cache look a little smaller than it is.)
//! * A task that ran `stream_after_ns` filled the cache; its CPU then counts as one that streams
//!   memory until it decides after a shorter run, but not while it decides or waits for the lock: a
//!   CPU that spins on a line of its own cache loads nothing. A miss costs `line_bus_ns` times the
//!   root of the number of such CPUs on the same bus, the searching one included.
//! * A shared lock is served first in, first out. What the scheduler does under it is done in the
//!   order of the requests, which is the order of service; so the decision is computed at once and
//!   takes effect after the wait. While it waits the CPU is busy.
//! * Recharging all tasks is done without the lock, as 2.4 does it (`schedule`, kernel/sched.c).
//!
//! Omitted: contention of per-CPU locks (a few microseconds in all published measurements), and the
//! traffic of the lock's own line other than the hand-off.

use super::Engine;
use crate::Costs;
use schedlab_model::{CpuId, EventSink, Ns, TaskId};
use schedlab_scheduler::{Needs, Work};

/// A task's record as one CPU's cache knows it.
#[derive(Clone, Copy, Default)]
struct CachedRecord {
    /// Touch of this CPU that brought it in last, from 1.
    touch: u64,
    /// Touch of all CPUs.
    stamp: u64,
}

/// The cache of one CPU, as far as task records go.
struct Cache {
    lines: Vec<CachedRecord>,
    touches: u64,
    /// What was touched up to here is gone.
    flushed: u64,
    /// The last task ran long enough to fill the cache.
    streams: bool,
    decided_at: u64,
}

/// The state of the prices of a run.
pub(crate) struct Prices {
    costs: Costs,
    /// Instructions and calls are priced.
    code: bool,
    /// All of the work counted so far.
    seen: [u64; Work::COUNT],
    touched: Vec<(CpuId, TaskId, bool)>,
    caches: Vec<Cache>,
    /// The CPU that wrote a record last, and when.
    written: Vec<(u32, u64)>,
    stamp: u64,
    /// Ends of the holds of the shared lock that are not over; `None`: every CPU has its own lock.
    holds: Option<Vec<u64>>,
}

/// What a call did, in nanoseconds.
struct Bill {
    /// Under the lock.
    scan: u64,
    lines: u64,
    locks: u64,
    /// Without it.
    unlocked: u64,
    scanned: u64,
    missed: u64,
}

/// Counted before a tick, and not paid.
pub(super) struct Owed {
    work: [u64; Work::COUNT],
    touched: Vec<(CpuId, TaskId, bool)>,
}

/// What became of a request for the shared lock.
struct Hold {
    wait: u64,
    held: u64,
}

impl Prices {
    /// `None` when the scheduler's work is free.
    pub(super) fn new(costs: &Costs, cpus: usize, tasks: usize, needs: &Needs) -> Option<Prices> {
        let code = needs.counts_code && costs.prices_code();
        let cache = |_| Cache {
            lines: vec![CachedRecord::default(); tasks],
            touches: 0,
            flushed: 0,
            streams: false,
            decided_at: 0,
        };
        (code || costs.prices_work()).then(|| Prices {
            costs: *costs,
            code,
            seen: [0; Work::COUNT],
            touched: Vec::new(),
            caches: (0..cpus).map(cache).collect(),
            written: vec![(u32::MAX, 0); tasks],
            stamp: 0,
            holds: needs.one_lock.then(|| Vec::with_capacity(cpus)),
        })
    }

    /// Returns how many CPUs of the bus of `cpu` load from memory at `at`, when it searches: it,
    /// and those that stream and are neither deciding nor waiting to.
    fn streaming(&self, cpu: usize, at: u64) -> u64 {
        let all = self.caches.len();
        let bus = if self.costs.bus_cpus == 0 { all } else { self.costs.bus_cpus as usize };
        let first = cpu / bus * bus;
        let busy = |other: &usize| {
            let cache = &self.caches[*other];
            *other != cpu && cache.streams && cache.decided_at <= at
        };
        let others = (first..all.min(first + bus)).filter(busy).count() as u64;
        others + u64::from(others > 0 || self.caches[cpu].streams)
    }

    /// Returns the price of a line that has to come from memory or from another CPU.
    fn line(&self, cpu: usize, at: u64) -> u64 {
        match self.streaming(cpu, at) {
            n if n > 0 && self.costs.line_bus_ns > Ns::ZERO => by_root(self.costs.line_bus_ns, n),
            _ => self.costs.line_ns.0,
        }
    }

    /// Touches one record; returns whether it was in the cache.
    fn touch(&mut self, cpu: usize, task: TaskId, write: bool) -> bool {
        self.stamp += 1;
        let cache = &mut self.caches[cpu];
        cache.touches += 1;
        let (Some(line), Some(written)) =
            (cache.lines.get_mut(task.index()), self.written.get_mut(task.index()))
        else {
            return true;
        };
        let near = line.touch > cache.flushed
            && cache.touches - line.touch <= u64::from(self.costs.hot_lines);
        let own = written.0 == cpu as u32 || written.1 <= line.stamp;
        *line = CachedRecord { touch: cache.touches, stamp: self.stamp };
        if write {
            *written = (cpu as u32, self.stamp);
        }
        near && own
    }

    /// Prices what was counted since the last bill and is done from `at` on.
    fn bill(&mut self, work: impl Fn(Work) -> u64, cpu: usize, at: u64) -> Bill {
        let mut new = |kind: Work| {
            let now = work(kind);
            now - std::mem::replace(&mut self.seen[kind as usize], now)
        };
        let (scans, accounts) = (new(Work::Scan), new(Work::Account));
        let (locks, steps) = (new(Work::Lock), new(Work::TreeStep));
        let (instructions, calls) = (new(Work::Instruction), new(Work::Call));
        let code = match self.code {
            true => {
                instructions * self.costs.bpf_thousand_ns.0 / 1_000
                    + calls * self.costs.bpf_call_ns.0
            }
            false => 0,
        };
        let remote = new(Work::RemoteLock)
            + new(Work::TryLockMiss)
            + new(Work::RemoteLine)
            + new(Work::Move);
        let touched = std::mem::take(&mut self.touched);
        let mut missed = 0;
        for &(_, task, write) in &touched {
            let hot = self.touch(cpu, task, write);
            missed += u64::from(!hot && !write);
        }
        self.touched = touched;
        self.touched.clear();
        let missed = missed.min(scans);
        let (hot, cold) = (self.costs.scan_hot_ns.0, self.line(cpu, at));
        let scan = (scans - missed) * hot + missed * cold;
        // The recharge goes over the records that were just scanned, or over as many others.
        let fits = accounts <= u64::from(self.costs.hot_lines);
        Bill {
            scan: scan + steps * hot,
            lines: remote * cold,
            locks,
            unlocked: code + accounts * if fits { hot } else { cold },
            scanned: scans,
            missed,
        }
    }

    /// Returns when a request for the shared lock at `now` is served.
    fn free_at(&self, now: u64) -> u64 {
        self.holds.iter().flatten().last().map_or(now, |end| now.max(*end))
    }

    /// Waits for the shared lock at `now` and holds it for `need`.
    fn hold(&mut self, now: u64, need: u64) -> Hold {
        let handoff = self.costs.handoff_ns.0;
        let Some(holds) = &mut self.holds else { return Hold { wait: 0, held: 0 } };
        holds.retain(|end| *end > now);
        let free = holds.last().copied().unwrap_or(now);
        let held = need + handoff * holds.len() as u64;
        holds.push(free + held);
        Hold { wait: free - now, held }
    }

    /// The CPU decides after a run of `ran`.
    fn note_run(&mut self, cpu: usize, ran: u64) {
        let after = self.costs.stream_after_ns.0;
        let cache = &mut self.caches[cpu];
        cache.streams = after > 0 && ran >= after;
        if cache.streams {
            cache.flushed = cache.touches;
        }
    }

    fn fixed(&self, cpu: usize, at: u64) -> u64 {
        if !self.caches[cpu].streams {
            return self.costs.decision_ns.0;
        }
        self.costs.decision_cold_ns.0 + by_root(self.costs.decision_bus_ns, self.streaming(cpu, at))
    }
}

/// Returns `ns` times the square root of `n`, rounded down.
fn by_root(ns: Ns, n: u64) -> u64 {
    (ns.0 * ns.0 * n).isqrt()
}

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// Returns the price of the decision that `cpu` has just made: what to wait for, and what to
    /// do.
    #[cold]
    #[inline(never)]
    pub(super) fn price_decision(&mut self, cpu: usize) -> u64 {
        let Some(prices) = &mut self.features.prices else { return 0 };
        let c = &self.cpus[cpu];
        let from = c.recorded_at.max(prices.caches[cpu].decided_at);
        let ran = if c.occupant.is_some() { self.clock.now.saturating_sub(from) } else { 0 };
        prices.note_run(cpu, ran);
        self.out.take_touches(&mut prices.touched);
        let served = prices.free_at(self.clock.now);
        let bill = prices.bill(|kind| self.out.work(kind), cpu, served);
        let hold = prices.hold(self.clock.now, bill.scan + bill.lines);
        let shared = hold.held > 0;
        let work = if shared { hold.held } else { bill.scan + bill.lines };
        let cost = hold.wait + work + bill.unlocked + prices.fixed(cpu, served);
        // Waiting and deciding fill no cache.
        prices.caches[cpu].decided_at = self.clock.now + cost;
        let sums = &mut self.output.metrics.decisions;
        sums.calls += 1;
        sums.cost_ns += Ns(cost);
        sums.wait_ns += Ns(hold.wait);
        sums.scanned += bill.scanned;
        sums.missed += bill.missed;
        self.note_hold(&hold);
        cost
    }

    fn note_hold(&mut self, hold: &Hold) {
        let sums = &mut self.output.metrics.decisions;
        if hold.held > 0 {
            sums.locks += 1;
            sums.contended += u64::from(hold.wait > 0);
            sums.held_ns += Ns(hold.held);
            sums.spun_ns += Ns(hold.wait);
        }
    }

    /// Takes out the work that was counted and not paid yet: a decision that is still to come pays
    /// it, not a tick that comes before, which may be left out.
    pub(super) fn set_aside_work(&mut self) -> Option<Owed> {
        let prices = self.features.prices.as_mut()?;
        self.out.take_touches(&mut prices.touched);
        let mut work = [0; Work::COUNT];
        for (kind, owed) in Work::ALL.into_iter().zip(&mut work) {
            let seen = &mut prices.seen[kind as usize];
            let now = self.out.work(kind);
            *owed = now - std::mem::replace(seen, now);
        }
        Some(Owed { work, touched: std::mem::take(&mut prices.touched) })
    }

    /// Puts the work of [`Engine::set_aside_work`] on the next bill again.
    pub(super) fn take_up_work(&mut self, owed: Owed) {
        let Some(prices) = &mut self.features.prices else { return };
        for (seen, owed) in prices.seen.iter_mut().zip(owed.work) {
            *seen -= owed;
        }
        let mut touched = owed.touched;
        touched.append(&mut prices.touched);
        prices.touched = touched;
    }

    /// The price of a wakeup, a tick, or (`tail`) the end of a switch, which belongs to the
    /// decision. The CPU where it happens pays.
    #[cold]
    #[inline(never)]
    pub(super) fn price_call(&mut self, cpu: usize, tail: bool) {
        let Some(prices) = &mut self.features.prices else { return };
        self.out.take_touches(&mut prices.touched);
        let bill = prices.bill(|kind| self.out.work(kind), cpu, self.clock.now);
        let mut need = bill.scan + bill.lines;
        // A tick takes its own CPU's lock for next to nothing.
        if self.ticks.handled.is_none() {
            need += bill.locks * prices.costs.wake_hold_ns.0;
        }
        let hold = if bill.locks > 0 {
            prices.hold(self.clock.now, need)
        } else {
            Hold { wait: 0, held: 0 }
        };
        let cost = hold.wait + if hold.held > 0 { hold.held } else { need } + bill.unlocked;
        if tail {
            self.output.metrics.decisions.cost_ns += Ns(cost);
            self.output.metrics.decisions.wait_ns += Ns(hold.wait);
        }
        self.note_hold(&hold);
        self.steal(cpu, cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_lock_is_served_in_turn() {
        let locked = Needs { one_lock: true, ..Needs::default() };
        let costs = Costs { line_ns: Ns(100), handoff_ns: Ns(10), ..Costs::default() };
        let mut prices = Prices::new(&costs, 4, 1, &locked).unwrap();
        let waits: Vec<(u64, u64)> = [(0, 100), (10, 100), (20, 100), (400, 100)]
            .map(|(now, need)| prices.hold(now, need))
            .iter()
            .map(|hold| (hold.wait, hold.held))
            .collect();
        assert_eq!(waits, [(0, 100), (90, 110), (190, 120), (0, 100)]);
        assert_eq!(Prices::new(&costs, 4, 1, &Needs::default()).unwrap().hold(0, 5).held, 0);
        assert!(Prices::new(&Costs::default(), 4, 1, &locked).is_none());
    }

    #[test]
    fn records_stay_hot_until_too_many_others_came_or_another_cpu_wrote() {
        let costs =
            Costs { line_ns: Ns(100), hot_lines: 3, stream_after_ns: Ns(50), ..Costs::default() };
        let mut prices = Prices::new(&costs, 2, 8, &Needs::default()).unwrap();
        let scan = |prices: &mut Prices, n: u32| {
            (0..n).filter(|task| prices.touch(0, TaskId(*task), false)).count()
        };
        assert_eq!((scan(&mut prices, 3), scan(&mut prices, 3)), (0, 3));
        assert_eq!((scan(&mut prices, 4), scan(&mut prices, 4)), (3, 0));
        let mut prices = Prices::new(&costs, 2, 8, &Needs::default()).unwrap();
        scan(&mut prices, 3);
        prices.touch(1, TaskId(1), true);
        assert_eq!((scan(&mut prices, 3), scan(&mut prices, 3)), (2, 3));
        prices.note_run(0, 50);
        assert_eq!(scan(&mut prices, 3), 0);
    }

    #[test]
    fn the_fitted_lines_are_those_of_the_table() {
        let costs = Costs::p3_xeon_700();
        let lines = [2, 4].map(|n| by_root(costs.line_bus_ns, n));
        assert_eq!(lines, [770, 1090]);
        let fixed = [2, 4].map(|n| costs.decision_cold_ns.0 + by_root(costs.decision_bus_ns, n));
        assert_eq!(fixed, [13_160, 14_470]);
    }

    /// CPUs load a bus while their tasks stream: not those of another bus, and not those that
    /// decide or wait to.
    #[test]
    fn a_cpu_that_waits_for_the_lock_loads_no_bus() {
        let locked = Needs { one_lock: true, ..Needs::default() };
        let costs = Costs { stream_after_ns: Ns(50), line_ns: Ns(1), ..Costs::p3_xeon_700() };
        let mut prices = Prices::new(&costs, 8, 1, &locked).unwrap();
        assert_eq!(prices.streaming(0, 0), 0);
        (0..8).for_each(|cpu| prices.note_run(cpu, 50));
        assert_eq!((prices.streaming(0, 0), prices.streaming(7, 0)), (4, 4));
        // CPU 1 gets the lock at 100 and is done at 200.
        prices.caches[1].decided_at = 200;
        assert_eq!(
            (prices.streaming(0, 150), prices.streaming(5, 150), prices.streaming(0, 200)),
            (3, 4, 4)
        );
        // The searching CPU loads its bus even after a short run of its own.
        prices.note_run(0, 10);
        assert_eq!(prices.streaming(0, 200), 4);
        prices.costs.bus_cpus = 0;
        assert_eq!(prices.streaming(3, 200), 7);
    }
}
