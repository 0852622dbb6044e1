//! `cargo xtask stress`: random scenarios (`schedlab generate`) under all assertions of the engine,
//! an observer that knows only the events, and three runs each: twice alike, and once with every
//! tick delivered (not nested machines); all three must give the same events. A scenario that fails
//! is made as small as it goes and kept as a file for `schedlab compare`.
//!
//! Each case runs in another process ([`worker`]) within a limit of events and of CPU time, so that
//! nothing that a case does ends the run.

mod options;
mod planted;
mod tally;
mod worker;

use anyhow::{Context, Result};
pub(crate) use options::{StressArgs, time};
pub(crate) use schedlab_study::generate::Dice;
use schedlab_study::generate::{self, Draft, Fault, Still, Verdict};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tally::Tally;
use worker::Worker;

/// Trials of a smaller scenario that hangs may take this much CPU time each.
const HANGS: Duration = Duration::from_secs(2);
/// How often the run says where it is.
const PROGRESS: Duration = Duration::from_secs(10);

/// Runs cases from `--seed` on until the time is over or `--runs` are done; stops at the first
/// failure.
pub(crate) fn command(options: &StressArgs) -> Result<ExitCode> {
    if let Some(plant) = &options.worker {
        return worker::run(plant);
    }
    std::fs::create_dir_all(&options.folder)
        .with_context(|| format!("{}: cannot be made", options.folder.display()))?;
    let mut worker = Worker::new(&options.plant);
    if let Some(file) = &options.file {
        return one(options, &mut worker, file);
    }
    let (begin, mut told, mut tally) = (Instant::now(), Instant::now(), Tally::default());
    println!("stress: from seed {}{}", options.seed, options.planted());
    while options.goes_on(tally.done, begin.elapsed()) {
        let seed = options.seed.wrapping_add(tally.done);
        let draft = generate::draft(seed, options.scheduler.as_deref())?;
        let verdict = worker.trial(&draft.to_toml(), options.case)?;
        tally.count(&draft, &verdict);
        if let Verdict::Failed(fault, what) = &verdict {
            println!("stress: seed {seed} failed ({}): {what}", fault.name());
            let small = smallest(options, &mut worker, &draft, *fault)?;
            keep(options, &format!("seed-{seed}.toml"), *fault, what, small)?;
            if !options.keep_going {
                break;
            }
        }
        if told.elapsed() > PROGRESS {
            told = Instant::now();
            println!("stress: {} s, up to seed {seed}: {tally}", begin.elapsed().as_secs());
        }
    }
    println!("stress: {} s, seeds {} on: {tally}", begin.elapsed().as_secs(), options.seed);
    print!("{}", tally.particulars());
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `--file`: one scenario.
fn one(options: &StressArgs, worker: &mut Worker, file: &PathBuf) -> Result<ExitCode> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{}: cannot be read", file.display()))?;
    Ok(match worker.trial(&text, options.case)? {
        Verdict::Ran(events) => {
            println!("stress: {}: {events} events, no failure", file.display());
            ExitCode::SUCCESS
        }
        Verdict::Refused(why) => {
            println!("stress: {}: refused: {why}", file.display());
            ExitCode::from(2)
        }
        Verdict::Failed(fault, what) => {
            println!("stress: {} failed ({}): {what}", file.display(), fault.name());
            ExitCode::FAILURE
        }
    })
}

/// The smallest scenario found that still fails in the same way, and how.
fn smallest(
    options: &StressArgs,
    worker: &mut Worker,
    draft: &Draft,
    fault: Fault,
) -> Result<(Draft, String, String)> {
    let (begin, mut tried) = (Instant::now(), 0);
    let limit = if fault == Fault::Hangs { options.case.min(HANGS) } else { options.case };
    let (mut how, mut broken) = (String::new(), None);
    let small = generate::shrink(draft, |smaller| {
        if begin.elapsed() > options.shrink || tried >= options.trials {
            return Still::Enough;
        }
        tried += 1;
        match worker.trial(&smaller.to_toml(), limit) {
            Ok(Verdict::Failed(found, what)) if found == fault => {
                how = what;
                Still::Fails
            }
            Ok(_) => Still::Holds,
            Err(error) => {
                broken = Some(error);
                Still::Enough
            }
        }
    });
    if let Some(error) = broken {
        return Err(error);
    }
    let spent = format!("{tried} trials, {} s", begin.elapsed().as_secs());
    Ok((small, how, spent))
}

/// Writes the smallest scenario down, and says how to see it again.
fn keep(
    options: &StressArgs,
    name: &str,
    fault: Fault,
    what: &str,
    (mut small, how, spent): (Draft, String, String),
) -> Result<()> {
    let how = if how.is_empty() { what } else { &how };
    small
        .comments
        .push("What is left of it when everything goes that it fails without.".to_owned());
    small.comments.push(format!("{}: {how}", fault.name()));
    let (text, path) = (small.to_toml(), options.folder.join(name));
    std::fs::write(&path, &text)
        .with_context(|| format!("{}: cannot be written", path.display()))?;
    println!("stress: as small as it goes ({spent}): {}\n\n{text}", path.display());
    let plant = match options.plant.as_str() {
        "none" => String::new(),
        plant => format!(" --plant {plant}"),
    };
    println!("repeat it with: cargo xtask stress --file {}{plant}", path.display());
    if plant.is_empty() {
        println!("           or: schedlab compare {} --assert", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
