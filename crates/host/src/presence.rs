//! Which process or thread, asked so that "the kernel did not tell" never counts as "it is gone".
//! What is given back depends on the difference: without a free descriptor nothing of /proc can be
//! read, and every thread would look as if it had ended.

use crate::sys::hold;
use crate::threads::{Identity, identity};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use std::{fs, io};

/// A file of `/proc` about a process or thread; `None`: that one does not exist any more.
pub(crate) fn read(path: &str) -> io::Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) => gone(error).map(|()| None),
    }
}

/// Returns nothing when an error says that a process or thread does not exist, else the error.
fn gone(error: io::Error) -> io::Result<()> {
    // ESRCH: it ended after the file was opened.
    let no_such =
        error.raw_os_error() == Some(libc::ESRCH) || error.kind() == io::ErrorKind::NotFound;
    if no_such { Ok(()) } else { Err(error) }
}

/// Returns every process that can be seen, ascending.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn processes() -> io::Result<Vec<u32>> {
    Ok(numbered("/proc")?.unwrap_or_default())
}

/// Returns the threads of process `pid`, ascending; empty when it is gone.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn threads_of(pid: u32) -> io::Result<Vec<u32>> {
    Ok(numbered(&format!("/proc/{pid}/task"))?.unwrap_or_default())
}

fn numbered(folder: &str) -> io::Result<Option<Vec<u32>>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return gone(error).map(|()| None),
    };
    let mut found = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) => {
                found.extend(entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()))
            }
            Err(error) => gone(error)?,
        }
    }
    found.sort_unstable();
    Ok(Some(found))
}

impl Identity {
    /// Returns whether it exists: a thread of its process with its number that started when it did.
    /// One that is dead and not reaped exists.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn exists(&self) -> io::Result<bool> {
        Ok(self.state()?.is_some())
    }

    /// Returns whether it exists and is not dead.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn is_alive(&self) -> io::Result<bool> {
        Ok(self.state()?.is_some_and(|state| !matches!(state, 'Z' | 'X')))
    }

    /// The letter in its `stat` file, which is that of its process: a thread of the same number
    /// elsewhere is not there.
    fn state(&self) -> io::Result<Option<char>> {
        let text = read(&format!("/proc/{}/task/{}/stat", self.process, self.tid))?;
        Ok(text.and_then(|text| {
            let mut fields = text.rsplit_once(')')?.1.split_whitespace();
            let state = fields.next()?.chars().next()?;
            (fields.nth(18)?.parse() == Ok(self.started)).then_some(state)
        }))
    }

    /// Sends a signal to its process, and to no later one of the same number: the process is held
    /// by a descriptor (pidfd, Linux 5.3) while its start time is compared. Older kernels get the
    /// number.
    ///
    /// # Errors
    /// `ESRCH`: it is gone. `EPERM`: it belongs to another user.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let no_such = || io::Error::from_raw_os_error(libc::ESRCH);
        let pid = Pid::from_raw(self.process.cast_signed()).ok_or_else(no_such)?;
        let held: Option<OwnedFd> = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(held) => Some(held),
            Err(Errno::NOSYS) => None,
            Err(error) => return Err(error.into()),
        };
        if !self.exists()? {
            return Err(no_such());
        }
        match &held {
            Some(held) => Ok(pidfd_send_signal(held, signal)?),
            None => Ok(kill_process(pid, signal)?),
        }
    }
}

/// How long marked processes may take to end.
const END: Duration = Duration::from_secs(10);

/// Kills every process that has this mark in its environment: a program that schedlab started, and
/// what that started, unless it took the mark out. A guardian ends by itself, when everything is
/// given back. Returns how many were killed.
pub fn end_marked(mark: &str) -> usize {
    let entry = format!("{}={mark}", hold::MARK);
    let begun = Instant::now();
    let mut killed = BTreeSet::new();
    loop {
        let marked: Vec<Identity> = processes()
            .unwrap_or_default()
            .into_iter()
            .filter(|pid| *pid != std::process::id() && is_marked(*pid, entry.as_bytes()))
            .filter_map(identity)
            .filter(|one| {
                one.comm.as_bytes() != hold::GUARDIAN.to_bytes() && one.is_alive().unwrap_or(false)
            })
            .collect();
        if marked.is_empty() || begun.elapsed() > END {
            return killed.len();
        }
        for one in marked {
            // It may have ended in this moment.
            let _ = one.signal(Signal::KILL);
            killed.insert(one);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn is_marked(pid: u32, entry: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|one| one == entry)
}

/// Names the calling thread as a guardian, which holders leave to its work.
pub fn call_guardian() {
    // The name is short enough.
    let _ = rustix::thread::set_name(hold::GUARDIAN);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_of_the_same_number_gets_no_signal_of_an_earlier_one() {
        let mut child = Command::new("sleep").arg("600").spawn().expect("sleep(1)");
        let thread = identity(child.id()).expect("it lives");
        let earlier = Identity { started: thread.started - 1, ..thread.clone() };
        assert!(thread.exists().expect("readable") && !earlier.exists().expect("readable"));
        let refused = earlier.signal(Signal::KILL).expect_err("another process");
        assert_eq!(refused.raw_os_error(), Some(libc::ESRCH));
        assert!(thread.lives());
        thread.signal(Signal::KILL).expect("our child");
        child.wait().expect("our child");
        assert!(!thread.exists().expect("readable"));
    }

    #[test]
    fn what_is_gone_is_told_from_what_cannot_be_read() {
        assert_eq!(threads_of(1 << 23).expect("no process has that number"), [] as [u32; 0]);
        assert!(processes().expect("readable").contains(&std::process::id()));
        assert!(read("/proc/4194305/stat").expect("gone").is_none());
        // A folder is no file: an error that does not say that anything is gone.
        assert!(read("/proc").is_err());
    }
}
