//! Programs that an experiment starts: prepared before their first instruction, and never left
//! behind.
//!
//! Such a program, and whatever it starts, ends with this process, whatever ends that: between the
//! two is a holder, which inherits all descendants and hears when this process is gone. When the
//! holder itself is killed the kernel kills the program, and the rest is found by a mark in the
//! environment. A network namespace lives as long as a process in it, and goes with it.

use crate::sys::hold::HeldProgram;
use crate::sys::launch::{self, Net, Preparation};
use crate::threads::{self, Scheduling};
use rustix::process::{Pid, Signal, kill_process_group};
use schedlab_model::CpuSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Which network a program sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Network {
    /// The one of this process.
    #[default]
    Same,
    /// A new one, with a loopback device that is down. Needs root.
    New,
    /// The one of this process id. Needs root.
    Of(u32),
}

/// A program to be started.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Its path, or a name to be found in `PATH`, and its arguments.
    pub command: Vec<String>,
    /// Where it may run; `None`: where this process may.
    pub cpus: Option<CpuSet>,
    /// How it is scheduled; `None`: as this process.
    pub scheduling: Option<Scheduling>,
    /// The folder of the control group that it begins in.
    pub group: Option<PathBuf>,
    /// Its network.
    pub network: Network,
    /// Whether we talk to it: its standard input and output become pipes. Else it has neither.
    pub piped: bool,
}

/// A program that runs; killed on drop, with whatever it started.
#[derive(Debug)]
pub struct Running(HeldProgram);

impl Program {
    /// `words` with the defaults.
    pub fn new<S: Into<String>>(words: impl IntoIterator<Item = S>) -> Program {
        Program { command: words.into_iter().map(Into::into).collect(), ..Program::default() }
    }

    /// Starts it. Its standard error is that of this process.
    ///
    /// # Errors
    /// When it does not exist, or the kernel refuses the policy, the CPUs, the group or the
    /// namespace.
    pub fn start(&self) -> io::Result<Running> {
        let (program, arguments) = self
            .command
            .split_first()
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut command = Command::new(program);
        let stream = || if self.piped { Stdio::piped() } else { Stdio::null() };
        command.args(arguments).stdin(stream()).stdout(stream());
        let net = match self.network {
            Network::Same => Net::Same,
            Network::New => Net::New,
            Network::Of(pid) => Net::Of(File::open(format!("/proc/{pid}/ns/net"))?),
        };
        let procs =
            |group: &PathBuf| OpenOptions::new().write(true).open(group.join("cgroup.procs"));
        let preparation = Preparation {
            net,
            group: self.group.as_ref().map(procs).transpose()?,
            cpus: self.cpus.as_ref().map(threads::mask),
            scheduling: self.scheduling.as_ref().map(threads::raw),
        };
        launch::start(&mut command, preparation).map(Running)
    }
}

impl Running {
    /// Starts `command` as it was prepared, in a process group of its own, on `cpus`.
    ///
    /// # Errors
    /// When it cannot be started, or may not use these CPUs.
    pub fn start(command: &mut Command, cpus: &CpuSet) -> io::Result<Running> {
        let preparation = Preparation {
            net: Net::Same,
            group: None,
            cpus: Some(threads::mask(cpus)),
            scheduling: None,
        };
        launch::start(command, preparation).map(Running)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// The mark in its environment, and in that of what it starts.
    pub fn mark(&self) -> &str {
        self.0.mark()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// When its holder cannot be asked.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.ended()
    }

    /// Its standard input, once.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.0.stdin()
    }

    /// Its standard output, once.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.0.stdout()
    }

    /// Asks it to end, and after `patience` makes it, with whatever it started.
    pub fn end(mut self, patience: Duration) {
        if matches!(self.ended(), Ok(None))
            && let Some(group) = Pid::from_raw(self.pid().cast_signed())
        {
            // The group may be empty by now.
            let _ = kill_process_group(group, Signal::TERM);
        }
        let asked = Instant::now();
        while asked.elapsed() < patience && matches!(self.ended(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Where `program` is found in `PATH`, and in the places that a user's `PATH` may lack.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/sbin", "/sbin", "/usr/local/sbin"]);
    let mut candidates =
        folders.filter(|folder| !folder.is_empty()).map(|folder| Path::new(folder).join(program));
    candidates.find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuId, Nice, Policy};
    use std::io::Read;

    #[test]
    fn a_program_begins_as_it_was_asked_to_and_goes_with_its_value() {
        let cpu = threads::affinity(0).unwrap().iter().next().unwrap_or(CpuId(0));
        let wanted = Scheduling {
            policy: Policy::Idle,
            nice: Nice::new(5).unwrap(),
            slice: None,
            reset_on_fork: false,
            ext: false,
        };
        let program = Program {
            cpus: Some(CpuSet::single(cpu)),
            scheduling: Some(wanted),
            ..Program::new(["sleep", "600"])
        };
        let running = program.start().unwrap();
        let thread = threads::identity(running.pid()).unwrap();
        assert_eq!(threads::scheduling(running.pid()).unwrap(), wanted);
        assert_eq!(threads::affinity(running.pid()).unwrap(), CpuSet::single(cpu));
        drop(running);
        assert!(!thread.lives());
    }

    /// A shell that starts a process in a session of its own and one whose parent ends at once, and
    /// says their numbers.
    fn family() -> (Running, Vec<threads::Identity>) {
        let script = "setsid sleep 600 & echo $!; (sleep 600 & echo $!); wait";
        let program = Program { piped: true, ..Program::new(["sh", "-c", script]) };
        let mut running = program.start().unwrap();
        let lines = std::io::BufReader::new(running.stdout().unwrap());
        let numbers =
            std::io::BufRead::lines(lines).take(2).map(|line| line.unwrap().parse().unwrap());
        let mut all: Vec<threads::Identity> =
            numbers.map(|pid| threads::identity(pid).unwrap()).collect();
        all.push(threads::identity(running.pid()).unwrap());
        (running, all)
    }

    #[test]
    fn whatever_it_started_ends_with_it() {
        let (mut running, all) = family();
        assert!(all.iter().all(threads::Identity::lives) && running.ended().unwrap().is_none());
        drop(running);
        assert!(!all.iter().any(threads::Identity::lives), "{all:?}");
    }

    #[test]
    fn when_its_holder_is_killed_it_ends_and_the_rest_is_found_by_its_mark() {
        let (mut running, all) = family();
        let holder = threads::identity(all[2].parent).unwrap();
        assert_eq!(holder.comm, "sched-holder");
        holder.signal(Signal::KILL).unwrap();
        let begun = Instant::now();
        while running.ended().unwrap().is_none() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
        }
        let status = running.ended().unwrap().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
        drop(running);
        assert!(!all.iter().any(threads::Identity::lives), "{all:?}");
    }

    #[test]
    fn how_it_ended_is_told_while_what_it_started_goes_on() {
        let mut running = Program::new(["sh", "-c", "sleep 600 & exit 7"]).start().unwrap();
        let begun = Instant::now();
        while running.ended().unwrap().is_none() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
        }
        assert_eq!(running.ended().unwrap().unwrap().code(), Some(7));
    }

    #[test]
    fn talks_and_refuses() {
        let mut echo = Program { piped: true, ..Program::new(["echo", "hello"]) }.start().unwrap();
        let mut text = String::new();
        echo.stdout().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello\n");
        assert!(Program::default().start().is_err());
        assert!(Program::new(["schedlab-no-such-program"]).start().is_err());
        assert!(find("sleep").is_some() && find("schedlab-no-such-program").is_none());
    }
}
