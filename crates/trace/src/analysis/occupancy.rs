//! Who was on each CPU when: a short memory, as long as a task waits.

mod together;

use super::follow::{Follower, Occupant};
use schedlab_model::{CpuId, Ns};
use std::collections::VecDeque;
pub(crate) use together::Waited;

/// Switches that are kept before the older ones are looked through.
const KEEP: usize = 1 << 16;

/// The recent past of every CPU.
#[derive(Clone, Debug)]
pub struct Occupancy {
    /// By CPU: since when, and who.
    cpus: Vec<VecDeque<(Ns, Occupant)>>,
    noted: usize,
    /// Switches that are kept at most.
    max: usize,
}

impl Default for Occupancy {
    /// Returns one that remembers for as long as a task waits.
    fn default() -> Occupancy {
        Occupancy::bounded(usize::MAX)
    }
}

/// Returns the place of the first switch after `from`. Most waits are over after a few switches, so
/// the last ones are looked at before all are searched.
fn first_after(log: &VecDeque<(Ns, Occupant)>, from: Ns) -> usize {
    const LAST: usize = 8;
    let before = log.iter().rev().take(LAST).position(|&(at, _)| at <= from);
    before.map_or_else(|| log.partition_point(|&(at, _)| at <= from), |back| log.len() - back)
}

impl Occupancy {
    /// Returns one that keeps `max` switches, and [`KEEP`] more between two looks: a stream without
    /// an end may have a task that waits without an end. Before them every CPU's occupant is
    /// unknown.
    pub fn bounded(max: usize) -> Occupancy {
        Occupancy { cpus: Vec::new(), noted: 0, max }
    }

    /// Returns the time from which on the switches are needed and kept: the beginning of the oldest
    /// wait, or later.
    pub fn needed_since(&self, follower: &Follower) -> Ns {
        let oldest = follower.waiting().map(|(_, since)| since).min().unwrap_or(follower.now());
        let kept = self.cpus.iter().filter_map(|log| log.front()).map(|&(at, _)| at).min();
        oldest.max(kept.unwrap_or(oldest))
    }

    /// From `at` on `who` is on `cpu`.
    pub fn note(&mut self, cpu: CpuId, at: Ns, who: Occupant) {
        if cpu.index() >= self.cpus.len() {
            self.cpus.resize(cpu.index() + 1, VecDeque::new());
        }
        self.cpus[cpu.index()].push_back((at, who));
        self.noted += 1;
    }

    /// Calls `each` for every task that was on `cpu` in `from .. to`, in order, with the length of
    /// its part. The parts add up to `to - from`.
    pub fn over(&self, cpu: CpuId, from: Ns, to: Ns, mut each: impl FnMut(Occupant, Ns)) {
        let empty = VecDeque::new();
        let log = self.cpus.get(cpu.index()).unwrap_or(&empty);
        let first = first_after(log, from);
        let mut who = if first > 0 { log[first - 1].1 } else { Occupant::Unknown };
        let mut since = from;
        for &(at, next) in log.range(first..) {
            if at >= to {
                break;
            }
            if at > since {
                each(who, at - since);
            }
            (who, since) = (next, at);
        }
        if to > since {
            each(who, to - since);
        }
    }

    /// How long `cpu` was idle in `from .. to`.
    pub fn idle(&self, cpu: CpuId, from: Ns, to: Ns) -> Ns {
        let mut idle = Ns::ZERO;
        self.over(cpu, from, to, |who, part| {
            if who == Occupant::Idle {
                idle += part;
            }
        });
        idle
    }

    /// Returns how many switches of `cpu` are known that came after `at`.
    pub(crate) fn switches_after(&self, cpu: CpuId, at: Ns) -> usize {
        self.cpus.get(cpu.index()).map_or(0, |log| log.len() - first_after(log, at))
    }

    /// Whether the next [`tidy`](Occupancy::tidy) forgets what is needed no more.
    pub(crate) fn is_full(&self) -> bool {
        self.noted >= KEEP
    }

    /// Forgets what lies before the oldest wait, from time to time.
    pub fn tidy(&mut self, follower: &Follower) {
        if !self.is_full() {
            return;
        }
        self.noted = 0;
        let oldest = follower.waiting().map(|(_, since)| since).min().unwrap_or(follower.now());
        for log in &mut self.cpus {
            let keep = log.partition_point(|&(at, _)| at <= oldest).saturating_sub(1);
            log.drain(..keep);
        }
        self.shorten();
    }

    /// Drops the oldest switches beyond the greatest number.
    fn shorten(&mut self) {
        let kept: usize = self.cpus.iter().map(VecDeque::len).sum();
        if kept <= self.max {
            return;
        }
        let mut times: Vec<Ns> = self.cpus.iter().flatten().map(|&(at, _)| at).collect();
        let (_, &mut first, _) = times.select_nth_unstable(kept - self.max);
        for log in &mut self.cpus {
            // The occupant at that time stays, from then on.
            let keep = log.partition_point(|&(at, _)| at <= first).saturating_sub(1);
            log.drain(..keep);
            if let Some(front) = log.front_mut().filter(|front| front.0 < first) {
                front.0 = first;
            }
        }
    }
}
