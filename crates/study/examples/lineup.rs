//! Writes the events of a recording and of its simulation as text, for lining them up:
//! `lineup FILE OUT [SEED]` makes OUT.tasks, OUT.recorded and OUT.simulated (time in ns, CPU, what,
//! task, more), and prints what the replay found. A tool for work on the method; users have
//! `schedlab compare`.
#![allow(clippy::print_stdout)]

use schedlab_model::{EventKind, SchedEvent, TaskId};
use schedlab_study::compare::RecordedInput;
use schedlab_trace::Recording;
use std::fmt::Write as _;
use std::path::Path;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, out, rest @ ..] = &arguments[..] else {
        println!("usage: lineup FILE OUT [SEED]");
        std::process::exit(2);
    };
    let recording = Recording::open(file).unwrap();
    let input = RecordedInput::open(Path::new(file)).unwrap();
    let (header, replay) = input.found();
    println!("{}", replay.report);
    let mut tasks = String::new();
    for (id, task) in header.tasks.iter().enumerate() {
        writeln!(tasks, "{id}\t{}\t{:?}\t{}\t{}", task.comm, task.policy, task.nice, task.affinity)
            .unwrap();
    }
    std::fs::write(format!("{out}.tasks"), tasks).unwrap();
    std::fs::write(format!("{out}.recorded"), text(&recording.events)).unwrap();
    let mut events: Vec<SchedEvent> = Vec::new();
    input.play(rest.first().map_or(1, |seed| seed.parse().unwrap()), &mut events).unwrap();
    std::fs::write(format!("{out}.simulated"), text(&events)).unwrap();
}

fn text(events: &[SchedEvent]) -> String {
    let mut out = String::new();
    let id = |task: Option<TaskId>| task.map_or(-1, |task| i64::from(task.0));
    for event in events {
        write!(out, "{}\t{}\t", event.at.0, event.cpu.0).unwrap();
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                writeln!(out, "S\t{}\t{prev_state:?}\t{}", id(prev), id(next))
            }
            EventKind::Wake { task, waker } => writeln!(out, "W\t{}\t{waker:?}\t-", task.0),
            EventKind::Migrate { task, from, to } => {
                writeln!(out, "M\t{}\t{}\t{}", task.0, from.0, to.0)
            }
            EventKind::New { task, parent } => writeln!(out, "N\t{}\t{}\t-", task.0, id(parent)),
            EventKind::Exit { task } => writeln!(out, "X\t{}\t-\t-", task.0),
            other => writeln!(out, "O\t-1\t{other:?}\t-"),
        }
        .unwrap();
    }
    out
}
