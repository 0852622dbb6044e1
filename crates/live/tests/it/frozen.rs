//! Stopped processes are continued, whatever dies.

use super::{Folder, Target, wait};
use libtest_mimic::Failed;
use schedlab_host::threads;
use schedlab_live::restore::{ItemOutcome, restore};
use schedlab_live::status::status;
use schedlab_live::{Keeper, RunDir, actuators};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// `freeze RUN_DIR PID`: stops PID and its children, prints how many, and waits to be killed.
pub(crate) fn freeze(arguments: &[String]) -> ExitCode {
    let [run_dir, pid] = arguments else { return ExitCode::FAILURE };
    let mut keeper = keeper(Path::new(run_dir));
    let first = Keeper::target(pid.parse().expect("a number")).expect("it lives");
    let side = actuators::Side { processes: vec![first], group: None };
    let stopped = actuators::freeze(&mut keeper, &side).expect("our own processes");
    println!("{stopped} {}", keeper.guardian().expect("it has one"));
    std::thread::sleep(Duration::from_secs(600));
    ExitCode::SUCCESS
}

fn keeper(run_dir: &Path) -> Keeper {
    Keeper::start(&super::options(RunDir::at(run_dir).expect("a run directory"))).expect("a keeper")
}

/// Starts a shell with a child of its own.
fn family() -> (Target, u32) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "sleep 600 & echo $!; wait"]).stdout(Stdio::piped());
    let mut shell = shell.spawn().expect("sh(1)");
    let mut line = String::new();
    BufReader::new(shell.stdout.take().expect("piped"))
        .read_line(&mut line)
        .expect("it says its child");
    (Target(shell), line.trim().parse().expect("a number"))
}

struct Owner(Child);

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts an owner with a family that it stopped; returns the guardian's number, too.
fn frozen(folder: &Folder, shell: &Target) -> (Owner, i32) {
    let mut owner = Command::new(std::env::current_exe().expect("this program"));
    owner.args(["freeze", &folder.0.display().to_string(), &shell.pid().to_string()]);
    let mut owner = owner.stdout(Stdio::piped()).spawn().expect("this program");
    let mut line = String::new();
    BufReader::new(owner.stdout.take().expect("piped")).read_line(&mut line).expect("it says when");
    let (stopped, guardian) = line.trim().split_once(' ').expect("two numbers");
    assert_eq!(stopped, "2", "the shell and its child");
    (Owner(owner), guardian.parse().expect("a number"))
}

/// The owner is killed while its family is stopped: the guardian continues them.
pub(crate) fn killed_while_frozen() -> Result<(), Failed> {
    let folder = Folder::new("frozen");
    let (shell, child) = family();
    let (mut owner, _) = frozen(&folder, &shell);
    let still = |tid: &u32| threads::is_stopped(*tid);
    wait("both are stopped", || [shell.pid(), child].iter().all(still));
    let managed = status(&RunDir::at(&folder.0).expect("a run directory")).expect("readable");
    assert_eq!(managed[0].threads.len(), 2, "status names them: {managed:?}");
    owner.0.kill().expect("our child");
    wait("both go on", || ![shell.pid(), child].iter().any(still));
    wait("the journal goes", || folder.journals().is_empty());
    kill(child);
    Ok(())
}

/// Owner and guardians are killed: `restore` continues them. A process that was stopped before
/// stays stopped.
pub(crate) fn all_killed_while_frozen() -> Result<(), Failed> {
    let folder = Folder::new("frozen-all");
    let (shell, child) = family();
    let still = |tid: u32| threads::is_stopped(tid);
    let others = Target::start();
    signal(others.pid(), rustix::process::Signal::STOP);
    wait("the other one is stopped", || still(others.pid()));
    let run_dir = RunDir::at(&folder.0).expect("a run directory");
    let mut keeper = keeper(&folder.0);
    let of = |pid: u32| Keeper::target(pid).expect("it lives");
    assert!(!keeper.stop(&of(others.pid())).expect("allowed"), "it was stopped already");
    assert!(keeper.stop(&of(child)).expect("allowed"));
    wait("the child is stopped", || still(child));
    let report = keeper.finish().expect("a readable journal");
    assert_eq!((report.count(&ItemOutcome::Restored), report.items.len()), (1, 1), "{report:?}");
    wait("the child goes on", || !still(child));
    assert!(still(others.pid()), "a process that was stopped before stays stopped");

    let (mut owner, guardian) = frozen(&folder, &shell);
    wait("both are stopped", || still(shell.pid()) && still(child));
    // The second guardian first, or it would do the work; and the first is stopped meanwhile, or it
    // would start another second one. The owner sleeps and does not notice.
    signal(guardian as u32, rustix::process::Signal::STOP);
    wait("the guardian is stopped", || still(guardian as u32));
    for pid in threads::children(guardian as u32).into_iter().chain([guardian as u32]) {
        signal(pid, rustix::process::Signal::KILL);
        wait("a guardian is gone", || threads::identity(pid).is_none_or(|one| !one.lives()));
    }
    owner.0.kill().expect("our child");
    owner.0.wait().expect("our child");
    assert!(still(shell.pid()) && still(child), "nothing is left to continue them");
    for journal in run_dir.journals().expect("readable") {
        restore(&journal).expect("a readable journal");
    }
    wait("both go on", || !still(shell.pid()) && !still(child));
    kill(child);
    Ok(())
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process");
    // It may have ended in this moment.
    let _ = rustix::process::kill_process(pid, signal);
}

fn kill(pid: u32) {
    signal(pid, rustix::process::Signal::KILL);
}

/// A control group whose members are frozen, and cannot even die: as an owner that the threads it
/// manages keep from the CPU.
pub(crate) struct Freezer(PathBuf);

impl Freezer {
    pub(crate) fn new() -> Option<Freezer> {
        let path = Path::new("/sys/fs/cgroup/freezer")
            .join(format!("schedlab-test-{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        Some(Freezer(path))
    }
    pub(crate) fn freeze(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("it lives");
        std::fs::write(self.0.join("freezer.state"), "FROZEN").expect("root");
        let state = || std::fs::read_to_string(self.0.join("freezer.state")).expect("ours");
        wait("it is frozen", || state().trim() == "FROZEN");
    }
    pub(crate) fn thaw(&self) {
        std::fs::write(self.0.join("freezer.state"), "THAWED").expect("root");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("freezer.state"), "THAWED");
        for _ in 0..1000 {
            if std::fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
