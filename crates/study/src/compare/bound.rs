//! Which rows are settings of the first row's machine, and which are bounds: what more hardware or less work would give.

use crate::delegation::Place;
use crate::deploy::Deployment;
use crate::run::RowPlan;
use crate::variant::{Clause, Setting, TaskSetting, Variant};
use schedlab_model::CpuSet;

/// Returns why `plan` is a bound; `None`: it is a setting of the machine of `base`.
pub(super) fn why(plan: &RowPlan, base: &RowPlan) -> Option<String> {
    if plan.off != base.off {
        let fewer = plan.off.is_superset(&base.off);
        return Some(if fewer { "it has fewer tasks" } else { "it has other tasks" }.to_owned());
    }
    let of_load = |plan: &RowPlan| -> Vec<(String, Setting)> {
        let is = |setting: &&Setting| {
            matches!(setting, Setting::Source(_) | Setting::Task(TaskSetting::Demand(_)))
        };
        let of = |clause: &Clause| {
            let settings = clause.settings.iter().filter(is);
            settings.map(|setting| (clause.target.clone(), setting.clone())).collect::<Vec<_>>()
        };
        plan.set.clauses.iter().flat_map(of).collect()
    };
    if of_load(plan) != of_load(base) {
        return Some("it has another load".to_owned());
    }
    let more = usable(plan).iter().find(|cpu| !usable(base).contains(*cpu));
    more.map(|cpu| format!("its tasks have CPU {} too", cpu.0))
}

/// The CPUs that the tasks may use.
fn usable(plan: &RowPlan) -> CpuSet {
    let workload = &plan.workload;
    let mut all = CpuSet::default();
    for (_, task) in workload.tasks.iter().enumerate().filter(|(index, _)| !plan.off.contains(index)) {
        let of_group = workload.groups.get(task.group.index()).and_then(|group| group.cpus.as_ref());
        let mask = match of_group {
            Some(group) => task.affinity.and(group),
            None => task.affinity,
        };
        all = all.or(&mask);
    }
    all
}

/// Returns how the row's setting is made; `None`: nothing is set, or it is no setting.
pub(super) fn deployment(plan: &RowPlan, base: &RowPlan) -> Option<Deployment> {
    let set = own(plan, base);
    let nothing = set.clauses.is_empty();
    let same = plan.scheduler == base.scheduler;
    let delegated = plan.delegation.as_ref().is_some_and(|delegated| delegated.spec.place != Place::Kernel);
    if why(plan, base).is_some() || nothing && same && !delegated {
        return None;
    }
    Some(Deployment::of(&set, &plan.scheduler, &base.scheduler))
}

/// Returns what the row sets that the first row has not: what both leave out is no part of the setting.
pub(super) fn own(plan: &RowPlan, base: &RowPlan) -> Variant {
    let known = |target: &str, setting: &Setting| {
        let same = |clause: &&Clause| clause.target == target;
        base.set.clauses.iter().filter(same).any(|clause| clause.settings.contains(setting))
    };
    let mut set = plan.set.clone();
    for clause in &mut set.clauses {
        let target = clause.target.clone();
        clause.settings.retain(|setting| {
            !known(&target, setting) && !matches!(setting, Setting::Task(TaskSetting::Off))
        });
    }
    set.clauses.retain(|clause| !clause.settings.is_empty());
    set
}
