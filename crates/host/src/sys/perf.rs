//! perf events and their rings: open, map, drain. The layout comes from the kernel's ABI header;
//! which records a ring holds is decided by the callers.

use perf_event_open_sys as abi;
use perf_event_open_sys::bindings as b;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// What one event records.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// A tracepoint by its id: sample id, time and the raw record.
    Tracepoint(u64),
    /// Context-switch, comm, fork and exit records without any sample (a dummy software event).
    ContextSwitches,
    /// Context-switch records alone.
    Switches,
}

/// On whose behalf, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// Every task on this CPU.
    Cpu(i32),
    /// This task and the children it creates later, while they are on this CPU. User space only, so
    /// that no privilege is needed.
    Tree { pid: i32, cpu: i32 },
}

/// One open perf event, disabled at first.
#[derive(Debug)]
pub(crate) struct Event {
    file: File,
}

fn attributes(what: What, target: Target) -> b::perf_event_attr {
    let mut attr = b::perf_event_attr {
        size: size_of::<b::perf_event_attr>() as u32,
        sample_type: u64::from(b::PERF_SAMPLE_IDENTIFIER) | u64::from(b::PERF_SAMPLE_TIME),
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    match what {
        What::Tracepoint(id) => {
            attr.type_ = b::PERF_TYPE_TRACEPOINT;
            attr.config = id;
            attr.sample_type |= u64::from(b::PERF_SAMPLE_RAW);
            attr.__bindgen_anon_1.sample_period = 1;
        }
        What::ContextSwitches | What::Switches => {
            attr.type_ = b::PERF_TYPE_SOFTWARE;
            attr.config = u64::from(b::PERF_COUNT_SW_DUMMY);
            attr.sample_type |= u64::from(b::PERF_SAMPLE_TID);
            attr.set_context_switch(1);
            if matches!(what, What::ContextSwitches) {
                attr.set_comm(1);
                attr.set_task(1);
            }
        }
    }
    attr.set_disabled(1);
    attr.set_sample_id_all(1);
    attr.set_use_clockid(1);
    // The reader polls: with a watermark beyond the ring's size the kernel never wakes it.
    attr.set_watermark(1);
    attr.__bindgen_anon_2.wakeup_watermark = u32::MAX;
    if let Target::Tree { .. } = target {
        attr.set_inherit(1);
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
    }
    attr
}

impl Event {
    /// Opens an event. The error says what the kernel answered (`EACCES`, `EPERM`: not allowed).
    pub(crate) fn open(what: What, target: Target) -> io::Result<Event> {
        Event::open_with(attributes(what, target), target)
    }

    /// As [`open`](Self::open), but every record wakes who polls the ring.
    pub(crate) fn open_waking(what: What, target: Target) -> io::Result<Event> {
        let mut attr = attributes(what, target);
        attr.set_watermark(0);
        attr.__bindgen_anon_2.wakeup_events = 1;
        Event::open_with(attr, target)
    }

    fn open_with(mut attr: b::perf_event_attr, target: Target) -> io::Result<Event> {
        let (pid, cpu) = match target {
            Target::Cpu(cpu) => (-1, cpu),
            Target::Tree { pid, cpu } => (pid, cpu),
        };
        // SAFETY: `attr` is a fully initialised perf_event_attr whose `size` is right and which
        // lives over the call; the kernel only reads it (and writes `size` on E2BIG).
        let fd = unsafe {
            abi::perf_event_open(&mut attr, pid, cpu, -1, u64::from(b::PERF_FLAG_FD_CLOEXEC) as _)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given us this descriptor; nothing else owns it.
        Ok(Event { file: unsafe { File::from_raw_fd(fd) } })
    }

    /// Takes only records that match, in the kernel: `pid == 4 || pid == 5`.
    pub(crate) fn filter(&self, expression: &CStr) -> io::Result<()> {
        // SAFETY: the descriptor is an open perf event; the kernel only reads the text, up to its
        // end mark.
        check(unsafe {
            abi::ioctls::SET_FILTER(self.file.as_raw_fd(), expression.as_ptr().cast_mut())
        })
    }

    /// Starts recording.
    pub(crate) fn enable(&self) -> io::Result<()> {
        // SAFETY: the descriptor is an open perf event; this request takes no pointer.
        check(unsafe { abi::ioctls::ENABLE(self.file.as_raw_fd(), 0) })
    }

    /// Stops recording.
    pub(crate) fn disable(&self) -> io::Result<()> {
        // SAFETY: as in `enable`.
        check(unsafe { abi::ioctls::DISABLE(self.file.as_raw_fd(), 0) })
    }

    /// Makes this event write into `ring` instead of a ring of its own. Both must be of one CPU.
    pub(crate) fn write_into(&self, ring: &Ring) -> io::Result<()> {
        self.write_into_fd(&ring.event.file)
    }

    /// As [`write_into`](Self::write_into), by a descriptor of the event that owns the ring.
    pub(crate) fn write_into_fd(&self, ring: &impl AsRawFd) -> io::Result<()> {
        // SAFETY: both descriptors are open files; this request takes the other descriptor by
        // value, and the kernel refuses one that is no perf event.
        check(unsafe { abi::ioctls::SET_OUTPUT(self.file.as_raw_fd(), ring.as_raw_fd()) })
    }

    /// The number that this event's records carry (`PERF_SAMPLE_IDENTIFIER`).
    pub(crate) fn id(&self) -> io::Result<u64> {
        let mut id = 0;
        // SAFETY: the kernel writes one u64 through the pointer, which is valid over the call.
        check(unsafe { abi::ioctls::ID(self.file.as_raw_fd(), &mut id) })?;
        Ok(id)
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The ring of one event (and of those that write into it), mapped. Records are consumed as they
/// are read.
pub(crate) struct Ring {
    /// The event that owns the ring.
    pub(crate) event: Event,
    base: NonNull<u8>,
    mapped: usize,
    page: usize,
    /// Bytes of the data area, a power of two.
    size: usize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to the thread that made it; every
// access goes through `&mut self` (data) or an atomic (head, tail).
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a ring of at least `bytes` (rounded up to a power of two of pages). When the memory
    /// limit (`perf_event_mlock_kb`, RLIMIT_MEMLOCK) forbids it, halves down to 128 KiB.
    pub(crate) fn map(event: Event, bytes: usize) -> io::Result<Ring> {
        let page = rustix::param::page_size();
        let mut size = bytes.max(page).next_power_of_two();
        loop {
            match Self::map_exactly(&event, page, size) {
                Ok(base) => return Ok(Ring { event, base, mapped: page + size, page, size }),
                Err(error) if size <= 128 << 10 => return Err(error),
                Err(_) => size /= 2,
            }
        }
    }

    fn map_exactly(event: &Event, page: usize, size: usize) -> io::Result<NonNull<u8>> {
        // SAFETY: a fresh shared mapping at an address of the kernel's choice; no existing memory
        // is affected. The descriptor is an open perf event.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                page + size,
                libc::PROT_READ | libc::PROT_WRITE,
                // No page fault later.
                libc::MAP_SHARED | libc::MAP_POPULATE,
                event.file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap returned address 0"))
    }

    /// For `poll`.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.file.as_fd()
    }

    /// Bytes of the data area.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    fn control(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: `offset` is that of data_head or data_tail inside the first page of the mapping,
        // which is 8-byte aligned and lives as long as `self`; the kernel accesses the words
        // atomically too.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Appends everything that is in the ring to `out` and frees its room. Whole records only: the
    /// kernel moves the head past complete records.
    pub(crate) fn drain(&mut self, out: &mut Vec<u8>) {
        let head = self.control(std::mem::offset_of!(b::perf_event_mmap_page, data_head));
        let tail = self.control(std::mem::offset_of!(b::perf_event_mmap_page, data_tail));
        // Acquire: the kernel wrote the records before it moved the head.
        let end = head.load(Ordering::Acquire);
        let start = tail.load(Ordering::Relaxed);
        let length = end.wrapping_sub(start).min(self.size as u64) as usize;
        let from = (start as usize) & (self.size - 1);
        let first = length.min(self.size - from);
        for (offset, count) in [(from, first), (0, length - first)] {
            // SAFETY: `offset + count` is within the data area, which starts one page into the
            // mapping. The kernel does not write the bytes between tail and head before the tail is
            // moved below, so nothing changes them while the slice exists.
            let part = unsafe {
                std::slice::from_raw_parts(self.base.as_ptr().add(self.page + offset), count)
            };
            out.extend_from_slice(part);
        }
        // Release: the copies above are done before the kernel may write there again.
        tail.store(end, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`, which nothing refers to any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}
