//! Workloads that tests and benches share.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod checker;
pub(crate) mod random;

use schedlab_model::{
    Amount, CpuId, CpuSet, Draw, Ns, Op, Policy, Program, Start, TaskSpec, Workload,
};
use schedlab_scheduler::Scheduler;
use schedlab_sim::{Machine, Outcome, RunOptions, run};

/// A scheduler of the registry.
pub(crate) fn scheduler(spec: &str, cpus: usize) -> Box<dyn Scheduler> {
    schedlab_scheduler::registry::build(&spec.parse().expect("a valid spec"), cpus)
        .expect("it exists")
}

/// Runs for `duration` on a flat, free machine.
pub(crate) fn simulate(spec: &str, cpus: usize, workload: &Workload, duration: Ns) -> Outcome {
    let options = RunOptions::for_time(duration);
    let scheduler = scheduler(spec, cpus);
    run(&Machine::flat(cpus), workload, scheduler.as_ref(), &options, &mut ()).expect("a clean run")
}

/// A periodic task with an implicit deadline, times in units of `unit`.
pub(crate) fn periodic(name: &str, work: u64, period: u64, unit: Ns) -> TaskSpec {
    let (work, period) = (unit * work, unit * period);
    let mut task = TaskSpec::new(name, Program::periodic(period, work, Ns::ZERO));
    task.policy = Policy::Deadline { runtime: work, deadline: period, period };
    task
}

/// Returns W1 or W64 (docs/sources/simulation-facts.md): the number of CPUs and the task set of a
/// file of `tests/data`.
pub(crate) fn periodic_set(json: &str) -> (usize, Workload) {
    let set: serde_json::Value = serde_json::from_str(json).expect("valid JSON");
    let tasks = set["tasks"].as_array().expect("tasks").iter();
    let tasks = tasks.map(|t| {
        let us = |key: &str| t[key].as_u64().expect("a number");
        periodic(&format!("t{}", us("id")), us("wcet_us"), us("period_us"), Ns::from_us(1))
    });
    let workload = Workload { tasks: tasks.collect(), ..Workload::default() };
    (set["cpus"].as_u64().unwrap_or(8) as usize, workload)
}

pub(crate) const W1: &str = include_str!("../data/w1.json");
pub(crate) const W64: &str = include_str!("../data/w64.json");

/// Returns W2 (docs/sources/simulation-facts.md): 64 tasks pinned to 8 CPUs, bursts of 1 to 20 ms,
/// sleeps of 1 to 40 ms.
pub(crate) fn w2(cpus: u32, tasks: u32) -> Workload {
    let task = |t: u32| {
        let mut program = Program::default();
        let burst = program.draw(Draw::SplitMix { low: Ns::from_ms(1), span: Ns::from_ms(19) });
        let sleep = program.draw(Draw::SplitMix { low: Ns::from_ms(1), span: Ns::from_ms(39) });
        program.ops = vec![Op::Run(burst), Op::Sleep(sleep)];
        program.repeat_from = Some(0);
        let mut task = TaskSpec::new(format!("t{t}"), program);
        task.affinity = CpuSet::single(CpuId(t % cpus));
        task.start = Start::At(Ns::ZERO);
        task
    };
    Workload { tasks: (0..tasks).map(task).collect(), ..Workload::default() }
}

/// Run/sleep tasks with fixed lengths that differ from task to task.
pub(crate) fn run_sleep(tasks: u32) -> Workload {
    let task = |i: u32| {
        let work = Ns::from_us(300 + u64::from(i) * 37 % 2_000);
        let sleep = Ns::from_us(500 + u64::from(i) * 53 % 9_000);
        TaskSpec::new(format!("t{i}"), Program::closed(work, sleep))
    };
    Workload { tasks: (0..tasks).map(task).collect(), ..Workload::default() }
}

pub(crate) fn fixed(ns: u64) -> Amount {
    Amount::Fixed(Ns(ns))
}
