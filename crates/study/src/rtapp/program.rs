//! From rt-app's tasks, phases and events to tasks and steps of a scenario.

mod attributes;

use super::conditions::{Waiters, is_held, reference, suspended};
use super::json::Json;
use super::old;
use super::periods::has_several_periods;
use super::{Counts, Mistake, micros, number, object, text, word};
use crate::generate::{DraftSection, quote};
use attributes::{Attributes, cpu_list};
use schedlab_model::text::nearest;
use std::collections::BTreeSet;

/// Copies of one task, and steps of a barrier, at most.
const MAX_COPIES: i64 = 10_000;
/// Threads that may meet at one barrier: each tells every other.
const MAX_BARRIER: u64 = 64;
/// Events, as rt-app matches them: by the beginning of the key, longer names first.
const EVENTS: [&str; 19] = [
    "sem_post", "sem_wait", "runtime", "run", "sleep", "timer", "unlock", "lock", "wait", "signal",
    "broad", "sync", "suspend", "resume", "barrier", "yield", "fork", "iorun", "mem",
];
/// Attributes of tasks and phases.
const ATTRIBUTES: [&str; 19] = [
    "instance",
    "delay",
    "loop",
    "phases",
    "policy",
    "priority",
    "cpus",
    "taskgroup",
    "dl-runtime",
    "dl-period",
    "dl-deadline",
    "period",
    "deadline",
    "util_min",
    "util_max",
    "membind_nodes",
    "nodes_membind",
    "numa",
    "cpu_max",
];

/// The event of a key such as `run0`.
pub(super) fn event(key: &str) -> Option<&'static str> {
    if ATTRIBUTES.contains(&key) {
        return None;
    }
    EVENTS.into_iter().find(|event| key.starts_with(event))
}

/// What the programs of a workload share.
pub(super) struct Programs {
    /// CPUs of the machine: as many as are named; those of this machine where a task may run on all
    /// of them.
    pub(super) cpus: i64,
    /// Some task ends only with the run.
    pub(super) endless: bool,
    pub(super) locks: BTreeSet<String>,
    pub(super) groups: BTreeSet<String>,
    conditions: BTreeSet<String>,
    /// Threads that meet at each barrier, and the tasks with their copies.
    meets: Counts,
    members: Vec<(String, String, u64)>,
    waiters: Waiters,
    forked: BTreeSet<String>,
}

/// The steps of one task under way.
struct Steps<'p> {
    all: &'p mut Programs,
    task: String,
    delay: u64,
    /// The one period that its timers have.
    period: Option<u64>,
    /// Whether timers of the program have several periods: those that run once expire at times that
    /// are known.
    several: bool,
    /// Whether what is read now runs once.
    once: bool,
    /// When the timer of what runs once expired last, since the thread began.
    due: u64,
    notes: &'p mut BTreeSet<String>,
}

const LOOPS_AS_TIME: &str =
    "`run` is a number of loops at the calibrated speed; it is taken as time, as `runtime` is";

impl Programs {
    /// Looks through all tasks for what they share.
    pub(super) fn new(tasks: &[&(String, Json)], machine_cpus: i64) -> Result<Programs, Mistake> {
        let mut programs = Programs {
            cpus: 1,
            endless: false,
            locks: BTreeSet::new(),
            groups: BTreeSet::new(),
            conditions: BTreeSet::new(),
            meets: Counts::new(),
            members: Vec::new(),
            waiters: Waiters::default(),
            forked: BTreeSet::new(),
        };
        for (task, value) in tasks {
            let place = format!("tasks.{task}");
            let entries = object(value, &place)?;
            let copies = instances(entries, &place)?.max(1) as u64;
            programs.look(task, entries, copies, &place)?;
            if !names_cpus(entries) {
                programs.cpus = programs.cpus.max(machine_cpus);
            }
        }
        match programs.meets.iter().find(|(_, count)| **count > MAX_BARRIER) {
            Some((name, count)) => {
                let message =
                    format!("{count} threads meet at barrier `{name}`, at most {MAX_BARRIER} may");
                Err(("tasks".to_owned(), message))
            }
            None => Ok(programs),
        }
    }

    fn look(
        &mut self,
        task: &str,
        entries: &[(String, Json)],
        copies: u64,
        place: &str,
    ) -> Result<(), Mistake> {
        for (key, value) in entries {
            let place = format!("{place}.{key}");
            match (key.as_str(), event(key)) {
                ("phases", _) => {
                    for (phase, value) in object(value, &place)? {
                        let place = format!("{place}.{phase}");
                        self.look(task, object(value, &place)?, copies, &place)?;
                    }
                }
                ("cpus", _) => {
                    let highest = cpu_list(value, &place)?.into_iter().max().unwrap_or(0);
                    self.cpus = self.cpus.max(highest + 1);
                }
                (_, Some("barrier")) => {
                    let name = word(text(value, &place)?);
                    if self
                        .members
                        .iter()
                        .any(|(barrier, other, _)| *barrier == name && other == task)
                    {
                        let message = format!(
                            "`{task}` comes to barrier `{name}` twice: give each place its own name"
                        );
                        return Err((place, message));
                    }
                    *self.meets.entry(name.clone()).or_default() += copies;
                    self.members.push((name, task.to_owned(), copies));
                }
                (_, Some("wait" | "sync")) => {
                    let (name, _) = reference(value, &place)?;
                    self.waiters.add(name, task, copies);
                }
                (_, Some("suspend")) => {
                    self.waiters.add(suspended(text(value, &place)?, task), task, copies);
                }
                (_, Some("fork")) => {
                    self.forked.insert(text(value, &place)?.to_owned());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The channels of the scenario as TOML.
    pub(super) fn channels(&self) -> Vec<String> {
        let conditions = self.conditions.iter().map(|name| quote(name));
        let member = |(barrier, task, copies): &(String, String, u64)| match copies {
            1 => quote(&mailbox(barrier, task)),
            _ => format!("{{ name = {}, count = {copies} }}", quote(&mailbox(barrier, task))),
        };
        conditions.chain(self.members.iter().map(member)).collect()
    }

    /// A task; `None` when it never runs.
    pub(super) fn task(
        &mut self,
        name: &str,
        entries: &[(String, Json)],
        default_policy: &str,
        notes: &mut BTreeSet<String>,
    ) -> Result<Option<DraftSection>, Mistake> {
        let place = format!("tasks.{name}");
        let copies = instances(entries, &place)?;
        let forked = self.forked.contains(name);
        if copies == 0 && !forked {
            notes.insert(format!("{name}: instance 0, and no task forks it: left out"));
            return Ok(None);
        }
        if forked && copies > 0 {
            notes.insert(format!(
                "{name}: it is forked, so its first instances at the start are left out"
            ));
        }
        let delay = find(entries, "delay")
            .map(|value| micros(value, &format!("{place}.delay")))
            .transpose()?;
        let mut part = DraftSection::new("task");
        part.text("name", name);
        if copies > 1 && !forked {
            part.set("count", copies.to_string());
        }
        let mut attributes = Attributes::default();
        attributes.read(entries, &place, name, false, notes)?;
        let delay = delay.unwrap_or(0);
        let mut steps = Steps {
            all: self,
            task: name.to_owned(),
            delay,
            period: None,
            several: false,
            once: false,
            due: 0,
            notes,
        };
        let (first, program, ends) = steps.program(entries, &place, &mut attributes)?;
        attributes.write(&mut part, default_policy, &place)?;
        if let Some(group) = attributes.group.filter(|group| !group.is_empty() && group != "/") {
            let path = format!("/{}", word(group.trim_matches('/')));
            part.text("group", &path);
            self.groups.insert(path);
        }
        match forked {
            true => part.text("start", "spawned"),
            false if delay > 0 => part.text("start", format!("{delay}us")),
            false => {}
        }
        if !first.is_empty() {
            part.set("first", format!("[{}]", first.join(", ")));
        }
        part.steps = program;
        if ends {
            part.step("exit");
        } else {
            self.endless = true;
        }
        Ok(Some(part))
    }
}

/// Whether a task names its CPUs, itself or in a phase.
fn names_cpus(entries: &[(String, Json)]) -> bool {
    let named = |entries: &[(String, Json)]| find(entries, "cpus").is_some();
    let in_phase =
        |(_, phase): &(String, Json)| matches!(phase, Json::Object(phase) if named(phase));
    named(entries)
        || matches!(find(entries, "phases"), Some(Json::Object(phases)) if phases.iter().any(in_phase))
}

fn instances(entries: &[(String, Json)], place: &str) -> Result<i64, Mistake> {
    let Some(value) = find(entries, "instance") else { return Ok(1) };
    let place = format!("{place}.instance");
    match number(value, &place)? {
        count @ 0..=MAX_COPIES => Ok(count),
        other => Err((place, format!("{other}: must be 0 to {MAX_COPIES}"))),
    }
}

pub(super) fn find<'j>(entries: &'j [(String, Json)], key: &str) -> Option<&'j Json> {
    entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
}

/// The channel that counts the threads at a barrier.
fn mailbox(barrier: &str, task: &str) -> String {
    format!("{barrier}@{}", word(task))
}

impl Steps<'_> {
    /// What runs once, what runs then, and whether the task ends after it.
    fn program(
        &mut self,
        entries: &[(String, Json)],
        place: &str,
        attributes: &mut Attributes,
    ) -> Result<(Vec<String>, Vec<String>, bool), Mistake> {
        let times = repeats(entries, place, -1)?;
        let mut all = Vec::new();
        self.several = has_several_periods(entries);
        match find(entries, "phases") {
            None => {
                self.once = times == 1;
                all = self.events(entries, place)?;
            }
            Some(phases) => {
                let place = format!("{place}.phases");
                if let Some((key, _)) = entries.iter().find(|(key, _)| event(key).is_some()) {
                    let message = format!("`{key}` is beside `phases`: events belong into a phase");
                    return Err((place, message));
                }
                for (phase, value) in object(phases, &place)? {
                    let place = format!("{place}.{phase}");
                    let entries = object(value, &place)?;
                    attributes.read(entries, &place, &self.task, true, self.notes)?;
                    let repeats = repeats(entries, &place, 1)?;
                    self.once = times == 1 && repeats == 1;
                    let steps = self.events(entries, &place)?;
                    match repeats {
                        // A phase without an end: nothing comes after it.
                        -1 => return Ok((all, steps, false)),
                        times => all.extend(repeated(steps, times)),
                    }
                }
            }
        }
        match times {
            -1 => Ok((Vec::new(), all, false)),
            times => Ok((Vec::new(), repeated(all, times), true)),
        }
    }

    fn events(&mut self, entries: &[(String, Json)], place: &str) -> Result<Vec<String>, Mistake> {
        let mut steps = Vec::new();
        old::refuse(entries, place)?;
        for (key, value) in entries {
            let place = format!("{place}.{key}");
            match event(key) {
                Some(event) => self.event(event, value, &place, &mut steps)?,
                None if ATTRIBUTES.contains(&key.as_str()) => {}
                None => {
                    let hint = nearest(key, EVENTS.into_iter().chain(ATTRIBUTES)).map_or_else(
                        || format!("; events are {}", EVENTS.join(", ")),
                        |right| format!(": did you mean `{right}`?"),
                    );
                    return Err((
                        place,
                        format!("`{key}` is no event and no attribute of rt-app{hint}"),
                    ));
                }
            }
        }
        Ok(steps.iter().map(|step: &String| quote(step)).collect())
    }

    fn event(
        &mut self,
        event: &str,
        value: &Json,
        place: &str,
        steps: &mut Vec<String>,
    ) -> Result<(), Mistake> {
        let task = self.task.clone();
        match event {
            "run" | "runtime" => {
                if event == "run" {
                    self.notes.insert(LOOPS_AS_TIME.to_owned());
                }
                steps.push(format!("run {}us", micros(value, place)?));
            }
            "sleep" => steps.push(format!("sleep {}us", micros(value, place)?)),
            "timer" => steps.push(self.timer(value, place)?),
            "lock" | "unlock" => {
                let lock = word(text(value, place)?);
                steps.push(format!("{event} {lock}"));
                self.all.locks.insert(lock);
            }
            "wait" | "sync" => self.wait(event, value, place, steps)?,
            "signal" | "broad" => {
                let condition = word(text(value, place)?);
                let waiters = self.all.waiters.beside(&condition, &task);
                self.condition(&condition);
                steps.push(match event {
                    "broad" if waiters > 1 => format!("send {condition} x{waiters}"),
                    _ => format!("send {condition}"),
                });
            }
            "suspend" | "resume" => {
                let channel = suspended(text(value, place)?, &task);
                self.condition(&channel);
                let waiters = self.all.waiters.beside(&channel, &task);
                steps.push(match event {
                    "suspend" => format!("receive {channel}"),
                    // It wakes all that suspended themselves by this name.
                    _ if waiters > 1 => format!("send {channel} x{waiters}"),
                    _ => format!("send {channel}"),
                });
            }
            // A semaphore keeps what is posted before a task waits, as a channel does.
            "sem_post" | "sem_wait" => {
                let channel = format!("sem:{}", word(text(value, place)?));
                steps.push(format!(
                    "{} {channel}",
                    if event == "sem_wait" { "receive" } else { "send" }
                ));
                self.all.conditions.insert(channel);
            }
            "barrier" => self.barrier(&word(text(value, place)?), steps),
            "yield" => steps.push("yield".to_owned()),
            "fork" => steps.push(format!("spawn {}", text(value, place)?)),
            _ => {
                let note =
                    format!("{task}: {event} is left out (memory and devices are not modelled)");
                self.notes.insert(note);
            }
        }
        Ok(())
    }

    /// `wait`, and `sync`, which signals first; both leave the mutex to others while they wait.
    fn wait(
        &mut self,
        event: &str,
        value: &Json,
        place: &str,
        steps: &mut Vec<String>,
    ) -> Result<(), Mistake> {
        let (condition, mutex) = reference(value, place)?;
        self.condition(&condition);
        if event == "sync" {
            let note = "a `sync` that finds no waiting task goes on; in rt-app it waits for the \
                        next signal";
            self.notes.insert(note.to_owned());
            steps.push(format!("send {condition}"));
        }
        let held = mutex.filter(|mutex| event == "wait" || is_held(mutex, steps));
        steps.extend(held.iter().map(|mutex| format!("unlock {mutex}")));
        steps.push(format!("receive {condition}"));
        steps.extend(held.iter().map(|mutex| format!("lock {mutex}")));
        Ok(())
    }

    fn condition(&mut self, name: &str) {
        self.notes.insert(
            "a signal or resume that finds no waiting task is kept; rt-app loses it".to_owned(),
        );
        self.all.conditions.insert(name.to_owned());
    }

    /// Every thread tells every one (itself too), and hears from all.
    fn barrier(&mut self, name: &str, steps: &mut Vec<String>) {
        let members: Vec<&(String, String, u64)> =
            self.all.members.iter().filter(|(barrier, ..)| barrier == name).collect();
        for (barrier, task, copies) in &members {
            let own = mailbox(barrier, task);
            steps.extend((1..=*copies).map(|copy| match copies {
                1 => format!("send {own}"),
                _ => format!("send {own}-{copy}"),
            }));
        }
        let own = members
            .iter()
            .find(|(_, task, _)| *task == self.task)
            .map_or(1, |(.., copies)| *copies);
        let mailbox = mailbox(name, &self.task);
        let from = if own == 1 { mailbox } else { format!("{mailbox}-{{n}}") };
        let all = self.all.meets.get(name).copied().unwrap_or(0);
        steps.extend((0..all).map(|_| format!("receive {from}")));
    }

    fn timer(&mut self, value: &Json, place: &str) -> Result<String, Mistake> {
        let entries = object(value, place)?;
        let period = find(entries, "period").ok_or_else(|| {
            (place.to_owned(), "a timer needs \"period\" (microseconds)".to_owned())
        })?;
        let place_of_period = format!("{place}.period");
        let period = micros(period, &place_of_period)?;
        if period == 0 {
            return Err((place_of_period, "must be longer than 0".to_owned()));
        }
        let mode =
            find(entries, "mode").map(|mode| text(mode, &format!("{place}.mode"))).transpose()?;
        if self.several && self.once && mode == Some("absolute") {
            self.due = self.due.saturating_add(period);
            return Ok(format!("sleep until {}us", self.delay.saturating_add(self.due)));
        }
        if let Some(other) = self.period.replace(period).filter(|other| *other != period) {
            let message = format!(
                "a task has one timer period here, and this one has {other} and {period} us: use \
                 one period, or `sleep`"
            );
            return Err((place_of_period, message));
        }
        // The first expiry is one period after the thread began, or after the last one that is
        // known.
        let from = self.delay.saturating_add(self.due).saturating_add(period);
        match mode.unwrap_or("relative") {
            "absolute" => Ok(format!("every {period}us from {from}us")),
            "relative" => {
                let note = "a relative timer that was missed goes on with its next due time; \
                            rt-app counts a new \
                            period from the moment of the miss. Timers are never shared between \
                            threads";
                self.notes.insert(note.to_owned());
                Ok(format!("every {period}us from {from}us skip"))
            }
            other => Err((
                format!("{place}.mode"),
                format!("`{other}`: it is \"relative\" or \"absolute\""),
            )),
        }
    }
}

/// `loop` of a task or phase; -1 = for ever.
fn repeats(entries: &[(String, Json)], place: &str, default: i64) -> Result<i64, Mistake> {
    let Some(value) = find(entries, "loop") else { return Ok(default) };
    let place = format!("{place}.loop");
    match number(value, &place)? {
        times @ (-1 | 1..=1_000_000_000) => Ok(times),
        other => Err((place, format!("{other}: must be 1 to 1000000000, or -1 for ever"))),
    }
}

fn repeated(steps: Vec<String>, times: i64) -> Vec<String> {
    if times == 1 || steps.is_empty() {
        return steps;
    }
    vec![format!("{{ repeat = {times}, steps = [{}] }}", steps.join(", "))]
}
