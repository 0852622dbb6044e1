//! Writes results to standard output, or to a file that appears whole or not at all.

use anyhow::{Context, anyhow, bail};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes to `path`, or to standard output. A file is replaced only when everything is written.
pub(crate) fn write(path: Option<&Path>, text: &str) -> anyhow::Result<()> {
    let Some(path) = path else {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        return Ok(out.flush()?);
    };
    let part = part(path)?;
    let written = std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&part);
    }
    written.with_context(|| unwritable(path))
}

/// Refuses a file that cannot be written, before the work is done.
pub(crate) fn check(path: &Path) -> anyhow::Result<()> {
    if path.is_dir() {
        return Err(anyhow!("{} is a directory: name a file in it with -o", path.display()));
    }
    let part = part(path)?;
    let tried = std::fs::File::create(&part).map(drop).and_then(|()| std::fs::remove_file(&part));
    tried.with_context(|| unwritable(path))
}

/// Refuses a result or a page that cannot be written, and one file for both, before the work is done.
pub(crate) fn check_both(output: Option<&Path>, report: Option<&Path>) -> anyhow::Result<()> {
    if let (Some(output), Some(report)) = (output, report)
        && output == report
    {
        bail!("--report and -o both write {}: give each a file of its own", report.display());
    }
    output.into_iter().chain(report).try_for_each(check)
}

fn unwritable(path: &Path) -> String {
    format!("{} cannot be written: choose another place", path.display())
}

fn part(path: &Path) -> anyhow::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| anyhow!("-o {}: name a file", path.display()))?;
    let mut part = name.to_owned();
    part.push(format!(".{}.part", std::process::id()));
    Ok(path.with_file_name(part))
}
