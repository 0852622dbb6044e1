//! `cargo xtask stress`: random machines, workloads and schedulers under all assertions of the engine. Each
//! case runs three times: twice alike, and once with every tick delivered; all three must give the same
//! events; a third of the cases run behind agents. A failure prints the one number that repeats it.

mod delegated;
mod random;

use anyhow::{Context, Result, bail};
pub(crate) use random::Dice;
use schedlab_model::Ns;
use schedlab_scheduler::{SchedulerSpec, registry};
use schedlab_sim::{Machine, RunOptions, SimError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// One case, made from its number.
struct Case {
    scheduler: SchedulerSpec,
    machine: Machine,
    workload: schedlab_model::Workload,
    options: RunOptions,
    delegated: Option<delegated::Delegated>,
}

/// What became of a case.
#[derive(PartialEq, Eq, Debug)]
enum Verdict {
    /// Ran, with this many events.
    Ran(u64),
    /// Refused with a reason that is not a fault (a capability that is missing, an impossible affinity).
    Refused(String),
    /// An assertion failed, or the runs differ.
    Failed(String),
}

/// Runs cases from `--seed` on until the time is over or `--runs` are done; stops at the first failure.
pub(crate) fn command(args: &[String]) -> Result<ExitCode> {
    let options = parse(args)?;
    let begin = Instant::now();
    let (mut done, mut refused, mut events) = (0, 0, 0);
    let mut why = std::collections::BTreeMap::<String, u64>::new();
    while done < options.runs && begin.elapsed() < options.time {
        let seed = options.seed.wrapping_add(done);
        match verdict(seed, options.scheduler.as_deref()) {
            Verdict::Ran(count) => events += count,
            Verdict::Refused(reason) => {
                refused += 1;
                *why.entry(reason).or_default() += 1;
            }
            Verdict::Failed(text) => {
                println!("stress: case {seed} failed: {text}");
                println!("{}", describe(seed, options.scheduler.as_deref()));
                println!("repeat it with: cargo xtask stress --seed {seed} --runs 1");
                return Ok(ExitCode::FAILURE);
            }
        }
        done += 1;
    }
    println!(
        "stress: {done} cases from seed {}, {events} events, no failure, {refused} refused",
        options.seed
    );
    for (reason, count) in why {
        println!("  {count} x {reason}");
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug)]
struct Options {
    seed: u64,
    runs: u64,
    time: Duration,
    scheduler: Option<String>,
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options { seed: 1, runs: u64::MAX, time: Duration::from_secs(10), scheduler: None };
    let mut args = args.iter();
    while let Some(name) = args.next() {
        let value = args.next().with_context(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--seed" => options.seed = value.parse().context("--seed: a whole number")?,
            "--runs" => {
                options.runs = value.parse().context("--runs: a whole number")?;
                options.time = Duration::MAX;
            }
            "--for" => {
                options.time = time(value)?;
            }
            "--scheduler" => {
                registry::find(value)?;
                options.scheduler = Some(value.clone());
            }
            other => {
                bail!("stress has no option `{other}`: use --seed N, --runs N, --for 10s, --scheduler NAME")
            }
        }
    }
    Ok(options)
}

/// The value of `--for`.
pub(crate) fn time(value: &str) -> Result<Duration> {
    if let Some(hours) = value.strip_suffix('h').and_then(|hours| hours.parse::<u32>().ok()) {
        return Ok(Duration::from_secs(3_600 * u64::from(hours)));
    }
    let time: Ns = value.parse().context("--for: a time such as 10s, 5m or 1h")?;
    Ok(Duration::from_nanos(time.0))
}

fn case(seed: u64, scheduler: Option<&str>) -> Case {
    let mut dice = Dice::new(seed);
    let machine = random::machine(&mut dice);
    let workload = random::workload(&mut dice, machine.topology.cpus());
    let names: Vec<&str> = registry::all().iter().map(|entry| entry.name).collect();
    let drawn = *dice.pick(&names);
    let name = scheduler.unwrap_or(drawn).to_owned();
    let duration = Ns::from_ms(dice.between(50, 1500));
    let options = RunOptions { seed, duration, ..RunOptions::default() };
    let delegated = delegated::draw(&mut dice, machine.topology.cpus(), workload.tasks.len(), duration);
    Case { scheduler: SchedulerSpec { name, knobs: Vec::new() }, machine, workload, options, delegated }
}

fn describe(seed: u64, scheduler: Option<&str>) -> String {
    let case = case(seed, scheduler);
    format!(
        "scheduler: {}\n{:#?}\n{:#?}\n{:#?}\n{:#?}",
        case.scheduler, case.delegated, case.machine, case.options, case.workload
    )
}

/// Runs one case. A panic is a failure, not the end.
fn verdict(seed: u64, scheduler: Option<&str>) -> Verdict {
    let case = case(seed, scheduler);
    let caught = catch_unwind(AssertUnwindSafe(|| compare(&case)));
    caught.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Verdict::Failed(format!("{} panicked: {}", case.scheduler, text.unwrap_or_default()))
    })
}

fn compare(case: &Case) -> Verdict {
    let run = |every_tick: bool| {
        let options = RunOptions { every_tick, ..case.options.clone() };
        delegated::run(case.delegated.as_ref(), &case.scheduler, &case.machine, &case.workload, &options)
    };
    let first = match run(false) {
        Ok(outcome) => outcome,
        Err(fault @ (SimError::Scheduler { .. } | SimError::Internal { .. })) => {
            return Verdict::Failed(format!("{}: {fault}", case.scheduler));
        }
        Err(refusal) => return Verdict::Refused(reason(&refusal)),
    };
    for (every_tick, how) in [(false, "run again"), (true, "with every tick delivered")] {
        match run(every_tick) {
            Ok(second) if second.event_hash == first.event_hash => {}
            Ok(second) => {
                return Verdict::Failed(format!(
                    "{}: {how}, the events differ: {:016x} with {} events, then {:016x} with {}",
                    case.scheduler, first.event_hash, first.events, second.event_hash, second.events
                ));
            }
            Err(error) => return Verdict::Failed(format!("{}: {how}: {error}", case.scheduler)),
        }
    }
    Verdict::Ran(first.events)
}

/// The kind of a refusal, without its particulars.
fn reason(error: &SimError) -> String {
    let text = format!("{error:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A short walk on every run of the tests; `cargo xtask stress` goes on for as long as you like.
    #[test]
    fn random_cases_of_each_scheduler_hold() {
        for entry in registry::all() {
            let mut ran = 0;
            for seed in 1..=15 {
                match verdict(seed, Some(entry.name)) {
                    Verdict::Ran(_) => ran += 1,
                    Verdict::Refused(_) => {}
                    Verdict::Failed(text) => panic!("seed {seed}: {text}"),
                }
            }
            assert!(ran >= 8, "{}: only {ran} of 15 cases ran", entry.name);
        }
    }

    #[test]
    fn a_case_follows_from_its_number() {
        assert_eq!(describe(7, None), describe(7, None));
        assert_ne!(describe(7, None), describe(8, None));
    }

    #[test]
    fn options_are_checked() {
        let parse = |text: &str| parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parse("--seed 5 --for 2s").unwrap().time, Duration::from_secs(2));
        assert!(parse("--sead 5").unwrap_err().to_string().contains("--seed N"));
        assert!(parse("--for ten").is_err());
        assert!(parse("--scheduler linux-9").is_err());
    }
}
