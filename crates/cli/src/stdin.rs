//! `-` where a command takes a file: standard input, kept in a temporary file that has no name any
//! more.

use anyhow::Context;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::OnceLock;

/// What came from standard input. It stays open until the program ends, because its only name is
/// that of its descriptor.
static KEPT: OnceLock<File> = OnceLock::new();

/// Returns the path of a file that the user names; of `-` the path of a file with all that standard
/// input has.
pub(crate) fn given(input: &str) -> anyhow::Result<String> {
    if input != "-" {
        return Ok(input.to_owned());
    }
    if KEPT.get().is_none() {
        let file = spool().context("standard input")?;
        // Only this thread reads arguments.
        let _ = KEPT.set(file);
    }
    Ok(path().unwrap_or_default())
}

/// Returns standard input, which may be a file that an output must not replace.
pub(crate) fn input() -> std::io::Result<std::io::StdinLock<'static>> {
    let input = std::io::stdin();
    schedlab_files::note_input(&input, Path::new("standard input"))?;
    Ok(input.lock())
}

fn path() -> Option<String> {
    KEPT.get().map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn spool() -> std::io::Result<File> {
    let mut file = schedlab_files::unnamed()?;
    std::io::copy(&mut input()?, &mut file)?;
    Ok(file)
}

/// Returns a message in which standard input has its name.
pub(crate) fn named(text: &str) -> String {
    match path() {
        Some(path) => text.replace(&path, "standard input"),
        None => text.to_owned(),
    }
}
