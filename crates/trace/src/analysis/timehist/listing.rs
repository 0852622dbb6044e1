//! The listing of a recording, found while it is read: nothing goes through its events twice,
//! nothing of them is kept, and a row is handed on as soon as nothing that is read later can change
//! it. The rows are those of the whole recording.
//!
//! What can change a row is a switch that turns out to be missing: it belongs where the task that
//! left unseen was last seen to run, so rows from before the last such sight of any CPU are
//! settled. Once one was missed nothing more is handed on, and the recording is read again with it;
//! where wakeups had to be moved too it is looked for again meanwhile. Events out of order could
//! belong anywhere: a file whose blocks do not follow one another in time is listed when all of it
//! was read.

use super::{Row, Timehist, Tracks};
use crate::analysis::Scope;
use crate::analysis::losses::Losses;
use crate::blocks::Part;
use crate::format::Decoded;
use crate::reader::{Keep, assemble};
use crate::repair::{Moving, Scan};
use crate::{ReadLimits, Recording, TraceError};
use schedlab_model::{CpuId, EventKind, EventSink, Ns, PrevState, SchedEvent, TaskId};
use std::collections::VecDeque;
use std::iter::Peekable;
use std::vec::IntoIter;

/// Takes the rows of a listing in their order.
pub trait Take {
    /// These come next.
    fn take(&mut self, piece: Piece);

    /// A piece that was taken and is needed no more: its memory is used again.
    fn used(&mut self) -> Option<Piece>;
}

/// All rows, in memory.
impl Take for Vec<Row> {
    fn take(&mut self, piece: Piece) {
        piece.rows(&Scope::default(), |row| self.push(*row));
    }

    fn used(&mut self) -> Option<Piece> {
        None
    }
}

/// Reads a recording and hands on the rows of its listing.
pub struct Listing<'a> {
    flow: Flow<'a>,
    /// Whether the blocks are known to follow one another in time.
    in_order: bool,
    known: Mending,
    /// Whether an earlier look found that events are missing: their places are collected then.
    lossy: bool,
}

/// What is left of a recording when all of its rows are handed on.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The recording without its events.
    pub about: Recording,
    /// How many events the whole recording has.
    pub events: usize,
    /// Where events are missing.
    pub losses: Losses,
}

/// What came of reading a recording.
pub enum Found {
    /// All of its rows are handed on.
    Listed(Box<Listed>),
    /// Something belongs before events that had been read: it has to be read again.
    Again,
    /// What has to be repaired in it needs the [`whole`](Listing::whole) recording.
    Whole,
}

/// What an earlier look at a recording found in need of repair.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Mending {
    /// Wakeups that belong elsewhere: the place of the switch behind which they belong, and theirs.
    moves: Vec<(usize, usize)>,
    /// Switches that are missing, as they were found, each with the place before which it was
    /// missed.
    missing: Vec<(usize, SchedEvent)>,
    /// Whether nothing else will be found: what is missing was looked for with every wakeup in its
    /// place.
    complete: bool,
}

/// Rows on their way.
struct Flow<'a> {
    take: &'a mut dyn Take,
    /// How many rows lie together.
    together: usize,
    when: When,
    /// Those that are collected at present.
    piece: Piece,
    /// Those that may still change.
    waiting: VecDeque<Piece>,
    /// The switches that were found to be missing in the look before, while some wakeups were not
    /// in their places.
    expected: Vec<(usize, SchedEvent)>,
    /// When the earliest one was, of these and those found later.
    earliest: Vec<Ns>,
    /// Rows that were handed on, in this look and earlier ones, and the last of them.
    given: (u64, Option<Kept>),
    /// Rows that were handed on before this look and have not come by yet.
    before: u64,
    /// They came by as others than they were.
    torn: bool,
}

/// When rows are handed on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    AtOnce,
    Settled,
    AtTheEnd,
    /// In the next look.
    Never,
}

/// Rows that lie together: with the text that becomes of them they fit into a processor's own
/// caches.
const TOGETHER: usize = 4096;

impl Flow<'_> {
    /// A row; whether it fills a piece.
    #[inline(always)]
    fn keep(&mut self, row: &Row) -> bool {
        if self.before > 0 {
            self.pass_by(row);
            return false;
        }
        self.piece.keep(row);
        self.piece.rows.len() >= self.together
    }

    #[cold]
    fn pass_by(&mut self, row: &Row) {
        self.before -= 1;
        if self.before == 0 {
            let mut piece = Piece::default();
            piece.keep(row);
            let who = |kept: &Kept| (kept.at, kept.who, kept.cpu);
            self.torn = piece.rows.first().map(who) != self.given.1.as_ref().map(who);
        }
    }

    /// A piece is full.
    #[cold]
    fn settle(&mut self, scan: &Scan) {
        if self.when == When::Settled && !self.expected.starts_with(scan.missing()) {
            // Rows behind it are not what they would be with it.
            self.when = When::Never;
            self.waiting.clear();
        }
        let next = self.next();
        let full = std::mem::replace(&mut self.piece, next);
        match self.when {
            When::AtOnce => self.give(full),
            When::Never => self.piece = full.emptied(),
            When::AtTheEnd => self.waiting.push_back(full),
            When::Settled => {
                self.waiting.push_back(full);
                // One that is not found again did not happen then.
                let doubtful = self.earliest.get(scan.missing().len()).copied().unwrap_or(Ns::MAX);
                let settled = |at| at < doubtful && scan.is_settled(at);
                let settled = |piece: &mut Piece| piece.last().is_none_or(settled);
                while let Some(piece) = self.waiting.pop_front_if(settled) {
                    self.give(piece);
                }
            }
        }
    }

    /// An empty piece.
    fn next(&mut self) -> Piece {
        let together = self.together;
        self.take.used().map_or_else(|| Piece::with_capacity(together), Piece::emptied)
    }

    fn give(&mut self, piece: Piece) {
        self.given =
            (self.given.0 + piece.rows.len() as u64, piece.rows.last().copied().or(self.given.1));
        self.take.take(piece);
    }

    /// All rows are as they stay.
    fn finish(&mut self) -> Result<(), TraceError> {
        if self.torn || self.before > 0 {
            return Err(TraceError::Changed);
        }
        while let Some(piece) = self.waiting.pop_front() {
            self.give(piece);
        }
        let last = std::mem::take(&mut self.piece);
        self.give(last);
        Ok(())
    }

    /// The recording is looked at from its start.
    fn begin(&mut self, when: When, expected: &[(usize, SchedEvent)]) {
        self.when = when;
        self.expected = expected.to_vec();
        self.earliest = expected.iter().map(|(_, event)| event.at).collect();
        for place in (1..self.earliest.len()).rev() {
            self.earliest[place - 1] = self.earliest[place - 1].min(self.earliest[place]);
        }
        self.waiting.clear();
        self.piece = std::mem::take(&mut self.piece).emptied();
        self.before = self.given.0;
    }
}

/// Reads the events and makes rows of them.
struct Collect<'a, 'b> {
    moving: Option<Moving>,
    read: usize,
    rows: Rows<'a, 'b>,
}

/// Makes rows of events.
struct Rows<'a, 'b> {
    scan: Scan,
    /// Whether each wakeup has its place already.
    placed: bool,
    tracks: Tracks,
    events: usize,
    missing: Peekable<IntoIter<(usize, SchedEvent)>>,
    /// When the next missing one was.
    next_missing: Option<Ns>,
    /// `None`: nothing is known to be missing.
    losses: Option<Losses>,
    flow: &'b mut Flow<'a>,
}

impl Rows<'_, '_> {
    #[inline]
    fn event(&mut self, event: &SchedEvent) {
        let place = self.events;
        self.events += 1;
        if self.next_missing.is_some_and(|at| at <= event.at) {
            self.missing_before(place, event.at);
        }
        // Nearly all are of two kinds. What follows is compiled for each of them: a third fewer
        // instructions.
        let SchedEvent { at, cpu, kind } = *event;
        match kind {
            EventKind::Switch { prev, prev_state, next } => {
                let kind = EventKind::Switch { prev, prev_state, next };
                self.in_place(place, &SchedEvent { at, cpu, kind });
            }
            EventKind::Wake { task, waker } => {
                let kind = EventKind::Wake { task, waker };
                self.in_place(place, &SchedEvent { at, cpu, kind });
            }
            _ => self.rare(place, event),
        }
    }

    #[cold]
    fn rare(&mut self, place: usize, event: &SchedEvent) {
        self.in_place(place, event);
    }

    #[inline(always)]
    fn in_place(&mut self, place: usize, event: &SchedEvent) {
        if self.placed {
            self.scan.placed(place, event);
            self.step(event);
            return;
        }
        let early = self.scan.event(place, event);
        self.step(event);
        if let Some(task) = early {
            self.tracks.ready_since_out(task);
        }
    }

    /// The missing switches that come before the event at `place`: behind everything of their time
    /// that is before their place.
    #[cold]
    fn missing_before(&mut self, place: usize, at: Ns) {
        while let Some((_, missing)) =
            self.missing.next_if(|(before, event)| (event.at, *before) <= (at, place))
        {
            self.step(&missing);
        }
        self.next_missing = self.missing.peek().map(|(_, event)| event.at);
    }

    #[inline(always)]
    fn step(&mut self, event: &SchedEvent) {
        if let Some(losses) = &mut self.losses {
            losses.event(event);
        }
        if let Some(row) = self.tracks.step(event)
            && self.flow.keep(&row)
        {
            self.flow.settle(&self.scan);
        }
    }
}

impl Keep for Collect<'_, '_> {
    fn events(&mut self, recording: &mut Recording, events: &[SchedEvent], decoded: Decoded) {
        let Collect { moving, read, rows } = self;
        rows.scan.block(&recording.header, events, decoded);
        if rows.scan.is_hard() {
            return;
        }
        match moving {
            None => events.iter().for_each(|event| rows.event(event)),
            Some(moving) => {
                for (place, event) in events.iter().enumerate() {
                    moving.event(*read + place, event, |event| rows.event(event));
                }
                *read += events.len();
            }
        }
    }
}

impl<'a> Listing<'a> {
    /// Hands rows to `take`: when they are settled if the blocks of the recording are known to be
    /// `in_order`, else at the end.
    pub fn new(take: &'a mut dyn Take, in_order: bool) -> Listing<'a> {
        let flow = Flow {
            take,
            together: TOGETHER,
            when: When::Never,
            piece: Piece::default(),
            waiting: VecDeque::new(),
            expected: Vec::new(),
            earliest: Vec::new(),
            given: (0, None),
            before: 0,
            torn: false,
        };
        Listing { flow, in_order, known: Mending::default(), lossy: false }
    }

    /// So many rows together instead of some thousand.
    pub fn together(mut self, rows: usize) -> Self {
        self.flow.together = rows.max(1);
        self
    }

    /// How many rows were handed on.
    pub fn given(&self) -> usize {
        self.flow.given.0 as usize
    }

    /// Reads the recording as often as it takes, from `blocks`, which begins at its start each
    /// time.
    ///
    /// # Errors
    /// As [`read`](Listing::read) and [`whole`](Listing::whole).
    pub fn all<B: Iterator<Item = Result<Part, TraceError>>>(
        &mut self,
        blocks: impl Fn() -> B,
        limits: ReadLimits,
    ) -> Result<Listed, TraceError> {
        loop {
            match self.read(blocks(), limits)? {
                Found::Listed(listed) => return Ok(*listed),
                Found::Again => {}
                Found::Whole => return self.whole(Recording::of_blocks(blocks(), limits)?),
            }
        }
    }

    /// Reads the recording once, from the blocks of its file, with what an earlier look found in
    /// need of repair.
    ///
    /// # Errors
    /// As [`Recording::read`]; some rows may have been handed on then.
    pub fn read(
        &mut self,
        blocks: impl Iterator<Item = Result<Part, TraceError>>,
        limits: ReadLimits,
    ) -> Result<Found, TraceError> {
        let known = self.known.clone();
        let when = match known.complete {
            true => When::AtOnce,
            false if self.in_order => When::Settled,
            false => When::AtTheEnd,
        };
        self.flow.begin(when, &known.missing);
        let missing = known.in_order();
        let rows = Rows {
            scan: Scan::default(),
            placed: !known.moves.is_empty(),
            tracks: Tracks::default(),
            events: 0,
            next_missing: missing.first().map(|(_, event)| event.at),
            missing: missing.into_iter().peekable(),
            losses: self.lossy.then(Losses::default),
            flow: &mut self.flow,
        };
        let moving = rows.placed.then(|| Moving::new(known.moves));
        let mut collect = Collect { moving, read: 0, rows };
        let mut about = assemble(blocks, limits, &mut collect)?;
        let Rows { scan, mut tracks, events, missing: left, mut losses, flow, .. } = collect.rows;
        for (_, event) in left {
            if let Some(losses) = &mut losses {
                losses.event(&event);
            }
            if let Some(row) = tracks.step(&event) {
                // The last piece may be longer than others.
                flow.keep(&row);
            }
        }
        let Some(mends) = scan.finish() else { return Ok(Found::Whole) };
        self.lossy |= mends.repairs.lost > 0;
        let tangled = mends.are_tangled();
        if self.lossy && !tangled && self.known.moves.is_empty() && !mends.moves.is_empty() {
            // Rows need no moved wakeups; where events are missing is told by the events in their
            // places.
            return Ok(Found::Whole);
        }
        let mending = self.known.after(tangled, mends.moves, mends.inserted);
        if mending.missing != self.known.missing || tangled {
            // The same events would miss the same.
            let changed = self.known.complete;
            self.known = mending;
            return if changed { Err(TraceError::Changed) } else { Ok(Found::Again) };
        }
        if self.lossy && losses.is_none() {
            return Ok(Found::Again);
        }
        about.check_header(about.duration)?;
        about.repairs.add(&mends.repairs);
        about.repairs.early_wakes += self.known.moves.len() as u64;
        self.flow.finish()?;
        Ok(Found::Listed(Box::new(Listed {
            about,
            events: events + self.known.missing.len(),
            losses: losses.unwrap_or_default(),
        })))
    }

    /// Hands on what is left of the rows of the whole recording.
    ///
    /// # Errors
    /// The rows that were handed on before are not those of this recording.
    pub fn whole(&mut self, mut recording: Recording) -> Result<Listed, TraceError> {
        let events = std::mem::take(&mut recording.events);
        let flow = &mut self.flow;
        flow.begin(When::AtOnce, &[]);
        let scan = Scan::default();
        let mut timehist = Timehist::new(|row: &Row| {
            if flow.keep(row) {
                flow.settle(&scan);
            }
        });
        let mut losses = Losses::default();
        for event in &events {
            timehist.event(event);
            losses.event(event);
        }
        self.flow.finish()?;
        Ok(Listed { about: recording, events: events.len(), losses })
    }
}

impl Mending {
    /// What is known after another look, which found these moves and missing switches.
    fn after(
        &self,
        tangled: bool,
        moves: Vec<(usize, usize)>,
        missing: Vec<(usize, SchedEvent)>,
    ) -> Mending {
        match self.moves.is_empty() {
            true if tangled => Mending { moves, missing, complete: false },
            // Rows know of wakeups that are moved as soon as it matters.
            true => Mending { moves: Vec::new(), missing, complete: true },
            false => Mending { moves: self.moves.clone(), missing, complete: true },
        }
    }

    /// The missing switches as a stable sort of all events would have them.
    fn in_order(&self) -> Vec<(usize, SchedEvent)> {
        let mut missing = self.missing.clone();
        missing.sort_by_key(|(_, event)| event.at);
        missing
    }
}

/// Some rows that follow one another.
#[derive(Default)]
pub struct Piece {
    rows: Vec<Kept>,
    /// Times of which one has no room in its row.
    long: Vec<[Ns; 3]>,
}

/// A row in 28 bytes.
#[derive(Clone, Copy)]
struct Kept {
    /// Low and high half: a number of 64 bits would need 32 bytes.
    at: [u32; 2],
    who: u32,
    /// Wait, delay, run in nanoseconds. [`LONG`], then a number in the list of long ones.
    times: [u32; 3],
    cpu: u16,
    state: PrevState,
}

impl Kept {
    #[inline]
    fn at(&self) -> Ns {
        Ns(u64::from(self.at[0]) | u64::from(self.at[1]) << 32)
    }
}

/// None: idle.
const NOBODY: u32 = u32::MAX;
/// Longer than 4.29 s.
const LONG: u32 = u32::MAX;

impl Piece {
    fn with_capacity(rows: usize) -> Piece {
        Piece { rows: Vec::with_capacity(rows), long: Vec::new() }
    }

    fn emptied(mut self) -> Piece {
        self.rows.clear();
        self.long.clear();
        self
    }

    /// When the last row ended.
    fn last(&self) -> Option<Ns> {
        self.rows.last().map(|row| row.at())
    }

    #[inline]
    fn keep(&mut self, row: &Row) {
        let Row { at: Ns(at), cpu, who, wait, delay, run, state } = *row;
        let times = match wait.0 | delay.0 | run.0 {
            all if all < u64::from(LONG) => [wait.0 as u32, delay.0 as u32, run.0 as u32],
            _ => {
                self.long.push([wait, delay, run]);
                [LONG, self.long.len() as u32 - 1, 0]
            }
        };
        let who = who.map_or(NOBODY, |task| task.0);
        self.rows.push(Kept {
            at: [at as u32, (at >> 32) as u32],
            who,
            times,
            cpu: cpu.0 as u16,
            state,
        });
    }

    /// Calls `each` for every row of the listing.
    #[inline]
    pub fn rows(&self, scope: &Scope, mut each: impl FnMut(&Row)) {
        for kept in &self.rows {
            let [wait, delay, run] = match kept.times {
                [LONG, place, _] => self.long[place as usize],
                times => times.map(|time| Ns(time.into())),
            };
            let row = Row {
                at: kept.at(),
                cpu: CpuId(kept.cpu.into()),
                who: (kept.who != NOBODY).then_some(TaskId(kept.who)),
                wait,
                delay,
                run,
                state: kept.state,
            };
            if row.is_shown(scope) {
                each(&row);
            }
        }
    }
}
