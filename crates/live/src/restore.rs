//! Restores what a journal says, as far as the present state is schedlab's doing.
//!
//! Restoring twice does no harm. A thread whose number belongs to another one by now is left alone,
//! and so is one that another process changed after schedlab.

mod family;
mod groups;
mod report;

use crate::LiveError;
use crate::journal::{Confined, Entry, Record, Setting};
use family::{every_process, family_among};
use groups::{give_content, remove_group};
use rustix::process::Signal;
use schedlab_host::presence;
use schedlab_host::threads::{self, Identity, Scheduling};
use schedlab_model::{CpuSet, Ns, Policy};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

pub use family::family;
pub use groups::OWN_GROUP;
pub(crate) use groups::{is_group_file, is_own_group};
pub use report::{Item, ItemOutcome, Report};

/// Reads the journal, restores everything and removes the journal. While another process does the
/// same, waits for it.
///
/// # Errors
/// When the journal cannot be read, or does not exist: then it is not known whether anything was
/// restored. What could not be restored is in the report; the journal stays then.
pub fn restore(path: &Path) -> Result<Report, LiveError> {
    let failed = || LiveError::io(path.display().to_string());
    let file = fs::File::open(path).map_err(failed())?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|error| failed()(error.into()))?;
    let report = Record::read(path)?.map_or_else(Report::default, |record| put_back(&record));
    if report.complete() {
        finished(path, Some(&file));
    }
    Ok(report)
}

/// Removes what belongs to changes that are restored: the journal, if it is the file `journal`,
/// what is beside it, and the claims.
pub(crate) fn finished(path: &Path, journal: Option<&fs::File>) {
    let number = |data: fs::Metadata| (data.dev(), data.ino());
    let held = journal.and_then(|file| file.metadata().ok()).map(number);
    // Another one may have removed it, or put something else in its place.
    if held.is_some() && fs::symlink_metadata(path).ok().map(number) == held {
        let _ = fs::remove_file(path);
    }
    // An owner that was killed while it wrote its journal anew leaves what it wrote until then.
    let beside =
        path.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    for part in
        beside.map(|entry| entry.path()).filter(|part| schedlab_files::is_part_of(part, path))
    {
        let _ = fs::remove_file(part);
    }
    crate::status_file::remove(path);
    crate::detach::forget_requests(path);
    crate::claims::forget(path);
}

/// How long a killed owner may take to end.
const LAST_STEPS: Duration = Duration::from_secs(10);

/// As [`restore`], for an owner that was killed but may not have ended yet: the very threads that
/// it gave a real-time class can keep it from the CPU. So everything is restored at once, and again
/// when the owner is gone: its last change may have come in between.
///
/// # Errors
/// As for [`restore`], and when the owner did not end within ten seconds: then the journal stays.
pub fn restore_after(record: &Record) -> Result<Report, LiveError> {
    let last = || match restore(&record.path) {
        // A guardian was faster, or another process removed it: what this one has read is looked at
        // once more.
        Err(LiveError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            let report = put_back(record);
            finished(&record.path, None);
            Ok(report)
        }
        other => other,
    };
    after(record, last)
}

/// Restores what `record` says while its owner comes to its end, and has `last` do it once more
/// then.
pub(crate) fn after(
    record: &Record,
    last: impl FnOnce() -> Result<Report, LiveError>,
) -> Result<Report, LiveError> {
    let owner = &record.head.owner;
    let first = if owner.process_lives() { put_back(record) } else { Report::default() };
    let begun = Instant::now();
    while owner.process_lives() {
        if begun.elapsed() > LAST_STEPS {
            return Err(LiveError::StillEnding { owner: owner.tid, journal: record.path.clone() });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let again = last()?;
    // Threads are given back first: a command that is managed may keep this process from its CPU.
    for entry in &record.entries {
        if let Entry::Command { mark } = entry {
            presence::end_marked(mark);
        }
    }
    // Nothing is left to look at when another process did the rest.
    Ok(if again.items.is_empty() { first } else { first.then(again) })
}

/// As [`restore`] without touching the journal.
pub fn put_back(record: &Record) -> Report {
    let mut report = Report::default();
    if record.head.boot != threads::boot_id() {
        return report;
    }
    let changes = Changes::from_entries(&record.entries, record.head.owner.started);
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
    for (thread, slack) in &changes.slacks {
        give_slack(thread, *slack, &mut report);
    }
    for fault in &record.faults {
        let why = format!("the line is damaged ({}), and what it says is not known", fault.why);
        report.add(
            format!("line {} of {}", fault.line, record.path.display()),
            ItemOutcome::Failed(why),
        );
    }
    report
}

/// What was before, and everything that schedlab set.
#[derive(Debug)]
struct Change<B, S> {
    before: B,
    set: Vec<S>,
}

/// Where a thread could run before.
#[derive(Clone, Copy, Debug)]
struct Home {
    cpus: CpuSet,
    /// See [`Entry::Affinity`].
    follows: bool,
}

#[derive(Default, Debug)]
struct Changes {
    scheduling: BTreeMap<Identity, Change<Scheduling, Setting>>,
    slacks: BTreeMap<Identity, Ns>,
    affinity: BTreeMap<Identity, Change<Home, Confined>>,
    files: BTreeMap<PathBuf, Change<String, String>>,
    processes: Vec<Process>,
    made: Vec<PathBuf>,
    stopped: Vec<Identity>,
    released: Vec<u32>,
    /// Threads that are left as they are.
    let_go: BTreeSet<Identity>,
    /// When the owner started, in the unit of [`Identity::started`].
    began: u64,
}

fn put<K: Ord, B, S>(map: &mut BTreeMap<K, Change<B, S>>, key: K, before: B, set: S) {
    map.entry(key).or_insert(Change { before, set: Vec::new() }).set.push(set);
}

impl Changes {
    fn from_entries(entries: &[Entry], began: u64) -> Changes {
        let mut changes = Changes { began, ..Changes::default() };
        for entry in entries.iter().cloned() {
            match entry {
                Entry::Scheduling { thread, before, set, timer_slack } => {
                    changes.let_go.remove(&thread);
                    if let Some(slack) = timer_slack {
                        changes.slacks.entry(thread.clone()).or_insert(slack);
                    }
                    put(&mut changes.scheduling, thread, before, set)
                }
                Entry::Affinity { thread, before: cpus, set, one_of, follows } => {
                    changes.let_go.remove(&thread);
                    let home = Home { cpus, follows };
                    put(&mut changes.affinity, thread, home, Confined { cpus: set, one_of })
                }
                Entry::File { path, before, set } => put(&mut changes.files, path, before, set),
                Entry::Made { path } => changes.made.push(path),
                Entry::Stopped { thread } if changes.stopped.contains(&thread) => {}
                Entry::Stopped { thread } => changes.stopped.push(thread),
                Entry::Process {
                    thread,
                    before,
                    affinity: cpus,
                    set,
                    confined,
                    one_of,
                    timer_slack,
                    follows,
                } => {
                    let confined = confined.map(|cpus| Confined { cpus, one_of });
                    changes.released.retain(|process| *process != thread.process);
                    let home = Home { cpus, follows };
                    changes.processes.push(Process {
                        thread,
                        before,
                        home,
                        set,
                        confined,
                        timer_slack,
                    });
                }
                // Only after the death of the owner: see [`after`].
                Entry::Command { .. } => {}
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
        self.slacks.retain(|thread, _| thread.process != process);
        self.affinity.retain(|thread, _| thread.process != process);
        self.processes.retain(|one| one.thread.process != process);
        self.stopped.retain(|thread| thread.process != process);
        self.released.push(process);
    }
}

/// See [`Entry::Process`].
#[derive(Debug)]
struct Process {
    thread: Identity,
    before: Scheduling,
    home: Home,
    set: Setting,
    confined: Option<Confined>,
    timer_slack: Option<Ns>,
}

/// Threads that are made meanwhile are found in the next round.
const ROUNDS: usize = 20;
/// Between two rounds.
const SETTLE: Duration = Duration::from_millis(2);

/// Restores the threads that managed processes made meanwhile, until two rounds find nothing new.
fn processes_back(changes: &Changes, report: &mut Report) {
    let mut quiet = 0;
    if changes.processes.is_empty() {
        return;
    }
    for _ in 0..ROUNDS {
        let before = report.count(&ItemOutcome::Restored);
        // One walk through /proc for all: after a fork bomb there are hundreds of processes.
        let looked = every_process().and_then(|all| {
            changes.processes.iter().try_for_each(|process| process.look(&all, changes, report))
        });
        if let Err(error) = looked {
            let why = format!("the processes of this machine cannot be read: {error}");
            report.add("threads that were made meanwhile".to_owned(), ItemOutcome::Failed(why));
            return;
        }
        quiet = if report.count(&ItemOutcome::Restored) > before { 0 } else { quiet + 1 };
        if quiet == 2 {
            break;
        }
        // A thread that was being made inherits what its parent had then, and appears a little
        // later.
        std::thread::sleep(SETTLE);
    }
}

impl Process {
    /// Looks once at all threads that there are now.
    fn look(&self, all: &[Identity], changes: &Changes, report: &mut Report) -> io::Result<()> {
        for member in family_among(&self.thread, all) {
            if changes.released.contains(&member.process) {
                continue;
            }
            for tid in presence::threads_of(member.process)? {
                // A later process of the number of one that ended since is none of the family.
                if let Some(thread) = threads::read_identity(tid)?
                    && thread.process == member.process
                    && member.exists()?
                {
                    self.thread_back(thread, changes, report);
                }
            }
        }
        Ok(())
    }

    fn thread_back(&self, thread: Identity, changes: &Changes, report: &mut Report) {
        if changes.let_go.contains(&thread) {
            return;
        }
        let tid = thread.tid;
        if !changes.scheduling.contains_key(&thread) {
            let inherited = |now: &Scheduling| {
                self.set.covers_child(now) || self.is_reset(&thread, now, changes.began)
            };
            if let Some(now) = threads::scheduling(tid).ok().filter(inherited)
                && now != self.before
            {
                let change = Change { before: self.before, set: vec![self.set, Setting::To(now)] };
                report.add(named("policy", &thread), give_scheduling(&thread, &change));
            }
            // A fair thread that was born of a real-time one has none.
            if let Some(slack) = self.timer_slack
                && threads::timer_slack(tid).is_ok_and(|now| now == Ns::ZERO)
            {
                give_slack(&thread, slack, report);
            }
        }
        let Some(confined) = self.confined else { return };
        let set_here = |now: CpuSet| confined.covers(&now) && now != self.home.cpus;
        if !changes.affinity.contains_key(&thread) && threads::affinity(tid).is_ok_and(set_here) {
            let change = Change { before: self.home, set: vec![confined] };
            report.add(named("affinity", &thread), give_affinity(&thread, &change));
        }
    }

    /// Returns whether a thread has what the kernel gives the children of real-time threads with
    /// reset-on-fork (`sched_fork`, kernel/sched/core.c), where its parent's own children would
    /// have had another nice value or policy.
    fn is_reset(&self, thread: &Identity, now: &Scheduling, began: u64) -> bool {
        let reset = Scheduling {
            policy: Policy::Other,
            nice: schedlab_model::Nice::ZERO,
            slice: None,
            reset_on_fork: false,
            ext: false,
        };
        matches!(self.set, Setting::FifoBand(..)) && thread.started >= began && *now == reset
    }
}

fn named(what: &str, thread: &Identity) -> String {
    format!("{what} of thread {} ({})", thread.tid, thread.comm)
}

/// Returns what an error of a system call about a thread means: the thread may have ended
/// meanwhile.
fn failed(thread: &Identity, error: &io::Error) -> ItemOutcome {
    match thread.is_alive() {
        Ok(false) => ItemOutcome::Gone,
        _ => ItemOutcome::Failed(error.to_string()),
    }
}

/// Returns why nothing can be restored of a thread.
fn not_there(thread: &Identity) -> Option<ItemOutcome> {
    match thread.is_alive() {
        Ok(true) => None,
        Ok(false) => Some(ItemOutcome::Gone),
        // That nothing can be read does not say that it is gone.
        Err(error) => Some(ItemOutcome::Failed(format!("it cannot be looked for: {error}"))),
    }
}

fn give_scheduling(thread: &Identity, change: &Change<Scheduling, Setting>) -> ItemOutcome {
    if let Some(outcome) = not_there(thread) {
        return outcome;
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
        match set_with_slice(thread.tid, &now, &wanted) {
            Ok(()) => ItemOutcome::Restored,
            Err(error) => failed(thread, &error),
        }
    }
}

/// Sets the scheduling of a thread. Its slice is set while it is SCHED_OTHER, where the policy does
/// not take one.
fn set_with_slice(tid: u32, now: &Scheduling, wanted: &Scheduling) -> io::Result<()> {
    if wanted.policy == Policy::Idle && (now.slice != wanted.slice || !now.policy.is_fair()) {
        threads::set_scheduling(tid, &wanted.with_policy(Policy::Other))?;
    }
    threads::set_scheduling(tid, wanted)
}

/// Gives a thread its timer slack back, where it has another one; only then it is told of. A
/// real-time thread has none.
fn give_slack(thread: &Identity, slack: Ns, report: &mut Report) {
    if !thread.is_alive().unwrap_or(false)
        || !threads::scheduling(thread.tid).is_ok_and(|now| now.policy.is_fair())
    {
        return;
    }
    let outcome = match threads::timer_slack(thread.tid) {
        Ok(now) if now == slack => return,
        Ok(_) => match threads::set_timer_slack(thread.tid, slack) {
            Ok(()) => ItemOutcome::Restored,
            Err(error) => failed(thread, &error),
        },
        Err(error) => failed(thread, &error),
    };
    report.add(named("timer slack", thread), outcome);
}

fn give_affinity(thread: &Identity, change: &Change<Home, Confined>) -> ItemOutcome {
    if let Some(outcome) = not_there(thread) {
        return outcome;
    }
    let Home { cpus, follows } = change.before;
    let wanted = if follows { CpuSet::ALL } else { cpus };
    let now = match threads::affinity(thread.tid) {
        Ok(now) => now,
        Err(error) => return failed(thread, &error),
    };
    if now == cpus && !follows {
        return ItemOutcome::AsBefore;
    } else if now != cpus && !change.set.iter().any(|set| set.covers(&now)) {
        return ItemOutcome::ChangedByOthers;
    }
    match threads::set_affinity(thread.tid, &wanted) {
        Ok(()) if now == cpus => ItemOutcome::AsBefore,
        Ok(()) => ItemOutcome::Restored,
        Err(error) => failed(thread, &error),
    }
}

/// Continues a process that was stopped. The signal is sent whatever `/proc` says: it also cancels
/// a stop that is still pending.
fn go_on(thread: &Identity) -> ItemOutcome {
    if let Some(outcome) = not_there(thread) {
        return outcome;
    }
    let stopped = threads::is_stopped(thread.tid);
    match thread.signal(Signal::CONT) {
        Err(error) => failed(thread, &error),
        Ok(()) if stopped => ItemOutcome::Restored,
        Ok(()) => ItemOutcome::AsBefore,
    }
}

/// Returns what entries come to: two lists with the same text give back the same.
#[cfg(test)]
pub(crate) fn meaning(entries: &[Entry]) -> String {
    let mut changes = Changes::from_entries(entries, 0);
    // What was set is a set, whatever the order.
    fn in_order<K, B, S: std::fmt::Debug>(map: &mut BTreeMap<K, Change<B, S>>) {
        for change in map.values_mut() {
            change.set.sort_by_key(|set| format!("{set:?}"));
            change.set.dedup_by_key(|set| format!("{set:?}"));
        }
    }
    in_order(&mut changes.scheduling);
    in_order(&mut changes.affinity);
    in_order(&mut changes.files);
    let all: BTreeSet<String> = changes.processes.drain(..).map(|one| format!("{one:?}")).collect();
    let released: BTreeSet<u32> = changes.released.drain(..).collect();
    format!("{changes:?} {all:?} {released:?}")
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
            let head =
                Head { version: VERSION, boot: threads::boot_id(), owner, purpose: String::new() };
            put_back(&Record { path: PathBuf::new(), head, entries, faults: Vec::new() });
            threads::affinity(child.id()).expect("it lives")
        };
        let before = allowed;
        let pinned = Entry::Affinity {
            thread: thread.clone(),
            before,
            set: allowed,
            one_of: true,
            follows: false,
        };
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
