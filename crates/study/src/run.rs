//! Running rows: every scheduler × variant × seed, on as many threads as asked for. The result does
//! not depend on the number of threads.

mod known;
pub(crate) mod levels;
mod nested;
mod row;
pub(crate) mod spinning;

pub(crate) use known::KnownRuns;
pub(crate) use row::{RowPlan, own_variants, with_knobs};

use crate::StudyError;
use crate::compare::Seen;
use crate::compare::course::{Course, Watch};
use crate::compare::observe::{Keep, Observer};
use crate::measurements::Measured;
use schedlab_model::{EventSink, Fact, Ns, SchedEvent, Workload};
use schedlab_scheduler::Scheduler;
use schedlab_sim::{Machine, Outcome, RunOptions, SimError, Stop, WaitsFor};
use schedlab_trace::analysis::Summary;
use schedlab_trace::analysis::messages::RequestTimes;
use schedlab_trace::siblings::BesideTimes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How each row is run.
pub(crate) struct Bench<'a> {
    /// The machine for a seed.
    pub(crate) machine: &'a (dyn Fn(u64) -> Machine + Sync),
    /// Class of each task.
    pub(crate) classes: &'a [String],
    /// Virtual time of each run.
    pub(crate) duration: Ns,
    /// A run ends with its last task, if that is earlier.
    pub(crate) end_with_tasks: bool,
    /// Not counted.
    pub(crate) warmup: Ns,
    /// One run for each.
    pub(crate) seeds: &'a [u64],
    /// Observe each plan's first seed.
    pub(crate) keep: Option<&'a Keep>,
    /// Measure with the analysis of recordings instead of the simulator's own metrics; the function
    /// names the tasks that must be measured by themselves.
    pub(crate) as_recording: Option<&'a (dyn Fn(usize) -> Option<String> + Sync)>,
    /// Measure requests, too, by what the simulated tasks exchange; a measurement of none to begin
    /// with.
    pub(crate) requests: Option<&'a RequestTimes>,
    /// What is measured with that analysis.
    pub(crate) measures: Measures,
    /// Threads; 0 = one per CPU.
    pub(crate) jobs: usize,
    /// Called with (done, all) runs.
    pub(crate) progress: &'a (dyn Fn(usize, usize) + Sync),
    /// When it becomes true, the runs end.
    pub(crate) stop: Option<&'a Arc<AtomicBool>>,
    /// Plans that are not finished then are left out, unless it is the first.
    pub(crate) keep_finished: bool,
    /// What the finished runs tell while others run.
    pub(crate) seen: Option<&'a Seen>,
    /// Runs of the first plan that were made before; `None`: it is another one, or is measured
    /// otherwise.
    pub(crate) known: Option<&'a KnownRuns>,
}

/// What is measured of a run's events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Measures {
    /// Sums: distributions stay empty.
    Sums,
    /// Sums and distributions.
    All,
    /// These, and the course of the first plan's runs.
    Course,
}

impl Measures {
    /// With the course, if it is asked for.
    pub(crate) fn all(course: bool) -> Measures {
        if course { Measures::Course } else { Measures::All }
    }
}

/// What a bench ran.
pub(crate) struct Ran {
    /// By plan, then by seed.
    pub(crate) runs: Vec<Vec<Run>>,
    /// The seeds: all of them, unless the runs were ended.
    pub(crate) seeds: Vec<u64>,
    /// A sentence about each plan whose tasks the scheduler does not admit.
    pub(crate) refused: Vec<String>,
    /// How many runs were not finished when they were ended.
    pub(crate) unfinished: usize,
}

/// What one run gave.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) measured: Measured,
    pub(crate) event_hash: u64,
    /// When it ended, in virtual time.
    pub(crate) ended: Ns,
    pub(crate) delegation: Option<Box<schedlab_sim::DelegationMetrics>>,
    pub(crate) notes: Vec<String>,
    /// What was observed, where that was asked for.
    pub(crate) observed: Option<Box<Observer>>,
    /// What the tasks had window by window, where that was asked for.
    pub(crate) course: Option<Box<Course>>,
    /// How long its tasks ran beside busy threads of their cores, where cores have several.
    pub(crate) beside: Option<Box<BesideTimes>>,
}

impl RowPlan {
    /// Simulates the row once. With virtual machines `sink` sees the hypervisor.
    pub(crate) fn run(
        &self,
        machine: &Machine,
        scheduler: &dyn Scheduler,
        options: &RunOptions,
        sink: &mut dyn EventSink,
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

    fn failed(&self, source: SimError) -> StudyError {
        if source == SimError::Stopped {
            return StudyError::Stopped;
        }
        let (scheduler, variant) = (self.label.clone(), self.variant.clone());
        StudyError::Run { scheduler, variant, source: Box::new(source) }
    }
}

impl Bench<'_> {
    /// Runs every plan with every seed, and returns the runs by plan. A plan whose tasks the
    /// scheduler does not admit leaves `plans` unless it is the first, and a sentence about it is
    /// returned.
    pub(crate) fn run(&self, plans: &mut Vec<RowPlan>) -> Result<Ran, StudyError> {
        let mut runs = self.by_plan(plans)?;
        let is_ended = |run: &&Result<Run, StudyError>| matches!(run, Err(StudyError::Stopped));
        let unfinished = runs.iter().flatten().filter(is_ended).count();
        let seeds = if self.keep_finished { finished(&runs, self.seeds.len()) } else { None };
        let seeds = seeds.unwrap_or_else(|| (0..self.seeds.len()).collect());
        let of = |seeds: &[usize]| seeds.iter().map(|&seed| self.seeds[seed]).collect();
        let mut ran = Ran { runs: Vec::new(), seeds: of(&seeds), refused: Vec::new(), unfinished };
        let mut kept = Vec::new();
        for (index, plan) in std::mem::take(plans).into_iter().enumerate() {
            let mut own: Vec<_> = std::mem::take(&mut runs[index]).into_iter().map(Some).collect();
            let own = seeds.iter().filter_map(|&seed| own[seed].take());
            match own.collect::<Result<Vec<Run>, StudyError>>() {
                Ok(own) => {
                    kept.push(plan);
                    ran.runs.push(own);
                }
                Err(error) if index > 0 && error.is_admission() => {
                    ran.refused.push(format!("left out: {error}"))
                }
                Err(StudyError::Stopped) if index > 0 && self.keep_finished => {}
                Err(error) => return Err(error),
            }
        }
        *plans = kept;
        Ok(ran)
    }

    /// Runs everything, all plans with the first seed, then all with the second, and so on: what is
    /// finished at any time is of all plans alike. Returns the runs by plan, then by seed.
    pub(crate) fn by_plan(
        &self,
        plans: &[RowPlan],
    ) -> Result<Vec<Vec<Result<Run, StudyError>>>, StudyError> {
        let all = plans.len() * self.seeds.len();
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let one = |index: usize| {
            let (place, seed) = (index % plans.len(), self.seeds[index / plans.len()]);
            let run = match place {
                0 => self.first(&plans[0], seed),
                _ => self.one(&plans[place], seed, false),
            };
            if let (Some(seen), Ok(run)) = (self.seen, &run) {
                seen.add(place, &plans[place].variant, &run.measured);
            }
            // A run that was ended is not done.
            if !matches!(run, Err(StudyError::Stopped)) {
                (self.progress)(done.fetch_add(1, Ordering::Relaxed) + 1, all);
            }
            (index, run)
        };
        let of_thread = || {
            let indices = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)));
            indices.take_while(|&index| index < all).map(one).collect::<Vec<_>>()
        };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(self.jobs)
            .build()
            .map_err(|error| StudyError::Option(format!("--jobs {}: {error}", self.jobs)))?;
        let mut runs: Vec<_> = pool.broadcast(|_| of_thread()).into_iter().flatten().collect();
        runs.sort_unstable_by_key(|(index, _)| *index);
        let mut by_plan: Vec<Vec<_>> = plans.iter().map(|_| Vec::new()).collect();
        runs.into_iter().for_each(|(index, run)| by_plan[index % plans.len()].push(run));
        Ok(by_plan)
    }

    /// Runs the first plan, unless that is known.
    fn first(&self, plan: &RowPlan, seed: u64) -> Result<Run, StudyError> {
        if let Some(run) = self.known.and_then(|known| known.get(&plan.scheduler, seed)) {
            return Ok(run);
        }
        let run = self.one(plan, seed, self.measures == Measures::Course)?;
        if let Some(known) = self.known {
            known.keep(&plan.scheduler, seed, plan.workload.tasks.len(), &run);
        }
        Ok(run)
    }

    fn options(&self, seed: u64) -> RunOptions {
        RunOptions {
            seed,
            duration: self.duration,
            warmup: self.warmup,
            end_with_tasks: self.end_with_tasks,
            midway: self.as_recording.is_some(),
            // What the simulator measures itself is not read then.
            sums_only: self.as_recording.is_some(),
            stop: self.stop.cloned().map(Stop::when),
            ..RunOptions::default()
        }
    }

    fn one(&self, plan: &RowPlan, seed: u64, watched: bool) -> Result<Run, StudyError> {
        if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(StudyError::Stopped);
        }
        let machine = Machine {
            preemption: plan.preemption.clone(),
            roles: plan.roles,
            smt_yield: plan.smt_yield.speed(),
            ..(self.machine)(seed)
        };
        let cpus = machine.topology.cpus();
        let scheduler = plan.build(cpus)?;
        let options = self.options(seed);
        let summary = Summary::new(plan.workload.tasks.len(), cpus, self.warmup);
        let summary = summary.of_vcpus(&plan.vcpus);
        let only_sums = self.measures == Measures::Sums;
        let summary = if only_sums { summary.sums_only() } else { summary };
        let requests = self.requests.cloned();
        let watch = watched.then(|| Watch::new(&plan.vcpus, cpus, self.duration, requests.clone()));
        let siblings = self.as_recording.is_some() && machine.topology.has_siblings();
        let tasks = plan.workload.tasks.len();
        let beside = siblings.then(|| BesideTimes::new(&machine.topology, tasks));
        let mut summary = Observed { summary, requests, watch, beside };
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
        let Observed { mut summary, requests, watch, beside } = summary;
        let measured = match self.as_recording {
            Some(single) => {
                summary.finish(self.duration);
                let mut measured = Measured::of_summary(&summary, self.classes, single);
                if let Some(requests) = requests {
                    measured.requests(&requests, summary.window);
                }
                measured
            }
            None => Measured::of_metrics(&outcome.metrics, &plan.classes(self.classes)),
        };
        Ok(Run {
            measured,
            event_hash: outcome.event_hash,
            ended: outcome.metrics.to,
            delegation: outcome.metrics.delegation.clone(),
            notes: stuck(&outcome, &plan.workload, self.duration),
            observed,
            course: watch.map(|watch| Box::new(watch.finish())),
            beside: beside.map(Box::new),
        })
    }
}

/// Returns the places of the seeds with which every plan is finished; where there is none, the one
/// with which most plans are, the first among them. `None`: nothing was ended, or nothing helps.
fn finished(runs: &[Vec<Result<Run, StudyError>>], seeds: usize) -> Option<Vec<usize>> {
    let is_over = |run: &Result<Run, StudyError>| !matches!(run, Err(StudyError::Stopped));
    let over = |seed: usize| runs.iter().filter(|own| is_over(&own[seed])).count();
    if (0..seeds).all(|seed| over(seed) == runs.len()) {
        return None;
    }
    let whole: Vec<usize> = (0..seeds).filter(|&seed| over(seed) == runs.len()).collect();
    if !whole.is_empty() {
        return Some(whole);
    }
    let of_first = (0..seeds).filter(|&seed| runs.first().is_some_and(|own| is_over(&own[seed])));
    // The first of equals.
    of_first.rev().max_by_key(|&seed| over(seed)).map(|seed| vec![seed])
}

/// What is measured of a simulated recording: as a recorded one is.
struct Observed {
    summary: Summary,
    requests: Option<RequestTimes>,
    watch: Option<Watch>,
    beside: Option<BesideTimes>,
}

impl EventSink for Observed {
    fn event(&mut self, event: &SchedEvent) {
        self.summary.event(event);
        if let Some(beside) = &mut self.beside {
            beside.event(event);
        }
        if let Some(watch) = &mut self.watch {
            watch.event(event);
        }
    }

    fn fact(&mut self, fact: &Fact) {
        if let Some(requests) = &mut self.requests {
            requests.fact(fact);
        }
        if let Some(watch) = &mut self.watch {
            watch.fact(fact);
        }
    }
}

/// Says which task waits for ever, and that the run ended early.
fn stuck(outcome: &Outcome, workload: &Workload, duration: Ns) -> Vec<String> {
    let Some(first) = outcome.stuck.first() else { return Vec::new() };
    if outcome.ended >= duration {
        return Vec::new();
    }
    let what = match first.waits_for {
        WaitsFor::Receive(channel) => {
            format!("channel `{}`", workload.channels[channel.index()].name)
        }
        WaitsFor::Room(channel) => {
            format!("room in channel `{}`", workload.channels[channel.index()].name)
        }
        WaitsFor::Lock(_, Some(owner)) => {
            format!("a lock of `{}`", workload.tasks[owner.index()].name)
        }
        WaitsFor::Object(object) => {
            format!("object `{}`", workload.exchange.objects[object.index()].name)
        }
        WaitsFor::Executor(executor) => {
            format!("work for `{}`", workload.exchange.executors[executor.index()].name)
        }
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
