//! `schedlab helper`, which schedlab starts itself: programs of an experiment that must run in a
//! process of their own.

use crate::exit::Exit;
use crate::output;
use schedlab_lab::experiment::{ClientKind, READY};
use schedlab_live::elevation::ping_pong;
use schedlab_measure::readers::{BYTES, READS, ReadersRequest, readers};
use schedlab_measure::{LoadError, run_after};
use schedlab_model::Ns;
use std::cell::Cell;
use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long the load client tries to connect: the server comes up, and its network is being set up,
/// meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);

/// `schedlab helper`
#[derive(Debug, clap::Args)]
pub(crate) struct HelperArgs {
    /// The program
    #[command(subcommand)]
    which: Which,
}

/// The programs.
#[derive(Debug, clap::Subcommand)]
enum Which {
    /// Connect to a server, say so, wait for a line, load the server, and write what was measured
    /// as JSON
    LoadClient(LoadClientArgs),
    /// Say that the program is there, wait for a line, and run the reader threads of the SMP paper
    Readers(ReadersArgs),
    /// Let two threads wake each other and block: p50 of block to next and of a turn, in ns
    PingPong {
        /// For how long
        #[arg(long = "for")]
        time: Ns,
    },
}

/// `schedlab helper readers`
#[derive(Debug, clap::Args)]
struct ReadersArgs {
    #[arg(long)]
    threads: u32,
}

/// `schedlab helper load-client`
#[derive(Debug, clap::Args)]
struct LoadClientArgs {
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

pub(crate) fn run(args: &HelperArgs) -> anyhow::Result<Exit> {
    match &args.which {
        Which::LoadClient(args) => load_client(args),
        Which::PingPong { time } => {
            let played = ping_pong::play(Ns::ZERO, *time, |_| ());
            output::write(None, &format!("{} {}\n", played.block_to_next.0.0, played.cycle.0.0))?;
            Ok(Exit::Done)
        }
        Which::Readers(args) => {
            say_ready();
            let report =
                readers(&ReadersRequest { threads: args.threads, bytes: BYTES, reads: READS })?;
            output::write(None, &serde_json::to_string(&report)?)?;
            Ok(Exit::Done)
        }
    }
}

/// Says that the program is ready, and waits for a line.
fn say_ready() {
    // The process that started this one reads the line; when it is gone, this one ends with it.
    let _ = std::io::stdout().write_all(READY.as_bytes()).and_then(|()| std::io::stdout().flush());
    let _ = std::io::stdin().lock().read_line(&mut String::new());
}

fn load_client(args: &LoadClientArgs) -> anyhow::Result<Exit> {
    let time = (args.warmup, args.duration);
    let request = args.client.load(args.address, args.connections, time, args.seed);
    let (began, told) = (Instant::now(), Cell::new(false));
    let connected = || {
        told.set(true);
        say_ready();
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
    Ok(Exit::Done)
}
