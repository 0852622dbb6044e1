//! The load client: one thread, one epoll set, open or closed loop.
//!
//! *Open loop*: requests leave at the times of a Poisson process, whatever the server does, over
//! connections used in turn (several may be on their way on one). Latency counts from
//! the **intended** send time, so a stall of the server is seen by every request that it hit; the
//! uncorrected latency, from the actual send, is kept beside it. *Closed loop*: each connection
//! sends its next request when its reply has come; such a client waits with the server and hides
//! stalls (coordinated omission), which the report says.

mod connection;
mod report;

use crate::ladder::histogram;
use crate::resp::{Replies, RespError, command};
use connection::Connection;
use hdrhistogram::Histogram;
pub use report::LoadReport;
use rustix::event::epoll;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use schedlab_model::Ns;
use schedlab_stats::Random;
use serde::{Deserialize, Serialize};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Who decides when the next request leaves.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "loop")]
pub enum LoopKind {
    /// A Poisson process of this rate; seeded.
    Open {
        /// Requests a second, over all connections.
        rate_per_s: f64,
        /// Seed of the gaps.
        seed: u64,
    },
    /// The reply: each connection has one request under way.
    Closed,
}

/// What to load with what.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LoadRequest {
    /// The server.
    pub address: SocketAddr,
    /// Open or closed.
    pub kind: LoopKind,
    /// Connections; 1 … 10,000.
    pub connections: usize,
    /// Length of the measurement, after the warm-up.
    pub duration: Ns,
    /// Requests of this first part are sent but not counted.
    pub warmup: Ns,
    /// The words of the request, such as `["GET", "key:1"]`.
    pub words: Vec<String>,
    /// Commands that are sent once before anything else, each of which must be answered without an
    /// error: keys that the request needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prepare: Vec<Vec<String>>,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A number that makes no sense.
    #[error("{0}")]
    Request(String),
    /// No server answers.
    #[error("cannot connect to {address}: {source}. Is the server running and listening there?")]
    Connect {
        /// Where to.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The server answers something else.
    #[error(transparent)]
    Protocol(#[from] RespError),
    /// The server did not take a command of the preparation.
    #[error("the server did not take `{command}`, which the requests need: {why}")]
    Refused {
        /// Its words.
        command: String,
        /// What it said.
        why: String,
    },
    /// The server closed a connection.
    #[error("the server closed a connection after {replies} replies; its log may say why")]
    Closed {
        /// Replies on all connections so far.
        replies: u64,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl LoadError {
    fn io<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> LoadError {
        move |source| LoadError::Io { what, source: source.into() }
    }
}

/// How long the client waits for the last replies.
const LAST_REPLIES: Ns = Ns(2_000_000_000);

/// Runs the load and reports.
///
/// # Errors
/// As [`LoadError`] says; nothing is reported then.
pub fn run(request: &LoadRequest) -> Result<LoadReport, LoadError> {
    run_after(request, || {})
}

/// As [`run`], but calls `connected` when every connection is made, and sends nothing before that
/// returns.
///
/// # Errors
/// As [`run`].
pub fn run_after(request: &LoadRequest, connected: impl FnOnce()) -> Result<LoadReport, LoadError> {
    check(request)?;
    let mut client = Client::connect(request)?;
    request.prepare.iter().try_for_each(|words| prepare(request.address, words))?;
    connected();
    client.go(request)?;
    Ok(client.report(request))
}

fn check(request: &LoadRequest) -> Result<(), LoadError> {
    let wrong = |text: &str| Err(LoadError::Request(text.to_owned()));
    if !(1..=10_000).contains(&request.connections) {
        return wrong("the number of connections must be from 1 to 10000");
    }
    if request.duration == Ns::ZERO {
        return wrong("the duration must be longer than 0, such as \"5s\"");
    }
    if request.words.is_empty() {
        return wrong("the request has no words; use for example GET key:1");
    }
    match request.kind {
        LoopKind::Open { rate_per_s, .. } if !(rate_per_s > 0.0 && rate_per_s <= 1e7) => {
            wrong("the rate must be above 0 and at most 10 million requests a second")
        }
        _ => Ok(()),
    }
}

/// Sends one command over a connection of its own and waits for the answer.
fn prepare(address: SocketAddr, words: &[String]) -> Result<(), LoadError> {
    let refused = |why: String| LoadError::Refused { command: words.join(" "), why };
    let failed = |error: io::Error| refused(error.to_string());
    let mut stream =
        TcpStream::connect(address).map_err(|source| LoadError::Connect { address, source })?;
    stream.set_read_timeout(Some(Duration::from_nanos(LAST_REPLIES.0))).map_err(failed)?;
    stream.write_all(&encoded(words)).map_err(failed)?;
    let (mut replies, mut said, mut buffer) = (Replies::default(), Vec::new(), [0; 4096]);
    loop {
        let bytes = match stream.read(&mut buffer).map_err(failed)? {
            0 => return Err(refused("it closed the connection".to_owned())),
            count => &buffer[..count],
        };
        said.extend_from_slice(bytes);
        match (replies.push(bytes)?, replies.errors()) {
            (0, _) => {}
            (_, 0) => return Ok(()),
            _ => return Err(refused(String::from_utf8_lossy(&said).trim().to_owned())),
        }
    }
}

fn encoded(words: &[String]) -> Vec<u8> {
    let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
    command(&words)
}

/// A seeded Poisson process: the time of the next request.
struct Arrivals {
    random: Random,
    mean_ns: f64,
    next: f64,
}

impl Arrivals {
    fn new(rate_per_s: f64, seed: u64, start: u64) -> Arrivals {
        let mut arrivals =
            Arrivals { random: Random::new(seed), mean_ns: 1e9 / rate_per_s, next: start as f64 };
        arrivals.step();
        arrivals
    }

    /// The inverse of the exponential distribution.
    fn step(&mut self) {
        self.next -= (1.0 - self.random.unit()).ln() * self.mean_ns;
    }

    fn due(&self) -> u64 {
        self.next as u64
    }
}

pub(crate) struct Client {
    connections: Vec<Connection>,
    epoll: OwnedFd,
    timer: OwnedFd,
    request: Vec<u8>,
    /// From the intended send time.
    pub(crate) latency: Histogram<u64>,
    /// From the actual send.
    pub(crate) service: Histogram<u64>,
    /// Actual send minus intended.
    pub(crate) lag: Histogram<u64>,
    pub(crate) sent: u64,
    pub(crate) replies: u64,
    pub(crate) counted: u64,
    pub(crate) errors: u64,
    pub(crate) wall_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) sleeps: u64,
    count_from: u64,
    count_to: u64,
}

/// epoll's tag of the timer; connections have their index.
const TIMER: u64 = u64::MAX;

impl Client {
    fn connect(request: &LoadRequest) -> Result<Client, LoadError> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(LoadError::io("epoll_create"))?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )
        .map_err(LoadError::io("timerfd_create"))?;
        let add = |fd: rustix::fd::BorrowedFd<'_>, tag| {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(tag), epoll::EventFlags::IN)
                .map_err(LoadError::io("epoll_ctl"))
        };
        add(timer.as_fd(), TIMER)?;
        let mut connections = Vec::with_capacity(request.connections);
        for tag in 0..request.connections as u64 {
            let connection = Connection::open(request.address)
                .map_err(|source| LoadError::Connect { address: request.address, source })?;
            add(connection.as_fd(), tag)?;
            connections.push(connection);
        }
        Ok(Client {
            connections,
            epoll,
            timer,
            request: encoded(&request.words),
            latency: histogram(),
            service: histogram(),
            lag: histogram(),
            sent: 0,
            replies: 0,
            counted: 0,
            errors: 0,
            wall_ns: 0,
            cpu_ns: 0,
            sleeps: 0,
            count_from: 0,
            count_to: 0,
        })
    }

    fn go(&mut self, request: &LoadRequest) -> Result<(), LoadError> {
        let start = now();
        let cpu = clock(ClockId::ThreadCPUTime);
        self.count_from = start + request.warmup.0;
        self.count_to = self.count_from + request.duration.0;
        match request.kind {
            LoopKind::Open { rate_per_s, seed } => {
                self.open_loop(Arrivals::new(rate_per_s, seed, start))?
            }
            LoopKind::Closed => self.closed_loop(start)?,
        }
        self.wall_ns = now() - start;
        self.cpu_ns = clock(ClockId::ThreadCPUTime) - cpu;
        self.errors = self.connections.iter().map(Connection::errors).sum();
        Ok(())
    }

    fn open_loop(&mut self, mut arrivals: Arrivals) -> Result<(), LoadError> {
        let mut turn = 0;
        loop {
            let time = now();
            while arrivals.due() <= time && arrivals.due() < self.count_to {
                let intended = arrivals.due();
                self.send(turn, intended)?;
                turn = (turn + 1) % self.connections.len();
                arrivals.step();
            }
            let more = arrivals.due() < self.count_to;
            let all_in = self.replies == self.sent;
            if !more && (all_in || time > self.count_to + LAST_REPLIES.0) {
                return Ok(());
            }
            let next = if more { arrivals.due() } else { self.count_to + LAST_REPLIES.0 };
            self.sleep_until(next)?;
        }
    }

    fn closed_loop(&mut self, start: u64) -> Result<(), LoadError> {
        for index in 0..self.connections.len() {
            self.send(index, start)?;
        }
        let end = self.count_to + LAST_REPLIES.0;
        while self.replies < self.sent && now() < end {
            let done = self.sleep_until(end)?;
            for (index, replies) in done {
                for _ in 0..replies {
                    let time = now();
                    if time < self.count_to {
                        self.send(index, time)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, index: usize, intended: u64) -> Result<(), LoadError> {
        let time = now();
        self.sent += 1;
        if intended >= self.count_from {
            self.lag.saturating_record(time.saturating_sub(intended));
        }
        let connection = &mut self.connections[index];
        let was_blocked = connection.blocked();
        connection.send(&self.request, intended, time).map_err(LoadError::io("send"))?;
        if connection.blocked() != was_blocked {
            self.watch(index)?;
        }
        Ok(())
    }

    /// Asks epoll for room to write as long as something waits to be written.
    fn watch(&self, index: usize) -> Result<(), LoadError> {
        let connection = &self.connections[index];
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, connection.blocked());
        let tag = epoll::EventData::new_u64(index as u64);
        epoll::modify(&self.epoll, connection, tag, flags).map_err(LoadError::io("epoll_ctl"))
    }

    /// Sleeps until something comes in or the time is reached; takes in what came and returns how
    /// many replies came on which connection.
    fn sleep_until(&mut self, at: u64) -> Result<Vec<(usize, usize)>, LoadError> {
        let at = Timespec { tv_sec: (at / 1_000_000_000) as _, tv_nsec: (at % 1_000_000_000) as _ };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)
            .map_err(LoadError::io("timerfd_settime"))?;
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(LoadError::io("epoll_wait")(error)),
        }
        self.sleeps += 1;
        let mut done = Vec::with_capacity(events.len());
        for event in events {
            let tag = event.data.u64();
            if tag == TIMER {
                let mut expirations = [0; 8];
                // Reading only resets the timer; that it was read already is no error.
                let _ = rustix::io::read(&self.timer, &mut expirations);
            } else {
                let index = tag as usize;
                done.push((index, self.receive(index, event.flags)?));
            }
        }
        Ok(done)
    }

    fn receive(&mut self, index: usize, flags: epoll::EventFlags) -> Result<usize, LoadError> {
        if flags.contains(epoll::EventFlags::OUT) {
            self.connections[index].flush().map_err(LoadError::io("send"))?;
            self.watch(index)?;
        }
        let connection = &mut self.connections[index];
        let bytes = connection.receive().map_err(LoadError::io("receive"))?;
        let Some(replies) = bytes else { return Err(LoadError::Closed { replies: self.replies }) };
        let count = connection.count(replies)?;
        let time = now();
        for _ in 0..count {
            let Some((intended, sent)) = connection.answered() else {
                return Err(RespError("more replies than requests".to_owned()).into());
            };
            self.replies += 1;
            if intended >= self.count_from && intended < self.count_to {
                self.counted += 1;
                self.latency.saturating_record(time.saturating_sub(intended));
                self.service.saturating_record(time.saturating_sub(sent));
            }
        }
        Ok(count)
    }
}

fn now() -> u64 {
    clock(ClockId::Monotonic)
}

fn clock(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_seeded_and_have_the_rate() {
        let times = |seed| {
            let mut arrivals = Arrivals::new(10_000.0, seed, 0);
            (0..100_000)
                .map(|_| {
                    let due = arrivals.due();
                    arrivals.step();
                    due
                })
                .collect::<Vec<_>>()
        };
        let first = times(1);
        assert_eq!(first, times(1));
        assert_ne!(first, times(2));
        assert!(first.windows(2).all(|pair| pair[0] <= pair[1]));
        let seconds = *first.last().unwrap() as f64 / 1e9;
        // 100,000 gaps of 100 us: 10 s with a standard deviation of 0.03 s.
        assert!((seconds - 10.0).abs() < 0.15, "{seconds}");
    }

    #[test]
    fn refuses_nonsense() {
        let good = LoadRequest {
            address: "127.0.0.1:1".parse().unwrap(),
            kind: LoopKind::Closed,
            connections: 1,
            duration: Ns::from_ms(1),
            warmup: Ns::ZERO,
            words: vec!["PING".to_owned()],
            prepare: Vec::new(),
        };
        let open = |rate_per_s| LoopKind::Open { rate_per_s, seed: 1 };
        for bad in [
            LoadRequest { connections: 0, ..good.clone() },
            LoadRequest { duration: Ns::ZERO, ..good.clone() },
            LoadRequest { words: Vec::new(), ..good.clone() },
            LoadRequest { kind: open(-1.0), ..good.clone() },
            LoadRequest { kind: open(f64::NAN), ..good.clone() },
        ] {
            assert!(matches!(run(&bad), Err(LoadError::Request(_))), "{bad:?}");
        }
        assert!(matches!(run(&good), Err(LoadError::Connect { .. })), "nobody listens on port 1");
    }
}
