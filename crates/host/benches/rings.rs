//! `cargo bench -p schedlab-host --bench rings`: how much one thread that reads the recorder's rings
//! and merges them can take. Another thread makes the load, so that two CPUs are busy.
#![allow(clippy::print_stdout)]

use schedlab_host::made_up::{MadeUp, take};
use schedlab_host::{GroupFacts, RecordSink, RecordStart, TaskFacts};
use schedlab_model::{EventKind, EventSink, Ns, SchedEvent};
use std::io;

/// Counts what it gets.
#[derive(Default)]
struct Counted {
    events: u64,
    last: Ns,
}

impl EventSink for Counted {
    fn event(&mut self, event: &SchedEvent) {
        assert!(event.at >= self.last, "in the order of time");
        self.last = event.at;
        self.events += u64::from(!matches!(event.kind, EventKind::Lost { .. }));
    }
}

impl RecordSink for Counted {
    fn start(&mut self, _: &RecordStart) -> io::Result<()> {
        Ok(())
    }
    fn group(&mut self, _: &GroupFacts) {}
    fn task(&mut self, _: &TaskFacts) {}
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn main() {
    println!("rings  asked for/s     written      no room  one thread's limit/s  held at most");
    for (rings, rate) in [(8, 1_000_000), (64, 1_000_000), (256, 1_000_000), (256, 2_000_000)] {
        // Rings of 256 KiB.
        let load = MadeUp { rings, slots: 8192, events: 4 * rate, rate };
        let mut sink = Counted::default();
        let taken = take(load, &mut sink).expect("memory for the rings");
        assert_eq!(sink.events, taken.written, "complete");
        assert_eq!(taken.said_lost, taken.no_room, "what is lost is said");
        println!(
            "{rings:>5} {rate:>12} {:>11} {:>12} {:>21.0} {:>13}",
            taken.written,
            taken.no_room,
            sink.events as f64 / taken.cpu.as_secs_f64(),
            taken.held,
        );
    }
}
