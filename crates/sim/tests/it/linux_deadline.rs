//! SCHED_DEADLINE in the simulator: reservations, admission, classes, several CPUs.

use crate::common::{fixed, periodic, scheduler};
use proptest::prelude::*;
use schedlab_model::{
    CpuId, CpuSet, EventKind, Ns, Op, Policy, Program, SchedEvent, Start, TaskId, TaskSpec,
    Workload,
};
use schedlab_sim::{Machine, Metrics, RunOptions, SimError, TickSkew, run};

const MS: Ns = Ns::from_ms(1);

fn task(name: &str, policy: &str, program: Program) -> TaskSpec {
    let mut task = TaskSpec::new(name, program);
    task.policy = policy.parse().expect("a policy");
    task.start = Start::AsleepUntil(Ns::ZERO);
    task
}

fn hog(policy: &str) -> TaskSpec {
    task("hog", policy, Program::hog())
}

fn workload(tasks: Vec<TaskSpec>) -> Workload {
    Workload { tasks, ..Workload::default() }
}

fn simulate(
    spec: &str,
    machine: &Machine,
    tasks: &Workload,
    time: Ns,
) -> (Metrics, Vec<SchedEvent>) {
    let mut events = Vec::new();
    let scheduler = scheduler(spec, machine.topology.cpus());
    let options = RunOptions::for_time(time);
    let outcome =
        run(machine, tasks, scheduler.as_ref(), &options, &mut events).expect("a clean run");
    (outcome.metrics, events)
}

/// When a task ran, as (from, to), neighbours merged.
fn runs(events: &[SchedEvent], of: u32, end: Ns) -> Vec<(Ns, Ns)> {
    let (mut runs, mut since) = (Vec::new(), None);
    for event in events {
        if let EventKind::Switch { prev, next, .. } = event.kind {
            if prev == Some(TaskId(of)) {
                runs.push((since.take().expect("it ran"), event.at));
            }
            if next == Some(TaskId(of)) {
                since = Some(event.at);
            }
        }
    }
    runs.extend(since.map(|since| (since, end)));
    runs
}

fn in_ms(runs: &[(Ns, Ns)]) -> Vec<(f64, f64)> {
    runs.iter().map(|(from, to)| (from.0 as f64 / 1e6, to.0 as f64 / 1e6)).collect()
}

/// The worked example of `linux/dl.rs`.
#[test]
fn the_worked_example() {
    let reserved =
        task("reserved", "deadline:4ms/10ms/10ms", Program::periodic(MS * 20, MS * 6, Ns::ZERO));
    let machine = Machine { hz: 1000, ..Machine::flat(1) };
    for spec in
        ["linux-6.1", "linux-6.12", "linux-6.18", "linux-7.2", "linux-6.1:features.HRTICK_DL=on"]
    {
        let tasks = workload(vec![reserved.clone(), hog("other")]);
        let (metrics, events) = simulate(spec, &machine, &tasks, MS * 39);
        let runs = in_ms(&runs(&events, 0, MS * 39));
        assert_eq!(runs, [(0.0, 4.0), (10.0, 12.0), (20.0, 24.0), (30.0, 32.0)], "{spec}");
        assert_eq!(metrics.tasks[0].response.max(), MS * 12, "{spec}");
        assert_eq!(metrics.tasks[0].throttled_ns, MS * 12, "{spec}");
    }
}

/// G24 (docs/sources/linux-facts.md), measured on 6.1: 95 in 100 ms beside a hog runs 95.2 on
/// and 4.8 off; overruns are paid back, so the mean is 95.
#[test]
fn budgets_are_enforced_at_ticks() {
    let tasks = workload(vec![hog("deadline:95ms/100ms/100ms"), hog("other")]);
    let machine = Machine { ticks: TickSkew::At(vec![Ns(3_200_000)]), ..Machine::flat(1) };
    let (metrics, events) = simulate("linux-6.1", &machine, &tasks, Ns::from_s(20));
    let runs = runs(&events, 0, Ns::from_s(20));
    let usual = runs.iter().filter(|(from, to)| *to - *from == Ns(95_200_000)).count();
    assert!(usual * 100 > runs.len() * 90, "{usual} of {}", runs.len());
    assert!((metrics.share(0.into()) - 0.95).abs() < 0.0005, "{}", metrics.share(0.into()));
    // With HRTICK_DL the budget ends to the nanosecond.
    let (_, events) = simulate("linux-6.1:features.HRTICK_DL=on", &machine, &tasks, Ns::from_s(1));
    let exact = self::runs(&events, 0, Ns::from_s(1));
    assert!(exact.iter().all(|(from, to)| *to - *from == MS * 95), "{exact:?}");
}

/// G20: one CPU admits 95 %, not 96.
#[test]
fn g20_admission_at_95_percent() {
    let admitted = |spec: &str, cpus: usize, policies: &[&str]| {
        let tasks = workload(policies.iter().map(|policy| hog(policy)).collect());
        let scheduler = scheduler(spec, cpus);
        let options = RunOptions::for_time(MS);
        match run(&Machine::flat(cpus), &tasks, scheduler.as_ref(), &options, &mut ()) {
            Ok(_) => true,
            Err(SimError::Admission { why, .. }) => {
                assert!(why.contains("EBUSY") && why.contains("95.00 %") || cpus > 1, "{why}");
                false
            }
            Err(other) => panic!("{other}"),
        }
    };
    for spec in ["linux-6.1", "linux-6.12", "linux-6.18", "linux-7.2"] {
        assert!(admitted(spec, 1, &["deadline:95ms/100ms/100ms"]), "{spec}");
        assert!(!admitted(spec, 1, &["deadline:96ms/100ms/100ms"]), "{spec}");
        assert!(
            admitted(spec, 1, &["deadline:50ms/50ms/100ms", "deadline:45ms/45ms/100ms"]),
            "{spec}"
        );
        assert!(
            !admitted(spec, 1, &["deadline:50ms/50ms/100ms", "deadline:46ms/46ms/100ms"]),
            "{spec}"
        );
        assert!(admitted(spec, 2, &["deadline:95ms/100ms/100ms"; 2]), "{spec}");
        assert!(!admitted(spec, 2, &["deadline:64ms/100ms/100ms"; 3]), "{spec}");
    }
    assert!(admitted("linux-6.1:sched_rt_runtime_us=-1", 1, &["deadline:100ms/100ms/100ms"; 2]));
    assert!(!admitted(
        "linux-6.12:sched_rt_runtime_us=500000",
        2,
        &["deadline:51ms/100ms/100ms"; 2]
    ));
}

fn refused(spec: &str, cpus: usize, task: TaskSpec) -> String {
    let scheduler = scheduler(spec, cpus);
    let result = run(
        &Machine::flat(cpus),
        &workload(vec![task]),
        &*scheduler,
        &RunOptions::default(),
        &mut (),
    );
    result.expect_err("refused").to_string()
}

#[test]
fn a_pinned_deadline_task_is_refused() {
    let mut pinned = hog("deadline:10ms/100ms/100ms");
    pinned.affinity = CpuSet::single(CpuId(1));
    let text = refused("linux-6.18", 2, pinned.clone());
    assert!(text.contains("`hog`") && text.contains("EPERM"), "{text}");
    let (metrics, _) = simulate(
        "linux-6.18:sched_rt_runtime_us=-1",
        &Machine::flat(2),
        &workload(vec![pinned]),
        MS * 500,
    );
    assert!((metrics.share(0.into()) - 0.1).abs() < 0.01);
}

#[test]
fn impossible_reservations_are_refused() {
    for (spec, policy, says) in [
        ("linux-6.1", "deadline:1us/1ms/1ms", "1.024us"),
        ("linux-6.1", "deadline:20us/50us/50us", "sched_deadline_period_min_us"),
        ("linux-6.1", "deadline:1ms/5s/5s", "sched_deadline_period_max_us"),
    ] {
        let text = refused(spec, 1, hog(policy));
        assert!(text.contains(says), "{policy}: {text}");
    }
    let knob = "linux-6.1:sched_deadline_period_max_us=6000000";
    simulate(knob, &Machine::flat(1), &workload(vec![hog("deadline:1ms/5s/5s")]), MS);
}

/// Deadline before RT before fair, whatever the priority.
#[test]
fn classes_come_in_order() {
    for spec in ["linux-6.1", "linux-6.12", "linux-6.18", "linux-7.2"] {
        let tasks = workload(vec![hog("other"), hog("fifo:99"), hog("deadline:30ms/100ms/100ms")]);
        let (metrics, events) = simulate(spec, &Machine::flat(1), &tasks, Ns::from_s(20));
        let dl = metrics.share(2.into());
        assert!((dl - 0.3).abs() < 0.003, "{spec}: {dl}");
        // The reservation begins with each period although a FIFO task of the highest priority
        // runs.
        let starts = runs(&events, 2, Ns::from_s(20));
        assert!(starts.iter().all(|(from, _)| from.0 % 100_000_000 == 0), "{spec}: {starts:?}");
        // The fair task gets what the throttling of RT, or the fair server, leaves it.
        let fair = metrics.share(0.into());
        assert!((0.03..0.09).contains(&fair), "{spec}: {fair}");
    }
}

/// `sched_yield` gives the rest of the budget away.
#[test]
fn yield_waits_for_the_next_period() {
    let program = Program::forever([Op::Run(fixed(1_000_000)), Op::Yield]);
    let tasks = workload(vec![task("yields", "deadline:4ms/10ms/10ms", program), hog("other")]);
    let (_, events) = simulate("linux-6.18", &Machine::flat(1), &tasks, MS * 45);
    let runs = in_ms(&runs(&events, 0, MS * 45));
    assert_eq!(runs, [(0.0, 1.0), (10.0, 11.0), (20.0, 21.0), (30.0, 31.0), (40.0, 41.0)]);
}

/// The fair server is an entity of the deadline class: with 50 ms in 1 s it has a late deadline, so
/// deadline tasks with shorter ones run before it, and fair tasks still get their 5 %.
#[test]
fn the_fair_server_competes_by_deadline() {
    let tasks = workload(vec![
        hog("other"),
        hog("fifo:10"),
        hog("deadline:40ms/100ms/100ms"),
        hog("deadline:800ms/2s/2s"),
    ]);
    let (metrics, events) = simulate("linux-6.18", &Machine::flat(1), &tasks, Ns::from_s(40));
    let share = |task: u32| metrics.share(TaskId(task));
    assert!(
        (share(2) - 0.4).abs() < 0.005 && (share(3) - 0.4).abs() < 0.01,
        "{} {}",
        share(2),
        share(3)
    );
    assert!((0.047..0.06).contains(&share(0)), "fair {}", share(0));
    // It takes the CPU from the task of 2 s, never from the one of 100 ms.
    let taken_from = |victim: u32| {
        let fair = |e: &&SchedEvent| {
            matches!(e.kind, EventKind::Switch { prev: Some(p), prev_state, next: Some(TaskId(0)) }
                if p.0 == victim && prev_state.is_runnable() == Some(true))
        };
        events
            .iter()
            .filter(fair)
            .filter(|e| {
                !runs(&events, victim, Ns::from_s(40))
                    .iter()
                    .any(|(from, to)| *to == e.at && (*to - *from) >= MS * 40)
            })
            .count()
    };
    assert_eq!(taken_from(2), 0);
}

/// Until 6.11 deadline time counts as RT time: beside 40 % of deadline time, RT tasks are throttled
/// after 55 %.
#[test]
fn deadline_time_counts_as_rt_time() {
    let tasks = workload(vec![hog("other"), hog("fifo:10"), hog("deadline:40ms/100ms/100ms")]);
    let (metrics, _) = simulate("linux-6.1", &Machine::flat(1), &tasks, Ns::from_s(20));
    let shares = [0, 1, 2].map(|task: u32| (metrics.share(TaskId(task)) * 100.0).round());
    assert_eq!(shares, [5.0, 55.0, 40.0]);
}

/// The example of GRUB in Documentation/scheduler/sched-deadline.rst, 2.2: two reservations of 4 in
/// 8; the first runs for 2 and blocks; the second lasts until 8 with SCHED_FLAG_RECLAIM, until 6
/// without.
#[test]
fn grub_of_the_kernel_document() {
    let first = task("T1", "deadline:4ms/8ms/8ms", Program::periodic(MS * 8, MS * 2, Ns::ZERO));
    let second = task("T2", "deadline:4ms/8ms/8ms", Program::hog());
    let tasks = workload(vec![first, second]);
    let bound = "sched_rt_runtime_us=1000000,features.HRTICK_DL=on";
    for (reclaim, until) in [("off", 6.0), ("on", 8.0)] {
        let spec = format!("linux-6.1:{bound},dl_reclaim={reclaim}");
        let (_, events) = simulate(&spec, &Machine::flat(1), &tasks, MS * 8);
        let runs = in_ms(&runs(&events, 1, MS * 8));
        assert_eq!(runs.len(), 1, "{runs:?}");
        assert!(
            (runs[0].0 - 2.0).abs() < 1e-6 && (runs[0].1 - until).abs() < 1e-4,
            "{reclaim}: {runs:?}"
        );
    }
}

/// State of a deadline task, rebuilt from events.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Is {
    Off,
    Ready,
    On,
}

/// At every instant the earliest deadlines run: no waiting task has an earlier one than a running
/// task, and none waits while a CPU has none. Releases come with wakeups, so deadlines are known.
fn earliest_run(events: &[SchedEvent], tasks: &[TaskSpec], cpus: usize) -> Result<(), String> {
    let mut state = vec![(Is::Off, Ns::ZERO); tasks.len()];
    let relative = |t: usize| match tasks[t].policy {
        Policy::Deadline { deadline, .. } => Some(deadline),
        _ => None,
    };
    for (index, event) in events.iter().enumerate() {
        match event.kind {
            EventKind::Wake { task, .. } => {
                let t = task.index();
                state[t] = (Is::Ready, event.at + relative(t).unwrap_or(Ns::ZERO));
            }
            EventKind::Switch { prev, prev_state, next } => {
                if let Some(prev) = prev {
                    let off = prev_state.is_runnable() != Some(true);
                    state[prev.index()].0 = if off { Is::Off } else { Is::Ready };
                }
                if let Some(next) = next {
                    state[next.index()].0 = Is::On;
                }
            }
            _ => {}
        }
        if events.get(index + 1).is_some_and(|next| next.at == event.at) {
            continue;
        }
        let of = |is: Is| -> Vec<Ns> {
            let all = state.iter().enumerate();
            all.filter(|(t, one)| relative(*t).is_some() && one.0 == is)
                .map(|(_, one)| one.1)
                .collect()
        };
        let (running, waiting) = (of(Is::On), of(Is::Ready));
        let latest = running.iter().max();
        if let Some(waiting) = waiting.iter().min()
            && (running.len() < cpus || latest.is_some_and(|latest| waiting < latest))
        {
            return Err(format!("at {} {:?}", event.at, state));
        }
    }
    Ok(())
}

/// Periodic sets whose utilisation stays below what global EDF guarantees: `U <= M - (M - 1) Umax`.
fn guaranteed(cpus: u64, raw: &[(u64, u64)]) -> Vec<TaskSpec> {
    let mut tasks = Vec::new();
    let (mut sum, mut most) = (0.0, 0.0f64);
    for (index, &(period, part)) in raw.iter().enumerate() {
        let work = (period * part / 100).max(1);
        let own = (work as f64 + 0.1) / period as f64;
        let limit = cpus as f64 - (cpus - 1) as f64 * most.max(own);
        if sum + own > limit.min(0.95 * cpus as f64) {
            continue;
        }
        (sum, most) = (sum + own, most.max(own));
        // A budget a little above the work: it never runs out. (With less than 1 us left over at
        // the deadline the kernel's comparison, which drops ten bits, would keep the old deadline.)
        let mut task = periodic(&format!("t{index}"), work, period, Ns::from_us(100));
        task.policy = Policy::Deadline {
            runtime: Ns::from_us(100 * work + 10),
            deadline: Ns::from_us(100 * period),
            period: Ns::from_us(100 * period),
        };
        task.start = Start::AsleepUntil(Ns::ZERO);
        tasks.push(task);
    }
    tasks
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(schedlab_testing::cases(48)) })]

    /// In no window does a task get more than a budget for each period that fits and one at each
    /// edge; a task that always wants the CPU gets its budget in every period, whatever else runs.
    #[test]
    fn no_server_exceeds_its_budget(
        raw in prop::collection::vec((2u64..20, 0u64..20, 0u64..40, 0usize..3), 1..5),
        others in prop::collection::vec(0usize..3, 0..3),
        preset in 0usize..4,
    ) {
        let mut tasks = Vec::new();
        let mut sum = 0.0;
        for (runtime, slack, gap, kind) in raw {
            let (deadline, period) = (runtime + slack, runtime + slack + gap);
            // By density, so that constrained deadlines hold too.
            let own = runtime as f64 / deadline as f64;
            if sum + own > 0.94 {
                continue;
            }
            sum += own;
            let program = match kind {
                0 => Program::hog(),
                1 => Program::closed(MS * (runtime * 2), MS * 3),
                _ => Program::periodic(MS * 7, MS * 5, Ns::ZERO),
            };
            tasks.push(task("dl", &format!("deadline:{runtime}ms/{deadline}ms/{period}ms"), program));
        }
        let reserved = tasks.len();
        tasks.extend(others.iter().map(|&kind| hog(["other", "fifo:50", "idle"][kind])));
        let spec = ["linux-6.1", "linux-6.12", "linux-6.18", "linux-7.2"][preset];
        let end = Ns::from_s(1);
        let set = workload(tasks);
        let spec = format!("{spec}:features.HRTICK_DL=on,sched_rt_runtime_us=-1");
        let (metrics, events) = simulate(&spec, &Machine::flat(1), &set, end);
        for t in 0..reserved {
            let Policy::Deadline { runtime, period, .. } = set.tasks[t].policy else { unreachable!() };
            let runs = runs(&events, t as u32, end);
            for from in 0..runs.len() {
                let mut ran = Ns::ZERO;
                for to in from..runs.len() {
                    ran += runs[to].1 - runs[from.max(to)].0;
                    let window = runs[to].1 - runs[from].0;
                    let most = runtime * (window.0 / period.0 + 2);
                    // Overruns of HRTICK's least time are paid back.
                    prop_assert!(ran <= most + Ns(20_000), "task {}: {} in {}", t, ran, window);
                }
            }
            if *set.tasks[t].program == Program::hog() {
                let least = runtime * (end.0 / period.0 - 1);
                prop_assert!(metrics.tasks[t].cpu_ns + Ns(20_000) >= least, "task {}: {}", t, metrics.tasks[t].cpu_ns);
            }
        }
    }

    /// One CPU: EDF meets every deadline up to the bound of the admission.
    #[test]
    fn edf_meets_every_deadline_up_to_the_bound(
        raw in prop::collection::vec((10u64..400, 1u64..60), 1..9), preset in 0usize..4,
    ) {
        let spec = ["linux-6.1", "linux-6.12", "linux-6.18", "linux-7.2"][preset];
        let tasks = guaranteed(1, &raw);
        let mut set = workload(tasks);
        set.tasks.push(hog("other"));
        let (metrics, events) = simulate(spec, &Machine::flat(1), &set, Ns::from_s(1));
        for (t, task) in set.tasks.iter().enumerate() {
            if let Policy::Deadline { deadline, .. } = task.policy {
                prop_assert!(metrics.tasks[t].response.max() <= deadline, "task {}", t);
            }
        }
        prop_assert_eq!(earliest_run(&events, &set.tasks, 1), Ok(()));
    }

    /// Several CPUs: push and pull keep the earliest deadlines of the machine running, and no
    /// deadline is missed up to the bound of Goossens, Funk and Baruah.
    #[test]
    fn the_earliest_deadlines_run(
        cpus in 2u64..5, raw in prop::collection::vec((10u64..400, 1u64..80), 2..14), preset in 0usize..4,
    ) {
        let spec = ["linux-6.1", "linux-6.12", "linux-6.18", "linux-7.2"][preset];
        let mut set = workload(guaranteed(cpus, &raw));
        set.tasks.push(hog("other"));
        set.tasks.push(hog("fifo:5"));
        let machine = Machine::flat(cpus as usize);
        let (metrics, events) = simulate(spec, &machine, &set, Ns::from_s(1));
        for (t, task) in set.tasks.iter().enumerate() {
            if let Policy::Deadline { deadline, .. } = task.policy {
                prop_assert!(metrics.tasks[t].response.max() <= deadline, "task {}", t);
            }
        }
        prop_assert_eq!(earliest_run(&events, &set.tasks, cpus as usize), Ok(()));
    }
}

/// Above the bound deadlines are missed: the bound is not a matter of taste.
#[test]
fn beyond_one_cpu_deadlines_are_missed() {
    let tasks = workload(vec![periodic("a", 6, 10, MS), periodic("b", 9, 20, MS)]);
    let spec = "linux-6.18:sched_rt_runtime_us=-1";
    let (metrics, _) = simulate(spec, &Machine::flat(1), &tasks, Ns::from_s(2));
    assert!(metrics.tasks.iter().any(|task| task.response.max() > MS * 20));
}

/// Found by `cargo xtask stress` (seed 8088): a CPU fetches a real-time task from one that is
/// throttled, which the kernel does while a deadline task runs there. The decision itself lets the
/// task go.
#[test]
fn a_task_is_fetched_from_a_throttled_cpu() {
    let on = |cpu: usize, mut task: TaskSpec| {
        task.affinity = CpuSet::single(cpu.into());
        task
    };
    let late = |at: Ns, mut task: TaskSpec| {
        task.start = Start::AsleepUntil(at);
        task
    };
    let once = Program::once(vec![Op::Run(fixed(80_000_000))]);
    let tasks = workload(vec![
        on(0, hog("fifo:10")),
        late(MS * 900, on(1, task("busy", "fifo:95", once))),
        late(MS * 910, hog("fifo:5")),
        late(MS * 951, hog("deadline:100ms/400ms/400ms")),
    ]);
    for costs in [false, true] {
        let mut machine = Machine { hz: 1000, ..Machine::flat(2) };
        if costs {
            machine.costs.block_switch_ns = Ns(1_000);
        }
        for spec in ["linux-6.1", "linux-6.6"] {
            let (metrics, events) = simulate(spec, &machine, &tasks, MS * 1_060);
            let from = in_ms(&runs(&events, 2, MS * 1_060))[0].0;
            // Throttled since 951 ms, and no more once the other CPU has it.
            assert!((980.0..980.01).contains(&from), "{spec}: {from}");
            let throttled = metrics.tasks[2].throttled_ns;
            assert!((MS * 28..MS * 30).contains(&throttled), "{spec}: {throttled}");
            let freed = |e: &&SchedEvent| e.kind == EventKind::Unthrottle { task: TaskId(2) };
            assert_eq!(events.iter().filter(freed).count(), 1, "{spec}");
        }
    }
}

/// For how long the FIFO task `fifo` was runnable without running while another CPU ran a task of
/// `fair`.
fn waits_beside_fair(events: &[SchedEvent], fifo: u32, fair: &[u32], cpus: usize) -> Ns {
    let (mut runs, mut ready, mut last, mut sum) = (vec![None; cpus], false, Ns::ZERO, Ns::ZERO);
    for event in events {
        let beside = runs.iter().flatten().any(|task: &TaskId| fair.contains(&task.0));
        if ready && beside {
            sum += event.at - last;
        }
        last = event.at;
        match event.kind {
            EventKind::Wake { task, .. } if task.0 == fifo => ready = true,
            EventKind::Switch { prev, prev_state, next } => {
                runs[event.cpu.index()] = next;
                if prev == Some(TaskId(fifo)) {
                    ready = prev_state.is_runnable() == Some(true);
                }
                if next == Some(TaskId(fifo)) {
                    ready = false;
                }
            }
            _ => {}
        }
    }
    sum
}

/// Two deadline tasks keep both CPUs; when the shorter one leaves, its CPU pulls the FIFO task that
/// the other one preempted (since 6.7). Before, a CPU with a single RT task was not overloaded: the
/// FIFO task waited while a fair hog ran.
#[test]
fn a_single_waiting_fifo_task_is_pulled_since_6_7() {
    let reserved = |policy: &str, start: u64, work: u64| {
        let run = Op::Run(schedlab_model::Amount::Fixed(MS * work));
        let pause = Op::Sleep(schedlab_model::Amount::Fixed(MS * (10 - work)));
        let mut one = task("reserved", policy, Program::forever([run, pause]));
        one.start = Start::AsleepUntil(MS * start);
        one
    };
    let (long, short) =
        (reserved("deadline:7ms/10ms/10ms", 2, 6), reserved("deadline:3ms/10ms/10ms", 3, 2));
    let tasks = workload(vec![hog("other"), hog("other"), hog("fifo:5"), long, short]);
    let waits = ["linux-6.1", "linux-6.6", "linux-6.12", "linux-6.18", "linux-7.2"].map(|spec| {
        let (_, events) = simulate(spec, &Machine::flat(2), &tasks, MS * 1_000);
        waits_beside_fair(&events, 2, &[0, 1], 2)
    });
    assert!(waits[..2].iter().all(|wait| *wait > MS * 200), "{waits:?}");
    assert!(waits[2..].iter().all(|wait| *wait < MS * 5), "{waits:?}");
}

/// Where the published rule and the kernel differ, the scheduler says so (LKML 2024-11-29: the fair
/// servers count; 6.12.95 does not count them. LKML 2025-04-28: GRUB of 6.12 to 6.16).
#[test]
fn what_kernels_do_otherwise_is_said() {
    let policies = |text: &str, count: usize| -> Vec<Policy> { vec![text.parse().unwrap(); count] };
    let remarks = |spec: &str, policies: &[Policy], cpus: usize| {
        scheduler(spec, cpus).remarks(policies, cpus)
    };
    let many = policies("deadline:9.4ms/10ms/10ms", 8);
    for spec in ["linux-6.12", "linux-6.18"] {
        let said = remarks(spec, &many, 8);
        assert!(said.len() == 1 && said[0].contains("752.00 %"), "{said:?}");
        assert!(said[0].contains("720.00 % are admitted (J. Lelli"), "{said:?}");
    }
    for spec in ["linux-6.6", "linux-7.2", "linux-6.12:sched_rt_runtime_us=-1"] {
        assert_eq!(remarks(spec, &many, 8), [""; 0], "{spec}");
    }
    let few = policies("deadline:8ms/10ms/10ms", 8);
    assert_eq!(remarks("linux-6.12", &few, 8), [""; 0]);
    let said = remarks("linux-6.12:dl_reclaim=on", &few, 8);
    assert!(said.len() == 1 && said[0].contains("LKML 2025-04-28"), "{said:?}");
    assert_eq!(remarks("linux-6.18:dl_reclaim=on", &few, 8), [""; 0]);
    assert_eq!(remarks("linux-6.12:dl_reclaim=on", &[Policy::Other], 8), [""; 0]);
}
