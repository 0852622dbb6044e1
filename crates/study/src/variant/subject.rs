//! What variants are applied to, and which of its tasks a target names.

use super::VariantError;
use crate::delegation::DelegationSpec;
use crate::deploy::Named;
use crate::scenario::{KernelSpec, SmtYield, VmSpec};
use schedlab_model::text::{glob, nearest};
use schedlab_model::{CpuRoles, Workload};
use schedlab_trace::TaskInfo;
use schedlab_trace::guests::Guests;
use std::collections::BTreeSet;

/// What variants are applied to: a workload and the names that a user may say.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The unchanged workload.
    pub workload: &'a Workload,
    /// Class of each task.
    pub classes: &'a [String],
    /// The recorded threads that the tasks are; empty for scenarios.
    pub threads: &'a [TaskInfo],
    /// CPUs of the machine.
    pub cpus: usize,
    /// Domains with kernels of their own; none in recordings.
    pub vms: &'a [VmSpec],
    /// Where schedulers run.
    pub delegation: &'a DelegationSpec,
    /// Preemption model and interrupt threads; `None` for recordings, which do not show kernel
    /// sections.
    pub kernel: Option<&'a KernelSpec>,
    /// CPUs that the boot line sets apart.
    pub roles: CpuRoles,
    /// Speed of a hardware thread beside a busy one of its core.
    pub smt_yield: SmtYield,
    /// Which tasks are threads of the kernel; empty for scenarios, which say where each may run.
    pub kernel_threads: &'a [bool],
    /// The guests of a recorded host; `None` in scenarios.
    pub guests: Option<&'a Guests>,
}

impl<'a> Subject<'a> {
    /// Returns the tasks that a target names, as the commands of a deployment take it: a process is
    /// all of its threads.
    pub(crate) fn tasks(&self, target: &str) -> Vec<usize> {
        let id: Option<u32> = target.parse().ok();
        let is_id =
            |thread: &TaskInfo| Some(thread.tid) == id || Some(thread.pid) == id && !thread.kernel;
        let has_id = |&index: &usize| self.threads.get(index).is_some_and(is_id);
        let hit = |index: &usize| self.is_named(*index, target) || has_id(index);
        (0..self.workload.tasks.len()).filter(hit).collect()
    }

    fn is_named(&self, index: usize, target: &str) -> bool {
        glob(target, &self.workload.tasks[index].name)
            || self.classes.get(index).is_some_and(|class| glob(target, class))
            || self.threads.get(index).is_some_and(|thread| thread.is_named(target))
    }

    /// Returns the names of classes and tasks.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> {
        let classes = self.classes.iter().map(String::as_str);
        classes.chain(self.workload.tasks.iter().map(|task| task.name.as_str()))
    }

    /// Returns what has the name of a target, of the tasks that it names.
    pub(crate) fn named(&self, target: &str, tasks: &[usize]) -> Named {
        let is_of_other = |index: usize| {
            let process = self.threads.get(index).and_then(|thread| thread.process.as_deref());
            process.is_some_and(|process| !glob(target, process))
        };
        let named: Vec<usize> =
            tasks.iter().copied().filter(|&index| self.is_named(index, target)).collect();
        if named.is_empty() {
            return Named::Nothing;
        }
        if named.into_iter().all(is_of_other) { Named::Threads } else { Named::Processes }
    }

    pub(crate) fn unknown(&self, target: &str) -> VariantError {
        let mut names: Vec<&str> = self.names().collect();
        names.extend(self.workload.groups.iter().map(|group| group.name.as_str()));
        names.extend(self.workload.sources.iter().map(|source| source.name.as_str()));
        let hint = match nearest(target, names.iter().copied()) {
            Some(right) => format!(": did you mean `{right}`?"),
            None => {
                let unique: BTreeSet<&str> = self.classes.iter().map(String::as_str).collect();
                let shown: Vec<&str> = unique.iter().take(10).copied().collect();
                let more = if unique.len() > shown.len() { ", ..." } else { "" };
                format!("; tasks are: {}{more}", shown.join(", "))
            }
        };
        VariantError::Target { target: target.to_owned(), hint }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use schedlab_model::{Ns, Program, TaskSpec};

    /// A recording of which nothing but tasks and classes is known, on two CPUs.
    pub(in crate::variant) fn bare<'a>(
        workload: &'a Workload,
        classes: &'a [String],
    ) -> Subject<'a> {
        Subject {
            workload,
            classes,
            threads: &[],
            cpus: 2,
            vms: &[],
            delegation: &crate::delegation::IN_KERNEL,
            kernel: None,
            roles: Default::default(),
            smt_yield: SmtYield::OneThread,
            kernel_threads: &[],
            guests: None,
        }
    }

    #[test]
    fn a_process_is_all_of_its_threads() {
        let tasks = vec![
            TaskSpec::new("named", Program::closed(Ns(1000), Ns(2000))),
            TaskSpec::new("isc-net", Program::hog()),
        ];
        let classes: Vec<String> = tasks.iter().map(|task| task.name.clone()).collect();
        let workload = Workload { tasks, ..Workload::default() };
        let named = |tid, comm: &str| TaskInfo {
            process: (tid != 100).then(|| "named".to_owned()),
            ..TaskInfo::unknown(tid, 100, comm)
        };
        let threads = [named(100, "named"), named(200, "isc-net")];
        let subject = Subject { threads: &threads, ..bare(&workload, &classes) };
        assert_eq!(subject.tasks("named"), [0, 1]);
        assert_eq!(subject.tasks("100"), [0, 1]);
        assert_eq!((subject.tasks("isc*"), subject.tasks("200")), (vec![1], vec![1]));
        let what = ["named", "isc*", "100", "/batch"]
            .map(|target| subject.named(target, &subject.tasks(target)));
        assert_eq!(what, [Named::Processes, Named::Threads, Named::Nothing, Named::Nothing]);
    }
}
