//! The process `schedlab run` of a round under a scheduler.

use super::plan::ConfirmError;
use rustix::process::{Pid, Signal, kill_process};
use schedlab_host::threads::{self, Identity};
use schedlab_live::restore;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Name of the entry in the environment of a driver that says which round it is.
const MARK: &str = "SCHEDLAB_ROUND";
/// How long a driver and its descendants have to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running `schedlab run`, which ends its command and gives everything back when it is asked to. When it is killed, its guardian
/// gives the threads back and the command goes on; nothing of a round may go on, so this ends the command then.
pub(super) struct Driver {
    child: Option<Child>,
    /// The name of its first thread.
    name: String,
    /// The entry of its environment, which all processes inherit that it starts.
    mark: String,
    /// First threads of its descendants without its guardians, by process.
    managed: BTreeMap<u32, Identity>,
}

impl Driver {
    /// Starts it with a mark in its environment, by which all descendants are found, also those since the last look.
    pub(super) fn start(command: &mut std::process::Command) -> std::io::Result<Driver> {
        static ROUNDS: AtomicU64 = AtomicU64::new(0);
        let mark = format!("{}-{}", std::process::id(), ROUNDS.fetch_add(1, Relaxed));
        let child = command.env(MARK, &mark).spawn()?;
        // Its guardians have the same name.
        let name = threads::identity(child.id()).map(|first| first.comm).unwrap_or_default();
        Ok(Driver { child: Some(child), name, mark: format!("{MARK}={mark}"), managed: BTreeMap::new() })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    pub(super) fn ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Notes its descendants so far.
    pub(super) fn note_descendants(&mut self, driver: &Identity) {
        let family = restore::family(driver).into_iter().filter(|pid| !self.managed.contains_key(pid));
        let others = family.filter_map(threads::identity).filter(|one| one.comm != driver.comm);
        self.managed.extend(others.map(|one| (one.process, one)).collect::<Vec<_>>());
    }

    /// Notes the processes that have the mark, without the driver and its guardians, which end by themselves.
    fn note_marked(&mut self) {
        let has_mark = |pid: u32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == self.mark.as_bytes())
        };
        let all = threads::processes().into_iter().filter(|pid| has_mark(*pid));
        let is_new = |one: &Identity| one.comm != self.name && !self.managed.contains_key(&one.process);
        let new: Vec<_> =
            all.filter_map(threads::identity).filter(is_new).map(|one| (one.process, one)).collect();
        self.managed.extend(new);
    }

    /// Ends its descendants, and waits until they are gone.
    fn end_managed(&mut self) {
        let begun = Instant::now();
        loop {
            self.note_marked();
            let left = self.managed.values().filter(|thread| thread.lives());
            let left: BTreeSet<u32> = left.flat_map(restore::family).collect();
            if left.is_empty() || begun.elapsed() > PATIENCE {
                return;
            }
            for pid in left {
                // The process may have ended in this moment.
                let _ = Pid::from_raw(pid as i32).map(|pid| kill_process(pid, Signal::KILL));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns why it does not manage the command.
    pub(super) fn failed(&mut self) -> ConfirmError {
        let (mut text, mut killed) = (String::new(), false);
        if let Some(child) = &mut self.child
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
        let Some(child) = self.child.as_mut() else { return Ok(serde_json::Value::Null) };
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
        if let Some(mut child) = self.child.take() {
            ask_to_end(&child);
            let begun = Instant::now();
            while begun.elapsed() < PATIENCE && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(5));
            }
            // Its guardian gives the threads back.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.end_managed();
    }
}
