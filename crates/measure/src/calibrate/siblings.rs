//! What a busy hardware thread takes from the other one of its core.

use super::ProbeSettings;
use super::calls::{Does, Helper};
use schedlab_host::threads::affinity;
use schedlab_model::{CpuId, CpuSet, Policy, Topology};
use std::hint::black_box;
use std::io;

/// Steps of the loop: some microseconds, so that reading the clock is nothing beside it.
const STEPS: u32 = 4_000;

/// The loop that is timed: additions and multiplications, of which some wait for each other and
/// some do not, over numbers that stay in registers. What a pair of other programs takes from each
/// other may be more (caches) or less (waits for memory).
fn work(seed: u64) -> u64 {
    let [mut a, mut b, mut c] = [seed | 1, seed ^ 0x9e37_79b9_7f4a_7c15, seed >> 7];
    for step in 0..u64::from(STEPS) {
        a = a.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(step);
        b = b.wrapping_add(a >> 17) ^ c;
        c = c.rotate_left(5).wrapping_add(b);
    }
    a ^ b ^ c
}

/// Returns another hardware thread of the core of `cpu` among those that may be used.
fn sibling(topology: &Topology, allowed: &CpuSet, cpu: CpuId) -> io::Result<CpuId> {
    let here = cpu.index() < topology.cpus();
    let found = here.then(|| topology.siblings(cpu)).into_iter().flatten();
    found.into_iter().find(|other| allowed.contains(*other)).ok_or_else(|| {
        io::Error::other(format!(
            "needs a second hardware thread of CPU {}'s core on which schedlab may run",
            cpu.0
        ))
    })
}

fn sibling_here(settings: &ProbeSettings) -> io::Result<CpuId> {
    sibling(&schedlab_host::machine().topology, &affinity(0)?, settings.cpu)
}

fn timed(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    settings.calls(1, || {
        black_box(work(black_box(settings.seed)));
        Ok(())
    })
}

/// Nothing of schedlab runs beside it.
pub(super) fn alone(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    sibling_here(settings)?;
    timed(settings)
}

/// The same work runs on the sibling.
pub(super) fn beside(settings: &ProbeSettings) -> io::Result<Vec<f64>> {
    let again = || {
        black_box(work(black_box(7)));
    };
    let _helper = Helper::start(sibling_here(settings)?, Policy::Other, Does::Repeats(again))?;
    timed(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sibling_is_another_thread_of_the_core_that_may_be_used() {
        let topology = Topology::regular(1, 1, 2, 2);
        let all = CpuSet::first(4);
        assert_eq!(sibling(&topology, &all, CpuId(3)).unwrap(), CpuId(2));
        let few = CpuSet::from_iter([CpuId(0), CpuId(2), CpuId(3)]);
        let refused = sibling(&topology, &few, CpuId(0)).unwrap_err().to_string();
        assert!(refused.contains("second hardware thread of CPU 0's core"), "{refused}");
        assert!(sibling(&Topology::flat(4), &all, CpuId(0)).is_err());
        assert!(sibling(&topology, &all, CpuId(9)).is_err());
    }

    #[test]
    fn the_work_depends_on_every_step() {
        assert_ne!(work(1), work(2));
    }
}
