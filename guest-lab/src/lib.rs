//! What the workspace is judged by on other kernels: guests in QEMU, recordings of real kernels,
//! and predictions beside what came. `cargo xtask guest|guest-oracle|pairs`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr)] // a command-line tool

pub mod guest;
pub mod guest_oracle;
pub mod pairs;

use std::path::PathBuf;

/// Returns the root of the workspace that cargo runs this for; that of the one that it was built in
/// when cargo does not run it. A `target` that was copied into another checkout must not look at
/// the checkout that it comes from.
pub fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().expect("the crate lies in the workspace").to_owned()
}

/// Returns the number of CPUs: so many jobs run beside each other unless `--jobs` says otherwise.
pub fn jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Reads a number from 1.
///
/// # Errors
/// It is none.
pub fn from_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "it is a number from 1".to_owned())
}

/// Returns the arguments of a chore.
#[cfg(test)]
fn parsed<A: clap::Args>(words: &[&str]) -> Result<A, clap::Error> {
    #[derive(clap::Parser)]
    struct CommandLine<A: clap::Args> {
        #[command(flatten)]
        args: A,
    }
    let line: CommandLine<A> =
        clap::Parser::try_parse_from(std::iter::once(&"chore").chain(words))?;
    Ok(line.args)
}
