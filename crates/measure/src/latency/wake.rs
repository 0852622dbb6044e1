//! Ways to be woken: by a timer of the kernel, or by another thread, as applications are.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, read, write};
use rustix::thread::{clock_nanosleep_absolute, futex};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use schedlab_model::Ns;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// What wakes the measuring thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wake {
    /// Absolute `clock_nanosleep` on CLOCK_MONOTONIC; the timer wakes the thread from its
    /// interrupt.
    Clock,
    /// `read` of a periodic timerfd, which knows no timer slack.
    Timerfd,
    /// A byte in a pipe, written by a waker thread.
    Pipe,
    /// An eventfd, written by a waker thread.
    Eventfd,
    /// A futex, woken by a waker thread.
    Futex,
    /// A byte in a Unix stream socket, written by a waker thread.
    Socket,
}

impl Wake {
    /// Whether another thread wakes; then latency counts from what that thread sent.
    pub fn has_waker(self) -> bool {
        !matches!(self, Wake::Clock | Wake::Timerfd)
    }
}

/// How many messages may wait; few enough for every kind of channel to take them without blocking
/// the waker.
const WAITING: usize = 128;

/// CLOCK_MONOTONIC, nanoseconds.
pub(crate) fn now() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// CPU time of the calling thread, nanoseconds.
pub(super) fn own_cpu() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

/// Sleeps until `ns` of CLOCK_MONOTONIC, or until a signal.
pub(crate) fn sleep_until(ns: u64) -> io::Result<()> {
    uninterrupted(clock_nanosleep_absolute(ClockId::Monotonic, &timespec(ns)))
}

fn uninterrupted<T: Default>(result: rustix::io::Result<T>) -> io::Result<T> {
    match result {
        Err(Errno::INTR | Errno::AGAIN) => Ok(T::default()),
        other => Ok(other?),
    }
}

/// A timer that a thread waits for.
pub(super) enum Timer {
    Clock,
    Fd(OwnedFd),
}

impl Timer {
    /// Expires at `first` and then every `interval`.
    pub(super) fn start(wake: Wake, first: u64, interval: Ns) -> io::Result<Timer> {
        if wake != Wake::Timerfd {
            return Ok(Timer::Clock);
        }
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        let times = Itimerspec { it_interval: timespec(interval.0), it_value: timespec(first) };
        timerfd_settime(&fd, TimerfdTimerFlags::ABSTIME, &times)?;
        Ok(Timer::Fd(fd))
    }

    /// Waits for the expiry at `next`, or for a signal, and gives the time after. Not inlined, and
    /// nothing between the return to user space and the clock: after a sleep every line and page of
    /// code that is touched first is cold.
    #[inline(never)]
    pub(super) fn wait(&self, next: u64) -> io::Result<u64> {
        let until = timespec(next);
        let (result, woken) = match self {
            Timer::Clock => {
                let result = clock_nanosleep_absolute(ClockId::Monotonic, &until);
                (result, clock_gettime(ClockId::Monotonic))
            }
            Timer::Fd(fd) => {
                let mut expired = [0u8; 8];
                let result = read(fd, &mut expired).map(drop);
                (result, clock_gettime(ClockId::Monotonic))
            }
        };
        uninterrupted(result).map(|()| nanoseconds(woken))
    }
}

/// When which message was sent; the channel itself only wakes.
pub(super) struct Mailbox {
    stamps: [AtomicU64; WAITING],
    posted: AtomicU64,
    taken: AtomicU64,
    closed: AtomicBool,
    channel: Channel,
}

enum Channel {
    Pipe(OwnedFd, OwnedFd),
    Eventfd(OwnedFd),
    Futex(AtomicU32),
    Socket(UnixStream, UnixStream),
}

impl Mailbox {
    pub(super) fn new(wake: Wake) -> io::Result<Arc<Mailbox>> {
        let channel = match wake {
            Wake::Eventfd => Channel::Eventfd(eventfd(0, EventfdFlags::CLOEXEC)?),
            Wake::Futex => Channel::Futex(AtomicU32::new(0)),
            Wake::Socket => {
                let (reader, writer) = UnixStream::pair()?;
                Channel::Socket(reader, writer)
            }
            _ => {
                let (reader, writer) = io::pipe()?;
                Channel::Pipe(reader.into(), writer.into())
            }
        };
        Ok(Arc::new(Mailbox {
            stamps: [const { AtomicU64::new(0) }; WAITING],
            posted: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            channel,
        }))
    }

    /// Sends a message. `false`: too many wait, it was not sent.
    pub(super) fn post(&self) -> io::Result<bool> {
        let posted = self.posted.load(Ordering::Relaxed);
        if posted - self.taken.load(Ordering::Acquire) >= WAITING as u64 {
            return Ok(false);
        }
        self.stamps[posted as usize % WAITING].store(now(), Ordering::Relaxed);
        self.posted.store(posted + 1, Ordering::Release);
        self.signal()?;
        Ok(true)
    }

    /// Nothing will be sent any more.
    pub(super) fn close(&self) -> io::Result<()> {
        self.closed.store(true, Ordering::Release);
        self.signal()
    }

    fn signal(&self) -> io::Result<()> {
        match &self.channel {
            Channel::Pipe(_, writer) => drop(write(writer, &[1])?),
            Channel::Socket(_, writer) => drop(write(writer, &[1])?),
            Channel::Eventfd(fd) => drop(write(fd, &1u64.to_ne_bytes())?),
            Channel::Futex(word) => {
                word.fetch_add(1, Ordering::Release);
                futex::wake(word, futex::Flags::PRIVATE, 1)?;
            }
        }
        Ok(())
    }

    /// Sleeps until something was sent, and gives the times at which what is there was sent to
    /// `take` together with the time of waking. `false`: closed and empty.
    pub(super) fn receive(&self, take: &mut dyn FnMut(u64, u64)) -> io::Result<bool> {
        let word = match &self.channel {
            Channel::Futex(word) => word.load(Ordering::Acquire),
            _ => 0,
        };
        let taken = self.taken.load(Ordering::Relaxed);
        if let Channel::Futex(of) = &self.channel {
            if self.posted.load(Ordering::Acquire) == taken && !self.closed.load(Ordering::Acquire)
            {
                uninterrupted(futex::wait(of, futex::Flags::PRIVATE, word, None))?;
            }
        } else {
            self.sleep()?;
        }
        let woken = now();
        // Before `posted`: what was sent before the end is not lost.
        let closed = self.closed.load(Ordering::Acquire);
        let posted = self.posted.load(Ordering::Acquire);
        for message in taken..posted {
            take(self.stamps[message as usize % WAITING].load(Ordering::Relaxed), woken);
        }
        self.taken.store(posted, Ordering::Release);
        Ok(!closed)
    }

    fn sleep(&self) -> io::Result<()> {
        let mut bytes = [0u8; WAITING];
        match &self.channel {
            Channel::Pipe(reader, _) => uninterrupted(read(reader, &mut bytes)).map(drop),
            Channel::Socket(reader, _) => uninterrupted(read(reader, &mut bytes)).map(drop),
            Channel::Eventfd(fd) => uninterrupted(read(fd, &mut bytes[..8])).map(drop),
            Channel::Futex(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_arrives_through_every_channel() {
        for wake in [Wake::Pipe, Wake::Eventfd, Wake::Futex, Wake::Socket] {
            let mailbox = Mailbox::new(wake).unwrap();
            let sender = Arc::clone(&mailbox);
            let waker = std::thread::spawn(move || {
                let mut sent = 0;
                while sent < 1000 {
                    match sender.post().unwrap() {
                        true => sent += 1,
                        false => std::thread::yield_now(),
                    }
                }
                sender.close().unwrap();
            });
            let mut got = 0;
            while mailbox
                .receive(&mut |sent, woken| {
                    assert!(sent > 0);
                    // A message may be sent while the last ones are taken: never before.
                    got += u32::from(woken < sent + 60_000_000_000);
                })
                .unwrap()
            {}
            waker.join().unwrap();
            assert_eq!(got, 1000, "{wake:?}");
        }
    }
}
