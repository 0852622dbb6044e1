//! Writes results to standard output, or to a file that appears whole or not at all.

use anyhow::{anyhow, bail};
use schedlab_files::{NewFile, Refused, STDOUT};
use schedlab_model::text::{is_hostile, shown};
use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Writes to `path`, or to standard output. A file is replaced only when everything is written.
pub(crate) fn write(path: Option<&Path>, text: &str) -> anyhow::Result<()> {
    let Some(path) = path.filter(|path| !is_stdout(path)) else {
        let mut out = std::io::stdout().lock();
        out.write_all(safe(text).as_bytes())?;
        return Ok(out.flush()?);
    };
    write_file(path, text.as_bytes())
}

/// Writes what no text is to `path`, or to standard output, which must not be a terminal
/// ([`no_terminal`]).
#[cfg(feature = "parquet")]
pub(crate) fn write_bytes(path: Option<&Path>, bytes: &[u8]) -> anyhow::Result<()> {
    let Some(path) = path.filter(|path| !is_stdout(path)) else {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes)?;
        return Ok(out.flush()?);
    };
    write_file(path, bytes)
}

/// Refuses to write what no text is to a terminal, before the work is done.
pub(crate) fn no_terminal(path: Option<&Path>, what: &str) -> anyhow::Result<()> {
    if path.is_none_or(is_stdout) && std::io::stdout().is_terminal() {
        bail!("{what} is no text: send it to a file (> FILE.parquet)");
    }
    Ok(())
}

fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = NewFile::create(path)?;
        file.write_all(bytes)?;
        file.commit()
    };
    write().map_err(|error| refused(path, error))
}

/// Returns `text` without control characters other than line ends, tabs and the colours of
/// [`Style`](crate::render::Style): a name that a view forgot to escape moves no cursor and sets no
/// title.
fn safe(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| is_hostile(c) && c != '\n') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(|c| is_hostile(c) && !matches!(c, '\n' | '\t')) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = colour(rest).unwrap_or_else(|| rest.chars().next().map_or(0, char::len_utf8));
        let (part, after) = rest.split_at(length);
        if part.len() > 2 && part.starts_with('\u{1b}') {
            out.push_str(part)
        } else {
            out += &shown(part)
        }
        rest = after;
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Returns the length of the colour sequence (`ESC [ N m`) that `text` begins with.
fn colour(text: &str) -> Option<usize> {
    let number = text.strip_prefix("\u{1b}[")?;
    let digits = number.len() - number.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    (digits <= 2 && number[digits..].starts_with('m')).then_some(digits + 3)
}

/// Whether `path` is `-`, standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new(STDOUT)
}

/// Writes what a command says about the file that it made: to standard output, or to standard error
/// when the file is there.
pub(crate) fn say(file: &Path, text: &str) -> anyhow::Result<()> {
    if is_stdout(file) {
        return Ok(std::io::stderr().lock().write_all(text.as_bytes())?);
    }
    write(None, text)
}

/// Says on standard error what the user must know while the command goes on.
pub(crate) fn warn(text: &str) {
    // Without standard error there is no other place to say it.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Refuses a file that cannot be written, before the work is done.
pub(crate) fn check(path: &Path) -> anyhow::Result<()> {
    if path.is_dir() {
        return Err(anyhow!("{} is a directory: name a file in it with -o", path.display()));
    }
    if is_stdout(path) {
        return Ok(());
    }
    if path.file_name().is_none() {
        bail!("-o {}: name a file", path.display());
    }
    schedlab_files::claim(path)
        .and_then(|()| NewFile::create(path))
        .map(drop)
        .map_err(|error| refused(path, error))
}

/// Refuses a result or a page that cannot be written, and one file for both, before the work is
/// done.
pub(crate) fn check_both(output: Option<&Path>, report: Option<&Path>) -> anyhow::Result<()> {
    if let (Some(output), Some(report)) = (output, report)
        && output == report
    {
        bail!("--report and -o both write {}: give each a file of its own", report.display());
    }
    if output.is_none_or(is_stdout) && report.is_some_and(is_stdout) {
        bail!(
            "--report - and the result both go to standard output: name a file for the result \
             with -o"
        );
    }
    output.into_iter().chain(report).try_for_each(check)
}

/// Returns why `path` is not written, and what to do. What [`Refused`] says names path and way out
/// by itself.
fn refused(path: &Path, error: std::io::Error) -> anyhow::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Refused>()) {
        Some(refused) => refused.clone().into(),
        None => anyhow!(error)
            .context(format!("{} cannot be written: choose another place", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::safe;

    #[test]
    fn only_colours_reach_a_terminal() {
        assert_eq!(safe("a\t\u{1b}[1mb\u{1b}[0m\n"), "a\t\u{1b}[1mb\u{1b}[0m\n");
        assert_eq!(safe("\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31m"), r"\x1b[2J\x1b]0;x\x07\u{9b}31m");
        assert_eq!(safe("\u{1b}"), r"\x1b");
    }
}
