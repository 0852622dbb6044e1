//! Delegation modes for random cases.

use super::random::Dice;
use schedlab_model::{CpuId, Ns, Workload};
use schedlab_scheduler::{Scheduler, SchedulerSpec, registry};
use schedlab_sim::{
    Delegation, DelegationCosts, Failure, Machine, Mode, Outcome, RunOptions, SimError, run_delegated,
};

/// How a case delegates.
#[derive(Debug)]
pub(super) struct Delegated {
    mode: Mode,
    costs: DelegationCosts,
    group: u32,
    outside: Vec<bool>,
    failure: Option<(Ns, Failure)>,
    runnable_timeout: Option<Ns>,
}

/// Every third case runs behind agents.
pub(super) fn draw(dice: &mut Dice, cpus: usize, tasks: usize, duration: Ns) -> Option<Delegated> {
    if !dice.chance(33) {
        return None;
    }
    let global = cpus > 1 && dice.chance(50);
    let mode = match global {
        true => Mode::Global(CpuId(dice.between(0, cpus as u64 - 1) as u32)),
        false => Mode::PerCpu,
    };
    let mut costs = DelegationCosts::default();
    match dice.between(0, 2) {
        0 => {}
        1 => costs = DelegationCosts::ghost_2021(),
        _ => {
            for (name, _) in DelegationCosts::NAMES {
                costs.set(name, Ns(dice.between(0, 3_000)));
            }
        }
    }
    let at = Ns(dice.between(0, duration.0));
    let failure = match dice.between(0, 4) {
        0 => Some((at, Failure::Die)),
        1 => Some((at, Failure::Hang)),
        _ => None,
    };
    Some(Delegated {
        mode,
        costs,
        group: dice.between(1, 8) as u32,
        outside: (0..tasks).map(|_| dice.chance(15)).collect(),
        failure,
        runnable_timeout: dice.chance(50).then(|| Ns::from_ms(dice.between(5, 200))),
    })
}

/// Runs a case, behind agents where it has some.
pub(super) fn run(
    delegated: Option<&Delegated>,
    spec: &SchedulerSpec,
    machine: &Machine,
    workload: &Workload,
    options: &RunOptions,
) -> Result<Outcome, SimError> {
    let cpus = machine.topology.cpus();
    let build = |spec: &SchedulerSpec, cpus: usize| -> Result<Box<dyn Scheduler>, SimError> {
        registry::build(spec, cpus).map_err(|error| SimError::Machine(error.to_string()))
    };
    let Some(own) = delegated else {
        let scheduler = build(spec, cpus)?;
        return schedlab_sim::run(machine, workload, scheduler.as_ref(), options, &mut ());
    };
    let scheduler = build(spec, own.mode.cpus(cpus))?;
    let kernel = build(&SchedulerSpec { name: "linux-6.1".to_owned(), knobs: Vec::new() }, cpus)?;
    let delegation = Delegation {
        mode: own.mode,
        costs: own.costs,
        group: own.group,
        own: &*kernel,
        outside: own.outside.clone(),
        failure: own.failure,
        runnable_timeout: own.runnable_timeout,
    };
    run_delegated(machine, workload, &*scheduler, &delegation, options, &mut ())
}
