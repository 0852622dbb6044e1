//! Memory shared with BPF programs: a memory-mapped array map.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One mapping, for reading and writing. The kernel's side changes it at any time: everything is
/// read through atomics.
#[derive(Debug)]
pub(crate) struct Shared {
    base: NonNull<u8>,
    bytes: usize,
}

impl Shared {
    /// Maps the first `bytes` of the array map `map` (created with BPF_F_MMAPABLE).
    pub(crate) fn map(map: BorrowedFd<'_>, bytes: usize) -> io::Result<Shared> {
        let page = rustix::param::page_size();
        let bytes = bytes.next_multiple_of(page);
        // SAFETY: a fresh shared mapping at an address of the kernel's choice; no existing memory
        // is affected.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(base.cast()) {
            Some(base) => Ok(Shared { base, bytes }),
            None => Err(io::Error::other("mmap returned address 0")),
        }
    }

    /// The word at `offset`, which must be a multiple of 8 inside the mapping.
    pub(crate) fn long(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes, "outside of the mapping");
        // SAFETY: inside the mapping (checked above), aligned (the mapping starts on a page), and
        // alive as long as `self`; the programs access it by single aligned instructions.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// The half word at `offset`, which must be a multiple of 4 inside the mapping.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes, "outside of the mapping");
        // SAFETY: as in `long`.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Four words from `offset`, which must be a multiple of 8.
    pub(crate) fn four(&self, offset: usize) -> [u64; 4] {
        let word = |at: usize| self.long(offset + at).load(Ordering::Relaxed);
        [word(0), word(8), word(16), word(24)]
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`, which nothing refers to any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
