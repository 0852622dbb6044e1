//! `cargo bench -p schedlab-sim --bench speed [-- FILTER]`: events per CPU second of the engine,
//! metrics on.
//!
//! CPU seconds come from `/proc/self/schedstat` (nanoseconds of this thread on a CPU), so that a
//! busy machine costs little precision; the best of three runs (or `RUNS`) counts. Events are
//! counted alike in all simulators that ran these workloads (docs/sources/simulation-facts.md): for
//! periodic tasks releases, completions and preemptions; for W2 slice ends and wakeups; for Linux
//! the events of the stream (switches, wakeups, migrations). The totals of each run are checked
//! before its speed is printed.
//!
//! Machines differ, so each row is also printed in events of W2 written by hand in Python
//! (`cpu/w2_heapq.py`), which runs in turns with it; the best of each counts.
#![allow(clippy::print_stdout)]

#[path = "../tests/common/mod.rs"]
mod common;
mod cpu;

use common::{W1, W64, periodic_set, run_sleep, scheduler, w2};
use schedlab_model::{Ns, Workload};
use schedlab_sim::{Machine, Outcome, RunOptions, run};

/// What W2 does in 200 s (docs/sources/simulation-facts.md).
const W2_SLICES: u64 = 473_124;
const W2_BURSTS: u64 = 152_636;
const W2_WORK_NS: u64 = 1_599_373_024_961;

struct Row {
    name: &'static str,
    spec: &'static str,
    cpus: usize,
    workload: Workload,
    seconds: u64,
    count: fn(&Outcome) -> u64,
    check: fn(&Outcome),
}

/// Releases (wakeups), completions (blocks) and preemptions.
fn job_events(outcome: &Outcome) -> u64 {
    let tasks = &outcome.metrics.tasks;
    tasks.iter().map(|t| t.wakeups + t.response.count() + t.preemptions).sum()
}

/// CPU seconds of one event of W2 by hand in Python; `None` where there is no `python3`. It has to
/// simulate what the row W2 does.
fn python_event() -> Option<f64> {
    let out = std::process::Command::new("python3")
        .args(["-c", include_str!("cpu/w2_heapq.py")])
        .output()
        .ok()?;
    let printed = String::from_utf8(out.stdout).ok()?;
    let (seconds, counts) = printed.trim().split_once(' ')?;
    assert_eq!(counts, format!("{W2_SLICES} {W2_BURSTS} {W2_WORK_NS}"), "W2 in Python");
    seconds.parse().ok()
}

fn measure(row: &Row) {
    let options = RunOptions::for_time(Ns::from_s(row.seconds));
    let machine = Machine::flat(row.cpus);
    let (mut best, mut hash): (Option<(f64, u64)>, u64) = (None, 0);
    let mut python: Option<f64> = None;
    for _ in 0..cpu::repeats(3) {
        python = python_event().into_iter().chain(python).reduce(f64::min);
        let scheduler = scheduler(row.spec, row.cpus);
        let start = cpu::seconds();
        let outcome = run(&machine, &row.workload, scheduler.as_ref(), &options, &mut ())
            .expect("a clean run");
        let spent = cpu::seconds() - start;
        (row.check)(&outcome);
        let count = (row.count)(&outcome);
        hash = outcome.event_hash;
        if best.is_none_or(|(least, _)| spent < least) {
            best = Some((spent, count));
        }
    }
    let Some((spent, count)) = best else { return };
    let rate = count as f64 / spent;
    let times =
        python.map_or_else(|| "no Python".to_owned(), |event| format!("{:.2}", rate * event));
    println!(
        "{:<34} {:>7.2} M events/s {times:>9} × Python {:>7.0} sim s per CPU s   ({count} \
         events, {} sim s, {spent:.3} CPU s, hash {hash:016x})",
        row.name,
        rate / 1e6,
        row.seconds as f64 / spent,
        row.seconds,
    );
}

/// Slice ends and wakeups of W2. The number of slices is a fact of the workload that the test
/// checks; the metrics do not see those after which the task simply went on.
fn slice_events(outcome: &Outcome) -> u64 {
    let wakeups: u64 = outcome.metrics.tasks.iter().map(|t| t.wakeups).sum();
    W2_SLICES + wakeups
}

/// Everything in the event stream, as the published figures for real scheduler code count.
fn trace_events(outcome: &Outcome) -> u64 {
    outcome.events
}

fn check_w1(outcome: &Outcome) {
    // 100 s: ten times the test's 10 s; only the rate is published for this length.
    let jobs: u64 = outcome.metrics.tasks.iter().map(|t| t.response.count()).sum();
    assert!((jobs as f64 / 100.0 - 4_198.6).abs() < 5.0, "{jobs} jobs");
}

fn check_w2(outcome: &Outcome) {
    let bursts: u64 = outcome.metrics.tasks.iter().map(|t| t.response.count()).sum();
    assert_eq!(bursts, W2_BURSTS);
}

fn main() {
    let filter: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let free = |_: &Outcome| {};
    let (w1_cpus, w1) = periodic_set(W1);
    let (w64_cpus, w64) = periodic_set(W64);
    let sized = |spec, name, cpus: usize, seconds| Row {
        name,
        spec,
        cpus,
        workload: run_sleep(cpus as u32 * 8),
        seconds,
        count: trace_events,
        check: free,
    };
    let linux = |spec, name| sized(spec, name, 8, 20);
    let rows = [
        Row {
            name: "W1 edf, 8 CPUs, 100 tasks",
            spec: "edf",
            cpus: w1_cpus,
            workload: w1,
            seconds: 100,
            count: job_events,
            check: check_w1,
        },
        Row {
            name: "W2 rr, 8 CPUs, 64 tasks",
            spec: "rr:slice_ns=4ms",
            cpus: 8,
            workload: w2(8, 64),
            seconds: 200,
            count: slice_events,
            check: check_w2,
        },
        Row {
            name: "W64 edf, 64 CPUs, 800 tasks",
            spec: "edf",
            cpus: w64_cpus,
            workload: w64,
            seconds: 10,
            count: job_events,
            check: free,
        },
        linux("linux-6.18", "linux-6.18, 8 CPUs, 64 tasks"),
        linux("linux-7.2", "linux-7.2, 8 CPUs, 64 tasks"),
        linux("linux-6.12", "linux-6.12, 8 CPUs, 64 tasks"),
        linux("linux-6.1", "linux-6.1, 8 CPUs, 64 tasks"),
        linux("linux-2.6.22", "linux-2.6.22, 8 CPUs, 64 tasks"),
        linux("xen-credit2", "xen-credit2, 8 CPUs, 64 tasks"),
        sized("linux-6.18", "linux-6.18, 64 CPUs, 512 tasks", 64, 3),
        sized("linux-6.18", "linux-6.18, 512 CPUs, 4096 tasks", 512, 1),
        sized("linux-7.2", "linux-7.2, 512 CPUs, 4096 tasks", 512, 1),
        sized("linux-2.6.22", "linux-2.6.22, 512 CPUs, 4096 tasks", 512, 1),
    ];
    let wanted = |row: &&Row| {
        filter.is_empty() || filter.iter().any(|part| row.name.contains(part.as_str()))
    };
    rows.iter().filter(wanted).for_each(measure);
}
