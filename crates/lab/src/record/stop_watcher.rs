//! Follows the events of a recording until one of its conditions is met.

use super::stop_conditions::{Caught, StopCondition, StopConditions, StretchKind};
use foldhash::fast::FixedState;
use schedlab_model::{EventKind, GroupId, Ns, SchedEvent, TaskId};
use schedlab_study::serve::Server;
use schedlab_trace::{GroupInfo, TaskInfo};
use std::collections::HashMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stretch {
    measure: StretchKind,
    since: Ns,
}

/// A task's current stretch, and the conditions that it can meet.
#[derive(Clone, Debug, Default)]
struct Track {
    now: Option<Stretch>,
    /// Whether it is on a CPU, also when its stretch is not known.
    on_cpu: bool,
    /// The beginning of a stretch that was caught before its end.
    told: Option<Ns>,
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
    tracks: Vec<Track>,
    /// The place of each task in `tracks`, and places that are free again: the tasks of a recorder
    /// that has no end are any number.
    places: HashMap<TaskId, usize, FixedState>,
    free: Vec<usize>,
    /// The place of the task on each CPU.
    running: Vec<Option<usize>>,
    /// A stretch that is longer than its limit already: its task's place, the condition, its
    /// beginning.
    overdue: Option<(usize, usize, Ns)>,
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
            tracks: Vec::new(),
            places: HashMap::default(),
            free: Vec::new(),
            running: Vec::new(),
            overdue: None,
            caught: None,
        }
    }

    /// Replaces the conditions; stretches that go on keep their beginning.
    pub(crate) fn set(&mut self, until: &StopConditions) {
        self.conditions.clone_from(&until.0);
        (self.overdue, self.caught) = (None, None);
        for track in &mut self.tracks {
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
        for track in self.tracks.iter_mut().filter(|track| track.task() == caught.task) {
            track.told = track.now.take().map(|stretch| stretch.since);
        }
    }

    /// Notes a task that is new or has another name.
    pub(crate) fn task(&mut self, id: TaskId, info: &TaskInfo, stand_in: bool) {
        let watched = match stand_in {
            true => Vec::new(),
            false => watched(&self.conditions, &self.groups, self.own_process, info),
        };
        let place = *self.places.entry(id).or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.tracks.push(Track::default());
                self.tracks.len() - 1
            })
        });
        let track = &mut self.tracks[place];
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
                let prev = prev.and_then(|prev| self.place(prev));
                let next = next.and_then(|next| self.place(next));
                self.occupy(event.cpu.index(), prev, next);
                if let Some(prev) = prev {
                    let measure = match prev_state.is_runnable() {
                        Some(true) => Some(StretchKind::Wait),
                        Some(false) => Some(StretchKind::Block),
                        None => None,
                    };
                    self.turn(prev, at, measure);
                }
                if let Some(next) = next {
                    self.turn(next, at, Some(StretchKind::Run));
                }
            }
            EventKind::Wake { task, .. } => {
                // A wakeup of a task that runs or waits already changes nothing.
                let blocked = |track: &Track| {
                    !track.on_cpu && track.now.is_none_or(|now| now.measure == StretchKind::Block)
                };
                let place = self.place(task);
                if let Some(place) = place.filter(|&place| blocked(&self.tracks[place])) {
                    self.turn(place, at, Some(StretchKind::Wait));
                }
            }
            EventKind::New { task, .. } => {
                if let Some(place) = self.place(task) {
                    self.turn(place, at, Some(StretchKind::Wait));
                }
            }
            EventKind::Exit { task } => {
                let Some(place) = self.place(task) else { return };
                // The task runs its last steps; its end is no block.
                self.turn(place, at, None);
                if self.overdue.is_none_or(|(overdue, ..)| overdue != place) {
                    self.forget(task, place);
                }
            }
            // A lost event may have ended any stretch.
            EventKind::Lost { .. } => {
                for track in &mut self.tracks {
                    (track.now, track.on_cpu) = (None, false);
                }
                self.running.clear();
                self.overdue = None;
            }
            _ => {}
        }
    }

    /// Returns the least limit of the conditions that a task can meet with a kind of stretch.
    pub(crate) fn bound(&self, task: TaskId, measure: StretchKind) -> Option<Ns> {
        let watched = &self.tracks[self.place(task)?].watched;
        let conditions = watched.iter().map(|&at| &self.conditions[at]);
        conditions.filter(|condition| condition.measure == measure).map(|one| one.limit).min()
    }

    /// Returns the tasks that can meet a condition, with their thread ids.
    pub(crate) fn watched(&self) -> Vec<(TaskId, u32)> {
        let watched = |(task, place): (&TaskId, &usize)| {
            let track = &self.tracks[*place];
            let info = track.info.as_ref().filter(|_| !track.watched.is_empty());
            info.map(|info| (*task, info.tid))
        };
        self.places.iter().filter_map(watched).collect()
    }

    /// Notes a stretch of a task that is over; it is told from outside, in place of events.
    pub(crate) fn ended(&mut self, task: TaskId, measure: StretchKind, since: Ns, at: Ns) {
        let Some(place) = self.place(task) else { return };
        let track = &mut self.tracks[place];
        let known = track.told == Some(since);
        track.now = (!known).then_some(Stretch { measure, since });
        self.turn(place, at, None);
    }

    /// Notes what a task does now, as [`ended`](Self::ended) does what it did.
    pub(crate) fn does(&mut self, task: TaskId, now: Option<(StretchKind, Ns)>) {
        let Some(place) = self.place(task) else { return };
        let track = &mut self.tracks[place];
        let now = now.filter(|(_, since)| track.told != Some(*since));
        track.now = now.map(|(measure, since)| Stretch { measure, since });
    }

    fn place(&self, task: TaskId) -> Option<usize> {
        self.places.get(&task).copied()
    }

    /// Notes which task is on a CPU from now on, after `prev`. Another one that was there has left
    /// it unseen: in which stretch it is, is not known.
    fn occupy(&mut self, cpu: usize, prev: Option<usize>, next: Option<usize>) {
        if cpu >= self.running.len() {
            self.running.resize(cpu + 1, None);
        }
        if let Some(before) = std::mem::replace(&mut self.running[cpu], next) {
            self.tracks[before].on_cpu = false;
            if Some(before) != prev {
                self.tracks[before].now = None;
            }
        }
        if let Some(next) = next {
            self.tracks[next].on_cpu = true;
        }
    }

    /// Forgets a task that ended.
    fn forget(&mut self, task: TaskId, place: usize) {
        self.places.remove(&task);
        for on in self.running.iter_mut().filter(|on| **on == Some(place)) {
            *on = None;
        }
        self.tracks[place] = Track::default();
        self.free.push(place);
    }

    /// Ends the stretch of the task at `place` at `at`, and begins one of kind `measure`.
    fn turn(&mut self, place: usize, at: Ns, measure: Option<StretchKind>) {
        let track = &mut self.tracks[place];
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
        if let Some((place, condition, since)) = self.overdue {
            let track = &self.tracks[place];
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
        for (place, track) in self.tracks.iter().enumerate() {
            let Some(stretch) = track.now else { continue };
            let length = now.saturating_sub(stretch.since);
            let met = |&&at: &&usize| {
                let condition = &self.conditions[at];
                condition.measure == stretch.measure && length > condition.limit
            };
            if let Some(&condition) = track.watched.iter().find(met) {
                self.overdue = Some((place, condition, stretch.since));
                return;
            }
        }
    }

    /// Returns a condition about blocking, if there is one: it needs to know when tasks are woken.
    pub(crate) fn needs_wakeups(until: &StopConditions) -> Option<&StopCondition> {
        until.0.iter().find(|condition| condition.measure == StretchKind::Block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuId, PrevState, Waker};

    /// A recorder that has no end meets any number of tasks.
    #[test]
    fn places_of_ended_tasks_are_used_again() {
        let mut watcher = StopWatcher::new(&"job wait > 10ms".parse().unwrap(), 99);
        let switch = |us: u64, prev: Option<u32>, next: Option<u32>| {
            let (prev, next) = (prev.map(TaskId), next.map(TaskId));
            let kind = EventKind::Switch { prev, prev_state: PrevState::Dead, next };
            SchedEvent { at: Ns::from_us(us), cpu: CpuId(0), kind }
        };
        for id in 0..10_000u32 {
            let at = u64::from(id) * 100;
            watcher.task(TaskId(id), &TaskInfo::unknown(id + 1, id + 1, "job"), false);
            let created = EventKind::New { task: TaskId(id), parent: None };
            watcher.event(&SchedEvent { at: Ns::from_us(at), cpu: CpuId(0), kind: created });
            watcher.event(&switch(at + 10, id.checked_sub(1), Some(id)));
            let exit = EventKind::Exit { task: TaskId(id) };
            watcher.event(&SchedEvent { at: Ns::from_us(at + 50), cpu: CpuId(0), kind: exit });
        }
        assert!(watcher.tracks.len() < 4, "{} places", watcher.tracks.len());
        assert_eq!(watcher.caught(), None);
        watcher.task(TaskId(10_000), &TaskInfo::unknown(7, 7, "job"), false);
        let created = EventKind::New { task: TaskId(10_000), parent: None };
        watcher.event(&SchedEvent { at: Ns::from_ms(2_000), cpu: CpuId(0), kind: created });
        watcher.event(&switch(2_011_000, None, Some(10_000)));
        let caught = watcher.caught().expect("a wait of 11 ms");
        assert_eq!((caught.task.1, caught.length), (7, Some(Ns::from_ms(11))));
    }

    /// The same from outside: a stretch counts once, whether it was found before its end or at it.
    #[test]
    fn stretches_that_are_told_count_once() {
        let mut watcher = StopWatcher::new(&"job wait > 10ms or job wait > 2s".parse().unwrap(), 9);
        let job = TaskId(3);
        watcher.task(job, &TaskInfo::unknown(4, 4, "job"), false);
        assert_eq!(watcher.bound(job, StretchKind::Wait), Some(Ns::from_ms(10)));
        assert_eq!(watcher.bound(job, StretchKind::Run), None);
        assert_eq!(watcher.watched(), [(job, 4)]);
        watcher.ended(job, StretchKind::Wait, Ns::from_ms(5), Ns::from_ms(14));
        assert_eq!(watcher.take(), None);
        watcher.ended(job, StretchKind::Wait, Ns::from_ms(5), Ns::from_ms(16));
        assert_eq!(watcher.take().unwrap().1.length, Some(Ns::from_ms(11)));
        // One that still goes on: found a second after its limit, and never again.
        let mut caught = 0;
        for ms in (100..3_000).step_by(500) {
            watcher.does(job, Some((StretchKind::Wait, Ns::from_ms(50))));
            watcher.look(Ns::from_ms(ms));
            if let Some((_, found)) = watcher.take() {
                caught += 1;
                assert_eq!((found.from, found.length), (Ns::from_ms(50), None));
            }
        }
        watcher.ended(job, StretchKind::Wait, Ns::from_ms(50), Ns::from_ms(3_000));
        assert_eq!((caught, watcher.take()), (1, None));
        // What it did when it was looked at, short as it was, is not what it does for ever.
        watcher.does(job, Some((StretchKind::Wait, Ns::from_ms(3_500))));
        watcher.look(Ns::from_ms(3_501));
        watcher.does(job, None);
        watcher.look(Ns::from_ms(9_000));
        assert_eq!(watcher.take(), None);
    }

    /// The switch away from the task was not seen: that it runs is not believed for ever.
    #[test]
    fn a_task_that_left_its_cpu_unseen_is_followed_again() {
        let mut watcher = StopWatcher::new(&"job wait > 10ms".parse().unwrap(), 99);
        for (id, name) in [(0, "job"), (1, "batch"), (2, "other")] {
            watcher.task(TaskId(id), &TaskInfo::unknown(id + 1, id + 1, name), false);
        }
        let event = |ms: u64, kind| SchedEvent { at: Ns::from_ms(ms), cpu: CpuId(0), kind };
        let switch = |prev: u32, next: u32| EventKind::Switch {
            prev: Some(TaskId(prev)),
            prev_state: PrevState::Runnable,
            next: Some(TaskId(next)),
        };
        watcher.event(&event(1, switch(1, 0)));
        watcher.event(&event(2, switch(1, 2)));
        watcher.event(&event(5, EventKind::Wake { task: TaskId(0), waker: Waker::HardIrq }));
        watcher.event(&event(16, switch(2, 0)));
        assert_eq!(watcher.caught().expect("a wait of 11 ms").length, Some(Ns::from_ms(11)));
    }
}
