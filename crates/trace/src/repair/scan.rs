//! What has to be repaired in a recording, found in one pass while it is read. Most recordings need
//! little: then none goes through all events a second time.

use super::{Early, Mender, Repairs, Seen, merged, moved};
use crate::format::Decoded;
use crate::reader::{Ids, LONGEST};
use crate::{Capability, Header, ReadLimits, Recording};
use schedlab_model::{EventKind, MAX_CPUS, Ns, SchedEvent, TaskId};

/// Looks at the events in their order.
#[derive(Default)]
pub(crate) struct Scan {
    mender: Mender,
    early: Early,
    /// Of the blocks so far: the latest time, and the last event.
    latest: Ns,
    previous: Option<SchedEvent>,
    /// Misordered or repeated events, or unknown ids: only the whole recording says what to do.
    hard: bool,
}

/// What has to be repaired.
pub(crate) struct Mends {
    /// As counted so far.
    pub(crate) repairs: Repairs,
    /// Wakeups that belong elsewhere: the place of the switch behind which they belong, and theirs.
    pub(crate) moves: Vec<(usize, usize)>,
    /// Events that are missing: the place before which they were missed, which may be after their
    /// time.
    pub(crate) inserted: Vec<(usize, SchedEvent)>,
}

impl Scan {
    /// These events follow, in which ids of this header occur.
    pub(crate) fn block(&mut self, header: &Header, events: &[SchedEvent], decoded: Decoded) {
        let ids = Ids::from_header(header);
        let (earliest, latest) =
            decoded.times.map_or((self.latest, self.latest), |(from, to)| (Ns(from), Ns(to)));
        let follows = earliest >= self.latest && latest <= LONGEST;
        let twice = self.previous.is_some() && self.previous.as_ref() == events.first();
        if !(1..=MAX_CPUS).contains(&ids.cpus)
            || !ids.hold(decoded.needs)
            || !decoded.in_order
            || !follows
            || twice
        {
            self.hard = true;
            return;
        }
        self.latest = latest;
        self.previous = events.last().copied().or(self.previous);
        self.mender.begin(header);
        self.early.seen.resize(ids.tasks, Seen::default());
    }

    /// Only the whole recording says what has to be repaired: its events may name tasks that do not
    /// exist.
    pub(crate) fn is_hard(&self) -> bool {
        self.hard
    }

    /// The event that will stand at `place`, of a block that is not hard. The task whose wakeup
    /// belongs behind its last switch, as is seen now.
    #[inline(always)]
    pub(crate) fn event(&mut self, place: usize, event: &SchedEvent) -> Option<TaskId> {
        let woken = self.early.event(place, event);
        if let (Some(task), EventKind::Switch { .. }) = (woken, event.kind) {
            // In its right place the wakeup would have come before this.
            self.mender.woken(task);
        }
        self.mender.may_move = match event.kind {
            EventKind::Wake { task, .. } => self.early.seen[task.index()].wake.is_some(),
            _ => false,
        };
        self.mender.place = place;
        self.mender.event(event);
        woken
    }

    /// The same when every wakeup has its place already.
    #[inline(always)]
    pub(crate) fn placed(&mut self, place: usize, event: &SchedEvent) {
        self.mender.place = place;
        self.mender.event(event);
    }

    /// The switches that were found to be missing, as they were found, each with the place before
    /// which it was missed.
    pub(crate) fn missing(&self) -> &[(usize, SchedEvent)] {
        &self.mender.inserted
    }

    /// Whether nothing that is found from now on to be missing or misplaced can have been before
    /// `at`.
    pub(crate) fn is_settled(&self, at: Ns) -> bool {
        !self.hard && self.mender.settled().is_none_or(|settled| at < settled)
    }

    /// What has to be repaired; `None` when only [`repair`](super::repair) can tell, from the whole
    /// recording.
    pub(crate) fn finish(mut self) -> Option<Mends> {
        let moves = self.early.moves;
        let inserted = std::mem::take(&mut self.mender.inserted);
        if self.hard {
            return None;
        }
        let mut repairs = self.mender.repairs;
        repairs.early_wakes += moves.len() as u64;
        Some(Mends { repairs, moves, inserted })
    }
}

/// Finds out what has to be repaired in a recording while it is written, before its header is
/// known: its file need not be read.
#[derive(Default)]
pub(crate) struct Unwritten {
    scan: Scan,
    ids: Ids,
    events: usize,
}

impl Unwritten {
    /// These events will be the next block.
    pub(crate) fn block(&mut self, events: &[SchedEvent]) {
        let scan = &mut self.scan;
        let mut previous = scan.previous;
        let mut latest = scan.latest;
        for event in events {
            self.ids.raise(event);
            // As a reader of the block finds it (`decode_events`, `Scan::block`).
            scan.hard |=
                event.at < latest || event.at == latest && previous.as_ref() == Some(event);
            (latest, previous) = (event.at, Some(*event));
        }
        scan.hard |= latest > LONGEST || self.ids.cpus > MAX_CPUS;
        if scan.hard {
            return;
        }
        (scan.latest, scan.previous) = (latest, previous);
        scan.mender.know(self.ids);
        // Whether it matters is known when the header is.
        scan.mender.wakes_recorded = true;
        scan.early.seen.resize(self.ids.tasks, Seen::default());
        for event in events {
            scan.event(self.events, event);
            self.events += 1;
        }
    }

    /// The recording without its events and how many it has, as a reader of its file finds them;
    /// `None`: only a reader can tell.
    pub(crate) fn finish(self, header: &Header, duration: Ns) -> Option<(Recording, usize)> {
        // Moving wakeups changes when the missing switches were, and not how many they are.
        let mends = self.scan.finish()?;
        let limits = ReadLimits::default();
        if self.events as u64 > limits.events || header.tasks.len() > limits.tasks {
            return None;
        }
        let mut header = header.clone();
        let mut repairs = std::mem::take(&mut header.repairs);
        repairs.add(&mends.repairs);
        if !header.capabilities.has(Capability::WakeTimes) {
            repairs.missing_wakes = 0;
        }
        header.escape();
        header.name_processes();
        let about = Recording { header, duration, repairs, ..Recording::default() };
        let sound =
            Ids::from_header(&about.header).hold(self.ids) && about.check_header(duration).is_ok();
        sound.then(|| (about, self.events + mends.inserted.len()))
    }
}

impl Mends {
    /// When a missing switch was depends on where the wakeups before it are: with both, what was
    /// put in may have to be put elsewhere.
    pub(crate) fn are_tangled(&self) -> bool {
        !self.moves.is_empty() && !self.inserted.is_empty()
    }

    /// Repairs `recording`, of which all events were scanned.
    pub(crate) fn apply(self, recording: &mut Recording) {
        let events = moved(std::mem::take(&mut recording.events), self.moves);
        recording.events = merged(events, self.inserted);
        recording.repairs.add(&self.repairs);
    }
}
