//! The journal in memory: a file without a name (memfd) that owner and guardians hold open. What happens to the journal's file - it is removed,
//! cut or overwritten, its disk is full - changes nothing of what they give back.
//!
//! Its first byte says whether everything is given back; the journal's text is behind it. It has room for the mark from the beginning.

use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;

const OPEN: u8 = b'o';
const DONE: u8 = b'd';

/// See the module.
#[derive(Debug)]
pub(crate) struct Memory(File);

impl Memory {
    pub(crate) fn create() -> io::Result<Memory> {
        let file = File::from(memfd_create("schedlab-journal", MemfdFlags::CLOEXEC)?);
        file.write_all_at(&[OPEN], 0)?;
        Ok(Memory(file))
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

    /// Returns the text from byte `from` on.
    pub(crate) fn read_from(&self, from: u64) -> io::Result<String> {
        let begin = from + 1;
        let length = self.0.metadata()?.len().saturating_sub(begin);
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.0.read_exact_at(&mut bytes, begin)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(crate) fn set_done(&self) -> io::Result<()> {
        self.0.write_all_at(&[DONE], 0)
    }

    /// Returns whether one of those who hold it has given everything back.
    pub(crate) fn is_done(&self) -> bool {
        let mut mark = [OPEN];
        self.0.read_exact_at(&mut mark, 0).is_ok() && mark[0] == DONE
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
        assert_eq!(guardian.read_from(0).expect("readable"), "a\nbc\n");
        assert_eq!(guardian.read_from(2).expect("readable"), "bc\n");
        assert!(!owner.is_done());
        guardian.set_done().expect("memory");
        assert!(owner.is_done());
        assert_eq!(owner.read_from(0).expect("readable"), "a\nbc\n");
    }
}
