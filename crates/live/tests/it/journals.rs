//! What a journal says is put back as far as it is true: `restore` alone, with journals that the
//! tests write.

use super::{Folder, Target, idle};
use libtest_mimic::Failed;
use schedlab_host::threads::{self, Scheduling};
use schedlab_live::journal::{Entry, Journal, Record, Setting};
use schedlab_live::restore::{ItemOutcome, restore};
use schedlab_live::status::status;
use schedlab_model::{Nice, Policy};
use std::path::{Path, PathBuf};

/// In a yield window, threads of the band are SCHED_IDLE with reset-on-fork; any other SCHED_IDLE
/// was set by another process.
pub(crate) fn killed_in_a_yield_window() -> Result<(), Failed> {
    for in_window in [false, true] {
        let folder = Folder::new(if in_window { "window" } else { "no-window" });
        let target = Target::start();
        let before = target.state();
        let in_band = |entry: &mut Entry| {
            if let Entry::Scheduling { set, .. } = entry {
                *set = Setting::FifoBand(1, 3);
            }
        };
        let journal = journal_of(&folder, in_band, &target);
        let behind = Scheduling { reset_on_fork: in_window, ..idle(&before.0) };
        threads::set_scheduling(target.pid(), &behind)?;
        let report = restore(&journal)?;
        let wanted = if in_window { ItemOutcome::Restored } else { ItemOutcome::ChangedByOthers };
        assert_eq!(report.count(&wanted), 1, "{report:?}");
        assert_eq!(target.state().0, if in_window { before.0 } else { behind });
    }
    Ok(())
}

/// Writes a journal with one entry about `target`, which looks as if it had been changed to
/// SCHED_IDLE.
fn journal_of(folder: &Folder, edit: impl Fn(&mut Entry), target: &Target) -> PathBuf {
    let mut journal = Journal::create(&folder.run_dir(), "a test").expect("writable");
    let thread = threads::identity(target.pid()).expect("it lives");
    let before = target.state().0;
    let mut entry =
        Entry::Scheduling { thread, before, set: Setting::To(idle(&before)), timer_slack: None };
    edit(&mut entry);
    journal.note(&entry).expect("writable");
    threads::set_scheduling(target.pid(), &idle(&before)).expect("our child");
    journal.path().to_owned()
}

fn outcome_of(path: &Path) -> ItemOutcome {
    restore(path).expect("readable").items.first().expect("one item").outcome.clone()
}

pub(crate) fn number_used_again() -> Result<(), Failed> {
    let (folder, target) = (Folder::new("again"), Target::start());
    let path = journal_of(
        &folder,
        |entry| match entry {
            Entry::Scheduling { thread, .. } => thread.started -= 1,
            _ => unreachable!("see journal_of"),
        },
        &target,
    );
    assert_eq!(outcome_of(&path), ItemOutcome::Gone);
    assert_eq!(target.state().0.policy, Policy::Idle);
    Ok(())
}

pub(crate) fn changed_by_others() -> Result<(), Failed> {
    let (folder, target) = (Folder::new("others"), Target::start());
    let path = journal_of(&folder, |_| {}, &target);
    let theirs = Scheduling {
        policy: Policy::Batch,
        nice: Nice::new(3).expect("valid"),
        ..target.state().0
    };
    threads::set_scheduling(target.pid(), &theirs)?;
    assert_eq!(outcome_of(&path), ItemOutcome::ChangedByOthers);
    assert_eq!(target.state().0, theirs);
    Ok(())
}

pub(crate) fn cut_off() -> Result<(), Failed> {
    let (folder, target) = (Folder::new("cut"), Target::start());
    let path = journal_of(&folder, |_| {}, &target);
    let text = std::fs::read_to_string(&path)?;
    let head = text.find('\n').expect("two lines") + 1;
    for end in 0..text.len() {
        let record = Record::parse(&path, &text[..end])?;
        assert_eq!(record.is_some(), end >= head, "{end}");
        assert!(record.is_none_or(|record| record.entries.is_empty()), "{end}");
    }
    assert_eq!(Record::parse(&path, &text)?.expect("a head").entries.len(), 1);
    let broken =
        Record::parse(&path, &text.replace("\"scheduling\"", "\"lottery\""))?.expect("a head");
    assert!(broken.entries.is_empty() && broken.faults[0].line == 2, "{broken:?}");
    Ok(())
}

pub(crate) fn other_boot() -> Result<(), Failed> {
    let (folder, target) = (Folder::new("boot"), Target::start());
    let path = journal_of(&folder, |_| {}, &target);
    let text = std::fs::read_to_string(&path)?.replace(&threads::boot_id(), "another");
    std::fs::write(&path, text)?;
    assert!(status(&folder.run_dir())?[0].stale);
    assert!(restore(&path)?.items.is_empty());
    assert_eq!((target.state().0.policy, path.exists()), (Policy::Idle, false));
    Ok(())
}
