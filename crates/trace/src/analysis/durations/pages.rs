//! Counts of many different durations.

use super::{EXACT, LONGEST, List, number};
use std::slice;

/// Buckets of a page.
const PAGE: usize = 64;
/// Pages that all durations need.
const PAGES: usize = number(LONGEST) as usize / PAGE + 1;
/// A page in which a bucket has no number would be one too many.
const _: () = assert!((EXACT as usize).is_multiple_of(PAGE));

/// How often durations of each bucket came, in pages that are there where a duration is: 256 bytes
/// each, and 1.7 KB to find them.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    /// By page: its place in `counts`, from 1 on; 0 where there is none.
    places: [u16; PAGES],
    counts: Vec<[u32; PAGE]>,
}

impl Default for Pages {
    fn default() -> Pages {
        Pages { places: [0; PAGES], counts: Vec::new() }
    }
}

impl Pages {
    /// Adds `count` durations of the bucket with this number.
    #[inline]
    pub(super) fn add(&mut self, number: u16, count: u32) {
        let (page, bucket) = (usize::from(number) / PAGE, usize::from(number) % PAGE);
        if self.places[page] == 0 {
            self.begin(page);
        }
        let counted = &mut self.counts[usize::from(self.places[page]) - 1][bucket];
        *counted = counted.saturating_add(count);
    }

    #[cold]
    fn begin(&mut self, page: usize) {
        self.counts.push([0; PAGE]);
        self.places[page] = self.counts.len() as u16;
    }

    /// Adds what a list holds.
    pub(super) fn add_list(&mut self, list: &List) {
        list.sorted.iter().for_each(|bucket| self.add(bucket.number, bucket.count()));
        list.fresh.iter().for_each(|number| self.add(*number, 1));
    }

    /// Adds what other pages hold.
    pub(super) fn add_all(&mut self, other: &Pages) {
        other.buckets().for_each(|(number, count)| self.add(number, count));
    }

    /// Returns the number of the bucket in which the value of this rank (from 1) is; `None`: there
    /// are fewer.
    pub(super) fn of_rank(&self, rank: u64) -> Option<u16> {
        let mut before = 0;
        for (page, place) in self.places.iter().enumerate().filter(|(_, place)| **place > 0) {
            let counts = &self.counts[usize::from(*place) - 1];
            let all: u64 = counts.iter().map(|count| u64::from(*count)).sum();
            if before + all >= rank {
                let reached = counts.iter().position(|count| {
                    before += u64::from(*count);
                    before >= rank
                })?;
                return Some((page * PAGE + reached) as u16);
            }
            before += all;
        }
        None
    }

    /// Returns the number and the count of each bucket that is not empty, ascending.
    pub(super) fn buckets(&self) -> Buckets<'_> {
        Buckets { pages: self, page: 0, rest: [].iter() }
    }
}

/// See [`Pages::buckets`].
pub(super) struct Buckets<'a> {
    pages: &'a Pages,
    /// How many pages were begun.
    page: usize,
    /// What is left of the last of them.
    rest: slice::Iter<'a, u32>,
}

impl Iterator for Buckets<'_> {
    type Item = (u16, u32);

    #[inline]
    fn next(&mut self) -> Option<(u16, u32)> {
        loop {
            while let Some(&count) = self.rest.next() {
                if count > 0 {
                    let bucket = self.page * PAGE - self.rest.len() - 1;
                    return Some((bucket as u16, count));
                }
            }
            let place = *self.pages.places.get(self.page)?;
            self.page += 1;
            if place > 0 {
                self.rest = self.pages.counts[usize::from(place) - 1].iter();
            }
        }
    }
}
