//! The folder of the incidents' recordings: how they are called, and what they may take together.

use super::FlightError;
use rustix::fs::{Mode, OFlags};
use schedlab_files::FileId;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// How the names begin and end. Other files of the folder are left alone.
const NAME: (&str, &str) = ("flight-", ".slt");

/// Files of one second and rule that have names.
const SAME_SECOND: u32 = 1000;

/// The folder of the incidents' recordings.
#[derive(Clone, Debug)]
pub(super) struct Folder(PathBuf);

struct Kept {
    path: PathBuf,
    bytes: u64,
    modified: SystemTime,
}

impl Folder {
    /// Opens the folder, and makes it where it is missing.
    ///
    /// # Errors
    /// It is none, or cannot be written to.
    pub(super) fn open(path: &Path) -> Result<Folder, FlightError> {
        let failed = |source: io::Error| FlightError::Folder { path: path.to_owned(), source };
        schedlab_files::make_folder(path).map_err(failed)?;
        // Better now than at the first incident.
        tempfile::tempfile_in(path).map_err(failed)?;
        Ok(Folder(path.to_owned()))
    }

    /// Returns a new name for a recording of a rule.
    pub(super) fn place(&self, rule: &str, unix_ns: u64) -> PathBuf {
        let date = schedlab_model::text::iso8601(unix_ns);
        let second = date.split('.').next().unwrap_or(&date).trim_end_matches('Z');
        let stem = format!("{}{}-{rule}", NAME.0, second.replace(':', "-"));
        let more = (2..SAME_SECOND).map(|n| format!("{stem}-{n}"));
        let names = std::iter::once(stem.clone()).chain(more);
        let mut paths = names.map(|name| self.0.join(format!("{name}{}", NAME.1)));
        paths.find(|path| std::fs::symlink_metadata(path).is_err()).unwrap_or(self.0.join(stem))
    }

    fn kept(&self) -> io::Result<Vec<Kept>> {
        let mut kept = Vec::new();
        for entry in std::fs::read_dir(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // Of the entry, not of what a link points to.
            let Ok(data) = entry.metadata() else { continue };
            if data.is_file() && name.starts_with(NAME.0) && name.ends_with(NAME.1) {
                let modified = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                kept.push(Kept { path: entry.path(), bytes: data.len(), modified });
            }
        }
        kept.sort_by(|a, b| a.modified.cmp(&b.modified).then_with(|| a.path.cmp(&b.path)));
        Ok(kept)
    }

    /// Returns what the recordings take.
    pub(super) fn bytes(&self) -> u64 {
        self.kept().map_or(0, |kept| kept.iter().map(|one| one.bytes).sum())
    }

    /// Removes the oldest recordings until the others take at most `most`. `newest` stays. Returns
    /// what was removed.
    pub(super) fn shrink(&self, most: u64, newest: &Path) -> io::Result<Vec<PathBuf>> {
        let kept = self.kept()?;
        let mut bytes: u64 = kept.iter().map(|one| one.bytes).sum();
        let mut removed = Vec::new();
        for one in kept.iter().filter(|one| one.path != newest) {
            if bytes <= most {
                break;
            }
            schedlab_files::remove_if(&one.path, id(&one.path)?)?;
            bytes -= one.bytes;
            removed.push(one.path.clone());
        }
        Ok(removed)
    }
}

/// Returns which file is at a path, whatever it is; a link is not followed.
pub(super) fn id(path: &Path) -> io::Result<FileId> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    FileId::from_file(&std::fs::File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_oldest_go_first_and_strangers_stay() {
        let folder = tempfile::tempdir_in(schedlab_testing::temp_dir()).unwrap();
        let place = Folder::open(&folder.path().join("new/flight")).unwrap();
        let write = |name: &str, age: u64| {
            let path = place.0.join(name);
            std::fs::write(&path, [0; 100]).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
            path
        };
        let newest = write("flight-a.slt", 1000);
        let old = write("flight-b.slt", 500);
        let young = write("flight-c.slt", 10);
        let mine = write("mine.slt", 5000);
        let link = place.0.join("flight-link.slt");
        std::os::unix::fs::symlink(&mine, &link).unwrap();
        assert_eq!(place.bytes(), 300);
        assert_eq!(place.shrink(300, &newest).unwrap(), Vec::<PathBuf>::new());
        assert_eq!(place.shrink(299, &newest).unwrap(), vec![old]);
        assert_eq!(place.shrink(0, &newest).unwrap(), vec![young]);
        assert!(newest.exists() && mine.exists() && link.exists());
    }

    #[test]
    fn a_name_is_new_and_says_when_and_which_rule() {
        let folder = tempfile::tempdir_in(schedlab_testing::temp_dir()).unwrap();
        let place = Folder::open(folder.path()).unwrap();
        let name = |path: PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        let first = place.place("redis", 1_764_417_600_500_000_000);
        std::fs::write(&first, "").unwrap();
        assert_eq!(name(first), "flight-2025-11-29T12-00-00-redis.slt");
        let second = place.place("redis", 1_764_417_600_900_000_000);
        assert_eq!(name(second), "flight-2025-11-29T12-00-00-redis-2.slt");
    }
}
