//! What the rings say, still in thread ids, before it becomes
//! [`SchedEvent`](schedlab_model::SchedEvent)s.

use super::limits::Class;
use schedlab_model::PrevState;
use schedlab_model::text::shown;

/// A thread's name as the kernel keeps it: 16 bytes, padded with zeros.
pub(crate) type Comm = [u8; 16];

/// One thing that happened on one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RawEvent {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub(crate) at: u64,
    pub(crate) kind: RawKind,
}

/// On whose behalf a wakeup ran, in thread ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Context {
    Task(u32),
    Inline(u32),
    SoftIrq,
    HardIrq,
    Unknown,
}

/// Thread id 0 is the idle task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RawKind {
    Switch {
        prev: u32,
        prev_comm: Comm,
        prev_state: PrevState,
        next: u32,
        next_comm: Comm,
        next_prio: i32,
    },
    Wake {
        tid: u32,
        comm: Comm,
        context: Context,
    },
    New {
        tid: u32,
        parent: u32,
        comm: Comm,
    },
    Exec {
        tid: u32,
    },
    Exit {
        tid: u32,
    },
    Migrate {
        tid: u32,
        from: u32,
        to: u32,
    },
    Regroup {
        tid: u32,
    },
    Lost {
        count: u64,
    },
    /// Own-tasks recording: a task of this process stopped or began to run; who else ran is not
    /// known.
    Out {
        tid: u32,
        state: PrevState,
    },
    In {
        tid: u32,
    },
    Comm {
        tid: u32,
        comm: Comm,
    },
    /// Before the switch of a task that blocks in a system call.
    Call {
        tid: u32,
        number: u32,
    },
    /// Before the switch of a task from which the limit of its control group took the CPU.
    Held {
        tid: u32,
    },
    /// Before the switch of a runnable task to one of a lower class: only a limit of its own class
    /// does that.
    Displaced {
        tid: u32,
        class: Class,
    },
}

/// The fixed part of a perf record and its body, cut from `bytes` in turn. A length that cannot be
/// right ends the walk: the rest of that drain is given up and reported as one lost record by the
/// caller.
pub(crate) struct Records<'a> {
    bytes: &'a [u8],
}

/// One perf record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) kind: u32,
    pub(crate) misc: u16,
    pub(crate) body: &'a [u8],
}

impl<'a> Records<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Records<'a> {
        Records { bytes }
    }
    /// Whether bytes are left that are not a record.
    pub(crate) fn broken(&self) -> bool {
        !self.bytes.is_empty()
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let (kind, rest) = self.bytes.split_first_chunk::<4>()?;
        let (misc, rest) = rest.split_first_chunk::<2>()?;
        let (size, _) = rest.split_first_chunk::<2>()?;
        let size = usize::from(u16::from_ne_bytes(*size));
        if size < 8 || size > self.bytes.len() {
            return None;
        }
        let body = &self.bytes[8..size];
        self.bytes = &self.bytes[size..];
        Some(Record { kind: u32::from_ne_bytes(*kind), misc: u16::from_ne_bytes(*misc), body })
    }
}

/// A native `u64` at `offset`.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(offset..offset + 8)?.try_into().ok()?))
}

/// A native `u32` at `offset`.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}

/// The name without its padding; bytes that are not UTF-8 are replaced, control characters escaped.
pub(crate) fn comm_text(comm: &Comm) -> String {
    let end = comm.iter().position(|&b| b == 0).unwrap_or(comm.len());
    shown(&String::from_utf8_lossy(&comm[..end])).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_records_and_stops_at_nonsense() {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&9u32.to_ne_bytes());
        bytes.extend_from_slice(&3u16.to_ne_bytes());
        bytes.extend_from_slice(&16u16.to_ne_bytes());
        bytes.extend_from_slice(&77u64.to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        let mut records = Records::new(&bytes);
        let record = records.next().unwrap();
        assert_eq!((record.kind, record.misc, u64_at(record.body, 0)), (9, 3, Some(77)));
        assert!(records.next().is_none());
        assert!(records.broken());
    }

    #[test]
    fn names_end_at_the_first_zero() {
        assert_eq!(comm_text(b"redis-server\0\0\0\0"), "redis-server");
        assert_eq!(comm_text(&[b'x'; 16]), "xxxxxxxxxxxxxxxx");
    }
}
