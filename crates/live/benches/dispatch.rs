//! What it costs to hand a CPU from a thread that blocks to the next: by the kernel alone, by the least possible agent
//! ([`bare`](schedlab_live::elevation::bare)) with and without gifts of CPU time, and by the driver under a scheduler; at
//! bursts of 0, 20, 100 and 1000 us. In a gift the fair class, and whoever else is in it, decides: at bursts of 1000 us that
//! is more than one turn in a hundred, so p99 is about gifts there.
//!
//! `cargo bench -p schedlab-live --bench dispatch -- [--rounds N] [--ms LENGTH]`. Rounds are interleaved; ratios are of
//! medians over the rounds. Needs root and two CPUs. This program also is the guardian and the pair of threads.

#![expect(clippy::print_stdout, reason = "a bench prints its result")]

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use rustix::time::{ClockId, clock_gettime};
use schedlab_host::threads;
use schedlab_live::Room;
use schedlab_live::elevation::{ElevationOptions, bare, manage};
use schedlab_live::guardian::{self, Watch};
use schedlab_model::{CpuId, CpuSet, Ns};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const CPU: CpuId = CpuId(0);
const BURSTS_US: [u64; 4] = [0, 20, 100, 1000];
/// The bare agent never gives the CPU away, which the kernel bears for a second; `gifts` is the bare agent that does.
const WAYS: [&str; 4] = ["kernel", "bare", "gifts", "driver"];
const SCHEDULER: &str = "fifo-per-cpu";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(guardian::COMMAND) => {
            let watch = Watch::parse(&arguments[1..]).expect("our own arguments");
            guardian::watch(&watch).map_or(ExitCode::FAILURE, |_| ExitCode::SUCCESS)
        }
        Some("pair") => pair(number(&arguments, 1), number(&arguments, 2)),
        _ => bench(&arguments),
    }
}

fn number(arguments: &[String], at: usize) -> u64 {
    arguments.get(at).and_then(|text| text.parse().ok()).expect("a number")
}

fn clock(id: ClockId) -> u64 {
    let now = clock_gettime(id);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// When the one that blocks did its last step, and when the last one came back; 0: nothing yet.
#[derive(Default)]
struct Times {
    left: AtomicU64,
    back: AtomicU64,
}

/// One round of a pair: sorted times in ns.
#[derive(Default)]
struct Round {
    block_to_next: Vec<u64>,
    cycle: Vec<u64>,
}

/// Two threads that wake each other and block, until the time is over.
fn pair(burst_us: u64, ms: u64) -> ExitCode {
    let bell = || eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
    let bells: Arc<[OwnedFd; 2]> = Arc::new([bell(), bell()]);
    let times = Arc::new(Times::default());
    let end = Arc::new(AtomicU64::new(u64::MAX));
    let tids = Arc::new(Mutex::new(Vec::new()));
    let workers: Vec<_> = (0..2)
        .map(|own: usize| {
            let (bells, times, end, tids) = (bells.clone(), times.clone(), end.clone(), tids.clone());
            std::thread::spawn(move || {
                let tid = rustix::thread::gettid().as_raw_nonzero().get();
                tids.lock().expect("nobody panics").push(tid);
                turns(own, burst_us * 1_000, &bells, &times, &end)
            })
        })
        .collect();
    while tids.lock().expect("nobody panics").len() < 2 {
        std::thread::yield_now();
    }
    let both = tids.lock().expect("nobody panics").clone();
    println!("{} {}", both[0], both[1]);
    std::io::stdout().flush().expect("the bench reads");
    std::io::stdin().lock().lines().next();
    let begin = clock(ClockId::Monotonic);
    end.store(begin + ms * 1_000_000, Ordering::Relaxed);
    write(&bells[0], &1_u64.to_ne_bytes()).expect("an eventfd");
    let mut all = Round::default();
    for worker in workers {
        let round = worker.join().expect("a worker");
        all.block_to_next.extend(round.block_to_next);
        all.cycle.extend(round.cycle);
    }
    let elapsed = clock(ClockId::Monotonic) - begin;
    let count = all.cycle.len() as u64;
    let overhead = 1.0 - (count * burst_us * 1_000) as f64 / elapsed as f64;
    let (block, cycle) = (ladder(all.block_to_next), ladder(all.cycle));
    println!("{} {} {} {} {overhead} {count}", block.0, block.1, cycle.0, cycle.1);
    ExitCode::SUCCESS
}

fn turns(own: usize, burst: u64, bells: &[OwnedFd; 2], times: &Times, end: &AtomicU64) -> Round {
    let mut round = Round { block_to_next: Vec::with_capacity(1 << 18), cycle: Vec::with_capacity(1 << 18) };
    loop {
        read(&bells[own], &mut [0; 8]).expect("an eventfd");
        let now = clock(ClockId::Monotonic);
        let (left, back) = (times.left.load(Ordering::Relaxed), times.back.swap(now, Ordering::Relaxed));
        if back > 0 && round.cycle.len() < round.cycle.capacity() {
            round.block_to_next.extend((left > 0).then(|| now.saturating_sub(left)));
            // What a turn costs beside its burst.
            round.cycle.push(now.saturating_sub(back).saturating_sub(burst));
        }
        let over = now > end.load(Ordering::Relaxed);
        if burst > 0 && !over {
            let until = clock(ClockId::ThreadCPUTime) + burst;
            while clock(ClockId::ThreadCPUTime) < until {}
        }
        // Until this one blocks: whoever comes before was let in front of it, and has no block to tell of.
        times.left.store(0, Ordering::Relaxed);
        write(&bells[1 - own], &1_u64.to_ne_bytes()).expect("an eventfd");
        if over {
            return round;
        }
        times.left.store(clock(ClockId::Monotonic), Ordering::Relaxed);
    }
}

/// p50 and p99.
fn ladder(mut values: Vec<u64>) -> (u64, u64) {
    values.sort_unstable();
    let at = |percent: usize| values.get(values.len() * percent / 100).copied().unwrap_or(0);
    (at(50), at(99))
}

/// What a pair measured: block to next p50 and p99, cycle p50 and p99 (ns), overhead, turns.
type Numbers = [f64; 6];

fn bench(arguments: &[String]) -> ExitCode {
    let option = |name: &str, default: u64| {
        let at = arguments.iter().position(|text| text == name);
        at.map_or(default, |at| number(arguments, at + 1))
    };
    let (rounds, ms) = (option("--rounds", 7), option("--ms", 300));
    if !rustix::process::geteuid().is_root() {
        println!("skipped: dispatch needs root");
        return ExitCode::SUCCESS;
    }
    let mut found: Vec<Vec<Numbers>> = vec![Vec::new(); WAYS.len() * BURSTS_US.len()];
    for round in 0..rounds as usize {
        for index in 0..found.len() {
            // Another order each round, so that what comes and goes hits everybody.
            let index = (index * 5 + round) % found.len();
            let (way, burst) = (WAYS[index % WAYS.len()], BURSTS_US[index / WAYS.len()]);
            found[index].push(one(way, burst, ms));
        }
    }
    report(&found, rounds, ms);
    ExitCode::SUCCESS
}

struct Pair {
    child: Child,
    out: BufReader<ChildStdout>,
    tids: [u32; 2],
}

impl Pair {
    fn start(burst: u64, ms: u64) -> Pair {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args(["pair", &burst.to_string(), &ms.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let tids = line(&mut out);
        Pair { child, out, tids: [tids[0] as u32, tids[1] as u32] }
    }
    fn go(&mut self) {
        self.child.stdin.as_mut().expect("piped").write_all(b"go\n").expect("it reads");
    }
    fn ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
    fn numbers(mut self) -> Numbers {
        let values = line(&mut self.out);
        self.child.wait().expect("our child");
        values.try_into().expect("six numbers")
    }
}

fn line(out: &mut impl BufRead) -> Vec<f64> {
    let mut text = String::new();
    out.read_line(&mut text).expect("it prints");
    text.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

fn one(way: &str, burst: u64, ms: u64) -> Numbers {
    let mut pair = Pair::start(burst, ms);
    let only = CpuSet::single(CPU);
    match way {
        "kernel" => {
            for tid in pair.tids {
                threads::set_affinity(tid, &only).expect("our child");
                threads::set_fifo(tid, 3).expect("root");
            }
            pair.go();
        }
        "bare" | "gifts" => {
            let (stop, tids) = (AtomicBool::new(false), pair.tids);
            std::thread::scope(|scope| {
                let agent = scope.spawn(|| bare::hand_over(CPU, tids, way == "gifts", &stop));
                // Until both are parked and raised.
                while !tids.iter().all(|tid| threads::fifo_priority(*tid).is_ok_and(|now| now.is_some())) {
                    assert!(!agent.is_finished(), "the agent could not begin");
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
                pair.go();
                while !pair.ended() {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                stop.store(true, Ordering::Relaxed);
                agent.join().expect("no panic").expect("allowed");
            });
        }
        _ => {
            let folder = std::env::temp_dir().join(format!("schedlab-dispatch-{}", std::process::id()));
            let options = ElevationOptions {
                scheduler: SCHEDULER.to_owned(),
                cpu: CPU,
                starve_after: Ns::from_s(1),
                declared: Vec::new(),
                capacity: 64,
                room: Room::at(&folder).expect("a room"),
                program: std::env::current_exe().expect("this program"),
                log_steps: 0,
            };
            let (pid, pair) = (pair.child.id(), Mutex::new(&mut pair));
            let held = || pair.lock().expect("nobody panics");
            manage(&options, &[pid], || held().go(), || held().ended()).expect("it can be managed");
            let _ = std::fs::remove_dir_all(&folder);
        }
    }
    pair.numbers()
}

fn median(values: &[Numbers], at: usize) -> f64 {
    let mut all: Vec<f64> = values.iter().map(|numbers| numbers[at]).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

fn report(found: &[Vec<Numbers>], rounds: u64, ms: u64) {
    println!("medians of {rounds} interleaved rounds of {ms} ms; times in us; driver under {SCHEDULER}");
    println!(
        "{:>6} {:8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "burst", "by", "block p50", "block p99", "cycle p50", "cycle p99", "overhead", "turns"
    );
    for (index, values) in found.iter().enumerate() {
        let us = |at: usize| median(values, at) / 1_000.0;
        println!(
            "{:>6} {:8} {:>10.2} {:>10.2} {:>10.2} {:>10.2} {:>9.1}% {:>10.0}",
            BURSTS_US[index / WAYS.len()],
            WAYS[index % WAYS.len()],
            us(0),
            us(1),
            us(2),
            us(3),
            100.0 * median(values, 4),
            median(values, 5)
        );
    }
    for (index, burst) in BURSTS_US.iter().enumerate() {
        let of = |way: usize| &found[index * WAYS.len() + way];
        for way in [1, 2] {
            let ratio = |at: usize| median(of(3), at) / median(of(way), at).max(1.0);
            println!(
                "burst {burst} us, driver / {}: block p50 {:.2} p99 {:.2}, cycle p50 {:.2} p99 {:.2}",
                WAYS[way],
                ratio(0),
                ratio(1),
                ratio(2),
                ratio(3)
            );
        }
    }
}
