//! Lock families. A scheduler is generic over [`Locks`]; the driver chooses: [`CellLocks`] in the
//! simulator (no atomics, recursion is a bug that panics), real locks in the native benchmark.

use std::cell::{RefCell, RefMut};
use std::ops::{Deref, DerefMut};

/// A family of locks, and how far apart the records of tasks lie that CPUs read without them.
pub trait Locks: Send + 'static {
    /// One thread makes all calls: what several CPUs write without a lock needs no atomic
    /// instructions, which cost some 20 cycles each.
    const ONE_THREAD: bool = false;
    /// A lock around a `T`.
    type Lock<T: Send + 'static>: Lock<T> + Send;
    /// A task's record in a table of them. Its size is the distance from one record to the next.
    type Slot<T: Default + Send + Sync + 'static>: Default + Send + Sync + Deref<Target = T>;
}

/// Mutual exclusion around a `T`.
pub trait Lock<T> {
    /// Releases the lock when dropped.
    type Guard<'a>: DerefMut<Target = T>
    where
        Self: 'a;
    /// An unlocked one.
    fn new(value: T) -> Self;
    /// Waits for it.
    fn lock(&self) -> Self::Guard<'_>;
    /// Takes it if it is free.
    fn try_lock(&self) -> Option<Self::Guard<'_>>;
}

/// The simulator's family: one thread, so a lock that is taken twice is a bug of the scheduler.
#[derive(Debug)]
pub struct CellLocks;

/// See [`CellLocks`].
#[derive(Debug, Default)]
pub struct CellLock<T>(RefCell<T>);

impl Locks for CellLocks {
    const ONE_THREAD: bool = true;
    type Lock<T: Send + 'static> = CellLock<T>;
    type Slot<T: Default + Send + Sync + 'static> = Dense<T>;
}

/// A record with the next one right behind it.
#[derive(Debug, Default)]
pub struct Dense<T>(T);

impl<T> Deref for Dense<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// A `T` that starts a cache line of 64 bytes.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct OnLine<T>(pub T);

impl<T> Deref for OnLine<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: 'static> Lock<T> for CellLock<T> {
    type Guard<'a> = RefMut<'a, T>;

    fn new(value: T) -> CellLock<T> {
        CellLock(RefCell::new(value))
    }
    #[inline]
    fn lock(&self) -> RefMut<'_, T> {
        self.0.try_borrow_mut().expect("a scheduler took a lock that it already holds")
    }
    #[inline]
    fn try_lock(&self) -> Option<RefMut<'_, T>> {
        self.0.try_borrow_mut().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_cannot_be_taken_again() {
        let lock = CellLock::new(1);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        *lock.lock() += 1;
        assert_eq!(*lock.lock(), 2);
    }
}
