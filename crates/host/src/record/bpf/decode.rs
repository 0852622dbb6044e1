//! The records of `bpf/sched.bpf.c`: 32 bytes each, laid out as its `struct record`.

use crate::record::limits::Class;
use crate::record::raw::{Comm, Context, RawEvent, RawKind};
use crate::record::switches::UNKNOWN_PRIO;
use schedlab_model::PrevState;

/// Bytes of a record.
pub(crate) const RECORD: usize = 32;
/// Where its sequence number is.
pub(crate) const SEQUENCE: usize = 24;

/// A thread that is not to be recorded: one stand-in on each CPU takes its place.
pub(crate) const OUTSIDE: u32 = u32::MAX;

const PREEMPTED: u8 = 1;
const PREV_OUTSIDE: u8 = 2;
const NEXT_OUTSIDE: u8 = 4;
const THROTTLED: u8 = 8;
/// Of [`TOLD`].
const FULLY_THROTTLED: u8 = 1;
/// From this bit on: the scheduling class of the task that stops, one of [`Class`] plus one; 0: not
/// told.
const CLASS_SHIFT: u8 = 4;

/// The kind of a record about a stretch that a rule may mean, and of one that only kept records
/// have: so many were lost before the next one.
pub(crate) const TOLD: u8 = 10;
pub(crate) const LOST_HERE: u8 = 255;

/// Returns the kind of a record.
pub(crate) fn kind_of(words: [u64; 4]) -> u8 {
    (words[2] >> 48) as u8
}

/// What the kernel tells of a task: see `told` in `bpf/sums.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    pub(crate) at: u64,
    pub(crate) tid: u32,
    pub(crate) since: u64,
    /// 0: it is seen for the first time; 1 it waited, 2 it ran, 3 it was blocked.
    pub(crate) what: u16,
    /// For how long a limit held it up.
    pub(crate) throttled: u64,
}

impl Told {
    /// Reads a record of kind [`TOLD`].
    pub(crate) fn read([at, ab, rest, last]: [u64; 4]) -> Told {
        let since = ab >> 32 | (rest & 0xffff_ffff) << 32;
        let fully = (rest >> 56) as u8 & FULLY_THROTTLED != 0;
        let throttled = if fully { at.saturating_sub(since) } else { last >> 32 << 10 };
        Told { at, tid: ab as u32, since, what: (rest >> 32) as u16, throttled }
    }
}

/// Turns the records of one CPU, which come in order, into events.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    last_at: u64,
    /// The first half of a name, and whose it is.
    name: Option<(u32, [u8; 8])>,
}

impl Decoder {
    /// Records vanished before now.
    pub(crate) fn lost(&mut self, count: u64) -> RawEvent {
        self.name = None;
        RawEvent { at: self.last_at, kind: RawKind::Lost { count } }
    }

    /// What goes before the event of a record, in order: in which system call the task blocks that
    /// stops, and whether a limit took its CPU away.
    pub(crate) fn before(&self, words: [u64; 4]) -> [Option<RawEvent>; 2] {
        let [at, ab, rest, last] = words;
        let (prev, kind, detail) = (ab as u32, (rest >> 48) as u8, (rest >> 56) as u8);
        if kind != 1 || prev == 0 || detail & PREV_OUTSIDE != 0 {
            return [None, None];
        }
        let event = |kind| RawEvent { at: self.last_at.max(at), kind };
        let call = ((last >> 32) as u32).checked_sub(1);
        let call = call.map(|number| event(RawKind::Call { tid: prev, number }));
        let runnable = rest as u32 & 0xffff == 0;
        let class = Class::of_number(detail >> CLASS_SHIFT).filter(|_| runnable);
        let next = if ab >> 32 == 0 {
            Class::Idle
        } else {
            Class::of_priority(i32::from((rest >> 32) as i16))
        };
        let held = match class {
            // From the queue of its group, the task that comes next.
            Some(_) if detail & THROTTLED != 0 => Some(RawKind::Held { tid: prev }),
            Some(class) if class < Class::Fair && class < next => {
                Some(RawKind::Displaced { tid: prev, class })
            }
            _ => None,
        };
        [call, held.map(event)]
    }

    /// The event of a record; `None` when it is half of one, or of an unknown kind.
    pub(crate) fn record(&mut self, words: [u64; 4]) -> Option<RawEvent> {
        let [at, ab, rest, _] = words;
        let (a, b, c) = (ab as u32, (ab >> 32) as u32, rest as u32);
        let (priority, kind, detail) =
            ((rest >> 32) as u16, (rest >> 48) as u8, (rest >> 56) as u8);
        // An interrupt between reading the clock and taking a slot may turn two records around.
        self.last_at = self.last_at.max(at);
        let kind = match kind {
            1 => switch(a, b, c, priority, detail),
            2 => RawKind::Wake { tid: a, comm: [0; 16], context: context(detail, b) },
            3 => RawKind::New { tid: a, parent: b, comm: [0; 16] },
            4 => RawKind::Exec { tid: a },
            5 => RawKind::Exit { tid: a },
            6 => RawKind::Migrate { tid: a, from: b, to: c },
            7 => RawKind::Regroup { tid: a },
            8 => {
                self.name = Some((a, half(b, c)));
                return None;
            }
            9 => {
                let (_, first) = self.name.take().filter(|(tid, _)| *tid == a)?;
                let mut comm: Comm = [0; 16];
                comm[..8].copy_from_slice(&first);
                comm[8..].copy_from_slice(&half(b, c));
                RawKind::Comm { tid: a, comm: super::super::tracepoints::comm_from(&comm) }
            }
            _ => return None,
        };
        Some(RawEvent { at: self.last_at, kind })
    }
}

fn half(low: u32, high: u32) -> [u8; 8] {
    (u64::from(low) | u64::from(high) << 32).to_ne_bytes()
}

fn switch(prev: u32, next: u32, state: u32, priority: u16, detail: u8) -> RawKind {
    let none = [0; 16];
    let shown = |tid: u32, bit: u8| if detail & bit != 0 { OUTSIDE } else { tid };
    let prev_state = if prev == 0 {
        PrevState::Runnable
    } else if detail & PREEMPTED != 0 {
        PrevState::RunnableInKernel
    } else {
        task_state(state & 0xffff, state >> 16)
    };
    let next_prio = if next == 0 { UNKNOWN_PRIO } else { i32::from(priority as i16) };
    RawKind::Switch {
        prev: shown(prev, PREV_OUTSIDE),
        prev_comm: none,
        prev_state,
        next: shown(next, NEXT_OUTSIDE),
        next_comm: none,
        next_prio,
    }
}

/// `__state` and `exit_state` of a task that stops running (Linux 5.14 to 6.18: the numbers of
/// TASK_... in sched.h; the word is decided in the order in which the tracepoint decides its
/// letter).
fn task_state(state: u32, exit: u32) -> PrevState {
    const DEAD: u32 = 0x80;
    const RTLOCK_WAIT: u32 = 0x1000;
    match state | exit {
        0 => PrevState::Runnable,
        both if both & 0x1 != 0 => PrevState::Sleeping,
        // TASK_IDLE is "uninterruptible, but no load" (0x402): the letter is I, and it sleeps.
        both if both & 0x402 == 0x402 => PrevState::Sleeping,
        both if both & (0x2 | RTLOCK_WAIT) != 0 => PrevState::DiskSleep,
        both if both & (0x4 | 0x8) != 0 => PrevState::Stopped,
        both if both & (0x10 | 0x20 | DEAD) != 0 => PrevState::Dead,
        both if both & 0x40 != 0 => PrevState::Sleeping,
        _ => PrevState::Blocked,
    }
}

fn context(detail: u8, current: u32) -> Context {
    match detail {
        1 => Context::Task(current),
        2 => Context::Inline(current),
        3 => Context::SoftIrq,
        4 => Context::HardIrq,
        _ => Context::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(at: u64, a: u32, b: u32, c: u32, priority: u16, kind: u8, detail: u8) -> [u64; 4] {
        let rest = u64::from(c)
            | u64::from(priority) << 32
            | u64::from(kind) << 48
            | u64::from(detail) << 56;
        [at, u64::from(a) | u64::from(b) << 32, rest, 0]
    }

    #[test]
    fn a_switch_knows_its_tasks_and_why_the_first_stopped() {
        let mut decoder = Decoder::default();
        let mut state =
            |c, detail| match decoder.record(words(5, 10, 20, c, 98, 1, detail)).unwrap().kind {
                RawKind::Switch { prev: 10, next: 20, next_prio: 98, prev_state, .. } => prev_state,
                other => panic!("{other:?}"),
            };
        assert_eq!(state(0, 0), PrevState::Runnable);
        assert_eq!(state(1, PREEMPTED), PrevState::RunnableInKernel);
        assert_eq!(state(1, 0), PrevState::Sleeping);
        assert_eq!(state(2, 0), PrevState::DiskSleep);
        assert_eq!(state(0x402, 0), PrevState::Sleeping);
        assert_eq!(state(4, 0), PrevState::Stopped);
        assert_eq!(state(0x80 | 0x20 << 16, 0), PrevState::Dead);
    }

    #[test]
    fn a_blocked_task_is_in_a_call_and_a_displaced_one_was_held_back() {
        let decoder = Decoder::default();
        let fair = 3 << CLASS_SHIFT;
        let kinds =
            |words: [u64; 4]| decoder.before(words).map(|event| event.map(|event| event.kind));
        let mut reads = words(5, 10, 20, 1, 120, 1, fair);
        reads[3] = 1 << 32;
        assert_eq!(kinds(reads), [Some(RawKind::Call { tid: 10, number: 0 }), None]);
        assert_eq!(
            kinds(words(5, 10, 20, 1, 120, 1, fair)),
            [None, None],
            "a page fault is no call"
        );
        let held = Some(RawKind::Held { tid: 10 });
        assert_eq!(kinds(words(5, 10, 20, 0, 120, 1, fair | THROTTLED)), [None, held]);
        let realtime = 2 << CLASS_SHIFT;
        let displaced = Some(RawKind::Displaced { tid: 10, class: Class::RealTime });
        assert_eq!(kinds(words(5, 10, 20, 0, 120, 1, realtime)), [None, displaced]);
        assert_eq!(
            kinds(words(5, 10, 0, 0, 120, 1, realtime)),
            [None, displaced],
            "idle instead of it"
        );
        assert_eq!(
            kinds(words(5, 10, 20, 0, 50, 1, realtime)),
            [None, None],
            "one of its own class"
        );
        assert_eq!(kinds(words(5, 10, 20, 1, 120, 1, realtime)), [None, None], "it blocked");
        let deadline = u16::MAX;
        assert_eq!(
            kinds(words(5, 10, 20, 0, deadline, 1, realtime)),
            [None, None],
            "a deadline is above it"
        );
        assert_eq!(
            kinds(words(5, 10, 20, 0, 120, 1, fair)),
            [None, None],
            "preempted, that is all"
        );
        assert_eq!(kinds(words(5, 10, 20, 0, 120, 1, realtime | PREV_OUTSIDE)), [None, None]);
        assert_eq!(kinds(words(5, 10, 20, 0, 120, 2, realtime)), [None, None], "no switch");
    }

    #[test]
    fn what_the_kernel_tells_has_a_beginning_and_what_a_limit_took() {
        let since = 0x12_3456_789a;
        let mut told = words(since + 5000, 7, since as u32, (since >> 32) as u32, 1, TOLD, 0);
        told[3] = 3 << 32;
        assert_eq!(kind_of(told), TOLD);
        let read = Told::read(told);
        assert_eq!((read.tid, read.since, read.what, read.throttled), (7, since, 1, 3072));
        told[2] |= 1 << 56;
        assert_eq!(Told::read(told).throttled, 5000, "all of it");
        assert_eq!(Decoder::default().record(told), None, "it is no event");
    }

    #[test]
    fn those_outside_are_one() {
        let mut decoder = Decoder::default();
        let event = decoder.record(words(5, 10, 20, 0, 120, 1, PREV_OUTSIDE)).unwrap();
        assert!(matches!(event.kind, RawKind::Switch { prev: OUTSIDE, next: 20, .. }));
        let event = decoder.record(words(6, 10, 0, 0, 120, 1, NEXT_OUTSIDE)).unwrap();
        assert!(matches!(event.kind, RawKind::Switch { prev: 10, next: OUTSIDE, .. }));
    }

    #[test]
    fn names_come_in_halves_and_time_never_goes_back() {
        let mut decoder = Decoder::default();
        let text =
            |at: usize| u32::from_ne_bytes(b"redis-server\0\0\0\0"[at..at + 4].try_into().unwrap());
        assert_eq!(decoder.record(words(9, 7, text(0), text(4), 0, 8, 0)), None);
        let event = decoder.record(words(8, 7, text(8), text(12), 0, 9, 0)).unwrap();
        assert_eq!(
            event,
            RawEvent { at: 9, kind: RawKind::Comm { tid: 7, comm: *b"redis-server\0\0\0\0" } }
        );
        assert_eq!(decoder.record(words(9, 7, 0, 0, 0, 9, 0)), None, "half a name is no name");
        assert_eq!(decoder.record(words(9, 7, 0, 0, 0, 200, 0)), None, "of an unknown kind");
        assert_eq!(decoder.lost(3), RawEvent { at: 9, kind: RawKind::Lost { count: 3 } });
    }
}
