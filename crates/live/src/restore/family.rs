//! Processes that descend from one, by number and start time of each.

use schedlab_host::presence;
use schedlab_host::threads::{Identity, read_identity};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Returns the process of `thread` and those that descend from it, as far as their parents still
/// live. Empty: it is gone, or nothing can be read.
pub fn family(thread: &Identity) -> Vec<u32> {
    let all = every_process().unwrap_or_default();
    family_among(thread, &all).into_iter().map(|one| one.process).collect()
}

/// Returns the first thread of every process.
pub(super) fn every_process() -> io::Result<Vec<Identity>> {
    let mut all = Vec::new();
    for pid in presence::processes()? {
        all.extend(read_identity(pid)?);
    }
    Ok(all)
}

/// As [`family`], among processes that were read before: their first threads.
pub(super) fn family_among(thread: &Identity, all: &[Identity]) -> Vec<Identity> {
    let is_root = |one: &&Identity| match thread.tid == thread.process {
        true => *one == thread,
        false => one.process == thread.process && thread.exists().unwrap_or(false),
    };
    let Some(root) = all.iter().find(is_root) else { return Vec::new() };
    // By number: when it started, and whether it is there after its children were read.
    let mut members = BTreeMap::from([(root.process, root)]);
    let mut asked: BTreeMap<u32, bool> = BTreeMap::new();
    let mut family = vec![root.clone()];
    // Processes come in ascending order, but numbers wrap: go on until no new member is found.
    loop {
        let mut new = BTreeSet::new();
        for one in all.iter().filter(|one| !members.contains_key(&one.process)) {
            let Some(parent) =
                members.get(&one.parent).filter(|parent| parent.started <= one.started)
            else {
                continue;
            };
            // A parent that ended since the look has no children: a later process of its number may
            // have.
            let is_there =
                asked.entry(parent.process).or_insert_with(|| parent.exists().unwrap_or(false));
            if *is_there {
                new.insert(one);
            }
        }
        if new.is_empty() {
            return family;
        }
        family.extend(new.iter().map(|one| (*one).clone()));
        members.extend(new.into_iter().map(|one| (one.process, one)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_host::threads::identity;
    use std::process::{Command, Stdio};

    #[test]
    fn a_stranger_with_the_number_of_a_member_is_none() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 600 & sleep 600 & wait"])
            .stdin(Stdio::null())
            .spawn()
            .expect("sh(1)");
        let first = identity(shell.id()).expect("it lives");
        let children = |first: &Identity| {
            family(first).into_iter().filter(|pid| *pid != first.process).collect::<Vec<_>>()
        };
        let begun = std::time::Instant::now();
        while children(&first).len() < 2 && begun.elapsed().as_secs() < 60 {
            std::thread::yield_now();
        }
        let found = children(&first);
        // The number is that of a process that started at another time: the shell is a stranger to
        // it, with its children.
        let earlier = Identity { started: first.started - 1, ..first.clone() };
        let strangers = family(&earlier);
        // A child is older than what has its parent's number now.
        let all = every_process().expect("readable");
        let mut later: Vec<Identity> = all.clone();
        later
            .iter_mut()
            .filter(|one| one.process == first.process)
            .for_each(|one| one.started += 1_000_000);
        let younger = Identity { started: first.started + 1_000_000, ..first.clone() };
        let of_younger = family_among(&younger, &later);
        for pid in found.iter().copied().chain([shell.id()]) {
            identity(pid)
                .expect("of this test")
                .signal(rustix::process::Signal::KILL)
                .expect("of this test");
        }
        shell.wait().expect("of this test");
        assert_eq!((found.len(), strangers), (2, Vec::new()));
        assert_eq!(of_younger, [younger], "only itself");
        assert_eq!(family(&first), [] as [u32; 0], "it is gone");
    }
}
