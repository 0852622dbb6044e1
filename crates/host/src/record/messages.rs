//! From what the programs saw at objects to [`Fact`]s: which object, its place in 64 bits, and how
//! the operation ended.

mod objects;
mod unix_names;

use super::tasks::{Hint, Tasks};
use objects::Objects;
use rustix::time::ClockId;
use schedlab_model::{
    CpuId, Fact, FactKind, Limit, Ns, ObjectId, ObjectInfo, ObjectKind, Outcome, TaskId, Transfer,
};

/// One fact of one CPU, in thread ids and the kernel's numbers; the fields are those of
/// `struct fact` in `bpf/facts.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RawFact {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub(crate) at: u64,
    pub(crate) object: u64,
    pub(crate) other: u64,
    pub(crate) value: u64,
    pub(crate) tid: u32,
    pub(crate) n: i32,
    pub(crate) place: u32,
    pub(crate) word: u32,
    pub(crate) extra: u32,
    pub(crate) flags: u16,
    pub(crate) kind: u8,
    pub(crate) of: u8,
    pub(crate) limit: u8,
}

/// Kinds of [`RawFact::kind`].
pub(crate) mod kind {
    pub(crate) const SEND: u8 = 1;
    pub(crate) const RECEIVE: u8 = 2;
    pub(crate) const SELECT: u8 = 3;
    pub(crate) const FUTEX_WAIT: u8 = 5;
    pub(crate) const FUTEX_WAKE: u8 = 6;
    pub(crate) const SLEEP: u8 = 7;
    pub(crate) const ARM: u8 = 8;
    pub(crate) const OPEN: u8 = 9;
    pub(crate) const CLOSE: u8 = 10;
    pub(crate) const ACCEPT: u8 = 11;
    pub(crate) const CONNECT: u8 = 12;
    pub(crate) const SIGNAL: u8 = 13;
    pub(crate) const CHILD: u8 = 14;
    pub(crate) const IN_CALL: u8 = 15;
    /// Not of the programs: `value` facts of this CPU found no room.
    pub(crate) const LOST: u8 = 16;
}

/// Bits of [`RawFact::flags`].
pub(crate) mod flag {
    pub(crate) const PEEK: u16 = 1;
    pub(crate) const BY_KERNEL: u16 = 2;
    pub(crate) const LIMITED: u16 = 4;
    pub(crate) const PARTIAL: u16 = 8;
    pub(crate) const HAS_PLACE: u16 = 16;
    pub(crate) const IPV6: u16 = 32;
    pub(crate) const IPV6_IS_LONG: u16 = 64;
}

/// Kinds of objects in [`RawFact::of`], by number.
const OBJECTS: [ObjectKind; 15] = [
    ObjectKind::Other,
    ObjectKind::Tcp,
    ObjectKind::Udp,
    ObjectKind::Unix,
    ObjectKind::UnixDatagram,
    ObjectKind::Socket,
    ObjectKind::Listener,
    ObjectKind::Pipe,
    ObjectKind::Eventfd,
    ObjectKind::Timerfd,
    ObjectKind::Signalfd,
    ObjectKind::Epoll,
    ObjectKind::IoUring,
    ObjectKind::Futex,
    ObjectKind::SharedFutex,
];

impl RawFact {
    /// Returns what says that `count` facts before `at` found no room.
    pub(crate) fn lost(at: u64, count: u64) -> RawFact {
        RawFact { at, kind: kind::LOST, value: count, ..RawFact::default() }
    }

    fn object_kind(&self) -> ObjectKind {
        OBJECTS.get(usize::from(self.of)).copied().unwrap_or(ObjectKind::Other)
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Errors of system calls, as their negative results (include/uapi/asm-generic/errno*.h; those from
/// 512 on, include/linux/errno.h, a program never sees: a signal interrupted the call, which may
/// begin again).
const EINTR: i32 = -4;
const EAGAIN: i32 = -11;
const ETIMEDOUT: i32 = -110;
const EINPROGRESS: i32 = -115;
const RESTART: std::ops::RangeInclusive<i32> = -516..=-512;

fn outcome(result: i32) -> Outcome {
    match result {
        0.. => Outcome::Done,
        EAGAIN | EINPROGRESS => Outcome::WouldBlock,
        ETIMEDOUT => Outcome::TimedOut,
        EINTR => Outcome::Interrupted,
        other if RESTART.contains(&other) => Outcome::Interrupted,
        _ => Outcome::Failed,
    }
}

/// Turns what the programs saw into facts.
pub(crate) struct Messages {
    objects: Objects,
    /// CLOCK_MONOTONIC of the recording's time 0; and what CLOCK_REALTIME and CLOCK_BOOTTIME showed
    /// then.
    monotonic: u64,
    realtime: u64,
    boottime: u64,
}

impl Messages {
    /// For a recording whose time 0 is `origin` (CLOCK_MONOTONIC).
    pub(crate) fn new(origin: u64) -> Messages {
        let since = super::clock(ClockId::Monotonic).saturating_sub(origin);
        let then = |clock| super::clock(clock).saturating_sub(since);
        let (realtime, boottime) = (then(ClockId::Realtime), then(ClockId::Boottime));
        Messages { objects: Objects::default(), monotonic: origin, realtime, boottime }
    }

    /// Returns what is new or has changed about objects since the last time.
    pub(crate) fn fresh(&mut self) -> Vec<(ObjectId, ObjectInfo)> {
        self.objects.fresh()
    }

    /// Returns whether [`Messages::fresh`] has anything.
    pub(crate) fn has_fresh(&self) -> bool {
        self.objects.has_fresh()
    }

    /// Forgets connections that are closed for long.
    pub(crate) fn forget(&mut self, now: u64) {
        self.objects.forget(now);
    }

    /// Returns what the fact is; `None` when it is none, such as a wake that failed.
    pub(crate) fn fact(
        &mut self,
        at: Ns,
        cpu: CpuId,
        raw: &RawFact,
        tasks: &mut Tasks,
    ) -> Option<Fact> {
        let task = |tasks: &mut Tasks, tid: u32| tasks.find_or_add(tid, Hint::default());
        if raw.kind == kind::LOST {
            return Some(Fact { at, cpu, task: None, kind: FactKind::Lost { count: raw.value } });
        }
        let of = task(tasks, raw.tid)?;
        let other = match raw.kind {
            kind::SIGNAL | kind::CHILD => task(tasks, raw.extra),
            _ => None,
        };
        Some(Fact { at, cpu, task: Some(of), kind: self.kind(raw, other)? })
    }

    fn kind(&mut self, raw: &RawFact, other: Option<TaskId>) -> Option<FactKind> {
        let (until, n) = (self.limit(raw), raw.n);
        Some(match raw.kind {
            kind::SEND => FactKind::Send(self.transfer(raw)),
            kind::RECEIVE => FactKind::Receive(self.transfer(raw)),
            kind::SELECT => FactKind::Select {
                selector: (raw.of != 0).then(|| self.objects.object(raw)),
                ready: n.max(0) as u32,
                until,
                outcome: if n == 0 && waits(until) { Outcome::TimedOut } else { outcome(n) },
            },
            kind::FUTEX_WAIT => FactKind::FutexWait {
                futex: self.objects.object(raw),
                expected: raw.extra,
                until,
                // Here the error says that there was nothing to wait for.
                outcome: if n == EAGAIN { Outcome::Changed } else { outcome(n) },
            },
            kind::FUTEX_WAKE if n < 0 => return None,
            kind::FUTEX_WAKE => FactKind::FutexWake {
                futex: self.objects.object(raw),
                asked: raw.extra,
                woken: n as u32,
                requeue: (raw.other != 0).then(|| self.objects.named(raw.object_kind(), raw.other)),
            },
            kind::SLEEP => FactKind::Sleep { until, outcome: outcome(n) },
            kind::ARM => FactKind::Arm {
                timer: self.objects.object(raw),
                first: until,
                every: Ns(raw.other),
            },
            kind::OPEN => FactKind::Open { object: self.objects.begun(raw) },
            kind::CLOSE => FactKind::Close { object: self.objects.closed(raw) },
            kind::ACCEPT => FactKind::Accept {
                listener: self.objects.named(ObjectKind::Listener, raw.value),
                object: self.objects.accepted(raw),
            },
            kind::CONNECT => {
                FactKind::Connect { object: self.objects.begun(raw), outcome: outcome(n) }
            }
            kind::SIGNAL => FactKind::Signal { from: other, number: n as u32 },
            kind::CHILD => FactKind::Child { child: other },
            kind::IN_CALL => FactKind::Preempted { call: n as u32 },
            _ => return None,
        })
    }

    fn transfer(&mut self, raw: &RawFact) -> Transfer {
        let object = self.objects.object(raw);
        let place = raw.has(flag::HAS_PLACE).then(|| self.objects.place(raw));
        let streams =
            matches!(raw.object_kind(), ObjectKind::Tcp | ObjectKind::Unix | ObjectKind::Pipe);
        let ended = streams && raw.kind == kind::RECEIVE && raw.n == 0;
        Transfer {
            place,
            outcome: if ended { Outcome::End } else { outcome(raw.n) },
            partial: raw.has(flag::PARTIAL),
            limited: raw.has(flag::LIMITED),
            peek: raw.has(flag::PEEK),
            by_kernel: raw.has(flag::BY_KERNEL),
            ..Transfer::done(object, raw.n.max(0) as u32)
        }
    }

    fn limit(&self, raw: &RawFact) -> Limit {
        let since = |begin: u64| Limit::At(Ns(raw.value.saturating_sub(begin)));
        match raw.limit {
            0 => Limit::None,
            1 => Limit::For(Ns(raw.value)),
            2 => since(self.monotonic),
            3 => since(self.realtime),
            4 => since(self.boottime),
            _ => Limit::Unknown,
        }
    }
}

/// Whether a call with this limit would have waited, so that nothing ready means that its time was
/// over.
fn waits(until: Limit) -> bool {
    !matches!(until, Limit::None | Limit::For(Ns::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(kind: u8, of: u8, n: i32) -> RawFact {
        RawFact { kind, of, n, object: 0x1111_2222, ..RawFact::default() }
    }

    fn told(messages: &mut Messages, raw: &RawFact) -> FactKind {
        messages.kind(raw, None).expect("a fact")
    }

    #[test]
    fn results_are_told_apart() {
        let mut messages = Messages::new(1_000);
        let mut of = |kind, object, n| match told(&mut messages, &raw(kind, object, n)) {
            FactKind::Send(t) | FactKind::Receive(t) => (t.bytes, t.outcome),
            FactKind::FutexWait { outcome, .. } => (0, outcome),
            FactKind::Select { ready, outcome, .. } => (ready, outcome),
            other => panic!("{other:?}"),
        };
        assert_eq!(of(kind::RECEIVE, 1, 7), (7, Outcome::Done));
        assert_eq!(of(kind::RECEIVE, 1, 0), (0, Outcome::End));
        assert_eq!(of(kind::RECEIVE, 4, 0), (0, Outcome::Done), "an empty datagram is one");
        assert_eq!(of(kind::RECEIVE, 7, EAGAIN), (0, Outcome::WouldBlock));
        assert_eq!(of(kind::SEND, 1, 0), (0, Outcome::Done));
        assert_eq!(of(kind::SEND, 7, -32), (0, Outcome::Failed));
        assert_eq!(of(kind::SEND, 7, -512), (0, Outcome::Interrupted));
        assert_eq!(of(kind::FUTEX_WAIT, 13, EAGAIN), (0, Outcome::Changed));
        assert_eq!(of(kind::FUTEX_WAIT, 13, ETIMEDOUT), (0, Outcome::TimedOut));
        assert_eq!(of(kind::SELECT, 0, 0), (0, Outcome::Done), "it was not to wait");
        let timed = RawFact { limit: 1, value: 5, ..raw(kind::SELECT, 0, 0) };
        let limited = Limit::For(Ns(5));
        assert_eq!(
            told(&mut messages, &timed),
            FactKind::Select {
                selector: None,
                ready: 0,
                until: limited,
                outcome: Outcome::TimedOut
            }
        );
        assert_eq!(messages.kind(&raw(kind::FUTEX_WAKE, 13, EAGAIN), None), None);
        assert_eq!(messages.kind(&raw(200, 1, 0), None), None, "of an unknown kind");
    }

    #[test]
    fn deadlines_are_times_of_the_recording() {
        let origin = super::super::clock(ClockId::Monotonic) - 5_000_000;
        let mut messages = Messages::new(origin);
        let mut at = |limit, value| match told(
            &mut messages,
            &RawFact { limit, value, ..raw(kind::SLEEP, 0, 0) },
        ) {
            FactKind::Sleep { until: Limit::At(at), .. } => at,
            other => panic!("{other:?}"),
        };
        assert_eq!(at(2, origin + 77), Ns(77));
        assert_eq!(at(2, origin - 77), Ns::ZERO, "long ago");
        let now = super::super::clock(ClockId::Realtime);
        assert!((Ns(4_000_000)..Ns(60_000_000_000)).contains(&at(3, now)), "{}", at(3, now));
    }
}
