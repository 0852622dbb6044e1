//! What limits (`cpu.max`, RT throttling) do to tasks in the kernel, and to the latency of wakeups.

use crate::common::scheduler;
use schedlab_model::{
    Amount, Bandwidth, CpuId, CpuSet, GroupId, GroupSpec, LockId, Ns, Op, Policy, Program, Section,
    TaskSpec, Workload,
};
use schedlab_sim::{Machine, Outcome, RunOptions, run};

fn fixed(us: u64) -> Amount {
    Amount::Fixed(Ns::from_us(us))
}

fn on(cpu: u32, name: &str, program: Program) -> TaskSpec {
    TaskSpec { affinity: CpuSet::single(CpuId(cpu)), ..TaskSpec::new(name, program) }
}

fn go(version: &str, cpus: usize, workload: &Workload, duration: Ns) -> Outcome {
    let machine = Machine { hz: 1_000, ..Machine::flat(cpus) };
    let runs = [false, true].map(|every_tick| {
        let scheduler = scheduler(version, cpus);
        let options = RunOptions { every_tick, ..RunOptions::for_time(duration) };
        let mut events = Vec::new();
        let outcome = run(&machine, workload, scheduler.as_ref(), &options, &mut events).unwrap();
        (outcome, events)
    });
    let [elided, every] = runs;
    assert!(elided.1 == every.1, "{version}: left-out ticks mattered");
    elided.0
}

/// A reader holds a lock of the kernel for 1.5 ms of CPU time in a group with a fifth of a CPU; a
/// writer without limit wants the lock every 10 ms (LKML 2025-03-13: hung tasks behind a throttled
/// reader of percpu_rwsem; "Defer throttle when task exits to user", 6.18).
fn lock_holder(in_kernel: bool) -> Workload {
    let bandwidth = Bandwidth { quota: Ns::from_ms(20), period: Ns::from_ms(100), burst: Ns::ZERO };
    let limited = GroupSpec {
        name: "/limited".to_owned(),
        parent: Some(GroupId(0)),
        bandwidth: Some(bandwidth),
        ..GroupSpec::default()
    };
    let held = match in_kernel {
        true => Op::Kernel { section: Section::Preemptible, length: fixed(1_500) },
        false => Op::Run(fixed(1_500)),
    };
    let (lock, unlock) = (Op::Lock(LockId(0)), Op::Unlock(LockId(0)));
    let reader = on(0, "reader", Program::forever([Op::Run(fixed(700)), lock, held, unlock]));
    let period = Op::NextPeriod { period: Ns::from_ms(10), offset: Ns::ZERO };
    let writer = on(1, "writer", Program::forever([period, lock, Op::Run(fixed(100)), unlock]));
    Workload {
        groups: vec![GroupSpec { name: "/".to_owned(), ..GroupSpec::default() }, limited],
        tasks: vec![TaskSpec { group: GroupId(1), ..reader }, writer],
        locks: 1,
        ..Workload::default()
    }
}

#[test]
fn a_lock_of_the_kernel_is_given_back_first_since_6_18() {
    for (version, first) in [
        ("linux-5.10", false),
        ("linux-6.1", false),
        ("linux-6.12", false),
        ("linux-6.18", true),
        ("linux-7.2", true),
    ] {
        let outcome = go(version, 2, &lock_holder(true), Ns::from_s(10));
        let worst = outcome.metrics.tasks[1].response.max();
        let right = match first {
            true => worst < Ns::from_ms(3),
            false => (Ns::from_ms(70)..Ns::from_ms(90)).contains(&worst),
        };
        assert!(right, "{version}: the writer waited {worst}");
        // What the reader ran without run time is paid back: its share stays a fifth.
        let share = outcome.metrics.tasks[0].cpu_ns.0 as f64 / 10e9;
        assert!((share - 0.2).abs() < 0.003, "{version}: {share}");
        let throttled = outcome.metrics.tasks[0].throttled_ns;
        assert!(throttled > Ns::from_ms(7_000), "{version}: throttled for {throttled}");
    }
}

/// A lock of user code is held while its owner is throttled, in every version.
#[test]
fn a_lock_of_user_code_is_not_given_back() {
    for version in ["linux-6.12", "linux-6.18", "linux-7.2"] {
        let outcome = go(version, 2, &lock_holder(false), Ns::from_s(10));
        let worst = outcome.metrics.tasks[1].response.max();
        assert!(worst > Ns::from_ms(70), "{version}: {worst}");
    }
}

/// RT throttling takes the whole class off the CPU for 50 ms of each second, the urgent task too
/// (developers.redhat.com, 2025-03-26). cyclictest would show that: it is a part of `latency`.
#[test]
fn rt_throttling_is_a_part_of_a_wakeups_latency() {
    let period = Program::periodic(Ns::from_ms(1), Ns::from_us(50), Ns::ZERO);
    let control = TaskSpec { policy: Policy::Fifo(80), ..on(0, "control", period) };
    let logger = TaskSpec { policy: Policy::Fifo(10), ..on(0, "logger", Program::hog()) };
    let workload = Workload { tasks: vec![control, logger], ..Workload::default() };
    let of = |version: &str| go(version, 1, &workload, Ns::from_s(10)).metrics.tasks.remove(0);
    let old = of("linux-6.1");
    let worst = old.wake_latency.max();
    assert!((Ns::from_ms(45)..Ns::from_ms(52)).contains(&worst), "{worst}");
    assert!(old.queue_latency().max() < Ns::from_us(10), "{}", old.queue_latency().max());
    assert_eq!(old.wake_latency.count(), old.queue_latency().count());
    assert_eq!(old.wake_latency.quantile(0.5), old.queue_latency().quantile(0.5));
    // From 6.12 on no task is throttled: both are one.
    let new = of("linux-6.12");
    assert!(new.wake_latency.max() < Ns::from_us(10), "{}", new.wake_latency.max());
    assert_eq!(new.wake_latency.max(), new.queue_latency().max());
}
