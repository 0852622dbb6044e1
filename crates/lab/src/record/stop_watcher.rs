//! Follows the events of a recording until one of its conditions is met.

use super::stop_conditions::{Caught, StopCondition, StopConditions, StretchKind};
use schedlab_model::{CpuId, EventKind, GroupId, Ns, SchedEvent, TaskId};
use schedlab_study::serve::Server;
use schedlab_trace::{GroupInfo, TaskInfo};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stretch {
    measure: StretchKind,
    since: Ns,
}

/// A task's current stretch, and the conditions that it can meet.
#[derive(Clone, Debug, Default)]
struct Track {
    now: Option<Stretch>,
    /// Indexes of conditions.
    watched: Vec<usize>,
    info: Option<TaskInfo>,
}

impl Track {
    /// Returns name and thread id.
    fn task(&self) -> (String, u32) {
        self.info.as_ref().map_or_else(Default::default, |info| (info.comm.clone(), info.tid))
    }
}

/// Follows the events until one of the conditions is met.
#[derive(Clone, Debug)]
pub(crate) struct StopWatcher {
    conditions: Vec<StopCondition>,
    own_process: u32,
    groups: Vec<GroupInfo>,
    tasks: BTreeMap<TaskId, Track>,
    running: BTreeMap<CpuId, TaskId>,
    /// A stretch that is longer than its limit already: its task, the condition, its beginning.
    overdue: Option<(TaskId, usize, Ns)>,
    caught: Option<(usize, Caught)>,
}

/// Returns the places of the conditions that a task can meet.
fn watched(
    conditions: &[StopCondition],
    groups: &[GroupInfo],
    own_process: u32,
    info: &TaskInfo,
) -> Vec<usize> {
    let is_meant = |condition: &StopCondition| match &condition.task {
        None => info.pid != own_process && info.tid != 0,
        Some(task) => Server::new(task).is_meant(info, groups),
    };
    conditions.iter().enumerate().filter(|(_, c)| is_meant(c)).map(|(at, _)| at).collect()
}

/// How long the recorder waits for the end of an overdue stretch.
const LINGER: Ns = Ns(1_000_000_000);

impl StopWatcher {
    /// `own_process` is the recorder's, whose tasks meet no condition without a name.
    pub(crate) fn new(until: &StopConditions, own_process: u32) -> StopWatcher {
        StopWatcher {
            conditions: until.0.clone(),
            own_process,
            groups: Vec::new(),
            tasks: BTreeMap::new(),
            running: BTreeMap::new(),
            overdue: None,
            caught: None,
        }
    }

    /// Replaces the conditions; stretches that go on keep their beginning.
    pub(crate) fn set(&mut self, until: &StopConditions) {
        self.conditions.clone_from(&until.0);
        (self.overdue, self.caught) = (None, None);
        for track in self.tasks.values_mut() {
            let info = track.info.as_ref();
            track.watched = info.map_or_else(Vec::new, |info| {
                watched(&self.conditions, &self.groups, self.own_process, info)
            });
        }
    }

    /// Returns the stretch that met a condition, when it is over.
    pub(crate) fn caught(&self) -> Option<&Caught> {
        self.caught.as_ref().map(|(_, caught)| caught)
    }

    /// Takes the stretch that met a condition, with the condition's place, and looks for the next.
    pub(crate) fn take(&mut self) -> Option<(usize, Caught)> {
        let caught = self.caught.clone()?;
        self.again();
        Some(caught)
    }

    /// Looks for the next stretch. One that was caught before its end is not caught again.
    pub(crate) fn again(&mut self) {
        self.overdue = None;
        let caught = self.caught.take().map(|(_, caught)| caught);
        let Some(caught) = caught.filter(|caught| caught.length.is_none()) else { return };
        for track in self.tasks.values_mut().filter(|track| track.task() == caught.task) {
            track.now = None;
        }
    }

    /// Notes a task that is new or has another name.
    pub(crate) fn task(&mut self, id: TaskId, info: &TaskInfo, stand_in: bool) {
        let watched = match stand_in {
            true => Vec::new(),
            false => watched(&self.conditions, &self.groups, self.own_process, info),
        };
        let track = self.tasks.entry(id).or_default();
        (track.watched, track.info) = (watched, (!stand_in).then(|| info.clone()));
    }

    /// Notes a control group, before its tasks.
    pub(crate) fn group(&mut self, at: GroupId, group: &GroupInfo) {
        match self.groups.get_mut(at.index()) {
            Some(known) => known.clone_from(group),
            None => self.groups.push(group.clone()),
        }
    }

    pub(crate) fn event(&mut self, event: &SchedEvent) {
        let at = event.at;
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                self.running.remove(&event.cpu);
                if let Some(prev) = prev {
                    let measure = match prev_state.is_runnable() {
                        Some(true) => Some(StretchKind::Wait),
                        Some(false) => Some(StretchKind::Block),
                        None => None,
                    };
                    self.turn(prev, at, measure);
                }
                if let Some(next) = next {
                    self.running.insert(event.cpu, next);
                    self.turn(next, at, Some(StretchKind::Run));
                }
            }
            EventKind::Wake { task, .. } => {
                // A wakeup of a task that runs or waits already changes nothing.
                let blocked =
                    |track: &Track| track.now.is_none_or(|now| now.measure == StretchKind::Block);
                if self.tasks.get(&task).is_some_and(blocked)
                    && !self.running.values().any(|&t| t == task)
                {
                    self.turn(task, at, Some(StretchKind::Wait));
                }
            }
            EventKind::New { task, .. } => self.turn(task, at, Some(StretchKind::Wait)),
            EventKind::Exit { task } => {
                // The task runs its last steps; its end is no block.
                self.turn(task, at, None);
                if self.overdue.is_none_or(|(overdue, ..)| overdue != task) {
                    self.tasks.remove(&task);
                }
            }
            // A lost event may have ended any stretch.
            EventKind::Lost { .. } => {
                self.tasks.values_mut().for_each(|track| track.now = None);
                self.running.clear();
                self.overdue = None;
            }
            _ => {}
        }
    }

    /// Ends the stretch of `task` at `at`, and begins one of kind `measure`.
    fn turn(&mut self, task: TaskId, at: Ns, measure: Option<StretchKind>) {
        let Some(track) = self.tasks.get_mut(&task) else { return };
        let ended = std::mem::replace(
            &mut track.now,
            measure.map(|measure| Stretch { measure, since: at }),
        );
        let Some(ended) = ended.filter(|_| self.caught.is_none()) else { return };
        let length = at.saturating_sub(ended.since);
        let met = |&&at: &&usize| {
            let condition = &self.conditions[at];
            condition.measure == ended.measure && length > condition.limit
        };
        if let Some(&at) = track.watched.iter().find(met) {
            let task = track.task();
            self.caught = Some((at, self.conditions[at].caught(task, ended.since, Some(length))));
        }
    }

    /// Checks the stretches that still go on at `now`.
    pub(crate) fn look(&mut self, now: Ns) {
        if self.caught.is_some() {
            return;
        }
        if let Some((task, condition, since)) = self.overdue {
            let track = self.tasks.get(&task).cloned().unwrap_or_default();
            if track.now.is_none_or(|stretch| stretch.since != since) {
                self.overdue = None;
            } else if now.saturating_sub(since)
                > self.conditions[condition].limit.saturating_add(LINGER)
            {
                let caught = self.conditions[condition].caught(track.task(), since, None);
                self.caught = Some((condition, caught));
            }
            return;
        }
        for (&id, track) in &self.tasks {
            let Some(stretch) = track.now else { continue };
            let length = now.saturating_sub(stretch.since);
            let met = |&&at: &&usize| {
                let condition = &self.conditions[at];
                condition.measure == stretch.measure && length > condition.limit
            };
            if let Some(&condition) = track.watched.iter().find(met) {
                self.overdue = Some((id, condition, stretch.since));
                return;
            }
        }
    }

    /// Returns a condition about blocking, if there is one: it needs to know when tasks are woken.
    pub(crate) fn needs_wakeups(until: &StopConditions) -> Option<&StopCondition> {
        until.0.iter().find(|condition| condition.measure == StretchKind::Block)
    }
}
