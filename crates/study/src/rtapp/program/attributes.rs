//! What an rt-app task is, beside its program: policy, CPUs, group.

use crate::generate::DraftSection;
use crate::rtapp::json::Json;
use crate::rtapp::{Mistake, micros, number, text};
use std::collections::BTreeSet;

/// What a task is, beside its program.
#[derive(Default)]
pub(super) struct Attributes {
    policy: Option<String>,
    priority: Option<i64>,
    cpus: Option<Vec<i64>>,
    pub(super) group: Option<String>,
    runtime: Option<u64>,
    deadline: Option<u64>,
    period: Option<u64>,
}

impl Attributes {
    /// Takes the attributes of a task, or of one of its phases, where the task itself has none.
    pub(super) fn read(
        &mut self,
        entries: &[(String, Json)],
        place: &str,
        task: &str,
        of_phase: bool,
        notes: &mut BTreeSet<String>,
    ) -> Result<(), Mistake> {
        fn keep<T: PartialEq>(slot: &mut Option<T>, value: T) -> bool {
            let changes = slot.as_ref().is_some_and(|old| *old != value);
            slot.get_or_insert(value);
            changes
        }
        for (key, value) in entries {
            let place = format!("{place}.{key}");
            let changes = match key.as_str() {
                "policy" => keep(&mut self.policy, text(value, &place)?.to_owned()),
                "priority" => keep(&mut self.priority, number(value, &place)?),
                "cpus" => keep(&mut self.cpus, cpu_list(value, &place)?),
                "taskgroup" => keep(&mut self.group, text(value, &place)?.to_owned()),
                "dl-runtime" => keep(&mut self.runtime, micros(value, &place)?),
                "dl-deadline" | "deadline" => keep(&mut self.deadline, micros(value, &place)?),
                "dl-period" | "period" => keep(&mut self.period, micros(value, &place)?),
                "util_min" | "util_max" | "membind_nodes" | "nodes_membind" | "numa"
                | "cpu_max" => {
                    notes.insert(format!("{task}: {key} is left out"));
                    false
                }
                "instance" | "delay" if of_phase => {
                    return Err((place, "belongs to the task, not to a phase".to_owned()));
                }
                _ => false,
            };
            if changes {
                notes.insert(format!(
                    "{task}: {key} changes from phase to phase; it stays as it is at first"
                ));
            }
        }
        Ok(())
    }

    /// Writes them into the section of the task; `default_policy` is that of a task without one.
    pub(super) fn write(
        &self,
        part: &mut DraftSection,
        default_policy: &str,
        place: &str,
    ) -> Result<(), Mistake> {
        let policy = self.policy.as_deref().unwrap_or(default_policy);
        let priority = |low, high, default| match self.priority.unwrap_or(default) {
            value if (low..=high).contains(&value) => Ok(value),
            other => {
                Err((format!("{place}.priority"), format!("{other}: {policy} has {low} to {high}")))
            }
        };
        match policy {
            "SCHED_OTHER" | "SCHED_BATCH" | "SCHED_IDLE" => {
                match policy {
                    "SCHED_BATCH" => part.text("policy", "batch"),
                    "SCHED_IDLE" => part.text("policy", "idle"),
                    _ => {}
                }
                let nice = priority(-20, 19, 0)?;
                if nice != 0 {
                    part.set("nice", nice.to_string());
                }
                // rt-app sets a custom slice through the runtime; the kernel clamps it.
                if let Some(runtime) = self.runtime.filter(|runtime| *runtime > 0) {
                    part.text("slice", format!("{}us", runtime.clamp(100, 100_000)));
                }
            }
            "SCHED_FIFO" => part.text("policy", format!("fifo:{}", priority(1, 99, 10)?)),
            "SCHED_RR" => part.text("policy", format!("rr:{}", priority(1, 99, 10)?)),
            "SCHED_DEADLINE" => {
                let runtime = self.runtime.filter(|runtime| *runtime > 0);
                let runtime = runtime.ok_or_else(|| {
                    (
                        place.to_owned(),
                        "SCHED_DEADLINE needs \"dl-runtime\" (microseconds)".to_owned(),
                    )
                })?;
                let period = self.period.unwrap_or(runtime);
                let deadline = self.deadline.unwrap_or(period);
                part.text("policy", format!("deadline:{runtime}us/{deadline}us/{period}us"));
            }
            other => {
                let known = [
                    "SCHED_OTHER",
                    "SCHED_BATCH",
                    "SCHED_IDLE",
                    "SCHED_FIFO",
                    "SCHED_RR",
                    "SCHED_DEADLINE",
                ];
                let message =
                    format!("there is no policy `{other}`; there are {}", known.join(", "));
                return Err((format!("{place}.policy"), message));
            }
        }
        if let Some(cpus) = &self.cpus {
            let list: Vec<String> = cpus.iter().map(ToString::to_string).collect();
            part.text("cpus", list.join(","));
        }
        Ok(())
    }
}

pub(super) fn cpu_list(value: &Json, place: &str) -> Result<Vec<i64>, Mistake> {
    let wrong =
        || (place.to_owned(), "must be a list of CPUs (0 to 511), such as [0, 2]".to_owned());
    let Json::List(list) = value else { return Err(wrong()) };
    let cpu = |value: &Json| match value {
        Json::Number(cpu @ 0..=511) => Ok(*cpu),
        _ => Err(wrong()),
    };
    let cpus = list.iter().map(cpu).collect::<Result<Vec<i64>, Mistake>>()?;
    if cpus.is_empty() { Err(wrong()) } else { Ok(cpus) }
}
