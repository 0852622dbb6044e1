//! The command line that tries a setting on the real threads.

use super::Target;
use super::answer::Tried;
use crate::compare::{Point, ReplayFrom};
use crate::result::Study;
use crate::variant::{Setting, TaskSetting};
use schedlab_model::text::shell_word;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a setting is tried on the real threads.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Confirm {
    /// The options of `schedlab confirm` before what it runs; missing where it cannot make the
    /// setting.
    pub arguments: Option<Vec<String>>,
    /// Why not.
    pub why_not: Option<String>,
    /// What ran while the recording was made.
    pub command: Vec<String>,
}

/// How a setting is tried live. `confirm` sets what a thread has by itself.
/// `study`: what the search compared, whose replay may be another than was tried first.
pub(super) fn confirm(
    input: Target<'_>,
    study: &Study,
    points: &[Point],
    tried: &Tried,
) -> Confirm {
    let (cpus, command) = match input {
        Target::Recording(recorded, _) => {
            let (header, replay) = recorded.found();
            (replay.topology.cpus(), header.command.clone())
        }
        Target::Scenario(..) => (1, Vec::new()),
    };
    let point = points.iter().find(|point| point.variant.name == tried.setting);
    let refuse = |why: &str| Confirm {
        arguments: None,
        why_not: Some(why.to_owned()),
        command: command.clone(),
    };
    let Some(point) = point else { return refuse("nothing is set") };
    if point.scheduler.is_some() {
        return refuse(
            "another kernel is a part of the setting: boot it, record again, and compare with \
             `schedlab diff`",
        );
    }
    let of_thread = |setting: &Setting| {
        use TaskSetting::{Cpus, Nice, Policy, Slice};
        matches!(setting, Setting::Task(Policy(_) | Nice(_) | Cpus(_) | Slice(_)))
    };
    let settings = || point.variant.clauses.iter().flat_map(|clause| &clause.settings);
    if !settings().all(of_thread) {
        return refuse(
            "`schedlab confirm` sets policy, nice, slice and cpus of tasks: make this setting by \
             hand, record again, and compare with \
             `schedlab diff`",
        );
    }
    let mut arguments: Vec<String> = Vec::new();
    if let Target::Recording(recorded, _) = input {
        arguments.push(recorded.path().display().to_string());
        // Rounds have messages only where they are asked for.
        let from = ReplayFrom::Messages.name();
        if study.self_replay.as_ref().is_some_and(|replay| replay.replay == from) {
            arguments.extend(["--replay".to_owned(), from.to_owned()]);
        }
    }
    arguments.extend(["--variant".to_owned(), format!("tuned: {}", tried.setting)]);
    arguments.push("--cpus".to_owned());
    arguments.push(if cpus > 1 { format!("0-{}", cpus - 1) } else { "0".to_owned() });
    Confirm { arguments: Some(arguments), why_not: None, command }
}

impl Confirm {
    /// Returns the command line, without what it runs.
    pub fn line(&self) -> Option<String> {
        let words = self.arguments.as_ref()?.iter().map(|word| shell_word(word).into_owned());
        Some(
            std::iter::once("schedlab confirm".to_owned())
                .chain(words)
                .collect::<Vec<_>>()
                .join(" "),
        )
    }
}
