//! The few inputs that are in memory: those that were asked for last.

use std::sync::{Arc, Mutex, PoisonError};

/// How many are kept: of two recordings beside each other, each as it is seen and as it is played.
const KEPT: usize = 4;

/// Values by name, the last used at the end.
pub(crate) struct Cache<T>(Mutex<Vec<(String, Arc<T>)>>);

impl<T> Default for Cache<T> {
    fn default() -> Cache<T> {
        Cache(Mutex::default())
    }
}

impl<T> Cache<T> {
    /// Returns the value of this name, which is made where it is not there. Of two that are made at
    /// once one is kept.
    ///
    /// # Errors
    /// What making it says.
    pub(crate) fn get<E>(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        if let Some(known) = self.take(name) {
            return Ok(self.put(name, known));
        }
        let made = Arc::new(make()?);
        Ok(self.put(name, made))
    }

    fn take(&self, name: &str) -> Option<Arc<T>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = all.iter().position(|(known, _)| known == name)?;
        Some(all.remove(place).1)
    }

    fn put(&self, name: &str, value: Arc<T>) -> Arc<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = all.iter().find(|(known, _)| known == name) {
            return known.clone();
        }
        all.push((name.to_owned(), value.clone()));
        if all.len() > KEPT {
            all.remove(0);
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_used_stay() {
        let cache: Cache<usize> = Cache::default();
        let made = std::cell::Cell::new(0);
        let get = |name: &str| {
            *cache
                .get(name, || {
                    made.set(made.get() + 1);
                    Ok::<_, ()>(made.get())
                })
                .unwrap()
        };
        for (name, value) in [("a", 1), ("b", 2), ("a", 1), ("c", 3), ("d", 4), ("e", 5)] {
            assert_eq!(get(name), value, "{name}");
        }
        assert_eq!((get("a"), get("b")), (1, 6), "b was used before a");
        assert_eq!(cache.get("x", || Err::<usize, _>("no")), Err("no"));
    }
}
