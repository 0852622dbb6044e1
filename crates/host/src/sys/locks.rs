//! Spinning locks as kernels have had them, behind safe types: for measurements only. A thread that
//! waits burns its CPU; if the holder is not running, it burns it for nothing.

use std::cell::{RefCell, UnsafeCell};
use std::hint::spin_loop;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// What a lock of this module does: waits its turn, and gives it on.
pub trait RawLock: Default + Send + Sync + 'static {
    /// What the holder keeps until it lets go.
    type Token;
    /// Spins until the lock is held.
    fn acquire(&self) -> Self::Token;
    /// Takes it if it is free.
    fn try_acquire(&self) -> Option<Self::Token>;
    /// Lets it go. The token is that of the holder.
    fn release(&self, token: Self::Token);
}

/// One word: test, then test and set (Linux up to 2.6.24 on x86). The task that is quickest gets
/// it.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Tas(AtomicBool);

impl RawLock for Tas {
    type Token = ();

    #[inline]
    fn acquire(&self) {
        while self.0.swap(true, Ordering::Acquire) {
            while self.0.load(Ordering::Relaxed) {
                spin_loop();
            }
        }
    }
    #[inline]
    fn try_acquire(&self) -> Option<()> {
        (!self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::Acquire)).then_some(())
    }
    #[inline]
    fn release(&self, (): ()) {
        self.0.store(false, Ordering::Release);
    }
}

/// Draw a number and wait until it is called (Linux 2.6.25 to 4.1 on x86): first come, first
/// served; all wait on one word.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Ticket {
    next: AtomicU32,
    serving: AtomicU32,
}

impl RawLock for Ticket {
    type Token = ();

    #[inline]
    fn acquire(&self) {
        let mine = self.next.fetch_add(1, Ordering::Relaxed);
        while self.serving.load(Ordering::Acquire) != mine {
            spin_loop();
        }
    }
    #[inline]
    fn try_acquire(&self) -> Option<()> {
        let serving = self.serving.load(Ordering::Relaxed);
        let took = self.next.compare_exchange(
            serving,
            serving.wrapping_add(1),
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        took.is_ok().then_some(())
    }
    #[inline]
    fn release(&self, (): ()) {
        // Only the holder writes here.
        self.serving.store(self.serving.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }
}

/// A place in an MCS queue; each on a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Node {
    next: AtomicPtr<Node>,
    waits: AtomicBool,
}

/// A queue of waiters, each spinning on a line of its own (Mellor-Crummey and Scott 1991; the slow
/// path of Linux's queued spin locks since 4.2).
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Mcs {
    tail: AtomicPtr<Node>,
}

/// The holder's place in the queue of an [`Mcs`].
#[derive(Debug)]
pub struct McsToken(NonNull<Node>);

/// Places that a thread keeps for its next locks.
#[derive(Default)]
struct Spare(Vec<NonNull<Node>>);

impl Drop for Spare {
    fn drop(&mut self) {
        for node in self.0.drain(..) {
            // SAFETY: it came from `Box::leak` in `place` and is in no queue: nothing else knows
            // it.
            drop(unsafe { Box::from_raw(node.as_ptr()) });
        }
    }
}

thread_local! {
    static SPARE: RefCell<Spare> = RefCell::default();
}

fn place() -> NonNull<Node> {
    let kept = SPARE.try_with(|spare| spare.borrow_mut().0.pop()).ok().flatten();
    kept.unwrap_or_else(|| NonNull::from(Box::leak(Box::default())))
}

fn put_back(node: NonNull<Node>) {
    // A thread that is ending keeps none: the few bytes are lost then.
    let _ = SPARE.try_with(|spare| spare.borrow_mut().0.push(node));
}

impl RawLock for Mcs {
    type Token = McsToken;

    #[inline]
    fn acquire(&self) -> McsToken {
        let own = place();
        // SAFETY: `own` came from `place` and stays allocated until `put_back`, which comes after
        // the release.
        let node = unsafe { own.as_ref() };
        node.next.store(ptr::null_mut(), Ordering::Relaxed);
        node.waits.store(true, Ordering::Relaxed);
        let before = self.tail.swap(own.as_ptr(), Ordering::AcqRel);
        if let Some(before) = NonNull::new(before) {
            // SAFETY: the one before us cannot leave the queue before it has seen its `next`, which
            // we set here.
            unsafe { before.as_ref() }.next.store(own.as_ptr(), Ordering::Release);
            while node.waits.load(Ordering::Acquire) {
                spin_loop();
            }
        }
        McsToken(own)
    }

    #[inline]
    fn try_acquire(&self) -> Option<McsToken> {
        if !self.tail.load(Ordering::Relaxed).is_null() {
            return None;
        }
        let own = place();
        // SAFETY: as in `acquire`.
        unsafe { own.as_ref() }.next.store(ptr::null_mut(), Ordering::Relaxed);
        let took = self.tail.compare_exchange(
            ptr::null_mut(),
            own.as_ptr(),
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if took.is_ok() {
            return Some(McsToken(own));
        }
        put_back(own);
        None
    }

    #[inline]
    fn release(&self, McsToken(own): McsToken) {
        // SAFETY: the holder's place, allocated until `put_back` below.
        let node = unsafe { own.as_ref() };
        let mut next = node.next.load(Ordering::Acquire);
        if next.is_null() {
            let last = self.tail.compare_exchange(
                own.as_ptr(),
                ptr::null_mut(),
                Ordering::Release,
                Ordering::Relaxed,
            );
            if last.is_ok() {
                return put_back(own);
            }
            // Another thread has taken the tail and is about to say who it is.
            while next.is_null() {
                spin_loop();
                next = node.next.load(Ordering::Acquire);
            }
        }
        // SAFETY: the next one waits for the store below, so its place is still allocated.
        unsafe { (*next).waits.store(false, Ordering::Release) };
        put_back(own);
    }
}

/// A `T` that only the holder of the lock can reach.
#[derive(Debug, Default)]
pub struct Spin<R: RawLock, T> {
    raw: R,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one thread at a time, which the lock sees to; so it must be fit
// to be handed from thread to thread, and no more.
unsafe impl<R: RawLock, T: Send> Sync for Spin<R, T> {}

impl<R: RawLock, T> Spin<R, T> {
    /// An unlocked one.
    pub fn new(value: T) -> Spin<R, T> {
        Spin { raw: R::default(), value: UnsafeCell::new(value) }
    }

    /// Spins until it is held. A thread that locks it twice hangs.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, R, T> {
        SpinGuard { token: Some(self.raw.acquire()), lock: self, shares: PhantomData }
    }

    /// Takes it if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, R, T>> {
        Some(SpinGuard { token: Some(self.raw.try_acquire()?), lock: self, shares: PhantomData })
    }
}

/// Lets the lock go when it is dropped.
#[derive(Debug)]
pub struct SpinGuard<'a, R: RawLock, T> {
    token: Option<R::Token>,
    lock: &'a Spin<R, T>,
    /// Who shares a guard shares the value.
    shares: PhantomData<&'a mut T>,
}

impl<R: RawLock, T> Deref for SpinGuard<'_, R, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held by this guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<R: RawLock, T> DerefMut for SpinGuard<'_, R, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held by this guard, of which there is one.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<R: RawLock, T> Drop for SpinGuard<'_, R, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(token) = self.token.take() {
            self.lock.raw.release(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two halves that are equal whenever the lock is free.
    fn counts<R: RawLock>() {
        let both = Spin::<R, (u64, u64)>::new((0, 0));
        // Waiters that spin while the next in line has no CPU spin for whole slices: more would
        // take minutes beside a load.
        let per_thread = 200;
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for i in 0..per_thread {
                        // A miss of try_lock is fine, a second holder is not.
                        let mut held = if i % 3 == 0 { both.try_lock() } else { None }
                            .unwrap_or_else(|| both.lock());
                        assert_eq!(held.0, held.1);
                        held.0 += 1;
                        // Gives the others a chance to come in between, if they can.
                        if i % 16 == 0 {
                            std::thread::yield_now();
                        }
                        held.1 += 1;
                    }
                });
            }
        });
        assert_eq!(*both.lock(), (3 * per_thread, 3 * per_thread));
    }

    #[test]
    fn one_holder_at_a_time() {
        counts::<Tas>();
        counts::<Ticket>();
        counts::<Mcs>();
    }

    fn nests<R: RawLock>() {
        let locks: Vec<Spin<R, u32>> = (0..3).map(|n| Spin::new(n)).collect();
        let guards: Vec<_> = locks.iter().map(Spin::lock).collect();
        assert!(locks.iter().all(|lock| lock.try_lock().is_none()));
        // Let go in the order in which they were taken: not the order of a stack.
        drop(guards);
        assert!(locks.iter().all(|lock| lock.try_lock().is_some()));
    }

    #[test]
    fn a_thread_may_hold_several() {
        nests::<Tas>();
        nests::<Ticket>();
        nests::<Mcs>();
    }
}
