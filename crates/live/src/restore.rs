//! Restores what a journal says, as far as the present state is schedlab's doing.
//!
//! Restoring twice does no harm. A thread whose number belongs to another one by now is left alone, and so is one
//! that another process changed after schedlab.

use crate::LiveError;
use crate::journal::{Confined, Entry, Record, Setting};
use rustix::process::{Pid, Signal, kill_process};
use schedlab_host::threads::{self, Identity, Scheduling};
use schedlab_model::CpuSet;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

/// What became of one change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ItemOutcome {
    /// Restored now.
    Restored,
    /// It was as before already.
    AsBefore,
    /// The thread or file does not exist any more.
    Gone,
    /// Another process changed it meanwhile; left as it is.
    ChangedByOthers,
    /// It could not be restored.
    Failed(String),
}

/// One change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Item {
    /// What, in words: `policy of thread 17 (redis-server)`.
    pub what: String,
    /// What became of it.
    pub outcome: ItemOutcome,
}

/// What became of all changes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Report {
    /// One by one.
    pub items: Vec<Item>,
}

impl Report {
    /// Returns whether nothing failed.
    pub fn complete(&self) -> bool {
        !self.items.iter().any(|item| matches!(item.outcome, ItemOutcome::Failed(_)))
    }
    /// Returns what could not be restored, and why.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.items.iter().filter_map(|item| match &item.outcome {
            ItemOutcome::Failed(why) => Some((item.what.as_str(), why.as_str())),
            _ => None,
        })
    }
    /// Returns how many changes came out so.
    pub fn count(&self, outcome: &ItemOutcome) -> usize {
        self.items.iter().filter(|item| item.outcome == *outcome).count()
    }
    /// Returns what became of everything after a second look: its outcomes count, unless it found as before what the
    /// first look restored.
    fn then(self, again: Report) -> Report {
        let restored: Vec<String> = self
            .items
            .into_iter()
            .filter(|item| item.outcome == ItemOutcome::Restored)
            .map(|item| item.what)
            .collect();
        let item = |mut item: Item| {
            if item.outcome == ItemOutcome::AsBefore && restored.contains(&item.what) {
                item.outcome = ItemOutcome::Restored;
            }
            item
        };
        let mut items: Vec<Item> = again.items.into_iter().map(item).collect();
        // What only the first look saw: threads that no entry names, or that are gone by now.
        let seen: Vec<String> = items.iter().map(|item| item.what.clone()).collect();
        let missing = restored.into_iter().filter(|what| !seen.contains(what));
        items.extend(missing.map(|what| Item { what, outcome: ItemOutcome::Restored }));
        Report { items }
    }
    fn add(&mut self, what: String, outcome: ItemOutcome) {
        self.items.push(Item { what, outcome });
    }
}

/// Reads the journal, restores everything and removes the journal. While another process does the same, waits for it.
///
/// # Errors
/// When the journal cannot be read. What could not be restored is in the report; the journal stays then.
pub fn restore(path: &Path) -> Result<Report, LiveError> {
    let lock = match fs::File::open(path) {
        Ok(file) => file,
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Report::default()),
        Err(error) => return Err(LiveError::io(path.display().to_string())(error)),
    };
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|error| LiveError::io(path.display().to_string())(error.into()))?;
    let report = match Record::read(path) {
        Ok(Some(record)) => put_back(&record),
        Ok(None) => Report::default(),
        Err(LiveError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Report::default(),
        Err(error) => return Err(error),
    };
    if report.complete() {
        // They may be gone already.
        let _ = fs::remove_file(path);
        crate::status_file::remove(path);
        crate::detach::forget_requests(path);
    }
    Ok(report)
}

/// How long a killed owner may take to end.
const LAST_STEPS: Duration = Duration::from_secs(10);

/// As [`restore`], for an owner that was killed but may not have ended yet: the very threads that it gave a real-time
/// class can keep it from the CPU. So everything is restored at once, and again when the owner is gone: its last
/// change may have come in between.
///
/// # Errors
/// As for [`restore`], and when the owner did not end within ten seconds: then the journal stays.
pub fn restore_after(record: &Record) -> Result<Report, LiveError> {
    let owner = &record.head.owner;
    let mut first = if owner.process_lives() { put_back(record) } else { Report::default() };
    let begun = Instant::now();
    while owner.process_lives() {
        if begun.elapsed() > LAST_STEPS {
            return Err(LiveError::StillEnding { owner: owner.tid, journal: record.path.clone() });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let again = restore(&record.path)?;
    // The journal is gone when a guardian did the rest.
    if !again.items.is_empty() {
        first = first.then(again);
    }
    Ok(first)
}

/// As [`restore`] without touching the journal.
pub fn put_back(record: &Record) -> Report {
    let mut report = Report::default();
    if record.head.boot != threads::boot_id() {
        return report;
    }
    let changes = Changes::from_entries(&record.entries);
    // The policies first: no thread shall be in a real-time class a moment longer than needed.
    for (thread, change) in &changes.scheduling {
        report.add(named("policy", thread), give_scheduling(thread, change));
    }
    for (thread, change) in &changes.affinity {
        report.add(named("affinity", thread), give_affinity(thread, change));
    }
    // Last: a thread that is still confined makes confined ones.
    processes_back(&changes, &mut report);
    for thread in &changes.stopped {
        report.add(named("stop", thread), go_on(thread));
    }
    for (path, change) in &changes.files {
        report.add(path.display().to_string(), give_content(path, change));
    }
    for path in &changes.made {
        report.add(path.display().to_string(), remove_group(path));
    }
    report
}

/// What was before, and everything that schedlab set.
struct Change<B, S> {
    before: B,
    set: Vec<S>,
}

#[derive(Default)]
struct Changes {
    scheduling: BTreeMap<Identity, Change<Scheduling, Setting>>,
    affinity: BTreeMap<Identity, Change<CpuSet, Confined>>,
    files: BTreeMap<PathBuf, Change<String, String>>,
    processes: Vec<Process>,
    made: Vec<PathBuf>,
    stopped: Vec<Identity>,
    released: Vec<u32>,
    /// Threads that are left as they are.
    let_go: BTreeSet<Identity>,
}

fn put<K: Ord, B, S>(map: &mut BTreeMap<K, Change<B, S>>, key: K, before: B, set: S) {
    map.entry(key).or_insert(Change { before, set: Vec::new() }).set.push(set);
}

impl Changes {
    fn from_entries(entries: &[Entry]) -> Changes {
        let mut changes = Changes::default();
        for entry in entries.iter().cloned() {
            match entry {
                Entry::Scheduling { thread, before, set } => {
                    changes.let_go.remove(&thread);
                    put(&mut changes.scheduling, thread, before, set)
                }
                Entry::Affinity { thread, before, set: cpus, one_of } => {
                    changes.let_go.remove(&thread);
                    put(&mut changes.affinity, thread, before, Confined { cpus, one_of })
                }
                Entry::File { path, before, set } => put(&mut changes.files, path, before, set),
                Entry::Made { path } => changes.made.push(path),
                Entry::Stopped { thread } if changes.stopped.contains(&thread) => {}
                Entry::Stopped { thread } => changes.stopped.push(thread),
                Entry::Process { thread, before, affinity, set, confined, one_of } => {
                    let confined = confined.map(|cpus| Confined { cpus, one_of });
                    changes.released.retain(|process| *process != thread.process);
                    changes.processes.push(Process { thread, before, affinity, set, confined });
                }
                Entry::Released { process } => changes.forget(process),
                Entry::LetGo { thread } => {
                    changes.scheduling.remove(&thread);
                    changes.affinity.remove(&thread);
                    changes.let_go.insert(thread);
                }
            }
        }
        changes
    }
}

impl Changes {
    /// Forgets what was given back already.
    fn forget(&mut self, process: u32) {
        self.scheduling.retain(|thread, _| thread.process != process);
        self.affinity.retain(|thread, _| thread.process != process);
        self.processes.retain(|one| one.thread.process != process);
        self.stopped.retain(|thread| thread.process != process);
        self.released.push(process);
    }
}

/// See [`Entry::Process`].
struct Process {
    thread: Identity,
    before: Scheduling,
    affinity: CpuSet,
    set: Setting,
    confined: Option<Confined>,
}

/// Threads that are made meanwhile are found in the next round.
const ROUNDS: usize = 20;
/// Between two rounds.
const SETTLE: Duration = Duration::from_millis(2);

/// Restores the threads that managed processes made meanwhile, until two rounds find nothing new.
fn processes_back(changes: &Changes, report: &mut Report) {
    let mut quiet = 0;
    for _ in 0..ROUNDS {
        let before = report.count(&ItemOutcome::Restored);
        // One walk through /proc for all: after a fork bomb there are hundreds of processes.
        let all = every_process();
        changes.processes.iter().for_each(|process| process.look(&all, changes, report));
        quiet = if report.count(&ItemOutcome::Restored) > before { 0 } else { quiet + 1 };
        if quiet == 2 || changes.processes.is_empty() {
            break;
        }
        // A thread that was being made inherits what its parent had then, and appears a little later.
        std::thread::sleep(SETTLE);
    }
}

impl Process {
    /// Looks once at all threads that there are now.
    fn look(&self, all: &[Identity], changes: &Changes, report: &mut Report) {
        for pid in family_among(&self.thread, all).into_iter().filter(|pid| !changes.released.contains(pid)) {
            for tid in threads::of_process(pid) {
                self.thread_back(tid, changes, report);
            }
        }
    }

    fn thread_back(&self, tid: u32, changes: &Changes, report: &mut Report) {
        let Some(thread) = threads::identity(tid).filter(|thread| !changes.let_go.contains(thread)) else {
            return;
        };
        let now = threads::scheduling(tid).ok().filter(|now| self.set.covers_child(now));
        if let Some(now) = now.filter(|_| !changes.scheduling.contains_key(&thread)) {
            let change = Change { before: self.before, set: vec![self.set, Setting::To(now)] };
            report.add(named("policy", &thread), give_scheduling(&thread, &change));
        }
        let Some(confined) = self.confined else { return };
        let set_here = |now: CpuSet| confined.covers(&now) && now != self.affinity;
        if !changes.affinity.contains_key(&thread) && threads::affinity(tid).is_ok_and(set_here) {
            let change = Change { before: self.affinity, set: vec![confined] };
            report.add(named("affinity", &thread), give_affinity(&thread, &change));
        }
    }
}

/// Returns the process of `thread` and those that descend from it, as far as their parents still live.
pub fn family(thread: &Identity) -> Vec<u32> {
    family_among(thread, &every_process())
}

/// Returns the first thread of every process.
fn every_process() -> Vec<Identity> {
    threads::processes().into_iter().filter_map(threads::identity).collect()
}

fn family_among(thread: &Identity, all: &[Identity]) -> Vec<u32> {
    let mut members = Vec::new();
    if thread.lives() || !threads::of_process(thread.process).is_empty() && thread.process == thread.tid {
        members.push(thread.process);
    }
    // Processes come in ascending order, but numbers wrap: go on until no new member is found.
    loop {
        let is_new = |one: &&Identity| {
            (members.contains(&one.parent) || one.parent == thread.process && one.started >= thread.started)
                && !members.contains(&one.process)
        };
        let new: Vec<u32> = all.iter().filter(is_new).map(|one| one.process).collect();
        if new.is_empty() {
            return members;
        }
        members.extend(new);
    }
}

fn named(what: &str, thread: &Identity) -> String {
    format!("{what} of thread {} ({})", thread.tid, thread.comm)
}

/// Returns what an error of a system call about a thread means: the thread may have ended meanwhile.
fn failed(thread: &Identity, error: &io::Error) -> ItemOutcome {
    if thread.lives() { ItemOutcome::Failed(error.to_string()) } else { ItemOutcome::Gone }
}

fn give_scheduling(thread: &Identity, change: &Change<Scheduling, Setting>) -> ItemOutcome {
    if !thread.lives() {
        return ItemOutcome::Gone;
    }
    let now = match threads::scheduling(thread.tid) {
        Ok(now) => now,
        Err(error) => return failed(thread, &error),
    };
    if now == change.before {
        ItemOutcome::AsBefore
    } else if !change.set.iter().any(|set| set.covers(&now)) {
        ItemOutcome::ChangedByOthers
    } else {
        let mut wanted = change.before;
        // Bands and SCHED_EXT leave the nice value alone: another one was set by another process.
        if change.set.iter().all(|set| matches!(set, Setting::FifoBand(..) | Setting::Ext)) {
            wanted.nice = now.nice;
        }
        match threads::set_scheduling(thread.tid, &wanted) {
            Ok(()) => ItemOutcome::Restored,
            Err(error) => failed(thread, &error),
        }
    }
}

fn give_affinity(thread: &Identity, change: &Change<CpuSet, Confined>) -> ItemOutcome {
    if !thread.lives() {
        return ItemOutcome::Gone;
    }
    match threads::affinity(thread.tid) {
        Ok(now) if now == change.before => ItemOutcome::AsBefore,
        Ok(now) if !change.set.iter().any(|set| set.covers(&now)) => ItemOutcome::ChangedByOthers,
        Ok(_) => match threads::set_affinity(thread.tid, &change.before) {
            Ok(()) => ItemOutcome::Restored,
            Err(error) => failed(thread, &error),
        },
        Err(error) => failed(thread, &error),
    }
}

/// Continues a process that was stopped. The signal is sent whatever `/proc` says: it also cancels a stop that is
/// still pending.
fn go_on(thread: &Identity) -> ItemOutcome {
    if !thread.lives() {
        return ItemOutcome::Gone;
    }
    let stopped = threads::is_stopped(thread.tid);
    let sent = Pid::from_raw(thread.process as i32).map_or(Ok(()), |pid| kill_process(pid, Signal::CONT));
    match sent {
        Err(error) => failed(thread, &error.into()),
        Ok(()) if stopped => ItemOutcome::Restored,
        Ok(()) => ItemOutcome::AsBefore,
    }
}

/// Returns whether a path is one that schedlab writes to: below the mount points of control groups, without a way
/// out.
pub(crate) fn is_group_file(path: &Path) -> bool {
    path.starts_with("/sys/fs/cgroup") && path.components().all(|part| !matches!(part, Component::ParentDir))
}

/// How the name of every control group begins that schedlab makes.
pub const OWN_GROUP: &str = "schedlab-";
/// Members of a removed control group may take so long to die.
const LAST_BREATH: Duration = Duration::from_secs(5);

/// Returns whether a path is a control group that schedlab makes, and may remove.
pub(crate) fn is_own_group(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    is_group_file(path) && name.starts_with(OWN_GROUP)
}

/// Kills all members of a control group that schedlab made, and removes it.
fn remove_group(path: &Path) -> ItemOutcome {
    if !is_own_group(path) {
        return ItemOutcome::Failed("not a control group of schedlab".to_owned());
    }
    let began = Instant::now();
    loop {
        let members = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        for pid in members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
            // It may be dying already.
            let _ = kill_process(pid, Signal::KILL);
        }
        match fs::remove_dir(path) {
            Ok(()) => return ItemOutcome::Restored,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return ItemOutcome::Gone,
            Err(error) if began.elapsed() > LAST_BREATH => return ItemOutcome::Failed(error.to_string()),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn give_content(path: &Path, change: &Change<String, String>) -> ItemOutcome {
    if !is_group_file(path) {
        return ItemOutcome::Failed("not a file of a control group".to_owned());
    }
    let now = match fs::read_to_string(path) {
        Ok(now) => now,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return ItemOutcome::Gone,
        Err(error) => return ItemOutcome::Failed(error.to_string()),
    };
    let now = now.trim();
    if now == change.before.trim() {
        ItemOutcome::AsBefore
    } else if !change.set.iter().any(|set| set.trim() == now) {
        ItemOutcome::ChangedByOthers
    } else {
        match fs::write(path, &change.before) {
            Ok(()) => ItemOutcome::Restored,
            Err(error) if error.kind() == io::ErrorKind::NotFound => ItemOutcome::Gone,
            Err(error) => ItemOutcome::Failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Head, VERSION};
    use std::process::Command;

    /// A managed thread gave itself one of the managed CPUs, which looks like a pin of schedlab's.
    #[test]
    fn a_thread_that_was_let_go_keeps_its_affinity() {
        let allowed = threads::affinity(0).expect("our own");
        let Some(last) = allowed.iter().last().filter(|_| allowed.count() > 1) else { return };
        let mut child = Command::new("sleep").arg("600").spawn().expect("sleep(1)");
        let thread = threads::identity(child.id()).expect("it lives");
        let own = CpuSet::single(last);
        let after = |entries: Vec<Entry>| {
            threads::set_affinity(child.id(), &own).expect("an allowed CPU");
            let owner = threads::identity(std::process::id()).expect("we live");
            let head = Head { version: VERSION, boot: threads::boot_id(), owner, purpose: String::new() };
            put_back(&Record { path: PathBuf::new(), head, entries });
            threads::affinity(child.id()).expect("it lives")
        };
        let before = allowed;
        let pinned = Entry::Affinity { thread: thread.clone(), before, set: allowed, one_of: true };
        let let_go = Entry::LetGo { thread };
        let found = [
            after(vec![pinned.clone()]),
            after(vec![pinned.clone(), let_go.clone()]),
            after(vec![pinned.clone(), let_go, pinned]),
        ];
        child.kill().expect("a child of this test");
        child.wait().expect("a child of this test");
        assert_eq!(found, [allowed, own, allowed], "pinned; let go; managed again");
    }
}
