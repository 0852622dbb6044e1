//! The process `schedlab run` of a round under a scheduler.

use super::plan::ConfirmError;
use rustix::process::{Pid, Signal, kill_process};
use schedlab_host::die_with_us;
use std::io::Read;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// How long a driver has to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running `schedlab run`, which ends its command and gives everything back when it is asked to.
/// When it is killed, its guardian gives the threads back, and the holder of the command ends that.
pub(super) struct Driver(Option<Child>);

impl Driver {
    /// Starts it. It dies with this thread.
    pub(super) fn start(command: &mut std::process::Command) -> std::io::Result<Driver> {
        die_with_us(command);
        Ok(Driver(Some(command.spawn()?)))
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }

    pub(super) fn ended(&mut self) -> bool {
        self.0.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Returns why it does not manage the command.
    pub(super) fn failed(&mut self) -> ConfirmError {
        let (mut text, mut killed) = (String::new(), false);
        if let Some(child) = &mut self.0
            && let Ok(Some(status)) = child.try_wait()
        {
            killed = is_killed(status);
            // Without standard error there is no message.
            let _ = child.stderr.take().map(|mut error| error.read_to_string(&mut text));
        }
        let said = match text.trim() {
            "" => "schedlab run did not begin to manage the command".to_owned(),
            words => words.trim_start_matches("error: ").to_owned(),
        };
        ConfirmError::Driver { said, killed }
    }

    /// Ends it. Returns its report.
    pub(super) fn end(mut self) -> Result<serde_json::Value, ConfirmError> {
        let Some(child) = self.0.as_mut() else { return Ok(serde_json::Value::Null) };
        ask_to_end(child);
        let (mut text, mut said) = (String::new(), String::new());
        // What cannot be read is no report.
        let _ = child.stdout.take().map(|mut out| out.read_to_string(&mut text));
        let _ = child.stderr.take().map(|mut out| out.read_to_string(&mut said));
        serde_json::from_str(&text).map_err(|_| {
            let status = child.wait();
            let how = status.as_ref().map_or_else(ToString::to_string, ToString::to_string);
            let said = said.trim();
            let killed = status.is_ok_and(is_killed);
            let said = format!("schedlab run ended without a report ({how}); it said: {said}");
            ConfirmError::Driver { said, killed }
        })
    }
}

fn is_killed(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::KILL.as_raw())
}

fn ask_to_end(child: &Child) {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        // The process may have ended in this moment.
        let _ = kill_process(pid, Signal::TERM);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            ask_to_end(&child);
            let begun = Instant::now();
            while begun.elapsed() < PATIENCE && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(5));
            }
            // Its guardian gives the threads back.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
