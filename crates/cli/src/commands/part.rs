//! `schedlab part`: not for people. Processes of an experiment that must be ours and apart.

use crate::{Done, output};
use schedlab_lab::experiment::{ClientKind, READY};
use schedlab_live::elevation::ping_pong;
use schedlab_measure::readers::{BYTES, READS, ReadersRequest, readers};
use schedlab_measure::{LoadError, run_after};
use schedlab_model::Ns;
use std::cell::Cell;
use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A server that comes up, and a network that is being laid, get so long.
const PATIENCE: Duration = Duration::from_secs(5);

/// `schedlab part`
#[derive(Debug, clap::Args)]
pub(crate) struct Part {
    /// Which part
    #[command(subcommand)]
    which: Which,
}

/// The parts.
#[derive(Debug, clap::Subcommand)]
enum Which {
    /// Connects, says so, waits for a line, loads the server, and writes what it saw as JSON
    Client(Client),
    /// Says that it is there, waits for a line, and runs the SMP program
    Readers(Readers),
    /// Two threads wake each other and block: p50 of block to next and of a turn, in ns
    Pair {
        /// For how long
        #[arg(long = "for")]
        time: Ns,
    },
}

/// The SMP program.
#[derive(Debug, clap::Args)]
struct Readers {
    #[arg(long)]
    threads: u32,
}

/// The load client.
#[derive(Debug, clap::Args)]
struct Client {
    #[arg(long)]
    address: SocketAddr,
    #[arg(long)]
    client: ClientKind,
    #[arg(long)]
    connections: usize,
    #[arg(long)]
    warmup: Ns,
    #[arg(long = "for")]
    duration: Ns,
    #[arg(long)]
    seed: u64,
}

pub(crate) fn run(args: &Part) -> anyhow::Result<Done> {
    match &args.which {
        Which::Client(client) => load(client),
        Which::Pair { time } => {
            let played = ping_pong::play(Ns::ZERO, *time, |_| ());
            output::write(None, &format!("{} {}\n", played.block_to_next.0.0, played.cycle.0.0))?;
            Ok(Done::Well)
        }
        Which::Readers(part) => {
            wait_for_word();
            let report = readers(&ReadersRequest { threads: part.threads, bytes: BYTES, reads: READS })?;
            output::write(None, &serde_json::to_string(&report)?)?;
            Ok(Done::Well)
        }
    }
}

/// Says that we are ready and waits for a line.
fn wait_for_word() {
    // Whoever started us reads; when it is gone, so are we.
    let _ = std::io::stdout().write_all(READY.as_bytes()).and_then(|()| std::io::stdout().flush());
    let _ = std::io::stdin().lock().read_line(&mut String::new());
}

fn load(client: &Client) -> anyhow::Result<Done> {
    let time = (client.warmup, client.duration);
    let request = client.client.load(client.address, client.connections, time, client.seed);
    let (began, told) = (Instant::now(), Cell::new(false));
    let connected = || {
        told.set(true);
        wait_for_word();
    };
    let report = loop {
        match run_after(&request, connected) {
            Err(LoadError::Connect { .. }) if !told.get() && began.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => break other?,
        }
    };
    output::write(None, &serde_json::to_string(&report)?)?;
    Ok(Done::Well)
}
