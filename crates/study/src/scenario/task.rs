//! `[[task]]` sections.

use super::document::{Item, ScenarioError, Section};
use super::group::cpu_list;
use super::step::{Names, Reader, find};
use schedlab_model::{CpuId, CpuSet, GroupId, GroupSpec, Nice, Ns, Policy, Start, TaskSpec};
use std::collections::BTreeSet;
use toml::de::DeValue;

const KEYS: [&str; 13] = [
    "name", "count", "policy", "nice", "cpus", "prefer", "begins", "group", "slice", "start",
    "first", "program", "threads",
];
/// The largest number of copies of a task, and of tasks.
const MAX_TASKS: usize = 100_000;

/// Tasks with the class of each (the name in the file) and the place of its section.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    pub(super) specs: Vec<TaskSpec>,
    pub(super) classes: Vec<String>,
    pub(super) places: Vec<std::ops::Range<usize>>,
}

/// Reads every task. `names` has the channels and locks; it receives the tasks.
pub(super) fn read(
    root: &Section<'_>,
    groups: &[GroupSpec],
    names: &mut Names,
    cpus: usize,
) -> Result<Tasks, ScenarioError> {
    let sections = root.sections("task", "[[task]]", &KEYS)?;
    if sections.is_empty() {
        return Err(root.error_of_file("there is no [[task]]: a scenario needs at least one"));
    }
    let mut seen = BTreeSet::new();
    let mut copies = Vec::new();
    for section in &sections {
        let name = section.need("name", "name = \"yes\"")?;
        let text = name.text()?.to_owned();
        if text.trim().is_empty() {
            return Err(name.error("the name of a task must not be empty"));
        }
        let count = section.optional("count", |item| item.integer(1, MAX_TASKS as i64))?;
        let count = count.map(|count| count as usize);
        if names.tasks.len() + count.unwrap_or(1) > MAX_TASKS {
            return Err(section.error(format!("a scenario may have at most {MAX_TASKS} tasks")));
        }
        let own = (1..=count.unwrap_or(1)).map(|number| match count {
            Some(2..) => format!("{text}-{number}"),
            _ => text.clone(),
        });
        for full in own {
            if !seen.insert(full.clone()) {
                return Err(name.error(format!(
                    "there are two tasks `{full}`: names must differ (see `count`)"
                )));
            }
            names.tasks.push(full);
        }
        copies.push((text, count.unwrap_or(1)));
    }
    let mut tasks = Tasks::default();
    for (process, (section, (class, count))) in sections.iter().zip(copies).enumerate() {
        let threads = section.optional("threads", |item| item.flag())?.unwrap_or(false);
        for number in 1..=count {
            let name = names.tasks[tasks.specs.len()].clone();
            let mut spec = task(section, name, number, groups, names, cpus)?;
            if threads {
                spec.process = process as u32;
            }
            tasks.specs.push(spec);
            tasks.classes.push(class.clone());
            tasks.places.push(section.span.clone());
        }
    }
    Ok(tasks)
}

fn task(
    section: &Section<'_>,
    name: String,
    number: usize,
    groups: &[GroupSpec],
    names: &Names,
    cpus: usize,
) -> Result<TaskSpec, ScenarioError> {
    let example = "program = [\"run 1ms\", \"sleep 9ms\"] or program = \"hog\"";
    let first = section.get("first");
    let program =
        Reader::new(names, number).read(first.as_ref(), &section.need("program", example)?)?;
    let mut task = TaskSpec::new(name, program);
    task.policy = section.optional("policy", |item| item.parse::<Policy>())?.unwrap_or_default();
    task.nice = section.optional("nice", nice)?.unwrap_or_default();
    task.affinity = section.optional("cpus", |item| cpu_list(&item, cpus))?.unwrap_or(CpuSet::ALL);
    task.soft_affinity =
        section.optional("prefer", |item| cpu_list(&item, cpus))?.unwrap_or(CpuSet::ALL);
    task.began_on =
        section.optional("begins", |item| begins(&item, number, task.affinity, cpus))?;
    task.group = section.optional("group", |item| group(&item, groups))?.unwrap_or(GroupId::ROOT);
    task.slice = section.optional("slice", |item| slice(&item))?;
    task.start = section.optional("start", |item| start(&item))?.unwrap_or(Start::At(Ns::ZERO));
    Ok(task)
}

/// Returns the CPU on which copy `number` begins: the copies take the CPUs of the list, or of
/// several lists one after the other, in turn.
fn begins(
    item: &Item<'_>,
    number: usize,
    allowed: CpuSet,
    cpus: usize,
) -> Result<CpuId, ScenarioError> {
    let lists = match item.value {
        DeValue::Array(_) => item.list()?,
        _ => vec![item.clone()],
    };
    let mut places: Vec<CpuId> = Vec::new();
    for list in lists {
        places.extend(cpu_list(&list, cpus)?.iter().take_while(|cpu| cpu.index() < cpus));
    }
    if places.is_empty() {
        return Err(item.error("`begins` must name at least one CPU, like \"0-3\""));
    }
    let cpu = places[(number - 1) % places.len()];
    if !allowed.contains(cpu) {
        return Err(item.error(format!(
            "`begins` names CPU {}, which is not among the `cpus` of this task: name only CPUs of \
             `cpus`",
            cpu.index()
        )));
    }
    Ok(cpu)
}

fn nice(item: Item<'_>) -> Result<Nice, ScenarioError> {
    Ok(Nice::new(item.integer(-20, 19)? as i8).expect("checked"))
}

fn group(item: &Item<'_>, groups: &[GroupSpec]) -> Result<GroupId, ScenarioError> {
    let names: Vec<String> = groups.iter().map(|group| group.name.clone()).collect();
    if names.len() == 1 && item.text()? != "/" {
        let name = item.text()?;
        return Err(item.error(format!(
            "there is no group `{name}`: declare it in a [[group]] section with name = \"{name}\""
        )));
    }
    find("group", "groups", item.text()?, &names)
        .map(GroupId::from)
        .map_err(|message| item.error(message))
}

/// The kernel clamps custom slices to 0.1 … 100 ms; schedlab refuses instead.
fn slice(item: &Item<'_>) -> Result<Ns, ScenarioError> {
    let slice = item.time()?;
    if slice < Ns::from_us(100) || slice > Ns::from_ms(100) {
        return Err(item
            .error("`slice` must be from 100us to 100ms (the kernel cuts custom slices to that)"));
    }
    Ok(slice)
}

/// `"0s"`, `"asleep until 5ms"`, `"spawned"`.
fn start(item: &Item<'_>) -> Result<Start, ScenarioError> {
    let text = item.text().map_err(|_| item.time().expect_err("not a text"))?;
    if text == "spawned" {
        return Ok(Start::Spawned);
    }
    if let Some(time) = text.strip_prefix("asleep until ") {
        return time
            .parse()
            .map(Start::AsleepUntil)
            .map_err(|error| item.error(format!("start: {error}")));
    }
    match text.parse() {
        Ok(time) => Ok(Start::At(time)),
        Err(error) => Err(item.error(format!(
            "start: {error}; allowed are a time (the task is created then), \"asleep until 5ms\" \
             and \"spawned\""
        ))),
    }
}
