//! Workloads of rt-app (JSON) as scenarios. `docs/exchange-formats.md` says what is taken over and
//! what is not; what a file loses on the way is written into the scenario as comments.
//!
//! Source of the grammar: rt-app's own `doc/tutorial.txt` (scheduler-tools/rt-app, May 2026) and
//! its examples.

mod conditions;
mod export;
mod json;
mod old;
mod periods;
mod program;

use crate::generate::{Draft, DraftSection, quote};
use crate::scenario::{Scenario, parse as parse_scenario};
pub use export::{Exported, export};
use json::Json;
use program::Programs;
use schedlab_model::MAX_CPUS;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The largest file that is read.
const MAX_BYTES: usize = 64 << 20;
/// What `global` may say that has no meaning for a schedule.
const IGNORED: [&str; 11] = [
    "calibration",
    "lock_pages",
    "logdir",
    "log_size",
    "log_basename",
    "ftrace",
    "gnuplot",
    "io_device",
    "mem_buffer_size",
    "cumulative_slack",
    "frag",
];
/// How long a workload without a duration runs whose tasks do not end.
const DURATION_S: i64 = 10;
/// How long a workload without a duration may take until its tasks end: a day.
const OPEN_END_S: i64 = 86_400;

/// What is wrong with an rt-app file, and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}: {}{message}", at(.place))]
pub struct RtAppError {
    /// The file as the user named it.
    pub file: String,
    /// Where in it, such as `tasks.audio.phases.p1.timer`; empty for the file as a whole.
    pub place: String,
    /// What is wrong, what is allowed, what to do.
    pub message: String,
}

/// A place, as messages begin with it.
fn at(place: &str) -> String {
    if place.is_empty() { String::new() } else { format!("{place}: ") }
}

/// Place and message of a mistake.
type Mistake = (String, String);

/// A workload that was read.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The scenario as a file; what was left out or simplified is in its comments.
    pub toml: String,
    /// The same, parsed.
    pub scenario: Scenario,
    /// What was left out or simplified, one line each.
    pub notes: Vec<String>,
}

/// Reads the file `path`.
///
/// # Errors
/// A file that cannot be read, or that is not a workload; see [`parse`].
pub fn load(path: &Path) -> Result<Imported, RtAppError> {
    let file = path.display().to_string();
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let fail = |message: String| RtAppError { file: file.clone(), place: String::new(), message };
    let bytes = schedlab_files::read(path, MAX_BYTES as u64)
        .map_err(|error| fail(format!("cannot be read: {error}")))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| fail("is not a text file: an rt-app workload is JSON in UTF-8".to_owned()))?;
    // What names no CPUs may run on all CPUs of the machine.
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    parse(&name, &file, &text, cpus)
}

/// Makes a scenario out of the rt-app workload `text`; `file` is for messages. A task that names no
/// CPUs may run on all of a machine that has `cpus` CPUs.
///
/// # Errors
/// What is not JSON, not rt-app's grammar, or has no counterpart in a scenario, with its place.
pub fn parse(name: &str, file: &str, text: &str, cpus: usize) -> Result<Imported, RtAppError> {
    let fail = |(place, message): Mistake| RtAppError { file: file.to_owned(), place, message };
    if text.len() > MAX_BYTES {
        return Err(fail((
            String::new(),
            format!("{} bytes is too large (at most {MAX_BYTES})", text.len()),
        )));
    }
    let root = json::parse(text).map_err(|message| fail((String::new(), message)))?;
    let cpus = i64::try_from(cpus).unwrap_or(1).clamp(1, MAX_CPUS as i64);
    let (draft, notes) = draft(name, &root, cpus).map_err(fail)?;
    let toml = draft.to_toml();
    let mut scenario = parse_scenario(name, file, &toml).map_err(|error| {
        fail((String::new(), format!("cannot run as a scenario: {}", error.message)))
    })?;
    scenario.notes.clone_from(&notes);
    Ok(Imported { toml, scenario, notes })
}

fn draft(name: &str, root: &Json, cpus: i64) -> Result<(Draft, Vec<String>), Mistake> {
    let root = object(root, "")?;
    let mut notes = BTreeSet::new();
    let mut global = Global { duration_s: None, policy: "SCHED_OTHER".to_owned(), inherits: false };
    let mut tasks = Vec::new();
    for (key, value) in root {
        match key.as_str() {
            "tasks" => tasks.extend(object(value, "tasks")?.iter()),
            "global" => global.read(object(value, "global")?, &mut notes)?,
            // It declares what is made from its first use anyway.
            "resources" => {}
            _ => {
                let message = format!(
                    "an rt-app workload has `tasks`, `global` and `resources`, not `{key}`"
                );
                return Err((key.clone(), message));
            }
        }
    }
    if tasks.is_empty() {
        return Err((
            "tasks".to_owned(),
            "there is no task: \"tasks\": { \"t\": { \"run\": 1000, \"sleep\": 9000 } }. A file \
             with `global` or `resources` only is a \
             part of a workload: put it together with the file that has `tasks`"
                .to_owned(),
        ));
    }
    let mut programs = Programs::new(&tasks, cpus)?;
    let mut parts = Vec::new();
    for (task, value) in &tasks {
        let entries = object(value, &format!("tasks.{task}"))?;
        parts.extend(programs.task(task, entries, &global.policy, &mut notes)?);
    }
    let duration = duration(&global, programs.endless, &mut notes);
    notes.insert(format!(
        "it does not describe the machine: {} CPU(s), as many as it names, or those of this \
         machine where a task names none; HZ=250; \
         change [machine] as you like",
        programs.cpus
    ));
    let mut draft = Draft::default();
    draft.comments.push(format!("{name}: imported from an rt-app workload."));
    draft
        .comments
        .extend(notes.iter().map(|note| format!("- {}", note.replace(['\n', '\r'], " "))));
    draft.set("title", quote(&format!("{name} (rt-app)")));
    draft.set("schedulers", "[\"linux-6.18\"]");
    draft.set("duration", quote(&format!("{duration}s")));
    if !programs.endless {
        draft.set("end", quote("tasks"));
    }
    draft.set("channels", format!("[{}]", programs.channels().join(", ")));
    let lock = |name: &String| match global.inherits {
        true => format!("{{ name = {}, protocol = \"inherit\" }}", quote(name)),
        false => quote(name),
    };
    let locks: Vec<String> = programs.locks.iter().map(lock).collect();
    draft.set("locks", format!("[{}]", locks.join(", ")));
    draft.machine.push(("cpus".to_owned(), programs.cpus.to_string()));
    draft.parts = groups(&programs.groups);
    draft.parts.extend(parts);
    Ok((draft, notes.into_iter().collect()))
}

/// Returns how many seconds the workload runs; where that is made up, `notes` say so.
fn duration(global: &Global, endless: bool, notes: &mut BTreeSet<String>) -> i64 {
    match (global.duration_s, endless) {
        (Some(duration), _) => duration,
        (None, false) => OPEN_END_S,
        (None, true) => {
            notes.insert(format!(
                "it names no duration, and not all of its tasks end: {DURATION_S} s"
            ));
            DURATION_S
        }
    }
}

/// The groups and their parents, parents first.
fn groups(paths: &BTreeSet<String>) -> Vec<DraftSection> {
    let mut all = BTreeSet::new();
    for path in paths {
        let mut full = String::new();
        for step in path.split('/').filter(|step| !step.is_empty()) {
            full = format!("{full}/{step}");
            all.insert(full.clone());
        }
    }
    let part = |path: &String| {
        let mut part = DraftSection::new("group");
        part.text("name", path);
        part
    };
    all.iter().map(part).collect()
}

struct Global {
    duration_s: Option<i64>,
    policy: String,
    /// Locks have priority inheritance.
    inherits: bool,
}

impl Global {
    fn read(
        &mut self,
        entries: &[(String, Json)],
        notes: &mut BTreeSet<String>,
    ) -> Result<(), Mistake> {
        for (key, value) in entries {
            let place = format!("global.{key}");
            match key.as_str() {
                "duration" => match number(value, &place)? {
                    -1 => {}
                    seconds @ 1..=86_400 => self.duration_s = Some(seconds),
                    other => {
                        return Err((
                            place,
                            format!("{other}: write 1 to 86400 seconds, or -1 for ever"),
                        ));
                    }
                },
                "default_policy" => self.policy = text(value, &place)?.to_owned(),
                "pi_enabled" => self.inherits = *value == Json::Flag(true),
                key if IGNORED.contains(&key) => {}
                other => {
                    notes.insert(format!("global.{other}: left out"));
                }
            }
        }
        Ok(())
    }
}

fn object<'j>(value: &'j Json, place: &str) -> Result<&'j [(String, Json)], Mistake> {
    match value {
        Json::Object(entries) => Ok(entries),
        other => {
            Err((place.to_owned(), format!("must be an object in braces, not {}", other.kind())))
        }
    }
}

fn number(value: &Json, place: &str) -> Result<i64, Mistake> {
    match value {
        Json::Number(number) => Ok(*number),
        other => Err((place.to_owned(), format!("must be a whole number, not {}", other.kind()))),
    }
}

/// A time in microseconds.
fn micros(value: &Json, place: &str) -> Result<u64, Mistake> {
    let number = number(value, place)?;
    let fits = u64::try_from(number).ok().filter(|us| *us <= 86_400_000_000);
    fits.ok_or_else(|| {
        (
            place.to_owned(),
            format!("{number}: must be 0 to 86400000000 (microseconds, at most a day)"),
        )
    })
}

fn text<'j>(value: &'j Json, place: &str) -> Result<&'j str, Mistake> {
    match value {
        Json::Text(text) => Ok(text),
        other => Err((place.to_owned(), format!("must be a text in quotes, not {}", other.kind()))),
    }
}

/// A resource's name as one word.
fn word(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_whitespace() || c.is_control() || "{}".contains(c) { '_' } else { c })
        .collect()
}

/// How often each of several things is there.
type Counts = BTreeMap<String, u64>;
