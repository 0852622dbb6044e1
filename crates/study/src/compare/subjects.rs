//! The subjects of a recording: classes of tasks, and single tasks where a change is about some of
//! a class.

use super::recorded::RecordedInput;
use super::split_classes;
use crate::run::RowPlan;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The tasks of each subject; made when first asked for.
#[derive(Debug, Default)]
pub(super) struct Subjects(OnceLock<BTreeMap<String, Vec<usize>>>);

impl RecordedInput {
    /// A name for one task among several of its class.
    pub(super) fn task_name(&self, task: usize) -> String {
        format!("{}-{}", self.classes[task], self.header.tasks[task].tid)
    }

    /// The tasks of a subject, ascending: those of a class, or one of them.
    pub(super) fn tasks_of(&self, subject: &str) -> &[usize] {
        let noted = self.subjects.0.get_or_init(|| {
            let mut noted: BTreeMap<String, Vec<usize>> = BTreeMap::new();
            for (task, class) in self.classes.iter().enumerate() {
                noted.entry(class.clone()).or_default().push(task);
                noted.entry(self.task_name(task)).or_default().push(task);
            }
            noted
        });
        noted.get(subject).map_or(&[], Vec::as_slice)
    }

    /// The class of a subject, which may be one of its tasks.
    pub(super) fn class_of(&self, subject: &str) -> String {
        let tasks = self.tasks_of(subject).iter();
        let task = tasks.copied().find(|task| self.task_name(*task) == subject);
        task.map_or_else(|| subject.to_owned(), |task| self.classes[task].clone())
    }
}

/// Gives the own name of a task whose class a plan changes in part only.
pub(super) fn single<'a>(
    input: &'a RecordedInput,
    plans: &[RowPlan],
) -> impl Fn(usize) -> Option<String> + Sync + use<'a> {
    let split = split_classes(plans, &input.classes);
    move |task| split.contains(input.classes[task].as_str()).then(|| input.task_name(task))
}
