//! Where a wakeup takes effect while another task is in the kernel, by preemption model.

use proptest::prelude::*;
use schedlab_model::{
    Amount, ChannelId, ChannelSpec, EventKind, Ns, Op, Policy, Program, SchedEvent, Section,
    SourceKind, SourceSpec, Start, TaskId, TaskSpec, Workload,
};
use schedlab_scheduler::registry;
use schedlab_sim::{Costs, Machine, Outcome, PreemptModel, RunOptions};

const MODELS: [PreemptModel; 5] = PreemptModel::ALL;

fn us(us: u64) -> Amount {
    Amount::Fixed(Ns::from_us(us))
}

fn kernel(section: Section, length: u64) -> Op {
    Op::Kernel { section, length: us(length) }
}

fn machine(cpus: usize, model: PreemptModel) -> Machine {
    let mut machine = Machine::flat(cpus);
    // Ticks at 2.5 ms, 5 ms, ...
    machine.hz = 400;
    machine.preemption.model = model;
    machine
}

fn simulate(
    machine: &Machine,
    workload: &Workload,
    every_tick: bool,
) -> (Outcome, Vec<SchedEvent>) {
    let scheduler =
        registry::build(&"linux-6.18".parse().unwrap(), machine.topology.cpus()).unwrap();
    let mut events = Vec::new();
    let options = RunOptions { every_tick, ..RunOptions::for_time(Ns::from_ms(20)) };
    let outcome = schedlab_sim::run(machine, workload, &*scheduler, &options, &mut events).unwrap();
    (outcome, events)
}

/// When `task` runs first, in us.
fn runs_at(events: &[SchedEvent], task: usize) -> u64 {
    let task = Some(TaskId::from(task));
    let hit =
        |event: &&SchedEvent| matches!(event.kind, EventKind::Switch { next, .. } if next == task);
    events.iter().find(hit).map(|event| event.at.0 / 1000).expect("it runs")
}

fn sleeper(name: &str, policy: Policy, at: u64) -> TaskSpec {
    let mut task = TaskSpec::new(name, Program::once([Op::Run(us(10))]));
    (task.policy, task.start) = (policy, Start::AsleepUntil(Ns::from_us(at)));
    task
}

/// In the kernel from 1 ms to 5 ms: preemptible, a point, a spinlock, preemption off, interrupts
/// off, 1 ms each.
fn in_the_kernel() -> TaskSpec {
    let mut task = TaskSpec::new(
        "kernel",
        Program::forever([
            Op::Run(us(1000)),
            kernel(Section::Preemptible, 1000),
            Op::CondResched,
            kernel(Section::Spinlock, 1000),
            kernel(Section::PreemptOff, 1000),
            kernel(Section::IrqsOff, 1000),
            Op::Run(us(1000)),
        ]),
    );
    task.policy = Policy::Idle;
    task
}

/// When a task that wakes at `at` runs, under each model.
fn latencies(policy: Policy, at: u64) -> Vec<u64> {
    let run = |model| {
        let tasks = vec![in_the_kernel(), sleeper("wakes", policy, at)];
        let workload = Workload { tasks, ..Workload::default() };
        let (outcome, events) = simulate(&machine(1, model), &workload, false);
        let (again, _) = simulate(&machine(1, model), &workload, true);
        assert_eq!(outcome.event_hash, again.event_hash, "{model:?}: ticks matter");
        let ran = runs_at(&events, 1);
        assert_eq!(
            outcome.metrics.held.count > 0,
            ran > at && at < 4000,
            "{model:?}: {:?}",
            outcome.metrics.held
        );
        ran
    };
    MODELS.map(run).to_vec()
}

#[test]
fn a_real_time_task_waits_for_what_its_model_forbids() {
    // In the order none, voluntary, full, lazy, rt.
    for (at, expected) in [
        (500, [500, 500, 500, 500, 500]),
        (1500, [5000, 2000, 1500, 1500, 1500]),
        (2500, [5000, 5000, 3000, 3000, 2500]),
        (3500, [5000, 5000, 4000, 4000, 4000]),
        (4500, [5000, 5000, 5000, 5000, 5000]),
        (5500, [5500, 5500, 5500, 5500, 5500]),
    ] {
        assert_eq!(latencies(Policy::Fifo(1), at), expected, "woken at {at} us");
    }
}

/// Lazy: woken at 1.5 ms it is urgent from the tick at 2.5 ms on, and then waits for the end of the
/// spinlock.
#[test]
fn a_fair_task_waits_for_the_tick_in_the_lazy_model() {
    assert_eq!(latencies(Policy::Other, 1500), [5000, 2000, 1500, 3000, 1500]);
    assert_eq!(latencies(Policy::Other, 4500), [5000; 5]);
}

#[test]
fn interrupts_wait_while_they_are_off() {
    let tasks = vec![in_the_kernel(), sleeper("wakes", Policy::Fifo(1), 4200)];
    let workload = Workload { tasks, ..Workload::default() };
    let (_, events) = simulate(&machine(1, PreemptModel::Full), &workload, false);
    let wake =
        events.iter().find(|event| matches!(event.kind, EventKind::Wake { task: TaskId(1), .. }));
    assert_eq!(wake.unwrap().at, Ns::from_ms(5));
}

/// A wakeup by a task of another CPU sends no interrupt in the lazy model: user code goes on up to
/// its tick.
#[test]
fn lazy_requests_of_other_cpus_wait_for_the_tick() {
    for (model, policy, expected) in [
        (PreemptModel::Lazy, Policy::Other, 2500),
        (PreemptModel::Lazy, Policy::Fifo(1), 1000),
        (PreemptModel::Full, Policy::Other, 1000),
    ] {
        let channel = ChannelId(0);
        let mut hog = TaskSpec::new("hog", Program::hog());
        (hog.policy, hog.affinity) = (Policy::Idle, "0".parse().unwrap());
        let mut receiver =
            TaskSpec::new("receiver", Program::once([Op::Receive(channel), Op::Run(us(10))]));
        (receiver.policy, receiver.affinity) = (policy, "0".parse().unwrap());
        let mut sender = TaskSpec::new(
            "sender",
            Program::once([Op::Run(us(1000)), Op::Send { channel, count: 1 }, Op::Run(us(1))]),
        );
        sender.affinity = "1".parse().unwrap();
        let channels = vec![ChannelSpec::default()];
        let workload =
            Workload { tasks: vec![hog, receiver, sender], channels, ..Workload::default() };
        let (_, events) = simulate(&machine(2, model), &workload, false);
        let woken = events
            .iter()
            .position(|e| matches!(e.kind, EventKind::Wake { task: TaskId(1), .. }))
            .unwrap();
        assert_eq!(runs_at(&events[woken..], 1), expected, "{model:?} {policy}");
    }
}

/// The interrupt thread (fifo:50) wakes the receiver of a request after its handler of 100 us; a
/// more important task goes before it, and without threads the receiver is woken at once.
#[test]
fn threaded_interrupts_are_scheduled() {
    for (threads, priority, woken) in [(true, 40, 5100), (true, 60, 6100), (false, 60, 5000)] {
        let channel = ChannelId(0);
        let receiver =
            TaskSpec::new("server", Program::forever([Op::Receive(channel), Op::Run(us(10))]));
        let mut urgent =
            TaskSpec::new("urgent", Program::once([Op::Sleep(us(5000)), Op::Run(us(1000))]));
        urgent.policy = Policy::Fifo(priority);
        let mut thread = TaskSpec::new("irq/0", Program::forever([Op::Interrupts(us(100))]));
        thread.policy = Policy::Fifo(50);
        let sources = vec![SourceSpec {
            name: "outside".to_owned(),
            into: channel,
            kind: SourceKind::Recorded { at: vec![Ns::from_us(5000)] },
            one_way: schedlab_model::Draw::Fixed(Ns::ZERO),
        }];
        let channels = vec![ChannelSpec::default()];
        let tasks = vec![receiver, urgent, thread];
        let mut workload = Workload { tasks, channels, sources, ..Workload::default() };
        let mut machine = machine(1, PreemptModel::Rt);
        if threads {
            machine.preemption.irq_threads = vec![TaskId(2)];
        } else {
            workload.tasks.truncate(2);
        }
        let (_, events) = simulate(&machine, &workload, false);
        let wakes: Vec<&SchedEvent> = events
            .iter()
            .filter(|e| matches!(e.kind, EventKind::Wake { task: TaskId(0), .. }))
            .collect();
        assert_eq!(wakes.len(), 1);
        assert_eq!(wakes[0].at, Ns::from_us(woken), "threads {threads}, priority {priority}");
    }
}

#[test]
fn interrupt_threads_are_checked() {
    let workload =
        Workload { tasks: vec![TaskSpec::new("a", Program::hog())], ..Workload::default() };
    let mut machine = machine(1, PreemptModel::Rt);
    machine.preemption.irq_threads = vec![TaskId(0)];
    let scheduler = registry::build(&"rr".parse().unwrap(), 1).unwrap();
    let run = |machine: &Machine| {
        schedlab_sim::run(machine, &workload, &*scheduler, &RunOptions::default(), &mut ())
            .unwrap_err()
            .to_string()
    };
    assert!(run(&machine).contains("serves no interrupts"));
    machine.preemption.irq_threads.clear();
    machine.preemption.irq_threads.extend([TaskId(0), TaskId(0)]);
    assert!(run(&machine).contains("2 interrupt threads for 1 CPUs"));
}

/// Models make no difference without kernel code (but the lazy one, whose fair wakeups wait for the
/// tick).
#[test]
fn without_sections_the_models_are_one() {
    let tasks = (1..5)
        .map(|n| TaskSpec::new("t", Program::closed(Ns::from_us(300 * n), Ns::from_us(777))))
        .collect();
    let workload = Workload { tasks, ..Workload::default() };
    let hash = |model| simulate(&machine(2, model), &workload, false).0.event_hash;
    let full = hash(PreemptModel::Full);
    for model in [PreemptModel::None, PreemptModel::Voluntary, PreemptModel::Rt] {
        assert_eq!(hash(model), full, "{model:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: schedlab_testing::cases(200), ..ProptestConfig::default() })]
    /// Random sections, schedulers and costs: no task is lost, all assertions hold, and ticks that
    /// are left out do not matter. A section without preemption is never left.
    #[test]
    fn sections_keep_every_invariant(
        model in 0usize..5, cpus in 1usize..4, costs in any::<bool>(),
        tasks in prop::collection::vec((0usize..4, 1u64..400, 0u64..400, 0u64..400, 0u8..4), 1..8),
    ) {
        let mut machine = machine(cpus, MODELS[model]);
        machine.costs = if costs { Costs::modern_vm() } else { Costs::default() };
        let task = |(section, a, b, pause, policy): (usize, u64, u64, u64, u8)| {
            let mut ops = vec![Op::Run(us(a)), kernel(Section::ALL[section], b), Op::CondResched, kernel(Section::Spinlock, a)];
            ops.push(if pause > 0 { Op::Sleep(us(pause)) } else { Op::Yield });
            let mut task = TaskSpec::new("t", Program::forever(ops));
            task.policy = [Policy::Other, Policy::Idle, Policy::Fifo(1), Policy::Rr(2)][usize::from(policy)];
            task
        };
        let workload = Workload { tasks: tasks.into_iter().map(task).collect(), ..Workload::default() };
        for name in ["linux-6.18", "linux-6.1", "rr", "xen-credit2"] {
            let run = |every_tick| {
                let scheduler = registry::build(&name.parse().unwrap(), cpus).unwrap();
                let options = RunOptions { every_tick, ..RunOptions::for_time(Ns::from_ms(30)) };
                let mut checker = crate::common::checker::Checker::new(&workload, cpus);
                schedlab_sim::run(&machine, &workload, &*scheduler, &options, &mut checker).unwrap()
            };
            let (first, second) = (run(false), run(true));
            prop_assert_eq!(first.event_hash, second.event_hash, "{}", name);
        }
    }
}
