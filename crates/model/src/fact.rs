//! What tasks exchanged: facts of a recording, in a stream of their own beside the events of the
//! schedule.
//!
//! A fact says what one task did at one object (a connection, a pipe, a futex, a timer). Who waits
//! for which message follows from the facts; it is recorded nowhere.

use crate::{CpuId, Ns, ObjectId, TaskId};
use serde::{Deserialize, Serialize};

/// What a task did at an object. Facts of one recording are in non-decreasing time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fact {
    /// When the operation ended, since the start of the recording.
    pub at: Ns,
    /// The CPU on which it ended.
    pub cpu: CpuId,
    /// The task that did it; of a [`FactKind::Signal`], the task to which it was sent. `None` of
    /// [`FactKind::Lost`] only.
    pub task: Option<TaskId>,
    /// What.
    pub kind: FactKind,
}

/// Which operation, and what it gave.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum FactKind {
    /// Bytes went into an object.
    Send(Transfer),
    /// Bytes were taken out of an object.
    Receive(Transfer),
    /// A task looked at several objects at once (epoll, poll, select, io_uring).
    Select {
        /// The object that represents them; `None`: a list that the call brought along.
        selector: Option<ObjectId>,
        /// How many had something.
        ready: u32,
        /// How long it was ready to wait.
        until: Limit,
        /// [`Outcome::Done`], also when nothing was ready and none was to be waited for; timed out,
        /// interrupted or failed.
        outcome: Outcome,
    },
    /// An object was put under a selector or taken away (epoll_ctl). Recordings of format 1.4 and
    /// 1.5 have it; event loops do it several times a request, and nothing reads it.
    Watch {
        /// The selector.
        selector: ObjectId,
        /// The object.
        object: ObjectId,
        /// Under it from now on, or no longer.
        watched: bool,
        /// What wakes: the kernel's event bits (`EPOLLIN` 1, `EPOLLOUT` 4, `EPOLLEXCLUSIVE` 1 <<
        /// 28, `EPOLLONESHOT` 1 << 30, `EPOLLET` 1 << 31); 0 when it is taken away.
        events: u32,
    },
    /// A task waited at a futex, or tried to.
    FutexWait {
        /// The futex.
        futex: ObjectId,
        /// The value with which it would wait. A mutex of glibc or Go whose waiters are known to
        /// its holder has 2.
        expected: u32,
        /// How long it was ready to wait.
        until: Limit,
        /// Woken ([`Outcome::Done`]), value changed before, timed out or interrupted.
        outcome: Outcome,
    },
    /// A task woke those that wait at a futex.
    FutexWake {
        /// The futex.
        futex: ObjectId,
        /// How many it wanted to wake, at most.
        asked: u32,
        /// How many it woke (and moved to the other futex, when there is one).
        woken: u32,
        /// Those that are left wait at this one from now on.
        requeue: Option<ObjectId>,
    },
    /// A task slept for a time of its own choice.
    Sleep {
        /// Until when.
        until: Limit,
        /// The time is over ([`Outcome::Done`]), or interrupted.
        outcome: Outcome,
    },
    /// A timer was set ([`Limit::None`]: stopped). That it expired is a receive from it.
    Arm {
        /// The timer.
        timer: ObjectId,
        /// When it expires first.
        first: Limit,
        /// And how often again; 0: not again.
        every: Ns,
    },
    /// An object begins. Objects that are older than the recording have none.
    Open {
        /// Which.
        object: ObjectId,
    },
    /// The sending end of a connection was closed: what comes after the bytes is the end.
    Close {
        /// Which.
        object: ObjectId,
    },
    /// A connection was accepted.
    Accept {
        /// At this listening object.
        listener: ObjectId,
        /// Its direction to the task that accepted; its [peer](ObjectInfo::peer) is the other.
        object: ObjectId,
    },
    /// A connection was asked for.
    Connect {
        /// Its direction away from the task; its [peer](ObjectInfo::peer) is the other.
        object: ObjectId,
        /// Done, in progress ([`Outcome::WouldBlock`]) or failed.
        outcome: Outcome,
    },
    /// A signal was sent.
    Signal {
        /// By this task, where one did it.
        from: Option<TaskId>,
        /// Its number.
        number: u32,
    },
    /// A task waited for a child that had ended.
    Child {
        /// The child, where it is known.
        child: Option<TaskId>,
    },
    /// A task that could have run on lost the CPU inside a system call. One that lost it without
    /// this fact was in user space.
    Preempted {
        /// The call's number on the recorded machine.
        call: u32,
    },
    /// The recorder lost facts of this CPU somewhere before now.
    Lost {
        /// How many.
        count: u64,
    },
}

/// Bytes that went into an object or out of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Transfer {
    /// Which object.
    pub object: ObjectId,
    /// How many bytes; of an eventfd, by how much its counter changed; of a timer, how often it had
    /// expired.
    pub bytes: u32,
    /// The place in the object's stream behind these bytes, counted alike at both ends. Where the
    /// next fact's place is not this one plus its bytes, facts between them are missing. `None`:
    /// objects of this kind have no places.
    pub place: Option<u64>,
    /// Done; would block; interrupted; failed; of a receive, also the [end](Outcome::End).
    pub outcome: Outcome,
    /// A send took fewer bytes than it was given.
    pub partial: bool,
    /// A receive had no room for more: it took what fitted, not what was there.
    pub limited: bool,
    /// A receive left the bytes where they are.
    pub peek: bool,
    /// A thread of the kernel did it for the task (a worker of io_uring, say).
    pub by_kernel: bool,
}

impl Transfer {
    /// Returns a transfer of `bytes` that went well.
    pub const fn done(object: ObjectId, bytes: u32) -> Transfer {
        Transfer {
            object,
            bytes,
            place: None,
            outcome: Outcome::Done,
            partial: false,
            limited: false,
            peek: false,
            by_kernel: false,
        }
    }
}

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// As it was meant.
    Done,
    /// It would have had to wait, and was not to (`EAGAIN`, `EINPROGRESS`).
    WouldBlock,
    /// Its time was over.
    TimedOut,
    /// A signal ended it.
    Interrupted,
    /// The other end is closed and everything was read.
    End,
    /// The futex had another value already.
    Changed,
    /// With another error.
    Failed,
}

impl Outcome {
    /// Every outcome, in the order of their numbers in a file.
    pub const ALL: [Outcome; 7] = [
        Outcome::Done,
        Outcome::WouldBlock,
        Outcome::TimedOut,
        Outcome::Interrupted,
        Outcome::End,
        Outcome::Changed,
        Outcome::Failed,
    ];
}

/// How long a task was ready to wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Limit {
    /// For ever.
    None,
    /// This long, from when it began.
    For(Ns),
    /// Until this time of the recording, whenever it began (`TIMER_ABSTIME`); 0 also for times
    /// before its start.
    At(Ns),
    /// There was a limit that the recorder cannot tell.
    Unknown,
}

/// What kind of thing an object is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectKind {
    /// One direction of a TCP connection.
    Tcp,
    /// What is on its way to a UDP socket.
    Udp,
    /// What is on its way to a Unix stream socket.
    Unix,
    /// What is on its way to a Unix datagram socket.
    UnixDatagram,
    /// What is on its way to a socket of another family.
    Socket,
    /// A socket that listens.
    Listener,
    /// A pipe or a FIFO.
    Pipe,
    /// An eventfd: its counter.
    Eventfd,
    /// A timerfd.
    Timerfd,
    /// A signalfd.
    Signalfd,
    /// An epoll instance.
    Epoll,
    /// An io_uring.
    IoUring,
    /// A futex of one process' memory.
    Futex,
    /// A futex in memory that processes share.
    SharedFutex,
    /// A kind that a later version knows.
    #[serde(other)]
    Other,
}

impl ObjectKind {
    /// Returns the word for people.
    pub const fn word(self) -> &'static str {
        match self {
            ObjectKind::Tcp => "TCP",
            ObjectKind::Udp => "UDP",
            ObjectKind::Unix => "Unix stream",
            ObjectKind::UnixDatagram => "Unix datagram",
            ObjectKind::Socket => "socket",
            ObjectKind::Listener => "listening socket",
            ObjectKind::Pipe => "pipe",
            ObjectKind::Eventfd => "eventfd",
            ObjectKind::Timerfd => "timerfd",
            ObjectKind::Signalfd => "signalfd",
            ObjectKind::Epoll => "epoll",
            ObjectKind::IoUring => "io_uring",
            ObjectKind::Futex => "futex",
            ObjectKind::SharedFutex => "shared futex",
            ObjectKind::Other => "other object",
        }
    }
}

/// What is known about an object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ObjectInfo {
    /// What it is.
    pub kind: ObjectKind,
    /// Where its bytes come from: an address such as `127.0.0.1:41230`; empty where it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// Where they go: an address, the path of a Unix socket, `pipe:[4711]`; empty where it has
    /// none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// The other direction of the same connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<ObjectId>,
    /// Bytes that it holds before a sender has to wait, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u64>,
}

impl ObjectInfo {
    /// Returns an object of which only the kind is known.
    pub const fn of_kind(kind: ObjectKind) -> ObjectInfo {
        ObjectInfo { kind, from: String::new(), to: String::new(), peer: None, capacity: None }
    }
}

impl FactKind {
    /// Lets the times of the fact count from `from` on.
    pub fn shift(&mut self, from: Ns) {
        match self {
            FactKind::Select { until, .. }
            | FactKind::FutexWait { until, .. }
            | FactKind::Sleep { until, .. }
            | FactKind::Arm { first: until, .. } => {
                if let Limit::At(at) = until {
                    *at = at.saturating_sub(from);
                }
            }
            _ => {}
        }
    }

    /// Calls `change` with every object that the fact names.
    pub fn each_object(&mut self, change: &mut dyn FnMut(&mut ObjectId)) {
        match self {
            FactKind::Send(transfer) | FactKind::Receive(transfer) => change(&mut transfer.object),
            FactKind::Select { selector, .. } => selector.iter_mut().for_each(change),
            FactKind::Watch { selector, object, .. } => {
                change(selector);
                change(object);
            }
            FactKind::FutexWait { futex, .. } => change(futex),
            FactKind::FutexWake { futex, requeue, .. } => {
                change(futex);
                requeue.iter_mut().for_each(change);
            }
            FactKind::Arm { timer: object, .. }
            | FactKind::Open { object }
            | FactKind::Close { object }
            | FactKind::Connect { object, .. } => change(object),
            FactKind::Accept { listener, object } => {
                change(listener);
                change(object);
            }
            FactKind::Sleep { .. }
            | FactKind::Signal { .. }
            | FactKind::Child { .. }
            | FactKind::Preempted { .. }
            | FactKind::Lost { .. } => {}
        }
    }
}

impl Fact {
    /// Calls `change` with every task that the fact names.
    pub fn each_task(&mut self, change: &mut dyn FnMut(&mut TaskId)) {
        self.task.iter_mut().for_each(&mut *change);
        match &mut self.kind {
            FactKind::Signal { from: other, .. } | FactKind::Child { child: other } => {
                other.iter_mut().for_each(change);
            }
            _ => {}
        }
    }
}
