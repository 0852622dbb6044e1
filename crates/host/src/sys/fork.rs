//! Child processes that run a closure of this program: what a benchmark of processes needs.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::process::CommandExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{fs, io};

/// A forked copy of this process that runs one closure. Killed and reaped on drop, if it still
/// runs; the kernel kills it when the thread that started it dies, however that dies.
#[derive(Debug)]
pub struct Worker {
    pid: Pid,
    reaped: bool,
}

impl Worker {
    /// Forks. The child runs `work`, then exits with success if that said true; it runs no
    /// destructor and no exit handler, and Ctrl-C ends it at once.
    ///
    /// # Errors
    /// What `fork(2)` answers (`EAGAIN`: too many processes), and `InvalidInput` if this process
    /// has more than one thread: a lock that another thread holds would stay taken in the child for
    /// ever.
    pub fn fork(work: impl FnOnce() -> bool) -> io::Result<Worker> {
        if fs::read_dir("/proc/self/task")?.count() != 1 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "cannot fork a process with several threads",
            ));
        }
        let parent = rustix::process::getpid();
        // SAFETY: this thread is the only one, so the child has a consistent copy of everything.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let done =
                    catch_unwind(AssertUnwindSafe(|| prepare(parent) && work())).unwrap_or(false);
                // SAFETY: ends the process; nothing of the parent's is flushed or dropped twice.
                unsafe { libc::_exit(i32::from(!done)) }
            }
            pid => {
                let pid = Pid::from_raw(pid)
                    .ok_or_else(|| io::Error::other("fork gave no process id"))?;
                Ok(Worker { pid, reaped: false })
            }
        }
    }

    /// Waits for its end; true if its closure said true.
    ///
    /// # Errors
    /// What `waitpid(2)` answers.
    pub fn wait(mut self) -> io::Result<bool> {
        let status = loop {
            match waitpid(Some(self.pid), WaitOptions::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
        self.reaped = true;
        Ok(status.is_some_and(|(_, status)| status.exit_status() == Some(0)))
    }
}

/// Lets the kernel kill (SIGKILL) the program that `command` starts when the thread that starts it
/// dies, however that dies. What the program starts itself is not reached: give it a process group,
/// and end that, for the usual end.
pub fn die_with_us(command: &mut std::process::Command) {
    let parent = rustix::process::getpid();
    let bind = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the line above.
        let orphan = rustix::process::getppid() != Some(parent);
        if orphan { Err(io::ErrorKind::NotConnected.into()) } else { Ok(()) }
    };
    // SAFETY: two system calls and a comparison; nothing is allocated and no lock is taken.
    unsafe {
        command.pre_exec(bind);
    }
    super::huge_pages::begins_without(command);
}

/// Lets the program that `command` starts have the open file `fd` under the same number.
pub fn inherits(command: &mut std::process::Command, fd: &impl AsFd) -> i32 {
    let number = fd.as_fd().as_raw_fd();
    // SAFETY: it sets a flag of a descriptor.
    let keep = move || match unsafe { libc::fcntl(number, libc::F_SETFD, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    // SAFETY: one system call about a number; nothing is allocated and no lock is taken. A number
    // that is no open file is an error.
    unsafe {
        command.pre_exec(keep);
    }
    number
}

/// Lets the program that `command` starts begin on `cpus`, wherever the thread that starts it is
/// bound.
pub fn begins_on(command: &mut std::process::Command, cpus: &schedlab_model::CpuSet) {
    let mask = crate::threads::mask(cpus);
    let bind = move || Ok(rustix::thread::sched_setaffinity(None, &mask)?);
    // SAFETY: one system call; nothing is allocated and no lock is taken.
    unsafe {
        command.pre_exec(bind);
    }
}

/// First thing in the child: die with the parent, and obey signals as any program does.
fn prepare(parent: Pid) -> bool {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the default action is always valid.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let bound = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).is_ok();
    // The parent may have died before the line above.
    bound && rustix::process::getppid() == Some(parent)
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.reaped {
            // Best effort: it may just have ended.
            let _ = kill_process(self.pid, Signal::KILL);
            let _ = waitpid(Some(self.pid), WaitOptions::empty());
        }
    }
}
