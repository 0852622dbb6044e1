//! The few inputs that are in memory: those that were asked for last. Of several that ask for one
//! at once the first makes it, and the others wait for it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many are kept: of two recordings beside each other, each as it is seen and as it is played.
const KEPT: usize = 4;
/// Time between two looks of one that waits at whether to end.
const LOOK: Duration = Duration::from_millis(50);

/// Values by name, the last used at the end.
pub(crate) struct Cache<T> {
    all: Mutex<Vec<(String, Place<T>)>>,
    changed: Condvar,
}

enum Place<T> {
    Made(Arc<T>),
    /// It is being made, and so many others wait for it.
    InMaking(usize),
}

impl<T> Default for Cache<T> {
    fn default() -> Cache<T> {
        Cache { all: Mutex::default(), changed: Condvar::new() }
    }
}

/// A value that is being made: its place is free again when it was not put there.
struct Making<'a, T> {
    cache: &'a Cache<T>,
    name: &'a str,
}

impl<T> Drop for Making<'_, T> {
    fn drop(&mut self) {
        let mut all = self.cache.all();
        all.retain(|(name, place)| name != self.name || matches!(place, Place::Made(_)));
        drop(all);
        self.cache.changed.notify_all();
    }
}

impl<T> Cache<T> {
    /// Returns the value of this name, which is made where it is not there; `None`: `stop` was set
    /// meanwhile. What makes it is told when it is needed no more: when `stop` is set, and no other
    /// waits for it.
    ///
    /// # Errors
    /// What making it says.
    pub(crate) fn get<E>(
        &self,
        name: &str,
        stop: &AtomicBool,
        make: impl FnOnce(&(dyn Fn() -> bool + Sync)) -> Result<T, E>,
    ) -> Result<Option<Arc<T>>, E>
    where
        T: Send + Sync,
    {
        let making = match self.known(name, stop) {
            Found::Known(known) => return Ok(Some(known)),
            Found::Stopped => return Ok(None),
            Found::Missing => Making { cache: self, name },
        };
        let made = Arc::new(make(&|| stop.load(Relaxed) && self.waiting(name) == 0)?);
        let mut all = self.all();
        if let Some((_, place)) = all.iter_mut().find(|(known, _)| known == name) {
            *place = Place::Made(made.clone());
        }
        used(&mut all, name);
        let is_made = |(_, place): &(String, Place<T>)| matches!(place, Place::Made(_));
        if all.iter().filter(|one| is_made(one)).count() > KEPT
            && let Some(oldest) = all.iter().position(is_made)
        {
            all.remove(oldest);
        }
        drop(all);
        drop(making);
        Ok(Some(made))
    }

    fn all(&self) -> MutexGuard<'_, Vec<(String, Place<T>)>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for a value, and waits for one that is being made. Where it is missing, the one who
    /// asked makes it.
    fn known(&self, name: &str, stop: &AtomicBool) -> Found<T> {
        let mut all = self.all();
        loop {
            used(&mut all, name);
            match all.iter_mut().find(|(known, _)| known == name) {
                Some((_, Place::Made(value))) => return Found::Known(value.clone()),
                Some(_) if stop.load(Relaxed) => return Found::Stopped,
                Some((_, Place::InMaking(waiting))) => *waiting += 1,
                None => {
                    all.push((name.to_owned(), Place::InMaking(0)));
                    return Found::Missing;
                }
            }
            let woken = self.changed.wait_timeout(all, LOOK);
            all = woken.unwrap_or_else(PoisonError::into_inner).0;
            if let Some((_, Place::InMaking(waiting))) =
                all.iter_mut().find(|(known, _)| known == name)
            {
                *waiting = waiting.saturating_sub(1);
            }
        }
    }

    fn waiting(&self, name: &str) -> usize {
        let all = self.all();
        let place = all.iter().find(|(known, _)| known == name);
        place.map_or(0, |(_, place)| if let Place::InMaking(count) = place { *count } else { 0 })
    }
}

enum Found<T> {
    Known(Arc<T>),
    Missing,
    Stopped,
}

/// Moves a value to the end.
fn used<T>(all: &mut Vec<(String, Place<T>)>, name: &str) {
    if let Some(place) = all.iter().position(|(known, _)| known == name) {
        let value = all.remove(place);
        all.push(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::channel;
    use std::thread;

    static GO_ON: AtomicBool = AtomicBool::new(false);

    #[test]
    fn the_last_used_stay() {
        let cache: Cache<usize> = Cache::default();
        let made = std::cell::Cell::new(0);
        let get = |name: &str| {
            let value = cache.get(name, &GO_ON, |_| {
                made.set(made.get() + 1);
                Ok::<_, ()>(made.get())
            });
            *value.unwrap().unwrap()
        };
        for (name, value) in [("a", 1), ("b", 2), ("a", 1), ("c", 3), ("d", 4), ("e", 5)] {
            assert_eq!(get(name), value, "{name}");
        }
        assert_eq!((get("a"), get("b")), (1, 6), "b was used before a");
        assert_eq!(cache.get("x", &GO_ON, |_| Err::<usize, _>("no")), Err("no"));
        assert_eq!(cache.get("x", &GO_ON, |_| Ok::<_, ()>(9)), Ok(Some(Arc::new(9))));
    }

    /// Two that ask at once share one preparation, which goes on while one of them needs it.
    #[test]
    fn what_two_ask_for_is_made_once() {
        let cache: Cache<u32> = Cache::default();
        let (made, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (begin, begun) = channel();
        let (end, ended) = channel::<()>();
        thread::scope(|threads| {
            let (cache, made, stop) = (&cache, &made, &stop);
            let first = threads.spawn(move || {
                cache.get("a", stop, |is_over| {
                    made.fetch_add(1, Relaxed);
                    begin.send(()).unwrap();
                    ended.recv().unwrap();
                    // The one who asked first is gone, and the other one is there.
                    if is_over() { Err("over") } else { Ok(7) }
                })
            });
            begun.recv().unwrap();
            let second = threads.spawn(move || {
                cache.get("a", &AtomicBool::new(false), |_| {
                    made.fetch_add(1, Relaxed);
                    Ok::<_, &str>(8)
                })
            });
            while cache.waiting("a") == 0 {
                thread::yield_now();
            }
            stop.store(true, Relaxed);
            // A third one that is told to end does not wait.
            assert_eq!(cache.get("a", stop, |_| Ok::<_, &str>(9)), Ok(None));
            end.send(()).unwrap();
            assert_eq!(first.join().unwrap().unwrap().as_deref(), Some(&7));
            assert_eq!(second.join().unwrap().unwrap().as_deref(), Some(&7));
        });
        assert_eq!(made.load(Relaxed), 1);
    }

    /// What no one waits for ends, and the next one who asks makes it.
    #[test]
    fn what_is_needed_no_more_ends() {
        let cache: Cache<u32> = Cache::default();
        let stop = AtomicBool::new(false);
        let made = cache.get("a", &stop, |is_over| {
            assert!(!is_over());
            stop.store(true, Relaxed);
            if is_over() { Err("over") } else { Ok(1) }
        });
        assert_eq!(made, Err("over"));
        assert_eq!(cache.get("a", &GO_ON, |_| Ok::<_, ()>(2)), Ok(Some(Arc::new(2))));
    }
}
