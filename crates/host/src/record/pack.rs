//! Records of `bpf/sched.bpf.c` in little memory, as they came: nothing is looked up, followed or
//! ordered for it, so that keeping an event costs some nanoseconds. They become events only when
//! a recording of them is asked for.
//!
//! Most records differ from an earlier one of the same kind and task in nothing but the time: such
//! a record is the number of the earlier one in a table of 255, and the distance in time. The
//! others have those of their bytes that are not zero. About 4 bytes a record.

use super::bpf::{LOST_HERE, kind_of};
use std::sync::Arc;

/// Places of the table; the number behind them says that a record has its bytes.
const PLACES: usize = 255;
const BYTES: u8 = 255;

/// Bytes of a record besides its time and sequence number.
const PARTS: usize = 20;

/// A pack is closed when it has so many bytes.
const FULL: usize = 64 << 10;

/// What a record says besides when: both words about tasks and kind, and the system call.
type Said = [u64; 3];

fn said([_, ab, rest, last]: [u64; 4]) -> Said {
    [ab, rest, last >> 32]
}

/// The place of what is said in the table.
fn place(said: &Said) -> usize {
    // Odd numbers without a pattern: the golden ratio and two of its successors.
    let mixed = said[0].wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ said[1].wrapping_mul(0xc2b2_ae3d_27d4_eb4f)
        ^ said[2].wrapping_mul(0x1656_67b1_9e37_79f9);
    (mixed >> 32) as usize % PLACES
}

/// Records of one CPU, in their order.
#[derive(Clone, Debug)]
pub(crate) struct Pack {
    first: u64,
    last: u64,
    bytes: Box<[u8]>,
}

impl Pack {
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Calls `each` with every record; its sequence number is missing.
    pub(crate) fn unpack(&self, mut each: impl FnMut([u64; 4])) {
        let mut table = [[0; 3]; PLACES];
        let (mut rest, mut at) = (&*self.bytes, self.first);
        while let Some((said, delta)) = next(&mut rest, &mut table) {
            at = at.wrapping_add_signed(delta);
            each([at, said[0], said[1], said[2] << 32]);
        }
    }
}

/// Reads a record; `None` at the end.
fn next(from: &mut &[u8], table: &mut [Said; PLACES]) -> Option<(Said, i64)> {
    let number = take(from)?;
    let said = if number == BYTES {
        let said = bytes(from)?;
        table[place(&said)] = said;
        said
    } else {
        table[usize::from(number)]
    };
    let (mut delta, mut shift) = (0u64, 0);
    loop {
        let byte = take(from)?;
        delta |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            // The lowest bit is the sign.
            return Some((said, (delta >> 1).cast_signed() ^ -((delta & 1).cast_signed())));
        }
        shift += 7;
    }
}

fn take(from: &mut &[u8]) -> Option<u8> {
    let (&byte, rest) = from.split_first()?;
    *from = rest;
    Some(byte)
}

fn bytes(from: &mut &[u8]) -> Option<Said> {
    let mask = u32::from_le_bytes([take(from)?, take(from)?, take(from)?, 0]);
    let mut parts = [0; 24];
    for (at, part) in parts.iter_mut().enumerate().take(PARTS) {
        if mask >> at & 1 == 1 {
            *part = take(from)?;
        }
    }
    let word = |at: usize| parts[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    Some([word(0)?, word(8)?, word(16)?])
}

/// Packs the records of one CPU.
pub(crate) struct Packer {
    table: Box<[Said; PLACES]>,
    bytes: Vec<u8>,
    first: u64,
    last: u64,
    newest: u64,
}

impl Packer {
    pub(crate) fn new() -> Packer {
        let bytes = Vec::with_capacity(FULL + 64);
        Packer { table: Box::new([[0; 3]; PLACES]), bytes, first: 0, last: 0, newest: 0 }
    }

    /// Adds a record. Returns a pack when one is full.
    #[inline]
    pub(crate) fn push(&mut self, words: [u64; 4]) -> Option<Pack> {
        let at = words[0];
        if self.bytes.is_empty() {
            (self.first, self.last, self.newest) = (at, at, at);
        }
        let said = said(words);
        let place = place(&said);
        if self.table[place] == said {
            self.bytes.push(place as u8);
        } else {
            self.table[place] = said;
            self.say(&said);
        }
        let delta = at.wrapping_sub(self.last).cast_signed();
        let mut left = (delta << 1 ^ delta >> 63).cast_unsigned();
        while left >= 0x80 {
            self.bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        self.bytes.push(left as u8);
        self.last = at;
        self.newest = self.newest.max(at);
        if self.bytes.len() >= FULL { self.close() } else { None }
    }

    #[inline(never)]
    fn say(&mut self, said: &Said) {
        let (ab, rest, call) =
            (said[0].to_le_bytes(), said[1].to_le_bytes(), said[2].to_le_bytes());
        let parts = ab.into_iter().chain(rest).chain(call).take(PARTS).enumerate();
        let begin = self.bytes.len();
        self.bytes.extend([BYTES, 0, 0, 0]);
        let mut mask = 0u32;
        for (at, part) in parts.filter(|(_, part)| *part != 0) {
            mask |= 1 << at;
            self.bytes.push(part);
        }
        self.bytes[begin + 1..begin + 4].copy_from_slice(&mask.to_le_bytes()[..3]);
    }

    /// Notes that records are missing here.
    pub(crate) fn lost(&mut self, count: u64) -> Option<Pack> {
        self.push([self.newest, count, u64::from(LOST_HERE) << 48, 0])
    }

    /// Returns the records since the last pack, if there are any; they stay for the next one.
    pub(crate) fn so_far(&self) -> Option<Pack> {
        let bytes = (!self.bytes.is_empty()).then(|| (&*self.bytes).into());
        bytes.map(|bytes| Pack { first: self.first, last: self.newest, bytes })
    }

    /// Returns the records since the last pack, if there are any.
    pub(crate) fn close(&mut self) -> Option<Pack> {
        let pack = self.so_far()?;
        self.bytes.clear();
        // A pack is read without those before it.
        *self.table = [[0; 3]; PLACES];
        Some(pack)
    }
}

/// Returns how many records a mark of [`Packer::lost`] tells of.
pub(crate) fn lost_here(words: [u64; 4]) -> Option<u64> {
    (kind_of(words) == LOST_HERE).then_some(words[1])
}

/// What is shared with a copy that is written elsewhere.
pub(crate) type Packs = std::collections::VecDeque<Arc<Pack>>;

#[cfg(test)]
mod tests {
    use super::*;

    /// A generator of numbers without a pattern (splitmix64).
    fn numbers() -> impl FnMut() -> u64 {
        let mut state = 7u64;
        move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        }
    }

    fn packs(records: &[[u64; 4]]) -> Vec<Pack> {
        let mut packer = Packer::new();
        let mut packs: Vec<Pack> =
            records.iter().filter_map(|record| packer.push(*record)).collect();
        packs.extend(packer.close());
        assert!(packer.close().is_none());
        packs
    }

    fn unpacked(packs: &[Pack]) -> Vec<[u64; 4]> {
        let mut all = Vec::new();
        packs.iter().for_each(|pack| pack.unpack(|record| all.push(record)));
        all
    }

    #[test]
    fn what_is_packed_comes_back() {
        let mut number = numbers();
        let mut at = 1_000_000_000_000u64;
        let records: Vec<[u64; 4]> = (0..60_000)
            .map(|n| {
                // Sometimes a record is older than the one before.
                at = if n % 100 == 99 { at - number() % 300 } else { at + number() % 40_000 };
                match n % 3 {
                    // Any bits at all.
                    0 if n % 30 == 0 => [number(), number(), number(), number() >> 32 << 32],
                    _ => [at, number() % 40, 2 << 48, (number() % 5) << 32],
                }
            })
            .collect();
        let packs = packs(&records);
        assert!(packs.len() > 1);
        assert_eq!(unpacked(&packs), records);
    }

    #[test]
    fn a_load_of_few_tasks_takes_four_bytes_a_record() {
        let mut number = numbers();
        let record = |n: u64| {
            let task = n / 2 % 6;
            let said = if n.is_multiple_of(2) {
                (1 << 48) | (120 << 32) | 1
            } else {
                (2 << 48) | (1 << 56)
            };
            [n * 2_500 + number() % 1_000, (4000 + task) | ((4001 + task) << 32), said, 1 << 32]
        };
        let records: Vec<[u64; 4]> = (0..100_000).map(record).collect();
        let packs = packs(&records);
        let bytes: usize = packs.iter().map(Pack::bytes).sum();
        assert!(bytes <= 400_000, "{bytes}");
        assert_eq!(unpacked(&packs), records);
        assert_eq!(
            (packs[0].first(), packs.last().unwrap().last()),
            (records[0][0], records[99_999][0])
        );
    }

    #[test]
    fn lost_records_are_marked_where_they_are_missing() {
        let mut packer = Packer::new();
        packer.push([500, 1, 2 << 48, 0]);
        packer.lost(77);
        let pack = packer.close().unwrap();
        let records = unpacked(&[pack]);
        assert_eq!(lost_here(records[0]), None);
        assert_eq!((records[1][0], lost_here(records[1])), (500, Some(77)));
    }

    #[test]
    fn broken_bytes_are_no_panic() {
        let mut number = numbers();
        for _ in 0..2_000 {
            let bytes: Box<[u8]> = (0..number() % 200).map(|_| number() as u8).collect();
            Pack { first: number(), last: 0, bytes }.unpack(|_| ());
        }
    }
}
