//! What is known of one task at a moment.

use super::{Began, Part, ThreadState};
use schedlab_model::{CpuId, Ns, Waker};

/// The parts of a task's last wait. A wait mostly has one, which is where the task is: in a list of
/// its own it would be a second place in memory for each wait.
#[derive(Clone, Debug)]
pub(super) enum Parts {
    One([Part; 1]),
    Several(Vec<Part>),
}

impl Parts {
    /// A task that has not waited yet.
    const NONE: Parts = Parts::Several(Vec::new());

    pub(super) fn list(&self) -> &[Part] {
        match self {
            Parts::One(part) => part,
            Parts::Several(parts) => parts,
        }
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut Part> {
        match self {
            Parts::One(part) => part.last_mut(),
            Parts::Several(parts) => parts.last_mut(),
        }
    }

    pub(super) fn push(&mut self, part: Part) {
        match self {
            Parts::One([first]) => *self = Parts::Several(vec![*first, part]),
            Parts::Several(parts) => parts.push(part),
        }
    }
}

/// A task. It is one line of a CPU's cache: with thousands of tasks to read it is most of what an
/// event costs.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Life {
    /// The state, but for throttling.
    pub(super) state: ThreadState,
    pub(super) throttled: bool,
    pub(super) seen: bool,
    pub(super) cpu: CpuId,
    pub(super) since: Ns,
    /// For how long of the current wait it was throttled.
    pub(super) excused: Ns,
    /// How the current wait began, and its parts.
    pub(super) began: Began,
    pub(super) parts: Parts,
}

const _: () = assert!(size_of::<Life>() == 64);

impl Life {
    pub(super) fn new() -> Life {
        Life {
            state: ThreadState::Unknown,
            throttled: false,
            since: Ns::ZERO,
            seen: false,
            cpu: CpuId(0),
            excused: Ns::ZERO,
            began: Began::Woken { on: CpuId(0), by: Waker::Unknown },
            parts: Parts::NONE,
        }
    }

    /// When its last wait began.
    pub(super) fn waits_from(&self) -> Ns {
        self.parts.list().first().map_or(Ns::ZERO, |first| first.since)
    }

    pub(super) fn shown(&self) -> ThreadState {
        match self.state {
            ThreadState::Runnable | ThreadState::Preempted if self.throttled => {
                ThreadState::Throttled
            }
            state => state,
        }
    }
}
