//! What the kernel sums up for the flight recorder, in memory shared with `bpf/sums.h`: the state
//! of each task, and sums by class. Reading them takes no system call.

use super::Loaded;
use crate::HostError;
use crate::sys::Shared;
use schedlab_model::{CpuSet, Ns};
use std::sync::atomic::Ordering::Relaxed;

/// Buckets of waits: eight an octave from 125 ns on, the last without a bound.
pub const BUCKETS: usize = 208;
const CULPRITS: usize = 16;

/// Bytes of `struct life`, and where its parts are.
const LIFE: usize = 64;
const STATE: usize = 4;
const SINCE: usize = 8;
const CLASS: usize = 36;
const WAIT: usize = 40;
const RUN: usize = 48;
const BLOCK: usize = 56;

/// Bytes of `struct sums`, and where its lists are.
const SUMS: usize = CULPRIT_LIST + CULPRITS * 16 + BUCKETS * 8;
const CULPRIT_LIST: usize = 48;
const COUNTS: usize = CULPRIT_LIST + CULPRITS * 16;

/// Places that a task may have.
const PROBES: u32 = 8;
/// Highest bit of a task's bound for blocks.
const TELL_THROTTLED: u64 = 1 << 63;

/// Memory for the sums of all CPUs together, and the fewest and most classes.
const ALL_SUMS: usize = 16 << 20;
const CLASSES: (usize, usize) = (160, 512);
/// Fewest and most tasks that are followed, and how many times those that live now.
const LIVES: (usize, usize) = (1 << 13, 1 << 18);
const GROWTH: usize = 8;

/// For how many classes and tasks there is room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    pub(crate) classes: u32,
    pub(crate) lives: u32,
}

impl Room {
    /// Returns what this machine needs.
    pub(super) fn on(cpus: &CpuSet) -> Room {
        let count = cpus.iter().last().map_or(1, |last| last.index() + 1);
        let classes = (ALL_SUMS / (count * SUMS)).clamp(CLASSES.0, CLASSES.1);
        let threads = crate::proc::threads(None).len();
        let lives = (threads * GROWTH).next_power_of_two().clamp(LIVES.0, LIVES.1);
        Room { classes: classes as u32, lives: lives as u32 }
    }
}

/// What is counted of a task, and what of it is told at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Watch {
    /// Its sums: a place in the lower 16 bits.
    pub class: u32,
    /// A longer wait is told.
    pub wait: Option<Ns>,
    /// A longer run is.
    pub run: Option<Ns>,
    /// A longer block is.
    pub block: Option<Ns>,
    /// A wait that a limit held up is.
    pub throttled: bool,
}

/// Sums of a class since the beginning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassSums {
    /// Waits that ended.
    pub waits: u64,
    /// Their time.
    pub waited: Ns,
    /// CPU time, of stretches that ended.
    pub ran: Ns,
    /// For how long limits held waits up.
    pub throttled: Ns,
    /// Of the waits: time in which others ran, by class.
    pub culprits: Vec<(u32, Ns)>,
    /// Of the waits: time in which others ran that have no place of their own.
    pub by_others: Ns,
    /// Of the waits: time in which it is not known what was on the CPU.
    pub unknown: Ns,
    /// Waits by length: see [`bucket`].
    pub counts: Vec<u64>,
}

/// Returns the bucket of a wait: as `bucket` of `bpf/sums.h`.
pub fn bucket(length: Ns) -> usize {
    let units = length.0.saturating_sub(1) / 125;
    if units < 8 {
        return units as usize;
    }
    let shift = units.ilog2() - 3;
    (shift as usize * 8 + (units >> shift) as usize).min(BUCKETS - 1)
}

/// Returns the longest wait of a bucket; the last has longer ones.
pub const fn bucket_bound(bucket: usize) -> Ns {
    if bucket < 8 {
        return Ns((bucket as u64 + 1) * 125);
    }
    Ns(125 * ((9 + bucket as u64 % 8) << (bucket / 8 - 1)))
}

/// A stretch that is as long is told; 0: none.
fn bound(limit: Option<Ns>) -> u64 {
    limit.map_or(0, |limit| limit.0.saturating_add(1)) & !TELL_THROTTLED
}

/// The state and sums that the kernel keeps.
pub(crate) struct KernelSums {
    lives: Shared,
    sums: Shared,
    room: Room,
    cpus: usize,
}

impl KernelSums {
    pub(super) fn map(loaded: &Loaded, room: Room, cpus: usize) -> Result<KernelSums, HostError> {
        let lives = loaded.shared("lives", room.lives as usize * LIFE)?;
        let sums = loaded.shared("sums", cpus * room.classes as usize * SUMS)?;
        Ok(KernelSums { lives, sums, room, cpus })
    }

    /// Returns the classes that have sums.
    pub(crate) fn classes(&self) -> usize {
        self.room.classes as usize
    }

    fn places(&self, tid: u32) -> impl Iterator<Item = usize> + use<> {
        let lives = self.room.lives;
        (0..PROBES).map(move |probe| (tid.wrapping_add(probe) & (lives - 1)) as usize * LIFE)
    }

    fn place(&self, tid: u32) -> Option<usize> {
        self.places(tid).find(|&place| self.lives.word(place).load(Relaxed) == tid)
    }

    /// Says what is counted and told of a thread. `claim`: also of one that has not been seen to
    /// switch yet.
    pub(crate) fn watch(&self, tid: u32, watch: &Watch, claim: bool) {
        let free = |place: &usize| {
            let word = self.lives.word(*place);
            claim && word.compare_exchange(0, tid, Relaxed, Relaxed).is_ok()
        };
        let Some(place) = self.place(tid).or_else(|| self.places(tid).find(free)) else { return };
        self.lives.word(place + CLASS).store(watch.class, Relaxed);
        let throttled = if watch.throttled { TELL_THROTTLED } else { 0 };
        self.lives.long(place + WAIT).store(bound(watch.wait), Relaxed);
        self.lives.long(place + RUN).store(bound(watch.run), Relaxed);
        self.lives.long(place + BLOCK).store(bound(watch.block) | throttled, Relaxed);
    }

    /// Returns what a thread does, as [`Told`](super::Told) numbers it, and since when.
    pub(crate) fn state(&self, tid: u32) -> Option<(u16, u64)> {
        let place = self.place(tid)?;
        let since = self.lives.long(place + SINCE).load(Relaxed);
        let what = match self.lives.word(place + STATE).load(Relaxed) {
            1 => 2,
            2 => 1,
            3 => 3,
            _ => return None,
        };
        (self.lives.long(place + SINCE).load(Relaxed) == since).then_some((what, since))
    }

    fn each_cpu(&self, class: usize) -> impl Iterator<Item = usize> + use<> {
        let classes = self.room.classes as usize;
        (0..self.cpus).map(move |cpu| (cpu * classes + class) * SUMS)
    }

    /// Returns the number of waits and the CPU time of a class: where neither has changed, nothing
    /// has.
    pub(crate) fn mark(&self, class: usize) -> (u64, Ns) {
        let sum = |part: usize| {
            self.each_cpu(class).map(|at| self.sums.long(at + part).load(Relaxed)).sum::<u64>()
        };
        (sum(0), Ns(sum(16)))
    }

    /// Makes room for other culprits of a class; the kernel adds nothing to it meanwhile.
    pub(crate) fn forget_culprits(&self, class: usize) {
        for at in self.each_cpu(class) {
            for word in (CULPRIT_LIST..COUNTS).step_by(8) {
                self.sums.long(at + word).store(0, Relaxed);
            }
        }
    }

    /// Returns the sums of a class.
    pub(crate) fn read(&self, class: usize) -> ClassSums {
        let mut counts = vec![0; BUCKETS];
        let mut culprits: Vec<(u32, Ns)> = Vec::new();
        for at in self.each_cpu(class) {
            for (bucket, count) in counts.iter_mut().enumerate() {
                *count += self.sums.long(at + COUNTS + bucket * 8).load(Relaxed);
            }
            for culprit in (0..CULPRITS).map(|culprit| at + CULPRIT_LIST + culprit * 16) {
                if self.sums.word(culprit + 12).load(Relaxed) == 0 {
                    break;
                }
                let who = self.sums.word(culprit + 8).load(Relaxed);
                let time = Ns(self.sums.long(culprit).load(Relaxed));
                match culprits.iter_mut().find(|(known, _)| *known == who) {
                    Some((_, sum)) => *sum += time,
                    None => culprits.push((who, time)),
                }
            }
        }
        let sum = |part: usize| {
            self.each_cpu(class).map(|at| self.sums.long(at + part).load(Relaxed)).sum::<u64>()
        };
        ClassSums {
            waits: sum(0),
            waited: Ns(sum(8)),
            ran: Ns(sum(16)),
            throttled: Ns(sum(24)),
            unknown: Ns(sum(32)),
            by_others: Ns(sum(40)),
            culprits,
            counts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_bound_and_powers_of_two_of_a_microsecond_are_bounds() {
        for at in 0..BUCKETS - 1 {
            let bound = bucket_bound(at);
            assert_eq!((bucket(bound), bucket(Ns(bound.0 + 1))), (at, at + 1), "{bound}");
        }
        for octave in 0..24u64 {
            let at = bucket(Ns(1000 << octave));
            assert_eq!((at as u64, bucket_bound(at).0), (8 * octave + 7, 1000 << octave));
        }
        assert_eq!((bucket(Ns::ZERO), bucket(Ns(u64::MAX))), (0, BUCKETS - 1));
        // As bpf/sums.h divides.
        for length in (0..200_000u64).chain((1 << 32) - 300_000..1 << 32) {
            assert_eq!((u128::from(length) * 0x1062_4dd3) >> 35, u128::from(length / 125));
        }
    }

    #[test]
    fn a_bound_is_the_first_length_that_is_told() {
        assert_eq!(bound(None), 0);
        assert_eq!(bound(Some(Ns::ZERO)), 1);
        assert_eq!(bound(Some(Ns(u64::MAX))), u64::MAX >> 1);
    }
}
