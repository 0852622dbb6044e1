//! The engine's fast path (machines without costs) and its plain one give the same events and the
//! same metrics, on random machines and workloads, under every scheduler of the registry.

use crate::common::random::free_case;
use crate::common::scheduler;
use proptest::prelude::*;
use schedlab_model::{Ns, SchedEvent, Workload};
use schedlab_scheduler::registry;
use schedlab_sim::{Machine, Metrics, Outcome, RunOptions, SimError, run};

type Ran = Result<(Outcome, Vec<SchedEvent>), SimError>;

fn go(name: &str, machine: &Machine, workload: &Workload, options: &RunOptions) -> Ran {
    let mut events = Vec::new();
    let scheduler = scheduler(name, machine.topology.cpus());
    run(machine, workload, scheduler.as_ref(), options, &mut events)
        .map(|outcome| (outcome, events))
}

fn check(name: &str, machine: &Machine, workload: &Workload, every_tick: bool, seed: u64) {
    let (duration, warmup) = (Ns::from_ms(120), Ns::from_ms(seed % 3 * 10));
    let fast = RunOptions { seed, duration, warmup, every_tick, ..RunOptions::default() };
    let plain = RunOptions { plain_path: true, ..fast.clone() };
    let both = (go(name, machine, workload, &fast), go(name, machine, workload, &plain));
    let ((fast, seen), (plain, expected)) = match both {
        (Ok(fast), Ok(plain)) => (fast, plain),
        (fast, plain) => {
            // Both give up, for the same reason.
            let reasons = (fast.map(|_| ()), plain.map(|_| ()));
            assert_eq!(reasons.0, reasons.1, "{name}");
            return;
        }
    };
    if let Some(at) = seen.iter().zip(&expected).position(|(fast, plain)| fast != plain) {
        panic!(
            "{name}: event {at} is {:?} on the fast path, {:?} on the plain one",
            seen[at], expected[at]
        );
    }
    assert_eq!((fast.event_hash, fast.events), (plain.event_hash, plain.events), "{name}");
    assert_eq!((fast.ended, &fast.stuck), (plain.ended, &plain.stuck), "{name}");
    // Which edges are left out is the one thing in which they differ.
    let text = |mut metrics: Metrics| {
        if !every_tick {
            metrics.cpus.iter_mut().for_each(|cpu| cpu.ticks_delivered = 0);
        }
        format!("{metrics:?}")
    };
    let (fast, plain) = (text(fast.metrics), text(plain.metrics));
    for (fast, plain) in fast.split("},").zip(plain.split("},")) {
        assert_eq!(fast, plain, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(schedlab_testing::cases(512)) })]

    #[test]
    fn the_fast_path_is_the_plain_one(
        (machine, workload) in free_case(),
        which in 0..registry::all().len(),
        every_tick in any::<bool>(),
        seed in 1u64..1000,
    ) {
        check(registry::all()[which].name, &machine, &workload, every_tick, seed);
    }
}
