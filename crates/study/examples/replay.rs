//! Replays a recording under a scheduler and prints recorded against simulated, by task name:
//! `replay FILE SCHEDULER [NAME=POLICY | NAME xFACTOR | KNOB:cost=NS]…`. A tool for work on the
//! method; users have `schedlab compare`.
#![allow(clippy::print_stdout)]

use schedlab_model::{Draw, Ns, Workload};
use schedlab_scheduler::registry;
use schedlab_sim::{Costs, Delays, Machine, RunOptions, TickSkew};
use schedlab_trace::Recording;
use schedlab_trace::analysis::{Durations, Summary, TaskSummary};
use schedlab_trace::replay::{Replay, ReplayOptions, replay};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, scheduler, changes @ ..] = &arguments[..] else {
        println!("usage: replay FILE SCHEDULER [NAME=POLICY | NAME xFACTOR | COST:NS]...");
        std::process::exit(2);
    };
    let recording = Recording::open(file).unwrap_or_else(|error| {
        println!("{error}");
        std::process::exit(2);
    });
    let without_wakes = changes.iter().any(|c| c == "blind");
    let mut options = ReplayOptions { without_wakes, ..ReplayOptions::default() };
    for change in changes.iter().filter(|c| c.contains(" x")) {
        options.demand.push(change.parse().unwrap());
    }
    let mut replay = replay(&recording, &options).unwrap();
    let mut costs = Costs {
        idle_decide_ns: replay.report.delays.idle_wakes().p50(),
        wakeup_decide_ns: replay.report.delays.preempting_wakes().p50(),
        ..Costs::default()
    };
    for change in changes {
        if let Some((name, policy)) = change.split_once('=') {
            set_policy(&mut replay.workload, name, policy);
        } else if let Some((knob, ns)) = change.split_once(':') {
            assert!(costs.set(knob, Ns(ns.parse().unwrap())), "{knob}");
        }
    }
    println!("{}\n{}", recording.repairs, replay.report);
    println!(
        "delays: idle p50 {} p99 {} n {}, preempting p50 {} p99 {} n {}",
        replay.report.delays.idle_wakes().p50(),
        replay.report.delays.idle_wakes().p99(),
        replay.report.delays.idle_wakes().count(),
        replay.report.delays.preempting_wakes().p50(),
        replay.report.delays.preempting_wakes().p99(),
        replay.report.delays.preempting_wakes().count()
    );
    let recorded = Summary::from_recording(&recording).unwrap();
    let simulated = simulate(&replay, scheduler, costs);
    table(&recording, &recorded, &simulated);
    if changes.iter().any(|c| c == "tids") {
        tids(&recording, &recorded, &simulated, &replay);
    }
}

fn tids(recording: &Recording, recorded: &Summary, simulated: &Summary, replay: &Replay) {
    let mut rows: Vec<usize> = (0..recording.header.tasks.len()).collect();
    rows.sort_by_key(|&i| {
        std::cmp::Reverse(recorded.tasks[i].run.0.abs_diff(simulated.tasks[i].run.0))
    });
    let named = |i: &&usize| recording.header.tasks[**i].comm.starts_with("redload");
    for &i in rows.iter().take(25).chain(rows.iter().filter(named)) {
        let (info, spec) = (&recording.header.tasks[i], &replay.workload.tasks[i]);
        println!(
            "{i} {} tid {} {:?} nice {} cpus {}: run {} -> {}, activations {} -> {}, start {:?}, \
             {} ops, repeat {:?}",
            info.comm,
            info.tid,
            info.group,
            info.nice,
            info.affinity,
            recorded.tasks[i].run,
            simulated.tasks[i].run,
            recorded.tasks[i].activations,
            simulated.tasks[i].activations,
            spec.start,
            spec.program.ops.len(),
            spec.program.repeat_from
        );
        let ops = &spec.program.ops;
        println!("   {:?} ... {:?}", &ops[..ops.len().min(6)], &ops[ops.len().saturating_sub(6)..]);
    }
}

fn set_policy(workload: &mut Workload, name: &str, policy: &str) {
    let tasks = workload.tasks.iter_mut().filter(|t| t.name == name);
    let count = tasks.map(|t| t.policy = policy.parse().unwrap()).count();
    assert!(count > 0, "no task `{name}`");
}

fn simulate(replay: &Replay, scheduler: &str, costs: Costs) -> Summary {
    let cpus = replay.topology.cpus();
    let machine = Machine {
        topology: replay.topology.clone(),
        hz: if replay.hz == 0 { 250 } else { replay.hz },
        ticks: TickSkew::Aligned,
        costs,
        delays: Delays {
            idle: draws(&replay.report.delays.idle_wake),
            wakeup: draws(&replay.report.delays.preempting_wake),
        },
        ..Machine::flat(1)
    };
    let scheduler = registry::build(&scheduler.parse().unwrap(), cpus).unwrap();
    let mut summary = Summary::new(replay.workload.tasks.len(), cpus, Ns::ZERO);
    let options = RunOptions::for_time(replay.duration);
    let outcome =
        schedlab_sim::run(&machine, &replay.workload, &*scheduler, &options, &mut summary).unwrap();
    summary.finish(replay.duration);
    println!("{} events, {} stuck, ended {}", outcome.events, outcome.stuck.len(), outcome.ended);
    summary
}

fn draws(cpus: &[Durations]) -> Vec<Option<Draw>> {
    let draw = |all: &Durations| (all.count() > 0).then(|| Draw::Empirical(all.sample(1_000)));
    cpus.iter().map(draw).collect()
}

fn table(recording: &Recording, recorded: &Summary, simulated: &Summary) {
    let names: Vec<&str> = recording.header.tasks.iter().map(|t| t.comm.as_str()).collect();
    let (a, b) =
        (recorded.by_name(names.iter().copied()), simulated.by_name(names.iter().copied()));
    let mut rows: Vec<_> = a.into_iter().zip(b).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.0.1.run.max(row.1.1.run)));
    println!(
        "{:<16} {:>7} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "task",
        "share%",
        "act/s",
        "switches",
        "wake p50",
        "wake p99",
        "prmt p50",
        "prmt p99",
        "rql p50",
        "rql p99",
        "resp p99"
    );
    for ((name, recorded_task), (_, simulated_task)) in rows.iter().take(14) {
        line(name, recorded, recorded_task);
        line("", simulated, simulated_task);
    }
    for (i, (a, b)) in recorded.cpus.iter().zip(&simulated.cpus).enumerate() {
        println!(
            "cpu{i}: busy {} idle {} unknown {} -> busy {} idle {}",
            a.busy, a.idle, a.unknown, b.busy, b.idle
        );
    }
}

fn line(name: &str, summary: &Summary, task: &TaskSummary) {
    let share = (task.run.0 as u128 * 10_000 / u128::from(summary.window.0.max(1))) as u64;
    let rate = summary.activations_per_1000_s(task) / 1_000;
    let queue = task.run_queue_latency();
    println!(
        "{name:<16} {:>4}.{:02} {rate:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        share / 100,
        share % 100,
        task.switches,
        task.wake_latency.p50().to_string(),
        task.wake_latency.p99().to_string(),
        task.preempt_wait.p50().to_string(),
        task.preempt_wait.p99().to_string(),
        queue.p50().to_string(),
        queue.p99().to_string(),
        task.response.p99().to_string(),
    );
}
