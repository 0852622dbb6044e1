//! One row of a table before it is run: a scheduler, and a workload with a variant's changes.

use crate::StudyError;
use crate::delegation::{Delegated, SchedulerPlace};
use crate::deploy::Named;
use crate::scenario::{Scenario, SmtYield, VmSpec};
use crate::variant::{Applied, Clause, GroupSetting, Setting, Subject, Variant, VariantError};
use schedlab_model::{CpuId, CpuRoles, CpuSet, Policy, Workload};
use schedlab_scheduler::registry::XenScheduler;
use schedlab_scheduler::{KnobError, Knobs, Scheduler, SchedulerSpec, registry, sched_ext};
use schedlab_sim::Preemption;
use std::collections::{BTreeMap, BTreeSet};

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
    /// CPUs that the boot line sets apart.
    pub(crate) roles: CpuRoles,
    /// Speed of a hardware thread beside a busy one of its core.
    pub(crate) smt_yield: SmtYield,
    /// By task: it runs a virtual CPU of a recorded host.
    pub(crate) vcpus: Vec<bool>,
    /// Which tasks the variant changes.
    pub(crate) changed: Vec<usize>,
    /// What it sets, on the machine that the scenario or the recording has.
    pub(crate) set: Variant,
    /// The tasks of each target of `set` that names some.
    pub(crate) targets: BTreeMap<String, Vec<usize>>,
    /// What has the name of each target of `set`.
    pub(crate) named: BTreeMap<String, Named>,
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
        let failed = |source| StudyError::Variant { variant: variant.name.clone(), source };
        let variant = &variant.with_guests(subject).map_err(failed)?;
        let mut applied = variant.apply(subject).map_err(failed)?;
        let (full, absent) = with_knobs(scheduler, &applied.knobs)?;
        let mut notes: Vec<String> = absent
            .iter()
            .map(|knob| format!("{} has no knob {knob}: left out", scheduler.name))
            .collect();
        applied.workload.check(subject.cpus).map_err(|error| {
            StudyError::Option(format!("--variant '{}': {error}", variant.name))
        })?;
        check_caps(&full, variant, &applied)?;
        check_group_settings(scheduler, variant, &applied)?;
        notes.append(&mut applied.notes);
        notes.extend(stand_ins(&full, &applied, subject.cpus));
        notes.extend(remarks(&full, &applied, subject.cpus));
        let delegation = (applied.delegation.place != SchedulerPlace::Kernel).then(|| {
            let names = &applied.delegation.outside;
            let mut outside = vec![false; applied.workload.tasks.len()];
            names.iter().flat_map(|name| subject.tasks(name)).for_each(|task| outside[task] = true);
            if subject.kernel.is_none() && applied.delegation.place == SchedulerPlace::Global {
                notes.extend(free_the_agents_cpu(&mut applied, &mut outside, subject.cpus));
            }
            Delegated { spec: applied.delegation.clone(), outside }
        });
        let target = |clause: &Clause| (clause.target.clone(), subject.tasks(&clause.target));
        let targets: BTreeMap<_, _> =
            variant.clauses.iter().map(target).filter(|(_, tasks)| !tasks.is_empty()).collect();
        let named = |(target, tasks): (&String, &Vec<usize>)| {
            (target.clone(), subject.named(target, tasks))
        };
        let named = targets.iter().map(named).collect();
        let preemption = applied.kernel.as_ref().map(|kernel| kernel.preemption(&applied.workload));
        Ok(RowPlan {
            preemption: preemption.unwrap_or_default(),
            roles: applied.roles,
            smt_yield: applied.smt_yield,
            label: scheduler.to_string(),
            scheduler: full,
            variant: variant.name.clone(),
            workload: applied.workload,
            vms: applied.vms,
            delegation,
            vcpus: subject.vcpus(),
            set: variant.clone(),
            targets,
            named,
            off: applied.off,
            changed: applied.tasks.into_iter().collect(),
            notes,
        })
    }

    /// Returns one row of a scenario: a scheduler with one of the scenario's variants (`None`: its
    /// first row).
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
            StudyError::Option(format!(
                "--variant {wanted}: this scenario has {}",
                names.join(", ")
            ))
        })?;
        RowPlan::new(scheduler, chosen, &scenario.subject())
    }

    /// Returns the CPUs on which a task of the workload may run, after its group's.
    pub(crate) fn allowed(&self, task: usize) -> Option<CpuSet> {
        let task = self.workload.tasks.get(task)?;
        let group =
            self.workload.groups.get(task.group.index()).and_then(|group| group.cpus.as_ref());
        Some(group.map_or(task.affinity, |group| task.affinity.and(group)))
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

/// What the scheduler treats tasks as whose policy its real system does not know, one note for each
/// policy.
fn stand_ins(scheduler: &SchedulerSpec, applied: &Applied, cpus: usize) -> Vec<String> {
    let Ok(built) = registry::build(scheduler, cpus) else { return Vec::new() };
    let tasks =
        applied.workload.tasks.iter().enumerate().filter(|(index, _)| !applied.off.contains(index));
    let words = tasks.filter_map(|(_, task)| {
        let policy = task.policy.to_string();
        let name = policy.split(':').next().unwrap_or_default().to_owned();
        built.stands_in(task.policy).map(|words| (name, words))
    });
    let words: BTreeSet<(String, &str)> = words.collect();
    words
        .into_iter()
        .map(|(policy, words)| format!("{}: policy={policy}: {words}", scheduler.name))
        .collect()
}

/// Returns what the scheduler's real system does otherwise with these tasks.
fn remarks(scheduler: &SchedulerSpec, applied: &Applied, cpus: usize) -> Vec<String> {
    let Ok(built) = registry::build(scheduler, cpus) else { return Vec::new() };
    let tasks = applied.workload.tasks.iter().enumerate();
    let policies: Vec<Policy> = tasks
        .filter(|(index, _)| !applied.off.contains(index))
        .map(|(_, task)| task.policy)
        .collect();
    let remarks = built.remarks(&policies, cpus).into_iter();
    remarks.map(|remark| format!("{}: {remark}", scheduler.name)).collect()
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

/// Chooses the CPU of a global agent on a recorded machine, and takes off it what is bound to it,
/// mostly threads of the kernel (ksoftirqd, migration): the kernel keeps them and runs them on the
/// other CPUs. Returns what a reader must know.
fn free_the_agents_cpu(applied: &mut Applied, outside: &mut [bool], cpus: usize) -> Option<String> {
    let bound_to = |workload: &Workload, agent: CpuId| -> Vec<usize> {
        let only = CpuSet::single(agent);
        let tasks = workload.tasks.iter().enumerate();
        tasks
            .filter(|(_, task)| task.affinity.without(&only).is_empty())
            .map(|(index, _)| index)
            .collect()
    };
    if !applied.delegation.agent_named {
        let all = (0..cpus as u32).map(CpuId);
        let best = all.min_by_key(|cpu| bound_to(&applied.workload, *cpu).len());
        applied.delegation.agent = best.unwrap_or(CpuId(0));
    }
    let agent = applied.delegation.agent;
    let bound = bound_to(&applied.workload, agent);
    if bound.is_empty() || cpus < 2 {
        return None;
    }
    let rest = CpuSet::first(cpus).without(&CpuSet::single(agent));
    for &task in &bound {
        applied.workload.tasks[task].affinity = rest;
        outside[task] = true;
    }
    let mut names: Vec<&str> =
        bound.iter().map(|&task| applied.workload.tasks[task].name.as_str()).collect();
    let more = names.len().saturating_sub(3);
    names.truncate(3);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!(
        "the agent spins on CPU {agent}: {}{more} were bound to it, stay with the kernel and run \
         on the other CPUs",
        names.join(", ")
    ))
}

/// Refuses a setting of groups that the scheduler does not know: the result would be that of the
/// unchanged workload.
fn check_group_settings(
    scheduler: &SchedulerSpec,
    variant: &Variant,
    applied: &Applied,
) -> Result<(), StudyError> {
    let xen = scheduler.family()?.xen();
    let shares = xen.is_some_and(XenScheduler::has_shares);
    let xen = xen.is_some();
    for clause in &variant.clauses {
        // A domain's guest has a scheduler of its own.
        if applied.vms.iter().any(|vm| vm.name == clause.target.trim_start_matches('/')) && xen {
            continue;
        }
        for setting in &clause.settings {
            if xen && matches!(setting, Setting::Pod(_)) {
                return Err(StudyError::Variant {
                    variant: variant.name.clone(),
                    source: VariantError::Value(format!(
                        "{} has no pods: they are control groups of Linux",
                        scheduler.name
                    )),
                });
            }
            let Setting::Group(setting) = setting else { continue };
            let (key, other) = match setting {
                GroupSetting::Max(_) if xen => ("cpu.max", "Xen has `cap=PERCENT`"),
                GroupSetting::Idle(_) if xen => ("cpu.idle", "Xen has `weight=N`"),
                GroupSetting::Cap(_) if !xen => ("cap", "Linux has `cpu.max=QUOTA/PERIOD`"),
                GroupSetting::Weight(_) if !xen => ("weight", "Linux has `cpu.weight=N`"),
                GroupSetting::Cap(_) if !shares => ("cap", "xen-credit and xen-credit2 do"),
                GroupSetting::Weight(_) if !shares => ("weight", "xen-credit and xen-credit2 do"),
                _ => continue,
            };
            return Err(StudyError::Variant {
                variant: variant.name.clone(),
                source: VariantError::Value(format!(
                    "{} does not know `{key}` of `{}`: {other}",
                    scheduler.name, clause.target
                )),
            });
        }
    }
    Ok(())
}

/// Credit2 refuses a cap of more than all vCPUs of the domain.
fn check_caps(
    scheduler: &SchedulerSpec,
    variant: &Variant,
    applied: &Applied,
) -> Result<(), StudyError> {
    if scheduler.name != "xen-credit2" {
        return Ok(());
    }
    for (index, group) in applied.workload.groups.iter().enumerate() {
        let vm = applied.vms.iter().find(|vm| vm.group.index() == index);
        let tasks =
            applied.workload.tasks.iter().filter(|task| task.group.index() == index).count();
        let vcpus = vm.map_or(tasks, |vm| vm.vcpus);
        if vcpus > 0 && group.cap_percent as usize > 100 * vcpus {
            return Err(StudyError::Option(format!(
                "{scheduler}, {}: group `{}` has cap {}, but xl sched-credit2 takes at most 100 \
                 for each of its \
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
    if sched_ext::is_object(&spec.name) {
        return with_options(spec, knobs);
    }
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

/// The same of a scheduler in BPF, whose knobs are the options of its object.
fn with_options(
    spec: &SchedulerSpec,
    knobs: &[(String, String)],
) -> Result<(SchedulerSpec, Vec<String>), KnobError> {
    let (mut spec, mut absent) = (spec.clone(), Vec::new());
    for (name, value) in knobs {
        let mut more = spec.clone();
        more.knobs.retain(|(known, _)| known != name);
        more.knobs.push((name.clone(), value.clone()));
        match registry::check(&more) {
            Ok(()) => spec = more,
            Err(_) => absent.push(name.clone()),
        }
    }
    registry::check(&spec)?;
    Ok((spec, absent))
}
