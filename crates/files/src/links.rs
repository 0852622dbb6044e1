//! Which links are followed: those of this user and of root, and another user's only to what that
//! user owns.

use crate::Refused;
use rustix::fs::Stat;
use std::io;
use std::path::Path;

/// The sticky bit (S_ISVTX, include/uapi/linux/stat.h, Linux 6.12): in such a folder only the owner
/// of an entry (or of the folder) renames and removes it.
const STICKY: u32 = 0o1000;

/// Returns whether every user can make entries in a folder like /tmp.
fn like_tmp(folder: &Stat) -> bool {
    folder.st_mode & STICKY != 0 && folder.st_mode & 0o002 != 0
}

/// Returns whether the owner is this user or root.
pub(crate) fn ours_or_root(owner: u32) -> bool {
    owner == 0 || owner == rustix::process::geteuid().as_raw()
}

/// Judges a link before it is followed, as the kernel's `fs.protected_symlinks` does (fs/namei.c,
/// may_follow_link, Linux 6.12). Returns whether what it leads to must belong to its owner.
pub(crate) fn follows(path: &Path, link: &Stat, folder: &Stat) -> io::Result<bool> {
    let owner = link.st_uid;
    if like_tmp(folder) && owner != rustix::process::geteuid().as_raw() && owner != folder.st_uid {
        return Err(Refused::Planted { link: path.to_owned(), owner }.into());
    }
    Ok(!ours_or_root(owner))
}

/// Refuses a link of `owner` to what belongs to `target`.
pub(crate) fn leads_to_its_own(path: &Path, owner: u32, target: u32) -> io::Result<()> {
    if owner == target {
        return Ok(());
    }
    Err(Refused::Foreign { link: path.to_owned(), owner }.into())
}

/// Returns what is wrong with a folder through which a path leads that no other user may change.
pub(crate) fn fault(folder: &Stat) -> Option<&'static str> {
    if !ours_or_root(folder.st_uid) && !is_outside(folder.st_uid) {
        return Some("belongs to another user");
    }
    // In a sticky folder others make entries, but cannot touch the next one of the path: it is
    // judged by its own owner.
    (folder.st_mode & 0o022 != 0 && folder.st_mode & STICKY == 0)
        .then_some("can be written by others")
}

/// Returns whether `owner` only means "not of this user namespace": the machine's root and its
/// folders look so from inside.
fn is_outside(owner: u32) -> bool {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    if read("/proc/sys/kernel/overflowuid").trim().parse() != Ok(owner) {
        return false;
    }
    let covers = |line: &str| {
        let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
        let (first, _, count) =
            (numbers.next().unwrap_or(0), numbers.next(), numbers.next().unwrap_or(0));
        (first..first + count).contains(&u64::from(owner))
    };
    !read("/proc/self/uid_map").lines().any(covers)
}
