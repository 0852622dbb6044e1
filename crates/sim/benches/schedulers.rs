//! `cargo bench -p schedlab-sim --bench schedulers [-- NAME ...]`: what an event costs under every
//! scheduler, as the table of the README.
//!
//! Eight run/sleep tasks a CPU on a flat, free machine, metrics on; an event is one of the stream
//! (switch, wakeup, migration). Nanoseconds of CPU time per event, the best of nine runs (or
//! `RUNS`). Every run begins with creating and placing all tasks, which for 4096 of them on 512
//! CPUs is a good part of a short run and has nothing to do with events: a run of the first
//! [`START`] alone is timed too, and its time and events are taken off. What it takes on 512 CPUs
//! is the column before the last. The last is what issue 4 limits to 2.5 for schedulers with a
//! queue for each CPU.
#![allow(clippy::print_stdout)]

#[path = "../tests/common/mod.rs"]
mod common;
mod cpu;

use common::{run_sleep, scheduler};
use schedlab_model::Ns;
use schedlab_sim::{Machine, RunOptions, run};

/// The part of a run that is left out.
const START: Ns = Ns::from_ms(50);

/// CPUs, and simulated time that is measured: it keeps one run below a second under most
/// schedulers.
const SIZES: [(usize, Ns); 3] =
    [(8, Ns::from_s(10)), (64, Ns::from_ms(1_500)), (512, Ns::from_ms(300))];

/// CPU time of a run, ns, and its events.
type Cost = (f64, f64);

fn once(name: &str, cpus: usize, duration: Ns) -> Cost {
    let workload = run_sleep(8 * cpus as u32);
    let (machine, options) = (Machine::flat(cpus), RunOptions::for_time(duration));
    let scheduler = scheduler(name, cpus);
    let start = cpu::seconds();
    let outcome =
        run(&machine, &workload, scheduler.as_ref(), &options, &mut ()).expect("a clean run");
    ((cpu::seconds() - start) * 1e9, outcome.events as f64)
}

/// For each size: nanoseconds per event behind the start, and milliseconds of the start. The sizes
/// take turns, so that a machine that becomes slower or faster meanwhile does so for all.
fn costs(name: &str) -> [(f64, f64); SIZES.len()] {
    const NONE: Cost = (f64::INFINITY, 0.0);
    let mut best = [(NONE, NONE); SIZES.len()];
    let less = |a: Cost, b: Cost| if b.0 < a.0 { b } else { a };
    for _ in 0..cpu::repeats(9) {
        for ((start, all), (cpus, duration)) in best.iter_mut().zip(SIZES) {
            *start = less(*start, once(name, cpus, START));
            *all = less(*all, once(name, cpus, START + duration));
        }
    }
    best.map(|((start, before), (all, events))| ((all - start) / (events - before), start / 1e6))
}

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    println!(
        "| scheduler | 8 CPUs, M events/s | 8 CPUs, ns/event | 64 CPUs | 512 CPUs | start of 512 \
         CPUs, ms | 512 : 8 |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for entry in schedlab_scheduler::registry::all() {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == entry.name) {
            continue;
        }
        let [(small, _), (middle, _), (large, start)] = costs(entry.name);
        let (rate, growth) = (1e3 / small, large / small);
        println!(
            "| {} | {rate:.1} | {small:.0} | {middle:.0} | {large:.0} | {start:.0} | {growth:.1} |",
            entry.name
        );
    }
}
