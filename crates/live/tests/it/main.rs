//! Whatever dies, everything is restored. This program is the tests, and also the keeper and the
//! guardian that they kill.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the keeper under test speaks to its test; skips are named"
)]

use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};
use schedlab_host::threads::{self, Scheduling};
use schedlab_live::detach::{Detached, Owners, detach};
use schedlab_live::guardian::{self, GuardianOptions};
use schedlab_live::journal::Setting;
use schedlab_live::restore::{ItemOutcome, restore};
use schedlab_live::status::status;
use schedlab_live::{Keeper, KeeperOptions, LiveError, RunDir};
use schedlab_model::{CpuSet, Policy};
use std::io::{BufRead, BufReader, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

mod attacked;
mod before_after;
mod frozen;
mod journals;
mod starving;
mod torture;

use frozen::Freezer;

/// For how long a keeper may be silent: long beside everything that takes it from its CPU, and the
/// guardian from its own, because it must not be silent before it is told to.
const SILENCE_MS: &str = "2000";
/// The time between its heartbeats.
const BEAT: Duration = Duration::from_millis(20);

type Test = fn() -> Result<(), Failed>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some(guardian::COMMAND) => {
            let watch = GuardianOptions::parse(&arguments[2..]).expect("our own arguments");
            let complete = guardian::run(&watch).is_ok_and(|end| end.complete());
            if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Some("keep") => keep(&arguments[2..]),
        Some("freeze") => frozen::freeze(&arguments[2..]),
        Some("starve") => starving::starve(&arguments[2..]),
        _ => {
            let tests: [(&str, Test); 28] = [
                ("tortured_keepers_leave_nothing", torture::torture),
                ("what_happens_to_the_journal_changes_nothing", attacked::journal_gone),
                ("a_second_instance_refuses_and_names_the_first", attacked::two_instances),
                (
                    "a_stranger_with_the_number_of_a_member_is_left_alone",
                    attacked::number_of_a_member,
                ),
                ("without_a_free_descriptor_everything_is_given_back", attacked::no_descriptors),
                ("a_stopped_guardian_keeps_nothing", attacked::stopped_guardian),
                ("what_cannot_be_given_back_is_told", attacked::incomplete),
                ("all_that_the_kernel_shows_of_a_thread_is_as_before", before_after::all_as_before),
                (
                    "a_thread_that_followed_its_cpuset_follows_it_again",
                    before_after::follows_its_cpuset,
                ),
                ("a_group_that_was_idle_has_its_weight_again", before_after::weight_of_a_group),
                ("a_finished_keeper_leaves_nothing", finished),
                ("a_killed_keeper_is_cleaned_up_after", killed_keeper),
                ("a_silent_keeper_is_killed_and_cleaned_up_after", silent_keeper),
                ("a_keeper_without_guardian_puts_back", killed_guardian),
                ("the_second_guardian_does_the_work_of_a_dead_one", guardian_and_owner_killed),
                ("an_owner_that_beats_and_starves_is_killed", starving::starves_and_beats),
                ("restore_works_when_all_are_dead", both_killed),
                ("a_stopped_process_goes_on_when_the_owner_is_killed", frozen::killed_while_frozen),
                (
                    "restore_continues_stopped_processes_when_all_died",
                    frozen::all_killed_while_frozen,
                ),
                (
                    "what_was_changed_in_a_yield_window_is_put_back",
                    journals::killed_in_a_yield_window,
                ),
                ("restore_does_not_wait_for_a_killed_owner_to_get_the_cpu", killed_and_stuck),
                ("a_later_thread_of_the_same_number_is_left_alone", journals::number_used_again),
                ("what_others_changed_is_left_alone", journals::changed_by_others),
                ("children_of_a_managed_process_are_put_back", children),
                ("a_cut_off_line_is_a_change_that_was_not_made", journals::cut_off),
                ("another_boot_has_nothing_to_put_back", journals::other_boot),
                ("a_group_that_was_made_goes_with_all_its_members", made_group),
                ("kernel_threads_and_foreign_files_are_refused", refused),
            ];
            let trials = tests.into_iter().map(|(name, test)| Trial::test(name, test)).collect();
            libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
        }
    }
}

/// `keep RUN_DIR PID SILENCE_MS`: makes PID a SCHED_IDLE task on one CPU, prints its guardian, and
/// then obeys: `beat`, `finish`. With a limit to its silence it sends heartbeats by itself, until
/// it is told to `hush`.
fn keep(arguments: &[String]) -> ExitCode {
    let [run_dir, pid, silence] = arguments else { return ExitCode::FAILURE };
    let options = KeeperOptions {
        silence: silence.parse().ok().map(Duration::from_millis),
        ..options(RunDir::at(Path::new(run_dir)).expect("a run directory"))
    };
    let mut keeper = Keeper::start(&options).expect("a keeper");
    let thread = Keeper::target(pid.parse().expect("a number")).expect("it lives");
    let now = threads::scheduling(thread.tid).expect("readable");
    keeper
        .adopt_process(&thread, Setting::To(idle(&now)), Some(one_cpu(thread.tid)))
        .expect("noted");
    keeper.schedule(&thread, &idle(&now)).expect("allowed");
    keeper.confine(&thread, &one_cpu(thread.tid)).expect("allowed");
    println!("guardian {}", keeper.guardian().expect("it has one"));
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
    });
    let mut beats = options.silence.is_some();
    loop {
        let line = match told.recv_timeout(BEAT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                if beats {
                    keeper.beat().expect("its guardian lives");
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return ExitCode::SUCCESS,
        };
        match line.as_str() {
            "hush" => {
                beats = false;
                println!("hushed");
            }
            "beat" => {
                println!(
                    "{}",
                    keeper.beat().map_or_else(|error| error.to_string(), |()| "ok".to_owned())
                )
            }
            "finish" => {
                let report = keeper.finish().expect("a readable journal");
                println!("{}", report.count(&ItemOutcome::Restored));
                return ExitCode::SUCCESS;
            }
            other => attacked::obey(&mut keeper, &thread, other),
        }
    }
}

/// The usual options of a keeper of these tests.
fn options(run_dir: RunDir) -> KeeperOptions {
    KeeperOptions {
        run_dir,
        purpose: "a test".to_owned(),
        program: std::env::current_exe().expect("this program"),
        silence: None,
        priority: None,
        starve: None,
    }
}

fn idle(now: &Scheduling) -> Scheduling {
    Scheduling { policy: Policy::Idle, ..*now }
}

/// Returns the last CPU where the thread may run.
fn one_cpu(tid: u32) -> CpuSet {
    CpuSet::single(threads::affinity(tid).expect("it lives").iter().last().expect("a CPU"))
}

/// A thread that waits for the end of the test.
struct Target(Child);

impl Target {
    fn start() -> Target {
        Target(Command::new("sleep").arg("600").spawn().expect("sleep(1)"))
    }
    /// Starts one that never sleeps. It ends by itself, whatever becomes of the test.
    fn hog() -> Target {
        let hog = "ulimit -t 30; while :; do :; done";
        Target(Command::new("sh").args(["-c", hog]).spawn().expect("sh(1)"))
    }
    fn pid(&self) -> u32 {
        self.0.id()
    }
    fn state(&self) -> (Scheduling, CpuSet) {
        (
            threads::scheduling(self.pid()).expect("it lives"),
            threads::affinity(self.pid()).expect("it lives"),
        )
    }
    fn waits_until(&self, state: (Scheduling, CpuSet)) {
        wait("it is put back", || self.state() == state);
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `done`. A minute is no measure of speed: only a program that hangs takes that long.
fn wait(what: &str, done: impl Fn() -> bool) {
    for _ in 0..30_000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("this never happened: {what}");
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = schedlab_testing::temp_dir()
            .join(format!("schedlab-live-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }
    fn run_dir(&self) -> RunDir {
        RunDir::at(&self.0).expect("a run directory")
    }
    fn journals(&self) -> Vec<PathBuf> {
        self.run_dir().journals().expect("readable")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A keeper in a process of its own.
struct Kept {
    child: Child,
    input: ChildStdin,
    output: BufReader<std::process::ChildStdout>,
    guardian: u32,
}

impl Kept {
    fn start(folder: &Folder, target: u32, silence: &str) -> Kept {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["keep", &folder.0.display().to_string(), &target.to_string(), silence])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("this program");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut kept = Kept { child, input, output, guardian: 0 };
        kept.guardian = kept.hear().trim_start_matches("guardian ").parse().expect("a number");
        kept
    }
    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line.trim().to_owned()
    }
    fn say(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").expect("it listens");
        self.hear()
    }
    fn kill(&mut self) {
        self.child.kill().expect("our child");
        self.child.wait().expect("our child");
    }
    fn kill_guardian(&self) {
        kill(self.guardian);
    }
    /// Returns the second guardian, once it is there.
    fn second(&self) -> u32 {
        wait("the guardian starts a second one", || !threads::children(self.guardian).is_empty());
        threads::children(self.guardian)[0]
    }
    fn kill_both_guardians(&self) {
        // The first one would start another second one.
        let second = self.second();
        self.kill_guardian();
        kill(second);
    }
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).expect("not 0"), Signal::KILL).expect("it lives");
    wait("it dies", || threads::identity(pid).is_none_or(|identity| !identity.lives()));
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a target that a keeper holds, and what it was before.
fn held(folder: &Folder, silence: &str) -> (Target, (Scheduling, CpuSet), Kept) {
    let target = Target::start();
    let before = target.state();
    let kept = Kept::start(folder, target.pid(), silence);
    assert_eq!(target.state(), (idle(&before.0), one_cpu(target.pid())));
    (target, before, kept)
}

fn finished() -> Result<(), Failed> {
    let folder = Folder::new("finished");
    let (target, before, mut kept) = held(&folder, "none");
    let known = status(&folder.run_dir())?;
    assert!(known.len() == 1 && known[0].owner_lives && known[0].threads.len() == 1, "{known:?}");
    assert_eq!(known[0].threads[0].before, Some(before.0));
    let changed = if one_cpu(target.pid()) == before.1 { "1" } else { "2" };
    assert_eq!(kept.say("finish"), changed);
    assert_eq!((target.state(), folder.journals().len()), (before, 0));
    wait("the guardian goes", || threads::identity(kept.guardian).is_none());
    Ok(())
}

fn killed_keeper() -> Result<(), Failed> {
    let folder = Folder::new("killed");
    let (target, before, mut kept) = held(&folder, "none");
    kept.kill();
    target.waits_until(before);
    wait("the journal goes", || folder.journals().is_empty());
    Ok(())
}

fn silent_keeper() -> Result<(), Failed> {
    let folder = Folder::new("silent");
    let (target, before, mut kept) = held(&folder, SILENCE_MS);
    assert_eq!(kept.say("hush"), "hushed");
    target.waits_until(before);
    assert!(!kept.child.wait()?.success(), "a silent keeper is killed");
    // The keeper cannot say why any more: the guardian does.
    let mut said = String::new();
    kept.child.stderr.take().expect("piped").read_to_string(&mut said)?;
    let words = [format!("ends process {} (a test)", kept.child.id()), "no heartbeat".to_owned()];
    assert!(words.iter().all(|word| said.contains(word.as_str())), "{said}");
    Ok(())
}

fn killed_guardian() -> Result<(), Failed> {
    let folder = Folder::new("unguarded");
    let (target, before, mut kept) = held(&folder, "none");
    assert_eq!(kept.say("beat"), "ok");
    kept.kill_guardian();
    let said = kept.say("beat");
    assert!(said.contains("guardian died (signal: 9"), "{said}");
    assert_eq!((target.state(), folder.journals().len()), (before, 0));
    Ok(())
}

/// Owner and guardian are killed in one moment: the second guardian restores.
fn guardian_and_owner_killed() -> Result<(), Failed> {
    let folder = Folder::new("second");
    let (target, before, mut kept) = held(&folder, "none");
    let second = kept.second();
    kept.kill_guardian();
    assert!(
        threads::is_runnable(second) || threads::identity(second).is_some_and(|one| one.lives())
    );
    // It leaves an owner that lives alone, which will notice.
    assert_ne!(target.state(), before);
    kept.kill();
    target.waits_until(before);
    wait("the journal goes", || folder.journals().is_empty());
    wait("it goes, too", || threads::identity(second).is_none_or(|one| !one.lives()));
    Ok(())
}

fn both_killed() -> Result<(), Failed> {
    let folder = Folder::new("both");
    let (target, before, mut kept) = held(&folder, "none");
    kept.kill_both_guardians();
    kept.kill();
    assert_ne!(target.state().0, before.0);
    let journals = folder.journals();
    assert!(!status(&folder.run_dir())?[0].owner_lives);
    let report = restore(&journals[0])?;
    assert!(report.complete() && report.count(&ItemOutcome::Restored) > 0, "{report:?}");
    assert_eq!((target.state(), folder.journals().len()), (before, 0));
    let twice = restore(&journals[0]);
    assert!(
        matches!(twice, Err(LiveError::Io { .. })),
        "a journal that is not there says nothing: {twice:?}"
    );
    Ok(())
}

/// The owner was killed and cannot die: `restore` must restore first and wait then, or it would
/// wait for ever.
fn killed_and_stuck() -> Result<(), Failed> {
    let Some(freezer) = Freezer::new() else {
        if std::env::var_os("CI").is_some() {
            return Err("CI is root and has the freezer of control groups (version 1)".into());
        }
        eprintln!(
            "SKIPPED killed_and_stuck: needs root and the freezer of control groups (version 1)"
        );
        return Ok(());
    };
    let folder = Folder::new("stuck");
    let (target, before, mut kept) = held(&folder, "none");
    kept.kill_both_guardians();
    freezer.freeze(kept.child.id());
    // The owner lives and was not killed: `restore` leaves it alone.
    assert!(detach(&folder.run_dir(), Owners::Dead)?.is_empty());
    assert_ne!(target.state(), before);
    kept.child.kill().expect("our child");
    let run_dir = folder.run_dir();
    let restoring = std::thread::spawn(move || detach(&run_dir, Owners::Dead));
    target.waits_until(before);
    assert_eq!(folder.journals().len(), 1, "it stays until its owner is gone");
    freezer.thaw();
    kept.child.wait().expect("our child");
    let done = restoring.join().expect("no panic")?;
    let [Detached::BySchedlab { report, .. }] = &done[..] else {
        return Err(format!("{done:?}").into());
    };
    assert!(report.complete() && report.count(&ItemOutcome::Restored) == 2, "{report:?}");
    assert_eq!(folder.journals(), [] as [PathBuf; 0]);
    Ok(())
}

/// A shell whose child began its life with what the keeper made of the shell.
fn children() -> Result<(), Failed> {
    let folder = Folder::new("children");
    let mut shell = Command::new("/bin/sh")
        .args(["-c", "read go; sleep 600 & echo $!; wait"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let before = threads::scheduling(shell.id())?;
    let affinity = threads::affinity(shell.id())?;
    let mut kept = Kept::start(&folder, shell.id(), "none");
    writeln!(shell.stdin.as_mut().expect("piped"), "go")?;
    let mut line = String::new();
    BufReader::new(shell.stdout.take().expect("piped")).read_line(&mut line)?;
    let child: u32 = line.trim().parse()?;
    assert_eq!(threads::scheduling(child)?.policy, Policy::Idle);
    kept.say("finish");
    let after = (threads::scheduling(child)?, threads::affinity(child)?);
    for pid in [child, shell.id()] {
        kill_process(Pid::from_raw(pid as i32).expect("not 0"), Signal::KILL)?;
    }
    shell.wait()?;
    assert_eq!(after, (before, affinity));
    Ok(())
}

/// A control group, in the journal of a dead owner, with a process inside.
fn made_group() -> Result<(), Failed> {
    let (folder, target) = (Folder::new("made"), Target::start());
    let root = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].map(Path::new);
    let Some(root) = root.into_iter().find(|root| root.join("cgroup.procs").exists()) else {
        println!("skipped: a_group_that_was_made_goes_with_all_its_members (no control groups)");
        return Ok(());
    };
    let mut keeper = Keeper::start(&options(folder.run_dir()))?;
    for odd in [
        root.join("schedlab"),
        PathBuf::from("/tmp/schedlab-x"),
        root.join("../cgroup/cpu/../schedlab-x"),
    ] {
        assert!(matches!(keeper.make_group(&odd), Err(LiveError::Group { .. })), "{odd:?}");
    }
    let path = root.join(format!("schedlab-test-{}", std::process::id()));
    match keeper.make_group(&path) {
        Err(LiveError::Group { source, .. })
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            println!("skipped: a_group_that_was_made_goes_with_all_its_members (needs root)");
            return Ok(());
        }
        made => made?,
    }
    std::fs::write(path.join("cgroup.procs"), target.pid().to_string())?;
    assert_eq!(keeper.finish()?.count(&ItemOutcome::Restored), 1);
    assert!(!path.exists() && threads::identity(target.pid()).is_none_or(|thread| !thread.lives()));
    Ok(())
}

fn refused() -> Result<(), Failed> {
    let kernel =
        threads::processes().into_iter().filter_map(threads::identity).find(|thread| thread.kernel);
    if let Some(kernel) = kernel {
        assert!(matches!(Keeper::target(kernel.tid), Err(LiveError::KernelThread { .. })));
    }
    assert!(matches!(Keeper::target(1 << 23), Err(LiveError::NoThread { .. })));
    let folder = Folder::new("refused");
    let mut keeper = Keeper::start(&options(folder.run_dir()))?;
    for path in ["/etc/passwd", "/sys/fs/cgroup/../../../etc/passwd"] {
        assert!(
            matches!(keeper.write_group(Path::new(path), "x"), Err(LiveError::Group { .. })),
            "{path}"
        );
    }
    keeper.finish()?;
    let missing = Keeper::start(&KeeperOptions {
        program: PathBuf::from("/bin/false"),
        ..options(folder.run_dir())
    });
    assert!(matches!(missing, Err(LiveError::Guardian { .. })) && folder.journals().is_empty());
    Ok(())
}
