//! Cases that `cargo xtask stress` found: leaving ticks out changed the schedule. Each stays here
//! as it was.

use schedlab_model::{
    Amount, ChannelId, ChannelSpec, CpuId, CpuSet, Draw, Nice, Ns, Op, Policy, Program, Start,
    TaskId, TaskSpec, Workload,
};
use schedlab_scheduler::registry;
use schedlab_sim::{Machine, RunOptions, TickSkew};

fn fixed(ns: u64) -> Amount {
    Amount::Fixed(Ns(ns))
}

/// Tasks that sleep and wake on two CPUs, one of them for microseconds at a time, and one that
/// forks.
fn restless() -> Workload {
    let mut busy = Program::once([
        Op::Run(Amount::Draw(0)),
        Op::Sleep(fixed(8_000_000)),
        Op::Repeat { to: 0, times: 20 },
    ]);
    busy.draws = vec![Draw::Uniform { low: Ns(2_089_092), high: Ns(4_178_184) }];
    let mut busy = TaskSpec::new("busy", busy);
    busy.nice = Nice::new(-6).unwrap();
    busy.affinity = CpuSet::single(CpuId(0));
    let mut short = Program::forever([Op::Run(Amount::Draw(0)), Op::Sleep(Amount::Draw(1))]);
    short.draws = vec![
        Draw::LogNormal { median: Ns(38_956), sigma_permille: 500 },
        Draw::LogNormal { median: Ns(2_000), sigma_permille: 500 },
    ];
    let mut short = TaskSpec::new("short", short);
    short.start = Start::AsleepUntil(Ns(3_511_000));
    let mut child = TaskSpec::new("child", Program::once([Op::Run(fixed(39_725))]));
    child.start = Start::Spawned;
    let parent = Program::forever([Op::Spawn(TaskId(2)), Op::Sleep(fixed(400_000))]);
    let tasks = vec![busy, short, child, TaskSpec::new("parent", parent)];
    Workload { tasks, ..Workload::default() }
}

/// Found by `cargo xtask stress` (seed 5037): a tick edge fell between a wakeup on an idle CPU and
/// its decision; the periodic balance ran in it although that tick had not been asked for.
#[test]
fn an_edge_while_a_cpu_leaves_idle_does_not_balance() {
    let mut machine = Machine::flat(2);
    machine.hz = 100;
    machine.ticks = TickSkew::Staggered;
    machine.costs.idle_decide_ns = Ns(8_578);
    machine.costs.other_decide_ns = Ns(573);
    machine.costs.refill_core_ns = Ns(28_502);
    for scheduler in ["linux-6.1", "linux-6.12", "linux-6.18"] {
        let run = |every_tick| {
            let scheduler = registry::build(&scheduler.parse().unwrap(), 2).unwrap();
            let options = RunOptions {
                seed: 5037,
                duration: Ns::from_ms(904),
                every_tick,
                ..RunOptions::default()
            };
            schedlab_sim::run(&machine, &restless(), &*scheduler, &options, &mut ()).unwrap()
        };
        let (some, every) = (run(false), run(true));
        assert!(some.events > 50_000, "{scheduler}: {} events", some.events);
        assert_eq!((some.events, some.event_hash), (every.events, every.event_hash), "{scheduler}");
    }
}

/// A tick edge fell between a wakeup on an idle CPU and its decision. Delivered, it refreshed the
/// clock that the wakeup had just refreshed for the decision; left out, it was charged to the task
/// that came next. Slices that end by HRTICK (7.2) showed the difference.
#[test]
fn an_edge_while_a_cpu_leaves_idle_is_not_the_next_tasks() {
    let mut machine = Machine::flat(1);
    machine.costs.idle_decide_ns = Ns::from_us(30);
    // They wake 10 us before the edge of 8 ms and take turns.
    let hog = |name: &str, start: u64| {
        let mut task = TaskSpec::new(
            name,
            Program::forever([Op::Run(fixed(9_000_000)), Op::Sleep(fixed(1_000_000))]),
        );
        task.start = Start::AsleepUntil(Ns(start));
        task
    };
    let tasks = vec![hog("a", 7_990_000), hog("b", 9_000_000)];
    let workload = Workload { tasks, ..Workload::default() };
    for scheduler in
        ["linux-2.6.32", "linux-6.1", "linux-6.18", "linux-6.18:features.HRTICK=true", "linux-7.2"]
    {
        let run = |every_tick| {
            let scheduler = registry::build(&scheduler.parse().unwrap(), 1).unwrap();
            let options = RunOptions { every_tick, ..RunOptions::for_time(Ns::from_ms(200)) };
            let mut events = Vec::new();
            schedlab_sim::run(&machine, &workload, &*scheduler, &options, &mut events).unwrap();
            events
        };
        let (some, every) = (run(false), run(true));
        let differs = some.iter().zip(&every).find(|(some, every)| some != every);
        assert_eq!((differs, some.len()), (None, every.len()), "{scheduler}");
    }
}

/// Found by `cargo xtask stress` (seed 636): a tick edge while the interrupt that wakes an idle CPU
/// was on its way; the tick, which had not been asked for, found the task on the queue and was
/// faster.
#[test]
fn an_edge_is_not_faster_than_an_interrupt() {
    let mut machine = Machine::flat(2);
    machine.costs.ipi_latency_ns = Ns(25_865);
    // They send to each other across the CPUs, at all distances from an edge.
    let there = Program::forever([
        Op::Receive(ChannelId(0)),
        Op::Run(fixed(10_001)),
        Op::Send { channel: ChannelId(1), count: 1 },
    ]);
    let back = Program::forever([
        Op::Receive(ChannelId(1)),
        Op::Run(fixed(7_003)),
        Op::Send { channel: ChannelId(0), count: 1 },
    ]);
    let task = |name: &str, program: Program, cpu: u32| {
        let mut task = TaskSpec::new(name, program);
        task.affinity = CpuSet::single(CpuId(cpu));
        task
    };
    let channel = |initial| ChannelSpec { initial, ..ChannelSpec::default() };
    let workload = Workload {
        tasks: vec![task("there", there, 0), task("back", back, 1)],
        channels: vec![channel(1), channel(0)],
        ..Workload::default()
    };
    for scheduler in ["linux-2.4-o1", "linux-2.6.0", "linux-2.6.22", "linux-2.6.32", "linux-6.18"] {
        let run = |every_tick| {
            let scheduler = registry::build(&scheduler.parse().unwrap(), 2).unwrap();
            let options = RunOptions { every_tick, ..RunOptions::for_time(Ns::from_ms(1_000)) };
            schedlab_sim::run(&machine, &workload, &*scheduler, &options, &mut ()).unwrap()
        };
        let (some, every) = (run(false), run(true));
        assert!(some.events > 10_000, "{scheduler}: {} events", some.events);
        assert_eq!((some.events, some.event_hash), (every.events, every.event_hash), "{scheduler}");
    }
}

/// Found by `cargo xtask stress` (seed 9614): a CPU that had borrowed real-time budget until it had
/// a whole period left its ticks out, since nothing could throttle it; but others read at any time
/// how much is used there, and take what is not.
#[test]
fn a_cpu_with_a_whole_period_of_budget_still_counts_what_it_uses() {
    let mut machine = Machine::flat(2);
    machine.hz = 1000;
    let periodic = |name: &str, cpu: u32, run: u64, sleep: u64| {
        let program = Program::forever([Op::Run(fixed(run)), Op::Sleep(fixed(sleep))]);
        let mut task = TaskSpec::new(name, program);
        task.policy = Policy::Fifo(10);
        task.affinity = CpuSet::single(CpuId(cpu));
        task
    };
    for (period, runtime) in [(123, 83), (2_000, 1_200)] {
        let spec =
            format!("linux-2.6.32:sched_rt_period_us={period},sched_rt_runtime_us={runtime}");
        // Each alone is over its budget, at changing distances from the other.
        let tasks =
            vec![periodic("a", 0, 9_000_000, 3_000_000), periodic("b", 1, 17_000_000, 9_000_000)];
        let workload = Workload { tasks, ..Workload::default() };
        let run = |every_tick| {
            let scheduler = registry::build(&spec.parse().unwrap(), 2).unwrap();
            let options = RunOptions { every_tick, ..RunOptions::for_time(Ns::from_ms(500)) };
            schedlab_sim::run(&machine, &workload, &*scheduler, &options, &mut ()).unwrap()
        };
        let (some, every) = (run(false), run(true));
        assert!(some.events > 500, "{spec}: {} events", some.events);
        assert_eq!((some.events, some.event_hash), (every.events, every.event_hash), "{spec}");
    }
}
