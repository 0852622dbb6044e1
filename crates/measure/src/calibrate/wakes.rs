//! Waking another thread, being woken by a timer, and the tick.

use super::calls::{Does, Helper};
use super::{ProbeSettings, become_policy};
use crate::latency::wake::{now, sleep_until};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use schedlab_host::cycles;
use schedlab_host::threads::set_affinity;
use schedlab_model::{CpuId, CpuSet, Policy};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A FIFO thread that waits at an eventfd and notes when it woke. Ends on drop.
struct Sleeper {
    bell: Arc<OwnedFd>,
    /// When it woke last; [`u64::MAX`]: it could not be made.
    woke: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

const UNFIT: u64 = u64::MAX;

impl Sleeper {
    fn start(cpu: CpuId, priority: u8) -> io::Result<Sleeper> {
        let (bell, woke) =
            (Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?), Arc::new(AtomicU64::new(0)));
        let stop = Arc::new(AtomicBool::new(false));
        let (bell_in, woke_in, stop_in) = (Arc::clone(&bell), Arc::clone(&woke), Arc::clone(&stop));
        let thread =
            std::thread::Builder::new().name("sl-sleeper".to_owned()).spawn(move || {
                let ready = set_affinity(0, &CpuSet::single(cpu))
                    .and_then(|()| become_policy(Policy::Fifo(priority)));
                woke_in.store(if ready.is_ok() { now() } else { UNFIT }, Ordering::Release);
                ready?;
                while !stop_in.load(Ordering::Acquire) {
                    read(&*bell_in, &mut [0u8; 8])?;
                    woke_in.store(now(), Ordering::Release);
                }
                Ok(())
            })?;
        let mut sleeper = Sleeper { bell, woke, stop, thread: Some(thread) };
        let first = sleeper.after(0)?;
        if first == UNFIT {
            let thread = sleeper.thread.take();
            let error = thread.and_then(|thread| thread.join().ok()?.err());
            return Err(
                error.unwrap_or_else(|| io::Error::other("the woken thread could not be made"))
            );
        }
        // Time to reach its first read.
        std::thread::sleep(Duration::from_micros(200));
        Ok(sleeper)
    }

    fn ring(&self) -> io::Result<()> {
        write(&*self.bell, &1u64.to_ne_bytes())?;
        Ok(())
    }

    /// The first time of waking that is after `at`.
    fn after(&self, at: u64) -> io::Result<u64> {
        let start = Instant::now();
        loop {
            let woke = self.woke.load(Ordering::Acquire);
            if woke > at {
                return Ok(woke);
            }
            if start.elapsed() > Duration::from_secs(2) {
                return Err(io::Error::other("the woken thread did not run for two seconds"));
            }
            std::hint::spin_loop();
            // It may need this CPU.
            if start.elapsed() > Duration::from_millis(1) {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(super) fn nobody(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    let fd = eventfd(0, EventfdFlags::CLOEXEC)?;
    settings.calls(20, || {
        write(&fd, &1u64.to_ne_bytes())?;
        Ok(())
    })
}

pub(super) fn call(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    // The sleeper is below us on the same CPU: it is woken, queued, and does not run before we
    // sleep.
    become_policy(Policy::Fifo(2))?;
    let sleeper = Sleeper::start(settings.cpu, 1)?;
    settings.fill(|| {
        let start = now();
        sleeper.ring()?;
        let took = now() - start;
        std::thread::sleep(Duration::from_micros(20));
        sleeper.after(start)?;
        Ok(took as f64)
    })
}

/// From the write to the reader's clock read on the other CPU.
fn across(settings: &ProbeSettings, idle_for: Duration) -> io::Result<Vec<f64>> {
    let sleeper = Sleeper::start(settings.other()?, 2)?;
    settings.fill(|| {
        let rest = Instant::now();
        while rest.elapsed() < idle_for {
            std::hint::spin_loop();
        }
        let start = now();
        sleeper.ring()?;
        Ok((sleeper.after(start)? - start) as f64)
    })
}

pub(super) fn busy(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    let _spinner = Helper::start(settings.other()?, Policy::Idle, Does::Spins)?;
    // Long enough for the sleeper to be back at its read.
    across(settings, Duration::from_micros(20))
}

pub(super) fn idle(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    across(settings, Duration::from_micros(300))
}

/// How late absolute sleeps of 200 us end.
fn sleeps(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    settings.fill(|| {
        let due = now() + 200_000;
        sleep_until(due)?;
        Ok(now().saturating_sub(due) as f64)
    })
}

pub(super) fn timer_fifo(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    become_policy(Policy::Fifo(1))?;
    sleeps(settings)
}

pub(super) fn timer_other(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    sleeps(settings)
}

/// Shorter gaps are the loop itself.
const SHORTEST_GAP_NS: f64 = 200.0;
/// Parts of a tick period by which gaps are told apart.
const PHASES: usize = 64;
/// Ticks that are looked at in a round, at least.
const TICKS: u32 = 12;

/// Gaps in a thread that only reads the cycle counter. The tick is what comes again at one phase of
/// its period: other interrupts, other threads and the hypervisor come at any.
pub(super) fn tick(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    let rate = cycles_rate();
    let _ = become_policy(Policy::Fifo(1));
    let period = 1_000_000_000.0 / f64::from(schedlab_host::machine().hz.max(1));
    let periods = ((settings.budget.as_nanos() as f64 / period) as u32).clamp(TICKS, 100);
    let mut gaps = Vec::with_capacity(10_000);
    let start = cycles();
    let mut last = start;
    while rate.ns(last - start) < period * f64::from(periods) && gaps.len() < gaps.capacity() {
        let at = cycles();
        let gap = rate.ns(at.saturating_sub(last));
        if gap > SHORTEST_GAP_NS {
            gaps.push((rate.ns(last - start), gap));
        }
        last = at;
    }
    let ticks = recurring(&gaps, period, periods);
    if ticks.is_empty() {
        return Err(io::Error::other("no gap came back once a tick period"));
    }
    Ok(ticks)
}

/// The longest gap of each period in the phase in which most periods have one; empty when fewer
/// than half have.
fn recurring(gaps: &[(f64, f64)], period: f64, periods: u32) -> Vec<f64> {
    let mut longest = vec![vec![0f64; periods as usize + 1]; PHASES];
    for (at, gap) in gaps {
        // Half a phase of overlap: a tick on the edge of two counts in the first.
        let of = |shift: f64| (((at + shift) / period).fract() * PHASES as f64) as usize % PHASES;
        for phase in [of(0.0), of(period / PHASES as f64 / 2.0)] {
            let slot = &mut longest[phase][((at / period) as usize).min(periods as usize)];
            *slot = slot.max(*gap);
        }
    }
    let hit = |phase: &Vec<f64>| phase.iter().filter(|gap| **gap > 0.0).count();
    let best = longest.into_iter().max_by_key(hit).unwrap_or_default();
    let ticks: Vec<f64> = best.into_iter().filter(|gap| *gap > 0.0).collect();
    if ticks.len() * 2 < periods as usize { Vec::new() } else { ticks }
}

fn cycles_rate() -> schedlab_host::Rate {
    static RATE: std::sync::OnceLock<schedlab_host::Rate> = std::sync::OnceLock::new();
    *RATE.get_or_init(schedlab_host::Rate::measure)
}

#[cfg(test)]
mod tests {
    use super::recurring;

    #[test]
    fn the_tick_is_what_comes_back() {
        // A tick of 900 ns at 1.5 ms of every 4 ms, and other gaps here and there.
        let mut gaps: Vec<(f64, f64)> =
            (0..10).map(|i| (f64::from(i) * 4e6 + 1.5e6, 900.0)).collect();
        gaps.extend((0..9).map(|i| (f64::from(i * i) * 0.47e6, 40_000.0)));
        let ticks = recurring(&gaps, 4e6, 10);
        assert_eq!(ticks.len(), 10);
        assert!(ticks.iter().filter(|gap| **gap == 900.0).count() >= 8, "{ticks:?}");
        assert!(recurring(&gaps[10..14], 4e6, 10).is_empty());
    }
}
