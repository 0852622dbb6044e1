//! A recording of which only that is kept which the listing needs: 16 bytes an event instead of 40, and nothing goes through
//! all events twice. The rows are those of the whole recording.

use super::{Row, Timehist};
use crate::analysis::Scope;
use crate::blocks::Part;
use crate::reader::{Keep, assemble};
use crate::repair::{Mends, Scan};
use crate::{ReadLimits, Recording, TraceError};
use schedlab_model::{CpuId, EventKind, Ns, PrevState, SchedEvent, TaskId};
use std::iter::Peekable;
use std::vec::IntoIter;

/// No task: idle.
const NOBODY: u32 = u32::MAX;

/// An event, as far as [`Timehist`] looks at it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Short {
    at: Ns,
    task: u32,
    cpu: u16,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// The task left the CPU.
    Left(PrevState),
    /// The task became runnable.
    Ready,
    /// Events were lost.
    Lost,
}

impl Short {
    #[inline]
    fn of(event: &SchedEvent) -> Option<Short> {
        let (task, what) = match event.kind {
            EventKind::Switch { prev, prev_state, .. } => (prev, What::Left(prev_state)),
            EventKind::Wake { task, .. } | EventKind::New { task, .. } => (Some(task), What::Ready),
            EventKind::Lost { .. } => (None, What::Lost),
            _ => return None,
        };
        Some(Short { at: event.at, task: task.map_or(NOBODY, |task| task.0), cpu: event.cpu.0 as u16, what })
    }

    #[inline]
    fn tell<F: FnMut(&Row)>(self, timehist: &mut Timehist<F>) {
        let cpu = CpuId(self.cpu.into());
        let task = (self.task != NOBODY).then_some(TaskId(self.task));
        match (self.what, task) {
            (What::Left(state), task) => timehist.left(self.at, cpu, task, state),
            (What::Ready, Some(task)) => timehist.ready(self.at, task),
            (What::Ready, None) => {}
            (What::Lost, _) => timehist.lost(cpu),
        }
    }
}

/// What the listing needs of a recording.
pub struct Brief {
    /// The recording without its events.
    pub about: Recording,
    /// How many events the whole recording has.
    pub events: usize,
    short: Vec<Short>,
    /// What is still to be put right, in the order of the events: wakeups and the switches behind which they belong ...
    moves: Vec<(usize, usize)>,
    /// ... and switches that are missing.
    inserted: Vec<(usize, SchedEvent)>,
}

#[derive(Default)]
struct Collect {
    scan: Scan,
    short: Vec<Short>,
    events: usize,
}

impl Keep for Collect {
    fn events(&mut self, recording: &mut Recording, _: usize) {
        self.scan.begin(&recording.header);
        self.events += recording.events.len();
        self.short.reserve(recording.events.len());
        for event in recording.events.drain(..) {
            self.scan.event(self.short.len(), &event);
            self.short.extend(Short::of(&event));
        }
    }
}

impl Brief {
    /// Reads a recording from the blocks of its file. `None`: what has to be mended in it needs the whole recording.
    ///
    /// # Errors
    /// As [`Recording::read`].
    pub fn of_blocks(
        blocks: impl Iterator<Item = Result<Part, TraceError>>,
        limits: ReadLimits,
    ) -> Result<Option<Brief>, TraceError> {
        let mut collect = Collect::default();
        let mut about = assemble(blocks, limits, &mut collect)?;
        let Some(Mends { repairs, mut moves, mut inserted }) = collect.scan.finish() else { return Ok(None) };
        about.check_header(about.duration)?;
        about.repairs.add(&repairs);
        moves.sort_unstable();
        // As a stable sort of all events would have them.
        inserted.sort_by_key(|(_, event)| event.at);
        let events = collect.events + inserted.len();
        Ok(Some(Brief { about, events, short: collect.short, moves, inserted }))
    }

    /// Calls `each` for every row of the listing.
    pub fn rows(&self, scope: &Scope, mut each: impl FnMut(&Row)) {
        let timehist = &mut Timehist::new(|row: &Row| {
            if row.is_shown(scope) {
                each(row);
            }
        });
        let end = self.short.partition_point(|short| short.at <= scope.to);
        let mut order = Order::of(self);
        for (place, short) in self.short[..end].iter().enumerate() {
            if order.is_plain() {
                short.tell(timehist);
            } else {
                order.tell(place, *short, &self.short, timehist);
            }
        }
        for (_, event) in order.inserted.filter(|(_, event)| event.at <= scope.to) {
            Short::of(&event).into_iter().for_each(|short| short.tell(timehist));
        }
    }
}

/// The events in their right order.
struct Order {
    moves: Peekable<IntoIter<(usize, usize)>>,
    /// Places of wakeups that come elsewhere.
    skip: Peekable<IntoIter<usize>>,
    inserted: Peekable<IntoIter<(usize, SchedEvent)>>,
}

impl Order {
    fn of(brief: &Brief) -> Order {
        let mut skip: Vec<usize> = brief.moves.iter().map(|&(_, wake)| wake).collect();
        skip.sort_unstable();
        Order {
            moves: brief.moves.clone().into_iter().peekable(),
            skip: skip.into_iter().peekable(),
            inserted: brief.inserted.clone().into_iter().peekable(),
        }
    }

    /// Nothing is left to be put right.
    #[inline]
    fn is_plain(&mut self) -> bool {
        self.moves.len() == 0 && self.skip.len() == 0 && self.inserted.len() == 0
    }

    fn tell<F: FnMut(&Row)>(
        &mut self,
        place: usize,
        short: Short,
        all: &[Short],
        timehist: &mut Timehist<F>,
    ) {
        // Behind everything of its time that stands before its place.
        let comes = |(at, event): &(usize, SchedEvent)| (event.at, *at) <= (short.at, place);
        while let Some((_, event)) = self.inserted.next_if(comes) {
            Short::of(&event).into_iter().for_each(|short| short.tell(timehist));
        }
        if self.skip.next_if_eq(&place).is_none() {
            short.tell(timehist);
        }
        while let Some((_, wake)) = self.moves.next_if(|&(block, _)| block == place) {
            Short { at: short.at, ..all[wake] }.tell(timehist);
        }
    }
}
