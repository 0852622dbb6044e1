//! Comparing over a scenario.

use super::gates::Gates;
use super::row_errors::RowErrors;
use super::timing::Timing;
use super::{
    Numbers, Options, Point, Progress, check_knobs_exist, check_knobs_of_points, check_names,
    check_schedulers,
};
use super::{detail, parse_variants, rows, seeds, values, verdict};
use crate::StudyError;
use crate::deviation::Deviation;
use crate::measurements::{Kind, MACHINE};
use crate::no_effect::{self, Known};
use crate::result::{Checked, Detail, Input, InputKind, SCHEMA, Study};
use crate::run::{Bench, Measures, Ran, RowPlan, Run, levels, own_variants, spinning};
use crate::scenario::{Expectation, Scenario};
use crate::variant::Variant;
use schedlab_model::Ns;
use schedlab_model::text::glob;
use schedlab_scheduler::SchedulerSpec;
use schedlab_sim::{Costs, Machine};
use schedlab_stats::Estimate;

/// Runs a scenario under every scheduler, with every variant and seed, and checks its expectations.
///
/// Schedulers that the user names take the place of the scenario's own; expectations about others
/// are left out.
pub fn compare_scenario(
    scenario: &Scenario,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Study, StudyError> {
    let mut plans = plans(scenario, options)?;
    let gates = Gates::new(options, &plans, &scenario.classes)?;
    let duration = duration(scenario, options)?;
    let count = options.repetitions.unwrap_or(scenario.repetitions);
    let seeds = seeds(options.seed.unwrap_or(scenario.seed), count);
    let machine = scenario.simulated_machine();
    let keep = options.detail.then(|| keep(scenario, &machine, duration, &plans));
    let bench = Bench {
        machine: &|_| machine.clone(),
        classes: &scenario.classes,
        duration,
        end_with_tasks: scenario.end_with_tasks,
        warmup: scenario.warmup,
        seeds: &seeds,
        keep: keep.as_ref(),
        as_recording: None,
        requests: None,
        measures: Measures::All,
        jobs: options.jobs,
        progress,
        stop: options.stop.as_ref(),
        keep_finished: options.keep_finished,
        seen: options.seen.as_deref(),
        known: None,
    };
    let Ran { runs, seeds, refused, unfinished } = bench.run(&mut plans)?;
    let timing = Timing::tried(&bench, options, (&plans, &seeds, unfinished), true)?;
    // The longest of them, where runs end with their last task.
    let duration = runs.iter().flatten().map(|run| run.ended).max().unwrap_or(duration);
    let name = |task: usize| scenario.workload.tasks[task].name.clone();
    let numbers = Numbers::new(options, &scenario.headline);
    let errors = RowErrors::of_scenario(&plans, &scenario.classes, machine.topology.cpus());
    let mut rows = rows(&plans, &runs, &scenario.classes, &name, &errors, numbers);
    no_effect::add_to(&mut rows, &plans, known(scenario));
    timing.add_to(&mut rows, &runs);
    let mut study = Study {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        input: input(scenario, &machine),
        seeds,
        duration_ns: duration.0,
        warmup_ns: scenario.warmup.0,
        verdict: Default::default(),
        headline: Vec::new(),
        detail: None,
        unfinished,
        self_replay: None,
        served: None,
        guess: None,
        predictions: Vec::new(),
        rows,
        expectations: check(scenario, &plans, &runs),
        gates: Vec::new(),
        notes: [scenario.notes.clone(), spinning::notes(&plans, None), refused].concat(),
        costs: costs(&machine.costs),
        fitted: scenario.fitted.clone(),
        sections: crate::scenario::sections(&scenario.workload, &scenario.classes),
    };
    study.gates = gates.judge(&plans, &runs, &errors, &timing, &study)?;
    study.headline = crate::headline::headline(&study, numbers.wanted());
    study.verdict = verdict::verdict(&study);
    let detail = keep.as_ref().map(|keep| detailed(scenario, &study, &runs, keep)).transpose()?;
    study.detail = detail.map(Box::new);
    Ok(study)
}

/// Returns what a page of a comparison shows beside its numbers.
fn detailed(
    scenario: &Scenario,
    study: &Study,
    runs: &[Vec<Run>],
    keep: &detail::Keep,
) -> Result<Detail, StudyError> {
    let behind = levels::tasks_behind(&keep.vcpus);
    let tasks = tasks(scenario).into_iter().chain(behind).collect();
    let mut detail = Detail::from_runs(study, runs, tasks, None);
    detail.observed(study, runs, keep, None)?;
    Ok(detail)
}

/// Returns how many runs a comparison has.
pub(crate) fn runs_of_scenario(
    scenario: &Scenario,
    options: &Options,
) -> Result<usize, StudyError> {
    let seeds = options.repetitions.unwrap_or(scenario.repetitions) as usize;
    Ok(plans(scenario, options)?.len() * seeds)
}

/// Returns what is known of the tasks: each of them may run at any time.
pub(crate) fn known(scenario: &Scenario) -> Known<'_> {
    Known { classes: &scenario.classes, share: &|_| 1.0 }
}

/// Returns what a result says of the scenario that it is of.
fn input(scenario: &Scenario, machine: &Machine) -> Input {
    Input {
        kind: InputKind::Scenario,
        name: scenario.name.clone(),
        title: scenario.title.clone(),
        cpus: machine.topology.cpus(),
        hz: machine.hz,
        window_ns: None,
    }
}

/// The rows to run: every scheduler with every variant that is for it.
fn plans(scenario: &Scenario, options: &Options) -> Result<Vec<RowPlan>, StudyError> {
    check_schedulers(&options.schedulers)?;
    let extra = parse_variants(&options.variants)?;
    let specs =
        if options.schedulers.is_empty() { &scenario.schedulers } else { &options.schedulers };
    let subject = scenario.subject();
    let variants: Vec<Variant> = own_variants(scenario).into_iter().chain(extra).collect();
    check_names(&variants)?;
    if let (Some(spec), false) = (specs.first(), options.points.is_empty()) {
        let points = options.points.iter().map(|point| plan_of_point(scenario, spec, point));
        let first = std::iter::once(RowPlan::new(spec, &variants[0], &subject));
        let plans = first.chain(points).collect::<Result<Vec<_>, _>>()?;
        check_knobs_of_points(&plans, &options.points)?;
        return Ok(plans);
    }
    let mut plans = Vec::new();
    for spec in specs {
        for variant in variants.iter().filter(|variant| variant.is_for(spec)) {
            plans.push(RowPlan::new(spec, variant, &subject)?);
        }
    }
    check_knobs_exist(&plans, &variants)?;
    Ok(plans)
}

/// Returns the row of a point of a search: what the first row sets, and then the point.
pub(crate) fn plan_of_point(
    scenario: &Scenario,
    spec: &SchedulerSpec,
    point: &Point,
) -> Result<RowPlan, StudyError> {
    let first = scenario.baseline_set.iter().flat_map(|set| &set.clauses);
    let clauses = first.chain(&point.variant.clauses).cloned().collect();
    let variant = Variant { clauses, ..point.variant.clone() };
    RowPlan::new(point.scheduler.as_ref().unwrap_or(spec), &variant, &scenario.subject())
}

/// How the runs of a scenario are observed.
fn keep(scenario: &Scenario, machine: &Machine, duration: Ns, plans: &[RowPlan]) -> detail::Keep {
    let header = scenario.header(machine);
    let mut keep = detail::keep(&header, &scenario.classes, duration, plans.len(), &[]);
    for vm in plans.iter().flat_map(|plan| &plan.vms) {
        for name in vm.vcpu_names() {
            if !keep.vcpus.iter().any(|(known, _)| *known == name) {
                keep.vcpus.push((name, vm.class()));
            }
        }
    }
    keep.header = levels::header(&keep.header, &keep.vcpus);
    keep
}

/// Name and class of each task.
fn tasks(scenario: &Scenario) -> Vec<(String, String)> {
    let tasks = scenario.workload.tasks.iter().zip(&scenario.classes);
    tasks.map(|(task, class)| (task.name.clone(), class.clone())).collect()
}

/// How long each run lasts.
fn duration(scenario: &Scenario, options: &Options) -> Result<Ns, StudyError> {
    let (duration, warmup) = (options.duration.unwrap_or(scenario.duration), scenario.warmup);
    if duration <= warmup {
        let message = format!("--for {duration}: must be longer than the warm-up ({warmup})");
        return Err(StudyError::Option(message));
    }
    Ok(duration)
}

/// The costs that are not zero.
pub(super) fn costs(costs: &Costs) -> Vec<(String, u64)> {
    let value = |name: &str| costs.get(name).unwrap_or_default().0;
    Costs::knobs()
        .filter(|(name, _)| value(name) > 0)
        .map(|(name, _)| (name.to_owned(), value(name)))
        .collect()
}

/// Every expectation against every row and task that it covers.
fn check(scenario: &Scenario, plans: &[RowPlan], runs: &[Vec<Run>]) -> Vec<Checked> {
    let mut checked = Vec::new();
    let cpus = scenario.machine.topology.cpus();
    for expectation in scenario.expectations.iter().filter(|one| one.is_for(cpus)) {
        for (plan, own) in plans.iter().zip(runs) {
            // What the user adds on the command line was not known to the scenario's author.
            if !expectation.covers(&plan.label, &plan.variant) || !is_own(scenario, plan) {
                continue;
            }
            let base = match &expectation.over {
                None => None,
                Some(over) => {
                    let same = |(other, _): &(&RowPlan, &Vec<Run>)| {
                        let under = expectation.over_scheduler.as_ref();
                        under.map_or(other.label == plan.label, |under| glob(under, &other.label))
                            && glob(over, &other.variant)
                    };
                    let Some((_, base)) = plans.iter().zip(runs).find(same) else { continue };
                    Some(base)
                }
            };
            for (kind, name) in subjects(expectation, scenario, &own[0]) {
                checked.push(one(expectation, plan, own, base, kind, &name));
            }
        }
    }
    checked
}

/// Whether a row was written by the scenario's author.
fn is_own(scenario: &Scenario, plan: &RowPlan) -> bool {
    let scheduler = scenario.schedulers.iter().any(|spec| spec.to_string() == plan.label);
    let variant = plan.variant == scenario.baseline
        || scenario.variants.iter().any(|v| v.name == plan.variant);
    scheduler && variant
}

/// Which tasks an expectation is about: a class by its exact name, else every task that matches.
fn subjects(expectation: &Expectation, scenario: &Scenario, run: &Run) -> Vec<(Kind, String)> {
    let matching = |pattern: &str, kind: Kind| -> Vec<(Kind, String)> {
        let of_kind = run.measured.subjects.iter().filter(|subject| subject.kind == kind);
        of_kind.filter(|s| glob(pattern, &s.name)).map(|s| (kind, s.name.clone())).collect()
    };
    if let Some(source) = &expectation.source {
        return matching(source, Kind::Source);
    }
    if let Some(channel) = &expectation.channel {
        return match matching(channel, Kind::Channel) {
            // Nothing was finished there: that must not pass in silence.
            none if none.is_empty() => vec![(Kind::Channel, channel.clone())],
            some => some,
        };
    }
    if expectation.machine {
        return vec![(Kind::Machine, MACHINE.to_owned())];
    }
    let pattern = expectation.task.as_deref().unwrap_or("*");
    let class_of_vcpus = scenario.vms.iter().any(|vm| vm.class() == pattern);
    if class_of_vcpus || scenario.classes.iter().any(|class| class == pattern) {
        return vec![(Kind::Class, pattern.to_owned())];
    }
    let tasks = scenario.workload.tasks.iter().filter(|task| glob(pattern, &task.name));
    let vcpus =
        scenario.vms.iter().flat_map(|vm| vm.vcpu_names()).filter(|name| glob(pattern, name));
    tasks.map(|task| task.name.clone()).chain(vcpus).map(|name| (Kind::Task, name)).collect()
}

fn one(
    expectation: &Expectation,
    plan: &RowPlan,
    own: &[Run],
    base: Option<&Vec<Run>>,
    kind: Kind,
    name: &str,
) -> Checked {
    let metric = expectation.metric;
    let mine = Estimate::from_values(values(own, kind, name, metric));
    let got = match base {
        None => mine,
        Some(base) => {
            let theirs = Estimate::from_values(values(base, kind, name, metric))
                .map(|estimate| estimate.median);
            mine.zip(theirs)
                .filter(|(_, theirs)| *theirs != 0.0)
                .map(|(mine, theirs)| mine.divided_by(theirs))
        }
    };
    let show = |value: f64| match base {
        Some(_) => format!("{value:.4}"),
        None if metric.unit() == crate::metric::Unit::Share => format!("{value:.4}"),
        None if metric.unit() == crate::metric::Unit::Time => Ns(value as u64).to_string(),
        None => metric.show(value),
    };
    // A source or a task that did nothing has a rate of 0, which an expectation may well demand.
    let rate = metric.unit() == crate::metric::Unit::PerSecond;
    let got =
        got.or((rate && base.is_none()).then_some(Estimate { median: 0.0, low: 0.0, high: 0.0 }));
    let published = expectation.published.as_deref();
    Checked {
        expectation: expectation.to_string(),
        line: expectation.line,
        scheduler: plan.label.clone(),
        variant: plan.variant.clone(),
        subject: name.to_owned(),
        got: got.map_or_else(|| "nothing".to_owned(), |got| show(got.median)),
        holds: got.is_some_and(|got| expectation.bound.holds(got.median)),
        published: expectation.published.clone(),
        deviation: published
            .zip(got)
            .and_then(|(text, got)| Deviation::from_text(text, metric, base.is_some(), &got)),
        differs: expectation.differs.clone(),
    }
}
