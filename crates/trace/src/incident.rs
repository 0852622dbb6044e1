//! The event for which a flight recorder kept a recording, in the recording's header.

use crate::analysis::{Scope, longest_wait};
use crate::{Header, Recording};
use schedlab_model::text::shown;
use schedlab_model::{Ns, TaskId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The setting in a header that holds it, as JSON.
const SETTING: &str = "recorder.caught";

/// A stretch that met a condition of `--until`.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Incident {
    /// The condition.
    pub condition: String,
    /// Name of the task.
    pub task: String,
    /// Its thread id.
    pub tid: u32,
    /// What the task did: `waited`, `ran` or `blocked`.
    pub did: String,
    /// Beginning of the stretch, in the time of the recording.
    pub from_ns: u64,
    /// Its length; `None`: it still went on when the recorder gave up waiting for its end.
    pub length_ns: Option<u64>,
    /// How much of that length was over when the recording begins: it was longer than what the
    /// recorder keeps.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub before_ns: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(ns: &u64) -> bool {
    *ns == 0
}

impl Header {
    /// Returns what the recording was kept for; `None`: it was not made by a flight recorder, or
    /// nothing was caught.
    pub fn incident(&self) -> Option<Incident> {
        serde_json::from_str(self.knobs.get(SETTING)?).ok()
    }

    /// Notes what the recording is kept for.
    pub fn set_incident(&mut self, incident: &Incident) {
        if let Ok(text) = serde_json::to_string(incident) {
            self.knobs.insert(SETTING.to_owned(), text);
        }
    }
}

impl Incident {
    /// Returns its beginning.
    pub fn from(&self) -> Ns {
        Ns(self.from_ns)
    }

    /// Returns its end; [`Ns::MAX`] when it did not end.
    pub fn to(&self) -> Ns {
        let within = self.length_ns.map(|length| Ns(length.saturating_sub(self.before_ns)));
        within.map_or(Ns::MAX, |within| self.from().saturating_add(within))
    }

    /// Returns the stretch with a margin of half its length at each side, within a recording of
    /// this length: what a picture shows.
    pub fn around(&self, duration: Ns) -> (Ns, Ns) {
        let to = self.to().min(duration);
        let margin = Ns((to.saturating_sub(self.from()).0 / 2).max(1_000));
        (self.from().saturating_sub(margin), to.saturating_add(margin).min(duration))
    }

    /// Returns whether it is in the part of the recording that `scope` shows.
    pub fn is_in(&self, header: &Header, scope: &Scope) -> bool {
        let is_shown = |task: &TaskId| scope.task(*task);
        let tasks: Vec<TaskId> = self.tasks(header).collect();
        self.from() <= scope.to
            && scope.from <= self.to()
            && (tasks.is_empty() || tasks.iter().any(is_shown))
    }

    /// Returns it as a sentence, with the task that ran during most of a wait.
    pub fn sentence(&self, recording: &Recording) -> String {
        let task = format!("{}[{}]", shown(&self.task), self.tid);
        let for_what = if self.did == "waited" { " for a CPU" } else { "" };
        let from = match Ns(self.before_ns) {
            Ns::ZERO => format!("from {} on", self.from()),
            before => format!("from {before} before the recording begins on"),
        };
        let stretch = match self.length_ns {
            Some(length) => format!("{} {}{for_what}", self.did, Ns(length)),
            None => format!("{} longer than was recorded{for_what}", self.did),
        };
        let behind = self.behind(recording).map_or_else(String::new, |name| match name {
            (true, name) => format!(", behind {}", shown(&name)),
            (false, why) => format!(", while {why}"),
        });
        format!(
            "{task} {stretch}{behind}, {from}: the recording was kept for this ({}).",
            shown(&self.condition)
        )
    }

    /// Returns what the task waited for, and whether that is a task; `None`: it did not wait, or
    /// what ran during a part of it was not recorded.
    fn behind(&self, recording: &Recording) -> Option<(bool, String)> {
        let mut tasks = vec![false; recording.header.tasks.len()];
        self.tasks(&recording.header).for_each(|task| tasks[task.index()] = true);
        let scope =
            Scope { from: self.from(), to: self.to(), tasks: Some(tasks), ..Scope::default() };
        let waited = self.did == "waited" && self.length_ns.is_some() && self.before_ns == 0;
        waited.then(|| longest_wait(recording, &scope)).flatten()
    }

    fn tasks<'a>(&'a self, header: &'a Header) -> impl Iterator<Item = TaskId> + 'a {
        let all = header.tasks.iter().enumerate();
        let own = all.filter(|(_, info)| info.tid == self.tid);
        own.map(|(task, _)| TaskId::from(task))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capabilities, TaskInfo};
    use schedlab_model::{CpuId, EventKind, PrevState, SchedEvent, Topology, Waker};

    fn recording() -> Recording {
        let tasks = vec![TaskInfo::unknown(7, 7, "redis"), TaskInfo::unknown(8, 8, "batch")];
        let mut header = Header {
            tasks,
            topology: Topology::flat(1),
            capabilities: Capabilities::simulator(),
            ..Header::default()
        };
        header.set_incident(&Incident {
            condition: "redis waited > 10ms".to_owned(),
            task: "redis".to_owned(),
            tid: 7,
            did: "waited".to_owned(),
            from_ns: 2_000_000,
            length_ns: Some(20_000_000),
            before_ns: 0,
        });
        let event = |ms: u64, kind| SchedEvent { at: Ns::from_ms(ms), cpu: CpuId(0), kind };
        let switch = |prev: Option<u32>, prev_state, next: Option<u32>| EventKind::Switch {
            prev: prev.map(TaskId),
            prev_state,
            next: next.map(TaskId),
        };
        let events = vec![
            event(1, switch(None, PrevState::Runnable, Some(1))),
            event(2, EventKind::Wake { task: TaskId(0), waker: Waker::HardIrq }),
            event(22, switch(Some(1), PrevState::Sleeping, Some(0))),
            event(23, switch(Some(0), PrevState::Sleeping, None)),
        ];
        Recording { header, events, duration: Ns::from_ms(30), ..Recording::default() }
    }

    #[test]
    fn it_says_what_ran_meanwhile() {
        let recording = recording();
        let found = recording.header.incident().expect("it is in the header");
        assert_eq!(
            found.sentence(&recording),
            "redis[7] waited 20.0ms for a CPU, behind batch[8], from 2.00ms on: the recording was \
             kept for this (redis waited > 10ms)."
        );
        assert_eq!(found.around(recording.duration), (Ns::ZERO, Ns::from_ms(30)));
        assert_eq!(found.around(Ns::MAX).1, Ns::from_ms(32));
    }

    /// Of a wait that began before the recording its beginning is not known, and another wait in
    /// the recording does not count as it.
    #[test]
    fn what_was_before_the_recording_is_said_and_not_guessed() {
        let recording = recording();
        let known = recording.header.incident().expect("it is in the header");
        assert!(!serde_json::to_string(&known).unwrap().contains("before_ns"));
        let found =
            Incident { from_ns: 0, length_ns: Some(50_000_000), before_ns: 27_000_000, ..known };
        assert_eq!(
            found.sentence(&recording),
            "redis[7] waited 50.0ms for a CPU, from 27.0ms before the recording begins on: the \
             recording was kept for this (redis waited > 10ms)."
        );
        assert_eq!((found.from(), found.to()), (Ns::ZERO, Ns::from_ms(23)));
    }

    #[test]
    fn it_is_said_of_the_part_that_has_it() {
        let recording = recording();
        let found = recording.header.incident().expect("it is in the header");
        let is_in = |scope: &Scope| found.is_in(&recording.header, scope);
        assert!(is_in(&Scope::default()));
        assert!(!is_in(&Scope { from: Ns::from_ms(25), ..Scope::default() }));
        assert!(!is_in(&Scope { to: Ns::from_ms(1), ..Scope::default() }));
        assert!(!is_in(&Scope { tasks: Some(vec![false, true]), ..Scope::default() }));
    }
}
