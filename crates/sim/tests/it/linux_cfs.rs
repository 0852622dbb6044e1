//! `linux-6.1` in the simulator: tables and golden values of docs/sources/linux-facts.md.

use crate::common::scheduler;
use schedlab_model::{
    Amount, CpuId, CpuSet, EventKind, Nice, Ns, Op, Policy, Program, SchedEvent, Start, TaskSpec,
    Workload,
};
use schedlab_sim::{Costs, Machine, Metrics, RunOptions, TickSkew, run};

/// A task that slept long before the run.
fn task(name: &str, nice: i8, policy: Policy, program: Program) -> TaskSpec {
    let mut task = TaskSpec::new(name, program);
    (task.nice, task.policy) = (Nice::new(nice).expect("in range"), policy);
    task.start = Start::AsleepUntil(Ns::ZERO);
    task
}

fn hogs(nices: &[i8]) -> Workload {
    let tasks = nices.iter().map(|&nice| task("hog", nice, Policy::Other, Program::hog()));
    Workload { tasks: tasks.collect(), ..Workload::default() }
}

/// Runs of tasks on CPU 0 as (task, length), neighbours merged, from `from` on and without the
/// last.
fn runs(events: &[SchedEvent], from: Ns) -> Vec<(u32, u64)> {
    let mut runs: Vec<(u32, u64)> = Vec::new();
    let mut since = Ns::ZERO;
    for event in events {
        if let EventKind::Switch { prev, next, .. } = event.kind
            && event.cpu == CpuId(0)
        {
            if let Some(prev) = prev.filter(|_| since >= from) {
                runs.push((prev.0, (event.at - since).0));
            }
            if next.is_some() {
                since = event.at;
            }
        }
    }
    runs
}

fn simulate(
    spec: &str,
    machine: &Machine,
    workload: &Workload,
    options: &RunOptions,
) -> (Metrics, Vec<SchedEvent>, u64) {
    let cpus = machine.topology.cpus();
    let mut events = Vec::new();
    let outcome =
        run(machine, workload, &*scheduler(spec, cpus), options, &mut events).expect("a clean run");
    (outcome.metrics, events, outcome.event_hash)
}

/// docs/sources/linux-facts.md, 1, rows of CFS 3.0 to 6.5: every HZ and every number of CPUs.
#[test]
fn two_hogs_alternate_as_in_the_table() {
    for (cpus, ticks) in [
        (1, [1, 1, 1, 4]),
        (2, [1, 2, 2, 7]),
        (4, [1, 3, 3, 10]),
        (8, [2, 4, 4, 13]),
        (32, [2, 4, 4, 13]),
    ] {
        for (hz, ticks) in [100, 250, 300, 1000].into_iter().zip(ticks) {
            for costs in [Costs::default(), Costs::oracle_6_1()] {
                let machine = Machine { hz, costs, ..Machine::flat(cpus) };
                let mut workload = hogs(&[0, 0]);
                workload.tasks.iter_mut().for_each(|task| task.affinity = CpuSet::single(CpuId(0)));
                let options = RunOptions::for_time(Ns::from_s(4));
                let (metrics, events, _) = simulate("linux-6.1", &machine, &workload, &options);
                // What comes before a whole tick is the cost of the switch.
                let expected = machine.tick_ns().0 * ticks;
                let runs = runs(&events, Ns::from_ms(100));
                let exact = runs.iter().filter(|run| run.1.abs_diff(expected) <= 4_500).count();
                assert!(runs.len() > 80, "{cpus} CPUs, HZ={hz}");
                assert_eq!(exact, runs.len(), "{cpus} CPUs, HZ={hz}: {:?}", &runs[..20]);
                assert!((metrics.share(0.into()) - 0.5).abs() < 0.005);
            }
        }
    }
}

/// G1 to G9: shares, run lengths and waits of hogs on one CPU with HZ=250.
#[test]
fn golden_values_of_hogs() {
    let big = "linux-6.1:latency_ns=24ms,min_granularity_ns=3ms,wakeup_granularity_ns=4ms";
    let mut idle = hogs(&[0, 0]);
    idle.tasks[1].policy = Policy::Idle;
    let mut batch = hogs(&[0, 0]);
    batch.tasks[1].policy = Policy::Batch;
    // Id, knobs, workload, share of task 0, run lengths of tasks 0 and 1 in ms, wait of task 0
    // after a run.
    type Row<'a> = (&'a str, &'a str, Workload, f64, [&'a [u64]; 2], Option<u64>);
    let rows: [Row<'_>; 9] = [
        ("G1", "linux-6.1", hogs(&[0, 0]), 0.5, [&[4], &[4]], Some(4)),
        ("G2", "linux-6.1", hogs(&[0; 3]), 1.0 / 3.0, [&[4], &[4]], Some(8)),
        ("G3 with 2", big, hogs(&[0; 2]), 0.5, [&[16], &[16]], Some(16)),
        ("G3 with 3", big, hogs(&[0; 3]), 1.0 / 3.0, [&[12], &[12]], Some(24)),
        ("G3 with 10", big, hogs(&[0; 10]), 0.1, [&[4], &[4]], Some(36)),
        ("G4", "linux-6.1", hogs(&[0, 5]), 0.7535, [&[12, 16], &[4]], Some(4)),
        ("G6", "linux-6.1", hogs(&[0, 19]), 0.9855, [&[272, 276], &[4]], Some(4)),
        ("G8", "linux-6.1", idle, 0.9971, [&[1356, 1360, 1364, 1368, 1372], &[4]], Some(4)),
        ("G9", "linux-6.1", batch, 0.5, [&[4], &[4]], Some(4)),
    ];
    for (id, spec, workload, share, lengths, wait) in rows {
        let machine = Machine { costs: Costs::oracle_6_1(), ..Machine::flat(1) };
        let options = RunOptions { warmup: Ns::from_s(1), ..RunOptions::for_time(Ns::from_s(41)) };
        let (metrics, events, _) = simulate(spec, &machine, &workload, &options);
        assert!(
            (metrics.share(0.into()) - share).abs() < 0.005,
            "{id}: {}",
            metrics.share(0.into())
        );
        let runs = runs(&events, Ns::from_s(1));
        for (index, lengths) in lengths.iter().enumerate() {
            let own: Vec<u64> =
                runs.iter().filter(|run| run.0 as usize == index).map(|run| run.1).collect();
            let near = |run: &&u64| lengths.iter().any(|ms| run.abs_diff(ms * 1_000_000) < 5_000);
            let exact = own.iter().filter(near).count();
            assert!(
                exact * 10 >= own.len() * 9,
                "{id}, task {index}: {:?}",
                &own[..own.len().min(30)]
            );
        }
        if let Some(wait) = wait {
            let p50 = metrics.tasks[0].preempt_wait.quantile(0.5).0;
            assert!(p50.abs_diff(wait * 1_000_000) < 200_000, "{id}: waits {p50}");
        }
    }
}

/// G21 and G23: a sleeper beside one hog preempts at once; beside three it often has to wait.
#[test]
fn golden_values_of_a_sleeper() {
    let run = |hog_count: usize, work: u64, seed: u64| {
        let mut workload = hogs(&vec![0; hog_count]);
        let sleeper = Program::closed(Ns::from_ms(work), Ns::from_ms(10));
        workload.tasks.push(task("sleeper", 0, Policy::Other, sleeper));
        // Another start phase for each seed.
        let ticks = TickSkew::At(vec![Ns(400_000 * seed)]);
        let machine = Machine { costs: Costs::oracle_6_1(), ticks, ..Machine::flat(1) };
        let options =
            RunOptions { seed, warmup: Ns::from_ms(100), ..RunOptions::for_time(Ns::from_s(10)) };
        simulate("linux-6.1", &machine, &workload, &options).0
    };
    let metrics = run(1, 1, 1);
    assert!(metrics.tasks[1].wake_latency.max() < Ns::from_us(100));

    let (mut means, mut shares) = (Vec::new(), Vec::new());
    for seed in 1..=9 {
        let metrics = run(3, 5, seed);
        means.push(metrics.tasks[3].wake_latency.mean().0);
        shares.push((metrics.share(3.into()) * 1e4) as u64);
    }
    means.sort_unstable();
    shares.sort_unstable();
    assert!((500_000..1_300_000).contains(&means[4]), "{means:?}");
    assert!((2_050..2_250).contains(&shares[4]), "{shares:?}");
}

/// G14 and G15: RR slices, and throttling on a grid of 1 s with its overrun carried over.
#[test]
fn golden_values_of_real_time() {
    let machine = Machine { costs: Costs::oracle_6_1(), ..Machine::flat(1) };
    let options = RunOptions::for_time(Ns::from_s(10));
    let mut workload = hogs(&[0, 0]);
    workload.tasks[0].policy = Policy::Fifo(50);
    let (metrics, events, _) = simulate("linux-6.1", &machine, &workload, &options);
    let rt: Vec<u64> =
        runs(&events, Ns::ZERO).iter().filter(|run| run.0 == 0).map(|run| run.1).collect();
    assert!(
        rt.iter().all(|run| [948, 952].iter().any(|ms| run.abs_diff(ms * 1_000_000) < 10_000)),
        "{rt:?}"
    );
    assert!((metrics.share(0.into()) - 0.95).abs() < 0.0005);

    let mut workload = hogs(&[0, 0, 0]);
    workload.tasks.iter_mut().for_each(|task| task.policy = Policy::Rr(10));
    let (_, events, _) =
        simulate("linux-6.1:sched_rt_runtime_us=-1", &machine, &workload, &options);
    let rr = runs(&events, Ns::from_ms(50));
    assert!(rr.iter().all(|run| run.1.abs_diff(100_000_000) < 10_000), "{rr:?}");
}

/// The same events whether every tick is delivered or only those that matter, with costs and
/// several CPUs.
#[test]
fn elided_ticks_change_no_event() {
    let mut workload = crate::common::w2(4, 24);
    for (index, task) in workload.tasks.iter_mut().enumerate() {
        task.affinity = CpuSet::ALL;
        task.nice = Nice::new((index % 9) as i8 - 4).expect("in range");
        task.policy = match index {
            3 | 11 => Policy::Idle,
            5 => Policy::Batch,
            7 => Policy::Rr(5),
            8 => Policy::Fifo(3),
            _ => Policy::Other,
        };
    }
    workload.tasks.extend(hogs(&[0, 3, -3]).tasks);
    for spec in ["linux-6.1", "linux-6.1:features.RT_RUNTIME_SHARE=on,features.HRTICK=on"] {
        let machine = Machine { ticks: TickSkew::Staggered, ..Machine::flat(4) };
        let hash = |every_tick| {
            let options = RunOptions { every_tick, ..RunOptions::for_time(Ns::from_s(5)) };
            simulate(spec, &machine, &workload, &options).2
        };
        assert_eq!(hash(false), hash(true), "{spec}");
    }
}

/// A yielding task is passed over if the next one is at most the wakeup granularity (1 ms) to the
/// right. So a task that yields all the time stops 1 ms before it has caught up with the other, not
/// at the tick after it.
#[test]
fn a_yielding_task_lets_the_next_one_run() {
    let spin = Program::forever([Op::Run(Amount::Fixed(Ns::from_us(100))), Op::Yield]);
    let mut workload = hogs(&[0]);
    workload.tasks.push(task("yields", 0, Policy::Other, spin));
    let options = RunOptions::for_time(Ns::from_s(4));
    let (metrics, events, _) = simulate("linux-6.1", &Machine::flat(1), &workload, &options);
    let runs = runs(&events, Ns::from_ms(20));
    let own: Vec<u64> = runs.iter().filter(|run| run.0 == 1).map(|run| run.1).collect();
    assert!(own.iter().all(|run| [3_000_000, 5_000_000].contains(run)), "{:?}", &own[..20]);
    assert!((metrics.share(1.into()) - 0.5).abs() < 0.005, "{}", metrics.share(1.into()));
}
