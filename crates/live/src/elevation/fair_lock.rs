//! The lock of the agents: the agent that has waited longest has it next.
//!
//! The standard library's lock gives no turns: who lets it go and asks again has it before the one
//! that was woken for it is there. Two agents that find timers due again and again kept the third
//! from it for 100 ms, and the guardian ended the run (Linux 7.2-rt under emulation,
//! `cargo xtask guest 7.2-rt --test agents`).

use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module.
pub(super) struct FairLock<T> {
    inner: Mutex<T>,
    /// Who held it panicked: its content may be half changed.
    broken: AtomicBool,
}

impl<T> FairLock<T> {
    pub(super) fn new(value: T) -> FairLock<T> {
        FairLock { inner: Mutex::new(value), broken: AtomicBool::new(false) }
    }

    /// Waits for its turn. `None`: a holder died in the middle of a change.
    pub(super) fn lock(&self) -> Option<Held<'_, T>> {
        let guard = self.inner.lock();
        let held = Held { guard: Some(guard), broken: &self.broken };
        if self.broken.load(Ordering::Relaxed) { None } else { Some(held) }
    }

    /// What it holds, in whatever state it was left.
    pub(super) fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

/// The lock is held until this is dropped.
pub(super) struct Held<'a, T> {
    /// There until it is dropped.
    guard: Option<MutexGuard<'a, T>>,
    broken: &'a AtomicBool,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().expect("held until it is dropped")
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("held until it is dropped")
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.broken.store(true, Ordering::Relaxed);
        }
        if let Some(guard) = self.guard.take() {
            MutexGuard::unlock_fair(guard);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    /// Whether a thread of this process sleeps.
    fn sleeps(tid: u32) -> bool {
        let stat =
            std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    }

    #[test]
    fn who_waits_has_it_before_who_had_it() {
        for _ in 0..50 {
            let lock = Arc::new(FairLock::new(Vec::new()));
            let (send, receive) = channel();
            let held = lock.lock().unwrap();
            let theirs = lock.clone();
            let other = std::thread::spawn(move || {
                send.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()).unwrap();
                theirs.lock().unwrap().push("the other");
            });
            let tid = receive.recv().unwrap();
            while !sleeps(tid) {
                std::thread::yield_now();
            }
            drop(held);
            lock.lock().unwrap().push("this one");
            other.join().unwrap();
            assert_eq!(*lock.lock().unwrap(), ["the other", "this one"]);
        }
    }

    #[test]
    fn who_dies_in_a_change_leaves_it_broken() {
        let lock = Arc::new(FairLock::new(0));
        let theirs = lock.clone();
        let died = std::thread::spawn(move || {
            let mut held = theirs.lock().unwrap();
            *held = 7;
            panic!("on purpose");
        });
        assert!(died.join().is_err());
        assert!(lock.lock().is_none());
        assert_eq!(Arc::into_inner(lock).unwrap().into_inner(), 7);
    }
}
