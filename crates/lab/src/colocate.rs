//! `schedlab colocate`: the mildest setting of the stock kernel under which a server beside batch
//! work meets its goals.
//!
//! It records the host as it is, then under one actuator after the other, the mildest first. The
//! first that meets the goals is confirmed in interleaved rounds, with and without it. Every round
//! begins and ends with the host's default: each has a [`Keeper`](schedlab_live::Keeper) of its
//! own. Another one confines server and batch work to the managed CPUs throughout.
//!
//! To read it, go down: [`colocate`] here, then `search.rs` (which setting), `trial.rs` (a round of
//! one setting), `round.rs` (the values of a recording). `judge.rs` and `distance.rs` say whether
//! values meet the goals.

mod advice;
mod answer;
mod attach;
mod awake;
mod blame;
mod client;
mod distance;
mod error;
mod intentions;
mod judge;
mod plan;
#[cfg(test)]
mod pretended;
mod pulse;
mod round;
mod samples;
mod search;
mod trial;
mod workload;

pub use advice::{Advice, advice};
pub use answer::{
    ColocateAnswer, ColocateDryRun, ColocateObserver, ColocateOutput, Colocation, GivenBack,
    SCHEMA, Tried,
};
pub use awake::KeptAwake;
pub use blame::{Blamed, median_blame};
pub use client::{Client, ClientMeasurements};
pub use distance::Distance;
pub use error::ColocateError;
pub use intentions::{Intent, intentions};
pub use plan::{ColocatePlan, Goal};
pub use round::{FIGURES, Round, WorkloadRole};
pub use search::MOST_TIMES;
pub use workload::WorkloadSource;

use blame::not_the_batch;
use judge::judge;
use search::search;
use trial::Trial;

/// Tries, confirms and keeps; afterwards everything is as before. `stop` is asked every 20 ms; what
/// was measured until then is an answer.
///
/// # Errors
/// See [`ColocateError`].
pub fn colocate(
    plan: &ColocatePlan,
    observer: &mut dyn ColocateObserver,
    stop: &dyn Fn() -> bool,
) -> Result<Colocation, ColocateError> {
    let mut trial = Trial::start(plan, stop)?;
    let mut found = Colocation::new(plan, trial.cpus);
    match search(&mut trial, plan, &mut found, observer) {
        Err(ColocateError::Interrupted) if found.has_rounds() => found.end_early(),
        searched => searched?,
    }
    found.not_the_batch = not_the_batch(&found.by_default());
    if let (Some(how), Some(time)) = (found.chosen.filter(|_| !found.partial), plan.keep_for) {
        let setting = trial.set(how)?;
        observer.keeping(how, time);
        found.kept = trial.keep(how, setting, time, &mut |round| {
            let met = judge(&plan.goals, std::slice::from_ref(round), &found.before, &found.alone);
            observer.kept(round, met);
        })?;
        found.kept_outcome = Some(judge(&plan.goals, &found.kept, &found.before, &found.alone));
    }
    (found.awake, found.stood_still_ns) = (trial.awake, trial.stood_still.as_nanos() as u64);
    found.batch_restarts = trial.batch_restarts();
    found.given_back = trial.finish()?;
    Ok(found)
}
