//! `schedlab experiment`: published experiments with the real programs, on this machine and in the
//! simulator.
//!
//! Each configuration is one *row*. Rows take turns, in a random order of its own in every round.
//! The published figures are printed beside those of this machine (median of the rounds with a
//! bootstrap interval) and those of the simulator, for a machine of this shape under this kernel.
//! Everything that was started or changed is gone at the end, also after Ctrl-C and kill -9.
//!
//! To read it, go down: [`run`] here, then one experiment (`two_hogs.rs` is the shortest),
//! `rounds.rs` (rows in turns), `measurement.rs` (one recorded round on the `testbed.rs`),
//! `window.rs` (what single programs got in it).

mod client;
mod client_kind;
mod figures;
mod measurement;
mod model;
mod page;
mod plan;
mod prices;
mod reader_threads;
mod redis;
mod result;
mod rounds;
mod sleeper;
mod testbed;
mod two_hogs;
mod waits;
mod window;

pub use client::READY;
pub use client_kind::{ClientKind, PUBLISHED_CONNECTIONS};
pub use figures::{Against, Figure, FigureLine, Sheet, Unit};
pub use page::of_experiments;
pub use plan::{ExperimentError, ExperimentKind, ExperimentObserver, ExperimentPlan, Network};
pub use result::{Asleep, ExperimentOutput, ExperimentResult, SCHEMA, StreamLine};

use testbed::Testbed;

/// Runs one experiment. Call it from the first thread of the process: the programs die with the
/// thread that started them. `stop` is asked every 20 ms.
///
/// # Errors
/// See [`ExperimentError`].
pub fn run(
    kind: ExperimentKind,
    plan: &ExperimentPlan,
    observer: &mut dyn ExperimentObserver,
    stop: &dyn Fn() -> bool,
) -> Result<ExperimentResult, ExperimentError> {
    check_installed(kind)?;
    let mut testbed = Testbed::open(kind, plan, stop)?;
    let result = match kind {
        ExperimentKind::TwoHogs => two_hogs::run(&mut testbed, plan, observer),
        ExperimentKind::Sleeper => sleeper::run(&mut testbed, plan, observer),
        ExperimentKind::RedisBatch => redis::run(&mut testbed, plan, observer),
        ExperimentKind::Smp => reader_threads::run(&mut testbed, plan, observer),
    };
    let doubt = testbed.prices.doubt.clone();
    let (notes, given_back) = testbed.close()?;
    let mut result = result?;
    result.conditions.extend(notes);
    result.doubts.extend(doubt);
    if !given_back.complete() {
        result.doubts.push("not everything could be given back: see `schedlab status`".to_owned());
    }
    result.given_back = given_back;
    Ok(result)
}

/// Refuses an experiment whose programs are not installed, with their names.
fn check_installed(kind: ExperimentKind) -> Result<(), ExperimentError> {
    let programs = kind.programs().iter();
    let missing: Vec<_> =
        programs.filter(|(name, _)| schedlab_host::program::find(name).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = |of: fn(&&(&'static str, &'static str)) -> &'static str, between: &str| {
        missing.iter().map(of).collect::<Vec<_>>().join(between)
    };
    Err(ExperimentError::Missing {
        programs: list(|(name, _)| name, ", "),
        packages: list(|(_, package)| package, " "),
    })
}
