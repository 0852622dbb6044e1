//! The steady state takes no memory: a run five times as long makes no more than a handful of
//! allocations more, and those are histograms that meet a value of an octave they had not seen.

mod common;

use common::{W1, periodic_set, run_sleep, simulate, w2};
use schedlab_model::{Ns, Workload};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Allocations (also those that grow a block) and events of a run.
fn allocations(spec: &str, cpus: usize, workload: &Workload, duration: Ns) -> (usize, u64) {
    let region = Region::new(ALLOCATOR);
    let outcome = simulate(spec, cpus, workload, duration);
    let change = region.change();
    (change.allocations + change.reallocations, outcome.events)
}

/// One test, because the counter sees every thread of the process.
#[test]
fn a_longer_run_takes_no_more_memory() {
    let (cpus, w1) = periodic_set(W1);
    let rows = [
        ("edf", cpus, w1),
        ("rr", 8, w2(8, 64)),
        ("linux-6.18", 8, run_sleep(64)),
        ("linux-2.6.22", 8, run_sleep(64)),
    ];
    for (spec, cpus, workload) in rows {
        let (short, few) = allocations(spec, cpus, &workload, Ns::from_s(5));
        let (long, many) = allocations(spec, cpus, &workload, Ns::from_s(25));
        let (more, events) = (long.saturating_sub(short), many - few);
        assert!(events > 10_000, "{spec}: {events} events more");
        assert!(
            (more as u64) < events / 400,
            "{spec}: {more} allocations more for {events} events more"
        );
    }
}
