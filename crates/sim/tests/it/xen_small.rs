//! Xen's small schedulers: null, RTDS and ARINC 653. Zero costs; what a timer's lateness changes
//! has a test of its own.

use proptest::prelude::*;
use schedlab_model::{
    Amount, CpuId, CpuSet, EventKind, Ns, Op, Policy, Program, SchedEvent, Start, TaskSpec,
    Workload,
};
use schedlab_scheduler::registry;
use schedlab_sim::{Costs, Machine, RunOptions};

/// A hog of policy `deadline:BUDGET/PERIOD/PERIOD`, in microseconds.
fn reserved(budget: u64, period: u64) -> TaskSpec {
    let mut hog = TaskSpec::new("hog", Program::hog());
    let period = Ns::from_us(period);
    hog.policy = Policy::Deadline { runtime: Ns::from_us(budget), deadline: period, period };
    hog
}

fn hogs(count: usize) -> Vec<TaskSpec> {
    (0..count).map(|_| TaskSpec::new("hog", Program::hog())).collect()
}

/// Runs for so long, and ends.
fn once(ms: u64) -> TaskSpec {
    TaskSpec::new("once", Program::once([Op::Run(Amount::Fixed(Ns::from_ms(ms)))]))
}

fn events(
    scheduler: &str,
    cpus: usize,
    tasks: Vec<TaskSpec>,
    length: Ns,
    late: Ns,
) -> Vec<SchedEvent> {
    let workload = Workload { tasks, ..Workload::default() };
    let mut machine = Machine::flat(cpus);
    machine.costs = Costs { timer_late_ns: late, ..Costs::default() };
    let scheduler = registry::build(&scheduler.parse().unwrap(), cpus).unwrap();
    let mut events: Vec<SchedEvent> = Vec::new();
    schedlab_sim::run(&machine, &workload, &*scheduler, &RunOptions::for_time(length), &mut events)
        .unwrap();
    events
}

/// Switches as `(time in us, CPU, running task)`.
fn switches(
    scheduler: &str,
    cpus: usize,
    tasks: Vec<TaskSpec>,
    ms: u64,
) -> Vec<(u64, u32, Option<u32>)> {
    let all = events(scheduler, cpus, tasks, Ns::from_ms(ms), Ns::ZERO);
    let switch = |event: &SchedEvent| match event.kind {
        EventKind::Switch { next, .. } => {
            Some((event.at.0 / 1000, event.cpu.0, next.map(|task| task.0)))
        }
        _ => None,
    };
    all.iter().filter_map(switch).collect()
}

/// The runs of every task as `(task, from, to)`.
fn runs(all: &[SchedEvent], end: Ns) -> Vec<(usize, Ns, Ns)> {
    let mut since = std::collections::BTreeMap::new();
    let mut runs = Vec::new();
    for event in all {
        let EventKind::Switch { next, .. } = event.kind else { continue };
        if let Some((task, from)) = since.remove(&event.cpu.0) {
            runs.push((task, from, event.at));
        }
        if let Some(task) = next {
            since.insert(event.cpu.0, (task.index(), event.at));
        }
    }
    runs.extend(since.into_values().map(|(task, from)| (task, from, end)));
    runs
}

/// CPU time of `task` in each period up to `end`.
fn by_period(runs: &[(usize, Ns, Ns)], task: usize, period: Ns, end: Ns) -> Vec<Ns> {
    let within = |begin: Ns, end: Ns| {
        let own = runs.iter().filter(|run| run.0 == task);
        Ns(own.map(|&(_, from, to)| to.min(end).saturating_sub(from.max(begin)).0).sum())
    };
    (0..end.0 / period.0).map(|k| within(period * k, period * (k + 1))).collect()
}

#[test]
fn null_gives_each_vcpu_a_pcpu_and_lets_the_rest_wait() {
    let got = switches("xen-null", 2, hogs(3), 100);
    assert_eq!(got, [(0, 0, Some(0)), (0, 1, Some(1))]);
    // The second ends: who waits longest gets its pCPU, and keeps it.
    let mut tasks = hogs(4);
    tasks[1] = once(30);
    let got = switches("xen-null", 2, tasks, 100);
    assert_eq!(got, [(0, 0, Some(0)), (0, 1, Some(1)), (30_000, 1, Some(2))]);
    // Soft affinity for the pCPU that becomes free goes before arrival, hard affinity excludes.
    let mut tasks = hogs(5);
    tasks[1] = once(30);
    tasks[2].affinity = CpuSet::single(CpuId(0));
    tasks[4].soft_affinity = CpuSet::single(CpuId(1));
    let got = switches("xen-null", 2, tasks, 100);
    assert_eq!(got.last(), Some(&(30_000, 1, Some(4))));
}

/// A unit that sleeps leaves its pCPU idle, though another one waits for any.
#[test]
fn null_never_preempts() {
    let mut tasks = hogs(2);
    tasks[0] = TaskSpec::new(
        "sleeper",
        Program::forever([
            Op::Run(Amount::Fixed(Ns::from_ms(2))),
            Op::Sleep(Amount::Fixed(Ns::from_ms(8))),
        ]),
    );
    let got = switches("xen-null", 1, tasks, 30);
    let want = [
        (0, Some(0)),
        (2_000, None),
        (10_000, Some(0)),
        (12_000, None),
        (20_000, Some(0)),
        (22_000, None),
    ];
    assert_eq!(got, want.map(|(at, task)| (at, 0, task)));
}

#[test]
fn rtds_two_reservations_on_one_pcpu() {
    let tasks = || vec![reserved(4_000, 10_000), reserved(4_000, 10_000)];
    let got = switches("xen-rtds:extratime=off", 1, tasks(), 20);
    let want = [(0, Some(0)), (4_000, Some(1)), (8_000, None)].map(|(at, task)| (at, 0, task));
    assert!(got.starts_with(&want), "{got:?}");
    let idle: Vec<u64> =
        got.iter().filter(|(.., task)| task.is_none()).map(|(at, ..)| *at).collect();
    assert_eq!(idle, [8_000, 18_000], "{got:?}");
    // The parameters of the knobs are those of Xen.
    let knobs = switches("xen-rtds:extratime=off", 1, hogs(2), 20);
    assert_eq!(got, knobs);
}

/// Buttazzo's pair, 2 of 5 and 4 of 7 (together 34/35), as reservations of hogs. The unit with the
/// nearer deadline runs: the second is not preempted at 5, as its deadline, 7, comes before 10, nor
/// at 10, as 14 comes before 15.
#[test]
fn rtds_is_edf() {
    let got = switches(
        "xen-rtds:extratime=off",
        1,
        vec![reserved(2_000, 5_000), reserved(4_000, 7_000)],
        15,
    );
    let want = [(0, 0), (2_000, 1), (6_000, 0), (8_000, 1), (12_000, 0)]
        .map(|(at, task)| (at, 0, Some(task)));
    let got: Vec<_> = got.into_iter().filter(|(at, ..)| *at <= 12_000).collect();
    assert_eq!(got, want);
}

/// Dhall's effect, which global EDF has: two light units of equal deadline keep both pCPUs while
/// the heavy one waits, and it gets less than its budget in its period although the machine is half
/// idle.
#[test]
fn rtds_has_dhalls_effect() {
    let tasks = vec![reserved(2_000, 10_000), reserved(2_000, 10_000), reserved(9_500, 10_100)];
    let end = Ns::from_us(10_100);
    let all = events("xen-rtds:extratime=off", 2, tasks, end, Ns::ZERO);
    assert_eq!(by_period(&runs(&all, end), 2, end, end), [Ns::from_us(8_100)]);
}

/// A deferrable server keeps its budget while it sleeps: one that comes late in its period runs
/// over its end, with the budget of two periods back to back.
#[test]
fn rtds_servers_are_deferrable() {
    let mut late = reserved(4_000, 10_000);
    late.start = Start::AsleepUntil(Ns::from_ms(6));
    let all = events("xen-rtds:extratime=off", 1, vec![late], Ns::from_ms(20), Ns::ZERO);
    let got: Vec<_> = runs(&all, Ns::from_ms(20))
        .iter()
        .map(|(_, from, to)| (from.0 / 1000, to.0 / 1000))
        .collect();
    assert_eq!(got, [(6_000, 14_000)]);
}

/// What Xen's handler leaves out: a waiting unit with extratime was never depleted, so its new
/// period does not make it preempt. Without extratime it does.
#[test]
fn rtds_extratime_does_not_preempt_at_its_replenishment() {
    let tasks = || vec![reserved(2_000, 10_000), reserved(30_000, 40_000)];
    let second = |scheduler: &str| {
        let got = switches(scheduler, 1, tasks(), 60);
        got.iter().filter(|(at, _, task)| *at > 0 && *task == Some(0)).map(|(at, ..)| *at).next()
    };
    assert_eq!(second("xen-rtds:extratime=off"), Some(10_000));
    assert_eq!(second("xen-rtds"), Some(32_000));
}

#[test]
fn arinc653_runs_each_window_and_idles_through_the_rest() {
    let mut tasks = hogs(2);
    (tasks[0].slice, tasks[1].slice) = (Some(Ns::from_ms(3)), Some(Ns::from_ms(5)));
    let got = switches("xen-arinc653:major_frame=10ms", 1, tasks.clone(), 20);
    let want = [(0, Some(0)), (3, Some(1)), (8, None), (10, Some(0)), (13, Some(1)), (18, None)];
    assert_eq!(got[..6], want.map(|(ms, task)| (ms * 1000, 0, task)));
    // No task uses the window of a unit that sleeps.
    tasks[0] = once(1);
    tasks[0].slice = Some(Ns::from_ms(3));
    let got = switches("xen-arinc653:major_frame=10ms", 1, tasks, 20);
    let want = [(0, Some(0)), (1, None), (3, Some(1)), (8, None), (13, Some(1)), (18, None)];
    assert_eq!(got[..6], want.map(|(ms, task)| (ms * 1000, 0, task)));
}

/// A timer that is 7 us late: until 4.20 each frame begins when its decision comes, so frames
/// drift; since 4.21 they do not.
#[test]
fn arinc653_frames_drift_until_4_20() {
    let frames = |spec: &str| -> Vec<u64> {
        let all = events(spec, 1, hogs(2), Ns::from_ms(70), Ns::from_us(7));
        let first = |event: &&SchedEvent| matches!(event.kind, EventKind::Switch { next: Some(task), .. } if task.0 == 0);
        all.iter().filter(first).map(|event| event.at.0 / 1000).collect()
    };
    assert_eq!(frames("xen-arinc653"), [0, 20_007, 40_014, 60_021]);
    assert_eq!(frames("xen-arinc653:version=4.22"), [0, 20_007, 40_007, 60_007]);
}

#[test]
fn arinc653_refuses_a_frame_that_is_too_short() {
    let workload = Workload { tasks: hogs(2), ..Workload::default() };
    let spec = "xen-arinc653:major_frame=15ms";
    let scheduler = registry::build(&spec.parse().unwrap(), 1).unwrap();
    let options = RunOptions::for_time(Ns::from_ms(1));
    let error = schedlab_sim::run(&Machine::flat(1), &workload, &*scheduler, &options, &mut ())
        .unwrap_err();
    assert!(
        error.to_string().contains("add up to 20.0ms, more than the major frame of 15.0ms"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// What a reservation is for. Hogs whose reservations fit by the bound for global EDF
    /// (Goossens, Funk and Baruah, 2003: the sum is at most m - (m - 1) times the largest; on one
    /// pCPU, at most 1, Liu and Layland) get exactly their budgets, in every period. Whether they
    /// fit or not, no task gets more.
    #[test]
    fn rtds_gives_each_unit_its_budget_in_each_period(
        cpus in 1usize..4,
        raw in prop::collection::vec((1u64..60, 1u64..12), 1..7),
    ) {
        let tasks: Vec<(u64, u64)> =
            raw.iter().map(|&(percent, period)| (percent * period * 10, period * 1000)).collect();
        let used = tasks.iter().map(|(budget, period)| *budget as f64 / *period as f64);
        let (sum, most) = (used.clone().sum::<f64>(), used.fold(0.0, f64::max));
        let fits = sum <= cpus as f64 - (cpus - 1) as f64 * most + 1e-9;
        let end = Ns::from_ms(120);
        let specs = tasks.iter().map(|&(budget, period)| reserved(budget, period)).collect();
        let all = events("xen-rtds:extratime=off", cpus, specs, end, Ns::ZERO);
        let runs = runs(&all, end);
        for (task, &(budget, period)) in tasks.iter().enumerate() {
            for (k, got) in by_period(&runs, task, Ns::from_us(period), end).into_iter().enumerate() {
                prop_assert!(got <= Ns::from_us(budget), "task {task}, period {k}: {got} of \
                                                          {budget} us");
                prop_assert!(!fits || got == Ns::from_us(budget), "task {task}, period {k}: {got} \
                    of {budget} us");
            }
        }
    }

    /// With extratime no pCPU idles beside a hog that waits: as many run as there are pCPUs.
    #[test]
    fn rtds_extratime_leaves_no_pcpu_idle(
        cpus in 1usize..4,
        raw in prop::collection::vec((1u64..100, 1u64..12), 1..7),
    ) {
        let end = Ns::from_ms(60);
        let specs: Vec<TaskSpec> =
            raw.iter().map(|&(percent, period)| reserved(percent * period * 10, period * 1000)).collect();
        let busy = cpus.min(specs.len()) as u64;
        let all = events("xen-rtds", cpus, specs, end, Ns::ZERO);
        let ran: u64 = runs(&all, end).iter().map(|(_, from, to)| to.0 - from.0).sum();
        prop_assert_eq!(ran, end.0 * busy);
    }

    /// A unit under null runs on one pCPU only, and no pCPU has two.
    #[test]
    fn null_pins_each_unit(cpus in 1usize..5, count in 1usize..8, work in 1u64..5, sleep in 1u64..5) {
        let program = [Op::Run(Amount::Fixed(Ns::from_ms(work))), Op::Sleep(Amount::Fixed(Ns::from_ms(sleep)))];
        let tasks = (0..count).map(|_| TaskSpec::new("t", Program::forever(program))).collect();
        let got = switches("xen-null", cpus, tasks, 60);
        let mut on = std::collections::BTreeMap::new();
        for (_, cpu, task) in got {
            let Some(task) = task else { continue };
            prop_assert_eq!(*on.entry(cpu).or_insert(task), task);
        }
        prop_assert_eq!(on.len(), cpus.min(count));
    }
}
