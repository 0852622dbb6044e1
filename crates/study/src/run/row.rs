//! One row of a table before it is run: a scheduler, and a workload with a variant's changes.

use crate::StudyError;
use crate::delegation::{Delegated, Place};
use crate::scenario::{Scenario, VmSpec};
use crate::variant::{Applied, Subject, Variant};
use schedlab_model::Workload;
use schedlab_scheduler::{KnobError, Knobs, Scheduler, SchedulerSpec, registry};
use schedlab_sim::Preemption;
use std::collections::BTreeSet;

/// One row to run: a scheduler, and a workload with a variant's changes.
#[derive(Clone, Debug)]
pub(crate) struct RowPlan {
    /// Scheduler with all knobs.
    pub(crate) scheduler: SchedulerSpec,
    /// Its name in the table.
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
    /// What it sets, on the machine that the scenario or the recording has.
    pub(crate) set: Variant,
    /// Tasks that it leaves out.
    pub(crate) off: BTreeSet<usize>,
    /// What a reader must know.
    pub(crate) notes: Vec<String>,
}

impl RowPlan {
    /// Returns the row of `scheduler` with `variant`.
    pub(crate) fn new(
        scheduler: &SchedulerSpec,
        variant: &Variant,
        subject: &Subject<'_>,
    ) -> Result<RowPlan, StudyError> {
        let applied = variant
            .apply(subject)
            .map_err(|source| StudyError::Variant { variant: variant.name.clone(), source })?;
        let (full, absent) = with_knobs(scheduler, &applied.knobs)?;
        let notes =
            absent.iter().map(|knob| format!("{} has no knob {knob}: left out", scheduler.name)).collect();
        applied
            .workload
            .check(subject.cpus)
            .map_err(|error| StudyError::Option(format!("--variant '{}': {error}", variant.name)))?;
        check_caps(&full, variant, &applied)?;
        let delegation = (applied.delegation.place != Place::Kernel).then(|| {
            let names = &applied.delegation.outside;
            let mut outside = vec![false; applied.workload.tasks.len()];
            names.iter().flat_map(|name| subject.tasks(name)).for_each(|task| outside[task] = true);
            Delegated { spec: applied.delegation.clone(), outside }
        });
        let preemption = applied.kernel.as_ref().map(|kernel| kernel.preemption(&applied.workload));
        Ok(RowPlan {
            preemption: preemption.unwrap_or_default(),
            label: scheduler.to_string(),
            scheduler: full,
            variant: variant.name.clone(),
            workload: applied.workload,
            vms: applied.vms,
            delegation,
            set: variant.clone(),
            off: applied.off,
            changed: applied.tasks.into_iter().collect(),
            notes,
        })
    }

    /// Returns one row of a scenario: a scheduler with one of the scenario's variants (`None`: its first row).
    pub(crate) fn of_scenario(
        scenario: &Scenario,
        scheduler: &SchedulerSpec,
        variant: Option<&str>,
    ) -> Result<RowPlan, StudyError> {
        let variants = own_variants(scenario);
        let chosen = match variant {
            None => variants.first(),
            Some(name) => variants.iter().find(|variant| variant.name == name),
        };
        let chosen = chosen.ok_or_else(|| {
            let names: Vec<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
            let wanted = variant.unwrap_or_default();
            StudyError::Option(format!("--variant {wanted}: this scenario has {}", names.join(", ")))
        })?;
        RowPlan::new(scheduler, chosen, &scenario.subject())
    }

    /// The row's scheduler for a machine of `cpus` CPUs.
    pub(crate) fn build(&self, cpus: usize) -> Result<Box<dyn Scheduler>, StudyError> {
        Ok(registry::build(&self.scheduler, self.decided(cpus))?)
    }

    /// How many of the machine's CPUs the scheduler decides for.
    pub(crate) fn decided(&self, cpus: usize) -> usize {
        self.delegation.as_ref().map_or(cpus, |delegated| delegated.spec.cpus(cpus))
    }

    pub(super) fn vcpu_names(&self) -> Vec<String> {
        self.vms.iter().flat_map(VmSpec::vcpu_names).collect()
    }

    /// The classes of the tasks, then those of the vCPUs.
    pub(super) fn classes(&self, of_tasks: &[String]) -> Vec<String> {
        let vcpus = self.vms.iter().flat_map(|vm| (0..vm.vcpus).map(|_| vm.class()));
        of_tasks.iter().cloned().chain(vcpus).collect()
    }
}

/// Returns the workload as the scenario's first row has it, then its variants.
pub(crate) fn own_variants(scenario: &Scenario) -> Vec<Variant> {
    let unchanged = scenario.baseline_set.clone().unwrap_or_else(|| Variant {
        name: scenario.baseline.clone(),
        schedulers: Vec::new(),
        clauses: Vec::new(),
    });
    std::iter::once(unchanged).chain(scenario.variants.iter().cloned()).collect()
}

/// Credit2 refuses a cap of more than all vCPUs of the domain.
fn check_caps(scheduler: &SchedulerSpec, variant: &Variant, applied: &Applied) -> Result<(), StudyError> {
    if scheduler.name != "xen-credit2" {
        return Ok(());
    }
    for (index, group) in applied.workload.groups.iter().enumerate() {
        let vm = applied.vms.iter().find(|vm| vm.group.index() == index);
        let tasks = applied.workload.tasks.iter().filter(|task| task.group.index() == index).count();
        let vcpus = vm.map_or(tasks, |vm| vm.vcpus);
        if vcpus > 0 && group.cap_percent as usize > 100 * vcpus {
            return Err(StudyError::Option(format!(
                "{scheduler}, {}: group `{}` has cap {}, but xl sched-credit2 takes at most 100 for each of its \
                 vCPUs, here {}",
                variant.name,
                group.name,
                group.cap_percent,
                100 * vcpus
            )));
        }
    }
    Ok(())
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
