//! The measurements of 2001 and 2002 (docs/sources/linux-facts.md, 5.2) as shapes (6 there) of the
//! cost model `p3-xeon-700`: which curve grows and which is flat, and which scheduler is ahead. The
//! factors are in the tests; absolute values only where the machine is that of the measurement (8 x
//! 700 MHz).

use schedlab_model::{
    Amount, ChannelId, ChannelSpec, CpuId, EventKind, Ns, Op, Program, SchedEvent, Start, TaskSpec,
    Workload,
};
use schedlab_scheduler::registry;
use schedlab_sim::{Costs, Machine, Metrics, RunOptions, TickSkew};

const STANDARD: &str = "linux-2.4";
const MQ: &str = "linux-2.4-mq";
const O1: &str = "linux-2.4-o1";

fn machine(cpus: usize, costs: Costs) -> Machine {
    let mut machine = Machine::flat(cpus);
    machine.hz = 100;
    machine.costs = costs;
    // The local timers of 2.4 on i386 are spread evenly over the period.
    let edge = |cpu: usize| Ns(machine.tick_ns().0 * (cpus + 1 + cpu) as u64 / (cpus + 1) as u64);
    machine.ticks = TickSkew::At((0..cpus).map(edge).collect());
    machine
}

fn run(
    scheduler: &str,
    machine: &Machine,
    workload: &Workload,
    duration: Ns,
) -> (Metrics, Vec<SchedEvent>) {
    let built = registry::build(&scheduler.parse().unwrap(), machine.topology.cpus()).unwrap();
    let options = RunOptions::for_time(duration);
    let mut events = Vec::new();
    let outcome = schedlab_sim::run(machine, workload, &*built, &options, &mut events).unwrap();
    (outcome.metrics, events)
}

fn priced(scheduler: &str, cpus: usize, workload: &Workload, duration: Ns) -> Metrics {
    run(scheduler, &machine(cpus, Costs::p3_xeon_700()), workload, duration).0
}

fn thread(name: String, ops: Vec<Op>) -> TaskSpec {
    TaskSpec { process: 1, ..TaskSpec::new(name, Program::forever(ops)) }
}

fn fixed(ns: u64) -> Op {
    Op::Run(Amount::Fixed(Ns(ns)))
}

/// When thread `i` of a process is created: one after the other, as in smp-evaluation. (All at once
/// they would all be given to CPU 0, and yielding asks no idle CPU for help.)
fn created(i: u32) -> Start {
    Start::At(Ns(u64::from(i) * 150_000))
}

/// Kravetz' yield test: every thread calls sched_yield in a loop. The call itself: 300 ns (chosen).
fn yielders(threads: u32) -> Workload {
    let one =
        |i| TaskSpec { start: created(i), ..thread(format!("y{i}"), vec![fixed(300), Op::Yield]) };
    Workload { tasks: (0..threads).map(one).collect(), ..Workload::default() }
}

/// Microseconds per yield, all CPUs together: wall time over yields, each of which is a decision.
fn yield_us(scheduler: &str, cpus: usize, threads: u32) -> f64 {
    let warmup = Ns(u64::from(threads) * 150_000 + 10_000_000);
    let machine = machine(cpus, Costs::p3_xeon_700());
    let built = registry::build(&scheduler.parse().unwrap(), cpus).unwrap();
    let options = RunOptions { warmup, ..RunOptions::for_time(warmup + Ns::from_ms(100)) };
    let outcome =
        schedlab_sim::run(&machine, &yielders(threads), &*built, &options, &mut ()).unwrap();
    outcome.metrics.elapsed().0 as f64 / 1e3 / outcome.metrics.decisions.calls as f64
}

/// S2. Published for 8 x 700 MHz: 2.4: 5.6, 71, 143, 196 us at 64, 256, 512, 1024 threads;
/// multi-queue 1.48 at 128, 1.52 at 256, 1.66 at 512, 6.2 at 1024.
#[test]
fn a_yield_costs_more_once_the_list_leaves_the_cache() {
    let standard = [16, 64, 256, 1024].map(|n| yield_us(STANDARD, 8, n));
    let mq = [16, 128, 512].map(|n| yield_us(MQ, 8, n));
    let o1 = [16, 256, 1024].map(|n| yield_us(O1, 8, n));
    // Published 4.6, 5.6, 71, 196. (At 1024 the model is 2.7 times dearer: 300 ns a line, which 196
    // us would make 190.)
    assert!((4.0..9.0).contains(&standard[0]) && (5.0..9.0).contains(&standard[1]), "{standard:?}");
    assert!(standard[2] > 5.0 * standard[1] && (55.0..90.0).contains(&standard[2]), "{standard:?}");
    assert!(standard[3] > 2.0 * standard[2], "{standard:?}");
    // Flat to 512. That it grows at 1024 and more is NOT reproduced: the lists of most CPUs stay
    // short here, as yielding moves no task.
    assert!(mq[2] < 1.5 * mq[0] && standard[2] > 50.0 * mq[2], "{mq:?}");
    assert!(o1[2] < 1.1 * o1[0] && o1[0] < 1.1 * o1[2], "{o1:?}");
}

/// Molnar 2002-01-04: yield switches/s, 2-way with 4 processes 241 k and 977 k; 8-way with 16: 108
/// k and 6.12 M.
#[test]
fn one_lock_is_slower_on_eight_cpus_than_on_two() {
    let rate = |scheduler, cpus, threads| 1e3 / yield_us(scheduler, cpus, threads);
    let (two, eight) = (rate(STANDARD, 2, 4), rate(STANDARD, 8, 16));
    assert!(eight < 0.5 * two, "{eight} k/s on 8 CPUs, {two} on 2");
    // Published 6.3 times: more than four times the CPUs can give at one price of a call, as here.
    let (two, eight) = (rate(O1, 2, 4), rate(O1, 8, 16));
    assert!((3.5..6.5).contains(&(eight / two)), "{eight} k/s on 8 CPUs, {two} on 2");
}

/// Rooms of the chat benchmark: in each, `users` clients send to a server thread of theirs, which
/// passes the message on to every member's reader. Closed loop; the work of a message (20 us in
/// all, chosen) is not published.
fn chat(rooms: u32, users: u32) -> Workload {
    let mut workload = Workload::default();
    for room in 0..rooms {
        let base = workload.channels.len() as u32;
        // 0 .. users: to the server thread; users .. 2 users: to the reader.
        for channel in 0..2 * users {
            let initial = 0;
            let name = format!("r{room}-{channel}");
            workload.channels.push(ChannelSpec { name, initial, capacity: Some(8) });
        }
        for user in 0..users {
            let (to, from) = (ChannelId(base + user), ChannelId(base + users + user));
            let send = |channel| Op::Send { channel, count: 1 };
            workload.tasks.push(thread(format!("w{room}-{user}"), vec![fixed(10_000), send(to)]));
            let mut server = vec![Op::Receive(to), fixed(5_000)];
            server.extend((0..users).map(|other| send(ChannelId(base + users + other))));
            workload.tasks.push(thread(format!("s{room}-{user}"), server));
            workload
                .tasks
                .push(thread(format!("r{room}-{user}"), vec![Op::Receive(from), fixed(5_000)]));
        }
    }
    workload
}

fn messages(scheduler: &str, cpus: usize, rooms: u32) -> f64 {
    let mut workload = chat(rooms, 10);
    for (i, task) in workload.tasks.iter_mut().enumerate() {
        task.start = created(i as u32);
    }
    let metrics = priced(scheduler, cpus, &workload, Ns::from_ms(700));
    let readers = metrics.tasks.iter().filter(|task| task.name.starts_with('r'));
    readers.map(|task| task.response.count()).sum::<u64>() as f64
}

/// Published (2.5.2-pre9 with a global queue, O(1)-D1; 30 rooms): 2 CPUs 124,314 and 183,366, 4
/// CPUs 153,506 and 302,615, 8 CPUs 42,133 and 302,513 messages/s. Of the fall from 4 to 8 CPUs
/// (to 0.27) the model has a part only (to 0.83 with 30 rooms; to less than 0.7 when the machine
/// had one bus, which table 1 of the paper (docs/sources/linux-facts.md, 5.1) contradicts). Why the
/// rest is missing is not known.
#[test]
fn chat_is_slower_on_eight_cpus_than_on_four_with_one_lock() {
    for rooms in [20, 30] {
        let (four, eight) = (messages(STANDARD, 4, rooms), messages(STANDARD, 8, rooms));
        assert!(eight < 0.9 * four, "{rooms} rooms: {eight} on 8 CPUs, {four} on 4");
    }
    let (standard, o1) = (messages(STANDARD, 8, 30), messages(O1, 8, 30));
    assert!(o1 > 5.0 * standard, "30 rooms on 8 CPUs: {o1} and {standard}");
    let (standard, o1) = (messages(STANDARD, 2, 1), messages(O1, 2, 1));
    assert!(o1 < 1.1 * standard, "one room on 2 CPUs: {o1} and {standard}");
}

/// Libenzi's reflex as we read it: pairs that hand a token to and fro.
fn reflex(tasks: u32) -> Workload {
    let mut workload = Workload::default();
    for i in 0..tasks {
        let initial = u32::from(i == 0);
        workload.channels.push(ChannelSpec { name: format!("c{i}"), initial, capacity: None });
        let next = ChannelId((i + 1) % tasks);
        let ops =
            vec![Op::Receive(ChannelId(i)), fixed(1_000), Op::Send { channel: next, count: 1 }];
        workload.tasks.push(thread(format!("t{i}"), ops));
    }
    workload
}

/// Published us a round on 8 CPUs, global queue and O(1): 2 tasks 6.3 and 9.1; 16: 15.0 and 1.50;
/// 128: 25.0 and 2.28. What a round is was not published: one token goes round here, so only the
/// growth with the number of tasks is comparable. That the global queue is ahead with 2 tasks is
/// NOT reproduced: both wake on the CPU of the waker here.
#[test]
fn reflex_grows_with_the_tasks_on_one_queue_only() {
    let us = |scheduler, tasks| {
        let metrics = priced(scheduler, 8, &reflex(tasks), Ns::from_ms(200));
        let hops: u64 = metrics.tasks.iter().map(|task| task.wakeups).sum();
        metrics.elapsed().0 as f64 / 1e3 / hops as f64
    };
    let standard = [2, 16, 128].map(|tasks| us(STANDARD, tasks));
    let o1 = [2, 16, 128].map(|tasks| us(O1, tasks));
    assert!(standard[2] > 3.0 * standard[0] && standard[0] < 1.1 * o1[0], "{standard:?} {o1:?}");
    assert!(o1[2] < 1.1 * o1[0] && standard[2] > 3.0 * o1[2], "{standard:?} {o1:?}");
}

/// lockmeter, 8-way VolanoMark on 2.4.4: about 70 runnable, utilisation 76.3 %, contention 89.2 %,
/// hold 8.8 us, wait 49 us.
///
/// Here: a chat of eight rooms keeps the lock as busy; its list is half as long, so a hold is
/// shorter, and the wait with it.
#[test]
fn lockmeter_the_one_lock_is_contended_and_waited_for_several_holds() {
    let metrics = priced(STANDARD, 8, &chat(8, 4), Ns::from_ms(500));
    let d = metrics.decisions;
    let utilisation = d.held_ns.0 as f64 / metrics.elapsed().0 as f64;
    let contention = d.contended as f64 / d.locks as f64;
    let (hold, wait) = (d.held_ns.0 / d.locks, d.spun_ns.0 / d.contended);
    assert!((0.7..0.95).contains(&utilisation), "{utilisation}");
    assert!(contention > 0.85, "{contention}");
    assert!((4_000..11_000).contains(&hold), "{hold} ns");
    // Published: 5.6 holds.
    assert!((4 * hold..8 * hold).contains(&wait), "{wait} ns for {hold}");
    // With a lock for each CPU no CPU waits for a shared one.
    assert_eq!(priced(MQ, 8, &chat(8, 4), Ns::from_ms(100)).decisions.contended, 0);
}

/// Recharging halves what is left of the slices that run (counter / 2 + 6), and with it the
/// distance between the CPUs: start phases spread over a whole slice are gone after four recharges.
#[test]
fn recharging_brings_the_cpus_into_step() {
    let tasks = (0..64u64).map(|i| TaskSpec {
        process: 1,
        start: Start::At(Ns(i.min(8) * 7_500_000)),
        ..TaskSpec::new(format!("t{i}"), Program::hog())
    });
    let workload = Workload { tasks: tasks.collect(), ..Workload::default() };
    let machine = machine(8, Costs::default());
    let TickSkew::At(edges) = machine.ticks.clone() else { unreachable!() };
    let (_, events) = run(STANDARD, &machine, &workload, Ns::from_s(6));
    // The tick, counted on its own CPU, in which each CPU ended its last slice before `until`.
    let spread = |until: Ns| {
        let last = (0..8u32).map(|cpu| {
            let on = |e: &&SchedEvent| {
                e.cpu == CpuId(cpu) && e.at < until && matches!(e.kind, EventKind::Switch { .. })
            };
            let at = events.iter().rev().find(on).unwrap().at.0;
            (at - edges[cpu as usize].0) / machine.tick_ns().0 % 6
        });
        let slots: std::collections::BTreeSet<u64> = last.collect();
        slots.len()
    };
    let all: Vec<usize> = (1..12).map(|i| spread(Ns::from_ms(480 * i))).collect();
    assert!(all[0] >= 4, "start phases: {all:?}");
    assert!(all[2..].iter().all(|slots| *slots <= 3) && all.contains(&1), "{all:?}");
}
