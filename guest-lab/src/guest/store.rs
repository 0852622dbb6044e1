//! Where fetched and built things lie, and what fetching cost.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What was fetched, its bytes, and how long that took.
type Fetched = (String, u64, Duration);

/// The folder of everything that is fetched: `schedlab/guest` in the user's cache
/// (`$XDG_CACHE_HOME`, else `~/.cache`), so that another checkout finds it, else
/// `target/guest/cache`.
pub(super) struct Store {
    root: PathBuf,
    fetched: Mutex<Vec<Fetched>>,
}

impl Store {
    /// The store of this tree.
    pub(super) fn open(tree: &Path) -> Store {
        let folder =
            |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let shared = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
        let root = shared
            .map_or_else(|| tree.join("target/guest/cache"), |path| path.join("schedlab/guest"));
        Store { root, fetched: Mutex::default() }
    }

    /// A folder of the store, made where it is missing.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.root.join(name);
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// Does `fetch`, and notes how long it took and how large the files are.
    pub(super) fn fetching<T: Paths>(
        &self,
        what: &str,
        fetch: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        println!("fetching {what}");
        let begin = Instant::now();
        let files = fetch()?;
        let bytes = files
            .paths()
            .iter()
            .filter_map(|path| path.metadata().ok())
            .map(|meta| meta.len())
            .sum();
        let mut fetched = self.fetched.lock().unwrap_or_else(PoisonError::into_inner);
        fetched.push((what.to_owned(), bytes, begin.elapsed()));
        Ok(files)
    }

    /// One line for each thing that was fetched now.
    pub(super) fn fetched(&self) -> Vec<String> {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let fetched = self.fetched.lock().unwrap_or_else(PoisonError::into_inner);
        fetched
            .iter()
            .map(|(what, bytes, time)| {
                format!(
                    "fetched {what}: {:.0} MB in {:.0} s",
                    megabytes(*bytes),
                    time.as_secs_f64()
                )
            })
            .collect()
    }
}

/// One file, or several.
pub(super) trait Paths {
    /// Their paths.
    fn paths(&self) -> &[PathBuf];
}

impl Paths for PathBuf {
    fn paths(&self) -> &[PathBuf] {
        std::slice::from_ref(self)
    }
}

impl Paths for Vec<PathBuf> {
    fn paths(&self) -> &[PathBuf] {
        self
    }
}
