//! Asks the owner of a journal to give threads back, and makes sure that it happens.

use crate::journal::Record;
use crate::restore::{Item, ItemOutcome, Report, finished, put_back, restore_after};
use crate::status_file::DriverStatus;
use crate::{LiveError, RunDir};
use rustix::process::Signal;
use schedlab_files::NewFile;
use schedlab_host::threads::Identity;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

/// How long an owner has to restore everything by itself.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time between two looks.
const STEP: Duration = Duration::from_millis(5);

/// Ending of a request to give back one process, before its number: `1-2-0.journal` gets
/// `1-2-0.detach-957`.
const REQUEST: &str = "detach-";

fn request(journal: &Path, process: u32) -> PathBuf {
    journal.with_extension(format!("{REQUEST}{process}"))
}

/// Returns the requests beside a journal: process and file.
fn requests(journal: &Path) -> Vec<(u32, PathBuf)> {
    let Some(entries) = journal.parent().and_then(|folder| fs::read_dir(folder).ok()) else {
        return Vec::new();
    };
    let of_journal = |path: PathBuf| {
        let process = path.extension()?.to_str()?.strip_prefix(REQUEST)?.parse().ok()?;
        (path.file_stem() == journal.file_stem()).then_some((process, path))
    };
    entries.filter_map(|entry| of_journal(entry.ok()?.path())).collect()
}

/// Returns the processes that the owner of a journal is asked to give back.
pub fn requested(journal: &Path) -> Vec<u32> {
    requests(journal).into_iter().map(|(process, _)| process).collect()
}

/// Answers a request: it is done.
pub fn answer(journal: &Path, process: u32) {
    // The request may have been withdrawn after its time limit.
    let _ = fs::remove_file(request(journal, process));
}

/// Removes the requests to an owner that is gone.
pub(crate) fn forget_requests(journal: &Path) {
    for (_, path) in requests(journal) {
        let _ = fs::remove_file(path);
    }
}

/// Version of the JSON: docs/live-schema.md.
pub const SCHEMA: &str = "schedlab-restore/1";

/// The JSON of `detach` and `restore`: what was given back.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct RestoreOutput<'a> {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// What was given back, one entry for each owner.
    pub given_back: Vec<GivenBack<'a>>,
}

/// What was given back of one owner.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct GivenBack<'a> {
    /// The process that managed the threads.
    pub owner: u32,
    /// `owner`: the owner gave them back itself; `schedlab`: this command did, because the owner
    /// was dead.
    pub by: &'static str,
    /// What became of each change; empty where the owner gave back.
    pub items: &'a [Item],
}

impl<'a> RestoreOutput<'a> {
    /// Returns what was given back, as JSON has it.
    pub fn new(done: &'a [Detached]) -> RestoreOutput<'a> {
        let one = |one: &'a Detached| match one {
            Detached::ByOwner { owner } | Detached::Part { owner, .. } => {
                GivenBack { owner: *owner, by: "owner", items: &[] }
            }
            Detached::BySchedlab { owner, report, .. } => {
                GivenBack { owner: *owner, by: "schedlab", items: &report.items }
            }
        };
        RestoreOutput { schema: SCHEMA, given_back: done.iter().map(one).collect() }
    }
}

/// How an owner's threads were given back.
#[derive(Debug)]
pub enum Detached {
    /// By the owner, when it was asked to end.
    ByOwner {
        /// The owner.
        owner: u32,
    },
    /// One process with its children; the owner keeps the rest managed.
    Part {
        /// The owner.
        owner: u32,
        /// The process.
        process: u32,
    },
    /// By schedlab: the owner was dead, or did not answer and was killed.
    BySchedlab {
        /// The owner.
        owner: u32,
        /// Where the journal lay.
        journal: PathBuf,
        /// What became of all changes.
        report: Report,
    },
}

/// The owners that are asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owners {
    /// Only those that are dead: `schedlab restore`.
    Dead,
    /// All: `schedlab detach`.
    All,
}

/// Ends all management and restores everything. Owners that live get SIGTERM first, and SIGKILL
/// when they have not restored everything after two seconds.
///
/// # Errors
/// When the folder or a journal cannot be read; journals that can are served first.
pub fn detach(run_dir: &RunDir, whose: Owners) -> Result<Vec<Detached>, LiveError> {
    let mut done = Vec::new();
    let mut first_error = None;
    // Of programs that were killed before they had a journal.
    crate::claims::sweep_stale();
    for path in run_dir.journals()? {
        match one(&path, whose) {
            Ok(detached) => done.extend(detached),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    first_error.map_or(Ok(done), Err)
}

/// Asks the owner of `process` to give it back, with its children, and to keep the rest managed.
///
/// # Errors
/// When the process is not managed, or its owner is dead, gives back all or nothing, or does not
/// answer within two seconds.
pub fn detach_process(run_dir: &RunDir, process: u32) -> Result<Detached, LiveError> {
    let all = crate::status::status(run_dir)?;
    let has =
        |one: &&crate::status::Managed| one.threads.iter().any(|thread| thread.process == process);
    let Some(managed) = all.iter().find(has) else { return Err(LiveError::NotManaged { process }) };
    let (owner, journal) = (managed.owner, &managed.journal);
    if !managed.owner_lives {
        return Err(LiveError::DeadOwner { process, owner });
    }
    if DriverStatus::read(journal).is_none() {
        return Err(LiveError::AllOrNothing { process, owner, purpose: managed.purpose.clone() });
    }
    let file = request(journal, process);
    // Another `detach` may have asked already.
    NewFile::create(&file)
        .and_then(NewFile::put)
        .map_err(LiveError::io(file.display().to_string()))?;
    let asked = Instant::now();
    while file.exists() {
        if asked.elapsed() > PATIENCE {
            let _ = fs::remove_file(&file);
            return Err(LiveError::NoAnswer { process, owner });
        }
        std::thread::sleep(STEP);
    }
    Ok(Detached::Part { owner, process })
}

fn one(path: &Path, whose: Owners) -> Result<Option<Detached>, LiveError> {
    let record = match Record::read(path) {
        Ok(Some(record)) => record,
        // Nothing was changed under it. Its owner may be about to write the first line: leave the
        // file to it.
        Ok(None) => return Ok(None),
        // It was listed a moment ago: who removed it is done.
        Err(LiveError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let owner = &record.head.owner;
    if owner.process_lives() {
        if whose == Owners::All {
            end(&record, Signal::TERM);
            if !path.exists() {
                return Ok(Some(verified(&record)));
            }
            end(&record, Signal::KILL);
        } else if !is_ending(owner) {
            return Ok(None);
        }
    }
    let report = restore_after(&record)?;
    Ok(Some(Detached::BySchedlab { owner: owner.tid, journal: path.to_owned(), report }))
}

/// Returns what an owner restored whose journal is gone: another process may have removed that, so
/// everything is looked at once more.
fn verified(record: &Record) -> Detached {
    let (owner, journal) = (record.head.owner.tid, record.path.clone());
    let report = put_back(record);
    if report.complete() {
        finished(&journal, None);
    }
    match report.complete() && report.count(&ItemOutcome::Restored) == 0 {
        true => Detached::ByOwner { owner },
        false => Detached::BySchedlab { owner, journal, report },
    }
}

/// Returns whether the owner was killed. A signal sent a moment ago shows at once; what shows a
/// little later is the end of a process that was just taking it.
fn is_ending(owner: &Identity) -> bool {
    (0..2).any(|look| {
        if look > 0 {
            std::thread::sleep(STEP);
        }
        owner.is_ending() || !owner.process_lives()
    })
}

/// Sends a signal and waits until the journal or the owner is gone, for two seconds at most.
fn end(record: &Record, signal: Signal) {
    let owner = &record.head.owner;
    // It may have ended in this moment.
    let _ = owner.signal(signal);
    let asked = Instant::now();
    let done = || {
        signal == Signal::KILL && owner.is_ending()
            || !owner.process_lives()
            || !record.path.exists()
    };
    while !done() && asked.elapsed() < PATIENCE {
        std::thread::sleep(STEP);
    }
}
