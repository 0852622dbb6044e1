//! Rows whose domains have kernels of their own.

use super::Plan;
use crate::LabError;
use crate::scenario::VmSpec;
use schedlab_model::{CpuSet, EventSink};
use schedlab_scheduler::{Scheduler, registry};
use schedlab_sim::{Domain, Machine, Outcome, RunOptions, run_nested};

/// Runs the plan on `machine`; the vCPUs stand behind the tasks.
pub(super) fn run<S: EventSink>(
    plan: &Plan,
    machine: &Machine,
    scheduler: &dyn Scheduler,
    options: &RunOptions,
    sink: &mut S,
) -> Result<Outcome, LabError> {
    let build = |vm: &VmSpec| registry::build(&vm.guest, vm.vcpus);
    let guests = plan.vms.iter().map(build).collect::<Result<Vec<_>, _>>()?;
    let domains: Vec<Domain<'_>> = plan
        .vms
        .iter()
        .zip(&guests)
        .map(|(vm, scheduler)| Domain {
            name: vm.name.clone(),
            group: vm.group,
            machine: vm.machine(),
            affinity: CpuSet::ALL,
            soft_affinity: vm.prefer,
            scheduler: &**scheduler,
        })
        .collect();
    let outcome = run_nested(machine, &plan.workload, scheduler, &domains, options, sink);
    Ok(outcome.map_err(|source| plan.failed(source))?.outcome)
}
