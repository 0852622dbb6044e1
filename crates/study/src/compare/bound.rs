//! Which rows are settings of the first row's machine, which are bounds (what more hardware or less
//! work would give), and which are about another load.

use crate::delegation::SchedulerPlace;
use crate::deploy::{Deployment, Named};
use crate::run::RowPlan;
use crate::variant::{Clause, GroupSetting, Setting, TaskSetting, Variant};
use schedlab_model::{CpuSet, GroupSpec, Ns, Workload};

/// What a row is beside the first one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// A setting of the first row's machine under its load, or that row itself.
    Setting,
    /// What more hardware or less work gives, and why.
    Bound(String),
    /// Another load than the first row's, and which: nothing that a setting reaches.
    Load(String),
}

impl Standing {
    pub(super) fn bound(&self) -> Option<String> {
        match self {
            Standing::Bound(why) => Some(why.clone()),
            _ => None,
        }
    }

    pub(super) fn load(&self) -> Option<String> {
        match self {
            Standing::Load(why) => Some(why.clone()),
            _ => None,
        }
    }
}

/// Returns what `plan` is beside `base`.
pub(super) fn standing(plan: &RowPlan, base: &RowPlan) -> Standing {
    if plan.off != base.off {
        return match plan.off.is_superset(&base.off) {
            true => Standing::Bound("it has fewer tasks".to_owned()),
            false => Standing::Load("it has other tasks".to_owned()),
        };
    }
    if of_load(plan) != of_load(base) {
        return Standing::Load("its work is another".to_owned());
    }
    let of_base = usable(base);
    let more = usable(plan).iter().find(|cpu| !of_base.contains(*cpu));
    more.map_or(Standing::Setting, |cpu| {
        Standing::Bound(format!("its tasks have CPU {} too", cpu.0))
    })
}

/// Returns for each plan the place of the first one with the same tasks and the same work.
pub(super) fn first_of_load(plans: &[RowPlan]) -> Vec<usize> {
    let same = |a: &RowPlan, b: &RowPlan| a.off == b.off && of_load(a) == of_load(b);
    let first = |(index, plan)| plans.iter().position(|other| same(other, plan)).unwrap_or(index);
    plans.iter().enumerate().map(first).collect()
}

/// The settings that change how much there is to do.
fn of_load(plan: &RowPlan) -> Vec<(&str, &Setting)> {
    let is = |setting: &&Setting| {
        matches!(setting, Setting::Source(_) | Setting::Task(TaskSetting::Demand(_)))
    };
    let mut all = Vec::new();
    for clause in &plan.set.clauses {
        all.extend(
            clause.settings.iter().filter(is).map(|setting| (clause.target.as_str(), setting)),
        );
    }
    all
}

/// The CPUs that the tasks may use.
fn usable(plan: &RowPlan) -> CpuSet {
    let workload = &plan.workload;
    let mut all = CpuSet::default();
    for index in (0..workload.tasks.len()).filter(|index| !plan.off.contains(index)) {
        all = all.or(&plan.allowed(index).unwrap_or_default());
    }
    all
}

/// Returns how the row's setting is made; `None`: nothing is set, or it is no setting.
pub(super) fn deployment(plan: &RowPlan, base: &RowPlan) -> Option<Deployment> {
    let set = own(plan, base);
    let nothing = set.clauses.is_empty();
    let same = plan.scheduler == base.scheduler;
    let delegated = plan
        .delegation
        .as_ref()
        .is_some_and(|delegated| delegated.spec.place != SchedulerPlace::Kernel);
    if standing(plan, base) != Standing::Setting || nothing && same && !delegated {
        return None;
    }
    let named = |name: &str| plan.named.get(name).copied().unwrap_or(Named::Nothing);
    Some(Deployment::from_variant(&set, &plan.scheduler, &base.scheduler, &named))
}

/// Returns what the row sets that the first row has not: what both leave out is no part of the
/// setting, and neither is what the first row is already, such as `policy=other` of threads that
/// are so.
pub(super) fn own(plan: &RowPlan, base: &RowPlan) -> Variant {
    let known = |target: &str, setting: &Setting| {
        let same = |clause: &&Clause| clause.target == target;
        base.set.clauses.iter().filter(same).any(|clause| clause.settings.contains(setting))
    };
    let mut set = plan.set.clone();
    for clause in &mut set.clauses {
        let target = clause.target.clone();
        clause.settings.retain(|setting| {
            !known(&target, setting)
                && !is_already(&target, setting, plan, base)
                && !matches!(setting, Setting::Task(TaskSetting::Off))
        });
    }
    set.clauses.retain(|clause| !clause.settings.is_empty());
    set
}

/// Whether the first row is what a setting would make of it.
fn is_already(target: &str, setting: &Setting, plan: &RowPlan, base: &RowPlan) -> bool {
    match setting {
        Setting::Task(setting) => {
            let tasks = plan.targets.get(target).map(Vec::as_slice).unwrap_or_default();
            tasks.iter().all(|&task| is_so(&base.workload, task, setting))
        }
        Setting::Group(setting) => {
            let group = base.workload.groups.iter().find(|group| group.name == target);
            group.is_some_and(|group| has(group, setting))
        }
        Setting::Knob(name, value) => {
            let mut known = base.scheduler.knobs.iter().filter(|(known, _)| known == name);
            plan.scheduler.name == base.scheduler.name
                && known.any(|(_, known)| same_value(known, value))
        }
        Setting::Pod(_) | Setting::Source(_) | Setting::Machine(_) | Setting::Delegation(..) => {
            false
        }
    }
}

fn is_so(workload: &Workload, task: usize, setting: &TaskSetting) -> bool {
    let task = &workload.tasks[task];
    match setting {
        TaskSetting::Policy(policy) => task.policy == *policy,
        TaskSetting::Nice(nice) => task.nice == *nice,
        TaskSetting::Cpus(cpus) => task.affinity == *cpus,
        TaskSetting::Slice(slice) => task.slice == Some(*slice),
        TaskSetting::Group(path) => {
            workload.groups.get(task.group.index()).is_some_and(|group| group.name == *path)
        }
        TaskSetting::Demand(_) | TaskSetting::Off => false,
    }
}

fn has(group: &GroupSpec, setting: &GroupSetting) -> bool {
    match setting {
        GroupSetting::Cpus(cpus) => group.cpus == Some(*cpus),
        GroupSetting::Partition(kind) => group.partition.name() == kind,
        GroupSetting::Max(bandwidth) => group.bandwidth == *bandwidth,
        GroupSetting::Shares(weight) | GroupSetting::Weight(weight) => {
            group.weight == Some(*weight)
        }
        GroupSetting::Idle(idle) => group.idle == *idle,
        GroupSetting::Cap(cap) => group.cap_percent == *cap,
        GroupSetting::Guest(_) => false,
    }
}

/// Whether two texts are one value: a time may be written with any unit, and nanoseconds without
/// one.
fn same_value(a: &str, b: &str) -> bool {
    let time = |text: &str| text.parse::<Ns>().ok().or_else(|| text.parse().ok().map(Ns));
    a.trim() == b.trim() || time(a).is_some_and(|time_of_a| time(b) == Some(time_of_a))
}
