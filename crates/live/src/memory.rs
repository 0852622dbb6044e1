//! The journal in memory: a file without a name (memfd) that owner and guardians hold open. What
//! happens to the journal's file - it is removed, cut or overwritten, its disk is full - changes
//! nothing of what they give back.
//!
//! Its first byte says whether everything is given back, and whether journal and claims are removed
//! after that; and eight bytes behind it where the journal's text begins: it moves on when the text
//! is replaced by a shorter one. There is room for the mark from the beginning.

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;

const OPEN: u8 = b'o';
const DONE: u8 = b'd';
const REMOVED: u8 = b'r';
/// Where the place of the first line is: eight bytes, aligned.
const BEGIN: u64 = 8;
/// The place of the first line at first.
const TEXT: u64 = 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct Memory(File);

impl Memory {
    pub(crate) fn create() -> io::Result<Memory> {
        let file = File::from(memfd_create("schedlab-journal", MemfdFlags::CLOEXEC)?);
        file.write_all_at(&[OPEN], 0)?;
        file.write_all_at(&TEXT.to_le_bytes(), BEGIN)?;
        Ok(Memory(file))
    }

    fn begin(&self) -> io::Result<u64> {
        let mut place = [0; 8];
        self.0.read_exact_at(&mut place, BEGIN)?;
        Ok(u64::from_le_bytes(place).max(TEXT))
    }

    /// Opens the one that this process inherited under the number `fd`.
    pub(crate) fn inherited(fd: i32) -> io::Result<Memory> {
        let file = OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{fd}"))?;
        Ok(Memory(file))
    }

    /// Adds lines. When that fails, none of them is there.
    pub(crate) fn append(&self, text: &str) -> io::Result<()> {
        let end = self.0.metadata()?.len();
        self.0.write_all_at(text.as_bytes(), end).inspect_err(|_| {
            // A line that is not whole is not read in any case.
            let _ = self.0.set_len(end);
        })
    }

    /// Puts other lines in the place of all that are there. A process that reads meanwhile, or
    /// after this one was killed here, reads the lines before, with these behind them or not, or
    /// these alone.
    pub(crate) fn replace(&self, text: &str) -> io::Result<()> {
        let (begin, end) = (self.begin()?, self.0.metadata()?.len());
        self.append(text)?;
        self.0.write_all_at(&end.to_le_bytes(), BEGIN)?;
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.0, hole, begin, end - begin)?)
    }

    /// Returns the text from place `from` on, and the place where it begins: further on when the
    /// lines there were replaced.
    pub(crate) fn read_from(&self, from: u64) -> io::Result<(u64, String)> {
        loop {
            let begin = self.begin()?;
            let at = begin.max(from);
            let length = self.0.metadata()?.len().saturating_sub(at);
            let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
            self.0.read_exact_at(&mut bytes, at)?;
            if self.begin()? == begin {
                return Ok((at, String::from_utf8_lossy(&bytes).into_owned()));
            }
        }
    }

    pub(crate) fn set_done(&self) -> io::Result<()> {
        self.0.write_all_at(&[DONE], 0)
    }

    /// Returns whether one of those who hold it has given everything back.
    pub(crate) fn is_done(&self) -> bool {
        self.mark().is_some_and(|mark| mark == DONE || mark == REMOVED)
    }

    /// Notes that the journal and the claims are removed, too.
    pub(crate) fn set_removed(&self) -> io::Result<()> {
        self.0.write_all_at(&[REMOVED], 0)
    }

    /// Returns whether one of those who hold it has removed the journal and the claims: who did the
    /// first may have been killed before the second.
    pub(crate) fn is_removed(&self) -> bool {
        self.mark() == Some(REMOVED)
    }

    fn mark(&self) -> Option<u8> {
        let mut mark = [OPEN];
        self.0.read_exact_at(&mut mark, 0).ok().map(|()| mark[0])
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn what_one_writes_the_other_reads() {
        let owner = Memory::create().expect("memory");
        let guardian = Memory::inherited(owner.as_fd().as_raw_fd()).expect("it is open");
        owner.append("a\n").expect("memory");
        owner.append("bc\n").expect("memory");
        assert_eq!(guardian.read_from(0).expect("readable"), (TEXT, "a\nbc\n".to_owned()));
        assert_eq!(guardian.read_from(TEXT + 2).expect("readable").1, "bc\n");
        assert!(!owner.is_done());
        guardian.set_done().expect("memory");
        assert!(owner.is_done() && !owner.is_removed());
        owner.set_removed().expect("memory");
        assert!(guardian.is_done() && guardian.is_removed());
        assert_eq!(owner.read_from(0).expect("readable").1, "a\nbc\n");
    }

    #[test]
    fn lines_that_are_replaced_take_no_memory_any_more() {
        let memory = Memory::create().expect("memory");
        let line = "x".repeat(1 << 16) + "\n";
        for round in 0..8 {
            (0..16).for_each(|_| memory.append(&line).expect("memory"));
            let read = memory.read_from(0).expect("readable").1;
            assert_eq!(read.len(), 16 * line.len() + if round == 0 { 0 } else { 5 });
            memory.replace("kept\n").expect("memory");
            let (at, text) = memory.read_from(TEXT).expect("readable");
            assert_eq!((at > TEXT, text.as_str()), (true, "kept\n"));
        }
        let blocks = std::os::unix::fs::MetadataExt::blocks(&memory.0.metadata().expect("open"));
        assert!(blocks * 512 < 1 << 16, "{blocks} blocks of 512 bytes");
    }
}
