//! The same run seen by BPF, tracepoints and context-switch records at once. Where that is not allowed the test
//! says so by name and passes, except under `CI=true` as root, where it must work.
#![allow(clippy::print_stderr)]

use schedlab_host::{
    Backend, GroupFacts, HostError, RecordEnd, RecordRequest, RecordSink, RecordStart, Scope, TaskFacts,
    record,
};
use schedlab_model::{EventKind, EventSink, PrevState, SchedEvent, TaskId, Waker};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// What one recorder saw, with thread ids instead of its own numbers and the clock instead of its own zero.
#[derive(Default)]
struct Seen {
    /// How many recorders have begun: they have handed out an event.
    begun: Option<Arc<AtomicU32>>,
    origin: u64,
    tids: BTreeMap<TaskId, u32>,
    events: Vec<SchedEvent>,
}

impl EventSink for Seen {
    fn event(&mut self, event: &SchedEvent) {
        if self.events.is_empty()
            && let Some(begun) = &self.begun
        {
            begun.fetch_add(1, Ordering::Release);
        }
        self.events.push(*event);
    }
}

/// Waits until `recorders` record, however long loading takes here. A recorder that cannot start is not waited for
/// for ever: its own error comes out later.
fn begun(recorders: u32, begun: &AtomicU32, ended: impl Fn() -> bool) {
    while begun.load(Ordering::Acquire) < recorders && !ended() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl RecordSink for Seen {
    fn start(&mut self, start: &RecordStart) -> std::io::Result<()> {
        self.origin = start.monotonic_ns;
        Ok(())
    }
    fn group(&mut self, _: &GroupFacts) {}
    fn task(&mut self, task: &TaskFacts) {
        self.tids.insert(task.id, task.tid);
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

const ECHOES: usize = 3000;

/// (CPU, who stopped, who runs now) of a switch.
type Step = (u32, u32, u32);

impl Seen {
    fn tid(&self, task: Option<TaskId>) -> u32 {
        task.map_or(0, |task| self.tids[&task])
    }

    /// The switches from or to `ours`, with their time.
    fn switches(&self, ours: &[u32], from: u64, to: u64) -> Vec<(Step, u64)> {
        let mut all = Vec::new();
        for event in &self.events {
            let EventKind::Switch { prev, next, .. } = event.kind else { continue };
            let (prev, next, at) = (self.tid(prev), self.tid(next), self.origin + event.at.0);
            if (from..to).contains(&at) && (ours.contains(&prev) || ours.contains(&next)) {
                all.push(((event.cpu.0, prev, next), at));
            }
        }
        all
    }

    /// Each wait of `ours` that ended between `from` and `to`: (who, after a wakeup?) and its length.
    fn waits(&self, ours: &[u32], from: u64, to: u64) -> Vec<((u32, bool), u64)> {
        let mut since: BTreeMap<u32, (u64, bool)> = BTreeMap::new();
        let mut all = Vec::new();
        for event in &self.events {
            let at = self.origin + event.at.0;
            match event.kind {
                EventKind::Wake { task, .. } => {
                    since.entry(self.tid(Some(task))).or_insert((at, true));
                }
                EventKind::Switch { prev, prev_state, next } => {
                    let (prev, next) = (self.tid(prev), self.tid(next));
                    if let Some((begin, woken)) = since.remove(&next)
                        && ours.contains(&next)
                        && (from..to).contains(&at)
                    {
                        all.push(((next, woken), at - begin));
                    }
                    if matches!(prev_state, PrevState::Runnable | PrevState::RunnableInKernel) {
                        since.insert(prev, (at, false));
                    }
                }
                _ => {}
            }
        }
        all
    }

    /// On whose behalf `tid` was woken, counted.
    fn wakers(&self, tid: u32, from: u64, to: u64) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for event in &self.events {
            let EventKind::Wake { task, waker } = event.kind else { continue };
            if self.tid(Some(task)) == tid && (from..to).contains(&(self.origin + event.at.0)) {
                let name = match waker {
                    Waker::Task(by) => format!("task {}", self.tid(Some(by))),
                    Waker::InlineSoftirq(by) => format!("softirq of {}", self.tid(Some(by))),
                    other => format!("{other:?}"),
                };
                *counts.entry(name).or_default() += 1;
            }
        }
        counts
    }
}

fn pin_to_cpu_0() {
    let mut only = rustix::thread::CpuSet::new();
    only.set(0);
    rustix::thread::sched_setaffinity(None, &only).unwrap();
}

fn gettid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Whether the recorder works here; says so by name when it does not.
fn may(test: &str, seen: Result<RecordEnd, HostError>) -> Option<RecordEnd> {
    match seen {
        Ok(end) => Some(end),
        Err(error @ (HostError::NoBackend { .. } | HostError::Backend { .. })) => {
            let root = rustix::process::geteuid().is_root();
            let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
            assert!(!(ci && root), "{test} must run here: {error}");
            eprintln!("SKIPPED {test}: {error}");
            None
        }
        Err(error) => panic!("{test}: {error}"),
    }
}

/// Echoes over loopback between two threads on CPU 0, a thread that works beside them, and one that sleeps.
/// The thread ids of client, server, worker and sleeper, and the time from the first to the last echo.
fn load() -> ([u32; 4], u64, u64) {
    let over = AtomicBool::new(false);
    let tids: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];
    let mut window = (0, 0);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let begin = |slot: usize| {
        pin_to_cpu_0();
        tids[slot].store(gettid(), Ordering::SeqCst);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begin(1);
            let (mut stream, _) = listener.accept().unwrap();
            let mut byte = [0];
            while stream.read(&mut byte).is_ok_and(|n| n == 1) {
                stream.write_all(&byte).unwrap();
            }
        });
        scope.spawn(|| {
            begin(2);
            while !over.load(Ordering::Relaxed) {
                std::hint::black_box(gettid());
            }
        });
        scope.spawn(|| {
            begin(3);
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let client = scope.spawn(|| {
            begin(0);
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            let from = now();
            for _ in 0..ECHOES {
                stream.write_all(b"x").unwrap();
                stream.read_exact(&mut [0]).unwrap();
            }
            let to = now();
            over.store(true, Ordering::Relaxed);
            (from, to)
        });
        window = client.join().unwrap();
    });
    (tids.map(AtomicU32::into_inner), window.0, window.1)
}

/// Prints how far apart `values` are, and returns the part of them (in percent) that is at most 5 us.
fn within_5_us(what: &str, mut values: Vec<u64>) -> usize {
    values.sort_unstable();
    let at = |percent: usize| values[(values.len() - 1) * percent / 100];
    eprintln!(
        "{what}: {} waits, apart by {} ns (median), {} (p99), {} (most)",
        values.len(),
        at(50),
        at(99),
        at(100)
    );
    values.iter().filter(|&&apart| apart <= 5_000).count() * 100 / values.len()
}

#[test]
fn three_tiers_see_the_same_run() {
    let test = "three_tiers_see_the_same_run";
    let over = AtomicBool::new(false);
    let tiers = [Backend::Bpf, Backend::Tracepoints, Backend::Switches];
    let (mut all, mut ran) = (Vec::new(), ([0; 4], 0, 0));
    let count = Arc::new(AtomicU32::new(0));
    std::thread::scope(|scope| {
        let recorders = tiers.map(|backend| {
            let (over, count) = (&over, Arc::clone(&count));
            scope.spawn(move || {
                let request = RecordRequest { backend: Some(backend), ..RecordRequest::new(Scope::All) };
                let mut seen = Seen { begun: Some(count), ..Seen::default() };
                let end = record(&request, &mut seen, &|| over.load(Ordering::Relaxed));
                (seen, end)
            })
        });
        // All three have begun when the client sends its first byte.
        begun(tiers.len() as u32, &count, || recorders.iter().any(|recorder| recorder.is_finished()));
        ran = load();
        std::thread::sleep(Duration::from_millis(50));
        over.store(true, Ordering::Relaxed);
        all = recorders.into_iter().map(|recorder| recorder.join().unwrap()).collect();
    });
    let (ours, from, to) = ran;
    let mut seen = Vec::new();
    for (of, end) in all {
        let Some(end) = may(test, end) else { return };
        assert_eq!(end.lost, 0);
        seen.push(of);
    }
    let steps =
        |seen: &Seen| seen.switches(&ours, from, to).into_iter().map(|(step, _)| step).collect::<Vec<_>>();
    let bpf = steps(&seen[0]);
    eprintln!("{} switches of {ours:?} in {} us", bpf.len(), (to - from) / 1000);
    assert!(bpf.len() > ECHOES, "each echo is two switches at least: {}", bpf.len());
    for (other, tier) in seen.iter().zip(tiers).skip(1) {
        // An instant at the edge of the window may fall on either side of it.
        let steps = steps(other);
        assert!(steps.len().abs_diff(bpf.len()) <= 2, "{}: {} and {}", tier.name(), steps.len(), bpf.len());
        let inner = &bpf[2..bpf.len() - 2];
        let found = (0..=4).any(|at| steps.get(at..at + inner.len()).is_some_and(|part| part == inner));
        assert!(found, "the switches by {} are not those by bpf", tier.name());
    }
    let waits: Vec<_> = seen.iter().map(|seen| seen.waits(&ours, from, to)).collect();
    compare_waits(&waits);
    // The kernel wakes the peer inside the sender's system call; a timer wakes the sleeper.
    let [client, server, _, sleeper] = ours;
    for seen in &seen[..2] {
        let by = seen.wakers(server, from, to);
        eprintln!("server woken by {by:?}");
        let sender = by.get(&format!("softirq of {client}")).copied().unwrap_or(0);
        assert!(sender * 10 >= by.values().sum::<u32>() * 9, "{by:?}");
        let by = seen.wakers(sleeper, from, to);
        eprintln!("sleeper woken by {by:?}");
        let timer = by.get("HardIrq").copied().unwrap_or(0);
        assert!(timer * 10 >= by.values().sum::<u32>() * 9, "{by:?}");
    }
}

/// Waits by tier: BPF, tracepoints, context switches (which know only those after a preemption).
fn compare_waits(waits: &[Vec<((u32, bool), u64)>]) {
    let only = |waits: &[((u32, bool), u64)], tid: u32, woken: bool| -> Vec<u64> {
        waits.iter().filter(|(key, _)| *key == (tid, woken)).map(|&(_, wait)| wait).collect()
    };
    let mut tids: Vec<u32> = waits[0].iter().map(|((tid, _), _)| *tid).collect();
    tids.sort_unstable();
    tids.dedup();
    for (what, tier, kinds) in [("tracepoints", 1, &[true, false][..]), ("switches", 2, &[false][..])] {
        let mut apart = Vec::new();
        for &tid in &tids {
            for &woken in kinds {
                let (ours, theirs) = (only(&waits[0], tid, woken), only(&waits[tier], tid, woken));
                assert!(
                    ours.len().abs_diff(theirs.len()) <= 1,
                    "{what}: {} and {}",
                    ours.len(),
                    theirs.len()
                );
                apart.extend(ours.iter().zip(&theirs).map(|(a, b)| a.abs_diff(*b)));
            }
        }
        // The rest is a hypervisor or an interrupt between the two recorders' looks at the clock.
        let near = within_5_us(what, apart);
        assert!(near >= 95, "{what}: only {near} % within 5 us of bpf");
    }
}

/// Timer wakeups on each CPU in turn, which hit it idle when nothing else runs there.
#[test]
fn bpf_sees_sleepers_on_every_cpu() {
    let test = "bpf_sees_sleepers_on_every_cpu";
    const SLEEPS: usize = 50;
    let over = AtomicBool::new(false);
    let count = Arc::new(AtomicU32::new(0));
    let mut seen = Seen { begun: Some(Arc::clone(&count)), ..Seen::default() };
    let mut tids = Vec::new();
    let request = RecordRequest { backend: Some(Backend::Bpf), ..RecordRequest::new(Scope::All) };
    let end = std::thread::scope(|scope| {
        let recorder = scope.spawn(|| record(&request, &mut seen, &|| over.load(Ordering::Relaxed)));
        begun(1, &count, || recorder.is_finished());
        for cpu in schedlab_host::machine().online.iter() {
            let sleeper = scope.spawn(move || {
                let mut only = rustix::thread::CpuSet::new();
                only.set(cpu.index());
                rustix::thread::sched_setaffinity(None, &only).unwrap();
                (0..SLEEPS).for_each(|_| std::thread::sleep(Duration::from_micros(500)));
                gettid()
            });
            tids.push((cpu, sleeper.join().unwrap()));
        }
        over.store(true, Ordering::Relaxed);
        recorder.join().unwrap()
    });
    if may(test, end).is_none() {
        return;
    }
    for (cpu, tid) in tids {
        let by = seen.wakers(tid, 0, u64::MAX);
        let begun = seen
            .switches(&[tid], 0, u64::MAX)
            .iter()
            .filter(|((on, _, next), _)| (*on, *next) == (cpu.0, tid))
            .count();
        let from_idle = seen
            .switches(&[tid], 0, u64::MAX)
            .iter()
            .filter(|((_, prev, next), _)| (*prev, *next) == (0, tid))
            .count();
        eprintln!("{cpu}: woken by {by:?}, begun {begun} times, {from_idle} from idle");
        assert!(begun >= SLEEPS, "{cpu}: {begun}");
        assert!(by.get("HardIrq").copied().unwrap_or(0) as usize >= SLEEPS * 9 / 10, "{cpu}: {by:?}");
    }
}
