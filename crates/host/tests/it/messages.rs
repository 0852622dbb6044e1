//! What the BPF recorder says of messages, on threads that this test starts and whose exchanges are
//! known exactly: sends equal receives, in number, bytes and object. Where recording is not allowed
//! the tests say so by name and pass, except under `CI=true` as root.
#![allow(clippy::print_stderr, reason = "what is skipped says so by name")]

use crate::common::{Tids, skip};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::thread::{clock_nanosleep_absolute, futex, nanosleep};
use rustix::time::{ClockId, clock_gettime};
use schedlab_host::{
    Backend, Messages, RecordFilter, RecordRequest, RecordSink, RecordStart, RecordUntil,
    TaskFacts, record,
};
use schedlab_model::{
    EventSink, Fact, FactKind, Limit, Ns, ObjectId, ObjectInfo, ObjectKind, Outcome, SchedEvent,
    Transfer,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// What was told.
#[derive(Default)]
struct Told {
    tids: Tids,
    objects: Vec<ObjectInfo>,
    facts: Vec<Fact>,
    monotonic_ns: u64,
}

struct Sink<'a> {
    told: Told,
    began: &'a AtomicBool,
}

impl EventSink for Sink<'_> {
    fn event(&mut self, _: &SchedEvent) {}

    fn fact(&mut self, fact: &Fact) {
        let mut kind = fact.kind;
        kind.each_object(&mut |id| {
            assert!(id.index() < self.told.objects.len(), "{id} comes first")
        });
        assert!(
            self.told.facts.last().is_none_or(|last| last.at <= fact.at),
            "facts come in order"
        );
        self.told.facts.push(*fact);
    }
}

impl RecordSink for Sink<'_> {
    fn start(&mut self, start: &RecordStart) -> std::io::Result<()> {
        self.told.monotonic_ns = start.monotonic_ns;
        self.began.store(true, Ordering::Release);
        Ok(())
    }
    fn task(&mut self, task: &TaskFacts) {
        self.told.tids.insert(task.id, task.tid);
    }
    fn object(&mut self, id: ObjectId, object: &ObjectInfo) {
        match self.told.objects.get_mut(id.index()) {
            Some(known) => *known = object.clone(),
            None => {
                assert_eq!(
                    id.index(),
                    self.told.objects.len(),
                    "objects come in the order of their numbers"
                );
                self.told.objects.push(object.clone());
            }
        }
    }
}

/// The threads that exchange something, by what.
#[derive(Debug, Default)]
struct Threads {
    pair: [u32; 2],
    pipe: [u32; 2],
    event: [u32; 2],
    futex: [u32; 2],
    shared: [u32; 2],
    tcp: [u32; 2],
    sleeper: u32,
    deadline: u64,
    parent: u32,
    child: u32,
}

fn tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// Runs both at once; their thread ids.
fn both(one: impl FnOnce() + Send, two: impl FnOnce() + Send) -> [u32; 2] {
    std::thread::scope(|scope| {
        let one = scope.spawn(|| {
            one();
            tid()
        });
        let two = scope.spawn(|| {
            two();
            tid()
        });
        [one, two].map(|thread| thread.join().expect("it does its work"))
    })
}

/// Sizes of messages, none of them alike.
const SIZES: std::ops::Range<usize> = 1..40;

fn write_all_sizes(mut out: impl Write) {
    SIZES.for_each(|size| out.write_all(&vec![7; size]).expect("room for it"));
}

fn read_to_end(mut input: impl Read) {
    let mut buffer = [0; 64];
    while input.read(&mut buffer).expect("readable") > 0 {}
}

/// How often one wakes the other.
const WAKES: usize = 20;

fn wait_at(futex: &AtomicU32, flags: futex::Flags) {
    while futex.load(Ordering::Acquire) == 0 {
        // Woken, or it was too late to wait.
        let _ = futex::wait(futex, flags, 0, None);
    }
}

fn wake_at(futex: &AtomicU32, flags: futex::Flags) {
    for _ in 0..WAKES {
        while futex::wake(futex, flags, 1).expect("a futex") == 0 {
            std::thread::yield_now();
        }
    }
    futex.store(1, Ordering::Release);
    futex::wake(futex, flags, 1).expect("a futex");
}

/// The same memory at two addresses.
#[allow(unsafe_code, reason = "a mapping cannot be made without it")]
fn twice_mapped() -> [&'static AtomicU32; 2] {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    let file = rustix::fs::memfd_create("schedlab-messages", rustix::fs::MemfdFlags::CLOEXEC)
        .expect("memory");
    rustix::fs::ftruncate(&file, 8192).expect("memory");
    [0, 0].map(|_| {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping of a file that nothing else uses, which stays until the process
        // ends; atomics are all that touches it.
        unsafe {
            let base = mmap(std::ptr::null_mut(), 8192, both, MapFlags::SHARED, &file, 0)
                .expect("a mapping");
            &*base.cast::<u8>().add(4100).cast::<AtomicU32>()
        }
    })
}

fn exchange_in_pairs(threads: &mut Threads) {
    let (out, input) = UnixStream::pair().expect("a pair");
    threads.pair = both(|| write_all_sizes(out), || read_to_end(input));
    let (input, out) = std::io::pipe().expect("a pipe");
    threads.pipe = both(|| write_all_sizes(out), || read_to_end(input));
    let counter = eventfd(0, EventfdFlags::SEMAPHORE).expect("an eventfd");
    let (counter, add) = (&counter, 3u64.to_ne_bytes());
    let adds =
        || (0..10).for_each(|_| assert_eq!(rustix::io::write(counter, &add).expect("room"), 8));
    let takes = || {
        (0..30)
            .for_each(|_| assert_eq!(rustix::io::read(counter, &mut [0; 8]).expect("8 bytes"), 8))
    };
    threads.event = both(adds, takes);
    let word = AtomicU32::new(0);
    let private = futex::Flags::PRIVATE;
    threads.futex = both(|| wait_at(&word, private), || wake_at(&word, private));
    let [here, there] = twice_mapped();
    let shared = futex::Flags::empty();
    threads.shared = both(|| wait_at(here, shared), || wake_at(there, shared));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("a port");
    let server = move || {
        let (mut connection, _) = listener.accept().expect("a client");
        let mut buffer = [0; 64];
        while let Ok(bytes @ 1..) = connection.read(&mut buffer) {
            connection.write_all(&vec![1; bytes * 100]).expect("a client");
        }
    };
    let client = move || {
        let mut connection = TcpStream::connect(address).expect("a server");
        for size in SIZES {
            connection.write_all(&vec![2; size]).expect("a server");
            connection.read_exact(&mut vec![0; size * 100]).expect("an answer");
        }
    };
    threads.tcp = both(server, client);
}

fn exchange() -> Threads {
    let mut threads = Threads::default();
    exchange_in_pairs(&mut threads);
    threads.sleeper = tid();
    let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: 1_234_567 });
    let now = clock_gettime(ClockId::Monotonic);
    let deadline = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64 + 2_000_000;
    let second = 1_000_000_000;
    let until =
        Timespec { tv_sec: (deadline / second) as i64, tv_nsec: (deadline % second) as i64 };
    clock_nanosleep_absolute(rustix::thread::ClockId::Monotonic, &until).expect("it sleeps");
    threads.deadline = deadline;
    let (input, _open) = std::io::pipe().expect("a pipe");
    let wait = Timespec { tv_sec: 0, tv_nsec: 3_000_000 };
    assert_eq!(poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&wait)).expect("a poll"), 0);
    let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
    threads.child = child.id();
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    threads.parent = tid();
    threads
}

/// Records the exchange once, for all tests.
fn recorded() -> &'static Result<(Threads, Told), String> {
    static RECORDED: OnceLock<Result<(Threads, Told), String>> = OnceLock::new();
    RECORDED.get_or_init(record_exchange)
}

/// Records the exchange.
fn record_exchange() -> Result<(Threads, Told), String> {
    let _turn = schedlab_testing::turn();
    let (began, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut sink = Sink { told: Told::default(), began: &began };
    let request = RecordRequest {
        backend: Some(Backend::Bpf),
        messages: Messages::On,
        filter: RecordFilter::Processes(vec![std::process::id()]),
        duration: Some(Ns::from_ms(60_000)),
        ..RecordRequest::new(RecordUntil::Stopped)
    };
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            while !began.load(Ordering::Acquire) {
                if over.load(Ordering::Acquire) {
                    return None;
                }
                std::thread::yield_now();
            }
            let threads = exchange();
            over.store(true, Ordering::Release);
            Some(threads)
        });
        let result = record(&request, &mut sink, &|| over.load(Ordering::Acquire));
        over.store(true, Ordering::Release);
        let threads = work.join().expect("the work is done");
        let end = result.map_err(|error| error.to_string())?;
        assert_eq!((end.facts as usize, end.facts_lost), (sink.told.facts.len(), 0));
        Ok((threads.expect("it began"), sink.told))
    })
}

impl Told {
    /// The facts of a thread.
    fn facts_of(&self, tid: u32) -> impl Iterator<Item = &Fact> {
        self.facts
            .iter()
            .filter(move |fact| fact.task.is_some_and(|task| self.tids.get(&task) == Some(&tid)))
    }

    /// What a thread sent or received, at objects of this kind.
    fn moved(&self, tid: u32, kind: ObjectKind, sends: bool) -> Vec<Transfer> {
        let moved = self.facts_of(tid).filter_map(|fact| match fact.kind {
            FactKind::Send(moved) if sends => Some(moved),
            FactKind::Receive(moved) if !sends => Some(moved),
            _ => None,
        });
        moved.filter(|moved| self.objects[moved.object.index()].kind == kind).collect()
    }
}

fn bytes(moved: &[Transfer]) -> u64 {
    moved.iter().map(|moved| u64::from(moved.bytes)).sum()
}

/// The only object of some transfers.
fn object(moved: &[Transfer]) -> ObjectId {
    assert!(moved.windows(2).all(|pair| pair[0].object == pair[1].object), "{moved:?}");
    moved[0].object
}

macro_rules! threads {
    ($name:literal) => {
        match recorded() {
            Ok(recorded) => recorded,
            Err(why) => return skip($name, why),
        }
    };
}

/// One sent a message of each size, the other received all of them and then the end.
fn a_stream(told: &Told, [writer, reader]: [u32; 2], kind: ObjectKind) -> ObjectId {
    let (sent, received) = (told.moved(writer, kind, true), told.moved(reader, kind, false));
    let sizes: Vec<usize> = sent.iter().map(|moved| moved.bytes as usize).collect();
    assert_eq!(sizes, SIZES.collect::<Vec<_>>());
    assert_eq!(bytes(&sent), bytes(&received));
    assert_eq!(object(&sent), object(&received), "both ends name the same object");
    let last = received.last().expect("the end");
    assert_eq!((last.bytes, last.outcome), (0, Outcome::End));
    assert!(
        sent.iter()
            .all(|moved| moved.outcome == Outcome::Done && !moved.partial && !moved.by_kernel)
    );
    object(&sent)
}

#[test]
fn a_socket_pair_and_a_pipe_carry_what_was_sent() {
    let (threads, told) = threads!("a_socket_pair_and_a_pipe_carry_what_was_sent");
    let pair = a_stream(told, threads.pair, ObjectKind::Unix);
    let peer = told.objects[pair.index()].peer.expect("the other direction");
    assert_eq!(told.objects[peer.index()].peer, Some(pair));
    let opened =
        |id: ObjectId| told.facts.iter().any(|fact| fact.kind == FactKind::Open { object: id });
    assert!(opened(pair) && opened(peer));
    let pipe = a_stream(told, threads.pipe, ObjectKind::Pipe);
    let info = &told.objects[pipe.index()];
    assert!(
        opened(pipe) && info.to.starts_with("pipe:[") && info.capacity == Some(65_536),
        "{info:?}"
    );
}

#[test]
fn an_eventfd_is_a_counter() {
    let (threads, told) = threads!("an_eventfd_is_a_counter");
    let [adds, takes] = threads.event;
    let (added, taken) = (
        told.moved(adds, ObjectKind::Eventfd, true),
        told.moved(takes, ObjectKind::Eventfd, false),
    );
    assert_eq!((added.len(), taken.len()), (10, 30));
    assert_eq!((bytes(&added), bytes(&taken)), (30, 30));
    assert_eq!(object(&added), object(&taken));
}

#[test]
fn futexes_are_named_by_their_memory() {
    let _: &(Threads, Told) = threads!("futexes_are_named_by_their_memory");
    // The kernel leaves out a program that would run inside itself, and a fact with it.
    schedlab_testing::settles(3, || {
        let (threads, told) = record_exchange().expect("as before");
        a_futex_has_one_name(&threads, &told);
    });
}

fn a_futex_has_one_name(threads: &Threads, told: &Told) {
    for ([waits, wakes], kind) in
        [(threads.futex, ObjectKind::Futex), (threads.shared, ObjectKind::SharedFutex)]
    {
        let waited: Vec<_> = told
            .facts_of(waits)
            .filter_map(|fact| match fact.kind {
                FactKind::FutexWait { futex, outcome, .. }
                    if told.objects[futex.index()].kind == kind =>
                {
                    Some((futex, outcome))
                }
                _ => None,
            })
            .collect();
        let woken: Vec<_> = told
            .facts_of(wakes)
            .filter_map(|fact| match fact.kind {
                FactKind::FutexWake { futex, woken, .. }
                    if told.objects[futex.index()].kind == kind =>
                {
                    Some((futex, woken))
                }
                _ => None,
            })
            .collect();
        let done = waited.iter().filter(|(_, outcome)| *outcome == Outcome::Done).count();
        let sum: u32 = woken.iter().map(|(_, woken)| woken).sum();
        assert_eq!(done as u32, sum, "{waited:?} {woken:?}");
        assert!(done >= WAKES, "{done}");
        assert!(waited.iter().all(|(futex, _)| *futex == woken[0].0), "{kind:?} is one object");
        assert!(woken.iter().all(|(futex, _)| *futex == woken[0].0), "{kind:?} is one object");
    }
}

#[test]
fn a_connection_over_loopback_has_two_directions_with_places() {
    let (threads, told) = threads!("a_connection_over_loopback_has_two_directions_with_places");
    let [server, client] = threads.tcp;
    let of = |tid, sends| told.moved(tid, ObjectKind::Tcp, sends);
    let (asked, heard) = (of(client, true), of(server, false));
    let (answered, read) = (of(server, true), of(client, false));
    assert_eq!(bytes(&asked), SIZES.sum::<usize>() as u64);
    assert_eq!((bytes(&asked), bytes(&asked) * 100), (bytes(&heard), bytes(&answered)));
    assert_eq!(bytes(&answered), bytes(&read));
    let (there, back) = (object(&asked), object(&answered));
    assert_eq!((object(&heard), object(&read)), (there, back));
    assert_eq!(told.objects[there.index()].peer, Some(back));
    assert!(told.objects[there.index()].to.starts_with("127.0.0.1:"));
    for moved in [&asked, &heard, &answered, &read] {
        let moved: Vec<_> = moved.iter().filter(|moved| moved.bytes > 0).collect();
        let place = |moved: &Transfer| moved.place.expect("TCP counts");
        let follow =
            |pair: &[&Transfer]| place(pair[1]) == place(pair[0]) + u64::from(pair[1].bytes);
        assert!(moved.windows(2).all(follow), "{moved:?}");
    }
    let last = |moved: &[Transfer]| {
        moved.iter().rev().find(|moved| moved.bytes > 0).and_then(|moved| moved.place)
    };
    assert_eq!(last(&asked), last(&heard), "both ends count alike");
    let has = |tid: u32, wanted: &dyn Fn(&FactKind) -> bool| {
        told.facts_of(tid).any(|fact| wanted(&fact.kind))
    };
    assert!(has(
        client,
        &|kind| matches!(kind, FactKind::Connect { object, .. } if *object == there)
    ));
    assert!(has(
        server,
        &|kind| matches!(kind, FactKind::Accept { object, .. } if *object == there)
    ));
    assert!(has(client, &|kind| matches!(kind, FactKind::Close { object } if *object == there)));
}

#[test]
fn sleeps_say_how_long_or_until_when() {
    let (threads, told) = threads!("sleeps_say_how_long_or_until_when");
    let sleeps: Vec<_> = told
        .facts_of(threads.sleeper)
        .filter_map(|fact| match fact.kind {
            FactKind::Sleep { until, outcome } => Some((until, outcome)),
            _ => None,
        })
        .collect();
    let until = Limit::At(Ns(threads.deadline - told.monotonic_ns));
    let expected = [(Limit::For(Ns(1_234_567)), Outcome::Done), (until, Outcome::Done)];
    assert!(sleeps.windows(2).any(|pair| pair == expected), "{sleeps:?} {expected:?}");
    let timed_out = |fact: &Fact| {
        matches!(
            fact.kind,
            FactKind::Select { selector: None, ready: 0, outcome: Outcome::TimedOut, .. }
        )
    };
    assert!(told.facts_of(threads.sleeper).any(timed_out));
}

#[test]
fn a_child_is_signalled_and_waited_for() {
    let (threads, told) = threads!("a_child_is_signalled_and_waited_for");
    let is =
        |task: Option<_>, tid: u32| task.is_some_and(|task| told.tids.get(&task) == Some(&tid));
    let killed = |fact: &&Fact| {
        matches!(fact.kind, FactKind::Signal { from, number: 9 } if is(from, threads.parent))
            && is(fact.task, threads.child)
    };
    assert!(told.facts.iter().any(|fact| killed(&fact)));
    let waited =
        |fact: &Fact| matches!(fact.kind, FactKind::Child { child } if is(child, threads.child));
    assert!(told.facts_of(threads.parent).any(waited));
}
