//! What the chores read from their command lines alike.

use anyhow::{Context, Result};
use std::str::FromStr;

/// Returns the number of CPUs: so many jobs run beside each other unless `--jobs` says otherwise.
pub(crate) fn jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the value of an option that is a number from 1.
pub(crate) fn from_one<N: FromStr + Default + PartialOrd>(option: &str, text: &str) -> Result<N> {
    let number = text.parse().ok().filter(|number| *number > N::default());
    number.with_context(|| format!("{option} needs a number from 1"))
}

/// Returns the words of a command line as `main` hands them on.
#[cfg(test)]
pub(crate) fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
