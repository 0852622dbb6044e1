//! `cargo xtask ui`: builds the page of the workbench and the script of static pages from their
//! sources in `ui/` and compares them with what is checked in, which the program has inside.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// What the build gives, and where it is checked in.
const FILES: [(&str, &str); 6] = [
    ("index.html", "crates/ui/assets/index.html"),
    ("workbench.css", "crates/ui/assets/workbench.css"),
    ("workbench.js", "crates/ui/assets/workbench.js"),
    ("page/page.css", "crates/report/assets/page.css"),
    ("page/page.js", "crates/report/assets/page.js"),
    ("page/uPlot-LICENSE", "crates/report/assets/uPlot-LICENSE"),
];

/// Builds, compares, and with `--write` replaces the files.
pub(crate) fn command(write: bool) -> Result<ExitCode> {
    let root = crate::tree::root();
    let mut good = true;
    for ((_, file), built) in FILES.iter().zip(build(&root)?) {
        let path = root.join(file);
        let kept = std::fs::read(&path).unwrap_or_default();
        if kept == built {
            println!("{file} is what ui/ gives, byte for byte ({} bytes)", built.len());
        } else if write {
            std::fs::write(&path, &built).with_context(|| format!("writing {file}"))?;
            println!("{file} written: {} bytes, {} before", built.len(), kept.len());
        } else {
            println!("{file} is not what ui/ gives: run `cargo xtask ui --write`");
            good = false;
        }
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the pages; returns the content of [`FILES`]. The packages are those of the lock file,
/// whose scripts are not run.
fn build(root: &Path) -> Result<Vec<Vec<u8>>> {
    let folder = root.join("ui");
    let out = tempfile::tempdir()?;
    run(Command::new("npm").current_dir(&folder).args([
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--prefer-offline",
    ]))?;
    // Checks the types, too.
    run(Command::new("npm")
        .current_dir(&folder)
        .args(["run", "build"])
        .env("SCHEDLAB_UI_OUT", out.path()))?;
    let read = |(name, _): &(&str, &str)| {
        std::fs::read(out.path().join(name)).with_context(|| format!("{name} was not built"))
    };
    FILES.iter().map(read).collect()
}

fn run(command: &mut Command) -> Result<()> {
    let what = format!("{command:?}");
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => bail!(
            "{what} failed ({}): {}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
            "npm is missing: it builds the pages from ui/. Nothing else of \
             schedlab needs it"
        ),
        Err(error) => Err(error).context(what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With npm and its packages: the page is what its sources give. Without: said by name.
    #[test]
    #[allow(clippy::print_stderr)]
    fn the_page_is_that_of_its_sources() {
        let root = crate::tree::root();
        match build(&root) {
            Ok(built) => {
                for ((_, file), built) in FILES.iter().zip(built) {
                    let kept = std::fs::read(root.join(file)).unwrap();
                    assert!(kept == built, "{file}: run `cargo xtask ui --write`");
                }
            }
            Err(error) => {
                let said = error.to_string();
                // What does not build, or a lock file that does not fit, is a fault; a network that
                // is not there is none.
                let offline = ["ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT", "ENOTCACHED"];
                let missing = said.contains("npm is missing")
                    || offline.iter().any(|code| said.contains(code));
                assert!(missing, "{said}");
                eprintln!("SKIPPED the_page_is_that_of_its_sources: {said}");
            }
        }
    }
}
