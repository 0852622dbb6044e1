//! The guardian waits for an owner whose CPU is stalled.

use super::{Folder, one_cpu, wait};
use libtest_mimic::Failed;
use schedlab_host::threads::{self, Scheduling};
use schedlab_live::{Keeper, KeeperOptions, RunDir};
use schedlab_model::{CpuSet, OwnThread, Policy};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The owner may be silent for so long.
const SILENCE: Duration = Duration::from_millis(300);
/// Its CPU is stalled for longer. Within each second the kernel leaves 50 ms to fair tasks, and
/// nothing to the agent, which is in a real-time class.
const STALL: Duration = Duration::from_millis(1200);

/// A thread of a higher priority keeps the agent's CPU, as the host of a virtual machine does.
pub(crate) fn stalled_cpu() -> Result<(), Failed> {
    if !rustix::process::geteuid().is_root() {
        if std::env::var_os("CI").is_some() {
            return Err("CI is root".into());
        }
        eprintln!("SKIPPED stalled_cpu: needs root");
        return Ok(());
    }
    let folder = Folder::new("stalled");
    let mut owner = Owner::start(&folder);
    let before = owner.rounds();
    let cpu = one_cpu(0);
    let stall = std::thread::spawn(move || {
        become_fifo(50, &cpu);
        let begin = Instant::now();
        while begin.elapsed() < STALL {}
    });
    stall.join().expect("it only spins");
    let after = owner.rounds();
    wait("the agent makes rounds again", || owner.rounds() > after + 20);
    assert!(after - before < 100, "the agent ran while its CPU was stalled: {before} to {after}");
    assert!(owner.child.try_wait()?.is_none(), "the owner was ended");
    Ok(())
}

fn become_fifo(priority: u8, cpu: &CpuSet) {
    threads::set_affinity(0, cpu).expect("a CPU of this process");
    let now = threads::scheduling(0).expect("readable");
    let fifo = Scheduling { reset_on_fork: true, ..now.with_policy(Policy::Fifo(priority)) };
    threads::set_scheduling(0, &fifo).expect("root");
}

struct Owner {
    child: Child,
    rounds: Arc<AtomicU64>,
}

impl Owner {
    fn start(folder: &Folder) -> Owner {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["stall", &folder.0.display().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program");
        let said = BufReader::new(child.stdout.take().expect("piped"));
        let rounds = Arc::new(AtomicU64::new(0));
        let told = rounds.clone();
        std::thread::spawn(move || {
            said.lines().map_while(Result::ok).for_each(|line| {
                told.store(line.parse().expect("a number"), Ordering::Relaxed);
            });
        });
        let owner = Owner { child, rounds };
        wait("the agent makes rounds", || owner.rounds() > 20);
        owner
    }

    fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `stall RUN_DIR`: has an agent on one CPU that makes rounds, beats when it has made one, and
/// prints how many there were.
pub(crate) fn stall(arguments: &[String]) -> ExitCode {
    let [run_dir] = arguments else { return ExitCode::FAILURE };
    let mut keeper = Keeper::start(&KeeperOptions {
        silence: Some(SILENCE),
        priority: Some(5),
        ..super::options(RunDir::at(Path::new(run_dir)).expect("a run directory"))
    })
    .expect("a keeper");
    let rounds = Arc::new(AtomicU64::new(0));
    let (own, cpu) = (rounds.clone(), one_cpu(0));
    let agent = std::thread::Builder::new().name(OwnThread::Agent.name().to_owned());
    let agent = agent.spawn(move || {
        become_fifo(4, &cpu);
        loop {
            own.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    agent.expect("a thread");
    let mut known = 0;
    loop {
        let now = rounds.load(Ordering::Relaxed);
        if now != known {
            known = now;
            println!("{now}");
            if keeper.beat().is_err() {
                return ExitCode::FAILURE;
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
