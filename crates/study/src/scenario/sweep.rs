//! `[sweep]`: the same scenario with other numbers of CPUs and tasks (`schedlab bench model`).

use super::Scenario;
use super::document::{ScenarioError, Section};
use schedlab_model::{MAX_CPUS, Ns, Start, TaskSpec, Topology};

/// How a scenario is swept, and when its tasks are created.
///
/// With a sweep the first task of each CPU comes a part of `first` after the one before, the others
/// `each` apart: a process creates its threads so, and if all came at once the slices of all CPUs
/// would end together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sweep {
    /// Numbers of CPUs.
    pub cpus: Vec<usize>,
    /// Numbers of tasks, counted over the tasks of the file in their order.
    pub tasks: Vec<u32>,
    /// Over which time the first task of each CPU is created.
    pub first: Ns,
    /// Time between the creation of two others.
    pub each: Ns,
}

const KEYS: [&str; 4] = ["cpus", "tasks", "first", "each"];

pub(super) fn read(root: &Section<'_>, tasks: usize) -> Result<Option<Sweep>, ScenarioError> {
    let Some(item) = root.get("sweep") else { return Ok(None) };
    let section = item.section("[sweep]", &KEYS)?;
    let numbers =
        |key: &'static str, example: &str, most: usize| -> Result<Vec<i64>, ScenarioError> {
            let list = section.need(key, example)?;
            let numbers: Vec<i64> = list
                .list()?
                .iter()
                .map(|item| item.integer(1, most as i64))
                .collect::<Result<_, _>>()?;
            if numbers.is_empty() {
                return Err(list.error(format!("name at least one: {example}")));
            }
            Ok(numbers)
        };
    let cpus = numbers("cpus", "cpus = [2, 4, 8]", MAX_CPUS)?;
    let counts = numbers("tasks", "tasks = [2, 64, 1024]", tasks)?;
    let time = |key: &'static str| section.optional(key, |item| item.time());
    Ok(Some(Sweep {
        cpus: cpus.into_iter().map(|cpus| cpus as usize).collect(),
        tasks: counts.into_iter().map(|tasks| tasks as u32).collect(),
        first: time("first")?.unwrap_or_default(),
        each: time("each")?.unwrap_or_default(),
    }))
}

/// `cpus` of an [[expect]]: one of the numbers of the sweep.
pub(super) fn point(
    section: &Section<'_>,
    scenario: &Scenario,
) -> Result<Option<usize>, ScenarioError> {
    let Some(item) = section.get("cpus") else { return Ok(None) };
    let Some(sweep) = &scenario.sweep else {
        return Err(item.error("`cpus` names a machine of the [sweep], and there is no [sweep]"));
    };
    let cpus = item.integer(1, MAX_CPUS as i64)? as usize;
    if !sweep.cpus.contains(&cpus) && cpus != scenario.machine.topology.cpus() {
        let known: Vec<String> = sweep.cpus.iter().map(usize::to_string).collect();
        return Err(item.error(format!(
            "`cpus = {cpus}` is not in the [sweep], which has {}",
            known.join(", ")
        )));
    }
    Ok(Some(cpus))
}

impl Scenario {
    /// The scenario on `cpus` CPUs below one cache, with the first `tasks` of its tasks, or with
    /// copies of the last.
    pub fn sized(&self, cpus: usize, tasks: usize) -> Scenario {
        let mut sized = self.clone();
        sized.machine.topology = Topology::flat(cpus);
        sized.workload.tasks.truncate(tasks);
        sized.classes.truncate(tasks);
        if let (Some(task), Some(class)) =
            (sized.workload.tasks.last().cloned(), sized.classes.last().cloned())
        {
            for number in sized.workload.tasks.len()..tasks {
                let name = format!("{class}-{}", number + 1);
                sized.workload.tasks.push(TaskSpec { name, ..task.clone() });
                sized.classes.push(class.clone());
            }
        }
        sized.create();
        sized
    }

    /// Sets when the tasks are created, where there is a sweep.
    pub(super) fn create(&mut self) {
        let Some(sweep) = &self.sweep else { return };
        let cpus = self.machine.topology.cpus() as u64;
        for (index, task) in self.workload.tasks.iter_mut().enumerate() {
            let index = index as u64;
            let at =
                index.min(cpus) * sweep.first.0 / cpus + index.saturating_sub(cpus) * sweep.each.0;
            task.start = Start::At(Ns(at));
        }
    }
}
