//! Caches and locks: records that a scheduler walks through, a working set after another's, a lock
//! that changes hands.

use super::ProbeSettings;
use schedlab_host::threads::set_affinity;
use schedlab_host::{Spin, Tas, cycles, flush};
use schedlab_model::{CpuId, CpuSet};
use schedlab_stats::Random;
use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Bytes of a cache line.
const LINE: usize = size_of::<CacheLine>();

/// One cache line, with the index of the next one to look at.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct CacheLine {
    next: u32,
}

/// Lines in one circle, in random order: no prefetcher guesses the next.
fn circle(lines: usize, seed: u64) -> Vec<CacheLine> {
    let mut order: Vec<u32> = (0..lines as u32).collect();
    Random::new(seed).shuffle(&mut order);
    let mut all = vec![CacheLine::default(); lines];
    for (i, &at) in order.iter().enumerate() {
        all[at as usize].next = order[(i + 1) % lines];
    }
    all
}

fn walk(lines: &[CacheLine], from: u32, steps: u32) -> u32 {
    (0..steps).fold(from, |at, _| lines[at as usize].next)
}

/// Bytes of the last-level cache of CPU 0, as the kernel tells them; 32 MiB where it does not.
pub(super) fn last_level() -> usize {
    (0..8).filter_map(cache_bytes).next_back().unwrap_or(32 << 20)
}

/// Bytes of the cache before it: on x86 a core's own; 0: unknown.
pub(super) fn second_level() -> usize {
    // Two of the first level, for data and instructions.
    cache_bytes(2).unwrap_or(0)
}

/// Bytes of cache `index` of CPU 0.
fn cache_bytes(index: u32) -> Option<usize> {
    let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
    let text = std::fs::read_to_string(path).ok()?;
    let (number, unit) = text.trim().split_at(text.trim().len().checked_sub(1)?);
    let scale = match unit {
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return None,
    };
    Some(number.parse::<usize>().ok()? * scale)
}

pub(super) fn hot(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    const RECORDS: u32 = 1024;
    let lines = circle(RECORDS as usize, settings.seed);
    let mut at = 0;
    settings.fill(|| {
        let start = Instant::now();
        at = black_box(walk(&lines, at, RECORDS));
        Ok(start.elapsed().as_nanos() as f64 / f64::from(RECORDS))
    })
}

/// Bytes to read so that nothing of before is in a cache: twice the last-level one.
pub fn cold_bytes() -> usize {
    2 * last_level()
}

/// Memory whose reading puts everything else out of the caches. It takes seconds to make where the
/// last-level cache is large.
pub(crate) struct Filler(Vec<CacheLine>);

impl Filler {
    pub(crate) fn new(bytes: usize) -> Filler {
        Filler(vec![CacheLine::default(); bytes / LINE])
    }

    pub(crate) fn read(&self) {
        read_all(&self.0);
    }
}

/// Steps through records that are in no cache.
pub(super) fn cold(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    const STEPS: u32 = 500;
    /// More pages than the largest translation caches hold (2,048 of 4 KiB), in the memory of a
    /// small machine.
    const FLUSHED: usize = 64 << 20;
    static FAR: OnceLock<Far> = OnceLock::new();
    let flushes = flush::<CacheLine>(&[]);
    let far = FAR.get_or_init(|| Far::new(if flushes { FLUSHED } else { cold_bytes() }));
    let mut at = settings.seed as u32 & far.mask;
    settings.fill(|| {
        let start = Instant::now();
        let end = black_box(far.walk(at, STEPS, |_| {}));
        let took = start.elapsed();
        if flushes {
            far.walk(at, STEPS, |line| {
                let _ = flush(std::slice::from_ref(line));
            });
        }
        at = end;
        Ok(took.as_nanos() as f64 / f64::from(STEPS))
    })
}

/// Records that are visited each once before any is visited again, in an order that no prefetcher
/// guesses and that needs no shuffling: with memory of 2 us a random access, shuffling a gigabyte
/// takes minutes.
struct Far {
    lines: Vec<CacheLine>,
    mask: u32,
}

impl Far {
    /// In at least `bytes`; none of them is in a cache afterwards where that can be done.
    fn new(bytes: usize) -> Far {
        let lines = vec![CacheLine::default(); (bytes / LINE).next_power_of_two()];
        flush(&lines);
        Far { mask: (lines.len() - 1) as u32, lines }
    }

    /// Where it ends after `steps` from `from`. The full period of a linear congruential generator
    /// needs a factor of 4k+1 and an odd increment (Knuth, TAOCP 2, 3.2.1.2, theorem A); these are
    /// those of Numerical Recipes' `ranqd1`. Every record holds 0: the next address is known when
    /// it was read, not before.
    fn walk(&self, from: u32, steps: u32, mut visit: impl FnMut(&CacheLine)) -> u32 {
        (0..steps).fold(from, |at, _| {
            let line = &self.lines[at as usize];
            visit(line);
            at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223 + line.next) & self.mask
        })
    }
}

/// The working set of a small task.
const SET_LINES: usize = (64 << 10) / LINE;

/// Time to read every line of `set` once, in order.
fn read_all(set: &[CacheLine]) -> f64 {
    let start = Instant::now();
    let sum: u32 = set.iter().fold(0, |sum, line| sum.wrapping_add(black_box(line).next));
    black_box(sum);
    start.elapsed().as_nanos() as f64
}

/// What the next reading of `set` takes more than the one after it.
fn more_than_again(set: &[CacheLine]) -> f64 {
    let first = read_all(set);
    first - read_all(set)
}

pub(super) fn refill(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    let set = vec![CacheLine::default(); SET_LINES];
    read_all(&set);
    settings.fill(|| {
        if !flush(&set) {
            static FILLER: OnceLock<Filler> = OnceLock::new();
            FILLER.get_or_init(|| Filler::new(cold_bytes())).read();
        }
        Ok(more_than_again(&set).max(0.0))
    })
}

pub(super) fn moved(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    let places = [settings.other()?, settings.cpu].map(CpuSet::single);
    let mut set = vec![CacheLine::default(); SET_LINES];
    let mut turn = 0;
    settings.fill(|| {
        // Written here, so that it is nowhere else.
        set.iter_mut().for_each(|line| line.next = line.next.wrapping_add(1));
        set_affinity(0, &places[turn % 2])?;
        turn += 1;
        Ok(more_than_again(&set).max(0.0))
    })
}

/// How two threads take one lock in turn.
pub(super) fn handoff(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    let other: CpuId = settings.other()?;
    let (lock, stop) = (Arc::new(Spin::<Tas, u64>::new(0)), Arc::new(AtomicBool::new(false)));
    let turns = Arc::new(AtomicU64::new(0));
    let rival = {
        let (lock, stop, turns) = (Arc::clone(&lock), Arc::clone(&stop), Arc::clone(&turns));
        std::thread::Builder::new().name("sl-rival".to_owned()).spawn(move || {
            let bound = set_affinity(0, &CpuSet::single(other));
            while !stop.load(Ordering::Relaxed) {
                take_turn(&lock, 1);
                turns.fetch_add(1, Ordering::Relaxed);
            }
            bound
        })?
    };
    while turns.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(Duration::from_micros(50));
    }
    // A turn that waits for a holder that is not running is cut off by the median.
    let samples = settings.fill(|| {
        let start = Instant::now();
        take_turn(&lock, 0);
        take_turn(&lock, 0);
        // Two turns of this thread, two of the other.
        Ok(start.elapsed().as_nanos() as f64 / 4.0)
    });
    stop.store(true, Ordering::Relaxed);
    // A thread that waits for our turn would wait for ever.
    while !rival.is_finished() {
        *lock.lock() = 1;
        std::thread::sleep(Duration::from_micros(10));
    }
    rival.join().unwrap_or_else(|_| Err(io::Error::other("the second thread ended early")))?;
    samples
}

/// Takes the lock until it is the turn of `me`, and gives the turn on; not for longer than 10 ms.
fn take_turn(lock: &Spin<Tas, u64>, me: u64) {
    let start = cycles();
    loop {
        let mut turn = lock.lock();
        // 10^8 cycles are tens of milliseconds on every CPU of today.
        if *turn == me || cycles() - start > 100_000_000 {
            *turn = 1 - me;
            return;
        }
        drop(turn);
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_visits_everybody() {
        let lines = circle(100, 5);
        let mut seen = [false; 100];
        let mut at = 0;
        for _ in 0..100 {
            seen[at as usize] = true;
            at = walk(&lines, at, 1);
        }
        assert!(seen.iter().all(|seen| *seen) && at == 0);
    }

    #[test]
    fn a_far_walk_visits_every_record_once() {
        let far = Far::new(1000 * LINE);
        let mut seen = vec![0; far.lines.len()];
        let first = far.lines.as_ptr();
        let visit = |line: &CacheLine| {
            let at = (std::ptr::from_ref(line) as usize - first as usize) / LINE;
            seen[at] += 1;
        };
        assert_eq!(far.walk(3, 1024, visit), 3);
        assert_eq!(seen, [1; 1024]);
    }
}
