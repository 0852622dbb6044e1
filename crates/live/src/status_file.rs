//! What a running driver tells about itself: a small file beside its journal, renewed a few times a
//! second, that `schedlab top` reads. It is a copy for other processes; nothing depends on it.

use crate::driver::Counts;
use crate::{LiveError, RunDir};
use schedlab_files::NewFile;
use schedlab_host::threads::{Identity, Served};
use schedlab_model::{CpuSet, Ns};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Ending of the file's name, instead of the journal's.
const EXTENSION: &str = "status";
/// The ending that earlier versions gave it.
const EARLIER: &str = "bulletin";
/// The ending that earlier versions gave one that was being written.
const DRAFT: &str = "draft";

/// The state of a driver.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DriverStatus {
    /// The driver's process.
    pub owner: Identity,
    /// The scheduler with its knobs.
    pub scheduler: String,
    /// The managed CPUs.
    pub cpus: CpuSet,
    /// For how long it has been managing.
    pub elapsed: Ns,
    /// What the agents did so far.
    pub counts: Counts,
    /// The managed threads that live.
    pub threads: Vec<StatusThread>,
}

/// A managed thread.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StatusThread {
    /// The thread.
    pub thread: Identity,
    /// The CPU time that it had had, and its waits, from its birth until it was managed; `None`:
    /// the kernel keeps no account.
    pub before: Option<Served>,
}

impl DriverStatus {
    /// Writes the file beside a journal. A reader sees a whole one, the old or the new.
    pub fn write(&self, journal: &Path) {
        let text = serde_json::to_string(self).unwrap_or_default();
        // Management must not end because a disk is full.
        let _ = NewFile::create(&journal.with_extension(EXTENSION)).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.put()
        });
    }

    /// Reads the file beside a journal; `None`: the owner of the journal writes none.
    pub fn read(journal: &Path) -> Option<DriverStatus> {
        let text = [EXTENSION, EARLIER]
            .into_iter()
            .find_map(|extension| fs::read_to_string(journal.with_extension(extension)).ok());
        serde_json::from_str(&text?).ok()
    }
}

/// Removes the files beside a journal: its driver is gone, perhaps while it wrote one.
pub(crate) fn remove(journal: &Path) {
    for extension in [EXTENSION, EARLIER, DRAFT] {
        // There may be none.
        let _ = fs::remove_file(journal.with_extension(extension));
    }
    let status = journal.with_extension(EXTENSION);
    let entries = journal
        .parent()
        .and_then(|folder| fs::read_dir(folder).ok())
        .into_iter()
        .flatten()
        .flatten();
    for half in
        entries.map(|entry| entry.path()).filter(|path| schedlab_files::is_part_of(path, &status))
    {
        let _ = fs::remove_file(half);
    }
}

/// Returns the status of every driver that lives, with its journal, in order of the journals'
/// names.
///
/// # Errors
/// When the folder cannot be read.
pub fn all(run_dir: &RunDir) -> Result<Vec<(PathBuf, DriverStatus)>, LiveError> {
    let journals = run_dir.journals()?.into_iter();
    let found =
        journals.filter_map(|journal| DriverStatus::read(&journal).map(|status| (journal, status)));
    Ok(found.filter(|(_, status)| status.owner.lives()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver of an earlier version may run, or may have been killed.
    #[test]
    fn the_file_of_an_earlier_version_is_read_and_removed() {
        let folder =
            schedlab_testing::temp_dir().join(format!("schedlab-status-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let journal = folder.join("1-2-0.journal");
        let status = DriverStatus {
            owner: schedlab_host::threads::identity(std::process::id()).expect("this process"),
            scheduler: "rr".to_owned(),
            cpus: CpuSet::first(1),
            elapsed: Ns(7),
            counts: Counts { yield_windows: 3, ..Counts::default() },
            threads: Vec::new(),
        };
        status.write(&journal);
        let text = fs::read_to_string(journal.with_extension(EXTENSION)).expect("written");
        assert!(text.contains("\"gifts\":3"), "the key of earlier versions: {text}");
        fs::rename(journal.with_extension(EXTENSION), journal.with_extension(EARLIER))
            .expect("it is there");
        assert_eq!(DriverStatus::read(&journal), Some(status));
        fs::write(folder.join("1-2-0.status.0123456789abcdef.part"), "half").expect("a folder");
        remove(&journal);
        assert_eq!(DriverStatus::read(&journal), None);
        fs::remove_dir(&folder).expect("nothing is left in it");
    }
}
