//! The guardian ends an owner that sends heartbeats and does not do its work.

use super::{Folder, Target, one_cpu, wait};
use libtest_mimic::Failed;
use schedlab_host::threads::{self, Scheduling};
use schedlab_live::journal::Setting;
use schedlab_live::{Keeper, KeeperOptions, RunDir};
use schedlab_model::Policy;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// An owner sends heartbeats while a thread that it made SCHED_FIFO is kept from the CPU by another
/// one.
pub(crate) fn starves_and_beats() -> Result<(), Failed> {
    let folder = Folder::new("starves");
    let hogs = [Target::hog(), Target::hog()];
    let before = [hogs[0].state(), hogs[1].state()];
    if !rustix::process::geteuid().is_root() {
        if std::env::var_os("CI").is_some() {
            return Err("CI is root".into());
        }
        eprintln!("SKIPPED starves_and_beats: needs root");
        return Ok(());
    }
    let liar = Command::new(std::env::current_exe().expect("this program"))
        .args([
            "starve",
            &folder.0.display().to_string(),
            &hogs[0].pid().to_string(),
            &hogs[1].pid().to_string(),
        ])
        .stdout(Stdio::null())
        .spawn()
        .expect("this program");
    let liar = std::cell::RefCell::new(liar);
    let ended = std::cell::RefCell::new(None);
    wait("an owner that is not to be trusted ends", || {
        *ended.borrow_mut() = liar.borrow_mut().try_wait().expect("our child");
        ended.borrow().is_some()
    });
    assert!(ended.into_inner().is_some_and(|status| !status.success()), "it was killed");
    hogs[0].waits_until(before[0]);
    hogs[1].waits_until(before[1]);
    wait("the journal goes", || folder.journals().is_empty());
    Ok(())
}

/// `starve RUN_DIR PID PID`: makes both SCHED_FIFO on one CPU, the first above the second, and
/// sends heartbeats for ever.
pub(crate) fn starve(arguments: &[String]) -> ExitCode {
    let [run_dir, hogs @ ..] = arguments else { return ExitCode::FAILURE };
    let mut keeper = Keeper::start(&KeeperOptions {
        silence: Some(Duration::from_secs(60)),
        priority: Some(5),
        starve: Some(Duration::from_millis(200)),
        ..super::options(RunDir::at(Path::new(run_dir)).expect("a run directory"))
    })
    .expect("a keeper");
    for (hog, priority) in hogs.iter().zip([2, 1]) {
        let thread = Keeper::target(hog.parse().expect("a number")).expect("it lives");
        let now = threads::scheduling(thread.tid).expect("readable");
        keeper.confine(&thread, &one_cpu(thread.tid)).expect("allowed");
        keeper.declare(&thread, Setting::FifoBand(1, 3)).expect("noted");
        let fifo = Scheduling { reset_on_fork: true, ..now.with_policy(Policy::Fifo(priority)) };
        keeper.apply(&thread, &fifo).expect("root");
    }
    while keeper.beat().is_ok() {
        std::thread::sleep(Duration::from_millis(5));
    }
    ExitCode::SUCCESS
}
