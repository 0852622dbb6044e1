//! Running rows: every scheduler × variant × seed, on as many threads as asked for. The result does not
//! depend on the number of threads.

pub(crate) mod levels;
mod nested;

use crate::StudyError;
use crate::compare::observe::{Keep, Observer};
use crate::delegation::Delegated;
use crate::measurements::Measured;
use crate::scenario::VmSpec;
use rayon::prelude::*;
use schedlab_model::{EventSink, Ns, Workload};
use schedlab_scheduler::{KnobError, Knobs, Scheduler, SchedulerSpec, registry};
use schedlab_sim::{Machine, Outcome, Preemption, RunOptions, SimError, WaitsFor};
use schedlab_trace::analysis::Summary;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One row to run: a scheduler, and a workload with a variant's changes.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Scheduler with all knobs.
    pub(crate) scheduler: SchedulerSpec,
    /// As it stands in the table.
    pub(crate) label: String,
    /// Name of the variant.
    pub(crate) variant: String,
    /// What runs.
    pub(crate) workload: Workload,
    /// Domains with kernels of their own.
    pub(crate) vms: Vec<VmSpec>,
    /// It runs behind agents.
    pub(crate) delegation: Option<Delegated>,
    /// Preemption model and interrupt threads of the machine.
    pub(crate) preemption: Preemption,
    /// Which tasks the variant changes.
    pub(crate) changed: Vec<usize>,
    /// What a reader must know.
    pub(crate) notes: Vec<String>,
}

/// How each row is run.
pub(crate) struct Bench<'a> {
    /// The machine for a seed.
    pub(crate) machine: &'a (dyn Fn(u64) -> Machine + Sync),
    /// Class of each task.
    pub(crate) classes: &'a [String],
    /// Virtual time of each run.
    pub(crate) duration: Ns,
    /// Not counted.
    pub(crate) warmup: Ns,
    /// One run for each.
    pub(crate) seeds: &'a [u64],
    /// Observe each plan's first seed.
    pub(crate) keep: Option<&'a Keep>,
    /// Measure with the analysis of recordings instead of the simulator's own metrics; the function names
    /// the tasks that must be measured by themselves.
    pub(crate) as_recording: Option<&'a (dyn Fn(usize) -> Option<String> + Sync)>,
    /// Threads; 0 = one per CPU.
    pub(crate) jobs: usize,
    /// Called with (done, all) runs.
    pub(crate) progress: &'a (dyn Fn(usize, usize) + Sync),
}

/// What one run gave.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) measured: Measured,
    pub(crate) event_hash: u64,
    pub(crate) delegation: Option<Box<schedlab_sim::DelegationMetrics>>,
    pub(crate) notes: Vec<String>,
    /// What was observed, where that was asked for.
    pub(crate) observed: Option<Box<Observer>>,
}

impl Plan {
    /// Simulates the row once. With virtual machines `sink` sees the hypervisor.
    pub(crate) fn run<S: EventSink>(
        &self,
        machine: &Machine,
        scheduler: &dyn Scheduler,
        options: &RunOptions,
        sink: &mut S,
    ) -> Result<Outcome, StudyError> {
        if !self.vms.is_empty() {
            return nested::run(self, machine, scheduler, options, sink);
        }
        if let Some(delegated) = &self.delegation {
            return delegated
                .run(machine, &self.workload, scheduler, options, sink)?
                .map_err(|source| self.failed(source));
        }
        schedlab_sim::run(machine, &self.workload, scheduler, options, sink)
            .map_err(|source| self.failed(source))
    }

    /// The row's scheduler for a machine of `cpus` CPUs.
    pub(crate) fn build(&self, cpus: usize) -> Result<Box<dyn Scheduler>, StudyError> {
        Ok(registry::build(&self.scheduler, self.decided(cpus))?)
    }

    /// How many of the machine's CPUs the scheduler decides for.
    pub(crate) fn decided(&self, cpus: usize) -> usize {
        self.delegation.as_ref().map_or(cpus, |delegated| delegated.spec.cpus(cpus))
    }

    fn failed(&self, source: SimError) -> StudyError {
        let (scheduler, variant) = (self.label.clone(), self.variant.clone());
        StudyError::Run { scheduler, variant, source: Box::new(source) }
    }

    fn vcpu_names(&self) -> Vec<String> {
        self.vms.iter().flat_map(VmSpec::vcpu_names).collect()
    }

    /// The classes of the tasks, then those of the vCPUs.
    fn classes(&self, of_tasks: &[String]) -> Vec<String> {
        let vcpus = self.vms.iter().flat_map(|vm| (0..vm.vcpus).map(|_| vm.class()));
        of_tasks.iter().cloned().chain(vcpus).collect()
    }
}

impl Bench<'_> {
    /// Runs every plan with every seed; the outer order is that of the plans, the inner that of the seeds.
    pub(crate) fn run(&self, plans: &[Plan]) -> Result<Vec<Vec<Run>>, StudyError> {
        let all = plans.len() * self.seeds.len();
        let done = AtomicUsize::new(0);
        let one = |index: usize| {
            let run = self.one(&plans[index / self.seeds.len()], self.seeds[index % self.seeds.len()]);
            (self.progress)(done.fetch_add(1, Ordering::Relaxed) + 1, all);
            run
        };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(self.jobs)
            .build()
            .map_err(|error| StudyError::Option(format!("--jobs {}: {error}", self.jobs)))?;
        let runs: Vec<Result<Run, StudyError>> =
            pool.install(|| (0..all).into_par_iter().with_max_len(1).map(one).collect());
        let runs = runs.into_iter().collect::<Result<Vec<Run>, StudyError>>()?;
        Ok(runs.chunks(self.seeds.len()).map(<[Run]>::to_vec).collect())
    }

    fn one(&self, plan: &Plan, seed: u64) -> Result<Run, StudyError> {
        let machine = Machine { preemption: plan.preemption.clone(), ..(self.machine)(seed) };
        let cpus = machine.topology.cpus();
        let scheduler = plan.build(cpus)?;
        let options = RunOptions { seed, duration: self.duration, warmup: self.warmup, every_tick: false };
        let mut summary = Summary::new(plan.workload.tasks.len(), cpus, self.warmup);
        let first = self.seeds.first() == Some(&seed);
        let keep = self.keep.filter(|_| first);
        let mut observed = keep.map(|keep| match plan.vms.is_empty() {
            true => Box::new(Observer::new(keep)),
            false => Box::new(Observer::nested(keep, &plan.vcpu_names())),
        });
        let outcome = match (self.as_recording.is_some(), observed.as_deref_mut()) {
            (true, Some(observer)) => {
                plan.run(&machine, &*scheduler, &options, &mut (&mut summary, observer))
            }
            (true, None) => plan.run(&machine, &*scheduler, &options, &mut summary),
            (false, Some(observer)) if !plan.vms.is_empty() => {
                let all = keep.map_or(&[][..], |keep| &keep.vcpus);
                nested::seen(plan, &machine, &*scheduler, &options, all, observer)
            }
            (false, Some(observer)) => plan.run(&machine, &*scheduler, &options, observer),
            (false, None) => plan.run(&machine, &*scheduler, &options, &mut ()),
        }?;
        let measured = match self.as_recording {
            Some(single) => {
                summary.finish(self.duration);
                Measured::of_summary(&summary, self.classes, single)
            }
            None => Measured::of_metrics(&outcome.metrics, &plan.classes(self.classes)),
        };
        Ok(Run {
            measured,
            event_hash: outcome.event_hash,
            delegation: outcome.metrics.delegation.clone(),
            notes: stuck(&outcome, &plan.workload, self.duration),
            observed,
        })
    }
}

/// Says who waits for ever, and that the run ended early.
fn stuck(outcome: &Outcome, workload: &Workload, duration: Ns) -> Vec<String> {
    let Some(first) = outcome.stuck.first() else { return Vec::new() };
    if outcome.ended >= duration {
        return Vec::new();
    }
    let what = match first.waits_for {
        WaitsFor::Receive(channel) => format!("channel `{}`", workload.channels[channel.index()].name),
        WaitsFor::Room(channel) => format!("room in channel `{}`", workload.channels[channel.index()].name),
        WaitsFor::Lock(_, Some(owner)) => format!("a lock of `{}`", workload.tasks[owner.index()].name),
        WaitsFor::Lock(_, None) => "a lock".to_owned(),
    };
    let others = match outcome.stuck.len() {
        1 => String::new(),
        count => format!(" ({} tasks in all wait for ever)", count),
    };
    vec![format!(
        "nothing happens after {}: `{}` waits for {what}{others}",
        outcome.ended,
        workload.tasks[first.task.index()].name
    )]
}

/// `spec` with more knobs. Knobs that the scheduler does not have are named, not set.
pub(crate) fn with_knobs(
    spec: &SchedulerSpec,
    knobs: &[(String, String)],
) -> Result<(SchedulerSpec, Vec<String>), KnobError> {
    let has = (registry::find(&spec.name)?.knobs)();
    let (mut spec, mut absent) = (spec.clone(), Vec::new());
    for (name, value) in knobs {
        if !has.iter().any(|knob| knob.name == name) {
            absent.push(name.clone());
            continue;
        }
        spec.knobs.retain(|(known, _)| known != name);
        spec.knobs.push((name.clone(), value.clone()));
    }
    Knobs::check(&spec, &has)?;
    Ok((spec, absent))
}
