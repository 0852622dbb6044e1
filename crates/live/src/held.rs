//! What owner and guardians hold open to give everything back: the journal in memory, its file for
//! the lock, and descriptors in reserve.

use crate::LiveError;
use crate::journal::{Journal, Record};
use crate::memory::Memory;
use crate::reserve::{Reserve, raise_limits};
use crate::restore::{self, Report};
use rustix::fs::{FlockOperation, flock};
use schedlab_host::threads::Identity;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// So long is waited for another process that gives the same back. It may be stopped; doing it
/// twice does no harm.
const LOCK: Duration = Duration::from_secs(2);
/// Between two tries, at first.
const PAUSE: Duration = Duration::from_millis(5);
/// And at most.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// See the module.
#[derive(Debug)]
pub(crate) struct Held {
    path: PathBuf,
    file: Option<File>,
    memory: Memory,
    reserve: Reserve,
}

impl Held {
    pub(crate) fn by_owner(journal: Journal, reserve: Reserve) -> Held {
        let (path, file, memory) = journal.into_parts();
        Held { path, file: Some(file), memory, reserve }
    }

    /// Opens what a guardian needs. `fd`: the memory, which it inherited.
    pub(crate) fn by_guardian(path: &Path, fd: i32) -> Result<Held, LiveError> {
        let memory = Memory::inherited(fd).map_err(LiveError::io("the journal in memory"))?;
        let reserve = Reserve::hold().map_err(LiveError::io("descriptors in reserve"))?;
        // It is for the lock only, and may have been removed.
        let file = File::open(path).ok();
        Ok(Held { path: path.to_owned(), file, memory, reserve })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns whether nothing is left to do.
    pub(crate) fn is_over(&self) -> bool {
        self.memory.is_removed()
    }

    /// Returns what the journal says, whatever became of its file.
    pub(crate) fn record(&self) -> Result<Record, LiveError> {
        let (_, text) = self.memory.read_from(0).map_err(LiveError::io("the journal in memory"))?;
        let bad = || LiveError::Journal {
            path: self.path.clone(),
            line: 1,
            fault: "there is no head".to_owned(),
        };
        Record::parse(&self.path, &text)?.ok_or_else(bad)
    }

    /// Gives everything back, and tries again for `patience` while something cannot be. When all is
    /// done, the journal and the claims are removed.
    pub(crate) fn give_back(&mut self, patience: Duration) -> Result<Report, LiveError> {
        self.reserve.release();
        raise_limits();
        self.look_for_file();
        let _lock = self.lock();
        if self.memory.is_done() {
            // Who gave it back may have been killed before it had removed journal and claims.
            return self.remove().map(|()| Report::default());
        }
        let record = self.record()?;
        let (begun, mut pause) = (Instant::now(), PAUSE);
        let mut report = restore::put_back(&record);
        while !report.complete() && begun.elapsed() < patience {
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
            report = report.then(restore::put_back(&record));
        }
        if report.complete() {
            self.memory.set_done().map_err(LiveError::io("the journal in memory"))?;
            self.remove()?;
        }
        Ok(report)
    }

    /// Removes what belongs to changes that are given back.
    fn remove(&self) -> Result<(), LiveError> {
        if !self.memory.is_removed() {
            restore::finished(&self.path, self.file.as_ref());
            self.memory.set_removed().map_err(LiveError::io("the journal in memory"))?;
        }
        Ok(())
    }

    /// As [`Held::give_back`], for an owner that was killed but may not have ended yet.
    pub(crate) fn give_back_after_death(
        &mut self,
        patience: Duration,
    ) -> Result<Report, LiveError> {
        self.reserve.release();
        let record = self.record()?;
        restore::after(&record, || self.give_back(patience))
    }

    /// Takes the file that is at the journal's path now, when it begins as the journal does: the
    /// owner may have written it anew.
    fn look_for_file(&mut self) {
        let Ok((_, text)) = self.memory.read_from(0) else { return };
        let Some((head, _)) = text.split_once('\n') else { return };
        let begin = |file: &File| {
            let mut begin = vec![0; head.len() + 1];
            file.read_exact_at(&mut begin, 0).map(|()| begin)
        };
        let found = File::open(&self.path).ok();
        let is_it =
            |file: &File| begin(file).is_ok_and(|begin| begin == format!("{head}\n").as_bytes());
        if let Some(file) = found.filter(is_it) {
            self.file = Some(file);
        }
    }

    fn lock(&self) -> Option<Lock<'_>> {
        let file = self.file.as_ref()?;
        let begun = Instant::now();
        while begun.elapsed() < LOCK {
            match flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(Lock(file)),
                Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
                Err(_) => return None,
            }
        }
        None
    }
}

struct Lock<'a>(&'a File);

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

/// What this process could not give back, nor its guardian.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftBehind {
    /// The journal, from which `schedlab restore` tries again.
    pub journal: PathBuf,
    /// What, and why not.
    pub failures: Vec<(String, String)>,
}

static LEFT: Mutex<Vec<LeftBehind>> = Mutex::new(Vec::new());

/// Returns what this process could not give back until now. A program that changes threads asks at
/// its end, and says it: errors of other things come before that, and a keeper that is dropped has
/// no other way.
pub fn left_behind() -> Vec<LeftBehind> {
    LEFT.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
}

pub(crate) fn note_left(journal: &Path, result: &Result<Report, LiveError>) {
    let failures = match result {
        Ok(report) => {
            report.failures().map(|(what, why)| (what.to_owned(), why.to_owned())).collect()
        }
        Err(error) => vec![("everything".to_owned(), error.to_string())],
    };
    let left = LeftBehind { journal: journal.to_owned(), failures };
    LEFT.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(left);
}

/// Returns whether a thread of the owner is left.
pub(crate) fn owner_lives(owner: &Identity) -> bool {
    owner.process_lives() && !owner.is_ending()
}
