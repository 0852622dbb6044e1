//! The cost of handing a CPU from a thread that blocks to the next: by the kernel alone, by the
//! least possible agent ([`baseline`](schedlab_live::elevation::baseline)) with and without yield
//! windows, and by the driver under a scheduler; at bursts of 0, 20, 100 and 1000 us. In a yield
//! window the fair class decides, also about other threads in it: at bursts of 1000 us that is more
//! than one turn in a hundred, so p99 is about yield windows there.
//!
//! `cargo bench -p schedlab-live --bench dispatch -- [--rounds N] [--ms LENGTH]`. Rounds are
//! interleaved; ratios are of medians over the rounds. Needs root and two CPUs. This program also
//! is the guardian and the two threads.

#![expect(clippy::print_stdout, reason = "a bench prints its result")]

use schedlab_host::threads;
use schedlab_live::RunDir;
use schedlab_live::driver::DriverOptions;
use schedlab_live::elevation::{baseline, manage, ping_pong};
use schedlab_live::guardian::{self, GuardianOptions};
use schedlab_model::{CpuId, CpuSet, Ns};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

const CPU: CpuId = CpuId(0);
const BURSTS_US: [u64; 4] = [0, 20, 100, 1000];
/// The baseline agent has no yield windows, which the kernel tolerates for a second; `yielding` is
/// the baseline agent that has.
const WAYS: [&str; 4] = ["kernel", "baseline", "yield windows", "driver"];
const SCHEDULER: &str = "fifo-per-cpu";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(guardian::COMMAND) => {
            let watch = GuardianOptions::parse(&arguments[1..]).expect("our own arguments");
            guardian::run(&watch).map_or(ExitCode::FAILURE, |_| ExitCode::SUCCESS)
        }
        Some("ping-pong") => {
            played(&ping_pong::play(
                Ns::from_us(number(&arguments, 1)),
                Ns::from_ms(number(&arguments, 2)),
                told,
            ));
            ExitCode::SUCCESS
        }
        _ => bench(&arguments),
    }
}

fn number(arguments: &[String], at: usize) -> u64 {
    arguments.get(at).and_then(|text| text.parse().ok()).expect("a number")
}

/// Prints the thread ids, and waits for a line.
fn told(tids: [u32; 2]) {
    println!("{} {}", tids[0], tids[1]);
    std::io::stdout().flush().expect("the bench reads");
    std::io::stdin().lock().lines().next();
}

fn played(played: &ping_pong::PingPong) {
    let ping_pong::PingPong { block_to_next: block, cycle, overhead, turns } = played;
    println!("{} {} {} {} {overhead} {turns}", block.0.0, block.1.0, cycle.0.0, cycle.1.0);
}

/// The measurements of one run: block to next p50 and p99, cycle p50 and p99 (ns), overhead, turns.
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
            // Another order each round, so that passing disturbances hit all ways alike.
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
            .args(["ping-pong", &burst.to_string(), &ms.to_string()])
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
        "baseline" | "yield windows" => {
            let (stop, tids) = (AtomicBool::new(false), pair.tids);
            std::thread::scope(|scope| {
                let agent =
                    scope.spawn(|| baseline::hand_over(CPU, tids, way == "yielding", &stop));
                // Until one is raised and the other parked.
                while !tids
                    .iter()
                    .all(|tid| threads::fifo_priority(*tid).is_ok_and(|now| now.is_some()))
                {
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
            let folder = schedlab_testing::temp_dir()
                .join(format!("schedlab-dispatch-{}", std::process::id()));
            let options = DriverOptions {
                command: None,
                scheduler: SCHEDULER.to_owned(),
                cpus: only,
                starve_after: Ns::from_s(1),
                declared: Vec::new(),
                capacity: 64,
                run_dir: RunDir::at(&folder).expect("a run directory"),
                program: std::env::current_exe().expect("this program"),
                log_steps: 0,
            };
            let (pid, pair) = (pair.child.id(), Mutex::new(&mut pair));
            let held = || pair.lock().expect("no thread panics");
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
    println!(
        "medians of {rounds} interleaved rounds of {ms} ms; times in us; driver under {SCHEDULER}"
    );
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
                "burst {burst} us, driver / {}: block p50 {:.2} p99 {:.2}, cycle p50 {:.2} p99 \
                 {:.2}",
                WAYS[way],
                ratio(0),
                ratio(1),
                ratio(2),
                ratio(3)
            );
        }
    }
}
