//! The evaluation of Linux schedulers on SMP (Taniguchi, Ishikawa, Hiraki), in the simulator: threads of one
//! process each read 4 MB fifty times; what does a call of `schedule()` cost?
//!
//! The machine is the cost preset `p3-xeon-700`, whose memory constants are *fitted* to the paper's Table 1. So
//! the table shows that the model can carry those numbers; what it predicts are the shapes: how the cost grows
//! with threads, the multi-queue scheduler, total times, migrations, variants.

use crate::LabError;
use rayon::prelude::*;
use schedlab_model::{Amount, Ns, Op, Program, Start, TaskSpec, Workload};
use schedlab_scheduler::{SchedulerSpec, registry};
use schedlab_sim::{Costs, DecisionMetrics, Machine, RunOptions, TickSkew};
use serde::Serialize;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often each thread reads its 4 MB.
pub const READS: u32 = 50;
/// CPU time of one read: 4 MiB at the 350 MB/s that Linux 2.4 assumes for its cache flush time. Chosen, not fitted.
pub const READ_NS: Ns = Ns(11_984_000);
/// Time between the creation of two threads. Chosen: the smaller of Molnar's two fork times (169 us), rounded down.
pub const CREATE_NS: Ns = Ns(150_000);
/// A slice of 2.4 at nice 0.
const SLICE_NS: Ns = Ns::from_ms(60);

/// The three schedulers of the paper with the knob of its affinity variants: default, stay, change.
pub const SCHEDULERS: [(&str, &str, [&str; 3]); 3] = [
    ("linux-2.4", "proc_change_penalty", ["15", "115", "-85"]),
    ("linux-2.4-mq", "proc_change_penalty", ["15", "115", "-85"]),
    ("linux-2.4-o1", "balance", ["default", "stay", "change"]),
];
/// Names of the affinity variants.
pub const VARIANTS: [&str; 3] = ["default", "stay", "change"];

/// What the paper's Table 1 says of 1024 threads: cost of a call in microseconds (its share times 100 ms).
pub fn paper_us(scheduler: &str, cpus: usize) -> Option<f64> {
    let column = [2, 4, 8].iter().position(|known| *known == cpus)?;
    let row = match scheduler {
        "linux-2.4" => [750.0, 1100.0, 1500.0],
        "linux-2.4-mq" => [730.0, 1100.0, 1500.0],
        "linux-2.4-o1" => [13.0, 14.0, 16.0],
        _ => return None,
    };
    Some(row[column])
}

/// What to run.
#[derive(Clone, Debug)]
pub struct SmpOptions {
    /// Numbers of threads.
    pub tasks: Vec<u32>,
    /// Numbers of CPUs.
    pub cpus: Vec<usize>,
    /// Which of [`VARIANTS`].
    pub variants: Vec<String>,
    /// Name of the cost preset.
    pub costs: String,
    /// Worker threads; 0 = one per CPU.
    pub jobs: usize,
    /// The threads leave the caches alone between decisions.
    pub hot: bool,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SmpRow {
    /// Scheduler.
    pub scheduler: String,
    /// One of [`VARIANTS`].
    pub variant: String,
    /// CPUs.
    pub cpus: usize,
    /// Threads.
    pub tasks: u32,
    /// Mean time from entry to return of a decision, lock wait included, microseconds.
    pub cost_us: f64,
    /// The part of it that waits for the shared lock.
    pub wait_us: f64,
    /// Mean number of entries looked at.
    pub scanned: f64,
    /// Calls.
    pub calls: u64,
    /// The paper's share: cost of a call over 100 ms.
    pub paper_share: f64,
    /// Share of the CPU time of the run that decisions took.
    pub real_share: f64,
    /// From the first `pthread_create` to the last exit, seconds.
    pub total_s: f64,
    /// Times that a thread went on on another CPU.
    pub migrations: u64,
}

/// The whole evaluation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SmpResult {
    /// Version of this schema.
    pub schema: u32,
    /// The cost preset.
    pub costs: String,
    /// Prices of the preset that are not 0, in nanoseconds.
    pub prices: Vec<(String, u64)>,
    /// Rows by CPUs, threads, variant, scheduler.
    pub rows: Vec<SmpRow>,
}

/// The workload. Threads come one by one, and their creation is not held up by those that run already: with a
/// creating thread among them no more than about 30 live at a time under 2.4, because a reader needs ten slices and
/// the creator gets one in each round; the paper's numbers are those of 1024 runnable threads.
///
/// The first thread of each CPU comes a part of a slice after the one before. If all came at once, the slices of all
/// CPUs would end in step, and the CPUs would queue at the lock of 2.4 (measured here: 4.9 ms a call on 8 CPUs).
pub fn workload(threads: u32, cpus: u32) -> Workload {
    let reads = Program::once([Op::Run(Amount::Fixed(READ_NS)), Op::Repeat { to: 0, times: READS - 1 }]);
    let spread = |i: u32| u64::from(i) * SLICE_NS.0 / u64::from(cpus);
    let start = |i: u32| Ns(spread(i.min(cpus)) + u64::from(i.saturating_sub(cpus)) * CREATE_NS.0);
    let thread = |i: u32| TaskSpec {
        process: 1,
        start: Start::At(start(i)),
        ..TaskSpec::new(format!("reader-{i}"), reads.clone())
    };
    Workload { tasks: (0..threads).map(thread).collect(), ..Workload::default() }
}

/// Runs the evaluation; `progress` is called with (done, all).
///
/// # Errors
/// Options out of bounds, or a run that fails.
pub fn evaluate(
    options: &SmpOptions,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<SmpResult, LabError> {
    let mut costs = crate::calibrate::preset(&options.costs)
        .map_err(|error| LabError::Option(format!("--costs {}: {error}", options.costs)))?;
    if options.hot {
        costs.stream_after_ns = Ns::ZERO;
    }
    if !costs.prices_work() {
        let text = format!(
            "--costs {}: decisions are free there; use p3-xeon-700, modern or this-machine",
            options.costs
        );
        return Err(LabError::Option(text));
    }
    let mut plans = Vec::new();
    for &cpus in &options.cpus {
        for &tasks in &options.tasks {
            for variant in &options.variants {
                let which = VARIANTS.iter().position(|known| known == variant).ok_or_else(|| {
                    let known = VARIANTS.join(", ");
                    LabError::Option(format!("--variant {variant}: there are {known}"))
                })?;
                plans.extend((0..SCHEDULERS.len()).map(|scheduler| (cpus, tasks, which, scheduler)));
            }
        }
    }
    let done = AtomicUsize::new(0);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.jobs)
        .build()
        .map_err(|error| LabError::Option(format!("--jobs {}: {error}", options.jobs)))?;
    let one = |&(cpus, tasks, which, scheduler): &(usize, u32, usize, usize)| {
        let row = row(costs, cpus, tasks, which, scheduler);
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, plans.len());
        row
    };
    let rows = pool.install(|| plans.par_iter().with_max_len(1).map(one).collect::<Vec<_>>());
    let mut prices: Vec<(String, u64)> = Costs::knobs()
        .filter_map(|(name, _)| Some((name.to_owned(), costs.get(name)?.0)))
        .filter(|(_, price)| *price > 0)
        .collect();
    prices.push(("hot_lines (a count)".to_owned(), u64::from(costs.hot_lines)));
    let rows = rows.into_iter().collect::<Result<_, _>>()?;
    Ok(SmpResult { schema: 1, costs: options.costs.clone(), prices, rows })
}

fn row(costs: Costs, cpus: usize, tasks: u32, which: usize, scheduler: usize) -> Result<SmpRow, LabError> {
    let (name, knob, values) = SCHEDULERS[scheduler];
    let knobs = vec![(knob.to_owned(), values[which].to_owned())];
    let spec = SchedulerSpec { name: name.to_owned(), knobs };
    let built = registry::build(&spec, cpus)?;
    let mut machine = Machine::flat(cpus);
    machine.hz = 100;
    machine.costs = costs;
    // The local timers of 2.4 on i386 are spread evenly over the period.
    let edge = |cpu: usize| Ns(machine.tick_ns().0 * (cpus + 1 + cpu) as u64 / (cpus + 1) as u64);
    machine.ticks = TickSkew::At((0..cpus).map(edge).collect());
    let work = Ns(u64::from(tasks) * u64::from(READS) * READ_NS.0);
    let duration = Ns(work.0 + work.0 / 4 + 10_000_000_000);
    let options = RunOptions::for_time(duration);
    let outcome = schedlab_sim::run(&machine, &workload(tasks, cpus as u32), &*built, &options, &mut ())
        .map_err(|source| {
            let (scheduler, variant) = (name.to_owned(), VARIANTS[which].to_owned());
            LabError::Run { scheduler, variant, source: Box::new(source) }
        })?;
    let d: DecisionMetrics = outcome.metrics.decisions;
    let per_call = |ns: u64| ns as f64 / d.calls.max(1) as f64;
    let cost_us = per_call(d.cost_ns.0) / 1e3;
    Ok(SmpRow {
        scheduler: name.to_owned(),
        variant: VARIANTS[which].to_owned(),
        cpus,
        tasks,
        cost_us,
        wait_us: per_call(d.wait_ns.0) / 1e3,
        scanned: per_call(d.scanned),
        calls: d.calls,
        paper_share: cost_us / 1e5,
        real_share: d.cost_ns.0 as f64 / (outcome.ended.0.max(1) * cpus as u64) as f64,
        total_s: outcome.ended.0 as f64 / 1e9,
        migrations: outcome.metrics.tasks.iter().map(|task| task.migrations).sum(),
    })
}
