//! Properties of every run, over random machines, workloads and schedulers.

use crate::common::checker::Checker;
use crate::common::random::case;
use crate::common::scheduler;
use proptest::prelude::*;
use schedlab_model::{Ns, Policy, Workload};
use schedlab_sim::{Machine, Outcome, RunOptions, run};

fn go(name: &str, machine: &Machine, workload: &Workload, every_tick: bool) -> (Outcome, Checker) {
    let options =
        RunOptions { seed: 3, duration: Ns::from_ms(120), every_tick, ..RunOptions::default() };
    let cpus = machine.topology.cpus();
    let mut checker = Checker::new(workload, cpus).with_costs(&machine.costs);
    let scheduler = scheduler(name, cpus);
    match run(machine, workload, scheduler.as_ref(), &options, &mut checker) {
        Ok(outcome) => {
            checker.finish(options.duration);
            (outcome, checker)
        }
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Everything that must hold for one case under one scheduler.
fn check(name: &str, machine: &Machine, workload: &Workload) {
    let (once, seen) = go(name, machine, workload, false);
    for (t, task) in once.metrics.tasks.iter().enumerate() {
        assert_eq!(
            task.cpu_ns, seen.ran[t],
            "{name}: CPU time of task {t} by metrics and by events"
        );
        assert_eq!(
            task.cpu_ns + task.wait_ns + task.throttled_ns + task.sleep_ns,
            task.lifetime_ns
        );
    }
    let (again, _) = go(name, machine, workload, false);
    assert_eq!(once.event_hash, again.event_hash, "{name}: not the same twice");
    let (every, with) = go(name, machine, workload, true);
    let differs = seen.events.iter().zip(&with.events).position(|(a, b)| a != b);
    if let Some(at) = differs {
        panic!(
            "{name}: with every tick event {at} is {:?}, without {:?}",
            with.events[at], seen.events[at]
        );
    }
    assert_eq!(seen.events.len(), with.events.len(), "{name}: every tick");
    assert_eq!(once.event_hash, every.event_hash);
    let sum = |outcome: &Outcome| -> Vec<_> {
        outcome.metrics.cpus.iter().map(|cpu| (cpu.busy_ns, cpu.overhead_ns, cpu.idle_ns)).collect()
    };
    assert_eq!(sum(&once), sum(&every), "{name}: accounts with every tick");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn edf_and_round_robin((machine, workload) in case()) {
        check("edf", &machine, &workload);
        check("rr", &machine, &workload);
    }

    #[test]
    fn linux_2_4((machine, workload) in case()) {
        check("linux-2.4", &machine, &workload);
        check("linux-2.4-mq", &machine, &workload);
    }

    #[test]
    fn linux_o1((machine, workload) in case()) {
        check("linux-2.4-o1", &machine, &workload);
        check("linux-2.6.0", &machine, &workload);
        check("linux-2.6.22", &machine, &workload);
    }

    #[test]
    fn xen((machine, workload) in case()) {
        check("xen-credit", &machine, &workload);
        check("xen-credit:version=4.12", &machine, &workload);
        check("xen-credit2", &machine, &workload);
        check("xen-credit2:version=4.22", &machine, &workload);
    }

    #[test]
    fn xen_small((machine, workload) in case()) {
        for name in ["xen-null", "xen-rtds", "xen-rtds:extratime=off", "xen-arinc653", "xen-arinc653:version=4.22"] {
            check(name, &machine, &workload);
        }
    }

    /// With deadline tasks, any number and anywhere (admission off).
    #[test]
    fn linux_deadline(
        (machine, mut workload) in case(),
        reserved in prop::collection::vec((1u64..9, 0u64..9, 0u64..9), 1..4),
        preset in 0usize..4,
        reclaim in any::<bool>(),
    ) {
        for (task, (runtime, slack, gap)) in workload.tasks.iter_mut().zip(reserved) {
            let ns = |units: u64| Ns(units * 700_000);
            let (deadline, period) = (ns(runtime + slack), ns(runtime + slack + gap));
            task.policy = Policy::Deadline { runtime: ns(runtime), deadline, period };
        }
        let name = ["linux-6.1", "linux-6.12", "linux-6.18", "linux-7.2"][preset];
        let reclaim = if reclaim { "on" } else { "off" };
        check(&format!("{name}:sched_rt_runtime_us=-1,dl_reclaim={reclaim}"), &machine, &workload);
    }

    #[test]
    fn linux_6_1((machine, workload) in case()) {
        check("linux-6.1", &machine, &workload);
    }

    #[test]
    fn linux_of_other_ages((machine, workload) in case(), version in 0usize..7) {
        let name = ["linux-2.6.24", "linux-2.6.32", "linux-3.0", "linux-4.19", "linux-5.10", "linux-6.6", "linux-7.2"][version];
        check(name, &machine, &workload);
    }

    #[test]
    fn linux_6_12((machine, workload) in case()) {
        check("linux-6.12", &machine, &workload);
    }

    #[test]
    fn linux_6_18((machine, workload) in case()) {
        check("linux-6.18", &machine, &workload);
    }
}
