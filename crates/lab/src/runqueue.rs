//! `schedlab bench runqueue`: the cost of a decision of the simulator's schedulers on this machine,
//! beside that of the cost model. `docs/runqueue-schema.md` describes the JSON.

use schedlab_measure::calibrate::Spread;
use schedlab_measure::runqueue::{LockKind, RunqueueReport, RunqueueRow};
use schedlab_scheduler::SchedulerSpec;
use schedlab_study::StudyError;
use schedlab_study::decision_cost::{self, DecisionCostOptions, DecisionCostRow};
use schedlab_study::preset::{self, THIS_MACHINE};
use schemars::JsonSchema;
use serde::Serialize;

/// Version of the JSON.
pub const SCHEMA: &str = "schedlab-runqueue/1";
/// Threads of Table 1 of the SMP paper (Taniguchi, Ishikawa, Hiraki; docs/sources/linux-facts.md,
/// section 5.1).
pub const TABLE_1: u32 = 1024;
/// Interval by which the SMP paper divides the cost of a call, microseconds.
pub const PAPER_INTERVAL_US: f64 = 100_000.0;

/// Returns the scheduler `name` in an affinity variant of the SMP paper, with the knobs of that
/// variant.
///
/// # Errors
/// Unknown names.
pub fn contender(name: &str, variant: &str) -> Result<(SchedulerSpec, String), StudyError> {
    let which =
        decision_cost::VARIANTS.iter().position(|known| *known == variant).ok_or_else(|| {
            let known = decision_cost::VARIANTS.join(", ");
            StudyError::Option(format!("--affinity {variant}: there are {known}"))
        })?;
    // linux-2.6.22 has the knob of the O(1) scheduler.
    let like = if name == "linux-2.6.22" { "linux-2.4-o1" } else { name };
    let knobs = decision_cost::SCHEDULERS.iter().find(|(known, ..)| *known == like);
    let knobs = knobs.map(|(_, knob, values)| vec![((*knob).to_owned(), values[which].to_owned())]);
    Ok((
        SchedulerSpec { knobs: knobs.unwrap_or_default(), ..SchedulerSpec::named(name) },
        variant.to_owned(),
    ))
}

/// The result of `schedlab bench runqueue`: the cost of a scheduling decision under real locks, the
/// cost of the model, and what follows from both.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct RunqueueResult {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// The kernel's release and version.
    pub kernel: String,
    /// The model name of the CPU.
    pub cpu: String,
    /// What was measured.
    #[serde(flatten)]
    pub report: RunqueueReport,
    /// The cost preset of the model.
    pub model_costs: String,
    /// The costs of the model, for one lock and 64 bytes a record.
    pub model: Vec<Modelled>,
    /// The claims that this benchmark checks.
    pub claims: Vec<Claim>,
}

/// A point of the model. Nanoseconds.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Modelled {
    /// Scheduler.
    pub scheduler: String,
    /// Its affinity variant: `default`, `stay`, `change`.
    pub variant: String,
    /// Whether the tasks fill the caches between decisions.
    pub cold: bool,
    /// CPUs.
    pub threads: usize,
    /// Tasks.
    pub tasks: u32,
    /// Cost of a call without waiting for the lock: in the model CPUs compute between decisions,
    /// here they do not.
    pub cost_ns: f64,
    /// Entries looked at.
    pub looked: f64,
}

/// A claim, and whether it holds in this run.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Claim {
    /// The claim in words.
    pub claim: String,
    /// The number that it is about.
    pub value: f64,
    /// Lower end of what the intervals of both sides allow together, which is wider than the
    /// interval of the ratio.
    pub low: f64,
    /// Upper end of that.
    pub high: f64,
    /// Whether the claim holds: true for the whole interval, false for no part of it, `None` for a
    /// part (cannot tell).
    pub holds: Option<bool>,
}

/// Options of the model.
#[derive(Clone, Debug)]
pub struct ModelOptions {
    /// Cost preset, as [`model_costs`] returns it.
    pub costs: String,
    /// Worker threads; 0 = one per CPU.
    pub jobs: usize,
}

/// Returns the cost preset of the model: `asked`, or this machine's if there is a calibration, else
/// `modern`. To be called before the measurement, so that an unknown preset is refused early.
///
/// # Errors
/// No such preset, or a calibration that cannot be read.
pub fn model_costs(asked: Option<&str>) -> Result<String, StudyError> {
    let name = match asked {
        Some(name) => name,
        None if preset::kept()?.is_some() => THIS_MACHINE,
        None => "modern",
    };
    preset::costs(name)?;
    Ok(name.to_owned())
}

/// Returns a measurement with the costs of the model. `progress` is told the runs of the model that
/// are done, and all.
///
/// # Errors
/// No such preset, or a run of the model that fails.
pub fn explain(
    report: RunqueueReport,
    options: &ModelOptions,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<RunqueueResult, StudyError> {
    let costs = options.costs.clone();
    let mut model = Vec::new();
    for cold in [false, true] {
        let rows: Vec<&RunqueueRow> = report.rows.iter().filter(|row| row.cold == cold).collect();
        let unique = |mut all: Vec<u32>| {
            all.sort_unstable();
            all.dedup();
            all
        };
        let mut variants: Vec<String> = rows.iter().map(|row| row.variant.clone()).collect();
        variants.dedup();
        let options = DecisionCostOptions {
            tasks: unique(rows.iter().map(|row| row.tasks).collect()),
            cpus: unique(rows.iter().map(|row| row.threads as u32).collect())
                .into_iter()
                .map(|cpus| cpus as usize)
                .collect(),
            variants,
            costs: costs.clone(),
            jobs: options.jobs,
            hot: !cold,
        };
        if !rows.is_empty() {
            let wanted =
                |row: &DecisionCostRow| rows.iter().any(|live| live.scheduler == row.scheduler);
            let modelled = |row: DecisionCostRow| Modelled {
                cost_ns: (row.cost_us - row.wait_us) * 1e3,
                looked: row.scanned,
                scheduler: row.scheduler,
                variant: row.variant,
                cold,
                threads: row.cpus,
                tasks: row.tasks,
            };
            model.extend(
                decision_cost::evaluate(&options, progress)?
                    .rows
                    .into_iter()
                    .filter(wanted)
                    .map(modelled),
            );
        }
    }
    let machine = schedlab_host::machine();
    let claims = claims(&report.rows);
    Ok(RunqueueResult {
        schema: SCHEMA,
        kernel: format!("{} {}", machine.kernel, machine.version),
        cpu: machine.model,
        report,
        model_costs: costs,
        model,
        claims,
    })
}

impl RunqueueResult {
    /// Returns the costs of the model for a row.
    pub fn modelled(&self, row: &RunqueueRow) -> Option<&Modelled> {
        self.model.iter().find(|point| {
            (point.scheduler.as_str(), point.variant.as_str())
                == (row.scheduler.as_str(), row.variant.as_str())
                && (point.cold, point.threads, point.tasks) == (row.cold, row.threads, row.tasks)
        })
    }
}

/// Returns `a` over `b` with the interval that their intervals allow, which is never too narrow.
fn ratio(a: Spread, b: Spread) -> (f64, f64, f64) {
    let over = |a: f64, b: f64| a / b.max(0.1);
    (over(a.median_ns, b.median_ns), over(a.low_ns, b.high_ns), over(a.high_ns, b.low_ns))
}

fn claim(text: String, (value, low, high): (f64, f64, f64), least: f64) -> Claim {
    let holds = match (low >= least, high < least) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    };
    Claim { claim: text, value, low, high, holds }
}

fn claims(rows: &[RunqueueRow]) -> Vec<Claim> {
    let mut claims = Vec::new();
    let lists = rows
        .iter()
        .filter(|row| row.scheduler == "linux-2.4" && row.variant == "default" && !row.cold);
    for list in lists.clone().filter(|row| row.tasks == TABLE_1) {
        let same = |row: &&RunqueueRow| {
            (row.threads, row.tasks, row.lock, row.stride)
                == (list.threads, list.tasks, list.lock, list.stride)
                && row.variant == list.variant
                && !row.cold
        };
        let o1 = rows
            .iter()
            .filter(same)
            .filter(|row| ["linux-2.4-o1", "linux-2.6.22"].contains(&&*row.scheduler));
        for o1 in o1.filter(|_| list.threads == 1) {
            let text = format!(
                "a decision of {} is 50 times cheaper than one of linux-2.4 at {} tasks, or more \
                 ({}, {} bytes)",
                o1.scheduler,
                list.tasks,
                list.lock.name(),
                list.stride
            );
            claims.push(claim(text, ratio(list.cost, o1.cost), 50.0));
        }
    }
    for two in lists.clone().filter(|row| row.threads == 2) {
        let one = lists.clone().find(|row| {
            row.threads == 1
                && (row.tasks, row.lock, row.stride) == (two.tasks, two.lock, two.stride)
        });
        if let Some(one) = one {
            let text = format!(
                "two threads on the one list need longer for a decision in sum than one thread: \
                 {} tasks ({}, {} bytes)",
                two.tasks,
                two.lock.name(),
                two.stride
            );
            claims.push(claim(text, ratio(two.sum, one.sum), 1.0));
        }
    }
    claims
}

/// Returns the lock of this name.
///
/// # Errors
/// An unknown name.
pub fn lock(name: &str) -> Result<LockKind, StudyError> {
    let found = LockKind::ALL.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
    found.ok_or_else(|| {
        let known: Vec<&str> = LockKind::ALL.iter().map(|(name, _)| *name).collect();
        StudyError::Option(format!("--lock {name}: there are {}", known.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(median_ns: f64, half: f64) -> Spread {
        let (low_ns, high_ns) = (median_ns - half, median_ns + half);
        Spread { median_ns, low_ns, high_ns, p99_ns: high_ns, count: 5, rounds: 5 }
    }

    fn row(scheduler: &str, threads: usize, cost: Spread, sum: Spread) -> RunqueueRow {
        RunqueueRow {
            scheduler: scheduler.to_owned(),
            variant: "default".to_owned(),
            lock: LockKind::Tas,
            stride: 64,
            cold: false,
            threads,
            tasks: 1024,
            cost,
            call_p50_ns: 0.0,
            call_p99_ns: 0.0,
            sum,
            wait: Spread::default(),
            hold: Spread::default(),
            locks_taken: 1.0,
            looked: 1024.0,
            calls: 100,
            disturbed: 0,
        }
    }

    #[test]
    fn claims_need_their_whole_interval() {
        let sure = [
            row("linux-2.4", 1, spread(4000.0, 100.0), spread(4200.0, 50.0)),
            row("linux-2.4", 2, spread(9000.0, 900.0), spread(5000.0, 100.0)),
            row("linux-2.4-o1", 1, spread(20.0, 2.0), spread(90.0, 1.0)),
            row("linux-2.6.22", 1, spread(79.0, 2.0), spread(90.0, 1.0)),
        ];
        let holds: Vec<Option<bool>> = claims(&sure).iter().map(|claim| claim.holds).collect();
        assert_eq!(holds, [Some(true), None, Some(true)]);
        let slower = [
            row("linux-2.4", 1, spread(4000.0, 100.0), spread(5000.0, 50.0)),
            row("linux-2.4", 2, spread(4000.0, 100.0), spread(4000.0, 50.0)),
        ];
        assert_eq!(claims(&slower)[0].holds, Some(false));
        assert!((claims(&slower)[0].value - 0.8).abs() < 1e-9);
    }

    #[test]
    fn variants_are_those_of_the_paper() {
        let (spec, _) = contender("linux-2.4-mq", "change").unwrap();
        assert_eq!(spec.knobs, [("proc_change_penalty".to_owned(), "-85".to_owned())]);
        let (spec, _) = contender("linux-2.6.22", "stay").unwrap();
        assert_eq!(spec.knobs, [("balance".to_owned(), "stay".to_owned())]);
        assert!(
            contender("linux-2.4", "never")
                .unwrap_err()
                .to_string()
                .contains("default, stay, change")
        );
    }
}
