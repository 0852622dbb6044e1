//! `cargo xtask bench-recordings`: what a question about a recording costs, from a small one to a
//! large one, in one run: as ratios, because machines differ.

use crate::make_recording::{self, MakeRecordingArgs};
use anyhow::{Context, Result, ensure};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// The smallest recording; each further one has twice as many events.
const SMALLEST: u64 = 250_000;
/// CPUs and threads of the recorded machine.
const MACHINE: (u32, u32) = (64, 2_000);
/// How often the memory of a program is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// Ticks of `/proc/PID/stat` in a second (USER_HZ, which is 100 on every Linux).
const TICKS: f64 = 100.0;
/// Pushes and pops of the heap loop.
const HEAP_EVENTS: u64 = 20_000_000;

/// The question about the shipped recording of Redis: three variants, five seeds, all checks.
const QUESTION: &[&str] = &[
    "compare",
    "recordings/redis-other-other-closed8.slt",
    "--variant",
    "batch idle: sysbench policy=idle",
    "--variant",
    "redis fifo: redis-server policy=fifo:1",
    "--variant",
    "nice: redis-server nice=-10",
    "--seeds",
    "5",
    "--jobs",
    "1",
];

/// Makes recordings of 250,000 events and twice as many each time, asks one question about each,
/// and prints CPU time and memory, beside those of half as many events
#[derive(clap::Args)]
pub(crate) struct BenchRecordingsArgs {
    /// The program that is asked
    #[arg(long, value_name = "FILE", default_value = "target/release/schedlab")]
    program: PathBuf,
    /// Ask this program in turns with the first, and print the ratio
    #[arg(long, value_name = "FILE")]
    beside: Option<PathBuf>,
    /// The largest recording, such as 8M
    #[arg(long, value_name = "N", default_value = "8M", value_parser = make_recording::counted)]
    events: u64,
    /// How often each question is asked; the least CPU time counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// What a question took.
#[derive(Clone, Copy)]
struct Took {
    /// CPU time, in seconds.
    cpu: f64,
    /// The most memory, in MB.
    memory: f64,
}

impl Took {
    /// The less of each.
    fn least(self, other: Took) -> Took {
        Took { cpu: self.cpu.min(other.cpu), memory: self.memory.min(other.memory) }
    }
}

pub(crate) fn command(args: &BenchRecordingsArgs) -> Result<ExitCode> {
    ensure!(args.events >= SMALLEST, "--events {}: {SMALLEST} at least", args.events);
    let heap = heap_loop()?;
    println!("A push and a pop of a heap of 64 take {:.1} ns of CPU time here.\n", heap * 1e9);
    let own: Vec<String> = QUESTION.iter().map(|&one| one.to_owned()).collect();
    let (redis, beside) = asked(args, &own)?;
    println!("Redis, three variants, five seeds: {}\n", told(redis, beside, heap));
    println!("| events | CPU time and memory | CPU time : half | memory : half |");
    println!("|---:|---|---:|---:|");
    let folder = tempfile::tempdir().context("a folder for the recordings")?;
    let (mut events, mut before) = (SMALLEST, None::<Took>);
    while events <= args.events {
        let file = folder.path().join("made.slt");
        let (cpus, threads) = MACHINE;
        let output = file.clone();
        let made = MakeRecordingArgs { cpus, threads, events, short: 0, seed: 1, output };
        make_recording::write(&made)?;
        let (took, beside) = asked(args, &of_recording(&file))?;
        let growth = before.map_or(["".to_owned(), "".to_owned()], |before| {
            [took.cpu / before.cpu, took.memory / before.memory].map(|ratio| format!("{ratio:.2}"))
        });
        println!("| {events} | {} | {} | {} |", told(took, beside, heap), growth[0], growth[1]);
        (events, before) = (events * 2, Some(took));
    }
    Ok(ExitCode::SUCCESS)
}

/// The question about a recording that was made here.
fn of_recording(file: &Path) -> Vec<String> {
    let file = file.display().to_string();
    let of = ["compare", &file, "--recorded-under", "linux-6.12", "--scheduler", "linux-6.18"];
    let rest = ["--seeds", "1", "--jobs", "1"];
    of.iter().chain(&rest).map(|&one| one.to_owned()).collect()
}

/// Asks the program, and the one beside it, in turns.
fn asked(args: &BenchRecordingsArgs, question: &[String]) -> Result<(Took, Option<Took>)> {
    let programs = [Some(&args.program), args.beside.as_ref()];
    let mut least: [Option<Took>; 2] = [None, None];
    for _ in 0..args.rounds {
        for (least, program) in least.iter_mut().zip(programs) {
            let Some(program) = program else { continue };
            let took = ask(program, question)?;
            *least = Some(least.map_or(took, |least| least.least(took)));
        }
    }
    let [own, beside] = least;
    Ok((own.context("no round")?, beside))
}

/// Asks a program once.
fn ask(program: &Path, question: &[String]) -> Result<Took> {
    let before = of_children()?;
    let mut command = Command::new(program);
    command.args(question).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| program.display().to_string())?;
    let mut memory = 0.0f64;
    let status = loop {
        memory = memory.max(peak(child.id()));
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(LOOK);
    };
    // 3: the simulation does not reproduce the recording, which costs as much.
    let answers = matches!(status.code(), Some(0 | 3));
    ensure!(answers, "{} {}: {status}", program.display(), question.join(" "));
    Ok(Took { cpu: of_children()? - before, memory })
}

/// The most memory that a process had, in MB; 0 when it has ended.
fn peak(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or_default() / 1e3
}

/// CPU time of the children that have ended, in seconds.
fn of_children() -> Result<f64> {
    let [.., user, system] = own_times()?;
    Ok((user + system) / TICKS)
}

/// CPU time of this process, in seconds.
fn of_this() -> Result<f64> {
    let [user, system, ..] = own_times()?;
    Ok((user + system) / TICKS)
}

/// utime, stime, cutime and cstime of this process, in ticks (proc_pid_stat(5)).
fn own_times() -> Result<[f64; 4]> {
    let text = fs::read_to_string("/proc/self/stat")?;
    times_in(&text).context("/proc/self/stat")
}

/// The four times of a line of `/proc/PID/stat`: fields 14 to 17. The name, which may have spaces,
/// ends with the last bracket.
fn times_in(text: &str) -> Option<[f64; 4]> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11).map(|field| field.parse::<f64>().ok());
    let mut next = || fields.next().flatten();
    Some([next()?, next()?, next()?, next()?])
}

/// CPU time of one event of a bare loop, in seconds: what a machine is measured in.
fn heap_loop() -> Result<f64> {
    let before = of_this()?;
    let mut heap: BinaryHeap<Reverse<u64>> = (0..64).map(|i| Reverse(i * 977 % 64)).collect();
    for i in 0..HEAP_EVENTS {
        if let Some(Reverse(at)) = heap.pop() {
            heap.push(Reverse(at + 64 + i * 977 % 1_000));
        }
    }
    black_box(heap);
    Ok((of_this()? - before) / HEAP_EVENTS as f64)
}

/// `0.57 s (8.1 M heap events), 22 MB; 0.75 and 0.90 of the other program's`.
fn told(took: Took, beside: Option<Took>, heap: f64) -> String {
    let units = took.cpu / heap / 1e6;
    let other = beside.map_or_else(String::new, |beside| {
        let (cpu, memory) = (took.cpu / beside.cpu, took.memory / beside.memory);
        format!("; {cpu:.2} and {memory:.2} of the other program's")
    });
    format!("{:.2} s ({units:.1} M heap events), {:.0} MB{other}", took.cpu, took.memory)
}

#[cfg(test)]
mod tests {
    use super::times_in;

    #[test]
    fn times_are_the_fields_14_to_17_behind_any_name() {
        let line = "7 (a) b (c)) S 1 7 7 0 -1 4194560 90 0 0 0 11 12 13 14 20 0 1 0 5";
        assert_eq!(times_in(line), Some([11.0, 12.0, 13.0, 14.0]));
        assert_eq!(times_in("7 (a) S 1 7"), None);
    }
}
