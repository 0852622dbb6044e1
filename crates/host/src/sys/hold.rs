//! The holder: a process between schedlab and a program that it starts. Whatever the program starts
//! ends with schedlab, whatever ends that: the kernel gives the holder all descendants whose
//! parents ended (`PR_SET_CHILD_SUBREAPER`), and the end of a pipe tells it that schedlab is gone.
//!
//! It is a copy of this process that never becomes another program, so it makes system calls only:
//! nothing is allocated and no lock is taken, which another thread may have held when it was made.

use libc::{c_int, c_void, pid_t};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};

/// The entry of the environment of a program and what it starts, by which they are found when the
/// holder is gone, too.
pub(crate) const MARK: &str = "SCHEDLAB_COMMAND";
/// What a guardian calls itself: it gets time to give back what its owner changed, and ends by
/// itself then.
pub(crate) const GUARDIAN: &std::ffi::CStr = c"sched-guardian";
/// How long it gets, in rounds of [`PAUSE`].
const ROUNDS_OF_A_GUARDIAN: u32 = 6_000;
/// Between two rounds of killing: 5 ms.
const PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };
/// The holder's own descriptors.
const LIFELINE: c_int = 0;
const REPORT: c_int = 1;
/// Descriptors that it inherits begin here, so that none has one of those two numbers.
const ABOVE: c_int = 10;

/// A program with its holder.
#[derive(Debug)]
pub(crate) struct HeldProgram {
    holder: Child,
    /// Its end ends everything.
    lifeline: Option<PipeWriter>,
    report: PipeReader,
    pid: u32,
    status: Option<ExitStatus>,
    mark: String,
}

/// Starts `command` in a process group of its own, with `prepare` before its first instruction.
pub(crate) fn start(
    command: &mut Command,
    mut prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<HeldProgram> {
    let (theirs, lifeline) = io::pipe()?;
    let (mut report, told) = io::pipe()?;
    let theirs: OwnedFd = rustix::io::fcntl_dupfd_cloexec(&theirs, ABOVE)?;
    let told: OwnedFd = rustix::io::fcntl_dupfd_cloexec(&told, ABOVE)?;
    let (first, second) = (theirs.as_raw_fd(), told.as_raw_fd());
    super::huge_pages::begins_without(command);
    let mark = next_mark();
    command.env(MARK, &mark);
    // SAFETY: between fork and exec there are system calls only; nothing is allocated and no lock
    // is taken.
    unsafe {
        command.pre_exec(move || {
            split(first, second)?;
            prepare()
        });
    }
    let holder = command.spawn()?;
    drop((theirs, told));
    let mut number = [0; 4];
    report.read_exact(&mut number)?;
    let pid = u32::from_ne_bytes(number);
    Ok(HeldProgram { holder, lifeline: Some(lifeline), report, pid, status: None, mark })
}

/// Returns a mark that no other program of this boot has: number and start time of this process,
/// and a count.
fn next_mark() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let pid = std::process::id();
    let started = crate::threads::identity(pid).map_or(0, |own| own.started);
    format!("{pid}-{started}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

impl HeldProgram {
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    pub(crate) fn stdin(&mut self) -> Option<ChildStdin> {
        self.holder.stdin.take()
    }

    pub(crate) fn stdout(&mut self) -> Option<ChildStdout> {
        self.holder.stdout.take()
    }

    /// Returns how the program ended; `None`: it runs.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let ready = poll(&mut [PollFd::new(&self.report, PollFlags::IN)], Some(&now))?;
            let mut raw = [0; 4];
            if ready > 0 {
                self.status = match self.report.read_exact(&mut raw) {
                    Ok(()) => Some(ExitStatus::from_raw(c_int::from_ne_bytes(raw))),
                    // The holder was killed, and the kernel killed the program.
                    Err(_) => Some(ExitStatus::from_raw(libc::SIGKILL)),
                };
            }
        }
        Ok(self.status)
    }

    /// Ends whatever is left of the program and what it started.
    pub(crate) fn end_all(&mut self) {
        if self.lifeline.take().is_some()
            && !self.holder.wait().is_ok_and(|status| status.success())
        {
            // The holder was killed: the kernel killed the program with it, and has given what that
            // started to process 1.
            crate::presence::end_marked(&self.mark);
        }
    }
}

impl Drop for HeldProgram {
    fn drop(&mut self) {
        self.end_all();
    }
}

/// Makes this child of schedlab the holder, and a child of its own the program: there it returns.
///
/// # Safety
/// To be called between fork and exec, in a process of one thread.
unsafe fn split(lifeline: c_int, report: c_int) -> io::Result<()> {
    // SAFETY: plain system calls.
    unsafe {
        let holder = libc::getpid();
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let own_group = libc::setpgid(0, 0);
                let bound = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if own_group != 0 || bound != 0 {
                    return Err(io::Error::last_os_error());
                }
                // The holder may have died before the line above.
                let orphan = libc::getppid() != holder;
                if orphan { Err(io::ErrorKind::NotConnected.into()) } else { Ok(()) }
            }
            program => hold(program, lifeline, report),
        }
    }
}

/// The holder's life.
///
/// # Safety
/// As [`split`].
unsafe fn hold(program: pid_t, lifeline: c_int, report: c_int) -> ! {
    // SAFETY: system calls about this process, its descriptors and its children, with memory of
    // this function.
    unsafe {
        let mut all = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        libc::prctl(libc::PR_SET_NAME, c"sched-holder".as_ptr());
        libc::setpgid(0, 0);
        libc::dup2(lifeline, LIFELINE);
        libc::dup2(report, REPORT);
        // Above all the pipe by which schedlab hears that the program has begun.
        if libc::syscall(libc::SYS_close_range, 2, u32::MAX, 0) != 0 {
            // Before Linux 5.9.
            for fd in 2..65_536 {
                libc::close(fd);
            }
        }
        // No file system is kept busy.
        libc::chdir(c"/".as_ptr());
        tell(program);
        let mut child = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
        libc::sigaddset(&raw mut child, libc::SIGCHLD);
        let signals = libc::signalfd(-1, &raw const child, libc::SFD_NONBLOCK);
        loop {
            if !reap(program) {
                libc::_exit(0);
            }
            let event = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let mut fds = [event(LIFELINE), event(signals)];
            libc::poll(fds.as_mut_ptr(), 2, -1);
            if fds[0].revents != 0 {
                end_children(program);
                libc::_exit(0);
            }
            let mut information = [0_u8; mem::size_of::<libc::signalfd_siginfo>()];
            while libc::read(signals, information.as_mut_ptr().cast::<c_void>(), information.len())
                > 0
            {}
        }
    }
}

/// # Safety
/// As [`split`].
unsafe fn tell(number: c_int) {
    let bytes = number.to_ne_bytes();
    // SAFETY: it writes these bytes. Where schedlab is gone that fails, and the lifeline tells the
    // rest.
    unsafe { libc::write(REPORT, bytes.as_ptr().cast::<c_void>(), bytes.len()) };
}

/// Takes notice of children that ended, and tells of the program. False: none is left.
///
/// # Safety
/// As [`split`].
unsafe fn reap(program: pid_t) -> bool {
    loop {
        let mut status = 0;
        // SAFETY: it writes to `status`.
        match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
            0 => return true,
            -1 => return false,
            // SAFETY: as this function.
            pid if pid == program => unsafe { tell(status) },
            _ => {}
        }
    }
}

/// Kills all children, and those of theirs, which become its own, until none is left.
///
/// # Safety
/// As [`split`].
unsafe fn end_children(program: pid_t) {
    let (mut rounds, pause) = (0, PAUSE);
    // SAFETY: as this function.
    while unsafe { reap(program) } {
        let mut text = [0_u8; 4096];
        // SAFETY: as this function.
        let length = unsafe { read(c"/proc/thread-self/children", &mut text) };
        for word in text[..length].split(|byte| *byte == b' ') {
            let number = word.iter().fold(0, |number: pid_t, digit| {
                number.wrapping_mul(10).wrapping_add(pid_t::from(digit.wrapping_sub(b'0')))
            });
            // SAFETY: a child that was not reaped keeps its number.
            unsafe {
                if number > 1 && (rounds > ROUNDS_OF_A_GUARDIAN || !is_guardian(word)) {
                    libc::kill(number, libc::SIGKILL);
                }
            }
        }
        rounds += 1;
        // SAFETY: it reads that value.
        unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
    }
}

/// # Safety
/// As [`split`].
unsafe fn is_guardian(number: &[u8]) -> bool {
    let mut path = [0_u8; 32];
    let parts = [b"/proc/".as_slice(), number, b"/comm".as_slice()];
    let mut at = 0;
    for part in parts {
        let Some(place) = path.get_mut(at..at + part.len()) else { return false };
        place.copy_from_slice(part);
        at += part.len();
    }
    let Ok(path) = std::ffi::CStr::from_bytes_until_nul(&path) else { return false };
    let mut name = [0_u8; 32];
    // SAFETY: as this function.
    let length = unsafe { read(path, &mut name) };
    name[..length].strip_suffix(b"\n") == Some(GUARDIAN.to_bytes())
}

/// Reads the beginning of a file; 0: it cannot be read.
///
/// # Safety
/// As [`split`].
unsafe fn read(path: &std::ffi::CStr, into: &mut [u8]) -> usize {
    // SAFETY: the kernel writes at most as many bytes as there are.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let length = libc::read(file, into.as_mut_ptr().cast::<c_void>(), into.len());
        libc::close(file);
        usize::try_from(length).unwrap_or(0)
    }
}
