//! Running a scenario under every assertion: twice alike, and once with every tick delivered (not
//! with nested machines); all must give the same events, and an observer that knows only the events
//! must miss no task.

use super::draft::Draft;
use super::watch::StateChecker;
use crate::StudyError;
use crate::run::RowPlan;
use crate::scenario::{Scenario, parse};
use schedlab_model::{EventSink, Ns, SchedEvent};
use schedlab_scheduler::{KnobError, Scheduler, SchedulerSpec};
use schedlab_sim::{Outcome, RunOptions, SimError};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A run with more events than this is given up: a case must not take for ever.
pub const MOST_EVENTS: u64 = 2_000_000;

/// Which assertion failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The scheduler broke its contract.
    Contract,
    /// The simulator broke its own rules.
    Simulator,
    /// Steps without end in which no time passes.
    Circle,
    /// The same of agents.
    Restless,
    /// A panic.
    Panic,
    /// The events contradict each other, or a task was forgotten.
    Events,
    /// The same run twice gives other events.
    Unsteady,
    /// Ticks that were left out mattered.
    Ticks,
    /// No answer (only a driver that runs it in another process can tell).
    Hangs,
    /// The process died (the same).
    Dies,
}

impl Fault {
    /// All, with the names that they are written down by.
    pub const ALL: [(Fault, &'static str); 10] = [
        (Fault::Contract, "contract"),
        (Fault::Simulator, "simulator"),
        (Fault::Circle, "circle"),
        (Fault::Restless, "restless"),
        (Fault::Panic, "panic"),
        (Fault::Events, "events"),
        (Fault::Unsteady, "unsteady"),
        (Fault::Ticks, "ticks"),
        (Fault::Hangs, "hangs"),
        (Fault::Dies, "dies"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Fault::ALL.iter().find(|(fault, _)| *fault == self).map_or("", |(_, name)| name)
    }
}

/// What became of a scenario.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Ran, with this many events.
    Ran(u64),
    /// Refused with a reason that is not a fault (a capability that is missing, an impossible
    /// affinity), or too long.
    Refused(String),
    /// An assertion failed: which, and the particulars.
    Failed(Fault, String),
}

/// Makes a scheduler for a number of CPUs; `registry::build`, or something else under test.
pub type Builder = dyn Fn(&SchedulerSpec, usize) -> Result<Box<dyn Scheduler>, KnobError>;

/// Runs the scenario `text` under its first scheduler, made by `build`. A panic is a failure, not
/// the end.
pub fn trial(text: &str, build: &Builder) -> Verdict {
    match parse("random", "random.toml", text) {
        Ok(scenario) => assertions(&scenario, &scenario.schedulers[0], build),
        Err(error) => Verdict::Refused(format!("scenario: {}", error.message)),
    }
}

/// Runs a scenario under a scheduler, made by `build`. A panic is a failure, not the end.
pub fn assertions(scenario: &Scenario, scheduler: &SchedulerSpec, build: &Builder) -> Verdict {
    let caught = catch_unwind(AssertUnwindSafe(|| three_times(scenario, scheduler, build)));
    caught.unwrap_or_else(|panic| {
        if panic.is::<TooLong>() {
            return Verdict::Refused(format!("more than {MOST_EVENTS} events"));
        }
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Verdict::Failed(Fault::Panic, format!("panicked: {}", text.unwrap_or_default()))
    })
}

/// The run has more events than it may have.
struct TooLong;

/// Counts events; unwinds with [`TooLong`] when there are too many, since nothing else ends a run
/// early. In a circle, where time does not advance, the engine has a limit of its own.
struct Budget<'a> {
    inner: &'a mut dyn EventSink,
    left: u64,
    last: Ns,
}

impl EventSink for Budget<'_> {
    fn event(&mut self, event: &SchedEvent) {
        self.inner.event(event);
        let passes = std::mem::replace(&mut self.last, event.at) != event.at;
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None if passes => resume_unwind(Box::new(TooLong)),
            None => {}
        }
    }
}

fn three_times(scenario: &Scenario, scheduler: &SchedulerSpec, build: &Builder) -> Verdict {
    let plan = match RowPlan::of_scenario(scenario, scheduler, None) {
        Ok(plan) => plan,
        Err(error) => return Verdict::Refused(error.to_string()),
    };
    let mut watch = StateChecker::new(scenario, &plan);
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
        return Verdict::Failed(Fault::Events, what);
    }
    let again = (false, Fault::Unsteady, "run again");
    // A guest's idle CPU has no tick: delivering it would wake the vCPU, which the hypervisor sees.
    let ways = if watched {
        vec![again, (true, Fault::Ticks, "with every tick delivered")]
    } else {
        vec![again]
    };
    for (every_tick, fault, how) in ways {
        match once(scenario, &plan, build, every_tick, &mut ()) {
            Ok(second) if second.event_hash == first.event_hash => {}
            Ok(second) => {
                let counts = format!("{} events, then {}", first.events, second.events);
                let first_one = difference(scenario, &plan, build, every_tick);
                return Verdict::Failed(
                    fault,
                    format!("{how}, the events differ: {counts}{first_one}"),
                );
            }
            Err(error) => return Verdict::Failed(fault, format!("{how}: {error}")),
        }
    }
    Verdict::Ran(first.events)
}

/// The first event that is another one when the scenario runs again, with every tick or not.
fn difference(scenario: &Scenario, plan: &RowPlan, build: &Builder, every_tick: bool) -> String {
    let (mut some, mut every): (Vec<SchedEvent>, Vec<SchedEvent>) = (Vec::new(), Vec::new());
    once(scenario, plan, build, false, &mut some).ok();
    once(scenario, plan, build, every_tick, &mut every).ok();
    let at = some.iter().zip(&every).position(|(some, every)| some != every);
    let at = at.unwrap_or(some.len().min(every.len()));
    match (some.get(at), every.get(at)) {
        (None, None) => String::new(),
        (some, every) => format!("; event {at} is {some:?}, then {every:?}"),
    }
}

fn once(
    scenario: &Scenario,
    plan: &RowPlan,
    build: &Builder,
    every_tick: bool,
    sink: &mut dyn EventSink,
) -> Result<Outcome, StudyError> {
    let machine = scenario.simulated_machine();
    let scheduler = build(&plan.scheduler, plan.decided(machine.topology.cpus()))?;
    let (seed, duration, warmup) = (scenario.seed, scenario.duration, scenario.warmup);
    let mut sink = Budget { inner: sink, left: MOST_EVENTS, last: Ns::ZERO };
    plan.run(
        &machine,
        &*scheduler,
        &RunOptions { seed, duration, warmup, every_tick, ..RunOptions::default() },
        &mut sink,
    )
}

fn refused_or_failed(error: &StudyError) -> Verdict {
    let StudyError::Run { source, .. } = error else { return Verdict::Refused(error.to_string()) };
    match **source {
        SimError::Scheduler { .. } => Verdict::Failed(Fault::Contract, source.to_string()),
        SimError::Internal { .. } => Verdict::Failed(Fault::Simulator, source.to_string()),
        SimError::Livelock { .. } => Verdict::Failed(Fault::Circle, source.to_string()),
        SimError::Restless { .. } => Verdict::Failed(Fault::Restless, source.to_string()),
        // The kind of a refusal, without its particulars.
        _ => Verdict::Refused(
            format!("{source:?}").split([' ', '(', '{']).next().unwrap_or_default().to_owned(),
        ),
    }
}

/// What a trial of [`shrink`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Still {
    /// It still fails, in the same way.
    Fails,
    /// It does not.
    Holds,
    /// No more trials, please.
    Enough,
}

/// Leaves out of a draft that fails whatever it fails without, until `still` has had enough.
pub fn shrink(draft: &Draft, mut still: impl FnMut(&Draft) -> Still) -> Draft {
    let mut best = draft.clone();
    // What could not be left out a moment ago mostly cannot now: go on from there, and once more
    // from the beginning.
    let (mut at, mut since) = (0, 0);
    loop {
        let smaller = best.smaller();
        if since >= smaller.len() {
            return best;
        }
        at %= smaller.len();
        match still(&smaller[at]) {
            Still::Fails => {
                best = smaller[at].clone();
                since = 0;
            }
            Still::Holds => (at, since) = (at + 1, since + 1),
            Still::Enough => return best,
        }
    }
}
