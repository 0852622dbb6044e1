//! `cargo xtask make-recording`: a recording of a machine as large as one wants, from the
//! simulator, so that anybody can see what a question about it costs.

use anyhow::{Context, Result, ensure};
use schedlab_model::{Ns, SchedEvent};
use schedlab_study::scenario;
use schedlab_study::show::simulate;
use schedlab_trace::Recording;
use std::path::PathBuf;
use std::process::ExitCode;

mod short;

/// How long the first run is, which tells how many events a second makes.
const TRIAL: Ns = Ns::from_ms(50);

/// How often a longer time is tried, a quarter more each time, until there are events enough.
const TRIES: usize = 6;

/// Simulates a machine with many CPUs and threads (clients and servers, periodic tasks, batch jobs)
/// and writes what a recorder would have seen: for measuring, not for predictions
#[derive(clap::Args)]
pub(crate) struct MakeRecordingArgs {
    /// How many CPUs
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) cpus: u32,
    /// How many threads, from 20 on
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(20..))]
    pub(crate) threads: u32,
    /// How many events, such as 250k or 1M
    #[arg(long, value_name = "N", default_value = "1M", value_parser = counted)]
    pub(crate) events: u64,
    /// How many threads more, each of which lives for about a millisecond; the recording ends with
    /// the last of them
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "events")]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) short: u32,
    /// Choose other random lengths
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write this recording
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
}

/// Reads a number with `k` or `M` behind it, or without.
pub(crate) fn counted(text: &str) -> Result<u64, String> {
    let (digits, times) = match text.strip_suffix(['k', 'M']) {
        Some(digits) if text.ends_with('k') => (digits, 1_000),
        Some(digits) => (digits, 1_000_000),
        None => (text, 1),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(times));
    let allowed = |number: &u64| (1..=1_000_000_000).contains(number);
    number.filter(allowed).ok_or_else(|| "a number from 1 to 1000M, such as 250k or 1M".to_owned())
}

pub(crate) fn command(args: &MakeRecordingArgs) -> Result<ExitCode> {
    let recording = write(args)?;
    println!(
        "{}: {} events of {} threads on {} CPUs in {} of simulated time",
        args.output.display(),
        recording.events.len(),
        recording.header.tasks.len(),
        args.cpus,
        recording.duration
    );
    Ok(ExitCode::SUCCESS)
}

/// Simulates, and writes the recording.
pub(crate) fn write(args: &MakeRecordingArgs) -> Result<Recording> {
    let (wanted, what) = match args.short {
        0 => (args.events, "events"),
        short => (u64::from(short), "ends of short threads"),
    };
    let trial = seen(args, &simulated(args, TRIAL)?).max(1);
    // A twentieth more, because the first moments are not like the rest.
    let mut length = Ns(TRIAL.0 * wanted / trial * 21 / 20).max(TRIAL);
    let mut recording = simulated(args, length)?;
    for _ in 0..TRIES {
        if seen(args, &recording) >= wanted {
            break;
        }
        length = Ns(length.0 * 5 / 4);
        recording = simulated(args, length)?;
    }
    let seen = seen(args, &recording);
    ensure!(
        seen >= wanted,
        "{length} of simulated time have {seen} {what} only: ask for fewer, or more threads"
    );
    let events = if args.short == 0 { args.events as usize } else { short::last_end(&recording) };
    recording.events.truncate(events);
    recording.duration = recording.events.last().map_or(Ns::ZERO, |event: &SchedEvent| event.at);
    schedlab_trace::save(&recording, &args.output)?;
    Ok(recording)
}

/// Returns how many there are of what is asked for: events, or ends of short threads.
fn seen(args: &MakeRecordingArgs, recording: &Recording) -> u64 {
    if args.short == 0 { recording.events.len() as u64 } else { short::ends(recording) }
}

fn simulated(args: &MakeRecordingArgs, length: Ns) -> Result<Recording> {
    let name = "made";
    let text = text(args, length);
    let mut scenario = scenario::parse(name, "made.toml", &text).with_context(|| text.clone())?;
    if args.short > 0 {
        short::add(&mut scenario.workload, &mut scenario.classes, args.cpus, args.short);
    }
    Ok(simulate(&scenario, None, None, None)?)
}

/// Two fifths of the threads are clients, two fifths their servers; of the rest three quarters are
/// periodic and a quarter batch jobs. All lengths are chosen: a request of tens of microseconds, a
/// batch job that reads something every few milliseconds.
fn text(args: &MakeRecordingArgs, length: Ns) -> String {
    let pairs = args.threads * 2 / 5;
    let batch = (args.threads - 2 * pairs) / 4;
    let periodic = args.threads - 2 * pairs - batch;
    format!(
        r#"title = "a machine of {cpus} CPUs and {threads} threads"
schedulers = ["linux-6.12"]
duration = "{length}ns"
seed = {seed}
channels = [{{ name = "ask", count = {pairs} }}, {{ name = "reply", count = {pairs} }}]

[machine]
cpus = {cpus}

[[task]]
name = "server"
count = {pairs}
program = ["receive ask-{{n}}", "run exp 40us", "send reply-{{n}}"]

[[task]]
name = "client"
count = {pairs}
program = ["send ask-{{n}}", "receive reply-{{n}}", "run exp 20us", "sleep exp 2ms"]

[[task]]
name = "periodic"
count = {periodic}
program = ["every 5ms", "run exp 200us"]

[[task]]
name = "batch"
count = {batch}
program = ["run exp 3ms", "sleep exp 1ms"]
"#,
        cpus = args.cpus,
        threads = args.threads,
        length = length.0,
        seed = args.seed,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_suffixes() {
        assert_eq!(["7", "250k", "1M"].map(counted), [Ok(7), Ok(250_000), Ok(1_000_000)]);
        for wrong in ["", "k", "0", "1.5M", "2000M", "1m", "-1"] {
            assert!(counted(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_recording_has_all_short_threads_and_ends_with_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("short.slt");
        let args =
            MakeRecordingArgs { cpus: 2, threads: 20, events: 1, short: 300, seed: 1, output };
        let recording = write(&args).unwrap();
        assert_eq!(short::ends(&recording), 300);
        assert_eq!(short::last_end(&recording), recording.events.len());
        assert_eq!(recording.header.tasks.len(), 20 + 2 * 2 + 300);
    }
}
