//! Groups of senders and receivers: hackbench's shape, and the same amount of work for the same
//! numbers.
//!
//! In each group every one of `fds` senders sends `messages` messages of `size` bytes to every one
//! of `fds` receivers, one system call a message. Every thread is started first and waits; the
//! clock runs from the signal to go until the last one has ended and is reaped.

use super::{StressError, resources};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use schedlab_host::Worker;
use schedlab_model::Ns;
use schemars::JsonSchema;
use serde::Serialize;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

/// Through what the messages go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Stream socket pairs of the Unix family.
    Socket,
    /// Pipes.
    Pipe,
}

/// Who sends and receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workers {
    /// Processes: each switch changes the address space.
    Process,
    /// Threads of this process.
    Thread,
}

/// What to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct GroupsRequest {
    /// Number of groups.
    pub groups: usize,
    /// Senders, and as many receivers, in each group.
    pub fds: usize,
    /// Messages from each sender to each receiver.
    pub messages: u64,
    /// Bytes of a message.
    pub size: usize,
    /// Pipes or sockets.
    pub transport: Transport,
    /// Processes or threads.
    pub workers: Workers,
}

impl GroupsRequest {
    /// Senders and receivers in all.
    pub fn tasks(&self) -> usize {
        self.groups * self.fds * 2
    }

    /// Messages in all.
    pub fn total_messages(&self) -> u64 {
        self.messages * (self.groups * self.fds * self.fds) as u64
    }

    fn check(&self) -> Result<(), StressError> {
        let ok = (1..=1000).contains(&self.groups)
            && (1..=1000).contains(&self.fds)
            && self.tasks() <= 30_000
            && (1..=1_000_000_000).contains(&self.messages)
            && (1..=1 << 20).contains(&self.size);
        if ok {
            return Ok(());
        }
        Err(StressError::Request(
            "a group load takes 1 to 1000 groups of 1 to 1000 senders (30000 tasks in all), 1 to \
             10^9 messages and \
             1 to 1048576 bytes a message"
                .to_owned(),
        ))
    }
}

/// What a round of [`run_groups`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Round {
    /// All messages arrived; from the signal to go to the end of the last worker.
    Done(Ns),
    /// `stop` said so; every thread is gone.
    Stopped,
}

/// Sends all messages once. `stop` is asked every 50 ms; when it says true, every thread is ended
/// and reaped.
///
/// Raises this process's soft limit of open files to its hard limit if the load needs more than it
/// allows.
///
/// # Errors
/// Numbers out of range; no more processes, threads or descriptors; a worker that failed. No thread
/// is left behind.
pub fn run_groups(request: &GroupsRequest, stop: &dyn Fn() -> bool) -> Result<Round, StressError> {
    request.check()?;
    allow_descriptors(request);
    let gates = Gates::new().map_err(resources("make a pipe"))?;
    let mut crew = Crew::new(request.workers);
    for _ in 0..request.groups {
        if let Err(error) = start_group(request, &gates, &mut crew) {
            gates.stopping.store(true, Ordering::Relaxed);
            // A process that waits for the signal to go sees the end of its pipe.
            drop(gates);
            crew.end(true);
            return Err(error);
        }
    }
    let Gates { ready: (ready, ready_in), go: (go_out, mut go), done: (done, done_in), stopping } =
        gates;
    drop((ready_in, done_in));
    let mut waiting = request.tasks();
    while waiting > 0 {
        let mut bytes = [0; 512];
        match readable(&ready)? {
            true => match (&ready).read(&mut bytes).map_err(resources("read from a pipe"))? {
                0 => break,
                n => waiting -= n.min(waiting),
            },
            false if stop() => waiting = 0,
            false => {}
        }
    }
    let start = Instant::now();
    if go.write_all(b"*").is_err() || stop() {
        stopping.store(true, Ordering::Relaxed);
    }
    // No thread writes there: it becomes readable when the last writer has closed it by ending.
    while !stopping.load(Ordering::Relaxed) && !readable(&done)? {
        stopping.store(stop(), Ordering::Relaxed);
    }
    drop(go_out);
    let stopped = stopping.load(Ordering::Relaxed);
    let (failed, workers) = crew.end(stopped);
    let elapsed = Ns(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    match (stopped, failed) {
        (true, _) => Ok(Round::Stopped),
        (false, 0) => Ok(Round::Done(elapsed)),
        (false, failed) => Err(StressError::Workers { failed, workers }),
    }
}

/// Three pipes that hold every thread together, and the word to stop (threads only: processes are
/// killed).
struct Gates {
    ready: (PipeReader, PipeWriter),
    go: (PipeReader, PipeWriter),
    done: (PipeReader, PipeWriter),
    stopping: Arc<AtomicBool>,
}

impl Gates {
    fn new() -> io::Result<Gates> {
        let stopping = Arc::default();
        Ok(Gates { ready: io::pipe()?, go: io::pipe()?, done: io::pipe()?, stopping })
    }

    fn post(&self) -> io::Result<Post> {
        let stopping = Arc::clone(&self.stopping);
        Ok(Post {
            ready: self.ready.1.try_clone()?,
            go: self.go.0.try_clone()?,
            done: self.done.1.try_clone()?,
            stopping,
        })
    }
}

/// One worker's ends of the gates.
struct Post {
    ready: PipeWriter,
    go: PipeReader,
    #[expect(dead_code, reason = "held until the worker ends: closing it is the message")]
    done: PipeWriter,
    stopping: Arc<AtomicBool>,
}

impl Post {
    /// Says that this worker is ready, and waits for the signal to go.
    fn wait(&self) -> io::Result<()> {
        (&self.ready).write_all(b"*")?;
        poll(&mut [PollFd::new(&self.go, PollFlags::IN)], None)?;
        Ok(())
    }
}

/// Whether something can be read within 50 ms; the end of the other side counts.
fn readable(pipe: &impl AsFd) -> Result<bool, StressError> {
    let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    match poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(resources("wait for the workers")(error.into())),
    }
}

/// Every thread that was started.
enum Crew {
    Processes(Vec<Worker>),
    Threads(Vec<JoinHandle<bool>>),
}

impl Crew {
    fn new(workers: Workers) -> Crew {
        match workers {
            Workers::Process => Crew::Processes(Vec::new()),
            Workers::Thread => Crew::Threads(Vec::new()),
        }
    }

    fn start(
        &mut self,
        gates: &Gates,
        size: usize,
        work: impl FnOnce(&mut [u8], &AtomicBool) -> io::Result<()> + Send + 'static,
    ) -> Result<(), StressError> {
        let body = move |post: Post| {
            // Written to before the clock runs: the page is the worker's own then.
            let mut message = vec![b'.'; size];
            post.wait().and_then(|()| work(&mut message, &post.stopping)).is_ok()
        };
        match self {
            // A child has all our descriptors, and closes them by ending.
            Crew::Processes(all) => {
                let post = gates.post().map_err(resources("copy a descriptor"))?;
                all.push(Worker::fork(move || body(post)).map_err(resources("start a process"))?);
            }
            Crew::Threads(all) => {
                let post = gates.post().map_err(resources("copy a descriptor"))?;
                let named = Builder::new().name("stress".to_owned()).stack_size(128 << 10);
                all.push(named.spawn(move || body(post)).map_err(resources("start a thread"))?);
            }
        }
        Ok(())
    }

    /// Waits for all of them; processes are killed before if the work is not wanted any more. How
    /// many failed, of how many.
    fn end(self, stopped: bool) -> (usize, usize) {
        match self {
            Crew::Processes(all) if stopped => (0, all.len()),
            Crew::Processes(all) => {
                let workers = all.len();
                (
                    all.into_iter()
                        .filter_map(|worker| (!worker.wait().unwrap_or(false)).then_some(()))
                        .count(),
                    workers,
                )
            }
            Crew::Threads(all) => {
                let workers = all.len();
                (
                    all.into_iter()
                        .filter_map(|thread| (!thread.join().unwrap_or(false)).then_some(()))
                        .count(),
                    workers,
                )
            }
        }
    }
}

fn start_group(request: &GroupsRequest, gates: &Gates, crew: &mut Crew) -> Result<(), StressError> {
    let GroupsRequest { fds, messages, size, .. } = *request;
    let mut writers = Vec::new();
    for _ in 0..fds {
        let (reader, writer) =
            pair(request.transport).map_err(resources("make a pipe or socket pair"))?;
        crew.start(gates, size, move |message, _| {
            receive(&reader, fds as u64 * messages, message)
        })?;
        writers.push(writer);
    }
    // Threads share the descriptors; the last sender closes them, which ends receivers that wait in
    // vain.
    let writers = Arc::new(writers);
    for _ in 0..fds {
        let writers = Arc::clone(&writers);
        crew.start(gates, size, move |message, stopping| {
            send(&writers, messages, message, stopping)
        })?;
    }
    Ok(())
}

fn pair(transport: Transport) -> io::Result<(File, File)> {
    let (reader, writer): (OwnedFd, OwnedFd) = match transport {
        Transport::Pipe => {
            let (reader, writer) = io::pipe()?;
            (reader.into(), writer.into())
        }
        Transport::Socket => {
            let (reader, writer) = UnixStream::pair()?;
            (reader.into(), writer.into())
        }
    };
    Ok((File::from(reader), File::from(writer)))
}

/// [`send`] and [`receive`] call the system through the C library, as hackbench does: each page
/// that a worker touches between two switches is looked up anew after them (address translations
/// are lost), which without the library made a message some 20 % cheaper than hackbench's on a
/// virtual machine.
fn send(writers: &[File], messages: u64, message: &[u8], stopping: &AtomicBool) -> io::Result<()> {
    for _ in 0..messages {
        for writer in writers {
            let mut rest = message;
            while !rest.is_empty() {
                match (&mut &*writer).write(rest) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            if stopping.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn receive(reader: &File, messages: u64, message: &mut [u8]) -> io::Result<()> {
    for _ in 0..messages {
        let mut had = 0;
        while let Some(rest) = message.get_mut(had..).filter(|rest| !rest.is_empty()) {
            match (&mut &*reader).read(rest) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => had += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Best effort: what is missing then shows when a descriptor cannot be made.
fn allow_descriptors(request: &GroupsRequest) {
    let pairs = request.groups * request.fds * 2;
    let posts = if request.workers == Workers::Thread { request.tasks() * 3 } else { 3 };
    let needed = (pairs + posts + 64) as u64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        let _ =
            setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(transport: Transport) -> GroupsRequest {
        GroupsRequest {
            groups: 2,
            fds: 3,
            messages: 20,
            size: 100,
            transport,
            workers: Workers::Thread,
        }
    }

    #[test]
    fn every_message_arrives() {
        for transport in [Transport::Pipe, Transport::Socket] {
            let round = run_groups(&request(transport), &|| false).unwrap();
            assert!(matches!(round, Round::Done(time) if time.0 > 0));
        }
        assert_eq!(
            (request(Transport::Pipe).tasks(), request(Transport::Pipe).total_messages()),
            (12, 360)
        );
    }

    #[test]
    fn a_load_without_end_stops_when_asked() {
        let endless = GroupsRequest { messages: 1_000_000_000, ..request(Transport::Socket) };
        let calls = std::cell::Cell::new(0);
        let stop = || {
            calls.set(calls.get() + 1);
            calls.get() > 3
        };
        assert_eq!(run_groups(&endless, &stop).unwrap(), Round::Stopped);
    }

    #[test]
    fn a_receiver_wants_every_message() {
        let (reader, mut writer) = pair(Transport::Pipe).unwrap();
        writer.write_all(&[0; 250]).unwrap();
        drop(writer);
        assert!(receive(&reader, 3, &mut [0; 100]).is_err());
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for bad in [
            GroupsRequest { groups: 0, ..request(Transport::Pipe) },
            GroupsRequest { size: 0, ..request(Transport::Pipe) },
            GroupsRequest { groups: 1000, fds: 1000, ..request(Transport::Pipe) },
        ] {
            assert!(matches!(run_groups(&bad, &|| false), Err(StressError::Request(_))));
        }
    }
}
