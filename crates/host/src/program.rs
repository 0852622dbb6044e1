//! Programs that an experiment starts: prepared before their first instruction, and never left behind.
//!
//! The kernel kills such a program when the **thread** that started it ends, whatever ends it (`PR_SET_PDEATHSIG`). So
//! start it from a thread that lives as long as it is needed: the first one of a process. A network namespace lives as
//! long as a process in it, and goes with it.

use crate::sys::launch::{self, Net, Preparation};
use crate::threads::{self, Scheduling};
use rustix::process::{Pid, Signal, kill_process_group};
use schedlab_model::CpuSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
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

/// A program that runs; killed and reaped on drop, with its process group.
#[derive(Debug)]
pub struct Running {
    child: Child,
}

impl Program {
    /// `words` with the defaults.
    pub fn new<S: Into<String>>(words: impl IntoIterator<Item = S>) -> Program {
        Program { command: words.into_iter().map(Into::into).collect(), ..Program::default() }
    }

    /// Starts it. Its standard error is ours.
    ///
    /// # Errors
    /// When it does not exist, or the kernel refuses the policy, the CPUs, the group or the namespace.
    pub fn start(&self) -> io::Result<Running> {
        let (program, arguments) =
            self.command.split_first().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut command = Command::new(program);
        let stream = || if self.piped { Stdio::piped() } else { Stdio::null() };
        command.args(arguments).stdin(stream()).stdout(stream());
        let net = match self.network {
            Network::Same => Net::Same,
            Network::New => Net::New,
            Network::Of(pid) => Net::Of(File::open(format!("/proc/{pid}/ns/net"))?),
        };
        let procs = |group: &PathBuf| OpenOptions::new().write(true).open(group.join("cgroup.procs"));
        let preparation = Preparation {
            net,
            group: self.group.as_ref().map(procs).transpose()?,
            cpus: self.cpus.as_ref().map(threads::mask),
            scheduling: self.scheduling.as_ref().map(threads::raw),
        };
        Ok(Running { child: launch::start(&mut command, preparation)? })
    }
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// What `waitpid(2)` answers.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Its standard input, once.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Its standard output, once.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Asks it to end, and after `patience` makes it.
    pub fn end(mut self, patience: Duration) {
        self.signal(Signal::TERM);
        let asked = Instant::now();
        while asked.elapsed() < patience && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            // The group may be empty already.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
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

    #[test]
    fn it_dies_with_the_thread_that_started_it() {
        let start = || Program::new(["sleep", "600"]).start().unwrap();
        let mut running = std::thread::spawn(start).join().unwrap();
        let status = running.child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
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
