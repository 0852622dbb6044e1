//! Prints the header of a recording as JSON, and its events when `-e` is given.
#![allow(clippy::print_stdout)]

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let recording = schedlab_trace::Recording::open(&arguments[0]).unwrap();
    println!("{}", serde_json::to_string_pretty(&recording.header).unwrap());
    if arguments.len() > 1 {
        recording.events.iter().for_each(|event| println!("{event:?}"));
    }
}
