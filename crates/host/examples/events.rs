//! Records a command and prints what came:
//! `cargo run -p schedlab-host --example events -- [--backend B] CMD…`
#![allow(clippy::print_stdout)]

use schedlab_host::{
    GroupFacts, RecordRequest, RecordSink, RecordStart, RecordUntil, TaskFacts, record,
};
use schedlab_model::{EventKind, EventSink, SchedEvent, Waker};
use std::collections::BTreeMap;

#[derive(Default)]
struct Count {
    kinds: BTreeMap<&'static str, u64>,
    wakes: BTreeMap<(u32, String), u64>,
    tasks: BTreeMap<u32, TaskFacts>,
    out_of_order: u64,
    last: u64,
}

impl EventSink for Count {
    fn event(&mut self, event: &SchedEvent) {
        self.out_of_order += u64::from(event.at.0 < self.last);
        self.last = event.at.0;
        let name = match event.kind {
            EventKind::Switch { .. } => "switch",
            EventKind::Wake { task, waker } => {
                let by = match waker {
                    Waker::Task(t) => format!("task {}", self.tasks[&t.0].comm),
                    Waker::InlineSoftirq(t) => {
                        format!("inline softirq of {}", self.tasks[&t.0].comm)
                    }
                    other => format!("{other:?}"),
                };
                *self.wakes.entry((task.0, by)).or_default() += 1;
                "wake"
            }
            EventKind::Lost { .. } => "lost",
            EventKind::Steal { .. } => "steal",
            EventKind::Migrate { .. } => "migrate",
            _ => "other",
        };
        *self.kinds.entry(name).or_default() += 1;
    }
}

impl RecordSink for Count {
    fn start(&mut self, start: &RecordStart) -> std::io::Result<()> {
        println!("{start:#?}");
        Ok(())
    }
    fn group(&mut self, group: &GroupFacts) {
        println!("{group:?}");
    }
    fn task(&mut self, task: &TaskFacts) {
        self.tasks.insert(task.id.0, task.clone());
    }
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let backend = (arguments.first().is_some_and(|a| a == "--backend")).then(|| {
        arguments.remove(0);
        arguments.remove(0).parse().expect("a backend")
    });
    let request =
        RecordRequest { backend, ..RecordRequest::new(RecordUntil::CommandEnds(arguments)) };
    let mut count = Count::default();
    let end = record(&request, &mut count, &|| false).unwrap_or_else(|error| {
        println!("{error}");
        std::process::exit(2)
    });
    println!("{end:#?}\n{:?} out of order {}", count.kinds, count.out_of_order);
    let mut wakes: Vec<_> = count.wakes.iter().collect();
    wakes.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    for ((task, by), n) in wakes.iter().take(40) {
        println!("{n:>7} wakes of {} by {by}", count.tasks[task].comm);
    }
}
