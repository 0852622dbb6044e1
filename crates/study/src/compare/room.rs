//! How much CPU time the tasks of a row can have at all: an interval ends there.

use crate::error_parts::Possible;
use crate::measurements::{Kind, SubjectData};
use crate::metric::Metric;
use crate::run::RowPlan;
use schedlab_model::CpuSet;
use std::collections::BTreeMap;

/// How many CPUs the tasks of each class can have at one time, in one row.
pub(super) struct Room {
    classes: BTreeMap<String, usize>,
    cpus: usize,
}

impl Room {
    /// Returns the room of a row on a machine of `cpus` CPUs. `classes`: the class of each task.
    pub(super) fn of_row(plan: &RowPlan, classes: &[String], cpus: usize) -> Room {
        let mut tasks: BTreeMap<&String, (usize, CpuSet)> = BTreeMap::new();
        for (index, class) in classes.iter().enumerate() {
            let Some(mask) = plan.allowed(index).filter(|_| !plan.off.contains(&index)) else {
                continue;
            };
            let (count, all) = tasks.entry(class).or_default();
            *count += 1;
            *all = all.or(&mask);
        }
        let machine = CpuSet::first(cpus);
        // A task is on one CPU at a time.
        let most = |(count, all): (usize, CpuSet)| count.min(all.and(&machine).count());
        let of_tasks = tasks.into_iter().map(|(class, of)| (class.clone(), most(of)));
        let of_vcpus = plan.vms.iter().map(|vm| (vm.class(), vm.vcpus.min(cpus)));
        Room { classes: of_tasks.chain(of_vcpus).collect(), cpus }
    }

    /// Returns between which values a number of a subject can lie.
    pub(super) fn possible(&self, subject: &SubjectData, metric: Metric) -> Possible {
        let most = match subject.kind {
            Kind::Task => 1,
            _ => self.classes.get(&subject.name).copied().unwrap_or(subject.tasks.min(self.cpus)),
        };
        Possible::for_metric(metric, subject.kind, most, self.cpus)
    }
}
