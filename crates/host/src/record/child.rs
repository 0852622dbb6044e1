//! The command that a recording runs.

use crate::HostError;
use crate::sys::sched;
use rustix::process::{Pid, Signal, kill_process_group};
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// A started command, in a process group of its own.
#[derive(Debug)]
pub struct Command {
    child: Child,
    status: Option<ExitStatus>,
}

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
        let child = sched::spawn(&mut command, stopped).map_err(failed)?;
        let command = Command { child, status: None };
        if stopped && let Err(error) = sched::wait_until_stopped(command.pid()) {
            command.end();
            return Err(failed(error));
        }
        Ok(command)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it begin, when it was started stopped.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Whether it has ended by itself.
    pub fn ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status.is_some()
    }

    /// Ends it, when it still runs, with all processes of its group: SIGTERM, and SIGKILL after two seconds.
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
            if !self.ended() {
                self.signal(Signal::KILL);
                self.status = self.child.wait().ok();
            }
        }
        self.status
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.pid() as i32) {
            // The group may be gone: then there is nothing to end.
            let _ = kill_process_group(group, signal);
        }
    }
}
