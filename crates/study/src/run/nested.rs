//! Rows whose domains have kernels of their own.

use super::RowPlan;
use super::levels::Levels;
use crate::StudyError;
use crate::scenario::VmSpec;
use schedlab_model::{CpuSet, EventSink};
use schedlab_scheduler::{Scheduler, registry};
use schedlab_sim::{Domain, Machine, Outcome, RunOptions, run_nested, run_nested_seen};

/// Runs the plan on `machine`; the vCPUs come after the tasks.
pub(super) fn run(
    plan: &RowPlan,
    machine: &Machine,
    scheduler: &dyn Scheduler,
    options: &RunOptions,
    sink: &mut dyn EventSink,
) -> Result<Outcome, StudyError> {
    let guests = guests(plan)?;
    let outcome =
        run_nested(machine, &plan.workload, scheduler, &domains(plan, &guests), options, sink);
    Ok(outcome.map_err(|source| plan.failed(source))?.outcome)
}

/// The same; `out` hears both levels, with a row for each vCPU. `all` are the vCPUs behind the
/// tasks in its list.
pub(super) fn seen(
    plan: &RowPlan,
    machine: &Machine,
    scheduler: &dyn Scheduler,
    options: &RunOptions,
    all: &[(String, String)],
    out: &mut dyn EventSink,
) -> Result<Outcome, StudyError> {
    let guests = guests(plan)?;
    let domains = domains(plan, &guests);
    let place = |name: String| all.iter().position(|(known, _)| *known == name).unwrap_or_default();
    let numbers: Vec<usize> = plan.vcpu_names().into_iter().map(place).collect();
    let pcpus = machine.topology.cpus();
    let levels = Levels::new(&plan.workload, &domains, pcpus, (&numbers, all.len()), out);
    let (mut host, mut below) = levels.sinks();
    let mut guests: Vec<&mut dyn EventSink> =
        below.iter_mut().map(|guest| guest as &mut dyn EventSink).collect();
    let outcome = run_nested_seen(
        machine,
        &plan.workload,
        scheduler,
        &domains,
        options,
        &mut host,
        &mut guests,
    );
    Ok(outcome.map_err(|source| plan.failed(source))?.outcome)
}

fn guests(plan: &RowPlan) -> Result<Vec<Box<dyn Scheduler>>, StudyError> {
    let build = |vm: &VmSpec| registry::build(&vm.guest, vm.vcpus);
    Ok(plan.vms.iter().map(build).collect::<Result<Vec<_>, _>>()?)
}

fn domains<'a>(plan: &RowPlan, guests: &'a [Box<dyn Scheduler>]) -> Vec<Domain<'a>> {
    plan.vms
        .iter()
        .zip(guests)
        .map(|(vm, scheduler)| Domain {
            name: vm.name.clone(),
            group: vm.group,
            machine: vm.machine(),
            affinity: CpuSet::ALL,
            soft_affinity: vm.prefer,
            scheduler: &**scheduler,
        })
        .collect()
}
