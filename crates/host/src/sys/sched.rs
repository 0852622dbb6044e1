//! Scheduling attributes of a thread, and starting a child that waits for us.

use super::hold::{self, HeldProgram};
use std::io;
use std::process::Command;

/// `SCHED_EXT` of include/uapi/linux/sched.h (Linux 6.12 and later).
pub(crate) const EXT: u32 = 7;

/// What `sched_getattr(2)` says. Layout of its first version and the ones after it (48 + 8 bytes).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attributes {
    pub(crate) size: u32,
    /// `SCHED_OTHER` 0, `FIFO` 1, `RR` 2, `BATCH` 3, `IDLE` 5, `DEADLINE` 6, `EXT` 7.
    pub(crate) policy: u32,
    /// `SCHED_FLAG_RESET_ON_FORK` 1 and others.
    pub(crate) flags: u64,
    /// Nice value (fair policies).
    pub(crate) nice: i32,
    /// Real-time priority 1 … 99 (FIFO, RR).
    pub(crate) priority: u32,
    /// Nanoseconds: DEADLINE's runtime; for fair policies the slice (Linux 6.12 and later, else 0).
    pub(crate) runtime: u64,
    /// Nanoseconds.
    pub(crate) deadline: u64,
    /// Nanoseconds.
    pub(crate) period: u64,
    pub(crate) util_min: u32,
    pub(crate) util_max: u32,
}

/// Attributes of thread `tid` (0: the calling thread).
pub(crate) fn attributes(tid: u32) -> io::Result<Attributes> {
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>() as libc::c_uint;
    // SAFETY: the kernel writes at most `size` bytes through the pointer, which is valid for that
    // many.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_getattr, tid as libc::pid_t, &raw mut attributes, size, 0)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(attributes) }
}

/// Sets the attributes of thread `tid` (0: the calling thread).
pub(crate) fn set_attributes(tid: u32, mut attributes: Attributes) -> io::Result<()> {
    // The first version of the structure: clamps of utilisation are none of our business.
    attributes.size = 48;
    // SAFETY: the kernel reads `size` bytes, which the structure has.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_setattr, tid as libc::pid_t, &raw const attributes, 0)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Starts `command` in a process group of its own. With `stopped` it stops itself before its first
/// instruction of user code, until it gets SIGCONT.
pub(crate) fn spawn(command: &mut Command, stopped: bool) -> io::Result<HeldProgram> {
    if !stopped {
        return hold::start(command, || Ok(()));
    }
    // `Command::spawn` returns when the child has called exec, which a stopped child never does: so
    // exec goes through a shell that stops itself first.
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]).arg(command.get_program());
    shell.args(command.get_args());
    hold::start(&mut shell, || Ok(()))
}

/// Whether a stopped child has reached its stop, within a second.
pub(crate) fn wait_until_stopped(pid: u32) -> io::Result<()> {
    for _ in 0..1000 {
        let stat =
            String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/stat"))?).into_owned();
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        if state == Some('T') {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Err(io::Error::other("the command did not stop before its start"))
}
