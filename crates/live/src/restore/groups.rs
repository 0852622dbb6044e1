//! Control groups: their files get their content back, and those that schedlab made are removed.

use super::{Change, ItemOutcome};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Component, Path};
use std::time::{Duration, Instant};
use std::{fs, io};

/// Returns whether a path is one that schedlab writes to: below the mount points of control groups,
/// without a way out.
pub(crate) fn is_group_file(path: &Path) -> bool {
    path.starts_with("/sys/fs/cgroup")
        && path.components().all(|part| !matches!(part, Component::ParentDir))
}

/// How the name of every control group begins that schedlab makes.
pub const OWN_GROUP: &str = "schedlab-";
/// Members of a removed control group may take so long to die.
const LAST_BREATH: Duration = Duration::from_secs(5);
/// One without members is busy for so long at most, unless it has groups inside, which are not
/// schedlab's.
const BUSY: Duration = Duration::from_millis(500);

/// Returns whether a path is a control group that schedlab makes, and may remove.
pub(crate) fn is_own_group(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    is_group_file(path) && name.starts_with(OWN_GROUP)
}

/// Kills all members of a control group that schedlab made, and removes it.
pub(super) fn remove_group(path: &Path) -> ItemOutcome {
    if !is_own_group(path) {
        return ItemOutcome::Failed("not a control group of schedlab".to_owned());
    }
    let mut until = Instant::now() + LAST_BREATH;
    loop {
        // All at once, with those that are being made, where the kernel can (version 2,
        // Linux 5.14).
        if path.join("cgroup.kill").exists() {
            let _ = fs::write(path.join("cgroup.kill"), "1");
        }
        let members = match fs::read_to_string(path.join("cgroup.procs")) {
            Ok(members) => members,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return ItemOutcome::Failed(error.to_string()),
        };
        for pid in members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
            // It may be dying already.
            let _ = kill_process(pid, Signal::KILL);
        }
        if members.is_empty() {
            until = until.min(Instant::now() + BUSY);
        }
        match fs::remove_dir(path) {
            Ok(()) => return ItemOutcome::Restored,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return ItemOutcome::Gone,
            Err(error) if Instant::now() > until => return ItemOutcome::Failed(error.to_string()),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

pub(super) fn give_content(path: &Path, change: &Change<String, String>) -> ItemOutcome {
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
