//! The CPU's cycle counter: what is as short as a scheduler's decision cannot be timed with a
//! system clock.

use rustix::time::{ClockId, clock_gettime};

/// The counter, after everything before it in the program has been done. On other machines than
/// x86-64: nanoseconds of CLOCK_MONOTONIC.
#[inline]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: both instructions exist on every x86-64 CPU and touch no memory.
    unsafe {
        std::arch::x86_64::_mm_lfence();
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    monotonic()
}

fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// How the counter counts here.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    /// Counts of the counter in a microsecond.
    pub per_us: f64,
    /// What two reads one after the other are apart, in counts: subtract it from what lies between
    /// them.
    pub overhead: u64,
}

impl Rate {
    /// Measures it against CLOCK_MONOTONIC; takes 20 ms.
    pub fn measure() -> Rate {
        let (clock, counter) = (monotonic(), now());
        while monotonic() - clock < 20_000_000 {
            std::hint::spin_loop();
        }
        let (clock, counter) = (monotonic() - clock, now().saturating_sub(counter));
        let mut apart: Vec<u64> = (0..1001)
            .map(|_| {
                let before = now();
                now().saturating_sub(before)
            })
            .collect();
        apart.sort_unstable();
        Rate { per_us: counter as f64 * 1e3 / clock as f64, overhead: apart[apart.len() / 2] }
    }

    /// Nanoseconds of a difference of two reads.
    pub fn ns(&self, counts: u64) -> f64 {
        counts.saturating_sub(self.overhead) as f64 * 1e3 / self.per_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_goes_on() {
        let rate = Rate::measure();
        assert!(rate.per_us > 1.0 && rate.per_us < 1e5, "{rate:?}");
        assert!((rate.ns(rate.overhead + (rate.per_us * 1000.0) as u64) - 1e6).abs() < 1e3);
        let before = now();
        assert!(now() >= before);
    }
}
