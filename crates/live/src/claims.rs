//! Claims: a process, a control group or a CPU has one schedlab that changes it. A second one would
//! take the first one's setting for what was before.
//!
//! A claim is a symbolic link in a folder of the user who makes it: its name says what is claimed
//! (`957-48211`: the process of that number and start time), its text who claims it ([`Holder`]).
//! Making a link is one step that fails when it exists; no other user can make or remove it, and
//! every user can read it, whatever SCHEDLAB_RUN_DIR says. Root's folder is in /run, which is
//! root's; another user's in /run/user/UID or, verified by its owner, in /tmp.
//!
//! A claim counts while its holder or that one's guardian lives, and after that until its journal
//! is gone: what a dead schedlab left is not yet given back. One that does not count any more is
//! replaced. Two users' claims are put first and looked for then, so of two at the same moment at
//! most one stays.

use crate::LiveError;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use schedlab_host::threads::{self, Identity};
use schedlab_model::text::{quoted, shell_word};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

/// The entry of the environment by which colocate lets its own driver change what it holds itself:
/// number and start time of the holder.
pub const WITHIN: &str = "SCHEDLAB_WITHIN";
/// The name of the folders.
const FOLDER: &str = "schedlab-claims";
/// How long another one may take to replace a claim.
const REPLACES: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(5);
/// So many forebears are looked at. A family tree is hardly ever deeper, and a circle has no end.
const FOREBEARS: usize = 64;
/// Claims of processes that ended are removed when there are so many more.
const ENDED: usize = 256;

/// Who claims, and until when it counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Holder {
    boot: String,
    owner: (u32, u64),
    guardian: Option<(u32, u64)>,
    /// `None`: of a CPU, which counts as long as its owner lives.
    journal: Option<PathBuf>,
    purpose: String,
}

fn key(thread: &Identity) -> (u32, u64) {
    (thread.process, thread.started)
}

fn process_lives((pid, started): (u32, u64)) -> bool {
    threads::identity(pid).is_some_and(|now| now.started == started && now.process_lives())
}

impl Holder {
    fn counts(&self) -> bool {
        if self.boot != threads::boot_id() {
            return false;
        }
        // A journal that cannot be looked for, in a folder of another user, may be there.
        let is_there = |path: &PathBuf| {
            fs::symlink_metadata(path)
                .map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |_| true)
        };
        process_lives(self.owner)
            || self.guardian.is_some_and(process_lives)
            || self.journal.as_ref().is_some_and(is_there)
    }

    fn is(&self, process: (u32, u64)) -> bool {
        self.owner == process
    }

    /// Returns who it is and what to do, for the end of a sentence.
    pub(crate) fn describe(&self) -> String {
        // Another user may have written the claim, and its text is printed to be pasted.
        let (pid, purpose) = (self.owner.0, quoted(&self.purpose));
        let folder = self
            .journal
            .as_ref()
            .and_then(|path| path.parent())
            .map(|folder| folder.display().to_string());
        let with = folder.map_or_else(String::new, |folder| {
            format!("SCHEDLAB_RUN_DIR={} ", shell_word(&folder))
        });
        match process_lives(self.owner) {
            true => format!(
                "process {pid} ({purpose}): end it, or give everything back with `{with}schedlab \
                 detach`"
            ),
            false => {
                format!(
                    "process {pid} ({purpose}), which is dead: `{with}schedlab restore` gives it \
                     back"
                )
            }
        }
    }
}

/// Returns the folders where user `uid` may have its claims, the first choice first.
fn folders_of(uid: u32) -> Vec<PathBuf> {
    let other = PathBuf::from(format!("/tmp/{FOLDER}-{uid}"));
    let first = match uid {
        0 => PathBuf::from("/run").join(FOLDER),
        _ => PathBuf::from(format!("/run/user/{uid}")).join(FOLDER),
    };
    vec![first, other]
}

/// Returns whether `path` is a folder of user `uid` in which no other can write.
fn is_of(path: &Path, uid: u32) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|data| data.is_dir() && data.uid() == uid && data.mode() & 0o022 == 0)
}

/// Returns this user's folder, made when it is missing: others may look up names in it, and not
/// list it.
fn own_folder() -> Result<PathBuf, LiveError> {
    let uid = rustix::process::geteuid().as_raw();
    let mut why = io::Error::from(io::ErrorKind::NotFound);
    for folder in folders_of(uid) {
        let made = fs::DirBuilder::new().mode(0o711).create(&folder);
        // The mask of this process (umask) must not keep others from looking up.
        match made.and_then(|()| fs::set_permissions(&folder, fs::Permissions::from_mode(0o711))) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                why = error;
                continue;
            }
            _ => {}
        }
        if is_of(&folder, uid) {
            return Ok(folder);
        }
        why = io::Error::other("it is not a folder that only you can write");
    }
    let all: Vec<String> =
        folders_of(uid).iter().map(|folder| folder.display().to_string()).collect();
    Err(LiveError::io(format!("making the folder for claims ({})", all.join(" or ")))(why))
}

fn read(folder: &Path, name: &str) -> Option<Holder> {
    let text = fs::read_link(folder.join(name)).ok()?;
    serde_json::from_str(text.to_str()?).ok()
}

/// Makes a claim; returns who has it already.
fn put(folder: &Path, name: &str, text: &str) -> Result<Option<Holder>, LiveError> {
    let path = folder.join(name);
    let failed = || LiveError::io(format!("claiming {}", path.display()));
    let begun = Instant::now();
    loop {
        match symlink(text, &path) {
            Ok(()) => return Ok(None),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed()(error));
            }
            Err(_) => {}
        }
        let holder = read(folder, name);
        match holder {
            Some(holder) if holder.counts() => return Ok(Some(holder)),
            _ if replace(folder, &path).map_err(failed())? => {}
            _ if begun.elapsed() > REPLACES => {
                return Err(failed()(io::Error::from(io::ErrorKind::WouldBlock)));
            }
            _ => std::thread::sleep(STEP),
        }
    }
}

/// Removes a claim that does not count. False: another process does so now.
fn replace(folder: &Path, path: &Path) -> io::Result<bool> {
    let lock = rustix::fs::open(
        folder,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(false);
    }
    // Another one may have replaced it meanwhile.
    let counts = fs::read_link(path)
        .ok()
        .and_then(|text| serde_json::from_str::<Holder>(text.to_str()?).ok())
        .is_some_and(|holder| holder.counts());
    match if counts { Ok(()) } else { fs::remove_file(path) } {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(true),
    }
}

/// The claims of one journal.
#[derive(Debug)]
pub(crate) struct Claims {
    folder: PathBuf,
    holder: Holder,
    text: String,
    /// By process: the claim's name.
    taken: BTreeMap<(u32, u64), String>,
    groups: Vec<PathBuf>,
    /// This process, and the one that lets it change what that one holds.
    own: Vec<(u32, u64)>,
    prune_at: usize,
}

impl Claims {
    pub(crate) fn new(
        journal: &Path,
        purpose: &str,
        owner: &Identity,
        guardian: Option<&Identity>,
    ) -> Result<Claims, LiveError> {
        let path =
            std::path::absolute(journal).map_err(LiveError::io("the folder of the journal"))?;
        let holder = Holder {
            boot: threads::boot_id(),
            owner: key(owner),
            guardian: guardian.map(key),
            journal: Some(path),
            purpose: purpose.to_owned(),
        };
        let text = serde_json::to_string(&holder)
            .map_err(|error| LiveError::io("a claim")(error.into()))?;
        let own = std::iter::once(key(owner)).chain(within(owner)).collect();
        let (taken, groups) = (BTreeMap::new(), Vec::new());
        Ok(Claims { folder: own_folder()?, holder, text, taken, groups, own, prune_at: ENDED })
    }

    /// Claims the process of a thread.
    pub(crate) fn take(&mut self, thread: &Identity) -> Result<(), LiveError> {
        let first = match thread.tid == thread.process {
            true => thread.clone(),
            false => {
                threads::identity(thread.process).ok_or(LiveError::NoThread { tid: thread.tid })?
            }
        };
        if self.taken.contains_key(&key(&first)) {
            return Ok(());
        }
        let name = name_of(&first);
        if let Some(holder) = put(&self.folder, &name, &self.text)? {
            return match self.own.iter().any(|own| holder.is(*own)) {
                true => Ok(()),
                false => Err(taken(&first, None, &holder)),
            };
        }
        if let Err(error) = self.is_free(&first) {
            self.remove(&name);
            return Err(error);
        }
        self.taken.insert(key(&first), name);
        if self.taken.len() > self.prune_at {
            self.prune();
        }
        Ok(())
    }

    /// Looks whether another user, or root, has the process, or one that it descends from.
    fn is_free(&self, first: &Identity) -> Result<(), LiveError> {
        let mut one = first.clone();
        for generation in 0..FOREBEARS {
            let name = name_of(&one);
            for folder in folders_to_read(one.process) {
                let holder = read(&folder, &name).filter(Holder::counts);
                let foreign = holder.filter(|holder| !self.own.iter().any(|own| holder.is(*own)));
                if let Some(holder) = foreign {
                    return Err(taken(first, (generation > 0).then_some(&one), &holder));
                }
            }
            match threads::identity(one.parent) {
                // A later process of its parent's number is no forebear.
                Some(parent) if parent.started <= one.started => one = parent,
                _ => break,
            }
        }
        Ok(())
    }

    /// Claims a control group, by its folder.
    pub(crate) fn take_group(&mut self, folder: &Path) -> Result<(), LiveError> {
        if self.groups.iter().any(|one| one == folder) {
            return Ok(());
        }
        let data = fs::metadata(folder)
            .map_err(|source| LiveError::Group { path: folder.to_owned(), source })?;
        let name = format!("group-{}-{}", data.dev(), data.ino());
        let here = put(&self.folder, &name, &self.text)?;
        let there = |folder: PathBuf| read(&folder, &name).filter(Holder::counts);
        let others = || {
            folders_to_read(std::process::id())
                .into_iter()
                .filter(|one| *one != self.folder)
                .find_map(there)
        };
        let free = here.is_none();
        match here.or_else(others) {
            Some(holder) if !self.own.iter().any(|own| holder.is(*own)) => {
                if free {
                    self.remove(&name);
                }
                Err(LiveError::Taken {
                    what: format!("control group {}", folder.display()),
                    by: holder.describe(),
                })
            }
            _ => {
                self.groups.push(folder.to_owned());
                Ok(())
            }
        }
    }

    /// Gives up the claim of a process that was given back.
    pub(crate) fn release(&mut self, process: u32) {
        let gone: Vec<_> = self.taken.keys().filter(|(pid, _)| *pid == process).copied().collect();
        for one in gone {
            if let Some(name) = self.taken.remove(&one) {
                self.remove(&name);
            }
        }
    }

    fn prune(&mut self) {
        let ended: Vec<_> =
            self.taken.keys().filter(|one| !process_lives(**one)).copied().collect();
        for one in ended {
            if let Some(name) = self.taken.remove(&one) {
                self.remove(&name);
            }
        }
        self.prune_at = self.taken.len() * 2 + ENDED;
    }

    fn remove(&self, name: &str) {
        if read(&self.folder, name).is_some_and(|holder| holder == self.holder) {
            // It may be gone already.
            let _ = fs::remove_file(self.folder.join(name));
        }
    }
}

/// Returns the process in which this one is allowed to change what that one holds: its parent, when
/// that says so.
fn within(owner: &Identity) -> Option<(u32, u64)> {
    let text = std::env::var(WITHIN).ok()?;
    let (pid, started) = text.split_once('-')?;
    let holder = (pid.parse().ok()?, started.parse().ok()?);
    (holder.0 == owner.parent && process_lives(holder)).then_some(holder)
}

/// Returns what [`WITHIN`] is set to for a driver that this process starts.
pub fn within_this_process() -> String {
    threads::identity(std::process::id())
        .map_or_else(String::new, |own| format!("{}-{}", own.process, own.started))
}

fn name_of(first: &Identity) -> String {
    format!("{}-{}", first.process, first.started)
}

fn taken(first: &Identity, forebear: Option<&Identity>, holder: &Holder) -> LiveError {
    let from = forebear.map_or_else(String::new, |one| {
        format!(", as one of those that process {} ({}) started", one.process, one.comm)
    });
    let what = format!("process {} ({}){from}", first.process, first.comm);
    LiveError::Taken { what, by: holder.describe() }
}

/// Returns the folders with claims that count for a process: root's, those of this user, and those
/// of the process's user.
fn folders_to_read(process: u32) -> Vec<PathBuf> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let uid = |line: &str| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok();
    let uid: Option<u32> = status.lines().find_map(uid);
    let mut uids = vec![0, rustix::process::geteuid().as_raw()];
    uids.extend(uid);
    uids.sort_unstable();
    uids.dedup();
    let all = uids
        .into_iter()
        .flat_map(|uid| folders_of(uid).into_iter().map(move |folder| (folder, uid)));
    all.filter(|(folder, uid)| is_of(folder, *uid)).map(|(folder, _)| folder).collect()
}

/// Removes the claims of a journal whose changes are given back.
pub(crate) fn forget(journal: &Path) {
    let Ok(path) = std::path::absolute(journal) else { return };
    sweep(&|holder| holder.journal.as_ref() == Some(&path));
}

/// Removes the claims of this user that do not count any more.
pub fn sweep_stale() {
    sweep(&|holder| !holder.counts());
}

fn sweep(is_over: &dyn Fn(&Holder) -> bool) {
    let uid = rustix::process::geteuid().as_raw();
    for folder in folders_of(uid).into_iter().filter(|folder| is_of(folder, uid)) {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name
                .to_str()
                .and_then(|name| read(&folder, name))
                .is_some_and(|holder| is_over(&holder))
            {
                // It may be gone already.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// A claim of a CPU; it ends with this value, and with its process.
#[derive(Debug)]
pub(crate) struct CpuLink {
    folder: PathBuf,
    name: String,
    holder: Holder,
}

impl CpuLink {
    /// Claims a CPU; returns who has it already, in words.
    pub(crate) fn take(cpu: u32) -> Result<Result<CpuLink, String>, LiveError> {
        let pid = std::process::id();
        let owner = threads::identity(pid).ok_or(LiveError::NoThread { tid: pid })?;
        let purpose = format!("manages CPU {cpu}");
        let holder = Holder {
            boot: threads::boot_id(),
            owner: key(&owner),
            guardian: None,
            journal: None,
            purpose,
        };
        let text = serde_json::to_string(&holder)
            .map_err(|error| LiveError::io("a claim")(error.into()))?;
        let (folder, name) = (own_folder()?, format!("cpu-{cpu}"));
        if let Some(other) = put(&folder, &name, &text)? {
            return Ok(Err(format!("process {}", other.owner.0)));
        }
        let link = CpuLink { folder, name, holder };
        let other = folders_of_all()
            .into_iter()
            .filter(|(folder, _)| *folder != link.folder)
            .find_map(|(folder, uid)| {
                read(&folder, &link.name).filter(|one| one.counts() && can_manage(one, uid))
            });
        Ok(match other {
            Some(other) => Err(format!("process {}", other.owner.0)),
            None => Ok(link),
        })
    }
}

impl Drop for CpuLink {
    fn drop(&mut self) {
        if read(&self.folder, &self.name).is_some_and(|holder| holder == self.holder) {
            // It may be gone already.
            let _ = fs::remove_file(self.folder.join(&self.name));
        }
    }
}

/// Returns the folders of all users who have one, each with its user.
fn folders_of_all() -> Vec<(PathBuf, u32)> {
    let numbers = |folder: &str, prefix: &str| -> Vec<u32> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok())
            .collect()
    };
    let mut uids = vec![0];
    uids.extend(numbers("/run/user", ""));
    uids.extend(numbers("/tmp", &format!("{FOLDER}-")));
    uids.sort_unstable();
    uids.dedup();
    let all = uids
        .into_iter()
        .flat_map(|uid| folders_of(uid).into_iter().map(move |folder| (folder, uid)));
    all.filter(|(folder, uid)| is_of(folder, *uid)).collect()
}

/// Returns whether the holder of a CPU belongs to the folder's user, and is one that could manage
/// it: any other name would keep the CPU from those who can.
fn can_manage(holder: &Holder, uid: u32) -> bool {
    const CAP_SYS_NICE: u32 = 23;
    let status = fs::read_to_string(format!("/proc/{}/status", holder.owner.0)).unwrap_or_default();
    let word = |key: &str, at: usize| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(key)?.split_whitespace().nth(at).map(str::to_owned))
    };
    let of_user = word("Uid:", 1).and_then(|text| text.parse().ok()) == Some(uid);
    let capabilities = word("CapPrm:", 0).and_then(|text| u64::from_str_radix(&text, 16).ok());
    of_user && capabilities.is_some_and(|all| all & 1 << CAP_SYS_NICE != 0)
}

#[cfg(test)]
mod tests;
