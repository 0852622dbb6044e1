//! What is managed on this machine now, read from the journals.

use crate::journal::{Entry, Record};
use crate::{LiveError, RunDir};
use schedlab_host::threads::{self, Identity, Scheduling};
use schedlab_model::CpuSet;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Version of the JSON: docs/live-schema.md.
pub const SCHEMA: &str = "schedlab-status/1";

/// The JSON of `status`: which threads schedlab manages now.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct StatusOutput<'a> {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// Everything that is managed, one entry for each journal.
    pub managed: &'a [Managed],
}

/// One journal.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Managed {
    /// The path of the journal.
    pub journal: PathBuf,
    /// What the changes are for.
    pub purpose: String,
    /// The process that makes the changes.
    pub owner: u32,
    /// Whether the owner lives. If not, `schedlab restore` restores what is left.
    pub owner_lives: bool,
    /// From an earlier boot: nothing is left of it but the file.
    pub stale: bool,
    /// Threads that live, with what was before and what is now.
    pub threads: Vec<ManagedThread>,
    /// Files of control groups that were written.
    pub files: Vec<PathBuf>,
}

/// One changed thread.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ManagedThread {
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub process: u32,
    /// Name.
    pub comm: String,
    /// Scheduling before the first change, if that was changed.
    pub before: Option<Scheduling>,
    /// Scheduling now.
    pub now: Option<Scheduling>,
    /// Affinity before the first change, if that was changed.
    pub affinity_before: Option<CpuSet>,
    /// Affinity now.
    pub affinity_now: Option<CpuSet>,
}

/// Returns everything that is managed, in order of the journals' names.
///
/// # Errors
/// When the folder or a journal cannot be read.
pub fn status(run_dir: &RunDir) -> Result<Vec<Managed>, LiveError> {
    let mut all = Vec::new();
    for path in run_dir.journals()? {
        if let Some(record) = Record::read(&path)? {
            all.push(managed(record));
        }
    }
    Ok(all)
}

fn managed(record: Record) -> Managed {
    let mut before: BTreeMap<Identity, (Option<Scheduling>, Option<CpuSet>)> = BTreeMap::new();
    let mut files = Vec::new();
    for entry in record.entries {
        match entry {
            Entry::Scheduling { thread, before: was, .. } => {
                before.entry(thread).or_default().0.get_or_insert(was);
            }
            Entry::Affinity { thread, before: was, .. } => {
                before.entry(thread).or_default().1.get_or_insert(was);
            }
            Entry::File { path, .. } | Entry::Made { path } if !files.contains(&path) => {
                files.push(path)
            }
            Entry::Released { process } => before.retain(|thread, _| thread.process != process),
            Entry::LetGo { thread } => drop(before.remove(&thread)),
            Entry::Stopped { thread } => {
                before.entry(thread).or_default();
            }
            Entry::File { .. }
            | Entry::Made { .. }
            | Entry::Process { .. }
            | Entry::Command { .. } => {}
        }
    }
    let living = before.into_iter().filter(|(thread, _)| thread.lives());
    let threads = living.map(|(thread, (scheduling, affinity))| ManagedThread {
        tid: thread.tid,
        process: thread.process,
        now: threads::scheduling(thread.tid).ok(),
        affinity_now: threads::affinity(thread.tid).ok(),
        comm: thread.comm,
        before: scheduling,
        affinity_before: affinity,
    });
    Managed {
        threads: threads.collect(),
        owner: record.head.owner.tid,
        owner_lives: record.head.owner.lives(),
        stale: record.head.boot != threads::boot_id(),
        journal: record.path,
        purpose: record.head.purpose,
        files,
    }
}
