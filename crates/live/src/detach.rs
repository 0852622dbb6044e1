//! Asks whoever manages threads to give them back, and sees to it that it happens.

use crate::journal::Record;
use crate::restore::{Report, restore};
use crate::{LiveError, Room};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long an owner has to put everything back by itself.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often we look.
const STEP: Duration = Duration::from_millis(5);

/// How one owner gave back what it managed.
#[derive(Debug)]
pub enum Detached {
    /// By itself, when it was asked to end.
    ByOwner {
        /// The owner.
        owner: u32,
    },
    /// The owner was dead, or did not answer and was killed; we put it back.
    ByUs {
        /// The owner.
        owner: u32,
        /// Where the journal lay.
        journal: PathBuf,
        /// What became of everything.
        report: Report,
    },
}

/// Which owners are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// Only those that are dead: `schedlab restore`.
    Dead,
    /// All: `schedlab detach`.
    All,
}

/// Ends the management of threads and puts everything back. Owners that live get SIGTERM first, and SIGKILL when they
/// have not put everything back after two seconds.
///
/// # Errors
/// When the folder or a journal cannot be read; journals that can are served first.
pub fn detach(room: &Room, whose: Whose) -> Result<Vec<Detached>, LiveError> {
    let mut done = Vec::new();
    let mut first_error = None;
    for path in room.journals()? {
        match one(&path, whose) {
            Ok(detached) => done.extend(detached),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    first_error.map_or(Ok(done), Err)
}

fn one(path: &Path, whose: Whose) -> Result<Option<Detached>, LiveError> {
    let Some(record) = Record::read(path)? else {
        // Nothing was changed under it. Its owner may be about to write the first line: leave the file to it.
        return Ok(None);
    };
    let owner = &record.head.owner;
    if owner.lives() {
        if whose == Whose::Dead {
            return Ok(None);
        }
        end(&record, Signal::TERM);
        if !path.exists() {
            return Ok(Some(Detached::ByOwner { owner: owner.tid }));
        }
        end(&record, Signal::KILL);
    }
    let report = restore(path)?;
    Ok(Some(Detached::ByUs { owner: owner.tid, journal: path.to_owned(), report }))
}

/// Sends a signal and waits until the journal or the owner is gone, for as long as our patience lasts.
fn end(record: &Record, signal: Signal) {
    let owner = &record.head.owner;
    if let Some(pid) = Pid::from_raw(owner.tid as i32) {
        // It may have ended in this moment.
        let _ = kill_process(pid, signal);
    }
    let asked = Instant::now();
    while owner.lives() && record.path.exists() && asked.elapsed() < PATIENCE {
        std::thread::sleep(STEP);
    }
}
