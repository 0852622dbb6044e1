//! Running a scenario under every assertion: twice alike, and once with every tick delivered (not with nested machines);
//! all must give the same events.

use super::draft::Draft;
use super::watch::Watch;
use crate::LabError;
use crate::compare::{machine, one_plan};
use crate::run::Plan;
use crate::scenario::{Scenario, parse};
use schedlab_model::EventSink;
use schedlab_scheduler::{KnobError, Scheduler, SchedulerSpec};
use schedlab_sim::{Outcome, RunOptions, SimError};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What became of a scenario.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Ran, with this many events.
    Ran(u64),
    /// Refused with a reason that is not a fault (a capability that is missing, an impossible affinity).
    Refused(String),
    /// An assertion failed, or the runs differ.
    Failed(String),
}

/// Makes a scheduler for a number of CPUs; `registry::build`, or something else under test.
pub type Builder = dyn Fn(&SchedulerSpec, usize) -> Result<Box<dyn Scheduler>, KnobError>;

/// Runs the scenario `text` under its first scheduler, made by `build`. A panic is a failure, not the end.
pub fn trial(text: &str, build: &Builder) -> Verdict {
    let scenario = match parse("random", "random.toml", text) {
        Ok(scenario) => scenario,
        Err(error) => return Verdict::Refused(format!("scenario: {}", error.message)),
    };
    let caught = catch_unwind(AssertUnwindSafe(|| three_times(&scenario, build)));
    caught.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Verdict::Failed(format!("panicked: {}", text.unwrap_or_default()))
    })
}

fn three_times(scenario: &Scenario, build: &Builder) -> Verdict {
    let plan = match one_plan(scenario, &scenario.schedulers[0], None) {
        Ok(plan) => plan,
        Err(error) => return Verdict::Refused(error.to_string()),
    };
    let mut watch = Watch::new(scenario);
    // The events of nested machines are the hypervisor's, whose tasks are others.
    let watched = plan.vms.is_empty();
    let first = match watched {
        true => once(scenario, &plan, build, false, &mut watch),
        false => once(scenario, &plan, build, false, &mut ()),
    };
    let first = match first {
        Ok(outcome) => outcome,
        Err(error) => return refused_or_failed(&error),
    };
    if let Some(what) = watch.finish(scenario.duration).filter(|_| watched) {
        return Verdict::Failed(what);
    }
    let again = (false, "run again");
    // A guest's idle CPU has no tick: delivering it would wake the vCPU, which the hypervisor sees.
    let ways = if watched { vec![again, (true, "with every tick delivered")] } else { vec![again] };
    for (every_tick, how) in ways {
        match once(scenario, &plan, build, every_tick, &mut ()) {
            Ok(second) if second.event_hash == first.event_hash => {}
            Ok(second) => {
                return Verdict::Failed(format!(
                    "{how}, the events differ: {:016x} with {} events, then {:016x} with {}",
                    first.event_hash, first.events, second.event_hash, second.events
                ));
            }
            Err(error) => return Verdict::Failed(format!("{how}: {error}")),
        }
    }
    Verdict::Ran(first.events)
}

fn once<S: EventSink>(
    scenario: &Scenario,
    plan: &Plan,
    build: &Builder,
    every_tick: bool,
    sink: &mut S,
) -> Result<Outcome, LabError> {
    let machine = machine(scenario);
    let scheduler = build(&plan.scheduler, plan.decided(machine.topology.cpus()))?;
    let (seed, duration, warmup) = (scenario.seed, scenario.duration, scenario.warmup);
    plan.run(&machine, &*scheduler, &RunOptions { seed, duration, warmup, every_tick }, sink)
}

fn refused_or_failed(error: &LabError) -> Verdict {
    let LabError::Run { source, .. } = error else { return Verdict::Refused(error.to_string()) };
    match **source {
        SimError::Scheduler { .. } | SimError::Internal { .. } => Verdict::Failed(source.to_string()),
        // The kind of a refusal, without its particulars.
        _ => Verdict::Refused(
            format!("{source:?}").split([' ', '(', '{']).next().unwrap_or_default().to_owned(),
        ),
    }
}

/// Leaves out of a draft that fails whatever it fails without, in at most `trials` trials.
pub fn shrink(draft: &Draft, build: &Builder, trials: usize) -> Draft {
    let mut best = draft.clone();
    let mut left = trials;
    loop {
        let mut found = None;
        for smaller in best.smaller() {
            if left == 0 {
                return best;
            }
            left -= 1;
            if matches!(trial(&smaller.to_toml(), build), Verdict::Failed(_)) {
                found = Some(smaller);
                break;
            }
        }
        match found {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}
