//! `cargo xtask fuzz`: a mutation fuzzer over every parser, on a stable compiler. It knows the
//! structure of its inputs (blocks and checksums of recordings, JSON, lines of text, protocol
//! buffers) and keeps inputs whose answer is of a new kind (another message, another size), which
//! replaces coverage.
//!
//! The parent starts one worker process at a time, so that what kills a process (an overflow of the
//! stack, no memory, a loop without end) is found too. Each input is written down before it is
//! tried.

mod corpus;
mod mutate;
mod slt;
mod targets;
mod worker;

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// An input that takes longer than this hangs.
const HANG: Duration = Duration::from_secs(60);
/// Turns of one target before the next one has its turn.
const TURN: Duration = Duration::from_secs(20);
/// Address space of a worker, in KiB.
const MEMORY_KIB: u64 = 6 << 20;

/// Tries changed inputs on every parser, on a stable compiler; what crashes or hangs is kept in
/// target/fuzz
#[derive(clap::Args)]
pub(crate) struct FuzzArgs {
    /// Go on for this long
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = crate::stress::time)]
    time: Duration,
    /// Make other changes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Try only this parser (may be given several times)
    #[arg(long = "target", value_name = "PARSER", value_parser = targets::find)]
    targets: Vec<&'static targets::Target>,
    /// Keep what is found here
    #[arg(long, value_name = "FOLDER", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/fuzz"), hide_default_value = true)]
    folder: PathBuf,
    /// Try one input, and print what came of it
    #[arg(long, value_names = ["PARSER", "FILE"], num_args = 2)]
    input: Vec<String>,
    /// TARGET SEED MILLISECONDS FOLDER, for the fuzzer itself
    #[arg(long, num_args = 4, hide = true)]
    worker: Vec<String>,
}

/// Runs the fuzzer until the time is over.
pub(crate) fn command(mut options: FuzzArgs) -> Result<ExitCode> {
    if !options.worker.is_empty() {
        return worker::run(&options.worker);
    }
    if !options.input.is_empty() {
        return worker::one(&options.input);
    }
    if options.targets.is_empty() {
        options.targets = targets::ALL.iter().collect();
    }
    std::fs::create_dir_all(&options.folder)
        .with_context(|| format!("{}: cannot be made", options.folder.display()))?;
    let (begin, mut tally, mut seed) = (Instant::now(), Tally::default(), options.seed);
    'all: loop {
        for target in &options.targets {
            let Some(left) =
                options.time.checked_sub(begin.elapsed()).filter(|left| !left.is_zero())
            else {
                break 'all;
            };
            seed += 1;
            let turn = TURN.min(left);
            turn_of(&options, target, seed, turn, &mut tally)?;
        }
    }
    let found = found(&options)?;
    for (name, runs) in &tally.runs {
        println!("fuzz: {name}: {runs} inputs");
    }
    println!(
        "fuzz: {} s, {} inputs, {} inputs that crash or hang",
        begin.elapsed().as_secs(),
        tally.runs.values().sum::<u64>(),
        found.len()
    );
    for file in &found {
        println!("  {}", file.display());
    }
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[derive(Default)]
struct Tally {
    runs: BTreeMap<&'static str, u64>,
}

/// One worker's turn. A worker that dies leaves the input behind that it died of.
fn turn_of(
    options: &FuzzArgs,
    target: &'static targets::Target,
    seed: u64,
    turn: Duration,
    tally: &mut Tally,
) -> Result<()> {
    let current = options.folder.join(format!("{}.current", target.name));
    let (mut child, begin) = (start(options, target, seed, turn)?, SystemTime::now());
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        std::thread::sleep(Duration::from_millis(200));
        let noted = std::fs::metadata(&current).and_then(|meta| meta.modified()).unwrap_or(begin);
        // The file may be one that an earlier turn left.
        let waited = SystemTime::now().duration_since(noted.max(begin)).unwrap_or_default();
        // A worker that gets no CPU does not hang.
        if waited > HANG && (cpu_time(&child) > HANG || waited > 10 * HANG) {
            child.kill()?;
            child.wait()?;
            break None;
        }
    };
    let count = std::fs::read_to_string(options.folder.join(format!("{}.count", target.name)));
    let count: u64 = count.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    *tally.runs.entry(target.name).or_default() += count;
    let died = match status {
        Some(status) if status.success() => return Ok(()),
        Some(status) => format!("{status}"),
        None => format!("no answer for {} s", HANG.as_secs()),
    };
    let Ok(input) = noted(&current) else {
        println!("fuzz: {}: the worker died ({died}) before its first input", target.name);
        return Ok(());
    };
    let kept = options.folder.join(format!("{}-died-{seed}", target.name));
    std::fs::write(&kept, input).with_context(|| format!("{}: cannot be kept", kept.display()))?;
    println!("fuzz: {}: the worker died ({died}) of {}", target.name, kept.display());
    Ok(())
}

/// CPU time of a worker so far, at a hundred ticks a second (USER_HZ of every Linux).
pub(crate) fn cpu_time(child: &Child) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// The input that a worker tried last.
fn noted(current: &Path) -> Result<Vec<u8>> {
    let bytes =
        std::fs::read(current).with_context(|| format!("{}: cannot be read", current.display()))?;
    let (length, input) =
        bytes.split_at_checked(8).context("the worker died before its first input")?;
    let length = u64::from_le_bytes(length.try_into()?) as usize;
    Ok(input[..length.min(input.len())].to_vec())
}

fn start(
    options: &FuzzArgs,
    target: &'static targets::Target,
    seed: u64,
    turn: Duration,
) -> Result<Child> {
    let folder = options.folder.to_str().context("the folder's name is not text")?;
    let (seed, turn) = (seed.to_string(), turn.as_millis().to_string());
    let mut command = limited(&["fuzz", "--worker", target.name, &seed, &turn, folder])?;
    command.stdin(Stdio::null()).spawn().context("cannot start a worker")
}

/// This program once more, with a limit of its address space.
pub(crate) fn limited(args: &[&str]) -> Result<Command> {
    let program = std::env::current_exe().context("where is this program?")?;
    let script = format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(program).args(args);
    Ok(command)
}

/// Every input that was kept because something went wrong with it.
fn found(options: &FuzzArgs) -> Result<Vec<PathBuf>> {
    let bad = |name: &str| name.contains("-died-") || name.contains("-panic-");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&options.folder)? {
        let path = entry?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(bad) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
