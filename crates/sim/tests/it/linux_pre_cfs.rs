//! Linux before CFS: alternation, shares, wakeups and spreading, with zero costs.

use schedlab_model::{
    Amount, CpuId, EventKind, Nice, Ns, Op, Policy, Program, SchedEvent, Start, TaskId, TaskSpec,
    Workload,
};
use schedlab_scheduler::{Work, registry};
use schedlab_sim::{Machine, Metrics, RunOptions};

struct Ran {
    events: Vec<SchedEvent>,
    metrics: Metrics,
    scanned: u64,
}

fn run(scheduler: &str, cpus: usize, hz: u32, tasks: Vec<TaskSpec>, duration: Ns) -> Ran {
    let workload = Workload { tasks, ..Workload::default() };
    let mut machine = Machine::flat(cpus);
    machine.hz = hz;
    let scheduler = registry::build(&scheduler.parse().unwrap(), cpus).unwrap();
    let mut events = Vec::new();
    let options = RunOptions::for_time(duration);
    let outcome =
        schedlab_sim::run(&machine, &workload, &*scheduler, &options, &mut events).unwrap();
    Ran { events, metrics: outcome.metrics, scanned: outcome.work[Work::Scan as usize] }
}

impl Ran {
    /// Lengths of the uninterrupted runs on CPU 0, in ms, without the first and the last.
    fn runs_ms(&self) -> Vec<u64> {
        let switch = |event: &SchedEvent| {
            matches!(event.kind, EventKind::Switch { .. }).then_some(event.at.0)
        };
        let times: Vec<u64> = self.events.iter().filter_map(switch).collect();
        times.windows(2).skip(1).map(|pair| (pair[1] - pair[0]) / 1_000_000).collect()
    }

    fn share(&self, task: usize) -> f64 {
        let total: u64 = self.metrics.tasks.iter().map(|task| task.cpu_ns.0).sum();
        self.metrics.tasks[task].cpu_ns.0 as f64 / total as f64
    }
}

fn hog(name: &str, nice: i8) -> TaskSpec {
    let mut task = TaskSpec::new(name, Program::hog());
    task.nice = Nice::new(nice).unwrap();
    task
}

fn threads(count: usize) -> Vec<TaskSpec> {
    let thread = |i: usize| {
        let mut task = hog(&format!("t{i}"), 0);
        task.process = 1;
        task
    };
    (0..count).map(thread).collect()
}

fn near(got: f64, want: f64) {
    assert!((got - want).abs() < 0.005, "{got} is not {want}");
}

#[test]
fn two_processes_run_120_ms_and_two_threads_60_ms() {
    for scheduler in ["linux-2.4", "linux-2.4-mq"] {
        let processes =
            run(scheduler, 1, 100, vec![hog("a", 0), hog("b", 0)], Ns::from_s(3)).runs_ms();
        assert!(
            processes.len() > 20 && processes.iter().all(|ms| *ms == 120),
            "{scheduler} {processes:?}"
        );
        let threads = run(scheduler, 1, 100, threads(2), Ns::from_s(3)).runs_ms();
        assert!(
            threads.len() > 40 && threads.iter().all(|ms| *ms == 60),
            "{scheduler} {threads:?}"
        );
    }
}

#[test]
fn shares_follow_nice() {
    for scheduler in ["linux-2.4", "linux-2.4-mq"] {
        for (a, b, share) in [(0, 5, 0.6), (0, 19, 0.857), (-20, 0, 0.647)] {
            let ran = run(scheduler, 1, 100, vec![hog("a", a), hog("b", b)], Ns::from_s(60));
            near(ran.share(0), share);
        }
    }
}

#[test]
fn a_woken_task_takes_the_longest_idle_cpu() {
    // CPU 1 idles from 1 ms, CPU 0 from 2 ms on; the sleeper last ran on CPU 2, where a hog sits
    // now.
    let once = |ms, cpu: u32| {
        let mut task = TaskSpec::new(
            format!("once{cpu}"),
            Program::once([Op::Run(Amount::Fixed(Ns::from_ms(ms)))]),
        );
        task.affinity = schedlab_model::CpuSet::single(CpuId(cpu));
        task
    };
    let mut pinned = hog("hog", 0);
    pinned.affinity = schedlab_model::CpuSet::single(CpuId(2));
    pinned.policy = Policy::Fifo(1);
    let mut sleeper =
        TaskSpec::new("sleeper", Program::once([Op::Run(Amount::Fixed(Ns::from_ms(1)))]));
    sleeper.start = Start::AsleepUntil(Ns::from_ms(5));
    let ran =
        run("linux-2.4", 3, 100, vec![once(2, 0), once(1, 1), pinned, sleeper], Ns::from_ms(8));
    let placed = ran.events.iter().find_map(|event| match event.kind {
        EventKind::Switch { next: Some(task), .. } if task.0 == 3 => Some(event.cpu),
        _ => None,
    });
    // Its last CPU is CPU 0 by creation, which is idle: that one wins before the search.
    assert_eq!(placed, Some(CpuId(0)));
}

#[test]
fn a_yielder_lets_the_other_run() {
    for scheduler in ["linux-2.4", "linux-2.4-mq"] {
        let polite = Program::forever([Op::Run(Amount::Fixed(Ns::from_ms(1))), Op::Yield]);
        let ran =
            run(scheduler, 1, 100, vec![TaskSpec::new("y", polite), hog("h", 0)], Ns::from_s(10));
        assert!(ran.share(0) < 0.05, "{scheduler} {}", ran.share(0));
    }
}

#[test]
fn fork_shares_the_slice() {
    // The parent forks 10 ms into its slice of 60: 5 ticks are left (one edge has passed), 2 stay,
    // 3 go to the child.
    let ms = |ms| Op::Run(Amount::Fixed(Ns::from_ms(ms)));
    let parent = Program::once([ms(15), Op::Spawn(TaskId(1)), ms(1000)]);
    let mut child = hog("child", 0);
    child.start = Start::Spawned;
    let ran =
        run("linux-2.4", 1, 100, vec![TaskSpec::new("parent", parent), child], Ns::from_ms(300));
    let first: Vec<u64> = ran.runs_ms();
    // At 30 ms the parent's 2 ticks are used up. The child runs its 3, then every task is recharged
    // and its loaded address space wins the tie: 6 more.
    assert_eq!(first[0], 90, "{first:?}");
}

#[test]
fn hogs_spread_by_stealing() {
    let mut tasks = threads(256);
    tasks.iter_mut().for_each(|task| task.start = Start::At(Ns::ZERO));
    let ran = run("linux-2.4-mq", 2, 100, tasks, Ns::from_s(60));
    let moves: u64 = ran.metrics.tasks.iter().map(|task| task.migrations).sum();
    assert!(moves <= 256, "steals happen in the first epoch only: {moves}");
    let share = ran.metrics.tasks.iter().map(|task| task.cpu_ns.0).max().unwrap();
    assert!(share <= 2 * 60_000_000_000 * 2 / 256, "balanced queues give equal time: {share}");
}

/// With all on the first list every turn of the other CPU is a steal, and still all get the same
/// time.
#[test]
fn one_list_is_stolen_from() {
    let mut tasks = threads(64);
    tasks.iter_mut().for_each(|task| task.start = Start::At(Ns::ZERO));
    let ran = run("linux-2.4-mq:lists=first", 2, 100, tasks, Ns::from_s(60));
    let moves: u64 = ran.metrics.tasks.iter().map(|task| task.migrations).sum();
    assert!(moves > 400, "a thousand turns on each CPU, and {moves} moves");
    let time = || ran.metrics.tasks.iter().map(|task| task.cpu_ns.0 as f64 / (60e9 * 2.0 / 64.0));
    assert!(time().all(|share| (0.85..1.15).contains(&share)), "{:?}", time().collect::<Vec<_>>());
}

#[test]
fn o1_two_hogs_alternate_with_whole_slices() {
    for (scheduler, hz, slice) in [
        ("linux-2.4-o1", 100, 150),
        ("linux-2.6.0", 1000, 102),
        ("linux-2.6.22", 250, 100),
        ("linux-2.6.22", 1000, 100),
    ] {
        let runs = run(scheduler, 1, hz, vec![hog("a", 0), hog("b", 0)], Ns::from_s(20)).runs_ms();
        assert!(
            runs.len() > 100 && runs.iter().skip(2).all(|ms| *ms == slice),
            "{scheduler} {runs:?}"
        );
    }
}

#[test]
fn o1_shares_follow_slices() {
    for (scheduler, a, b, share) in [
        ("linux-2.6.22", 0, 5, 100.0 / 175.0),
        ("linux-2.6.22", 0, 19, 100.0 / 105.0),
        ("linux-2.6.22", -20, 0, 800.0 / 900.0),
        ("linux-2.4-o1", 0, 5, 151.0 / 265.0),
        ("linux-2.6.0", 0, 5, 102.0 / 180.0),
        ("linux-2.6.0", -20, 0, 200.0 / 302.0),
    ] {
        let ran = run(scheduler, 1, 1000, vec![hog("a", a), hog("b", b)], Ns::from_s(200));
        near(ran.share(0), share);
    }
}

#[test]
fn o1_a_sleeper_is_interactive() {
    // 1 ms of work each 20 ms beside four hogs: once it has slept enough it preempts at every
    // wakeup.
    for scheduler in ["linux-2.4-o1", "linux-2.6.0", "linux-2.6.22"] {
        let mut tasks: Vec<TaskSpec> = (0..4).map(|i| hog(&format!("h{i}"), 0)).collect();
        tasks.push(TaskSpec::new("editor", Program::closed(Ns::from_ms(1), Ns::from_ms(19))));
        let ran = run(scheduler, 1, 1000, tasks, Ns::from_s(30));
        let latency = &ran.metrics.tasks[4].wake_latency;
        assert!(latency.count() > 1000, "{scheduler}: {} wakeups", latency.count());
        assert_eq!(latency.quantile(0.5), Ns::ZERO, "{scheduler}");
    }
}

#[test]
fn o1_a_yielder_lets_the_other_run() {
    for scheduler in ["linux-2.4-o1", "linux-2.6.22"] {
        let polite = Program::forever([Op::Run(Amount::Fixed(Ns::from_us(100))), Op::Yield]);
        let ran =
            run(scheduler, 1, 1000, vec![TaskSpec::new("y", polite), hog("h", 0)], Ns::from_s(20));
        assert!(ran.share(0) < 0.51, "{scheduler} {}", ran.share(0));
        assert!(ran.metrics.tasks[0].yields > 10, "{scheduler}");
    }
}

#[test]
fn o1_hogs_spread_over_the_cpus() {
    for scheduler in ["linux-2.4-o1", "linux-2.6.22"] {
        let ran = run(scheduler, 4, 1000, threads(8), Ns::from_s(20));
        for (i, task) in ran.metrics.tasks.iter().enumerate() {
            assert!(task.cpu_ns > Ns::from_s(8), "{scheduler}: task {i} got {}", task.cpu_ns);
        }
    }
}

#[test]
fn o1_decides_with_the_same_work_for_2_and_1024_tasks() {
    let scans = |scheduler: &str, tasks: usize| {
        let ran = run(scheduler, 2, 100, threads(tasks), Ns::from_s(5));
        let switches: u64 = ran.metrics.cpus.iter().map(|cpu| cpu.switches).sum();
        (ran.scanned, switches)
    };
    let (scanned, switches) = scans("linux-2.4", 1024);
    assert!(scanned / switches > 900, "2.4 looks at every task: {scanned} / {switches}");
    let (scanned, switches) = scans("linux-2.4-o1", 1024);
    assert!(scanned < 16 * switches, "O(1) does not: {scanned} / {switches}");
}

/// A negative penalty can make the goodness of the best task exactly 0 when its slice is as long as
/// slices get: another recharge changes nothing, and 2.4 would search for ever.
#[test]
fn a_recharge_that_changes_nothing_is_the_last() {
    for scheduler in ["linux-2.4:proc_change_penalty=-31", "linux-2.4-mq:proc_change_penalty=-31"] {
        // A hog's recharges fill the sleeper's slice up (11 ticks, so 11 + 20 - 31); then it is
        // alone.
        let mut hog =
            TaskSpec::new("hog", Program::once([Op::Run(Amount::Fixed(Ns::from_ms(1_500)))]));
        hog.process = 1;
        let mut sleeper = TaskSpec::new("sleeper", Program::hog());
        sleeper.start = Start::AsleepUntil(Ns::from_ms(1_800));
        let ran = run(scheduler, 1, 100, vec![hog, sleeper], Ns::from_ms(2_000));
        assert_eq!(ran.metrics.tasks[1].cpu_ns, Ns::from_ms(200), "{scheduler}");
    }
}
