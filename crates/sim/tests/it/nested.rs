//! Nested machines: guests with schedulers of their own on vCPUs that a hypervisor schedules.

use proptest::prelude::*;
use schedlab_model::{
    Amount, ChannelId, ChannelSpec, CpuSet, Draw, GroupId, GroupSpec, Ns, Op, Policy, Program,
    SourceKind, SourceSpec, TaskSpec, Workload,
};
use schedlab_scheduler::{Scheduler, registry};
use schedlab_sim::{Costs, Domain, Machine, NestedOutcome, RunOptions, SimError, run_nested};

/// A workload with one domain for each of these caps; the root group belongs to none.
fn domains(caps: &[u32]) -> Workload {
    let mut workload = Workload::default();
    workload.groups.push(GroupSpec { name: "/".into(), ..GroupSpec::default() });
    for (i, cap_percent) in caps.iter().copied().enumerate() {
        let (name, parent) = (format!("/d{i}"), Some(GroupId::ROOT));
        workload.groups.push(GroupSpec { name, parent, cap_percent, ..GroupSpec::default() });
    }
    workload
}

fn task(workload: &mut Workload, domain: usize, name: &str, program: Program) {
    let mut task = TaskSpec::new(name, program);
    task.group = GroupId::from(domain + 1);
    workload.tasks.push(task);
}

fn build(spec: &str, cpus: usize) -> Box<dyn Scheduler> {
    registry::build(&spec.parse().unwrap(), cpus).unwrap()
}

/// Runs `workload` on `pcpus` under `hypervisor`; domain `d` has `guests[d].0` vCPUs and that
/// scheduler.
fn nested(
    workload: &Workload,
    machine: &Machine,
    hypervisor: &str,
    guests: &[(usize, &str)],
    options: &RunOptions,
) -> Result<NestedOutcome, SimError> {
    let built: Vec<_> = guests.iter().map(|(vcpus, spec)| build(spec, *vcpus)).collect();
    let list: Vec<Domain<'_>> = guests
        .iter()
        .zip(&built)
        .enumerate()
        .map(|(d, ((vcpus, _), scheduler))| Domain {
            name: format!("d{d}"),
            group: GroupId::from(d + 1),
            machine: Machine { costs: Costs::default(), ..Machine::flat(*vcpus) },
            affinity: CpuSet::ALL,
            soft_affinity: CpuSet::ALL,
            scheduler: &**scheduler,
        })
        .collect();
    let scheduler = build(hypervisor, machine.topology.cpus());
    run_nested(machine, workload, &*scheduler, &list, options, &mut ())
}

fn xen(pcpus: usize) -> Machine {
    let two = Ns::from_us(2);
    let costs = Costs {
        other_switch_ns: two,
        wakeup_switch_ns: two,
        block_switch_ns: two,
        idle_switch_ns: two,
        ipi_latency_ns: Ns::from_us(1),
        timer_late_ns: Ns(1),
        ..Costs::default()
    };
    Machine { hz: 100, costs, ..Machine::flat(pcpus) }
}

fn seconds(n: u64) -> RunOptions {
    RunOptions::for_time(Ns::from_s(n))
}

#[test]
fn a_hog_in_a_guest_and_a_bare_one_share_the_cpu_and_the_guest_sees_the_steal() {
    for hypervisor in ["xen-credit", "xen-credit2"] {
        let mut workload = domains(&[0, 0]);
        task(&mut workload, 0, "inside", Program::hog());
        task(&mut workload, 1, "bare", Program::hog());
        let got =
            nested(&workload, &xen(1), hypervisor, &[(1, "linux-6.18")], &seconds(10)).unwrap();
        let metrics = &got.outcome.metrics;
        let share = |t: usize| metrics.share(t.into());
        assert!((share(0) - 0.5).abs() < 0.01, "{hypervisor}: {}", share(0));
        assert!((share(1) - 0.5).abs() < 0.01, "{hypervisor}: {}", share(1));
        // The vCPU is behind the tasks: it ran as long as its only task, and waited for the rest.
        let (vcpu, cpu) = (&metrics.tasks[2], &got.guests[0].cpus[0]);
        assert_eq!(
            (metrics.tasks.len(), vcpu.name.as_str(), got.vcpus.as_slice()),
            (3, "d0:vcpu0", &[0][..])
        );
        let off = vcpu.cpu_ns.0.abs_diff(metrics.tasks[0].cpu_ns.0);
        assert!(off < 100_000_000, "{hypervisor}: vCPU and task differ by {off} ns");
        assert!(
            (cpu.steal_ns.0 as f64 / 1e10 - 0.5).abs() < 0.01,
            "{hypervisor}: steal {}",
            cpu.steal_ns
        );
        assert!(metrics.tasks[0].stolen_ns > Ns::from_ms(4800));
    }
}

#[test]
fn a_guest_shares_its_vcpus_by_its_own_rules() {
    let mut workload = domains(&[0]);
    for nice in [0, 5] {
        task(&mut workload, 0, &format!("nice {nice}"), Program::hog());
        workload.tasks.last_mut().unwrap().nice = schedlab_model::Nice::new(nice).unwrap();
    }
    task(&mut workload, 0, "fifo", Program::closed(Ns::from_ms(1), Ns::from_ms(9)));
    workload.tasks[2].policy = Policy::Fifo(1);
    let got =
        nested(&workload, &xen(2), "xen-credit2", &[(1, "linux-6.18")], &seconds(10)).unwrap();
    let share = |t: usize| got.outcome.metrics.share(t.into());
    // Weights of nice 0 and 5: 1024 and 335.
    assert!((share(0) / share(1) - 1024.0 / 335.0).abs() < 0.05, "{} {}", share(0), share(1));
    assert!((share(2) - 0.1).abs() < 0.002, "{}", share(2));
    assert_eq!(
        got.outcome.metrics.tasks[2].preempt_wait.count(),
        0,
        "the real-time task is not preempted"
    );
}

/// The example of the talk 「Xenのスケジューラがぜんぜんわからん」 (speakerdeck): 4 pCPUs, a VM with 3 vCPUs. Cap 200
/// is at most 2 of 4 pCPUs, 50 % of the machine; without a cap the VM has at most 3 of 4, 75 %.
/// (Credit pays whole credits, rounded up: with slices of 5 ms that is 34 instead of 33 1/3 for
/// each of three vCPUs, so 51 %.)
#[test]
fn the_cap_arithmetic_of_the_talk() {
    for (hypervisor, half) in
        [("xen-credit", 0.5), ("xen-credit:tslice=5ms", 0.51), ("xen-credit2", 0.5)]
    {
        for (cap, part) in [(200, half), (0, 0.75)] {
            for inside in [false, true] {
                let mut workload = domains(&[cap]);
                (0..3).for_each(|i| task(&mut workload, 0, &format!("hog {i}"), Program::hog()));
                let guests: &[(usize, &str)] = if inside { &[(3, "linux-6.18")] } else { &[] };
                let got = nested(&workload, &xen(4), hypervisor, guests, &seconds(20)).unwrap();
                let metrics = &got.outcome.metrics;
                let ran: f64 = (0..3usize).map(|t| metrics.share(t.into())).sum();
                let of_machine = ran / 4.0;
                assert!(
                    (of_machine - part).abs() < 0.004,
                    "{hypervisor}, cap {cap}, nested {inside}: {of_machine} of the machine"
                );
            }
        }
    }
}

/// Ping from a guest through dom0 to another guest and back, on an idle machine: every hop is a
/// wakeup of an idle pCPU (3 us: IPI and switch), none is lost.
fn ping(workload: &mut Workload) {
    for name in ["out", "there", "back", "here", "rtt"] {
        workload.channels.push(ChannelSpec { name: name.into(), ..ChannelSpec::default() });
    }
    let [out, there, back, here, rtt] = [0, 1, 2, 3, 4].map(ChannelId);
    let run = |us| Op::Run(Amount::Fixed(Ns::from_us(us)));
    let send = |channel| Op::Send { channel, count: 1 };
    let forward = |from, to| Program::forever([Op::Receive(from), run(10), send(to)]);
    task(workload, 0, "netback out", forward(out, there));
    task(workload, 0, "netback back", forward(back, here));
    let period = Op::NextPeriod { period: Ns::from_ms(10), offset: Ns::from_ms(1) };
    let client = [
        period,
        send(rtt),
        run(5),
        send(out),
        Op::Receive(here),
        run(5),
        Op::Receive(rtt),
        Op::Done(rtt),
    ];
    task(workload, 1, "ping", Program::forever(client));
    workload.tasks.last_mut().unwrap().policy = Policy::Fifo(50);
    task(workload, 2, "pong", forward(there, back));
}

#[test]
fn a_ping_crosses_dom0_both_ways() {
    let mut workload = domains(&[0, 0, 0]);
    ping(&mut workload);
    let guests = [(2, "linux-6.18"), (1, "linux-6.18"), (1, "linux-6.18")];
    for guests in [&guests[..], &guests[..1], &[]] {
        let got = nested(&workload, &xen(4), "xen-credit2", guests, &seconds(2)).unwrap();
        let rtt = &got.outcome.metrics.channels[4];
        assert_eq!(rtt.done, 200, "{} guests", guests.len());
        // 5 + 10 + 10 + 10 + 5 us of work and four wakeups.
        let mean = rtt.response.mean();
        assert!(
            mean > Ns::from_us(45) && mean < Ns::from_us(60),
            "{} guests: {mean}",
            guests.len()
        );
        let blocked =
            got.outcome.metrics.tasks.iter().all(|task| task.sleep_ns > Ns::from_ms(1900));
        assert!(blocked, "a vCPU was busy: {:?}", got.outcome.metrics.tasks);
    }
}

#[test]
fn a_preempted_vcpu_serves_its_events_when_it_runs_again() {
    let mut workload = domains(&[0, 0]);
    workload.channels.push(ChannelSpec::default());
    task(
        &mut workload,
        0,
        "server",
        Program::forever([Op::Receive(ChannelId(0)), Op::Run(Amount::Fixed(Ns::from_us(50)))]),
    );
    task(&mut workload, 0, "batch", Program::hog());
    workload.tasks[0].policy = Policy::Fifo(1);
    task(&mut workload, 1, "neighbour", Program::hog());
    workload.sources.push(SourceSpec {
        name: "wire".into(),
        into: ChannelId(0),
        kind: SourceKind::Open {
            interarrival: Draw::Exponential { mean: Ns::from_ms(3) },
            start: Ns::ZERO,
        },
        one_way: Draw::Fixed(Ns::ZERO),
    });
    let got = nested(&workload, &xen(1), "xen-credit", &[(1, "linux-6.18")], &seconds(20)).unwrap();
    let server = &got.outcome.metrics.tasks[0];
    // Its VM is never idle, so it is never boosted: half of the events find the vCPU preempted, for
    // up to 30 ms. Those wait as one: the guest hears of them when it runs.
    let latency = &server.wake_latency;
    assert!(latency.quantile(0.4) < Ns::from_us(60), "{}", latency.quantile(0.4));
    assert!(got.outcome.metrics.channels[0].sent > 6000);
    assert!(server.response.count() > 2500, "{}", server.response.count());
    assert!(got.guests[0].cpus[0].steal_ns > Ns::from_s(9));
}

#[test]
fn domains_share_only_channels() {
    let refused = |workload: &Workload| {
        nested(workload, &xen(1), "xen-credit2", &[(1, "rr"), (1, "rr")], &seconds(1))
            .unwrap_err()
            .to_string()
    };
    let mut workload = domains(&[0, 0]);
    workload.locks = 1;
    let program = Program::forever([
        Op::Lock(schedlab_model::LockId(0)),
        Op::Run(Amount::Fixed(Ns(1000))),
        Op::Unlock(schedlab_model::LockId(0)),
    ]);
    task(&mut workload, 0, "one", program.clone());
    task(&mut workload, 1, "two", program);
    assert!(refused(&workload).contains("domains share only channels"), "{}", refused(&workload));
    let mut workload = domains(&[0, 0]);
    workload.channels.push(ChannelSpec { name: "c".into(), ..ChannelSpec::default() });
    let program = Program::forever([Op::Receive(ChannelId(0))]);
    task(&mut workload, 0, "one", program.clone());
    task(&mut workload, 1, "two", program);
    assert!(
        refused(&workload).contains("two domains receive from channel `c`"),
        "{}",
        refused(&workload)
    );
}

/// What a random task does.
fn programs() -> impl Strategy<Value = Program> {
    let us = |low: u64, high: u64| (low..high).prop_map(Ns::from_us);
    prop_oneof![
        Just(Program::hog()),
        (us(10, 5_000), us(10, 9_000)).prop_map(|(work, sleep)| Program::closed(work, sleep)),
        (us(1_000, 20_000), us(10, 4_000)).prop_map(|(period, work)| Program::periodic(
            period,
            work,
            Ns::ZERO
        )),
        us(10, 3_000).prop_map(|work| Program::forever([Op::Run(Amount::Fixed(work)), Op::Yield])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: schedlab_testing::cases(48),
        rng_seed: proptest::test_runner::RngSeed::Fixed(7),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Every assertion of the engines holds on both levels, guests cannot get more than their
    /// vCPUs, and the same seed gives the same bytes.
    #[test]
    fn random_guests_keep_the_invariants(
        pcpus in 1usize..5,
        hypervisor in prop::sample::select(vec!["xen-credit", "xen-credit2", "xen-credit:version=4.12", "linux-6.18"]),
        guests in prop::collection::vec((1usize..4, prop::sample::select(vec![
            "linux-6.18", "linux-6.1", "linux-2.6.22", "linux-2.4", "rr", "xen-credit2",
        ])), 1..4),
        tasks in prop::collection::vec((0usize..5, programs()), 1..10),
        caps in prop::collection::vec(prop::sample::select(vec![0u32, 0, 40, 150]), 5),
        seed in 0u64..1000,
    ) {
        let mut workload = domains(&caps);
        ping(&mut workload);
        for (i, (domain, program)) in tasks.into_iter().enumerate() {
            task(&mut workload, domain, &format!("t{i}"), program);
        }
        workload.tasks.iter_mut().for_each(|task| task.policy = Policy::Other);
        let options = RunOptions { seed, warmup: Ns::from_ms(100), ..RunOptions::for_time(Ns::from_ms(900)) };
        let one = nested(&workload, &xen(pcpus), hypervisor, &guests, &options).unwrap();
        let two = nested(&workload, &xen(pcpus), hypervisor, &guests, &options).unwrap();
        prop_assert_eq!(one.outcome.event_hash, two.outcome.event_hash);
        let vcpus = &one.outcome.metrics.tasks[workload.tasks.len()..];
        let mut at = 0;
        for (d, (count, _)) in guests.iter().enumerate() {
            let had: Ns = vcpus[at..at + count].iter().map(|vcpu| vcpu.cpu_ns).sum();
            at += count;
            let inside = one.outcome.metrics.tasks.iter().zip(&workload.tasks);
            let used: Ns = inside.filter(|(_, spec)| spec.group.index() == d + 1).map(|(task, _)| task.cpu_ns).sum();
            prop_assert!(used <= had, "domain {d} used {used} of {had}");
            for (cpu, vcpu) in one.guests[d].cpus.iter().zip(&vcpus[at - count..]) {
                let waited = vcpu.wait_ns + vcpu.throttled_ns + vcpu.cpu_ns;
                prop_assert!(cpu.steal_ns <= waited, "steal {} of {waited}", cpu.steal_ns);
            }
        }
    }
}

#[test]
fn a_nested_run_can_be_ended() {
    let mut workload = domains(&[0]);
    task(&mut workload, 0, "inside", Program::hog());
    let flag = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let options = RunOptions { stop: Some(schedlab_sim::Stop::when(flag)), ..seconds(10) };
    let ended = nested(&workload, &xen(1), "xen-credit2", &[(1, "linux-6.18")], &options);
    assert_eq!(ended.unwrap_err(), SimError::Stopped);
}
