//! A worker: tries inputs of one target for some time, and makes those that panic small.

use super::targets::{self, REFUSED, Target};
use super::{corpus, mutate};
use crate::stress::Dice;
use anyhow::{Context, Result, bail};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Inputs that are kept for further mutations.
const POOL: usize = 4_000;
/// Tries of making an input that panics smaller.
const SMALLER: usize = 400;

thread_local! {
    /// Where the last panic was.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
    /// Whether an input is being tried: other panics are the fuzzer's own.
    static TRYING: Cell<bool> = const { Cell::new(false) };
}

/// `TARGET SEED MILLISECONDS FOLDER`
pub(super) fn run(args: &[String]) -> Result<ExitCode> {
    let [target, seed, time, folder] = args else { bail!("--worker is for fuzz itself") };
    let (target, folder) = (targets::find(target)?, PathBuf::from(folder));
    let (mut dice, time) = (Dice::new(seed.parse()?), Duration::from_millis(time.parse()?));
    listen();
    let mut pool = corpus::inputs(target.name)?;
    let first = pool.len();
    let (mut seen, mut places) = (BTreeSet::new(), BTreeSet::new());
    let current = folder.join(format!("{}.current", target.name));
    let current =
        File::create(&current).with_context(|| format!("{}: cannot write", current.display()))?;
    let (begin, mut count) = (Instant::now(), 0_u64);
    while begin.elapsed() < time {
        let untouched = usize::try_from(count).unwrap_or(usize::MAX) < first;
        let input = if untouched {
            pool[count as usize].clone()
        } else {
            // What it began with stays half of what is changed: it is accepted, most of the rest is
            // not.
            let known = if dice.chance(50) { first } else { pool.len() };
            mutate::mutate(target.shape, &mut dice, &pool[..known])
        };
        // Into an open file: making one anew for each input took most of the time.
        let length = (input.len() as u64).to_le_bytes();
        let written =
            current.write_all_at(&length, 0).and_then(|()| current.write_all_at(&input, 8));
        written.context("the input cannot be noted")?;
        count += 1;
        match tried(target, &input) {
            Ok(answer) if seen.insert(kind_of(&answer)) && !untouched => {
                if pool.len() < POOL && (!answer.starts_with(REFUSED) || dice.chance(20)) {
                    pool.push(input);
                }
            }
            Ok(_) => {}
            Err(place) if places.insert(place.clone()) => {
                report(target, &folder, &place, smaller(target, &mut dice, input, &place))?;
            }
            Err(_) => {}
        }
    }
    std::fs::write(folder.join(format!("{}.count", target.name)), count.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// `TARGET FILE`: tries one input and says what came of it.
pub(super) fn one(args: &[String]) -> Result<ExitCode> {
    let [target, file] = args else { bail!("--input TARGET FILE: {}", targets::names()) };
    let input = std::fs::read(file).with_context(|| format!("{file}: cannot be read"))?;
    println!("{}", (targets::find(target)?.run)(&input));
    Ok(ExitCode::SUCCESS)
}

/// Notes where a panic is instead of printing it.
fn listen() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !TRYING.get() {
            usual(info);
        }
        let place =
            info.location().map_or_else(String::new, |at| format!("{}:{}", at.file(), at.line()));
        let what = info.payload_as_str().unwrap_or("").lines().next().unwrap_or("").to_owned();
        PLACE.with_borrow_mut(|last| *last = format!("{place}: {what}"));
    }));
}

/// The answer, or where it panicked.
fn tried(target: &Target, input: &[u8]) -> Result<String, String> {
    TRYING.set(true);
    let answer = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    TRYING.set(false);
    // A place without its numbers: one fault is reported once.
    answer.map_err(|_| {
        PLACE.with_borrow(|last| last.split(": ").next().unwrap_or_default().to_owned())
    })
}

/// Answers that differ only in numbers and quoted words are of one kind.
fn kind_of(answer: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut quoted = false;
    for c in answer.chars() {
        if matches!(c, '`' | '"' | '\'') {
            quoted = !quoted;
        } else if !quoted && !c.is_ascii_digit() {
            c.hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// The same panic from fewer bytes.
fn smaller(target: &Target, dice: &mut Dice, mut input: Vec<u8>, place: &str) -> Vec<u8> {
    for _ in 0..SMALLER {
        if input.is_empty() {
            break;
        }
        let from = dice.below(input.len());
        let length = 1 + dice.below((input.len() - from).min(1 + input.len() / 4));
        let mut shorter = input.clone();
        shorter.drain(from..(from + length).min(input.len()));
        if tried(target, &shorter).is_err_and(|other| other == place) {
            input = shorter;
        }
    }
    input
}

fn report(target: &Target, folder: &Path, place: &str, input: Vec<u8>) -> Result<()> {
    let name: String =
        place.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let file = folder.join(format!("{}-panic-{name}", target.name));
    let _ = tried(target, &input);
    let what = PLACE.with_borrow(String::clone);
    println!("fuzz: {}: panic at {what}; {} bytes in {}", target.name, input.len(), file.display());
    std::fs::write(&file, input).with_context(|| format!("{}: cannot be written", file.display()))
}
