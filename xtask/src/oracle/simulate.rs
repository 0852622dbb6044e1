//! Runs a scenario in the simulator, on the machine on which the oracle files were made.

use super::data::{Kind, Measured, Record, TaskLine};
use super::measure::{Collector, median};
use super::preset::Preset;
use anyhow::{Context, Result};
use schedlab_model::{Amount, Draw, Ns, Op, Program, Start, TaskSpec, Topology, Workload};
use schedlab_sim::{Costs, Machine, RunOptions, TickSkew, run};

/// By how much the cost of a job is jittered, up or down.
const JITTER: Ns = Ns(3_000);

/// The figures of every task: of one run, or the median of `jitter` runs with jittered job costs.
pub(crate) fn simulate(record: &Record, preset: &Preset, jitter: u32) -> Result<Vec<Measured>> {
    let costs = match preset.spec.name.as_str() {
        _ if !preset.eevdf => Costs::oracle_6_1(),
        "linux-7.2" => Costs::oracle_7_2(),
        _ => Costs::oracle_6_12(),
    };
    let machine = Machine {
        topology: Topology::flat(1),
        hz: record.knobs.hz,
        ticks: TickSkew::At(vec![record.first_tick]),
        costs,
        ..Machine::flat(1)
    };
    let workload = workload(record, &costs, jitter > 1);
    let mut runs = Vec::new();
    for seed in 1..=u64::from(jitter) {
        let scheduler = preset.build()?;
        let options = RunOptions { seed, ..RunOptions::for_time(record.duration) };
        let mut collector = Collector::new(record.tasks.len());
        run(&machine, &workload, &*scheduler, &options, &mut collector).context("the simulator")?;
        runs.push(collector.finish(record.duration));
    }
    Ok(median(&runs))
}

/// Real-time tasks come first, then the others, all woken by one timer interrupt at the start.
fn workload(record: &Record, costs: &Costs, jitter: bool) -> Workload {
    // The records are about 2 us apart and the first choice comes after the last of them.
    let woken =
        Ns(2_600 + 2_100 * (record.tasks.len() as u64 - 1)).saturating_sub(costs.timer_to_wake_ns);
    let mut order: Vec<usize> = (0..record.tasks.len()).collect();
    order.sort_by_key(|&i| !record.tasks[i].policy.is_realtime());
    let mut workload = Workload::default();
    for line in &record.tasks {
        let mut task = TaskSpec::new(line.name.clone(), program(line, jitter));
        (task.policy, task.nice) = (line.policy, line.nice);
        workload.tasks.push(task);
    }
    // Equal wakeup times are served in task order; a nanosecond apart makes it the order of the
    // start.
    for (rank, &task) in order.iter().enumerate() {
        workload.tasks[task].start = Start::AsleepUntil(woken + Ns(rank as u64));
    }
    workload
}

fn program(line: &TaskLine, jitter: bool) -> Program {
    let mut program = match line.kind {
        Kind::Hog => return Program::hog(),
        Kind::Closed { sleep, work } => Program::closed(work, sleep),
        Kind::Periodic { period, work } => Program::periodic(period, work, Ns::ZERO),
    };
    if jitter {
        let work = match line.kind {
            Kind::Closed { work, .. } | Kind::Periodic { work, .. } => work,
            Kind::Hog => Ns::ZERO,
        };
        let draw =
            Draw::Uniform { low: work.saturating_sub(JITTER).max(Ns(1)), high: work + JITTER };
        let amount = program.draw(draw);
        for op in &mut program.ops {
            if let Op::Run(length) = op {
                *length = amount;
            }
        }
    }
    // A job of no work would let the program spin.
    for op in &mut program.ops {
        if let Op::Run(Amount::Fixed(length)) = op {
            *length = (*length).max(Ns(1));
        }
    }
    program
}
