//! What every source of events is decoded into before it becomes a recording.

use schedlab_model::{Ns, PrevState};

/// Where and when an event was written, and by which task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp<'a> {
    pub(super) at: Ns,
    pub(super) cpu: u32,
    pub(super) running: Running<'a>,
    pub(super) context: Context,
}

/// The task that was running, as the source shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Running<'a> {
    pub(super) comm: Name<'a>,
    /// Thread id; `None` when the source does not say (perf prints -1 for a task that is gone).
    pub(super) tid: Option<u32>,
    /// Process id, where the source shows it.
    pub(super) pid: Option<u32>,
}

/// In which context an event was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Context {
    /// The source does not show it.
    NotShown,
    Task,
    SoftIrq,
    HardIrq,
}

/// `common_flags` of a tracepoint (include/linux/trace_events.h): inside a hardware interrupt,
/// inside a softirq, inside an NMI.
const FLAG_HARDIRQ: u64 = 0x08;
const FLAG_SOFTIRQ: u64 = 0x10;
const FLAG_NMI: u64 = 0x40;

impl Context {
    /// Returns the context that the `common_flags` of a tracepoint tell.
    pub(super) const fn of_flags(flags: u64) -> Context {
        if flags & (FLAG_HARDIRQ | FLAG_NMI) != 0 {
            Context::HardIrq
        } else if flags & FLAG_SOFTIRQ != 0 {
            Context::SoftIrq
        } else {
            Context::Task
        }
    }
}

/// The name of a task as the source has it, which is looked at as text only where it differs from
/// what was known: names are in every event, and change almost never.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Name<'a> {
        Name(bytes)
    }

    /// Whether the source knows the name: ftrace writes `<...>` where it does not.
    #[inline]
    pub(super) fn is_told(self) -> bool {
        !self.0.is_empty() && self.0 != b"<...>"
    }

    /// Whether a task of this name is called so.
    #[inline]
    pub(super) fn is(self, comm: &str) -> bool {
        self.0 == comm.as_bytes()
    }

    /// The name as text. What is no UTF-8 is cut: names are for people.
    pub(super) fn text(self) -> &'a str {
        self.0.utf8_chunks().next().map_or("", |chunk| chunk.valid())
    }
}

impl<'a> From<&'a str> for Name<'a> {
    fn from(text: &'a str) -> Name<'a> {
        Name(text.as_bytes())
    }
}

/// One side of a switch, or the subject of another event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Who<'a> {
    pub(super) comm: Name<'a>,
    pub(super) tid: u32,
    /// The kernel's internal priority: 120 is nice 0, 0 to 99 are real-time.
    pub(super) prio: Option<i32>,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event<'a> {
    Switch {
        prev: Who<'a>,
        state: PrevState,
        next: Who<'a>,
    },
    /// The kernel begins to wake a task (`sched_waking`).
    Waking(Who<'a>),
    /// The task is on a run queue (`sched_wakeup`).
    Wakeup(Who<'a>),
    /// A new task is on a run queue (`sched_wakeup_new`).
    WakeupNew(Who<'a>),
    Migrate {
        task: Who<'a>,
        from: u32,
        to: u32,
    },
    Fork {
        child: Who<'a>,
    },
    Exit(Who<'a>),
    Exec {
        tid: u32,
    },
    SyscallEnter {
        number: u32,
    },
    SyscallExit,
    /// The recorder lost events of this CPU.
    Lost {
        count: u64,
    },
    /// A mark of schedlab's own, behind `schedlab: `.
    Mark(&'a str),
    /// An event that says nothing about the schedule, by name.
    Other(&'a str),
}
