//! The waiting entities of one EEVDF queue, by virtual deadline.
//!
//! The question asked most is "the earliest deadline among those whose vruntime is not beyond V". The kernel
//! keeps a red-black tree by deadline with the smallest vruntime of each subtree. Here the entries stand in
//! sorted blocks of at most [`BLOCK`], each with the smallest slice in it and a bound of the vruntimes: up to
//! that many entities it is one array that is scanned from the left; beyond, whole blocks are passed over.
//! Nothing is allocated once a queue has had its largest size.

/// Entries of a block. Fitted by measuring: 16 … 64 differ by less than 5 %.
const BLOCK: usize = 32;

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

#[derive(Clone, Debug)]
struct Block {
    len: usize,
    /// Not above any vruntime in it.
    least_vruntime: i64,
    /// The smallest slice in it, and how many entries have that.
    min_slice: u32,
    min_slices: u32,
    entries: [Waiting; BLOCK],
}

impl Block {
    const EMPTY: Block = Block {
        len: 0,
        least_vruntime: i64::MAX,
        min_slice: u32::MAX,
        min_slices: 0,
        entries: [Waiting { deadline: 0, vruntime: 0, slice: 0, entity: 0 }; BLOCK],
    };
    #[inline]
    fn entries(&self) -> &[Waiting] {
        &self.entries[..self.len.min(BLOCK)]
    }
    /// Puts an entry in behind those with the same deadline. The block is not full.
    #[inline]
    fn insert(&mut self, entry: Waiting) {
        let mut at = self.len.min(BLOCK - 1);
        self.len = at + 1;
        // Most come near the end.
        while at > 0 && self.entries[at - 1].deadline > entry.deadline {
            self.entries[at] = self.entries[at - 1];
            at -= 1;
        }
        self.entries[at] = entry;
        self.least_vruntime = self.least_vruntime.min(entry.vruntime);
        if entry.slice <= self.min_slice {
            self.min_slices = if entry.slice == self.min_slice { self.min_slices + 1 } else { 1 };
            self.min_slice = entry.slice;
        }
    }
    #[inline]
    fn position(&self, entity: u32) -> Option<usize> {
        self.entries().iter().position(|e| e.entity == entity)
    }
    #[inline]
    fn remove(&mut self, at: usize) {
        let len = self.len.min(BLOCK);
        let slice = self.entries[at].slice;
        // Those behind it move up by one.
        if let Some((last, others)) = self.entries[at..len].split_last_mut() {
            let mut moved = *last;
            for entry in others.iter_mut().rev() {
                std::mem::swap(entry, &mut moved);
            }
        }
        self.len = len - 1;
        if slice == self.min_slice {
            self.min_slices -= 1;
            if self.min_slices == 0 {
                self.summarise();
            }
        }
    }
    fn summarise(&mut self) {
        let (mut vruntime, mut slice, mut slices) = (i64::MAX, u32::MAX, 0);
        for entry in self.entries() {
            vruntime = vruntime.min(entry.vruntime);
            slices = if entry.slice < slice { 1 } else { slices + u32::from(entry.slice == slice) };
            slice = slice.min(entry.slice);
        }
        (self.least_vruntime, self.min_slice, self.min_slices) = (vruntime, slice, slices);
    }
}

/// Where an entry stands until the next change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) struct Place {
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
    pub(in crate::linux) fn insert(&mut self, entry: Waiting) {
        match self.blocks.as_mut_slice() {
            [block] if block.len < BLOCK => block.insert(entry),
            _ => self.insert_into_many(entry),
        }
    }
    #[inline(never)]
    fn insert_into_many(&mut self, entry: Waiting) {
        if self.blocks.is_empty() {
            self.blocks.push(Block::EMPTY);
        }
        let mut at = self.place_of(entry.deadline, true);
        if self.blocks[at].len == BLOCK {
            self.split(at);
            at = self.place_of(entry.deadline, true);
        }
        self.blocks[at].insert(entry);
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
        let mut at = self.place_of(deadline, false);
        while let Some(block) = self.blocks.get_mut(at) {
            if let Some(place) = block.position(entity) {
                block.remove(place);
                if block.len == 0 && self.blocks.len() > 1 {
                    self.blocks.remove(at);
                }
                return true;
            }
            if block.len > 0 && block.entries[0].deadline > deadline {
                return false;
            }
            at += 1;
        }
        false
    }
    /// Changes the slice of the entry of `entity`, inserted with this deadline.
    pub(in crate::linux) fn set_slice(&mut self, deadline: i64, entity: u32, slice: u32) {
        let at = self.place_of(deadline, false);
        for block in self.blocks.iter_mut().skip(at) {
            if let Some(place) = block.position(entity) {
                block.entries[place].slice = slice;
                return block.summarise();
            }
        }
    }
    /// The entry with the earliest deadline among those whose vruntime is `eligible`, which a smaller one is
    /// too when a larger one is.
    #[inline]
    pub(in crate::linux) fn first_eligible(&self, eligible: impl Fn(i64) -> bool + Copy) -> Option<Waiting> {
        let within = |block: &Block| block.entries().iter().find(|e| eligible(e.vruntime)).copied();
        match self.blocks.as_slice() {
            [block] => within(block),
            blocks => blocks.iter().filter(|block| eligible(block.least_vruntime)).find_map(within),
        }
    }
    /// As [`first_eligible`](Self::first_eligible), with its place.
    #[inline(always)]
    pub(in crate::linux) fn find(&self, eligible: impl Fn(i64) -> bool + Copy) -> Option<(Place, Waiting)> {
        for (block, entries) in self.blocks.iter().enumerate() {
            if block > 0 && !eligible(entries.least_vruntime) {
                continue;
            }
            for (index, entry) in entries.entries().iter().enumerate() {
                if eligible(entry.vruntime) {
                    return Some((Place { block, index }, *entry));
                }
            }
        }
        None
    }
    /// Takes the entry at a place that was just found out.
    #[inline]
    pub(in crate::linux) fn take(&mut self, place: Place) {
        let block = &mut self.blocks[place.block];
        block.remove(place.index);
        if block.len == 0 && self.blocks.len() > 1 {
            self.blocks.remove(place.block);
        }
    }
    /// The entry with the earliest deadline.
    #[inline]
    pub(in crate::linux) fn first(&self) -> Option<Waiting> {
        self.blocks.first()?.entries().first().copied()
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
    pub(in crate::linux) fn max_slice(&self) -> u32 {
        self.blocks.iter().flat_map(|block| block.entries()).map(|entry| entry.slice).max().unwrap_or(0)
    }
    /// All, by deadline.
    #[cfg(test)]
    pub(in crate::linux) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.blocks.iter().flat_map(|block| block.entries())
    }
    /// The first block that ends beyond `deadline` (`after`: that may take an entry behind its equals; the last
    /// block takes what is beyond all) or at it.
    fn place_of(&self, deadline: i64, after: bool) -> usize {
        let last = |block: &Block| block.entries().last().map_or(i64::MIN, |entry| entry.deadline);
        if after {
            self.blocks.partition_point(|block| last(block) <= deadline).min(self.blocks.len() - 1)
        } else {
            self.blocks.partition_point(|block| last(block) < deadline)
        }
    }
    /// Moves the upper half of the full block `at` into a new one behind it.
    fn split(&mut self, at: usize) {
        let mut upper = Block::EMPTY;
        let full = &mut self.blocks[at];
        upper.entries[..BLOCK / 2].copy_from_slice(&full.entries[BLOCK / 2..]);
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
        assert!(timeline.iter().map(|e| e.entity).eq(0..200));
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
                prop_assert_eq!(timeline.first_eligible(|vruntime| vruntime <= limit), best);
                let found = timeline.find(|vruntime| vruntime <= limit);
                prop_assert_eq!(found.map(|(_, entry)| entry), best);
                if let (Some((place, gone)), 0) = (found, number % 5) {
                    timeline.take(place);
                    list.retain(|e| e.entity != gone.entity);
                }
                let slice = list.iter().map(|e| e.slice).min().unwrap_or(u32::MAX);
                prop_assert_eq!(timeline.min_slice(), slice);
                prop_assert_eq!(timeline.first(), list.first().copied());
            }
            prop_assert!(timeline.iter().eq(list.iter()));
        }
    }
}
