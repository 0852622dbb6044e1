//! Linux on several CPUs: placement, load balancing, groups and bandwidth, under the engine.

use proptest::prelude::*;
use schedlab_model::{
    Amount, ChannelId, ChannelSpec, CpuId, CpuSet, Draw, EventKind, Nice, Ns, Op, Policy,
    PrevState, Program, SchedEvent, Start, TaskId, TaskSpec, Topology, Workload,
};
use schedlab_scheduler::registry;
use schedlab_sim::{Costs, Machine, Outcome, RunOptions, run};
use std::collections::BTreeSet;

const VERSIONS: [&str; 3] = ["linux-6.1", "linux-6.12", "linux-6.18"];

fn simulate(
    spec: &str,
    topology: Topology,
    tasks: Vec<TaskSpec>,
    seconds: u64,
) -> (Outcome, Vec<SchedEvent>) {
    let workload = Workload { tasks, ..Workload::default() };
    simulate_workload(spec, topology, &workload, Ns::from_s(seconds))
}

fn simulate_workload(
    spec: &str,
    topology: Topology,
    workload: &Workload,
    duration: Ns,
) -> (Outcome, Vec<SchedEvent>) {
    let machine = Machine { topology, ..Machine::flat(1) };
    let scheduler = registry::build(&spec.parse().unwrap(), machine.topology.cpus()).unwrap();
    let mut events = Vec::new();
    let outcome =
        run(&machine, workload, &*scheduler, &RunOptions::for_time(duration), &mut events).unwrap();
    (outcome, events)
}

fn hogs(count: usize) -> Vec<TaskSpec> {
    (0..count).map(|i| TaskSpec::new(format!("hog{i}"), Program::hog())).collect()
}

fn share(outcome: &Outcome, task: u32) -> f64 {
    outcome.metrics.share(TaskId(task))
}

/// Wakes at random and runs for 50 µs, as every real machine's housekeeping does. Without any noise
/// three hogs fall into step with the balance interval, and one of them keeps 3/4 of a CPU for
/// ever.
fn noise() -> TaskSpec {
    let mut program = Program::forever([]);
    let sleep = program.draw(Draw::Exponential { mean: Ns::from_ms(7) });
    program.ops = vec![Op::Run(Amount::Fixed(Ns::from_us(50))), Op::Sleep(sleep)];
    TaskSpec::new("noise", program)
}

#[test]
fn three_hogs_on_two_cpus_get_two_thirds_each() {
    for version in VERSIONS {
        let mut tasks = hogs(3);
        tasks.extend([noise(), noise()]);
        let (outcome, _) = simulate(version, Topology::flat(2), tasks, 30);
        let shares = [0, 1, 2].map(|task| share(&outcome, task));
        assert!(shares.iter().all(|s| (s - 2.0 / 3.0).abs() < 0.04), "{version}: {shares:.3?}");
    }
}

#[test]
fn sixteen_hogs_on_eight_cpus_get_half_each() {
    for version in VERSIONS {
        let (outcome, _) = simulate(version, Topology::flat(8), hogs(16), 10);
        let shares: Vec<f64> = (0..16).map(|task| share(&outcome, task)).collect();
        let all: Vec<TaskId> = (0..16).map(TaskId).collect();
        assert!(outcome.metrics.jain(&all) > 0.999, "{version}: {shares:?}");
        assert!(shares.iter().all(|s| (s - 0.5).abs() < 0.03), "{version}: {shares:?}");
    }
}

/// Two hogs pinned to CPU 0 with a third one: CPU 1 takes it at once, and nothing ever waits beside
/// an idle CPU.
#[test]
fn an_idle_cpu_takes_waiting_work() {
    for version in VERSIONS {
        let mut tasks = hogs(3);
        (tasks[0].affinity, tasks[1].affinity) =
            (CpuSet::single(CpuId(0)), CpuSet::single(CpuId(0)));
        // A task that keeps CPU 1 busy at first, so that the third hog must move later.
        let mut first =
            TaskSpec::new("first", Program::once([Op::Run(Amount::Fixed(Ns::from_ms(50)))]));
        first.affinity = CpuSet::single(CpuId(1));
        tasks.insert(0, first);
        let (outcome, _) = simulate(version, Topology::flat(2), tasks, 4);
        let shares = [1, 2, 3].map(|task| share(&outcome, task));
        assert!(
            (shares[0] - 0.5).abs() < 0.02 && (shares[1] - 0.5).abs() < 0.02,
            "{version} {shares:.3?}"
        );
        assert!(shares[2] > 0.97, "{version} {shares:.3?}");
        assert_eq!(outcome.metrics.work_conservation.violated_ns, Ns::ZERO, "{version}");
    }
}

/// A FIFO hog and a fair hog on one CPU of two: the fair one is pushed to the idle CPU although it
/// never waits for another fair task.
#[test]
fn a_hog_leaves_the_cpu_of_a_fifo_hog() {
    for version in VERSIONS {
        let mut tasks = hogs(2);
        tasks[1].policy = Policy::Fifo(10);
        tasks[1].affinity = CpuSet::single(CpuId(0));
        let (outcome, _) = simulate(version, Topology::flat(2), tasks, 4);
        assert!(share(&outcome, 0) > 0.98, "{version} {:.3}", share(&outcome, 0));
    }
}

fn mask(bits: u8, cpus: usize) -> CpuSet {
    let set: CpuSet = (0..cpus).filter(|cpu| bits >> (cpu % 8) & 1 != 0).map(CpuId::from).collect();
    if set.is_empty() { CpuSet::single(CpuId::from(usize::from(bits) % cpus)) } else { set }
}

/// A random task: work and sleep in microseconds, affinity bits, nice, policy number.
fn random_task() -> impl Strategy<Value = (u64, u64, u8, i8, u8)> {
    (50u64..20_000, 0u64..20_000, any::<u8>(), -10i8..10, 0u8..10)
}

fn task_of((work, sleep, bits, nice, policy): (u64, u64, u8, i8, u8), cpus: usize) -> TaskSpec {
    let program = if sleep < 2_000 {
        Program::hog()
    } else {
        Program::closed(Ns::from_us(work), Ns::from_us(sleep))
    };
    let mut task = TaskSpec::new("random", program);
    task.affinity = if bits >= 128 { CpuSet::ALL } else { mask(bits, cpus) };
    task.nice = Nice::new(nice).unwrap();
    task.policy = match policy {
        0 => Policy::Idle,
        1 => Policy::Batch,
        _ => Policy::Other,
    };
    task
}

/// The weight of a task: 1.25 per nice step, 3 for SCHED_IDLE (the kernel's table is within 1.5 %
/// of this).
fn weight(task: &TaskSpec) -> f64 {
    if task.policy == Policy::Idle {
        3.0
    } else {
        1024.0 * 1.25f64.powi(-i32::from(task.nice.get()))
    }
}

/// The longest time, ns, that a fair task may wait for its first run, whatever the others do.
///
/// A task starts with a debt of at most one period (24 ms at 8 CPUs) of its own run time: the
/// period over its weight, in virtual time. Until that is paid every other task of its CPU may run
/// up to the same virtual time, and each takes its own weight times it. All tasks together, on one
/// CPU, give the bound; twice that is for wakeup granularity, sleepers' credit and moves between
/// CPUs, a second for the ticks.
fn longest_wait(task: &TaskSpec, all: &[TaskSpec]) -> u64 {
    let sum: f64 = all.iter().map(weight).sum();
    (2.0 * 24e6 * sum / weight(task)) as u64 + 1_000_000_000
}

/// The first task that never runs, though it had all the time that it may have to wait. `outcome`
/// is of the first 2 s; where a task did not run yet, the same is run for longer.
fn lost(
    version: &str,
    topology: &Topology,
    workload: &Workload,
    outcome: &Outcome,
) -> Option<usize> {
    let (mut seconds, mut longer) = (2, None::<Outcome>);
    loop {
        let metrics = &longer.as_ref().unwrap_or(outcome).metrics.tasks;
        let mut waiting = (0..metrics.len()).filter(|&i| metrics[i].cpu_ns == Ns::ZERO).peekable();
        waiting.peek()?;
        let late = |&i: &usize| {
            longest_wait(&workload.tasks[i], &workload.tasks) < seconds * 1_000_000_000
        };
        if let Some(lost) = waiting.find(late) {
            return Some(lost);
        }
        seconds *= 2;
        let machine = Machine { topology: topology.clone(), ..Machine::flat(1) };
        let scheduler =
            registry::build(&version.parse().unwrap(), machine.topology.cpus()).unwrap();
        let options = RunOptions::for_time(Ns::from_s(seconds));
        longer = Some(run(&machine, workload, &*scheduler, &options, &mut ()).unwrap());
    }
}

/// When `task` ran first.
fn first_run(events: &[SchedEvent], task: u32) -> Option<Ns> {
    let picks = |e: &&SchedEvent| matches!(e.kind, EventKind::Switch { next, .. } if next == Some(TaskId(task)));
    events.iter().find(picks).map(|event| event.at)
}

/// CFS: a new task owes one slice, and a task that is alone on its queue has the whole period as
/// its slice. A nice 8 hog that comes to an empty CPU just before two nice −10 hogs owes 6 ms of
/// its run time, 35.7 ms of virtual time. The others run until both are there: 35.7 · (2 · 9548) /
/// 1024 = 666 ms, less what they owe themselves (6 ms and 3 ms by their part, some 9 ms together).
/// EEVDF has no such debt.
#[test]
fn a_light_task_pays_a_whole_period_before_it_runs() {
    for (version, from, to) in
        [("linux-6.1", 640, 680), ("linux-6.12", 0, 60), ("linux-6.18", 0, 60)]
    {
        let mut tasks = hogs(3);
        tasks[0].nice = Nice::new(8).unwrap();
        tasks[1..].iter_mut().for_each(|task| task.nice = Nice::new(-10).unwrap());
        let (_, events) = simulate(version, Topology::flat(1), tasks, 2);
        let first = first_run(&events, 0).expect("the light hog runs within 2 s");
        assert!((Ns::from_ms(from)..Ns::from_ms(to)).contains(&first), "{version}: {first}");
    }
}

/// A case that the property below found, when it allowed 2 s to every task: task 1 (BATCH, nice 8,
/// only on CPU 1) is the first of its CPU, owes 12 ms of run time (71.4 ms virtual) under CFS, and
/// the tasks of that CPU (27 times the weight of nice 0) needed 2.03 s to get there. Nothing is
/// lost: before it runs none of them has more virtual run time than that.
#[test]
fn a_light_hog_waits_its_turn_and_is_not_lost() {
    const WEIGHTS: [u64; 14] =
        [3906, 172, 4904, 9548, 6100, 2501, 1024, 1586, 1991, 4904, 1024, 7620, 4904, 3906];
    let tasks = [
        (9273, 0, 35, -6, 1),
        (50, 0, 86, 8, 1),
        (7505, 0, 11, -7, 1),
        (7363, 4387, 107, -10, 1),
        (18140, 9567, 127, -8, 9),
        (2349, 9515, 47, -4, 7),
        (17995, 17696, 180, 0, 7),
        (17983, 8756, 145, -2, 6),
        (4022, 1795, 182, -3, 5),
        (8457, 4340, 89, -7, 5),
        (1356, 16599, 247, 0, 5),
        (14699, 16217, 183, -9, 8),
        (18002, 15673, 231, -7, 9),
        (9539, 15294, 189, -6, 3),
    ];
    let tasks: Vec<TaskSpec> = tasks.into_iter().map(|task| task_of(task, 2)).collect();
    let (_, events) = simulate("linux-6.1", Topology::flat(2), tasks, 3);
    let first = first_run(&events, 1).expect("the light hog runs within 3 s");
    // The virtual run time, ns, that each task had on CPU 1 before that.
    let (mut virt, mut since) = ([0; 14], None::<(usize, u64)>);
    for event in events.iter().filter(|e| e.cpu == CpuId(1) && e.at <= first) {
        if let EventKind::Switch { next, .. } = event.kind {
            if let Some((task, from)) = since {
                virt[task] += (event.at.0 - from) * 1024 / WEIGHTS[task];
            }
            since = next.map(|task| (task.index(), event.at.0));
        }
    }
    assert!(virt.iter().all(|&v| v < 73_000_000), "{first}: {virt:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(schedlab_testing::cases(60)))]

    /// Random tasks on random machines: affinity holds on every event (the engine asserts it too),
    /// every task runs within the time that its weight allows, every tick mode gives the same
    /// schedule, and a CPU idles beside a waiting task it could take only for as long as balance
    /// intervals allow.
    #[test]
    fn affinity_is_kept_and_nothing_is_lost(
        tasks in proptest::collection::vec(random_task(), 1..24),
        shape in 0usize..4,
        version in 0usize..3,
    ) {
        let topology = [
            Topology::flat(2), Topology::flat(5), Topology::regular(1, 2, 2, 2), Topology::regular(2, 1, 2, 2),
        ][shape].clone();
        let cpus = topology.cpus();
        let tasks: Vec<TaskSpec> = tasks.into_iter().map(|t| task_of(t, cpus)).collect();
        let workload = Workload { tasks: tasks.clone(), ..Workload::default() };
        let (outcome, events) = simulate_workload(VERSIONS[version], topology.clone(), &workload, Ns::from_s(2));
        for event in &events {
            if let EventKind::Switch { next: Some(next), .. } = event.kind {
                prop_assert!(tasks[next.index()].affinity.contains(event.cpu));
            }
        }
        prop_assert_eq!(lost(VERSIONS[version], &topology, &workload, &outcome), None);
        let same = same_with_every_tick(VERSIONS[version], topology, &workload, Ns::from_s(2));
        prop_assert_eq!(same, Ok(()));
    }
}

/// Both tick modes; prints where they part.
fn same_with_every_tick(
    version: &str,
    topology: Topology,
    workload: &Workload,
    duration: Ns,
) -> Result<(), String> {
    let machine = Machine { topology, ..Machine::flat(1) };
    let traces = [false, true].map(|every_tick| {
        let scheduler =
            registry::build(&version.parse().unwrap(), machine.topology.cpus()).unwrap();
        let mut events: Vec<SchedEvent> = Vec::new();
        let options = RunOptions { every_tick, ..RunOptions::for_time(duration) };
        run(&machine, workload, &*scheduler, &options, &mut events).unwrap();
        events
    });
    match traces[0].iter().zip(&traces[1]).position(|(a, b)| a != b) {
        Some(at) => Err(format!(
            "{version}: event {at}: {:?} / {:?}",
            &traces[0][at.saturating_sub(3)..(at + 2).min(traces[0].len())],
            &traces[1][at.saturating_sub(3)..(at + 2).min(traces[1].len())]
        )),
        None if traces[0].len() != traces[1].len() => Err(format!("{version}: different length")),
        None => Ok(()),
    }
}

/// G17b of docs/sources/linux-facts.md (measured on a 6.18 host with 2 CPUs, base slice 1.4 ms):
/// two hogs on one of two CPUs run 4 ms each and share half and half, nice 0 and 5 as 0.749
/// and 0.244.
#[test]
fn golden_values_of_two_cpus() {
    for (nice, expected) in [(0, [0.497, 0.498]), (5, [0.749, 0.244])] {
        let mut tasks = hogs(2);
        tasks.iter_mut().for_each(|task| task.affinity = CpuSet::single(CpuId(1)));
        tasks[1].nice = Nice::new(nice).unwrap();
        let (outcome, _) = simulate("linux-6.18", Topology::flat(2), tasks, 8);
        for (task, want) in expected.into_iter().enumerate() {
            let got = share(&outcome, task as u32);
            // The host lost 0.5 % to everything else that ran on it.
            assert!((got - want).abs() < 0.01, "nice {nice}: task {task}: {got} for {want}");
        }
        let runs = &outcome.metrics.tasks[1].run_length;
        assert_eq!(runs.quantile(0.5).0.div_ceil(100_000), 40, "nice {nice}: runs of 4 ms");
    }
}

/// The longest time for which some CPU idled while some task waited (all may run everywhere).
fn longest_idle_beside_waiting(events: &[SchedEvent], cpus: usize) -> Ns {
    let mut running = vec![None; cpus];
    let mut waiting = BTreeSet::new();
    let (mut since, mut longest) = (None, 0);
    for (i, event) in events.iter().enumerate() {
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                waiting.extend(prev.filter(|_| prev_state == PrevState::Runnable));
                if let Some(next) = next {
                    waiting.remove(&next);
                }
                running[event.cpu.index()] = next;
            }
            EventKind::Wake { task, .. } | EventKind::New { task, .. } => {
                waiting.insert(task);
            }
            _ => {}
        }
        if events.get(i + 1).is_some_and(|next| next.at == event.at) {
            continue;
        }
        let idles = running.iter().any(Option::is_none) && !waiting.is_empty();
        if idles {
            since = since.or(Some(event.at.0));
        } else if let Some(from) = since.take() {
            longest = longest.max(event.at.0 - from);
        }
    }
    Ns(longest)
}

/// A CPU does not idle beside a waiting task for longer than balancing allows. Linux is not work
/// conserving: above 85 % of use no idle CPU is searched for at wakeup, and a task that ran
/// within 0.5 ms is not taken by a CPU that becomes idle. Then the next tick's kick helps: idle
/// CPUs balance every span to twice the span in ms.
#[test]
fn idle_cpus_do_not_stay_idle_beside_waiting_tasks() {
    for version in VERSIONS {
        for (topology, span) in [(Topology::flat(4), 4), (Topology::regular(2, 1, 2, 2), 8)] {
            let cpus = topology.cpus();
            let tasks: Vec<TaskSpec> = (0..3 * cpus as u64)
                .map(|i| {
                    let work = Ns::from_us(700 + 613 * i % 9_000);
                    let sleep = Ns::from_us(900 + 911 * i % 12_000);
                    TaskSpec::new(format!("t{i}"), Program::closed(work, sleep))
                })
                .collect();
            let (outcome, events) = simulate(version, topology, tasks, 10);
            let longest = longest_idle_beside_waiting(&events, cpus);
            let tick = 4;
            assert!(longest <= Ns::from_ms(2 * span + 2 * tick), "{version}: {longest}");
            let part = outcome.metrics.work_conservation.violated_ns.0 as f64 / 10e9;
            // Since 6.14 a delayed task makes its CPU look busier than one with a waiting
            // task: 0.31 under 6.18.
            assert!(part < 0.33, "{version}: idle beside waiting tasks for {part:.3} of the time");
        }
    }
}

/// The same seed gives the same bytes, and another tick phase another schedule.
#[test]
fn runs_repeat_exactly() {
    for version in VERSIONS {
        let tasks = || [hogs(9), vec![noise(), noise()]].concat();
        let first = simulate(version, Topology::regular(1, 1, 2, 2), tasks(), 3).0.event_hash;
        let second = simulate(version, Topology::regular(1, 1, 2, 2), tasks(), 3).0.event_hash;
        assert_eq!(first, second);
        assert_ne!(first, simulate(version, Topology::flat(4), tasks(), 3).0.event_hash);
    }
}

/// Two tasks that wake each other share a CPU for some milliseconds, until it has no room, and keep
/// to one each for some hundred: so long their runnable averages are above their averages, and the
/// estimates stay. (perf bench sched pipe on a guest of Linux 6.18.44: 2 to 17 and 5 to 470 ms;
/// without estimates these two share one for more than half of the time.)
#[test]
fn a_packed_pair_is_mostly_apart() {
    let work = |us| Op::Run(Amount::Fixed(Ns::from_us(us)));
    let (there, back) = (ChannelId(0), ChannelId(1));
    let ping = [work(14), Op::Send { channel: there, count: 1 }, Op::Receive(back)];
    let pong = [Op::Receive(there), work(11), Op::Send { channel: back, count: 1 }];
    let tasks = [("ping", &ping), ("pong", &pong)].map(|(name, ops)| {
        let mut task = TaskSpec::new(name, Program::forever(*ops));
        task.start = Start::AsleepUntil(Ns::ZERO);
        task
    });
    let workload = Workload {
        tasks: tasks.to_vec(),
        channels: vec![ChannelSpec::default(); 2],
        ..Workload::default()
    };
    let costs = Costs { idle_decide_ns: Ns::from_us(25), ..Costs::default() };
    let machine = Machine { costs, ..Machine::flat(2) };
    let together = |spec: &str| {
        let scheduler = registry::build(&spec.parse().unwrap(), 2).unwrap();
        let mut events: Vec<SchedEvent> = Vec::new();
        run(&machine, &workload, &*scheduler, &RunOptions::for_time(Ns::from_s(4)), &mut events)
            .unwrap();
        let on = events.iter().filter_map(|event| match event.kind {
            EventKind::Switch { next: Some(_), .. } => Some((event.at, event.cpu)),
            _ => None,
        });
        let on: Vec<(Ns, CpuId)> = on.collect();
        let same = on.windows(2).filter(|pair| pair[0].1 == pair[1].1);
        same.map(|pair| pair[1].0.0 - pair[0].0.0).sum::<u64>() as f64 / 4e9
    };
    let packed = together("linux-6.18:sched_vcpu_pack=15");
    assert!((0.005..0.3).contains(&packed), "on one CPU for {packed} of the time");
    // Until both have run.
    assert!(together("linux-6.18") < 0.001, "upstream");
}
