//! `cargo xtask disturb -- COMMAND`: runs a command on a machine whose CPUs are taken away at
//! random moments, as a hypervisor takes them: a real-time thread of the highest priority holds one
//! of them, or all at once, for a while. What fails here by chance fails in CI by chance. (Unlike
//! under a hypervisor, interrupts are served meanwhile.)

mod answers;

use answers::Asked;
use anyhow::{Context, Result, ensure};
use schedlab_host::threads::{Scheduling, affinity, scheduling, set_affinity, set_scheduling};
use schedlab_model::{CpuId, CpuSet, Policy};
use schedlab_stats::Random;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Above everything that schedlab makes real-time.
const ABOVE_ALL: Policy = Policy::Fifo(99);
/// The shortest time for which a CPU is away.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest, unless `--longest` says something else. Longer ones were not seen on machines for
/// CI.
#[cfg(test)]
const LONGEST: Duration = Duration::from_millis(40);
/// What `--longest` may say: the kernel stops real-time threads that hold a CPU for 950 ms in a
/// second.
const LONGEST_MAX: Duration = Duration::from_millis(500);
/// The part of each CPU's time that is taken, unless `--share` says something else.
const SHARE_PERCENT: u64 = 8;
/// What `--share` may say: a program that is disturbed must come to its end.
const SHARE_PERCENT_MAX: u64 = 40;
/// One in so many takes all CPUs at once, the others one of them.
const ALL_AT_ONCE: usize = 4;
/// How often a thread without a stall looks whether all is over.
const LOOK: Duration = Duration::from_millis(50);

/// Runs a command while CPUs are taken away at random moments, as by a hypervisor (root)
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DisturbArgs {
    /// Draw other moments
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Take this part of each CPU's time, in percent
    #[arg(long = "share", value_name = "PERCENT", default_value_t = SHARE_PERCENT,
          value_parser = clap::value_parser!(u64).range(0..=SHARE_PERCENT_MAX))]
    share_percent: u64,
    /// Take it for so long at most
    #[arg(long, value_name = "TIME", default_value = "40ms", value_parser = stall)]
    longest: Duration,
    /// Add so many endless loops
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=1000))]
    hogs: u16,
    /// End after this time; without a command: go on for so long
    #[arg(long = "for", value_name = "TIME", value_parser = crate::stress::time)]
    time: Option<Duration>,
    #[command(flatten)]
    asked: Asked,
    /// The command
    #[arg(last = true, required_unless_present = "time")]
    command: Vec<String>,
}

/// Reads the longest time for which a CPU is away.
fn stall(text: &str) -> Result<Duration> {
    let allowed = SHORTEST..=LONGEST_MAX;
    let time = crate::stress::time(text)?;
    ensure!(allowed.contains(&time), "{SHORTEST:?} to {LONGEST_MAX:?}");
    Ok(time)
}

/// One time that CPUs are away: when it begins, counted from the start, how long it lasts, and
/// where (`None`: everywhere).
#[derive(Clone, Copy, PartialEq, Debug)]
struct Stall {
    begin: Duration,
    length: Duration,
    cpu: Option<usize>,
}

/// The stalls of a seed on so many CPUs, one after the other, without end.
fn stalls(options: &DisturbArgs, cpus: usize) -> impl Iterator<Item = Stall> + use<> {
    let mut random = Random::new(options.seed);
    let (longest, share) = (options.longest, options.share_percent as f64 / 100.0);
    let mean = (SHORTEST + longest).as_secs_f64() / 2.0;
    // The part of the CPUs that one stall takes, on average.
    let taken = (1.0 + (ALL_AT_ONCE - 1) as f64 / cpus as f64) / ALL_AT_ONCE as f64;
    let every = mean * taken / share;
    let mut free = Duration::ZERO;
    std::iter::from_fn(move || {
        // Random moments: the gaps are exponential.
        let gap = -(1.0 - random.unit()).ln() * (every - mean).max(mean / 10.0);
        let begin = free + Duration::from_secs_f64(gap);
        let length = SHORTEST + (longest - SHORTEST).mul_f64(random.unit());
        let cpu = (random.below(ALL_AT_ONCE) != 0).then(|| random.below(cpus));
        free = begin + length;
        Some(Stall { begin, length, cpu })
    })
}

/// Takes `cpu`, the one with this index, away whenever the plan says so: how often, and for how
/// long in all.
fn take(
    cpu: CpuId,
    index: usize,
    start: Instant,
    plan: impl Iterator<Item = Stall>,
    over: &AtomicBool,
) -> Result<(u32, Duration)> {
    set_affinity(0, &CpuSet::single(cpu)).with_context(|| format!("{cpu}"))?;
    let now = scheduling(0)?;
    set_scheduling(0, &Scheduling { policy: ABOVE_ALL, slice: None, ..now })
        .context("a real-time policy, which needs root")?;
    let (mut count, mut sum) = (0, Duration::ZERO);
    for stall in plan.filter(|stall| stall.cpu.is_none_or(|there| there == index)) {
        while start.elapsed() < stall.begin {
            if over.load(Ordering::Relaxed) {
                return Ok((count, sum));
            }
            std::thread::sleep((stall.begin.saturating_sub(start.elapsed())).min(LOOK));
        }
        let begin = Instant::now();
        while begin.elapsed() < stall.length {
            std::hint::spin_loop();
        }
        (count, sum) = (count + 1, sum + stall.length);
    }
    Ok((count, sum))
}

/// Ends with this program, whatever ends that.
struct Disturbed(Child);

impl Drop for Disturbed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Until the command ends, or the time is over: the command's exit code.
fn wait(
    command: Option<&mut Disturbed>,
    time: Option<Duration>,
    failed: &AtomicBool,
) -> Result<u8> {
    let start = Instant::now();
    let mut command = command;
    while !failed.load(Ordering::Relaxed) && time.is_none_or(|time| start.elapsed() < time) {
        if let Some(command) = &mut command
            && let Some(status) = command.0.try_wait()?
        {
            return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
        }
        std::thread::sleep(LOOK);
    }
    Ok(u8::from(command.is_some()))
}

/// Calls `work` beside stalls and hogs; it is told when they cannot be made. Returns what it
/// returns, and how often and for how long each CPU was away.
fn beside<T>(
    options: &DisturbArgs,
    cpus: &[CpuId],
    work: impl FnOnce(&AtomicBool) -> Result<T>,
) -> Result<(T, Vec<(u32, Duration)>)> {
    let (over, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    let start = Instant::now();
    std::thread::scope(|scope| -> Result<_> {
        for _ in 0..options.hogs {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let takers = options.share_percent > 0;
        let takers: Vec<_> = (cpus.iter().enumerate().filter(|_| takers))
            .map(|(index, &cpu)| {
                let plan = stalls(options, cpus.len());
                let (over, failed) = (&over, &failed);
                scope.spawn(move || {
                    let taken = take(cpu, index, start, plan, over);
                    failed.fetch_or(taken.is_err(), Ordering::Relaxed);
                    taken
                })
            })
            .collect();
        let done = work(&failed);
        over.store(true, Ordering::Relaxed);
        let taken: Result<Vec<_>> =
            takers.into_iter().map(|taker| taker.join().expect("it does not panic")).collect();
        // Why there is no disturber says more than what the command made of its end.
        let taken = taken?;
        Ok((done?, taken))
    })
}

/// Runs the command beside stalls and hogs.
pub(crate) fn command(options: &DisturbArgs) -> Result<ExitCode> {
    options.asked.check(&options.command)?;
    let cpus: Vec<CpuId> = affinity(0)?.iter().collect();
    if options.asked.times > 0 {
        return answers::command(options, &cpus);
    }
    let start = Instant::now();
    let (code, taken) = beside(options, &cpus, |failed| {
        let child = options.command.split_first().map(|(program, rest)| {
            Command::new(program)
                .args(rest)
                .stdin(Stdio::null())
                .spawn()
                .map(Disturbed)
                .context(program.clone())
        });
        child.transpose().and_then(|mut child| wait(child.as_mut(), options.time, failed))
    })?;
    let time = start.elapsed();
    for (cpu, (count, sum)) in cpus.iter().zip(taken) {
        let share = sum.as_secs_f64() / time.as_secs_f64() * 100.0;
        println!(
            "disturb, seed {}: {cpu} away {count} times in {time:.1?}, {share:.1} %",
            options.seed
        );
    }
    Ok(ExitCode::from(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<DisturbArgs> {
        let options: DisturbArgs = crate::parsed(text)?;
        options.asked.check(&options.command)?;
        Ok(options)
    }

    #[test]
    fn options_are_checked() {
        let some =
            options("--seed 7 --share 5 --longest 20ms --hogs 2 -- cargo test --seed").unwrap();
        assert_eq!((some.seed, some.share_percent, some.hogs), (7, 5, 2));
        assert_eq!(
            (some.longest, some.command.join(" ").as_str()),
            (Duration::from_millis(20), "cargo test --seed")
        );
        for (bad, words) in [
            ("--seed 7", "COMMAND"),
            ("--share 80 -- true", "0..=40"),
            ("--longest 2s -- true", "1ms to 500ms"),
            ("--lottery 1 -- true", "unexpected argument '--lottery'"),
            ("--seed", "a value is required"),
            ("--answers 20 --right idle -- schedlab colocate", "--json"),
            ("--answers 20 -- schedlab colocate --json", "--right"),
            ("--right idle -- schedlab colocate --json", "--answers"),
        ] {
            let error = options(bad).unwrap_err().to_string();
            assert!(error.contains(words), "{bad}: {error}");
        }
    }

    #[test]
    fn a_plan_is_the_same_each_time_and_takes_what_was_asked_for() {
        for cpus in [1, 2, 8] {
            let options = options("--seed 5 -- true").unwrap();
            let plan: Vec<Stall> = stalls(&options, cpus).take(5_000).collect();
            assert_eq!(plan, stalls(&options, cpus).take(5_000).collect::<Vec<_>>());
            assert!(plan.windows(2).all(|pair| pair[0].begin + pair[0].length <= pair[1].begin));
            assert!(plan.iter().all(|stall| (SHORTEST..=LONGEST).contains(&stall.length)));
            for cpu in 0..cpus {
                let here = plan.iter().filter(|stall| stall.cpu.is_none_or(|there| there == cpu));
                let taken: Duration = here.map(|stall| stall.length).sum();
                let share = taken.as_secs_f64() / plan[plan.len() - 1].begin.as_secs_f64();
                assert!((0.07..0.09).contains(&share), "{cpus} CPUs, {cpu}: {share}");
            }
        }
    }
}
