//! The engine's fast path (machines without costs) and its plain one give the same events and the
//! same metrics, on random machines and workloads, under every scheduler of the registry.

use crate::common::random::free_case;
use crate::common::scheduler;
use proptest::prelude::*;
use schedlab_model::{Ns, SchedEvent, Workload};
use schedlab_scheduler::registry;
use schedlab_sim::{Machine, Metrics, Outcome, RunOptions, SimError, TaskMetrics, run};

type Ran = Result<(Outcome, Vec<SchedEvent>), SimError>;

fn go(name: &str, machine: &Machine, workload: &Workload, options: &RunOptions) -> Ran {
    let mut events = Vec::new();
    let scheduler = scheduler(name, machine.topology.cpus());
    run(machine, workload, scheduler.as_ref(), options, &mut events)
        .map(|outcome| (outcome, events))
}

fn check(name: &str, machine: &Machine, workload: &Workload, every_tick: bool, seed: u64) {
    let (duration, warmup) = (Ns::from_ms(120), Ns::from_ms(seed % 3 * 10));
    let options = RunOptions { seed, duration, warmup, every_tick, ..RunOptions::default() };
    let plain = RunOptions { plain_path: true, ..options.clone() };
    let both = (go(name, machine, workload, &options), go(name, machine, workload, &plain));
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
    let sums = RunOptions { sums_only: true, ..options.clone() };
    only_sums(name, &fast.metrics, go(name, machine, workload, &sums), fast.event_hash);
    let (fast, plain) = (text(fast.metrics), text(plain.metrics));
    for (fast, plain) in fast.split("},").zip(plain.split("},")) {
        assert_eq!(fast, plain, "{name}");
    }
}

/// A run for a caller that measures the events gives the same ones, and the same sums.
fn only_sums(name: &str, usual: &Metrics, ran: Ran, event_hash: u64) {
    let sums = ran.expect("the same run did not fail").0;
    assert_eq!(sums.event_hash, event_hash, "{name}");
    assert_eq!(format!("{:?}", sums.metrics.cpus), format!("{:?}", usual.cpus), "{name}");
    for (sums, usual) in sums.metrics.tasks.iter().zip(&usual.tasks) {
        let of = |task: &TaskMetrics| {
            let times = [task.cpu_ns, task.work_ns, task.wait_ns, task.throttled_ns, task.sleep_ns];
            (times, [task.wakeups, task.preemptions, task.yields, task.migrations])
        };
        assert_eq!(of(sums), of(usual), "{name}");
        for values in [&sums.wake_latency, &sums.preempt_wait, &sums.response, &sums.run_length] {
            assert_eq!(values.count(), 0, "{name}");
        }
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
