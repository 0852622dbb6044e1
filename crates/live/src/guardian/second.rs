//! The second guardian: a child of the guardian that sleeps until that one ends, and does its work
//! when it was killed together with the owner. It leads a session of its own, as the guardian does:
//! a signal to a whole process group, or to the two largest processes, does not reach it. It also
//! looks for the end of the owner by itself, now and then: a guardian that was stopped (SIGSTOP)
//! does nothing about that.

use super::{
    Duration, ENDED, GuardianEnd, GuardianOptions, Held, Instant, PATIENCE, QUIT, is_ready,
    owner_lives, stop_owner,
};
use crate::LiveError;
use crate::journal::Record;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// An owner without a guardian has this long to notice and to restore everything by itself.
const ALONE: Duration = Duration::from_secs(5);
/// How often the owner is looked at meanwhile.
const STEP: Duration = Duration::from_millis(5);
/// How often while the guardian lives.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
/// A second guardian that was told to go and does not is left behind; it ends with the guardian's
/// pipe.
const GOING: Duration = Duration::from_secs(1);

/// Runs the second guardian.
pub(super) fn wait(
    watch: &GuardianOptions,
    held: &mut Held,
    record: &Record,
) -> Result<GuardianEnd, LiveError> {
    let owner = &record.head.owner;
    let mut ended: Option<Instant> = None;
    loop {
        let mut input = io::stdin();
        let ready = poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&LOOK));
        let mut byte = [0];
        match ready {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
            Ok(_) => match input.read(&mut byte) {
                Ok(1) if byte[0] == QUIT => return Ok(GuardianEnd::Dismissed),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => break,
                Ok(0) => break,
                _ => {}
            },
        }
        ended = if owner_lives(owner) { None } else { ended.or_else(|| Some(Instant::now())) };
        if ended.is_some_and(|ended| ended.elapsed() > ENDED) && !held.is_over() {
            return held.give_back_after_death(PATIENCE).map(GuardianEnd::Restored);
        }
    }
    let begun = Instant::now();
    while owner_lives(owner) {
        if held.is_over() {
            return Ok(GuardianEnd::Dismissed);
        }
        // Where silence counts, an owner that goes on is killed.
        if watch.silence.is_some() && begun.elapsed() > ALONE {
            stop_owner(record);
            break;
        }
        std::thread::sleep(STEP);
    }
    held.give_back_after_death(PATIENCE).map(GuardianEnd::Restored)
}

/// The guardian's end of it.
pub(super) struct Second {
    child: Child,
    pipe: ChildStdin,
    /// It says nothing more; its end is the end of the process. `None`: no other could be started
    /// after that.
    out: Option<ChildStdout>,
}

impl Second {
    /// Starts it, and waits until it watches.
    pub(super) fn start(watch: &GuardianOptions) -> Result<Second, LiveError> {
        let refused = |reason: String| LiveError::Guardian { reason };
        let failed = |error: io::Error| refused(format!("the second one: {error}"));
        let watch = GuardianOptions { second: true, starve: None, ..watch.clone() };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        // It inherits the memory that this one inherited.
        command
            .args(watch.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = command.spawn().map_err(failed)?;
        let mut out = child.stdout.take();
        match child.stdin.take().filter(|_| is_ready(out.as_mut())) {
            Some(pipe) => Ok(Second { child, pipe, out }),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                Err(refused("the second one ended before it watched".to_owned()))
            }
        }
    }

    /// Returns what tells of its end.
    pub(super) fn pipe(&self) -> Option<&ChildStdout> {
        self.out.as_ref()
    }

    /// Starts another one after its end.
    pub(super) fn renew(&mut self, watch: &GuardianOptions) {
        let _ = self.child.wait();
        match Second::start(watch) {
            Ok(second) => *self = second,
            Err(_) => self.out = None,
        }
    }

    /// Tells it to go; `done`: everything is restored. If not, it tries, too.
    pub(super) fn dismiss(&mut self, done: bool) {
        if done {
            let _ = self.pipe.write_all(&[QUIT]);
            let begun = Instant::now();
            while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < GOING {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
