//! Who used which CPU in a recording, and which task woke which: `shares FILE…`. Used by
//! `recordings/make.sh` to say how much CPU time went to others.
#![allow(clippy::print_stdout)]

use schedlab_model::{EventKind, Waker};
use schedlab_trace::Recording;
use std::collections::BTreeMap;

fn main() {
    for file in std::env::args().skip(1) {
        match Recording::open(std::path::Path::new(&file)) {
            Ok(recording) => show(&file, &recording),
            Err(error) => println!("{file}: {error}"),
        }
    }
}

fn show(file: &str, recording: &Recording) {
    let name = |task: schedlab_model::TaskId| recording.header.tasks[task.index()].comm.as_str();
    let total = recording.duration.0 as f64;
    println!(
        "{file}: {:.2} s, {} events, {}",
        total / 1e9,
        recording.events.len(),
        recording.repairs
    );
    let mut since: BTreeMap<u32, (Option<String>, u64)> = BTreeMap::new();
    let mut used: BTreeMap<(u32, String), u64> = BTreeMap::new();
    let mut wakes: BTreeMap<(String, String), u64> = BTreeMap::new();
    for event in &recording.events {
        match event.kind {
            EventKind::Switch { prev, next, .. } => {
                let first = (prev.map(|prev| name(prev).to_owned()), 0);
                let (ran, from) = since.remove(&event.cpu.0).unwrap_or(first);
                let ran = ran.unwrap_or_else(|| "(idle)".to_owned());
                *used.entry((event.cpu.0, ran)).or_default() += event.at.0 - from;
                since.insert(event.cpu.0, (next.map(|next| name(next).to_owned()), event.at.0));
            }
            EventKind::Wake { task, waker } => {
                let by = match waker {
                    Waker::Task(waker) => format!("task {}", name(waker)),
                    Waker::InlineSoftirq(waker) => format!("inline softirq of {}", name(waker)),
                    other => format!("{other:?}"),
                };
                *wakes.entry((name(task).to_owned(), by)).or_default() += 1;
            }
            EventKind::Steal { ns } => {
                *used.entry((event.cpu.0, "(stolen)".to_owned())).or_default() += ns.0
            }
            _ => {}
        }
    }
    for (cpu, (ran, from)) in since {
        *used.entry((cpu, ran.unwrap_or_else(|| "(idle)".to_owned()))).or_default() +=
            recording.duration.0 - from;
    }
    let mut used: Vec<_> = used.into_iter().collect();
    used.sort_by_key(|((cpu, _), ns)| (*cpu, std::cmp::Reverse(*ns)));
    for ((cpu, comm), ns) in used.into_iter().filter(|(_, ns)| *ns as f64 > total / 2000.0) {
        println!("  cpu{cpu} {:6.2} % {comm}", ns as f64 * 100.0 / total);
    }
    let mut wakes: Vec<_> = wakes.into_iter().collect();
    wakes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for ((task, by), count) in wakes.into_iter().take(8) {
        println!("  {count:>8} wakes of {task} by {by}");
    }
}
