//! A folder for the files of tests.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;

/// How the name of a folder begins.
const PREFIX: &str = "schedlab-test-";
/// A folder that is younger may not be locked yet.
const YOUNG: Duration = Duration::from_secs(60);

/// Returns a folder that only this user can write, the same for all tests of a process. In the
/// folder for temporary files itself another user who guesses a name could put a link there before
/// a test that root runs. What processes left that ended is removed.
///
/// # Panics
/// When no folder can be made.
pub fn temp_dir() -> PathBuf {
    // The lock says that the folder is in use, for as long as this process lives.
    static FOLDER: OnceLock<(PathBuf, File)> = OnceLock::new();
    let make = || {
        sweep(&std::env::temp_dir());
        let path = TempDir::with_prefix(PREFIX).expect("a folder for temporary files").keep();
        // Programs that a test runs as another user read there.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("a folder that was just made");
        let lock = File::open(&path).expect("a folder that was just made");
        lock.lock().expect("nothing else locks it");
        (path, lock)
    };
    FOLDER.get_or_init(make).0.clone()
}

/// Removes the folders that no process has locked. What is in use, or is another user's, stays.
fn sweep(all: &Path) {
    for entry in std::fs::read_dir(all).into_iter().flatten().flatten() {
        let of_tests = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let old = || {
            entry
                .metadata()
                .and_then(|data| data.modified())
                .is_ok_and(|at| at.elapsed().is_ok_and(|age| age > YOUNG))
        };
        if of_tests
            && old()
            && File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok())
        {
            // Best effort: the next process of tests tries again.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_ended_processes_left_is_removed_and_what_is_in_use_stays() {
        let all = TempDir::new().unwrap();
        let made = |name: &str, age: u64| {
            let path = all.path().join(format!("{PREFIX}{name}"));
            fs::create_dir_all(path.join("inner")).unwrap();
            let file = File::open(&path).unwrap();
            file.set_modified(std::time::SystemTime::now() - Duration::from_secs(age)).unwrap();
            (path, file)
        };
        let ((left, _), (used, lock), (young, _)) =
            (made("left", 100), made("used", 100), made("young", 10));
        lock.lock().unwrap();
        sweep(all.path());
        assert!(!left.exists() && used.exists() && young.exists());
        assert_eq!(temp_dir(), temp_dir());
        assert!(temp_dir().is_dir());
    }
}
