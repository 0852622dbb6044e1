//! What a running driver tells about itself: a small file beside its journal, renewed a few times a second, that
//! `schedlab top` reads. It is a copy for onlookers; nothing depends on it.

use crate::elevation::Counts;
use crate::{LiveError, RunDir};
use schedlab_host::threads::{Identity, Served};
use schedlab_model::{CpuSet, Ns};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// Ending of the file's name, instead of the journal's.
const EXTENSION: &str = "bulletin";
/// And of one that is being written.
const DRAFT: &str = "draft";

/// How a driver stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bulletin {
    /// The driver's process.
    pub owner: Identity,
    /// The scheduler with its knobs.
    pub scheduler: String,
    /// The managed CPUs.
    pub cpus: CpuSet,
    /// For how long it has been managing.
    pub elapsed: Ns,
    /// What the agent did so far.
    pub counts: Counts,
    /// The managed threads that live.
    pub threads: Vec<Taken>,
}

/// A managed thread.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Taken {
    /// Which.
    pub thread: Identity,
    /// What it had had of the CPU, from its birth until it was taken on; `None`: the kernel keeps no account.
    pub before: Option<Served>,
}

impl Bulletin {
    /// Writes it beside a journal. A reader sees a whole one, the old or the new.
    pub(crate) fn publish(&self, journal: &Path) {
        let (path, draft) = (journal.with_extension(EXTENSION), journal.with_extension(DRAFT));
        let text = serde_json::to_string(self).unwrap_or_default();
        // Onlookers can wait: management must not end because a disk is full.
        if fs::write(&draft, text).and_then(|()| fs::rename(&draft, &path)).is_err() {
            let _ = fs::remove_file(&draft);
        }
    }

    /// That of one journal; `None`: its owner publishes none.
    pub fn read(journal: &Path) -> Option<Bulletin> {
        let text = fs::read_to_string(journal.with_extension(EXTENSION)).ok()?;
        serde_json::from_str(&text).ok()
    }
}

/// The driver is gone.
pub(crate) fn forget(journal: &Path) {
    for extension in [EXTENSION, DRAFT] {
        // There may be none.
        let _ = fs::remove_file(journal.with_extension(extension));
    }
}

/// Those of all drivers that live, with their journals, in order of the names.
///
/// # Errors
/// When the folder cannot be read.
pub fn all(run_dir: &RunDir) -> Result<Vec<(PathBuf, Bulletin)>, LiveError> {
    let found = run_dir.journals()?.into_iter().filter_map(|path| Some((Bulletin::read(&path)?, path)));
    Ok(found.filter(|(bulletin, _)| bulletin.owner.lives()).map(|(one, path)| (path, one)).collect())
}
