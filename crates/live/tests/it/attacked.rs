//! The journal, the descriptors, the numbers and the other instance: whatever happens to them,
//! everything is given back.

use super::{Folder, Target, held, idle, kill, one_cpu, options, wait};
use libtest_mimic::Failed;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use schedlab_host::threads::{self, Identity, Scheduling};
use schedlab_live::journal::Setting;
use schedlab_live::restore::{ItemOutcome, restore};
use schedlab_live::{Keeper, LiveError};
use schedlab_model::{Nice, Ns, Policy};
use std::path::Path;
use std::process::Command;

/// What a keeper of these tests does besides: it uses up what giving back needs.
pub(crate) fn obey(keeper: &mut Keeper, thread: &Identity, line: &str) {
    let now = || threads::scheduling(thread.tid).expect("it lives");
    let wanted = match line {
        "fifo" => now().with_policy(Policy::Fifo(1)),
        "batch" => now().with_policy(Policy::Batch),
        "nice" => Scheduling { nice: Nice::new(7).expect("valid"), ..now() },
        "slice" => Scheduling { slice: Some(Ns::from_us(100)), ..now().with_policy(Policy::Other) },
        "band" => {
            keeper.declare(thread, Setting::FifoBand(1, 3)).expect("noted");
            Scheduling { slice: None, reset_on_fork: true, ..now().with_policy(Policy::Fifo(2)) }
        }
        "stop" => {
            keeper.stop(thread).expect("noted");
            return println!("ok");
        }
        other => return use_up(other),
    };
    keeper.schedule(thread, &wanted).expect("noted");
    println!("ok");
}

fn use_up(line: &str) {
    match line {
        "exhaust" => {
            // No call of this program needs another one until it gives back.
            while let Ok(file) = std::fs::File::open("/dev/null") {
                std::mem::forget(file);
            }
            println!("exhausted");
        }
        "limit" => {
            let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
            setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum })
                .expect("less is allowed");
            println!("limited");
        }
        _ => {}
    }
}

type Damage = (&'static str, fn(&Path));

/// The journal is removed, cut, overwritten, or replaced; then the owner ends as usual, dies, or
/// dies with its guardian.
pub(crate) fn journal_gone() -> Result<(), Failed> {
    let damage: [Damage; 5] = [
        ("removed", |path| std::fs::remove_file(path).expect("of this test")),
        ("cut", |path| {
            let file = std::fs::OpenOptions::new().write(true).open(path).expect("of this test");
            file.set_len(10).expect("of this test");
        }),
        ("empty", |path| std::fs::write(path, "").expect("of this test")),
        ("garbled", |path| {
            let text = std::fs::read_to_string(path)
                .expect("of this test")
                .replace("scheduling", "sch\0dul");
            std::fs::write(path, text).expect("of this test");
        }),
        ("folder", |path| {
            let folder = path.parent().expect("it has one");
            std::fs::remove_dir_all(folder).expect("of this test");
        }),
    ];
    for (how, damaged) in damage {
        for end in ["finish", "killed", "both killed"] {
            let folder = Folder::new(&format!("gone-{how}"));
            let (target, before, mut kept) = held(&folder, "none");
            let journals = folder.journals();
            damaged(&journals[0]);
            match end {
                "finish" => assert_ne!(kept.say("finish"), "0", "{how}"),
                "killed" => kept.kill(),
                _ => {
                    kept.kill_guardian();
                    kept.kill();
                }
            }
            target.waits_until(before);
            wait("the journal goes", || !journals[0].exists());
        }
    }
    Ok(())
}

pub(crate) fn two_instances() -> Result<(), Failed> {
    let (first, second) = (Folder::new("two-first"), Folder::new("two-second"));
    let (target, before, mut kept) = held(&first, "none");
    let set = target.state();
    let mut keeper = Keeper::start(&options(second.run_dir()))?;
    let thread = Keeper::target(target.pid())?;
    let refused = keeper.confine(&thread, &one_cpu(target.pid())).expect_err("another one has it");
    let says = refused.to_string();
    for word in [format!("process {} (a test)", kept.child.id()), "schedlab detach".to_owned()] {
        assert!(says.contains(&word), "{says}");
    }
    assert!(matches!(refused, LiveError::Taken { .. }));
    keeper.finish()?;
    assert_eq!(target.state(), set, "the first one has it on");
    kept.say("finish");
    assert_eq!(target.state(), before);
    // Now it is free.
    let mut keeper = Keeper::start(&options(second.run_dir()))?;
    keeper.schedule(&thread, &idle(&before.0))?;
    keeper.finish()?;
    assert_eq!(target.state(), before);
    Ok(())
}

/// Starts a program whose process has a number that is free now. `None`: that needs root, or others
/// were faster each time.
fn start_with_number(number: u32, command: &mut Command) -> Option<Target> {
    for _ in 0..2_000 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string()).ok()?;
        let started = Target(command.spawn().expect("it exists"));
        if started.pid() == number {
            return Some(started);
        }
    }
    None
}

/// A managed process ends, and a stranger gets its number, what schedlab set for it, and a child.
pub(crate) fn number_of_a_member() -> Result<(), Failed> {
    for by_restore in [false, true] {
        let folder = Folder::new("member");
        let (mut target, before, mut kept) = held(&folder, "none");
        let (number, set) = (target.pid(), target.state());
        // The start time of a process has a grain of 10 ms.
        std::thread::sleep(std::time::Duration::from_millis(50));
        target.0.kill()?;
        target.0.wait()?;
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 600 & wait"]);
        let Some(stranger) = start_with_number(number, &mut shell) else {
            eprintln!("SKIPPED number_of_a_member: needs root (ns_last_pid)");
            return Ok(());
        };
        wait("it has a child", || threads::children(number).len() == 1);
        let child = threads::children(number)[0];
        for pid in [number, child] {
            threads::set_scheduling(pid, &set.0)?;
            threads::set_affinity(pid, &set.1)?;
        }
        if by_restore {
            kept.kill_both_guardians();
            kept.kill();
            let report = restore(&folder.journals()[0])?;
            assert_eq!(report.count(&ItemOutcome::Restored), 0, "{report:?}");
        } else {
            assert_eq!(kept.say("finish"), "0");
        }
        let now = |pid: u32| {
            (threads::scheduling(pid).expect("it lives"), threads::affinity(pid).expect("it lives"))
        };
        let found = [now(number), now(child)];
        kill(child);
        assert_eq!(found, [set, set], "it was {before:?}; by restore: {by_restore}");
        drop(stranger);
    }
    Ok(())
}

pub(crate) fn no_descriptors() -> Result<(), Failed> {
    for (how, answer) in [("exhaust", "exhausted"), ("limit", "limited")] {
        let folder = Folder::new(how);
        let (target, before, mut kept) = held(&folder, "none");
        assert_eq!(kept.say(how), answer);
        assert_ne!(kept.say("finish"), "0", "{how}");
        assert_eq!((target.state(), folder.journals().len()), (before, 0), "{how}");
    }
    Ok(())
}

/// The guardian is stopped and the owner dies: the second guardian does its work. And an owner that
/// ends as usual does not wait for it.
pub(crate) fn stopped_guardian() -> Result<(), Failed> {
    for killed in [true, false] {
        let folder = Folder::new("stopped");
        let (target, before, mut kept) = held(&folder, "none");
        let guardian = threads::identity(kept.guardian).expect("it lives");
        guardian.signal(Signal::STOP)?;
        wait("it is stopped", || threads::is_stopped(kept.guardian));
        match killed {
            true => kept.kill(),
            false => assert_ne!(kept.say("finish"), "0"),
        }
        target.waits_until(before);
        wait("the journal goes", || folder.journals().is_empty());
        // It hears of it when it goes on; it was ended where its owner could.
        let _ = guardian.signal(Signal::CONT);
        wait("it goes", || !guardian.lives());
    }
    Ok(())
}

/// A group that cannot be removed, because another one is in it: owner and guardian try, then it is
/// told.
pub(crate) fn incomplete() -> Result<(), Failed> {
    let root = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].map(Path::new);
    let Some(root) = root.into_iter().find(|root| root.join("cgroup.procs").exists()) else {
        println!("skipped: what_cannot_be_given_back_is_told (no control groups)");
        return Ok(());
    };
    let folder = Folder::new("incomplete");
    let target = Target::start();
    let before = target.state();
    let mut keeper = Keeper::start(&options(folder.run_dir()))?;
    let path = root.join(format!("schedlab-test-inside-{}", std::process::id()));
    if let Err(error) = keeper.make_group(&path) {
        println!("skipped: what_cannot_be_given_back_is_told (needs root: {error})");
        return Ok(());
    }
    keeper.schedule(&Keeper::target(target.pid())?, &idle(&before.0))?;
    let inside = path.join("another");
    std::fs::create_dir(&inside)?;
    let journal = keeper.journal().expect("it has one").to_owned();
    let report = keeper.finish()?;
    let (left, state) = (schedlab_live::left_behind(), target.state());
    let stays = journal.exists();
    std::fs::remove_dir(&inside)?;
    let again = restore(&journal)?;
    assert_eq!(state, before, "everything else is as before");
    assert!(!report.complete() && stays, "{report:?}");
    assert!(left.iter().any(|one| one.journal == journal && one.failures.len() == 1), "{left:?}");
    assert!(again.complete() && !journal.exists() && !path.exists(), "{again:?}");
    Ok(())
}
