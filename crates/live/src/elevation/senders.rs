//! Threads that send managed threads to another CPU while the agent that wants it goes on.
//!
//! sched_setaffinity(2) waits until the thread has left its CPU, and on PREEMPT_RT that may last: a
//! thread inside of a kernel lock keeps its CPU (`migrate_disable`; `affine_move_task` in
//! kernel/sched/core.c), and one that is parked behind a raised thread does not get out of the
//! lock. The agent that waits holds the agents' lock: the agent that would take the raised thread
//! away waits for it, and in the end the guardian ends the run. So on PREEMPT_RT an agent does not
//! make that call; a thread of this module does, on an unmanaged CPU, and the agent waits
//! [`PATIENCE`] at most.

use crate::LiveError;
use crate::driver::{GUARDIAN, become_fifo};
use schedlab_host::privileges::{Duty, keep_only};
use schedlab_host::threads::{affinity, set_affinity};
use schedlab_model::{CpuId, CpuSet, OwnThread};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// So long an agent waits for a thread to be on its new CPU before it goes on without. As a rule
/// that takes some 20 us.
const PATIENCE: Duration = Duration::from_millis(1);
/// Senders for each managed CPU. A thread that is inside of a lock keeps one of them; the others
/// serve the rest.
const FOR_EACH_CPU: usize = 2;

const ON_THE_WAY: u8 = 0;
const THERE: u8 = 1;
const REFUSED: u8 = 2;

/// What became of a thread that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    There,
    /// It is pinned to its new CPU, and has not left the one before.
    OnTheWay,
    /// It stays where it is: the kernel refused, or it has an affinity of its own.
    No,
}

/// The journey of one thread. It is changed under the lock of the [`Queue`].
#[derive(Debug)]
pub(super) struct Journey {
    /// Where it was pinned. With another affinity it is not sent: it, or another process, gave it
    /// that.
    from: CpuSet,
    /// Where it goes to, which may change on the way.
    to: Mutex<CpuSet>,
    state: AtomicU8,
}

impl Journey {
    /// Returns whether the thread has not arrived.
    pub(super) fn goes_on(&self) -> bool {
        self.state() == ON_THE_WAY
    }

    fn to(&self) -> MutexGuard<'_, CpuSet> {
        self.to.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }
}

struct Request {
    tid: u32,
    journey: Arc<Journey>,
    /// Who waits for it.
    agent: Thread,
}

/// What all senders share.
#[derive(Default)]
struct Queue {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    /// One for each thread at most, which all have their place from the beginning.
    requests: VecDeque<Request>,
    stop: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // What it holds is whole at every moment.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next request; `None`: the end has come.
    fn next(&self) -> Option<Request> {
        let waits = |inner: &mut Inner| !inner.stop && inner.requests.is_empty();
        let inner = self.changed.wait_while(self.lock(), waits);
        inner.unwrap_or_else(PoisonError::into_inner).requests.pop_front()
    }

    /// Sends a thread until it is where it shall be; returns that.
    fn serve(&self, journey: &Journey, pin: impl Fn(&CpuSet, &CpuSet) -> bool) -> CpuSet {
        let mut was = journey.from;
        loop {
            let wanted = *journey.to();
            let end = if pin(&was, &wanted) { THERE } else { REFUSED };
            was = wanted;
            let _lock = self.lock();
            if *journey.to() == wanted {
                journey.state.store(end, Ordering::Release);
                return wanted;
            }
        }
    }
}

/// The agents' way to the senders.
#[derive(Clone)]
pub(super) struct Post {
    queue: Arc<Queue>,
    patience: Duration,
}

impl std::fmt::Debug for Post {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Post")
    }
}

impl Post {
    /// Pins a thread to a CPU, and waits until it is there, but not for long. The thread's last
    /// journey, if it goes on, leads there now.
    pub(super) fn send(
        &self,
        tid: u32,
        (from, to): (CpuId, CpuId),
        last: Option<&Arc<Journey>>,
    ) -> (Sent, Arc<Journey>) {
        let (from, to) = (CpuSet::single(from), CpuSet::single(to));
        let journey = match last.filter(|last| self.redirect(last, to)) {
            Some(last) => last.clone(),
            None => {
                let journey = Arc::new(Journey {
                    from,
                    to: Mutex::new(to),
                    state: AtomicU8::new(ON_THE_WAY),
                });
                let agent = std::thread::current();
                self.queue.lock().requests.push_back(Request {
                    tid,
                    journey: journey.clone(),
                    agent,
                });
                self.queue.changed.notify_one();
                journey
            }
        };
        let until = Instant::now() + self.patience;
        while journey.goes_on() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return (Sent::OnTheWay, journey);
            }
            std::thread::park_timeout(left);
        }
        (if journey.state() == THERE { Sent::There } else { Sent::No }, journey)
    }

    /// Returns whether a journey goes on, and so leads to these CPUs now.
    pub(super) fn redirect(&self, journey: &Journey, to: CpuSet) -> bool {
        let _lock = self.queue.lock();
        let goes_on = journey.goes_on();
        if goes_on {
            *journey.to() = to;
        }
        goes_on
    }
}

/// The senders. When this value is dropped, they have ended: the threads that are on their way must
/// be in the fair class by then.
pub(super) struct Senders {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

impl Senders {
    /// Starts senders of `tasks` threads for this number of managed CPUs, on the CPUs that are not.
    ///
    /// # Errors
    /// When the kernel refuses a thread or its priority.
    pub(super) fn start(
        (managed, tasks): (usize, usize),
        others: CpuSet,
        arrived: Arc<dyn Fn(&CpuSet) + Send + Sync>,
    ) -> Result<Senders, LiveError> {
        let ready = move || {
            keep_only(&[Duty::Schedule])
                .map_err(LiveError::io("giving up capabilities (capset)"))?;
            // The supervisor, which is below, looks through /proc for tens of milliseconds.
            become_fifo("a sender", GUARDIAN, &others)
        };
        let pin = |tid: u32, was: &CpuSet, to: &CpuSet| {
            affinity(tid).is_ok_and(|now| now == *was) && set_affinity(tid, to).is_ok()
        };
        Senders::with((managed * FOR_EACH_CPU, tasks), ready, pin, arrived)
    }

    fn with(
        (count, tasks): (usize, usize),
        ready: impl Fn() -> Result<(), LiveError> + Clone + Send + 'static,
        pin: impl Fn(u32, &CpuSet, &CpuSet) -> bool + Clone + Send + 'static,
        arrived: Arc<dyn Fn(&CpuSet) + Send + Sync>,
    ) -> Result<Senders, LiveError> {
        let queue = Arc::new(Queue::default());
        queue.lock().requests.reserve(tasks);
        let mut senders = Senders { queue, threads: Vec::with_capacity(count) };
        for _ in 0..count {
            let (queue, arrived) = (senders.queue.clone(), arrived.clone());
            let (ready, pin) = (ready.clone(), pin.clone());
            let (told, started) = std::sync::mpsc::channel();
            let work = move || {
                let prepared = ready();
                let go = prepared.is_ok();
                let _ = told.send(prepared);
                while go && let Some(Request { tid, journey, agent }) = queue.next() {
                    let to = queue.serve(&journey, |was, to| pin(tid, was, to));
                    agent.unpark();
                    arrived(&to);
                }
            };
            let thread =
                std::thread::Builder::new().name(OwnThread::Sender.name().to_owned()).spawn(work);
            senders.threads.push(thread.map_err(LiveError::io("starting a sender"))?);
            let ended =
                || Err(LiveError::AgentDied { why: "a sender ended before it began".to_owned() });
            started.recv().unwrap_or_else(|_| ended())?;
        }
        Ok(senders)
    }

    pub(super) fn post(&self) -> Post {
        Post { queue: self.queue.clone(), patience: PATIENCE }
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        self.queue.lock().stop = true;
        self.queue.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    /// Senders of pretended threads: thread 1 arrives at once, 2 is refused, others stay inside of
    /// a lock until `out` says that they are out of it.
    fn senders(count: usize, out: &Arc<(Mutex<bool>, Condvar)>, arrived: Told) -> Senders {
        let out = out.clone();
        let pin = move |tid: u32, was: &CpuSet, _: &CpuSet| {
            assert!(was.count() == 1, "the agents pinned it");
            if tid > 2 {
                let is_out = out.0.lock().unwrap();
                drop(out.1.wait_while(is_out, |is_out| !*is_out).unwrap());
            }
            tid != 2
        };
        Senders::with((count, 8), || Ok(()), pin, arrived).unwrap()
    }

    type Told = Arc<dyn Fn(&CpuSet) + Send + Sync>;

    /// Tells where threads arrive, and who hears it.
    fn arrivals() -> (Told, Receiver<CpuId>) {
        let (tell, heard) = channel();
        let tell = Mutex::new(tell);
        (Arc::new(move |cpus| tell.lock().unwrap().send(cpus.lowest().unwrap()).unwrap()), heard)
    }

    /// One that waits for nothing, and one that waits for as long as it takes.
    fn posts(senders: &Senders) -> (Post, Post) {
        let post = senders.post();
        let with = |patience| Post { patience, ..post.clone() };
        (with(Duration::ZERO), with(Duration::from_secs(3600)))
    }

    fn open(out: &Arc<(Mutex<bool>, Condvar)>) {
        *out.0.lock().unwrap() = true;
        out.1.notify_all();
    }

    #[test]
    fn an_agent_goes_on_when_a_thread_does_not_arrive_and_hears_when_it_does() {
        let out = Arc::default();
        let (told, heard) = arrivals();
        let senders = senders(2, &out, told);
        let (at_once, patient) = posts(&senders);
        let (sent, journey) = at_once.send(3, (CpuId(0), CpuId(1)), None);
        assert_eq!((sent, journey.goes_on()), (Sent::OnTheWay, true));
        // The other sender serves others meanwhile.
        let there = patient.send(1, (CpuId(0), CpuId(2)), None).0;
        assert_eq!((there, heard.recv().unwrap()), (Sent::There, CpuId(2)));
        open(&out);
        assert_eq!(heard.recv().unwrap(), CpuId(1));
        assert!(!journey.goes_on());
    }

    #[test]
    fn a_thread_on_its_way_that_is_wanted_elsewhere_ends_there() {
        let out = Arc::default();
        let (told, heard) = arrivals();
        let senders = senders(1, &out, told);
        let (at_once, patient) = posts(&senders);
        let (_, journey) = at_once.send(3, (CpuId(0), CpuId(1)), None);
        // No other sender is needed, and none is there.
        assert_eq!(at_once.send(3, (CpuId(0), CpuId(2)), Some(&journey)).0, Sent::OnTheWay);
        open(&out);
        assert_eq!((heard.recv().unwrap(), journey.goes_on()), (CpuId(2), false));
        // What is over is no way any more.
        assert_eq!(patient.send(3, (CpuId(0), CpuId(1)), Some(&journey)).0, Sent::There);
    }

    #[test]
    fn what_the_kernel_refuses_stays_and_what_finds_no_sender_waits() {
        let out = Arc::default();
        let senders = senders(1, &out, Arc::new(|_| {}));
        let (at_once, patient) = posts(&senders);
        assert_eq!(patient.send(2, (CpuId(0), CpuId(1)), None).0, Sent::No);
        assert_eq!(at_once.send(3, (CpuId(0), CpuId(1)), None).0, Sent::OnTheWay);
        let (waits, journey) = at_once.send(1, (CpuId(0), CpuId(2)), None);
        assert_eq!((waits, journey.goes_on()), (Sent::OnTheWay, true));
        open(&out);
        assert_eq!(patient.send(1, (CpuId(0), CpuId(2)), Some(&journey)).0, Sent::There);
    }
}
