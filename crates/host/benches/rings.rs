//! `cargo bench -p schedlab-host --bench rings`: how much one thread that reads the recorder's rings
//! and merges them can take. Another thread makes the load, so that two CPUs are busy.
#![allow(clippy::print_stdout)]

use schedlab_host::made_up::{MadeUp, take};

fn main() {
    println!("rings  asked for/s     written      no room  one thread's limit/s  held at most");
    for (rings, rate) in [(8, 1_000_000), (64, 1_000_000), (256, 1_000_000), (256, 2_000_000)] {
        // Rings of 256 KiB.
        let load = MadeUp { rings, slots: 8192, events: 4 * rate, rate };
        let taken = take(load).expect("memory for the rings");
        assert_eq!(taken.handed_out, taken.written, "complete");
        assert_eq!(taken.said_lost, taken.no_room, "what is lost is said");
        println!(
            "{rings:>5} {rate:>12} {:>11} {:>12} {:>21.0} {:>13}",
            taken.written,
            taken.no_room,
            taken.handed_out as f64 / taken.cpu.as_secs_f64(),
            taken.held,
        );
    }
}
