//! The listing of a recording, found while it is read: nothing goes through its events twice, and of them nothing is kept but
//! the rows. These are those of the whole recording.

use super::{Row, Timehist};
use crate::analysis::Scope;
use crate::blocks::Part;
use crate::format::Decoded;
use crate::reader::{Keep, assemble};
use crate::repair::{Moving, Scan};
use crate::{ReadLimits, Recording, TraceError};
use schedlab_model::{CpuId, EventSink, Ns, PrevState, SchedEvent, TaskId};
use std::iter::Peekable;
use std::vec::IntoIter;

/// What the listing needs of a recording.
pub struct Brief {
    /// The recording without its events.
    pub about: Recording,
    /// How many events the whole recording has.
    pub events: usize,
    pieces: Vec<Piece>,
}

/// What an earlier look at a recording found to be mended in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mending {
    /// Wakeups that belong elsewhere: the place of the switch behind which they belong, and theirs.
    moves: Vec<(usize, usize)>,
    /// Switches that are missing, in order of time, each with the place before which it was missed.
    missing: Vec<(usize, SchedEvent)>,
}

impl Mending {
    /// As a stable sort of all events would have them.
    fn in_order(mut self) -> Mending {
        self.missing.sort_by_key(|(_, event)| event.at);
        self
    }
}

/// What came of reading a recording in brief.
pub enum Found {
    /// Its rows.
    Brief(Box<Brief>),
    /// Rows without this, which belongs before events that had been read: it has to be read again, with it.
    Again(Mending),
    /// What has to be mended in it needs the whole recording.
    Whole,
}

/// Reads the events and makes rows of them.
struct Collect<F> {
    moving: Option<Moving>,
    read: usize,
    rows: Rows<F>,
}

/// Makes rows of events of which each wakeup has its place.
struct Rows<F> {
    scan: Scan,
    timehist: Timehist<F>,
    events: usize,
    missing: Peekable<IntoIter<(usize, SchedEvent)>>,
}

impl<F: FnMut(&Row)> Rows<F> {
    #[inline]
    fn event(&mut self, event: &SchedEvent) {
        let place = self.events;
        self.events += 1;
        // Behind everything of its time that stands before its place.
        let comes = |(at, missing): &(usize, SchedEvent)| (missing.at, *at) <= (event.at, place);
        while let Some((_, missing)) = self.missing.next_if(comes) {
            self.timehist.event(&missing);
        }
        let early = self.scan.event(place, event);
        if self.scan.is_hard() {
            // It may name tasks that do not exist.
            return;
        }
        self.timehist.event(event);
        if let Some(task) = early {
            self.timehist.ready_since_out(task);
        }
    }
}

impl<F: FnMut(&Row)> Keep for Collect<F> {
    fn events(&mut self, recording: &mut Recording, events: &[SchedEvent], decoded: Decoded) {
        let Collect { moving, read, rows } = self;
        rows.scan.block(&recording.header, events, decoded);
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

impl Brief {
    /// Reads a recording from the blocks of its file, with what an earlier look found to be mended.
    ///
    /// # Errors
    /// As [`Recording::read`].
    pub fn of_blocks(
        blocks: impl Iterator<Item = Result<Part, TraceError>>,
        limits: ReadLimits,
        known: &Mending,
    ) -> Result<Found, TraceError> {
        let mut pieces = vec![Piece::default()];
        let rows = Rows {
            scan: Scan::default(),
            timehist: Timehist::new(|row: &Row| keep(&mut pieces, row)),
            events: 0,
            missing: known.missing.clone().into_iter().peekable(),
        };
        let moving = (!known.moves.is_empty()).then(|| Moving::new(known.moves.clone()));
        let mut collect = Collect { moving, read: 0, rows };
        let mut about = assemble(blocks, limits, &mut collect)?;
        let Rows { scan, mut timehist, events, missing: left } = collect.rows;
        left.for_each(|(_, event)| timehist.event(&event));
        let Some(mends) = scan.finish() else { return Ok(Found::Whole) };
        let mending = match (known.moves.is_empty(), mends.are_tangled()) {
            (true, true) => Mending { moves: mends.moves, missing: mends.inserted },
            // Rows know of wakeups that are moved as soon as it matters.
            (true, false) => Mending { moves: Vec::new(), missing: mends.inserted },
            (false, _) if !mends.moves.is_empty() => return Ok(Found::Whole),
            (false, _) => Mending { moves: known.moves.clone(), missing: mends.inserted },
        };
        let mending = mending.in_order();
        if mending != *known {
            return Ok(Found::Again(mending));
        }
        about.check_header(about.duration)?;
        about.repairs.add(&mends.repairs);
        about.repairs.early_wakes += mending.moves.len() as u64;
        Ok(Found::Brief(Box::new(Brief { about, events: events + mending.missing.len(), pieces })))
    }

    /// All rows in their order, some thousand together.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Calls `each` for every row of the listing.
    pub fn rows(&self, scope: &Scope, mut each: impl FnMut(&Row)) {
        self.pieces.iter().for_each(|piece| piece.rows(scope, &mut each));
    }
}

/// Rows that lie together: with the text that becomes of them they fit into a processor's own caches.
const TOGETHER: usize = 4096;

fn keep(pieces: &mut Vec<Piece>, row: &Row) {
    match pieces.last_mut() {
        Some(piece) if piece.rows.len() < TOGETHER => piece.keep(row),
        _ => {
            let mut piece = Piece { rows: Vec::with_capacity(TOGETHER), long: Vec::new() };
            piece.keep(row);
            pieces.push(piece);
        }
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

/// Nobody: idle.
const NOBODY: u32 = u32::MAX;
/// Longer than 4.29 s.
const LONG: u32 = u32::MAX;

impl Piece {
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
        self.rows.push(Kept { at: [at as u32, (at >> 32) as u32], who, times, cpu: cpu.0 as u16, state });
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
                at: Ns(u64::from(kept.at[0]) | u64::from(kept.at[1]) << 32),
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
