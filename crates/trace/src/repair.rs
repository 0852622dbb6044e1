//! Repairs what real recordings get wrong. Every change is counted; nothing is repaired silently.

mod scan;

use crate::reader::Ids;
use crate::{Capability, Header, Recording};
pub(crate) use scan::{Scan, Unwritten};
use schedlab_model::{EventKind, Ns, PrevState, SchedEvent, TaskId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Peekable;
use std::vec::IntoIter;

/// What was repaired, or could not be, when a recording was read.
#[derive(Clone, PartialEq, Eq, Debug, Default, JsonSchema, Serialize, Deserialize)]
#[serde(default)]
pub struct Repairs {
    /// The file ended before its end mark: the recorder died, or the file was cut.
    pub cut_off: bool,
    /// Bytes after the last whole block.
    pub bytes_dropped: u64,
    /// Blocks of a later format version that may be skipped.
    pub skipped_blocks: u64,
    /// Records of a later format version.
    pub skipped_records: u64,
    /// Events that stood before an earlier one; sorted.
    pub misordered: u64,
    /// Events that stood twice; the second was dropped.
    pub duplicates: u64,
    /// Switches whose `prev` is not the task that ran: a switch with state unknown was put in
    /// between, at the last moment at which the other task is proven to have run.
    pub inconsistent_switches: u64,
    /// Wakeups stamped shortly before their task had finished blocking (the waker waits for it);
    /// moved behind the block.
    pub early_wakes: u64,
    /// Tasks that ran again after blocking although no task woke them. Left as they are: when they
    /// became runnable is unknown.
    pub missing_wakes: u64,
    /// Places where the recorder lost events.
    pub gaps: u64,
    /// Events that were lost there.
    pub lost: u64,
}

impl Repairs {
    /// Whether nothing was wrong.
    pub fn is_clean(&self) -> bool {
        // Early wakes are a race of the kernel's tracepoints, not a fault.
        *self == Repairs { early_wakes: self.early_wakes, ..Repairs::default() }
    }

    /// Whether nothing at all was counted.
    pub(crate) fn is_default(&self) -> bool {
        *self == Repairs::default()
    }

    /// Those of a part are those of the whole.
    pub fn add(&mut self, part: &Repairs) {
        self.cut_off |= part.cut_off;
        for (count, more) in [
            (&mut self.bytes_dropped, part.bytes_dropped),
            (&mut self.skipped_blocks, part.skipped_blocks),
            (&mut self.skipped_records, part.skipped_records),
            (&mut self.misordered, part.misordered),
            (&mut self.duplicates, part.duplicates),
            (&mut self.inconsistent_switches, part.inconsistent_switches),
            (&mut self.early_wakes, part.early_wakes),
            (&mut self.missing_wakes, part.missing_wakes),
            (&mut self.gaps, part.gaps),
            (&mut self.lost, part.lost),
        ] {
            *count = count.saturating_add(more);
        }
    }
}

/// Greatest part of all events, or facts, that may be lost in a recording that is trusted. Chosen:
/// figures of a hundred events stay within their intervals.
const TRUSTED_LOSS: f64 = 0.01;

/// Returns whether a recording that lost `lost` events, or facts, beside `of` others is not to be
/// trusted.
pub fn too_much_lost(lost: u64, of: u64) -> bool {
    lost as f64 > TRUSTED_LOSS * of.max(1) as f64
}

/// One line: `clean`, or what was repaired.
impl fmt::Display for Repairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.cut_off {
            parts.push(format!("cut off ({} bytes dropped)", self.bytes_dropped));
        }
        for (count, what) in [
            (self.lost, "events lost by the recorder"),
            (self.misordered, "misordered events sorted"),
            (self.duplicates, "duplicates dropped"),
            (self.inconsistent_switches, "inconsistent switches repaired"),
            (self.early_wakes, "early wakeups moved"),
            (self.missing_wakes, "wakeups missing"),
            (self.skipped_blocks, "unknown blocks skipped"),
            (self.skipped_records, "unknown records skipped"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        if parts.is_empty() { f.write_str("clean") } else { f.write_str(&parts.join(", ")) }
    }
}

/// Repairs `recording` in place and counts what it did in its `repairs`.
pub(crate) fn repair(recording: &mut Recording) {
    let found = pass(recording);
    recording.repairs.add(&found);
}

/// Repairs a repaired recording until a further pass finds nothing: a switch that was put in shows
/// that a task ran, and with that, that a wakeup was early.
pub(crate) fn settle(recording: &mut Recording) {
    /// Each pass settles what the one before has shown; damage that is made of more steps is left
    /// as it is.
    const PASSES: usize = 16;
    let changed = |by: &Repairs| by.early_wakes + by.inconsistent_switches > 0;
    let mut last = recording.repairs.clone();
    for _ in 0..PASSES {
        if !changed(&last) {
            return;
        }
        last = pass(recording);
        let all = &mut recording.repairs;
        all.early_wakes += last.early_wakes;
        all.inconsistent_switches += last.inconsistent_switches;
        // Those that are missing still; what was lost stays what it was.
        all.missing_wakes = last.missing_wakes;
    }
}

/// One pass over all events. Returns what it did.
fn pass(recording: &mut Recording) -> Repairs {
    let events = std::mem::take(&mut recording.events);
    let mut mender = Mender::default();
    mender.begin(&recording.header);
    let events = mender.sorted(events);
    let moved = mender.move_early_wakes(events);
    for (place, event) in moved.iter().enumerate() {
        mender.place = place;
        mender.event(event);
    }
    recording.events = merged(moved, std::mem::take(&mut mender.inserted));
    mender.repairs
}

/// `sched_waking` fires before the waker takes the run queue's lock. When the wakee is just
/// blocking, the wakeup is stamped before the switch although it takes effect after it. Such a
/// wakeup is recognised by its task running again without another one, and moved behind the switch.
#[derive(Default)]
struct Early {
    seen: Vec<Seen>,
    /// Place of the switch behind which a wakeup belongs, and of the wakeup.
    moves: Vec<(usize, usize)>,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    running: bool,
    blocked: bool,
    wake: Option<usize>,
    block: Option<usize>,
}

impl Early {
    /// The event at `place`; the task of a wakeup that has to be moved, as is seen now.
    #[inline(always)]
    fn event(&mut self, place: usize, event: &SchedEvent) -> Option<TaskId> {
        match event.kind {
            EventKind::Wake { task, .. } => {
                let task = &mut self.seen[task.index()];
                task.blocked = false;
                task.wake = task.running.then_some(place);
            }
            // No kernel switches from a task to itself: a damaged file proves no more than that it
            // runs.
            EventKind::Switch { prev, next, .. } if prev == next => {
                self.seen[next?.index()] = Seen { running: true, ..Seen::default() };
            }
            EventKind::Switch { prev, prev_state, next } => {
                if let Some(prev) = prev {
                    let prev = &mut self.seen[prev.index()];
                    prev.running = false;
                    prev.blocked = prev_state.is_runnable() == Some(false);
                    prev.block = prev.blocked.then_some(place);
                }
                let next = next?;
                let seen = &mut self.seen[next.index()];
                let early = match *seen {
                    Seen { blocked: true, block: Some(block), wake: Some(wake), .. } => {
                        Some((block, wake))
                    }
                    _ => None,
                };
                *seen = Seen { running: true, ..Seen::default() };
                self.moves.push(early?);
                return Some(next);
            }
            EventKind::Lost { .. } => self.seen.fill(Seen::default()),
            _ => {}
        }
        None
    }
}

/// Gives events on in their order, each of these wakeups behind its switch.
pub(crate) struct Moving {
    moves: Peekable<IntoIter<(usize, usize)>>,
    /// Places of the wakeups.
    skip: Peekable<IntoIter<usize>>,
    /// Wakeups whose switch did not come yet, with their places.
    held: Vec<(usize, SchedEvent)>,
}

impl Moving {
    /// For the places of switches and wakeups that [`Early`] found.
    pub(crate) fn new(mut moves: Vec<(usize, usize)>) -> Moving {
        moves.sort_unstable();
        let mut skip: Vec<usize> = moves.iter().map(|&(_, wake)| wake).collect();
        skip.sort_unstable();
        Moving {
            moves: moves.into_iter().peekable(),
            skip: skip.into_iter().peekable(),
            held: Vec::new(),
        }
    }

    /// The event at `place`.
    #[inline]
    pub(crate) fn event(
        &mut self,
        place: usize,
        event: &SchedEvent,
        mut each: impl FnMut(&SchedEvent),
    ) {
        if self.skip.next_if_eq(&place).is_some() {
            self.held.push((place, *event));
        } else {
            each(event);
        }
        while let Some((_, wake)) = self.moves.next_if(|&(block, _)| block == place) {
            if let Some(which) = self.held.iter().position(|&(place, _)| place == wake) {
                let (_, held) = self.held.swap_remove(which);
                each(&SchedEvent { at: event.at, ..held });
            }
        }
    }
}

/// The events with each of these wakeups behind its switch.
fn moved(events: Vec<SchedEvent>, moves: Vec<(usize, usize)>) -> Vec<SchedEvent> {
    if moves.is_empty() {
        return events;
    }
    let mut moving = Moving::new(moves);
    let mut out = Vec::with_capacity(events.len());
    for (place, event) in events.iter().enumerate() {
        moving.event(place, event, |event| out.push(*event));
    }
    out
}

/// The events with what was put in between, in order of time. Mostly there is nothing, and nothing
/// is copied: ten million events take 400 MB.
fn merged(events: Vec<SchedEvent>, inserted: Vec<(usize, SchedEvent)>) -> Vec<SchedEvent> {
    if inserted.is_empty() {
        return events;
    }
    let mut out = Vec::with_capacity(events.len() + inserted.len());
    let mut inserted = inserted.into_iter().peekable();
    for (place, event) in events.into_iter().enumerate() {
        while let Some((_, before)) = inserted.next_if(|(at, _)| *at == place) {
            out.push(before);
        }
        out.push(event);
    }
    out.sort_by_key(|event| event.at);
    out
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Life {
    /// Nothing seen yet, or events were lost.
    #[default]
    Unknown,
    Running(usize),
    Runnable,
    Blocked,
}

#[derive(Clone, Copy, Default)]
struct TaskState {
    life: Life,
    /// When it last came to a CPU or left one.
    moved: Ns,
}

#[derive(Default)]
struct Mender {
    repairs: Repairs,
    /// Who runs on each CPU: unknown, idle or a task.
    current: Vec<Option<Option<TaskId>>>,
    /// When each CPU's present task was last seen to run there.
    last: Vec<Ns>,
    /// The same without what a wakeup proves that may belong elsewhere.
    settled: Vec<Ns>,
    /// Whether the event that is looked at may be such a wakeup.
    may_move: bool,
    tasks: Vec<TaskState>,
    wakes_recorded: bool,
    /// Which event is looked at.
    place: usize,
    /// Events that belong before the one at this place.
    inserted: Vec<(usize, SchedEvent)>,
}

impl Mender {
    /// The CPUs and tasks of `header` may occur from now on.
    fn begin(&mut self, header: &Header) {
        self.know(Ids::from_header(header));
        self.wakes_recorded = header.capabilities.has(Capability::WakeTimes);
    }

    /// These CPUs and tasks may occur from now on.
    fn know(&mut self, ids: Ids) {
        self.current.resize(ids.cpus, None);
        self.last.resize(ids.cpus, Ns::ZERO);
        self.settled.resize(ids.cpus, Ns::ZERO);
        self.tasks.resize(ids.tasks, TaskState::default());
    }

    /// In order of time; equal times keep their order.
    fn sorted(&mut self, mut events: Vec<SchedEvent>) -> Vec<SchedEvent> {
        let (mut latest, mut twice, mut previous) = (Ns::ZERO, false, None);
        for event in &events {
            self.repairs.misordered += u64::from(event.at < latest);
            latest = latest.max(event.at);
            twice |= previous == Some(event);
            previous = Some(event);
        }
        if self.repairs.misordered > 0 {
            events.sort_by_key(|event| event.at);
        } else if !twice {
            // The usual case: nothing is moved.
            return events;
        }
        let before = events.len();
        events.dedup_by(|b, a| {
            a == b && !matches!(a.kind, EventKind::Lost { .. } | EventKind::Steal { .. })
        });
        self.repairs.duplicates += (before - events.len()) as u64;
        events
    }

    /// See [`Early`].
    fn move_early_wakes(&mut self, events: Vec<SchedEvent>) -> Vec<SchedEvent> {
        let mut early = Early::default();
        early.seen.resize(self.tasks.len(), Seen::default());
        events.iter().enumerate().for_each(|(place, event)| {
            early.event(place, event);
        });
        self.repairs.early_wakes += early.moves.len() as u64;
        moved(events, early.moves)
    }

    #[inline(always)]
    fn event(&mut self, event: &SchedEvent) {
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                self.switch(event, prev, prev_state, next)
            }
            EventKind::Wake { task, waker } => {
                self.proof(event, waker.task());
                self.woken(task);
            }
            EventKind::New { task, parent } => {
                self.proof(event, parent);
                self.woken(task);
            }
            EventKind::Lost { count } => self.lost(event.at, event.cpu.index(), count),
            _ => {}
        }
    }

    #[cold]
    fn lost(&mut self, at: Ns, cpu: usize, count: u64) {
        self.repairs.gaps += 1;
        self.repairs.lost = self.repairs.lost.saturating_add(count);
        // The lost events may concern any task; only this CPU's switches are among them.
        self.current[cpu] = None;
        let stays = |life| matches!(life, Life::Running(other) if other != cpu);
        let tasks = self.tasks.iter_mut().filter(|task| !stays(task.life));
        tasks.for_each(|task| *task = TaskState { life: Life::Unknown, moved: at });
    }

    #[inline(always)]
    fn woken(&mut self, task: TaskId) {
        let task = &mut self.tasks[task.index()];
        if !matches!(task.life, Life::Running(_)) {
            task.life = Life::Runnable;
        }
    }

    /// `by` did something on this CPU: it ran there.
    #[inline(always)]
    fn proof(&mut self, event: &SchedEvent, by: Option<TaskId>) {
        let cpu = event.cpu.index();
        if by.is_some() && self.current[cpu] == Some(by) {
            self.last[cpu] = event.at;
            if !self.may_move {
                self.settled[cpu] = event.at;
            }
        }
    }

    /// No switch from before this will be found to be missing. `None`: whatever is missing will be
    /// seen to be later than all that was looked at.
    fn settled(&self) -> Option<Ns> {
        let known = self.current.iter().zip(&self.settled).filter(|(current, _)| current.is_some());
        known.map(|(_, settled)| *settled).min()
    }

    #[inline(always)]
    fn switch(
        &mut self,
        event: &SchedEvent,
        prev: Option<TaskId>,
        state: PrevState,
        next: Option<TaskId>,
    ) {
        let cpu = event.cpu.index();
        if self.current[cpu] != Some(prev) {
            self.another_left(cpu, prev);
        }
        if let Some(next) = next {
            match self.tasks[next.index()].life {
                Life::Running(other) if other != cpu => self.leave_elsewhere(cpu, Some(next)),
                Life::Blocked if self.wakes_recorded => self.repairs.missing_wakes += 1,
                _ => {}
            }
        }
        self.apply(event.at, cpu, prev, state, next);
    }

    /// `prev` leaves `cpu` without having been seen there.
    #[cold]
    fn another_left(&mut self, cpu: usize, prev: Option<TaskId>) {
        self.leave_elsewhere(cpu, prev);
        if let Some(ran) = self.current[cpu] {
            // A switch from `ran` to `prev` is missing. When it was is unknown; the time goes to
            // `prev`, who certainly ran at its end.
            self.repairs.inconsistent_switches += 1;
            let state = if ran.is_none() { PrevState::Runnable } else { PrevState::Unknown };
            self.put_switch(cpu, ran, state, prev);
        }
    }

    /// A task cannot run on two CPUs: before it is seen on `cpu` it left the other one unseen.
    #[cold]
    fn leave_elsewhere(&mut self, cpu: usize, task: Option<TaskId>) {
        if let Some(task) = task
            && let Life::Running(other) = self.tasks[task.index()].life
            && other != cpu
            && self.current[other] == Some(Some(task))
        {
            self.repairs.inconsistent_switches += 1;
            self.put_switch(other, Some(task), PrevState::Unknown, None);
        }
    }

    fn put_switch(
        &mut self,
        cpu: usize,
        prev: Option<TaskId>,
        prev_state: PrevState,
        next: Option<TaskId>,
    ) {
        let kind = EventKind::Switch { prev, prev_state, next };
        let moved = next.map_or(Ns::ZERO, |next| self.tasks[next.index()].moved);
        let at = self.last[cpu].max(moved);
        self.inserted.push((self.place, SchedEvent { at, cpu: cpu.into(), kind }));
        self.apply(at, cpu, prev, prev_state, next);
    }

    #[inline(always)]
    fn apply(
        &mut self,
        at: Ns,
        cpu: usize,
        prev: Option<TaskId>,
        state: PrevState,
        next: Option<TaskId>,
    ) {
        if let Some(prev) = prev {
            let life = match state.is_runnable() {
                Some(true) => Life::Runnable,
                Some(false) => Life::Blocked,
                None => Life::Unknown,
            };
            self.tasks[prev.index()] = TaskState { life, moved: at };
        }
        if let Some(next) = next {
            self.tasks[next.index()] = TaskState { life: Life::Running(cpu), moved: at };
        }
        self.current[cpu] = Some(next);
        self.last[cpu] = at;
        self.settled[cpu] = at;
    }
}
