//! The command that a recording runs.

use crate::HostError;
use crate::sys::hold::HeldProgram;
use crate::sys::sched;
use rustix::fs::Access;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

/// A started command, in a process group of its own. It ends with this value and with this process,
/// whatever ends that, and so does whatever it starts ([`crate::program`]).
#[derive(Debug)]
pub struct Command(HeldProgram);

impl Command {
    /// Starts `arguments`; with `stopped` it waits before its first step until [`Command::go_on`].
    ///
    /// # Errors
    /// When the program does not exist or may not be started.
    pub fn start(arguments: &[String], stopped: bool) -> Result<Command, HostError> {
        let program = arguments.first().cloned().unwrap_or_default();
        let failed = |source| HostError::Spawn { program: program.clone(), source };
        let mut command = std::process::Command::new(&program);
        command.args(arguments.iter().skip(1));
        if stopped {
            // What starts it stopped finds this out when it goes on, and then it is not reported.
            Command::check(arguments)?;
        }
        let command = Command(sched::spawn(&mut command, stopped).map_err(failed)?);
        if stopped && let Err(error) = sched::wait_until_stopped(command.pid()) {
            command.end();
            return Err(failed(error));
        }
        Ok(command)
    }

    /// Whether there is such a program, and it may be started.
    ///
    /// # Errors
    /// When not.
    pub fn check(arguments: &[String]) -> Result<(), HostError> {
        let program = arguments.first().cloned().unwrap_or_default();
        startable(&program).map_err(|source| HostError::Spawn { program, source })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// The mark in its environment, and in that of what it starts.
    pub fn mark(&self) -> &str {
        self.0.mark()
    }

    /// Lets it begin, when it was started stopped.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Whether it has ended by itself.
    pub fn ended(&mut self) -> bool {
        !matches!(self.0.ended(), Ok(None))
    }

    /// Ends it with whatever it started: its group gets SIGTERM when it still runs, and what is
    /// left after two seconds SIGKILL.
    pub fn end(mut self) -> Option<ExitStatus> {
        if !self.ended() {
            self.signal(Signal::TERM);
            self.signal(Signal::CONT);
            for _ in 0..200 {
                if self.ended() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.0.end_all();
        self.0.ended().ok().flatten()
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.pid() as i32) {
            // The group may be gone: then there is nothing to end.
            let _ = kill_process_group(group, signal);
        }
    }
}

/// Whether a program of this name can be started, as `execvp(3)` looks for it.
fn startable(program: &str) -> io::Result<()> {
    let mut why = io::Error::from_raw_os_error(libc::ENOENT);
    if program.is_empty() {
        return Err(why);
    }
    let paths = match program.contains('/') {
        // It is a path already.
        true => "".into(),
        false => std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()),
    };
    for folder in std::env::split_paths(&paths) {
        let file = folder.join(program);
        match file.metadata() {
            Ok(facts) if facts.is_file() && may_execute(&file) => return Ok(()),
            Ok(_) => why = io::Error::from_raw_os_error(libc::EACCES),
            Err(_) => {}
        }
    }
    Err(why)
}

fn may_execute(file: &Path) -> bool {
    rustix::fs::access(file, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_cannot_start_is_told_before_it_is_held() {
        let why = |program: &str| startable(program).map_err(|error| error.raw_os_error());
        assert_eq!((why("sh"), why("/bin/sh")), (Ok(()), Ok(())));
        assert_eq!(why("no-such-program"), Err(Some(libc::ENOENT)));
        assert_eq!(why("/no/such"), Err(Some(libc::ENOENT)));
        assert_eq!(why(""), Err(Some(libc::ENOENT)));
        // A folder, and a file that may not be executed.
        assert_eq!(why("/bin"), Err(Some(libc::EACCES)));
        assert_eq!(why("/etc/passwd"), Err(Some(libc::EACCES)));
        for stopped in [false, true] {
            let error =
                Command::start(&["/no/such".to_owned()], stopped).expect_err("it does not exist");
            assert!(error.to_string().contains("cannot start `/no/such`: No such file"), "{error}");
        }
    }
}
