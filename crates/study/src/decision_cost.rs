//! The evaluation of Linux schedulers on SMP (Taniguchi, Ishikawa, Hiraki), in the simulator:
//! threads of one process each read 4 MB fifty times; what does a call of `schedule()` cost?
//!
//! The machine is the cost preset `p3-xeon-700`, whose memory constants are *fitted* to the paper's
//! Table 1. So the table shows that the model can carry those numbers; what it predicts are the
//! shapes: how the cost grows with threads, the multi-queue scheduler, total times, migrations,
//! variants.
//!
//! Workload, variants and numbers are in `scenarios/smp-evaluation.toml`.

use crate::StudyError;
use crate::gallery::{self, Found};
use crate::scenario::Scenario;
use rayon::prelude::*;
use schedlab_model::Ns;
use schedlab_scheduler::SchedulerSpec;
use schedlab_sim::{Costs, DecisionMetrics, RunOptions};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Name and version of the JSON.
pub const SCHEMA: &str = "schedlab-decision-cost/1";

/// The scenario of the gallery that holds the workload.
pub const SCENARIO: &str = "smp-evaluation";

/// The three schedulers of the paper with the knob of its affinity variants: default, stay, change.
pub const SCHEDULERS: [(&str, &str, [&str; 3]); 3] = [
    ("linux-2.4", "proc_change_penalty", ["15", "115", "-85"]),
    ("linux-2.4-mq", "proc_change_penalty", ["15", "115", "-85"]),
    ("linux-2.4-o1", "balance", ["default", "stay", "change"]),
];
/// Names of the affinity variants.
pub const VARIANTS: [&str; 3] = ["default", "stay", "change"];

/// What the paper's Table 1 says of 1024 threads: cost of a call in microseconds (its share times
/// 100 ms).
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
pub struct DecisionCostOptions {
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
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct DecisionCostRow {
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
    /// Share of it that waited for the shared lock.
    pub wait_share: f64,
    /// Share of the holds of the shared lock that had to wait; 0 where each CPU has its own.
    pub contended: f64,
    /// From the first `pthread_create` to the last exit, seconds.
    pub total_s: f64,
    /// Times that a thread went on on another CPU.
    pub migrations: u64,
}

/// How far the total times of several schedulers are apart, for one number of CPUs and threads and
/// one variant. The paper finds "no notable difference" and gives no times; both readings of that
/// are here.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct DecisionCostTotals {
    /// CPUs.
    pub cpus: usize,
    /// Threads.
    pub tasks: u32,
    /// One of [`VARIANTS`].
    pub variant: String,
    /// The slowest over the fastest, less 1.
    pub apart: f64,
    /// The largest distance of one of them from the mean of all, as a part of that.
    pub from_mean: f64,
    /// Largest share of the CPU time that the decisions of one of them took: what `apart` comes
    /// from.
    pub decisions: f64,
    /// The part of it that waited for the shared lock.
    pub waiting: f64,
}

/// The whole evaluation.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct DecisionCostResult {
    /// [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The cost preset.
    pub costs: String,
    /// Prices of the preset that are not 0, in nanoseconds.
    pub prices: Vec<(String, u64)>,
    /// Rows by CPUs, threads, variant, scheduler.
    pub rows: Vec<DecisionCostRow>,
    /// Total times compared, in the same order.
    pub totals: Vec<DecisionCostTotals>,
}

/// The scenario of the gallery.
///
/// # Errors
/// None as long as the gallery is whole.
pub fn scenario() -> Result<Scenario, StudyError> {
    match gallery::find(SCENARIO)? {
        Found::Scenario(scenario) => Ok(*scenario),
        Found::Recording(path) => {
            Err(StudyError::NoSuchInput(format!("{}: not a scenario", path.display())))
        }
    }
}

/// Runs the evaluation of the gallery's scenario; `progress` is called with (done, all).
///
/// # Errors
/// As [`sweep`].
pub fn evaluate(
    options: &DecisionCostOptions,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<DecisionCostResult, StudyError> {
    sweep(&scenario()?, options, progress)
}

/// Runs every number of CPUs and tasks, every variant and scheduler of a scenario with a `[sweep]`.
///
/// # Errors
/// Options out of bounds, a scenario without a sweep, or a run that fails.
pub fn sweep(
    scenario: &Scenario,
    options: &DecisionCostOptions,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<DecisionCostResult, StudyError> {
    let mut costs = crate::preset::costs(&options.costs)
        .map_err(|error| StudyError::Option(format!("--costs {}: {error}", options.costs)))?;
    if options.hot {
        costs.stream_after_ns = Ns::ZERO;
    }
    if !costs.prices_work() {
        let text = format!(
            "--costs {}: decisions are free there; use p3-xeon-700, modern or this-machine",
            options.costs
        );
        return Err(StudyError::Option(text));
    }
    let plans = plans(scenario, options)?;
    let done = AtomicUsize::new(0);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.jobs)
        .build()
        .map_err(|error| StudyError::Option(format!("--jobs {}: {error}", options.jobs)))?;
    let one = |point: &Point<'_>| {
        let row = row(scenario, &costs, point);
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, plans.len());
        row
    };
    let rows = pool.install(|| plans.par_iter().with_max_len(1).map(one).collect::<Vec<_>>());
    let mut prices: Vec<(String, u64)> = Costs::knobs()
        .filter_map(|(name, _)| Some((name.to_owned(), costs.get(name)?.0)))
        .filter(|(_, price)| *price > 0)
        .collect();
    prices.push(("hot_lines (a count)".to_owned(), u64::from(costs.hot_lines)));
    prices.push(("bus_cpus (a count)".to_owned(), u64::from(costs.bus_cpus)));
    let rows = rows.into_iter().collect::<Result<Vec<DecisionCostRow>, _>>()?;
    let totals = totals(&rows);
    Ok(DecisionCostResult {
        schema: SCHEMA.to_owned(),
        costs: options.costs.clone(),
        prices,
        rows,
        totals,
    })
}

/// The total times of the schedulers of each point; a point with one scheduler has nothing to
/// compare.
fn totals(rows: &[DecisionCostRow]) -> Vec<DecisionCostTotals> {
    let key = |row: &DecisionCostRow| (row.cpus, row.tasks, row.variant.clone());
    let points = rows.chunk_by(|a, b| key(a) == key(b)).filter(|point| point.len() > 1);
    let compare = |point: &[DecisionCostRow]| {
        let largest =
            |of: &dyn Fn(&DecisionCostRow) -> f64| point.iter().map(of).fold(0.0, f64::max);
        let mean = point.iter().map(|row| row.total_s).sum::<f64>() / point.len() as f64;
        let least = point.iter().map(|row| row.total_s).fold(f64::MAX, f64::min);
        DecisionCostTotals {
            cpus: point[0].cpus,
            tasks: point[0].tasks,
            variant: point[0].variant.clone(),
            apart: largest(&|row| row.total_s) / least - 1.0,
            from_mean: largest(&|row| (row.total_s / mean - 1.0).abs()),
            decisions: largest(&|row| row.real_share),
            waiting: largest(&|row| row.wait_share),
        }
    };
    points.map(compare).collect()
}

/// One run to do.
struct Point<'a> {
    cpus: usize,
    tasks: u32,
    variant: &'a str,
    scheduler: &'a SchedulerSpec,
}

/// The runs, by CPUs, tasks, variant and scheduler.
fn plans<'a>(
    scenario: &'a Scenario,
    options: &'a DecisionCostOptions,
) -> Result<Vec<Point<'a>>, StudyError> {
    if scenario.sweep.is_none() {
        let name = &scenario.name;
        return Err(StudyError::Option(format!(
            "{name} has no [sweep]: only such a scenario can be run with other numbers of CPUs \
             and tasks"
        )));
    }
    let mut plans = Vec::new();
    for &cpus in &options.cpus {
        for &tasks in &options.tasks {
            for variant in &options.variants {
                let each = scenario.schedulers.iter();
                plans.extend(each.map(|scheduler| Point { cpus, tasks, variant, scheduler }));
            }
        }
    }
    Ok(plans)
}

fn row(
    scenario: &Scenario,
    costs: &Costs,
    point: &Point<'_>,
) -> Result<DecisionCostRow, StudyError> {
    let &Point { cpus, tasks, variant, scheduler } = point;
    let mut sized = scenario.sized(cpus, tasks as usize);
    sized.machine.costs = *costs;
    let plan = crate::run::RowPlan::of_scenario(&sized, scheduler, Some(variant))?;
    let built = plan.build(cpus)?;
    let more = u64::from(tasks).div_ceil(scenario.workload.tasks.len().max(1) as u64).max(1);
    let duration = Ns(scenario.duration.0.saturating_mul(more));
    let options = RunOptions { seed: scenario.seed, ..RunOptions::for_time(duration) };
    let outcome = plan.run(&sized.simulated_machine(), &*built, &options, &mut ())?;
    let d: DecisionMetrics = outcome.metrics.decisions;
    let per_call = |ns: u64| ns as f64 / d.calls.max(1) as f64;
    let cost_us = per_call(d.cost_ns.0) / 1e3;
    let capacity = (outcome.ended.0.max(1) * cpus as u64) as f64;
    Ok(DecisionCostRow {
        scheduler: scheduler.name.clone(),
        variant: variant.to_owned(),
        cpus,
        tasks,
        cost_us,
        wait_us: per_call(d.wait_ns.0) / 1e3,
        scanned: per_call(d.scanned),
        calls: d.calls,
        paper_share: cost_us / 1e5,
        real_share: d.cost_ns.0 as f64 / capacity,
        wait_share: d.wait_ns.0 as f64 / capacity,
        contended: d.contended as f64 / d.locks.max(1) as f64,
        total_s: outcome.ended.0 as f64 / 1e9,
        migrations: outcome.metrics.tasks.iter().map(|task| task.migrations).sum(),
    })
}
