//! Random scenarios: machines, tasks, groups, policies, preemption models, nested machines, agents,
//! schedulers with random knobs. Everything follows from one number. [`trial`] runs one under every
//! assertion that there is; [`shrink`] makes the scenario that failed as small as it goes.

mod delegation;
mod dice;
mod draft;
mod parts;
mod trial;
mod watch;

pub use dice::Dice;
pub use draft::{Draft, DraftSection, quote};
pub use trial::{Builder, Fault, MOST_EVENTS, Still, Verdict, assertions, shrink, trial};

use crate::StudyError;
use schedlab_model::{Ns, Policy};
use schedlab_scheduler::{SchedulerSpec, registry};

/// The random scenario of a number; `scheduler` = only this one instead of a random one.
///
/// # Errors
/// When there is no scheduler of that name.
pub fn draft(seed: u64, scheduler: Option<&str>) -> Result<Draft, StudyError> {
    let mut dice = Dice::new(seed);
    let mut draft = Draft::default();
    let names: Vec<&str> = registry::all().iter().map(|entry| entry.name).collect();
    let drawn = *dice.pick(&names);
    let entry = registry::find(scheduler.unwrap_or(drawn))?;
    let xen = entry.family.is_xen();
    draft.comments.push(format!("A random scenario: schedlab generate --seed {seed}"));
    draft.set("title", quote(&format!("random scenario {seed}")));
    let knobs = (entry.knobs)();
    let spec = parts::scheduler(&mut dice, entry.name, &knobs);
    // Some knobs exclude each other; then it has none.
    let works = spec.parse::<SchedulerSpec>().is_ok_and(|spec| registry::check(&spec).is_ok());
    draft.set("schedulers", format!("[{}]", quote(if works { &spec } else { entry.name })));
    let duration = Ns::from_ms(dice.between(50, 1500));
    draft.set("duration", quote(&duration.exact()));
    draft.set("seed", (seed >> 1).to_string());
    let mut shape = parts::machine(&mut dice, &mut draft, xen);
    shape.deadlines = !shape.nested && serves_deadlines(&spec);
    parts::groups(&mut dice, &mut draft, &mut shape, xen);
    parts::tasks(&mut dice, &mut draft, &mut shape);
    delegation::draw(&mut dice, &mut draft, &shape, duration);
    delegation::let_time_pass(&mut draft, &spec);
    Ok(draft)
}

/// Whether a scheduler takes deadline tasks at all.
fn serves_deadlines(spec: &str) -> bool {
    let (runtime, period) = (Ns::from_ms(1), Ns::from_ms(10));
    let policy = Policy::Deadline { runtime, deadline: period, period };
    let spec = spec.parse::<SchedulerSpec>();
    spec.is_ok_and(|spec| {
        registry::build(&spec, 1).is_ok_and(|built| built.refuses(policy).is_none())
    })
}

#[cfg(test)]
mod tests;
