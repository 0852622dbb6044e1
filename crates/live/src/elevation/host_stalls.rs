//! How long this machine keeps a real-time thread from its CPU although nothing on it goes first: the host of a virtual machine that
//! runs others, or interrupts. Heartbeats come later by so much, and no agent is to blame.

use super::block_detector::become_fifo;
use super::{GUARDIAN, HEARTBEAT, SILENCE};
use schedlab_model::{CpuId, CpuSet, Ns};
use std::time::{Duration, Instant};

/// How long is measured. It delays the beginning of a run by so much.
const MEASURED: Duration = Duration::from_millis(150);
/// Between two looks.
const STEP: Duration = Duration::from_millis(1);
/// A silence may last so many times longer than the longest stall that was met: longer ones come, if rarely.
const TIMES: u32 = 4;
/// But no longer than this: until then a hanging agent keeps its CPU.
const LONGEST: Duration = Duration::from_secs(3);

/// Returns the longest time for which one of `cpus` kept a thread of the guardian's priority waiting.
pub(super) fn longest(cpus: &CpuSet) -> Ns {
    let measure = |cpu: CpuId| {
        std::thread::spawn(move || {
            // Without the right to that priority nothing can be managed, which is said elsewhere.
            if become_fifo("a measurement", GUARDIAN, &CpuSet::single(cpu)).is_err() {
                return Duration::ZERO;
            }
            let (begin, mut longest) = (Instant::now(), Duration::ZERO);
            while begin.elapsed() < MEASURED {
                let asked = Instant::now();
                std::thread::sleep(STEP);
                longest = longest.max(asked.elapsed().saturating_sub(STEP));
            }
            longest
        })
    };
    let all: Vec<_> = cpus.iter().map(measure).collect();
    let longest = all.into_iter().filter_map(|one| one.join().ok()).max().unwrap_or_default();
    Ns(u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX))
}

/// Returns for how long agents may be silent on a machine whose longest stall was `stall`.
pub(super) fn silence(stall: Ns) -> Duration {
    (Duration::from_nanos(stall.0) * TIMES + HEARTBEAT).clamp(SILENCE, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_follows_the_host_within_limits() {
        assert_eq!(silence(Ns::ZERO), SILENCE);
        assert_eq!(silence(Ns::from_ms(10)), SILENCE);
        assert_eq!(silence(Ns::from_ms(120)), Duration::from_millis(490));
        assert_eq!(silence(Ns::from_s(60)), LONGEST);
    }
}
