//! How groups of tasks spent a recording, window by window: on a CPU, held back (one of them waits
//! for a CPU, none has one, and a rival runs), or neither. What a group does when no task holds it
//! back is read from the moments in which no task did.

use super::Analysis;
use crate::{Capability, Recording};
use schedlab_model::{EventKind, EventSink, Ns, SchedEvent, TaskId};

/// One group in one window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Window {
    /// CPU time of all its tasks together.
    pub ran: Ns,
    /// For how long at least one of its tasks waited for a CPU while none of them had one, and a
    /// rival ran.
    pub held: Ns,
    /// For how long at least one of its tasks waited for a CPU while none of them had one, and no
    /// rival ran: neither the group nor what is asked about had that time.
    pub others: Ns,
}

/// The way from a wakeup onto a CPU, which no rival's absence makes shorter: no longer wait counts
/// as being held back. Chosen: on virtual machines half of the wakeups of idle CPUs take 5 to 10
/// us, and a tick is 1 ms or more.
const SWITCH: Ns = Ns::from_us(20);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum TaskActivity {
    #[default]
    Away,
    Waits,
    Runs,
}

#[derive(Clone, Debug, Default)]
struct Group {
    running: u64,
    waiting: u64,
    /// Counted up to here.
    since: Ns,
    /// When its wait began with a wakeup, until it is known to be longer than [`SWITCH`]; and what
    /// to count then.
    woken: Option<Ns>,
    pending: Ns,
    windows: Vec<Window>,
}

/// Feed it events, then [`finish`](Contention::finish).
#[derive(Clone, Debug)]
pub struct Contention {
    /// Length of a window.
    pub length: Ns,
    states: Vec<TaskActivity>,
    group_of: Vec<Option<usize>>,
    rivals: Vec<bool>,
    rivals_running: u64,
    groups: Vec<Group>,
    duration: Ns,
}

impl Analysis for Contention {
    const NAME: &'static str = "contention";
    const NEEDS: &'static [Capability] = &[Capability::WakeTimes, Capability::Preempted];
}

impl Contention {
    /// For tasks of these groups (by task, groups from 0 on; `None`: no matter) beside these
    /// `rivals` (by task), in windows of this `length`, which is more than zero.
    pub fn new(group_of: Vec<Option<usize>>, rivals: Vec<bool>, length: Ns) -> Contention {
        let groups = group_of.iter().flatten().max().map_or(0, |last| last + 1);
        Contention {
            length: length.max(Ns(1)),
            states: vec![TaskActivity::default(); group_of.len()],
            group_of,
            rivals,
            rivals_running: 0,
            groups: vec![Group::default(); groups],
            duration: Ns::ZERO,
        }
    }

    /// Of a whole recording, in `count` windows.
    pub fn from_recording(
        recording: &Recording,
        group_of: Vec<Option<usize>>,
        rivals: Vec<bool>,
        count: u64,
    ) -> Contention {
        let length = Ns(recording.duration.0.div_ceil(count.max(1)));
        let mut contention = Contention::new(group_of, rivals, length);
        recording.events.iter().for_each(|event| contention.event(event));
        contention.finish(recording.duration);
        contention
    }

    /// Ends it at `duration`.
    pub fn finish(&mut self, duration: Ns) {
        self.duration = duration;
        (0..self.groups.len()).for_each(|group| self.count(group, duration));
    }

    /// The windows of a group. The last one may be shorter than the others.
    pub fn windows(&self, group: usize) -> &[Window] {
        self.groups.get(group).map_or(&[], |group| &group.windows)
    }

    /// A group in the whole recording.
    pub fn whole(&self, group: usize) -> Window {
        let windows = self.windows(group).iter();
        windows.fold(Window::default(), |sum, w| Window {
            ran: sum.ran + w.ran,
            held: sum.held + w.held,
            others: sum.others + w.others,
        })
    }

    /// The length of the recording.
    pub fn duration(&self) -> Ns {
        self.duration
    }

    fn count(&mut self, group: usize, now: Ns) {
        let (length, rivals, group) = (self.length.0, self.rivals_running, &mut self.groups[group]);
        while group.since < now {
            let window = (group.since.0 / length) as usize;
            let until = Ns((window as u64 + 1).saturating_mul(length)).min(now);
            if group.running + group.waiting > 0 {
                if group.windows.len() <= window {
                    group.windows.resize(window + 1, Window::default());
                }
                let time = until - group.since;
                let at = &mut group.windows[window];
                at.ran += Ns(time.0 * group.running);
                if group.running == 0 && rivals > 0 {
                    group.pending += time;
                    if group.woken.is_none_or(|woken| until.saturating_sub(woken) > SWITCH) {
                        group.woken = None;
                        at.held += std::mem::take(&mut group.pending);
                    }
                } else if group.running == 0 {
                    at.others += time;
                }
            }
            group.since = until;
        }
    }

    fn set(&mut self, task: TaskId, state: TaskActivity, now: Ns) {
        let Some(old) = self.states.get(task.index()).copied().filter(|old| *old != state) else {
            return;
        };
        self.states[task.index()] = state;
        if self.rivals.get(task.index()) == Some(&true) {
            (0..self.groups.len()).for_each(|group| self.count(group, now));
            self.rivals_running += u64::from(state == TaskActivity::Runs);
            self.rivals_running -= u64::from(old == TaskActivity::Runs);
        }
        let Some(group) = self.group_of.get(task.index()).copied().flatten() else { return };
        self.count(group, now);
        let group = &mut self.groups[group];
        let asleep = group.waiting + group.running == 0;
        match old {
            TaskActivity::Runs => group.running -= 1,
            TaskActivity::Waits => group.waiting -= 1,
            TaskActivity::Away => {}
        }
        match state {
            TaskActivity::Runs => group.running += 1,
            TaskActivity::Waits => group.waiting += 1,
            TaskActivity::Away => {}
        }
        if group.running > 0 || group.waiting == 0 || asleep {
            group.pending = Ns::ZERO;
            group.woken = (asleep && state == TaskActivity::Waits).then_some(now);
        }
    }
}

impl EventSink for Contention {
    fn event(&mut self, event: &SchedEvent) {
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                if let Some(prev) = prev {
                    let goes_on = prev_state.is_runnable() == Some(true);
                    self.set(
                        prev,
                        if goes_on { TaskActivity::Waits } else { TaskActivity::Away },
                        event.at,
                    );
                }
                if let Some(next) = next {
                    self.set(next, TaskActivity::Runs, event.at);
                }
            }
            EventKind::Wake { task, .. } | EventKind::New { task, .. }
                if self.states.get(task.index()) == Some(&TaskActivity::Away) =>
            {
                self.set(task, TaskActivity::Waits, event.at);
            }
            // A limit holds it back, and no rival's absence would help.
            EventKind::Throttle { task }
                if self.states.get(task.index()) == Some(&TaskActivity::Waits) =>
            {
                self.set(task, TaskActivity::Away, event.at);
            }
            EventKind::Unthrottle { task }
                if self.states.get(task.index()) == Some(&TaskActivity::Away) =>
            {
                self.set(task, TaskActivity::Waits, event.at);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuId, PrevState, Waker};

    fn switch(at: u64, prev: Option<u32>, prev_state: PrevState, next: Option<u32>) -> SchedEvent {
        let (prev, next) = (prev.map(TaskId), next.map(TaskId));
        SchedEvent {
            at: Ns::from_us(at),
            cpu: CpuId(0),
            kind: EventKind::Switch { prev, prev_state, next },
        }
    }

    fn us(us: u64) -> Ns {
        Ns::from_us(us)
    }

    #[test]
    fn ran_held_and_idle_are_told_apart() {
        // Tasks 0 and 1 are one group, 2 is their rival, and no task is the rival of the group
        // of 2.
        let group_of = vec![Some(0), Some(0), Some(1)];
        let mut contention = Contention::new(group_of, vec![false, false, true], us(100));
        let wake = EventKind::Wake { task: TaskId(1), waker: Waker::HardIrq };
        for event in [
            switch(10, None, PrevState::Runnable, Some(0)),
            switch(50, Some(0), PrevState::Runnable, Some(2)),
            SchedEvent { at: us(60), cpu: CpuId(0), kind: wake },
            switch(150, Some(2), PrevState::Runnable, Some(1)),
            switch(170, Some(1), PrevState::Sleeping, Some(0)),
            switch(180, Some(0), PrevState::Sleeping, Some(2)),
            SchedEvent { at: us(210), cpu: CpuId(0), kind: wake },
            switch(225, Some(2), PrevState::Runnable, Some(1)),
        ] {
            contention.event(&event);
        }
        contention.finish(us(300));
        // The wakeup at 210 waited for 15 us: that is the way onto the CPU.
        let windows = [(40, 50), (30, 50), (75, 0)].map(|(ran, held)| Window {
            ran: us(ran),
            held: us(held),
            others: Ns::ZERO,
        });
        assert_eq!(contention.windows(0), windows);
        assert_eq!(contention.whole(0), Window { ran: us(145), held: us(100), others: Ns::ZERO });
        // It waits from 150 to 180, and from 225 on.
        assert_eq!(contention.whole(1), Window { ran: us(145), held: us(0), others: us(105) });
        assert_eq!(contention.windows(7), []);
    }

    #[test]
    fn time_that_neither_had_is_the_others() {
        let mut contention =
            Contention::new(vec![Some(0), None, None], vec![false, true, false], us(100));
        for event in [
            switch(0, None, PrevState::Runnable, Some(0)),
            switch(20, Some(0), PrevState::Runnable, Some(2)),
            switch(50, Some(2), PrevState::Runnable, Some(1)),
            switch(90, Some(1), PrevState::Runnable, Some(0)),
        ] {
            contention.event(&event);
        }
        contention.finish(us(100));
        assert_eq!(contention.windows(0), [Window { ran: us(30), held: us(40), others: us(30) }]);
    }
}
