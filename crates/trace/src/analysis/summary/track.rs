//! What is known of one task at a moment.

use super::WakeCause;
use schedlab_model::Ns;

/// What a task does.
#[derive(Clone, Copy, Debug)]
pub(super) enum TrackState {
    /// No event has named it.
    Unseen,
    /// Not known, after an event that named it.
    Unknown,
    Running {
        since: Ns,
    },
    Waiting {
        since: Ns,
        preempted: bool,
    },
    Blocked {
        since: Ns,
    },
}

/// A task. It is one line of a CPU's cache: with thousands of tasks to read it is most of what an
/// event costs.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Track {
    pub(super) state: TrackState,
    /// When and how the current activation began.
    pub(super) woken: Option<(Ns, WakeCause)>,
    /// CPU time in it so far.
    pub(super) demand: Ns,
    /// Since when it is throttled; [`Track::FREE`]: it is not.
    throttled: Ns,
    /// Throttled time within the current wait.
    pub(super) excused: Ns,
}

const _: () = assert!(size_of::<Track>() == 64);

impl Track {
    /// No moment.
    const FREE: Ns = Ns::MAX;

    /// A task that no event has named.
    pub(super) const UNSEEN: Track = Track {
        state: TrackState::Unseen,
        woken: None,
        demand: Ns::ZERO,
        throttled: Track::FREE,
        excused: Ns::ZERO,
    };

    /// Notes that an event names it.
    #[inline]
    pub(super) fn see(&mut self) {
        if let TrackState::Unseen = self.state {
            self.state = TrackState::Unknown;
        }
    }

    /// Since when it is throttled.
    pub(super) fn throttled(&self) -> Option<Ns> {
        Some(self.throttled).filter(|since| *since != Track::FREE)
    }

    /// Notes since when it is throttled.
    pub(super) fn throttle(&mut self, since: Option<Ns>) {
        self.throttled = since.unwrap_or(Track::FREE);
    }
}
