//! Loads a Redis server and prints JSON:
//! `redload ADDRESS open:RATE|closed CONNECTIONS WARMUP SECONDS SEED WORD…`
#![allow(clippy::print_stdout, clippy::print_stderr)]

use schedlab_measure::{LoadRequest, LoopKind, run};
use schedlab_model::Ns;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match request(&arguments) {
        Some(request) => match run(&request) {
            Ok(report) => {
                use std::io::Write;
                let text = serde_json::to_string_pretty(&report).expect("a report is JSON");
                // A reader that went away early is no error.
                let _ = writeln!(std::io::stdout(), "{text}");
            }
            Err(error) => {
                eprintln!("{error}");
                std::process::exit(2);
            }
        },
        None => {
            eprintln!(
                "usage: redload ADDRESS open:RATE|closed CONNECTIONS WARMUP SECONDS SEED WORD..."
            );
            std::process::exit(2);
        }
    }
}

fn request(arguments: &[String]) -> Option<LoadRequest> {
    let [address, kind, connections, warmup, duration, seed, words @ ..] = arguments else {
        return None;
    };
    let seed = seed.parse().ok()?;
    let kind = match kind.split_once(':') {
        Some(("open", rate)) => LoopKind::Open { rate_per_s: rate.parse().ok()?, seed },
        None if kind == "closed" => LoopKind::Closed,
        _ => return None,
    };
    let time = |text: &String| text.parse::<Ns>().ok();
    Some(LoadRequest {
        address: address.parse().ok()?,
        kind,
        connections: connections.parse().ok()?,
        duration: time(duration)?,
        warmup: time(warmup)?,
        words: words.to_vec(),
        prepare: Vec::new(),
    })
}
