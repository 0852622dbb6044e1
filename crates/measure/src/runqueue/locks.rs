//! The lock families and record layouts with which schedulers run here.

use schedlab_host::{Mcs, RawLock, Spin, SpinGuard, Tas, Ticket, cycles};
use schedlab_scheduler::{Knobs, Lock, Locks, OnLine, Scheduler, linux_pre_cfs};
use schemars::JsonSchema;
use serde::Serialize;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;

/// Which lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// Test and set.
    Tas,
    /// Ticket.
    Ticket,
    /// MCS queue.
    Mcs,
}

impl LockKind {
    /// All, with their names.
    pub const ALL: [(&'static str, LockKind); 3] =
        [("tas", LockKind::Tas), ("ticket", LockKind::Ticket), ("mcs", LockKind::Mcs)];

    /// Its name.
    pub fn name(self) -> &'static str {
        LockKind::ALL[self as usize].0
    }
}

/// How far the records of two tasks lie apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stride {
    /// 64 bytes: one cache line each, side by side.
    Line,
    /// 8 KiB, as the task structures of Linux 2.4 lay: all in few sets of the cache.
    Far,
}

impl Stride {
    /// Bytes from one record to the next.
    pub fn bytes(self) -> usize {
        match self {
            Stride::Line => 64,
            Stride::Far => 8192,
        }
    }
}

/// A `T` that starts an 8 KiB block.
#[derive(Debug, Default)]
#[repr(align(8192))]
pub(super) struct InBlock<T>(T);

impl<T> Deref for InBlock<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// A layout as a type.
trait Layout: 'static {
    type Slot<T: Default + Send + Sync + 'static>: Default + Send + Sync + Deref<Target = T>;
}

struct Lines;
struct Blocks;

impl Layout for Lines {
    type Slot<T: Default + Send + Sync + 'static> = OnLine<T>;
}

impl Layout for Blocks {
    type Slot<T: Default + Send + Sync + 'static> = InBlock<T>;
}

/// The family of locks of kind `R` with records laid out as `S`.
struct Real<R, S>(PhantomData<fn() -> (R, S)>);

/// A spinning lock as schedulers know one.
pub(super) struct Guarded<R: RawLock, T>(Spin<R, T>);

impl<R: RawLock, S: Layout> Locks for Real<R, S> {
    type Lock<T: Send + 'static> = Guarded<R, T>;
    type Slot<T: Default + Send + Sync + 'static> = S::Slot<T>;
}

impl<R: RawLock, T: 'static> Lock<T> for Guarded<R, T> {
    type Guard<'a> = SpinGuard<'a, R, T>;

    fn new(value: T) -> Self {
        Guarded(Spin::new(value))
    }
    #[inline]
    fn lock(&self) -> SpinGuard<'_, R, T> {
        self.0.lock()
    }
    #[inline]
    fn try_lock(&self) -> Option<SpinGuard<'_, R, T>> {
        self.0.try_lock()
    }
}

/// What a thread did with locks so far, in counts of the cycle counter.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meter {
    /// Locks taken.
    pub(super) taken: u64,
    /// Time between asking and having.
    pub(super) wait: u64,
    /// Time between having and letting go.
    pub(super) hold: u64,
}

thread_local! {
    static METER: Cell<Meter> = const { Cell::new(Meter { taken: 0, wait: 0, hold: 0 }) };
}

/// What the calling thread did so far.
pub(super) fn meter() -> Meter {
    METER.get()
}

/// A lock that writes down how long it was waited for and held. Writing costs time too: the task
/// that wants to know how long a decision takes uses the lock as it is.
#[derive(Debug, Default)]
struct Metered<R>(R);

impl<R: RawLock> RawLock for Metered<R> {
    type Token = (R::Token, u64);

    #[inline]
    fn acquire(&self) -> Self::Token {
        let asked = cycles();
        let token = self.0.acquire();
        (token, got(asked))
    }
    #[inline]
    fn try_acquire(&self) -> Option<Self::Token> {
        let asked = cycles();
        let token = self.0.try_acquire()?;
        Some((token, got(asked)))
    }
    #[inline]
    fn release(&self, (token, since): Self::Token) {
        let held = cycles().saturating_sub(since);
        self.0.release(token);
        let meter = METER.get();
        METER.set(Meter { hold: meter.hold + held, ..meter });
    }
}

fn got(asked: u64) -> u64 {
    let now = cycles();
    let meter = METER.get();
    METER.set(Meter {
        taken: meter.taken + 1,
        wait: meter.wait + now.saturating_sub(asked),
        ..meter
    });
    now
}

/// A scheduler that several threads may call at once.
pub(super) type Shared = Box<dyn Scheduler + Sync>;

/// Makes one of [`SCHEDULERS`]; `None`: no such.
pub(super) fn build(
    name: &str,
    cpus: usize,
    knobs: &Knobs,
    (lock, stride, metered): (LockKind, Stride, bool),
) -> Option<Shared> {
    match (stride, metered) {
        (Stride::Line, false) => plain::<Lines>(name, cpus, knobs, lock),
        (Stride::Far, false) => plain::<Blocks>(name, cpus, knobs, lock),
        (Stride::Line, true) => with_meter::<Lines>(name, cpus, knobs, lock),
        (Stride::Far, true) => with_meter::<Blocks>(name, cpus, knobs, lock),
    }
}

fn plain<S: Layout>(name: &str, cpus: usize, knobs: &Knobs, lock: LockKind) -> Option<Shared> {
    match lock {
        LockKind::Tas => with_locks::<Tas, S>(name, cpus, knobs),
        LockKind::Ticket => with_locks::<Ticket, S>(name, cpus, knobs),
        LockKind::Mcs => with_locks::<Mcs, S>(name, cpus, knobs),
    }
}

fn with_meter<S: Layout>(name: &str, cpus: usize, knobs: &Knobs, lock: LockKind) -> Option<Shared> {
    match lock {
        LockKind::Tas => with_locks::<Metered<Tas>, S>(name, cpus, knobs),
        LockKind::Ticket => with_locks::<Metered<Ticket>, S>(name, cpus, knobs),
        LockKind::Mcs => with_locks::<Metered<Mcs>, S>(name, cpus, knobs),
    }
}

/// Declares the schedulers that several threads may call at once, each by its name and what makes
/// it.
macro_rules! concurrent {
    ($($name:literal => $new:ident,)*) => {
        /// Which schedulers of `schedlab_scheduler::registry`: those that keep everything behind
        /// their locks.
        pub const SCHEDULERS: &[&str] = &[$($name),*];

        fn with_locks<R: RawLock, S: Layout>(name: &str, cpus: usize, knobs: &Knobs) -> Option<Shared> {
            match name {
                $($name => Some(Box::new(linux_pre_cfs::$new::<Real<R, S>>(cpus, knobs))),)*
                _ => None,
            }
        }
    };
}

concurrent! {
    "linux-2.4" => new_2_4,
    "linux-2.4-mq" => new_mq,
    "linux-2.4-o1" => new_2_4_o1,
    "linux-2.6.22" => new_2_6_22,
}
