//! Published numbers that any correct simulator gives (docs/sources/simulation-facts.md).

use crate::common::{fixed, periodic, scheduler, simulate};
use proptest::prelude::*;
use schedlab_model::{
    ChannelId, ChannelSpec, CpuId, CpuSet, Draw, EventKind, LockId, Ns, Op, Program, SchedEvent,
    SourceKind, SourceSpec, Start, TaskId, TaskSpec, Waker, Workload,
};
use schedlab_sim::{Distribution, Machine, Outcome, RunOptions, SimError, Stuck, WaitsFor, run};

const MS: Ns = Ns::from_ms(1);

fn workload(tasks: Vec<TaskSpec>) -> Workload {
    Workload { tasks, ..Workload::default() }
}

/// Buttazzo's pair (2,5) and (4,7), 35 ticks: largest responses 4 and 6; one preemption when a
/// running job wins ties, two when ties go by index.
#[test]
fn buttazzo_edf_pair() {
    let pair = workload(vec![periodic("a", 2, 5, MS), periodic("b", 4, 7, MS)]);
    for (spec, preemptions) in [("edf", 1), ("edf:ties=id", 2)] {
        let outcome = simulate(spec, 1, &pair, MS * 35);
        let max = |t: usize| outcome.metrics.tasks[t].response.max();
        assert_eq!((max(0), max(1)), (MS * 4, MS * 6), "{spec}");
        assert_eq!(outcome.metrics.preemptions(), preemptions, "{spec}");
        // U = 34/35: one unit of 35 idles.
        assert_eq!(outcome.metrics.cpus[0].idle_ns, MS, "{spec}");
    }
}

/// Dhall's effect on 8 CPUs: eight light tasks (2/1000) go first, the heavy one (1000/1001) answers
/// in 1002.
#[test]
fn dhall_effect() {
    let mut tasks: Vec<TaskSpec> =
        (0..8).map(|i| periodic(&format!("light{i}"), 2, 1000, MS)).collect();
    tasks.push(periodic("heavy", 1000, 1001, MS));
    let outcome = simulate("edf", 8, &workload(tasks), MS * 1003);
    assert_eq!(outcome.metrics.tasks[8].response.max(), MS * 1002);
}

/// The kernel documentation's pair (50,50,100) and (10,100,100): density 1.1, yet task 2 answers in
/// 60 ms.
#[test]
fn density_above_one_is_schedulable() {
    let mut first = periodic("first", 50, 100, MS);
    first.policy = "deadline:50ms/50ms/100ms".parse().unwrap();
    let outcome =
        simulate("edf", 1, &workload(vec![first, periodic("second", 10, 100, MS)]), MS * 1000);
    assert_eq!(outcome.metrics.tasks[0].response.max(), MS * 50);
    assert_eq!(outcome.metrics.tasks[1].response.max(), MS * 60);
}

/// The worked example of `simple/rr.rs`.
#[test]
fn rr_takes_turns_of_4_ms() {
    let mut third = TaskSpec::new("third", Program::once([Op::Run(fixed(1_000_000))]));
    third.start = Start::At(MS * 5);
    let tasks = vec![TaskSpec::new("a", Program::hog()), TaskSpec::new("b", Program::hog()), third];
    let outcome = simulate("rr", 1, &workload(tasks), MS * 17);
    let tasks = &outcome.metrics.tasks;
    assert_eq!((tasks[0].cpu_ns, tasks[1].cpu_ns, tasks[2].cpu_ns), (MS * 8, MS * 8, MS));
    assert_eq!(tasks[2].wake_latency.max(), MS * 7);
}

/// T2, Burns and Wellings: fixed priorities, highest first, response times 10, 20, 52 (too late);
/// 4, 9, 58; 5, 15, 80. And T1, Liu and Layland's edge: one tick more and the second task misses.
#[test]
fn response_times_of_published_sets() {
    let fifo = |set: &[(u64, u64)]| {
        let tasks = set.iter().enumerate().map(|(rank, &(work, period))| {
            let mut task = periodic(&format!("t{rank}"), work, period, Ns::from_us(1));
            task.policy = schedlab_model::Policy::Fifo(90 - rank as u8);
            task
        });
        workload(tasks.collect())
    };
    let first = |spec: &str, set: &[(u64, u64)]| -> Vec<u64> {
        let end = Ns::from_us(2 * set.iter().map(|task| task.1).max().expect("some"));
        let outcome = simulate(spec, 1, &fifo(set), end);
        outcome.metrics.tasks.iter().map(|task| task.response.max().0 / 1_000).collect()
    };
    let spec = "linux-6.18";
    assert_eq!(first(spec, &[(10, 30), (10, 40), (12, 50)]), [10, 20, 52]);
    assert_eq!(first(spec, &[(4, 16), (5, 40), (32, 80)]), [4, 9, 58]);
    assert_eq!(first(spec, &[(5, 20), (10, 40), (40, 80)]), [5, 15, 80]);
    let edge = |work: u64| {
        first("linux-6.1:sched_rt_runtime_us=-1", &[(work, 1_000_000), (585_786, 1_414_214)])[1]
    };
    assert_eq!(edge(414_214), 1_000_000);
    assert!(edge(414_215) >= 1_414_216, "{}", edge(414_215));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(schedlab_testing::cases(64)) })]

    /// Response-time analysis (Joseph and Pandya): the largest response of a FIFO task, all
    /// released together, is the least fixed point of `R = C + sum of ceil(R / T) C` over the more
    /// urgent ones.
    #[test]
    fn fixed_priorities_answer_as_analysis_says(
        raw in prop::collection::vec((1u64..12, 2u64..60), 1..6), preset in 0usize..5,
    ) {
        let mut set: Vec<(u64, u64)> = raw.iter().map(|&(work, gap)| (work, work + gap)).collect();
        set.sort_by_key(|task| task.1);
        let used: f64 = set.iter().map(|&(work, period)| work as f64 / period as f64).sum();
        prop_assume!(used < 0.98);
        let tasks = set.iter().enumerate().map(|(rank, &(work, period))| {
            let mut task = periodic(&format!("t{rank}"), work, period, Ns::from_us(100));
            task.policy = schedlab_model::Policy::Fifo(90 - rank as u8);
            task
        });
        // The critical instant is the first one; deadlines equal periods, so a set is only judged
        // where it meets them.
        let names = ["linux-6.1", "linux-6.6", "linux-6.12", "linux-6.18", "linux-2.6.32"];
        let spec = names[preset].to_owned();
        let spec = if preset < 2 || preset == 4 { spec + ":sched_rt_runtime_us=-1" } else { spec };
        let outcome = simulate(&spec, 1, &workload(tasks.collect()), MS * 100);
        for (rank, &(work, period)) in set.iter().enumerate() {
            let mut response = work;
            loop {
                let more: u64 = set[..rank].iter().map(|&(c, t)| response.div_ceil(t) * c).sum();
                if work + more == response || response > period {
                    break;
                }
                response = work + more;
            }
            if response > period {
                break;
            }
            prop_assert_eq!(outcome.metrics.tasks[rank].response.max(), Ns::from_us(100) * response, "task {}", rank);
        }
    }
}

/// A late periodic task goes on with its next job at once, under its next deadline.
#[test]
fn late_jobs_queue_up() {
    let outcome = simulate("edf", 1, &workload(vec![periodic("late", 15, 10, MS)]), MS * 100);
    let task = &outcome.metrics.tasks[0];
    // Job k ends at 15 (k + 1) and was due at 10 k: responses 15, 20, 25, 30, 35, 40.
    assert_eq!(
        (task.response.count(), task.response.min(), task.response.max()),
        (6, MS * 15, MS * 40)
    );
    assert_eq!(task.switches, 1);
}

/// A queue with Poisson arrivals and exponential service, mean 1 ms, load 0.8 a server.
fn queue(servers: u32, channels: u32, seconds: u64) -> Outcome {
    let mut tasks = Vec::new();
    for i in 0..servers {
        let channel = ChannelId(i % channels);
        let mut program = Program::default();
        let service = program.draw(Draw::Exponential { mean: MS });
        program.ops = vec![Op::Receive(channel), Op::Run(service), Op::Done(channel)];
        program.repeat_from = Some(0);
        let mut task = TaskSpec::new(format!("server{i}"), program);
        task.affinity = CpuSet::single(CpuId(i));
        tasks.push(task);
    }
    let gap = MS.0 * 10 / 8 * u64::from(channels) / u64::from(servers);
    let source = |c: u32| SourceSpec {
        name: format!("clients{c}"),
        into: ChannelId(c),
        kind: SourceKind::Open {
            interarrival: Draw::Exponential { mean: Ns(gap) },
            start: Ns::ZERO,
        },
        one_way: Draw::Fixed(Ns::ZERO),
    };
    let workload = Workload {
        tasks,
        channels: vec![ChannelSpec::default(); channels as usize],
        sources: (0..channels).map(source).collect(),
        ..Workload::default()
    };
    simulate("rr:slice_ns=10s", servers as usize, &workload, Ns::from_s(seconds))
}

fn near(what: &str, got: f64, expected: f64, tolerance: f64) {
    assert!((got / expected - 1.0).abs() < tolerance, "{what}: {got:.4}, expected {expected:.4}");
}

fn responses(outcome: &Outcome) -> Distribution {
    let mut all = Distribution::default();
    outcome.metrics.sources.iter().for_each(|source| all.merge(&source.response));
    all
}

/// M/M/1 at 0.8: mean 5, median 3.466, p99 23.03 (in service times).
#[test]
fn mm1() {
    let outcome = queue(1, 1, 1_000);
    let response = responses(&outcome);
    near("mean", response.mean().0 as f64 / 1e6, 5.0, 0.03);
    near("p50", response.quantile(0.5).0 as f64 / 1e6, 3.466, 0.03);
    near("p99", response.quantile(0.99).0 as f64 / 1e6, 23.03, 0.05);
    near("busy", outcome.metrics.cpus[0].busy_ns.0 as f64 / 1e12, 0.8, 0.01);
}

/// M/M/8 with one queue at 0.8: mean 1.28603; eight queues of their own: 5.0.
#[test]
fn mm8_against_eight_mm1() {
    near("one queue", responses(&queue(8, 1, 120)).mean().0 as f64 / 1e6, 1.286_03, 0.02);
    near("eight queues", responses(&queue(8, 8, 120)).mean().0 as f64 / 1e6, 5.0, 0.03);
}

/// A closed loop: N clients, each at the server or on the wire. With one client throughput is
/// 1 / (service + both ways + think); with many the server is never idle.
#[test]
fn closed_loop_throughput() {
    let server = Program::forever([
        Op::ReceiveAll(ChannelId(0)),
        Op::Serve { channel: ChannelId(0), per_request: fixed(10_000) },
    ]);
    let run_with = |clients: u32| {
        let workload = Workload {
            tasks: vec![TaskSpec::new("server", server.clone())],
            channels: vec![ChannelSpec::default()],
            sources: vec![SourceSpec {
                name: "clients".to_owned(),
                into: ChannelId(0),
                kind: SourceKind::Closed { clients, think: Draw::Fixed(Ns(30_000)) },
                one_way: Draw::Fixed(Ns(30_000)),
            }],
            ..Workload::default()
        };
        let outcome = simulate("rr", 1, &workload, Ns::from_s(1));
        let source = &outcome.metrics.sources[0];
        (source.completed, source.response.min(), source.response.max())
    };
    assert_eq!(run_with(1), (10_000, Ns(70_000), Ns(70_000)));
    let (completed, _, slowest) = run_with(50);
    assert!((99_990..=100_000).contains(&completed), "{completed}");
    // All the others are served in between: 50 services, less one thinking time.
    assert_eq!(slowest, Ns(50 * 10_000 + 2 * 30_000), "the first round, all at once");
}

/// Events of a run on one CPU under round robin.
fn events(
    tasks: Vec<TaskSpec>,
    channels: Vec<ChannelSpec>,
    locks: u32,
) -> (Outcome, Vec<SchedEvent>) {
    let workload = Workload { tasks, channels, locks, ..Workload::default() };
    let mut events = Vec::new();
    let rr = scheduler("rr", 1);
    let options = RunOptions::for_time(Ns::from_ms(100));
    let outcome = run(&Machine::flat(1), &workload, rr.as_ref(), &options, &mut events).unwrap();
    (outcome, events)
}

/// A mutex goes to its waiters in the order in which they came.
#[test]
fn locks_are_first_come_first_served() {
    let program = |delay: u64| {
        Program::once([
            Op::Sleep(fixed(delay)),
            Op::Lock(LockId(0)),
            Op::Sleep(fixed(5_000_000)),
            Op::Unlock(LockId(0)),
            Op::Run(fixed(1_000)),
        ])
    };
    let tasks =
        [3, 1, 2].map(|delay| TaskSpec::new(format!("t{delay}"), program(delay * 1_000_000)));
    let (outcome, events) = events(tasks.to_vec(), Vec::new(), 1);
    let exits: Vec<(u32, Ns)> = events
        .iter()
        .filter_map(|e| match e.kind {
            EventKind::Exit { task } => Some((task.0, e.at)),
            _ => None,
        })
        .collect();
    // The task that unlocks first finishes its microsecond, then the new owner gets the CPU.
    assert_eq!(exits, [(1, Ns(6_001_000)), (2, Ns(11_002_000)), (0, Ns(16_003_000))]);
    assert_eq!(outcome.ended, Ns(16_003_000));
    assert!(outcome.stuck.is_empty());
}

/// A pipe of capacity 2 lets its writer at most two tokens ahead; a channel of capacity 0 hands
/// over directly.
#[test]
fn a_full_channel_blocks_its_sender() {
    for (capacity, ahead) in [(2, 3), (0, 1)] {
        let writer =
            Program::forever([Op::Send { channel: ChannelId(0), count: 1 }, Op::Run(fixed(1_000))]);
        let reader = Program::forever([Op::Receive(ChannelId(0)), Op::Sleep(fixed(1_000_000))]);
        let channel = ChannelSpec { capacity: Some(capacity), ..ChannelSpec::default() };
        let tasks = vec![TaskSpec::new("writer", writer), TaskSpec::new("reader", reader)];
        let (outcome, _) = events(tasks, vec![channel], 0);
        // The reader takes one at once and one each millisecond.
        let received = outcome.metrics.tasks[1].response.count();
        let sent = outcome.metrics.channels[0].sent;
        assert!((98..=100).contains(&received), "{received}");
        assert!(
            (received..=received + ahead).contains(&sent),
            "capacity {capacity}: {sent} of {received}"
        );
    }
}

/// A reader that needs three tokens is woken by the third, whatever sent the two before it, and by
/// none of those; what is there already does not block it.
#[test]
fn a_receiver_may_need_several_tokens() {
    let writer = |first: u64| {
        let pause = Op::Sleep(fixed(1_000_000 - 1_000));
        let ops = [
            Op::Sleep(fixed(first)),
            Op::Send { channel: ChannelId(0), count: 1 },
            Op::Run(fixed(1_000)),
            pause,
        ];
        Program { repeat_from: Some(1), ..Program::once(ops) }
    };
    let reader = Program::forever([
        Op::ReceiveCount { channel: ChannelId(0), count: 3 },
        Op::Run(fixed(1_000)),
    ]);
    // One token every half of a millisecond, from 100 us on.
    let tasks = vec![
        TaskSpec::new("a", writer(100_000)),
        TaskSpec::new("b", writer(600_000)),
        TaskSpec::new("reader", reader),
    ];
    let (outcome, events) = events(tasks.clone(), vec![ChannelSpec::default()], 0);
    let wakes = events.iter().filter_map(|e| match e.kind {
        EventKind::Wake { task: TaskId(2), waker } if e.at > Ns::ZERO => Some((e.at, waker)),
        _ => None,
    });
    let wakes: Vec<(Ns, Waker)> = wakes.collect();
    let [a, b] = [0, 1].map(|task| Waker::Task(TaskId(task)));
    assert_eq!(wakes[..3], [(Ns(1_100_000), a), (Ns(2_600_000), b), (Ns(4_100_000), a)]);
    let sent = outcome.metrics.channels[0].sent;
    assert_eq!(wakes.len() as u64, sent / 3, "{sent}");
    // Seven are there: two rounds at once, then it waits for two more.
    let (_, events) =
        self::events(tasks, vec![ChannelSpec { initial: 7, ..ChannelSpec::default() }], 0);
    let woken = |e: &&SchedEvent| {
        matches!(e.kind, EventKind::Wake { task: TaskId(2), .. }) && e.at > Ns::ZERO
    };
    let first = events.iter().find(woken).unwrap();
    assert_eq!(first.at, Ns(600_000));
}

/// Two tasks that take two locks in opposite order wait for ever, and the outcome says for which.
#[test]
fn a_deadlock_is_reported() {
    let program = |a, b| {
        Program::once([
            Op::Lock(LockId(a)),
            Op::Sleep(fixed(1_000_000)),
            Op::Lock(LockId(b)),
            Op::Run(fixed(1)),
        ])
    };
    let tasks = vec![TaskSpec::new("x", program(0, 1)), TaskSpec::new("y", program(1, 0))];
    let (outcome, _) = events(tasks, Vec::new(), 2);
    let stuck = |task, lock, owner| Stuck {
        task: TaskId(task),
        waits_for: WaitsFor::Lock(LockId(lock), Some(TaskId(owner))),
    };
    assert_eq!(outcome.stuck, [stuck(0, 1, 1), stuck(1, 0, 0)]);
    assert_eq!(outcome.ended, Ns(1_000_000));
}

/// A circle of wakeups without time is an error that names a task, not an endless loop.
#[test]
fn a_circle_without_time_is_an_error() {
    let pass = |from, to| {
        Program::forever([
            Op::Receive(ChannelId(from)),
            Op::Send { channel: ChannelId(to), count: 1 },
        ])
    };
    let full = ChannelSpec { initial: 1, ..ChannelSpec::default() };
    let workload = Workload {
        tasks: vec![TaskSpec::new("ping", pass(0, 1)), TaskSpec::new("pong", pass(1, 0))],
        channels: vec![full, ChannelSpec::default()],
        ..Workload::default()
    };
    let rr = scheduler("rr", 1);
    let result = run(&Machine::flat(1), &workload, rr.as_ref(), &RunOptions::default(), &mut ());
    assert!(
        matches!(result, Err(SimError::Livelock { ref task, .. }) if task == "ping" || task == "pong")
    );
}

/// Children run, end, and can be started again; `Repeat` bodies run `times + 1` times.
#[test]
fn spawn_and_repeat() {
    let parent = Program::once([
        Op::Spawn(TaskId(1)),
        Op::Spawn(TaskId(1)), // it lives: no effect
        Op::Sleep(fixed(10_000_000)),
        Op::Repeat { to: 0, times: 2 },
        Op::Run(fixed(5)),
    ]);
    let mut child = TaskSpec::new("child", Program::once([Op::Run(fixed(2_000_000))]));
    child.start = Start::Spawned;
    let (outcome, events) = events(vec![TaskSpec::new("parent", parent), child], Vec::new(), 0);
    assert_eq!(outcome.metrics.tasks[1].cpu_ns, Ns::from_ms(6));
    assert_eq!(outcome.ended, Ns(30_000_005));
    let born = events
        .iter()
        .filter(|e| matches!(e.kind, EventKind::New { task: TaskId(1), parent: Some(TaskId(0)) }));
    assert_eq!(born.count(), 3);
}

/// The warm-up is left out of the metrics, and only of the metrics.
#[test]
fn warmup_cuts_metrics_exactly() {
    let task = TaskSpec::new("t", Program::closed(Ns::from_ms(3), Ns::from_ms(7)));
    let go = |warmup| {
        let options = RunOptions { duration: Ns::from_ms(1_000), warmup, ..RunOptions::default() };
        run(
            &Machine::flat(1),
            &workload(vec![task.clone()]),
            scheduler("rr", 1).as_ref(),
            &options,
            &mut (),
        )
        .unwrap()
    };
    let (whole, cut) = (go(Ns::ZERO), go(Ns::from_ms(501)));
    assert_eq!(whole.event_hash, cut.event_hash);
    assert_eq!(whole.metrics.tasks[0].cpu_ns, Ns::from_ms(300));
    // From 501 on: 2 ms of the activation at 500, then 49 of 3 ms.
    assert_eq!(cut.metrics.tasks[0].cpu_ns, Ns::from_ms(149));
    assert_eq!(cut.metrics.cpus[0].idle_ns, Ns::from_ms(499 - 149));
}

/// One run and the same in a batch on two threads: the same hash.
#[test]
fn threads_change_nothing() {
    let hash = |seed: u64| {
        let mut program = Program::default();
        let work = program.draw(Draw::Exponential { mean: Ns::from_us(700) });
        let sleep = program.draw(Draw::LogNormal { median: MS, sigma_permille: 700 });
        program.ops = vec![Op::Run(work), Op::Sleep(sleep)];
        program.repeat_from = Some(0);
        let tasks = (0..12).map(|i| TaskSpec::new(format!("t{i}"), program.clone())).collect();
        let options = RunOptions { seed, ..RunOptions::for_time(Ns::from_ms(500)) };
        let linux = scheduler("linux-6.18", 4);
        run(&Machine::flat(4), &workload(tasks), linux.as_ref(), &options, &mut ())
            .unwrap()
            .event_hash
    };
    let alone: Vec<u64> = (0..6).map(hash).collect();
    let batch: Vec<u64> = std::thread::scope(|scope| {
        let halves = [
            scope.spawn(move || (0..3).map(hash).collect::<Vec<_>>()),
            scope.spawn(move || (3..6).map(hash).collect()),
        ];
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
    });
    assert_eq!(alone, batch);
    let mut different = alone;
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), 6, "seeds matter");
}
