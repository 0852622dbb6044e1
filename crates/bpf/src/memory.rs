//! Simulated kernel memory: one flat array at a fixed address, with gaps between objects.
//!
//! A load outside gives 0, as the kernel's `PROBE_MEM` does for typed pointers; a store outside,
//! and any access that reaches a gap, ends the run: a verifier would not have let it in.

use crate::Stop;
use crate::bytes::little;
use std::collections::BTreeMap;

/// Where simulated kernel memory begins (the direct map of x86).
pub const BASE: u64 = 0xffff_8880_0000_0000;
/// The kernel's side of an arena; 4 GiB aligned.
pub const ARENA: u64 = 0xffff_c900_0000_0000;
/// The user's side of an arena.
pub const ARENA_USER: u64 = 0x0000_7f00_0000_0000;
/// Addresses of BPF functions as values: this plus 8 for each instruction before.
pub const FUNCTIONS: u64 = 0xffff_ffff_a000_0000;
/// Addresses of kernel functions that exist.
pub const SYMBOLS: u64 = 0xffff_ffff_8100_0000;

/// Most that may be allocated: 2 GiB, for a machine that runs several simulations at once.
const LARGEST: usize = 2 << 30;
/// Gap after each object.
const GAP: usize = 16;
const PAGE: usize = 4096;

/// What became of a load or store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Miss {
    /// Outside everything.
    Outside,
    /// In a gap between objects.
    Gap,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Memory {
    bytes: Vec<u8>,
    /// Of each eight bytes, how many belong to an object.
    owned: Vec<u8>,
    free: BTreeMap<usize, Vec<u64>>,
    /// Freed while a program ran, which may still look at it.
    later: Vec<(u64, usize)>,
    arena: Vec<u8>,
    arena_pages: usize,
    arena_next: usize,
}

impl Memory {
    fn room(n: usize) -> usize {
        (n.max(1) + GAP).next_multiple_of(64)
    }

    /// Returns the address of `n` zeroes, with a gap behind them.
    ///
    /// # Errors
    /// There is no room left.
    pub fn alloc(&mut self, n: usize) -> Result<u64, Stop> {
        let room = Memory::room(n);
        if let Some(address) = self.free.get_mut(&room).and_then(Vec::pop) {
            let at = (address - BASE) as usize;
            self.bytes[at..at + room].fill(0);
            self.own(at, n, room);
            return Ok(address);
        }
        // The first granules stay free: an offset from a null object is no object.
        let at = self.bytes.len().max(4096);
        if at.checked_add(room).is_none_or(|end| end > LARGEST) {
            return Err(Stop::new(format!(
                "the simulated memory is full ({} MiB): fewer tasks or smaller maps",
                LARGEST >> 20
            )));
        }
        self.bytes.resize(at + room, 0);
        self.owned.resize((at + room) / 8, 0);
        self.own(at, n, room);
        Ok(BASE + at as u64)
    }

    /// Marks the first `n` of `room` bytes as an object's, the others as a gap.
    fn own(&mut self, at: usize, n: usize, room: usize) {
        for (i, owned) in self.owned[at / 8..(at + room) / 8].iter_mut().enumerate() {
            *owned = n.saturating_sub(8 * i).min(8) as u8;
        }
    }

    /// Makes a gap inside an object.
    pub fn gap(&mut self, address: u64, n: usize) {
        let at = address.wrapping_sub(BASE) as usize / 8;
        let end = (at + n / 8).min(self.owned.len());
        if let Some(owned) = self.owned.get_mut(at..end) {
            owned.fill(0);
        }
    }

    /// Gives an object back. Programs that run now may still read it.
    pub fn release(&mut self, address: u64, n: usize) {
        self.later.push((address, n));
    }

    /// Between two programs: what was given back may be used again.
    pub(crate) fn settle(&mut self) {
        for (address, n) in self.later.drain(..) {
            let (at, room) = (address.wrapping_sub(BASE) as usize, Memory::room(n));
            if at + room <= self.bytes.len() {
                self.owned[at / 8..(at + room) / 8].fill(0);
                self.free.entry(room).or_default().push(address);
            }
        }
    }

    #[inline]
    fn find(&self, address: u64, n: usize) -> Result<usize, Miss> {
        let at = address.wrapping_sub(BASE) as usize;
        if n == 0 || at >= self.bytes.len() || n > self.bytes.len() - at {
            return Err(Miss::Outside);
        }
        let last = at + n - 1;
        let (first, end) = (at / 8, last / 8);
        if usize::from(self.owned[end]) <= last % 8
            || self.owned[first..end].iter().any(|owned| *owned != 8)
        {
            return Err(Miss::Gap);
        }
        Ok(at)
    }

    fn find_in_arena(&self, address: u64, n: usize) -> Option<usize> {
        // A pointer that the kernel knows to be of the arena (the answer of an allocation) is used
        // without a cast: only its lower half counts.
        let user = address.wrapping_sub(ARENA_USER);
        let at = if user < 1 << 32 { user } else { address.wrapping_sub(ARENA) };
        (at < 1 << 32 && n <= 4096).then_some(at as usize)
    }

    #[inline]
    pub(crate) fn load(&self, address: u64, n: usize) -> Result<u64, Miss> {
        match self.find(address, n) {
            Ok(at) => Ok(little(&self.bytes[at..at + n])),
            Err(miss) => match self.find_in_arena(address, n) {
                // A page that is not there reads as 0 (the fault is repaired).
                Some(at) => Ok(little(self.arena.get(at..at + n).unwrap_or_default())),
                None => Err(miss),
            },
        }
    }

    #[inline]
    pub(crate) fn store(&mut self, address: u64, n: usize, value: u64) -> Result<(), Miss> {
        match self.find(address, n) {
            Ok(at) => {
                self.bytes[at..at + n].copy_from_slice(&value.to_le_bytes()[..n]);
                Ok(())
            }
            Err(miss) => match self.find_in_arena(address, n) {
                Some(at) => {
                    if let Some(place) = self.arena.get_mut(at..at + n) {
                        place.copy_from_slice(&value.to_le_bytes()[..n]);
                    }
                    Ok(())
                }
                None => Err(miss),
            },
        }
    }

    /// A number of `n` (at most 8) bytes; 0 outside.
    pub fn read(&self, address: u64, n: usize) -> u64 {
        self.load(address, n.min(8)).unwrap_or(0)
    }
    /// A word; 0 outside.
    pub fn word(&self, address: u64) -> u64 {
        self.read(address, 8)
    }
    /// Writes a number of `n` (at most 8) bytes; nothing outside.
    pub fn write(&mut self, address: u64, n: usize, value: u64) {
        let _ = self.store(address, n.min(8), value);
    }
    /// Writes a word; nothing outside.
    pub fn set_word(&mut self, address: u64, value: u64) {
        self.write(address, 8, value);
    }
    /// The bytes of an object; `None` when they are not all of one.
    pub fn bytes(&self, address: u64, n: usize) -> Option<&[u8]> {
        match self.find(address, n) {
            Ok(at) => self.bytes.get(at..at + n),
            Err(_) if n == 0 => Some(&[]),
            Err(_) => {
                let at = self.find_in_arena(address, n)?;
                self.arena.get(at..at + n)
            }
        }
    }
    /// Writes bytes; false when they are not all of one object.
    pub fn put(&mut self, address: u64, bytes: &[u8]) -> bool {
        let n = bytes.len();
        let place = match self.find(address, n) {
            Ok(at) => self.bytes.get_mut(at..at + n),
            Err(_) if n == 0 => return true,
            Err(_) => match self.find_in_arena(address, n) {
                Some(at) => self.arena.get_mut(at..at + n),
                None => None,
            },
        };
        place.map(|place| place.copy_from_slice(bytes)).is_some()
    }
    /// Text of at most `max` bytes up to a zero byte.
    pub fn text(&self, address: u64, max: usize) -> String {
        let bytes: Vec<u8> = (0..max as u64)
            .map_while(|i| self.load(address.wrapping_add(i), 1).ok().filter(|byte| *byte != 0))
            .map(|byte| byte as u8)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// An arena of at most so many pages is there; its globals begin at the returned offset.
    pub(crate) fn open_arena(&mut self, pages: usize, globals: &[u8]) -> u64 {
        // Globals lie behind the first page, which stays out: its offset 0 means null.
        let at = PAGE;
        self.arena = vec![0; at + globals.len().next_multiple_of(PAGE)];
        self.arena[at..at + globals.len()].copy_from_slice(globals);
        self.arena_pages = pages.min(LARGEST / PAGE);
        self.arena_next = self.arena.len();
        at as u64
    }
    /// Allocates pages of the arena; 0: there are no more.
    pub(crate) fn arena_pages(&mut self, pages: u64) -> u64 {
        let at = self.arena_next;
        let Some(end) = (pages as usize).checked_mul(PAGE).and_then(|n| at.checked_add(n)) else {
            return 0;
        };
        if pages == 0 || end > self.arena_pages.saturating_mul(PAGE) {
            return 0;
        }
        self.arena.resize(end, 0);
        self.arena_next = end;
        ARENA_USER | at as u64
    }
    /// Bytes in use, of both arrays.
    pub fn used(&self) -> usize {
        self.bytes.len() + self.arena.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reaches_past_an_object_is_found() {
        let mut memory = Memory::default();
        let (a, b) = (memory.alloc(12).unwrap(), memory.alloc(64).unwrap());
        assert_eq!((a, b), (BASE + 4096, BASE + 4096 + 64), "addresses depend on nothing else");
        assert_eq!(memory.store(a + 8, 4, 7), Ok(()));
        assert_eq!(memory.load(a + 8, 4), Ok(7));
        assert_eq!(memory.load(a + 8, 8), Err(Miss::Gap), "four bytes of it are not the object's");
        assert_eq!(memory.load(a + 12, 1), Err(Miss::Gap));
        assert_eq!(memory.load(b - 8, 8), Err(Miss::Gap));
        assert_eq!(memory.load(0, 8), Err(Miss::Outside));
        assert_eq!(memory.load(u64::MAX, 8), Err(Miss::Outside));
        assert_eq!(memory.load(BASE + (1 << 40), 8), Err(Miss::Outside));
    }

    #[test]
    fn freed_memory_is_used_again_between_programs_only() {
        let mut memory = Memory::default();
        let a = memory.alloc(8).unwrap();
        memory.set_word(a, 5);
        memory.release(a, 8);
        assert_eq!(memory.word(a), 5, "a program that runs may still read it");
        assert_ne!(memory.alloc(8).unwrap(), a);
        memory.settle();
        assert_eq!(memory.load(a, 8), Err(Miss::Gap));
        assert_eq!(memory.alloc(8).unwrap(), a);
        assert_eq!(memory.word(a), 0);
    }

    #[test]
    fn an_arena_gives_pages_until_it_is_full() {
        let mut memory = Memory::default();
        assert_eq!(memory.open_arena(4, &[1, 2, 3]), 4096);
        assert_eq!(memory.read(ARENA + 4097, 1), 2);
        let page = memory.arena_pages(2);
        assert_eq!(page, ARENA_USER + 8192);
        assert_eq!(memory.store(ARENA + 8192, 8, 9), Ok(()));
        assert_eq!(memory.load(ARENA + 8192, 8), Ok(9));
        assert_eq!(memory.load(page, 8), Ok(9), "without a cast");
        assert_eq!((memory.arena_pages(1), memory.load(ARENA + (1 << 30), 4)), (0, Ok(0)));
    }
}
