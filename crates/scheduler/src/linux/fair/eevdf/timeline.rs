//! The waiting entities of one EEVDF queue, by virtual deadline.
//!
//! The question asked most is "the earliest deadline among those whose vruntime is not beyond V".
//! The kernel keeps a red-black tree by deadline with the smallest vruntime of each subtree. Here
//! the entries stand in blocks of at most [`BLOCK`], the blocks in the order of their deadlines,
//! each with the smallest slice in it and a bound of the vruntimes. Within a block they stand in
//! any order: where a sorted array would be searched and moved, by loops whose ends no branch
//! predictor foresees, all of a block are looked at, [`STEP`] at a time without branches. Nothing
//! is allocated once a queue has had its largest size.

use std::hint::select_unpredictable;

/// Entries of a block. Fitted by measuring: 16 … 64 differ by less than 5 %.
const BLOCK: usize = 32;
/// How many are looked at together: what most queues have at most.
const STEP: usize = 4;

/// A waiting entity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::linux) struct Waiting {
    /// Virtual deadline: the sort key. Equal ones are first in, first out.
    pub(in crate::linux) deadline: i64,
    /// Virtual run time.
    pub(in crate::linux) vruntime: i64,
    /// Request in nanoseconds.
    pub(in crate::linux) slice: u32,
    /// Who.
    pub(in crate::linux) entity: u32,
}

impl Waiting {
    /// An empty place: no entry is later, and none has its entity.
    const EMPTY: Waiting =
        Waiting { deadline: i64::MAX, vruntime: 0, slice: u32::MAX, entity: u32::MAX };
}

/// One that may be the first.
#[derive(Clone, Copy)]
struct Candidate {
    deadline: i64,
    place: usize,
}

impl Candidate {
    const NONE: Candidate = Candidate { deadline: i64::MAX, place: BLOCK };
    /// The earlier of two, without a branch. Of equal ones it is the one before, `self`.
    #[inline(always)]
    fn earlier(self, other: Candidate) -> Candidate {
        let later = other.deadline < self.deadline;
        Candidate {
            deadline: select_unpredictable(later, other.deadline, self.deadline),
            place: select_unpredictable(later, other.place, self.place),
        }
    }
}

/// The first entry is on the cache line of what is known of all.
#[derive(Clone, Debug)]
#[repr(C, align(128))]
struct Block {
    len: usize,
    /// Not above any vruntime in it.
    least_vruntime: i64,
    /// Not below any deadline in it, nor above any in the next block.
    latest: i64,
    /// The smallest slice in it, and how many entries have that.
    min_slice: u32,
    min_slices: u32,
    /// Equal deadlines stand in the order in which they came, others in any order. Behind `len`
    /// they are [`Waiting::EMPTY`].
    entries: [Waiting; BLOCK],
}

impl Block {
    const EMPTY: Block = Block {
        len: 0,
        least_vruntime: i64::MAX,
        latest: i64::MIN,
        min_slice: u32::MAX,
        min_slices: 0,
        entries: [Waiting::EMPTY; BLOCK],
    };
    #[inline]
    fn entries(&self) -> &[Waiting] {
        &self.entries[..self.len.min(BLOCK)]
    }
    /// Groups of [`STEP`] places that hold all entries.
    #[inline(always)]
    fn steps(&self) -> &[[Waiting; STEP]] {
        let (steps, _) = self.entries.as_chunks();
        &steps[..self.len.div_ceil(STEP).min(BLOCK / STEP)]
    }
    /// Puts an entry in. The block is not full.
    #[inline]
    fn insert(&mut self, entry: Waiting) {
        let at = self.len.min(BLOCK - 1);
        self.len = at + 1;
        self.entries[at] = entry;
        self.reaches(entry);
    }
    /// An entry is here now.
    #[inline(always)]
    fn reaches(&mut self, Waiting { deadline, vruntime, slice, .. }: Waiting) {
        self.least_vruntime = self.least_vruntime.min(vruntime);
        self.latest = self.latest.max(deadline);
        if slice <= self.min_slice {
            self.min_slices = if slice == self.min_slice { self.min_slices + 1 } else { 1 };
            self.min_slice = slice;
        }
    }
    /// Place of the first entry, by deadline, of those whose vruntime is not above `limit`;
    /// [`BLOCK`] when there is none.
    ///
    /// Not inlined: it needs the registers that its callers keep their values in.
    #[inline(never)]
    fn first(&self, limit: i64) -> usize {
        let mut first = Candidate::NONE;
        for (step, entries) in self.steps().iter().enumerate() {
            // Two against two: what waits for one another is half as long as one after the other.
            let [a, b, c, d] = std::array::from_fn(|index| {
                let Waiting { deadline, vruntime, .. } = entries[index];
                let deadline = select_unpredictable(vruntime <= limit, deadline, i64::MAX);
                Candidate { deadline, place: STEP * step + index }
            });
            first = first.earlier(a.earlier(b).earlier(c.earlier(d)));
        }
        first.place
    }
    /// Whether an entry has this deadline.
    #[inline(always)]
    fn has(&self, deadline: i64) -> bool {
        let mut found = false;
        for entries in self.steps() {
            entries.iter().for_each(|entry| found |= entry.deadline == deadline);
        }
        found
    }
    #[inline]
    fn position(&self, entity: u32) -> Option<usize> {
        let mut place = BLOCK;
        for (step, entries) in self.steps().iter().enumerate() {
            for (index, entry) in entries.iter().enumerate() {
                place = select_unpredictable(entry.entity == entity, STEP * step + index, place);
            }
        }
        (place < self.len).then_some(place)
    }
    #[inline]
    fn remove(&mut self, at: usize) {
        let last = self.len.min(BLOCK) - 1;
        let (slice, moved) = (self.entries[at].slice, self.entries[last]);
        self.entries[last] = Waiting::EMPTY;
        self.len = last;
        if at < last {
            // The last one takes its place, but may not pass one with the same deadline.
            let to = if self.has(moved.deadline) { self.close(at) } else { at };
            self.entries[to] = moved;
        }
        self.has_lost(slice);
    }
    /// Moves the entries behind place `at`, but for the last, which was taken, up by one. Gives the
    /// place that is free then.
    #[cold]
    #[inline(never)]
    fn close(&mut self, at: usize) -> usize {
        self.entries.copy_within(at + 1..self.len, at);
        self.len - 1
    }
    /// An entry with this slice is here no more.
    #[inline(always)]
    fn has_lost(&mut self, slice: u32) {
        if slice == self.min_slice {
            self.min_slices -= 1;
            if self.min_slices == 0 {
                self.summarise();
            }
        }
    }
    fn summarise(&mut self) {
        let (mut vruntime, mut latest, mut slice, mut slices) = (i64::MAX, i64::MIN, u32::MAX, 0);
        for entry in self.entries() {
            vruntime = vruntime.min(entry.vruntime);
            latest = latest.max(entry.deadline);
            slices = if entry.slice < slice { 1 } else { slices + u32::from(entry.slice == slice) };
            slice = slice.min(entry.slice);
        }
        (self.least_vruntime, self.latest, self.min_slice, self.min_slices) =
            (vruntime, latest, slice, slices);
    }
}

/// Where an entry is until the next change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) struct TimelinePosition {
    block: usize,
    index: usize,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(in crate::linux) struct Timeline {
    /// By deadline. Once there is one there always is; only a single one may be empty.
    blocks: Vec<Block>,
}

impl Timeline {
    /// No entity waits.
    #[cfg(test)]
    pub(in crate::linux) fn is_empty(&self) -> bool {
        self.blocks.iter().all(|block| block.len == 0)
    }
    /// Adds an entry, behind those with the same deadline.
    #[inline]
    pub(in crate::linux) fn insert(&mut self, waiting: Waiting) {
        match self.blocks.as_mut_slice() {
            [block] if block.len < BLOCK => block.insert(waiting),
            // In parts: as a whole it would be put together in memory even where this is not
            // called.
            _ => self.insert_into_many(
                waiting.deadline,
                waiting.vruntime,
                waiting.slice,
                waiting.entity,
            ),
        }
    }
    #[inline(never)]
    fn insert_into_many(&mut self, deadline: i64, vruntime: i64, slice: u32, entity: u32) {
        if self.blocks.is_empty() {
            self.blocks.push(Block::EMPTY);
        }
        let mut at = self.place_behind(deadline);
        if self.blocks[at].len == BLOCK {
            self.split(at);
            at = self.place_behind(deadline);
        }
        self.blocks[at].insert(Waiting { deadline, vruntime, slice, entity });
    }
    /// Takes the entry of `entity`, inserted with this deadline, out; `false` when there is none.
    #[inline]
    pub(in crate::linux) fn remove(&mut self, deadline: i64, entity: u32) -> bool {
        match self.blocks.as_mut_slice() {
            [block] => match block.position(entity) {
                Some(place) => {
                    block.remove(place);
                    true
                }
                None => false,
            },
            _ => self.remove_from_many(deadline, entity),
        }
    }
    #[inline(never)]
    fn remove_from_many(&mut self, deadline: i64, entity: u32) -> bool {
        for block in self.place_of(deadline)..self.blocks.len() {
            if let Some(index) = self.blocks[block].position(entity) {
                self.take(TimelinePosition { block, index });
                return true;
            }
        }
        false
    }
    /// Changes the slice of the entry of `entity`, inserted with this deadline.
    pub(in crate::linux) fn set_slice(&mut self, deadline: i64, entity: u32, slice: u32) {
        let at = self.place_of(deadline);
        for block in self.blocks.iter_mut().skip(at) {
            if let Some(place) = block.position(entity) {
                block.entries[place].slice = slice;
                return block.summarise();
            }
        }
    }
    /// The entry with the earliest deadline among those whose vruntime is not above `limit`.
    #[inline]
    pub(in crate::linux) fn first_eligible(&self, limit: i64) -> Option<Waiting> {
        self.find(limit).map(|(_, waiting)| waiting)
    }
    /// As [`first_eligible`](Self::first_eligible), with its place.
    #[inline(always)]
    pub(in crate::linux) fn find(&self, limit: i64) -> Option<(TimelinePosition, Waiting)> {
        let [block] = self.blocks.as_slice() else { return self.find_in_many(limit) };
        let index = block.first(limit);
        let entry = block.entries.get(index)?;
        Some((TimelinePosition { block: 0, index }, *entry))
    }
    #[inline(never)]
    fn find_in_many(&self, limit: i64) -> Option<(TimelinePosition, Waiting)> {
        for (number, block) in self.blocks.iter().enumerate() {
            if number > 0 && block.least_vruntime > limit {
                continue;
            }
            let index = block.first(limit);
            if let Some(entry) = block.entries.get(index) {
                return Some((TimelinePosition { block: number, index }, *entry));
            }
        }
        None
    }
    /// Takes the entry at a place that was just found out.
    #[inline]
    pub(in crate::linux) fn take(&mut self, place: TimelinePosition) {
        let block = &mut self.blocks[place.block];
        block.remove(place.index);
        if block.len == 0 && self.blocks.len() > 1 {
            self.blocks.remove(place.block);
        }
    }
    /// Puts an entry where another was just found, which leaves. What [`take`](Self::take) and
    /// [`insert`](Self::insert) do, in one place if the order of the blocks permits.
    #[inline(always)]
    pub(in crate::linux) fn exchange(&mut self, place: TimelinePosition, waiting: Waiting) {
        let Waiting { deadline, vruntime, slice, entity } = waiting;
        let [block] = self.blocks.as_mut_slice() else {
            return self.exchange_in_many(place, deadline, vruntime, slice, entity);
        };
        if block.has(deadline) {
            // It comes behind those.
            block.remove(place.index);
            return block.insert(waiting);
        }
        let entry = &mut block.entries[place.index];
        let gone = entry.slice;
        // Part by part: what is put together in memory by small stores is not forwarded to the
        // large loads that would copy it.
        entry.deadline = deadline;
        entry.vruntime = vruntime;
        entry.slice = slice;
        entry.entity = entity;
        block.reaches(waiting);
        block.has_lost(gone);
    }
    /// The same where there are several blocks.
    #[inline(never)]
    fn exchange_in_many(
        &mut self,
        place: TimelinePosition,
        deadline: i64,
        vruntime: i64,
        slice: u32,
        entity: u32,
    ) {
        self.take(place);
        self.insert(Waiting { deadline, vruntime, slice, entity });
    }
    /// The entry with the earliest deadline.
    #[inline]
    pub(in crate::linux) fn first(&self) -> Option<Waiting> {
        self.first_eligible(i64::MAX)
    }
    /// The smallest slice of all, `u32::MAX` when empty.
    #[inline]
    pub(in crate::linux) fn min_slice(&self) -> u32 {
        match self.blocks.as_slice() {
            [block] => block.min_slice,
            blocks => blocks.iter().map(|block| block.min_slice).min().unwrap_or(u32::MAX),
        }
    }
    /// The largest slice of all, 0 when empty.
    #[inline]
    pub(in crate::linux) fn max_slice(&self) -> u32 {
        match self.blocks.as_slice() {
            // Mostly all are the same.
            [block] if block.len > 0 && block.min_slices as usize == block.len => block.min_slice,
            blocks => Timeline::search_max_slice(blocks),
        }
    }
    #[inline(never)]
    fn search_max_slice(blocks: &[Block]) -> u32 {
        blocks.iter().flat_map(Block::entries).map(|entry| entry.slice).max().unwrap_or(0)
    }
    /// All, by deadline.
    #[cfg(test)]
    pub(in crate::linux) fn all(&self) -> Vec<Waiting> {
        let mut all: Vec<Waiting> = self.blocks.iter().flat_map(Block::entries).copied().collect();
        all.sort_by_key(|entry| entry.deadline);
        all
    }
    /// The block into which an entry goes behind those with its deadline: the first one that ends
    /// beyond it, or the last.
    fn place_behind(&self, deadline: i64) -> usize {
        self.blocks.partition_point(|block| block.latest <= deadline).min(self.blocks.len() - 1)
    }
    /// The first block in which an entry with this deadline may stand.
    fn place_of(&self, deadline: i64) -> usize {
        self.blocks.partition_point(|block| block.latest < deadline)
    }
    /// Moves the upper half of the full block `at` into a new one behind it.
    fn split(&mut self, at: usize) {
        let mut upper = Block::EMPTY;
        let full = &mut self.blocks[at];
        full.entries.sort_by_key(|entry| entry.deadline);
        upper.entries[..BLOCK / 2].copy_from_slice(&full.entries[BLOCK / 2..]);
        full.entries[BLOCK / 2..].fill(Waiting::EMPTY);
        upper.len = BLOCK / 2;
        full.len = BLOCK / 2;
        full.summarise();
        upper.summarise();
        self.blocks.insert(at + 1, upper);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_deadlines_are_first_in_first_out_over_many_blocks() {
        let mut timeline = Timeline::default();
        for entity in 0..200 {
            timeline.insert(Waiting { deadline: 7, vruntime: 0, slice: 1, entity });
        }
        assert!(timeline.all().iter().map(|e| e.entity).eq(0..200));
        for entity in (0..200).rev() {
            assert!(timeline.remove(7, entity));
        }
        assert!(timeline.is_empty());
        assert!(!timeline.remove(7, 0));
    }

    proptest! {
        /// Against a plain list: order, pick, minima, and nothing lost.
        #[test]
        fn agrees_with_a_plain_list(
            steps in prop::collection::vec((any::<bool>(), -50i64..50, -50i64..50, 1u32..9), 1..400),
            limit in -60i64..60,
        ) {
            let mut timeline = Timeline::default();
            let mut list: Vec<Waiting> = Vec::new();
            for (number, (add, deadline, vruntime, slice)) in steps.into_iter().enumerate() {
                if add || list.is_empty() {
                    let entry = Waiting { deadline, vruntime, slice, entity: number as u32 };
                    timeline.insert(entry);
                    let at = list.iter().position(|e| e.deadline > deadline).unwrap_or(list.len());
                    list.insert(at, entry);
                } else {
                    let gone = list.remove(number * 7919 % list.len());
                    prop_assert!(timeline.remove(gone.deadline, gone.entity));
                    if let Some(other) = list.last_mut() {
                        other.slice = slice;
                        timeline.set_slice(other.deadline, other.entity, slice);
                    }
                }
                let best = list.iter().find(|e| e.vruntime <= limit).copied();
                prop_assert_eq!(timeline.first_eligible(limit), best);
                let found = timeline.find(limit);
                prop_assert_eq!(found.map(|(_, entry)| entry), best);
                if let (Some((place, gone)), 0) = (found, number % 5) {
                    timeline.take(place);
                    list.retain(|e| e.entity != gone.entity);
                }
                if let (Some((place, gone)), 1) = (timeline.find(limit), number % 5) {
                    let entry = Waiting { deadline: limit, vruntime: -limit, slice: 5, entity: 1_000_000 + number as u32 };
                    timeline.exchange(place, entry);
                    list.retain(|e| e.entity != gone.entity);
                    let at = list.iter().position(|e| e.deadline > limit).unwrap_or(list.len());
                    list.insert(at, entry);
                }
                let slice = list.iter().map(|e| e.slice).min().unwrap_or(u32::MAX);
                prop_assert_eq!(timeline.min_slice(), slice);
                prop_assert_eq!(timeline.first(), list.first().copied());
            }
            prop_assert_eq!(timeline.all(), list);
        }
    }
}
